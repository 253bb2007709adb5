"""The records of a stream that have no final result yet, and the results of those that got one.

A record is live from `StreamPipeline.add` until it is settled: stored, or failed with its real cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kinesis_sdk.common.errors import KinesisSdkError, RecordFailedError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.record import PendingRecord, Stored
from kinesis_sdk.producer.stats import Counters


class Settled(NamedTuple):
    """A final result: the user records of one Kinesis record that is stored, or one that failed."""

    records: list[PendingRecord]
    stored: Stored | None
    error: KinesisSdkError | None


class Settlement:
    """What a pipeline still owes results for, and what it counts. Not thread-safe.

    Args:
        stream: Which stream.
    """

    def __init__(self, stream: StreamId) -> None:
        self.stream = stream
        self.counters = Counters()
        self.settled: list[Settled] = []
        self._live: set[PendingRecord] = set()

    @property
    def live(self) -> Collection[PendingRecord]:
        """Records without a final result."""
        return self._live

    @property
    def has_work(self) -> bool:
        """Whether some record has no final result yet."""
        return bool(self._live)

    def take_settled(self) -> list[Settled]:
        """Final results since the last call; the shell hands them to the futures without holding its lock."""
        settled, self.settled = self.settled, []
        return settled

    def _fail_expired(self, record: PendingRecord, now: float, why: str) -> None:
        self.counters.expired_user_records += 1
        cause = record.last_error
        age = now - record.arrived
        text = f"not stored within its time-to-live ({age:.1f} s after put; {why})"
        record.add_failed_attempt(now, now, "Expired", text)
        self._settle_failure(record, text, cause)

    def _fail_all(
        self, records: Iterable[PendingRecord], started: float, now: float, code: str, error: KinesisSdkError
    ) -> None:
        for record in records:
            self._fail(record, started, now, code, error)

    def _fail(
        self, record: PendingRecord, started: float, now: float, code: str, error: KinesisSdkError
    ) -> None:
        record.add_failed_attempt(started, now, code, str(error))
        self._settle_failure(record, "not stored", error)

    def _settle_failure(self, record: PendingRecord, text: str, cause: KinesisSdkError | None) -> None:
        reason = f": {cause}" if cause is not None else ""
        failure = RecordFailedError(
            f"record for stream {self.stream}: {text}{reason}",
            stream=self.stream.name,
            partition_key=record.partition_key,
            attempts=tuple(record.history or ()),
        )
        failure.__cause__ = cause
        self.counters.user_records_failed += 1
        self._live.discard(record)
        self.settled.append(Settled([record], None, failure))
