"""Options of the data source: names, defaults and ranges. An unknown option is an error that names the closest one.

Names are case-insensitive. `kinesis_sdk.common.position_text` defines the grammar of durations and positions.

The reader checks and ignores the writer's options, and the writer the reader's, because a temporary view passes the same options to both.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.once import MAX_BYTES, OLDEST_MILLIS
from kinesis_sdk.common.position import MAX_MILLIS, AtTimestamp, Latest
from kinesis_sdk.common.position_text import parse_duration, parse_position
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.connection import ConnectionSettings
from kinesis_sdk.spark.logs import LEVELS
from kinesis_sdk.spark.parse.form import ValueFormat
from kinesis_sdk.spark.parse.form_options import (
    FORMATS,
    NOT_HERE,
    OPTIONS,
    read_flag,
    read_text,
    take_value_format,
)
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.tasks import MAX_TASKS

if TYPE_CHECKING:
    from kinesis_sdk.spark.partition import ProducerSettings

_CLOCK = SystemClock()
MAX_PAGE = 10_000
"""Maximum records of a GetRecords response (API reference)."""

_ENGINE_OPTIONS = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark itself adds to the options of a streaming sink."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options of the reader. Durations are seconds."""

    streams: tuple[StreamId, ...]
    """Streams that the query reads, with different names. They are in one region."""
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    starting_position: StartingPosition | None = None
    """Position to start from. None means LATEST for streaming queries and TRIM_HORIZON for batch reads."""
    ending_position: Latest | AtTimestamp = field(default_factory=Latest)
    """Position at which a batch read ends: LATEST (when the read is planned) or a time."""
    max_batch_span: float | None = None
    """Maximum stream time per batch. None adapts the span to the speed of the query, so that a query that is behind catches up in batches
    that take about as long as its trigger interval. A duration is a fixed upper bound; a query whose trigger interval is longer then falls
    behind. 0 means unlimited. Before version 4.2, Spark runs AvailableNow as one batch, for which the span does not apply.
    """
    max_records_per_shard: int | None = None
    """Exact maximum number of Kinesis records per shard and batch; None means unlimited."""
    max_rows_per_trigger: int | None = None
    """Maximum number of rows per batch for all shards together; None means unlimited. Records that arrived within one millisecond stay
    together."""
    max_bytes_per_trigger: int | None = None
    """Maximum bytes of stored Kinesis records per batch, including partition keys; None means unlimited."""
    tip_lag: float = 0.3
    """Distance from the current time at which the search for the newest record of a shard starts."""
    min_probe_interval: float = 1.0
    """Minimum time between two probes of the stream."""
    idle_probe_interval: float = 5.0
    """Maximum time between two reads of a shard that has been idle for a long time, and therefore the maximum delay of its next record. 0
    means that each shard is read at each trigger."""
    shard_refresh_interval: float = 10.0
    """Time between two ListShards calls; when a shard ends, the next call is made at once."""
    probe_threads: int = 16
    """Shards that are probed concurrently."""
    shard_ids: frozenset[str] | None = None
    """Shards of a batch read; None for all shards. A streaming query reads all shards."""
    shards_per_task: int | None = None
    """Maximum shards per Spark task, except for a parent with its children; None means that ``max_tasks`` decides."""
    max_tasks: int | None = None
    """Maximum number of Spark tasks per batch, if ``shards_per_task`` is not set. None means two per slot (on a cluster at least 64) if
    `kinesis_sdk.spark.register` was called with the session, and 64 otherwise."""
    records_per_fetch: int = MAX_PAGE
    """Maximum Kinesis records per GetRecords call."""
    fetch_interval: float = 0.25
    """Minimum time between two GetRecords calls for a shard. With 0.25, one of the five calls per second remains for the driver."""
    retry_timeout: float = 120.0
    """Time for which throttled and failed calls are retried."""
    deaggregate: bool = True
    """Whether aggregated records are deaggregated."""
    include_headers: bool = False
    """Whether rows have a column ``headers``, a map from names to values, as in Spark's Kafka source."""
    misplaced_aggregates: str = "deliver"
    """Treatment of an aggregate with records outside the shard's hash key range: ``deliver`` it, or ``discard`` the whole aggregate, as
    the KCL does. The KPL, and the producer of this package, put its records again.
    """
    recognize_repetitions: bool = True
    """Whether repetitions of idempotent producers are left out. False returns every stored copy."""
    max_repetition_bytes: int = MAX_BYTES
    """Maximum bytes that a task remembers of the records of idempotent producers for each shard, to recognize repetitions."""
    max_look_up_span: float = OLDEST_MILLIS / 1000
    """Maximum time before a record within which the stream is searched for earlier copies of it. Any program that may put records can make
    a task
    read this span again.
    """
    columns: str | None = None
    """Columns of a read without a schema: names, or names and types with ``value_format``; None for all columns."""
    value_format: ValueFormat | None = None
    """Format of the values, which are parsed into the columns of the query's schema; None leaves them as bytes."""
    fail_on_data_loss: bool = True
    """Whether the query fails if records that the checkpoint needs are deleted; otherwise it logs the loss and continues."""
    log_level: str | None = None
    """Level of the package's log lines in the Python processes of Spark; see `kinesis_sdk.spark.logs`."""

    @property
    def tip_lag_millis(self) -> int:
        """``tip_lag`` in milliseconds."""
        return round(self.tip_lag * 1000)

    @property
    def stream_names(self) -> str:
        """Names of the streams, for log lines."""
        return ", ".join(stream.name for stream in self.streams)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, clock: Clock = _CLOCK) -> SourceOptions:
        """Parse the options that Spark passes. The clock is used for positions such as ``-15m``.

        Raises:
            ConfigError: If an option is unknown, the streams are missing or do not fit together, or a value is out of
                range.
        """
        values = _read(options, _SOURCE, ignored=_SINK, engine=frozenset())
        if values.pop("retrieval_mode", "polling") != "polling":
            raise ConfigError(
                "retrievalMode",
                "fanout",
                "polling, because enhanced fan-out cannot repeat a read at any time: a consumer has one subscription per shard, and for "
                "5 s after it began, a task that is retried or runs twice cannot open another one",
            )
        streams = _take_streams(values)
        names = {stream.name for stream in streams}
        text = values.pop("starting_position", None)
        if text is not None:
            values["starting_position"] = StartingPosition.parse(text, now=clock.time(), streams=names)
        text = values.pop("ending_position", None)
        if text is not None:
            values["ending_position"] = _ending(text, "endingPosition", clock.time())
        connection = _take_connection(values, streams)
        chosen = cls(
            streams=streams,
            connection=connection,
            value_format=take_value_format(values, connection),
            **values,
        )
        if chosen.misplaced_aggregates == "discard" and not chosen.deaggregate:
            raise ConfigError("misplacedAggregates", "discard", "deliver where deaggregate is false")
        return chosen


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """Options of the writer. Durations are seconds."""

    stream: StreamId
    settings: ProducerSettings
    random_partition_key: bool = False
    """Whether rows without a partition key get a random key: all rows if there is no such column, otherwise the rows in which the column
    is null."""
    error_sample: int = 5
    """Number of errors that the message of a failed task quotes."""
    flush_timeout: float = 600.0
    """Time-to-live of a record, and therefore the maximum wait at the end of a task."""
    log_level: str | None = None
    """Level of the package's log lines in the Python processes of Spark; see `kinesis_sdk.spark.logs`."""
    dedup_window: float = 300.0
    """Time for which readers recognize another row with the same ``dedupId``."""
    reconcile: float | None = None
    """Time before a task at which the read of the stream starts, to leave out rows that an earlier attempt has stored; None disables
    this."""
    bad_rows: str = "fail"
    """Treatment of rows that Kinesis would reject: they ``fail`` the write, are left out (``skip``), or are put into another stream
    (``dlq``)."""
    bad_rows_stream: str | None = None
    """Name or ARN of the stream for bad rows (``dlq``)."""
    first_attempts: bool = True
    """Whether tasks of a streaming query mark rows with a ``dedupId`` that are certainly written for the first time."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options that Spark passes.

        Raises:
            ConfigError: If an option is unknown, the stream is missing, or a value is out of range.
        """
        # Imported here, because each process that reads would import the producer too.
        from kinesis_sdk.producer import ProducerConfig
        from kinesis_sdk.spark.partition import ProducerSettings

        values = _read(options, _SINK, ignored=_SOURCE, engine=_ENGINE_OPTIONS)
        namespace, secret = values.pop("dedup_namespace", None), None
        if namespace is not None and not values.get("idempotent"):
            raise ConfigError("dedupNamespace", namespace, "none without idempotent=true")
        if "dedup_secret" in values:
            secret = values.pop("dedup_secret").encode("utf-8", "surrogatepass")
            if namespace is None:
                raise ConfigError("dedupSecret", "a secret", "no secret without dedupNamespace")
        if "reconcile" in values and namespace is None:
            raise ConfigError(
                "reconcile", f"{values['reconcile']:g}s", "no duration without dedupId and dedupNamespace"
            )
        stream = _take_stream(values)
        connection = _take_connection(values, (stream,))
        bad_rows, bad_stream = values.pop("bad_rows", "fail"), values.pop("bad_rows_stream", None)
        if (bad_rows == "dlq") != (bad_stream is not None):
            raise ConfigError("badRowsStream", bad_stream, "a stream with badRows=dlq, and none otherwise")
        flush_timeout = values.pop("flush_timeout", 600.0)
        with _named({"dedup_namespace": "dedupNamespace", "dedup_secret": "dedupSecret"}):
            config = ProducerConfig(
                aggregation_enabled=values.pop("aggregation", True),
                compression="zstd" if values.pop("compression", "none") == "zstd" else None,
                max_buffered_bytes=values.pop("max_outstanding_bytes", 32 * 1024 * 1024),
                max_connections=values.pop("max_connections", 8),
                # Records wait for a full aggregate, not for the buffered time, because a task flushes when it ends.
                record_max_buffered_time=values.pop("record_max_buffered_time", 0.5),
                # No record expires before the task itself stops waiting.
                record_ttl=flush_timeout,
                rate_limit=values.pop("rate_limit", 150),
                request_timeout=values.pop("request_timeout", 6.0),
                missing_stream=values.pop("missing_stream", "fail"),
                idempotent=values.pop("idempotent", False),
                dedup_namespace=namespace,
                dedup_secret=secret,
            )
        return cls(
            stream=stream,
            settings=ProducerSettings(config=config, connection=connection),
            random_partition_key=values.pop("partition_key", "column") == "random",
            error_sample=values.pop("error_sample", 5),
            flush_timeout=flush_timeout,
            dedup_window=values.pop("dedup_window", 300.0),
            reconcile=values.pop("reconcile", None),
            first_attempts=values.pop("first_attempts", "auto") == "auto",
            bad_rows=bad_rows,
            bad_rows_stream=bad_stream,
            log_level=values.pop("log_level", None),
        )


@contextmanager
def _named(options: Mapping[str, str]) -> Iterator[None]:
    """Replace a field's name in an error with the name of its option."""
    try:
        yield
    except ConfigError as error:
        if error.field not in options:
            raise
        raise ConfigError(options[error.field], error.value, error.accepted) from None


def _duration(low: float, high: float) -> Callable[[str, str], float]:
    return lambda text, option: parse_duration(text, field=option, least=low, most=high)


def _count(low: int, high: int) -> Callable[[str, str], int]:
    def read(text: str, option: str) -> int:
        stripped = text.strip()
        if not (stripped.isascii() and stripped.isdigit() and low <= int(stripped) <= high):
            raise ConfigError(option, text, f"a whole number from {low:,} to {high:,}")
        return int(stripped)

    return read


def _choice(*choices: str) -> Callable[[str, str], str]:
    def read(text: str, option: str) -> str:
        if text.strip().lower() not in choices:
            raise ConfigError(option, text, "one of " + ", ".join(choices))
        return text.strip().lower()

    return read


def _stream_text(text: str, option: str) -> str:
    try:
        return str(StreamId.parse(text.strip()))
    except ConfigError as error:
        raise ConfigError(option, error.value, error.accepted) from None


def _secret(text: str, option: str) -> str:
    if not text:
        raise ConfigError(option, "", "text")
    return text


def _names(text: str, option: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ConfigError(option, text, "shard ids separated by commas")
    return frozenset(names)


def _starting_text(text: str, option: str) -> str:
    """Return the text itself. The text is parsed again once the streams and the time for relative positions are known."""
    StartingPosition.parse(text, option, now=_LAST)
    return text


def _ending_text(text: str, option: str) -> str:
    _ending(text, option, _LAST)
    return text


def _ending(text: str, option: str, now: float) -> Latest | AtTimestamp:
    position = parse_position(text, field=option, now=now, accepted=(Latest, AtTimestamp))
    assert isinstance(position, Latest | AtTimestamp)
    return position


_LAST = MAX_MILLIS / 1000

_Reader = Callable[[str, str], Any]
_Table = dict[str, tuple[str, _Reader]]

_CONNECTION: _Table = {
    "region": ("region_name", read_text),
    "endpointUrl": ("endpoint_url", read_text),
    "profile": ("profile_name", read_text),
    "roleArn": ("role_arn", read_text),
    "roleSessionName": ("role_session_name", read_text),
    "externalId": ("external_id", read_text),
    "accessKeyId": ("access_key_id", read_text),
    "secretAccessKey": ("secret_access_key", _secret),
    "sessionToken": ("session_token", _secret),
}
_COMMON: _Table = {
    "streamName": ("stream_name", read_text),
    "streamArn": ("stream_arn", read_text),
    "logLevel": ("log_level", _choice(*LEVELS)),
    **_CONNECTION,
}
CREDENTIAL_OPTIONS = ("accessKeyId", "secretAccessKey", "sessionToken")
STREAM_OPTIONS = ("streamName", "streamArn", "streamNames")
"""Options that exclude each other; a reader or writer needs exactly one of them."""

_SOURCE: _Table = {
    **_COMMON,
    "streamNames": ("stream_names", read_text),
    "startingPosition": ("starting_position", _starting_text),
    "endingPosition": ("ending_position", _ending_text),
    "maxBatchSpan": ("max_batch_span", _duration(0, 31_536_000)),
    "maxRecordsPerShard": ("max_records_per_shard", _count(1, MAX_PAGE)),
    "maxRowsPerTrigger": ("max_rows_per_trigger", _count(1, 1 << 40)),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _count(1, 1 << 40)),
    "tipLag": ("tip_lag", _duration(0, 60)),
    "minProbeInterval": ("min_probe_interval", _duration(0.2, 3600)),
    "idleProbeInterval": ("idle_probe_interval", _duration(0, 300)),
    "shardRefreshInterval": ("shard_refresh_interval", _duration(1, 3600)),
    "probeThreads": ("probe_threads", _count(1, 64)),
    "shardIds": ("shard_ids", _names),
    "shardsPerTask": ("shards_per_task", _count(1, 10_000)),
    "maxTasks": ("max_tasks", _count(1, MAX_TASKS)),
    "recordsPerFetch": ("records_per_fetch", _count(1, MAX_PAGE)),
    "fetchInterval": ("fetch_interval", _duration(0, 60)),
    "retryTimeout": ("retry_timeout", _duration(1, 86_400)),
    "deaggregate": ("deaggregate", read_flag),
    "includeHeaders": ("include_headers", read_flag),
    "misplacedAggregates": ("misplaced_aggregates", _choice("deliver", "discard")),
    "recognizeRepetitions": ("recognize_repetitions", read_flag),
    "maxRepetitionBytes": ("max_repetition_bytes", _count(1 << 20, 4 << 30)),
    "maxLookUpSpan": ("max_look_up_span", _duration(1, OLDEST_MILLIS / 1000)),
    "failOnDataLoss": ("fail_on_data_loss", read_flag),
    "retrievalMode": ("retrieval_mode", _choice("polling", "fanout")),
    "columns": ("columns", read_text),
    "valueFormat": ("value_format", _choice(*FORMATS)),
    **OPTIONS,
}
_SINK: _Table = {
    **_COMMON,
    "partitionKey": ("partition_key", _choice("column", "random")),
    "aggregation": ("aggregation", read_flag),
    "compression": ("compression", _choice("none", "zstd")),
    "maxOutstandingBytes": ("max_outstanding_bytes", _count(65_536, 1 << 40)),
    "maxConnections": ("max_connections", _count(1, 256)),
    "recordMaxBufferedTime": ("record_max_buffered_time", _duration(0, 3600)),
    "rateLimit": ("rate_limit", _count(1, 10_000)),
    "missingStream": ("missing_stream", _choice("fail", "wait")),
    "requestTimeout": ("request_timeout", _duration(0.1, 600)),
    "flushTimeout": ("flush_timeout", _duration(0.1, 604_800)),
    "errorSample": ("error_sample", _count(0, 100)),
    "idempotent": ("idempotent", read_flag),
    "dedupNamespace": ("dedup_namespace", read_text),
    "dedupSecret": ("dedup_secret", _secret),
    "dedupWindow": ("dedup_window", _duration(1, 300)),
    "reconcile": ("reconcile", _duration(1, 31_536_000)),
    "firstAttempts": ("first_attempts", _choice("auto", "never")),
    "badRows": ("bad_rows", _choice("fail", "skip", "dlq")),
    "badRowsStream": ("bad_rows_stream", _stream_text),
}


def _read(
    options: Mapping[str, str], table: _Table, *, ignored: _Table, engine: frozenset[str]
) -> dict[str, Any]:
    """Return the values of the options by field name. Unknown options and unacceptable values are errors.

    The ``ignored`` options of the other direction are checked, but not returned; ``engine`` contains the names of Spark's own options.
    """
    known = {name.lower(): name for name in table}
    others = {name.lower(): name for name in ignored}
    values: dict[str, Any] = {}
    for given, text in options.items():
        key = given.lower()
        if key in engine:
            continue
        name = known.get(key)
        if name is None and key in others:
            name = others[key]
            ignored[name][1](str(text), name)
            continue
        if key == "path":  # what `load("orders")` passes, as with sources of files and topics
            raise ConfigError("path", text, "no path: name the stream by option streamName or streamArn")
        if name is None and key in NOT_HERE:
            raise ConfigError(given, text, NOT_HERE[key])
        if name is None:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"{known[close[0]]} (the closest one), or another of " if close else "one of "
            # The value is not shown, because it may be a secret under a misspelled name.
            raise ConfigError(f"option {given}", "…", hint + ", ".join(sorted(table, key=str.lower)))
        field_name, read = table[name]
        values[field_name] = read(str(text), name)
    return values


def _take_connection(values: dict[str, Any], streams: Collection[StreamId]) -> ConnectionSettings:
    """Remove the connection settings from the values and return them. The region of the streams' ARNs is the default."""
    fields = {name: values.pop(name) for name, _ in _CONNECTION.values() if name in values}
    regions = {stream.region for stream in streams if stream.region is not None}
    if len(regions) > 1:
        raise ConfigError("streamNames", ", ".join(map(str, streams)), "ARNs of streams in one region")
    if regions:
        fields.setdefault("region_name", regions.pop())
    return ConnectionSettings(**fields)


def _take_streams(values: dict[str, Any]) -> tuple[StreamId, ...]:
    """Remove the streams of a reader from the values and return them."""
    text = values.pop("stream_names", None)
    if text is None:
        return (_take_stream(values),)
    for other, option in (("stream_name", "streamName"), ("stream_arn", "streamArn")):
        if other in values:
            raise ConfigError(option, values[other], "nothing, because streamNames names the streams")
    streams = []
    for item in text.split(","):
        try:
            streams.append(StreamId.parse(item.strip()))
        except ConfigError as error:
            raise ConfigError(
                "streamNames", text, "names or ARNs of streams, with commas in between"
            ) from error
    names = [stream.name for stream in streams]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError("streamNames", text, f"streams with different names: {twice} occurs more than once")
    return tuple(streams)


def _take_stream(values: dict[str, Any]) -> StreamId:
    name, arn = values.pop("stream_name", None), values.pop("stream_arn", None)
    if name is None and arn is None:
        raise ConfigError(
            "streamName",
            None,
            "a stream name, or streamArn with the stream's ARN, or streamNames with several (reader only)",
        )
    try:
        stream = StreamId.parse(arn if arn is not None else name)
    except ConfigError as error:
        raise ConfigError("streamName" if arn is None else "streamArn", error.value, error.accepted) from None
    if arn is not None and stream.arn is None:
        raise ConfigError("streamArn", arn, "an ARN of a Kinesis stream")
    if name is not None and arn is not None and name != stream.name:
        raise ConfigError("streamName", name, f"{stream.name}, as in streamArn, or nothing")
    return stream
