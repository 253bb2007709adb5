from __future__ import annotations

import pytest

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.load import sample_load
from kinesis_sdk.common.errors import AwsError, ConfigError
from kinesis_sdk.testing import FakeAws, Fault, VirtualClock

SHARDS = ["shardId-000000000000", "shardId-000000000001"]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def aws(clock: VirtualClock) -> FakeAws:
    fake = FakeAws(clock=clock)
    fake.client("kinesis").create_stream(StreamName="s", ShardCount=2)
    return fake


def put(aws: FakeAws, clock: VirtualClock, count: int, size: int, pause: float) -> None:
    """Put records into the first shard."""
    for _ in range(count):
        aws.client("kinesis").put_record(
            StreamName="s", PartitionKey="key", ExplicitHashKey="0", Data=b"x" * (size - 3)
        )
        clock.advance(pause)


def connection(aws: FakeAws) -> Connection:
    return Connection(clients={"kinesis": aws.client("kinesis")})


@pytest.mark.parametrize("threads", [1, 4])
def test_rates_against_the_limits_of_a_shard(aws: FakeAws, clock: VirtualClock, threads: int) -> None:
    put(aws, clock, 100, 10, 0.1)  # too old
    put(aws, clock, 100, 10_486, 0.1)
    loads = sample_load(
        connection(aws), "s", SHARDS, window=10.0, clock=clock, sleep=clock.advance, threads=threads
    )
    busy, idle = loads[SHARDS[0]], loads[SHARDS[1]]
    assert busy.records_per_second == pytest.approx(10, rel=0.02)
    assert busy.bytes_per_second == pytest.approx(104_860, rel=0.02)
    assert busy.utilization == pytest.approx(0.1, rel=0.02), "bytes are nearer to their limit than records"
    assert (idle.records_per_second, idle.utilization) == (0, 0)
    calls = aws.stats()["calls"]
    assert (calls["GetShardIterator"], calls["GetRecords"]) == (2, 2)


def test_a_page_that_does_not_reach_the_tip_counts_for_its_own_time(
    aws: FakeAws, clock: VirtualClock
) -> None:
    # 20 MB in 40 s: a page has at most 10 MiB of them.
    put(aws, clock, 40, 500_000, 1.0)
    loads = sample_load(connection(aws), "s", SHARDS[:1], window=40.0, clock=clock, sleep=clock.advance)
    assert loads[SHARDS[0]].bytes_per_second == pytest.approx(500_000, rel=0.06)
    assert loads[SHARDS[0]].seconds < 25


def test_a_shard_whose_reads_are_used_up_is_left_out(aws: FakeAws, clock: VirtualClock) -> None:
    aws.faults.add(Fault(kind="throttle", operation="GetRecords", count=3))
    loads = sample_load(connection(aws), "s", SHARDS, clock=clock, sleep=clock.advance, threads=1)
    assert list(loads) == [SHARDS[1]]
    aws.faults.add(Fault(kind="throttle", code="AccessDeniedException", operation="GetRecords"))
    with pytest.raises(AwsError, match="AccessDenied"):
        sample_load(connection(aws), "s", SHARDS, clock=clock, sleep=clock.advance)
    with pytest.raises(ConfigError, match=r"window=0.*from 1 to 300"):
        sample_load(connection(aws), "s", SHARDS, window=0)
