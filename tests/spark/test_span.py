"""How much stream time a batch may hold, against a model of triggers and batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from kinesis_sdk.spark.span import INITIAL_SPAN, BatchSpan
from tests import fuzz

HOUR, DAY = 3600.0, 86_400.0


@dataclass
class Catchup:
    """A query that is behind: each batch holds the span, or all there is.

    Attributes:
        trigger: Seconds between two plans, unless a batch takes longer.
        cost: Seconds that a batch takes per second of the stream.
        overhead: Seconds that every batch takes.
        behind: Seconds of the stream before the tip at the start.
        begin: Monotonic time of the first plan.
        now: Monotonic time.
        read: Time of the stream up to which everything was read; the tip is at ``now``.
        spans, durations, lags: Of every batch; the lag is that right after the plan.
    """

    trigger: float
    cost: float = 0.0
    overhead: float = 0.3
    behind: float = DAY
    begin: float = 0.0
    longest: float | None = None
    span: BatchSpan = field(init=False)
    spans: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.span = BatchSpan(self.longest)
        self.now = self.begin
        self.read = self.begin - self.behind
        self.limited = False

    def batch(self) -> None:
        held = self.span.next(self.now, limited=self.limited)
        self.limited = self.read + held < self.now
        end = min(self.now, self.read + held)
        duration = self.overhead + self.cost * (end - self.read)
        self.spans.append(held)
        self.durations.append(duration)
        self.lags.append(self.now - end)
        self.read = end
        following = (math.floor(self.now / self.trigger + 1e-9) + 1) * self.trigger
        self.now = max(following, self.now + duration)

    def run(self, batches: int) -> Catchup:
        for _ in range(batches):
            self.batch()
        return self


TRIGGERS = (0.1, 1.0, 10.0, 60.0, 300.0, HOUR)


@pytest.mark.fuzz
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("part", fuzz.share([0.0, 0.01, 0.25, 0.5, 0.75, 0.99], unit=3))
@pytest.mark.parametrize("cost", fuzz.share([0.0, 0.01, 0.3], unit=2))
def test_the_moment_of_the_start_makes_no_difference(trigger: float, part: float, cost: float) -> None:
    # The first interval is between no time at all and a trigger, so it must not be taken for what a batch takes.
    query = Catchup(trigger, cost, begin=part * trigger, behind=2 * DAY).run(4)
    while query.lags[-1] > 0:
        lag = query.lags[-1]
        query.run(3)
        assert query.lags[-1] < max(lag - trigger, 1e-9)
    # It catches up at half the speed that is possible, or better, not counting the first triggers.
    assert query.now - query.begin <= 2 * (2 * DAY * cost / (1 - cost)) + 24 * max(trigger, 10)


@pytest.mark.parametrize("trigger", [1.0, 60.0, 300.0])
@pytest.mark.parametrize("cost", [0.001, 0.02, 0.3, 0.6])
def test_batches_stay_bounded_although_the_cluster_is_saturated(trigger: float, cost: float) -> None:
    query = Catchup(trigger, cost, behind=30 * DAY, overhead=2.0).run(200)
    busiest = max(duration for duration, lag in zip(query.durations, query.lags, strict=True) if lag)
    # A trigger, or ten seconds, or where doubling the first span stops paying; then a doubled one is tried from time to time.
    assert busiest <= max(6 * max(trigger, 10.0), 4 * INITIAL_SPAN * cost + 5)


@pytest.mark.parametrize("cost", [0.9, 1.1, 3.0])
def test_batches_stay_bounded_although_the_query_can_only_fall_behind(cost: float) -> None:
    query = Catchup(60.0, cost, behind=DAY).run(300)
    # The first batches show how slow it is; each may be half as much again as the last one took, and twice that.
    assert max(query.durations) <= 30 * INITIAL_SPAN * cost
    assert max(query.durations[100:]) <= 15 * INITIAL_SPAN * cost
    # None is so small that the overhead matters.
    assert min(query.durations[1:]) >= 10


def test_the_first_batch_is_small() -> None:
    assert BatchSpan().next(1_000.0, limited=False) == INITIAL_SPAN


def test_a_span_doubles_while_that_makes_the_catch_up_faster() -> None:
    # A batch takes a second, however much it holds: twice as much is twice as fast.
    query = Catchup(1.0, behind=1_000 * DAY).run(12)
    assert all(after == 2 * before for before, after in pairwise(query.spans[2:]))


def test_a_batch_that_was_slow_once_makes_only_the_next_ones_smaller() -> None:
    query = Catchup(10.0, 0.05, behind=60 * DAY).run(40)
    usual = query.spans[-1]
    query.cost = 0.5
    query.run(3)
    assert query.spans[-1] <= 0.51 * usual
    query.cost = 0.05
    query.run(40)
    assert query.spans[-1] >= usual / 2


@pytest.mark.parametrize("longest", [5.0, 60.0, 1_000.0])
@pytest.mark.parametrize("trigger", [1.0, 300.0])
def test_an_upper_bound_is_never_exceeded(longest: float, trigger: float) -> None:
    query = Catchup(trigger, 0.001, longest=longest).run(100)
    assert max(query.spans) == longest


def test_a_query_at_the_tip_holds_what_passed_since_the_last_plan() -> None:
    span = BatchSpan()
    span.next(0.0, limited=False)
    assert span.next(DAY, limited=False) == 1.5 * DAY


def test_two_plans_at_the_same_moment_are_not_divided_by_nothing() -> None:
    span = BatchSpan()
    for _ in range(3):
        assert span.next(5.0, limited=True) > 0
