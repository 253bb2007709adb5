"""Rows that were damaged, or put there by another program: one costs its own shard at most, and never silently."""

from __future__ import annotations

import logging
from dataclasses import replace
from zlib import crc32

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.catalogue import UNREADABLE_LEASES
from kinesis_sdk.common.errors import LeaseLostError, PermanentAwsError, ProtocolError
from kinesis_sdk.common.sequence import LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import DynamoDBLeaseStore, Lease, ShardState
from kinesis_sdk.consumer.leases.table.dynamodb import MAX_PAGES
from kinesis_sdk.consumer.shard_sync.audit import find_cycles
from kinesis_sdk.consumer.shard_sync.plan import plan_sync
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.consumer.fleet.client import Client
from tests.consumer.fleet.dynamodb import on_dynamodb
from tests.consumer.fleet.engines import UNHURRIED
from tests.consumer.fleet.table import LeaseTable
from tests.consumer.leases.handoffs import key
from tests.consumer.leases.held_lease import hold
from tests.consumer.shard_sync.shards import shard
from tests.fuzz import how_many

START = ExtendedSequenceNumber(TRIM_HORIZON)
CONFIG = UNHURRIED.with_fields(stall_timeout=30.0)


class Gauge:
    def __init__(self):
        self.values = []

    def add(self, metric, *observed):
        if metric is UNREADABLE_LEASES:
            self.values.append(observed[1])

    def retire(self, scope):
        pass


def fleet_of(shards, *names, config=CONFIG):
    """Workers that hold all shards; what they know of rows from now on comes from scans."""
    fleet = on_dynamodb(shards, config=config)
    fleet.gauge = Gauge()
    fleet.more = {"metrics": fleet.gauge}
    fleet.table = fleet.aws.client("dynamodb")
    for name in names:
        fleet.add(name)
    fleet.run(5)
    return fleet


def fleet_at_rest(shards, **more):
    """A table with leases without owners."""
    fleet = fleet_of(shards, "maker", **more)
    fleet.stop("maker")
    fleet.run(5)
    assert fleet.engines == {}
    return fleet


def damage(fleet, lease_key, **changes):
    """Write attributes into a row, as an operator does; None removes one."""
    request = {"leaseKey": {"S": lease_key}}
    item = fleet.table.get_item(TableName="app", Key=request).get("Item", request)
    for name, value in changes.items():
        item.pop(name, None)
        if value is not None:
            item[name] = value
    fleet.table.put_item(TableName="app", Item=item)


def problems(fleet, name="a"):
    return {one.lease_key: one.problem for one in fleet.engines[name].lease_problems()}


def errors(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("throughputKBps", "1.2345678E+60"),
        ("throughputKBps", "1E+125"),
        ("ownerSwitchesSinceCheckpoint", "9.9E+125"),
        ("standby:a", "9.9E+125"),
    ],
)
def test_numbers_that_dynamodb_would_not_write_back_stop_no_worker(name, number, caplog):
    fleet = fleet_of(4, "a", "b")
    damage(fleet, key(0), **{name: {"N": number}})
    fleet.crash("b")
    fleet.add("c")
    fleet.put(40)
    assert fleet.run(60, fleet.all_delivered)
    fleet.run(30)
    assert sorted(set(fleet.owners().values())) == ["a", "c"]
    assert problems(fleet) == {}
    assert f"lease {key(0)}: ignored unreadable attributes: {name}" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"throughputKBps": {"S": "fast"}},
        {"throughputKBps": {"N": "-1"}},
        {"standby:x": {"N": "1.5"}},
        {"pendingCheckpoint": {"S": "garbage"}},
        {"pendingCheckpoint": {"S": "7"}, "pendingCheckpointSubSequenceNumber": {"N": "1.5"}},
        {"progress": {"S": "fast"}},
        {"pinnedTo": {"N": "1"}},
        {"drain:x": {"S": "yes"}},
        {"childShardIds": {"S": "one"}},
        {"initialTimestampMillis": {"S": "soon"}},
    ],
)
def test_an_optional_attribute_does_not_make_a_lease_unreadable(changes, caplog):
    fleet = fleet_at_rest(2)
    damage(fleet, key(0), **changes)
    fleet.add("a")
    fleet.put(20)
    assert fleet.run(20, fleet.all_delivered)
    assert problems(fleet) == {}
    assert f"lease {key(0)}: ignored unreadable attributes: " in caplog.text


def test_a_damaged_hash_key_range_is_written_again():
    fleet = fleet_of(2, "a")
    before = fleet.store.get(key(0)).hash_key_range
    damage(fleet, key(0), endingHashKey={"S": "garbage"})
    assert fleet.store.get(key(0)).hash_key_range is None
    fleet.run(90)
    assert fleet.store.get(key(0)).hash_key_range == before


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"leaseCounter": {"N": "1E+125"}}, "ValueError: out of range: '1000"),
        ({"leaseCounter": {"N": "9223372036854775807"}}, "out of range"),
        ({"leaseCounter": None}, "KeyError: 'leaseCounter'"),
        ({"checkpoint": {"N": "5"}}, "has no checkpoint"),
        ({"checkpoint": {"S": "garbage\n"}}, r"'garbage\n'"),
        ({"checkpointSubSequenceNumber": {"N": "1.5"}}, "not a whole number"),
        ({"parentShardId": {"L": [{"S": "p"}]}}, "KeyError: 'SS'"),
        ({"parentShardId": {"SS": ["p\n"]}}, r"control characters: 'p\n'"),
        ({"initialTimestampMillis": {"N": "1E+30"}, "checkpoint": {"S": LATEST}}, "out of range"),
        ({"entityType": {"S": "STREAM"}}, "is not a lease, its entityType is STREAM"),
        ({"entityType": {"S": "x\ny"}}, r"entityType is x\ny"),
        ({"entityType": {"N": "1"}}, "entityType is {'N': '1'}"),
        ({"streamName": {"S": "123456789012:orders:7"}}, "streamName 123456789012:orders:7"),
    ],
)
def test_a_row_that_cannot_be_read_costs_its_own_shard_and_is_reported(changes, problem, caplog):
    fleet = fleet_at_rest(4)
    good = fleet.table.get_item(TableName="app", Key={"leaseKey": {"S": key(0)}})["Item"]
    damage(fleet, key(0), **changes)
    fleet.add("a")
    fleet.add("b")
    fleet.put(40)
    fleet.run(15)
    assert problem in problems(fleet)[key(0)]
    assert problems(fleet) == problems(fleet, "b")
    assert fleet.gauge.values[-1] == 1
    read = {shard_id for _, shard_id, _, _, _ in fleet.delivered}
    assert read == {key(n) for n in range(1, 4)}, "all others go on"
    assert any(line.startswith(f"lease {key(0)}: needs repair: ") for line in errors(caplog))
    assert all(line.isprintable() for line in errors(caplog))
    fleet.table.put_item(TableName="app", Item={**good, "leaseCounter": {"N": "1000"}})
    assert fleet.run(30, fleet.all_delivered), "a repaired row is consumed"
    fleet.run(5)
    assert problems(fleet) == {}
    assert fleet.gauge.values[-1] == 0


def test_a_row_that_cannot_be_read_is_logged_again_each_ten_minutes(caplog):
    fleet = fleet_at_rest(1)
    damage(fleet, key(0), leaseCounter=None)
    fleet.add("a")
    fleet.run(1250)
    assert len([line for line in errors(caplog) if "needs repair" in line]) == 3


def test_rows_of_other_streams_are_not_a_problem():
    fleet = fleet_of(1)
    fleet.store.ensure_ready()
    for lease_key, kind in (("Leader", "LEADER"), ("worker-1", "WORKER_METRIC_STATS"), ("a:b:1", "STREAM")):
        fleet.table.put_item(
            TableName="app", Item={"leaseKey": {"S": lease_key}, "entityType": {"S": kind}, "x": {"N": "1"}}
        )
    fleet.store.create_if_absent(
        Lease(lease_key=f"1:other:5:{key(0)}", checkpoint=START, stream_name="1:other:5", shard_id=key(0))
    )
    fleet.add("a")
    fleet.run(10)
    assert problems(fleet) == {}
    assert fleet.owners()[key(0)] == "a"


# Nothing of a shard is skipped because its row cannot be read


def test_descendants_of_an_unreadable_row_do_not_start_at_latest():
    shards = [shard(0, closed=True, start=1), shard(1, (0,), start=103), shard(2, (0,), start=103)]
    assert [one.lease_key for one in plan_sync(shards, [], LATEST)] == ["s1", "s2"]
    assert plan_sync(shards, [], LATEST, {"s0"}) == []
    # The stream forgot the shard meanwhile: what follows it begins at its beginning, as after any trimmed lease.
    plan = plan_sync(shards[1:], [], LATEST, {"s0"})
    assert {one.checkpoint.sequence_number for one in plan} == {TRIM_HORIZON}
    assert plan_sync(shards, [], TRIM_HORIZON, {"s0"}) == []


@pytest.mark.parametrize("changes", [{"leaseCounter": {"N": "1E+125"}}, {"entityType": {"S": "STREAM"}}])
def test_what_an_unreadable_shard_holds_is_read_after_its_repair(changes):
    latest = replace(CONFIG, initial_position="LATEST")
    fleet = fleet_of(1, "a", config=latest)
    fleet.put(5)
    assert fleet.run(5, fleet.all_delivered)
    fleet.stop("a")
    fleet.run(5)
    good = fleet.table.get_item(TableName="app", Key={"leaseKey": {"S": key(0)}})["Item"]
    damage(fleet, key(0), **changes)
    fleet.put(5)  # not read by any worker
    fleet.split()
    fleet.put(10)
    fleet.add("a")
    fleet.run(200)
    assert len(fleet.delivered) == 5
    assert len(fleet.table.scan(TableName="app")["Items"]) == 1, "no leases next to a row that cannot be read"
    fleet.table.put_item(TableName="app", Item={**good, "leaseCounter": {"N": "2000"}})
    assert fleet.run(120, fleet.all_delivered)


# Parents that lead back to themselves


def circular(*pairs, finished=()):
    return [
        Lease(
            lease_key=name,
            checkpoint=ExtendedSequenceNumber(SHARD_END) if name in finished else START,
            parent_shard_ids=tuple(parents),
        )
        for name, parents in pairs
    ]


def test_a_clean_stop_does_not_wait_for_the_damaged_row_of_the_other_parent_of_a_merge(caplog):
    fleet = fleet_at_rest(2)
    damage(fleet, key(1), leaseCounter=None)
    fleet.put(20)
    fleet.merge()
    engine = fleet.add("a")
    fleet.run(60)
    assert [health.state for health in engine.shard_health()] == [ShardState.SHUTTING_DOWN], "at its end"
    fleet.stop("a")
    assert fleet.run(10, lambda: fleet.engines == {})
    assert f"{key(0)}: leaving the end" in caplog.text
    row = fleet.store.get(key(0))
    assert row.owner is None
    assert not row.is_finished


def test_a_lease_that_is_left_at_the_end_of_its_shard_is_checkpointed_first():
    """The shard is read to its end, but its end has to wait for the lease of the other parent of a merge."""
    fleet = fleet_at_rest(2)
    damage(fleet, key(1), leaseCounter=None)
    fleet.put(20)
    fleet.merge()
    engine = fleet.add("a", fleet.recorder("a", checkpoint=False, last_words=True))
    fleet.run(60)
    assert [health.state for health in engine.shard_health()] == [ShardState.SHUTTING_DOWN], "at its end"
    count = len(fleet.delivered)
    assert count > 0
    fleet.stop("a")
    assert fleet.run(10, lambda: fleet.engines == {})
    assert [what for _, _, _, what in fleet.events][-1] == "shutdown_requested"
    fleet.add("b", fleet.recorder("b"))
    fleet.run(60)
    assert len(fleet.delivered) == count, "nothing is delivered twice"


def test_a_row_that_is_damaged_on_its_way_to_a_stopping_worker_does_not_end_it_with_an_error(caplog):
    fleet = fleet_of(4, "a")
    engine = fleet.add("b")
    assert fleet.run(60, lambda: len(engine.coordinator._handoffs) > 0)
    fleet.freeze("a", 60)
    coming = engine.coordinator._handoffs._incoming.keys()
    for lease_key in coming:
        damage(fleet, lease_key, leaseCounter=None)
    fleet.stop("b")
    assert fleet.run(20, lambda: "b" not in fleet.engines)
    assert engine.error is None
    assert "incoming leases" in caplog.text


def test_cycles_and_what_waits_for_them_are_found():
    rows = circular(
        ("a", "b"), ("b", "c"), ("c", "a"), ("d", "c"), ("e", "e"), ("f", ""), ("g", "f"), ("h", "x")
    )
    found = find_cycles(rows)
    assert found.keys() == set("abcde")
    assert "(a waits for b waits for c waits for a)" in found["a"]
    assert found["d"] == found["a"], "what it waits for, in the end"
    assert "(e waits for e)" in found["e"]
    assert find_cycles(circular(("a", "b"), ("b", "a"), finished="b")) == {}
    merged = circular(("a", ""), ("b", "c"), ("c", "b"), ("d", "ab"))
    assert find_cycles(merged).keys() == set("bcd")
    long = circular(*((str(n), [str((n + 1) % 5000)]) for n in range(5000)))
    assert len(find_cycles(long)) == 5000
    assert len(find_cycles(long)["0"]) < 200
    assert find_cycles(circular(*((str(n), [str(n + 1)]) for n in range(5000)))) == {}


def test_a_cycle_of_one_stream_does_not_affect_another():
    one = Lease(
        lease_key="1:a:1:s0", shard_id="s0", stream_name="1:a:1", checkpoint=START, parent_shard_ids=("s1",)
    )
    other = replace(one, lease_key="1:b:1:s1", shard_id="s1", stream_name="1:b:1", parent_shard_ids=("s0",))
    assert find_cycles([one, other]) == {}
    same = replace(other, lease_key="1:a:1:s1", stream_name="1:a:1")
    assert find_cycles([one, same]).keys() == {"1:a:1:s0", "1:a:1:s1"}


@pytest.mark.parametrize("parents", [{0: 0}, {0: 1, 1: 0}])
def test_circular_parents_are_a_stall_and_a_problem(parents, caplog):
    fleet = fleet_at_rest(3)
    for child, parent in parents.items():
        damage(fleet, key(child), parentShardId={"SS": [key(parent)]})
    engine = fleet.add("a")
    fleet.put(30)
    fleet.run(60)
    stuck = {key(n) for n in parents}
    assert {shard_id for _, shard_id, _, _, _ in fleet.delivered} == {key(n) for n in range(3)} - stuck
    assert problems(fleet).keys() == stuck
    health = {one.shard_id: one for one in engine.shard_health()}
    for shard_id in stuck:
        assert "form a cycle" in str(health[shard_id].stall)
        assert "form a cycle" in health[shard_id].last_error
        assert f"{shard_id}: stalled: " in caplog.text
    assert health[key(2)].stall is None
    for child in parents:
        fleet.table.update_item(
            TableName="app", Key={"leaseKey": {"S": key(child)}}, UpdateExpression="REMOVE parentShardId"
        )
    fleet.crash("a")
    fleet.add("a")
    assert fleet.run(30, fleet.all_delivered)


def test_a_parent_whose_row_cannot_be_read_is_a_stall_of_its_child(caplog):
    fleet = fleet_of(1, "a")
    fleet.split()
    assert fleet.run(60, lambda: len(fleet.store.list()) == 3)
    fleet.stop("a")
    fleet.run(10)
    good = fleet.table.get_item(TableName="app", Key={"leaseKey": {"S": key(0)}})["Item"]
    damage(fleet, key(0), leaseCounter={"N": "1E+100"})
    engine = fleet.add("a")
    fleet.run(60)
    health = {one.shard_id: one for one in engine.shard_health()}
    assert f"row {key(0)} cannot be read" in str(health[key(1)].stall)
    counter = 900

    def other(now):
        nonlocal counter
        counter += 1
        row = {"checkpoint": {"S": "TRIM_HORIZON"}, "leaseOwner": {"S": "other"}}
        fleet.table.put_item(TableName="app", Item={**good, **row, "leaseCounter": {"N": str(counter)}})
        return now + 3.0

    fleet.add_script("other", other)
    fleet.run(60)
    shards = engine.shard_health()
    assert {one.shard_id for one in shards} == {key(1), key(2)}
    assert all(one.stall is None and one.last_error is None for one in shards), "a parent may take hours"
    fleet.crash("other")
    fleet.table.put_item(
        TableName="app", Item={**good, "checkpoint": {"S": SHARD_END}, "leaseCounter": {"N": "2000"}}
    )
    fleet.run(30)
    assert all(one.stall is None and one.last_error is None for one in engine.shard_health())


# Rows that DynamoDB does not let any worker write


class Refusing(DynamoDBLeaseStore):
    """A table in which writes of some rows are always rejected, as those of a row of the maximum size."""

    rows = frozenset()

    def _update(self, seen, *arguments, **options):
        self.check(seen.lease_key)
        return super()._update(seen, *arguments, **options)

    def _set(self, lease_key, changes):
        self.check(lease_key)
        return super()._set(lease_key, changes)

    def check(self, lease_key):
        if lease_key in self.rows:
            raise PermanentAwsError(
                "Item size to update has exceeded the maximum allowed size",
                operation="UpdateItem",
                code="ValidationException",
            )


def refusing_fleet(shards, *names):
    fleet = on_dynamodb(shards, config=CONFIG)
    fleet.store = Refusing(
        fleet.aws.client("dynamodb"), "app", sleep=fleet.clock.advance, monotonic=fleet.clock.monotonic
    )
    for name in names:
        fleet.add(name)
    fleet.run(5)
    return fleet


def test_a_row_that_cannot_be_written_costs_its_own_shard_and_not_the_fleet(caplog):
    fleet = refusing_fleet(4, "a", "b")
    fleet.store.rows = frozenset({key(0)})
    fleet.run(60)  # held, given up at the renewal, tried by the other worker, and again
    assert set(fleet.engines) == {"a", "b"}
    assert "be written" in problems(fleet)[key(0)]
    assert key(0) in problems(fleet, "b")
    assert any(f"{key(0)}: needs repair: " in e for e in errors(caplog))
    assert not any("fatal" in line for line in errors(caplog))
    fleet.put(40)
    fleet.run(30)
    assert {shard_id for _, shard_id, _, _, _ in fleet.delivered} == {key(n) for n in range(1, 4)}
    fleet.store.rows = frozenset()
    assert fleet.run(400, fleet.all_delivered), "it is tried again"
    fleet.run(5)
    assert problems(fleet) == {}


@pytest.mark.parametrize("step", ["request", "complete"])
def test_a_handoff_of_a_row_that_cannot_be_written_stops_no_worker(step):
    """Asked for by a second worker, or left half done by a former process of the same worker."""
    fleet = refusing_fleet(2, "a")
    row = fleet.store.get(key(0))
    if step == "complete":
        fleet.crash("a")
        fleet.store.request_handoff(row, "b")
    fleet.store.rows = frozenset({key(0)})
    if step == "request":
        fleet.store.request_handoff = lambda lease, owner: fleet.store.check(lease.lease_key)
        fleet.store.rows = frozenset({key(0), key(1)})
        fleet.add("b")
        fleet.run(3)
        assert problems(fleet, "b") != {}
    else:
        fleet.add("a")
        fleet.run(8)
        assert fleet.owners()[key(1)] == "a"
    assert set(fleet.engines) >= {"a"}
    assert all(engine.error is None for engine in fleet.engines.values())


def test_an_error_of_the_whole_table_still_ends_a_worker():
    fleet = refusing_fleet(1, "a")

    def check(lease_key):
        raise PermanentAwsError("not yours", operation="UpdateItem", code="AccessDeniedException")

    fleet.store.check = check
    with pytest.raises(PermanentAwsError, match="not yours"):
        fleet.run(20)


class RefusingMemory(LeaseTable):
    def _swap(self, seen, change, **conditions):
        raise PermanentAwsError("Item size", operation="UpdateItem", code="ValidationException")


@pytest.mark.parametrize("write", ["renew", "checkpoint", "pin", "release"])
def test_a_rejected_write_ends_the_lease(write):
    clock, store = VirtualClock(), RefusingMemory()
    row = Lease(lease_key="s", checkpoint=START, owner="a")
    held = hold(store, row, clock)
    arguments = {"checkpoint": [ExtendedSequenceNumber("5")], "pin": [7]}.get(write, [])
    with pytest.raises(LeaseLostError, match="cannot be written"):
        getattr(held, write)(*arguments)
    assert held.unwritable is not None
    assert not held.is_held(clock.monotonic())


def test_state_that_is_too_large_does_not_end_the_lease():
    clock, store = VirtualClock(), RefusingMemory()
    row = Lease(lease_key="s", checkpoint=START, owner="a")
    held = hold(store, row, clock)
    with pytest.raises(PermanentAwsError, match="Item size"):
        held.prepare(ExtendedSequenceNumber("5"), b"x" * 500_000)
    assert held.unwritable is None
    assert held.is_held(clock.monotonic())


def test_a_standby_heartbeat_avoids_a_full_row():
    fleet = refusing_fleet(2, "x|a", "y|b")
    full = key(crc32(b"x|c") % 2)  # the row that this worker chooses first
    real = fleet.store._set
    refused = []

    def refuse(lease_key, changes):
        if lease_key == full and any(name.startswith("standby:") for name in changes):
            refused.append(lease_key)
            raise PermanentAwsError("Item size", operation="UpdateItem", code="ValidationException")
        return real(lease_key, changes)

    fleet.store._set = refuse
    fleet.add("x|c")
    fleet.run(30)
    assert refused == [full]
    assert set(fleet.engines) == {"x|a", "y|b", "x|c"}
    assert {row.lease_key for row in fleet.store.list() if "x|c" in row.standby_heartbeats} == {
        key(0),
        key(1),
    } - {full}


# What others wrote, in the log


def test_an_owners_name_cannot_forge_log_lines(caplog):
    caplog.set_level(logging.INFO)
    fleet = fleet_of(2, "a")
    forged = "x\n\x1b[31mERROR all is lost"
    damage(fleet, key(0), leaseOwner={"S": forged}, leaseCounter={"N": "500"})
    fleet.run(30)
    assert fleet.owners()[key(0)] == "a", "it expired"
    assert any(r"taken from x\n\x1b[31mERROR all is lost (expired)" in r.getMessage() for r in caplog.records)
    assert all(r.getMessage().isprintable() for r in caplog.records if r.name.startswith("kinesis_sdk"))


# Scans end


def endless(client, repeat):
    """A DynamoDB whose scans always have one more page, and the numbers of its pages."""
    scans = []

    def scan(_method, _request):
        scans.append(1 if repeat else len(scans) + 1)
        return {"Items": [], "LastEvaluatedKey": {"leaseKey": {"S": f"{scans[-1]}"}}}

    return Client(client, scan=scan), scans


@pytest.mark.parametrize(("repeat", "scans"), [(True, 2), (False, MAX_PAGES)])
def test_a_scan_that_never_ends_is_rejected(repeat, scans):
    client, made = endless(FakeAws(clock=VirtualClock()).client("dynamodb"), repeat)
    store = DynamoDBLeaseStore(client, "app")
    with pytest.raises(ProtocolError, match="Scan of app: "):
        store.list()
    assert len(made) == scans


def test_a_worker_does_not_start_on_a_table_whose_scan_never_ends():
    fleet = on_dynamodb(1, config=CONFIG)
    fleet.store._client, _ = endless(fleet.aws.client("dynamodb"), repeat=True)
    with pytest.raises(ProtocolError, match="page token"):
        fleet.add("a")


# Whatever stands in a row

TEXTS = st.sampled_from(["", "5", "-1", "LATEST", "SHARD_END", "garbage", "x\n", "9" * 40, "1E+3"])
NUMBERS = st.sampled_from(
    ["0", "7", "-3", "1.5", "1E+2", "1E+60", "9.9E+125", "1E-130", "4611686018427387904"]
)
VALUES = st.one_of(
    st.builds(lambda text: {"S": text}, TEXTS),
    st.builds(lambda number: {"N": number}, NUMBERS),
    st.builds(lambda texts: {"SS": sorted(texts)}, st.sets(TEXTS.filter(bool), min_size=1, max_size=2)),
    st.sampled_from([{"B": b"state"}, {"BOOL": True}, {"NULL": True}, {"L": []}, {"M": {}}]),
)
NAMES = st.sampled_from(
    [
        *("leaseCounter", "leaseOwner", "ownerSwitchesSinceCheckpoint", "checkpoint", "checkpointOwner"),
        *("checkpointSubSequenceNumber", "pendingCheckpoint", "pendingCheckpointSubSequenceNumber"),
        *("pendingCheckpointState", "parentShardId", "childShardIds", "startingHashKey", "endingHashKey"),
        *("throughputKBps", "entityType", "streamName", "shardId", "initialTimestampMillis", "handoffOwner"),
        *("standby:a", "drain:a", "pinnedTo", "progress", "processedUntil", "unknown"),
    ]
)


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=60, fuzz=2000))
@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_a_row_is_unreadable_or_can_be_consumed(changes):
    """Whatever a row holds, it is told to be unreadable, or every write of an owner goes through."""
    clock = VirtualClock()
    client = FakeAws(clock=clock).client("dynamodb")
    store = DynamoDBLeaseStore(client, "app", sleep=clock.advance, monotonic=clock.monotonic)
    store.ensure_ready()
    base = {"leaseKey": {"S": "s"}, "leaseCounter": {"N": "5"}, "checkpoint": {"S": "TRIM_HORIZON"}}
    try:
        client.put_item(TableName="app", Item={**base, **changes})
    except ClientError:
        return  # an owner is a key of the index: DynamoDB takes text only
    scan = store.scan()
    assert len(scan.leases) + len(scan.unreadable) + len(scan.others) == 1
    for row in scan.leases:
        held = hold(store, store.take(row, "a"))
        held.renew()
        held.prepare(ExtendedSequenceNumber("7"), b"state")
        held.checkpoint(ExtendedSequenceNumber("8", 1))
        assert store.put_standby_heartbeat("s", "a", 3)
        held.release()
        after = store.get("s")
        assert after.counter == row.counter + 5
        assert after.owner is None


# Rows that contradict the stream


@pytest.mark.parametrize("kind", ["no such shard", "finished", "checkpoint", "hash keys"])
@pytest.mark.parametrize("running", [True, False])
def test_a_row_that_contradicts_the_stream_costs_its_own_shard_at_most(kind, running, caplog):
    """The stream was not recreated: another row has a position that only this stream can have given."""
    fleet = fleet_of(3, "maker")
    fleet.put(30)
    fleet.run(5)
    if not running:
        fleet.stop("maker")
        fleet.run(5)
    bad = key(777) if kind == "no such shard" else key(1)
    row = dict(fleet.table.get_item(TableName="app", Key={"leaseKey": {"S": key(1)}})["Item"])
    changes = {
        "no such shard": {
            name: value for name, value in row.items() if name not in ("leaseKey", "leaseOwner")
        },
        "finished": {"checkpoint": {"S": SHARD_END}},
        "checkpoint": {"checkpoint": {"S": "49500000000000000000000000000000000000000000000000000001"}},
        "hash keys": {"startingHashKey": {"S": "0"}, "endingHashKey": {"S": "5"}},
    }[kind]
    damage(fleet, bad, **changes)
    if not running:
        fleet.add("a")
    name = "maker" if running else "a"
    fleet.run(60)
    assert fleet.engines[name].error is None, "the worker goes on"
    before = len(fleet.delivered)
    fleet.put(30)
    fleet.run(10)
    delivered = {shard_id for _, shard_id, *_ in fleet.delivered[before:]}
    assert {key(0), key(2)} <= delivered
    owned = fleet.store.get(bad).checkpoint
    if not running or kind in ("no such shard", "hash keys"):
        assert bad in problems(fleet, name), "it is named for as long as it is wrong"
        assert any(f"lease {bad}: needs repair: " in line for line in errors(caplog))
    else:
        assert not owned.is_sentinel, "its owner has written its position again"
    fleet.table.delete_item(TableName="app", Key={"leaseKey": {"S": bad}})
    assert fleet.run(60, lambda: problems(fleet, name) == {})
    if kind != "no such shard":
        assert fleet.run(260, fleet.all_delivered), "the row is made again, and the shard is read"
