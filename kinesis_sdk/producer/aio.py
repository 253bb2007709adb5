"""The producer for asyncio: the same engine, and nothing in it blocks the event loop.

    async with AsyncProducer(region_name="eu-west-1") as producer:
        result = await producer.put("orders", "customer-7", b"...")   # accepted: there was room
        stored = await result                                          # stored: where

There is no thread for whoever waits. A `put` that finds no room leaves a function with the engine, which calls it
when there is some; results come to the loop in groups, as the answers of the service do, with one
``call_soon_threadsafe`` for a group. What runs on the loop's thread is what `Producer.put` does: a few microseconds.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections import deque
from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ProducerError, PutManyError
from kinesis_sdk.common.metrics import Metrics
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.failure_hooks import FailureHook
from kinesis_sdk.producer.pipeline import StreamPipeline
from kinesis_sdk.producer.producer import KeyedData, Producer
from kinesis_sdk.producer.record import BlindRecord, PendingRecord, PutResult
from kinesis_sdk.producer.stats import ProducerStats

if TYPE_CHECKING:
    import boto3

_LOGGER = logging.getLogger(__name__)

_BREATH = 256
"""Records after which `put_many` lets others run: a millisecond or so."""


class AsyncProducer:
    """Puts user records into Kinesis streams from coroutines; what is said of `Producer` is true of it.

    It belongs to the event loop that first uses it, and to the next one when that one is closed: an AWS Lambda
    function makes it once, outside of its handler, and calls ``asyncio.run`` in each invocation, with an
    ``await producer.flush()`` at its end.

    Args:
        config: Settings; ``put_timeout`` is how long `put` waits for room.
        client: As for `Producer`.
        session: As for `Producer`.
        region_name: As for `Producer`.
        endpoint_url: As for `Producer`.
        on_send_error: As for `Producer`; runs on a thread of the producer's, not on the loop's.
        on_record_failed: As for `Producer`; runs on a thread of the producer's, not on the loop's.
        metrics: As for `Producer`.
        clock: Time, for tests.
        rng: Jitter, for tests.

    Making one makes a boto3 client, which reads files for some tenths of a second: do it before the loop runs, or
    pass a ``client``.

    Attributes:
        producer: The producer behind it, for threads of the same program.

    Raises:
        AwsConfigError: As `Producer`.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        client: KinesisClient | None = None,
        session: boto3.Session | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        on_send_error: FailureHook | None = None,
        on_record_failed: FailureHook | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.producer: Producer = Producer(
            config,
            client=client,
            session=session,
            region_name=region_name,
            endpoint_url=endpoint_url,
            on_send_error=on_send_error,
            on_record_failed=on_record_failed,
            metrics=metrics,
            clock=clock,
            rng=rng,
        )
        self.config: ProducerConfig = self.producer.config
        self._engine = self.producer._engine
        self._engine.relay = _relay
        self._side: _LoopSide | None = None

    async def put(
        self,
        stream: str | StreamId,
        partition_key: str,
        data: bytes | bytearray | memoryview,
        explicit_hash_key: str | int | None = None,
    ) -> asyncio.Future[PutResult]:
        """Accept one record; wait while the buffer is full, first come first served, for at most ``put_timeout``.

        A ``put`` that is cancelled, or raises anything else, has not accepted its record.

        Returns:
            A future of this loop; awaiting it gives the `PutResult` or raises `RecordFailedError`. Cancelling it
            (as ``asyncio.wait_for`` does) does not call the record back.

        Raises:
            InvalidRecordError: As `Producer.put`.
            ConfigError: As `Producer.put`.
            BufferFullError: As `Producer.put`.
            ProducerClosedError: As `Producer.put`.
            ProducerError: Called on another event loop than the one it belongs to.
        """
        side = self._here()
        pipeline = self.producer._pipeline(stream)
        record, payload, hash_key = self.producer._record(pipeline, partition_key, data, explicit_hash_key)
        future: asyncio.Future[PutResult] = side.loop.create_future()
        record.awaited = (side, future)
        await self._accept(side, pipeline, record, payload, hash_key)
        return future

    async def put_and_wait(
        self,
        stream: str | StreamId,
        partition_key: str,
        data: bytes | bytearray | memoryview,
        explicit_hash_key: str | int | None = None,
    ) -> PutResult:
        """`put`, and wait until the record is stored.

        Raises:
            RecordFailedError: The record's final failure.
            ProducerError: As `put`.
        """
        return await (await self.put(stream, partition_key, data, explicit_hash_key))

    async def put_many(
        self, stream: str | StreamId, records: Iterable[KeyedData] | AsyncIterable[KeyedData]
    ) -> list[asyncio.Future[PutResult]]:
        """`put` for many records of one stream, from an iterable or an asynchronous one.

        Lets other coroutines run now and then, also when there is room for all.

        Returns:
            The futures, in order.

        Raises:
            PutManyError: A record was not accepted; those before it are, and the error has their futures. Its cause
                is what `put` would have raised, or what the iterable raised.
            ProducerError: As `put`.
        """
        accepted: list[asyncio.Future[PutResult]] = []
        try:
            async for partition_key, data, *rest in _each(records):
                accepted.append(await self.put(stream, partition_key, data, *rest))
        except Exception as error:
            raise PutManyError(
                f"record {len(accepted):,} was not accepted, those before it were: {error}",
                index=len(accepted),
                accepted=tuple(accepted),
            ) from error
        return accepted

    async def send(
        self,
        stream: str | StreamId,
        partition_key: str,
        data: bytes | bytearray | memoryview,
        explicit_hash_key: str | int | None = None,
    ) -> None:
        """`put` for those who want no future; see `Producer.send`.

        Raises:
            ProducerError: As `put`.
        """
        pipeline = self.producer._pipeline(stream)
        record, payload, hash_key = self.producer._record(
            pipeline, partition_key, data, explicit_hash_key, BlindRecord
        )
        await self._accept(self._here(), pipeline, record, payload, hash_key)

    async def flush(self, timeout: float | None = None) -> int:
        """Send what is buffered without waiting for deadlines, and wait for the results; see `Producer.flush`.

        Returns:
            How many records have no final result, or callbacks that have not run, after ``timeout`` seconds; 0 is
            success: all futures that `put` returned before are done.

        Raises:
            ProducerClosedError: The producer is closed.
        """
        side = self._here()
        done = side.loop.create_future()
        listener = functools.partial(side.tell, functools.partial(_set_none, done))
        epoch = self._engine.begin_flush(listener)
        try:
            await asyncio.wait([done], timeout=timeout)
        finally:
            self._engine.forget_listener(listener)
        return 0 if done.done() else self._engine.left(epoch)

    async def close(self, timeout: float | None = None) -> int:
        """Flush, then stop; see `Producer.close`. Cancelling it does not: a thread carries it through.

        Returns:
            As `Producer.close`; 0 is success.
        """
        side = self._here()
        return await side.loop.run_in_executor(None, self.producer.close, timeout)

    def stats(self) -> ProducerStats:
        """Counts since the start, over all streams."""
        return self.producer.stats()

    async def __aenter__(self) -> AsyncProducer:
        self._here()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncProducer holds threads and connections and can not be pickled")

    def _here(self) -> _LoopSide:
        """This loop's side.

        Raises:
            ProducerError: The producer belongs to another loop, which is not closed.
        """
        loop = asyncio.get_running_loop()
        side = self._side
        if side is None or (side.loop is not loop and side.loop.is_closed()):
            side = self._side = _LoopSide(loop)
        elif side.loop is not loop:
            raise ProducerError(
                "this AsyncProducer belongs to another event loop, which is still open; make one for each loop"
            )
        return side

    async def _accept(
        self, side: _LoopSide, pipeline: StreamPipeline, record: PendingRecord, data: bytes, hash_key: bytes
    ) -> None:
        """Hand the record to the engine as soon as there is room and everybody who came earlier is served."""
        accept = functools.partial(self._engine.try_accept, pipeline, record, data, hash_key)
        if not side.queue and accept():
            return
        timeout = self.config.put_timeout
        if timeout == 0:
            raise self._engine.full(timeout)
        deadline = None if timeout is None else side.loop.time() + timeout
        turn: asyncio.Future[None] = side.loop.create_future()
        side.queue.append(turn)
        try:
            while True:
                if side.queue[0] is turn and accept(side.on_room):
                    return
                left = None if deadline is None else deadline - side.loop.time()
                if left is not None and left <= 0:
                    raise self._engine.full(timeout)
                # Not wait_for: no task, no exception, and a cancellation passes through.
                await asyncio.wait([turn], timeout=left)
                if turn.done():  # only the first is ever told
                    side.queue[0] = turn = side.loop.create_future()
        finally:
            side.queue.remove(turn)
            if side.queue:
                side.wake_first()  # it was told by the one before, or it finds out itself that there is no room
            else:
                self._engine.forget_listener(side.on_room)


class _LoopSide:
    """What the producer has on one event loop.

    Attributes:
        loop: The loop.
        queue: Those who wait for room, in the order in which they came: each one's future is set when it should look.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.queue: deque[asyncio.Future[None]] = deque()
        # One object, so that the engine knows it again.
        self.on_room = functools.partial(self.tell, self.wake_first)
        self.results: deque[tuple[asyncio.Future[PutResult], PendingRecord]] = deque()
        self._delivering = False

    def wake_first(self) -> None:
        """On the loop: there may be room for the first in the queue."""
        if self.queue and not self.queue[0].done():
            self.queue[0].set_result(None)

    def tell(self, function: Any) -> None:
        """On any thread: run a function on the loop."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError as error:  # the loop is closed: nobody waits there any more
            _LOGGER.debug("an event loop was closed before its results came: %s", error)

    def notice(self) -> None:
        """On any thread: there are `results`. One message to the loop for all that come until it is heard."""
        # Whoever reads False after `_deliver` has set it tells the loop again; whoever reads True before is served
        # by that `_deliver`, which looks at the results only afterwards.
        if not self._delivering:
            self._delivering = True
            self.tell(self._deliver)

    def _deliver(self) -> None:
        """On the loop: set all results that have come."""
        self._delivering = False
        results = self.results
        while results:
            future, record = results.popleft()
            if future.done():  # cancelled, or resolved by the application itself
                continue
            error = record.exception()
            if error is None:
                future.set_result(record.result())
            else:
                future.set_exception(error)


def _relay(records: Iterable[PendingRecord]) -> None:
    """On a thread of the producer, for each group of final results: bring them to those who await them."""
    sides: set[_LoopSide] = set()
    for record in records:
        if record.awaited is not None:
            side, future = record.awaited
            side.results.append((future, record))
            sides.add(side)
    for side in sides:
        side.notice()


async def _each(records: Iterable[KeyedData] | AsyncIterable[KeyedData]) -> Any:
    if isinstance(records, AsyncIterable):
        async for item in records:
            yield item
        return
    for number, item in enumerate(records, 1):
        yield item
        if number % _BREATH == 0:
            await asyncio.sleep(0)


def _set_none(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
