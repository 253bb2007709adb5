"""The producer for asyncio: backpressure without threads, results in groups, cancellation, closing."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial, wraps
from typing import Any

import pytest

from kinesis_sdk.common.errors import (
    BufferFullError,
    InvalidRecordError,
    ProducerClosedError,
    ProducerError,
    PutManyError,
    RecordFailedError,
)
from kinesis_sdk.producer import AsyncProducer, FailedRecord, ProducerConfig, PutResult
from kinesis_sdk.testing import VirtualClock
from tests.producer.simulation import STREAM
from tests.producer.support import LONG, Gate, Make


@pytest.fixture
def make(make: Make) -> Make:
    return partial(make, AsyncProducer)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run it; it fails rather than hang."""

    async def bounded() -> Any:
        return await asyncio.wait_for(main, LONG)

    return asyncio.run(bounded())


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine."""

    @wraps(test)
    def bounded(**fixtures: Any) -> None:
        run(test(**fixtures))

    return bounded


async def settled() -> None:
    """Let every coroutine go as far as it comes."""
    for _ in range(10):
        await asyncio.sleep(0)


# ---------------------------------------------------------------------- the main road


@in_loop
async def test_put_awaits_acceptance_and_gives_an_awaitable_result(make: Make) -> None:
    async with make() as producer:
        result = await (await producer.put(STREAM, "k", b"x"))
        assert isinstance(result, PutResult)
        assert result.shard_id.startswith("shardId-")
        assert (await producer.put_and_wait(STREAM, "k", b"y", 0)).shard_id == "shardId-000000000000"
        await producer.send(STREAM, "k", b"z")
        assert await producer.flush(LONG) == 0
        assert producer.stats().user_records_stored == 3


@in_loop
async def test_futures_are_done_when_flush_returns(make: Make) -> None:
    async with make() as producer:
        for _ in range(20):
            futures = [await producer.put(STREAM, f"k{n}", b"x") for n in range(100)]
            assert await producer.flush() == 0
            assert all(future.done() for future in futures)
        assert await producer.flush() == 0, "with nothing to wait for"


@in_loop
async def test_closing_delivers_everything_and_then_says_no(make: Make) -> None:
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)
    futures = [await producer.put(STREAM, "k", b"x") for _ in range(10)]
    assert await producer.close(LONG) == 0
    assert all(future.done() and future.result() for future in futures)
    for method in (producer.put, producer.send, producer.put_and_wait):
        with pytest.raises(ProducerClosedError):
            await method(STREAM, "k", b"x")
    with pytest.raises(ProducerClosedError):
        await producer.flush()
    assert await producer.close() == 0


@in_loop
async def test_closing_with_a_timeout_fails_what_is_left(make: Make, gate: Gate) -> None:
    told: list[FailedRecord] = []
    producer = make(on_record_failed=told.append)
    gate.open.clear()
    future = await producer.put(STREAM, "k", b"x")
    assert await producer.flush(0.001) == 1
    assert await producer.close(0.001) == 1
    with pytest.raises(RecordFailedError) as caught:
        await future
    assert isinstance(caught.value.__cause__, ProducerClosedError)
    assert [failed.data for failed in told] == [b"x"]


@in_loop
async def test_failures_are_raised_where_they_are_awaited(make: Make) -> None:
    told: list[FailedRecord] = []
    async with make(on_send_error=told.append) as producer:
        with pytest.raises(RecordFailedError):
            await producer.put_and_wait("nowhere", "k", b"x")
        with pytest.raises(InvalidRecordError):
            await producer.put(STREAM, "", b"x")
        await producer.send("nowhere", "k", b"y")
        assert await producer.flush(LONG) == 0
        assert [failed.data for failed in told] == [b"y"]


@in_loop
async def test_results_come_to_the_loop_in_groups(make: Make) -> None:
    async with make(record_max_buffered_time=60.0, record_ttl=600.0) as producer:
        loop = asyncio.get_running_loop()
        messages: list[Any] = []
        original = loop.call_soon_threadsafe

        def counted(function: Any, *arguments: Any, **options: Any) -> Any:
            messages.append(function)
            return original(function, *arguments, **options)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        futures = [await producer.put(STREAM, "one key", b"x") for _ in range(1_000)]
        assert await producer.flush(LONG) == 0
        assert all(future.done() for future in futures)
        assert len(messages) < 20


# ---------------------------------------------------------------------- backpressure


@in_loop
async def test_put_waits_for_room_in_turn_without_blocking_and_without_threads(
    make: Make, gate: Gate
) -> None:
    producer = make(max_buffered_records=2)
    before = threading.active_count()
    gate.open.clear()
    order: list[int] = []

    async def put(number: int) -> asyncio.Future[PutResult]:
        future = await producer.put(STREAM, "k", b"%d" % number)
        order.append(number)
        return future

    tasks = [asyncio.create_task(put(number)) for number in range(200)]
    await settled()
    assert order == [0, 1]
    assert threading.active_count() - before < 10
    gate.open.set()
    futures = await asyncio.gather(*tasks)
    assert order == list(range(200)), "first come, first served"
    assert all([await future for future in futures])
    assert not producer._side.queue  # type: ignore[union-attr]
    assert await producer.close(LONG) == 0


@in_loop
async def test_a_record_does_not_age_while_it_waits_for_room(gate: Gate) -> None:
    clock = VirtualClock()
    gate.open.clear()
    config = ProducerConfig(record_max_buffered_time=0.0, max_buffered_records=1)
    async with AsyncProducer(config, client=gate, clock=clock) as producer:
        first = await producer.put(STREAM, "k", b"x")
        task = asyncio.create_task(producer.put_and_wait(STREAM, "k", b"x"))
        await settled()
        clock.advance(4.0)
        gate.open.set()
        assert await first
        assert (await task).attempts[0].delay == 0.0


@in_loop
async def test_one_that_comes_late_does_not_overtake_those_who_wait(make: Make, gate: Gate) -> None:
    producer = make(max_buffered_records=1)
    gate.open.clear()
    await producer.put(STREAM, "k", b"x")
    order: list[str] = []

    async def put(name: str) -> None:
        await producer.put(STREAM, "k", b"x")
        order.append(name)

    early = asyncio.create_task(put("early"))
    await settled()
    gate.open.set()
    assert producer.producer.flush(LONG) == 0  # blocks the loop, so no waiting task has noticed the room
    await asyncio.gather(put("late"), early)
    assert order == ["early", "late"]


@in_loop
async def test_threads_and_coroutines_share_the_room(make: Make) -> None:
    producer = make(max_buffered_records=3)
    loop = asyncio.get_running_loop()
    in_thread = loop.run_in_executor(
        None, lambda: [producer.producer.put(STREAM, "t", b"x") for _ in range(100)]
    )
    futures = await asyncio.gather(*(producer.put(STREAM, "c", b"x") for _ in range(100)))
    assert all(await asyncio.gather(*futures))
    assert all(record.result(LONG) for record in await in_thread)
    assert producer.stats().user_records_stored == 200


@pytest.mark.parametrize("timeout", [0, 0.001])
@in_loop
async def test_a_full_buffer_refuses_as_put_timeout_says(make: Make, gate: Gate, timeout: float) -> None:
    producer = make(max_buffered_records=1, put_timeout=timeout)
    gate.open.clear()
    await producer.put(STREAM, "k", b"x")
    with pytest.raises(BufferFullError, match="max_buffered_records=1"):
        await producer.put(STREAM, "k", b"x")
    assert not producer._engine._shared.usage.room_listeners
    gate.open.set()
    assert await producer.flush(LONG) == 0
    assert await producer.put_and_wait(STREAM, "k", b"x")


@pytest.mark.parametrize("victim", [0, 1, 2])
@in_loop
async def test_a_cancelled_put_has_not_accepted_its_record_and_holds_nobody_up(
    make: Make, gate: Gate, victim: int
) -> None:
    producer = make(max_buffered_records=1)
    gate.open.clear()
    first = await producer.put(STREAM, "k", b"x")
    tasks = [asyncio.create_task(producer.put_and_wait(STREAM, "k", b"x")) for _ in range(3)]
    await settled()
    tasks[victim].cancel()
    await settled()
    assert tasks[victim].cancelled()
    gate.open.set()
    assert await first
    others = [task for task in tasks if task is not tasks[victim]]
    assert all(await asyncio.gather(*others))
    assert producer.stats().user_records_put == 3


@in_loop
async def test_one_that_is_cancelled_after_it_was_told_passes_its_turn_on(make: Make, gate: Gate) -> None:
    producer = make(max_buffered_records=1)
    gate.open.clear()
    await producer.put(STREAM, "k", b"x")
    first, second = (asyncio.create_task(producer.put_and_wait(STREAM, "k", b"x")) for _ in range(2))
    await settled()
    side = producer._side
    assert side is not None
    assert len(side.queue) == 2
    side.wake_first()
    first.cancel()
    gate.open.set()
    assert await second
    assert first.cancelled()
    assert producer.stats().user_records_put == 2


@in_loop
async def test_when_all_who_wait_are_cancelled_nobody_hurries_the_engine(make: Make, gate: Gate) -> None:
    producer = make(max_buffered_records=1)
    gate.open.clear()
    await producer.put(STREAM, "k", b"x")
    task = asyncio.create_task(producer.put(STREAM, "k", b"x"))
    await settled()
    assert len(producer._engine._shared.usage.room_listeners) == 1
    task.cancel()
    await settled()
    assert not producer._engine._shared.usage.room_listeners


@in_loop
async def test_closing_wakes_whoever_waits_for_room(make: Make, gate: Gate) -> None:
    producer = make(max_buffered_records=1)
    gate.open.clear()
    accepted = await producer.put(STREAM, "k", b"x")
    tasks = [asyncio.create_task(producer.put(STREAM, "k", b"x")) for _ in range(3)]
    await settled()
    assert await producer.close(0) == 1
    for task in tasks:
        with pytest.raises(ProducerClosedError):
            await task
    with pytest.raises(RecordFailedError):
        await accepted


@in_loop
async def test_cancelling_a_result_leaves_the_record_alone(make: Make, gate: Gate) -> None:
    producer = make()
    gate.open.clear()
    future = await producer.put(STREAM, "k", b"x")
    other = await producer.put(STREAM, "k", b"x")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(future, 0.001)
    gate.open.set()
    assert await producer.flush(LONG) == 0
    assert producer.stats().user_records_stored == 2
    assert other.done(), "nor does it keep the others of its group from their results"


@in_loop
async def test_a_future_that_the_application_resolves_itself_costs_the_others_nothing(make: Make) -> None:
    async with make(record_max_buffered_time=60.0, record_ttl=600.0) as producer:
        futures = [await producer.put(STREAM, "k", b"x") for _ in range(10)]
        futures[3].set_exception(TimeoutError("mine"))
        result = PutResult("mine", "0", 0, ())
        futures[5].set_result(result)
        assert await producer.flush(LONG) == 0
        assert all(future.done() for future in futures)
        assert isinstance(futures[3].exception(), TimeoutError)
        assert futures[5].result() is result
        assert all(future.result().attempts for future in futures if future not in {futures[3], futures[5]})


@in_loop
async def test_cancelling_a_flush_leaves_nothing_behind(make: Make, gate: Gate) -> None:
    producer = make()
    gate.open.clear()
    await producer.put(STREAM, "k", b"x")
    task = asyncio.create_task(producer.flush())
    await settled()
    task.cancel()
    await settled()
    assert task.cancelled()
    assert not producer._engine._shared.usage._flush_listeners
    gate.open.set()
    assert await producer.flush() == 0


# ---------------------------------------------------------------------- put_many


def test_put_many_takes_iterables_of_both_kinds(make: Make) -> None:
    async def numbers() -> AsyncIterator[tuple[str, bytes]]:
        for number in range(5):
            yield f"k{number}", b"x"

    async def main() -> None:
        async with make(max_buffered_records=100) as producer:
            futures = await producer.put_many(STREAM, (("k", b"x", n) for n in range(600)))
            futures += await producer.put_many(STREAM, numbers())
            assert len([await future for future in futures]) == 605

    run(main())


@in_loop
async def test_put_many_says_how_far_it_came(make: Make) -> None:
    async with make() as producer:
        with pytest.raises(PutManyError) as caught:
            await producer.put_many(STREAM, [("k", b"0"), ("k", b"1"), ("", b"2"), ("k", b"3")])
        assert caught.value.index == len(caught.value.accepted) == 2
        assert isinstance(caught.value.__cause__, InvalidRecordError)
        assert all([await future for future in caught.value.accepted])
        assert producer.stats().user_records_put == 2


@in_loop
async def test_put_many_lets_others_run(make: Make) -> None:
    async with make() as producer:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await producer.put_many(STREAM, [("k", b"x")] * 2_560)
        task.cancel()
        assert turns >= 10


# ---------------------------------------------------------------------- loops


def test_it_follows_from_a_closed_loop_to_the_next_with_what_it_holds(make: Make) -> None:
    # A Lambda function: one producer, a loop for each invocation. What was not flushed goes with the next.
    producer = make(record_max_buffered_time=60.0, record_ttl=600.0)

    async def first() -> None:
        await producer.put(STREAM, "k", b"not flushed")

    async def second() -> None:
        assert await producer.put_many(STREAM, [("k", b"flushed")])
        assert await producer.flush(LONG) == 0

    run(first())
    run(second())
    assert producer.stats().user_records_stored == 2


def test_a_loop_that_ended_while_somebody_waited_does_no_harm(make: Make, gate: Gate) -> None:
    producer = make(max_buffered_records=1)
    gate.open.clear()

    async def first() -> None:
        await producer.put(STREAM, "k", b"x")
        asyncio.create_task(producer.put(STREAM, "k", b"y"))  # noqa: RUF006 - left to the loop's end
        await settled()

    async def second() -> None:
        assert await producer.put_and_wait(STREAM, "k", b"z")

    run(first())
    gate.open.set()
    run(second())


@in_loop
async def test_another_loop_is_refused_while_the_first_is_open(make: Make) -> None:
    async with make() as producer:

        def elsewhere() -> None:
            with pytest.raises(ProducerError, match="another event loop"):
                asyncio.run(producer.flush())

        await asyncio.get_running_loop().run_in_executor(None, elsewhere)


def test_it_can_not_be_pickled(make: Make) -> None:
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(make())
