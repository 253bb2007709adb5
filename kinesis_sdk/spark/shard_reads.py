"""Reads of one shard by the driver: at most three per second, past empty pages, from a position or from a time."""

from __future__ import annotations

from kinesis_sdk.common.errors import InvalidPositionError
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, TrimHorizon
from kinesis_sdk.spark.errors import StalledError
from kinesis_sdk.spark.offsets import ShardPosition
from kinesis_sdk.spark.shardio import Cursor, Page, ShardIo
from kinesis_sdk.spark.steps import Pace, Steps

MAX_PAGE = 10_000
"""Maximum records of a GetRecords response (API reference)."""

_HOPS = 5
"""Maximum number of empty pages that one read follows. Kinesis may return empty pages at any position; they do not mean that a shard is
idle."""


class ShardReads:
    """Reads of a shard.

    Attributes:
        patient: Whether a read follows any number of empty pages, as a read that stops at the current records has to.
        used_at: Monotonic seconds of the last read.
        busy_at: Monotonic seconds at which a read last returned records, or at which the shard was first probed; None before that.
    """

    def __init__(self, io: ShardIo, shard_id: str) -> None:
        self._io = io
        self._shard_id = shard_id
        self._pace = Pace()
        self.patient: bool = False
        self.used_at: float = float("-inf")
        self.busy_at: float | None = None

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self._io.clock.monotonic()

    def millis_since(self, moment: float | None) -> float:
        """Return the milliseconds since a time in monotonic seconds; 0 for None."""
        return 0.0 if moment is None else (self.now() - moment) * 1000

    def service_millis(self) -> int:
        """Return the time at Kinesis in epoch milliseconds."""
        return self._io.service_clock.millis()

    def cursor(self, position: ShardPosition, via: ShardPosition | None = None) -> Cursor:
        """Return a cursor at a position, opened at ``via`` if Kinesis may no longer accept the position."""
        return self._io.cursor(self._shard_id, position, via=via, pace=self._pace)

    def after(self, sequence_number: str) -> Cursor:
        """Return a cursor after a record."""
        return self.cursor(AfterSequence(sequence_number))

    def read(self, cursor: Cursor, limit: int) -> Steps[Page]:
        """Read until a page has records, or no record follows.

        Raises:
            StalledError: If a patient read got only empty pages for ``retryTimeout``.
            AwsError: If a call failed permanently.
        """
        hops = 0
        began = self.now()
        while True:
            page = yield from cursor.steps(limit)
            self.used_at = self.now()
            if page.records:
                self.busy_at = self.used_at
            if page.records or page.caught_up or (hops >= _HOPS and not self.patient):
                return page
            if self.patient and self.used_at > began + self._io.retry_timeout:
                raise StalledError(
                    f"stream {self._io.stream.name}, shard {self._shard_id} returned only empty pages for "
                    f"{self.used_at - began:.0f} s, although records follow"
                )
            if page.dropped:
                limit = MAX_PAGE  # opened by time, up to ten minutes before its position
            else:
                hops += 1

    def read_from(self, millis: int, limit: int) -> Steps[tuple[Cursor, Page]]:
        """Read from the first record at or after a time.

        Raises:
            InvalidPositionError: If the time lies more than five seconds ahead of the clock of Kinesis.
            AwsError: If a call failed permanently.
        """
        for back in (0, 1_000, 5_000):
            cursor = self._io.cursor(
                self._shard_id,
                TrimHorizon(),
                via=AtTimestamp(max(0, millis - back)),
                await_instant=False,
                pace=self._pace,
            )
            try:
                page = yield from self.read(cursor, limit)
            except InvalidPositionError:
                continue  # Kinesis rejects a time ahead of its own clock, and our estimate of it may be ahead.
            return cursor, page
        raise InvalidPositionError(
            f"shard {self._shard_id}: the clock of this machine is more than 5 s ahead of the clock of Kinesis",
            operation="GetShardIterator",
            code="InvalidArgumentException",
        )
