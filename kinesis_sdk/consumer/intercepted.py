"""Runs the calls of the user's handler, and the writes of checkpoints, inside the interceptors."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from kinesis_sdk.common.error_policy import DeadLetterHook, PoisonRecord
from kinesis_sdk.common.interceptors import Around, ConsumerInterceptor
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import CountingLogThrottle
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.handler import (
    CallbackResult,
    RecordBatch,
    RecordHandler,
    ShardContext,
    StartingPosition,
)

_LOGGER = FieldLogger(logging.getLogger(__name__))


class AroundCheckpoints:
    """Returns a context manager for each checkpoint of a shard, which enters all interceptors. Errors of interceptors are logged."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor], stream: StreamId, shard_id: str) -> None:
        self._interceptors = interceptors
        self._stream = stream
        self._shard_id = shard_id
        self._errors = CountingLogThrottle(_LOGGER, logging.ERROR)

    @contextmanager
    def __call__(self, position: ExtendedSequenceNumber) -> Iterator[None]:
        """Enter the interceptors for a position."""
        stack = ExitStack()
        for one in self._interceptors:
            try:
                stack.enter_context(one.on_checkpoint(self._stream, self._shard_id, position))
            except Exception as error:  # noqa: BLE001 - no checkpoint depends on it
                self._failed(error)
        try:
            yield
        finally:
            try:
                # The result is ignored: an error must not be suppressed.
                stack.__exit__(*sys.exc_info())
            except Exception as error:  # noqa: BLE001 - the checkpoint is stored, or has an error of its own
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._errors.log(
            "on_checkpoint raised (%d times so far); the checkpoint does not depend on it", error=error
        )


class InterceptedHandler(RecordHandler):
    """Calls a handler, including its sink, inside of at least one interceptor.

    ``wait_for`` runs an awaitable on the event loop and returns when it has ended.
    """

    def __init__(
        self,
        inner: RecordHandler,
        interceptors: Sequence[ConsumerInterceptor],
        wait_for: Callable[[Awaitable[None]], None],
    ) -> None:
        self.concurrency: int | None = inner.concurrency  # type: ignore[misc]  # a class variable of handlers
        self.empty_batches: bool = inner.empty_batches
        self._inner = inner
        self._interceptors = interceptors
        self._wait_for = wait_for

    def starting_position(
        self, shard: ShardContext
    ) -> StartingPosition | Awaitable[StartingPosition | None] | None:
        """Pass the call on to the handler."""
        return self._inner.starting_position(shard)

    def initialize(self, shard: ShardContext) -> CallbackResult:
        """Pass the call on to the handler."""
        return self._inner.initialize(shard)

    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Process a batch inside of the interceptors."""
        if self._inner._is_coroutine():
            return self._process_on_loop(batch)
        with Around(self._interceptors, batch) as seen:
            result = self._inner.process_records(seen)
            if inspect.isawaitable(result):
                # Only the result shows that it is awaitable. The interceptors must be left on the thread that entered
                # them, so wait.
                self._wait_for(result)
        return None

    def _set_aside(self, poison: PoisonRecord, hook: DeadLetterHook) -> Awaitable[object] | object:
        """Pass the call on to the handler."""
        return self._inner._set_aside(poison, hook)

    async def _process_on_loop(self, batch: RecordBatch) -> None:
        with Around(self._interceptors, batch) as seen:
            result = self._inner.process_records(seen)
            if inspect.isawaitable(result):
                await result

    def lease_lost(self) -> CallbackResult:
        """Pass the call on to the handler."""
        return self._inner.lease_lost()

    def shard_ended(self, checkpointer: Checkpointer) -> CallbackResult:
        """Pass the call on to the handler."""
        return self._inner.shard_ended(checkpointer)

    def shutdown_requested(self, checkpointer: Checkpointer) -> CallbackResult:
        """Pass the call on to the handler."""
        return self._inner.shutdown_requested(checkpointer)
