"""Handler that calls the user's handler inside of the interceptors."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence

from kinesis_sdk.common.error_policy import DeadLetterHook, PoisonRecord
from kinesis_sdk.common.interceptors import Around, ConsumerInterceptor
from kinesis_sdk.consumer.checkpointer import Checkpointer
from kinesis_sdk.consumer.handler import (
    CallbackResult,
    RecordBatch,
    RecordHandler,
    ShardContext,
    StartingPosition,
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
        """Pass on."""
        return self._inner.starting_position(shard)

    def initialize(self, shard: ShardContext) -> CallbackResult:
        """Pass on."""
        return self._inner.initialize(shard)

    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Process a batch inside of the interceptors."""
        if self._inner._is_coroutine():
            return self._process_on_loop(batch)
        with Around(self._interceptors, batch) as seen:
            result = self._inner.process_records(seen)
            if inspect.isawaitable(result):
                # This is known only now. The interceptors were entered on this thread and must be left on it, so this thread
                # waits.
                self._wait_for(result)
        return None

    def _set_aside(self, poison: PoisonRecord, hook: DeadLetterHook) -> Awaitable[object] | object:
        """Pass on."""
        return self._inner._set_aside(poison, hook)

    async def _process_on_loop(self, batch: RecordBatch) -> None:
        with Around(self._interceptors, batch) as seen:
            result = self._inner.process_records(seen)
            if inspect.isawaitable(result):
                await result

    def lease_lost(self) -> CallbackResult:
        """Pass on."""
        return self._inner.lease_lost()

    def shard_ended(self, checkpointer: Checkpointer) -> CallbackResult:
        """Pass on."""
        return self._inner.shard_ended(checkpointer)

    def shutdown_requested(self, checkpointer: Checkpointer) -> CallbackResult:
        """Pass on."""
        return self._inner.shutdown_requested(checkpointer)
