"""Correct writes from `foreachPartition`: one producer per Python worker process, flushed at the end of each task.

This module needs neither pyarrow nor Spark's data source API, and does not import pyspark.

    writer = KinesisPartitionWriter("flights", partition_key="origin", data="line")
    df.foreachPartition(writer)

or, to use the producer directly,

    def send(rows):
        with shared_producer(settings) as producer:
            for row in rows:
                producer.put("flights", row.origin, row.line.encode())

    df.foreachPartition(send)
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError, ProducerError, RecordFailedError
from kinesis_sdk.common.text import printable
from kinesis_sdk.producer import PendingRecord, Producer, ProducerConfig, Put
from kinesis_sdk.spark import logs
from kinesis_sdk.spark.attempts import Attempt
from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.python_process import rare_collections, settle

Field = str | Callable[[Any], Any]
"""Column name, or picklable function of the row."""

_LOGGER = logging.getLogger(__name__)

_ERROR_SAMPLE = 5

_SHOWN_KEY = 40
"""Maximum characters of a key in the description of a row. The largest explicit hash key has 39."""

_WINDOW = 300.0
"""Seconds; the default of `Producer.put`."""

_SWEEP = 10_000
"""Number of puts after which a task checks which of its records have a final result."""


@dataclass(frozen=True, kw_only=True)
class ProducerSettings:
    """Settings from which the executors create their producers; picklable.

    Attributes:
        config: Configuration of the producer.
        region_name: AWS region; None uses the region of ``connection``, or of the executor's environment.
        endpoint_url: Endpoint; None uses the endpoint of ``connection``, or resolves it as botocore does in the executor.
        connection: Connection settings; None uses the credentials of the executor.
    """

    config: ProducerConfig = field(default_factory=ProducerConfig)
    region_name: str | None = None
    endpoint_url: str | None = None
    connection: ConnectionSettings | None = None

    def make_producer(self) -> Producer:
        """Create a producer in this process.

        Raises:
            AwsConfigError: If there is no region, the profile does not exist, or the endpoint URL is invalid.
        """
        connection = self.connection
        if connection is None:
            return Producer(self.config, region_name=self.region_name, endpoint_url=self.endpoint_url)
        return Producer(
            self.config,
            session=connection.session(),
            region_name=self.region_name or connection.region_name,
            endpoint_url=self.endpoint_url or connection.endpoint_url,
        )


class PartitionFailedError(ProducerError):
    """Records of a task were not stored. Spark retries the task, or fails the job.

    Attributes:
        failed: Number of records that failed.
        causes: Number of failed records by error code.
    """

    def __init__(self, message: str, *, failed: int = 0, causes: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.failed = failed
        self.causes: dict[str, int] = causes or {}


_lock = threading.Lock()
_producers: dict[tuple[int, ProducerSettings], Producer] = {}


class TaskProducer:
    """View of a shared producer for one task: it counts only the records of this task.

    Args:
        producer: The producer.
        error_sample: Number of errors that the message of a failed task quotes.
    """

    def __init__(self, producer: Producer, *, error_sample: int = _ERROR_SAMPLE) -> None:
        self._producer = producer
        self._error_sample = error_sample
        self._pending: list[PendingRecord] = []
        self._sweep_at = _SWEEP
        self._stored = 0
        self._left_out = 0
        self._failures: list[RecordFailedError] = []
        self._causes: Counter[str] = Counter()
        self._is_retry = logs.is_retry()

    def put(
        self,
        stream: str,
        partition_key: str | None,
        data: bytes | bytearray | memoryview | str,
        explicit_hash_key: str | int | None = None,
        *,
        dedup_id: str | None = None,
        dedup_window: float = _WINDOW,
    ) -> None:
        """Accept one record. Blocks while the buffer of the producer is full.

        Args:
            stream: Stream name or ARN.
            partition_key: Partition key, 1 to 256 characters; None for streams that place records themselves.
            data: Payload; text is sent as UTF-8.
            explicit_hash_key: Explicit hash key; None uses the hash of the partition key.
            dedup_id: Name of the record, see `Producer.put`.
            dedup_window: Seconds during which readers recognize another record with the same name.

        Raises:
            InvalidRecordError: If Kinesis would reject the record.
            PartitionFailedError: If a record of this task has already failed, so that the task fails anyway.
        """
        if isinstance(data, str):
            data = data.encode()
        try:
            if dedup_id is None:
                record = self._producer.put(stream, partition_key, data, explicit_hash_key)
            else:
                put = Put(
                    stream,
                    partition_key,
                    data,
                    explicit_hash_key,
                    dedup_id=dedup_id,
                    dedup_window=dedup_window,
                )
                record = self._producer._put_named(put, first=None, again=self._is_retry)
            self._pending.append(record)
        except InvalidRecordError as error:
            raise self._rejected(error, partition_key, explicit_hash_key) from error
        if len(self._pending) >= self._sweep_at:
            self._sweep()
            if self._causes:
                self._raise()

    def put_columns(
        self,
        stream: str,
        partition_keys: Iterable[str | None],
        payloads: Iterable[bytes],
        explicit_hash_keys: Iterable[str | None] | None = None,
        *,
        dedup_ids: Iterable[str | None] | None = None,
        headers: Iterable[Mapping[str, str | bytes] | None] | None = None,
        dedup_window: float = _WINDOW,
        attempt: Attempt = Attempt(),  # noqa: B008 - it has no state
        leave_out: Callable[[int, InvalidRecordError], None] | None = None,
    ) -> None:
        """Accept many records in the same way as `put` accepts one.

        Args:
            stream: Stream name or ARN.
            partition_keys: Partition key of each record, as for `put`.
            payloads: Payload of each record; as many as keys.
            explicit_hash_keys: Explicit hash key of each record, or None for a record without one; None if no record
                has one.
            dedup_ids: Name of each record, see `Producer.put`, or None for a record without one; None if no record has
                one.
            headers: Headers of each record, see `Producer.put`, or None for a record without any; None if no record has headers.
            dedup_window: As for `put`.
            attempt: What is known about earlier attempts to put these rows.
            leave_out: Called for a record that Kinesis would reject, with its index and the error; None raises the error.

        Raises:
            InvalidRecordError: If Kinesis would reject a record, without ``leave_out``; the records before it are accepted.
            PartitionFailedError: If a record of this task has already failed.
        """
        put: Callable[..., PendingRecord] = self._producer.put
        if dedup_ids is not None or headers is not None:
            names = repeat(None) if dedup_ids is None else iter(dedup_ids)
            maps = repeat(None) if headers is None else iter(headers)

            def put(stream: str, key: str | None, data: bytes | None, explicit: str | None) -> PendingRecord:
                # Before anything can fail, so that the next row does not get the name and headers of a row that is left out.
                name, each = next(names), next(maps)
                if data is None:
                    raise _without_data()
                if name is None:
                    return self._producer.put(stream, key, data, explicit, headers=each)
                named = Put(stream, key, data, explicit, each or {}, name, dedup_window)
                return self._producer._put_named(
                    named, first=attempt.first, again=attempt.again or self._is_retry
                )

        elif leave_out is not None:

            def put(stream: str, key: str | None, data: bytes | None, explicit: str | None) -> PendingRecord:
                if data is None:
                    raise _without_data()
                return self._producer.put(stream, key, data, explicit)

        rows: Iterator[tuple[str | None, bytes, str | None]] = (
            zip(partition_keys, payloads, repeat(None))
            if explicit_hash_keys is None
            else zip(partition_keys, payloads, explicit_hash_keys, strict=True)
        )
        done = 0
        while True:
            room = max(1, self._sweep_at - len(self._pending))
            before = len(self._pending)
            accept = self._pending.append
            try:
                for key, data, explicit in islice(rows, room):
                    accept(put(stream, key, data, explicit))
            except InvalidRecordError as error:
                rejected = self._rejected(error, key, explicit)
                if leave_out is None:
                    raise rejected from error
                done += len(self._pending) - before
                rows_before = self.accepted
                leave_out(done, rejected)
                done += 1
                # `leave_out` may put the row elsewhere, and that is an accepted record, too.
                self._left_out += 1 - (self.accepted - rows_before)
                continue
            done += len(self._pending) - before
            if len(self._pending) - before < room:
                return
            self._sweep()
            if self._causes:
                self._raise()

    @property
    def accepted(self) -> int:
        """Number of records of this task that the producer has accepted so far."""
        return self._stored + self._causes.total() + len(self._pending)

    def _rejected(
        self, error: InvalidRecordError, partition_key: str | None, explicit_hash_key: str | int | None
    ) -> InvalidRecordError:
        """Return the error for the row after the accepted rows."""
        row = describe_row(self.accepted + self._left_out, partition_key, explicit_hash_key)
        return InvalidRecordError(error.field, f"{error.problem} ({row})")

    def flush(self) -> int:
        """Wait until every record of this task has its final result.

        Returns:
            Number of records stored.

        Raises:
            PartitionFailedError: If some records were not stored.
        """
        self._producer.flush()
        self._sweep(final=True)
        if self._failures or self._causes:
            self._raise()
        return self._stored

    def time_at_kinesis(self, stream: str) -> int | None:
        """Return a time in epoch milliseconds that Kinesis has reached; None before the first response for the stream."""
        return self._producer._time_at_kinesis(stream)

    def _sweep(self, *, final: bool = False) -> None:
        """Count and drop the records that have a final result. Otherwise the memory of a task would grow with the size of its partition."""
        waiting: list[PendingRecord] = []
        stored = 0
        for record in self._pending:
            if not record.done():
                if not final:
                    waiting.append(record)
                    continue
                record.exception()  # `flush` has returned, so this does not block
            # A final record no longer changes, so it is read without its lock. Creating the lock would be the largest cost.
            error = record._exception
            if error is None:
                stored += 1
                continue
            code = "unknown"
            if isinstance(error, RecordFailedError):
                code = next((a.code for a in reversed(error.attempts) if a.code != "Expired"), "Expired")
                if len(self._failures) < self._error_sample:
                    self._failures.append(error)
            self._causes[code] += 1
        self._stored += stored
        self._pending = waiting
        # Count from the waiting records. Otherwise a full buffer would make every further `put` check all of them.
        self._sweep_at = len(waiting) + _SWEEP

    def _raise(self) -> None:
        failed = sum(self._causes.values())
        causes = ", ".join(f"{count:,} {code}" for code, count in self._causes.most_common())
        sample = "; ".join(str(error) for error in self._failures)
        raise PartitionFailedError(
            f"{failed:,} records of this task{_in_task()} were not stored ({causes}); {self._stored:,} were, "
            f"and a retried task stores them again. First errors: {sample or 'not shown'}",
            failed=failed,
            causes=dict(self._causes),
        ) from (self._failures[0] if self._failures else None)


@contextmanager
def shared_producer(
    settings: ProducerSettings | None = None, *, error_sample: int = _ERROR_SAMPLE
) -> Iterator[TaskProducer]:
    """Provide the producer of this Python worker process to one task, and flush it when the block ends.

    Spark reuses worker processes: tasks with equal settings share a producer and its connections. No record stays buffered
    between tasks, because Spark ends idle workers without notice.

    Args:
        settings: Settings of the producer; None uses the defaults of the KPL.
        error_sample: Number of errors that the message of a failed task quotes.

    Raises:
        PartitionFailedError: At the end of the block, if records were not stored; the task then fails.
    """
    settings = settings or ProducerSettings()
    slot = (os.getpid(), settings)
    with _lock:
        producer = _producers.get(slot)
        if producer is None:
            producer = _producers[slot] = settings.make_producer()
    task = TaskProducer(producer, error_sample=error_sample)
    yield task
    task.flush()


class KinesisPartitionWriter:
    """Picklable function for ``df.foreachPartition`` that puts every row, flushes, and fails the task if a record fails.

    Delivery is at least once: a task that Spark retries puts its rows again. If the rows have names (``dedup_id``) and the producer is
    idempotent, this SDK's readers deliver each row once.

    Args:
        stream: Stream name or ARN.
        partition_key: Column, or function of the row.
        data: Column (bytes or text), or function of the row.
        explicit_hash_key: Column or function of the row whose value is decimal text, an int or None; None if rows have no explicit hash
            key.
        dedup_id: Column or function of the row whose value is the name of the row or None, see `Producer.put`; None if rows have no names.
            It
            needs ``ProducerConfig(idempotent=True, dedup_namespace=…)``.
        dedup_window: Seconds, 1 to 300, during which readers recognize another row with the same name. A later retry is not recognized.
        settings: Settings of the producer; None uses the defaults of the KPL.
    """

    def __init__(
        self,
        stream: str,
        *,
        partition_key: Field,
        data: Field,
        explicit_hash_key: Field | None = None,
        dedup_id: Field | None = None,
        dedup_window: float = _WINDOW,
        settings: ProducerSettings | None = None,
    ) -> None:
        for name, value in (
            ("partition_key", partition_key),
            ("data", data),
            ("explicit_hash_key", explicit_hash_key or ""),
            ("dedup_id", dedup_id or ""),
        ):
            if not isinstance(value, str) and not callable(value):
                raise ConfigError(name, value, "a column name or a function of the row")
        self.stream = stream
        self.partition_key = partition_key
        self.data = data
        self.explicit_hash_key = explicit_hash_key
        self.dedup_id = dedup_id
        self.dedup_window = dedup_window
        self.settings: ProducerSettings = settings or ProducerSettings()
        if dedup_id is not None and self.settings.config.dedup_namespace is None:
            raise ConfigError(
                "dedup_id",
                dedup_id,
                "a producer with idempotent=True and a dedup_namespace in the settings, because names of different services must not collide",
            )

    def __call__(self, rows: Iterable[Any]) -> None:
        """Put the rows of one partition."""
        logs.configure(self.stream)
        with rare_collections(), shared_producer(self.settings) as producer:
            settle()
            for row in rows:
                explicit = None if self.explicit_hash_key is None else _read(row, self.explicit_hash_key)
                producer.put(
                    self.stream,
                    _read(row, self.partition_key),
                    _read(row, self.data),
                    explicit,
                    dedup_id=None if self.dedup_id is None else _read(row, self.dedup_id),
                    dedup_window=self.dedup_window,
                )
        _LOGGER.info("%s: %d records stored by this task", self.stream, producer.accepted)


def describe_row(
    index: int, partition_key: str | None = None, explicit_hash_key: str | int | None = None
) -> str:
    """Return text that identifies a row without its payload: its index in the task, from 0, and the first 40 characters of its keys."""
    parts = [f"row {index + 1:,} of this task{_in_task()}"]
    if partition_key is not None:
        parts.append(f"partitionKey '{printable(str(partition_key), _SHOWN_KEY)}'")
    if explicit_hash_key is not None:
        parts.append(f"explicitHashKey '{printable(str(explicit_hash_key), _SHOWN_KEY)}'")
    return ", ".join(parts)


def _without_data() -> InvalidRecordError:
    return InvalidRecordError("data", "the row has none")


def _in_task() -> str:
    task = logs.current_task()
    return f" ({task})" if task else ""


def _read(row: Any, source: Field) -> Any:
    if callable(source):
        return source(row)
    try:
        return row[source]
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidRecordError(source, "the row does not have this column") from error
