"""Handlers: a function of a batch, or a class with the callbacks of the KCL; plain or ``async def``.

**Coroutines.** A function, or any callback of a class, may be ``async def``. All coroutines of a worker run on one event
loop thread, so a thousand shards can await concurrently without a thousand threads. Code that blocks instead of awaiting blocks all
shards, so it belongs in a plain function. The order of calls is the same as for plain callbacks: one callback of a shard at
a time (or one per partition key, with ``concurrency``), and the next batch only after the coroutine has returned.

**Cancellation.** Neither a lost lease nor a clean stop cancels a running coroutine: both wait for its end, as they wait for
a plain callback. Only an immediate stop (a second signal, or the timeout of ``stop(timeout)``) cancels running coroutines, and no
checkpoint is made after it. A coroutine that is cancelled for another reason counts as failed.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, cast

from kinesis_sdk.common.change_records import ChangeRecord
from kinesis_sdk.common.error_policy import DeadLetterHook, PoisonRecord
from kinesis_sdk.common.errors import ConfigError, ConsumerError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.interceptors import ConsumerInterceptor, checked_interceptors
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.response_header import NO_RESPONSE, ResponseHeader
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.checkpointer import Checkpointer


@dataclass(frozen=True, kw_only=True)
class ShardContext:
    """Information about a shard, as passed to `RecordHandler.starting_position` and `RecordHandler.initialize`.

    Attributes:
        stream: The stream.
        shard_id: Id of the shard.
        worker_id: Id of this worker in the lease table.
        checkpoint: Checkpoint of the lease: the last processed position, or the sentinel at which the lease starts.
        hash_key_range: Hash key range of the shard; None if the lease has none.
        pending_checkpoint: Position of a two-phase checkpoint whose second half is missing; None if there is none.
        pending_checkpoint_state: State that the application stored with this position; not part of ``repr``.
    """

    stream: StreamId
    shard_id: str
    worker_id: str
    checkpoint: ExtendedSequenceNumber
    hash_key_range: HashKeyRange | None = None
    pending_checkpoint: ExtendedSequenceNumber | None = None
    pending_checkpoint_state: bytes | None = field(default=None, repr=False)


class _NoTransaction:
    """Replaces the transaction if the worker has no sink."""

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConsumerError(
            f"batch.transaction.{name}: the worker has no sink. Give it one: Worker(…, sink='sqlite:///totals.db')"
        )

    def __repr__(self) -> str:
        return "<no transaction: the worker has no sink>"


_NO_TRANSACTION = _NoTransaction()


@dataclass(frozen=True, kw_only=True)
class RecordBatch:
    """User records of one shard, in order; never empty, unless ``RecordHandler.empty_batches`` is set.

    Attributes:
        records: The records; with ``concurrency``, all with the same partition key. Usually not a list: a record is created
            when it is accessed, see `UserRecords`.
        shard_id: Id of the shard.
        stream: The stream.
        checkpointer: Stores checkpoints of the shard.
        header: Header of the response that contained the records. Several batches share it if a response is delivered in
            parts, so `ResponseHeader.ended` does not mean that this batch is the shard's last batch.
        transaction: With ``Worker(sink=…)``, the open transaction of the sink. Writes to this transaction take effect
            together with the position of the batch when the handler returns, and not at all if it raises. The type
            depends on the sink: for `SqlSink`, it is a `sqlalchemy.Connection`. Without a sink, ``transaction`` is false,
            and using it raises `ConsumerError`.
    """

    records: Sequence[UserRecord]
    shard_id: str
    stream: StreamId
    checkpointer: Checkpointer
    header: ResponseHeader = NO_RESPONSE
    transaction: Any = _NO_TRANSACTION

    @property
    def millis_behind_latest(self) -> int | None:
        """Milliseconds from the last record of the response to the tip of the shard; None if Kinesis reports no lag."""
        return self.header.millis_behind_latest

    @property
    def changes(self) -> Sequence[ChangeRecord]:
        """The records as changes of items, for a worker that reads a `DynamoDbStream`. The same objects as ``records``.

        Raises:
            ConsumerError: If the worker reads a Kinesis stream.
        """
        if not self.stream.is_of_table:
            raise ConsumerError(
                f"stream {self.stream} is not the stream of a DynamoDB table: use batch.records"
            )
        return cast("Sequence[ChangeRecord]", self.records)

    def checkpoint(
        self, position: UserRecord | str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Store that all records up to a position, inclusive, are processed.

        Args:
            position: A delivered record, or its sequence number; None means the whole batch. With ``concurrency``, None means the low
                watermark: everything before the oldest record that is still in a call of the handler. The records of this batch are still
                in a call.
            sub_sequence_number: Index inside an aggregate, for a sequence number; None means 0.

        Raises:
            InvalidCheckpointError, LeaseLostError, AwsError: See `Checkpointer.checkpoint`.
        """
        self.checkpointer.checkpoint(position, sub_sequence_number)


CallbackResult = Awaitable[None] | None
"""Result of a callback: None, or a coroutine that is then awaited on the event loop of the worker."""

StartingPosition = ExtendedSequenceNumber | str | datetime
"""Position that a handler may start at, see `RecordHandler.starting_position`."""


class RecordHandler(ABC):
    """Callbacks for one shard. Subclass it; the worker creates one instance per shard and acquisition of its lease.

    Callbacks of one shard never overlap, except ``process_records`` with a ``concurrency`` above 1. The handler makes all
    checkpoints itself, unless ``ConsumerConfig.auto_checkpoint`` is True. Each callback may be ``async def``; the module's documentation
    describes how coroutines run.

    Attributes:
        concurrency: Partition keys of one shard that may be processed concurrently; None uses
            ``ConsumerConfig.concurrency``. Above 1, ``process_records`` gets records of a single key, in order, and is
            called from several threads at once for different keys.
        empty_batches: Whether ``process_records`` is also called for responses without records, at the tip of the shard
            about once per ``idle_time_between_reads``; not with a ``concurrency`` above 1.
    """

    concurrency: ClassVar[int | None] = None
    empty_batches: bool = False

    def starting_position(
        self,
        shard: ShardContext,  # noqa: ARG002
    ) -> StartingPosition | Awaitable[StartingPosition | None] | None:
        """Called before ``initialize`` at each acquisition of the shard; returns the position at which to start reading.

        This is for applications that keep their own positions, for example in the same transaction as their results. The default
        returns None: reading starts at the lease's checkpoint.

        A position replaces the lease's checkpoint for this acquisition, without changing the lease table. Records before the
        lease's checkpoint are redelivered. Records between the lease's checkpoint and a later position are skipped (logged at
        INFO). Checkpoints never decrease: while records before the lease's checkpoint are redelivered, ``checkpoint()`` without
        arguments writes nothing, and an explicit position raises `InvalidCheckpointError`.

        If the position is malformed or does not exist in the shard, the shard is quarantined: its lease is kept, it is not
        consumed, and this method is called again at every check. An exception is subject to ``on_handler_error``.

        Args:
            shard: The shard and the lease's checkpoint.

        Returns:
            One of:

            * None: the lease's checkpoint.
            * An `ExtendedSequenceNumber`: the last processed user record. Delivery starts with the next user record, even if
                it is in the same aggregate.
            * A decimal sequence number: the same position with sub-sequence number 0, as in ``checkpoint``. Only the first user record
                of an aggregate counts as processed.
            * ``"TRIM_HORIZON"``: the oldest record.
            * ``"LATEST"``: the tip of the shard. If this application read a parent of the shard to its end, LATEST means the beginning, so that resharding loses no record. LATEST is pinned in the lease only if the lease also starts at LATEST. Otherwise LATEST is the tip at each acquisition, and records that arrive while no worker reads the shard are skipped.
            * A `datetime` with a time zone: the first record that arrived at that time or later.
        """
        return None

    def initialize(self, shard: ShardContext) -> CallbackResult:  # noqa: B027 - optional, does nothing
        """Called once before the first batch of the shard."""

    def _set_aside(self, poison: PoisonRecord, hook: DeadLetterHook) -> Awaitable[object] | object:
        """Pass a record to a hook instead of ``process_records``; return the hook's result."""
        return hook(poison)

    def _is_coroutine(self) -> bool:
        """Return whether ``process_records`` is known to return a coroutine that has not begun to run."""
        return inspect.iscoroutinefunction(self.process_records)

    @abstractmethod
    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Called with each batch. An exception is subject to ``ConsumerConfig.on_handler_error``."""

    def lease_lost(self) -> CallbackResult:  # noqa: B027
        """Called when another worker continues with this shard. A checkpoint raises `LeaseLostError` from now on."""

    def shard_ended(self, checkpointer: Checkpointer) -> CallbackResult:
        """Called after the last record of the shard was delivered. This callback must checkpoint; the default does.

        If it raises or returns without a checkpoint, it is called again: only this checkpoint finishes the lease.
        """
        checkpointer.checkpoint()
        return None

    def shutdown_requested(self, checkpointer: Checkpointer) -> CallbackResult:  # noqa: B027
        """Called when the worker stops or hands off the lease; this is the last chance to checkpoint. The default does nothing."""


class FunctionHandler(RecordHandler):
    """Handler that calls a plain function or a coroutine function."""

    def __init__(self, function: Callable[[RecordBatch], CallbackResult]) -> None:
        self._function = function

    def process_records(self, batch: RecordBatch) -> CallbackResult:
        """Call the function; a result that cannot be awaited is ignored."""
        return self._function(batch)

    def _is_coroutine(self) -> bool:
        called = getattr(self._function, "__call__", None)  # noqa: B004 - of an object
        return inspect.iscoroutinefunction(self._function) or inspect.iscoroutinefunction(called)


class AwaitingHandler:
    """Calls and awaits the callbacks of the user's handler (`inner`), except ``process_records``, which `Delivery` calls.

    `running` is the name of the running callback and the monotonic time at which it began; None if no callback is running.
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

    def starting_position(self, shard: ShardContext) -> StartingPosition | None:
        """Call, await and return the result."""
        results: list[StartingPosition | None] = []

        async def keep(awaitable: Awaitable[StartingPosition | None]) -> None:
            results.append(await awaitable)

        self.running = ("starting_position", self._monotonic())
        try:
            result = self.inner.starting_position(shard)
            if not inspect.isawaitable(result):
                return result
            try:
                self._wait_for(keep(result))
            finally:
                if inspect.iscoroutine(result):
                    result.close()  # if `keep` could not start, Python would warn that it was never awaited
            return results[0]
        finally:
            self.running = None

    def initialize(self, shard: ShardContext) -> None:
        """Call and await."""
        self._call("initialize", lambda: self.inner.initialize(shard))

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
"""A handler in a form that `Worker` accepts: a function of a batch, a `RecordHandler` class, or a factory of handlers."""


@dataclass(frozen=True)
class HandlerSource:
    """Source of the handlers of a worker, one per shard and acquisition.

    `auto_checkpoint` is true for functions: the worker checkpoints, because a function that returns has processed its batch.
    """

    make: Callable[[], RecordHandler]
    auto_checkpoint: bool
    interceptors: Sequence[ConsumerInterceptor] = ()

    @classmethod
    def of(cls, handler: Handler, interceptors: Sequence[ConsumerInterceptor] = ()) -> HandlerSource:
        """Distinguish a function of a batch from a handler class or factory; raise `ConfigError` for anything else.

        A callable that can be called without an argument but not with one is a factory.
        """
        return replace(cls._of(handler), interceptors=checked_interceptors(interceptors))

    @classmethod
    def _of(cls, handler: Handler) -> HandlerSource:
        accepted = "a function of a RecordBatch, a RecordHandler class or a factory of handlers"
        target = handler.func if isinstance(handler, functools.partial) else handler
        if isinstance(target, type) and issubclass(target, RecordHandler):
            if _is_generator(target.process_records):
                raise ConfigError(
                    "handler",
                    handler,
                    "`process_records` as a plain or async function, not a generator (its body would never run)",
                )
            return cls(_checked(handler), auto_checkpoint=False)
        if isinstance(handler, RecordHandler):
            raise ConfigError("handler", handler, f"{accepted}, not an instance: each shard needs its own")
        if not callable(handler):
            raise ConfigError("handler", handler, accepted)
        if _is_generator(target) or _is_generator(getattr(target, "__call__", None)):  # noqa: B004
            raise ConfigError("handler", handler, f"{accepted}, not a generator (its body would never run)")
        function = cast(Callable[[RecordBatch], CallbackResult], handler)
        try:
            signature = inspect.signature(handler)
        except (TypeError, ValueError):  # some builtins have no signature; they take arguments
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
