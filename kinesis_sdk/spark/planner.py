"""The driver's part of the reader: it fixes the records of a batch before any task runs.

A batch ends at one *cut*, a time for all shards of all streams: it holds, of every shard, the records before its first
record that arrived at or after the cut. Without a limit the cut is the time at which planning began. Behind the tip it
is the arrival of the oldest unread record plus a span (`kinesis_sdk.spark.span`). So no shard runs ahead of another,
and a watermark drops no record that it would not drop if records were read as they arrive.

The state of a planner is a cache: the offsets alone decide what is read.

A call of `plan` within ``minProbeInterval`` makes no calls and returns the start, unless a limit ended the last batch,
or the query stops at the current records. `kinesis_sdk.spark.probe` lists the calls per shard,
`kinesis_sdk.spark.listing` per stream.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ConfigError, ResourceNotFoundError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Ended, Latest, TrimHorizon
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.errors import DataLossError, OffsetError, StalledError
from kinesis_sdk.spark.lineage import Families, initial_positions, retired, start_of
from kinesis_sdk.spark.listing import StreamListing
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition, StreamOffset
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.probe import Cut, End, ShardProbe
from kinesis_sdk.spark.reading import ShardRange
from kinesis_sdk.spark.shardio import ShardIo, first_number
from kinesis_sdk.spark.span import BatchSpan
from kinesis_sdk.spark.steps import Steps, run_all

_LOGGER = logging.getLogger(__name__)

_JITTER = 0.05
"""Seconds by which a call may come early, so that a trigger of one second does not skip every other tick."""

_FRESH = 0.9
"""Fraction of the retention period after which a position is opened by time instead of by sequence number."""

_CUT_MARGIN = 600_000
"""Milliseconds before the cut at which an old position is opened. Arrival times are approximate, and a record that was put just
before the cut may have been unreadable then. Ten minutes are little compared with a retention period of a day or more.
"""

_AHEAD = 5_000
"""Milliseconds by which a time may lie ahead of the estimated time at Kinesis: it is waited for, because the estimate may be wrong."""

_CUTS_PER_RETENTION = 4
"""An idle query writes a new cut this often per retention period, because a cut older than the period means lost records."""

_ARRIVAL_MARGIN = 600_000
"""A batch read continues for this many milliseconds after its ending position. Arrival times are approximate and need not increase; each
record is checked on its own.
"""

_LATEST_MARGIN = 1_000
"""Milliseconds before a LATEST start at which the open shards are listed. A split at the same time must not hide the parent, which
has records to deliver."""

_STOP_MARGIN = 1_000
"""A read that stops at the current records continues for this many milliseconds after the present, the uncertainty of our estimate of
Kinesis's clock.
"""

_FALLING_BEHIND = 8
"""Number of limited batches over which the lag is compared; the first comparison takes half of them."""


_OWN_LIMITS = frozenset({"span", "maxBatchSpan", "maxRecordsPerShard"})
"""Limits that leave records for the next batch, which need not wait for ``minProbeInterval``."""


class Key(NamedTuple):
    """A shard of a stream, by their names."""

    stream: str
    shard: str


class _Lag:
    """Whether a query keeps up.

    Attributes:
        limited_by: Limit that ended the last batch before the tip; None if none did.
        behind: Milliseconds from the last cut to the tip; 0 if nothing limited it.
        falling: Whether ``behind`` has grown over the last limited batches.
    """

    def __init__(self) -> None:
        self.limited_by: str | None = None
        self.behind: int = 0
        self.falling: bool = False
        self._last: deque[tuple[Cut, int]] = deque(maxlen=_FALLING_BEHIND)
        self._warned = False

    def note(self, cut: Cut, limited_by: str | None) -> None:
        """Note the cut of a batch. Warns once when the query falls behind, and again only after it has reached the tip."""
        self.limited_by = limited_by
        self.behind = max(0, cut.now - cut.millis) if limited_by else 0
        if not limited_by:
            if self._warned:
                _LOGGER.info("the query has reached the tip")
            self._last.clear()
            self.falling = self._warned = False
            return
        self._last.append((cut, self.behind))
        first, behind = self._last[0]
        self.falling = len(self._last) >= _FALLING_BEHIND // 2 and self.behind > behind
        if self.falling and not self._warned:
            self._warned = True
            _LOGGER.warning(
                "the query falls behind: the last %d batches held %.0f s of stream time, limited by %s, while %.0f s passed; it is "
                "%.0f s behind the tip",
                len(self._last) - 1,
                (cut.millis - first.millis) / 1000,
                limited_by if limited_by != "span" else "the time that batches take",
                (cut.now - first.now) / 1000,
                self.behind / 1000,
            )


class _Lowered(NamedTuple):
    """An earlier cut (epoch milliseconds) that a shard needs, and the reason for the report."""

    millis: int
    reason: str


@dataclass
class _Found:
    """The cut and the ends by shard that planning found."""

    cut: Cut
    ends: dict[Key, End] = field(default_factory=dict)


class StreamPlanner:
    """Plans the batches of one query. Not thread-safe, because Spark makes one call at a time.

    ``admission_control`` says whether Spark runs AvailableNow in several batches (4.2 and later). Otherwise it ends
    after one, which a span must not end.
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
        self._client = client
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._streams: dict[str, StreamId] = {stream.name: stream for stream in options.streams}
        rng = rng or Random()
        self._io = {
            name: ShardIo(
                client, stream, clock=clock, sleep=sleep, rng=rng, retry_timeout=options.retry_timeout
            )
            for name, stream in self._streams.items()
        }
        self._listings = {
            name: StreamListing(
                client,
                stream,
                self._io[name],
                clock=clock,
                sleep=sleep,
                retry_timeout=options.retry_timeout,
                refresh_interval=options.shard_refresh_interval,
            )
            for name, stream in self._streams.items()
        }
        unlimited = options.max_batch_span == 0 or (options.max_batch_span is None and not admission_control)
        self._span = None if unlimited else BatchSpan(options.max_batch_span)
        self._probes: dict[Key, ShardProbe] = {}
        self._weights: dict[Key, int] = {}
        self._stop: tuple[int, float] | None = None  # epoch milliseconds, and the monotonic seconds then
        self._looked_at = float("-inf")
        self._planned: QueryOffset | None = None
        self._lag = _Lag()
        self._relisted = False  # whether this plan listed the shards again because one ended

    # -- called by the engine -----------------------------------------------------------------------------------

    def initial(self) -> QueryOffset:
        """Return the initial offset of a query. It resolves LATEST and has no shards.

        Raises:
            AwsError: If a stream cannot be described.
        """
        for listing in self._listings.values():
            listing.describe()
        return QueryOffset(
            starting=str(self._options.starting_position or StartingPosition(Latest())),
            started=min(io.service_clock.past_millis() for io in self._io.values()),
            cut=None,
            streams={
                name: StreamOffset(created=listing.created, shards={})
                for name, listing in self._listings.items()
            },
        )

    def stop_at_now(self) -> None:
        """Stop at the records that the streams have now: `plan` returns its start once they are reached (AvailableNow)."""
        for listing in self._listings.values():
            if not listing.is_described:
                listing.describe()
        self._stop = self._now() + _STOP_MARGIN, self._clock.monotonic()

    def plan(self, start: QueryOffset, *, unlimited: bool = False) -> QueryOffset:
        """Return the end of the batch that starts at ``start``, or ``start`` itself if there is nothing to read.

        ``unlimited`` ignores the limits of the options.

        Raises:
            ConfigError: If the query starts at a time in the future, or at a shard that does not exist.
            DataLossError: If records that ``start`` needs are deleted.
            OffsetError: If the offset is of other streams.
            AwsError: If a call failed permanently.
        """
        now = self._clock.monotonic()
        interval = self._options.min_probe_interval
        early = now < self._looked_at + interval - min(_JITTER, interval / 10)
        catching_up = self._lag.limited_by in _OWN_LIMITS
        if early and self._stop is None and self._planned == start and not catching_up:
            return start
        self._looked_at = now
        self._check_streams(start)
        for listing in self._listings.values():
            listing.refresh()
        begin = self._begin(start)
        try:
            found, limited_by = self._look(start, begin, unlimited=unlimited)
        except BaseException:
            # Their cursors have advanced, but their positions have not: the next probe would miss the records in between.
            self._probes.clear()
            raise
        self._lag.note(found.cut, None if self._has_all(found) else limited_by)
        end = self._end_offset(start, begin, found)
        self._planned = end
        return end

    def _has_all(self, found: _Found) -> bool:
        """Return whether a batch has all records that were in the stream when it was planned, wherever its cut is."""
        return all(
            isinstance(end.position, Ended) or (end.seen_at is not None and end.seen_at >= self._looked_at)
            for end in found.ends.values()
        )

    def ranges(self, start: QueryOffset, end: QueryOffset) -> list[ShardRange]:
        """Return the ranges of the batch between two offsets: always the same for the same offsets.

        Raises:
            DataLossError: If a part of the batch is older than the retention period.
            OffsetError: If the offsets are of other streams.
        """
        self._check_streams(end)
        items: list[ShardRange] = []
        weights = self._weights if end == self._planned else {}
        for name, offset in sorted(end.streams.items()):
            listing = self._listings[name]
            for shard_id in sorted(offset.shards):
                goal = offset.shards[shard_id]
                parents = self._parents_in(name, shard_id, start, offset)
                begin = TrimHorizon() if parents else start_of(name, shard_id, start, end)
                if not isinstance(goal, AfterSequence | AtSequence | Ended) or _is_reached(begin, goal):
                    continue
                if not listing.is_described:
                    listing.describe()
                known = start.cut if self._is_same(name, start, offset) else None
                items.append(
                    ShardRange(
                        self._streams[name],
                        shard_id,
                        begin,
                        goal,
                        via=self._via(name, shard_id, begin, known),
                        owned=self._owned(name, shard_id),
                        parents=parents,
                        weight=weights.get(Key(name, shard_id)),
                        lineage=self._lineage(name, shard_id),
                    )
                )
        present = {(item.stream.name, item.shard_id) for item in items}
        return [
            replace(item, parents=tuple(p for p in item.parents if (item.stream.name, p) in present))
            for item in items
        ]

    def plan_read(self, *, shard_ids: frozenset[str] | None = None) -> list[ShardRange]:
        """Return the ranges of a batch read: everything between the starting and the ending position, in all shards or those named.

        Parents and children are read in parallel: completely, but without an order between shards.

        Raises:
            ConfigError: If the starting position is LATEST or in the future, or a shard is named that does not exist.
            AwsError: If a call failed permanently.
        """
        options = self._options
        starting = options.starting_position or StartingPosition(TrimHorizon())
        ending = options.ending_position
        before = ending.millis if isinstance(ending, AtTimestamp) else None
        reads: list[_Read] = []
        missing = set(shard_ids or ())
        for name, listing in self._listings.items():
            chosen = starting.for_stream(name)
            if any(isinstance(start, Latest) for start in (chosen.default, *chosen.shards.values())):
                raise ConfigError(
                    "startingPosition", str(starting), "a position other than LATEST for a batch read"
                )
            listing.describe()
            graph = listing.list_shards()
            for shard_id in chosen.shards:
                if shard_id not in graph.shards:
                    raise ConfigError("startingPosition", shard_id, "ids of shards that the stream lists")
            missing -= graph.shards.keys()
            for shard_id in graph.shards:
                start = chosen.resolve(shard_id, 0)
                if shard_ids is not None and shard_id not in shard_ids:
                    continue
                if before is not None and isinstance(start, AtTimestamp) and start.millis >= before:
                    continue
                reads.append(_Read(name, shard_id, start))
        for shard_id in sorted(missing):
            raise ConfigError("shardIds", shard_id, "ids of shards that the stream lists")
        self._refuse_future(read.start for read in reads)
        now = self._now()
        until = now + _STOP_MARGIN if before is None else min(now + _STOP_MARGIN, before + _ARRIVAL_MARGIN)
        cut = Cut(until, now, until > now)
        ends: dict[_Read, End] = {}

        def find(read: _Read) -> Steps[None]:
            probe = ShardProbe(self._io[read.stream], read.shard, self._tip_lag)
            probe.begin(read.start, patient=True)
            if cut.at_tip:
                yield from probe.walk()
            closed = self._is_closed(Key(read.stream, read.shard))
            ends[read] = yield from probe.find_end(cut, closed=closed)

        self._run(find(read) for read in reads)
        for read, end in ends.items():
            if end.cut is not None and end.cut < cut.millis:
                raise StalledError(
                    f"stream {read.stream}, shard {read.shard} could not be read up to its end"
                )
        return [
            ShardRange(
                self._streams[read.stream],
                read.shard,
                read.start,
                goal,
                before=before,
                owned=self._owned(read.stream, read.shard),
                weight=max(1, ends[read].records),
                lineage=self._lineage(read.stream, read.shard),
            )
            for read in reads
            if isinstance(goal := ends[read].position, AfterSequence | AtSequence | Ended)
            and not _is_reached(read.start, goal)
        ]

    def report(self) -> dict[str, Any] | None:
        """Return where the last `plan` ended the batch, and how far behind the tip that is; None before the first one."""
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

    # -- the start of a batch -----------------------------------------------------------------------------------

    @property
    def _tip_lag(self) -> int:
        return round(self._options.tip_lag * 1000)

    def _now(self) -> int:
        """Return the time at Kinesis in epoch milliseconds: the earliest estimate from the responses of the streams."""
        return min(io.service_clock.millis() for io in self._io.values())

    def _refuse_future(self, starts: Iterable[ShardPosition | Latest]) -> None:
        """Raise an error if a position is a time that has not come: Kinesis rejects it, and every retry until then."""
        now = self._now()
        for start in starts:
            if isinstance(start, AtTimestamp) and start.millis > now + _AHEAD:
                raise ConfigError("startingPosition", str(start), "a time in the past")

    def _check_streams(self, offset: QueryOffset) -> None:
        for name in offset.streams:
            if name not in self._streams:
                raise OffsetError(
                    f"the checkpoint is of stream {name}, which the query does not read ({', '.join(self._streams)}): "
                    "add it to streamNames, or use another checkpoint"
                )

    def _begin(self, start: QueryOffset) -> QueryOffset:
        """Return the start with positions in every stream.

        They are resolved for the initial offset, for a stream that was added to the query, and for a stream that was
        recreated.
        """
        streams: dict[str, StreamOffset] = {}
        for name, listing in self._listings.items():
            before = start.streams.get(name)
            if before is not None and before.created != listing.created:
                if before.shards:
                    self._lose(
                        f"stream {name} was deleted and recreated: the positions in the checkpoint are no longer valid"
                    )
                    for key in [key for key in self._probes if key.stream == name]:
                        del self._probes[key]
                    roots = initial_positions(
                        listing.graph, listing.graph.shards, StartingPosition(TrimHorizon()), start.started
                    )
                    streams[name] = StreamOffset(created=listing.created, shards=roots)
                    continue
                before = None
            if before is not None and before.shards:
                streams[name] = before
                continue
            streams[name] = StreamOffset(created=listing.created, shards=self._resolved(name, start))
        return replace(start, streams=streams)

    def _resolved(self, name: str, start: QueryOffset) -> dict[str, ShardPosition]:
        listing = self._listings[name]
        starting = StartingPosition.parse(start.starting).for_stream(name)
        started = start.started if start.cut is None else start.cut
        self._refuse_future((starting.default, *starting.shards.values()))
        candidates: Iterable[str] = listing.graph.shards
        if isinstance(starting.default, Latest):
            # Not the shards that are open now: the parent of a child created since the query started has records to deliver.
            candidates = listing.open_at(started - _LATEST_MARGIN)
        elif isinstance(starting.default, AtTimestamp):
            candidates = listing.open_at(starting.default.millis)
        return initial_positions(listing.graph, candidates, starting, started)

    def _is_same(self, name: str, start: QueryOffset, offset: StreamOffset) -> bool:
        """Return whether a stream was read up to the cut of a start."""
        before = start.streams.get(name)
        return before is not None and bool(before.shards) and before.created == offset.created

    def _via(
        self, name: str, shard_id: str, position: ShardPosition, cut: int | None
    ) -> ShardPosition | None:
        """Return where to open an iterator if Kinesis may no longer know a position; None opens it at the position.

        The query has read all of the stream before ``cut``, in epoch milliseconds; None if it has read nothing.
        """
        if cut is None or isinstance(position, Ended):
            return None
        retention = self._listings[name].retention
        age = self._io[name].service_clock.millis() - cut
        if age > retention:
            self._lose(
                f"shard {shard_id} of stream {name} was read up to {age / 3_600_000:.1f} h ago; the retention period is "
                f"{retention / 3_600_000:g} h, so records in between may be deleted",
                shard_id,
            )
            return TrimHorizon()
        if age > retention * _FRESH and isinstance(position, AfterSequence | AtSequence):
            return AtTimestamp(cut - _CUT_MARGIN)
        return None

    # -- the probes -------------------------------------------------------------------------------------------------

    def _look(self, start: QueryOffset, begin: QueryOffset, *, unlimited: bool) -> tuple[_Found, str | None]:
        """Find the cut and the ends of a batch, and the limit that set the cut, if any."""
        options = self._options
        count = None if unlimited else options.max_records_per_shard
        span = None if unlimited or self._span is None else self._span
        tracked = self._tracked(begin)
        now = self._now()
        for key, position in tracked.items():
            if not isinstance(position, Ended):
                # Not read up to the cut: a child that enters, and a stream that was added or recreated.
                before = start.streams.get(key.stream)
                is_read = (
                    before is not None
                    and key.shard in before.shards
                    and before.created == begin.streams[key.stream].created
                )
                self._start(key, position, begin.cut if is_read else None, count)
        due = [
            key for key, position in tracked.items() if not isinstance(position, Ended) and self._is_due(key)
        ]
        self._run(self._probes[key].walk() for key in due)
        # If the clock of this machine was set forward since the last response, the responses of the walk show it.
        now = min(now, self._now())
        looked = set(due)
        oldest = min((self._probes[key].lower_bound(now) for key in due), default=now)
        # The cut is exclusive: all that arrived up to now belongs to the batch. If a clock was set back, the cut stays where it was until the
        # clock has reached it.
        tip = max(now + 1, begin.cut or 0) if self._stop is None else self._stop[0]
        limit = tip
        limited_by: str | None = None
        if span is not None:
            held = span.next(
                self._clock.monotonic(), limited=self._lag.limited_by in {"span", "maxBatchSpan"}
            )
            if oldest + held * 1000 < min(tip, now) - self._tip_lag:
                # Records that are about to be deleted belong to the batch, however many they are. One cut holds for all streams, so the
                # shortest retention period counts.
                keep = min(listing.retention for listing in self._listings.values()) * _FRESH
                limit = max(oldest + round(held * 1000), now - round(keep))
                limited_by = "maxBatchSpan" if options.max_batch_span == held else "span"
        for key in due:
            arrival = self._probes[key].count_limit
            if arrival is not None and arrival < limit:
                limit, limited_by = arrival, "maxRecordsPerShard"
        self._relisted = False
        while True:
            at_tip = limited_by is None and limit >= now - self._tip_lag
            found = _Found(Cut(limit, now, at_tip))
            lowered = self._find_ends(found, tracked, looked, count)
            if lowered is None:
                return found, limited_by
            limit, limited_by = lowered.millis, limited_by or lowered.reason

    def _tracked(self, begin: QueryOffset) -> dict[Key, ShardPosition]:
        """Return the positions of the start, with the shards that enter at once, and without shards that no longer exist."""
        tracked: dict[Key, ShardPosition] = {}
        for name, offset in begin.streams.items():
            listing = self._listings[name]
            shards = dict(offset.shards)
            missing = {
                n for n, p in shards.items() if n not in listing.graph.shards and not isinstance(p, Ended)
            }
            if missing:
                missing -= listing.list_shards().shards.keys()
            for shard_id in sorted(missing):
                if self._exists(name, shard_id):
                    listing.refresh_soon()
                    continue
                self._lose(
                    f"shard {shard_id} is no longer in stream {name}, and was not read to its end", shard_id
                )
                del shards[shard_id]
            for shard_id in listing.admitted(shards):
                shards[shard_id] = TrimHorizon()
            tracked.update((Key(name, shard_id), position) for shard_id, position in shards.items())
        return tracked

    def _exists(self, name: str, shard_id: str) -> bool:
        """Return whether a stream has a shard that two listings omit."""
        # Listings lag behind; calls for the shard itself succeed as long as it has data.
        io = self._io[name]
        try:
            call_with_retries(
                lambda: io.client.get_shard_iterator(
                    **io.stream.request, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
                ),
                operation="GetShardIterator",
                client=io.client,
                timeout=io.retry_timeout,
                sleep=io.sleep,
            )
        except ResourceNotFoundError:
            return False
        _LOGGER.warning(
            "stream %s: ListShards omits shard %s, which exists; continuing to read it", name, shard_id
        )
        return True

    def _is_closed(self, key: Key) -> bool:
        """Return whether the listing shows the shard as closed. False if it has left the listing since planning began."""
        shard = self._listings[key.stream].graph.shards.get(key.shard)
        return shard is not None and not shard.is_open

    def _start(self, key: Key, position: ShardPosition, cut: int | None, count: int | None) -> None:
        probe = self._probes.get(key)
        if probe is None:
            probe = self._probes[key] = ShardProbe(self._io[key.stream], key.shard, self._tip_lag)
        via = self._via(key.stream, key.shard, position, cut)
        probe.begin(position, via=via, count=count, patient=self._stop is not None)

    def _is_due(self, key: Key) -> bool:
        probe = self._probes[key]
        if self._stop is not None:
            return not probe.was_seen_empty_since(self._stop[1])
        return probe.is_due(self._options.idle_probe_interval)

    def _find_ends(
        self,
        found: _Found,
        tracked: Mapping[Key, ShardPosition],
        looked: set[Key],
        count: int | None,
    ) -> _Lowered | None:
        """Find the ends of a batch at its cut. Returns an earlier cut if a shard needs one, otherwise None.

        A child never lowers the cut so far that the batch would have no record of its ancestors. Otherwise, if arrival
        times are out of order, it could exclude the last record of its own parent, and neither would ever be read.
        """
        cut = found.cut
        lowered: list[_Lowered] = []
        families = {name: Families() for name in self._listings}

        def find(key: Key) -> Steps[None]:
            closed = self._is_closed(key)
            end = found.ends[key] = yield from self._probes[key].find_end(cut, closed=closed)
            if end.cut is not None:
                lowered.append(_Lowered(end.cut, "emptyPages"))

        def lower(key: Key, millis: int, reason: str) -> None:
            least = max(millis, self._first_of_ancestors(key, found) + 1)
            # Ignore a cut that changes nothing: the loop must still find the children of other shards.
            if least < cut.millis:
                lowered.append(_Lowered(least, reason))

        following = [key for key, position in tracked.items() if not isinstance(position, Ended)]
        for key in following:
            if key not in looked:
                found.ends[key] = self._probes[key].end_at_start()
        self._run(find(key) for key in following if key in looked)
        while not lowered:
            born = self._born(found, tracked)
            new = [key for key in born if key not in looked]
            for key in born:
                if key in new:
                    probe = self._probes[key] = ShardProbe(self._io[key.stream], key.shard, self._tip_lag)
                    probe.begin(TrimHorizon(), count=count, patient=self._stop is not None)
            self._run(self._probes[key].walk() for key in new)
            looked.update(new)
            entered = []
            for key in born:
                probe = self._probes[key]
                parents = self._listings[key.stream].graph.parents(key.shard)
                ended = [parent for parent in parents if Key(key.stream, parent) in found.ends]
                if families[key.stream].admits(key.shard, ended):
                    entered.append(key)
                    if probe.count_limit is not None:
                        lower(key, probe.count_limit, "maxRecordsPerShard")
                else:
                    bound = probe.lower_bound(cut.now)
                    if bound < cut.now:  # otherwise the child has no unread record
                        lower(key, bound, "reshards")
            if not entered:
                break
            self._run(find(key) for key in entered)
        return min((item for item in lowered if item.millis < cut.millis), default=None)

    def _first_of_ancestors(self, key: Key, found: _Found) -> int:
        """Return a time before which the ancestors of a shard have no unread record in a batch; 0 if they have none at all."""
        graph = self._listings[key.stream].graph
        bounds: list[int] = []
        todo, seen = [key.shard], {key.shard}
        while todo:
            for parent in graph.parents(todo.pop()):
                name = Key(key.stream, parent)
                if parent not in seen and name in found.ends:
                    seen.add(parent)
                    todo.append(parent)
                    bounds.append(self._probes[name].lower_bound(found.cut.now))
        return min((bound for bound in bounds if bound < found.cut.now), default=0)

    def _born(self, found: _Found, tracked: Mapping[Key, ShardPosition]) -> list[Key]:
        """Return the children that have not entered, and whose parents have all ended, in this batch or before."""
        born: list[Key] = []
        for name, listing in self._listings.items():
            ended = [
                key.shard
                for key, end in found.ends.items()
                if key.stream == name and isinstance(end.position, Ended)
            ]
            if not ended:
                continue
            if not self._relisted and any(not listing.graph.children(shard_id) for shard_id in ended):
                # A shard that was read to its end has children; the last listing did not have them.
                listing.list_shards()
            positions = {key.shard: position for key, position in tracked.items() if key.stream == name}
            positions.update(
                (key.shard, end.position) for key, end in found.ends.items() if key.stream == name
            )
            born += [Key(name, shard_id) for shard_id in listing.admitted(positions)]
        self._relisted = True
        return born

    def _run(self, work: Iterable[Steps[None]]) -> None:
        run_all(work, clock=self._clock, sleep=self._sleep, threads=self._options.probe_threads)

    # -- the end of a batch -------------------------------------------------------------------------------------

    def _end_offset(self, start: QueryOffset, begin: QueryOffset, found: _Found) -> QueryOffset:
        """Return the offset of what was found, or the start itself; keep for the next plan what saves calls."""
        positions: dict[str, dict[str, ShardPosition]] = {}
        moved = False
        for name, before in begin.streams.items():
            graph = self._listings[name].graph
            gone = retired(graph, before.shards)
            shards = {
                n: p
                for n, p in before.shards.items()
                if n not in gone and (isinstance(p, Ended) or n in graph.shards)
            }
            for key, end in found.ends.items():
                if key.stream == name:
                    shards[key.shard] = end.position
            if any(isinstance(end.position, Ended) for key, end in found.ends.items() if key.stream == name):
                self._listings[name].refresh_soon()
            positions[name] = shards
            old = start.streams.get(name)
            # A parent that leaves the offset does not cause a batch: it leaves with the next one.
            with_gone = {**shards, **{n: before.shards[n] for n in gone}}
            moved = moved or old is None or old.created != before.created or old.shards != with_gone
        result = start
        if moved or self._cut_is_due(start, found.cut):
            for key, end in found.ends.items():
                found.ends[key] = renewed = self._renewed(key, end, begin, found.cut)
                positions[key.stream][key.shard] = renewed.position
            streams = {
                name: StreamOffset(created=begin.streams[name].created, shards=shards)
                for name, shards in positions.items()
            }
            # A read that stops at the present may go a second further, but more records may still arrive before that time.
            result = begin.with_streams(
                streams, min(found.cut.millis, max(found.cut.now + 1, begin.cut or 0))
            )
        self._weights = {key: end.records for key, end in found.ends.items() if end.records}
        for key, end in found.ends.items():
            self._probes[key].accept(end)
        self._probes = {
            key: probe
            for key, probe in self._probes.items()
            if key in found.ends and not isinstance(found.ends[key].position, Ended)
        }
        return result

    def _renewed(self, key: Key, end: End, begin: QueryOffset, cut: Cut) -> End:
        """Return the end with a position that stays valid, for a shard that has been idle for long.

        If a shard is idle for a whole retention period, its sequence number becomes unusable, although nothing was
        lost. So it continues from a time. Its last record was read, and arrived, long before that time, because the
        shard was quiet for much longer than the margin; the next one has not arrived yet. A position is renewed only in
        an offset that changes for another reason, because each new offset is a batch.
        """
        position = end.position
        if end.seen_at is None or end.seen_at < self._looked_at:
            return end
        quiet = self._probes[key].quiet_for * 1000
        if begin.cut is not None:
            quiet = max(quiet, cut.now - begin.cut)
        moment = cut.now - _CUT_MARGIN
        if isinstance(position, AfterSequence) and quiet > 3 * _CUT_MARGIN:
            return (
                End(AtTimestamp(moment))
                if position == begin.streams[key.stream].shards.get(key.shard)
                else end
            )
        retention = self._listings[key.stream].retention
        if isinstance(position, AtTimestamp) and moment - position.millis > retention // _CUTS_PER_RETENTION:
            return End(AtTimestamp(moment))
        return end

    def _cut_is_due(self, start: QueryOffset, cut: Cut) -> bool:
        """Return whether an idle query must write a new cut, which is a batch without records."""
        if start.cut is None:
            return True
        retention = min(listing.retention for listing in self._listings.values())
        return cut.millis - start.cut > retention // _CUTS_PER_RETENTION

    def _parents_in(
        self, name: str, shard_id: str, start: QueryOffset, offset: StreamOffset
    ) -> tuple[str, ...]:
        """Return the parents that end in a batch in which a shard enters.

        A parent leaves the offset in the batch after the one in which it ended. So a shard entered in this batch if it
        is missing from the start, and its parent is in the end.
        """
        before = start.streams.get(name)
        if before is not None and shard_id in before.shards:
            return ()
        shard = self._listings[name].graph.shards.get(shard_id)
        return () if shard is None else tuple(p for p in shard.parents if p in offset.shards)

    def _owned(self, name: str, shard_id: str) -> HashKeyRange | None:
        """Return the hash key range outside of which aggregates are discarded; None if none are, or if the shard is not listed."""
        if self._options.misplaced_aggregates != "discard":
            return None
        listing = self._listings[name]
        if shard_id not in listing.graph.shards:
            listing.list_shards()
        shard = listing.graph.shards.get(shard_id)
        return None if shard is None else shard.hash_key_range

    def _lineage(self, name: str, shard_id: str) -> tuple[Shard, ...]:
        """Return a shard and its listed ancestors; empty if the shard is not listed."""
        graph = self._listings[name].graph
        if shard_id not in graph.shards:
            return ()
        return tuple(graph.shards[one] for one in (shard_id, *graph.ancestors(shard_id)))

    def _lose(self, message: str, shard_id: str | None = None) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(message, shard_id=shard_id)
        _LOGGER.error("%s; continuing with the remaining data", message)


class _Read(NamedTuple):
    """A shard of a batch read."""

    stream: str
    shard: str
    start: ShardPosition


def _is_reached(position: ShardPosition, goal: AfterSequence | AtSequence | Ended) -> bool:
    """Return whether nothing lies between a position and an end."""
    if isinstance(position, Ended):
        return True
    return not isinstance(goal, Ended) and first_number(position) >= first_number(goal)
