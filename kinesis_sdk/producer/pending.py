"""The records of a stream that have no final result yet, and the results of those that got one.

A record is live from `StreamPipeline.add` until it is settled: stored, or failed with its real cause. It is in the
list of exactly one Kinesis record that is live, and its delivery names that one. From these everything that was not sent
can be built anew, whatever was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kinesis_sdk.common.errors import KinesisSdkError, RecordFailedError, ResourceNotFoundError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.aggregator import Entry
from kinesis_sdk.producer.record import PendingRecord, Stored, cost_of
from kinesis_sdk.producer.stats import Counters


class Settled(NamedTuple):
    """A final result: the user records of one Kinesis record that is stored, or one that failed.

    Attributes:
        records: The user records.
        stored: Where they are; None if they failed.
        error: Why they failed; None if they are stored.
        entry: The Kinesis record that is stored.
        cost: Bytes that they are charged for.
        epoch: Which flush waits for them, but for those with an epoch of their own.
        mixed: Whether there may be some.
    """

    records: list[PendingRecord]
    stored: Stored | None
    error: KinesisSdkError | None
    entry: Entry | None
    cost: int
    epoch: int
    mixed: bool = False

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of the records."""
        return (
            [record.data for record in self.records] if self.entry is None else self.entry.aggregate.payloads
        )


class PendingRecords:
    """What a pipeline still owes results for, and what it counts. Not thread-safe.

    Args:
        stream: Which stream.
    """

    def __init__(self, stream: StreamId) -> None:
        self.stream = stream
        self.settled: list[Settled] = []
        self.entries: dict[Entry, None] = {}
        """Kinesis records whose user records have no final result yet."""
        self._counters = Counters()
        self._request_failure: KinesisSdkError | None = None
        self._load_failure: KinesisSdkError | None = None
        self._missing = False
        """Whether nothing is sent, because the stream does not exist and records wait until it does."""

    @property
    def live(self) -> list[PendingRecord]:
        """Records without a final result."""
        return [record for entry in self.entries for record in entry.records if entry.owns(record)]

    @property
    def has_work(self) -> bool:
        """Whether some record has no final result yet."""
        return bool(self.entries)

    @property
    def pending(self) -> int:
        """How many records have no final result yet."""
        return sum([len(entry.records) for entry in self.entries])

    @property
    def counters(self) -> Counters:
        """What the stream's pipeline did so far."""
        counters = self._counters
        # Not counted one by one: every record that came is still here, or settled.
        counters.user_records_put = self.pending + counters.user_records_stored + counters.user_records_failed
        return counters

    def take_settled(self) -> list[Settled]:
        """Final results since the last call; the shell hands them to the futures without holding its lock."""
        settled, self.settled = self.settled, []
        return settled

    def _store(self, entry: Entry, stored: Stored) -> None:
        """A Kinesis record is stored for good."""
        counters = self._counters
        counters.user_records_stored += len(entry.records)
        counters.user_bytes_stored += entry.aggregate.payload_size
        self.entries.pop(entry, None)
        self.settled.append(Settled(entry.records, stored, None, entry, entry.cost, entry.epoch, entry.mixed))

    def _drop_empty(self, entries: Iterable[Entry]) -> None:
        """Forget those of these Kinesis records whose user records are all elsewhere, or failed."""
        for entry in entries:
            if entry.is_empty:
                self.entries.pop(entry, None)
                entry.clear()

    def _fail_expired(self, record: PendingRecord, now: float, why: str) -> None:
        self._counters.expired_user_records += 1
        cause = record.last_error
        if self._missing:
            cause, why = self._missing_failure(), "the stream did not exist"
        elif cause is None:
            cause = self._stream_failure()
            if cause is not None:
                why += "; the stream's last request failed"
        age = now - record.arrived
        text = f"not stored within its time-to-live ({age:.1f} s after put; {why})"
        record.add_failed_attempt(now, now, "Expired", text)
        self._settle_failure(record, text, cause)

    def _missing_failure(self) -> KinesisSdkError | None:
        """Return what said that the stream is missing: its last load, or its last PutRecords call."""
        load = self._load_failure
        return load if isinstance(load, ResourceNotFoundError) else self._stream_failure()

    def _stream_failure(self) -> KinesisSdkError | None:
        """Return why the stream's last PutRecords call, or the load that it waits for, failed; None if it did not."""
        return self._request_failure or self._load_failure

    def _fail_all(self, entry: Entry, started: float, now: float, code: str, error: KinesisSdkError) -> None:
        for record in entry.records:
            self._fail(record, started, now, code, error)
        self._drop_empty((entry,))

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
        data = record.data
        item = Settled([record], None, failure, None, cost_of(record.partition_key, data), record.epoch)
        self._counters.user_records_failed += 1
        record.leave(data)
        self.settled.append(item)
