"""The handler that stands between a worker and the user's handler if there is a sink."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from kinesis_sdk.common.errors import ConfigError, SinkError
from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.handler import (
    CallbackResult,
    RecordBatch,
    RecordHandler,
    ShardContext,
    StartingPosition,
)
from kinesis_sdk.consumer.sinks.shard_sink import ShardSink, finished
from kinesis_sdk.consumer.sinks.sink import AnyTransaction, Sink

_T = TypeVar("_T")


async def _to_the_end(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Await a commit or a rollback as a task of its own: one that were cancelled halfway would leave the row in doubt.

    If the caller is cancelled meanwhile, it is told after the end.
    """
    task = asyncio.ensure_future(coroutine)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it; the next `begin` reads the row
        raise


async def _in_thread(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a method of `ShardSink` whose sink blocks on another thread, to its end."""
    return await _to_the_end(asyncio.to_thread(finished, coroutine))


class SinkHandler(RecordHandler):
    """Calls the user's handler in a transaction of the sink, and commits it together with the position.

    Args:
        inner: The user's handler.
        shard: The shard's row in the sink.
        concurrency: ``ConsumerConfig.concurrency``.

    Raises:
        ConfigError: If several keys of a shard would be processed at once: a shard has one position in the sink.
    """

    def __init__(self, inner: RecordHandler, shard: ShardSink, *, concurrency: int) -> None:
        wanted = inner.concurrency or concurrency
        if wanted > 1:
            raise ConfigError(
                "concurrency", wanted, "1 with a sink: a shard has one position and one transaction"
            )
        self.empty_batches: bool = inner.empty_batches
        self._inner = inner
        self._shard = shard

    def starting_position(
        self, shard: ShardContext
    ) -> StartingPosition | Awaitable[StartingPosition | None] | None:
        """Claim the shard in the sink and return its position; before the first, ask the user's handler."""
        if self._shard.is_async:
            return self._claimed(shard)
        row = finished(self._shard.claim())
        return self._inner.starting_position(shard) if row.position is None else row.position

    async def _claimed(self, shard: ShardContext) -> StartingPosition | None:
        row = await self._shard.claim()
        if row.position is not None:
            return row.position
        answer = self._inner.starting_position(shard)
        return await answer if inspect.isawaitable(answer) else answer

    def initialize(self, shard: ShardContext) -> CallbackResult:
        """Pass on."""
        return self._inner.initialize(shard)

    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Process the records that are not in the sink yet, in one transaction: a batch is as small as the sink needs."""
        return self._process_on_loop(batch) if self._shard.is_async else self._process(batch)

    # A sink without coroutines. If the handler is a coroutine function, the end of the transaction has a thread of its own, so that it
    # does not block the event loop.

    def _is_coroutine(self) -> bool:
        return (
            self._shard.is_async
        )  # a sink without coroutines begins its transaction before the handler is known to be one

    def _process(self, batch: RecordBatch) -> CallbackResult:
        transaction = finished(self._shard.begin())
        try:
            records = self._missing(batch.records)
            if not records and batch.records:
                finished(self._shard.rollback(transaction))  # a commit whose answer was lost did take effect
                return None
            last = position_of(records[-1]) if records else None
            result = self._inner.process_records(
                replace(batch, records=records, transaction=transaction.handle)
            )
            if inspect.isawaitable(result) and not cast("Sink", self._shard.sink).serves_coroutines:
                if inspect.iscoroutine(result):
                    result.close()
                raise SinkError(
                    f"{type(self._shard.sink).__name__} cannot serve a coroutine: a statement that waits for another shard would "
                    "block the event loop, on which that shard has to continue. Use AsyncSqlSink, or a plain function"
                )
        except BaseException as error:
            finished(self._shard.rollback(transaction))
            self._fail(error)
            raise
        if inspect.isawaitable(result):
            return self._finish(result, transaction, last)
        finished(self._shard.commit(transaction, last))
        return None

    async def _finish(
        self, result: Awaitable[None], transaction: AnyTransaction, last: ExtendedSequenceNumber | None
    ) -> None:
        try:
            await result
        except BaseException as error:
            await _in_thread(self._shard.rollback(transaction))
            self._fail(error)
            raise
        await _in_thread(self._shard.commit(transaction, last))

    # A sink with coroutines

    async def _process_on_loop(self, batch: RecordBatch) -> None:
        transaction = await self._shard.begin()
        try:
            records = self._missing(batch.records)
            last = position_of(records[-1]) if records else None
            if records or not batch.records:  # otherwise a commit whose answer was lost did take effect
                result = self._inner.process_records(
                    replace(batch, records=records, transaction=transaction.handle)
                )
                if not inspect.isawaitable(result):
                    raise SinkError(
                        f"{type(self._shard.sink).__name__} needs a coroutine function as handler, and this one returned "
                        f"{type(result).__name__}: use `async def`, or a sink without coroutines, for example SqlSink"
                    )
                await result
        except BaseException as error:
            await _to_the_end(self._shard.rollback(transaction))
            self._fail(error)
            raise
        if records or not batch.records:
            await _to_the_end(self._shard.commit(transaction, last))
        else:
            await _to_the_end(self._shard.rollback(transaction))

    def _fail(self, error: BaseException) -> None:
        """Raise the sink's own error in place of one that the store raised in the handler."""
        translated = self._shard.sink.translate(error)
        if translated is not error:
            raise translated from error

    def _missing(self, records: Sequence[UserRecord]) -> Sequence[UserRecord]:
        position = self._shard.row.position
        if position is None or not records or position_of(records[0]) > position:
            return records
        return [record for record in records if position_of(record) > position]

    def lease_lost(self) -> CallbackResult:
        """Pass on."""
        return self._inner.lease_lost()

    def shard_ended(self, checkpointer: Checkpointer) -> CallbackResult:
        """Store the end of the shard in the sink, then let the user's handler finish the lease."""
        if self._shard.is_async:
            return self._end(checkpointer)
        if not self._shard.row.ended:
            finished(self._shard.commit(finished(self._shard.begin()), ended=True))
        return self._inner.shard_ended(checkpointer)

    async def _end(self, checkpointer: Checkpointer) -> None:
        if not self._shard.row.ended:
            await _to_the_end(self._shard.commit(await self._shard.begin(), ended=True))
        result = self._inner.shard_ended(checkpointer)
        if inspect.isawaitable(result):
            await result

    def shutdown_requested(self, checkpointer: Checkpointer) -> CallbackResult:
        """Pass on."""
        return self._inner.shutdown_requested(checkpointer)

    def committed(self) -> ExtendedSequenceNumber | None:
        """Return the position that a checkpoint of the lease must not pass; None before the first commit."""
        return self._shard.row.position
