"""Search for the end of a batch in a shard: the driver probes the shard for a record that exists.

Kinesis has no call for the latest sequence number. The search finds a record by timestamp, and its sequence number becomes the end.
Approximate arrival times can therefore make a batch shorter or longer, but cannot lose a record.

Cost of each probe: one GetRecords if the shard is idle or has a few new records; one GetShardIterator and one GetRecords at the tip
if it has many. It does not depend on the size of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_sdk.common.errors import PermanentAwsError
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.shardio import Cursor, Page, ShardIo, arrival_of

PEEK = 25
"""Records of a first probe. They are all that is new in a quiet shard, so that one call finds the end. The number is small because
the executors read the same records again: at the KPL's usual 50 KB they are an eighth of a page."""

_HOPS = 5
"""Empty pages that one probe follows. Kinesis may return them anywhere; they do not mean that a shard is idle."""

_HOP_PAUSE = 0.2
"""Seconds between them, because a shard allows five reads per second."""

_FIRST_STEP, _STEP_FACTOR, _CLOSE_ENOUGH = 2_400, 8, 2_000
"""Milliseconds: the first step back from the tip, the factor of each further one, where bisecting stops."""

_PAGE = 10_000


@dataclass(frozen=True)
class Found:
    """The end of a batch in one shard.

    Attributes:
        end: The position; the start itself if there is nothing to read.
        behind: Milliseconds from the end to the tip; None if that is not known.
        drained_at: Epoch milliseconds at which the shard had nothing after the end; None if that was not checked.
    """

    end: ShardPosition
    behind: int | None
    drained_at: int | None = None


class ShardProbe:
    """Probes one shard for ends of batches, and keeps between two probes what saves calls.

    Args:
        io: Calls of the stream.
        shard_id: The shard.
        tip_lag: Milliseconds before the current time at which the search for the newest record starts.
    """

    def __init__(self, io: ShardIo, shard_id: str, tip_lag: int) -> None:
        self._io = io
        self._shard_id = shard_id
        self._tip_lag = tip_lag
        self._active = False
        self._peek_at: ShardPosition | None = None
        self._peek_cursor: Cursor | None = None

    def find_end(
        self,
        start: ShardPosition,
        *,
        via: ShardPosition | None = None,
        closed: bool = False,
        span: int | None = None,
        count: int | None = None,
        cap: ShardPosition | None = None,
    ) -> Found:
        """Return the end of the next batch.

        Args:
            start: Start of the batch; not `Ended`.
            via: Position to open an iterator at, if Kinesis may no longer know ``start``.
            closed: Whether the listing says that the shard takes no more records.
            span: Maximum milliseconds of stream time; None for no limit.
            count: Maximum Kinesis records; None for no limit.
            cap: Position at which the query stops; None if it does not stop.

        Raises:
            AwsError: If a call failed permanently.
        """
        if cap is not None and is_reached(start, cap):
            return Found(start, 0, None)
        found = (
            self._counted(start, via, count, cap) if count else self._spanned(start, via, closed, span, cap)
        )
        self._active = found.end != start
        return found

    def find_tip(
        self,
        start: ShardPosition,
        *,
        via: ShardPosition | None = None,
        closed: bool = False,
        until: int | None = None,
    ) -> ShardPosition:
        """Return the newest record now (`AfterSequence`), `Ended`, or ``start`` if nothing follows it.

        Unlike `find_end`, it follows empty pages for as long as it takes.

        Args:
            start: Position to start from; not `Ended`.
            via: See `find_end`.
            closed: See `find_end`.
            until: Epoch milliseconds. The first record that arrived then or later is enough, if there is one.
        """
        now = self._io.service_clock.millis()
        if until is not None and until < now - self._tip_lag:
            page = self._at(until, 1, patient=True)
            if page.records:
                return after(page.records[0])
        if closed:
            return Ended()
        page = self._peek(start, via, patient=True)
        if page.ended or not page.records:
            return Ended() if page.ended else start
        if page.caught_up:
            return after(page.records[-1])
        found = self._search(now - self._tip_lag, now, arrival_of(page.records[0]), patient=True)
        return self._later(found, page.records[-1])

    # -- the two kinds of batches -------------------------------------------------------------------------------

    def _counted(
        self, start: ShardPosition, via: ShardPosition | None, count: int, cap: ShardPosition | None
    ) -> Found:
        cursor = self._io.cursor(self._shard_id, start, via=via)
        page = self._follow(cursor, count, patient=cap is not None)
        if not page.records:
            return self._nothing(start, page)
        records = _until(page.records, cap)
        if page.ended and len(records) == len(page.records):
            return Found(Ended(arrival_of(records[-1])), 0)
        return Found(after(records[-1]) if records else start, page.behind)

    def _spanned(
        self,
        start: ShardPosition,
        via: ShardPosition | None,
        closed: bool,
        span: int | None,
        cap: ShardPosition | None,
    ) -> Found:
        now = self._io.service_clock.millis()
        begun = time_of(start)
        if span is None or (begun is not None and begun + span >= now):
            if isinstance(cap, AfterSequence):
                return Found(cap, 0)
            if closed:
                return Found(Ended(begun), 0)
        tip = now - self._tip_lag
        probed: tuple[int, Page] | None = None
        if self._active and begun is not None:
            target = tip if span is None else min(tip, begun + span)
            page = self._at(target, 1 if target < tip else _PAGE, patient=False)
            probed = target, page
            found = _hit(page, begun, historical=target < tip)
            if isinstance(found, Ended) or (found is not None and not is_reached(start, found)):
                return self._bounded(found, cap, now, at_tip=target == tip)
            # There is nothing at the target. Check whether there are new records before searching for the newest one.
        page = self._peek(start, via, patient=cap is not None)
        if not page.records:
            return self._nothing(start, page)
        first = arrival_of(page.records[0])
        # After a silence longer than the span, the span starts at the next record.
        limit = None if span is None else max(first, (first if begun is None else begun) + span)
        within = [r for r in page.records if limit is None or arrival_of(r) <= limit]
        if len(within) < len(page.records):
            return self._bounded(after(within[-1]), cap, now)
        if page.caught_up:
            last = after(within[-1])
            return self._bounded(Ended(last.arrival) if page.ended else last, cap, now, at_tip=True)
        target = tip if limit is None else min(tip, limit)
        known = probed[1] if probed is not None and probed[0] == target else None
        found = self._search(target, now, arrival_of(within[-1]), historical=target < tip, page=known)
        return self._bounded(self._later(found, within[-1]), cap, now, at_tip=target == tip)

    def _bounded(
        self, end: ShardPosition, cap: ShardPosition | None, now: int, *, at_tip: bool = False
    ) -> Found:
        if isinstance(cap, AfterSequence) and (isinstance(end, Ended) or is_reached(end, cap)):
            end = cap
        if at_tip or not isinstance(end, AfterSequence):
            return Found(end, 0)
        arrival = end.arrival
        return Found(end, None if arrival is None else max(0, now - arrival - self._tip_lag))

    def _nothing(self, start: ShardPosition, page: Page) -> Found:
        if page.ended:
            return Found(Ended(time_of(start)), 0)
        return Found(start, page.behind, self._io.service_clock.millis() if page.caught_up else None)

    # -- probing ------------------------------------------------------------------------------------------------

    def _peek(self, start: ShardPosition, via: ShardPosition | None, *, patient: bool = False) -> Page:
        """Return the first records after the start; the cursor is kept while there are none."""
        cursor = self._peek_cursor
        if cursor is None or self._peek_at != start:
            cursor = self._io.cursor(self._shard_id, start, via=via)
        self._peek_cursor = None
        page = self._follow(cursor, PEEK, patient=patient)
        if not page.records and not page.ended:
            self._peek_at, self._peek_cursor = start, cursor
        return page

    def _follow(self, cursor: Cursor, limit: int, *, patient: bool = False) -> Page:
        """Return the next page that has records, or that nothing follows."""
        hops = 0
        while True:
            page = cursor.read(limit)
            if page.records or page.caught_up or (hops >= _HOPS and not patient):
                return page
            hops += 1
            self._io.sleep(_HOP_PAUSE)

    def _search(
        self,
        target: int,
        now: int,
        lower: int,
        *,
        historical: bool = False,
        patient: bool = False,
        page: Page | None = None,
    ) -> AfterSequence | Ended | None:
        """Return a record at a time, or the last one before it.

        Args:
            target: Epoch milliseconds.
            now: Epoch milliseconds now.
            lower: Time at which, or after which, there is a record.
            historical: Whether the target is not the tip. Then the result is the first record at or after it, otherwise the
                last record of the shard.
            patient: Whether to follow empty pages for as long as it takes.
            page: Page at the target, if it was read already.
        """
        if page is None:
            page = self._at(target, 1 if historical else _PAGE, patient=patient)
        found = _hit(page, lower, historical=historical)
        if found is not None:
            return found
        if not page.caught_up:
            return None
        # There is nothing from the target on. Step back until a record is found, then bisect to the last one.
        high, step = target, _FIRST_STEP
        while True:
            low = max(lower, target - step)
            page = self._at(low, 1, patient=patient)
            if page.records:
                break
            if low == lower:
                return None
            high, step = low, step * _STEP_FACTOR
        while high - low > _CLOSE_ENOUGH:
            middle = (low + high) // 2
            page = self._at(middle, 1, patient=patient)
            if page.records:
                low = max(middle, min(high, arrival_of(page.records[0])))
            else:
                high = middle
        cursor = self._io.cursor(self._shard_id, AtTimestamp(low))
        last: KinesisRecord | None = None
        for _ in range(_HOPS):
            page = self._follow(cursor, _PAGE, patient=patient)
            last = page.records[-1] if page.records else last
            if page.caught_up or (last is not None and arrival_of(last) >= now):
                break
        return None if last is None else after(last)

    def _at(self, millis: int, limit: int, *, patient: bool) -> Page:
        for back in (0, 1_000, 5_000):
            try:
                cursor = self._io.cursor(self._shard_id, AtTimestamp(millis - back), await_instant=False)
                return self._follow(cursor, limit, patient=patient)
            except PermanentAwsError as error:
                # Kinesis rejects a timestamp ahead of its own clock, which our estimate may be.
                if error.code != "InvalidArgumentException" or error.operation != "GetShardIterator":
                    raise
        raise PermanentAwsError(
            f"shard {self._shard_id}: the clock of this machine is more than 5 s ahead of the clock of Kinesis",
            operation="GetShardIterator",
            code="InvalidArgumentException",
        )

    @staticmethod
    def _later(found: AfterSequence | Ended | None, floor: KinesisRecord) -> AfterSequence | Ended:
        if found is None or (isinstance(found, AfterSequence) and found.number < int(floor.sequence_number)):
            return after(floor)
        return found


def after(record: KinesisRecord) -> AfterSequence:
    """Return the position after a record."""
    return AfterSequence(record.sequence_number, arrival=arrival_of(record))


def time_of(position: ShardPosition) -> int | None:
    """Return the stream time of a position in epoch milliseconds; None if it has none."""
    if isinstance(position, AfterSequence):
        return position.arrival
    if isinstance(position, AtTimestamp):
        return position.millis
    return None


def is_reached(position: ShardPosition, goal: ShardPosition) -> bool:
    """Return whether nothing is left between a position and a goal."""
    if isinstance(position, Ended):
        return True
    if isinstance(goal, AfterSequence):
        return isinstance(position, AfterSequence) and position.number >= goal.number
    return not isinstance(goal, Ended)


def _hit(page: Page, lower: int, *, historical: bool) -> AfterSequence | Ended | None:
    """Return the end that a page at a target shows: its first record if the target is not the tip, otherwise its last."""
    if page.records and historical:
        return after(page.records[0])
    if page.records:
        return Ended(arrival_of(page.records[-1])) if page.ended else after(page.records[-1])
    return Ended(lower) if page.ended else None


def _until(records: list[KinesisRecord], cap: ShardPosition | None) -> list[KinesisRecord]:
    if not isinstance(cap, AfterSequence):
        return records
    return [record for record in records if int(record.sequence_number) <= cap.number]
