"""The transport and boto3 side by side over HTTP and TLS against the fake AWS: the same answers, the same exceptions."""

from __future__ import annotations

import datetime as dt
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ProxyConnectionError, ReadTimeoutError, SSLError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from integration.proxy import Proxy
from kinesis_sdk.common.aws import make_client, translate_errors
from kinesis_sdk.common.errors import KinesisSdkError, TransientAwsError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage, PutEntry, Transport, cbor, get_records, put_records
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.testing import FakeAws, FakeAwsServer, Fault, FaultKind, VirtualClock
from tests import HANG

SHARD = "shardId-000000000000"


# -- TLS and an HTTP proxy --------------------------------------------------------------------------------------------


def pump(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until one side ends, then end both."""
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Relay:
    """Accepts connections and passes their bytes on: a TLS endpoint before a plain one, or a proxy with CONNECT.

    Args:
        target: Address to pass on to; None reads it from the CONNECT request of each connection.
        tls: Server side of the TLS connection; None accepts plain connections.
    """

    def __init__(self, target: tuple[str, int] | None, tls: ssl.SSLContext | None) -> None:
        self._target, self._tls = target, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with ExitStack() as stack, suppress(OSError):
            stack.enter_context(connection)
            if self._tls is not None:
                connection = stack.enter_context(self._tls.wrap_socket(connection, server_side=True))
            target = self._target
            if target is None:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    piece = connection.recv(1)
                    if not piece:
                        return
                    head += piece
                host, _, port = head.split()[1].decode().rpartition(":")
                target = (host, int(port))
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            onward = stack.enter_context(socket.create_connection(target))
            back = threading.Thread(target=pump, args=(onward, connection))
            back.start()
            pump(connection, onward)
            back.join(HANG)

    def close(self) -> None:
        # A thread in accept() does not notice that its socket is closed.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def relay(target: tuple[str, int] | None, tls: ssl.SSLContext | None = None) -> Iterator[Relay]:
    running = Relay(target, tls)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of localhost with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path


# -- side by side -----------------------------------------------------------------------------------------------------


@pytest.fixture
def aws() -> FakeAws:
    aws = FakeAws(clock=VirtualClock(), throttle=False)
    client = aws.client("kinesis")
    client.create_stream(StreamName="s", ShardCount=2)
    for index in range(9):
        client.put_record(StreamName="s", Data=b"%d" % index, PartitionKey="k", ExplicitHashKey="0")
    return aws


@pytest.fixture
def server(aws: FakeAws) -> Iterator[FakeAwsServer]:
    with FakeAwsServer(aws) as server:
        yield server


def address(server: FakeAwsServer) -> tuple[str, int]:
    parts = urlsplit(server.endpoint_url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def connect(endpoint: str, *, verify: Any = None, **config: Any) -> Any:
    return boto3.client(
        "kinesis",
        endpoint_url=endpoint,
        region_name="eu-central-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        verify=verify,
        config=Config(**{"retries": {"total_max_attempts": 1, "mode": "standard"}, **config}),
    )


@pytest.fixture(params=["http", "tls", "tls through a proxy"])
def client(request: Any, server: FakeAwsServer, certificate: Path) -> Iterator[Any]:
    if request.param == "http":
        client = connect(server.endpoint_url)
        yield client
        client.close()
        return
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with relay(address(server), tls) as endpoint, relay(None) as proxy:
        proxied = request.param != "tls"
        client = connect(
            f"https://localhost:{endpoint.port}",
            verify=str(certificate),
            **({"proxies": {"https": f"http://127.0.0.1:{proxy.port}"}} if proxied else {}),
        )
        yield client
        assert bool(proxy.connections) == proxied
        client.close()


def iterator_of(client: Any, kind: str = "TRIM_HORIZON", **more: Any) -> str:
    answer = client.get_shard_iterator(StreamName="s", ShardId=SHARD, ShardIteratorType=kind, **more)
    return str(answer["ShardIterator"])


def without_id(outcome: Any) -> Any:
    """An outcome without what differs between two calls: the id, the date, and new iterators."""
    if isinstance(outcome, Exception):
        facts = {
            name: value for name, value in vars(outcome).items() if name not in {"response", "request_id"}
        }
        return type(outcome), str(outcome), facts, without_id(getattr(outcome, "response", None))
    if isinstance(outcome, GetRecordsPage):
        return outcome._replace(
            next_iterator=outcome.next_iterator and "some", metadata=metadata_of(outcome.metadata)
        )
    if not isinstance(outcome, dict):
        return outcome
    plain = {name: value for name, value in outcome.items() if "ShardIterator" not in name}
    return {
        **plain,
        "ResponseMetadata": metadata_of(outcome["ResponseMetadata"]),
        "iterators": [name for name in outcome if "ShardIterator" in name],
    }


def metadata_of(response: Any) -> dict[str, Any]:
    metadata = {name: value for name, value in response.items() if name != "RequestId"}
    metadata["HTTPHeaders"] = {
        name: value
        for name, value in metadata["HTTPHeaders"].items()
        if name not in {"x-amzn-requestid", "x-amz-id-2", "date"}
    }
    return metadata


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return without_id(call())
    except Exception as error:  # noqa: BLE001 - compared with another
        return without_id(error)


def compare(aws: FakeAws, client: Any, call: Callable[[Any], Any], *faults: Fault) -> Any:
    """Return the outcome of a call after checking that boto3 and the transport, in JSON and in CBOR, have the same, by as many requests."""
    transport: Any = Transport(client)
    binary: Any = Transport(client, speaks_cbor=True)
    seen = []
    with mock.patch.object(cbor, "LARGE", 0):
        for each in (transport, binary):
            for _ in range(2):
                get_records(each, iterator_of(each), 5)
                put_records(each, StreamId("s"), [PutEntry(b"other shard", "k", str(2**128 - 1))])
            assert len(each._forms) == 3
        spoken = get_records(binary, iterator_of(binary), 5).metadata["HTTPHeaders"]["content-type"]
        assert spoken == cbor.CONTENT_TYPE
        for each in (client, transport, binary):
            for fault in faults:
                aws.faults.add(fault)
            before = sum(aws.stats()["calls"].values())
            found = outcome(lambda each=each: call(each))
            seen.append((found, sum(aws.stats()["calls"].values()) - before))
            aws.faults.clear()
    assert seen[1] == seen[0]
    assert without_type(seen[2]) == without_type(seen[0])
    return seen[0][0]


def without_type(found: Any) -> Any:
    """A found outcome without the type and the length of the response's body."""
    if isinstance(found, dict):
        return {
            name: without_type(value)
            for name, value in found.items()
            if name not in {"content-type", "content-length"}
        }
    return tuple(without_type(each) for each in found) if isinstance(found, tuple) else found


def test_answers(aws: FakeAws, client: Any) -> None:
    iterator = iterator_of(client)
    page = compare(aws, client, lambda each: get_records(each, iterator, 5))
    assert len(page.records) == 5
    last = client.get_records(ShardIterator=iterator)
    empty = compare(aws, client, lambda each: get_records(each, last["NextShardIterator"], 100))
    assert empty.records == []
    number = last["Records"][3]["SequenceNumber"]
    for kind, more in (
        ("LATEST", {}),
        ("AFTER_SEQUENCE_NUMBER", {"StartingSequenceNumber": number}),
        ("AT_TIMESTAMP", {"Timestamp": last["Records"][0]["ApproximateArrivalTimestamp"]}),
    ):
        opened = compare(aws, client, lambda each, kind=kind, more=more: {
            **each.get_shard_iterator(StreamName="s", ShardId=SHARD, ShardIteratorType=kind, **more)})  # fmt: skip
        assert opened["iterators"] == ["ShardIterator"]
    client.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey=str(1 << 100))
    end = compare(aws, client, lambda each: get_records(each, iterator, 100))
    assert len(end.child_shards) == 2
    assert end.next_iterator is None


FAULTS: list[FaultKind] = ["throttle", "error", "expired_credentials", "expired_iterator"]


def test_a_producer_speaks_cbor(aws: FakeAws, server: FakeAwsServer) -> None:
    answers: list[bool] = []

    def noted(transport: Transport, response: Any) -> bool:
        answers.append(answered(transport, response))
        return answers[-1]

    answered = Transport._answers_in_cbor
    config = ProducerConfig(wire_format="cbor", aggregation_enabled=False)
    payloads = [bytes([index]) * 3_000 for index in range(20)]
    with (
        mock.patch.object(Transport, "_answers_in_cbor", noted),
        Producer(config, client=connect(server.endpoint_url)) as producer,
    ):
        for payload in payloads:
            producer.put("s", "k", payload, explicit_hash_key=0)
            assert producer.flush(HANG) == 0
    assert answers == [True] * (len(payloads) - 1)  # the first call is boto3's
    plain = aws.client("kinesis")
    read = plain.get_records(ShardIterator=iterator_of(plain))["Records"]
    assert [record["Data"] for record in read if len(record["Data"]) > 1] == payloads


def test_cut_answers(aws: FakeAws, server: FakeAwsServer) -> None:
    with Proxy(server.endpoint_url) as proxy:
        client = make_client("kinesis", endpoint_url=proxy.endpoint_url)
        transport: Any = Transport(client)
        iterator = iterator_of(transport)
        for _ in range(2):
            get_records(transport, iterator, 100)
            iterator_of(transport)
        for mode in ("truncate_after", "reset_after"):
            for length in range(0, 700, 31):
                proxy.configure(**{mode: length})
                try:
                    page = get_records(transport, iterator, 100)
                except KinesisSdkError as error:
                    assert error.retryable, f"{mode}={length}: {error}"
                else:
                    assert len(page.records) == 9, f"{mode}={length}: half an answer was believed"
                with translate_to_retryable():
                    assert iterator_of(transport)
        proxy.heal()
        assert len(get_records(transport, iterator, 100).records) == 9
        client.close()


@contextmanager
def translate_to_retryable() -> Iterator[None]:
    try:
        with translate_errors("GetShardIterator"):
            yield
    except KinesisSdkError as error:
        assert error.retryable


def test_dead_connections_and_timeouts(aws: FakeAws, server: FakeAwsServer) -> None:
    with Proxy(server.endpoint_url) as proxy:
        transport: Any = Transport(connect(proxy.endpoint_url, read_timeout=3.0))
        iterator = iterator_of(transport)
        for _ in range(3):
            get_records(transport, iterator, 100)
        assert proxy.cut() >= 1
        # The connection in the pool is dead; urllib3 notices it and opens another.
        assert get_records(transport, iterator, 100).records
        proxy.configure(stall=True)
        with pytest.raises(TransientAwsError) as caught:
            get_records(transport, iterator, 100)
        assert isinstance(caught.value.__cause__, ReadTimeoutError)
        proxy.heal()
        assert get_records(transport, iterator, 100).records
        transport.close()


def test_certificates_and_proxies_are_those_of_the_client(
    aws: FakeAws, server: FakeAwsServer, certificate: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with relay(address(server), tls) as endpoint:
        url = f"https://localhost:{endpoint.port}"
        transport: Any = Transport(connect(url, verify=str(certificate)))
        iterator = iterator_of(transport)
        for _ in range(2):
            assert get_records(transport, iterator, 100).records
        distrustful = connect(url)
        with pytest.raises(SSLError):
            Transport(distrustful).get_shard_iterator(
                StreamName="s", ShardId=SHARD, ShardIteratorType="LATEST"
            )
        # A client whose first calls worked rejects the certificate once it does not trust it any more.
        transport.close()
        transport.client._endpoint.http_session = distrustful._endpoint.http_session
        for form in transport._forms.values():
            assert form.connections.endpoint is transport.client._endpoint
        with pytest.raises(TransientAwsError) as caught:
            get_records(transport, iterator, 100)
        assert isinstance(caught.value.__cause__, SSLError)
        transport.close()
        distrustful.close()
    with relay(None) as proxy:
        behind = connect(
            server.endpoint_url.replace("http:", "https:"),
            proxies={"https": f"http://127.0.0.1:{proxy.port}"},
        )
        proxy.close()
        with pytest.raises(ProxyConnectionError):
            Transport(behind).get_shard_iterator(StreamName="s", ShardId=SHARD, ShardIteratorType="LATEST")
        behind.close()


def test_threads(aws: FakeAws, client: Any) -> None:
    transport: Any = Transport(client)
    put_records(transport, StreamId("s"), [PutEntry(b"more", "k", "0")] * 40)

    def read(_: int) -> int:
        records = 0
        iterator: str | None = iterator_of(transport)
        for _ in range(8):
            assert iterator is not None
            page = get_records(transport, iterator, 7)
            records += len(page.records)
            iterator = page.next_iterator
        return records

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(read, range(12), timeout=HANG)) == [49] * 12


# -- records ----------------------------------------------------------------------------------------------------------

ODD_KEYS = ['"', "\\", "\n\x00", "é", "😀", "]}", "k" * 256, "null", "\u2028"]


def contents(client: Any, stream: str) -> list[list[tuple[bytes, str]]]:
    """Data and keys of a stream shard by shard, read by boto3."""
    found = []
    for shard in range(2):
        opened = client.get_shard_iterator(
            StreamName=stream, ShardId=f"shardId-{shard:012d}", ShardIteratorType="TRIM_HORIZON"
        )
        answer = client.get_records(ShardIterator=opened["ShardIterator"])
        found.append([(record["Data"], record["PartitionKey"]) for record in answer["Records"]])
    return found


def test_the_same_is_stored(aws: FakeAws, client: Any) -> None:
    for stream in ("ours", "theirs"):
        aws.client("kinesis").create_stream(StreamName=stream, ShardCount=2, MaxRecordSizeInKiB=10240)
    batches = [
        [PutEntry(os.urandom(index * 97 % 400), f"key-{index}") for index in range(500)],
        [PutEntry(b"", key, str(number << 122)) for number, key in enumerate(ODD_KEYS)],
        [PutEntry(os.urandom(50_000), "a", str(2**128 - 1)) for _ in range(100)],
    ]
    transport: Any = Transport(client)
    for entries in batches:
        ours = put_records(transport, StreamId("ours"), entries)
        theirs = put_records(client, StreamId("theirs"), entries)
        assert ours["FailedRecordCount"] == theirs["FailedRecordCount"] == 0
        assert [each["ShardId"] for each in ours["Records"]] == [
            each["ShardId"] for each in theirs["Records"]
        ]
    stored = contents(client, "ours")
    assert stored == contents(client, "theirs")
    assert sum(map(len, stored)) == sum(map(len, batches))


def test_a_record_of_ten_mebibytes(aws: FakeAws, client: Any) -> None:
    aws.client("kinesis").create_stream(StreamName="large", ShardCount=1, MaxRecordSizeInKiB=10240)
    data = os.urandom((10 << 20) - 1)
    transport: Any = Transport(client)
    for each in (b"first", data):
        put_records(transport, StreamId("large"), [PutEntry(each, "k")])
    iterator: str | None = transport.get_shard_iterator(
        StreamName="large", ShardId=SHARD, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    read: list[bytes] = []
    while len(read) < 2:
        assert iterator is not None
        page = get_records(transport, iterator, 100)
        read += [record.data for record in page.records]
        iterator = page.next_iterator
    assert read == [b"first", data]


def test_single_records_that_fail(aws: FakeAws, client: Any) -> None:
    transport: Any = Transport(client)
    put_records(transport, StreamId("s"), [PutEntry(b"x", "k")])
    aws.faults.add(Fault(kind="partial", operation="PutRecords", count=2, after=1))
    answer = put_records(transport, StreamId("s"), [PutEntry(b"x", "k")] * 4)
    assert answer["FailedRecordCount"] == 2
    assert [bool(each.get("ErrorCode")) for each in answer["Records"]] == [False, True, True, False]
