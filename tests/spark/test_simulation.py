"""Queries under triggers, in virtual time, on a service with all habits of the real one: nothing is lost, late, or left behind."""

from __future__ import annotations

import json
import logging
from random import Random
from typing import Any

import pytest

from kinesis_sdk.common.position import AfterSequence
from tests import fuzz
from tests.spark.service import (
    GET_RECORDS,
    GET_SHARD_ITERATOR,
    Habits,
    Service,
    Shard,
    poisson,
    resharded,
    steady,
)
from tests.spark.simulation import Bounds, Simulation, reader_options
from tests.spark.support import TRIM, starting

STREAM = "orders"
HOUR, DAY = 3600.0, 86_400.0
LOOK = 1.0
"""Seconds that a look may take, and the batch's overhead."""

UNSEEN = 5.0
"""Default of idleProbeInterval in seconds."""


LATEST = starting("LATEST")


def query(
    shards: list[Shard] | Service,
    values: dict[str, Any] | None = None,
    *,
    begin: float,
    trigger: float = 1.0,
    bounds: Bounds | None = None,
    **how: Any,
) -> Simulation:
    """Return a query that begins at a virtual time."""
    service = shards if isinstance(shards, Service) else Service({STREAM: shards})
    service.clock.advance_to(begin)
    return Simulation(service, values, trigger=trigger, bounds=bounds, **how)


# -- keeping up -----------------------------------------------------------------------------------------------------

RATES = (0.01, 0.05, 0.2, 1.0)
"""Records per second of skewed shards."""


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("trigger", "seconds"),
    fuzz.share([(0.1, 20), (1, 60), (60, 0.25 * HOUR), (300, HOUR), (3600, 5 * HOUR)], unit=3),
)
def test_a_query_keeps_up_under_any_trigger(trigger: float, seconds: float) -> None:
    rng = Random(7)
    begin, end = 2 * HOUR, 2 * HOUR + seconds
    shards = [Shard(poisson(rng, rate, begin - 60, end)) for rate in RATES]
    values = {**LATEST, "min_probe_interval": min(1.0, max(0.2, trigger))}
    sim = query(shards, values, begin=begin, trigger=trigger)
    sim.run(end)
    assert sim.outcome.lag(last=len(sim.outcome.lags)) <= LOOK + (UNSEEN if trigger < UNSEEN else 0)
    assert sim.audit.late == 0
    assert sim.planner.report()["maxBehindMs"] == 0
    assert not sim.planner.report()["fallingBehind"]
    per_look = sim.outcome.looks * len(RATES)
    assert sim.client.count(GET_RECORDS) <= 1.3 * per_look
    # An iterator is not valid for five minutes.
    iterators = 0.6 if trigger < 300 else 1.0
    assert sim.client.count(GET_SHARD_ITERATOR) <= iterators * per_look + len(RATES)
    assert not sim.client.rejected


@pytest.mark.fuzz
@pytest.mark.parametrize(("trigger", "triggers"), fuzz.share([(60, 14), (1, 60), (3600, 12)], unit=2))
def test_a_backlog_of_two_days_is_eaten_in_bounded_batches(trigger: float, triggers: int) -> None:
    rng = Random(3)
    begin, end = 2 * DAY, 2 * DAY + trigger * triggers
    shards = [Shard(poisson(rng, rate, 0, end)) for rate in (0.001, 0.005, 0.01, 0.01)]
    service = Service({STREAM: shards})
    service.kinesis.increase_stream_retention_period(StreamName=STREAM, RetentionPeriodHours=168)
    sim = query(service, TRIM, begin=begin, trigger=trigger)
    sim.run(end)
    total = sum(sim.outcome.sizes)
    assert total == sim.audit.rows > 3_000
    assert max(sim.outcome.sizes) < 0.75 * total
    # It ends at the tip, long before the end.
    assert sim.outcome.lag(last=2) <= LOOK + UNSEEN
    assert sim.audit.late == 0
    assert sim.planner.report()["maxBehindMs"] == 0


def slow_cluster(use: float, seconds: float) -> Simulation:
    """A query four hours behind, on a cluster that needs ``use`` seconds for a second of the stream."""
    rng = Random(5)
    begin, end, rate = 4 * HOUR, 4 * HOUR + seconds, 0.05
    shards = [Shard(poisson(rng, rate, 0, end)) for _ in range(4)]
    # Pages of what a batch has in a shard: full ones would hold hundreds of records that belong to later batches.
    sim = query(shards, {**TRIM, "records_per_fetch": 50}, begin=begin, trigger=60, speed=4 * rate / use)
    sim.run(end)
    return sim


@pytest.mark.fuzz_only
def test_a_slow_cluster_catches_up_in_bounded_batches(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        sim = slow_cluster(0.3, 3 * HOUR)
    assert max(sim.outcome.durations) <= 600
    assert sim.outcome.lag(last=10) <= 120
    assert sim.audit.late == 0
    assert not falls_behind(caplog)


def test_a_cluster_that_is_too_slow_falls_behind_in_bounded_batches_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        sim = slow_cluster(1.1, 6 * HOUR)
    assert max(sim.outcome.durations) <= 1_200
    assert sim.planner.report()["fallingBehind"]
    assert sim.planner.report()["limitedBy"] == "span"
    assert len(falls_behind(caplog)) == 1
    assert sim.audit.late == 0
    # All of the cluster's time goes into batches: no batch is so small that its overhead matters.
    assert sum(sim.outcome.durations) >= 0.95 * 6 * HOUR


def falls_behind(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "behind" in record.getMessage()]


def test_a_span_below_the_trigger_is_respected_and_falls_behind_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shards = [Shard(steady(0.5, 0, 3 * HOUR)), Shard(steady(0.1, 0, 3 * HOUR))]
    sim = query(shards, {**TRIM, "max_batch_span": 60.0}, begin=HOUR, trigger=300)
    with caplog.at_level(logging.WARNING):
        sim.run(3 * HOUR)
    assert max(sim.outcome.sizes) <= 60 * 0.6 + 4
    assert sim.outcome.lag() >= 2 * HOUR
    report = sim.planner.report()
    assert report["fallingBehind"]
    assert report["limitedBy"] == "maxBatchSpan"
    assert report["maxBehindMs"] >= 2 * HOUR * 1000
    assert len(falls_behind(caplog)) == 1


@pytest.mark.parametrize("second", [18.5, 22.0])
def test_a_count_limit_reads_on_although_a_child_has_a_record_from_before_its_parents_last_one(
    second: float,
) -> None:
    # Arrival times are out of order. If the child, with its limit, took the parent's last record out of the batch, the parent would
    # never end, and the child would never enter.
    shards = [
        Shard([10.0, 20.0], closed=20.1),
        Shard([21.0, 22.0, 23.0], born=20.1, parents=(0,)),
        Shard([21.5], born=20.1, parents=(0,)),
    ]
    service = Service({STREAM: shards})
    service.logs[STREAM]["shardId-000000000001"].arrivals = [
        service.millis(at) for at in (18.0, second, 23.0)
    ]
    sim = query(service, {**TRIM, "max_records_per_shard": 1}, begin=100, bounds=Bounds(disorder=4.0))
    sim.settle()
    assert sim.audit.left() == 0
    assert max(sim.outcome.sizes) <= 2


def test_a_count_limit_of_a_child_holds_all_shards_back_although_its_parent_is_empty() -> None:
    shards = [
        Shard([10.0], closed=20.0),
        Shard(steady(1, 21, 60), born=20.0, parents=(0,)),
        Shard(steady(0.1, 21, 60), born=20.0, parents=(0,)),
    ]
    sim = query(shards, {**TRIM, "max_records_per_shard": 5}, begin=15, bounds=Bounds(unseen=0.0))
    sim.run(16)
    sim.service.clock.advance_to(100)
    sim.settle()
    assert sim.audit.left() == 0
    assert max(sim.outcome.sizes) == 6
    assert sim.audit.slack <= 0.1


# -- time -----------------------------------------------------------------------------------------------------------


def test_a_burst_after_a_silence_is_one_batch() -> None:
    burst = [start + 0.01 * n for start in (10.0, 700.0) for n in range(100)]
    sim = query([Shard(burst), Shard(steady(0.1, 0, HOUR))], TRIM, begin=30, trigger=60)
    sim.run(900)
    # The trigger at 720 s finds the hundred records of the burst, and six of the other shard.
    assert [size for size in sim.outcome.sizes if size > 50] == [103, 106]


@pytest.mark.parametrize("trigger", [1.0, 60.0])
@pytest.mark.parametrize("span", [None, 60.0])
def test_no_row_is_late_although_a_shard_begins_hours_later(trigger: float, span: float | None) -> None:
    begin = 3 * HOUR
    end = begin + max(100, 10 * trigger)
    shards = [Shard(steady(0.2, 0, end)), Shard(steady(0.2, 2.5 * HOUR, end))]
    values = {**TRIM, "records_per_fetch": 100, "max_batch_span": span}
    sim = query(shards, values, begin=begin, trigger=trigger)
    sim.run(end)
    assert sim.audit.late == 0
    assert sim.audit.slack <= UNSEEN + 0.1
    if span is None:
        assert sim.outcome.lag() <= LOOK + UNSEEN
        assert max(sim.outcome.sizes) < 0.75 * sim.audit.rows


# -- reshards -------------------------------------------------------------------------------------------------------


@pytest.mark.fuzz
@pytest.mark.parametrize("trigger", fuzz.share([60.0, 300.0], unit=1))
def test_children_are_in_the_batch_of_their_parents(trigger: float) -> None:
    shards = resharded(Random(2), 4, [300 + 300 * n for n in range(6)], 0.5, 2_400.0)
    sim = query(shards, LATEST, begin=10.0, trigger=trigger)
    sim.run(2_400.0)
    assert sim.outcome.lag(last=len(sim.outcome.lags)) <= LOOK
    assert sim.audit.late == 0
    # A child that waited for the next batch would be late by up to a trigger.
    assert sim.audit.slack <= UNSEEN


def test_a_family_of_more_than_eight_shards_is_divided() -> None:
    """One shard that was split again and again within a minute, into sixteen: 31 shards in one line of descent."""
    shards = [Shard([])]
    row = [0]
    for level in range(4):
        at, new = 20.0 + 10 * level, []
        for parent in row:
            shards[parent].closed = at
            for _ in range(2):
                new.append(len(shards))
                shards.append(Shard([], born=at, parents=(parent,)))
        row = new
    for shard in shards:
        shard.stored = steady(1.0, shard.born + 0.5, shard.closed or 100.0)
    sim = query(shards, TRIM, begin=120.0, trigger=1)
    largest = []
    for _ in range(100):
        end = sim.plan()
        if end is None:
            break
        tasks = sim.tasks(sim.ranges(end))
        largest.append(max((len(task) for task in tasks), default=0))
        rows = sim.read(sim.ranges(end))
        sim.audit.batch(rows, end.cut)
        sim.end = end
        sim.service.clock.advance(1.1)
    assert sim.audit.left() == 0
    assert 2 <= max(largest) <= 8
    assert len(largest) >= 2
    assert sim.audit.late == 0
    assert sim.audit.slack <= 0.5


def test_a_child_that_does_not_fit_keeps_no_other_child_out() -> None:
    # At the tip an empty child lowers no cut. The other stream's children, two generations later, are in the same batch.
    wide = [Shard([], closed=10.0)]
    for level in range(1, 4):
        row = [index for index, shard in enumerate(wide) if shard.closed == 10.0 * level]
        closed = 10.0 * level + 10 if level < 3 else None
        wide += [Shard([], born=10.0 * level, closed=closed, parents=(p,)) for p in row for _ in range(2)]
    deep = [
        *(Shard([1.0 + number], closed=10.0) for number in range(2)),
        Shard([11.0], born=10.0, closed=20.0, parents=(0, 1)),
        *(Shard([21.0 + number], born=20.0, closed=30.0, parents=(2,)) for number in range(2)),
        Shard([31.0], born=30.0, closed=40.0, parents=(3, 4)),
        *(Shard([41.0 + number], born=40.0, parents=(5,)) for number in range(2)),
    ]
    sim = query(Service({"wide": wide, "deep": deep}), {**TRIM, "max_batch_span": 0.0}, begin=100)
    assert sim.run_batch() == 8
    assert sim.audit.left() == 0


# -- calls ----------------------------------------------------------------------------------------------------------


def test_a_record_of_an_idle_shard_is_seen_within_the_bound() -> None:
    # After 80 s without a record it is looked at every five seconds, and one of them has just passed.
    shards = [Shard(steady(1, 0, 3 * HOUR)), Shard([1.0, 2 * HOUR + 120])]
    sim = query(shards, LATEST, begin=2 * HOUR, trigger=1)
    sim.run(2 * HOUR + 130)
    idle = sim.service.logs[STREAM]["shardId-000000000001"]
    assert sim.audit.at(STREAM, idle) == len(idle.arrivals)
    assert LOOK < sim.outcome.lag(last=12) <= UNSEEN + LOOK


# -- AvailableNow ---------------------------------------------------------------------------------------------------


def test_available_now_reads_what_existed_and_stops() -> None:
    """Of a stream with twenty minutes of backlog, two reshards and records that keep coming."""
    sim = query(resharded(Random(3), 3, [400, 800], 0.3, 2_400.0), TRIM, begin=1_200.0)
    existed = sum(sim.service.readable(log) for log in sim.service.logs[STREAM].values())
    sim.run_available()
    assert existed > 700
    assert sim.audit.rows <= existed + 10
    assert sim.service.clock.monotonic() <= 1_200 + 30


@pytest.mark.parametrize("quiet", [35.0, 10 * HOUR])
def test_available_now_begins_soon_on_a_thousand_quiet_shards(quiet: float) -> None:
    """Every shard has 1,000 records and became quiet at the same time; sixteen threads would share a thousand of them."""
    begin = 16 * HOUR
    last = begin - quiet
    shards = [Shard(steady(20, last - 50, last)) for _ in range(12)]
    sim = query(Service({STREAM: shards}, Habits(latency=0.01)), TRIM, begin=begin)
    sim.planner.stop_at_now()
    end = sim.plan()
    assert sim.outcome.planning[0] <= 15.0 / 1_000 * 12 * 16
    assert not sim.client.rejected
    assert sim.client.count(GET_RECORDS) <= 3 * 12
    assert sim.client.count(GET_SHARD_ITERATOR) <= 3 * 12
    assert end.streams[STREAM].shards == {
        shard_id: AfterSequence(str(log.numbers[-1])) for shard_id, log in sim.service.logs[STREAM].items()
    }


# -- long silences, other names, other streams ------------------------------------------------------------------------


def test_a_query_goes_on_after_a_silence_of_a_whole_retention_period() -> None:
    shards = [Shard([*steady(1, 0, 60), *steady(1, 2.5 * DAY, 2.5 * DAY + 60)]), Shard([])]
    sim = query(shards, TRIM, begin=100, trigger=600)
    sim.run(2.5 * DAY + 2_000)
    assert sim.audit.left() == 0
    assert sim.audit.rows == 120
    # A batch without rows at most every few hours keeps the position usable.
    assert 8 <= sim.outcome.sizes.count(0) <= 12


def test_a_record_that_became_readable_late_is_read_after_a_day_although_it_arrived_before_the_cut() -> None:
    # The position is so old that it is opened by time, and the time of the cut alone would pass the record over.
    habits = Habits(visible_after=30.0)
    service = Service({STREAM: [Shard([10.0, 99.0])]}, habits)
    sim = query(service, TRIM, begin=100, bounds=Bounds(visible_after=habits.visible_after))
    assert sim.run_batch() == 1
    service.clock.advance(0.95 * DAY)
    sim.restart()
    assert sim.run_batch() == 1
    assert sim.audit.left() == 0


def test_a_checkpoint_by_name_goes_on_by_arn_and_back() -> None:
    service = Service({STREAM: [Shard(steady(1, 0, 400))]})
    arn = service.kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    sim = query(service, TRIM, begin=100, trigger=1)
    for names in ([STREAM], [arn], [STREAM], [arn]):
        sim.options = reader_options(names, TRIM)
        sim.restart()
        sim.run(service.clock.monotonic() + 60)
    sim.run(420)
    assert sim.audit.left() == 0
    assert sim.audit.rows == 400


# -- everything at once -----------------------------------------------------------------------------------------------

TRIGGERS = (0.1, 1.0, 10.0, 60.0, 300.0, 1_000.0)


def anything(seed: int, *, records: int, looks: int) -> Simulation:
    """A random query on a random service, run to its end: about so many records, and at most so many looks while they come."""
    rng = Random(seed)
    trigger = rng.choice(TRIGGERS)
    end = rng.choice((120.0, 600.0)) if trigger < 1 else rng.choice((600.0, 3_000.0, 9_000.0))
    begin = rng.uniform(0.05, 0.9) * end
    begin = max(begin, end - looks * trigger)
    disorder = rng.choice((0.0, 0.02, 0.5, 2.0))
    habits = Habits(
        disorder=disorder,
        visible_after=rng.choice((0.0, 0.05, 0.5)),
        finds_shown_time=rng.random() < 0.5,
        other_reads=rng.choice((0, 0, 1, 2, 3)),
        rejected=rng.choice((0.0, 0.0, 0.05)),
        empty_pages=rng.choice((0.0, 0.0, 0.1, 0.3)),
        empty_run=rng.choice((1, 3, 8)),
        clock_skew=rng.choice((0.0, 0.0, rng.uniform(-5, 5))),
        latency=rng.choice((0.0, 0.01)),
    )
    streams = {}
    count = rng.choice((1, 1, 2, 3))
    for number in range(count):
        roots = rng.choice((1, 2, 4))
        times = sorted(rng.uniform(0.05, 0.95) * end for _ in range(rng.randint(0, 4)))
        rate = 10 ** rng.uniform(-1.5, 0) * records / (end * roots * count)
        shards = resharded(rng, roots, times, rate, end)
        for shard in shards:
            low = rng.uniform(0, end)
            high = low + rng.choice((0, 0, 300, 3_000))
            shard.stored = [at for at in shard.stored if not low < at < high]
        streams[f"stream-{number}"] = shards
    service = Service(streams, habits, seed=seed)
    values: dict[str, Any] = dict(random_start(rng, service, begin))
    values["idle_probe_interval"] = rng.choice((0.0, 5.0, 30.0))
    values["min_probe_interval"] = 0.2
    values["records_per_fetch"] = 100  # large batches have shards with several pages
    if rng.random() < 0.2:
        # One record per minute would take longer than the retention period.
        values["max_records_per_shard"] = rng.choice((1 if trigger <= 10 else 5, 20, 200))
    if rng.random() < 0.2:
        values["max_batch_span"] = rng.choice((0.0, 10.0, 300.0))
    if seed % 4 == 1 and "max_records_per_shard" not in values:
        values["max_rows_per_trigger"] = 50 if trigger <= 10 else 2_000
    # A query that is down for about the retention period loses what is deleted meanwhile, and nothing else.
    down = rng.choice((20, 22.5, 24, 24 - begin / HOUR, 30)) * HOUR if rng.random() < 0.1 else 0.0
    values["fail_on_data_loss"] = not down
    available = rng.random() < 0.2
    sim = query(
        service,
        values,
        begin=begin,
        trigger=trigger,
        crash=rng.choice((0.0, 0.1)),
        seed=seed,
        bounds=Bounds(
            disorder=disorder,
            visible_after=habits.visible_after,
            # AvailableNow stops a second after it began, and does not look again at a shard that was empty meanwhile.
            unseen=max(values["idle_probe_interval"], 1.0),
            # The Date header of a response has whole seconds, and AvailableNow reads on for one.
            clock=1.0 if habits.clock_skew or available else 0.0,
        ),
    )
    unlimited = rng.random() < 0.1
    if available:
        sim.run_available()
        sim.restart()  # it goes on under a trigger
        service.clock.advance_to(max(service.clock.monotonic(), end))
    else:
        sim.run((begin + end) / 2 if down else end, unlimited=unlimited)
    if down:
        service.clock.advance(down)
        sim.restart()
    sim.settle(unlimited=unlimited)
    return sim


def random_start(rng: Random, service: Service, begin: float) -> dict[str, Any]:
    """Return a starting position: one for all streams, or others for some."""

    def one() -> str:
        moment = service.millis(rng.uniform(0, begin))
        return rng.choice(("TRIM_HORIZON", "LATEST", f"AT_TIMESTAMP {moment}"))

    if rng.random() < 0.7:
        return starting(one())
    chosen = {name: one() for name in service.logs if rng.random() < 0.5}
    return starting(json.dumps({"default": one(), **chosen}))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", fuzz.seeds(unit=4, fuzz=200))
def test_every_promise_holds_on_a_service_with_all_habits(seed: int) -> None:
    sim = anything(seed, records=2_000, looks=600) if fuzz.TIMES else anything(seed, records=200, looks=50)
    assert sim.audit.left() == 0
    report = sim.planner.report()
    assert report["maxBehindMs"] == 0
    assert not report["fallingBehind"]
    assert sim.client.most_per_second(GET_RECORDS) <= 3
    assert sim.client.most_per_second(GET_SHARD_ITERATOR) <= 3
    offset = sim.end
    if offset is not None:
        sim.service.clock.advance(5)
        assert sim.planner.plan(offset) is offset
