"""Work on many shards at once: order, waits and errors, on one thread in virtual time and on several in real time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.spark.steps import Pace, Steps, run, run_all
from kinesis_sdk.testing import VirtualClock

PATIENCE = 30.0
"""Seconds after which a test that waits for another thread has failed."""


class Work:
    """Steps that are logged with the time at which they were made."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.begun = self.clock.monotonic()
        self.log: list[tuple[str, float]] = []

    def steps(self, name: str, *pauses: float) -> Steps[None]:
        try:
            for pause in (*pauses, None):
                self.note(name)
                if pause is not None:
                    yield self.clock.monotonic() + pause
        except GeneratorExit:
            self.note(f"{name} closed")
            raise

    def failing(self, name: str, error: BaseException, *pauses: float) -> Steps[None]:
        yield from self.steps(name, *pauses)
        raise error

    def note(self, name: str) -> None:
        self.log.append((name, round(self.clock.monotonic() - self.begun, 6)))

    def run(self, *work: Steps[None]) -> None:
        run_all(work, clock=self.clock, sleep=self.clock.advance, threads=1)


def test_one_generator_returns_its_result_after_its_waits() -> None:
    work = Work()

    def steps() -> Steps[str]:
        yield from work.steps("a", 1.0, 2.0)
        return "done"

    assert run(steps(), work.clock, work.clock.advance) == "done"
    assert work.log == [("a", 0.0), ("a", 1.0), ("a", 3.0)]


def test_all_begin_before_any_waits() -> None:
    work = Work()
    work.run(work.steps("a", 1.0), work.steps("b", 1.0), work.steps("c"))
    assert work.log == [("a", 0.0), ("b", 0.0), ("c", 0.0), ("a", 1.0), ("b", 1.0)]


def test_the_one_that_is_due_first_goes_on_first() -> None:
    work = Work()
    work.run(work.steps("slow", 5.0), work.steps("fast", 1.0, 1.0, 1.0), work.steps("middle", 2.5))
    assert [name for name, _ in work.log[3:]] == ["fast", "fast", "middle", "fast", "slow"]
    assert work.log[-1] == ("slow", 5.0)


def test_a_time_that_has_passed_costs_no_wait() -> None:
    work = Work()
    work.run(work.steps("a", -5.0, -5.0), work.steps("b", 0.0))
    assert {at for _, at in work.log} == {0.0}


def test_nothing_to_do_is_done() -> None:
    for threads in (1, 16):
        run_all([], clock=SystemClock(), sleep=pytest.fail, threads=threads)


def test_the_first_error_closes_the_others() -> None:
    work = Work()
    with pytest.raises(ValueError, match="at one second"):
        work.run(
            work.steps("a", 5.0),
            work.failing("b", ValueError("at one second"), 1.0),
            work.failing("c", KeyError("at two seconds"), 2.0),
        )
    assert sorted(work.log[3:]) == [("a closed", 1.0), ("b", 1.0), ("c closed", 1.0)]


def test_an_interrupt_of_one_thread_closes_all() -> None:
    work = Work()
    with pytest.raises(KeyboardInterrupt):
        work.run(work.steps("a", 5.0), work.failing("b", KeyboardInterrupt(), 1.0))
    assert ("a closed", 1.0) in work.log


# -- several threads ------------------------------------------------------------------------------------------------


def on_threads(*work: Steps[None], threads: int) -> None:
    run_all(work, clock=SystemClock(), sleep=pytest.fail, threads=threads)


@contextmanager
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before  # one of another test may have ended


def meeting(barrier: threading.Barrier) -> Steps[None]:
    barrier.wait(PATIENCE)
    yield float("-inf")


def test_as_many_run_at_once_as_there_are_threads() -> None:
    barrier = threading.Barrier(4)
    with no_threads_left():
        on_threads(*(meeting(barrier) for _ in range(8)), threads=4)


def test_a_thread_is_not_started_for_nothing() -> None:
    seen = set()

    def steps() -> Steps[None]:
        seen.add(threading.current_thread())
        yield float("-inf")

    on_threads(steps(), threads=16)
    assert seen == {threading.current_thread()}


def test_a_generator_that_waits_holds_no_thread() -> None:
    # Two threads, three generators that wait for hours: the fourth runs all the same, and ends the others by its error.
    begun = threading.Barrier(2)
    hours = SystemClock().monotonic() + 36_000
    done = []

    def waiting() -> Steps[None]:
        yield hours

    def working(others: bool) -> Steps[None]:
        begun.wait(PATIENCE)  # both threads are free, although three wait
        done.append(others)
        yield float("-inf")
        if len(done) == 2:
            raise LookupError

    with no_threads_left(), pytest.raises(LookupError):
        on_threads(waiting(), waiting(), waiting(), working(True), working(False), threads=2)
    assert sorted(done) == [False, True]


def test_each_generator_is_used_by_one_thread_at_a_time() -> None:
    counts = [0] * 20

    def steps(number: int) -> Steps[None]:
        for _ in range(200):
            counts[number] += 1
            yield float("-inf")

    on_threads(*(steps(number) for number in range(20)), threads=8)
    assert counts == [200] * 20


def test_the_first_error_of_a_thread_is_raised_and_the_others_are_closed() -> None:
    closed = []

    def steps(number: int) -> Steps[None]:
        try:
            yield SystemClock().monotonic() + 36_000
        finally:
            closed.append(number)

    def failing() -> Steps[None]:
        yield float("-inf")
        raise ValueError("first")

    with no_threads_left(), pytest.raises(ValueError, match="first"):
        on_threads(*(steps(number) for number in range(5)), failing(), threads=4)
    # Those that had begun ran their cleanup; the others never began.
    assert len(closed) == len(set(closed)) <= 5


def test_ctrl_c_in_the_caller_stops_the_threads_at_their_next_step() -> None:
    caller = threading.current_thread()
    interrupted = threading.Event()
    ready = threading.Barrier(3)
    after: list[int] = []

    def steps() -> Steps[None]:
        ready.wait(PATIENCE)  # each of the three threads has one
        if threading.current_thread() is caller:
            interrupted.set()
            raise KeyboardInterrupt
        assert interrupted.wait(PATIENCE)
        while True:
            # The caller sets the error after this step began, at the latest during one of the next.
            after.append(1)
            yield float("-inf")

    with no_threads_left(), pytest.raises(KeyboardInterrupt):
        on_threads(steps(), steps(), steps(), threads=3)


# -- calls per second -----------------------------------------------------------------------------------------------


def paced(clock: VirtualClock, moments: list[float], calls: list[float]) -> Steps[None]:
    pace = Pace()
    for moment in moments:
        if moment > clock.monotonic():
            yield moment
        yield from pace.wait(clock)
        calls.append(clock.monotonic())


@pytest.mark.parametrize("gaps", [[0.0] * 20, [0.1] * 40, [0.5, 0, 0, 0, 0.4, 0, 0, 1.0] * 5, [0.33] * 30])
def test_there_are_never_more_than_three_calls_in_any_second(gaps: list[float]) -> None:
    clock = VirtualClock()
    calls: list[float] = []
    begun = clock.monotonic()
    moments = [begun + sum(gaps[: number + 1]) for number in range(len(gaps))]
    run(paced(clock, moments, calls), clock, clock.advance)
    assert len(calls) == len(gaps)
    assert all(later - earlier >= 1.0 - 1e-6 for earlier, later in zip(calls, calls[3:], strict=False))
    # And no call waits without need.
    for number, at in enumerate(calls):
        needed = calls[number - 3] + 1.0 if number >= 3 else begun
        assert at == pytest.approx(max(moments[number], needed, calls[number - 1] if number else begun))


def test_a_clock_that_wakes_too_early_does_not_make_a_call_early() -> None:
    clock, pace = VirtualClock(), Pace(count=1)
    run(pace.wait(clock), clock, clock.advance)
    begun = clock.monotonic()
    run(pace.wait(clock), clock, lambda seconds: clock.advance(min(seconds, 0.3)))
    assert clock.monotonic() - begun == pytest.approx(1.0)
