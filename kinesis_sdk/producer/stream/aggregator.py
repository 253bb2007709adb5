"""Aggregation of user records into Kinesis records, one open aggregate per predicted shard.

An aggregate is closed when it reaches its size or count limit, or at its earliest deadline; aggregates with deadlines shortly afterwards
are closed at the same time, so that they share its request. Without a shard map, records are grouped by effective hash key: such an
aggregate is valid with any shard map, because all its records belong to the same shard.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.shards import ShardMap
from kinesis_sdk.producer.records.entry import Entry, Group
from kinesis_sdk.producer.records.record import BufferedRecord
from kinesis_sdk.producer.stream.sealing import SizeEstimate

_MAX_KEYS = 8_192

_CALL_COST = 24
"""Number of Kinesis records that cost about as much CPU time as a request."""

_MAX_GATHERED = 128
"""Bound of the scan for aggregates that leave early."""

_NEVER = float("inf")


class Bin:
    """Holder of a group's open aggregate, if there is one.

    The fast path of `put` remembers the bin of each key; the bin stays the same while aggregates in it are opened and closed.
    """

    __slots__ = ("entry", "group")

    def __init__(self, group: Group) -> None:
        self.group: Group = group
        self.entry: Entry | None = None


class OpenAggregates:
    """Open aggregates for the fast path of `put`: finds the aggregate for a record without an explicit hash key.

    Attributes:
        by_key: Bins of partition keys. The dict is bounded: when it is full, the bins of further keys are looked up by hash key; without
            shards, the dict is emptied instead.
        ends: Last hash key (16 bytes) of each shard, in order; empty if records are not grouped by shard.
        bins: Bins of the shards, in the same order.
    """

    __slots__ = ("bins", "by_key", "ends")

    def __init__(self) -> None:
        self.by_key: dict[str, Bin] = {}
        self.ends: Sequence[bytes] = ()
        self.bins: Sequence[Bin] = ()

    def find(self, partition_key: str, hash_key: bytes) -> Bin | None:
        """Return the bin of a key that is not in `by_key`, and add it to `by_key`; None without a shard map."""
        if not self.ends or not partition_key:
            return None
        place = self.bins[bisect_left(self.ends, hash_key)]
        if len(self.by_key) < _MAX_KEYS:
            self.by_key[partition_key] = place
        return place

    def forget(self) -> None:
        """Drop all bins, because from now on records may be grouped differently."""
        self.by_key.clear()
        self.ends = self.bins = ()


class Aggregator:
    """Groups user records into Kinesis records. It never reads a clock: records and callers provide the times. Not thread-safe.

    Args:
        max_size: Maximum bytes of an aggregated record.
        max_count: Maximum user records of an aggregate; 1 disables aggregation.
        entries: Collection to which every new Kinesis record is added while it is still empty.
        tagged: Whether new aggregates contain a table of runs.
        estimate: Decides how large an aggregate becomes before it is sealed; None if aggregates are not sealed.
        shards: Shards by which records are grouped; None if records are not grouped by shard.
        known: Open aggregates for the fast path of `put`, which appends to them without calling this class; None if that path is closed.
    """

    __slots__ = (
        "_bins",
        "_earliest",
        "_entries",
        "_estimate",
        "_known",
        "_latest",
        "_open_bins",
        "max_count",
        "max_size",
        "tagged",
    )

    def __init__(
        self,
        max_size: int,
        max_count: int,
        entries: dict[Entry, None] | None = None,
        *,
        tagged: bool = False,
        estimate: SizeEstimate | None = None,
        shards: ShardMap | None = None,
        known: OpenAggregates | None = None,
    ) -> None:
        self.max_size: int = max_size
        self.max_count: int = max_count
        self.tagged: bool = tagged
        self._estimate = estimate
        self._known = known
        self.forget_keys()
        self._entries = {} if entries is None else entries
        self._bins: dict[Group, Bin] = {}
        if shards is not None and known is not None:
            self._bins = {shard_id: Bin(shard_id) for shard_id in shards.ids}
            known.ends, known.bins = shards.ends, [*self._bins.values()]
        self._open_bins: dict[Bin, Entry] = {}
        # Never later than the earliest deadline of an open aggregate; corrected when it is reached.
        self._earliest = _NEVER
        # Never earlier than the latest deadline of an open aggregate; infinity if an aggregate was opened before another one that is due
        # earlier.
        self._latest = -_NEVER

    def add(
        self,
        record: BufferedRecord,
        data: bytes,
        hash_key: bytes,
        group: Group,
        deadline: float,
        expires: float,
        epoch: int = 0,
    ) -> Entry | None:
        """Add a record to the open aggregate of its group.

        Returns a Kinesis record that is ready to be sent: an aggregate that had no room left for this record, or an aggregate that this
        record filled. None if nothing is ready.
        """
        place = self._bins.get(group)
        if place is None:
            place = Bin(group)
        known = self._known
        if known is not None and not known.ends and record.explicit_hash_key is None and record.partition_key:
            if len(known.by_key) >= _MAX_KEYS:
                known.by_key.clear()
            known.by_key[record.partition_key] = place
        closed: Entry | None = None
        entry = place.entry
        if entry is not None and entry.epoch != epoch:
            if record.history is None:
                # Flushes wait for Kinesis records: a new record shares one only with records of its own epoch.
                closed, entry = self._close(place), None
            else:
                record.own_epoch = epoch
                entry.mixed = True
        if entry is None or not entry.take(record, data, hash_key, deadline, expires):
            if entry is not None:
                closed = self._close(place)
            entry = self._open(place, epoch)
            entry.take(record, data, hash_key, deadline, expires)
        if record._details is None:
            entry.open_for = entry.epoch
        if closed is None and entry.aggregate.is_full:
            return self._close(place)
        if deadline < self._earliest:  # noqa: PLR1730 - `min` is a call for every record
            self._earliest = deadline
        self._latest = deadline if deadline >= self._latest else _NEVER
        return closed

    def begin(
        self,
        place: Bin,
        record: BufferedRecord,
        data: bytes,
        hash_key: bytes,
        deadline: float,
        expires: float,
        epoch: int,
    ) -> Entry | None:
        """`add` for a new record without an explicit hash key or details, whose shard has a bin, but no open aggregate."""
        entry = self._open(place, epoch)
        if self.tagged:
            entry.take(record, data, hash_key, deadline, expires)
        else:
            entry.begin(record, data, hash_key, deadline, expires)
        entry.open_for = epoch
        if entry.aggregate.is_full:
            return self._close(place)
        if deadline < self._earliest:  # noqa: PLR1730 - `min` is a call for every record
            self._earliest = deadline
        self._latest = deadline if deadline >= self._latest else _NEVER
        return None

    def close_due(self, now: float, lead: float = 0.0, gather: float = 0.0) -> list[Entry]:
        """If a deadline has passed, close and return all aggregates whose deadline passes within ``lead`` seconds.

        If few records share an aggregate, close the aggregates whose deadline passes within ``gather`` seconds, too, except for aggregates that
        began with a retry: its backoff is not shortened.
        """
        if now < self._earliest:
            return []
        until, gathered = now + lead, now + max(lead, gather)
        # Deadlines of new records rise, so the scan usually ends with the first aggregate that stays open, which saves time if there is
        # an aggregate for each key.
        is_sorted = self._latest < _NEVER
        due: list[Bin] = []
        soon: list[Bin] = []
        joined = seen = 0
        first = next_soon = rest = _NEVER
        latest = -_NEVER
        for place, entry in self._open_bins.items():
            deadline = entry.deadline
            if deadline <= until:
                due.append(place)
                joined += len(entry.records) - 1
                if deadline < first:  # noqa: PLR1730 - `min` is a call for every aggregate
                    first = deadline
                continue
            latest = deadline if deadline >= latest else _NEVER
            gathers = deadline <= gathered and joined <= _CALL_COST and seen < _MAX_GATHERED
            seen += 1
            if gathers and entry.records[0].due is None:
                soon.append(place)
                joined += len(entry.records) - 1
                next_soon = min(next_soon, deadline)
                continue
            rest = min(rest, deadline)
            if is_sorted and not gathers:
                break
        if first > now:
            self._earliest = min(first, next_soon, rest)
            return []
        if joined <= _CALL_COST:
            # On average, an open aggregate is halfway through its buffered time. So if these aggregates leave now, about as many records
            # as they contain can no longer join them, and become Kinesis records of their own.
            due += soon
        else:
            rest = min(rest, next_soon)
        self._earliest = rest
        if not is_sorted:
            self._latest = latest
        return [self._close(place) for place in due]

    def close_all(self) -> list[Entry]:
        """Close and return all aggregates, earliest deadline first."""
        places = sorted(self._open_bins, key=lambda place: self._open_bins[place].deadline)
        return [self._close(place) for place in places]

    def forget_keys(self) -> None:
        """Forget the aggregate of each key, because later records with the key may belong to another aggregate."""
        if self._known is not None:
            self._known.forget()

    @property
    def next_deadline(self) -> float:
        """Time at which `close_due` may close an aggregate; infinity if no aggregate is open."""
        return self._earliest if self._open_bins else _NEVER

    def _open(self, place: Bin, epoch: int) -> Entry:
        shard_id = place.group if isinstance(place.group, str) else None
        size = self.max_size if self._estimate is None else self._estimate.inner_for(self.max_size)
        entry = Entry(Aggregate(size, self.max_count, runs=Runs() if self.tagged else None), shard_id, epoch)
        self._entries[entry] = None
        self._open_bins[place] = entry
        self._bins[place.group] = place
        place.entry = entry
        return entry

    def _close(self, place: Bin) -> Entry:
        entry = place.entry
        assert entry is not None
        entry.aggregate.seal()
        place.entry = None
        del self._open_bins[place]
        if isinstance(place.group, bytes):
            del self._bins[place.group]  # there are as many as keys
        return entry
