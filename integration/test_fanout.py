"""Enhanced fan-out with real threads, real HTTP and real boto3: latency, threads, and wires that break."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from integration.proxy import Proxy
from kinesis_sdk.consumer import (
    ConsumerConfig,
    InMemoryLeaseStore,
    LeaseConfig,
    RetrievalConfig,
    Worker,
    worker,
)
from kinesis_sdk.testing import FakeAws, FakeAwsServer, ServerProcess, start_server_process
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


def connect(endpoint: str) -> Any:
    return boto3.client("kinesis", endpoint_url=endpoint)


def consume(endpoint: str, arrivals: Arrivals) -> Worker:
    return Worker(
        "orders",
        application_name="app",
        handler=arrivals.handle,
        config=ConsumerConfig(
            initial_position="TRIM_HORIZON",
            retrieval=RetrievalConfig(retrieval_mode="fanout"),
            leases=LeaseConfig(failover_time=10 * HANG),  # no lease expires, which would repeat records
        ),
        endpoint_url=endpoint,
        lease_store=InMemoryLeaseStore(),
    )


def readers() -> int:
    return sum(thread.name.startswith("kinesis-fanout") for thread in threading.enumerate())


def await_readers(count: int) -> None:
    deadline = time.monotonic() + HANG
    while readers() < count:
        assert time.monotonic() < deadline, f"{readers()} readers"
        time.sleep(0.02)


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
        await_readers(SHARDS)
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


@pytest.mark.parametrize("fault", ["cut", "truncate", "stall"])
def test_wires_that_break_lose_and_repeat_nothing(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        worker, "_READ_TIMEOUT", 2.0
    )  # a stall is to be noticed soon; heartbeats come every 5 s
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName="orders", ShardCount=2)
    arrivals = Arrivals()
    with FakeAwsServer(aws) as server, Proxy(server.endpoint_url) as proxy:
        direct = connect(server.endpoint_url)
        sent: set[bytes] = set()

        def put(count: int) -> None:
            for _ in range(count):
                data = b"%d" % len(sent)
                direct.put_record(StreamName="orders", Data=data, PartitionKey=data.decode())
                sent.add(data)

        with consume(proxy.endpoint_url, arrivals):
            await_readers(2)
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
