"""Records through a handler: policies, coroutines, keys side by side. No threads: the test runs what waits."""

from __future__ import annotations

import asyncio
import itertools
import logging
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.error_policy import (
    BisectBatch,
    CircuitBreaker,
    Deferred,
    Failure,
    Halve,
    Retry,
    RetryBatch,
    SetAside,
    StopWorker,
)
from kinesis_sdk.common.errors import ConfigError, HandlerError, TransientSinkError
from kinesis_sdk.common.sequence import TRIM_HORIZON
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb
from kinesis_sdk.consumer.leases.table.progress import MAX_ERROR
from tests import fuzz
from tests.consumer.leases.held_lease import at
from tests.consumer.shard.delivery_scene import Scene, record

NEVER = float("inf")


# One batch at a time


def test_what_a_handler_fails_on_is_known_until_it_works():
    def handle(batch):
        if any(one.sequence_number == "3" for one in batch.records) and scene.clock.monotonic() < 60:
            raise KeyError("price")

    scene = Scene(handle)
    scene.offer(*map(record, range(1, 9)))
    scene.step()
    failing = scene.delivery.failing
    assert (failing.attempts, failing.since, failing.records, failing.position) == (1, 0.0, 8, at(1))
    assert failing.retry_at == scene.step() > 0
    assert failing.error == "KeyError: 'price'"
    scene.run(50)
    failing = scene.delivery.failing
    assert (failing.records, failing.position) == (1, at(3)), "in the end the record that fails is alone"
    assert failing.attempts > 3
    assert 0 < failing.since < 20, "since the last call that succeeded"
    scene.run()
    assert scene.delivery.failing is None


def test_of_several_failing_keys_the_one_that_failed_first_is_told():
    def handle(batch):
        if scene.clock.monotonic() < {"a": 30, "b": 60}[batch.records[0].partition_key]:
            raise KeyError("x" * 1000)

    scene = Scene(handle, concurrency=2)
    scene.offer(record(1, "a"), record(2, "b"))
    scene.run(20)
    assert scene.delivery.failing.position == at(1)
    assert len(scene.delivery.failing.error) == MAX_ERROR
    scene.run(40)
    assert scene.delivery.failing.position == at(2)
    scene.run()
    assert scene.delivery.failing is None


@pytest.mark.parametrize("accepts", [True, False])
def test_a_dead_lettered_record_no_longer_fails(accepts):
    def hook(poison):
        assert 0 < poison.failing_seconds <= scene.clock.monotonic()
        if not accepts and scene.clock.monotonic() < 30:
            raise OSError("no")

    def handle(_batch):
        raise KeyError("price")

    scene = Scene(handle, policy=BisectBatch(dead_letter=hook, attempts=2))
    scene.offer(record(1))
    scene.run(20)
    assert (scene.delivery.failing is None) is accepts
    scene.run()
    assert scene.delivery.failing is None


# A policy of the user's own


class Own:
    """Decides what it is told to, and notes the failures."""

    def __init__(self, *decisions):
        self._decisions = iter(decisions)
        self.failures = []

    def decide(self, failure):
        self.failures.append((type(failure.error), failure.size, failure.attempts))
        return next(self._decisions)


class Failing:
    """A handler that fails a number of times, and notes each call."""

    def __init__(self, failures, error=KeyError):
        self.calls, self._failures, self._error = [], failures, error

    def __call__(self, batch):
        self.calls.append((self.scene.clock.monotonic(), [int(r.sequence_number) for r in batch.records]))
        if len(self.calls) <= self._failures:
            raise self._error("no")


def played(policy, count, failures, **more):
    """Calls of a handler, with the seconds since the first one."""
    handler = Failing(failures, **more)
    handler.scene = scene = Scene(handler, policy=policy)
    scene.offer(*map(record, range(1, count + 1)))
    assert scene.run() is None
    began = handler.calls[0][0]
    return scene, [(moment - began, numbers) for moment, numbers in handler.calls]


def test_a_policy_says_after_how_long_records_come_again():
    policy = Own(Retry(60.0, together=True), Retry(0, together=True))
    _, calls = played(policy, 2, 2)
    assert calls == [(0, [1, 2]), (60, [1, 2]), (60, [1, 2])]
    assert policy.failures == [(KeyError, 2, 1), (KeyError, 2, 2)]


def test_records_that_do_not_come_together_come_in_smaller_calls():
    _, calls = played(Own(Retry(1.0), Retry(1.0)), 4, 2)
    assert [numbers for _, numbers in calls] == [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2], [3, 4]]


def test_a_policy_halves_and_sets_aside():
    aside = []
    policy = Own(Halve(), SetAside(aside.append))
    scene, calls = played(policy, 2, 2)
    assert calls == [(0, [1, 2]), (0, [1]), (0, [2])]
    assert [(one.record.data, one.attempts) for one in aside] == [(b"1", 1)]
    assert scene.delivery.records_dead_lettered == 1
    assert scene.checkpointer.largest_delivered == at(2)


def test_a_policy_decides_about_the_pause_after_its_hook_failed():
    def full(_poison):
        raise OSError("no queue")

    aside = []
    policy = Own(SetAside(full), Retry(7.0, together=True), SetAside(aside.append))
    _, calls = played(policy, 1, 2)
    assert calls == [(0, [1]), (7, [1])]
    assert policy.failures == [(KeyError, 1, 1), (OSError, 1, 0), (KeyError, 1, 2)]
    assert len(aside) == 1


@pytest.mark.parametrize(
    ("count", "error", "decision", "second_call"),
    [
        (2, KeyError, SetAside(print), [1]),
        (1, KeyError, Halve(), [1]),
        (1, TransientSinkError, SetAside(print), [1]),
    ],
)
def test_a_decision_that_does_not_fit_leaves_no_record_out(count, error, decision, second_call, capsys):
    scene, calls = played(Own(decision), count, 1, error=error)
    assert calls[1][1] == second_call
    assert scene.delivery.records_delivered == count
    assert scene.delivery.records_dead_lettered == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("decision", [None, "retry", 5, Retry])
def test_anything_else_than_a_decision_stops_the_worker(decision):
    with pytest.raises(HandlerError, match="on_handler_error"):
        played(Own(decision), 1, 1)


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), 86_401, "5", None])
def test_pauses_have_a_range(after):
    with pytest.raises(ConfigError, match=r"^Retry\.after="):
        Retry(after)
    with pytest.raises(ConfigError, match=r"^Backoff\.first="):
        Backoff(after, 1e9)


def test_an_operator_leaves_a_record_out_whatever_the_policy(caplog):
    scene = Scene(lambda _batch: None, policy=Own())
    scene.offer(record(1))
    leave_out(scene, 1)
    assert scene.run() is None
    assert "dead-letter hook" in caplog.text


# Set aside for later, and circuits


def test_a_hook_that_keeps_a_record_for_later_makes_no_dead_letter(caplog):
    scene, calls = played(Own(SetAside(lambda _poison: Deferred(60))), 1, 1)
    assert [numbers for _, numbers in calls] == [[1]]
    assert scene.checkpointer.largest_delivered == at(1)
    assert (scene.delivery.records_delivered, scene.delivery.records_dead_lettered) == (1, 0)
    assert "deferred for 60 s" in caplog.text


class Down:
    """A handler of a service that is down for a while; each call lasts a moment."""

    def __init__(self, until, error=ConnectionError):
        self.calls, self._until, self._error = [], until, error

    def __call__(self, batch):
        self.calls.append((self.scene.clock.monotonic(), len(batch.records)))
        if self.scene.clock.monotonic() < self._until:
            raise self._error("away")


def outage(until, *, concurrency=1, error=ConnectionError, **breaker):
    aside = []
    inner = BisectBatch(dead_letter=aside.append, attempts=2, initial_delay=0.1)
    handler = Down(until, error)
    breaker.setdefault("of", (ConnectionError,))
    scene = Scene(handler, policy=CircuitBreaker(inner, **breaker), concurrency=concurrency)
    handler.scene = scene
    return scene, handler, aside


def test_an_open_circuit_pauses_and_tries_one_record_instead_of_setting_all_aside(caplog):
    caplog.set_level("INFO")
    scene, handler, aside = outage(1000, failures=8, first_pause=5, longest_pause=60, probes=100)
    scene.offer(*map(record, range(1, 101)))
    scene.run(500)
    assert scene.delivery.failing.error == "circuit open: ConnectionError: away"
    assert len(aside) == 7
    probes = handler.calls[-8:]
    assert {size for _, size in probes} == {1}
    pauses = [after - before for (before, _), (after, _) in itertools.pairwise(probes)]
    assert all(pause <= 60 for pause in pauses)
    assert pauses[-1] >= 30
    scene.run()
    assert len(aside) == 7
    assert scene.delivery.records_delivered == 100
    assert scene.delivery.failing is None
    assert "circuit is closed" in caplog.text


@pytest.mark.parametrize("breaker", [{}, {"failures": 2}])
def test_one_record_that_always_fails_is_set_aside_and_opens_no_circuit(breaker):
    """It is the first one, so the batch and all of its halves fail one after another."""
    aside = []

    def handle(batch):
        if any(int(one.sequence_number) == 1 for one in batch.records):
            raise ValueError("poison")

    policy = CircuitBreaker(BisectBatch(dead_letter=aside.append, attempts=5), **breaker)
    scene = Scene(handle, policy=policy)
    scene.offer(*map(record, range(1, 1001)))
    assert scene.run() is None
    assert [int(one.record.sequence_number) for one in aside] == [1]
    assert scene.delivery.records_delivered == 1000


def test_poison_records_in_a_row_do_not_keep_a_circuit_open_for_ever():
    aside = []

    def handle(batch):
        if any(int(one.sequence_number) <= 5 for one in batch.records):
            raise ValueError("poison")

    inner = BisectBatch(dead_letter=aside.append, attempts=2)
    scene = Scene(handle, policy=CircuitBreaker(inner, failures=3, first_pause=1, longest_pause=8, probes=4))
    scene.offer(*map(record, range(1, 11)))
    assert scene.run() is None
    assert [int(one.record.sequence_number) for one in aside] == [1, 2, 3, 4, 5]
    assert [one.attempts for one in aside[2:]] == [5, 5, 5], "the circuit is open: four pauses for each"
    assert scene.delivery.records_delivered == 10


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_failures_count_on_if_records_are_read_again_in_each_pause(concurrency, restarts):
    """The worker needs the memory, or the shard restarts."""
    aside, sizes = [], []

    def handle(batch):
        sizes.append(len(batch.records))
        raise ConnectionError("poison")

    inner = BisectBatch(dead_letter=aside.append, attempts=2)
    policy = CircuitBreaker(inner, failures=2, first_pause=1, longest_pause=2, probes=6)
    scene = Scene(handle, policy=policy, concurrency=concurrency)
    left = [record(number) for number in range(1, 4)]
    rereads = 0
    while left and rereads < 50:
        delivery, before = scene.delivery, scene.delivery.records_delivered
        scene.offer(*left)
        while (due := scene.step()) is not None and not (delivery.may_reread and delivery.is_pausing):
            scene.clock.advance_to(due)
        left = left[delivery.records_delivered - before :]
        rereads += 1
        if restarts:
            scene.restart()
        else:
            scene.clock.advance(delivery.forget(scene.clock.monotonic()))
    assert [int(one.record.sequence_number) for one in aside] == [1, 2, 3]
    assert [one.attempts for one in aside] == [2, 7, 7]
    assert set(sizes[-14:]) == {1}, "a probe stays a single record"
    assert rereads == (5 if restarts else 10)


def test_failures_of_a_lane_count_on_if_other_lanes_restart_the_shard_before_its_next_call():
    def handle(batch):
        raise ConnectionError("poison")

    scene = Scene(handle, concurrency=2)
    scene.offer(record(1))
    scene.step()
    attempts = scene.delivery.failing.attempts
    for _ in range(2):
        scene.restart()
    scene.offer(record(1))
    scene.step()
    assert scene.delivery.failing.attempts == attempts + 1 == 2


def test_errors_of_another_class_end_the_row_and_do_not_open_the_circuit():
    errors = itertools.cycle([ConnectionError, ValueError])

    def other_than_before(text):
        return next(errors)(text)

    scene, _, aside = outage(1e9, failures=2, error=other_than_before)
    scene.offer(*map(record, range(1, 4)))
    assert scene.run() is None
    assert len(aside) == 3


def test_a_row_counts_records_and_ends_with_a_call_that_succeeds():
    policy = Own(*[Retry(1.0)] * 2, SetAside(lambda _: None), *[Retry(1.0)] * 2)
    rows = []
    decide = policy.decide
    policy.decide = lambda failure: (rows.append(failure.in_a_row), decide(failure))[1]
    handler = iter([KeyError(), KeyError(), KeyError(), KeyError(), None, KeyError(), None])

    def handle(_batch):
        error = next(handler)
        if error is not None:
            raise error

    scene = Scene(handle, policy=policy)
    for number in (1, 2, 3):
        scene.offer(record(number))
        assert scene.run() is None
    assert rows == [1, 1, 1, 2, 1]


def test_with_keys_side_by_side_the_row_is_the_shards():
    scene, handler, aside = outage(100, failures=4, concurrency=3)
    scene.offer(*(record(number, f"k{number}") for number in range(1, 31)))
    assert scene.run() is None
    assert len(aside) <= 4
    assert scene.delivery.records_delivered == 30
    assert len(handler.calls) < 30 * 8


def test_a_breaker_leaves_other_callbacks_and_hooks_to_the_other_policy():
    inner = BisectBatch(dead_letter=print)
    breaker = CircuitBreaker(inner, failures=2)
    initialize = Failure(error=OSError(), size=0, attempts=9, in_a_row=9)
    assert breaker.decide(initialize) == inner.decide(initialize)
    assert breaker.dead_letter is print
    assert CircuitBreaker(RetryBatch()).dead_letter is None


@pytest.mark.parametrize(
    "values",
    [{"failures": 1}, {"failures": 10_001}, {"of": OSError}, {"of": (3,)}, {"first_pause": 0}, {"longest_pause": 4}, {"probes": 0}],
)  # fmt: skip
def test_settings_of_a_breaker_have_ranges(values):
    (name,) = values
    with pytest.raises(ConfigError, match=f"^{name}="):
        CircuitBreaker(RetryBatch(), **values)
    with pytest.raises(ConfigError, match=r"^policy="):
        CircuitBreaker("retry")


# Left out by an operator


def leave_out(scene, number):
    """What the owner knows once a scan has shown the request."""
    scene.held.handler_request = HandlerRequest(HandlerVerb.LEAVE_OUT, f"r{number}", at(number))
    scene.delivery.lanes.retry_now()


@pytest.mark.parametrize("policy", [RetryBatch, StopWorker, BisectBatch])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_exactly_the_record_that_an_operator_names_is_left_out(policy, concurrency):
    processed, dead = [], []

    def handle(batch):
        if any(r.sequence_number == "3" for r in batch.records):
            raise KeyError("price")
        processed.extend(r.sequence_number for r in batch.records)

    scene = Scene(handle, policy=policy(dead_letter=dead.append), concurrency=concurrency)
    scene.offer(*map(record, range(1, 6)))
    leave_out(scene, 3)
    assert scene.run() is None
    assert sorted(processed) == ["1", "2", "4", "5"], "each once: no call ever got the record"
    (poison,) = dead
    assert (poison.record.sequence_number, poison.by_operator) == ("3", True)
    assert isinstance(poison.error, HandlerError)
    assert scene.checkpointer.largest_delivered == at(5)
    assert (scene.released, scene.delivery.lanes.is_empty) == (["5"], True)
    assert (scene.delivery.records_delivered, scene.delivery.records_dead_lettered) == (5, 1)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_last_record_of_a_batch_that_fails_is_left_out_at_once(concurrency, caplog):
    def handle(batch):
        if batch.records[-1].sequence_number == "2":
            raise KeyError("price")

    scene = Scene(handle, concurrency=concurrency)
    scene.offer(record(1, "a"), record(2, "b"))
    scene.run(100)
    assert scene.delivery.failing.position == at(2)
    began = scene.clock.monotonic()
    leave_out(scene, 2)
    assert scene.step() is None
    assert scene.clock.monotonic() == began
    assert scene.delivery.failing is None
    assert scene.checkpointer.largest_delivered == at(2)
    assert scene.released == ["2"]
    (line,) = [r for r in caplog.records if "left out" in r.getMessage()]
    assert "record 2/0 is left out" in line.getMessage()
    assert line.exc_info[0] is KeyError, "the last error of the handler"


def test_a_hook_that_fails_gets_the_record_again_and_nothing_passes_it():
    dead = []

    def hook(poison):
        if scene.clock.monotonic() < 30:
            raise OSError("no queue")
        dead.append(poison.record.sequence_number)

    processed = []
    scene = Scene(
        lambda batch: processed.extend(r.sequence_number for r in batch.records),
        policy=RetryBatch(dead_letter=hook),
    )
    scene.offer(record(1), record(2), record(3))
    leave_out(scene, 2)
    scene.run(20)
    assert (processed, dead) == (["1"], [])
    assert scene.delivery.failing.error == "OSError: no queue"
    assert scene.checkpointer.largest_delivered == at(1)
    assert scene.run() is None
    assert (processed, dead) == (["1", "3"], ["2"])


def test_a_record_that_is_elsewhere_changes_nothing():
    processed = []
    scene = Scene(lambda batch: processed.append([r.sequence_number for r in batch.records]))
    scene.offer(record(1), record(3))
    leave_out(scene, 2)
    assert scene.run() is None
    assert processed == [["1", "3"]]


def test_a_batch_that_is_dropped_keeps_its_backoff():
    def handle(batch):
        raise RuntimeError("no")

    scene = Scene(handle)
    pauses = []
    for _ in range(6):
        scene.offer(record(1))
        scene.step()
        pauses.append(scene.delivery.forget(scene.clock.monotonic()))
        assert scene.delivery.lanes.is_empty
    assert pauses[5] > pauses[0] * 8
    assert scene.released == ["1"] * 6


# Bisecting


class Poisoned:
    """A handler that fails on some records, a hook that takes them."""

    def __init__(self, poison, **policy):
        self.poison = set(poison)
        self.calls = []
        self.delivered = []
        self.dead = []
        self.refuse = 0
        self.policy = BisectBatch(dead_letter=self.dead_letter, **policy)

    def handle(self, batch):
        numbers = [int(r.sequence_number) for r in batch.records]
        self.calls.append(numbers)
        if self.poison & set(numbers):
            raise ValueError("poison")
        self.delivered += numbers

    def dead_letter(self, poison):
        if self.refuse:
            self.refuse -= 1
            raise OSError("queue is down")
        self.dead.append(poison)


def test_a_hook_that_raises_is_no_way_out():
    handler = Poisoned({2}, attempts=1)
    handler.refuse = 4
    scene = Scene(handler.handle, policy=handler.policy)
    scene.offer(record(1), record(2), record(3))
    for _ in range(4):
        scene.clock.advance(0.01)
        scene.step()
    assert scene.checkpointer.largest_delivered == at(1)
    assert "dead_letter: OSError" in scene.delivery.last_error
    assert scene.run() is None
    assert handler.calls.count([2]) == 5, "delivered again each time"
    assert len(handler.dead) == 1
    assert scene.checkpointer.largest_delivered == at(3)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=1000))
@given(
    st.integers(0, 2**32),
    st.sets(st.integers(1, 40)),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_bisecting_loses_nothing_whatever_is_poisoned(seed, poison, count, attempts, concurrency):
    logging.disable(logging.CRITICAL)
    try:
        handler = Poisoned(poison, attempts=attempts)
        scene = Scene(handler.handle, policy=handler.policy, concurrency=concurrency, rng=Random(seed))
        scene.offer(*[record(n, f"k{n % 3}") for n in range(1, count + 1)])
        assert scene.run(1e6) is None
    finally:
        logging.disable(logging.NOTSET)
    numbers = set(range(1, count + 1))
    assert {int(p.record.sequence_number) for p in handler.dead} == poison & numbers
    assert set(handler.delivered) == numbers - poison
    assert scene.checkpointer.largest_delivered == at(count)
    assert scene.released == [str(count)]


# Coroutines


def test_a_coroutine_is_waited_for_without_a_thread():
    done = []

    async def handle(batch):
        await asyncio.sleep(0)
        done.append([r.data for r in batch.records])

    scene = Scene(handle, deferred=True)
    scene.offer(record(1))
    assert scene.step() == NEVER
    assert scene.delivery.is_running
    assert scene.step() == NEVER
    assert (len(scene.waiting), done) == (1, [])
    scene.clock.advance(5)
    assert scene.delivery.calling_since == 0.0
    scene.waiting.pop()()
    assert scene.woken == 1
    assert scene.step() is None
    assert done == [[b"1"]]
    assert scene.checkpointer.largest_delivered == at(1)


@pytest.mark.parametrize("error", [RuntimeError("x"), asyncio.CancelledError("own")])
def test_a_coroutine_that_fails_or_is_cancelled_is_retried(error):
    left = [error, None]

    async def handle(batch):
        failure = left.pop(0)
        if failure is not None:
            raise failure

    scene = Scene(handle)
    scene.offer(record(1))
    assert scene.step() > 0
    assert scene.checkpointer.largest_delivered.sequence_number == TRIM_HORIZON
    assert scene.run() is None
    assert left == []


def test_an_exit_in_a_coroutine_reaches_the_step():
    async def handle(batch):
        raise SystemExit(7)

    scene = Scene(handle)
    scene.offer(record(1))
    with pytest.raises(SystemExit):
        scene.step()


# Keys side by side


def test_a_checkpoint_inside_a_concurrent_call_is_the_low_watermark():
    stored = []

    def handle(batch):
        batch.checkpoint()
        stored.append(scene.checkpointer.last_checkpoint.sequence_number)

    scene = Scene(handle, concurrency=2)
    scene.offer(record(1, "a"), record(2, "b"))
    scene.step()
    scene.offer(record(3, "a"))
    assert scene.run() is None
    assert stored == [TRIM_HORIZON, TRIM_HORIZON, "2"]


def test_one_failing_key_does_not_hold_up_the_others():
    seen = []

    def handle(batch):
        if batch.records[0].partition_key == "bad" and scene.clock.monotonic() < 20:
            raise RuntimeError("no")
        seen.extend(r.data for r in batch.records)

    scene = Scene(handle, concurrency=2)
    scene.offer(record(1, "a"), record(2, "bad"), record(3, "a"))
    scene.step()
    scene.offer(record(4, "a"), record(5, "bad"))
    scene.step()
    scene.clock.advance(10)
    scene.step()
    assert seen == [b"1", b"3", b"4"]
    assert scene.checkpointer.largest_delivered == at(1)
    assert scene.run() is None
    assert seen == [b"1", b"3", b"4", b"2", b"5"]
    assert scene.checkpointer.largest_delivered == at(5)


def test_the_stop_policy_with_several_failing_keys_raises_once_and_keeps_what_is_done():
    def handle(batch):
        if batch.records[0].partition_key != "good":
            raise ValueError("x")

    scene = Scene(handle, policy=StopWorker(), concurrency=3, deferred=True)
    scene.offer(record(1, "good"), record(2, "a"), record(3, "b"))
    scene.step()
    bad = scene.waiting.pop()
    for function in reversed(scene.waiting):
        function()
    with pytest.raises(HandlerError):
        scene.step()
    assert scene.checkpointer.largest_delivered == at(1)
    bad()
    scene.delivery.collect()
    assert not scene.delivery.is_running
    assert scene.released == []


def test_room_is_bounded_by_bytes_from_the_oldest_open_record_on():
    scene = Scene(lambda batch: None, concurrency=2, deferred=True)
    chunk = b"x" * (3 * 1024 * 1024)
    for number in range(1, 4):
        assert scene.delivery.lanes.has_room
        scene.offer(record(number, f"k{number}", chunk))
    assert not scene.delivery.lanes.has_room
    scene.step()
    scene.waiting.pop()()  # the second one: the first is open, nothing can be forgotten
    scene.step()
    assert not scene.delivery.lanes.has_room
    scene.waiting.pop(0)()
    scene.step()
    assert scene.delivery.lanes.has_room


def test_the_bytes_of_a_batch_that_fits_only_in_part_are_returned_when_it_is_dropped():
    scene = Scene(lambda batch: None, concurrency=2, deferred=True)
    chunk = b"x" * (16 * 1024)
    scene.offer(*[record(number, "k", chunk) for number in range(1, 2001)])
    assert scene.delivery.lanes._incoming is not None, "or the test proves nothing"
    assert scene.released == []
    scene.delivery.forget(scene.clock.monotonic())
    assert scene.released == ["2000"]


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=60, fuzz=2000))
@given(st.integers(0, 2**32))
def test_keyed_delivery_under_random_schedules(seed):
    """Calls end in any order, some fail: per key the order holds, calls of a key never overlap, and the bound of
    checkpoints never passes over a record that is not done."""
    logging.disable(logging.CRITICAL)
    rng = Random(seed)
    running, done, order = set(), set(), {}

    def handle(batch):
        key = batch.records[0].partition_key
        assert {r.partition_key for r in batch.records} == {key}
        assert key not in running
        running.add(key)
        try:
            if rng.random() < 0.3:
                raise RuntimeError("no")
            for r in batch.records:
                number = int(r.sequence_number)
                assert order.get(key, 0) < number
                order[key] = number
                done.add(number)
        finally:
            running.discard(key)

    concurrency = rng.randint(2, 4)
    scene = Scene(handle, concurrency=concurrency, deferred=True, rng=rng)
    offered = 0
    try:
        while True:
            if offered < 40 and scene.delivery.lanes.has_room and rng.random() < 0.4:
                batch = [record(offered + n + 1, f"k{rng.randint(0, 4)}") for n in range(rng.randint(1, 6))]
                offered += len(batch)
                scene.offer(*batch)
            assert len(scene.waiting) <= concurrency
            if scene.waiting and rng.random() < 0.7:
                scene.waiting.pop(rng.randrange(len(scene.waiting)))()
            due = scene.step()
            bound = scene.checkpointer.largest_delivered
            watermark = 0 if bound.is_sentinel else int(bound.sequence_number)
            assert set(range(1, watermark + 1)) <= done
            if due is None and offered >= 40:
                break
            if not scene.waiting and due is not None and due != NEVER:
                scene.clock.advance_to(due)
    finally:
        logging.disable(logging.NOTSET)
    assert watermark == offered
    assert scene.delivery.lanes.is_empty
    assert scene.delivery.records_delivered == offered
