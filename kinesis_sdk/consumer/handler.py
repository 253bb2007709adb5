"""What a user writes: a function of a batch, or a class with the KCL's callbacks."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.records import UserRecord
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
        pending_checkpoint_state: The application's bytes beside it.
    """

    stream: StreamId
    shard_id: str
    worker_id: str
    checkpoint: ExtendedSequenceNumber
    hash_key_range: HashKeyRange | None = None
    pending_checkpoint: ExtendedSequenceNumber | None = None
    pending_checkpoint_state: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class RecordBatch:
    """User records of one shard, in order; never empty.

    Attributes:
        records: The records.
        millis_behind_latest: Milliseconds between the batch's end and the tip of the shard.
        shard_id: The shard.
        stream: The stream.
        checkpointer: Stores positions.
    """

    records: list[UserRecord]
    millis_behind_latest: int
    shard_id: str
    stream: StreamId
    checkpointer: Checkpointer

    def checkpoint(self, record: UserRecord | None = None) -> None:
        """Store that everything up to ``record`` (None: the whole batch) is processed.

        Raises:
            InvalidCheckpointError, LeaseLostError, AwsError: See `Checkpointer.checkpoint`.
        """
        self.checkpointer.checkpoint(record)


class RecordHandler(ABC):
    """Callbacks for one shard. Subclass it; the worker makes one instance per shard and acquisition.

    Callbacks of one shard never overlap. This form checkpoints only where it says so.
    """

    def initialize(self, shard: ShardContext) -> None:  # noqa: B027 - optional, does nothing by default
        """Called once before the first batch."""

    @abstractmethod
    def process_records(self, batch: RecordBatch) -> None:
        """Called with each batch. An exception leads to the configured ``on_handler_error``."""

    def lease_lost(self) -> None:  # noqa: B027
        """Another worker continues with this shard; nothing can be checkpointed any more."""

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        """All records were delivered. Must checkpoint, or it is called again; the default does."""
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:  # noqa: B027
        """The worker stops cleanly: the last chance to checkpoint. The default does nothing."""


class FunctionHandler(RecordHandler):
    """A plain function as a handler."""

    def __init__(self, function: Callable[[RecordBatch], None]) -> None:
        self._function = function

    def process_records(self, batch: RecordBatch) -> None:
        """Call the function."""
        self._function(batch)


Handler = Callable[[RecordBatch], None] | type[RecordHandler] | Callable[[], RecordHandler]
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
            ConfigError: Neither; an instance (it can not serve several shards); a coroutine function.
        """
        accepted = "a function of a RecordBatch, a RecordHandler class or a factory of handlers"
        target = handler.func if isinstance(handler, functools.partial) else handler
        if isinstance(target, type) and issubclass(target, RecordHandler):
            return cls(_checked(handler), auto_checkpoint=False)
        if isinstance(handler, RecordHandler):
            raise ConfigError("handler", handler, f"{accepted}, not an instance: each shard needs its own")
        if not callable(handler):
            raise ConfigError("handler", handler, accepted)
        if inspect.iscoroutinefunction(target):
            raise ConfigError("handler", handler, f"{accepted}, not a coroutine function")
        function = cast(Callable[[RecordBatch], None], handler)
        try:
            signature = inspect.signature(handler)
        except (TypeError, ValueError):  # some builtins have none; those take arguments
            return cls(lambda: FunctionHandler(function), auto_checkpoint=True)
        if _binds(signature, object()):
            return cls(lambda: FunctionHandler(function), auto_checkpoint=True)
        if _binds(signature):
            return cls(_checked(handler), auto_checkpoint=False)
        raise ConfigError("handler", handler, accepted)


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
