"""The driver's information about the streams of a query: their calls, their listings, and the time at Kinesis."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ResourceNotFoundError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.errors import DataLossError, OffsetError
from kinesis_sdk.spark.listing import StreamListing
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.shardio import ShardIo
from kinesis_sdk.spark.steps import Steps, run_all

_LOGGER = logging.getLogger(__name__)

CUT_MARGIN = 600_000
"""Milliseconds before the cut at which an old position is opened. Arrival times are approximate, and a record that was put just
before the cut may have been unreadable then. Ten minutes are short compared with a retention period of a day or more.
"""

FRESH = 0.9
"""Fraction of the retention period after which a position is opened by time instead of by sequence number."""


class Key(NamedTuple):
    """A stream and one of its shards, by name."""

    stream: str
    shard: str


class QueryStreams:
    """The streams that a query reads.

    Attributes:
        ids: Streams by name.
        io: Calls that read the shards of a stream, by its name.
        listings: Shards and retention period of a stream, by its name.
    """

    def __init__(
        self,
        client: KinesisClient,
        options: SourceOptions,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        rng: Random,
    ) -> None:
        self._options = options
        self._sleep = sleep
        self.clock: Clock = clock
        self.ids: dict[str, StreamId] = {stream.name: stream for stream in options.streams}
        self.io: dict[str, ShardIo] = {
            name: ShardIo(
                client, stream, clock=clock, sleep=sleep, rng=rng, retry_timeout=options.retry_timeout
            )
            for name, stream in self.ids.items()
        }
        self.listings: dict[str, StreamListing] = {
            name: StreamListing(
                client,
                stream,
                self.io[name],
                clock=clock,
                sleep=sleep,
                retry_timeout=options.retry_timeout,
                refresh_interval=options.shard_refresh_interval,
            )
            for name, stream in self.ids.items()
        }

    def now(self) -> int:
        """Return the time at Kinesis in epoch milliseconds: the earliest estimate from the responses of the streams."""
        return min(io.service_clock.millis() for io in self.io.values())

    @property
    def shortest_retention(self) -> int:
        """Shortest retention period of the streams, in milliseconds."""
        return min(listing.retention for listing in self.listings.values())

    def run(self, work: Iterable[Steps[None]]) -> None:
        """Run the steps of many shards at once; see `kinesis_sdk.spark.steps.run_all`."""
        run_all(work, clock=self.clock, sleep=self._sleep, threads=self._options.probe_threads)

    def check(self, offset: QueryOffset) -> None:
        """Check that an offset belongs to these streams.

        Raises:
            OffsetError: If the offset belongs to other streams.
        """
        for name in offset.streams:
            if name not in self.ids:
                raise OffsetError(
                    f"the checkpoint is of stream {name}, which the query does not read ({', '.join(self.ids)}): "
                    "add it to streamNames, or use another checkpoint"
                )

    def is_closed(self, key: Key) -> bool:
        """Return whether the listing shows a shard as closed. False if the shard has left the listing since planning began."""
        shard = self.listings[key.stream].graph.shards.get(key.shard)
        return shard is not None and not shard.is_open

    def exists(self, key: Key) -> bool:
        """Return whether a stream has a shard that two listings omit."""
        # Listings lag behind; calls for the shard itself succeed as long as it has data.
        io = self.io[key.stream]
        try:
            call_with_retries(
                lambda: io.client.get_shard_iterator(
                    **io.stream.request, ShardId=key.shard, ShardIteratorType="TRIM_HORIZON"
                ),
                operation="GetShardIterator",
                client=io.client,
                timeout=io.retry_timeout,
                sleep=io.sleep,
            )
        except ResourceNotFoundError:
            return False
        _LOGGER.warning(
            "stream %s: ListShards omits shard %s, which exists; continuing to read it", key.stream, key.shard
        )
        return True

    def via(self, key: Key, position: ShardPosition, cut: int | None) -> ShardPosition | None:
        """Return a substitute position for the iterator if Kinesis may no longer accept a position; otherwise None.

        The query has read all records of the stream before ``cut`` (epoch milliseconds); None if it has read no records.

        Raises:
            DataLossError: If the cut is older than the retention period.
        """
        if cut is None or isinstance(position, Ended):
            return None
        retention = self.listings[key.stream].retention
        age = self.io[key.stream].service_clock.millis() - cut
        if age > retention:
            self.lose(
                f"shard {key.shard} of stream {key.stream} was read up to {age / 3_600_000:.1f} h ago; the retention period is "
                f"{retention / 3_600_000:g} h, so records in between may be deleted",
                key.shard,
            )
            return TrimHorizon()
        if age > retention * FRESH and isinstance(position, AfterSequence | AtSequence):
            return AtTimestamp(cut - CUT_MARGIN)
        return None

    def owned(self, key: Key) -> HashKeyRange | None:
        """Return the hash key range of the shard, for discarding aggregates outside it; None to keep all, or if the shard is not listed."""
        if self._options.misplaced_aggregates != "discard":
            return None
        listing = self.listings[key.stream]
        if key.shard not in listing.graph.shards:
            listing.list_shards()
        shard = listing.graph.shards.get(key.shard)
        return None if shard is None else shard.hash_key_range

    def lineage(self, key: Key) -> tuple[Shard, ...]:
        """Return a shard and its listed ancestors; empty if the shard is not listed."""
        graph = self.listings[key.stream].graph
        if key.shard not in graph.shards:
            return ()
        return tuple(graph.shards[one] for one in (key.shard, *graph.ancestors(key.shard)))

    def lose(self, message: str, shard_id: str | None = None) -> None:
        """Raise the error for lost records, or log it if the query continues without them.

        Raises:
            DataLossError: If ``failOnDataLoss`` is set.
        """
        if self._options.fail_on_data_loss:
            raise DataLossError(message, shard_id=shard_id)
        _LOGGER.error("%s; continuing with the remaining data", message)
