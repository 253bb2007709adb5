"""The writers: they put Arrow batches with one producer per Python worker process, which each task flushes at its end.

Delivery is at least once. A task that Spark retries or runs speculatively puts its rows again, and an acknowledged record
stays in the stream if the task, the job or the batch fails. With the option ``idempotent`` and a column ``dedupId``, this SDK's readers
deliver each row once; other consumers have to deduplicate rows by a key in the data.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource as spark_datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kinesis_sdk.common.aws import call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, InvalidRecordError
from kinesis_sdk.spark import logs
from kinesis_sdk.spark.attempts import FirstAttempts, StreamTask
from kinesis_sdk.spark.bad_rows import FAIL, BadRows, counted
from kinesis_sdk.spark.columns import COLUMNS
from kinesis_sdk.spark.connection import ConnectionSettings, shared_client
from kinesis_sdk.spark.errors import BriefErrors
from kinesis_sdk.spark.options import SinkOptions
from kinesis_sdk.spark.partition import describe_row, shared_producer
from kinesis_sdk.spark.python_process import rare_collections, settle

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_sdk.spark.stored_names import Reconciliation

_LOGGER = logging.getLogger(__name__)

# Spark 4.0 has no Arrow writer for streams, so rows are converted to batches there.
_STREAM_BASE = getattr(spark_datasource, "DataSourceStreamArrowWriter", None)
if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter as _StreamWriter
else:
    _StreamWriter = _STREAM_BASE or spark_datasource.DataSourceStreamWriter
_ROWS_PER_BATCH = 10_000


_WRITTEN = {
    "data": ("binary", "string"),
    "partitionkey": ("string",),
    "explicithashkey": ("string",),
    "dedupid": ("string",),
    "headers": ("map<string,binary>", "map<string,string>"),
}
_WRITTEN_NAMES = "data, partitionKey, explicitHashKey, dedupId, headers"
_IGNORED_COLUMNS = [(name, kind) for name, kind in COLUMNS if name.lower() not in _WRITTEN]
_IGNORED = {name.lower(): ("bigint" if kind == "long" else kind,) for name, kind in _IGNORED_COLUMNS}
"""Columns of the reader that describe the origin of a record. The writers ignore them, so that a frame from the reader can be written
unchanged.
``INSERT INTO`` a view passes them as null.
"""
_IGNORED_NAMES = ", ".join(name for name, _ in _IGNORED_COLUMNS)


@dataclass(frozen=True)
class Columns:
    """Names of the columns to write; each except ``data`` is None if there is no such column.

    Attributes:
        data: Payload column, binary or string.
        partition_key: None draws random keys.
        dedup_id: Column with the rows' names.
        headers: Column with maps of headers.
    """

    data: str
    partition_key: str | None
    explicit_hash_key: str | None
    dedup_id: str | None = None
    headers: str | None = None

    @property
    def known(self) -> dict[str, str]:
        """Names of the existing columns, by their names in the options."""
        columns = {
            "data": self.data,
            "partitionKey": self.partition_key,
            "explicitHashKey": self.explicit_hash_key,
            "dedupId": self.dedup_id,
            "headers": self.headers,
        }
        return {known: name for known, name in columns.items() if name is not None}


class Written(WriterCommitMessage):  # type: ignore[misc]
    """Result of a task.

    Attributes:
        records: User records stored.
        payload_bytes: Bytes of their payloads.
        left_out: Number of rows that Kinesis would reject, by invalid field.
        rejected: Field and problem of the first row that Kinesis would reject, if that row fails the write.
    """

    def __init__(
        self,
        records: int,
        payload_bytes: int,
        left_out: Mapping[str, int] | None = None,
        rejected: tuple[str, str] | None = None,
    ) -> None:
        self.records = records
        self.payload_bytes = payload_bytes
        self.left_out: dict[str, int] = dict(left_out or {})
        self.rejected = rejected


def plan_columns(schema: Any, options: SinkOptions, *, overwrite: bool) -> Columns:
    """Check the columns of a DataFrame on the driver, before any task runs.

    The reader's other columns (shard, sequence number, …) are accepted and ignored.

    Raises:
        ConfigError: If a column is missing, unknown or of the wrong type, or the mode is ``overwrite``.
    """
    if overwrite:
        raise ConfigError("mode", "overwrite", "append, because a stream cannot be overwritten")
    found: dict[str, str] = {}
    for column in schema.fields:
        name, kind = column.name.lower(), column.dataType.simpleString()
        known = _WRITTEN.get(name) or _IGNORED.get(name)
        if known is None:
            accepted = f"{_WRITTEN_NAMES}, or the reader's other columns, which are ignored: {_IGNORED_NAMES}"
            raise ConfigError(f"column {column.name}", kind, accepted)
        if kind not in known:
            raise ConfigError(f"column {column.name}", kind, " or ".join(known))
        if name in _WRITTEN:
            found[name] = column.name
    if "data" not in found:
        raise ConfigError("column data", None, "a binary or string column with the payload")
    if "partitionkey" not in found and not options.random_partition_key:
        raise ConfigError("column partitionKey", None, "a string column, or the option partitionKey=random")
    if "dedupid" in found and options.settings.config.dedup_namespace is None:
        raise ConfigError(
            f"column {found['dedupid']}",
            "string",
            "a column that is used: set the options idempotent=true and dedupNamespace",
        )
    if "dedupid" in found and options.random_partition_key:
        raise ConfigError(
            "partitionKey",
            "random",
            "a column, because repeated rows are recognized by dedupId only if they have the same partition key",
        )
    return Columns(
        found["data"],
        found.get("partitionkey"),
        found.get("explicithashkey"),
        found.get("dedupid"),
        found.get("headers"),
    )


_first_attempts = FirstAttempts()
"""First attempts of this process. Spark forks its Python processes from a process that does not write."""


def write_batches(
    options: SinkOptions,
    columns: Columns,
    batches: Iterable[pa.RecordBatch],
    *,
    task: StreamTask | None = None,
    attempts: FirstAttempts = _first_attempts,
    clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    sleep: Callable[[float], None] = time.sleep,
) -> Written:
    """Put every row and wait until all are stored.

    Memory is bounded by ``maxOutstandingBytes`` and one Arrow batch, because `put` blocks while the buffer is full.
    ``task`` is None if the rows have no names, or the task belongs to no streaming query.

    Raises:
        PartitionFailedError: If records were not stored; it contains the counts by cause.
        InvalidRecordError: If Kinesis would reject a row, because it is null or too large, and ``badRows`` is ``fail``. The message
            has the row's number and keys.
        AwsError: If a row has no partition key, and the stream cannot be described.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    stream = str(options.stream)
    logs.configure(options.stream.name, level=options.log_level)
    attempt = attempts.begin(task)
    batches = _after(clock.monotonic() + attempt.wait, batches, stream=stream, clock=clock, sleep=sleep)
    reconciliation = None
    if attempt.first is None:
        reconciliation = _reconciliation(options, columns, attempt.since, clock, sleep)
    if reconciliation is not None:
        batches = _missing(reconciliation, columns, batches)
    size = 0
    keyless: bool | None = None  # whether null keys are accepted; unknown before the first null key
    with rare_collections(), shared_producer(options.settings, error_sample=options.error_sample) as producer:
        settle()
        bad = None
        if options.bad_rows != FAIL:
            bad = BadRows(producer, options.bad_rows_stream, columns.known)
        for batch in batches:
            data = batch.column(columns.data)
            if bad is None:
                _reject_nulls(columns.data, batch, columns, producer.accepted)
            if pa.types.is_string(data.type) or pa.types.is_large_string(data.type):
                data = data.cast(pa.binary())
            size += pc.sum(pc.binary_length(data)).as_py() or 0
            if columns.partition_key is None:
                keys: list[str | None] = [token_hex(8) for _ in range(batch.num_rows)]
            else:
                column = batch.column(columns.partition_key)
                keys = column.to_pylist()
                if column.null_count:
                    if keyless is None:
                        keyless = options.random_partition_key or _service_places(options)
                    if options.random_partition_key:
                        keys = [token_hex(8) if key is None else key for key in keys]
                    elif not keyless and bad is None:
                        _reject_nulls(columns.partition_key, batch, columns, producer.accepted, _KEY_HINT)
                    elif not keyless:
                        keys = ["" if key is None else key for key in keys]  # no stream takes this key
            hashes: list[str | None] | None = None
            if columns.explicit_hash_key is not None:
                hashes = batch.column(columns.explicit_hash_key).to_pylist()
            names = None if columns.dedup_id is None else batch.column(columns.dedup_id).to_pylist()
            producer.put_columns(
                stream,
                keys,
                data.to_pylist(),
                hashes,
                dedup_ids=names,
                headers=None
                if columns.headers is None
                else map(_mapping, batch.column(columns.headers).to_pylist()),
                dedup_window=options.dedup_window,
                attempt=attempt,
                leave_out=None if bad is None else bad.leaving_out(batch),
            )
        stored = producer.flush()
        if bad is not None:
            size -= bad.payload_bytes
            if options.bad_rows_stream is not None:
                stored -= bad.count.total()  # these rows went to the stream for bad rows
        written = Written(stored, size, None if bad is None else bad.count)
        attempts.end(task, producer.time_at_kinesis(stream))
    _LOGGER.info(
        "%s: %d records (%d bytes of payload) stored by this task; %d were stored by an earlier attempt",
        stream,
        written.records,
        size,
        0 if reconciliation is None else reconciliation.left_out,
    )
    return written


def _after(
    moment: float,
    batches: Iterable[pa.RecordBatch],
    *,
    stream: str,
    clock: Clock,
    sleep: Callable[[float], None],
) -> Iterator[pa.RecordBatch]:
    """Yield batches, but none that has rows before ``moment`` (monotonic seconds)."""
    for batch in batches:
        if batch.num_rows and (seconds := moment - clock.monotonic()) > 0:
            _LOGGER.info(
                "%s: waiting for %.0f s, because another attempt of the batch may still write",
                stream,
                seconds,
            )
            sleep(seconds)
        yield batch


def _reconciliation(
    options: SinkOptions,
    columns: Columns,
    since: int | None,
    clock: Clock,
    sleep: Callable[[float], None],
) -> Reconciliation | None:
    """Return the filter for rows that the stream already contains; None without the option ``reconcile``."""
    config = options.settings.config
    if options.reconcile is None or columns.dedup_id is None or config.dedup_namespace is None:
        return None
    # Imported here, because few writers need it.
    from kinesis_sdk.common.once import Names
    from kinesis_sdk.spark.stored_names import Reconciliation

    return Reconciliation(
        shared_client(options.settings.connection or ConnectionSettings()),
        options.stream,
        Names(config.dedup_namespace, config.dedup_secret),
        span=options.reconcile,
        since=since,
        clock=clock,
        sleep=sleep,
        retry_timeout=options.flush_timeout,
    )


def _missing(
    reconciliation: Reconciliation, columns: Columns, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield batches without the rows that the stream already contains."""
    import pyarrow as pa

    for batch in batches:
        if not batch.num_rows:
            continue
        keys, hashes, names = (
            [None] * batch.num_rows if name is None else batch.column(name).to_pylist()
            for name in (columns.partition_key, columns.explicit_hash_key, columns.dedup_id)
        )
        yield batch.filter(pa.array(reconciliation.missing(keys, hashes, names)))


_KEY_HINT = (
    "; a row without a key needs the option partitionKey=random, or a stream that distributes records itself"
)


def _attempted(write: Callable[[], Written]) -> Written:
    """Return the result of a task. A rejected row is a result, not an error, because other attempts would also find it."""
    try:
        return write()
    except InvalidRecordError as error:
        return Written(0, 0, rejected=(error.field, error.problem))


def _mapping(entries: Sequence[tuple[str, Any]] | None) -> dict[str, Any] | None:
    """Return a value of a map column as a mapping; Arrow passes it as a sequence of entries."""
    return dict(entries) if entries else None


def _service_places(options: SinkOptions) -> bool:
    """Return whether the stream distributes records itself, regardless of their partition keys."""
    client = shared_client(options.settings.connection or ConnectionSettings())
    answer = call_with_retries(
        lambda: client.describe_stream_summary(**options.stream.request),
        operation="DescribeStreamSummary",
        client=client,
        timeout=options.flush_timeout,
    )
    distribution: str | None = answer["StreamDescriptionSummary"].get("RecordDistributionStrategy")
    return distribution == "AUTO"


def _reject_nulls(name: str, batch: pa.RecordBatch, columns: Columns, before: int, hint: str = "") -> None:
    """Raise the error for the first row of a batch without a value in a column; the task has put ``before`` rows of earlier batches."""
    column = batch.column(name)
    if not column.null_count:
        return
    index = column.is_null().index(True).as_py()

    def value(of: str | None) -> str | None:
        return None if of is None else batch.column(of)[index].as_py()

    row = describe_row(before + index, value(columns.partition_key), value(columns.explicit_hash_key))
    raise InvalidRecordError(
        name, f"{column.null_count:,} of {len(column):,} rows are null; the first is {row}{hint}"
    )


def _commit(where: str, options: SinkOptions, messages: list[Written | None]) -> None:
    """Log the counts of the write; raise the error of the first row that fails the write."""
    logs.configure(options.stream.name, "commit", level=options.log_level)
    settle()
    for message in messages:
        if message is not None and message.rejected is not None:
            raise InvalidRecordError(*message.rejected)
    stored = [message for message in messages if message is not None]
    _LOGGER.info(
        "%s: %d records (%d bytes of payload) stored by %d tasks",
        where,
        sum(message.records for message in stored),
        sum(message.payload_bytes for message in stored),
        len(stored),
    )
    left_out: Counter[str] = Counter()
    for message in stored:
        left_out.update(message.left_out)
    if left_out:
        _LOGGER.warning(
            "%s: %d rows that Kinesis would reject were left out (badRows=%s): %s",
            where,
            left_out.total(),
            options.bad_rows,
            counted(left_out),
        )


def _log_abort(where: str, options: SinkOptions, messages: list[Written | None]) -> None:
    logs.configure(options.stream.name, "commit", level=options.log_level)
    stored = sum(message.records for message in messages if message is not None)
    _LOGGER.warning(
        "%s failed after storing at least %d records; a retry stores them again",
        where,
        stored,
    )


class KinesisWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """``df.write.format("kinesis_sdk").mode("append").save()``."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    @BriefErrors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task. See `write_batches`."""
        return _attempted(lambda: write_batches(self._options, self._columns, iterator))

    @BriefErrors()
    def commit(self, messages: list[Written | None]) -> None:
        """Called when all tasks succeeded.

        Raises:
            InvalidRecordError: If Kinesis would reject a row, and ``badRows`` is ``fail``.
        """
        _commit(f"write to {self._options.stream}", self._options, messages)

    def abort(self, messages: list[Written | None]) -> None:
        """Called when a task failed permanently."""
        _log_abort(f"write to {self._options.stream}", self._options, messages)


class KinesisStreamWriter(_StreamWriter):  # type: ignore[misc]
    """``df.writeStream.format("kinesis_sdk").option("checkpointLocation", …).start()``."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    @BriefErrors()
    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task of a batch. See `write_batches`."""
        batches = iterator if _STREAM_BASE is not None else _batches_of_rows(iterator)
        has_names = self._columns.dedup_id is not None
        task = _current_task() if has_names and self._options.first_attempts else None
        return _attempted(lambda: write_batches(self._options, self._columns, batches, task=task))

    @BriefErrors()
    def commit(self, messages: list[Written | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Called when all tasks of a batch succeeded.

        Raises:
            InvalidRecordError: If Kinesis would reject a row, and ``badRows`` is ``fail``.
        """
        _commit(f"batch {batchId} to {self._options.stream}", self._options, messages)

    def abort(self, messages: list[Written | None], batchId: int) -> None:  # noqa: N803 — Spark's name
        """Called when a task of a batch failed permanently."""
        _log_abort(f"batch {batchId} to {self._options.stream}", self._options, messages)


def _current_task() -> StreamTask | None:
    """Return the running task; None if Spark does not identify it."""
    context = TaskContext.get()
    if context is None:
        return None
    return StreamTask.of(context.getLocalProperty, stage=context.stageId(), attempt=context.attemptNumber())


def _batches_of_rows(rows: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Yield Arrow batches of Spark rows, for Spark 4.0, whose streams pass rows."""
    from itertools import islice

    import pyarrow as pa

    while chunk := list(islice(rows, _ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist([row.asDict() for row in chunk])
