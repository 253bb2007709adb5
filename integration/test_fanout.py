"""Enhanced fan-out with real threads, real HTTP and real boto3: latency, threads, and wires that break."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from integration.proxy import Proxy
from integration.waiting import eventually
from kinesis_sdk.consumer import (
    ConsumerConfig,
    InMemoryLeaseStore,
    LeaseConfig,
    RetrievalConfig,
    Worker,
    worker,
)
from kinesis_sdk.testing import FakeAws, FakeAwsServer, ServerProcess, start_server_process
from kinesis_sdk.testing.http.http2 import Http2Connection
from tests import HANG

SHARDS = 8
PUTS = 200


class Arrivals:
    """Return the time at which each record was delivered."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.at: dict[bytes, float] = {}
        self.count = 0

    def handle(self, batch: Any) -> None:
        now = time.monotonic()
        with self.condition:
            for record in batch.records:
                self.at.setdefault(record.data, now)
                self.count += 1
            self.condition.notify_all()

    def wait_for(self, wanted: set[bytes], seconds: float) -> None:
        with self.condition:
            assert self.condition.wait_for(lambda: wanted <= self.at.keys(), seconds), (
                f"{len(wanted - self.at.keys())} of {len(wanted)} records are missing"
            )


@pytest.fixture(scope="module")
def remote() -> Iterator[ServerProcess]:
    with start_server_process("--no-throttle", "--create-stream", f"orders:{SHARDS}") as server:
        yield server


def connect(endpoint: str, **config: Any) -> Any:
    return boto3.client("kinesis", endpoint_url=endpoint, config=Config(**config))


def consume(endpoint: str, arrivals: Arrivals, http: Any = "1.1", **more: Any) -> Worker:
    return Worker(
        "orders",
        handler=arrivals.handle,
        config=ConsumerConfig(
            initial_position="TRIM_HORIZON",
            retrieval=RetrievalConfig(retrieval_mode="fanout", fanout_http=http),
            leases=LeaseConfig(failover_time=10 * HANG),  # no lease expires, which would repeat records
        ),
        lease_store=InMemoryLeaseStore(),
        **{"application_name": "app", "endpoint_url": endpoint, **more},
    )


def readers() -> int:
    return sum(thread.name.startswith("kinesis-fanout") for thread in threading.enumerate())


def subscriptions(aws: FakeAws) -> int:
    return aws.stats()["calls"].get("SubscribeToShard", 0)


def put_and_measure(kinesis: Any, arrivals: Arrivals, name: str) -> list[float]:
    sent: dict[bytes, float] = {}
    for number in range(PUTS):
        data = f"{name} {number}".encode()
        sent[data] = time.monotonic()
        kinesis.put_record(StreamName="orders", Data=data, PartitionKey=str(number))
        time.sleep(0.005)
    arrivals.wait_for(set(sent), HANG)
    return sorted(arrivals.at[data] - moment for data, moment in sent.items())


def show(name: str, delays: list[float], threads: int) -> None:
    print(
        f"{name}: {SHARDS} shards, put to handler: median {delays[len(delays) // 2] * 1000:.1f} ms, "
        f"99 % {delays[int(len(delays) * 0.99)] * 1000:.1f} ms; {threads} threads"
    )


def test_pushed_records_are_delivered_without_a_poll(remote: ServerProcess) -> None:
    kinesis = connect(remote.endpoint_url)
    arrivals = Arrivals()
    before = threading.active_count()
    with consume(remote.endpoint_url, arrivals):
        eventually(lambda: readers() >= SHARDS)
        pushed = put_and_measure(kinesis, arrivals, "pushed")
        threads = threading.active_count() - before
        show("fan-out", pushed, threads)
        # One for each shard, besides those that every worker has.
        assert readers() == SHARDS
    stats = remote.admin("stats")
    assert "GetRecords" not in stats["calls"]
    assert stats["calls"]["RegisterStreamConsumer"] == 1
    assert stats["calls"]["SubscribeToShard"] == SHARDS
    kinesis.close()


@pytest.mark.parametrize("http", ["1.1", "2"])
@pytest.mark.parametrize("fault", ["cut", "truncate", "stall"])
def test_wires_that_break_lose_and_repeat_nothing(
    fault: str, http: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        worker, "_READ_TIMEOUT", 2.0
    )  # a stall is to be noticed soon; heartbeats come every 5 s
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=2)
    arrivals = Arrivals()
    with FakeAwsServer(aws, tls=http == "2") as server, Proxy(server.endpoint_url) as proxy:
        if server.ca_file is not None:
            monkeypatch.setenv("AWS_CA_BUNDLE", server.ca_file)
        direct = connect(server.endpoint_url)
        sent: set[bytes] = set()

        def put(count: int) -> None:
            for _ in range(count):
                data = b"%d" % len(sent)
                direct.put_record(StreamName="orders", Data=data, PartitionKey=data.decode())
                sent.add(data)

        with consume(proxy.endpoint_url, arrivals, http):
            eventually(lambda: subscriptions(aws) >= 2)
            put(20)
            arrivals.wait_for(sent, HANG)
            if fault == "cut":
                proxy.cut()
            elif fault == "truncate":
                proxy.configure(truncate_after=300)
            else:
                proxy.configure(stall=True)
            put(20)
            time.sleep(1)
            proxy.heal()
            put(20)
            arrivals.wait_for(sent, HANG)
        assert arrivals.count == len(sent), "nothing twice"
        direct.close()


@pytest.fixture
def secure(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAwsServer]:
    """A fake AWS over TLS, which speaks HTTP/2, with a stream of ten shards."""
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=10)
    with FakeAwsServer(aws, tls=True) as server:
        assert server.ca_file is not None
        monkeypatch.setenv("AWS_CA_BUNDLE", server.ca_file)
        yield server


def put_all(aws: FakeAws, arrivals: Arrivals, name: str) -> None:
    client = aws.client("kinesis")
    sent = {b"%s %d" % (name.encode(), number) for number in range(100)}
    for data in sent:
        client.put_record(StreamName="orders", Data=data, PartitionKey=data.decode())
    arrivals.wait_for(sent, HANG)


def connections(monkeypatch: pytest.MonkeyPatch) -> list[Http2Connection]:
    """Note the HTTP/2 connections of the fake."""
    found: list[Http2Connection] = []
    run = Http2Connection.run

    def noted(self: Http2Connection) -> None:
        found.append(self)
        run(self)

    monkeypatch.setattr(Http2Connection, "run", noted)
    return found


def test_shards_share_a_connection_and_a_thread(
    secure: FakeAwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = connections(monkeypatch)
    arrivals = Arrivals()
    with consume(secure.endpoint_url, arrivals, "2"):
        eventually(lambda: subscriptions(secure.aws) >= 10)
        put_all(secure.aws, arrivals, "a")
        assert readers() == len(found) == 1
        assert found[0]._protocol.open_inbound_streams == 10
    assert arrivals.count == 100
    assert "GetRecords" not in secure.aws.stats()["calls"]


def test_a_connection_that_the_service_ends_is_replaced(
    secure: FakeAwsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = connections(monkeypatch)
    caplog.set_level("INFO")
    arrivals = Arrivals()
    with consume(secure.endpoint_url, arrivals, "2"):
        eventually(lambda: subscriptions(secure.aws) >= 10)
        put_all(secure.aws, arrivals, "a")
        with found[0]._changed:
            found[0]._protocol.close_connection()
            found[0]._flush()
        put_all(secure.aws, arrivals, "b")
    assert len(found) == 2
    assert arrivals.count == 200, "nothing twice"
    assert "GOAWAY" in caplog.text


def test_a_client_that_is_watched_or_an_endpoint_without_http2_is_read_over_http1(
    secure: FakeAwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = connect(secure.endpoint_url)
    requests: list[str] = []
    watched.meta.events.register("before-send.kinesis", lambda request, **_: requests.append(request.url))
    plain = FakeAwsServer(secure.aws)
    with plain:
        for client in (watched, connect(plain.endpoint_url)):
            arrivals = Arrivals()
            before = secure.aws.stats()["calls"].get("SubscribeToShard", 0)
            application = f"app-{len(requests)}"
            with consume(
                secure.endpoint_url,
                arrivals,
                "2",
                kinesis_client=client,
                endpoint_url=None,
                application_name=application,
            ):
                eventually(lambda: subscriptions(secure.aws) >= before + 10)  # noqa: B023
                eventually(lambda: readers() >= 10)
                put_all(secure.aws, arrivals, application)
            client.close()
    assert requests
