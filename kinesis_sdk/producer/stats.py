"""Counters of a producer, and their snapshot for users."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProducerStats:
    """Snapshot of a producer's counters since its start, over all its streams.

    Attributes:
        user_records_put: User records that were accepted by any put method.
        user_records_stored: User records that were stored.
        user_records_failed: User records that failed permanently.
        user_bytes_stored: Payload bytes of the stored user records.
        kinesis_records_stored: Kinesis records that were stored.
        kinesis_bytes_stored: Bytes of the stored Kinesis records, including partition keys.
        put_records_calls: Completed PutRecords calls, including failed ones.
        failed_calls: PutRecords calls that failed as a whole.
        throttled_entries: Kinesis records that a PutRecords response rejected because of throttling.
        failed_entries: Kinesis records that a PutRecords response rejected, including throttled ones.
        wrong_shard_entries: Aggregates that were sent again because they landed across a reshard.
        user_record_retries: Retries of user records.
        expired_user_records: User records that exceeded ``record_ttl``.
        begun_anew_records: User records that were sent with a new identity although an earlier attempt may have stored them, because
            that attempt was too long ago (``idempotent``).
        buffered_bytes: Bytes that are currently charged against ``max_buffered_bytes``.
        buffered_records: User records that currently have no final result.
        oldest_record_age: Seconds since the oldest of the buffered records was put; 0 if there is none.
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
    begun_anew_records: int
    buffered_bytes: int
    buffered_records: int
    oldest_record_age: float


@dataclass
class Counters:
    """Counters of the pipeline of one stream; see `ProducerStats`."""

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
    begun_anew_records: int = 0

    def add(self, other: Counters) -> None:
        """Add the counts of another stream."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
