"""Search for the end of a batch in one shard, by the driver.

A batch holds, of every shard, the records before its first record that arrived at or after the *cut*, one time for the
whole query. The search therefore has two parts. `ShardProbe.walk` finds when the first unread record of the shard
arrived; from these times of all shards the planner chooses the cut. `ShardProbe.find_end` then finds the end in the
shard: the first record at or after the cut, the last record if nothing follows it, or the end of the shard. Arrival
times are approximate, and only choose where the batch ends: a wrong or disordered time moves the border between two
batches, and cannot lose or repeat a record.

A timestamp finds the first record after a time in one call, but never the last record before it. Therefore an end is
exclusive where the next record is known, and only a shard that became quiet before the cut needs a search.

API cost per probe:

| shard | GetRecords + GetShardIterator |
| --- | --- |
| idle, or with few new records | 1 + 0, at longer intervals the longer it is idle |
| busy, at the tip or behind it | 1 + 1 |
| its next record is known to lie past the cut | 0 + 0 |
| quiet since before the cut, up to about 1,000 unread records | 2 + 0 |
| quiet since before the cut, more unread records | 3 + 2 to about 9 + 8, once |
| closed, with the cut at the tip | 0 + 0 |
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from kinesis_sdk.common.errors import InvalidPositionError
from kinesis_sdk.common.position import AfterSequence, AtSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.spark.errors import StalledError
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.shardio import Cursor, Page, ShardIo, arrival_of, first_number
from kinesis_sdk.spark.steps import Pace, Steps

MAX_PAGE = 10_000
"""Maximum records of a GetRecords response (API reference)."""

FIRST_PAGE = 25
"""Records of a first read. In a quiet shard, they are often all that is new, and the executors read them again: at the KPL's usual
50 KB they are an eighth of a page.
"""

_WALK_PAGE = 1_000
_SEARCH_PAGE = 4_000
_JUMP_PAGE = 10
"""Records of a read at a past cut. The first one is the end, unless Kinesis returned a record from before the cut."""

_BUSY_RECORDS = 500
"""Expected new records from which the walk is skipped, because the page at the tip shows the end."""

_HOPS = 5
"""Empty pages that one read follows. Kinesis may return them anywhere; they do not mean that a shard is idle."""

_CONFIRMATIONS = 4
"""Empty reads that prove that a closed shard has ended. At three a second they take at least a second."""

_PAGES_AT_CUT = 5
"""Pages that are read from a time before the cut, until one reaches it."""

_MAX_BACK = 60_000
_RECORDS_BACK = 8
"""The read at the tip starts so far back that it finds about this many records, but at most ``_MAX_BACK`` milliseconds."""

_QUIET_BACK = 10_000
"""The search starts this many milliseconds before the moment since which the shard is known to be quiet. A shard takes 1,000 records
a second, so a few pages hold what arrived then.
"""

_NOT_YET_READABLE = 1_000
"""Milliseconds after its arrival for which a record may be unreadable."""

_CLOSE_ENOUGH = 20
"""The search stops when its two times are this many milliseconds apart."""

_IDLE_FRACTION = 16
"""An idle shard is probed again after this fraction of the time for which it has been quiet."""

_SHORTEST_PERIOD = 0.5
"""Seconds. Below it, the probes of idle shards are not spread, because a trigger is rarely shorter."""

_KEEP = 240.0
"""Seconds for which an unused iterator is certainly valid; Kinesis keeps it for five minutes."""

_MAX_RATE = 1.0
"""Records per millisecond that a shard takes."""

_UNKNOWN_WEIGHT = 1_000
"""Expected records up to an end about which nothing is known."""


class UnreadRecord(NamedTuple):
    """A record without its data; ``arrival`` is in epoch milliseconds."""

    sequence_number: str
    arrival: int

    @property
    def number(self) -> int:
        """The sequence number as an integer."""
        return int(self.sequence_number)


class Cut(NamedTuple):
    """The time at which a batch ends in every shard.

    Attributes:
        millis: Epoch milliseconds; records that arrived then or later belong to the next batch.
        now: Epoch milliseconds at which the probe began.
        at_tip: Whether no limit holds the cut back.
    """

    millis: int
    now: int
    at_tip: bool


class End(NamedTuple):
    """The end of a batch in one shard.

    Attributes:
        position: The start itself if there is nothing to read.
        records: Expected number of records up to the position, for balancing tasks.
        cut: An earlier cut, which all shards must accept because this one could not be read up to the cut; None otherwise.
        following: Arrival in epoch milliseconds of the record behind the position, if it is known.
        cursor: Cursor at the position, if there is one.
        seen_at: Monotonic seconds at which nothing followed the position; None if something did, or if that is unknown.
    """

    position: ShardPosition
    records: int = 0
    cut: int | None = None
    following: int | None = None
    cursor: Cursor | None = None
    seen_at: float | None = None


class ShardProbe:
    """One shard as the planner sees it, and what is kept between probes to save calls.

    Everything in it is a cache: a new one at the same position finds an end as well, with more calls. A probe is
    `begin`, perhaps `walk`, then `find_end` (again with an earlier cut, if another shard needs one), then `accept`. The
    read at the tip starts ``tip_lag`` milliseconds before the current time.
    """

    def __init__(self, io: ShardIo, shard_id: str, tip_lag: int) -> None:
        self.shard_id = shard_id
        self._io = io
        self._tip_lag = tip_lag
        self._phase = zlib.crc32(shard_id.encode()) / (1 << 32)
        self._pace = Pace()
        self._position: ShardPosition = TrimHorizon()
        self._via: ShardPosition | None = None
        # Kept between probes, for the position:
        self._cursor: Cursor | None = None
        self._following: int | None = None
        self._seen_at: float | None = None
        self._rate = 0.0  # records per millisecond
        self._rate_at_cut = 0.0  # the same behind a cut in the past
        self._busy_at: float | None = (
            None  # monotonic seconds at which there were records, or of the first probe
        )
        self._used_at = float("-inf")  # monotonic seconds of the last read
        # Of this probe:
        self._patient = False
        self._count: int | None = None
        self._unread_records: list[UnreadRecord] = []  # what follows the position, without a gap
        self._caught_up = False  # nothing follows the unread records
        self._ended = False  # and nothing will
        self._skipped = False
        self._frontier: int | None = (
            None  # nothing arrived before this time, and what follows could not be read
        )
        self._gave_up_at: int | None = None

    # -- the first unread record ----------------------------------------------------------------------------------

    def begin(
        self,
        position: ShardPosition,
        *,
        via: ShardPosition | None = None,
        count: int | None = None,
        patient: bool = False,
    ) -> None:
        """Begin a probe. What is known of the shard is kept if the last probe ended at ``position``, which is not `Ended`.

        ``via`` is where to open an iterator if Kinesis may no longer know ``position``. ``count`` is the maximum number
        of records of the batch in this shard (None: unlimited). ``patient`` follows any number of empty pages, for
        reads that stop at the current records.
        """
        if position != self._position:
            self._position = position
            self._cursor = self._following = self._seen_at = None
        elif self._io.clock.monotonic() > self._used_at + _KEEP:
            # Its iterator has expired. Trying it would cost a read, and the cursor would open the next iterator at a sequence number,
            # which may be deleted, instead of at ``via``.
            self._cursor = None
        self._via = via
        self._count = count
        self._patient = patient
        self._unread_records = []
        self._caught_up = self._ended = self._skipped = False
        self._frontier = self._gave_up_at = None
        if self._busy_at is None:
            self._busy_at = self._io.clock.monotonic()

    def is_due(self, bound: float) -> bool:
        """Return whether to probe the shard now. An idle shard waits, but for at most ``bound`` seconds."""
        if self._following is not None or self._seen_at is None or self._busy_at is None:
            return True
        now = self._io.clock.monotonic()
        pause = (now - self._busy_at) / _IDLE_FRACTION
        period = bound
        while period > pause and period > _SHORTEST_PERIOD:
            period /= 2
        if not 0 < period <= pause:
            return now >= self._seen_at + min(pause, bound)
        # Each shard has its own place in the period, so that a thousand shards that became idle together are not probed together.
        return now >= self._seen_at + period - (self._seen_at + self._phase * period) % period

    @property
    def quiet_for(self) -> float:
        """Seconds for which no probe found a record."""
        return 0.0 if self._busy_at is None else self._io.clock.monotonic() - self._busy_at

    def was_seen_empty_since(self, moment: float) -> bool:
        """Return whether nothing followed the position at ``moment``, in monotonic seconds, or later."""
        return self._following is None and self._seen_at is not None and self._seen_at >= moment

    def walk(self) -> Steps[None]:
        """Find when the first unread record arrived."""
        if self._count is not None:
            yield from self._walk_counted(self._count)
            return
        is_numbered = isinstance(self._position, AfterSequence | AtSequence)
        if self._following is not None and is_numbered:
            return
        gap = self._gap
        expected = self._rate * gap
        # A read at a time may return records before a position without a sequence number. Only the walk then finds the first one.
        if is_numbered and expected > min(_BUSY_RECORDS, FIRST_PAGE * (1 + gap / 1000)):
            self._skipped = True
            return
        page = yield from self._read_on(int(min(_WALK_PAGE, max(FIRST_PAGE, 3 * expected))))
        if page.caught_up:
            self._note_rate(len(self._unread_records))

    @property
    def _gap(self) -> float:
        """Milliseconds since nothing followed the position; 0 if that is not known."""
        return 0.0 if self._seen_at is None else (self._io.clock.monotonic() - self._seen_at) * 1000

    def _note_rate(self, records: int) -> None:
        """Note how many records the shard received since nothing followed the position."""
        if self._gap:
            self._rate = records / max(self._gap, 500.0)

    def _note_rate_at_cut(self, page: Page) -> None:
        """Note the rate of arrivals behind a cut, at most the rate that a shard accepts."""
        arrivals = [arrival_of(record) for record in page.records]
        # Bounded, because one request may store hundreds of records in a millisecond.
        if arrivals and arrivals[-1] > arrivals[0]:
            self._rate_at_cut = min(_MAX_RATE, (len(arrivals) - 1) / (arrivals[-1] - arrivals[0]))

    def _walk_counted(self, count: int) -> Steps[None]:
        """Read one record more than the batch may hold, or all there are."""
        while len(self._unread_records) <= count:
            page = yield from self._read_on(min(MAX_PAGE, count + 1 - len(self._unread_records)))
            if page.caught_up or not page.records:
                break

    @property
    def count_limit(self) -> int | None:
        """Cut in epoch milliseconds up to which this shard has as many records as the batch may hold; None if it has no more than that."""
        if self._count is None or len(self._unread_records) <= self._count:
            return None
        # The maximum, because arrival times may decrease. Other shards deliver all records of that millisecond.
        return max(record.arrival for record in self._unread_records[: self._count]) + 1

    def lower_bound(self, now: int) -> int:
        """Return a time before which no unread record arrived, in epoch milliseconds; ``now``, the start of the probe, if there is none."""
        if self._unread_records:
            return self._unread_records[0].arrival
        if self._following is not None:
            return self._following
        if self._skipped and self._seen_at is not None:
            return now - round((self._io.clock.monotonic() - self._seen_at) * 1000) - _NOT_YET_READABLE
        return now if self._frontier is None else self._frontier

    # -- the end of the batch -------------------------------------------------------------------------------------

    def end_at_start(self) -> End:
        """Return the start as the end, without a call."""
        return End(self._position, following=self._following, cursor=self._cursor, seen_at=self._seen_at)

    def find_end(self, cut: Cut, *, closed: bool) -> Steps[End]:
        """Find the end of the batch in this shard; ``closed`` if the listing says that it takes no more records."""
        end = yield from self._find_end(cut, closed=closed)
        if closed and end.seen_at is not None and end.following is None and not cut.at_tip:
            end = yield from self._confirm(end)
        return end

    def _confirm(self, end: End) -> Steps[End]:
        """Return `Ended` for a closed shard if nothing follows its last record, even if no response says that it has ended.

        Its children enter in this batch, because the cut may lie behind their first records. The reads take so long
        that any record that arrived before them has become readable. If they find nothing, nothing follows.
        """
        cursor = end.cursor or self._io.cursor(self.shard_id, end.position, via=self._via, pace=self._pace)
        for _ in range(_CONFIRMATIONS):
            page = yield from cursor.steps(FIRST_PAGE)
            if page.ended:
                break
            if page.records or not page.caught_up:
                return end._replace(cursor=None, seen_at=None)
        return End(Ended(), end.records)

    def _find_end(self, cut: Cut, *, closed: bool) -> Steps[End]:
        if self._gave_up_at is not None and cut.millis <= self._gave_up_at:
            return self._up_to(cut.millis)
        known = self._known_end(cut, closed=closed)
        if known is not None:
            return known
        if self._count is not None:
            return self._give_up(cut)
        lowest = self.lower_bound(cut.now)
        floor, behind = None, None
        if self._unread_records:
            # One more page: most quiet shards end in it. Its records are not kept, because all shards together may have many.
            cursor, self._cursor = self._cursor or self._cursor_after_unread(), None
            page = yield from self._read(cursor, _WALK_PAGE)
            unread = self._unread_records + self._unread(page)
            end = self._end_in(unread, page, cut.millis, cursor, len(unread))
            if page.caught_up:
                self._note_rate(len(unread))
            if end is not None:
                return end
            floor, behind = unread[-1], page.behind
        return (yield from self._jump(cut, lowest, floor, behind))

    def _known_end(self, cut: Cut, *, closed: bool) -> End | None:
        """Return the end if it is known without a call."""
        for index, record in enumerate(self._unread_records):
            if record.arrival >= cut.millis or index == self._count:
                if not index:
                    return End(self._position, following=record.arrival)
                return End(AtSequence(record.sequence_number), index, following=record.arrival)
        if closed and cut.at_tip and (self._count is None or self._caught_up):
            # The last records of a closed shard may not be readable yet, even if none followed just now.
            return End(Ended(), max(len(self._unread_records), self._expected(cut)))
        if self._caught_up:
            return self._end_behind(
                self._unread_records[-1] if self._unread_records else None,
                self._cursor,
                len(self._unread_records),
            )
        later = self._following if self._following is not None else self._frontier
        if not self._unread_records and later is not None and later >= cut.millis:
            return self.end_at_start()
        return None

    def _jump(self, cut: Cut, lowest: int, floor: UnreadRecord | None, behind: int | None) -> Steps[End]:
        """Find the first record at or after the cut, or the last one of the shard, by a read at a time.

        No unread record arrived before ``lowest``. ``floor`` is the last record that was read from the position, if
        any; its read reported that it was ``behind`` milliseconds behind the tip.
        """
        at, limit = cut.millis, _JUMP_PAGE
        back = 0
        if cut.at_tip:
            rate = self._rate
            if floor is not None:
                rate = max(rate, len(self._unread_records) / max(1, floor.arrival - lowest))
            back = round(min(_MAX_BACK, _RECORDS_BACK / rate)) if rate else _QUIET_BACK
            back, at, limit = max(self._tip_lag, back), min(at, cut.now), _WALK_PAGE
        while True:
            cursor, page = yield from self._read_from(at - back, limit)
            if back <= self._tip_lag or page.caught_up or len(page.records) < limit:
                break
            back = max(self._tip_lag, back // 8)  # busier than expected: a read nearer to the tip
        if cut.at_tip and page.caught_up and back:
            self._rate = len(page.records) / back
        if not cut.at_tip:
            self._note_rate_at_cut(page)
        for _ in range(_PAGES_AT_CUT):
            unread = self._unread(page)
            end = self._end_in(unread, page, cut.millis, cursor, self._expected(cut))
            if end is not None:
                return end
            if not page.records:
                break
            floor = unread[-1] if unread else floor
            page = yield from self._read(cursor, _WALK_PAGE)
        if page.records and floor is not None:
            # Not even these pages reach the cut, so no other shard must go further than this one.
            reached = AfterSequence(floor.sequence_number)
            return End(reached, self._expected(cut), cut=min(floor.arrival + 1, cut.millis), cursor=cursor)
        if not page.records and not page.caught_up:
            return self._give_up(cut)
        low = max(lowest, floor.arrival) if floor is not None else lowest
        return (yield from self._search(cut, low, at - back, floor, behind))

    def _search(
        self, cut: Cut, low: int, high: int, floor: UnreadRecord | None, behind: int | None
    ) -> Steps[End]:
        """Find the last record of a shard that became quiet before the cut.

        If ``floor`` (the last record read from the position) is given, there is a record at or after ``low``; none can
        be read from ``high`` on.
        """
        if floor is None:
            page = yield from self._read_on(_WALK_PAGE)
            known = self._known_end(cut, closed=False)
            if known is not None:
                return known
            if not self._unread_records:
                return self._give_up(cut)
            floor, behind = self._unread_records[-1], page.behind
            low = floor.arrival  # without a walk, the given time means nothing
        # Whether `behind` is the distance to the newest record or to the present is not documented; both are good first guesses.
        guess = min(high, low + behind if behind else high) - _QUIET_BACK
        while high - low > _CLOSE_ENOUGH:
            middle = guess if low < guess < high else (low + high) // 2
            guess = 0
            cursor, page = yield from self._read_from(middle, _SEARCH_PAGE)
            unread = self._unread(page)
            end = self._end_in(unread, page, cut.millis, cursor, self._expected(cut))
            if end is not None:
                return end
            if unread:
                floor = max(floor, unread[-1], key=lambda record: record.number)
                low = max(low, middle, unread[-1].arrival)
            elif page.caught_up:
                high = middle
            else:
                return self._give_up(cut)
        # All that follows the floor arrived within a few milliseconds, but one call may have put hundreds of records.
        cursor = self._io.cursor(self.shard_id, AfterSequence(floor.sequence_number), pace=self._pace)
        while True:
            page = yield from self._read(cursor, _WALK_PAGE)
            unread = self._unread(page)
            end = self._end_in([floor, *unread], page, cut.millis, cursor, self._expected(cut))
            if end is not None:
                return end
            if not unread:
                return self._give_up(cut)
            floor = unread[-1]

    def _end_in(
        self, unread: list[UnreadRecord], page: Page, cut: int, cursor: Cursor | None, records: int
    ) -> End | None:
        """Return the end if unread records show it: before the first one at the cut, or behind the last one of the shard.

        ``unread`` are in order and end with those of ``page``, behind which ``cursor`` stands; ``records`` is the
        expected number up to the end.
        """
        for record in unread:
            if record.arrival >= cut:
                return End(AtSequence(record.sequence_number), records, following=record.arrival)
        if page.ended:
            return End(Ended(), records)
        if page.caught_up and unread:
            return self._end_behind(unread[-1], cursor, records)
        return None

    def _end_behind(self, last: UnreadRecord | None, cursor: Cursor | None, records: int) -> End:
        """Return the end behind the last record of the shard; the start if there was none."""
        if self._ended:
            return End(Ended(), records)
        position = self._position if last is None else AfterSequence(last.sequence_number)
        # Not the present time: other shards may have taken seconds since the read.
        return End(position, records, cursor=cursor, seen_at=self._used_at)

    def _give_up(self, cut: Cut) -> End:
        """Return an earlier cut, up to which this shard could be read: empty pages hide what follows."""
        reached = self._unread_records[-1].arrival + 1 if self._unread_records else self.lower_bound(cut.now)
        self._gave_up_at = min(reached, cut.millis)
        return self._up_to(self._gave_up_at)._replace(cut=self._gave_up_at)

    def _up_to(self, cut: int) -> End:
        """Return the end among the records that were read, for a shard that could not be read further."""
        for index, record in enumerate(self._unread_records):
            if record.arrival >= cut:
                return End(AtSequence(record.sequence_number), index, following=record.arrival)
        if not self._unread_records:
            return self.end_at_start()
        return End(
            AfterSequence(self._unread_records[-1].sequence_number),
            len(self._unread_records),
            cursor=self._cursor,
        )

    def accept(self, end: End) -> None:
        """Make the position of an end, from `find_end` or `stay`, the expected start of the next probe."""
        self._position = end.position
        self._unread_records = []
        self._cursor, self._following, self._seen_at = end.cursor, end.following, end.seen_at

    # -- reading --------------------------------------------------------------------------------------------------

    def _read_on(self, limit: int) -> Steps[Page]:
        """Read what follows the unread records, and add it to them."""
        cursor = self._cursor = self._cursor or self._cursor_after_unread()
        page = yield from self._read(cursor, limit)
        self._unread_records += self._unread(page)
        self._caught_up, self._ended = page.caught_up, page.ended
        if not page.records and not page.caught_up:
            self._frontier = self._io.service_clock.millis() - (page.behind or 0)
        return page

    def _read(self, cursor: Cursor, limit: int) -> Steps[Page]:
        """Read until a page has records, or nothing follows."""
        hops = 0
        began = self._io.clock.monotonic()
        while True:
            page = yield from cursor.steps(limit)
            self._used_at = self._io.clock.monotonic()
            if page.records:
                self._busy_at = self._used_at
            if page.records or page.caught_up or (hops >= _HOPS and not self._patient):
                return page
            if self._patient and self._used_at > began + self._io.retry_timeout:
                raise StalledError(
                    f"stream {self._io.stream.name}, shard {self.shard_id} returned only empty pages for "
                    f"{self._used_at - began:.0f} s, although records follow"
                )
            if page.dropped:
                limit = MAX_PAGE  # opened by time, up to ten minutes before its position
            else:
                hops += 1

    def _read_from(self, millis: int, limit: int) -> Steps[tuple[Cursor, Page]]:
        """Read from the first record at or after a time."""
        for back in (0, 1_000, 5_000):
            cursor = self._io.cursor(
                self.shard_id,
                TrimHorizon(),
                via=AtTimestamp(max(0, millis - back)),
                await_instant=False,
                pace=self._pace,
            )
            try:
                page = yield from self._read(cursor, limit)
            except InvalidPositionError:
                continue  # Kinesis rejects a time ahead of its own clock, and our estimate of it may be ahead.
            return cursor, page
        raise InvalidPositionError(
            f"shard {self.shard_id}: the clock of this machine is more than 5 s ahead of the clock of Kinesis",
            operation="GetShardIterator",
            code="InvalidArgumentException",
        )

    def _cursor_after_unread(self) -> Cursor:
        """Return a cursor behind the records that this probe has read, or at the position."""
        if self._unread_records:
            return self._io.cursor(
                self.shard_id, AfterSequence(self._unread_records[-1].sequence_number), pace=self._pace
            )
        return self._io.cursor(self.shard_id, self._position, via=self._via, pace=self._pace)

    def _unread(self, page: Page) -> list[UnreadRecord]:
        """Return the records of a page that lie behind the position."""
        first = self._unread_records[0].number if self._unread_records else first_number(self._position)
        unread = [UnreadRecord(record.sequence_number, arrival_of(record)) for record in page.records]
        return [record for record in unread if record.number >= first] if first >= 0 else unread

    def _expected(self, cut: Cut) -> int:
        """Return the expected number of records up to a cut."""
        rate = self._rate or self._rate_at_cut
        if not rate:
            return _UNKNOWN_WEIGHT
        return max(1, round(rate * (cut.millis - self.lower_bound(cut.now))))
