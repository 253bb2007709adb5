"""The search for the end of a batch: one cut for all shards of all streams, and the position of the cut in each shard."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinesis_sdk.common.position import Ended, TrimHorizon
from kinesis_sdk.spark.batch_limit import BatchLimits, Tally
from kinesis_sdk.spark.batch_start import tracked
from kinesis_sdk.spark.lineage import Families
from kinesis_sdk.spark.offsets import QueryOffset, ShardPosition
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.probe import NOTHING, Counting, ShardProbe
from kinesis_sdk.spark.shard_reads import MAX_PAGE
from kinesis_sdk.spark.span import BatchSpan
from kinesis_sdk.spark.steps import Steps
from kinesis_sdk.spark.streams import FRESH, Key, QueryStreams
from kinesis_sdk.spark.unread import Cut, End

STOP_MARGIN = 1_000
"""A read that stops at the current records continues for this many milliseconds after the current time, because the estimate of Kinesis's
clock may be wrong by that much.
"""


class _Lowered(NamedTuple):
    """An earlier cut (epoch milliseconds) that a shard needs, and the reason, for the report."""

    millis: int
    reason: str


@dataclass
class Found:
    """The end of a batch.

    Attributes:
        cut: Time at which the batch ends in every shard.
        ends: The end of the batch in each shard for which one was found.
        limited_by: Limit that set the cut; None if no limit did.
    """

    cut: Cut
    ends: dict[Key, End] = field(default_factory=dict)
    limited_by: str | None = None

    def has_all(self, since: float) -> bool:
        """Return whether the batch has all records that were in the streams at ``since`` (monotonic seconds), regardless of its cut."""
        return all(
            isinstance(end.position, Ended) or (end.seen_at is not None and end.seen_at >= since)
            for end in self.ends.values()
        )


class EndSearch:
    """Finds the ends of batches, one after the other. Its state between batches only saves calls.

    ``admission_control`` is true if Spark runs AvailableNow in several batches; see `kinesis_sdk.spark.planner`.

    Attributes:
        probes: The probe of each shard, with its state.
    """

    def __init__(self, streams: QueryStreams, options: SourceOptions, *, admission_control: bool) -> None:
        self._streams = streams
        self._options = options
        unlimited = options.max_batch_span == 0 or (options.max_batch_span is None and not admission_control)
        self._span = None if unlimited else BatchSpan(options.max_batch_span)
        self._limits = BatchLimits(options.max_rows_per_trigger, options.max_bytes_per_trigger)
        self._counting = NOTHING
        self._filled = 0  # Kinesis records that were counted last
        self._stop: tuple[int, float] | None = None  # epoch milliseconds, and the monotonic seconds then
        self._relisted = False  # whether this search listed the shards again because a shard ended
        self.probes: dict[Key, ShardProbe] = {}

    @property
    def is_stopping(self) -> bool:
        """Whether the query stops at the records that were the newest when `stop_at_now` was called."""
        return self._stop is not None

    def stop_at_now(self) -> None:
        """Limit all further batches to the records that the streams contain now."""
        self._stop = self._streams.now() + STOP_MARGIN, self._streams.clock.monotonic()

    def forget(self, stream: str | None = None) -> None:
        """Forget the probes of the shards of a stream; None for all streams."""
        self.probes = {key: probe for key, probe in self.probes.items() if stream not in (None, key.stream)}

    def accept(self, found: Found) -> None:
        """Expect the next batch to begin at the ends of this batch."""
        for key, end in found.ends.items():
            self.probes[key].accept(end)
        self.probes = {
            key: probe
            for key, probe in self.probes.items()
            if key in found.ends and not isinstance(found.ends[key].position, Ended)
        }

    def find(
        self, start: QueryOffset, begin: QueryOffset, *, unlimited: bool, last_limit: str | None
    ) -> Found:
        """Find the cut and the ends of a batch.

        ``start`` is the offset at which the batch starts, and ``begin`` the same offset with positions in every stream.
        ``unlimited`` ignores the limits of the options. ``last_limit`` is the limit that ended the last batch.

        Raises:
            DataLossError: If records after the start are deleted.
            AwsError: If a call failed permanently.
        """
        options = self._options
        self._counting = NOTHING if unlimited else self._what_to_count()
        positions = tracked(self._streams, begin)
        now = self._streams.now()
        self._begin(start, begin, positions)
        due = [key for key in _open(positions) if self._is_due(key)]
        self._streams.run(self.probes[key].walk() for key in due)
        # If the clock of this machine was set forward since the last response, the responses of the walk show it.
        now = min(now, self._streams.now())
        # The cut is exclusive: all that arrived up to now belongs to the batch. If a clock was set back, the cut stays where it was until the
        # clock has reached it.
        tip = max(now + 1, begin.cut or 0) if self._stop is None else self._stop[0]
        limit, limited_by = tip, None
        oldest = min((self.probes[key].lower_bound(now) for key in due), default=now)
        held = self._held_by_span(oldest, tip, now, last_limit) if not unlimited else None
        if held is not None:
            limit, limited_by = held.millis, held.reason
        for key in due:
            arrival = self.probes[key].count_limit
            if arrival is not None and arrival < limit:
                limit, limited_by = arrival, "maxRecordsPerShard"
        full = self._fill(due, Cut(limit, now, at_tip=False))
        if full is not None:
            limit, limited_by = full.millis, full.reason
        self._relisted = False
        searched = set(due)
        while True:
            at_tip = limited_by is None and limit >= now - options.tip_lag_millis
            found = Found(Cut(limit, now, at_tip), limited_by=limited_by)
            lowered = self._find_ends(found, positions, searched)
            if lowered is None:
                return found
            limit, limited_by = lowered.millis, limited_by or lowered.reason

    def _begin(
        self,
        start: QueryOffset,
        begin: QueryOffset,
        positions: Mapping[Key, ShardPosition],
    ) -> None:
        """Begin a probe of each open shard."""
        for key in _open(positions):
            # A child that enters, or a stream that was added or recreated, is not read up to the cut yet.
            before = start.streams.get(key.stream)
            is_read = (
                before is not None
                and key.shard in before.shards
                and before.created == begin.streams[key.stream].created
            )
            probe = self.probes.get(key)
            if probe is None:
                probe = self.probes[key] = self._new(key)
            position = positions[key]
            via = self._streams.via(key, position, begin.cut if is_read else None)
            probe.begin(position, via=via, counting=self._counting, patient=self.is_stopping)

    def _what_to_count(self) -> Counting:
        return Counting(
            self._options.max_records_per_shard,
            all_shards=bool(self._limits),
            rows=self._limits.rows is not None and self._options.deaggregate,
        )

    def _new(self, key: Key) -> ShardProbe:
        return ShardProbe(self._streams.io[key.stream], key.shard, self._options.tip_lag_millis)

    def _is_due(self, key: Key) -> bool:
        probe = self.probes[key]
        if self._stop is not None:
            return not probe.was_seen_empty_since(self._stop[1])
        return probe.is_due(self._options.idle_probe_interval)

    def _held_by_span(self, oldest: int, tip: int, now: int, last_limit: str | None) -> _Lowered | None:
        """Return the cut that the span allows, if it is before the tip; ``oldest`` is the arrival of the first unread record."""
        if self._span is None:
            return None
        held = self._span.next(
            self._streams.clock.monotonic(), limited=last_limit in {"span", "maxBatchSpan"}
        )
        if oldest + held * 1000 >= min(tip, now) - self._options.tip_lag_millis:
            return None
        # Records that are about to be deleted belong to the batch, however many they are. One cut holds for all streams, so the
        # shortest retention period counts.
        keep = self._streams.shortest_retention * FRESH
        return _Lowered(
            max(oldest + round(held * 1000), now - round(keep)),
            "maxBatchSpan" if self._options.max_batch_span == held else "span",
        )

    def _fill(self, keys: Collection[Key], cut: Cut) -> _Lowered | None:
        """Read shards until the records before a cut reach the limits of all shards. Returns the earlier cut that the shards need, or None.

        The next page is always read from the shard whose records are known up to the earliest time, so only slightly more is read than the
        batch will contain.
        """
        if not self._counting.all_shards:
            return None
        tally = Tally(self._limits, self._filled)
        probes = {key: self.probes[key] for key in keys}
        oldest = min((probe.lower_bound(cut.now) for probe in probes.values()), default=cut.millis)
        while True:
            ends = {key: probe.read_up_to(cut.now) for key, probe in probes.items() if not probe.is_read(cut)}
            known = min(cut.millis, *ends.values()) if ends else cut.millis
            full = tally.end_before({key: probe.unread_records for key, probe in probes.items()}, known)
            if full is not None or not ends:
                self._filled = tally.records
                return None if full is None else _Lowered(*full)
            goal = tally.expected_end(oldest, known)
            # At least one shard: if the first millisecond alone exceeds the limit, the goal is earlier than ``known``.
            chosen = [
                key for key, end in ends.items() if end <= max(known, cut.millis if goal is None else goal)
            ]
            page = tally.next_page(len(chosen))
            self._streams.run(probes[key].read_on(page) for key in chosen)

    def _find_ends(
        self, found: Found, positions: Mapping[Key, ShardPosition], searched: set[Key]
    ) -> _Lowered | None:
        """Find the ends of a batch at its cut. Returns an earlier cut if a shard needs one, otherwise None.

        A child never lowers the cut so far that the batch would contain no record of the child's ancestors. Otherwise, if arrival times
        are out of
        order, the cut could exclude the last record of the child's own parent, and neither shard would ever be read.
        """
        cut = found.cut
        lowered: list[_Lowered] = []
        families = {name: Families() for name in self._streams.listings}

        def find(key: Key) -> Steps[None]:
            closed = self._streams.is_closed(key)
            end = found.ends[key] = yield from self.probes[key].find_end(cut, closed=closed)
            if end.cut is not None:
                lowered.append(_Lowered(end.cut, "emptyPages"))

        def lower(key: Key, millis: int, reason: str) -> None:
            least = max(millis, self._first_of_ancestors(key, found) + 1)
            # Ignore a cut that changes nothing: the loop must still find the children of other shards.
            if least < cut.millis:
                lowered.append(_Lowered(least, reason))

        following = _open(positions)
        for key in following:
            if key not in searched:
                found.ends[key] = self.probes[key].end_at_start()
        self._streams.run(find(key) for key in following if key in searched)
        while not lowered:
            born = self._born(found, positions)
            new = [key for key in born if key not in searched]
            for key in new:
                probe = self.probes[key] = self._new(key)
                probe.begin(TrimHorizon(), counting=self._counting, patient=self.is_stopping)
            self._streams.run(self.probes[key].walk() for key in new)
            searched.update(new)
            entered = []
            for key in born:
                probe = self.probes[key]
                parents = self._streams.listings[key.stream].graph.parents(key.shard)
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
            # The end of a shard that was not searched has its cursor, so reading on there would skip records.
            full = self._fill({*(found.ends.keys() & searched), *entered}, cut)
            if full is not None:
                for key in entered:
                    lower(key, *full)
            if self._counting.all_shards and not lowered:
                self._streams.run(self._read_all(key, cut) for key in entered)
            self._streams.run(find(key) for key in entered)
        return min((item for item in lowered if item.millis < cut.millis), default=None)

    def _read_all(self, key: Key, cut: Cut) -> Steps[None]:
        """Read a child up to the cut although a limit is reached, because its parents need the cut; see `_find_ends`."""
        while not self.probes[key].is_read(cut):
            yield from self.probes[key].read_on(MAX_PAGE)

    def _first_of_ancestors(self, key: Key, found: Found) -> int:
        """Return a time before which the ancestors of a shard have no unread record in a batch; 0 if they have no unread record."""
        graph = self._streams.listings[key.stream].graph
        bounds: list[int] = []
        todo, seen = [key.shard], {key.shard}
        while todo:
            for parent in graph.parents(todo.pop()):
                name = Key(key.stream, parent)
                if parent not in seen and name in found.ends:
                    seen.add(parent)
                    todo.append(parent)
                    bounds.append(self.probes[name].lower_bound(found.cut.now))
        return min((bound for bound in bounds if bound < found.cut.now), default=0)

    def _born(self, found: Found, positions: Mapping[Key, ShardPosition]) -> list[Key]:
        """Return the children that have not entered, and whose parents have all ended in this batch or earlier."""
        born: list[Key] = []
        for name, listing in self._streams.listings.items():
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
            known = {key.shard: position for key, position in positions.items() if key.stream == name}
            known.update((key.shard, end.position) for key, end in found.ends.items() if key.stream == name)
            born += [Key(name, shard_id) for shard_id in listing.admitted(known)]
        self._relisted = True
        return born


def _open(positions: Mapping[Key, ShardPosition]) -> list[Key]:
    """Return the shards that are not read to their ends."""
    return [key for key, position in positions.items() if not isinstance(position, Ended)]
