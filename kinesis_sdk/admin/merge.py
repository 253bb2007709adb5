"""Merge of the shards of a stream by arrival time, with bounded memory.

The merge decides which shard to read next, and which records may be given out.

Pure: it makes no call, and `now` is an argument. `kinesis_sdk.admin.reading` makes the calls.

A record may be given out as soon as no other shard can still have an earlier record. A shard with buffered records has no record that
is earlier than its first buffered record. A shard without buffered records has a watermark: the arrival of its last record or, once it
was read up to its tip, the time at Kinesis when the read that reached the tip was sent. A shard is only read after its parents were given
out completely, so parents come before their children regardless of their arrival times.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.position import Ended, Position
from kinesis_sdk.common.records import UserRecord

BEHIND_INTERVAL = 0.25
"""Seconds between two reads of a shard that has more records: four of the five reads per second that the shard's readers share."""
TIP_INTERVAL = 1.0
"""Seconds between two reads of a shard at its tip."""
DEFAULT_BUDGET = 64 * 1024 * 1024
"""Bytes of payload to buffer for all shards together; one page of the smallest size for each shard is always allowed."""
SLACK_MILLIS = 1000
"""Milliseconds for which a shard is read beyond the end of a window, because arrival times within a shard are approximate."""

_MAX_LIMIT = 10_000
_MIN_LIMIT = 10
_UNKNOWN_SIZE = 16 * 1024
_RECORD_OVERHEAD = 200
_RETRIES = Backoff(0.5, 10.0)


class ShardRecord(NamedTuple):
    """A user record and the shard that it was read from.

    Attributes:
        shard_id: The shard.
        record: The record.
    """

    shard_id: str
    record: UserRecord


class ReadRequest(NamedTuple):
    """A read that is due. ``limit`` counts Kinesis records."""

    shard_id: str
    limit: int


@dataclass(slots=True)
class _Shard:
    """One shard of the merge."""

    shard_id: str
    number: int
    start: Position
    parents: set[str]
    """Parents that are not yet given out completely."""
    due: float
    watermark: int = -1
    buffer: deque[tuple[int, int, UserRecord]] = field(default_factory=deque)
    """Sort key, bytes and record of each buffered record."""
    buffered: int = 0
    mean_size: float = _UNKNOWN_SIZE
    in_flight: bool = False
    finished: bool = False
    """Whether nothing more is read."""
    out_of_window: bool = False
    """Whether the shard continues beyond the end of the window, so that its children are outside the window."""
    failures: int = 0
    at_tip: bool = False
    behind_millis: int | None = None

    @property
    def done(self) -> bool:
        """Whether everything was given out."""
        return self.finished and not self.buffer

    @property
    def active(self) -> bool:
        """Whether the shard may still have records, and may be read now."""
        return not self.finished and not self.parents


class StreamMerge:
    """The state of the merge. Used by one thread.

    Records that arrived at ``until_millis`` (epoch milliseconds of Kinesis) or later are excluded, and the merge ends there;
    None for no end. ``budget`` is the maximum of buffered bytes of payload.
    """

    def __init__(
        self, *, until_millis: int | None = None, budget: int = DEFAULT_BUDGET, rng: Random | None = None
    ) -> None:
        self._until = until_millis
        self._budget = budget
        self._rng = rng or Random()
        self._shards: dict[str, _Shard] = {}
        self._heads: list[tuple[int, int, str]] = []

    def add(self, shard_id: str, start: Position, parents: Iterable[str], now: float) -> bool:
        """Add a shard unless it is known; return whether it is new.

        The shard is read from ``start``, or not at all if ``start`` is `Ended`. The shard does not wait for parents that were not added
        before it.
        """
        if shard_id in self._shards:
            return False
        known = [self._shards[parent] for parent in parents if parent in self._shards]
        shard = self._shards[shard_id] = _Shard(
            shard_id,
            len(self._shards),
            start,
            {parent.shard_id for parent in known if not parent.done},
            now,
            watermark=max((parent.watermark for parent in known), default=-1),
        )
        if isinstance(start, Ended) or any(parent.out_of_window for parent in known):
            shard.finished = True
            shard.out_of_window = not isinstance(start, Ended)
        return True

    def __contains__(self, shard_id: str) -> bool:
        return shard_id in self._shards

    @property
    def is_done(self) -> bool:
        """Whether all records of the window were given out."""
        return all(shard.done for shard in self._shards.values())

    @property
    def active(self) -> int:
        """Number of shards being read."""
        return sum(shard.active for shard in self._shards.values())

    @property
    def worst_behind_millis(self) -> int | None:
        """Largest lag that a shard reported with its last response; None before the first."""
        known = [
            shard.behind_millis
            for shard in self._shards.values()
            if shard.active and shard.behind_millis is not None
        ]
        return max(known, default=None)

    def start_of(self, shard_id: str) -> Position:
        """Return the position from which a shard is read."""
        return self._shards[shard_id].start

    def due_reads(self, now: float) -> list[ReadRequest]:
        """Return the reads to make now. Each must end with `on_page` or `on_failure`."""
        active = [shard for shard in self._shards.values() if shard.active]
        share = self._budget // max(1, len(active))
        due: list[ReadRequest] = []
        for shard in active:
            if shard.in_flight or shard.due > now or (shard.buffer and shard.buffered * 2 > share):
                continue
            room = (share - shard.buffered) / shard.mean_size
            shard.in_flight = True
            due.append(ReadRequest(shard.shard_id, int(min(_MAX_LIMIT, max(_MIN_LIMIT, room)))))
        return due

    def next_due(self) -> float | None:
        """Return the monotonic time of the next read that waits only for its due time; None if there is none."""
        times = [
            shard.due
            for shard in self._shards.values()
            if shard.active and not shard.in_flight and not shard.buffer
        ]
        return min(times, default=None)

    def on_page(
        self,
        shard_id: str,
        records: Sequence[UserRecord],
        *,
        kinesis_records: int,
        at_tip: bool,
        ended: bool,
        behind_millis: int | None,
        sent_millis: int,
        sent: float,
    ) -> None:
        """Process the response of a read, with the user records of the page in order.

        ``at_tip``: the shard had no more records. ``ended``: the shard ends after the page. ``sent_millis``: a time that Kinesis had
        reached when the call was sent. ``sent``: monotonic seconds at which it was sent.
        """
        shard = self._shards[shard_id]
        shard.in_flight = False
        shard.failures = 0
        shard.at_tip = at_tip
        shard.behind_millis = behind_millis
        shard.due = sent + (TIP_INTERVAL if at_tip else BEHIND_INTERVAL)
        size = sum(len(record.data) + _RECORD_OVERHEAD for record in records)
        if kinesis_records:
            shard.mean_size = max(1.0, size / kinesis_records)
        was_empty = not shard.buffer
        key = shard.watermark
        for record in records:
            arrived = record.approximate_arrival_timestamp
            millis = key if arrived is None else int(arrived.timestamp() * 1000)
            # Arrival times are approximate: the order of the shard wins.
            key = max(key, millis)
            if self._until is not None and millis >= self._until:
                if millis >= self._until + SLACK_MILLIS:
                    shard.finished = shard.out_of_window = True
                    break
                continue
            weight = len(record.data) + _RECORD_OVERHEAD
            shard.buffer.append((key, weight, record))
            shard.buffered += weight
        shard.watermark = key
        if at_tip:
            shard.watermark = max(shard.watermark, sent_millis)
            if self._until is not None and sent_millis >= self._until + SLACK_MILLIS:
                shard.finished = shard.out_of_window = True
        if ended and not shard.finished:
            shard.finished = True
        if shard.buffer and was_empty:
            heapq.heappush(self._heads, (shard.buffer[0][0], shard.number, shard_id))
        if shard.done:
            self._release_children(shard)

    def on_failure(self, shard_id: str, now: float) -> float:
        """Process the failure of a read; return the seconds until the read is repeated."""
        shard = self._shards[shard_id]
        shard.in_flight = False
        shard.failures += 1
        pause = _RETRIES.pause(shard.failures, self._rng)
        shard.due = now + pause
        return pause

    def failures(self, shard_id: str) -> int:
        """Return the number of reads of a shard that have failed since its last response."""
        return self._shards[shard_id].failures

    def pop(self, limit: int = 1000) -> Iterator[ShardRecord]:
        """Yield the records that may be given out now, at most ``limit``."""
        barrier = self._barrier()
        while self._heads and limit > 0:
            key, number, shard_id = self._heads[0]
            if barrier is not None and key > barrier:
                return
            shard = self._shards[shard_id]
            key, weight, record = shard.buffer.popleft()
            shard.buffered -= weight
            limit -= 1
            if shard.buffer:
                heapq.heapreplace(self._heads, (shard.buffer[0][0], number, shard_id))
            else:
                heapq.heappop(self._heads)
                if shard.done:
                    self._release_children(shard)
                barrier = self._barrier()
            yield ShardRecord(shard_id, record)

    def _barrier(self) -> int | None:
        """Return the arrival time before which no shard without buffered records can have a record; None for no bound."""
        return min(
            (shard.watermark for shard in self._shards.values() if shard.active and not shard.buffer),
            default=None,
        )

    def _release_children(self, parent: _Shard) -> None:
        for shard in self._shards.values():
            if parent.shard_id not in shard.parents:
                continue
            shard.parents.discard(parent.shard_id)
            shard.watermark = max(shard.watermark, parent.watermark)
            if parent.out_of_window:
                # The window ended before the parent was closed, so all records of the children are outside the window.
                shard.finished = shard.out_of_window = True
            if shard.done and not shard.parents:
                self._release_children(shard)
