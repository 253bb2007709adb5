"""Rewinds of live fleets in virtual time: exactly the window comes again, also over reshards."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import product
from random import Random

import pytest

from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.plan import StreamRows
from kinesis_sdk.admin.changes.plans import plan_rewind
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from tests.admin.changes.operators import CLEANING, HORIZON, SHARD, SLOW, SteeredFleet, loaded
from tests.fuzz import share


def test_a_rewind_shows_what_it_writes_and_who_noticed(tmp_path):
    fleet, start, first = loaded(tmp_path)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    (change,) = plan.changes
    before = fleet.store.get(SHARD)
    assert change.recipe is Recipe.RESTART
    assert change.goal.effect.startswith("repeats 6 s of records, about 2")
    assert change.differences[-1] == f"on condition: leaseCounter = {before.counter}"
    assert f"leaseCounter: {before.counter} → {before.counter + 2}" in change.differences
    assert (plan.command.operation, plan.command.parameters["application"]) == ("rewind", "app")
    assert "stream" in plan.command.parameters
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert (outcome.status, outcome.noticed_by) == (Status.DONE, "a")
    assert outcome.noticed_after <= 1.6, "the owner scans every second"
    fleet.check_repeated(first)
    begin, done = fleet.lines()
    assert (begin["event"], done["event"]) == ("begin", "done")
    assert begin["before"]["leaseCounter"] == {"N": str(before.counter)}
    assert done["after"]["leaseCounter"] == {"N": str(before.counter + 2)}
    assert (begin["operation"], begin["parameters"]["application"]) == ("rewind", "app")


def test_latest_stores_a_position_before_anything_is_read(tmp_path):
    """Nothing that arrives between the rewind and the start of the first worker is skipped."""
    fleet = SteeredFleet(tmp_path, config=ConsumerConfig(initial_position="LATEST"))
    fleet.put(8)
    fleet.run(5)
    fleet.add("a", fleet.checkpointer("a", "each batch"))
    fleet.run(0.5)
    fleet.crash("a")
    row = fleet.dynamodb.get_item(TableName="app", Key={"leaseKey": {"S": SHARD}})["Item"]
    if "initialTimestampMillis" in row:  # as a Java worker leaves it: nothing but the sentinel
        fleet.write("REMOVE initialTimestampMillis")
    first = fleet.put_count
    desk = fleet.desk()
    plan = plan_rewind(desk, "LATEST")
    assert len(plan.changes) == 1
    LeaseChange(desk, plan).carry_out(wait=0)
    fleet.put(8)
    fleet.run(5)
    fleet.add("b", fleet.checkpointer("b", "each batch"))
    fleet.run(30)
    assert fleet.data() == [b"%d" % number for number in range(first, fleet.put_count)]


def test_nobody_reads(tmp_path):
    fleet, start, _ = loaded(tmp_path)
    fleet.stop("a")
    fleet.run(10)
    desk = fleet.desk()
    (outcome,) = LeaseChange(desk, plan_rewind(desk, start)).carry_out()
    assert outcome.status is Status.DONE
    assert outcome.noticed_after is None
    assert any("no worker reads. Start one" in line for line in fleet.said)


def test_a_moment_in_the_future_is_refused(tmp_path):
    fleet = SteeredFleet(tmp_path)
    fleet.add("a")
    fleet.load(3)
    with pytest.raises(ConfigError, match="a moment in the past"):
        plan_rewind(fleet.desk(), fleet.moment() + timedelta(seconds=90))


def reshard(fleet, steps):
    for step in steps:
        getattr(fleet, step)()
        fleet.load(4)


def lineage(fleet):
    shards = fleet.raw.list_shards(StreamName="orders")["Shards"]
    return {
        shard["ShardId"]: [
            shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if name in shard
        ]
        for shard in shards
    }


STEPS = {"split": ["split"], "merge": ["merge"], "two generations": ["split", "merge", "split"]}


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("steps", "cleaned", "operations"),
    share(product(STEPS.values(), [True, False], ["one", "killed between two writes"]), unit=3),
)
def test_a_rewind_over_a_reshard(tmp_path, steps, cleaned, operations):
    """Every record since the start comes again, no older one does, and parents come before their children."""
    fleet = SteeredFleet(tmp_path, shards=2, config=CLEANING if cleaned else HORIZON)
    for name in ("a", "b"):
        fleet.add(name, fleet.checkpointer(name, "each batch"))
    fleet.load(8)
    start, first = fleet.moment(), fleet.put_count
    fleet.load(6)
    reshard(fleet, steps)
    fleet.run(6)
    gone = set(lineage(fleet)) - {lease.lease_key for lease in fleet.store.list()}
    assert bool(gone) == cleaned
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    assert not plan.refusals, plan.refusals
    order = [change.goal.shard_id for change in plan.changes]
    parents = lineage(fleet)
    assert set(order) == set(parents)
    assert all(order.index(parent) < order.index(shard) for shard in order for parent in parents[shard])
    mark = len(fleet.delivered)
    twice: set[str] = set()
    if operations == "one":
        LeaseChange(desk, plan).carry_out()
    else:
        change = LeaseChange(desk, plan)
        kill_after(fleet, desk, change, writes=2)
        fleet.run(30)
        # A second operator goes on with what the first one has left.
        again = fleet.desk()
        rest = plan_rewind(again, start, remaining_shards(change))
        twice = {change.goal.shard_id for change in rest.changes}
        LeaseChange(again, rest).carry_out()
    wanted = {b"%d" % number for number in range(first, fleet.put_count)}
    assert fleet.run(120, lambda: wanted <= {data for _, _, data, _, _ in fleet.delivered[mark:]})
    fleet.run(20)  # the time of two leases, in which nothing else may come
    seen: dict[str, list[int]] = {}
    for _, shard, data, _, _ in fleet.delivered[mark:]:
        seen.setdefault(shard, []).append(int(data))
    numbers = sorted(number for run in seen.values() for number in run)
    assert sorted(set(numbers)) == [*range(first, fleet.put_count)]
    # What followed the first operator's writes before the second one came was read already.
    again_of = {shard for shard, run in seen.items() if len(run) > len(set(run))}
    assert again_of <= twice
    firsts = {shard: fleet_index(fleet, mark, shard) for shard in seen}
    lasts = {shard: fleet_index(fleet, mark, shard, last=True) for shard in seen}
    for shard in seen:
        for parent in parents[shard]:
            if parent in seen:
                assert lasts[parent] < firsts[shard], f"{shard} began before its parent {parent} had ended"
    assert fleet.checkpoints().keys() <= set(parents)


def fleet_index(fleet, mark, shard, *, last=False):
    places = [index for index, entry in enumerate(fleet.delivered[mark:]) if entry[1] == shard]
    return places[-1 if last else 0]


def test_shards_that_are_not_read_yet_get_no_row(tmp_path):
    """Their ancestor is far behind. A row at the start of the rewind would be read at once, and what comes before it never."""
    fleet = SteeredFleet(tmp_path, shards=1, config=SLOW)
    fleet.add("a", fleet.checkpointer("a", "each batch"))
    fleet.load(5)
    fleet.behind()
    fleet.split()
    fleet.load(2)
    fleet.merge()
    fleet.load(2)
    start = fleet.moment()
    fleet.load(2)
    assert [lease.lease_key for lease in fleet.store.list()] == [SHARD], (
        "nothing of the children was read yet"
    )
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    assert plan.changes == ()
    assert [note for note in plan.notes if "not read yet" in note] == [
        "shardId-000000000003: not read yet, because a parent is still being read; all of it follows then"
    ]
    LeaseChange(desk, plan).carry_out()
    assert fleet.run(600, fleet.all_delivered)
    assert set(Counter(data for _, _, data, _, _ in fleet.delivered).values()) == {1}
    fleet.check_order()


@pytest.mark.usefixtures("any_place")
def test_a_shard_that_is_read_to_its_end_while_the_operator_still_writes_is_read_once(tmp_path):
    """The first rows are read, finished and deleted before the last row is written; they used to be put back."""
    fleet = SteeredFleet(tmp_path, shards=1, config=CLEANING)
    for name in ("a", "b"):
        fleet.add(name, fleet.checkpointer(name, "each batch"))
    fleet.load(5)
    reshard(fleet, ["split", "split"])
    fleet.run(10)
    desk = fleet.desk()
    plan = plan_rewind(desk, "TRIM_HORIZON")
    assert len(plan.changes) == 5
    send = desk.application.table.send

    def send_slowly(write):
        done = send(write)
        fleet.run(8)
        return done

    desk.application.table.send = send_slowly
    outcomes = LeaseChange(desk, plan).carry_out()
    fleet.run(30)
    assert not any("put back" in text for text in fleet.said)
    assert all(outcome.noticed_after is not None for outcome in outcomes)
    counts = Counter(int(data) for _, _, data, _, _ in fleet.delivered)
    assert set(counts.values()) == {2}
    assert sorted(counts) == [*range(fleet.put_count)]


@pytest.mark.fuzz
@pytest.mark.parametrize(
    "steps", share([["split", "split"], ["merge", "split"], ["split", "merge", "split"]], unit=2)
)
def test_a_rewind_of_one_finished_shard_repeats_that_shard_alone(tmp_path, steps):
    """Its children were read to their end and their leases deleted, and so was the other parent of a merge."""
    fleet = SteeredFleet(tmp_path, shards=2 if steps[0] == "merge" else 1, config=CLEANING)
    for name in ("a", "b"):
        fleet.add(name, fleet.checkpointer(name, "each batch"))
    fleet.load(10)
    reshard(fleet, steps)
    fleet.run(10)
    there = {lease.lease_key for lease in fleet.store.list()}
    gone = sorted(set(lineage(fleet)) - there)
    for shard in gone:
        mark = len(fleet.delivered)
        own = sorted(int(data) for _, where, data, _, _ in fleet.delivered if where == shard)
        desk = fleet.desk()
        LeaseChange(desk, plan_rewind(desk, "TRIM_HORIZON", [shard])).carry_out()
        fleet.run(25)
        again = [(where, int(data)) for _, where, data, _, _ in fleet.delivered[mark:]]
        assert sorted(again) == [(shard, number) for number in sorted(set(own))]
        assert {lease.lease_key for lease in fleet.store.list()} == there, "finished again, and deleted"
    assert len(gone) >= 2


class OperatorDied(BaseException):
    pass


def kill_after(fleet, desk, change, writes):
    """Let the operator's process die after some of its writes."""
    calls = desk.application.table.send
    count = 0

    def send(write):
        nonlocal count
        if count == writes:
            raise OperatorDied
        count += 1
        return calls(write)

    desk.application.table.send = send
    with pytest.raises(OperatorDied):
        change.carry_out()


def remaining_shards(change):
    return list(change.remaining().parameters["shard"])


@pytest.mark.parametrize("named", ["by the shard", "by the option"])
def test_one_stream_of_a_table_of_several(tmp_path, named):
    fleet = SteeredFleet(tmp_path)
    fleet.raw.create_stream(StreamName="other", ShardCount=1)
    fleet.clock.advance(5)
    worker = ConsumerEngine(
        streams=["orders", "other"],
        worker_id="a",
        config=fleet.config,
        handlers=HandlerSource.of(fleet.checkpointer("a", "each batch")),
        store=fleet.store,
        kinesis=fleet.kinesis,
        runtime=fleet.runtime(fleet.clock, Random(1), fleet.clock.advance),
    )
    worker.start()
    fleet.add_script("a", worker.tick)
    fleet.load(15)
    start, first = fleet.moment(), fleet.put_count
    fleet.load(10)
    if named == "by the shard":
        desk = fleet.desk(stream=None)
        plan = plan_rewind(desk, start, ["orders:0"])
    else:
        desk = fleet.desk()
        plan = plan_rewind(desk, start)
    assert "stream" in plan.command.parameters
    (change,) = plan.changes
    assert change.goal.lease_key.endswith(":shardId-000000000000")
    assert ":orders:" in change.goal.lease_key
    mark = len(fleet.delivered)
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert outcome.noticed_by == "a"
    fleet.load(3)
    again = [int(data) for _, _, data, _, _ in fleet.delivered[mark:]]
    assert again[-(fleet.put_count - first) :] == [*range(first, fleet.put_count)]


def test_a_table_of_several_streams_needs_the_stream(tmp_path):
    fleet = SteeredFleet(tmp_path)
    for name in ("orders", "other"):
        shard = Shard("shardId-000000000000", HashKeyRange(0, MAX_HASH_KEY))
        lease = StreamRows(rows={}, stream_name=f"000000000000:{name}:1").lease_for(
            shard, ExtendedSequenceNumber("TRIM_HORIZON")
        )
        fleet.store.ensure_ready()
        fleet.store.create_if_absent(lease)
    with pytest.raises(ConfigError, match="orders, other"):
        plan_rewind(fleet.desk(stream=None), "TRIM_HORIZON")
