"""Producer for asyncio: the same engine, without blocking the event loop.

    async with AsyncProducer(region_name="eu-west-1") as producer:
        result = await producer.put("orders", "customer-7", b"...")   # accepted: there was room
        stored = await result                                          # stored: where

Waiting needs no thread. If the buffer is full, `put` registers a callback, which the engine calls when there may be room.
Results arrive at the loop in groups, one group per PutRecords response, with one ``call_soon_threadsafe`` per group. The loop's thread
runs the same code as `Producer.put`, which takes a few microseconds.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections import deque
from collections.abc import AsyncIterable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from kinesis_sdk.common.aws import AwsSession, KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ProducerError, PutManyError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import Metrics
from kinesis_sdk.common.once.identity import DEFAULT_WINDOW
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.failures.hooks import FailedRecord, FailureHook
from kinesis_sdk.producer.interceptors import ProducerInterceptor
from kinesis_sdk.producer.producer import KeyedData, Payload, Producer, put_of
from kinesis_sdk.producer.records.future import BlindRecord, PendingRecord
from kinesis_sdk.producer.records.put import Put, PutOptions, put_with
from kinesis_sdk.producer.records.record import BufferedRecord, PutResult
from kinesis_sdk.producer.stats import ProducerStats
from kinesis_sdk.producer.stream.pipeline import StreamPipeline

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kinesis_sdk.producer.failures.spool import SpooledRecord

_LOGGER = FieldLogger(logging.getLogger(__name__))

_BREATH = 256
"""After this many records, about a millisecond, `put_many` lets other coroutines run."""


class AsyncProducer:
    """Puts user records into Kinesis streams from coroutines, with the guarantees of `Producer`.

    It is bound to the first event loop that uses it and, once that loop is closed, to the next one that does. An AWS Lambda function
    creates it once, outside its handler, and calls ``asyncio.run`` in each invocation, with ``await producer.flush()`` at
    the end.

    Args:
        config: Configuration; ``put_timeout`` is the maximum time that `put` waits for room. None uses the defaults.
        client: As for `Producer`.
        session: As for `Producer`.
        region_name: As for `Producer`.
        endpoint_url: As for `Producer`.
        on_send_error: Hook, see `Producer`; runs on a thread of the producer, not on the loop's thread.
        on_record_failed: Hook, see `Producer`; runs on a thread of the producer, not on the loop's thread.
        metrics: As for `Producer`.
        interceptors: See `Producer`; `on_put` and `on_accepted` run on the thread of the loop.
        clock: Monotonic and wall clock; replaced in tests.
        rng: Source of jitter; pass a seeded instance for reproducible runs.

    The constructor creates a boto3 client, which reads files and takes a few tenths of a second. Create the producer before the
    loop runs, or pass a ``client``.

    Attributes:
        producer: Underlying producer, for threads of the same program.
        config: Configuration of the producer.

    Raises:
        AwsConfigError: As for `Producer`.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        client: KinesisClient | None = None,
        session: AwsSession | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        on_send_error: FailureHook | None = None,
        on_record_failed: FailureHook | None = None,
        metrics: Metrics | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
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
            interceptors=interceptors,
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
        partition_key: str | None,
        data: Payload,
        explicit_hash_key: str | int | None = None,
        **options: Unpack[PutOptions],
    ) -> asyncio.Future[PutResult]:
        """Accept one record.

        It takes the arguments of `Producer.put`. While the buffer is full, the call waits for at most ``put_timeout``.

        Calls that wait for room are served in the order in which they were made. If the call raises an error or is cancelled, the record
        is not accepted.

        Returns:
            A future on the caller's event loop; awaiting it returns the `PutResult` or raises `RecordFailedError`. Cancelling it (as
            ``asyncio.wait_for`` does) does not cancel the record.

        Raises:
            InvalidRecordError: As `Producer.put`.
            SerializationError: As `Producer.put`.
            ConfigError: As `Producer.put`.
            BufferFullError: As `Producer.put`.
            ProducerClosedError: As `Producer.put`.
            ProducerError: If the producer is bound to another event loop that is still open.
        """
        pipeline = self.producer._pipeline(stream)
        if options or not self.producer._is_plain(pipeline):
            return await self._accept_put(put_with(stream, partition_key, data, explicit_hash_key, options))
        record, payload, hash_key = self.producer._record(pipeline, partition_key, data, explicit_hash_key)
        return await self._accept_awaited(self._here(), pipeline, record, payload, hash_key)

    async def put_again(self, record: FailedRecord | SpooledRecord) -> asyncio.Future[PutResult]:
        """Put a record that failed, as the same record if that is possible; see `Producer.put_again`.

        Returns:
            As `put`.

        Raises:
            InvalidRecordError: As `Producer.put_again`.
            BufferFullError: As `Producer.put`.
            ProducerError: As `put`.
        """
        side = self._here()
        return await self._accept_awaited(side, *self.producer._again(record))

    async def put_and_wait(
        self,
        stream: str | StreamId,
        partition_key: str | None,
        data: Payload,
        explicit_hash_key: str | int | None = None,
        **options: Unpack[PutOptions],
    ) -> PutResult:
        """Accept one record, and wait until it is stored.

        Returns:
            Shard and sequence number of the record, and its attempts.

        Raises:
            RecordFailedError: If the record failed permanently.
            ProducerError: As `put`.
        """
        return await (await self.put(stream, partition_key, data, explicit_hash_key, **options))

    async def put_many(
        self,
        stream: str | StreamId,
        records: Iterable[KeyedData] | AsyncIterable[KeyedData],
        *,
        dedup_window: float = DEFAULT_WINDOW,
    ) -> list[asyncio.Future[PutResult]]:
        """Accept many records of one stream, from an iterable or an asynchronous iterable.

        Other coroutines run after every 256 records, even if there is room for all.

        Returns:
            The futures, in the order of the records.

        Raises:
            PutManyError: If a record was not accepted. Earlier records were accepted, and the error contains their futures. Its
                cause is the error of `put` for that record, or of the iterable.
            ProducerError: As `put`.
        """
        accepted: list[asyncio.Future[PutResult]] = []
        try:
            async for item in _each(records):
                put = put_of(stream, item, dedup_window)
                accepted.append(await self._accept_put(put))
        except Exception as error:
            raise PutManyError(
                f"record {len(accepted):,} was not accepted (all before it were): {error}",
                index=len(accepted),
                accepted=tuple(accepted),
            ) from error
        return accepted

    async def send(
        self,
        stream: str | StreamId,
        partition_key: str | None,
        data: Payload,
        explicit_hash_key: str | int | None = None,
        **options: Unpack[PutOptions],
    ) -> None:
        """Accept one record without returning a future; see `Producer.send`.

        Raises:
            ProducerError: As `put`.
        """
        pipeline = self.producer._pipeline(stream)
        if options or not self.producer._is_plain(pipeline):
            put = put_with(stream, partition_key, data, explicit_hash_key, options)
            put, pipeline, record, payload, hash_key = await self._prepared(put, BlindRecord)
            await self._accept(self._here(), pipeline, record, payload, hash_key)
            self.producer._tell_accepted(put, record)
            return
        record, payload, hash_key = self.producer._record(
            pipeline, partition_key, data, explicit_hash_key, BlindRecord
        )
        await self._accept(self._here(), pipeline, record, payload, hash_key)

    async def flush(self, timeout: float | None = None) -> int:
        """Send all buffered records without waiting for their deadlines, and wait for the results; see `Producer.flush`.

        Args:
            timeout: Maximum seconds to wait; None waits indefinitely.

        Returns:
            Number of records that have no final result, or whose callbacks have not run, after the timeout. 0 means that
            all futures that `put` returned before are done.

        Raises:
            ProducerClosedError: If the producer is closed.
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
        """Flush, then stop; see `Producer.close`. A thread completes the close even if the coroutine is cancelled.

        Args:
            timeout: As for `Producer.close`.

        Returns:
            As `Producer.close`; 0 means success.
        """
        side = self._here()
        return await side.loop.run_in_executor(None, self.producer.close, timeout)

    def stats(self) -> ProducerStats:
        """Return the counts since the start, summed over all streams."""
        return self.producer.stats()

    async def __aenter__(self) -> AsyncProducer:
        self._here()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncProducer holds threads and connections and cannot be pickled")

    def _here(self) -> _LoopSide:
        """Return the `_LoopSide` of the running loop; raise `ProducerError` if the producer is bound to another open loop."""
        loop = asyncio.get_running_loop()
        side = self._side
        if side is None or (side.loop is not loop and side.loop.is_closed()):
            side = self._side = _LoopSide(loop)
        elif side.loop is not loop:
            raise ProducerError(
                "AsyncProducer is bound to another event loop that is still open; create one producer per loop"
            )
        return side

    async def _serialized(self, pipeline: StreamPipeline, value: Any) -> bytes:
        """Return the payload of a value, encoded on the thread of the loop unless the serializer would block it."""
        would_block = getattr(pipeline.serializer, "would_block", None)  # see `BlockingSerializer`
        if would_block is not None and would_block(pipeline.stream.name, value):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, self.producer._serialized, pipeline, value)
        return self.producer._serialized(pipeline, value)

    async def _accept_put(self, put: Put) -> asyncio.Future[PutResult]:
        side = self._here()
        put, pipeline, record, payload, hash_key = await self._prepared(put)
        future = await self._accept_awaited(side, pipeline, record, payload, hash_key)
        self.producer._tell_accepted(put, record)
        return future

    async def _prepared(
        self, put: Put, kind: type[PendingRecord] = PendingRecord
    ) -> tuple[Put, StreamPipeline, PendingRecord, bytes, bytes]:
        """Apply the interceptors to a record; return the arguments for the engine: pipeline, record, payload, hash key."""
        producer = self.producer
        put = producer._intercepted(put)
        pipeline = producer._pipeline(put.stream)
        data = put.data if pipeline.serializer is None else await self._serialized(pipeline, put.data)
        return put, pipeline, *producer._detailed(pipeline, put, data, kind)

    async def _accept_awaited(
        self, side: _LoopSide, pipeline: StreamPipeline, record: PendingRecord, data: bytes, hash_key: bytes
    ) -> asyncio.Future[PutResult]:
        """Accept a record, and return a future, on the caller's event loop, that is completed with its result."""
        future: asyncio.Future[PutResult] = side.loop.create_future()
        record.awaited = (side, future)
        await self._accept(side, pipeline, record, data, hash_key)
        return future

    async def _accept(
        self, side: _LoopSide, pipeline: StreamPipeline, record: PendingRecord, data: bytes, hash_key: bytes
    ) -> None:
        """Pass the record to the engine as soon as there is room, after all earlier calls."""
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
                # Not wait_for: this creates no task, raises nothing at the timeout, and propagates a cancellation.
                await asyncio.wait([turn], timeout=left)
                if turn.done():  # only the first in the queue is ever notified
                    side.queue[0] = turn = side.loop.create_future()
        finally:
            side.queue.remove(turn)
            if side.queue:
                side.wake_first()  # this call may have consumed the notification; without room, the next call waits again
            else:
                self._engine.forget_listener(side.on_room)


class _LoopSide:
    """State of the producer on one event loop.

    Attributes:
        queue: Calls that wait for room, in the order in which they were made. The future of a call is set when it should try again.
        results: Futures whose records have their final result; the loop must still complete them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.queue: deque[asyncio.Future[None]] = deque()
        # One object, because the engine identifies a listener by it.
        self.on_room = functools.partial(self.tell, self.wake_first)
        self.results: deque[tuple[asyncio.Future[PutResult], PendingRecord]] = deque()
        self._delivering = False

    def wake_first(self) -> None:
        """Wake the first call in the queue, because there may be room. Runs on the loop's thread."""
        if self.queue and not self.queue[0].done():
            self.queue[0].set_result(None)

    def tell(self, function: Any) -> None:
        """Run a function on the loop. May be called from any thread."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError as error:  # the loop is closed, so no coroutine waits
            _LOGGER.debug("event loop was closed before its results arrived: %s", error)

    def notice(self) -> None:
        """Make the loop deliver `results`; one message to the loop covers all results that are added until the loop processes it.

        May be called from any thread.
        """
        # No result is lost: a thread that reads False after `_deliver` has set it sends another message. A thread that reads
        # True before that has already appended its result, and `_deliver` reads the results only after setting False.
        if not self._delivering:
            self._delivering = True
            self.tell(self._deliver)

    def _deliver(self) -> None:
        """Complete the futures of all results. Runs on the loop's thread."""
        self._delivering = False
        results = self.results
        while results:
            future, record = results.popleft()
            if future.done():  # cancelled, or completed by the application itself
                continue
            error = record.exception()
            if error is None:
                future.set_result(record.result())
            else:
                future.set_exception(error)


def _relay(records: Iterable[BufferedRecord]) -> None:
    """Pass a group of final results to the loops that await them. Runs on a thread of the producer."""
    sides: set[_LoopSide] = set()
    for record in records:
        if record.awaited is not None:
            side, future = record.awaited
            side.results.append((future, cast("PendingRecord", record)))
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
