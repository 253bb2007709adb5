"""Failed attempts of user records, and the backoff before a record is sent again.

For its first two retries, a record goes back into an aggregate at once, with a deadline of half the buffered time, as in the KPL. If the
aggregate is full earlier, the record is sent with it. From the third retry on, it waits here until its backoff has ended. Otherwise an
aggregate that fills at once, or a record that is not aggregated, would be sent again as fast as Kinesis can reject it
(amazon-kinesis-producer#35, #183).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.records import Attempt
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.records.record import BufferedRecord

_FLUSH_DELAY = 0.1
_FIRST_DELAY = 0.02
_MAX_DELAY = 1.0
"""Seconds of backoff. The first two retries of a record wait for half the buffered time, as in the KPL, but at least
`_FIRST_DELAY`. Each further retry waits twice as long as the retry before it, at most `_MAX_DELAY`. This bounds the number of attempts
that are stored for a record, and of requests that a producer without buffered time sends to a throttled shard."""

_QUICK_RETRIES = 2

LAST_CHANCE = 1.0
"""A record leaves its aggregate at least this number of seconds before it expires, so that it is still sent."""


class AttemptLog:
    """Notes failed attempts in the histories of user records. Records with equal attempts share one object. Not thread-safe.

    A record that keeps failing has a few dozen attempts. If records did not share these objects, the attempts would use more memory than
    the record.
    """

    __slots__ = ("_attempts", "_errors", "_response")

    def __init__(self) -> None:
        self._response = (0.0, 0.0)
        self._attempts: dict[tuple[float, str, str], Attempt] = {}
        self._errors: dict[tuple[str, str], tuple[str, str, KinesisSdkError]] = {}

    def note(
        self,
        records: list[BufferedRecord],
        started: float,
        ended: float,
        code: str,
        message: str,
        error: KinesisSdkError,
    ) -> None:
        """Note a failed attempt in the history of each user record of a Kinesis record."""
        if self._response != (started, ended):
            self._response = (started, ended)
            self._attempts.clear()
            self._errors.clear()
        code, message, error = self._errors.setdefault((code, message), (code, message, error))
        first: dict[float, Attempt] = {}  # arrivals differ from record to record: not worth keeping longer
        for record in records:
            attempt: Attempt | None
            last = record.last_event
            again = record.history is not None
            attempt = self._attempts.get((last, code, message)) if again else first.get(last)
            if attempt is None:
                attempt = Attempt(started - last, ended - started, code, message, False)
                if again:
                    self._attempts[last, code, message] = attempt
                else:
                    first[last] = attempt
            record.add_attempt(attempt, ended)
            record.last_error = error


class Retries:
    """Backoff of the records of one stream. Pure: the time is an argument. Not thread-safe."""

    __slots__ = ("_delay", "_pushed", "_waiting")

    def __init__(self, buffered_time: float) -> None:
        self._delay = max(buffered_time / 2, _FIRST_DELAY)
        self._waiting: list[tuple[float, int, BufferedRecord, Entry]] = []
        self._pushed = 0

    def delay(self, record: BufferedRecord, left: float, *, hurry: bool) -> float:
        """Return the seconds until a record is sent again, after its last attempt was noted.

        ``left`` are the seconds until it expires. ``hurry`` is true if a flush waits for the record.
        """
        delay = min(self._delay, _FLUSH_DELAY) if hurry else self._delay
        repeated = len(record.history or ()) - _QUICK_RETRIES
        if repeated > 0:
            delay = max(delay, min(delay * 2 ** min(repeated, 10), _MAX_DELAY))
        return min(delay, left - min(LAST_CHANCE, left / 2))

    def backs_off(self, record: BufferedRecord) -> bool:
        """Return whether the record is held until its deadline. Otherwise it may be sent as soon as an aggregate is full."""
        return len(record.history or ()) > _QUICK_RETRIES

    def hold(self, record: BufferedRecord, entry: Entry, until: float) -> None:
        """Hold a record until a given time (monotonic seconds). The record stays in the list of its current Kinesis record."""
        self._pushed += 1
        heapq.heappush(self._waiting, (until, self._pushed, record, entry))

    def take_due(self, now: float) -> Iterator[tuple[BufferedRecord, Entry]]:
        """Remove and yield the records whose backoff has ended, and their Kinesis records."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            yield heapq.heappop(waiting)[2:]

    @property
    def next_due(self) -> float:
        """Time at which `take_due` will yield a record; infinity if no record is held."""
        return self._waiting[0][0] if self._waiting else float("inf")

    def clear(self) -> None:
        """Forget all records, because their owner moves them elsewhere."""
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)
