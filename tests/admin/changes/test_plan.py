"""Plans and writes, without a table: exact requests, refusals, order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_sdk.admin.changes import recipes
from kinesis_sdk.admin.changes.audit import item_from_json, item_to_json
from kinesis_sdk.admin.changes.owners import OwnerWatch
from kinesis_sdk.admin.changes.plan import (
    Action,
    Goal,
    PlannedChange,
    Refusal,
    StreamRows,
    Unchanged,
    decide,
    refuse_rewind,
    rewind_goals,
    roots,
)
from kinesis_sdk.admin.changes.positions import ResolvedStart
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.changes.rows import Row, decode, shows
from kinesis_sdk.admin.changes.transfer import import_goals, make_export, parse_export
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases.table.lease import Lease, lease_to_item

P, Q, S = (ExtendedSequenceNumber(number, 3) for number in ("500", "200", "900"))
SHARD = "shardId-000000000000"
BY = "~operator-1"


def row(**fields):
    fields = {"lease_key": SHARD, "counter": 40, "owner": "w1", "checkpoint": P, **fields}
    item = lease_to_item(Lease(**fields))
    return Row.of(item)


def python_row(**fields):
    return row(handoff_owner=fields.get("owner", "w1"), **fields)


def watch(*rows, metrics=(), seconds=0.0, failover=10.0):
    """What two reads show that are some seconds apart and in which nothing changed."""
    owners = OwnerWatch(failover)
    owners.observe([one.lease for one in rows], 0.0)
    owners.observe_metrics(dict.fromkeys(metrics, 1000.0), wall=1000.0, now=0.0)
    owners.observe([one.lease for one in rows], seconds)
    return owners


def goal(action=Action.REWIND, **fields):
    return Goal(lease_key=SHARD, shard_id=SHARD, action=action, **fields)


PENDING = {"pending_checkpoint": P, "pending_checkpoint_state": b"half", "initial_timestamp_millis": 5}


def test_a_restart_is_one_update_on_the_counter_seen():
    write = recipes.restart(python_row(**PENDING, extra={"note": {"S": "kept"}}), Q, by=BY)
    request = write.request("app")
    names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
    text = request["UpdateExpression"] + " IF " + request["ConditionExpression"]
    for placeholder in sorted(names, key=len, reverse=True):
        text = text.replace(placeholder, names[placeholder])
    for placeholder in sorted(values, key=len, reverse=True):
        text = text.replace(placeholder, next(iter(values[placeholder].values())))
    assert text == (
        "SET leaseCounter = 42, changedBy = ~operator-1:40, checkpoint = 200, checkpointSubSequenceNumber = 3, "
        "ownerSwitchesSinceCheckpoint = 0 REMOVE pendingCheckpoint, pendingCheckpointSubSequenceNumber, pendingCheckpointState, "
        "initialTimestampMillis IF leaseCounter = 40"
    )
    after = write.applied(python_row(extra={"note": {"S": "kept"}}).item)
    assert after["note"] == {"S": "kept"}
    assert after["leaseOwner"] == {"S": "w1"}


@pytest.mark.parametrize(
    ("write", "counter", "owner"),
    [
        (lambda one: recipes.restart(one, Q, by=BY), 42, "w1"),
        (lambda one: recipes.free(one, Q, by=BY), 42, None),
        (lambda one: recipes.free(one, by=BY), 42, None),
        (lambda one: recipes.assign(one, "w2", is_python=True, by=BY), 42, "w2"),
        (lambda one: recipes.give_back(one, "w2", Q, by=BY), 41, "w2"),
        (lambda one: recipes.request(one, BY), 40, BY),
    ],
)
def test_counters_and_owners(write, counter, owner):
    before = python_row(**PENDING)
    after = Row.of(write(before).applied(before.item)).lease
    assert (after.counter, after.owner) == (counter, owner)
    moved = after.checkpoint == Q
    assert (after.pending_checkpoint is None) == moved
    assert (after.initial_timestamp_millis is None) == moved


def test_a_withdrawn_request_leaves_the_row_as_it_was():
    for before in (python_row(), row()):
        requested = recipes.request(before, BY).applied(before.item)
        assert recipes.withdraw(before, BY).applied(requested) == before.item


def test_a_request_for_a_java_worker_leaves_no_mark_of_ours():
    """With the mark, the old owner would take the lease back after three seconds; a Java worker needs up to ten."""
    after = recipes.request(python_row(), "java", is_python=False).applied(python_row().item)
    assert "handoffOwner" not in after


def test_a_lost_answer_is_told_by_the_operators_name():
    before = python_row()
    write = recipes.restart(before, Q, by=BY)
    after = write.applied(before.item)
    later = {**after, "leaseCounter": {"N": "99"}, "checkpoint": {"S": "990"}}
    renewed = {**before.item, "leaseCounter": {"N": "42"}}
    assert shows(after, write)
    assert shows(later, write), "its owner is far beyond by now"
    assert not shows(before.item, write)
    assert not shows(renewed, write), "two renewals of the owner"
    assert not shows(None, write)


@pytest.mark.parametrize(
    ("one", "metrics", "seconds", "recipe"),
    [
        (python_row(), (), 0.0, Recipe.RESTART),
        (row(), ("w1",), 0.0, Recipe.RESTART),
        (row(), (), 0.0, Recipe.FREE),
        (row(owner=None), (), 0.0, Recipe.FREE),
        (python_row(), (), 10.5, Recipe.FREE),
        (row(), ("w1",), 10.5, Recipe.FREE),
        (python_row(checkpoint=ExtendedSequenceNumber("SHARD_END")), (), 0.0, Recipe.FREE),
        (None, (), 0.0, Recipe.CREATE),
    ],
)
def test_the_form_of_a_rewind_follows_from_the_owner(one, metrics, seconds, recipe):
    owners = watch(*([] if one is None else [one]), metrics=metrics, seconds=seconds)
    missing = Lease(lease_key=SHARD, checkpoint=Q)
    decision = decide(goal(position=Q, missing=missing), one, owners, seconds, operator=BY)
    assert isinstance(decision, PlannedChange)
    assert decision.recipe is recipe


@pytest.mark.parametrize(
    ("one", "metrics", "recipe"),
    [(python_row(), (), Recipe.REQUEST), (row(), ("w1",), Recipe.REQUEST), (row(), (), Recipe.FREE)],
)
def test_the_form_of_a_skip_follows_from_the_owner(one, metrics, recipe):
    owners = watch(one, metrics=metrics)
    decision = decide(goal(Action.SKIP, position=S), one, owners, 0.0, operator=BY)
    assert isinstance(decision, PlannedChange)
    assert decision.recipe is recipe
    again = decide(goal(Action.SKIP, position=S), one, owners, 0.0, operator=BY, may_request=False)
    assert isinstance(again, PlannedChange)
    assert again.recipe is Recipe.FREE


def test_a_skip_never_goes_back():
    for position in (Q, P, ExtendedSequenceNumber("TRIM_HORIZON")):
        one = python_row()
        decision = decide(goal(Action.SKIP, position=position), one, watch(one), 0.0, operator=BY)
        assert isinstance(decision, Unchanged)


def test_a_rewind_never_goes_forward():
    one = python_row()
    decision = decide(goal(position=S), one, watch(one), 0.0, operator=BY)
    assert isinstance(decision, PlannedChange)
    assert Row.of(decision.write.applied(one.item)).lease.checkpoint == P
    dead = decide(goal(position=S), one, watch(one, seconds=11.0), 11.0, operator=BY)
    assert isinstance(dead, Unchanged)


@pytest.mark.parametrize(
    ("pinned", "arrival", "changes"),
    [(5000, 4000, True), (5000, 5000, False), (5000, None, False), (None, 4000, True)],
)
def test_a_rewind_of_a_start_that_is_a_time_compares_times(pinned, arrival, changes):
    one = python_row(checkpoint=ExtendedSequenceNumber("LATEST"), initial_timestamp_millis=pinned)
    decision = decide(goal(position=Q, arrival_millis=arrival), one, watch(one), 0.0, operator=BY)
    assert isinstance(decision, PlannedChange)
    after = Row.of(decision.write.applied(one.item)).lease
    assert (after.checkpoint == Q) is changes
    assert (after.initial_timestamp_millis is None) is changes, "the owner begins again where it began"


def test_a_row_in_a_handoff_is_left_alone():
    one = row(owner="w2", checkpoint_owner="w1")
    decision = decide(goal(position=Q), one, watch(one), 0.0, operator=BY)
    assert isinstance(decision, Refusal)
    assert decision.waits_for_handoff


def moving(*rows, to="w2", kind_of_target="python", failover=10.0, seconds=0.0):
    marks = [
        replace(one.lease, standby_heartbeats={to: 1} if kind_of_target == "python" else {}) for one in rows
    ]
    owners = OwnerWatch(failover)
    owners.observe(marks, 0.0)
    if kind_of_target == "kcl3":
        owners.observe_metrics({to: 1000.0}, wall=1000.0, now=0.0)
    owners.observe(
        [replace(one, standby_heartbeats=dict.fromkeys(one.standby_heartbeats, 2)) for one in marks],
        seconds,
    )
    return owners


@pytest.mark.parametrize(
    ("one", "target", "seconds", "expected"),
    [
        (python_row(), "python", 0.0, Recipe.REQUEST),
        (python_row(), "kcl3", 0.0, Recipe.REQUEST),
        (row(owner=None), "python", 0.0, Recipe.ASSIGN),
        (python_row(), "python", 10.5, Recipe.ASSIGN),
        (python_row(), "none", 0.0, "KCL 1 or 2, or unknown"),
        (row(), "python", 0.0, "does not hear a request"),
    ],
)
def test_moves(one, target, seconds, expected):
    owners = moving(one, kind_of_target=target, seconds=seconds)
    decision = decide(goal(Action.MOVE, worker="w2"), one, owners, seconds, operator=BY)
    if isinstance(expected, Recipe):
        assert isinstance(decision, PlannedChange)
        assert decision.recipe is expected
    else:
        assert isinstance(decision, Refusal)
        assert expected in decision.reason


def test_a_worker_that_drains_is_given_no_lease():
    one = python_row(draining=("w2",))
    decision = decide(goal(Action.MOVE, worker="w2"), one, moving(one), 0.0, operator=BY)
    assert isinstance(decision, Refusal)
    assert "drains" in decision.reason


HALF = MAX_HASH_KEY // 2


def shard(number, start=0, end=MAX_HASH_KEY, *, parents=(), begin=0, ended=None):
    parent, adjacent = (*parents, None, None)[:2]
    return Shard(
        f"shardId-{number:012d}",
        HashKeyRange(start, end),
        None if parent is None else f"shardId-{parent:012d}",
        None if adjacent is None else f"shardId-{adjacent:012d}",
        str(begin),
        ended,
    )


FAMILY = [
    shard(3, begin=300, parents=(1, 2)),
    shard(1, 0, HALF, begin=100, parents=(0,), ended="290"),
    shard(2, HALF + 1, begin=100, parents=(0,), ended="290"),
    shard(0, begin=1, ended="90"),
]


def test_a_rewind_follows_the_lineage_parents_first():
    table = StreamRows(rows={})
    assert roots(FAMILY) == ["shardId-000000000000"]
    start = ResolvedStart(position=Q)
    goals = rewind_goals(table, FAMILY, {"shardId-000000000000": start}, listed=FAMILY)
    assert [one.shard_id[-1] for one in goals] == ["0", "1", "2", "3"]
    assert [str(one.position) for one in goals] == ["200/3", *["TRIM_HORIZON/0"] * 3]
    merged = goals[-1].missing
    assert merged is not None
    assert merged.parent_shard_ids == ("shardId-000000000001", "shardId-000000000002")
    assert (merged.owner, merged.counter) == (None, 0)


def test_a_finished_parent_comes_back_only_with_its_children_beside_java():
    parent = row(checkpoint=ExtendedSequenceNumber("SHARD_END"))
    children = [row(lease_key=f"shardId-{number:012d}", owner="java", checkpoint=S) for number in (1, 2)]
    rows = {one.lease.lease_key: one for one in (parent, *children)}
    table = StreamRows(rows=rows)
    shards = FAMILY[1:]
    start = {"shardId-000000000000": ResolvedStart(position=Q)}
    alone = rewind_goals(table, shards, start, listed=shards, chosen={"shardId-000000000000"})
    everything = rewind_goals(table, shards, start, listed=shards)
    owners = watch(*rows.values())
    (refusal,) = refuse_rewind(table, shards, alone, owners, 0.0)
    assert "would delete the row again within five minutes" in refusal.reason
    assert refuse_rewind(table, shards, everything, owners, 0.0) == []
    dead = watch(*rows.values(), seconds=11.0)
    assert refuse_rewind(table, shards, alone, dead, 11.0) == []


def test_items_survive_the_journey_through_json():
    item = python_row(**PENDING, extra={"m": {"M": {"x": {"L": [{"B": b"\x00"}, {"BOOL": True}]}}}}).item
    assert item_from_json(item_to_json(item)) == item


def export_of(*rows):
    read = decode([one.item for one in rows])
    return parse_export(make_export("app", read, stream="orders", stream_created=5.0, at=9.0).lines())


def test_an_import_needs_a_row_for_every_shard():
    shards = [shard(0, 0, HALF), shard(1, HALF + 1)]
    goals, refusals, _ = import_goals(StreamRows(rows={}), export_of(row()), shards)
    assert [one.shard_id[-1] for one in goals] == ["0"]
    (refusal,) = refusals
    assert "no row for shardId-000000000001" in refusal.reason


def test_an_import_needs_the_parents_of_unread_children():
    child = row(lease_key="shardId-000000000003", checkpoint=ExtendedSequenceNumber("TRIM_HORIZON"))
    _, refusals, _ = import_goals(StreamRows(rows={}), export_of(child), FAMILY)
    assert any("has not been read, and its parent" in one.reason for one in refusals)


def test_an_import_puts_rows_back_without_the_workers_of_that_time():
    saved = python_row(
        progress=None, draining=("w9",), standby_heartbeats={"w8": 4}, extra={"changedBy": {"S": "x"}}
    )
    ((one,), refusals, _) = import_goals(StreamRows(rows={}), export_of(saved), [shard(0)])
    assert refusals == []
    assert one.missing is not None
    assert set(lease_to_item(one.missing)) == {
        "leaseKey",
        "leaseCounter",
        "ownerSwitchesSinceCheckpoint",
        "checkpoint",
        "checkpointSubSequenceNumber",
    }


@pytest.mark.parametrize(
    ("there", "action"), [(S, Action.REWIND), (Q, Action.SKIP), (P, None), ("SHARD_END", Action.REWIND)]
)
def test_an_import_into_a_live_application_rewinds_or_skips(there, action):
    current = python_row(checkpoint=there if there != "SHARD_END" else ExtendedSequenceNumber("SHARD_END"))
    goals, _, _ = import_goals(StreamRows(rows={SHARD: current}), export_of(row()), [shard(0)])
    assert [one.action for one in goals] == ([] if action is None else [action])


def test_lines_that_are_no_export_are_refused():
    lines = list(make_export("app", decode([row().item]), stream="s", stream_created=None, at=1.0).lines())
    assert len(parse_export(lines).rows) == 1
    for damaged in (
        [],
        lines[:1],
        [*lines, lines[1]],
        ["{}"],
        ["nonsense"],
        [lines[0], '{"item": {}}'],
        ["[" * 100_000],
    ):
        with pytest.raises(ConfigError, match="a complete export"):
            parse_export(damaged)


def test_the_time_in_which_the_user_thinks_makes_no_owner_silent():
    owners = watch(python_row(), seconds=9.9)
    assert not owners.is_silent("w1", 600.0)
    assert watch(python_row(), seconds=10.1).is_silent("w1", 10.1)
