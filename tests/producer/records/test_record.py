"""A pending record is a `concurrent.futures.Future`, whoever waits in whatever way, and whenever it resolves."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from concurrent.futures._base import _create_and_install_waiters  # type: ignore[attr-defined]
from typing import Any
from unittest import mock

import pytest

from kinesis_sdk.common.errors import ProducerError, RecordFailedError
from kinesis_sdk.producer.records import future as future_module
from kinesis_sdk.producer.records import record as record_module
from kinesis_sdk.producer.records import waits as module
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.records.future import PendingRecord
from kinesis_sdk.producer.records.record import DeliveryState, PutResult, Stored
from tests.producer.support import LONG, MadeRecord, beside, fail, interpreted, make_record, together
from tests.producer.support import acknowledge as acknowledge_entry

STORED = Stored("shardId-000000000000", "49", 1.0, 1.5)
ERROR = ProducerError("no")


def acknowledge(records: Sequence[PendingRecord], stored: Stored) -> None:
    """The Kinesis records that these user records are in are stored."""
    entries = {record._delivery.entry: None for record in records}
    for entry in entries:
        assert entry is not None
        assert all(record in records for record in entry.records)
        acknowledge_entry(entry, stored)


def make_records(count: int) -> list[MadeRecord]:
    """User records in one Kinesis record."""
    records = [make_record() for _ in range(count)]
    together(records)
    return records


def test_results_of_an_aggregate_share_the_sequence_number_and_count_inside_it() -> None:
    records = make_records(3)
    acknowledge(records, STORED)
    results = [record.result(timeout=0) for record in records]
    assert [result.sub_sequence_number for result in results] == [0, 1, 2]
    assert {result.sequence_number for result in results} == {"49"}
    assert results[0].shard_id == "shardId-000000000000"


def test_attempts_have_delays_and_durations_as_the_kpl_counts_them() -> None:
    # user_record_test.cc: arrival 0, attempts 0-5 and 11-18 ms: delays 0 and 6, durations 5 and 7
    record = make_record(arrived=0.0)
    record.add_failed_attempt(0.0, 5.0, "InternalFailure", "try again")
    acknowledge([record], Stored("s", "1", 11.0, 18.0))
    first, second = record.result().attempts
    assert (first.delay, first.duration, first.code, first.success) == (0.0, 5.0, "InternalFailure", False)
    assert (second.delay, second.duration, second.code, second.success) == (6.0, 7.0, "", True)


def test_result_and_exception_of_a_stored_record() -> None:
    record = make_record()
    assert not record.done()
    assert record.running()
    assert "pending" in repr(record)
    acknowledge([record], STORED)
    assert record.done()
    assert not record.running()
    assert isinstance(record.result(), PutResult)
    assert record.exception() is None
    assert "stored" in repr(record)


def test_result_and_exception_of_a_failed_record() -> None:
    record = make_record()
    fail(record, ERROR)
    assert record.done()
    assert record.exception() is ERROR
    with pytest.raises(ProducerError, match="no"):
        record.result()
    assert "failed" in repr(record)


def test_timeouts() -> None:
    record = make_record()
    with pytest.raises(concurrent.futures.TimeoutError):
        record.result(timeout=0)
    with pytest.raises(concurrent.futures.TimeoutError):
        record.exception(timeout=0.001)
    acknowledge([record], STORED)
    assert record.result(timeout=0)


def test_an_accepted_record_can_not_be_cancelled() -> None:
    record = make_record()
    assert record.cancel() is False
    assert not record.cancelled()
    acknowledge([record], STORED)
    assert record.cancel() is False
    assert record.result()


def test_payload_is_released_with_the_final_result() -> None:
    stored, failed = make_record(data=b"x" * 100), make_record(data=b"y" * 100)
    acknowledge([stored], STORED)
    fail(failed, ERROR)
    assert stored.data == failed.data == b""


def test_a_record_nobody_waits_for_has_no_condition() -> None:
    record = make_record()
    record.add_done_callback(lambda _: None)
    record.add_done_callback(lambda _: None)
    assert record.running()
    assert not record.cancel()
    assert not record.cancelled()
    acknowledge([record], STORED)
    assert record.result()
    assert record._waits is None


def test_records_that_failed_together_share_the_attempt() -> None:
    record, other = make_record(), make_record()
    record.add_failed_attempt(0.0, 1.0, "A", "a")
    assert record.history is not None
    other.add_attempt(record.history[0], 1.0)
    together([record, other])
    acknowledge([record, other], STORED)
    assert record.result().attempts[0] is other.result().attempts[0]


def test_records_share_the_fate_of_their_kinesis_record_whoever_listens() -> None:
    quiet, called, waited, other = records = make_records(4)
    entry = quiet._delivery.entry
    assert entry is not None
    assert not entry.has_listeners
    seen: list[PendingRecord] = []
    called.add_done_callback(seen.append)
    called.add_done_callback(seen.append)
    order = concurrent.futures.as_completed([waited], timeout=LONG)
    assert not concurrent.futures.wait([waited], timeout=0).done
    assert quiet._delivery is called._delivery is waited._delivery is other._delivery is entry.delivery
    assert entry.has_listeners
    acknowledge(records, STORED)
    assert [record.result(0).sub_sequence_number for record in records] == [0, 1, 2, 3]
    assert seen == [called, called]
    assert list(order) == [waited]


def test_a_record_that_goes_elsewhere_takes_its_watchers_along() -> None:
    moved, called, waited, left = make_records(4)
    seen: list[PendingRecord] = []
    called.add_done_callback(seen.append)
    order = concurrent.futures.as_completed([waited], timeout=LONG)
    thread_result: list[PendingRecord] = []
    assert not concurrent.futures.wait([waited], timeout=0).done
    again = together([waited, called, moved])
    assert [record.data for record in again.records] == [b"x"] * 3
    assert all(again.owns(record) for record in again.records)
    called.add_done_callback(seen.append)
    fail(left, ERROR)
    assert [record.done() for record in (moved, called, waited, left)] == [False, False, False, True]
    acknowledge_entry(again, STORED)
    assert seen == [called, called]
    thread_result.extend(order)
    assert thread_result == [waited]
    assert [record.result(0).sub_sequence_number for record in (waited, called, moved)] == [0, 1, 2]
    assert left.exception(0) is ERROR


@interpreted
def test_a_record_that_goes_elsewhere_while_somebody_begins_to_listen() -> None:
    # An engine's thread moves it after the caller's thread has looked at its delivery, before it has listeners.
    class Moving(DeliveryState):
        __slots__ = ("record",)

        @property
        def outcome(self) -> Stored | BaseException | None:  # type: ignore[override]
            if record._delivery is self:
                entries.append(together([record]))
                assert not entries[0].has_listeners
            return None

        @outcome.setter
        def outcome(self, _: object) -> None: ...

    record = make_record()
    entries: list[Entry] = []
    seen: list[PendingRecord] = []
    record._delivery = Moving(record._delivery.entry)
    record.add_done_callback(seen.append)
    acknowledge_entry(entries[0], STORED)
    assert seen == [record]


def test_a_record_that_failed_keeps_its_payload_until_it_is_told_so() -> None:
    for watched in (False, True):
        record, _ = make_records(2)
        if watched:
            assert not concurrent.futures.wait([record], timeout=0).done
        record.leave(record.data)
        assert (record.data, record.done()) == (b"x", False)
        record.add_done_callback(lambda r: r.exception(0))
        fail(record, ERROR)
        assert (record.data, record.exception(0)) == (b"", ERROR)


def test_the_payload_is_found_in_the_middle_of_a_move() -> None:
    records = [make_record(data=b"%d" % number) for number in range(3)]
    together(records)
    records[0]._index, records[2]._index = 2, 7  # of the Kinesis record that they are about to be in
    assert [record.data for record in records] == [b"0", b"1", b"2"]


# ---------------------------------------------------------------------- wait and as_completed


@pytest.mark.parametrize(
    ("return_when", "outcomes"),
    [(ALL_COMPLETED, "sfs"), (FIRST_COMPLETED, "-s-"), (FIRST_EXCEPTION, "s-f")],
)
def test_wait(return_when: str, outcomes: str) -> None:
    records = [make_record() for _ in range(3)]

    def resolve() -> None:
        for record, outcome in zip(records, outcomes, strict=True):
            if outcome == "s":
                acknowledge([record], STORED)
            elif outcome == "f":
                fail(record, ERROR)

    with beside(resolve):
        done, pending = concurrent.futures.wait(records, timeout=LONG, return_when=return_when)
    ended = {record for record, outcome in zip(records, outcomes, strict=True) if outcome != "-"}
    assert (done, pending) == (ended, set(records) - ended)


def test_as_completed_yields_each_once_in_the_order_of_completion() -> None:
    records = [make_record() for _ in range(5)]
    acknowledge([records[4]], STORED)
    order = concurrent.futures.as_completed(records, timeout=LONG)
    assert next(order) is records[4]
    for index in (2, 0, 3):
        acknowledge([records[index]], STORED)
        assert next(order) is records[index]
    fail(records[1], ERROR)
    assert list(order) == [records[1]]


def test_one_that_starts_to_wait_right_after_the_end_is_not_told_twice() -> None:
    # Between the change of the state and the callbacks, somebody calls `as_completed`.
    for resolve in (lambda r: acknowledge([r], STORED), lambda r: fail(r, ERROR)):
        record, other = make_record(), make_record()
        iterators = []

        def late(subject: PendingRecord) -> None:
            order = concurrent.futures.as_completed([subject, other], timeout=LONG)  # noqa: B023
            iterators.append(order)  # noqa: B023
            assert next(order) is subject

        record.add_done_callback(late)
        resolve(record)
        acknowledge([other], STORED)
        assert list(iterators[0]) == [other]


# ---------------------------------------------------------------------- callbacks


def test_callbacks_before_and_after_run_once_with_the_record() -> None:
    for resolve in (lambda r: acknowledge([r], STORED), lambda r: fail(r, ERROR)):
        record = make_record()
        seen: list[PendingRecord] = []
        record.add_done_callback(seen.append)
        record.add_done_callback(seen.append)
        assert seen == []
        resolve(record)
        assert seen == [record, record]
        record.add_done_callback(seen.append)
        assert seen == [record, record, record]


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt()])
def test_a_callback_that_raises_is_logged_and_harms_nobody(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(_: object) -> None:
        raise error

    records = [make_record() for _ in range(3)]
    seen: list[PendingRecord] = []
    for record in records:
        record.add_done_callback(explode)
        record.add_done_callback(seen.append)
    with caplog.at_level(logging.ERROR):
        acknowledge(records, STORED)
        records[0].add_done_callback(explode)
    assert seen == records
    assert len(caplog.records) == 4
    assert "exception calling callback" in caplog.text
    assert "explode" in caplog.text


def test_the_log_shows_neither_keys_nor_arguments_of_a_callback_that_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def explode(_argument: object, _record: object) -> None:
        raise ValueError

    record = make_record("customer-4711")
    record.add_done_callback(functools.partial(explode, "payload"))
    with caplog.at_level(logging.ERROR):
        acknowledge([record], STORED)
    assert "partial" in caplog.text
    assert "customer-4711" not in caplog.text
    assert "payload" not in caplog.text


def test_a_callback_must_be_something() -> None:
    with pytest.raises(TypeError, match="fn"):
        make_record().add_done_callback(None)  # type: ignore[arg-type]


def test_callbacks_run_in_the_order_in_which_they_were_added_whoever_waits_meanwhile() -> None:
    record = make_record()
    seen: list[int] = []
    for number in range(5):
        record.add_done_callback(lambda _, number=number: seen.append(number))
        if number == 2:
            assert not concurrent.futures.wait([record], timeout=0).done
    acknowledge([record], STORED)
    record.add_done_callback(lambda _: seen.append(5))
    assert seen == [0, 1, 2, 3, 4, 5]


def test_a_callback_may_wait_for_nothing_but_look_at_everything() -> None:
    record = make_record()
    results: list[PutResult] = []
    record.add_done_callback(lambda r: results.append(r.result(timeout=0)))
    acknowledge([record], STORED)
    assert results == [record.result()]


# ---------------------------------------------------------------------- who is not waited for


@pytest.mark.parametrize("resolve", [lambda r: acknowledge([r], STORED), lambda r: fail(r, ERROR)])
def test_one_that_holds_the_condition_holds_nobody_up(resolve: Callable[[PendingRecord], None]) -> None:
    # A signal handler may have interrupted `concurrent.futures.wait`, and wait for the thread that brings results.
    record = make_record()
    called = threading.Event()
    record.add_done_callback(lambda _: called.set())
    with record._condition:
        with beside(lambda: record.exception(LONG)):
            waiter = _create_and_install_waiters([record], ALL_COMPLETED)
            with beside(lambda: resolve(record)):
                pass
        assert record.done()
        assert called.is_set()
    assert waiter.event.wait(LONG)
    assert waiter.finished_futures == [record]
    assert concurrent.futures.wait([record], timeout=0).done == {record}


def test_a_condition_that_is_never_released_costs_other_records_nothing() -> None:
    # As after a signal handler that raised inside `concurrent.futures.wait`.
    record, other = make_record(), make_record()
    waiters = []
    for subject in (record, other):
        with subject._condition:
            waiters.append(_create_and_install_waiters([subject], ALL_COMPLETED))
    with record._condition:
        acknowledge([record], STORED)
        acknowledge([other], STORED)
        assert waiters[1].event.wait(LONG)
        assert not waiters[0].event.is_set()
    assert waiters[0].event.wait(LONG)


def test_where_no_thread_can_be_started_those_who_wait_are_told_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(module, "_notifier", module.Notifier())
    record = make_record()
    with record._condition:
        waiter = _create_and_install_waiters([record], ALL_COMPLETED)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    acknowledge([record], STORED)
    assert waiter.finished_futures == [record]
    assert waiter.event.is_set()


@pytest.mark.parametrize("startable", [True, False])
def test_a_record_that_ends_while_the_telling_thread_is_started_does_not_wait_for_that(
    monkeypatch: pytest.MonkeyPatch, startable: bool
) -> None:
    # As when a signal handler interrupts the start, and flushes another producer.
    notifier = module.Notifier()
    monkeypatch.setattr(module, "_notifier", notifier)
    start = notifier._start
    record, other = make_record(), make_record()
    waiters = []
    for subject in (record, other):
        with subject._condition:
            waiters.append(_create_and_install_waiters([subject], ALL_COMPLETED))

    def interrupted() -> bool:
        acknowledge([other], STORED)
        return startable and start()

    monkeypatch.setattr(notifier, "_start", interrupted)
    with beside(lambda: acknowledge([record], STORED)):
        pass
    assert all(waiter.event.wait(LONG) for waiter in waiters)


@interpreted
def test_a_record_that_ends_right_before_somebody_would_sleep_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record, lock = make_record(), mock.Mock()

    class Late(list[Any]):
        def append(self, added: Any) -> None:
            acknowledge([record], STORED)  # which finds no lock to release
            super().append(added)

    record._wait_here().locks = Late()
    monkeypatch.setattr(future_module, "threading", mock.Mock(Lock=lambda: lock))
    assert record.result()
    assert lock.acquire.mock_calls == [mock.call()], "it is made locked, and not waited for"


@interpreted
def test_threads_that_begin_to_wait_at_once_wait_by_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    record, first = make_record(), module.Waits()

    def second() -> Any:
        record._waits = first
        return module.Waits()

    monkeypatch.setattr(record_module, "Waits", second)
    assert record._wait_here() is first


def test_waits_that_time_out_leave_nothing_behind() -> None:
    record = make_record()
    for _ in range(3):
        with pytest.raises(concurrent.futures.TimeoutError):
            record.result(timeout=1e-6)
    assert record._waits is not None
    assert record._waits.locks == []
    assert record._listeners is record._waits, "once"


# ---------------------------------------------------------------------- asyncio


def test_asyncio_awaits_a_record() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        good, bad, ready = make_record(), make_record(), make_record()
        acknowledge([ready], STORED)
        wrapped = [asyncio.wrap_future(record) for record in (good, bad, ready)]
        await loop.run_in_executor(None, lambda: (acknowledge([good], STORED), fail(bad, ERROR)))
        results = await asyncio.wait_for(asyncio.gather(*wrapped, return_exceptions=True), LONG)
        assert results == [good.result(), ERROR, ready.result()]

    asyncio.run(scenario())


def test_cancelling_the_asyncio_side_leaves_the_record_alone() -> None:
    async def scenario() -> None:
        record = make_record()
        wrapped = asyncio.wrap_future(record)
        wrapped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wrapped
        assert not record.done()
        acknowledge([record], STORED)
        assert record.result()

    asyncio.run(scenario())


# ---------------------------------------------------------------------- races


def test_waiting_begins_at_any_moment_of_the_end_of_a_kinesis_record(restless: None) -> None:
    # Who waits for several at once must count all of them exactly once: those it found done, and those it is told of.
    for _ in range(300):
        records = make_records(6)
        start = threading.Barrier(3)
        found: list[int] = []

        def all_of_them() -> None:
            start.wait(LONG)  # noqa: B023
            done, pending = concurrent.futures.wait(records, timeout=LONG)  # noqa: B023
            found.append(len(done) - len(pending))  # noqa: B023
            assert all(record.done() for record in done)

        def one_by_one() -> None:
            start.wait(LONG)  # noqa: B023
            found.append(len(list(concurrent.futures.as_completed(records, timeout=LONG))))  # noqa: B023

        with beside(all_of_them, one_by_one):
            start.wait(LONG)
            acknowledge(records, STORED)
        assert found == [6, 6]


def test_moves_race_with_those_who_begin_to_watch(restless: None) -> None:
    for _ in range(300):
        records = make_records(5)
        calls: list[PendingRecord] = []
        start = threading.Barrier(2)

        def watch() -> None:
            start.wait(LONG)  # noqa: B023
            for record in records:  # noqa: B023
                record.add_done_callback(calls.append)  # noqa: B023

        with beside(watch):
            start.wait(LONG)
            entry = together(records[3:])
            other = together(records[:3])
            acknowledge_entry(entry, STORED)
            acknowledge_entry(other, STORED)
        assert sorted(map(id, calls)) == sorted(map(id, records))
        assert all(record.done() for record in records)


def test_a_resolved_record_is_not_kept_alive_by_the_producers_side() -> None:
    class Marked(MadeRecord):
        pass

    gc.disable()
    try:
        for stored in (False, True):
            records = [Marked() for _ in range(2)]
            for record in records:
                record.partition_key, record.arrived, record._delivery = "k", 0.0, DeliveryState(None)
                record.explicit_hash_key = record._listeners = record._details = None
                record.deadline, record.expires = 0.1, 1.0
            entry = together(records, b"x")
            gone = [weakref.ref(record) for record in records]
            if stored:
                acknowledge(records, STORED)
            else:
                for record in records:
                    record.leave(record.data)
                    fail(record, RecordFailedError("no", stream="s", partition_key="k", attempts=()))
                entry.clear()
            assert entry.delivery.entry is None
            del record, records, entry
            assert [reference() for reference in gone] == [None, None], "no cycle"
    finally:
        gc.enable()
