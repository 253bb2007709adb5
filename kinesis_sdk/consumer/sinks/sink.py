"""The interface of sinks: stores in which the effects of records and the position of their shard change together.

A sink has one row for each shard that an application consumes (`SinkRow`). Changes are compare-and-set on the whole row, so only
one of two workers that read the same row can change it. `InMemorySink` is the reference, `kinesis_sdk.testing.contracts.sinks`
tests a sink, and DESIGN.md describes how position, fence and lease work together.
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
        fence: Number of the acquisition that may commit; each acquisition of the shard has a higher number.
        ended: Whether the effects of all records of the shard are in the sink.
    """

    position: ExtendedSequenceNumber | None = None
    fence: int = 0
    ended: bool = False


class SinkTransaction(Protocol):
    """One transaction. Used by one thread at a time, and ended by `commit` or `rollback`.

    Attributes:
        handle: Object that the handler gets as ``RecordBatch.transaction``, to which it writes its effects.
    """

    handle: Any

    def commit(self, row: SinkRow) -> bool:
        """Make the effects durable and change the row, atomically. The transaction is over, even after an error.

        Args:
            row: The new row.

        Returns:
            False if the row has changed since the transaction began; then no data is stored.

        Raises:
            KinesisSdkError: If the call failed. The call may have taken effect, unless the sink documents otherwise.
        """
        ...

    def rollback(self) -> None:
        """Discard the effects. Never raises: the store discards a transaction whose connection is lost."""
        ...


class Sink(Protocol):
    """A store of effects and positions. Implementations are thread-safe.

    **Errors.** A method raises `TransientSinkError` for failures that are usually temporary (a timeout, a lost connection, a deadlock).
    The worker retries after such failures with backoff, and never stops because of them. `SinkError` means that a retry
    cannot succeed, and stops the worker. Any other exception counts as a bug in the sink.

    Attributes:
        max_records: Maximum user records of a transaction, and therefore of a call of the handler; None for no limit. The smaller value
            of ``max_records`` and ``ConsumerConfig.batch_records`` counts.
        serves_coroutines: Whether a handler may be a coroutine function. False if a write to a transaction may wait for another
            transaction: it would block the event loop, on which the other transaction has to continue.
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
        """Create missing tables or objects, and wait until they are usable.

        Called once at the start of every worker, so it must tolerate another worker that does the same at the same time.

        Raises:
            SinkError: If the sink cannot be used; the worker does not start.
        """
        ...

    def read(self, key: SinkKey) -> SinkRow | None:
        """Return a row with every change that completed before the call; None if there is no row."""
        ...

    def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """Change or create a row without effects, if the current row is ``seen``.

        Args:
            key: Key of the row.
            seen: The row that was read; None if there was none.
            row: The new row.

        Returns:
            False if the current row differs from ``seen``; then no row is changed.
        """
        ...

    def begin(self, key: SinkKey, seen: SinkRow) -> SinkTransaction | None:
        """Begin a transaction.

        Args:
            key: Key of the row that the transaction changes.
            seen: The row that the commit requires.

        Returns:
            None if the row already differs from ``seen``. A sink may leave this check to the commit.
        """
        ...

    def translate(self, error: BaseException) -> BaseException:
        """Return an exception that a handler raised, or a `TransientSinkError` instead of it.

        The handler uses the sink's connection, so it also raises failures of the store that are usually temporary.
        """
        ...


class AsyncSinkTransaction(Protocol):
    """`SinkTransaction` with coroutines. Used by one task at a time.

    Attributes:
        handle: See `SinkTransaction`.
    """

    handle: Any

    async def commit(self, row: SinkRow) -> bool:
        """As `SinkTransaction.commit`. The commit is not cancelled: an immediate stop waits for its end."""
        ...

    async def rollback(self) -> None:
        """As `SinkTransaction.rollback`."""
        ...


class AsyncSink(Protocol):
    """`Sink` with coroutines, for handlers that are coroutine functions: no method blocks the event loop.

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
    """Optional methods of a `Sink` for deleting the rows of finished shards, which otherwise stay forever.

    The worker deletes a row when its shard has no lease and the stream has not listed the shard for half an hour. Then the shard's records
    have expired, and the shard cannot be listed again. See `PositionCleanup`. `SinkError` does not stop the worker
    here. In an `AsyncSink`, both methods are coroutines.
    """

    def lease_keys(self, application: str, stream: str) -> Any:
        """Return the lease keys of all rows of an application and a stream, in any order.

        Rows that are created or deleted at the same time may be included.
        """
        ...

    def delete_ended(self, key: SinkKey) -> Any:
        """Delete a row if it is `SinkRow.ended`.

        Returns:
            Whether the row existed and was ended.
        """
        ...


AnySink: TypeAlias = Sink | AsyncSink
"""A sink in a form that `Worker` accepts."""

AnyTransaction: TypeAlias = SinkTransaction | AsyncSinkTransaction
"""A transaction of either kind."""


def is_async(sink: AnySink) -> bool:
    """Return whether a sink is an `AsyncSink`."""
    return inspect.iscoroutinefunction(sink.read)
