"""Pending records of a stream: user records without a final result, and final results that have not reached the futures.

A record is pending from `SendQueue.add` until it is stored or has failed. It is in the list of exactly one Kinesis
record in `PendingRecords.entries`, and its delivery state names that Kinesis record. All records that were not sent can be grouped again
from these lists, even after a caller was interrupted at an arbitrary instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kinesis_sdk.common.errors import KinesisSdkError, RecordFailedError, ResourceNotFoundError
from kinesis_sdk.common.once.stamps import Stamps
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.records.record import BufferedRecord, Stored, cost_of
from kinesis_sdk.producer.stats import Counters

_new_tuple: Callable[..., Any] = tuple.__new__  # the constructor of a named tuple adds a Python call


class Settled(NamedTuple):
    """Final result of the user records of a stored Kinesis record, or of one record that failed.

    Attributes:
        stored: Shard and sequence number of the records; None if they failed.
        error: Error of the records; None if they are stored.
        entry: The stored Kinesis record; None if they failed.
        cost: Bytes that are charged for the records.
        epoch: Flush epoch of the records without an epoch of their own.
        mixed: True if some of the records may have their own flush epoch.
    """

    records: list[BufferedRecord]
    stored: Stored | None
    error: KinesisSdkError | None
    entry: Entry | None
    cost: int
    epoch: int
    mixed: bool = False

    @property
    def payloads(self) -> list[bytes]:
        """Payloads of the records."""
        return (
            [record.data for record in self.records] if self.entry is None else self.entry.aggregate.payloads
        )


class StreamFailures:
    """Last failures of a stream's requests and loads: the cause that a record gets when it expires.

    Attributes:
        request: Error of the last PutRecords call; None unless the call failed as a whole.
        load: Error of the last load of the stream's facts, if records wait for a load.
        missing: True while the stream does not exist and its records wait: then nothing is sent.
    """

    __slots__ = ("load", "missing", "request")

    def __init__(self) -> None:
        self.request: KinesisSdkError | None = None
        self.load: KinesisSdkError | None = None
        self.missing: bool = False

    @property
    def latest(self) -> KinesisSdkError | None:
        """Error of the last PutRecords call, otherwise of the load that records wait for; None if neither failed."""
        return self.request or self.load

    @property
    def why_missing(self) -> KinesisSdkError | None:
        """Error with which the last load, or else the last PutRecords call, reported the missing stream."""
        return self.load if isinstance(self.load, ResourceNotFoundError) else self.latest


class PendingRecords:
    """Records of a stream that have no final result yet, and results that have not reached the futures. Not thread-safe.

    Attributes:
        entries: Kinesis records whose user records have no final result yet, oldest first.
        settled: Final results since the last `take_settled`.
        counters: Counts of the stream, except for those that follow from other counts (see `StreamPipeline.counters`).
    """

    __slots__ = (
        "_leaving",
        "_newly_held",
        "_stamps",
        "counters",
        "entries",
        "failures",
        "settled",
        "stream",
    )

    def __init__(self, stream: StreamId, stamps: Stamps) -> None:
        self.stream: StreamId = stream
        self.settled: list[Settled] = []
        self.entries: dict[Entry, None] = {}
        self.counters: Counters = Counters()
        self.failures: StreamFailures = StreamFailures()
        self._stamps = stamps
        self._leaving: Settled | None = None
        self._newly_held = 0

    @property
    def live(self) -> list[BufferedRecord]:
        """Records without a final result."""
        return [record for entry in self.entries for record in entry.records if entry.owns(record)]

    @property
    def count(self) -> int:
        """Number of records without a final result. The number is wrong while only some records of an entry have moved on."""
        return sum([len(entry.records) for entry in self.entries])

    def take_settled(self) -> list[Settled]:
        """Return the final results since the last call. `Completion` passes them to the futures without holding the lock."""
        settled, self.settled = self.settled, []
        return settled

    def hold(self, entry: Entry) -> None:
        """Charge the sealed form of a Kinesis record, which is held in addition to its user records until it is stored or forgotten."""
        if entry in self.entries:
            self._newly_held += entry.sealed_size

    def take_newly_held(self) -> int:
        """Return by how many bytes the memory held in addition to user records has grown since the last call; may be negative."""
        change, self._newly_held = self._newly_held, 0
        return change

    def _forget(self, entry: Entry) -> None:
        if entry in self.entries:
            del self.entries[entry]
            if entry.chosen is not None:
                self._newly_held -= entry.sealed_size

    def stored(self, entry: Entry, stored: Stored) -> None:
        """Settle the user records of a stored Kinesis record."""
        counters, records = self.counters, entry.records
        counters.user_records_stored += len(records)
        counters.user_bytes_stored += entry.aggregate.payload_size
        self._forget(entry)
        self.settled.append(
            _new_tuple(Settled, (records, stored, None, entry, entry.cost, entry.epoch, entry.mixed))
        )

    def fail(
        self, record: BufferedRecord, started: float, now: float, code: str, error: KinesisSdkError
    ) -> None:
        """Note an attempt that ended with an error, and fail its user record.

        Do not call this for an attempt that `AttemptLog` has already noted.
        """
        record.add_failed_attempt(started, now, code, str(error))
        self._settle_failure(record, "not stored", error)

    def fail_entry(self, entry: Entry, started: float, now: float, code: str, error: KinesisSdkError) -> None:
        """Fail all user records of a Kinesis record."""
        for record in entry.records:
            self.fail(record, started, now, code, error)
        self.drop_empty((entry,))

    def fail_expired(self, record: BufferedRecord, now: float, why: str) -> None:
        """Fail a user record whose time-to-live has ended. ``why`` is the part of the error's text that names the reason for the wait.

        Its attempts are noted already. The attempt ``Expired`` that is added here does not stand for a request.
        """
        self.counters.expired_user_records += 1
        failures = self.failures
        cause = record.last_error
        if failures.missing:
            cause, why = failures.why_missing, "the stream did not exist"
        elif cause is None:
            cause = failures.latest
            if cause is not None:
                why += "; the stream's last request failed"
        age = now - record.arrived
        text = f"not stored within its time-to-live ({age:.1f} s after put; {why})"
        record.add_failed_attempt(now, now, "Expired", text)
        self._settle_failure(record, text, cause)

    def drop_empty(self, entries: Iterable[Entry] | None = None) -> None:
        """Forget Kinesis records whose user records have all failed or moved to other Kinesis records; None checks all Kinesis records."""
        for entry in list(self.entries) if entries is None else entries:
            if entry.is_empty:
                self._forget(entry)
                entry.clear()

    def _settle_failure(self, record: BufferedRecord, text: str, cause: KinesisSdkError | None) -> None:
        reason = f": {cause}" if cause is not None else ""
        failure = RecordFailedError(
            f"record for stream {self.stream}: {text}{reason}",
            stream=self.stream.name,
            partition_key=record.partition_key or None,
            attempts=tuple(record.history or ()),
            maybe_stored=self._stamps.maybe_stored(record),
        )
        failure.__cause__ = cause
        data = record.data
        cost = cost_of(record.partition_key, data, record.header_fields)
        item = Settled([record], None, failure, None, cost, record.epoch)
        self.counters.user_records_failed += 1
        # Ctrl-C may raise between any two of these steps, because `close` runs them on the main thread. A record that has left
        # its Kinesis record and is not in `settled` yet would be nowhere, and its future would never be final. `_leaving`
        # still names it then, and `finish_interrupted` does the rest.
        self._leaving = item
        record.leave(data)
        self.settled.append(item)
        self._leaving = None

    def finish_interrupted(self, without: BufferedRecord | None = None) -> None:
        """If an interrupt stopped the failure of a record halfway, finish this failure.

        ``without`` is a record that was not accepted; its failure is dropped.
        """
        item, self._leaving = self._leaving, None
        if item is None:
            return
        (record,) = item.records
        if record is without or record._delivery.entry is not None:
            return  # it does not exist, or it is still in its Kinesis record and fails again
        if not any(other is item for other in self.settled):
            self.settled.append(item)
