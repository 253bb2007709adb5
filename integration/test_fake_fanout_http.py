"""SubscribeToShard over HTTP with real boto3: frames, errors, take-over, waiting, and what a lost client leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from urllib3.exceptions import ProtocolError

from integration.waiting import eventually
from kinesis_sdk.testing import FakeAws, FakeAwsServer, Fault, VirtualClock, start_server_process
from tests import HANG

SHARD = "shardId-000000000000"


class Remote:
    """A boto3 client of an endpoint, with a stream and a consumer of its own."""

    def __init__(self, endpoint: str, shards: int = 1) -> None:
        self.kinesis = boto3.client(
            "kinesis", endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1})
        )
        self.kinesis.create_stream(StreamName="s", ShardCount=shards)
        self.arn = self.kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"][
            "StreamARN"
        ]
        made = self.kinesis.register_stream_consumer(StreamARN=self.arn, ConsumerName="c")
        self.consumer = made["Consumer"]["ConsumerARN"]
        self.streams: list[Any] = []

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        self.kinesis.close()

    def subscribe(self, kind: str = "TRIM_HORIZON", **more: Any) -> Any:
        stream = self.kinesis.subscribe_to_shard(
            ConsumerARN=self.consumer, ShardId=SHARD, StartingPosition={"Type": kind, **more}
        )["EventStream"]
        self.streams.append(stream)
        return stream

    def put(self, data: bytes) -> None:
        self.kinesis.put_record(StreamName="s", Data=data, PartitionKey="é")


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws(clock=VirtualClock(), throttle=False)


@pytest.fixture
def remote(aws: FakeAws) -> Iterator[Remote]:
    with FakeAwsServer(aws) as server:
        remote = Remote(server.endpoint_url)
        yield remote
        remote.close()


def events_of(stream: Any) -> Iterator[dict[str, Any]]:
    return (event["SubscribeToShardEvent"] for event in stream)


def test_boto3_reads_events_to_the_end_of_the_shard(aws: FakeAws, remote: Remote) -> None:
    remote.put(bytes(range(256)))
    events = events_of(remote.subscribe())
    first = next(events)
    (record,) = first["Records"]
    assert (record["Data"], record["PartitionKey"]) == (bytes(range(256)), "é")
    assert record["ApproximateArrivalTimestamp"].timestamp() == aws.clock.time()
    assert first["ContinuationSequenceNumber"] == record["SequenceNumber"]
    remote.put(b"later")
    assert [record["Data"] for record in next(events)["Records"]] == [b"later"]
    remote.kinesis.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey="5")
    last = next(events)
    assert [child["HashKeyRange"]["StartingHashKey"] for child in last["ChildShards"]] == ["0", "5"]
    assert "ContinuationSequenceNumber" not in last
    assert list(events) == []


def test_refusals_are_http_errors(remote: Remote) -> None:
    with pytest.raises(remote.kinesis.exceptions.InvalidArgumentException):
        remote.subscribe("AT_SEQUENCE_NUMBER", SequenceNumber="5")
    remote.subscribe()
    with pytest.raises(remote.kinesis.exceptions.ResourceInUseException):
        remote.subscribe()


def test_a_fault_breaks_the_connection(aws: FakeAws, remote: Remote) -> None:
    aws.faults.add(Fault(kind="broken_stream", after=1))
    events = events_of(remote.subscribe())
    next(events)
    remote.put(b"x")
    with pytest.raises(ProtocolError):
        next(events)


def test_a_client_that_leaves_is_noticed(aws: FakeAws, remote: Remote) -> None:
    stream = remote.subscribe()
    next(iter(stream))
    subscription = aws.kinesis.registry.streams["s"].consumers["c"].subscriptions[SHARD]
    assert not subscription.is_over
    stream.close()
    eventually(lambda: subscription.is_over)


def test_stopping_the_server_ends_subscriptions(aws: FakeAws) -> None:
    with FakeAwsServer(aws) as server:
        remote = Remote(server.endpoint_url)
        events = events_of(remote.subscribe())
        next(events)
    with pytest.raises(ProtocolError):
        list(events)
    remote.close()


def test_a_process_pushes_records_in_order() -> None:
    with start_server_process("--no-throttle") as server:
        remote = Remote(server.endpoint_url)
        events = events_of(remote.subscribe())
        next(events)
        arrived: dict[bytes, float] = {}
        sent: dict[bytes, float] = {}
        count = 50

        def read() -> None:
            for event in events:
                for record in event["Records"]:
                    arrived[record["Data"]] = time.monotonic()
                if len(arrived) == count:
                    return

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(count):
            data = b"%d" % number
            sent[data] = time.monotonic()
            remote.put(data)
        reader.join(HANG)
        assert list(arrived) == list(sent)
        delays = sorted(arrived[data] - sent[data] for data in sent)
        print(f"put to push: median {delays[count // 2] * 1000:.1f} ms, worst {delays[-1] * 1000:.1f} ms")
        remote.close()
