"""The search for the end of a batch in a shard if the end does not follow from the unread records.

A timestamp finds the first record after a time in one call, but never the last record before it. Therefore an end is exclusive if the next
record is known, and only a shard that became quiet before the cut needs a backward search.
"""

from __future__ import annotations

from collections.abc import Callable

from kinesis_sdk.common.position import AfterSequence
from kinesis_sdk.spark.arrival_rate import ArrivalRate
from kinesis_sdk.spark.shard_reads import ShardReads
from kinesis_sdk.spark.shardio import Cursor, Page
from kinesis_sdk.spark.steps import Steps
from kinesis_sdk.spark.unread import Cut, End, Unread, UnreadRecord, end_in

NEXT_PAGE = 1_000
_SEARCH_PAGE = 4_000
_CUT_PAGE = 10
"""Number of records to read at a past cut. The first record is the end, unless Kinesis returned a record from before the cut."""

_PAGES_AT_CUT = 5
"""Maximum pages that are read from a time before the cut until a page reaches the cut."""

_MAX_BACK = 60_000
_RECORDS_BACK = 8
"""The read at the tip starts so far back that it finds about this many records, but at most ``_MAX_BACK`` milliseconds."""

_QUIET_BACK = 10_000
"""The search starts this many milliseconds before the time since which the shard is known to be quiet. A shard accepts 1,000 records per
second, so a few pages contain the records that arrived in this time.
"""

_CLOSE_ENOUGH = 20
"""The search stops when its two times are this many milliseconds apart."""


class ShardSearch:
    """One search. Each of its three steps returns the end if it found the end, and otherwise passes its findings to the next step.

    Args:
        unread: Records of the shard that were read so far; they do not reach the cut.
        select: Returns the records of a page after the position.
        lowest: Epoch milliseconds before which no unread record arrived.
        tip_lag: Milliseconds before the current time at which the search for the newest record starts.

    Attributes:
        floor: The last record that is known to lie before the cut; None if there is none.
        is_hidden: Whether empty pages hide records that the search needs, so that it has failed.
    """

    def __init__(
        self,
        reads: ShardReads,
        rate: ArrivalRate,
        cut: Cut,
        *,
        unread: Unread,
        select: Callable[[Page], list[UnreadRecord]],
        lowest: int,
        tip_lag: int,
    ) -> None:
        self._reads, self._rate, self._cut = reads, rate, cut
        self._unread, self._select, self._tip_lag = unread, select, tip_lag
        self._lowest = self._low = lowest
        self._high = cut.millis
        self._behind: int | None = None
        self.floor: UnreadRecord | None = None
        self.is_hidden: bool = False

    def begin_behind(self, floor: UnreadRecord, behind: int | None) -> None:
        """Begin after the last record that was read from the position; that read was ``behind`` milliseconds behind the tip."""
        self.floor, self._behind, self._low = floor, behind, floor.arrival

    def next_page(self, cursor: Cursor, seen_at: float | None) -> Steps[End | None]:
        """Read the page after the unread records, where most quiet shards end; no record followed their position at ``seen_at``."""
        page = yield from self._reads.read(cursor, NEXT_PAGE)
        # The records are not kept, because all shards together may have many.
        unread = self._unread.records + self._select(page)
        end = self._end_in(unread, page, cursor, len(unread))
        if page.caught_up:
            self._rate.note_arrived(len(unread), self._reads.millis_since(seen_at))
        if end is None:
            self.floor, self._behind = unread[-1], page.behind
        return end

    def at_cut(self) -> Steps[End | None]:
        """Read from a time to find the first record at or after the cut, or the last record of the shard."""
        cut = self._cut
        at, limit, back = cut.millis, _CUT_PAGE, 0
        if cut.at_tip:
            at, limit, back = min(at, cut.now), NEXT_PAGE, self._back_from_tip()
        while True:
            cursor, page = yield from self._reads.read_from(at - back, limit)
            if back <= self._tip_lag or page.caught_up or len(page.records) < limit:
                break
            back = max(self._tip_lag, back // 8)  # busier than expected: a read nearer to the tip
        if not cut.at_tip:
            self._rate.note_at_cut([record.arrival for record in self._select(page)], cut.millis)
        elif page.caught_up and back:
            self._rate.at_tip = len(page.records) / back
        for _ in range(_PAGES_AT_CUT):
            unread = self._select(page)
            end = self._end_in(unread, page, cursor)
            if end is not None:
                return end
            if not page.records:
                break
            self.floor = unread[-1] if unread else self.floor
            page = yield from self._reads.read(cursor, NEXT_PAGE)
        if page.records and self.floor is not None:
            # Not even these pages reach the cut, so no other shard may go further than this one.
            return End(
                AfterSequence(self.floor.sequence_number),
                self._expected(),
                cut=min(self.floor.arrival + 1, cut.millis),
                cursor=cursor,
            )
        self.is_hidden = not page.records and not page.caught_up
        self._high = at - back
        if self.floor is not None:
            self._low = max(self._low, self.floor.arrival)
        return None

    def _back_from_tip(self) -> int:
        """Return the milliseconds before the tip at which to look for the newest record."""
        rate = self._rate.at_tip
        if self.floor is not None:
            rate = max(rate, len(self._unread.records) / max(1, self.floor.arrival - self._low))
        back = round(min(_MAX_BACK, _RECORDS_BACK / rate)) if rate else _QUIET_BACK
        return max(self._tip_lag, back)

    def backwards(self) -> Steps[End | None]:
        """Find the last record of a shard that became quiet before the cut: after the floor, and before the time of `at_cut`."""
        assert self.floor is not None
        # Whether `behind` is the distance to the newest record or to the present is not documented; both are good first guesses.
        guess = min(self._high, self._low + self._behind if self._behind else self._high) - _QUIET_BACK
        while self._high - self._low > _CLOSE_ENOUGH:
            middle = guess if self._low < guess < self._high else (self._low + self._high) // 2
            guess = 0
            cursor, page = yield from self._reads.read_from(middle, _SEARCH_PAGE)
            unread = self._select(page)
            end = self._end_in(unread, page, cursor)
            if end is not None:
                return end
            if unread:
                self.floor = max(self.floor, unread[-1], key=lambda record: record.number)
                self._low = max(self._low, middle, unread[-1].arrival)
            elif page.caught_up:
                self._high = middle
            else:
                return None
        # All that follows the floor arrived within a few milliseconds, but one call may have put hundreds of records.
        cursor = self._reads.after(self.floor.sequence_number)
        while True:
            page = yield from self._reads.read(cursor, NEXT_PAGE)
            unread = self._select(page)
            end = self._end_in([self.floor, *unread], page, cursor)
            if end is not None or not unread:
                return end
            self.floor = unread[-1]

    def _end_in(
        self, unread: list[UnreadRecord], page: Page, cursor: Cursor, records: int | None = None
    ) -> End | None:
        return end_in(
            unread,
            self._cut.millis,
            caught_up=page.caught_up,
            ended=page.ended,
            cursor=cursor,
            records=self._expected() if records is None else records,
            seen_at=self._reads.used_at,
        )

    def _expected(self) -> int:
        """Return the expected number of records up to the cut."""
        return self._rate.expected(self._cut.millis - self._lowest)
