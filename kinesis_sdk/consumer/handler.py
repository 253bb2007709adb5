"""What a user writes: a function of a batch, or a class with the KCL's callbacks; plain or ``async def``.

**Coroutines.** A function or any callback of a class may be ``async def``. All coroutines of a worker run on one
event-loop thread, so that a thousand shards may await at the same time without a thousand threads; what does not
await blocks all of them, and belongs into a plain function. The order is the same as for plain callbacks: one
callback of a shard at a time (or one per partition key, with ``concurrency``), the next batch after the
coroutine has returned.

**Cancellation.** A running coroutine is not cancelled by a lost lease, nor by a clean stop: both wait for its end,
as they wait for a plain callback. Only a worker that stops at once (a second signal, ``stop(timeout)`` when the
timeout is over) cancels what still runs, and checkpoints nothing any more. A coroutine that ends cancelled for a
reason of its own has failed like any other.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.response_header import NO_RESPONSE, ResponseHeader
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.checkpointer import Checkpointer


@dataclass(frozen=True, kw_only=True)
class ShardContext:
    """What a handler learns when it begins a shard.

    Attributes:
        stream: The stream.
        shard_id: The shard.
        worker_id: This worker.
        checkpoint: Position after which it starts, or the sentinel at which it starts.
        hash_key_range: Range of the shard, where the lease has it.
        pending_checkpoint: Position of a two-phase checkpoint that was prepared and not finished.
        pending_checkpoint_state: The application's bytes beside it; left out of ``repr``.
    """

    stream: StreamId
    shard_id: str
    worker_id: str
    checkpoint: ExtendedSequenceNumber
    hash_key_range: HashKeyRange | None = None
    pending_checkpoint: ExtendedSequenceNumber | None = None
    pending_checkpoint_state: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class RecordBatch:
    """User records of one shard, in order; never empty.

    Attributes:
        records: The records; with ``concurrency``, all of one partition key. Usually no list: a record is made
            when it is looked at, see `UserRecords`.
        shard_id: The shard.
        stream: The stream.
        checkpointer: Stores positions.
        header: Header of the response that the records came in; several batches share it if a response is delivered in
            parts.
    """

    records: Sequence[UserRecord]
    shard_id: str
    stream: StreamId
    checkpointer: Checkpointer
    header: ResponseHeader = NO_RESPONSE

    @property
    def millis_behind_latest(self) -> int | None:
        """Milliseconds from the last record of the response to the tip of the shard; None if Kinesis reports no lag."""
        return self.header.millis_behind_latest

    def checkpoint(
        self, position: UserRecord | str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Store that everything up to a position (None: the whole batch) is processed.

        With ``concurrency``, None stands for the low watermark: everything before the oldest record that is
        still in some callback's hands, this one's included.

        Raises:
            InvalidCheckpointError, LeaseLostError, AwsError: See `Checkpointer.checkpoint`.
        """
        self.checkpointer.checkpoint(position, sub_sequence_number)


CallbackResult = Awaitable[None] | None
"""What a callback returns: nothing, or a coroutine that is then awaited on the worker's event loop."""


class RecordHandler(ABC):
    """Callbacks for one shard. Subclass it; the worker makes one instance per shard and acquisition.

    Callbacks of one shard never overlap, but for ``process_records`` with a ``concurrency`` above 1. This form
    checkpoints only where it says so, unless ``ConsumerConfig.auto_checkpoint`` is true. Each callback may be
    ``async def``; see the module about how those run.

    Attributes:
        concurrency: Partition keys of one shard that may be processed at the same time; None takes the
            configuration's. Above 1, ``process_records`` gets records of one key only, in order, and is called
            from several threads at once for different keys.
    """

    concurrency: ClassVar[int | None] = None

    def initialize(self, shard: ShardContext) -> CallbackResult:  # noqa: B027 - optional, does nothing
        """Called once before the first batch."""

    @abstractmethod
    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Called with each batch. An exception leads to the configured ``on_handler_error``."""

    def lease_lost(self) -> CallbackResult:  # noqa: B027
        """Another worker continues with this shard; nothing can be checkpointed any more."""

    def shard_ended(self, checkpointer: Checkpointer) -> CallbackResult:
        """All records were delivered. Must checkpoint, or it is called again; the default does."""
        checkpointer.checkpoint()
        return None

    def shutdown_requested(self, checkpointer: Checkpointer) -> CallbackResult:  # noqa: B027
        """The worker stops cleanly: the last chance to checkpoint. The default does nothing."""


class FunctionHandler(RecordHandler):
    """A function as a handler, plain or a coroutine function."""

    def __init__(self, function: Callable[[RecordBatch], CallbackResult]) -> None:
        self._function = function

    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Call the function; a result that can not be awaited is ignored."""
        return self._function(batch)


class AwaitingHandler(RecordHandler):
    """A handler whose rare callbacks are awaited before they return; ``process_records`` is left to `Delivery`.

    Args:
        inner: The user's handler.
        wait_for: Runs an awaitable on the event loop and returns when it has ended.
        monotonic: Time.

    Attributes:
        running: Name of the rare callback under way, and since when; None if there is none.
    """

    def __init__(
        self,
        inner: RecordHandler,
        wait_for: Callable[[Awaitable[None]], None],
        monotonic: Callable[[], float],
    ) -> None:
        self.inner = inner
        self.running: tuple[str, float] | None = None
        self._wait_for = wait_for
        self._monotonic = monotonic

    def initialize(self, shard: ShardContext) -> None:
        """Call and await."""
        self._call("initialize", lambda: self.inner.initialize(shard))

    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Call; what it returns may have to be awaited."""
        return self.inner.process_records(batch)

    def lease_lost(self) -> None:
        """Call and await."""
        self._call("lease_lost", self.inner.lease_lost)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """Call and await."""
        self._call("shard_ended", lambda: self.inner.shard_ended(checkpointer))

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """Call and await."""
        self._call("shutdown_requested", lambda: self.inner.shutdown_requested(checkpointer))

    def _call(self, name: str, callback: Callable[[], CallbackResult]) -> None:
        self.running = (name, self._monotonic())
        try:
            result = callback()
            if inspect.isawaitable(result):
                self._wait_for(result)
        finally:
            self.running = None


Handler = Callable[[RecordBatch], CallbackResult] | type[RecordHandler] | Callable[[], RecordHandler]
"""What `Worker` accepts."""


@dataclass(frozen=True)
class HandlerSource:
    """Makes a handler per shard.

    Attributes:
        make: Makes one.
        auto_checkpoint: Whether returning means processed (plain functions).
    """

    make: Callable[[], RecordHandler]
    auto_checkpoint: bool

    @classmethod
    def of(cls, handler: Handler) -> HandlerSource:
        """Tell a function of a batch from a handler class or factory.

        A callable that can be called without arguments and not with one is a factory.

        Raises:
            ConfigError: Neither; an instance (it can not serve several shards); a generator function, whose
                body would never run.
        """
        accepted = "a function of a RecordBatch, a RecordHandler class or a factory of handlers"
        target = handler.func if isinstance(handler, functools.partial) else handler
        if isinstance(target, type) and issubclass(target, RecordHandler):
            if _is_generator(target.process_records):
                raise ConfigError(
                    "handler", handler, "process_records that is no generator: it would never run"
                )
            return cls(_checked(handler), auto_checkpoint=False)
        if isinstance(handler, RecordHandler):
            raise ConfigError("handler", handler, f"{accepted}, not an instance: each shard needs its own")
        if not callable(handler):
            raise ConfigError("handler", handler, accepted)
        if _is_generator(target) or _is_generator(getattr(target, "__call__", None)):  # noqa: B004
            raise ConfigError("handler", handler, f"{accepted}, not a generator: its body would never run")
        function = cast(Callable[[RecordBatch], CallbackResult], handler)
        try:
            signature = inspect.signature(handler)
        except (TypeError, ValueError):  # some builtins have none; those take arguments
            return cls(lambda: FunctionHandler(function), auto_checkpoint=True)
        if _binds(signature, object()):
            return cls(lambda: FunctionHandler(function), auto_checkpoint=True)
        if _binds(signature):
            return cls(_checked(handler), auto_checkpoint=False)
        raise ConfigError("handler", handler, accepted)


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _binds(signature: inspect.Signature, *arguments: object) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _checked(factory: Callable[..., Any]) -> Callable[[], RecordHandler]:
    def make() -> RecordHandler:
        made = factory()
        if not isinstance(made, RecordHandler):
            raise ConfigError("handler", made, "a factory that returns RecordHandler instances")
        return made

    return make
