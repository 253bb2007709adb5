"""`foreachPartition` made easy to write right: one producer for each Python worker process, flushed in each task.

Needs neither pyarrow nor Spark's data source API; importing it does not import pyspark.

    writer = KinesisPartitionWriter("flights", partition_key="origin", data="line")
    df.foreachPartition(writer)

or, with the producer in one's own hands,

    def send(rows):
        with shared_producer(settings) as producer:
            for row in rows:
                producer.put("flights", row.origin, row.line.encode())

    df.foreachPartition(send)
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

from kinesis_sdk.common.errors import ConfigError, InvalidRecordError, ProducerError, RecordFailedError
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.producer.record import PendingRecord
from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.gc_tuning import rare_collections

Field = str | Callable[[Any], Any]
"""A column name, or a picklable function of the row."""

_ERROR_SAMPLE = 5

_SWEEP = 10_000
"""Records put between two looks at which of a task's records are final."""


@dataclass(frozen=True, kw_only=True)
class ProducerSettings:
    """What a producer is made from; picklable, so it travels to the executors.

    Attributes:
        config: The producer's configuration.
        region_name: AWS region; else what the executor's environment says.
        endpoint_url: Endpoint; else botocore's resolution in the executor.
        connection: Profile, role or other credentials where the executor's own are not the ones to use.
    """

    config: ProducerConfig = field(default_factory=ProducerConfig)
    region_name: str | None = None
    endpoint_url: str | None = None
    connection: ConnectionSettings | None = None

    def make_producer(self) -> Producer:
        """A new producer in this process.

        Raises:
            AwsConfigError: No region, unknown profile, bad endpoint URL.
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
    """Records of a task were not stored; Spark tries the task again, or fails the job.

    Attributes:
        failed: Records that failed.
        causes: Counts by error code.
    """

    def __init__(self, message: str, *, failed: int = 0, causes: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.failed = failed
        self.causes: dict[str, int] = causes or {}


_lock = threading.Lock()
_producers: dict[tuple[int, ProducerSettings], Producer] = {}


class TaskProducer:
    """A producer as one task sees it: it knows the task's own records, and nobody else's."""

    def __init__(self, producer: Producer, *, error_sample: int = _ERROR_SAMPLE) -> None:
        self._producer = producer
        self._error_sample = error_sample
        self._pending: list[PendingRecord] = []
        self._sweep_at = _SWEEP
        self._stored = 0
        self._failures: list[RecordFailedError] = []
        self._causes: Counter[str] = Counter()

    def put(
        self,
        stream: str,
        partition_key: str,
        data: bytes | bytearray | memoryview | str,
        explicit_hash_key: str | int | None = None,
    ) -> None:
        """Accept one record; text is sent as UTF-8. Waits while the producer's buffer is full.

        Raises:
            InvalidRecordError: The service would refuse the record.
            PartitionFailedError: A record of this task has failed already; no use in sending more.
        """
        if isinstance(data, str):
            data = data.encode()
        self._pending.append(self._producer.put(stream, partition_key, data, explicit_hash_key))
        if len(self._pending) >= self._sweep_at:
            self._sweep()
            if self._causes:
                self._raise()

    def put_columns(
        self,
        stream: str,
        partition_keys: Iterable[str],
        payloads: Iterable[bytes],
        explicit_hash_keys: Iterable[str | None] | None = None,
    ) -> None:
        """Accept many records, as `put` does for one; columns of equal length.

        Raises:
            InvalidRecordError: The service would refuse a record; the ones before it are accepted.
            PartitionFailedError: A record of this task has failed already.
        """
        put = self._producer.put
        rows: Iterator[tuple[str, bytes, str | None]] = (
            zip(partition_keys, payloads, repeat(None))
            if explicit_hash_keys is None
            else zip(partition_keys, payloads, explicit_hash_keys, strict=True)
        )
        while True:
            room = max(1, self._sweep_at - len(self._pending))
            before = len(self._pending)
            self._pending.extend(
                [put(stream, key, data, explicit) for key, data, explicit in islice(rows, room)]
            )
            if len(self._pending) - before < room:
                return
            self._sweep()
            if self._causes:
                self._raise()

    def flush(self) -> int:
        """Wait until every record of this task has its final result.

        Returns:
            How many are stored.

        Raises:
            PartitionFailedError: Some are not.
        """
        self._producer.flush()
        self._sweep(final=True)
        if self._failures or self._causes:
            self._raise()
        return self._stored

    def _sweep(self, *, final: bool = False) -> None:
        """Count what is final, so that a task's memory does not grow with its partition."""
        waiting: list[PendingRecord] = []
        stored = 0
        for record in self._pending:
            if not record.done():
                if not final:
                    waiting.append(record)
                    continue
                record.exception()  # waits; `flush` has seen to it that there is nothing to wait for
            # Final records do not change any more: no lock is needed, and making one for each is what costs.
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
        # Relative to what waits: a full buffer must not make every further record look at all of them.
        self._sweep_at = len(waiting) + _SWEEP

    def _raise(self) -> None:
        failed = sum(self._causes.values())
        causes = ", ".join(f"{count:,} {code}" for code, count in self._causes.most_common())
        sample = "; ".join(str(error) for error in self._failures)
        raise PartitionFailedError(
            f"{failed:,} records of this task{_task()} were not stored ({causes}); {self._stored:,} were, "
            f"and a retried task stores them again. First errors: {sample or 'not shown'}",
            failed=failed,
            causes=dict(self._causes),
        ) from (self._failures[0] if self._failures else None)


@contextmanager
def shared_producer(
    settings: ProducerSettings | None = None, *, error_sample: int = _ERROR_SAMPLE
) -> Iterator[TaskProducer]:
    """The producer of this Python worker process, for one task; flushed when the block ends.

    Spark reuses worker processes: tasks with equal settings share a producer and its connections. Nothing
    stays buffered between tasks, because Spark ends idle workers without notice.

    Args:
        settings: What to make the producer from; defaults are the KPL's.
        error_sample: Errors that the message of a failed task repeats.

    Raises:
        PartitionFailedError: At the end of the block, if records were not stored: the task then fails.
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
    """A picklable function for ``df.foreachPartition``: puts every row, flushes, fails the task on failures.

    Delivery is at least once: a task that Spark retries puts its rows again.

    Args:
        stream: Stream name or ARN.
        partition_key: Column, or function of the row.
        data: Column (bytes or text), or function of the row.
        explicit_hash_key: Column or function that gives decimal text, an int or None.
        settings: What to make the producer from.
    """

    def __init__(
        self,
        stream: str,
        *,
        partition_key: Field,
        data: Field,
        explicit_hash_key: Field | None = None,
        settings: ProducerSettings | None = None,
    ) -> None:
        for name, value in (
            ("partition_key", partition_key),
            ("data", data),
            ("explicit_hash_key", explicit_hash_key or ""),
        ):
            if not isinstance(value, str) and not callable(value):
                raise ConfigError(name, value, "a column name or a function of the row")
        self.stream = stream
        self.partition_key = partition_key
        self.data = data
        self.explicit_hash_key = explicit_hash_key
        self.settings: ProducerSettings = settings or ProducerSettings()

    def __call__(self, rows: Iterable[Any]) -> None:
        """Put the rows of one partition."""
        with rare_collections(), shared_producer(self.settings) as producer:
            for row in rows:
                explicit = None if self.explicit_hash_key is None else _read(row, self.explicit_hash_key)
                producer.put(self.stream, _read(row, self.partition_key), _read(row, self.data), explicit)


def _task() -> str:
    """Which attempt of which task this is, where Spark says."""
    pyspark = sys.modules.get("pyspark")
    context = pyspark.TaskContext.get() if pyspark is not None else None
    if context is None:
        return ""
    return f" (partition {context.partitionId()}, attempt {context.attemptNumber() + 1})"


def _read(row: Any, wanted: Field) -> Any:
    if callable(wanted):
        return wanted(row)
    try:
        return row[wanted]
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidRecordError(wanted, "the row has no such column") from error
