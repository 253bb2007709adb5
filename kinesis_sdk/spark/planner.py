"""The driver's part of the reader: it determines the records of a batch before any task runs.

A batch ends at one *cut*, a time for all shards of all streams: it contains, for every shard, the records before the shard's first record
that arrived at or after the cut. Without a limit the cut is the time at which planning began. While the query is behind the tip, the cut is
the arrival of the oldest unread record plus a span (`kinesis_sdk.spark.span`). So no shard is read ahead of another, and a watermark drops
only records that it would also drop if records were read when they arrive.

The state of a planner is only a cache: the offsets alone determine the records that are read.

Within ``minProbeInterval``, `plan` makes no calls and returns the start, unless a limit ended the last batch, or the query stops at the
current records. `kinesis_sdk.spark.probe` lists the calls per shard,
`kinesis_sdk.spark.listing` per stream.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.position import Ended, Latest
from kinesis_sdk.spark.batch_end import EndSearch
from kinesis_sdk.spark.batch_ranges import batch_ranges, plan_read
from kinesis_sdk.spark.batch_start import is_recreated, with_positions
from kinesis_sdk.spark.end_offset import end_offset
from kinesis_sdk.spark.lag import Lag
from kinesis_sdk.spark.offsets import QueryOffset, StreamOffset
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.reading import ShardRange
from kinesis_sdk.spark.streams import Key, QueryStreams

_JITTER = 0.05
"""Seconds by which a call may be early. Otherwise, every other trigger would be skipped with a trigger interval of one second."""

_OWN_LIMITS = frozenset(
    {"span", "maxBatchSpan", "maxRecordsPerShard", "maxRowsPerTrigger", "maxBytesPerTrigger"}
)
"""Limits that leave records for the next batch, which need not wait for ``minProbeInterval``."""


class StreamPlanner:
    """Plans the batches of one query. Not thread-safe, because Spark makes one call at a time.

    ``admission_control`` is true if Spark runs AvailableNow in several batches (4.2 and later). Otherwise AvailableNow ends after one
    batch, which must not be limited by a span.
    """

    def __init__(
        self,
        client: KinesisClient,
        options: SourceOptions,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        rng: Random | None = None,
        admission_control: bool = True,
    ) -> None:
        self._options = options
        self._clock = clock
        self._streams = QueryStreams(client, options, clock=clock, sleep=sleep, rng=rng or Random())
        self._search = EndSearch(self._streams, options, admission_control=admission_control)
        self._weights: dict[Key, int] = {}
        self._search_began = float("-inf")
        self._planned: QueryOffset | None = None
        self._lag = Lag()

    def initial(self) -> QueryOffset:
        """Return the initial offset of a query. It resolves LATEST and has no shards.

        Raises:
            AwsError: If a stream cannot be described.
        """
        listings = self._streams.listings
        for listing in listings.values():
            listing.describe()
        return QueryOffset(
            starting=str(self._options.starting_position or StartingPosition(Latest())),
            started=min(io.service_clock.past_millis() for io in self._streams.io.values()),
            cut=None,
            streams={
                name: StreamOffset(created=listing.created, shards={}) for name, listing in listings.items()
            },
        )

    def stop_at_now(self) -> None:
        """Stop at the newest records in the streams: `plan` returns its start once they are reached (AvailableNow)."""
        for listing in self._streams.listings.values():
            if not listing.is_described:
                listing.describe()
        self._search.stop_at_now()

    def plan(self, start: QueryOffset, *, unlimited: bool = False) -> QueryOffset:
        """Return the end of the batch that starts at ``start``, or ``start`` itself if there are no records to read.

        ``unlimited`` ignores the limits of the options.

        Raises:
            ConfigError: If the query starts at a time in the future, or at a shard that does not exist.
            DataLossError: If records that ``start`` needs are deleted.
            OffsetError: If the offset belongs to other streams.
            AwsError: If a call failed permanently.
        """
        if self._is_early() and self._planned == start:
            return start
        self._search_began = self._clock.monotonic()
        self._streams.check(start)
        for name, listing in self._streams.listings.items():
            listing.refresh()
            if is_recreated(self._streams, name, start):
                self._search.forget(name)
        begin = with_positions(self._streams, start)
        try:
            found = self._search.find(start, begin, unlimited=unlimited, last_limit=self._lag.limited_by)
        except BaseException:
            # The cursors of probes have advanced, but their positions have not: the next probe would miss the records in
            # between.
            self._search.forget()
            raise
        self._lag.note(found.cut, None if found.has_all(self._search_began) else found.limited_by)
        end = end_offset(
            self._streams,
            start,
            begin,
            found,
            search_began=self._search_began,
            quiet_for=lambda key: self._search.probes[key].quiet_for,
        )
        self._weights = {key: end.records for key, end in found.ends.items() if end.records}
        self._search.accept(found)
        self._planned = end
        return end

    def _is_early(self) -> bool:
        """Return whether the interval between two searches has not passed, and no records are known to be left."""
        interval = self._options.min_probe_interval
        early = self._clock.monotonic() < self._search_began + interval - min(_JITTER, interval / 10)
        return early and not self._search.is_stopping and self._lag.limited_by not in _OWN_LIMITS

    def ranges(self, start: QueryOffset, end: QueryOffset) -> list[ShardRange]:
        """Return the ranges of the batch between two offsets; see `kinesis_sdk.spark.batch_ranges`.

        Raises:
            DataLossError: If a part of the batch is older than the retention period.
            OffsetError: If the offsets are of other streams.
        """
        return batch_ranges(self._streams, start, end, self._weights if end == self._planned else {})

    def plan_read(self, *, shard_ids: frozenset[str] | None = None) -> list[ShardRange]:
        """Return the ranges of a batch read; see `kinesis_sdk.spark.batch_ranges`.

        Raises:
            ConfigError: If the starting position is LATEST or in the future, or a shard is named that does not exist.
            AwsError: If a call failed permanently.
        """
        return plan_read(self._streams, self._options, shard_ids)

    def report(self) -> dict[str, Any] | None:
        """Return the end of the batch of the last `plan`, and its distance from the tip; None before the first `plan`."""
        planned = self._planned
        if planned is None:
            return None
        positions = [p for stream in planned.streams.values() for p in stream.shards.values()]
        return {
            "cut": planned.cut,
            "maxBehindMs": self._lag.behind,
            "limitedBy": self._lag.limited_by,
            "fallingBehind": self._lag.falling,
            "shards": len(positions),
            "ended": sum(isinstance(position, Ended) for position in positions),
            "streams": sorted(planned.streams),
        }
