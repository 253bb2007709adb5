"""Each recipe against each write of the owner that is in the air at that moment: the window comes again exactly once.

The worker's write is caught between its process and the table, the operator writes, and then the worker's write arrives, or does not,
or arrives after its worker has given it up.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from kinesis_sdk.admin.changes import plan as plans
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.plans import plan_rewind, plan_skip
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.consumer import ConsumerConfig
from tests.admin.changes.operators import SELDOM, SLOW, SteeredFleet, kind_of, no_response
from tests.fuzz import share

PERIODS = {"each batch": 8, "seldom": SELDOM + 5, "never": 8, "prepares": 8}
"""Seconds in which a worker of each mode has checkpointed, if it ever does."""

PHASES = ("arrives after", "arrived before", "answer lost", "never arrives", "arrives late")


class Catch:
    """Catches the next write of one kind that a worker makes, and lets the operator write meanwhile."""

    def __init__(self, fleet, kind, phase, act):
        self.fleet, self.kind, self.phase, self.act = fleet, kind, phase, act
        self.caught = False
        fleet.air.catch = self

    def __call__(self, name, request, call):
        if self.caught or kind_of(request) != self.kind:
            return call()
        self.caught = True
        if self.phase == "arrives after":
            self.act()
            return call()
        if self.phase == "arrived before":
            response = call()
            self.act()
            return response
        if self.phase == "answer lost":
            call()
            self.act()
        elif self.phase == "never arrives":
            self.act()
        else:
            self.act()
            self.fleet.arrive(0.7, call)
        raise no_response()


WRITES = [
    (mode, kind)
    for mode, kinds in (
        ("each batch", ("renewal", "checkpoint")),
        ("seldom", ("renewal", "checkpoint")),
        ("never", ("renewal",)),
        ("prepares", ("prepare", "checkpoint")),
    )
    for kind in kinds
]
"""The kinds of writes of a worker of each mode."""


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("mode", "kind", "phase", "recipe"),
    share(
        [
            (*write, phase, recipe)
            for write in WRITES
            for phase in PHASES
            for recipe in (Recipe.RESTART, Recipe.FREE)
        ],
        unit=11,
    ),
)
def test_the_window_comes_again_and_nothing_else(tmp_path, monkeypatch, mode, kind, phase, recipe):
    if recipe is Recipe.FREE:
        monkeypatch.setattr(plans, "_kind", lambda lease, owners: OwnerKind.OTHER)
    fleet = SteeredFleet(tmp_path)
    fleet.add("a", fleet.checkpointer("a", mode))
    period = PERIODS[mode]
    fleet.load(6)
    assert fleet.delivered, "the window does not begin with the first record"
    start, first = fleet.moment(), fleet.put_count
    fleet.load(period)
    fleet.rested = True
    fleet.load(5)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    (change,) = plan.changes
    assert change.recipe is recipe
    before = len(fleet.runs())
    outcomes = []
    catch = Catch(fleet, kind, phase, lambda: outcomes.extend(LeaseChange(desk, plan).carry_out(wait=0)))
    if kind == "renewal":
        fleet.run(20, lambda: catch.caught)  # without records there is no checkpoint
    else:
        fleet.load(period)
    assert catch.caught
    assert [outcome.status for outcome in outcomes] == [Status.DONE]
    fleet.load(20)
    runs = fleet.runs()
    (_, again), *more = runs[before:]
    assert not more, "one new acquisition"
    assert again == [*range(first, fleet.put_count)]
    assert runs[before - 1][0] not in fleet.interleaving()[fleet.interleaving().index(runs[before][0]) :]


@pytest.mark.parametrize("phase", PHASES)
def test_a_pin_in_the_air(tmp_path, phase):
    """A shard that starts at LATEST is rewound at the moment at which its worker pins the start."""
    fleet = SteeredFleet(tmp_path, config=ConsumerConfig(initial_position="LATEST"))
    fleet.put(8)
    fleet.run(5)
    start, first = fleet.moment(), fleet.put_count
    fleet.put(8)
    fleet.run(5)
    outcomes = []
    desk = fleet.desk()

    def act():
        plan = plan_rewind(desk, start)
        outcomes.extend(LeaseChange(desk, plan).carry_out(wait=0))

    # The operator must not let the worker run inside of the worker's own write.
    desk.judge = lambda _: None
    desk.sleep = fleet.clock.advance
    catch = Catch(fleet, "pin", phase, act)
    fleet.add("a", fleet.checkpointer("a", "each batch"))
    fleet.load(20)
    assert catch.caught
    assert [outcome.status for outcome in outcomes] == [Status.DONE]
    assert fleet.runs()[-1][1] == [*range(first, fleet.put_count)]


@pytest.mark.parametrize(("mode", "kind"), WRITES)
@pytest.mark.parametrize("late", share([0.3, 0.05, 1.5], unit=1))
@pytest.mark.fuzz
def test_a_skip_leaves_out_exactly_what_it_shows(tmp_path, mode, kind, late):
    """A write of the owner is in the air at the request, and arrives soon, or after the position."""
    fleet = SteeredFleet(tmp_path, config=SLOW)
    armed = []

    def catch(name, request, call):
        if armed and kind_of(request) == kind:
            armed.clear()
            fleet.arrive(late, call)
            raise no_response()
        return call()

    fleet.air.catch = catch
    fleet.add("a", fleet.checkpointer("a", mode))
    fleet.load(PERIODS[mode])
    fleet.rested = True
    desk = fleet.behind()
    fleet.clock.advance(1.1)
    gap_end = fleet.put_count
    start = fleet.moment()
    fleet.put(40)
    desk.sleep = lambda _: None  # planned in no time
    plan = plan_skip(desk, start)
    desk.sleep = fleet.run
    armed.append(True)
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert (outcome.status, outcome.recipe) == (Status.DONE, Recipe.REQUEST)
    fleet.load(25)
    numbers = [number for _, run in fleet.runs() for number in run]
    places = {(sequence, sub): int(data) for _, _, data, sequence, sub in fleet.delivered}
    stored = outcome.checkpoint
    last = places[(stored.sequence_number, stored.sub_sequence_number)]
    missing = set(range(fleet.put_count)) - set(numbers)
    assert missing <= set(range(last + 1, gap_end)), "nothing but what lies behind the shown checkpoint"
    assert len(missing) > 300
    if mode in ("each batch", "prepares"):
        assert missing == set(range(last + 1, gap_end)), "exactly that"
        assert len(numbers) == len(set(numbers))


@pytest.mark.fuzz
@pytest.mark.parametrize("phase", share([number * 0.37 for number in range(8)], unit=2))
def test_a_freed_lease_has_two_workers_for_no_longer_than_one_scan(tmp_path, monkeypatch, phase):
    """A peer takes it at once, and the old owner works on until its next scan, or its next write."""
    monkeypatch.setattr(plans, "_kind", lambda lease, owners: OwnerKind.OTHER)
    fleet = SteeredFleet(tmp_path, shards=4)
    for name in ("a", "b", "c"):
        fleet.add(name, fleet.checkpointer(name, "seldom"))
    fleet.load(15)
    assert None not in fleet.owners().values()
    start = fleet.moment()
    fleet.load(10)
    fleet.run(phase)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    assert {change.recipe for change in plan.changes} == {Recipe.FREE}
    LeaseChange(desk, plan).carry_out(wait=0)
    for _ in range(100):
        fleet.put(8)
        fleet.run(0.1)
    overlap = 0.0
    for shard in fleet.owners():
        spans = {}
        for (who, where, *_), moment in zip(fleet.delivered, fleet.moments, strict=True):
            if where == shard:
                first, _ = spans.get(who, (moment, moment))
                spans[who] = (first, moment)
        ordered = sorted(spans.values())
        overlap = max([overlap, *(one[1] - two[0] for one, two in pairwise(ordered))])
    assert overlap <= 1.1
