"""The data source ``kinesis_sdk``: batch reader, stream reader, and the factory of the writers.

One class serves pyspark 4.0 to 4.3. Before version 4.2, Spark calls ``latestOffset()`` without the start, has no read limits and runs
AvailableNow as one batch. From version 4.2 on, it passes the start and a limit, and runs as many batches as needed.

Three kinds of processes create readers: the planning process of the driver (which pickles them), one long-lived process per query
that plans offsets, and the workers of the executors. Creating a reader therefore makes no calls, and its pickle contains only options.
Modules that only some of these processes need are imported where they are used, because a query starts several processes and each import
costs CPU time in each of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark import logs
from kinesis_sdk.spark.columns import COLUMN_NAMES, COLUMNS, DDL, HEADERS
from kinesis_sdk.spark.connection import shared_client
from kinesis_sdk.spark.errors import BriefErrors
from kinesis_sdk.spark.options import SinkOptions, SourceOptions
from kinesis_sdk.spark.python_process import lasting_objects, rare_collections, settle
from kinesis_sdk.spark.row_shape import RawRows, RowShape
from kinesis_sdk.spark.table_options import (
    METADATA_KEY,
    check_write_options,
    creation_options,
    read_options,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from kinesis_sdk.spark.offsets import QueryOffset
    from kinesis_sdk.spark.planner import StreamPlanner
    from kinesis_sdk.spark.reading import ShardRange
    from kinesis_sdk.spark.shardio import ShardIo
    from kinesis_sdk.spark.sink import KinesisStreamWriter, KinesisWriter

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2
    HAS_ADMISSION_CONTROL = False
else:
    HAS_ADMISSION_CONTROL = True

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader as _StreamReader
elif HAS_ADMISSION_CONTROL:

    class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        """Base class of the stream reader from Spark 4.2 on."""

else:
    _StreamReader = DataSourceStreamReader


FORMAT = "kinesis_sdk"

_TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "long": LongType(),
    "timestamp": TimestampType(),
    HEADERS[1]: MapType(StringType(), BinaryType()),
}

_LOGGER = logging.getLogger(__name__)

_ALL_COLUMNS = RawRows(COLUMN_NAMES)

_UNBOUNDED_ROWS = 2**63 - 1
"""The largest number of rows that Spark can represent."""


class KinesisDataSource(DataSource):  # type: ignore[misc]
    """``spark.read`` / ``readStream`` / ``write`` / ``writeStream`` with ``format("kinesis_sdk")``.

    Options: see `kinesis_sdk.spark.options`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        settle()

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    @BriefErrors()
    def schema(self) -> StructType:
        """Return the columns of the reader.

        Spark calls this in ``load()``, if it is called without a schema, and when a view or table is created. So this method is the first
        to detect wrong options.

        Raises:
            ConfigError: If an option is unknown or out of range, a table is created with credentials, or ``valueFormat`` is used
                without a schema and without ``columns``.
        """
        created = creation_options(self.options)
        parsed = SourceOptions.parse(self.options if created is None else created)
        fields = _fields(parsed)
        if created is not None:
            fields[0].metadata = {METADATA_KEY: created}
        return StructType(fields)

    @BriefErrors()
    def reader(self, schema: Any) -> KinesisReader:
        """Return a reader of all records between two positions.

        Raises:
            ConfigError: If an option is unknown or out of range, or the schema has columns that the source does not have.
        """
        return KinesisReader(*_read_request(self.options, schema))

    @BriefErrors()
    def streamReader(self, schema: Any) -> KinesisStreamReader:  # noqa: N802 — Spark's name
        """Return a reader of the stream in micro-batches.

        Raises:
            ConfigError: If an option is unknown or out of range, or the schema has columns that the source does not have.
        """
        options, rows = _read_request(self.options, schema)
        if options.shard_ids is not None:
            raise ConfigError(
                "shardIds",
                ",".join(sorted(options.shard_ids)),
                "nothing in a streaming query, which reads all shards",
            )
        settle()
        return KinesisStreamReader(options, rows)

    @BriefErrors()
    def writer(self, schema: Any, overwrite: bool) -> KinesisWriter:
        """Return a writer of the rows of a DataFrame.

        Raises:
            ConfigError: If an option is unknown or out of range, or the columns do not fit.
        """
        from kinesis_sdk.spark.sink import KinesisWriter, plan_columns

        options = SinkOptions.parse(check_write_options(self.options))
        settle()
        return KinesisWriter(options, plan_columns(schema, options, overwrite=overwrite))

    @BriefErrors()
    def streamWriter(self, schema: Any, overwrite: bool) -> KinesisStreamWriter:  # noqa: N802 — Spark's name
        """Return a writer of the rows of a streaming query.

        Raises:
            ConfigError: If an option is unknown or out of range, or the columns do not fit.
        """
        from kinesis_sdk.spark.sink import KinesisStreamWriter, plan_columns

        del (
            overwrite
        )  # set in complete and update mode; a stream is append-only, so the rows of each batch are put
        options = SinkOptions.parse(check_write_options(self.options))
        settle()
        return KinesisStreamWriter(options, plan_columns(schema, options, overwrite=False))


def _fields(options: SourceOptions) -> list[StructField]:
    """Return the columns of a read without a schema from the user."""
    if options.value_format is not None:
        from kinesis_sdk.spark.parse.ddl import schema_of
        from kinesis_sdk.spark.parse.rows import TypedRows

        if options.columns is None:
            raise ConfigError(
                "schema",
                None,
                f"a schema beside valueFormat={options.value_format.name}, such as "
                ".schema('id BIGINT, at TIMESTAMP, _shard_id STRING'), or the same as the option columns",
            )
        schema = schema_of(options.columns, "columns")
        TypedRows(options.value_format, schema)
        return list(StructType.fromJson(schema).fields)
    known = dict((*COLUMNS, HEADERS) if options.include_headers else COLUMNS)
    names = list(known)
    if options.columns is not None:
        names = [name.strip() for name in options.columns.split(",")]
        if len(set(names)) < len(names) or not set(names) <= set(known):
            raise ConfigError("columns", options.columns, "different names of " + ", ".join(known))
    return [StructField(name, _TYPES[known[name]]) for name in names]


def _read_request(options: Any, schema: Any) -> tuple[SourceOptions, RowShape]:
    """Return the options of a read, and the shape of its rows."""
    parsed = SourceOptions.parse(read_options(options, schema))
    if parsed.columns is not None and [one.name for one in _fields(parsed)] != schema.names:
        raise ConfigError(
            "columns", parsed.columns, "None with a schema, because the schema names other columns"
        )
    if parsed.value_format is not None:
        from kinesis_sdk.spark.parse.rows import TypedRows

        return parsed, TypedRows(parsed.value_format, schema.jsonValue())
    return parsed, RawRows(_columns_of(schema, include_headers=parsed.include_headers))


def _columns_of(schema: Any, *, include_headers: bool = False) -> tuple[str, ...]:
    """Return the names of the columns to read.

    Spark always passes the whole schema, because its Python API has no column pruning. To read fewer columns, a user passes a schema with
    some of the columns, in any order.

    Raises:
        ConfigError: If the schema is empty, or contains a column that the source does not have, a column with another type, or a column
            twice.
    """
    columns = (*COLUMNS, HEADERS) if include_headers else COLUMNS
    kinds = {name: "bigint" if kind == "long" else kind for name, kind in columns}
    names = tuple(field.name for field in schema.fields)
    fits = all(kinds.get(field.name) == field.dataType.simpleString() for field in schema.fields)
    if not names or not fits or len(set(names)) != len(names):
        raise ConfigError("schema", schema.simpleString(), f"no schema, or some of the columns {DDL}")
    return names


class RangePartition(InputPartition):  # type: ignore[misc]
    """Ranges that one task reads."""

    def __init__(self, ranges: Sequence[ShardRange]) -> None:
        super().__init__(tuple(ranges))


def _group(ranges: Sequence[ShardRange], options: SourceOptions) -> list[InputPartition]:
    from kinesis_sdk.spark.python_environment import max_tasks_of_session
    from kinesis_sdk.spark.tasks import group

    tasks = group(
        ranges, max_tasks=options.max_tasks or max_tasks_of_session(), shards_per_task=options.shards_per_task
    )
    return [RangePartition(task) for task in tasks]


def _new_planner(options: SourceOptions) -> StreamPlanner:
    logs.configure(options.stream_names, "planner", level=options.log_level)
    with lasting_objects():
        from kinesis_sdk.spark.planner import StreamPlanner

        client = shared_client(options.connection)
    return StreamPlanner(
        client,
        options,
        clock=SystemClock(),
        sleep=time.sleep,
        admission_control=HAS_ADMISSION_CONTROL,
    )


def _read(options: SourceOptions, shape: RowShape, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of the ranges of a task."""
    # Without partitions, Spark creates one: None before 4.2, then a partition without a value.
    ranges: Sequence[ShardRange] = (partition and partition.value) or ()
    if not ranges:
        return
    from kinesis_sdk.spark.arrow import BatchBuilder
    from kinesis_sdk.spark.reading import ReadPolicy, read_ranges
    from kinesis_sdk.spark.repetitions import RangeRepetitions
    from kinesis_sdk.spark.shardio import ShardIo

    logs.configure(options.stream_names, level=options.log_level)
    client = shared_client(options.connection)
    clock = SystemClock()
    policy = ReadPolicy(
        limit=options.records_per_fetch,
        interval=options.fetch_interval,
        stall_timeout=options.retry_timeout,
        fail_on_data_loss=options.fail_on_data_loss,
    )

    def make_io(stream: StreamId) -> ShardIo:
        return ShardIo(
            client,
            stream,
            clock=clock,
            sleep=time.sleep,
            rng=Random(),
            retry_timeout=options.retry_timeout,
        )

    builders = {
        name: BatchBuilder(name, deaggregate=options.deaggregate, columns=shape.raw)
        for name in {item.stream.name for item in ranges}
    }
    repetitions: dict[tuple[str, str], RangeRepetitions] = {}
    rows = 0
    shaping = shape.begin()
    settle()
    with rare_collections(), BriefErrors():
        for item, records in read_ranges(make_io, ranges, policy):
            known = repetitions.get((item.stream.name, item.shard_id))
            if known is None:
                known = RangeRepetitions(
                    item,
                    client,
                    clock=clock,
                    sleep=time.sleep,
                    max_bytes=options.max_repetition_bytes,
                    recognizes=options.recognize_repetitions,
                    max_span=options.max_look_up_span,
                )
                repetitions[item.stream.name, item.shard_id] = known
            known.begin(records)
            for batch in builders[item.stream.name].build(
                item.shard_id,
                records,
                owned=item.owned,
                judge=known.judge,
            ):
                for shaped in shaping.shape(batch):
                    rows += shaped.num_rows
                    yield shaped
    if report := shaping.report():
        _LOGGER.warning("%s: %s", options.stream_names, report)
    _LOGGER.info(
        "%s: %d rows of %d shards read by this task, %d repetitions dropped; the stream was read again %d times to find them",
        options.stream_names,
        rows,
        len(ranges),
        sum(known.dropped for known in repetitions.values()),
        sum(known.look_ups for known in repetitions.values()),
    )


class KinesisReader(DataSourceReader):  # type: ignore[misc]
    """Batch reader. Its end is fixed when Spark plans the read.

    The class has no ``pushFilters`` (Spark 4.1 and later), because filters would lose rows: Spark keeps the partitions of a
    filtered scan for all other scans of the same frame or view. ``df.filter("shardId = 'a'").count()`` followed by
    ``df.count()`` counts shard ``a`` twice, and a union of two shards reads one of them twice (4.1.4, 4.2.1 and 4.3.0;
    `integration/spark/test_sql.py` shows it). The options ``shardIds``, ``startingPosition`` and ``endingPosition``
    restrict a read safely.
    """

    def __init__(self, options: SourceOptions, rows: RowShape = _ALL_COLUMNS) -> None:
        self._options = options
        self._rows = rows

    @BriefErrors()
    def partitions(self) -> list[InputPartition]:
        """Return the ranges that each task reads.

        Raises:
            AwsError: If a call failed permanently.
        """
        ranges = _new_planner(self._options).plan_read(shard_ids=self._options.shard_ids)
        tasks = _group(ranges, self._options)
        settle()
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _read(self._options, self._rows, partition)


class KinesisStreamReader(_StreamReader):  # type: ignore[misc]
    """Stream reader. It exists in a separate process as long as the query; it is pickled without its planner."""

    def __init__(self, options: SourceOptions, rows: RowShape = _ALL_COLUMNS) -> None:
        self._options = options
        self._rows = rows
        self._planner: StreamPlanner | None = None
        self._initial: QueryOffset | None = None
        self._last: QueryOffset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None, "_initial": None, "_last": None}

    @property
    def planner(self) -> StreamPlanner:
        """Planner of this process, created on first use."""
        if self._planner is None:
            self._planner = _new_planner(self._options)
        return self._planner

    @BriefErrors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the offset from which a new query starts. Spark 4.2 and later call it twice, with the same result."""
        if self._initial is None:
            self._initial = self.planner.initial()
        return self._initial.to_dict()

    @BriefErrors()
    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802 — Spark's name
        """Return the end of the next batch.

        ``start`` is None before Spark 4.2. Those versions call this method before `initialOffset` in a new query, and after `partitions`
        in a restarted query. The limit `ReadAllAvailable` disables the limits of the options; all other limits keep them.

        Raises:
            DataLossError: If records that the checkpoint needs are deleted.
            AwsError: If a call failed permanently.
        """
        from kinesis_sdk.spark.offsets import QueryOffset

        if start is not None:
            begin = QueryOffset.from_dict(start)
        elif self._last is not None:
            begin = self._last
        else:
            self.initialOffset()
            assert self._initial is not None
            begin = self._initial
        end = self.planner.plan(begin, unlimited=self._lifts(limit))
        self._last = end
        return end.to_dict()

    def _lifts(self, limit: Any) -> bool:
        return HAS_ADMISSION_CONTROL and isinstance(limit, ReadAllAvailable)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 — Spark's name
        """Return the limit that Spark then passes to `latestOffset`.

        Spark has limits in rows, files and bytes, but not in stream time. So the returned limit only shows whether there is a limit: a
        number of rows that no batch reaches stands for the limits of the options, and `ReadAllAvailable` then disables them.
        """
        options = self._options
        limits = (options.max_records_per_shard, options.max_rows_per_trigger, options.max_bytes_per_trigger)
        if options.max_batch_span == 0 and not any(limits):
            return ReadAllAvailable()
        return ReadMaxRows(_UNBOUNDED_ROWS)

    @BriefErrors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 — Spark's name
        """Stop at the records that the stream contains now."""
        self.planner.stop_at_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 — Spark's name
        """Return the cut and the lag of the query, for ``sources[].latestOffset`` of the query's progress (4.2 and later)."""
        return self.planner.report()

    @BriefErrors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges that each task of a batch reads; they are the same for the same offsets, even after a restart."""
        from kinesis_sdk.spark.offsets import QueryOffset

        begin, goal = QueryOffset.from_dict(start), QueryOffset.from_dict(end)
        self._last = goal
        return _group(self.planner.ranges(begin, goal), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _read(self._options, self._rows, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing, because Spark's checkpoint is the only record of progress."""

    def stop(self) -> None:
        """Do nothing; most versions never call it."""
