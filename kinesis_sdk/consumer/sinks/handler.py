"""Handler that runs the user's handler in transactions of a sink."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from kinesis_sdk.common.error_policy import DeadLetterHook, PoisonRecord
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
from kinesis_sdk.consumer.sinks.sink import Sink

_T = TypeVar("_T")


async def _to_the_end(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Await a commit or a rollback in a task of its own, and only then pass on a cancellation of the caller."""
    # A commit that is cancelled halfway would leave the state of the row unknown.
    task = asyncio.ensure_future(coroutine)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieve it, so that asyncio does not report it; the next `begin` reads the row
        raise


class _Call(NamedTuple):
    """Step of a flow: a call of the sink."""

    coroutine: Coroutine[Any, Any, Any]


class _End(NamedTuple):
    """Step of a flow: a commit or a rollback, which runs to its end."""

    coroutine: Coroutine[Any, Any, Any]


class _Wait(NamedTuple):
    """Step of a flow: an awaitable that the user's callback returned."""

    awaitable: Awaitable[Any]


_Flow: TypeAlias = Generator["_Call | _End | _Wait", Any, _T]
"""Steps of a callback, written once for both kinds of sinks and handlers. `SinkHandler` runs each step as the kind requires, and
sends back the result or the error."""


class SinkHandler(RecordHandler):
    """Calls the user's handler in a transaction of the sink, and commits it together with the position.

    A ``concurrency`` above 1 raises `ConfigError`, because a shard has one position in the sink.
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
        """Claim the shard in the sink and return its position; if it has none, ask the user's handler."""
        return self._run(self._start(shard))

    def _start(self, shard: ShardContext) -> _Flow[StartingPosition | None]:
        row = yield _Call(self._shard.claim())
        if row.position is not None:
            return cast("StartingPosition", row.position)
        answer = self._inner.starting_position(shard)
        if inspect.isawaitable(answer):
            answer = yield _Wait(answer)
        return cast("StartingPosition | None", answer)

    def initialize(self, shard: ShardContext) -> CallbackResult:
        """Pass the call on to the handler."""
        return self._inner.initialize(shard)

    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Process the records that are not yet in the sink in one transaction."""
        return cast("CallbackResult", self._run(self._process(batch)))

    def _is_coroutine(self) -> bool:
        # A sink without coroutines begins its transaction before it is known whether the handler is a coroutine function.
        return self._shard.is_async

    def _process(self, batch: RecordBatch) -> _Flow[object]:
        def work(records: Sequence[UserRecord], handle: Any) -> _Flow[object]:
            result = self._inner.process_records(replace(batch, records=records, transaction=handle))
            self._check_kind(result)
            if inspect.isawaitable(result):
                yield _Wait(result)
            return None

        return self._in_transaction(batch.records, work)

    def _set_aside(self, poison: PoisonRecord, hook: DeadLetterHook) -> Awaitable[object] | object:
        """Pass a record to a hook in a transaction that moves the position past it."""

        def work(_records: Sequence[UserRecord], handle: Any) -> _Flow[object]:
            given = replace(poison, transaction=handle)
            if self._shard.is_async:  # a plain hook may block, and the event loop must not
                result = yield _Wait(asyncio.to_thread(hook, given))
            else:
                result = hook(given)
            return (yield _Wait(result)) if inspect.isawaitable(result) else result

        return self._run(self._in_transaction([poison.record], work))

    def _in_transaction(
        self, given: Sequence[UserRecord], work: Callable[[Sequence[UserRecord], Any], _Flow[object]]
    ) -> _Flow[object]:
        """Do the work for the given records that are not yet in the sink, and store the position of the last record.

        Returns the result of the work; None if a commit whose response was lost has stored all records.
        """
        transaction, result = (yield _Call(self._shard.begin())), None
        try:
            records = self._missing(given)
            last = position_of(records[-1]) if records else None
            is_stored = not records and bool(given)  # a commit took effect although its response was lost
            if not is_stored:
                result = yield from work(records, transaction.handle)
        except BaseException as error:
            yield _End(self._shard.rollback(transaction))
            self._fail(error)
            raise
        yield _End(self._shard.rollback(transaction) if is_stored else self._shard.commit(transaction, last))
        return result

    def _check_kind(self, result: CallbackResult) -> None:
        """Reject a coroutine that the sink cannot serve, and a plain function with a sink that needs a coroutine."""
        sink = self._shard.sink
        if self._shard.is_async and not inspect.isawaitable(result):
            raise SinkError(
                f"{type(sink).__name__} needs a coroutine function as handler, and this one returned "
                f"{type(result).__name__}: use `async def`, or a sink without coroutines, for example SqlSink"
            )
        if (
            not self._shard.is_async
            and inspect.isawaitable(result)
            and not cast("Sink", sink).serves_coroutines
        ):
            if inspect.iscoroutine(result):
                result.close()
            raise SinkError(
                f"{type(sink).__name__} cannot serve a coroutine: a statement that waits for another shard would "
                "block the event loop, on which that shard has to continue. Use AsyncSqlSink, or a plain function"
            )

    def shard_ended(self, checkpointer: Checkpointer) -> CallbackResult:
        """Store the end of the shard in the sink, then let the user's handler finish the lease."""
        return self._run(self._end(checkpointer))

    def _end(self, checkpointer: Checkpointer) -> _Flow[None]:
        if not self._shard.row.ended:
            transaction = yield _Call(self._shard.begin())
            yield _End(self._shard.commit(transaction, ended=True))
        result = self._inner.shard_ended(checkpointer)
        if inspect.isawaitable(result):
            yield _Wait(result)

    def _run(self, flow: _Flow[_T]) -> _T | Coroutine[Any, Any, _T]:
        """Run a flow on this thread and return its result, or a coroutine for the rest of the flow.

        The rest begins with the user's first awaitable. With an `AsyncSink`, the rest is the whole flow.
        """
        if self._shard.is_async:
            return self._continue(flow)
        try:
            step = next(flow)
            while not isinstance(step, _Wait):
                try:
                    result = finished(step.coroutine)
                except BaseException as error:  # noqa: BLE001 - the flow decides
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as ended:
            return cast("_T", ended.value)
        return self._continue(flow, step)

    async def _continue(self, flow: _Flow[_T], step: _Call | _End | _Wait | None = None) -> _T:
        """Run the rest of a flow from a step on. None begins the flow on the event loop, because the handler runs in it."""
        try:
            step = next(flow) if step is None else step
            while True:
                try:
                    result = await self._await(step)
                except BaseException as error:  # noqa: BLE001 - the flow decides
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as ended:
            return cast("_T", ended.value)

    async def _await(self, step: _Call | _End | _Wait) -> Any:
        if isinstance(step, _Wait):
            return await step.awaitable
        if not self._shard.is_async:
            # The call would block the event loop.
            return await _to_the_end(asyncio.to_thread(finished, step.coroutine))
        return await (_to_the_end(step.coroutine) if isinstance(step, _End) else step.coroutine)

    def _fail(self, error: BaseException) -> None:
        """Raise the sink's own error instead of an error that the store raised in the handler."""
        translated = self._shard.sink.translate(error)
        if translated is not error:
            raise translated from error

    def _missing(self, records: Sequence[UserRecord]) -> Sequence[UserRecord]:
        position = self._shard.row.position
        if position is None or not records or position_of(records[0]) > position:
            return records
        return [record for record in records if position_of(record) > position]

    def lease_lost(self) -> CallbackResult:
        """Pass the call on to the handler."""
        return self._inner.lease_lost()

    def shutdown_requested(self, checkpointer: Checkpointer) -> CallbackResult:
        """Pass the call on to the handler."""
        return self._inner.shutdown_requested(checkpointer)

    def committed(self) -> ExtendedSequenceNumber | None:
        """Return the position that a checkpoint of the lease must not pass; None before the first commit."""
        return self._shard.row.position
