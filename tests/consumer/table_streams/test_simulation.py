"""A table is copied by its stream, in virtual time: rollover, splits, trimming, kills and freezes at every call, lost responses."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from random import Random

import pytest

from kinesis_sdk.common.errors import StreamRecreatedError
from kinesis_sdk.consumer import ConsumerConfig, DynamoDbStream
from kinesis_sdk.testing import Fault
from tests.consumer.fleet.engines import HORIZON
from tests.consumer.fleet.tables import TABLE, TableFleet
from tests.fuzz import TIMES, seeds, share

SLOW = HORIZON.with_fields(
    failover_time=600,
    lease_scan_interval=120,
    idle_time_between_reads=120,
    shard_sync_interval=240,
    lease_cleanup_interval=240,
)
"""For days: a day has few calls."""
HOUR = 3600 if TIMES else 330
"""Seconds. Unit tests have short hours, in which there are still several reads and scans, and more than the failover time in two of them."""


def scenario(tables: TableFleet) -> None:
    """Two workers, a rollover, a split, and writes before, between and after them."""
    tables.write(6)
    for name in ("a", "b"):
        tables.add(name)
    tables.run(8)
    tables.write(6)
    tables.roll()
    tables.write(6)
    tables.run(5)
    tables.roll(split=True)
    tables.write(6)
    tables.run(8)


def finish(tables: TableFleet) -> None:
    for name in ("a", "b"):
        if name in tables.dead:
            tables.add(name)
    tables.write(3)
    assert tables.run(120, tables.all_delivered)
    tables.run(3)
    tables.check()


def calls_of_a_run() -> int:
    tables = TableFleet()
    scenario(tables)
    return tables.calls["a"]


def shards_of(tables: TableFleet) -> set[str]:
    described = tables.client.describe_stream(StreamArn=tables.fleet.stream.arn)
    return {shard["ShardId"] for shard in described["StreamDescription"]["Shards"]}


def test_the_scenario_without_faults() -> None:
    tables = TableFleet()
    scenario(tables)
    finish(tables)
    assert len(tables.delivered) == sum(map(len, tables.written.values())), "no duplicates without a fault"
    assert tables.calls["a"] > 60


@pytest.mark.fuzz
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_call_loses_nothing(when: str) -> None:
    for call in share(range(1, calls_of_a_run()), unit=5):
        tables = TableFleet()
        tables.kill_at("a", call, when)
        scenario(tables)
        assert "a" in tables.dead
        finish(tables)


@pytest.mark.fuzz
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_freeze_at_any_call_loses_nothing(when: str) -> None:
    for call in share(range(1, calls_of_a_run()), unit=4):
        tables = TableFleet()
        tables.freeze_at("a", call, when, 15.0)
        scenario(tables)
        finish(tables)


@pytest.mark.fuzz
def test_random_fleets_lose_nothing() -> None:
    for seed in seeds(unit=3, fuzz=100):
        random = Random(seed)
        tables = TableFleet(
            seed=seed, partitions=random.choice([1, 2, 3]), shard_seconds=random.choice([20, 60])
        )
        tables.write(4)
        names = ["a", "b", "c"]
        for name in names[: random.choice([1, 2, 3])]:
            tables.add(name)
        for _ in range(25):
            step = random.random()
            name = random.choice(names)
            if step < 0.4:
                tables.write(random.randrange(6))
            elif step < 0.5:
                tables.roll(split=random.random() < 0.3)
            elif step < 0.6 and name in tables.fleet.engines:
                tables.kill(name)
            elif step < 0.75 and name not in tables.fleet.engines:
                tables.add(name)
            elif step < 0.8 and name in tables.fleet.engines:
                tables.freeze_at(
                    name, tables.calls[name] + random.randrange(1, 9), "after", random.uniform(1, 30)
                )
            else:
                kind = random.choice(
                    ["timeout_after_storing", "timeout_before_storing", "error", "empty_read", "torn_listing"]
                )
                operation = {"empty_read": "GetRecords", "torn_listing": "DescribeStream"}.get(
                    kind, random.choice(["GetRecords", "GetShardIterator", "DescribeStream"])
                )
                tables.aws.faults.add(Fault(kind=kind, operation=operation, count=random.randrange(1, 4)))
            tables.run(random.uniform(0, 12))
        tables.aws.faults.clear()
        tables.plans.clear()
        for name in names:
            if name not in tables.fleet.engines:
                tables.add(name)
        assert tables.run(300, tables.all_delivered), f"seed {seed}"
        tables.run(5)
        tables.check()


@pytest.mark.fuzz
def test_three_days_with_shards_of_four_hours() -> None:
    tables = TableFleet(shard_seconds=4 * HOUR, retention=24 * HOUR, config=SLOW)
    tables.add("a")
    tables.add("b")
    random = Random(3)
    for hour in range(72):
        tables.write(random.randrange(4))
        tables.run(HOUR)
        if hour == 30:
            tables.kill("a")
        if hour == 33:
            tables.add("a")
    assert tables.run(HOUR, tables.all_delivered)
    tables.check()
    # Two partitions, each with a generation that is read, one that is finished, and perhaps one that waits for clean-up.
    assert 4 <= len(tables.leases()) <= 6


@pytest.mark.fuzz
@pytest.mark.parametrize("position", ["TRIM_HORIZON", "LATEST"])
def test_after_two_days_without_workers_everything_that_is_left_is_read(position: str) -> None:
    tables = TableFleet(
        shard_seconds=4 * HOUR, retention=24 * HOUR, config=SLOW.with_fields(initial_position=position)
    )
    tables.add("a")
    tables.run(HOUR)
    tables.write(8)
    assert tables.run(HOUR, tables.all_delivered)
    tables.kill("a")
    tables.run(9 * HOUR)
    tables.write(8)  # lost: nobody reads for longer than the retention
    lost = tables.put
    tables.run(39 * HOUR)
    tables.write(8)
    tables.run(9 * HOUR)
    tables.write(8)
    tables.add("a")
    wanted = tables.put - lost
    tables.run(6 * HOUR)
    assert wanted <= tables.seen
    last = {key: versions[-1] for key, versions in tables.written.items() if versions[-1] in wanted}
    assert last
    assert {key: tables.copied().get(key) for key in last} == {key: tables.table().get(key) for key in last}
    listed = shards_of(tables)
    tables.run(24 * HOUR)
    assert {*tables.leases()} <= listed | shards_of(tables), "leases of forgotten shards are cleaned up"


@pytest.mark.fuzz
@pytest.mark.parametrize("when", ["before", "after"])
def test_latest_is_pinned_before_anything_is_delivered(when: str) -> None:
    """A worker that is killed before its first checkpoint must not move the start of its successor."""
    config = ConsumerConfig(initial_position="LATEST")
    for call in share(range(1, 60), unit=4):
        tables = TableFleet(config=config)
        tables.write(5)
        old = tables.put
        tables.run(30)
        tables.add("a")
        tables.run(4)  # the leases are taken, LATEST is resolved
        pinned = {lease.lease_key: lease.initial_timestamp_millis for lease in tables.store.list()}
        assert None not in pinned.values()
        tables.kill_at("a", tables.calls["a"] + call, when)
        tables.write(5)
        tables.run(10)
        tables.kill("a")
        tables.run(15)
        tables.roll()
        tables.write(5)
        tables.add("b")
        tables.run(60)
        delivered = tables.seen
        assert set(range(6, 16)) <= delivered
        assert not old & delivered, "records from before the start"


def test_a_timestamp_drops_older_records_in_every_generation() -> None:
    tables = TableFleet(shard_seconds=60, retention=3600)
    for _ in range(10):
        tables.write(4)
        tables.run(29)
    moment = datetime.fromtimestamp(int(tables.fleet.clock.time()), timezone.utc)
    first = tables.versions + 1
    for _ in range(4):
        tables.write(4)
        tables.run(29)
    config = ConsumerConfig(initial_position=moment)
    tables.add("a", config)
    tables.run(20)
    tables.kill("a")
    later = ConsumerConfig(initial_position=moment + timedelta(hours=1))
    tables.add("a", later)  # the leases know the first one's timestamp
    tables.run(60)
    assert tables.seen == {*range(first, tables.versions + 1)}


def test_a_disabled_stream_is_read_to_its_end_and_its_leases_stay_finished() -> None:
    tables = TableFleet()
    tables.write(10)
    tables.dynamodb.update_table(TableName=TABLE, StreamSpecification={"StreamEnabled": False})
    tables.add("a")
    assert tables.run(30, tables.all_delivered)
    tables.run(30)
    assert [str(checkpoint) for checkpoint in tables.leases().values()] == ["SHARD_END/0"] * 2
    count = len(tables.delivered)
    tables.run(600)
    assert len(tables.delivered) == count


def test_a_worker_that_fell_behind_the_retention_says_so(caplog: pytest.LogCaptureFixture) -> None:
    tables = TableFleet(shard_seconds=1e9, retention=1e9)
    tables.write(4)
    tables.add("a")
    assert tables.run(30, tables.all_delivered)
    tables.run(10)
    tables.kill("a")
    tables.write(4)
    tables.run(1)
    tables.aws.table_streams.trim(TABLE)
    tables.run(30)
    tables.write(4)
    tables.add("a")
    tables.run(30)
    versions = tables.seen
    assert {9, 10, 11, 12} <= versions
    assert not {5, 6, 7, 8} & versions
    assert "the oldest record" in caplog.text


def test_lag_is_unknown_until_the_tip_is_proved() -> None:
    tables = TableFleet(partitions=1)
    tables.write(3)
    tables.run(100)
    tables.aws.faults.add(Fault(kind="empty_read", operation="GetRecords", count=2))
    tables.add("a")
    lags = []
    for _ in range(200):
        tables.run(0.1)
        lags += [shard.read_lag_millis for shard in tables.fleet.engines["a"].shard_health()]
    assert lags[0] is None
    order = [lag for index, lag in enumerate(lags) if index == 0 or lag != lags[index - 1]]
    assert order[0] is None
    assert order[1] >= 100_000
    assert order[-1] == 0


def test_the_cost_of_an_idle_worker() -> None:
    """The figures of docs/dynamodb-streams.md."""
    tables = TableFleet(partitions=4, shard_seconds=4 * 3600, retention=24 * 3600, config=HORIZON)
    tables.add("a")
    tables.run(120)
    before = dict(tables.aws.stats()["calls"])
    tables.run(300)
    after = tables.aws.stats()["calls"]
    per_minute = {name: (after[name] - before.get(name, 0)) / 5 for name in after}
    assert 29 <= per_minute["GetRecords"] / 4 <= 35
    assert 0.7 <= per_minute["DescribeStream"] <= 1.4
    assert per_minute["ListStreams"] == 0
    assert per_minute["GetShardIterator"] <= 0.5


@pytest.mark.parametrize("empty", [0, 2])
def test_until_now_ends_the_fleet_once_everything_before_it_is_processed(empty: int) -> None:
    tables = TableFleet()
    tables.write(20)
    tables.roll()
    tables.write(20)
    tables.run(30)
    tables.aws.faults.add(Fault(kind="empty_read", operation="GetRecords", count=empty))
    tables.fleet.more["until"] = "now"
    tables.add("a")
    tables.add("b")
    tables.run(3)
    tables.write(5)
    assert tables.run(120, lambda: not tables.fleet.engines)
    assert tables.seen == set(range(1, 41))


def test_the_rest_of_a_stream_that_was_enabled_again_is_not_skipped() -> None:
    """The name of the table means the new stream, in which the shards of all leases seem to have expired."""
    tables = TableFleet()
    tables.write(6)
    tables.add("a")
    tables.run(8)
    tables.kill("a")
    tables.write(6)
    tables.roll()
    tables.write(6)
    source = DynamoDbStream(TABLE)
    tables.dynamodb.update_table(TableName=TABLE, StreamSpecification={"StreamEnabled": False})
    tables.run(60)
    specification = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    tables.dynamodb.update_table(TableName=TABLE, StreamSpecification=specification)
    tables.write(6)
    old, new = source.streams(tables.client)
    tables.fleet.stream, tables.former = new, [old]
    before = tables.leases()
    with pytest.raises(StreamRecreatedError, match=old.arn):
        tables.add("b")
    assert tables.leases() == before
    # What the message says.
    tables.fleet.stream, tables.former = old, []
    tables.add("c")
    tables.run(120)
    tables.kill("c")
    assert all(position.is_shard_end for position in tables.leases().values())
    tables.copy = {
        key: (0, image) for key, (_, image) in tables.copy.items()
    }  # another stream has numbers of its own
    tables.fleet.stream, tables.former = new, [old]
    tables.add("d")
    assert tables.run(120, tables.all_delivered)
    tables.run(10)
    tables.check()


def test_a_shard_that_ends_at_the_first_start_loses_none_of_its_child() -> None:
    """LATEST; the listing of the start has the closed shard, and not yet the child that continues it."""
    tables = TableFleet(partitions=1, config=ConsumerConfig(initial_position="LATEST"))
    tables.write(4)
    tables.written.clear()
    tables.roll()
    tables.aws.faults.add(Fault(kind="torn_listing", operation="DescribeStream", count=1))
    tables.add("a")
    tables.write(6)
    assert tables.run(200, tables.all_delivered)


def test_a_stream_without_shards_at_the_first_start_loses_no_change_since_then() -> None:
    """LATEST; the stream was just enabled, and its first shards are listed later."""
    tables = TableFleet(partitions=1, config=ConsumerConfig(initial_position="LATEST"))
    tables.aws.faults.add(Fault(kind="torn_listing", operation="DescribeStream", count=1))
    tables.add("a")
    assert tables.leases() == {}
    tables.write(6)
    assert tables.run(200, tables.all_delivered)
    tables.run(10)
    tables.check()
