"""`Acknowledging`: a handler that gives single records to a function, and never checkpoints past an unacknowledged record."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import cast

from kinesis_sdk.acknowledgement.gaps import MAX_UNACKNOWLEDGED, GapMap
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, SinkError, UnacknowledgedError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int, check_seconds
from kinesis_sdk.consumer import Checkpointer, RecordBatch, RecordHandler, ShardContext

_LOGGER = FieldLogger(logging.getLogger(__name__))


class ReceivedRecord:
    """A record that the function gets, and acknowledges when its work is done.

    Attributes:
        record: The record.
        shard_id: Its shard.
        stream: Its stream.
    """

    __slots__ = ("_acknowledge", "record", "shard_id", "stream")

    def __init__(
        self, record: UserRecord, shard_id: str, stream: StreamId, acknowledge: Callable[[UserRecord], None]
    ) -> None:
        self.record: UserRecord = record
        self.shard_id: str = shard_id
        self.stream: StreamId = stream
        self._acknowledge = acknowledge

    def ack(self) -> None:
        """Acknowledge the record: once the acknowledgement is stored, the record is not delivered again.

        May be called from any thread, in any order, at any time. A second call, or a call after the lease was lost, has no effect. It
        makes no call to AWS.
        """
        self._acknowledge(self.record)

    def __repr__(self) -> str:
        return f"<ReceivedRecord {self.record!r} of shard {self.shard_id}>"


class Acknowledging:
    """Handler for `Worker`: calls a function with each record, and lets it acknowledge records in any order.

    ```python
    def handle(received):
        pool.submit(work, received)          # work ends with received.ack()

    Worker("orders", application_name="billing", handler=Acknowledging(handle)).run()
    ```

    The checkpoint never passes an unacknowledged record. Acknowledgements of later records are stored with the checkpoint, in one write.
    After a restart, only unacknowledged records are delivered again; after a crash, records that were acknowledged in the last
    ``store_interval`` are also delivered again. If the function raises, its error goes to ``on_handler_error``, and the record is
    delivered again.

    Args:
        function: Called with a `ReceivedRecord`, in the order of the shard. A coroutine function is awaited on the worker's event loop
            before the next record is given to it, so it should start a task for long work.
        max_unacknowledged: Number of unacknowledged records at which reading the shard pauses, 1 to 2,000 (default 1,000). The handler
            then counts as failing with `UnacknowledgedError`, which every view shows; the shard resumes within 30 s after records are
            acknowledged.
        store_interval: Seconds between two writes of acknowledgements of a shard, 0.1 to 3600 (default 1). They are also written when the
            lease is released.
        clock: Monotonic clock; replaced in tests.

    The handler cannot be combined with a sink: the worker stops with `SinkError`. ``concurrency`` has no effect.

    Raises:
        ConfigError: If ``function`` is not a function, or a number is out of range.
    """

    def __init__(
        self,
        function: Callable[[ReceivedRecord], object],
        *,
        max_unacknowledged: int = 1_000,
        store_interval: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        if not callable(function):
            raise ConfigError("function", function, "a function of a ReceivedRecord")
        check_int("max_unacknowledged", max_unacknowledged, 1, MAX_UNACKNOWLEDGED)
        check_seconds("store_interval", store_interval, 0.1, 3600)
        self._function = function
        self._most = max_unacknowledged
        self._interval = store_interval
        self._clock = clock or SystemClock()
        called = getattr(function, "__call__", None)  # noqa: B004 - of an object
        is_coroutine = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self._kind: type[_FunctionHandler | _CoroutineHandler] = (
            _CoroutineHandler if is_coroutine else _FunctionHandler
        )

    def __call__(self) -> RecordHandler:
        """Return the handler of one shard."""
        shard = _Acknowledgements(GapMap(self._most), self._interval, self._clock)
        return self._kind(self._function, shard)


class _Acknowledgements:
    """Acknowledgements of one shard, and their checkpoints."""

    def __init__(self, gaps: GapMap, interval: float, clock: Clock) -> None:
        self._gaps = gaps
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._stored_at = clock.monotonic()
        self._begun = False
        self._limited: Checkpointer | None = None

    def restore(self, shard: ShardContext) -> None:
        """Continue with the acknowledgements of the earlier owner."""
        if self._begun:
            return  # the shard was restarted under the same lease: the records that the function holds are known
        self._begun = True
        state = shard.pending_checkpoint_state
        if state is None:
            return
        try:
            fits = self._gaps.restore(state, shard.checkpoint)
        except ValueError as error:
            _LOGGER.warning(
                "shard %s: the stored acknowledgements cannot be read (%s); records after the checkpoint are delivered again",
                shard.shard_id,
                error,
            )
        else:
            if not fits:
                _LOGGER.info(
                    "shard %s: the stored acknowledgements belong to another checkpoint; records after the current one are delivered again",
                    shard.shard_id,
                )

    def begin(self, batch: RecordBatch) -> None:
        """Note the progress that a batch shows for earlier records."""
        if batch.transaction is not RecordBatch.transaction:
            # The sink commits the position of the whole batch, and the next owner would begin after records without an acknowledgement.
            raise SinkError("Acknowledging cannot be combined with a sink: use one of the two")
        if self._limited is not batch.checkpointer:
            # With ``auto_checkpoint=True``, the worker would checkpoint all records that this call got.
            batch.checkpointer.limit_to(self._watermark)
            self._limited = batch.checkpointer
        if batch.records:
            with self._lock:
                self._gaps.pass_over(position_of(batch.records[0]), itself=False)
        else:
            self._pass_delivered(batch.checkpointer)

    def receive(self, batch: RecordBatch, record: UserRecord) -> ReceivedRecord | None:
        """Return the object that the function gets for a record; None if the record is acknowledged, or if the function still holds it."""
        position = position_of(record)
        with self._lock:
            if not self._gaps.has_room(position):
                self._fail(batch.shard_id)
            wanted = self._gaps.receive(position)
        return ReceivedRecord(record, batch.shard_id, batch.stream, self._acknowledge) if wanted else None

    def give_back(self, record: UserRecord) -> None:
        """Note that the function raised, so that the record is delivered again."""
        with self._lock:
            self._gaps.give_back(position_of(record))

    def _watermark(self) -> ExtendedSequenceNumber | None:
        with self._lock:
            return self._gaps.watermark

    def _acknowledge(self, record: UserRecord) -> None:
        with self._lock:
            self._gaps.acknowledge(position_of(record))

    def leave(self, checkpointer: Checkpointer) -> None:
        """Store the acknowledgements before the lease is released."""
        self._pass_delivered(checkpointer)
        self.store(checkpointer)

    def end(self, checkpointer: Checkpointer) -> None:
        """End the shard once every record is acknowledged."""
        self._pass_delivered(checkpointer)
        with self._lock:
            unacknowledged = self._gaps.unacknowledged
        if not unacknowledged:
            checkpointer.checkpoint()
            return
        self.store(checkpointer)
        self._fail(checkpointer.shard_id)

    def _pass_delivered(self, checkpointer: Checkpointer) -> None:
        """Note that no call is running, so the worker has finished every record up to the last delivered one."""
        if checkpointer.delivered is not None:
            with self._lock:
                self._gaps.pass_over(checkpointer.delivered, itself=True)

    def _fail(self, shard_id: str) -> None:
        raise UnacknowledgedError(
            f"shard {shard_id}: {self._gaps.unacknowledged:,} records are not acknowledged, the oldest is {self._gaps.oldest}"
        )

    @property
    def is_due(self) -> bool:
        """Whether to store now."""
        return self._clock.monotonic() - self._stored_at >= self._interval

    def store(self, checkpointer: Checkpointer) -> None:
        """Store the watermark and the gaps after it, in one write; nothing if nothing has changed."""
        self._stored_at = self._clock.monotonic()
        largest = checkpointer.largest_delivered  # takes the lock itself, for the watermark
        with self._lock:
            if not self._gaps.changed:
                return
            self._gaps.changed = False
            base, watermark = checkpointer.last_checkpoint, self._gaps.watermark
            if watermark is not None:
                # After a failed call, the next call may get fewer records, and the checkpoint must not pass the last of them. The state has
                # the records between this checkpoint and the watermark.
                base = max(base, min(watermark, largest))
            is_told = self._gaps.is_complete and (watermark is None or watermark == base)
            state = None if is_told else self._gaps.to_state(base)
        try:
            checkpointer.checkpoint_with_state(base, state)
        except BaseException:
            with self._lock:
                self._gaps.changed = True
            raise


class _FunctionHandler(RecordHandler):
    """Handler of one shard for a plain function."""

    concurrency = 1  # acknowledgements have no order anyway
    empty_batches = True  # a quiet shard stores its acknowledgements, too

    def __init__(self, function: Callable[[ReceivedRecord], object], shard: _Acknowledgements) -> None:
        self._function = function
        self._shard = shard

    def initialize(self, shard: ShardContext) -> None:
        """Continue with the acknowledgements of the earlier owner."""
        self._shard.restore(shard)

    def process_records(self, batch: RecordBatch) -> None:
        """Give each record to the function."""
        shard = self._shard
        shard.begin(batch)
        self._store_if_due(batch.checkpointer)
        for record in batch.records:
            received = shard.receive(batch, record)
            if received is None:
                continue
            try:
                self._function(received)
            except BaseException:
                shard.give_back(record)
                raise
            self._store_if_due(batch.checkpointer)

    def _store_if_due(self, checkpointer: Checkpointer) -> None:
        if self._shard.is_due:
            self._shard.store(checkpointer)

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Store the acknowledgements."""
        self._shard.leave(checkpointer)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """End the shard once every record is acknowledged."""
        self._shard.end(checkpointer)


class _CoroutineHandler(RecordHandler):
    """Handler of one shard for a coroutine function."""

    concurrency = 1  # acknowledgements have no order anyway
    empty_batches = True  # a quiet shard stores its acknowledgements, too

    def __init__(self, function: Callable[[ReceivedRecord], object], shard: _Acknowledgements) -> None:
        self._function = function
        self._shard = shard

    def initialize(self, shard: ShardContext) -> None:
        """Continue with the acknowledgements of the earlier owner."""
        self._shard.restore(shard)

    async def process_records(self, batch: RecordBatch) -> None:
        """Give each record to the function, one after another."""
        shard = self._shard
        shard.begin(batch)
        await self._store_if_due(batch.checkpointer)
        for record in batch.records:
            received = shard.receive(batch, record)
            if received is None:
                continue
            try:
                await cast("Awaitable[object]", self._function(received))
            except BaseException:
                shard.give_back(record)
                raise
            await self._store_if_due(batch.checkpointer)

    async def _store_if_due(self, checkpointer: Checkpointer) -> None:
        if self._shard.is_due:
            await asyncio.to_thread(self._shard.store, checkpointer)  # a call of the lease store blocks

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Store the acknowledgements."""
        self._shard.leave(checkpointer)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """End the shard once every record is acknowledged."""
        self._shard.end(checkpointer)
