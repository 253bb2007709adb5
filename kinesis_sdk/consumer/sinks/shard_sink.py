"""One acquisition of a shard and its row in the sink: the claim, the commits, and the recovery from their failures.

The methods are coroutines, so that they serve both kinds of sinks. With a `Sink`, no method ever waits for an event loop, and
`finished` runs them on the caller's thread.

```
 claim ──► (position, fence of this acquisition) ──► commit: position' ──► … ──► commit: ended
   │                  │
   │                  └─ the row is not as this acquisition left it ──► the lease counts as lost
   └─ the fence is not below the lease counter ──► renew the lease: lost, or the lease table went back
```
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar, cast

from kinesis_sdk.common.errors import LeaseLostError, TransientSinkError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.table.attributes import CHANGED_BY
from kinesis_sdk.consumer.sinks.sink import AnySink, AnyTransaction, SinkKey, SinkRow, is_async

_LOGGER = FieldLogger(logging.getLogger(__name__))

_T = TypeVar("_T")

_CLAIMS = 5
"""Attempts of a claim before the shard pauses. If two workers claim a shard at the same time, one worker detects that it has lost the
lease."""


async def _result(value: Awaitable[_T] | _T) -> _T:
    """Return the result of a method of either kind of sink."""
    return await value if inspect.isawaitable(value) else value


def finished(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return cast("_T", ended.value)
    coroutine.close()
    raise RuntimeError("a sink whose `read` is a plain method has another one that is a coroutine")


class ShardSink:
    """The row of one shard for one acquisition of its lease. Used by one thread or task at a time.

    `row` is the row after this acquisition's last write; an empty row before `claim`.
    """

    def __init__(
        self,
        sink: AnySink,
        key: SinkKey,
        held: HeldLease,
        *,
        log: Callable[[FieldLogger, str], FieldLogger] = lambda logger, _shard_id: logger,
    ) -> None:
        self.sink = sink
        self.is_async: bool = is_async(sink)
        self.row: SinkRow = SinkRow()
        self._key = key
        self._held = held
        self._logger = log(_LOGGER, held.shard_id)
        # Rows of commits whose outcome is unknown. Each of these commits may still take effect until a later commit
        # succeeds.
        self._uncertain: list[SinkRow] = []

    async def claim(self) -> SinkRow:
        """Put the fence of this acquisition into the row, so that no earlier acquisition can commit; return the row.

        After an error other than `LeaseLostError`, another call is safe.
        """
        for _ in range(_CLAIMS):
            seen = await _result(self.sink.read(self._key))
            fence = self._held.lease.counter
            # The fence is the lease counter, which only rises. So if the row's fence is not below the counter, a later
            # acquisition has claimed the row, or the counter went back: the lease table was deleted, restored or
            # replaced. A renewal distinguishes these cases. The renewal succeeds only for the owner, and is sent after
            # the row was read, so the acquisition that wrote the row is over.
            if seen is not None and seen.fence >= fence:
                if self.is_async:
                    await asyncio.to_thread(self._held.renew)  # a call of the lease store blocks
                else:
                    self._held.renew()
                fence = self._held.lease.counter
                if seen.fence >= fence:
                    self._logger.warning(
                        "shard %s: the sink was claimed at lease counter %d, and the counter is %d now: the lease table was "
                        "replaced or set back. The sink's position decides",
                        self._held.shard_id,
                        seen.fence,
                        fence,
                    )
                    fence = seen.fence + 1
            row = SinkRow(fence=fence) if seen is None else replace(seen, fence=fence)
            if await _result(self.sink.write(self._key, seen, row)):
                self.row = row
                self._uncertain.clear()
                self._explain(row.position)
                return row
        raise TransientSinkError(
            f"shard {self._held.shard_id}: its row in the sink changed during {_CLAIMS} claims"
        )

    def _explain(self, position: ExtendedSequenceNumber | None) -> None:
        """Log a difference between the sink and the lease that a lagging checkpoint does not explain."""
        lease = self._held.lease
        checkpoint, operator = lease.checkpoint, lease.extra.get(CHANGED_BY)
        shard_id = self._held.shard_id
        if position is None:
            if not checkpoint.is_sentinel:
                self._logger.warning(
                    "shard %s: the sink has no position, so processing starts after the lease checkpoint %s. If the sink lost "
                    "its data, set the lease back to where its data ends",
                    shard_id,
                    checkpoint,
                )
        elif checkpoint > position:
            self._logger.warning(
                "shard %s: the lease checkpoint %s is beyond the sink's position %s; the sink decides, so the records in "
                "between are processed. Was the sink restored, or the lease moved forward?",
                shard_id,
                checkpoint,
                position,
            )
        elif operator is not None and checkpoint < position:
            self._logger.warning(
                "shard %s: an operator (%s) set the lease to %s; the sink decides, so processing continues after %s. To process "
                "records again, change the sink's position and its effects together",
                shard_id,
                printable(str(operator.get("S", operator))),
                checkpoint,
                position,
            )

    async def begin(self) -> AnyTransaction:
        """Begin a transaction. Raise `LeaseLostError` if another acquisition has changed the row."""
        if self._uncertain:
            await self._reconcile()
        transaction = await _result(cast("AnyTransaction | None", self.sink.begin(self._key, self.row)))
        if transaction is None:
            await self._reconcile()
            raise TransientSinkError(
                f"shard {self._held.shard_id}: its row in the sink changed and changed back"
            )
        return transaction

    async def commit(
        self,
        transaction: AnyTransaction,
        position: ExtendedSequenceNumber | None = None,
        *,
        ended: bool = False,
    ) -> None:
        """Commit a transaction of `begin` with a new position, or with None to keep the position.

        Raises:
            LeaseLostError: If another acquisition has changed the row; then no data is stored.
            KinesisSdkError: If the call failed. The next `begin` determines whether it took effect.
        """
        row = replace(self.row, position=position or self.row.position, ended=ended or self.row.ended)
        try:
            done = await _result(transaction.commit(row))
        except BaseException as error:
            self._uncertain.append(row)
            translated = self.sink.translate(error)
            if translated is error:
                raise
            raise translated from error
        if not done:
            await self._reconcile()
            raise TransientSinkError(
                f"shard {self._held.shard_id}: an earlier commit, whose answer was lost, took effect during this one"
            )
        self.row = row
        self._uncertain.clear()

    async def rollback(self, transaction: AnyTransaction) -> None:
        """Discard a transaction of `begin`."""
        await _result(transaction.rollback())

    async def _reconcile(self) -> None:
        """Read the row to determine whether an uncertain commit took effect.

        Raise `LeaseLostError` if another acquisition has changed the row.
        """
        row = await _result(self.sink.read(self._key))
        if row == self.row:
            return
        if row is not None and row in self._uncertain:
            self.row = row
            self._uncertain.clear()
            return
        found = "is gone" if row is None else f"is at {row.position}, fence {row.fence}"
        # Every later write of this acquisition would fail too. So drop the lease; this worker takes the lease again if
        # it is unowned.
        self._held.mark_lost(
            f"its row in the sink {found}, not at {self.row.position}, fence {self.row.fence}"
        )
        raise LeaseLostError(f"lease {self._held.key} is no longer held: {self._held.gone}")
