"""Changes of a sink by an operator: the position of a shard together with its effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kinesis_sdk.common.errors import SinkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.sinks.sink import Sink, SinkKey, SinkRow


def set_position(
    sink: Sink,
    key: SinkKey,
    position: ExtendedSequenceNumber,
    change_effects: Callable[[Any], object],
) -> SinkRow:
    """Set the position of a shard and change its effects in one transaction. Workers may be running.

    ```python
    set_position(
        SqlSink(url),
        SinkKey("totals", "orders", "shardId-000000000003"),
        ExtendedSequenceNumber("49665…", 17),
        lambda connection: connection.execute(delete(payments).where(…)),  # the effects after that position
    )
    ```

    A worker that processes the shard can no longer commit. That worker takes the shard again and reads after the new
    position. If the shard had ended, set its lease back as well (``kinesis-sdk leases rewind``), because a finished lease is not processed.

    Args:
        sink: The sink; instead of an `AsyncSqlSink`, a `SqlSink` on the same database.
        key: Key of the shard's row.
        position: Last user record whose effects remain.
        change_effects: Called with the handle of the transaction; restores the effects that were valid at that position.

    Returns:
        The current row.

    Raises:
        SinkError: If there is no such row, or if it changed in between. Then no data is changed, and the call can be repeated.
    """
    seen = sink.read(key)
    if seen is None:
        raise SinkError(f"the sink has no position for {'/'.join(key)}")
    transaction = sink.begin(key, seen)
    changed = False
    row = replace(seen, position=position, fence=seen.fence + 1, ended=False)
    if transaction is not None:
        try:
            change_effects(transaction.handle)
        except BaseException:
            transaction.rollback()
            raise
        changed = transaction.commit(row)
    if not changed:
        raise SinkError(f"the position of {'/'.join(key)} changed meanwhile: call again")
    return row
