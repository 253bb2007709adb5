"""Requests on open connections: what is written, what is read, and what becomes of the connection."""

from __future__ import annotations

import io
import json
import queue
import ssl
from typing import Any
from unittest import mock

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, HTTPClientError, ReadTimeoutError, SSLError
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.util import Timeout

from kinesis_sdk.common.errors import KinesisSdkError, TransientAwsError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import PutEntry, connection, get_records, put_records
from tests.common.transport.wire import URL, FakeSession, Wire, outcome, page


class Broken(io.RawIOBase):
    """A stream that cannot be read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise self.error


class Socket:
    """A connected socket: ``responses`` are bytes, or an exception of the next read."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.responses: list[bytes | Exception] = []
        self.timeouts: list[float | None] = []
        self.fails: Exception | None = None
        self.closed = False

    def gettimeout(self) -> float | None:
        return self.timeouts[-1] if self.timeouts else None

    def settimeout(self, timeout: float | None) -> None:
        self.timeouts.append(timeout)

    def sendall(self, data: bytes | memoryview) -> None:
        if self.fails is not None:
            raise self.fails
        self.sent.append(bytes(data))

    def makefile(self, _: str) -> Any:
        response = self.responses.pop(0) if self.responses else b""
        broken = isinstance(response, Exception)
        return io.BufferedReader(Broken(response) if broken else io.BytesIO(response))  # type: ignore[type-var,arg-type]

    def close(self) -> None:
        self.closed = True


class Pool(HTTPConnectionPool):
    """urllib3's pool with connections of this test."""

    def __init__(self, **more: Any) -> None:
        super().__init__("stream.example", 4567, timeout=Timeout(connect=3, read=7), maxsize=2, **more)

    def open(self) -> Socket:
        """Put an open connection into the pool, as after a request of the session."""
        opened, sock = self._get_conn(), Socket()
        opened.sock = sock  # type: ignore[assignment]
        self._put_conn(opened)
        return sock

    @property
    def free(self) -> list[Any]:
        assert isinstance(self.pool, queue.Queue)
        return [each for each in self.pool.queue if each is not None]


class PoolSession(FakeSession):
    """A session whose responses show their pool."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.pool = pool

    def send(self, request: Any) -> AWSResponse:
        response = super().send(request)
        response.raw._pool = self.pool
        return response


@pytest.fixture(autouse=True)
def alive(monkeypatch: pytest.MonkeyPatch) -> None:
    # urllib3 asks the operating system about the socket.
    monkeypatch.setattr("urllib3.connectionpool.is_connection_dropped", lambda opened: opened.sock is None)


@pytest.fixture
def wire() -> Wire:
    return pooled(Pool())


def pooled(pool: Any) -> Wire:
    wire = Wire()
    wire.session = wire.client._endpoint.http_session = PoolSession(pool)
    get(wire)  # boto3 makes the first call
    return wire


def get(wire: Wire) -> Any:
    return get_records(wire.lean, "first", 100)


def answer(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", "x-amzn-RequestId: id", f"Content-Length: {size}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def pool_of(wire: Wire) -> Pool:
    assert isinstance(wire.session, PoolSession)
    return wire.session.pool  # type: ignore[no-any-return]


def test_an_open_connection_is_used_again(wire: Wire) -> None:
    sock = pool_of(wire).open()
    sock.responses = [answer(page(2)), answer(page(3))]
    assert [len(get(wire).records) for _ in range(2)] == [2, 3]
    assert len(wire.session.requests) == 1, "only boto3's"
    assert len(sock.sent) == 2
    assert sock.timeouts == [7], "it stays"
    assert [each.sock for each in pool_of(wire).free] == [sock]
    head, _, body = sock.sent[0].partition(b"\r\n\r\n")
    line, *headers = head.decode("latin-1").split("\r\n")
    assert line == "POST / HTTP/1.1"
    assert json.loads(body) == {"ShardIterator": "first", "Limit": 100}
    shown = dict(header.split(": ", 1) for header in headers)
    theirs = wire.session.requests[0].headers
    assert shown.keys() == {*theirs.keys(), "Host", "Accept-Encoding"}
    assert shown["Host"] == "stream.example:4567"
    assert shown["Accept-Encoding"] == "identity"
    assert shown["Content-Length"] == str(len(body))


def test_without_an_open_connection_the_session_sends(wire: Wire) -> None:
    for _ in range(2):
        get(wire)
    assert wire.session.last_was_lean
    assert len(wire.session.requests) == 3
    pool_of(wire).close()
    get(wire)
    assert len(wire.session.requests) == 4


def test_another_session_has_another_pool(wire: Wire) -> None:
    old = pool_of(wire).open()
    wire.session = wire.client._endpoint.http_session = PoolSession(Pool())
    get(wire)
    assert not old.sent
    new = pool_of(wire).open()
    new.responses = [answer(page(1))]
    assert len(get(wire).records) == 1


@pytest.mark.parametrize(
    "pool",
    [
        mock.Mock(spec=["timeout"]),
        mock.Mock(spec=["_get_conn", "_put_conn"]),
        Pool(_proxy="http://proxy.example"),
        None,
    ],
)
def test_pools_of_another_kind_and_proxies_are_left_to_the_session(pool: Any) -> None:
    if isinstance(pool, Pool):
        pool.open()
    wire = pooled(pool)
    for _ in range(2):
        get(wire)
    assert len(wire.session.requests) == 3


def test_a_token_with_a_line_break_adds_no_header(wire: Wire) -> None:
    sock = pool_of(wire).open()
    wire.client._request_signer._credentials.token = "x\r\nX-Amz-Target: other"
    outcome(lambda: get(wire))
    assert not sock.sent
    assert len(wire.session.requests) == 2, "the session decides"


def test_large_requests_are_written_in_blocks(wire: Wire) -> None:
    entries = [PutEntry(bytes(connection._BLOCK // 2), "k")] * 5
    stored = json.dumps(
        {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1", "ShardId": "s"}] * 5}
    ).encode()
    wire.session.responses = [(200, stored)]
    put_records(wire.lean, StreamId("orders"), entries)
    sock = pool_of(wire).open()
    sock.responses = [answer(stored)]
    put_records(wire.lean, StreamId("orders"), entries)
    assert max(map(len, sock.sent)) == connection._BLOCK
    body = b"".join(sock.sent).partition(b"\r\n\r\n")[2]
    assert json.loads(body) == json.loads(wire.session.requests[-1].body)


ENDS: dict[str, bytes] = {
    "asked": answer(page(1), "Connection: close"),
    "HTTP/1.0": answer(page(1)).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "no length": b"HTTP/1.1 200 OK\r\n\r\n" + page(1),
}


@pytest.mark.parametrize("name", ENDS)
def test_connections_that_the_service_ends_are_closed(wire: Wire, name: str) -> None:
    sock = pool_of(wire).open()
    sock.responses = [ENDS[name]]
    assert len(get(wire).records) == 1
    assert sock.closed
    assert [each.sock for each in pool_of(wire).free] == [None], "its place in the pool remains"


def test_chunked_responses_and_repeated_headers_are_read(wire: Wire) -> None:
    body = page(2)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:])) + b"0\r\n\r\n"
    sock = pool_of(wire).open()
    sock.responses = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: 1\r\nA: 2\r\n\r\n" + chunks,
        answer(page(1)),
    ]
    found = get(wire)
    assert len(found.records) == 2
    assert found.metadata["HTTPHeaders"] == {"transfer-encoding": "chunked", "a": "1, 2"}
    assert len(get(wire).records) == 1


HEADS = [
    "HTTP/1.1 200 OK|Content-Length: 2|x-amzn-RequestId:  a b |Empty:|Connection: keep-alive",
    "HTTP/1.1 400|Content-Length: 2",
    "HTTP/1.1 200 OK|Content-Length: 2|CONNECTION: Close",
    "HTTP/1.1 200 OK|Content-Length: 02",
    "HTTP/1.1 500 Busy now|content-length: 2|A: b:c",
]
UNUSUAL_HEADS = [
    "HTTP/1.0 200 OK|Content-Length: 2",
    "HTTP/1.1 100 Continue||HTTP/1.1 200 OK|Content-Length: 2",
    "HTTP/1.1 204 No Content|Content-Length: 2",
    "HTTP/1.1 2000 OK|Content-Length: 2",
    "HTTP/1.1 2x0 OK|Content-Length: 2",
    "HTTP/1.1 200 O\nK: 1|Content-Length: 2",
    "HTTP/1.1 200 OK|Content-Length: 2|A: 1\nB: 2",
    "HTTP/1.1 200 OK|Content-Length: 2|A: 1\rB: 2",
    "HTTP/1.1 200 OK|Content-Length: 2|A: 1|  continued",
    "HTTP/1.1 200 OK|Content-Length: 2|A : 1|B: 2",
    "HTTP/1.1 200 OK|Content-Length: 2|no colon|B: 2",
    "HTTP/1.1 200 OK|Content-Length: 2|: 1|B: 2",
    "HTTP/1.1 200 OK|Content-Length: 2|A: \xe9",
    "HTTP/1.1 200 OK|Content-Length: 2|A: \t1",
    "HTTP/1.1 200 OK|Content-Length: 2|A: 1|a: 2",
    "HTTP/1.1 200 OK|Content-Length: 2|Content-Length: 1",
    "HTTP/1.1 200 OK|Content-Length: +2",
    "HTTP/1.1 200 OK|Content-Length: -2",
    "HTTP/1.1 200 OK|Content-Length: two",
    "HTTP/1.1 200 OK|Content-Length: " + "0" * 5_000 + "2",
    "HTTP/1.1 200 OK|Content-Length: 2|Transfer-Encoding: identity",
    "HTTP/1.1 200 OK|Content-Length: 2|" + "|".join(f"A{number}: 1" for number in range(70)),
    "HTTP/1.1 200 OK|A: 1",
]


def read_by(sock: Socket, *, fast: bool) -> Any:
    request = mock.Mock(head=b"", body=b"", url=URL)
    with mock.patch.object(connection, "_head", connection._head if fast else lambda _: None):
        found = outcome(lambda: connection._exchange(sock, 7, request))
    if isinstance(found[0], connection.Response):
        response, reusable = found
        return response.status_code, response.headers, response.content, reusable
    return found[:2]


@pytest.mark.parametrize("head", [*HEADS, *UNUSUAL_HEADS])
@pytest.mark.parametrize("body", [b"{}", b"{}more", b"{"])
def test_a_response_is_read_as_by_the_standard_library(head: str, body: bytes) -> None:
    response = head.replace("|", "\r\n").encode("latin-1") + b"\r\n\r\n" + body
    results = []
    for fast in (False, True):
        sock = Socket()
        sock.responses = [response]
        if fast and head in HEADS:
            with mock.patch.object(connection.http.client, "HTTPResponse", side_effect=AssertionError):
                results.append(read_by(sock, fast=True))
        else:
            results.append(read_by(sock, fast=fast))
    assert results[1] == results[0]
    assert (connection._head(response) is not None) == (head in HEADS)


FAILURES: dict[str, tuple[bytes | Exception, type[Exception]]] = {
    "closed before the response": (b"", ConnectionClosedError),
    "reset": (ConnectionResetError(), ConnectionClosedError),
    "silence": (TimeoutError("timed out"), ReadTimeoutError),
    "TLS": (ssl.SSLError(1, "bad record mac"), SSLError),
    "not HTTP": (b"SSH-2.0-OpenSSH_9\r\n", ConnectionClosedError),
    "a line without end": (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000, ConnectionClosedError),
    "too many headers": (answer(page(), *["A: 1"] * 200), ConnectionClosedError),
    "too large by its header": (answer(page(), length=connection.MAX_BODY + 1), HTTPClientError),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_those_of_the_session(wire: Wire, name: str) -> None:
    response, kind = FAILURES[name]
    sock = pool_of(wire).open()
    sock.responses = [response]
    with pytest.raises(TransientAwsError) as caught:
        get(wire)
    assert type(caught.value.__cause__) is kind
    assert len(wire.session.requests) == 1, "nothing is sent twice"
    assert sock.closed
    assert len(pool_of(wire).free) == 1


def test_the_size_of_a_response_without_length_is_bounded(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_BODY", 1_000_000)

    class Endless(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            start = b"" if self.given else b"HTTP/1.1 200 OK\r\n\r\n"
            buffer[:] = start + bytes(len(buffer) - len(start))
            self.given += len(buffer)
            return len(buffer)

    stream = Endless()
    sock = pool_of(wire).open()
    with (
        mock.patch.object(sock, "makefile", return_value=io.BufferedReader(stream)),
        pytest.raises(KinesisSdkError, match="more than 1,000,000 bytes"),
    ):
        get(wire)
    assert stream.given <= 1_000_000 + (2 << 16)
    assert sock.closed


TRUNCATED = {
    "in the headers": answer(page(2))[:30],
    "no body": answer(b"", length=len(page(2))),
    "a part": answer(page(2)[:9], length=len(page(2))),
    "all but a byte": answer(page(2)[:-1], length=len(page(2))),
    "a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n{",
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_truncated_response_is_not_believed(wire: Wire, name: str) -> None:
    sock = pool_of(wire).open()
    sock.responses = [TRUNCATED[name]]
    with pytest.raises(KinesisSdkError) as caught:
        get(wire)
    assert caught.value.retryable
    assert sock.closed
    assert len(wire.session.requests) == 1
    again = pool_of(wire).open()
    again.responses = [answer(page(2))]
    assert len(get(wire).records) == 2
    assert again.sent


def test_an_early_response_to_a_large_request_is_read(wire: Wire) -> None:
    sock = pool_of(wire).open()
    sock.fails = BrokenPipeError()
    sock.responses = [
        answer(b'{"__type": "ProvisionedThroughputExceededException"}', status="400 Bad Request")
    ]
    with pytest.raises(KinesisSdkError, match="ProvisionedThroughputExceededException"):
        get(wire)


def test_an_interrupted_call_leaves_no_half_read_connection(wire: Wire) -> None:
    sock = pool_of(wire).open()
    with (
        mock.patch.object(sock, "makefile", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        get(wire)
    assert sock.closed
    assert len(pool_of(wire).free) == 1


def test_errors_name_the_endpoint_without_the_request(wire: Wire) -> None:
    sock = pool_of(wire).open()
    sock.responses = [ConnectionResetError()]
    with pytest.raises(TransientAwsError, match=URL) as caught:
        get(wire)
    assert getattr(caught.value.__cause__, "request", None) is None
