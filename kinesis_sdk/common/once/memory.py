"""Memory of a reader of one shard: the runs that it has read, as a cache of the stream that is bounded in time and bytes.

The memory has two uses. If it has a copy of a record, any copy at a later position is a repetition. It has every copy since
`RunMemory.since`, so a copy that it lacks was not stored in that period.

Each entry has its position. After a failed delivery, a reader reads again records that the memory already has. Without positions, the
reader would treat each of these records as a repetition of itself and lose it.

The memory is a series of segments in the order of the path. New entries go into the newest segment; the oldest segment is forgotten as a
whole. If the memory becomes too large, older segments are compressed before any segment is forgotten::

    forgotten │ compressed: names in sorted arrays │ sealed: names in a dict │ open
              └─ since, first                                                  └─ last

| | bytes in a dict | compressed |
| --- | ---: | ---: |
| a named record | about 110 | 33 |
| a run of unnamed records | about 145 | 145 |
| their aggregate | 50 | 50 |

No operation is linear in the copies of one record, because copies are in sorted lists and found by bisection. Runs that overlap or arrive
out of order are divided into pieces, see `kinesis_sdk.common.once.pieces`.

Pure: no clock, no locks. Times are arrivals, in milliseconds since 1970 by the clock of Kinesis.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

from kinesis_sdk.common.once.budget import MAX_BYTES
from kinesis_sdk.common.once.pieces import NO_ARRIVAL, Part, Pieces
from kinesis_sdk.common.once.table import NAMED, Run

KEPT_MILLIS = 60_000
"""Milliseconds of arrivals for which a run is kept."""

ANCESTOR = -1
"""Sequence number used for every copy in an ancestor of the shard: these copies all precede the shard's first record."""

NEVER = float("inf")

NAME_BYTES = 112
"""Bytes of a named record in a dict: 48 for its key, 32 for its place, and its share of the dict."""

COMPRESSED_NAME_BYTES = 33
"""Bytes of a named record in sorted arrays: 14 for its key, 8 for the key's hash, 8 for its place, at most 3 for the index."""

RUN_BYTES = 145
"""Bytes of a run of unnamed records: 48 for its key, 48 for its numbers and place, and its share of the dict."""

COPY_BYTES = 60
"""Bytes of each further copy of a record, and of each further run with the same key, in a segment."""

_DIGEST_BYTES = 160
"""Bytes of an aggregate in a dict of digests."""

_OPEN_CARRIER_BYTES = 160
"""Bytes of an aggregate in the open segment."""

_SINGLE_BYTES = RUN_BYTES + _OPEN_CARRIER_BYTES

CARRIER_BYTES = 50
"""Bytes of an aggregate in a sealed segment: 24 for its sequence number, 16 for its digest, 8 for its arrival."""

_SEGMENTS = 8
"""Number of segments among which a memory divides its bytes, and the time for which it keeps entries."""

MAX_SEALED = 32
"""Maximum sealed segments, because a search may visit all of them: twice as many as the spans of time need, and one more segment for each
`_LARGE` bytes that the segments take. Aggregates without an arrival, which never become too old, and look-ups over hours with few records
would cause more."""

_LARGE = 1 << 20
"""Minimum bytes of a full segment, even if compressed. In a memory of less than 32 MiB, full segments are smaller, and there are at most 24."""

_MIN_SPAN = 10_000
"""Minimum milliseconds of arrivals in a segment."""

_MAX_SEGMENT_BYTES = 8 * 1024 * 1024
"""Maximum bytes of a segment, so that compressing it is quick."""

_DICT_IS_FULL = 43_690
"""Maximum names of a segment. One more entry would double the dict (two thirds of 2^16)."""

# A place consists of the index of an aggregate in its segment and the sub-sequence number of a run's first user record. A run consists of
# the number of its first user record, its count and its place. So places sort by position, and runs by number.
_SUB_BITS = 24
_PLACE_BITS = 60
_RUN_BITS = 84
_PLACE = (1 << _PLACE_BITS) - 1
_COUNT = (1 << (_RUN_BITS - _PLACE_BITS)) - 1
_END = 1 << _PLACE_BITS

_HASH = (1 << 64) - 1

_KEY_SIZE = 14


def key_of(run: Run) -> bytes:
    """Return the key that all copies of a run's records share.

    Named and unnamed records have separate keys, because the keys have different meanings.
    """
    if run.flags & NAMED:
        return run.incarnation + run.number.to_bytes(6, "big")
    return run.incarnation + run.date.to_bytes(6, "big")


class Shortage(NamedTuple):
    """Sizes of a memory that is too small for a suspect.

    Attributes:
        allowed: Maximum bytes of the memory.
        needed: Estimated bytes with which it would reach back to the suspect's earliest copy, if records keep arriving at this rate.
        window_millis: Milliseconds of arrivals that the memory must cover.
    """

    allowed: int
    needed: int
    window_millis: int


class _Overlapping(Pieces):
    """Runs with one key that overlap, or arrived out of order."""

    __slots__ = ("digests",)

    def __init__(self) -> None:
        super().__init__()
        # Index of the first aggregate with these bytes. Equal bytes have equal tables, so a later aggregate adds
        # nothing.
        self.digests: dict[bytes, int] = {}


class Segment:
    """The runs of some aggregates that follow each other in one shard.

    The next segment begins at the arrival ``until``, or when this segment has ``max_bytes``.
    """

    __slots__ = (
        "_arrivals",
        "_compressed",
        "_copies",
        "_digests",
        "_max_bytes",
        "_names",
        "_packed_digests",
        "_packed_sequences",
        "_runs",
        "_sequences",
        "_several",
        "_until",
        "_width",
        "last",
        "newest",
        "size",
    )

    def __init__(self, until: float = NEVER, max_bytes: float = NEVER) -> None:
        # Latest arrival of its aggregates: infinity if an aggregate has no arrival, minus infinity if the segment is
        # empty.
        self.newest: float = -NEVER
        self.last: int = ANCESTOR  # sequence number of its last aggregate
        self.size: int = 0  # estimated bytes
        self._until = until
        self._max_bytes = max_bytes
        # Number of further copies of names, and of further runs with the same key.
        self._copies = 0
        # One entry for each aggregate.
        self._arrivals = array("q")
        self._sequences: list[int] = []
        self._digests: list[bytes] = []
        # The sequence numbers and digests of a sealed segment. The width of the numbers is chosen when it is sealed.
        self._packed_sequences = b""
        self._packed_digests = b""
        self._width = 0
        # Named records: the place of the first copy, and all places if there are several. A copy that arrived no later
        # than an earlier copy is left out, because every query finds the earlier copy, too. So later places have later
        # arrivals.
        self._names: dict[bytes, int] = {}
        self._several: dict[bytes, list[int]] = {}
        self._compressed: _Names | None = None
        # Unnamed runs, by incarnation and date: one, several that are disjoint and came in order, or any.
        self._runs: dict[bytes, int | list[int] | _Overlapping] = {}

    def __len__(self) -> int:
        """Return the number of runs."""
        names = len(self._names) if self._compressed is None else len(self._compressed)
        return names + len(self._runs) + self._copies

    def is_full_at(self, arrival: int | None) -> bool:
        """Return whether an aggregate with this arrival belongs in the next segment."""
        return (
            self.size >= self._max_bytes
            or len(self._names) >= _DICT_IS_FULL
            or (arrival is not None and arrival >= self._until)
        )

    def begin(self, sequence: int, arrival: int | None, digest: bytes) -> None:
        """Begin with the next aggregate, whose runs follow."""
        self.last = sequence
        self._sequences.append(sequence)
        self._digests.append(digest)
        if arrival is None:
            self._arrivals.append(NO_ARRIVAL)
            self.newest = NEVER
        else:
            self._arrivals.append(arrival)
            self.newest = max(self.newest, arrival)
        self.size += _OPEN_CARRIER_BYTES

    def add_name(self, key: bytes, sub: int) -> None:
        """Add a named record of the last aggregate."""
        place = len(self._arrivals) - 1 << _SUB_BITS | sub
        first = self._names.setdefault(key, place)
        if first == place:
            self.size += NAME_BYTES
            return
        several = self._several.get(key)
        latest = first if several is None else several[-1]
        if self._arrivals[-1] <= self._arrivals[latest >> _SUB_BITS]:
            return
        self._copies += 1
        if several is None:
            self._several[key] = [first, place]
            self.size += NAME_BYTES
        else:
            several.append(place)
        self.size += COPY_BYTES

    def add_run(self, key: bytes, number: int, count: int, sub: int) -> None:
        """Add an unnamed run of the last aggregate."""
        run = number << _RUN_BITS | count << _PLACE_BITS | (len(self._arrivals) - 1 << _SUB_BITS) | sub
        known = self._runs.setdefault(key, run)
        if known is run:
            self.size += RUN_BYTES
            return
        self._copies += 1
        if isinstance(known, int):
            known = self._runs[key] = [known]
        if isinstance(known, list):
            if _end(known[-1]) <= number:
                known.append(run)
                self.size += COPY_BYTES
                return
            runs, known = known, _Overlapping()
            self._runs[key] = known
            for one in runs:
                self._add_overlapping(known, one)
        self._add_overlapping(known, run)

    def _add_overlapping(self, known: _Overlapping, run: int) -> None:
        place = run & _PLACE
        index = place >> _SUB_BITS
        self.size += known.add(run >> _RUN_BITS, _end(run) - 1, (place, self._arrivals[index]))
        digest = self._digests[index]
        if digest not in known.digests:
            known.digests[digest] = index
            self.size += _DIGEST_BYTES

    def add_single(
        self, sequence: int, arrival: int, digest: bytes, key: bytes, number: int, count: int
    ) -> bool:
        """Add an aggregate of one run that cannot be equal to an earlier aggregate, see `RunMemory.add_single`."""
        if arrival >= self._until or self.size >= self._max_bytes:
            return False
        arrivals, runs = self._arrivals, self._runs
        run = (number << _RUN_BITS - _PLACE_BITS | count) << _PLACE_BITS | len(arrivals) << _SUB_BITS
        known = runs.get(key)
        if known is None:
            runs[key] = run
            self.size += _SINGLE_BYTES
        else:
            # The aggregates of a request share a date, and their numbers count up.
            if isinstance(known, _Overlapping):
                return False
            last = known if isinstance(known, int) else known[-1]
            if (last >> _RUN_BITS) + (last >> _PLACE_BITS & _COUNT) > number:  # `_end`, without its call
                return False
            if isinstance(known, int):
                runs[key] = [known, run]
            else:
                known.append(run)
            self._copies += 1
            self.size += COPY_BYTES + _OPEN_CARRIER_BYTES
        arrivals.append(arrival)
        self._sequences.append(sequence)
        self._digests.append(digest)
        self.last = sequence
        if arrival > self.newest:  # noqa: PLR1730 - a call of max takes longer
            self.newest = arrival
        return True

    def has_run(self, key: bytes) -> bool:
        """Return whether an unnamed run has the key."""
        return key in self._runs

    def seal(self) -> None:
        """Pack the sequence numbers and digests, which no longer grow."""
        if not self._sequences:
            return
        self._width = max(1, (max(self._sequences).bit_length() + 7) // 8)
        if self.last != ANCESTOR:
            self._packed_sequences = b"".join([one.to_bytes(self._width, "big") for one in self._sequences])
        self._packed_digests = b"".join(self._digests)
        self.size -= (_OPEN_CARRIER_BYTES - CARRIER_BYTES) * len(self._sequences)
        self._sequences, self._digests = [], []

    @property
    def is_compressed(self) -> bool:
        """Whether compressing would save nothing, or is done."""
        return self._compressed is not None or not self._names

    def compress(self) -> None:
        """Compress the names, which makes the segment slower to search."""
        self._compressed = _Names(self._names)
        self.size -= (NAME_BYTES - COMPRESSED_NAME_BYTES) * len(self._names)
        self._names = {}

    def _sequence_at(self, index: int) -> int:
        width = self._width
        if not width:
            return self._sequences[index]
        return int.from_bytes(self._packed_sequences[index * width : (index + 1) * width], "big")

    def _limit(self, sequence: int, sub: int) -> int:
        """Return the limit of the places of all aggregates before a position of the shard."""
        if sequence > self.last:
            return _END
        count = len(self._arrivals)
        if sequence == self.last:  # the most frequent case besides a later position
            return count - 1 << _SUB_BITS | sub
        index = bisect_left(range(count), sequence, key=self._sequence_at)
        is_there = index < count and self._sequence_at(index) == sequence
        return index << _SUB_BITS | (sub if is_there else 0)

    def has_name(self, key: bytes, sequence: int, sub: int, since: float) -> bool:
        """Return whether a named record has a copy that lies before a position and arrived at ``since`` or later."""
        place = self._place_of(key)
        if place is None:
            return False
        limit = self._limit(sequence, sub)
        several = self._several.get(key)
        if several is None:
            return place < limit and self._arrivals[place >> _SUB_BITS] >= since
        index = bisect_left(several, limit) - 1
        return index >= 0 and self._arrivals[several[index] >> _SUB_BITS] >= since

    def parts(self, key: bytes, wanted: Part, sequence: int, sub: int, since: float) -> Iterator[Part]:
        """Yield the parts of a run with a copy that lies before a position and arrived at ``since`` or later; they are disjoint."""
        known = self._runs.get(key)
        if known is None:
            return
        limit = self._limit(sequence, sub)
        if isinstance(known, _Overlapping):
            yield from known.parts(wanted, limit, since)
            return
        for run in _overlapping(known, wanted):
            place = run & _PLACE
            if place < limit and self._arrivals[place >> _SUB_BITS] >= since:
                yield max(run >> _RUN_BITS, wanted[0]), min(_end(run) - 1, wanted[1])

    def has_equal(self, key: bytes, wanted: Part, sequence: int, digest: bytes) -> bool:
        """Return whether an aggregate of the shard before a sequence number has equal bytes and contains the run."""
        known = self._runs.get(key)
        if known is None or self.last == ANCESTOR:
            return False
        limit = self._limit(sequence, 0)
        if isinstance(known, _Overlapping):
            index = known.digests.get(digest)
            return index is not None and index << _SUB_BITS < limit
        return any(
            run & _PLACE < limit and self._digest_at((run & _PLACE) >> _SUB_BITS) == digest
            for run in _overlapping(known, wanted)
        )

    def has_equal_name(self, key: bytes, sequence: int, digest: bytes) -> bool:
        """Return whether an aggregate of the shard before a sequence number has equal bytes and contains the named record."""
        # Of several copies, the first and the last copy before the limit are enough: equal bytes are stored right after
        # each other.
        place = self._place_of(key)
        if place is None or self.last == ANCESTOR:
            return False
        limit = self._limit(sequence, 0)
        several = self._several.get(key, ())
        latest = several[bisect_left(several, limit) - 1] if several else place
        return any(one < limit and self._digest_at(one >> _SUB_BITS) == digest for one in {place, latest})

    def _place_of(self, key: bytes) -> int | None:
        """Return the place of the first copy of a named record; None if there is none."""
        return self._names.get(key) if self._compressed is None else self._compressed.get(key)

    def _digest_at(self, index: int) -> bytes:
        if self._digests:
            return self._digests[index]
        size = len(self._packed_digests) // len(self._arrivals)
        return self._packed_digests[index * size : (index + 1) * size]


def _end(run: int) -> int:
    """Return the number after a run's last number."""
    return (run >> _RUN_BITS) + (run >> _PLACE_BITS & _COUNT)


def _overlapping(known: int | list[int], wanted: Part) -> Iterator[int]:
    """Yield the known runs, which are disjoint, that overlap a part: at most as many as the part has numbers."""
    runs = [known] if isinstance(known, int) else known
    for index in range(bisect_left(runs, wanted[1] + 1 << _RUN_BITS) - 1, -1, -1):
        if _end(runs[index]) <= wanted[0]:
            return
        yield runs[index]


class _Names:
    """Named records and their places, in arrays sorted by the hashes of the names.

    An index by the first bits of the hash limits each search to few entries.
    """

    __slots__ = ("_hashes", "_keys", "_places", "_shift", "_starts")

    def __init__(self, names: dict[bytes, int]) -> None:
        items = sorted([(hash(key) & _HASH, key, place) for key, place in names.items()])
        self._hashes = array("Q", [item[0] for item in items])
        self._keys = b"".join([item[1] for item in items])
        self._places = array("Q", [item[2] for item in items])
        bits = max(0, len(items).bit_length() - 2)
        self._shift = 64 - bits
        self._starts = array(
            "I",
            [bisect_left(self._hashes, prefix << self._shift) for prefix in range((1 << bits) + 1)],
        )

    def __len__(self) -> int:
        return len(self._hashes)

    def get(self, key: bytes) -> int | None:
        """Return the place of a name; None if this segment does not have the name."""
        digest = hash(key) & _HASH
        prefix = digest >> self._shift
        index = bisect_left(self._hashes, digest, self._starts[prefix], self._starts[prefix + 1])
        while index < len(self._hashes) and self._hashes[index] == digest:
            if self._keys[index * _KEY_SIZE : (index + 1) * _KEY_SIZE] == key:
                return self._places[index]
            index += 1
        return None


def _segment_bytes(max_bytes: int) -> int:
    return min(max_bytes // _SEGMENTS, _MAX_SEGMENT_BYTES)


def _shrink(segments: Sequence[Segment], size: int, max_bytes: int) -> int:
    """Compress segments, starting with the first, until they fit; return their total bytes."""
    for segment in segments:
        if size <= max_bytes:
            break
        if not segment.is_compressed:
            before = segment.size
            segment.compress()
            size += segment.size - before
    return size


class RunMemory:
    """The runs that one reader of one shard has read, or looked up.

    Attributes:
        since: Arrival since which every copy on the shard's path is here; infinity before the first read.
        first: Sequence number since which every copy in the shard itself is here; infinity before the first read.
        last: Sequence number of the last record of the shard that was read; -1 before the first.
    """

    __slots__ = (
        "_max_bytes",
        "_open",
        "_reach",
        "_reach_at",
        "_sealed",
        "_sealed_bytes",
        "_sealed_newest",
        "_short_until",
        "first",
        "last",
        "since",
    )

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.since: float = NEVER
        self.first: float = NEVER
        self.last: int = -1
        self._max_bytes = max_bytes
        # In the order of the path, the oldest segment leftmost.
        self._sealed: deque[Segment] = deque()
        self._sealed_bytes = 0
        # Latest arrival in the sealed segments.
        self._sealed_newest = -NEVER
        self._open = Segment(-NEVER, _segment_bytes(max_bytes))
        # Arrival before which copies are missing for lack of bytes.
        self._short_until = -NEVER
        # Milliseconds by which recent searches for suspects looked back, and the arrival of the last suspect that needed at
        # least half of that.
        self._reach = 0
        self._reach_at = 0

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._open) + sum(map(len, self._sealed))

    @property
    def size(self) -> int:
        """Estimated bytes that the memory takes."""
        return self._open.size + self._sealed_bytes

    @property
    def room(self) -> int:
        """Bytes for the results of a look-up; 0 if the results would be forgotten at once."""
        free = self._max_bytes - self.size
        return free if free * _SEGMENTS >= self._max_bytes else 0

    def begin(self, sequence: int, arrival: int | None, digest: bytes) -> None:
        """Begin with an aggregate read from the shard, whose runs follow; forget entries that are then too old."""
        if self._open.is_full_at(arrival):
            self._follow(arrival)
        self._open.begin(sequence, arrival, digest)

    def add_single(
        self, sequence: int, arrival: int, digest: bytes, key: bytes, number: int, count: int, since: int
    ) -> bool:
        """Add an aggregate of one unnamed run that was read from the shard; a fast path for `begin` and `add_run`.

        ``since`` is the arrival since which earlier runs with the key matter. Return False, with nothing added, if there may be
        an equal run, or if the aggregate belongs in the next segment.
        """
        if self._sealed_newest >= since and self.has_run(key, since):
            return False
        return self._open.add_single(sequence, arrival, digest, key, number, count)

    def add_name(self, key: bytes, sub: int) -> None:
        """Add a named record of the last aggregate."""
        self._open.add_name(key, sub)

    def add_run(self, key: bytes, number: int, count: int, sub: int) -> None:
        """Add an unnamed run of the last aggregate."""
        self._open.add_run(key, number, count, sub)

    def _follow(self, arrival: int | None) -> None:
        self._seal()
        if arrival is not None:
            self._expire(arrival)
        self._fit()
        span = max(_MIN_SPAN, (KEPT_MILLIS + self._reach) // _SEGMENTS)
        until = NEVER if arrival is None else arrival + span
        self._open = Segment(until, _segment_bytes(self._max_bytes))

    def _seal(self) -> None:
        if len(self._open):
            self._open.seal()
            self._sealed.append(self._open)
            self._sealed_bytes += self._open.size
            self._sealed_newest = max(self._sealed_newest, self._open.newest)

    def _fit(self) -> None:
        sealed, allowed = self._sealed, self._max_bytes - self._max_bytes // _SEGMENTS
        if self._sealed_bytes > allowed:
            self._sealed_bytes = _shrink(sealed, self._sealed_bytes, allowed)
        while sealed and self._sealed_bytes > allowed:
            self._forget_oldest()
            self._short_until = self.since
        while len(sealed) > MAX_SEALED + self._sealed_bytes // _LARGE:
            self._forget_oldest()

    def _expire(self, arrival: int) -> None:
        if arrival - self._reach_at > KEPT_MILLIS:
            self._reach = 0
        horizon = arrival - self._reach - KEPT_MILLIS
        while self._sealed and self._sealed[0].newest < horizon:
            self._forget_oldest()
            # Nothing since then was forgotten for lack of bytes.
            self._short_until = -NEVER

    def _forget_oldest(self) -> None:
        segment = self._sealed.popleft()
        self._sealed_bytes -= segment.size
        # Arrivals may contradict the order of positions, so the two bounds rise independently.
        self.since = max(self.since, segment.newest + 1)
        if segment.last != ANCESTOR:
            self.first = max(self.first, segment.last + 1)

    def shortage(self, since: int) -> Shortage | None:
        """Return the shortage if copies since a time are missing because of too few bytes; otherwise None.

        The argument must be before the memory's own `since`.
        """
        newest = max(self._open.newest, self._sealed_newest)
        if since >= self._short_until or newest == NEVER or newest <= self.since:
            return None
        window = newest - since
        # A whole segment is forgotten at a time, and another segment may be empty. At least this part of the bytes is
        # in use.
        used = (_SEGMENTS - 2) / _SEGMENTS
        needed = self.size * window / (newest - self.since) / used
        return Shortage(self._max_bytes, ceil(max(needed, self._max_bytes)), round(window))

    def leave_out(self) -> None:
        """Note that a look-up found copies for which there is no room."""
        self._short_until = self.since

    def restore(
        self, found: Iterable[Segment], since: float, first: float, *, left_out: bool = False
    ) -> None:
        """Add the copies that a look-up found.

        Args:
            found: Copies before all entries of the memory, in the order of the path.
            since: Arrival since which they are complete.
            first: Sequence number in the shard since which they are complete.
            left_out: Whether there was no room for older copies.
        """
        self.since = min(self.since, since)
        self.first = min(self.first, first)
        self._short_until = self.since if left_out else -NEVER
        segments = [*found]
        self._sealed.extendleft(reversed(segments))
        self._sealed_bytes += sum(segment.size for segment in segments)
        self._sealed_newest = max([self._sealed_newest, *(segment.newest for segment in segments)])
        self._fit()

    def reach(self, distance: int, arrival: int) -> None:
        """Keep entries longer, because the search for a suspect's copies went back ``distance`` milliseconds from its ``arrival``."""
        if arrival - self._reach_at > KEPT_MILLIS:
            self._reach = 0
        # Distances vary. A shorter distance must not let the memory forget copies that the next longer distance needs.
        if distance >= self._reach // 2:
            self._reach, self._reach_at = max(self._reach, distance), arrival

    def has_name(self, key: bytes, sequence: int, sub: int, since: float) -> bool:
        """Return whether a named record has a copy that lies before a position and arrived at ``since`` or later."""
        if self._open.has_name(key, sequence, sub, since):
            return True
        return any(
            segment.newest >= since and segment.has_name(key, sequence, sub, since)
            for segment in reversed(self._sealed)
        )

    def parts(self, key: bytes, wanted: Part, sequence: int, sub: int, since: float) -> list[Part]:
        """Return the parts of a run with a copy that lies before a position and arrived at ``since`` or later; they may overlap."""
        found = [*self._open.parts(key, wanted, sequence, sub, since)]
        for segment in self._sealed:
            if segment.newest >= since:
                found += segment.parts(key, wanted, sequence, sub, since)
        return found

    def has_run(self, key: bytes, since: float) -> bool:
        """Return whether the memory may have an unnamed run that has the key and arrived at ``since`` or later."""
        if self._open.has_run(key):
            return True
        return any(segment.newest >= since and segment.has_run(key) for segment in self._sealed)

    def has_equal(self, key: bytes, wanted: Part, sequence: int, digest: bytes) -> bool:
        """Return whether an aggregate of the shard before a sequence number has equal bytes and contains the run."""
        return self._open.has_equal(key, wanted, sequence, digest) or any(
            segment.has_equal(key, wanted, sequence, digest) for segment in self._sealed
        )

    def has_equal_name(self, key: bytes, sequence: int, since: float, digest: bytes) -> bool:
        """Return whether an equal aggregate before a sequence number has the named record; segments older than ``since`` do not count."""
        return self._open.has_equal_name(key, sequence, digest) or any(
            segment.newest >= since and segment.has_equal_name(key, sequence, digest)
            for segment in self._sealed
        )


class Recollection:
    """The copies that a look-up reads, until it is complete: the newest copies, as many as a memory holds.

    Shards are in the order in which they are read: the shard itself, then its ancestors, each from old to new.

    Attributes:
        since: Arrival since which no copy was left out; None if no copy was ever left out.
        first: Sequence number in the shard since which no copy was left out; None if no copy was ever left out.
    """

    __slots__ = ("_max_bytes", "_shards", "_size", "first", "since")

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.since: float | None = None
        self.first: int | None = None
        self._max_bytes = max_bytes
        # Bytes of all segments, except the last segment of the shard that is being read.
        self._size = 0
        self._shards: list[deque[Segment]] = []

    def begin_shard(self) -> None:
        """Begin with a shard that is older than all previous shards, or independent of them."""
        if self._shards:
            self._seal()
        self._shards.append(deque([self._new_segment(None)]))

    def _new_segment(self, arrival: int | None) -> Segment:
        until = NEVER if arrival is None else arrival + 6 * _MIN_SPAN
        return Segment(until, _segment_bytes(self._max_bytes))

    def begin(self, sequence: int, arrival: int | None, digest: bytes) -> None:
        """Begin with the next aggregate of the shard, whose runs follow."""
        shard = self._shards[-1]
        if not len(shard[-1]):
            shard[-1] = self._new_segment(arrival)
        elif shard[-1].is_full_at(arrival):
            self._seal()
            shard.append(self._new_segment(arrival))
        shard[-1].begin(sequence, arrival, digest)

    def add_name(self, key: bytes, sub: int) -> None:
        """Add a named record of the last aggregate."""
        self._shards[-1][-1].add_name(key, sub)

    def add_run(self, key: bytes, number: int, count: int, sub: int) -> None:
        """Add an unnamed run of the last aggregate."""
        self._shards[-1][-1].add_run(key, number, count, sub)

    def _seal(self) -> None:
        shard = self._shards[-1]
        shard[-1].seal()
        self._size += shard[-1].size
        allowed = self._max_bytes - self._max_bytes // _SEGMENTS
        if self._size > allowed:
            self._size = _shrink([*self._in_order()], self._size, allowed)
        while shard and self._size > allowed:
            left_out = shard.popleft()
            self._size -= left_out.size
            self.since = max(self.since or 0, left_out.newest + 1)
            if left_out.last != ANCESTOR:
                self.first = left_out.last + 1

    def _in_order(self) -> Iterator[Segment]:
        return (segment for shard in reversed(self._shards) for segment in shard)

    def finish(self) -> list[Segment]:
        """Return the copies in the order of the path. No copy may be added afterwards; the bounds are final only now."""
        if self._shards:
            self._seal()
        return [segment for segment in self._in_order() if len(segment)]
