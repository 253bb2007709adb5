"""API calls triggered by key presses."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.records import RecordPage, read_page
from kinesis_sdk.common.position import AtTimestamp, Position

_BACK = timedelta(minutes=1)
"""Time before now at which a tail begins."""


def read_records(
    connection: Connection, stream: str, shard_id: str, position: Position | None, *, limit: int = 200
) -> RecordPage:
    """Read one page of at most ``limit`` user records of a shard, from a position or from a minute ago (None).

    Raises:
        AwsError: If a call fails.
    """
    if position is None:
        start = datetime.now(timezone.utc) - _BACK
        position = AtTimestamp(int(start.timestamp() * 1000))
    return read_page(connection, stream, shard_id, position, limit=limit)
