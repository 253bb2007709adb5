"""Which shard is probed when, and what a probe finds, in virtual time."""

from __future__ import annotations

import threading
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.admin.fleet.lag import (
    FOCUS_INTERVAL,
    PROBE_INTERVAL,
    REST_INTERVAL,
    LagCandidate,
    LagProbe,
    LagProbeResult,
    LagSchedule,
    measure_all,
)
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Position, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.testing import VirtualClock
from tests.admin.account import SHARD, Account
from tests.fuzz import how_many

STREAM = StreamId("orders")
GOOD = LagProbeResult(millis=0)


def candidate(key: str, **attributes: Any) -> LagCandidate:
    return LagCandidate(lease_key=key, stream=STREAM, shard_id=key, position=TrimHorizon(), **attributes)


def gaps_of(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def play(
    schedule: LagSchedule, seconds: float, start: float = 0.0, result: LagProbeResult = GOOD
) -> list[tuple[float, str]]:
    """Probe whatever is due, and return when which lease was probed."""
    now, done = start, []
    while True:
        due = schedule.due()
        if due is None or max(now, due) >= start + seconds:
            return done
        now = max(now, due)
        taken = schedule.take(now)
        assert taken is not None, "due() named a moment at which nothing is due"
        done.append((now, taken.lease_key))
        schedule.finish(taken.lease_key, result, now)


def test_a_quiet_fleet_is_asked_once_in_five_minutes() -> None:
    schedule = LagSchedule()
    schedule.update([candidate(f"s{n}") for n in range(10)])
    probes = play(schedule, 900)
    assert len(probes) == 30
    for key in {key for _, key in probes}:
        times = [when for when, other in probes if other == key]
        assert gaps_of(times) == pytest.approx([REST_INTERVAL] * 2)


def test_the_order_is_never_measured_then_stuck_then_visible_then_the_rest() -> None:
    schedule = LagSchedule()
    old = [candidate("rest"), candidate("seen"), candidate("stuck", is_stuck=True)]
    schedule.update(old)
    play(schedule, 1)
    schedule.watch(visible=["seen"])
    schedule.update([*old, candidate("new")])
    now, order = 1000.0, []
    for _ in range(4):
        taken = schedule.take(now)
        assert taken is not None
        order.append(taken.lease_key)
        now += 1
    assert order == ["new", "stuck", "seen", "rest"]
    assert schedule.take(now) is None  # all are running: never two at once on one shard


def test_the_open_page_is_asked_each_five_seconds() -> None:
    schedule = LagSchedule()
    schedule.update([candidate("a"), candidate("b")])
    schedule.watch(focused=["a"])
    times = [when for when, key in play(schedule, 60) if key == "a"]
    assert gaps_of(times) == pytest.approx([FOCUS_INTERVAL] * (len(times) - 1))
    assert len(times) == 12


def test_a_shard_whose_reads_are_used_up_is_left_alone() -> None:
    schedule = LagSchedule()
    schedule.update([candidate("a", is_stuck=True)])
    times = [when for when, _ in play(schedule, 4000, result=LagProbeResult(throttled=True, note="used up"))]
    assert gaps_of(times) == pytest.approx([60, 120, 240, 480, 960, 960, 960])
    again = [when for when, _ in play(schedule, 1000, start=4000)]
    assert again[1] - again[0] == pytest.approx(PROBE_INTERVAL)


@settings(max_examples=how_many(unit=10, fuzz=80))
@given(seed=st.integers(0, 10_000), shards=st.integers(1, 30))
def test_the_rules_hold_for_any_course_of_events(seed: int, shards: int) -> None:
    rng = Random(seed)
    schedule = LagSchedule()
    now = 0.0
    running: dict[str, float] = {}
    probes: list[tuple[float, str]] = []
    throttled_at: dict[str, float] = {}
    for _ in range(300):
        schedule.update(
            candidate(f"s{n}", is_stuck=rng.random() < 0.5, is_known=rng.random() < 0.1)
            for n in range(shards)
        )
        schedule.watch(focused=["s0"], visible=["s1", "s2"])
        now += rng.choice([0.0, 0.05, 0.3, 3.0])
        taken = schedule.take(now)
        if taken is not None:
            key = taken.lease_key
            assert key not in running
            assert not taken.is_known
            running[key] = now
            probes.append((now, key))
            previous = [when for when, other in probes[:-1] if other == key]
            if previous:
                assert now - previous[-1] >= (FOCUS_INTERVAL if key == "s0" else PROBE_INTERVAL) - 1e-6
            assert now >= throttled_at.get(key, -60.0) + 60.0 - 1e-6
        for key in [key for key in running if rng.random() < 0.7]:
            del running[key]
            throttled = rng.random() < 0.2
            if throttled:
                throttled_at[key] = now
            schedule.finish(key, LagProbeResult(throttled=True) if throttled else GOOD, now)
    for start, _ in probes:
        assert sum(start <= when < start + 1 - 1e-6 for when, _ in probes) <= 10  # two calls each


# Probes


class Stream(Account):
    """A stream of one shard in a fake account, and a probe of it."""

    def __init__(self) -> None:
        super().__init__()
        self.create("orders")
        self.probe = LagProbe(self.kinesis, clock=self.clock)

    def later(self, data: bytes = b"x", *, seconds: float = 10.0) -> str:
        """Put a record after some seconds."""
        self.clock.advance(seconds)
        return self.put("orders", data)

    def measure(self, position: Position, sub: int | None = None, shard: str = SHARD) -> LagProbeResult:
        return self.probe.measure(
            LagCandidate(
                lease_key=shard, stream=STREAM, shard_id=shard, position=position, sub_sequence_number=sub
            )
        )

    def after(self, number: str, sub: int = 0) -> LagProbeResult:
        return self.measure(AfterSequence(number, sub_sequence_number=sub), sub)


def test_a_checkpoint_at_the_last_record_is_at_the_tip() -> None:
    stream = Stream()
    stream.later()
    last = stream.later()
    stream.clock.advance(300)
    assert stream.after(last) == LagProbeResult(millis=0)


def test_a_single_record_behind_counts_with_its_age() -> None:
    """A read of the only unprocessed record ends at the tip; the read of the processed one does not."""
    stream = Stream()
    first = stream.later()
    stream.later()
    stream.clock.advance(300)
    result = stream.after(first)
    assert result.millis is not None
    assert result.millis >= 300_000
    assert not result.trimmed


def test_nothing_processed_counts_from_the_oldest_record() -> None:
    stream = Stream()
    assert stream.measure(TrimHorizon()) == LagProbeResult(millis=0)
    stream.later()
    stream.clock.advance(300)
    assert stream.measure(TrimHorizon()).millis == pytest.approx(300_000, abs=1000)
    start = AtTimestamp(int((stream.clock.time() - 200) * 1000))
    assert stream.measure(start) == LagProbeResult(millis=0)


def aggregate(count: int) -> bytes:
    builder = Aggregate(2**20, 100)
    for number in range(count):
        assert builder.try_append("p", None, b"%d" % number, hash_partition_key("p"))
    return builder.encode()


def test_a_checkpoint_within_an_aggregate_leaves_the_rest_unprocessed() -> None:
    stream = Stream()
    number = stream.later(aggregate(5))
    stream.clock.advance(120)
    assert stream.after(number, 4) == LagProbeResult(millis=0)
    assert stream.after(number, 2).millis == pytest.approx(120_000, abs=1000)
    assert stream.after(number, -1).millis == pytest.approx(120_000, abs=1000)


def test_a_trimmed_checkpoint_is_noticed() -> None:
    stream = Stream()
    number = stream.later()
    for _ in range(3):
        stream.later(seconds=12 * 3600)
    result = stream.after(number)
    assert result.trimmed
    assert result.millis == pytest.approx(24 * 3_600_000, abs=60_000)


def test_what_cannot_be_measured_says_why() -> None:
    stream = Stream()
    foreign = str(10**55)
    assert "rejects the checkpoint" in stream.after(foreign).note
    for _ in range(5):
        stream.after(stream.later(seconds=0.0))
    throttled = stream.after(stream.later(seconds=0.0))
    assert throttled.throttled
    assert throttled.note == "not measured: the reads of the shard are used up"
    stream.clock.advance(5)
    stream.kinesis.delete_stream(StreamName="orders")
    assert "no longer has the stream" in stream.measure(TrimHorizon()).note


def test_one_look_asks_each_shard_once_at_the_stated_rate() -> None:
    asked: list[str] = []
    slept: list[float] = []
    clock = VirtualClock()
    lock = threading.Lock()

    class Probe:
        def measure(self, candidate: LagCandidate) -> LagProbeResult:
            with lock:
                asked.append(candidate.lease_key)
            return GOOD

    results: list[str] = []
    measure_all(
        Probe(),  # type: ignore[arg-type]
        [candidate(f"s{n}") for n in range(500)],
        lambda one, _: results.append(one.lease_key),
        probes_per_second=100,
        clock=clock,
        sleep=slept.append,
    )
    assert sorted(asked) == sorted(results) == sorted(f"s{n}" for n in range(500))
    # On a clock that stands still: the last of them waits for the end of the fourth second after the first burst.
    assert max(slept) == pytest.approx(4.0)
    assert len(slept) == 400


def test_a_defect_in_one_thread_reaches_the_caller() -> None:
    class Probe:
        def measure(self, candidate: LagCandidate) -> LagProbeResult:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure_all(Probe(), [candidate("a")], lambda *_: None, clock=VirtualClock())  # type: ignore[arg-type]


def test_a_lease_that_left_during_its_probe_and_came_back_is_probed_again() -> None:
    schedule = LagSchedule()
    schedule.update([candidate("a")])
    assert schedule.take(0.0) is not None
    schedule.update([])
    schedule.finish("a", GOOD, 1.0)
    schedule.update([candidate("a")])
    taken = schedule.take(2.0)
    assert taken is not None
    assert taken.lease_key == "a"
