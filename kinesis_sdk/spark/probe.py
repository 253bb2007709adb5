"""The driver's information about one shard: the arrival time of its first unread record, and the end of a batch in the shard.

A batch contains, for every shard, the records before the shard's first record that arrived at or after the *cut*, which is one time for
the whole query.
`ShardProbe.walk` finds the arrival time of the shard's first unread record; the planner chooses the cut from these times of all shards.
`ShardProbe.find_end` then finds the end in the shard: the first record at or after the cut, the last record if nothing follows it, or the
end of the shard. Arrival times are approximate, and only determine the end of the batch: a wrong time moves the border between two
batches, and cannot lose or repeat a record.

API cost per probe:

| shard | GetRecords + GetShardIterator |
| --- | --- |
| idle, or with few new records | 1 + 0, at longer intervals the longer it is idle |
| busy, at the tip or behind it | 1 + 1 |
| its next record is known to lie past the cut | 0 + 0 |
| quiet since before the cut, up to about 1,000 unread records | 2 + 0 |
| quiet since before the cut, more unread records | 3 + 2 to about 9 + 8, once |
| closed, with the cut at the tip | 0 + 0 |
| any, if a limit counts the rows or bytes of the batch | one read for each page of the batch |
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.position import AfterSequence, AtSequence, Ended, TrimHorizon
from kinesis_sdk.spark.arrival_rate import ArrivalRate
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.shard_reads import MAX_PAGE, ShardReads
from kinesis_sdk.spark.shard_search import NEXT_PAGE, ShardSearch
from kinesis_sdk.spark.shardio import Cursor, Page, ShardIo, arrival_of, first_number
from kinesis_sdk.spark.steps import Steps
from kinesis_sdk.spark.unread import Cut, End, Unread, UnreadRecord

if TYPE_CHECKING:
    from kinesis_sdk.common.records import KinesisRecord

FIRST_PAGE = 25
"""Records of a first read. In a quiet shard, these records are often all new records, and the executors read them again; at the KPL's
usual 50 KB they are an eighth of a page.
"""

_BUSY_RECORDS = 500
"""The walk is skipped if at most this number of new records is expected, because the page at the tip then shows the end."""

_CONFIRMATIONS = 4
"""Empty reads that prove that a closed shard has ended. At three reads per second, they take at least a second."""

_NOT_YET_READABLE = 1_000
"""Milliseconds for which a record may be unreadable after its arrival."""

_IDLE_FRACTION = 16
"""An idle shard is probed again after this fraction of the time for which it has been quiet."""

_SHORTEST_PERIOD = 0.5
"""Seconds. The probes of idle shards are not spread over a shorter time, because a trigger interval is rarely shorter."""

_KEEP = 240.0
"""Seconds for which an unused iterator is certainly valid; Kinesis keeps it for five minutes."""


@dataclass(frozen=True)
class Counting:
    """Limits for which a probe counts records.

    Attributes:
        per_shard: Maximum Kinesis records of the batch in this shard; None for no maximum.
        all_shards: Whether every record before the cut is read, because a limit holds for all shards together.
        rows: Whether the rows of a Kinesis record are counted in addition to the record.
    """

    per_shard: int | None = None
    all_shards: bool = False
    rows: bool = False

    def __bool__(self) -> bool:
        return self.per_shard is not None or self.all_shards


NOTHING = Counting()

# Makes a named tuple from a complete tuple at a third of the cost of the constructor.
_new: Callable[..., Any] = tuple.__new__


def _number(record: KinesisRecord) -> int:
    return int(record.sequence_number)


class ShardProbe:
    """The planner's information about one shard, including the state that is kept between probes to save calls.

    The state is only a cache: a new object at the same position also finds an end, with more calls. A probe is
    `begin`, perhaps `walk`, then `find_end` (again with an earlier cut, if another shard needs one), then `accept`. The
    read at the tip starts ``tip_lag`` milliseconds before the current time.
    """

    def __init__(self, io: ShardIo, shard_id: str, tip_lag: int) -> None:
        self.shard_id = shard_id
        self._reads = ShardReads(io, shard_id)
        self._tip_lag = tip_lag
        self._phase = zlib.crc32(shard_id.encode()) / (1 << 32)
        self._position: ShardPosition = TrimHorizon()
        self._via: ShardPosition | None = None
        # Kept between probes, for the position:
        self._cursor: Cursor | None = None
        self._following: int | None = None
        self._seen_at: float | None = None
        self._rate = ArrivalRate()
        # Of this probe:
        self._counting = NOTHING
        self._unread = Unread()
        self._skipped = False
        self._gave_up_at: int | None = None

    # -- the first unread record ----------------------------------------------------------------------------------

    def begin(
        self,
        position: ShardPosition,
        *,
        via: ShardPosition | None = None,
        counting: Counting = NOTHING,
        patient: bool = False,
    ) -> None:
        """Begin a probe. The state of the last probe is kept if that probe ended at ``position``, which is not `Ended`.

        ``via`` is the position at which to open an iterator if Kinesis may no longer accept ``position``. ``patient`` follows any number
        of empty pages, for reads that stop at the current records.
        """
        reads = self._reads
        if position != self._position:
            self._position = position
            self._cursor = self._following = self._seen_at = None
        elif reads.now() > reads.used_at + _KEEP:
            # The cursor's iterator has expired. Trying it would cost a read, and the cursor would open the next iterator at a
            # sequence number, which may be deleted, instead of at ``via``.
            self._cursor = None
        self._via = via
        self._counting = counting
        self._unread = Unread()
        self._skipped = False
        self._gave_up_at = None
        reads.patient = patient
        if reads.busy_at is None:
            reads.busy_at = reads.now()

    def is_due(self, bound: float) -> bool:
        """Return whether to probe the shard now. An idle shard is read less often, but at least every ``bound`` seconds."""
        busy_at = self._reads.busy_at
        if self._following is not None or self._seen_at is None or busy_at is None:
            return True
        now = self._reads.now()
        pause = (now - busy_at) / _IDLE_FRACTION
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
        busy_at = self._reads.busy_at
        return 0.0 if busy_at is None else self._reads.now() - busy_at

    def was_seen_empty_since(self, moment: float) -> bool:
        """Return whether no record followed the position at ``moment`` (monotonic seconds) or later."""
        return self._following is None and self._seen_at is not None and self._seen_at >= moment

    def walk(self) -> Steps[None]:
        """Find when the first unread record arrived."""
        count = self._counting.per_shard
        if count is not None:
            while len(self._unread.records) <= count and not self._is_at_its_end:
                yield from self._read_on(min(MAX_PAGE, count + 1 - len(self._unread.records)))
            return
        is_numbered = isinstance(self._position, AfterSequence | AtSequence)
        if self._following is not None and is_numbered:
            return
        gap = self._reads.millis_since(self._seen_at)
        expected = self._rate.at_tip * gap
        # A read from a time may return records before a position without a sequence number. Only the walk then finds the first unread
        # record.
        is_busy = expected > min(_BUSY_RECORDS, FIRST_PAGE * (1 + gap / 1000))
        if is_numbered and is_busy and not self._counting:
            self._skipped = True
            return
        yield from self._read_on(int(min(NEXT_PAGE, max(FIRST_PAGE, 3 * expected))))
        if self._unread.caught_up:
            self._rate.note_arrived(len(self._unread.records), self._reads.millis_since(self._seen_at))

    @property
    def count_limit(self) -> int | None:
        """Cut (epoch milliseconds) up to which this shard has the maximum records of a batch; None if it does not exceed that number."""
        count = self._counting.per_shard
        if count is None or len(self._unread.records) <= count:
            return None
        # The maximum, because arrival times may decrease. Other shards deliver all records of that millisecond.
        return max(record.arrival for record in self._unread.records[:count]) + 1

    def lower_bound(self, now: int) -> int:
        """Return a time (epoch milliseconds) before which no unread record arrived; without unread records, the probe's start ``now``."""
        if self._unread.records:
            return self._unread.records[0].arrival
        if self._following is not None:
            return self._following
        if self._skipped and self._seen_at is not None:
            return now - round(self._reads.millis_since(self._seen_at)) - _NOT_YET_READABLE
        return now if self._unread.hidden_from is None else self._unread.hidden_from

    # -- reading all records of a batch, to count them ----------------------------------------------------------------

    @property
    def unread_records(self) -> list[UnreadRecord]:
        """Records that were read after the position, without a gap."""
        return self._unread.records

    def read_up_to(self, now: int) -> int:
        """For a probe that began at ``now``, return the time in epoch milliseconds before which all records of a batch are known."""
        return self._unread.latest if self._unread.records else self.lower_bound(now)

    def is_read(self, cut: Cut) -> bool:
        """Return whether further reads would show no more records of a batch that ends at a cut."""
        count = self._counting.per_shard
        full = count is not None and len(self._unread.records) > count
        return full or self._is_at_its_end or self.read_up_to(cut.now) >= cut.millis

    def read_on(self, limit: int) -> Steps[None]:
        """Read one more page of at most ``limit`` records."""
        yield from self._read_on(limit)

    @property
    def _is_at_its_end(self) -> bool:
        """Whether no record follows the unread records, or none that can be read now."""
        return self._unread.caught_up or self._unread.hidden_from is not None

    # -- the end of the batch -------------------------------------------------------------------------------------

    def end_at_start(self) -> End:
        """Return the start as the end, without a call."""
        return End(self._position, following=self._following, cursor=self._cursor, seen_at=self._seen_at)

    def find_end(self, cut: Cut, *, closed: bool) -> Steps[End]:
        """Find the end of the batch in this shard; the shard is ``closed`` if it accepts no more records according to the listing."""
        if self._gave_up_at is not None and cut.millis <= self._gave_up_at:
            end: End | None = self._up_to(cut.millis)
        else:
            end = self._known_end(cut, closed=closed)
        if end is None and not self._counting:
            end = yield from self._search(cut)
        if end is None:
            return self._give_up(cut)
        if closed and end.seen_at is not None and end.following is None and not cut.at_tip:
            end = yield from self._confirm(end)
        return end

    def _confirm(self, end: End) -> Steps[End]:
        """Return `Ended` for a closed shard if no record follows its last record, even if no response reports its end.

        Its children enter in this batch, because the cut may be later than their first records. The reads take so long that every record
        that arrived before them is readable by then. If they find no record, no record follows.
        """
        cursor = end.cursor or self._reads.cursor(end.position, self._via)
        for _ in range(_CONFIRMATIONS):
            page = yield from cursor.steps(FIRST_PAGE)
            if page.ended:
                break
            if page.records or not page.caught_up:
                return end._replace(cursor=None, seen_at=None)
        return End(Ended(), end.records)

    def _known_end(self, cut: Cut, *, closed: bool) -> End | None:
        """Return the end if no call is needed to find it."""
        unread = self._unread
        index = unread.first_at(cut.millis, self._counting.per_shard)
        if index is not None:
            return unread.end_at(index, self._position)
        count = len(unread.records)
        if closed and cut.at_tip and (unread.caught_up or not self._counting):
            # A read may find nothing although the last records of a closed shard are still to come.
            return End(Ended(), max(count, self._expected(cut)))
        if unread.caught_up:
            # Not the present time: other shards may have taken seconds since the read.
            behind = End(self._last_position(), count, cursor=self._cursor, seen_at=self._reads.used_at)
            return End(Ended(), count) if unread.ended else behind
        later = self._following if self._following is not None else unread.hidden_from
        if not count and later is not None and later >= cut.millis:
            return self.end_at_start()
        return None

    def _search(self, cut: Cut) -> Steps[End | None]:
        """Find an end that does not follow from the unread records; None if empty pages hide it."""
        unread = self._unread
        search = ShardSearch(
            self._reads,
            self._rate,
            cut,
            unread=unread,
            select=self._select,
            lowest=self.lower_bound(cut.now),
            tip_lag=self._tip_lag,
        )
        end = None
        if unread.records:
            cursor, self._cursor = self._cursor or self._cursor_behind(), None
            end = yield from search.next_page(cursor, self._seen_at)
        if end is None:
            end = yield from search.at_cut()
        if end is None and search.floor is None and not search.is_hidden:
            # Nothing was read after the position, neither by the walk nor near the cut.
            page = yield from self._read_on(NEXT_PAGE)
            end = self._known_end(cut, closed=False)
            if unread.records:
                search.begin_behind(unread.records[-1], page.behind)
        if end is None and search.floor is not None and not search.is_hidden:
            end = yield from search.backwards()
        return end

    def _give_up(self, cut: Cut) -> End:
        """Return an earlier cut, up to which this shard could be read, because empty pages hide the next records."""
        records = self._unread.records
        reached = records[-1].arrival + 1 if records else self.lower_bound(cut.now)
        self._gave_up_at = min(reached, cut.millis)
        return self._up_to(self._gave_up_at)._replace(cut=self._gave_up_at)

    def _up_to(self, cut: int) -> End:
        """Return the end among the records that were read, for a shard in which further reads failed."""
        index = self._unread.first_at(cut)
        if index is not None:
            return self._unread.end_at(index, self._position)
        if not self._unread.records:
            return self.end_at_start()
        return End(self._last_position(), len(self._unread.records), cursor=self._cursor)

    def accept(self, end: End) -> None:
        """Make the position of an end, from `find_end` or `end_at_start`, the expected start of the next probe."""
        self._position = end.position
        self._unread = Unread()
        self._cursor, self._following, self._seen_at = end.cursor, end.following, end.seen_at

    # -- reading --------------------------------------------------------------------------------------------------

    def _read_on(self, limit: int) -> Steps[Page]:
        """Read the records that follow the unread records, and add them."""
        unread = self._unread
        cursor = self._cursor = self._cursor or self._cursor_behind()
        page = yield from self._reads.read(cursor, limit)
        unread.add(self._select(page))
        unread.caught_up, unread.ended = page.caught_up, page.ended
        if not page.records and not page.caught_up:
            unread.hidden_from = self._reads.service_millis() - (page.behind or 0)
        return page

    def _last_position(self) -> ShardPosition:
        """Return the position after the unread records."""
        records = self._unread.records
        return AfterSequence(records[-1].sequence_number) if records else self._position

    def _cursor_behind(self) -> Cursor:
        """Return a cursor after the records that this probe has read, or at the position."""
        if self._unread.records:
            return self._reads.cursor(self._last_position())
        return self._reads.cursor(self._position, self._via)

    def _select(self, page: Page) -> list[UnreadRecord]:
        """Return the records of a page that come after the position."""
        records = self._unread.records
        first = records[0].number if records else first_number(self._position)
        rows: Callable[[KinesisRecord], int] | None = None
        if self._counting.rows:
            from kinesis_sdk.common.aggregate_reader import count_user_records  # few queries need it

            rows = count_user_records
        found = page.records
        if found and int(found[0].sequence_number) < first:
            found = found[bisect_left(found, first, key=_number) :]
        unread = []
        moment, arrival = None, 0
        for record in found:
            # Records of the same PutRecords call have the same time, and the search reads pages of thousands of records.
            if record.approximate_arrival_timestamp is not moment or moment is None:
                moment, arrival = record.approximate_arrival_timestamp, arrival_of(record)
            size = len(record.data) + len(record.partition_key)
            unread.append(
                _new(
                    UnreadRecord, (record.sequence_number, arrival, 1 if rows is None else rows(record), size)
                )
            )
        return unread

    def _expected(self, cut: Cut) -> int:
        """Return the expected number of records up to a cut."""
        return self._rate.expected(cut.millis - self.lower_bound(cut.now))
