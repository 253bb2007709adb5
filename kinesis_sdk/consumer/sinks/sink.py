"""The interface of sinks: stores in which the effects of records and the position of their shard change together.

A sink has one row for each shard that an application consumes (`SinkRow`). It is changed by compare-and-set on the whole row, so
of two workers that read the same row, one can change it. `InMemorySink` is the reference, `kinesis_sdk.testing.contracts.sinks` tests a sink
against all of this, and DESIGN.md describes how position, fence and lease work together.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from kinesis_sdk.common.sequence import ExtendedSequenceNumber


class SinkKey(NamedTuple):
    """Key of a row: one shard of one application.

    Attributes:
        application: Name of the application; several applications may share a sink.
        stream: Name of the stream.
        lease_key: Key of the shard's lease, see `Lease.lease_key`.
    """

    application: str
    stream: str
    lease_key: str


@dataclass(frozen=True)
class SinkRow:
    """Row of one shard in a sink.

    Attributes:
        position: Last user record whose effects are in the sink; None before the first.
        fence: Number of the acquisition that may commit; each acquisition of the shard has a higher one.
        ended: Whether the effects of all records of the shard are in the sink.
    """

    position: ExtendedSequenceNumber | None = None
    fence: int = 0
    ended: bool = False


class SinkTransaction(Protocol):
    """One transaction. Used by one thread at a time, and ended by `commit` or `rollback`.

    Attributes:
        handle: What the handler gets as ``RecordBatch.transaction``, and writes its effects to.
    """

    handle: Any

    def commit(self, row: SinkRow) -> bool:
        """Make the effects durable and change the row, or do neither. The transaction is over, also after an error.

        Args:
            row: The new row.

        Returns:
            False if the row is no longer the one that the transaction began with; nothing is stored then.

        Raises:
            KinesisSdkError: If the call failed. It may have taken effect, unless the sink knows better.
        """
        ...

    def rollback(self) -> None:
        """Discard the effects. Raises nothing: a transaction whose connection is lost is discarded by the store."""
        ...


class Sink(Protocol):
    """A store of effects and positions. Implementations are thread-safe.

    **Errors.** A method raises `TransientSinkError` for what usually passes (a timeout, a lost connection, a deadlock): the
    worker repeats it with backoff, and never stops because of it. `SinkError` says that repeating cannot succeed, and stops
    the worker. Any other exception counts as a bug in the sink.

    Attributes:
        max_records: Maximum user records of a transaction, and so of a call of the handler. None leaves it to
            ``ConsumerConfig.batch_records``; the smaller one of both counts.
        serves_coroutines: Whether a handler may be a coroutine function. False if what it writes to a transaction may wait for
            another transaction: waiting would block the event loop, on which the other one has to continue.
    """

    @property
    def max_records(self) -> int | None:
        """See above."""
        ...

    @property
    def serves_coroutines(self) -> bool:
        """See above."""
        ...

    def ensure_ready(self) -> None:
        """Create what is missing, and wait until it can be used.

        Called once at the start of every worker, so it must tolerate another worker that does the same meanwhile.

        Raises:
            SinkError: If the sink cannot be used; the worker does not start.
        """
        ...

    def read(self, key: SinkKey) -> SinkRow | None:
        """Return a row; every change that completed before the call is visible. None if there is none."""
        ...

    def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """Change or create a row without effects, on the condition that it is as in ``seen``.

        Args:
            key: Its key.
            seen: The row as read; None if there was none.
            row: The new row.

        Returns:
            False if it is not as seen; nothing is changed then.
        """
        ...

    def begin(self, key: SinkKey, seen: SinkRow) -> SinkTransaction | None:
        """Begin a transaction.

        Args:
            key: Key of the row that it changes.
            seen: The row as it must be at the commit.

        Returns:
            None if the row is not as seen already now. A sink that finds this out only at the commit keeps the contract, too.
        """
        ...

    def translate(self, error: BaseException) -> BaseException:
        """Return an exception that a handler raised, or a `TransientSinkError` in its place.

        A handler works on the sink's connection, so failures of the store that usually pass reach the worker through it.
        """
        ...


class AsyncSinkTransaction(Protocol):
    """`SinkTransaction` with coroutines. Used by one task at a time.

    Attributes:
        handle: What the handler gets as ``RecordBatch.transaction``, and writes its effects to.
    """

    handle: Any

    async def commit(self, row: SinkRow) -> bool:
        """As `SinkTransaction.commit`. It is not cancelled: an immediate stop waits for its end."""
        ...

    async def rollback(self) -> None:
        """As `SinkTransaction.rollback`."""
        ...


class AsyncSink(Protocol):
    """`Sink` with coroutines, for handlers that are coroutine functions: nothing in it blocks the event loop.

    All of its methods run on the event loop of the worker, so a sink belongs to one worker.

    Attributes:
        max_records: See `Sink`.
    """

    @property
    def max_records(self) -> int | None:
        """See above."""
        ...

    async def ensure_ready(self) -> None:
        """As `Sink.ensure_ready`."""
        ...

    async def read(self, key: SinkKey) -> SinkRow | None:
        """As `Sink.read`."""
        ...

    async def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """As `Sink.write`."""
        ...

    async def begin(self, key: SinkKey, seen: SinkRow) -> AsyncSinkTransaction | None:
        """As `Sink.begin`."""
        ...

    def translate(self, error: BaseException) -> BaseException:
        """As `Sink.translate`."""
        ...


@runtime_checkable
class DeletesRows(Protocol):
    """Optional methods of a `Sink`, with which rows of finished shards are deleted. Otherwise they stay for ever.

    The worker deletes a row when its shard has no lease, and the stream has not listed it for half an hour: then its records
    are gone from the stream, and nothing can bring it back. See `PositionCleanup`. `SinkError` stops no worker here.
    An `AsyncSink` has both methods as coroutines.
    """

    def lease_keys(self, application: str, stream: str) -> Any:
        """Return the lease keys of all rows of an application and a stream, in any order.

        Rows that are created or deleted meanwhile may be in it or not.
        """
        ...

    def delete_ended(self, key: SinkKey) -> Any:
        """Delete a row, on the condition that it is `SinkRow.ended`.

        Returns:
            Whether there was such a row.
        """
        ...


AnySink: TypeAlias = Sink | AsyncSink
"""A sink as `Worker` accepts it."""

AnyTransaction: TypeAlias = SinkTransaction | AsyncSinkTransaction
"""A transaction of either kind."""


def is_async(sink: AnySink) -> bool:
    """Return whether a sink is an `AsyncSink`."""
    return inspect.iscoroutinefunction(sink.read)
