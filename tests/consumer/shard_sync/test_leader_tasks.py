"""Leader, audit, cleanup, and streams that come, go and come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_sdk.common.errors import (
    ResourceNotFoundError,
    StreamRecreatedError,
    TransientLeaseStoreError,
)
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer import ConsumerConfig, Lease, LeaseConfig
from kinesis_sdk.consumer.leases.java.leader_lock import LeaderLock, LeaderLockMonitor
from kinesis_sdk.consumer.leases.leader import is_leader
from kinesis_sdk.consumer.shard_sync import leader_tasks
from kinesis_sdk.consumer.shard_sync.audit import (
    HashRangeHoleTracker,
    find_contradiction,
    find_lease_hole,
    find_misfits,
    plan_ranges,
)
from kinesis_sdk.consumer.shard_sync.plan import plan_sync
from kinesis_sdk.testing import Fault
from tests.consumer.fleet.dynamodb import on_dynamodb
from tests.consumer.fleet.engines import STREAM, UNHURRIED, Fleet
from tests.consumer.leases.handoffs import key

HALF = MAX_HASH_KEY // 2
LOW, HIGH = HashKeyRange(0, HALF), HashKeyRange(HALF + 1, MAX_HASH_KEY)


def lease(n, position="TRIM_HORIZON", **more):
    return Lease(lease_key=key(n), checkpoint=ExtendedSequenceNumber(position), **more)


def owned(n, owner, **more):
    return lease(n, owner=owner, handoff_owner=more.pop("handoff_owner", owner), counter=1, **more)


def shard(n, hash_key_range=LOW, start="100", **more):
    return Shard(key(n), hash_key_range, starting_sequence_number=start, **more)


# Leader election


def none_expired(lease):
    return False


def test_the_holder_of_the_first_unfinished_lease_leads():
    leases = [owned(2, "b"), owned(1, "a"), owned(0, "c", position="SHARD_END")]
    assert is_leader(leases, "a", none_expired)
    assert not is_leader(leases, "b", none_expired)
    assert not is_leader(leases, "idle", none_expired)


def test_an_expired_holder_does_not_lead():
    leases = [owned(1, "a"), owned(2, "b")]
    assert is_leader(leases, "b", lambda row: row.owner == "a")


def test_during_a_handoff_the_old_owner_leads_until_it_is_complete():
    leases = [owned(1, "b", checkpoint_owner="a", handoff_owner="a"), owned(2, "c")]
    assert is_leader(leases, "a", none_expired)
    assert not is_leader(leases, "b", none_expired)


def test_java_workers_have_a_leader_of_their_own():
    java = owned(0, "java", handoff_owner=None)
    assert not is_leader([java], "idle", none_expired)
    assert is_leader([java, owned(5, "a")], "a", none_expired)
    assert not is_leader([owned(0, "java", handoff_owner="a"), owned(5, "b")], "a", none_expired), (
        "a stale attribute of this package"
    )


def test_without_owned_leases_every_worker_leads():
    assert is_leader([], "a", none_expired)
    assert is_leader([lease(0), owned(1, "dead")], "a", lambda row: row.owner == "dead")


def test_idle_workers_pay_for_no_listing():
    fleet = on_dynamodb(
        2, config=ConsumerConfig(initial_position="TRIM_HORIZON", leases=LeaseConfig(balance_by="count"))
    )
    for name in "abcd":
        fleet.add(name)
    fleet.run(60)
    before = dict(fleet.aws.stats()["calls"])
    fleet.run(120)
    calls = {name: (n - before.get(name, 0)) / 2 for name, n in fleet.aws.stats()["calls"].items()}
    assert calls["ListShards"] == pytest.approx(1, abs=0.4), "one a minute, not four"
    assert calls["Scan"] == pytest.approx(4 * 60 + 1, abs=8)


def test_leadership_follows_a_crash():
    fleet = on_dynamodb(2)
    for name in "ab":
        fleet.add(name)
    fleet.run(20)
    (leader,) = [name for name, engine in fleet.engines.items() if engine.coordinator._leads]
    fleet.crash(leader)
    fleet.run(15)
    assert [engine.coordinator._leads for engine in fleet.engines.values()] == [True]


def test_two_leaders_do_no_harm():
    fleet = Fleet(shards=2)
    for name in "ab":
        fleet.add(name)
    for engine in fleet.engines.values():
        engine.coordinator._leader_tasks.sync()
    fleet.run(5)
    fleet.split()
    fleet.put(30)
    for _ in range(10):
        for engine in fleet.engines.values():
            engine.coordinator._leader_tasks.sync()
            engine.coordinator._leader_tasks.clean_up(fleet.store.list(), fleet.clock.monotonic())
        fleet.run(2)
    assert fleet.all_delivered()
    fleet.check_order()


# Java's lock


def test_a_lock_lives_by_the_observers_clock():
    item = {
        "ownerName": {"S": "worker-1"},
        "recordVersionNumber": {"S": "d8bcdc04"},
        "key": {"S": "Leader"},
        "leaseDuration": {"S": "120000"},
    }
    lock = LeaderLock.from_item(item)
    assert lock == LeaderLock("worker-1", "d8bcdc04", 120.0)
    watch = LeaderLockMonitor()
    assert watch.owner(0) is None
    watch.observe(lock, 10)
    watch.observe(lock, 100)
    assert watch.owner(130) == "worker-1"
    assert watch.owner(130.1) is None
    watch.observe(replace(lock, version="next"), 140)
    assert watch.owner(150) == "worker-1"
    watch.observe(None, 160)
    assert watch.owner(160) is None
    assert LeaderLock.from_item({**item, "isReleased": {"S": "1"}}) is None
    with pytest.raises(ValueError, match="leader lock"):
        LeaderLock.from_item({})


# Holes


def test_holes():
    both = [lease(0, hash_key_range=LOW), lease(1, hash_key_range=HIGH)]
    assert find_lease_hole(both) is None
    assert find_lease_hole(both[:1]) == HIGH
    assert find_lease_hole([both[0], lease(1, "SHARD_END", hash_key_range=HIGH)]) == HIGH
    assert find_lease_hole([]) == HashKeyRange(0, MAX_HASH_KEY)


def test_only_a_hole_that_stays_counts():
    tracker = HashRangeHoleTracker(120, 3)
    low, high = [lease(0, hash_key_range=LOW)], [lease(1, hash_key_range=HIGH)]
    assert not tracker.check(low, 0)
    assert not tracker.check(low, 119), "too early to count"
    assert not tracker.check(low, 120)
    assert not tracker.check(high, 240), "another hole restarts the count"
    assert not tracker.check(low, 360)
    assert not tracker.check(low, 480)
    assert tracker.check(low, 600)
    assert not tracker.check(low, 720), "once, then the count restarts"
    assert not tracker.check([*low, *high], 840)


def test_rows_without_ranges_are_filled_in():
    rows = [lease(0), lease(1, hash_key_range=HIGH)]
    assert HashRangeHoleTracker(120, 3).check(rows, 0)
    assert plan_ranges([shard(0), shard(1, HIGH)], rows) == [(key(0), LOW)]
    fleet = Fleet(shards=2)
    for row in (lease(0), lease(1)):
        fleet.store.create_if_absent(row)
    fleet.add("a")
    fleet.run(2)
    assert find_lease_hole(fleet.store.list()) is None


@pytest.mark.parametrize("leads", [True, False])
def test_a_hole_is_repaired_by_the_leader_or_later_by_any_worker(leads):
    config = UNHURRIED.with_fields(balance_by="count", max_leases_for_worker=1, shard_sync_interval=86_400)
    fleet = Fleet(shards=2, config=config)
    fleet.add("a")
    fleet.add("b")
    fleet.run(10)
    if not leads:
        # The leader cannot list shards; the other worker can.
        (leader,) = [engine for engine in fleet.engines.values() if engine.coordinator._leads]
        leader.coordinator._leader_tasks.sync = lambda streams=None: False
    fleet.store.delete(key(1))
    deleted = fleet.clock.monotonic()
    assert fleet.run(3000, lambda: key(1) in fleet.owners())
    waited = fleet.clock.monotonic() - deleted
    assert 200 <= waited <= 370 if leads else 560 <= waited <= 730


def test_a_start_audits_at_once():
    fleet = Fleet(shards=2)
    fleet.add("a")
    fleet.run(5)
    fleet.store.delete(key(1))
    fleet.add("b")
    assert set(fleet.owners()) == {key(0), key(1)}


@pytest.mark.parametrize("position", ["LATEST", "TRIM_HORIZON"])
def test_a_first_start_waits_for_a_listing_without_holes(position):
    fleet = Fleet(shards=3, config=ConsumerConfig(initial_position=position))
    original, calls = fleet.raw.list_shards, []

    def list_shards(**request):
        answer = original(**request)
        calls.append(request)
        return {**answer, "Shards": answer["Shards"][:2]} if len(calls) <= 4 else answer

    fleet.raw.list_shards = list_shards
    fleet.add("a")
    assert len(fleet.store.list()) == 3
    assert len(calls) == 5


def test_a_bug_in_the_store_ends_the_start_with_itself(monkeypatch):
    """It is no failure of ListShards, and repeating it does not help."""
    fleet, calls = Fleet(shards=1), []

    def create_if_absent(lease):
        calls.append(lease.lease_key)
        raise KeyError("no such column")

    monkeypatch.setattr(fleet.store, "create_if_absent", create_if_absent)
    with pytest.raises(KeyError, match="no such column"):
        fleet.add("a")
    assert calls == [key(0)]


def test_a_start_repeats_failures_of_the_store_and_of_the_listing(monkeypatch):
    fleet, calls = Fleet(shards=1), []
    fleet.aws.faults.add(Fault(kind="error", operation="ListShards", code="LimitExceededException", count=2))
    create = fleet.store.create_if_absent

    def create_if_absent(lease):
        calls.append(lease.lease_key)
        if len(calls) <= 2:
            raise TransientLeaseStoreError("deadlock")
        return create(lease)

    monkeypatch.setattr(fleet.store, "create_if_absent", create_if_absent)
    fleet.add("a")
    assert calls == [key(0)] * 3
    assert [lease.lease_key for lease in fleet.store.list()] == [key(0)]


# Cleanup and retention


def test_cleanup_reads_nothing_while_nothing_is_finished():
    fleet = on_dynamodb(2)
    fleet.add("a")
    fleet.run(30)
    before = fleet.aws.stats()["calls"]["Scan"]
    engine = fleet.engines["a"]
    engine.coordinator._leader_tasks.clean_up(fleet.store.list(), fleet.clock.monotonic())
    assert fleet.aws.stats()["calls"]["Scan"] == before + 1, "the one of this test"


def test_children_of_a_shard_whose_retention_ended_start_at_their_beginning():
    """LATEST or not: the application was reading this branch."""
    children = [
        shard(2, HashKeyRange(0, 9), parent_shard_id=key(0)),
        shard(3, HashKeyRange(10, HALF), parent_shard_id=key(0)),
        shard(1, HIGH),
    ]
    rows = [lease(0, "150", hash_key_range=LOW), lease(1, "LATEST", hash_key_range=HIGH)]
    plan = plan_sync(children, rows, "LATEST")
    assert [(one.lease_key, str(one.checkpoint)) for one in plan] == [
        (key(2), "TRIM_HORIZON/0"),
        (key(3), "TRIM_HORIZON/0"),
    ]
    newer = [lease(7, "150", hash_key_range=LOW), lease(1, "LATEST", hash_key_range=HIGH)]
    plan = plan_sync([shard(0), shard(1, HIGH)], newer, "LATEST")
    assert [(one.lease_key, str(one.checkpoint)) for one in plan] == [(key(0), "LATEST/0")], (
        "a listing behind"
    )
    closed = replace(children[0], ending_sequence_number="300")
    grandchild = shard(4, HashKeyRange(0, 9), "300", parent_shard_id=key(2))
    plan = plan_sync([closed, *children[1:], grandchild], rows, "LATEST")
    assert [one.lease_key for one in plan] == [key(2), key(3)], "one generation at a time"


def test_a_stream_that_is_resharded_and_never_written_to_leaves_no_leases_behind():
    rarely = {"idle_time_between_reads": 600.0, "failover_time": 300.0, "lease_scan_interval": 60.0}
    fleet = Fleet(config=ConsumerConfig(initial_position="LATEST").with_fields(**rarely))
    fleet.add("a")
    for _ in range(3):
        fleet.run(1200)
        fleet.split()
    fleet.run(1200)
    assert [row for row in fleet.store.list() if row.is_finished], "parents wait for children that never move"
    fleet.clock.advance(24 * 3600)
    fleet.run(3 * 3600)
    assert {row.lease_key for row in fleet.store.list()} == {s["ShardId"] for s in fleet.open_shards()}


@pytest.mark.parametrize("generations", [1, 2])
def test_what_follows_a_shard_whose_retention_ended_is_read_from_its_beginning(generations):
    """The fleet was down for longer than the retention: what is left is to be read, LATEST or not."""
    fleet = Fleet(config=UNHURRIED.with_fields(initial_position="LATEST"))
    fleet.add("a", fleet.recorder("a"))
    fleet.run(5)
    fleet.put(3)
    assert fleet.run(10, fleet.all_delivered)
    fleet.crash("a")
    for _ in range(generations):
        fleet.split()
        fleet.clock.advance(40 * 3600)
    listed = [one["ShardId"] for one in fleet.raw.list_shards(StreamName=STREAM)["Shards"]]
    assert listed == [key(n) for n in range(generations, 2 * generations + 1)], "the branch is cut off"
    fleet.put(50)
    fleet.clock.advance(1800)
    fleet.add("b", fleet.recorder("b"))
    assert fleet.run(60, fleet.all_delivered)
    fleet.run(300)
    assert fleet.all_delivered()


@pytest.mark.parametrize("hours", [1, 30])
def test_a_checkpoint_past_its_retention_is_logged(hours, caplog):
    fleet = Fleet()
    fleet.add("a")
    fleet.put(5)
    fleet.run(20)
    fleet.crash("a")
    fleet.put(5)
    fleet.clock.advance(hours * 3600)
    fleet.put(5)
    fleet.add("b")
    fleet.run(20)
    told = [record.getMessage() for record in caplog.records if "expired unread" in record.getMessage()]
    if hours == 1:
        assert fleet.all_delivered()
        assert told == []
    else:
        assert fleet.data() == fleet.sent[:5] + fleet.sent[10:]
        assert len(told) == 1
        assert told[0].startswith(f"shard {key(0)}: starting position ")


def test_a_trimmed_lease_stays_until_its_successors_have_leases():
    fleet = Fleet(shards=1, config=ConsumerConfig(initial_position="LATEST"))
    engine = fleet.add("a")
    fleet.run(5)
    fleet.crash("a")
    for _ in range(2):
        fleet.split()
        fleet.clock.advance(40 * 3600)
    rows = [replace(fleet.store.get(key(0)), checkpoint=ExtendedSequenceNumber("SHARD_END"))]
    fleet.store._rows = {key(0): rows[0]}
    tasks = engine.coordinator._leader_tasks
    tasks.clean_up(rows, fleet.clock.monotonic())
    assert fleet.store.get(key(0)) is not None
    assert tasks.sync()
    assert {row.checkpoint.sequence_number for row in fleet.store.list()} == {"SHARD_END", "TRIM_HORIZON"}
    tasks.clean_up(rows, fleet.clock.monotonic())
    assert fleet.store.get(key(0)) is None


def split_and_finished():
    """Return a fleet whose first shard is finished and can be cleaned up."""
    fleet = on_dynamodb(1)
    engine = fleet.add("a", fleet.recorder("a"))
    fleet.put(5)
    fleet.run(5)
    fleet.split()
    fleet.run(5)
    fleet.put(20)
    fleet.run(5)
    assert fleet.store.get(key(0)).is_finished
    return fleet, engine.coordinator._leader_tasks


def test_cleanup_does_not_swallow_a_rewind(monkeypatch, caplog):
    """The rows are read; an operator rewinds the finished lease; the delete comes last."""
    fleet, tasks = split_and_finished()
    row = fleet.store.get(key(0))
    plan = leader_tasks.plan_cleanup

    def rewound_meanwhile(*arguments, **options):
        keys = plan(*arguments, **options)
        assert keys == [key(0)]
        rewound = {"checkpoint": {"S": "TRIM_HORIZON"}, "leaseCounter": {"N": str(row.counter + 2)}}
        fleet.store._set(key(0), rewound)
        return keys

    monkeypatch.setattr(leader_tasks, "plan_cleanup", rewound_meanwhile)
    tasks.clean_up(fleet.store.list(), fleet.clock.monotonic())
    assert fleet.store.get(key(0)).checkpoint.sequence_number == "TRIM_HORIZON"
    assert "no longer finished" in caplog.text


def test_cleanup_deletes_a_finished_lease_that_its_worker_still_renews(monkeypatch):
    """A Java worker renews its finished leases until they are deleted."""
    fleet, tasks = split_and_finished()
    plan = leader_tasks.plan_cleanup

    def renewed_meanwhile(*arguments, **options):
        keys = plan(*arguments, **options)
        fleet.store.renew(fleet.store.get(key(0)))
        return keys

    monkeypatch.setattr(leader_tasks, "plan_cleanup", renewed_meanwhile)
    tasks.clean_up(fleet.store.list(), fleet.clock.monotonic())
    assert fleet.store.get(key(0)) is None


# Streams that are gone, and that came back


def test_what_proves_a_recreated_stream():
    shards = [shard(0, LOW, "500"), shard(1, HIGH, "500")]
    assert find_contradiction(shards, [lease(0, "600", hash_key_range=LOW), lease(1, "LATEST")]) is None
    assert "starts at 500" in find_contradiction(shards, [lease(0, "499")])
    assert "shard is open" in find_contradiction(shards, [lease(0, "SHARD_END")])
    assert "covers hash keys" in find_contradiction(shards, [lease(0, hash_key_range=HIGH)])
    assert "newest shard is" in find_contradiction(shards, [lease(7)])
    assert find_contradiction(shards[1:], [lease(0, "SHARD_END")]) is None, "its retention ended"
    assert find_contradiction([], [lease(0, "5")]) is None
    assert find_contradiction(shards, [lease(0, "SHARD_END")][:0]) is None


def test_a_row_is_wrong_where_another_proves_the_stream():
    shards = [shard(0, LOW, "500"), shard(1, HIGH, "500")]
    wrong = [lease(0, "499"), lease(0, "SHARD_END"), lease(0, hash_key_range=HIGH), lease(7)]
    for one in wrong:
        assert find_misfits(shards, [one, lease(1, "LATEST")]) == {}, "LATEST proves nothing"
        rows = [one, lease(1, "500")]
        assert find_contradiction(shards, rows) is None
        assert list(find_misfits(shards, rows)) == [one.lease_key]
        assert find_contradiction(shards, rows[:1]) is not None


def recreate(fleet, shards=1):
    fleet.raw.delete_stream(StreamName=STREAM, EnforceConsumerDeletion=True)
    fleet.clock.advance(60)
    fleet.raw.create_stream(StreamName=STREAM, ShardCount=shards)
    fleet.clock.advance(5)


def test_a_recreated_stream_is_rejected_at_the_start_and_no_row_is_written():
    fleet = Fleet(shards=1)
    fleet.add("a", fleet.recorder("a"))
    fleet.put(5)
    fleet.run(5)
    fleet.crash("a")
    recreate(fleet)
    before = fleet.store.list()
    with pytest.raises(StreamRecreatedError, match="stream orders: ") as caught:
        fleet.add("b")
    assert not caught.value.retryable
    assert fleet.store.list() == before


def test_a_listing_older_than_a_reshard_does_not_mean_a_recreated_stream():
    """It shows a parent as open whose end was read, and not the children that have leases."""
    fleet = Fleet(shards=1)
    fleet.add("a", fleet.recorder("a"))
    fleet.put(5)
    fleet.run(5)
    original = fleet.raw.list_shards
    before = original(StreamName=STREAM)
    until = fleet.clock.monotonic() + 62.0
    fleet.raw.list_shards = lambda **request: (
        before if fleet.clock.monotonic() < until else original(**request)
    )
    fleet.split()
    fleet.put(5)
    fleet.run(10)
    assert fleet.store.get(key(0)).is_finished
    fleet.engines["a"].coordinator._due["sync"] = until - 1.5
    assert fleet.run(60, fleet.all_delivered)
    fleet.run(60)
    fleet.add("b", fleet.recorder("b"))
    fleet.run(10)


def test_a_running_worker_stops_when_its_stream_is_deleted():
    fleet = Fleet(shards=1)
    fleet.add("a", fleet.recorder("a"))
    fleet.put(5)
    fleet.run(5)
    fleet.raw.delete_stream(StreamName=STREAM, EnforceConsumerDeletion=True)
    with pytest.raises(ResourceNotFoundError):
        fleet.run(200)
    assert isinstance(fleet.engines["a"].error, ResourceNotFoundError)


def test_a_running_worker_stops_when_its_stream_is_recreated():
    fleet = Fleet(shards=1)
    fleet.add("a", fleet.recorder("a"))
    fleet.put(5)
    fleet.run(5)
    recreate(fleet)
    with pytest.raises(StreamRecreatedError):
        fleet.run(200)
    (row,) = fleet.store.list()
    assert not row.checkpoint.is_sentinel, "no position of the former stream was overwritten"
