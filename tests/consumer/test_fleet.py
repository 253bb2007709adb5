"""Fleets in virtual time: splits, merges, crashes, joins and stops, on every kind of store."""

from __future__ import annotations

from datetime import datetime, timezone
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import LeaseLostError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.testing import Fault
from tests.consumer.fleet.dynamodb import dynamodb_store
from tests.consumer.fleet.engines import HORIZON, STREAM, Fleet
from tests.consumer.fleet.sql import move_to_sql, sqlite_engine
from tests.consumer.fleet.table import LeaseTable
from tests.fuzz import how_many, share


def test_the_first_record_arrives_within_three_seconds_of_a_first_start():
    fleet = Fleet(shards=4)
    fleet.store = dynamodb_store(fleet)
    fleet.put(40)
    for name in ("a", "b", "c"):
        fleet.add(name)
    assert fleet.run(3, fleet.all_delivered)


@pytest.mark.fuzz
@pytest.mark.parametrize("phase", share(range(12), unit=5))
def test_a_crash_is_taken_over_within_the_failover_time_and_one_scan(phase):
    fleet = Fleet(shards=4)
    fleet.add("a", fleet.recorder("a"))
    fleet.add("b", fleet.recorder("b"))
    fleet.run(30)
    assert set(fleet.owners().values()) == {"a", "b"}
    fleet.run(phase * 0.293)
    fleet.crash("a")
    crashed = fleet.clock.monotonic()
    fleet.put(40)
    assert fleet.run(60, fleet.all_delivered)
    config = fleet.config
    assert (
        fleet.clock.monotonic() - crashed
        <= config.leases.failover_time + config.leases.lease_scan_interval + 0.2
    )
    assert set(fleet.owners().values()) == {"b"}


def test_a_clean_stop_is_taken_over_within_a_scan():
    fleet = Fleet(shards=4, config=HORIZON)
    fleet.add("a", fleet.recorder("a"))
    fleet.add("b", fleet.recorder("b"))
    fleet.run(30)
    delivered = len(fleet.delivered)
    fleet.stop("a")
    stopped = fleet.clock.monotonic()
    fleet.put(40)
    assert fleet.run(60, fleet.all_delivered)
    assert fleet.clock.monotonic() - stopped <= 2.2
    assert len(fleet.delivered) == delivered + 40, "everything was checkpointed, nothing is delivered twice"
    assert "a" not in fleet.engines
    assert [event for event in fleet.events if event[1] == "a"][-1][3] == "shutdown_requested"


def test_two_zombies_of_one_id_do_not_checkpoint_both():
    fleet = Fleet(shards=1)
    old = fleet.add("a")
    fleet.run(5)
    (held,) = list(old.coordinator.held)
    fleet.crash("a")
    fleet.add("a")
    fleet.run(1)
    with pytest.raises(LeaseLostError):
        held.checkpoint(ExtendedSequenceNumber("1"))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "dynamodb"])
def test_resharding_keeps_order_between_generations(kind):
    fleet = Fleet(shards=2)
    if kind == "sqlite":
        move_to_sql(fleet.store, sqlite_engine())
    if kind == "dynamodb":
        fleet.store = dynamodb_store(fleet)
    for name in ("a", "b"):
        fleet.add(name, fleet.recorder(name))
    fleet.put(50)
    fleet.run(5)
    for change in (fleet.split, fleet.merge, lambda: fleet.split(1), lambda: fleet.merge(1)):
        change()
        fleet.put(50)
        assert fleet.run(30, fleet.all_delivered)
    fleet.check_order()
    shards = {s["ShardId"]: s for s in fleet.raw.list_shards(StreamName=STREAM)["Shards"]}
    ended = {shard: moment for moment, _, shard, what in fleet.events if what == "shard_ended"}
    for moment, _, shard, what in fleet.events:
        if what == "initialize":
            for field in ("ParentShardId", "AdjacentParentShardId"):
                parent = shards[shard].get(field)
                assert parent is None or ended[parent] <= moment


def test_latest_is_not_skipped_by_a_failover_before_the_first_checkpoint():
    config = ConsumerConfig(initial_position="LATEST")
    fleet = Fleet(shards=1, config=config)
    fleet.put(5)
    fleet.clock.advance(5)
    fleet.add("a", fleet.recorder("a", checkpoint=False))
    fleet.run(5)
    assert fleet.delivered == []
    fleet.crash("a")
    fleet.put(7)
    fleet.add("b", fleet.recorder("b"))
    assert fleet.run(30, lambda: len(fleet.data()) >= 7)
    assert fleet.data() == [b"%d" % n for n in range(5, 12)]


def test_at_timestamp_means_the_time_at_which_the_leases_were_created():
    """Every worker may say "now" or "an hour ago"; a worker that takes over later must not skip records in between."""
    fleet = Fleet(shards=2)
    fleet.clock.advance(100)

    def now(**more):
        moment = datetime.fromtimestamp(fleet.clock.time(), timezone.utc)
        return ConsumerConfig(initial_position=moment).with_fields(**more)

    # One of the shards is not even begun.
    fleet.add("a", fleet.recorder("a", checkpoint=False), now(max_leases_for_worker=1))
    fleet.run(1)
    fleet.put(20)
    fleet.run(5)
    assert 0 < len(fleet.delivered) < 20
    fleet.crash("a")
    fleet.clock.advance(600)
    fleet.delivered.clear()
    fleet.add("b", config=now())
    assert fleet.run(30, fleet.all_delivered)


def test_a_timestamp_from_before_the_stream_starts_at_its_beginning():
    config = ConsumerConfig(initial_position=datetime(2001, 9, 10, tzinfo=timezone.utc))
    fleet = Fleet(shards=2, config=config)
    fleet.put(10)
    fleet.split()
    fleet.put(10)
    fleet.add("a")
    assert fleet.run(10, fleet.all_delivered)


def test_faults_of_every_kind_only_delay_records():
    fleet = Fleet(shards=2, seed=3)
    fleet.store = dynamodb_store(fleet)
    for name in ("a", "b"):
        fleet.add(name)
    operations = ("GetRecords", "GetShardIterator", "UpdateItem", "Scan", "GetItem", "PutItem", "ListShards")
    for round_number in range(8):
        fleet.put(30)
        if round_number in (2, 5):
            fleet.split()
        for operation in operations:
            fleet.aws.faults.add(
                Fault(kind="error", operation=operation, code="InternalFailure", probability=0.2)
            )
            fleet.aws.faults.add(Fault(kind="timeout_after_storing", operation=operation, probability=0.1))
        fleet.aws.faults.add(Fault(kind="expired_iterator", operation="GetRecords", probability=0.1))
        fleet.run(20)
        fleet.aws.faults.clear()
    assert fleet.run(120, fleet.all_delivered)
    fleet.check_order()


def test_calls_at_rest(monkeypatch):
    """Calls of one idle worker with four shards per minute; module docstrings quote the numbers. Its shards make no step."""
    fleet = Fleet(shards=4, config=HORIZON)
    fleet.store = dynamodb_store(fleet)
    fleet.add("a")
    fleet.run(60)
    before = fleet.aws.stats()["calls"]
    steps = []
    monkeypatch.setattr(ShardConsumer, "step", lambda consumer, now: steps.append(now))
    fleet.run(240)
    assert steps == []
    calls = {name: (n - before.get(name, 0)) / 4 for name, n in fleet.aws.stats()["calls"].items()}
    assert calls["GetRecords"] / 4 == pytest.approx(62.7, abs=1)
    assert calls["UpdateItem"] / 4 == pytest.approx(9.07, abs=0.25)
    assert calls["Scan"] == pytest.approx(62, abs=1.5)
    assert calls["ListShards"] <= 1.3
    assert calls.get("GetItem", 0) == 0


def test_a_checkpoint_saves_a_heartbeat():
    fleet = Fleet(shards=1)
    fleet.store = dynamodb_store(fleet)
    fleet.add("a", fleet.recorder("a"))
    before = 0
    for second in range(120):
        if second == 60:
            before = fleet.aws.stats()["calls"]["UpdateItem"]
        fleet.put(1)
        fleet.run(1)
    # one checkpoint per second, no renewal beside it
    assert fleet.aws.stats()["calls"]["UpdateItem"] - before == pytest.approx(60, abs=2)


ACTIONS = ["put", "put", "put", "run", "run", "split", "merge", "crash", "add", "stop", "pause"]


# By weight a worker lost the only lease that it had fetched by count, and fetched another one, for ever.
@example(
    637,
    [
        "put",
        "put",
        "run",
        "put",
        "put",
        "add",
        "run",
        *["crash"] * 6,
        "stop",
        "put",
        "put",
        "put",
        "add",
        "split",
        "add",
        "run",
        "split",
        "run",
        "put",
    ],
    False,
)
@pytest.mark.fuzz
@settings(max_examples=how_many(unit=2, fuzz=500), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=25), st.booleans())
def test_random_runs_deliver_every_record_in_order(seed, actions, classes):
    """The checked store asserts that counters and checkpoints only rise; here: delivery and exclusiveness."""
    rng = Random(seed)
    fleet = Fleet(shards=rng.randint(1, 4), seed=seed, config=HORIZON)
    assert isinstance(fleet.store, LeaseTable)
    if seed % 5 == 0:
        move_to_sql(fleet.store, sqlite_engine())
    number = 0

    def add():
        nonlocal number
        number += 1
        name = f"w{number}"
        fleet.add(name, fleet.recorder(name) if classes else None)

    def nothing_undelivered_below(before, lease):
        """At each write: every record of the shard up to the checkpoint was delivered."""
        if lease.checkpoint.is_sentinel:
            return
        nonlocal looked_at
        for _, shard_id, _, sequence, sub in fleet.delivered[looked_at:]:
            seen.add((shard_id, sequence, sub))
        looked_at = len(fleet.delivered)
        # Checkpoints only rise, and what was delivered stays so: each record is looked at once.
        unchecked = sequences.get(lease.lease_key, [])
        while unchecked and ExtendedSequenceNumber(unchecked[0]) <= lease.checkpoint:
            assert (lease.lease_key, unchecked.pop(0), 0) in seen

    seen: set[tuple[str, str, int]] = set()
    looked_at = 0
    sequences: dict[str, list[str]] = {}
    original = fleet.raw.put_records

    def put_records(**request):
        answer = original(**request)
        for entry in answer["Records"]:
            sequences.setdefault(entry["ShardId"], []).append(entry["SequenceNumber"])
        return answer

    fleet.raw.put_records = put_records
    fleet.store.on_write.append(nothing_undelivered_below)
    add()
    for action in actions:
        if action == "put":
            fleet.put(rng.randint(1, 60))
        elif action == "run":
            fleet.run(rng.choice([0.3, 2.0, 12.0, 30.0]))
        elif action == "split" and len(fleet.open_shards()) < 8:
            fleet.split(rng.randrange(len(fleet.open_shards())))
        elif action == "merge" and len(fleet.open_shards()) > 1:
            fleet.merge(rng.randrange(len(fleet.open_shards()) - 1))
        elif action == "crash" and fleet.engines:
            fleet.crash(rng.choice(sorted(fleet.engines)))
        elif action == "stop" and fleet.engines:
            fleet.stop(rng.choice(sorted(fleet.engines)))
        elif action == "add" and len(fleet.engines) < 4:
            add()
        elif action == "pause" and fleet.engines:
            # A process that is suspended (a long GC pause, a suspended machine) and continues.
            name = rng.choice(sorted(fleet.engines))
            fleet.freeze(name, rng.choice([4.0, 15.0, 40.0]))
        fleet.run(rng.random())
    add()
    assert fleet.run(200, fleet.all_delivered)
    fleet.run(60)
    fleet.check_order()
    live = set(fleet.engines)
    owners = fleet.owners()
    assert {shard["ShardId"] for shard in fleet.open_shards()} <= owners.keys()
    assert set(owners.values()) <= live
    # Exactly one worker believes in each lease.
    now = fleet.clock.monotonic()
    believers = [
        held.key for engine in fleet.engines.values() for held in engine.coordinator.held if held.is_held(now)
    ]
    assert sorted(believers) == sorted(owners)
