"""Load of the shards of a stream, measured by one read of each shard."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ThrottledError
from kinesis_sdk.common.position import AtTimestamp
from kinesis_sdk.common.shard_cursor import ShardCursor, is_at_tip
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import Transport
from kinesis_sdk.common.validation import check_seconds

SHARD_RECORDS_PER_SECOND = 1000
SHARD_BYTES_PER_SECOND = 1024 * 1024
_LIMIT = 10_000
_LEAST_SPAN = 0.5
"""Minimum seconds that a page must span to show a rate: a shorter span is a burst."""


@dataclass(frozen=True, kw_only=True)
class ShardLoad:
    """Load of a shard, from the records that arrived in it lately.

    Attributes:
        shard_id: The shard.
        records_per_second: Kinesis records per second; an aggregate counts as one record.
        bytes_per_second: Bytes a second, payloads and partition keys.
        seconds: Duration of the sample.
        utilization: Used part of the limit that the shard is closest to, of 1,000 records and 1 MiB per second; 1.0 is full.
    """

    shard_id: str
    records_per_second: float
    bytes_per_second: float
    seconds: float
    utilization: float


def utilization(records: float, size: float) -> float:
    """Return the used part of the write limit that a shard is closest to, from records and bytes a second; 1.0 is full."""
    return max(records / SHARD_RECORDS_PER_SECOND, size / SHARD_BYTES_PER_SECOND)


def sample_load(
    connection: Connection,
    stream: str | StreamId,
    shard_ids: Sequence[str],
    *,
    window: float = 10.0,
    threads: int = 8,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, ShardLoad]:
    """Measure the load of shards: one GetShardIterator and one GetRecords call each.

    Each sample takes one of the five reads per second of a shard, and up to 10 MB of its read limit. If the page does not reach
    the tip of the shard, the rate is measured over the page. A shard whose read limit is exhausted is left out.

    Args:
        connection: Account and region.
        stream: Name or ARN.
        shard_ids: The shards.
        window: Seconds to look back, 1 to 300.
        threads: Maximum reads at a time.
        clock: Measures; replaced in tests.
        sleep: Called with the seconds to wait before a retry; replaced in tests.

    Returns:
        The loads by shard id.

    Raises:
        ConfigError: If ``window`` is out of range.
        AwsError: If a call fails otherwise.
    """
    check_seconds("window", window, 1, 300)
    clock = clock or SystemClock()
    stream = StreamId.parse(stream)
    client = Transport(connection.kinesis)

    def measure(shard_id: str) -> ShardLoad | None:
        begin = clock.time() - window
        cursor = ShardCursor(client, stream, shard_id, AtTimestamp(int(begin * 1000)), clock=clock)
        try:
            page = call_with_retries(
                lambda: cursor.fetch(_LIMIT), operation=None, client=client, attempts=3, sleep=sleep
            )
        except ThrottledError:
            return None
        span = window
        if not is_at_tip(page, _LIMIT) and page.next_iterator is not None and page.records:
            last = page.records[-1].approximate_arrival_timestamp
            if last is not None:
                span = max(_LEAST_SPAN, last.timestamp() - begin)
        records = len(page.records) / span
        size = sum(len(one.data) + len(one.partition_key.encode()) for one in page.records) / span
        return ShardLoad(
            shard_id=shard_id,
            records_per_second=records,
            bytes_per_second=size,
            seconds=span,
            utilization=utilization(records, size),
        )

    if threads < 2 or len(shard_ids) < 2:
        measured = [measure(shard_id) for shard_id in shard_ids]
    else:
        with ThreadPoolExecutor(threads) as pool:
            measured = list(pool.map(measure, shard_ids))
    return {one.shard_id: one for one in measured if one is not None}
