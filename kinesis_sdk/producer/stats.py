"""What a producer counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProducerStats:
    """What a producer did so far, over all its streams; a snapshot.

    Attributes:
        user_records_put: Records that `put` accepted.
        user_records_stored: Of these, acknowledged.
        user_records_failed: Of these, failed for good.
        user_bytes_stored: Payload bytes acknowledged.
        kinesis_records_stored: PutRecords entries that the service stored.
        kinesis_bytes_stored: Their bytes, partition keys included.
        put_records_calls: PutRecords calls that ended.
        failed_calls: Of these, failed as a whole.
        throttled_entries: Entries that the service throttled.
        failed_entries: Entries that failed, throttled ones included.
        wrong_shard_entries: Aggregates that had to go again because they landed across a reshard.
        user_record_retries: Times that a user record was tried again.
        expired_user_records: Records that ran out of their time-to-live.
        buffered_bytes: What is held now, as it is charged against ``max_buffered_bytes``.
        buffered_records: Records without a final result now.
        oldest_record_age: Seconds since the oldest of these was put; 0 if there is none.
    """

    user_records_put: int
    user_records_stored: int
    user_records_failed: int
    user_bytes_stored: int
    kinesis_records_stored: int
    kinesis_bytes_stored: int
    put_records_calls: int
    failed_calls: int
    throttled_entries: int
    failed_entries: int
    wrong_shard_entries: int
    user_record_retries: int
    expired_user_records: int
    buffered_bytes: int
    buffered_records: int
    oldest_record_age: float


@dataclass
class Counters:
    """What one stream's pipeline did so far; all counts."""

    user_records_put: int = 0
    user_records_stored: int = 0
    user_records_failed: int = 0
    user_bytes_stored: int = 0
    kinesis_records_stored: int = 0
    kinesis_bytes_stored: int = 0
    put_records_calls: int = 0
    failed_calls: int = 0
    throttled_entries: int = 0
    failed_entries: int = 0
    wrong_shard_entries: int = 0
    user_record_retries: int = 0
    expired_user_records: int = 0

    def add(self, other: Counters) -> None:
        """Add the counts of another stream."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
