"""Reader of properties files of the MultiLangDaemon of KCL 1.x, 2.x and 3.x, for applications that migrate.

    config = ConsumerConfig.from_properties("app.properties")      # warns about everything without effect

    found = load_properties("app.properties")                      # all of it as data
    worker = Worker(
        found.application.stream,
        application_name=found.application.application_name,
        config=ConsumerConfig().with_fields(**found.config),
        session=found.session(),
        handler=handle,
    )

Every key is mapped, reported with the reason why it has no effect, or rejected. A number or boolean that the KCL would silently
read as 0 or false is an error. Keys are case-sensitive, as in the KCL, except ``AwsCredentialsProvider``. This module generates
the table of all keys in docs/kcl-properties.md.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.java_properties import Key, closest_key, parse_pairs, read_text, write_reference
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_table_name
from kinesis_sdk.consumer.java_credentials import Provider, make_session, parse_credentials

if TYPE_CHECKING:
    import boto3

_INT, _LONG = 2**31 - 1, 2**63 - 1

Notes = list[tuple[str, str]]
Reader = Callable[[str, str, Notes], Any]
"""Returns the value of a key (name, text), or None if the text means "not set". Appends differences from the text to the notes."""


@dataclass(frozen=True, kw_only=True)
class ApplicationSettings:
    """Settings of the application in a file; None for a key that the file does not have."""

    application_name: str | None = None
    """Name of the application, for `Worker`."""

    stream: str | None = None
    """Name or ARN of the stream, for `Worker`; the name if the file has name and ARN."""

    worker_id: str | None = None
    """Id of the worker, for `Worker`."""

    executable_name: str | None = None
    """Command of the child processes of a MultiLangDaemon."""

    processing_language: str | None = None
    """Language of the child processes; information only."""

    shutdown_grace: float | None = None
    """Seconds to wait for a clean stop, for `Worker.stop`."""

    call_timeout: float | None = None
    """Maximum seconds for a child process to respond. `ConsumerConfig` has it as ``handler_timeout`` as well."""

    empty_batches: bool = False
    """Whether the file requests calls without records."""


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Settings of connections and credentials in a file."""

    region_name: str | None = None
    """Region of all clients."""

    kinesis_endpoint: str | None = None
    """Endpoint URL of Kinesis."""

    dynamodb_endpoint: str | None = None
    """Endpoint URL of DynamoDB."""

    cloudwatch_endpoint: str | None = None
    """Endpoint URL of CloudWatch."""

    credentials: tuple[Provider, ...] = ()
    """Chain of credentials providers; empty for botocore's default chain."""

    dynamodb_credentials: tuple[Provider, ...] = ()
    """The chain for DynamoDB; ``credentials`` applies if it is empty."""

    cloudwatch_credentials: tuple[Provider, ...] = ()
    """The chain for CloudWatch; ``credentials`` applies if it is empty."""

    def session(
        self,
        region_name: str | None = None,
        *,
        service: Literal["kinesis", "dynamodb", "cloudwatch"] = "kinesis",
    ) -> boto3.Session:
        """Return a session with the credentials of a service; botocore refreshes credentials that expire.

        Args:
            region_name: Region of the session; with None, botocore determines it.
            service: The service.

        Raises:
            AwsConfigError: If a profile does not exist.
        """
        own = {"dynamodb": self.dynamodb_credentials, "cloudwatch": self.cloudwatch_credentials}
        return make_session(own.get(service) or self.credentials, region_name)


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """Settings of a file for metrics: arguments of `kinesis_sdk.metrics.CloudWatchMetrics`, with the KCL's defaults.

    The KCL uploads all metrics by default. This SDK uploads none without a sink.
    """

    level: Literal["none", "summary", "detailed"] = "detailed"
    """Level of detail."""

    upload_delay: float = 10.0
    """Seconds between two uploads."""


@dataclass(frozen=True, kw_only=True)
class KclProperties:
    """Content of a properties file, by purpose."""

    config: dict[str, Any]
    """Fields of `ConsumerConfig` and its groups, for `ConsumerConfig.with_fields`; only those that the file sets."""

    application: ApplicationSettings
    """Names, stream, child processes."""

    client: ClientSettings
    """Region, endpoints, credentials."""

    metrics: MetricsSettings
    """CloudWatch metrics."""

    ignored: Notes
    """Keys of the KCL without effect here, with the reason."""

    adjusted: Notes
    """Keys whose effect differs from the file's value, with the difference."""

    unknown: list[tuple[str, str | None]]
    """Keys that the KCL does not have either and silently ignores, each with the most similar key."""

    elsewhere: Notes
    """Keys that are not settings of `ConsumerConfig`, with their counterparts."""

    def without_effect(self) -> Notes:
        """Return the keys that `ConsumerConfig.from_properties` cannot apply as written, with the reason."""
        unknown = [
            (key, "the KCL does not know it" + (f"; did you mean {closest}?" if closest else ""))
            for key, closest in self.unknown
        ]
        elsewhere = [(key, f"not a setting of ConsumerConfig, see {place}") for key, place in self.elsewhere]
        return [*self.ignored, *self.adjusted, *unknown, *elsewhere]

    def session(self) -> boto3.Session:
        """Return a session with the region and the credentials of the file, for ``Worker(session=…)``.

        Raises:
            AwsConfigError: If a profile does not exist.
        """
        return self.client.session(self.client.region_name)


def load_properties(path: str | os.PathLike[str], *, strict: bool = False) -> KclProperties:
    r"""Read a properties file of the KCL.

    Args:
        path: Path of the file, in the encoding of Java properties (ISO-8859-1 with ``\uXXXX`` escapes).
        strict: As for `parse_properties`.

    Raises:
        ConfigError: As for `parse_properties`.
        OSError: If the file cannot be read.
    """
    return parse_properties(read_text(path), strict=strict)


def parse_properties(text: str, *, strict: bool = False) -> KclProperties:
    """Read the text of a properties file of the KCL.

    Args:
        text: Text in the syntax of Java properties.
        strict: Accept only keys that take effect as written, and reject ignored, adjusted and unknown keys.

    Raises:
        ConfigError: If a value is malformed or has no counterpart, an escape is malformed, two keys contradict each other, or
            ``strict`` rejects a key. The message names the key.
    """
    parts: dict[str, dict[str, Any]] = {"config": {}, "application": {}, "client": {}, "metrics": {}}
    ignored: Notes = []
    adjusted: Notes = []
    unknown: list[tuple[str, str | None]] = []
    elsewhere: Notes = []
    sources: dict[tuple[str, str], str] = {}
    found = {_canonical(key): value for key, value in parse_pairs(text)}
    for key, value in found.items():
        target = KEYS.get(key)
        if target is None:
            _reject_client_setting(key, value)
            unknown.append((key, closest_key(key, KEYS)))
            continue
        if target.read is None:
            ignored.append((key, target.effect))
            continue
        read = target.read(key, value, adjusted)
        if read is None:
            continue
        place = (target.part, target.name)
        if place in sources and parts[target.part][target.name] != read:
            raise ConfigError(key, value, f"one value: {sources[place]} says something else")
        sources[place] = key
        parts[target.part][target.name] = read
        if target.part != "config" and target.name != "empty_batches":
            elsewhere.append((key, target.effect))
    _resolve_retrieval(parts["config"], set(found))
    config, application = parts["config"], parts["application"]
    if config.pop("graceful", True) is False:
        config["graceful_lease_handoff_timeout"] = 0.0
    stream_name, stream_arn = application.pop("stream_name", None), application.pop("stream_arn", None)
    if stream_name and stream_arn and StreamId.parse(stream_arn).name != stream_name:
        raise ConfigError("streamArn", stream_arn, f"the stream {stream_name!r} of streamName")
    if stream_name and stream_arn:
        adjusted.append(("streamArn", "streamName is used: of an ARN, the KCL, too, uses only the name"))
    result = KclProperties(
        config=config,
        application=ApplicationSettings(
            stream=stream_name or stream_arn, call_timeout=config.get("handler_timeout"), **application
        ),
        client=ClientSettings(**parts["client"]),
        metrics=MetricsSettings(**parts["metrics"]),
        ignored=ignored,
        adjusted=adjusted,
        unknown=unknown,
        elsewhere=elsewhere,
    )
    if strict:
        _reject_without_effect(result)
    return result


# Values


def _number(key: str, value: str, high: int) -> int:
    text = value.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text) or not 0 <= int(text) <= high:
        # Java reads anything else as 0, and 0 as "not set".
        raise ConfigError(key, value, f"an integer from 0 to {high:,}")
    return int(text)


def _limited(key: str, number: float, low: float, high: float, notes: Notes, unit: str) -> float:
    if number < low:
        notes.append((key, f"{number:,}{unit} was raised to {low:,}{unit}, the minimum of this SDK"))
        return low
    if number > high:
        notes.append((key, f"{number:,}{unit} was limited to {high:,}{unit}, the maximum of this SDK"))
        return high
    return number


def _integer(low: int = 1, high: int = _INT, *, note: str = "") -> Reader:
    """Return a reader of an ``int``; 0 means "not set", as in the KCL, unless ``low`` is 0."""

    def read(key: str, value: str, notes: Notes) -> int | None:
        number = _number(key, value, _INT)
        if number == 0 and low > 0:
            notes.append((key, "0 means that it is not set, as in the KCL"))
            return None
        if note:
            notes.append((key, note))
        return int(_limited(key, number, low, high, notes, ""))

    return read


def _seconds(
    low: float, high: float, *, per_second: int = 1000, zero: bool = False, note: str = ""
) -> Reader:
    """Return a reader of milliseconds (or seconds) as seconds; 0 means "not set", as in the KCL, unless ``zero``."""

    def read(key: str, value: str, notes: Notes) -> float | None:
        number = _number(key, value, _LONG)
        if number == 0 and not zero:
            notes.append((key, "0 means that it is not set, as in the KCL"))
            return None
        if note:
            notes.append((key, note))
        return _limited(key, number / per_second, low, high, notes, " s")

    return read


def _boolean(note_if: bool | None = None, note: str = "") -> Reader:
    def read(key: str, value: str, notes: Notes) -> bool:
        text = value.strip().lower()
        if text not in {"true", "yes", "y", "on", "1", "false", "no", "n", "off", "0"}:
            raise ConfigError(key, value, "true or false")  # Java reads it as false
        result = text in {"true", "yes", "y", "on", "1"}
        if result is note_if:
            notes.append((key, note))
        return result

    return read


def _choice(*choices: str) -> Reader:
    def read(key: str, value: str, _notes: Notes) -> str:
        for choice in choices:
            if value.strip().upper() == choice.upper():
                return choice
        raise ConfigError(key, value, "one of " + ", ".join(choices))

    return read


def _position(key: str, value: str, notes: Notes) -> str:
    if value.strip().upper() == "AT_TIMESTAMP":
        raise ConfigError(key, value, "LATEST or TRIM_HORIZON; for a time, initialPositionInStreamExtended")
    return str(_choice("LATEST", "TRIM_HORIZON")(key, value, notes))


def _moment(key: str, value: str, _notes: Notes) -> datetime:
    # The KCL expects seconds. Milliseconds are a frequent mistake, and would be in the year 50,000.
    seconds = _number(key, value, _LONG)
    if seconds > 32_503_680_000:
        raise ConfigError(key, value, "seconds since 1970, before the year 3000")
    return datetime.fromtimestamp(seconds, tz=timezone.utc)


def _retrieval(key: str, value: str, notes: Notes) -> str:
    return str(_choice("polling", "fanout", "default")(key, value, notes))


def _text(key: str, value: str, _notes: Notes) -> str | None:
    del key
    return value.strip() or None


def _table_name(key: str, value: str, _notes: Notes) -> str | None:
    text = value.strip()
    if text:
        check_table_name(key, text)
    return text or None


def _required_text(key: str, value: str, _notes: Notes) -> str:
    if not value.strip():
        raise ConfigError(key, value, "text")
    return value.strip()


def _arn(key: str, value: str, _notes: Notes) -> str | None:
    text = value.strip()
    if text and StreamId.parse(text).arn is None:
        raise ConfigError(key, value, "the ARN of a stream")
    return text or None


def _region(key: str, value: str, _notes: Notes) -> str | None:
    text = value.strip()
    if text and not re.fullmatch(r"[A-Za-z0-9-]{1,63}", text):  # botocore's own error would show it
        raise ConfigError(key, value, "a region like eu-west-1")
    return text or None


def _endpoint(key: str, value: str, _notes: Notes) -> str | None:
    text = value.strip()
    if text and not re.fullmatch(r"(https?://)?[^\s/]+(/\S*)?", text):
        raise ConfigError(key, value, "a URL such as https://kinesis.eu-west-1.amazonaws.com")
    return (text if "://" in text else f"https://{text}") if text else None


def _credentials(key: str, value: str, _notes: Notes) -> tuple[Provider, ...]:
    return parse_credentials(key, value)


def _threads(key: str, value: str, notes: Notes) -> int | None:
    text = value.strip()
    if re.fullmatch(r"-?[0-9]+", text) and int(text) <= 0:
        notes.append((key, "no limit is not possible here; the default of max_threads applies"))
        return None
    return _integer(1, 1000)(key, value, notes)  # type: ignore[no-any-return]


# Keys


def _config(name: str, read: Reader, versions: str = "1, 2, 3", effect: str = "") -> Key:
    return Key(effect or f"`{name}`", "config", name, read, versions)


_ALL, _LATER, _FIRST, _THIRD = "1, 2, 3", "2, 3", "1", "3"
_OWN_RETRIES = "calls are retried with a growing pause until they succeed or the worker stops"
_JAVA_FLEET = (
    "the leader of a Java fleet decides it; this worker joins such a fleet with coordination.worker_metrics"
)
_JAVA_TABLE = "this worker uses the table that the Java workers made, by its default name"
_NO_CACHE = "read-ahead is bounded by bytes: retrieval.max_prefetch_bytes"

_UNBILLED = "it counts only for a table that is created with billing_mode='PROVISIONED', which is not a key of the KCL"

KEYS: dict[str, Key] = {
    # the application
    "applicationName": Key("`Worker(application_name=…)`", "application", "application_name", _required_text),
    "streamName": Key("`Worker(stream)`", "application", "stream_name", _text),
    "streamArn": Key(
        "`Worker(stream)`, if there is no `streamName`; with the region and account, which the KCL ignores",
        "application",
        "stream_arn",
        _arn,
        _LATER,
    ),
    "workerId": Key("`Worker(worker_id=…)`", "application", "worker_id", _required_text),
    "workerIdentifier": Key("`Worker(worker_id=…)`", "application", "worker_id", _required_text, _LATER),
    "executableName": Key(
        "`found.application`: the command of the child processes", "application", "executable_name", _text
    ),
    "processingLanguage": Key(
        "`found.application`: information only", "application", "processing_language", _text
    ),
    "shutdownGraceMillis": Key(
        "`Worker.stop(timeout)`", "application", "shutdown_grace", _seconds(0, 86_400, zero=True)
    ),
    "timeoutInSeconds": _config(
        "handler_timeout",
        _seconds(1, 86_400, per_second=1),
        effect="`handler_timeout`: the shard is released, where the KCL's daemon exits",
    ),
    "callProcessRecordsEvenForEmptyRecordList": Key(
        "`found.application`; `Worker` calls no handler without records",
        "application",
        "empty_batches",
        _boolean(True, "Worker calls no handler without records"),
    ),
    "tableName": _config("table_name", _table_name),
    # connections and credentials
    "regionName": Key("`Worker(region_name=…)`", "client", "region_name", _region),
    "kinesisEndpoint": Key(
        "`AWS_ENDPOINT_URL_KINESIS`, or a client of your own", "client", "kinesis_endpoint", _endpoint
    ),
    "dynamoDBEndpoint": Key(
        "`AWS_ENDPOINT_URL_DYNAMODB`, or a client of your own", "client", "dynamodb_endpoint", _endpoint
    ),
    "AwsCredentialsProvider": Key("`Worker(session=found.session())`", "client", "credentials", _credentials),
    "AwsCredentialsProviderDynamoDB": Key(
        "a client of your own for DynamoDB", "client", "dynamodb_credentials", _credentials
    ),
    "AwsCredentialsProviderCloudWatch": Key(
        "`CloudWatchMetrics(session=…)`", "client", "cloudwatch_credentials", _credentials
    ),
    "kinesisClient.region": Key("as `regionName`", "client", "region_name", _region, _LATER),
    "kinesisClient.endpointOverride": Key(
        "as `kinesisEndpoint`", "client", "kinesis_endpoint", _endpoint, _LATER
    ),
    "dynamoDbClient.endpointOverride": Key(
        "as `dynamoDBEndpoint`", "client", "dynamodb_endpoint", _endpoint, _LATER
    ),
    "cloudWatchClient.endpointOverride": Key(
        "`CloudWatchMetrics(endpoint_url=…)`", "client", "cloudwatch_endpoint", _endpoint, _LATER
    ),
    "userAgent": Key("the user agent is botocore's", versions=_FIRST),
    # positions
    "initialPositionInStream": _config("initial_position", _position),
    "initialPositionInStreamExtended": _config(
        "initial_position", _moment, _LATER, "`initial_position`, as a time; the value is in seconds"
    ),
    "timestampAtInitialPositionInStream": _config(
        "initial_position", _moment, _FIRST, "`initial_position`, as a time; the value is in seconds"
    ),
    # leases
    "failoverTimeMillis": _config("failover_time", _seconds(0.5, 3600)),
    "maxLeasesForWorker": _config("max_leases_for_worker", _integer()),
    "maxLeasesToStealAtOneTime": _config("max_leases_to_steal_at_one_time", _integer()),
    "enablePriorityLeaseAssignment": _config(
        "enable_priority_lease_assignment",
        _boolean(False, "it counts only with lease_strategy='kcl2'"),
        _LATER,
        '`enable_priority_lease_assignment`; only with `lease_strategy="kcl2"`',
    ),
    "gracefulLeaseHandoffTimeoutMillis": _config(
        "graceful_lease_handoff_timeout", _seconds(0, 3600, zero=True), _THIRD
    ),
    "isGracefulLeaseHandoffEnabled": _config(
        "graceful", _boolean(), _THIRD, "`graceful_lease_handoff_timeout`: 0 if it is false"
    ),
    "leaseTableDeletionProtectionEnabled": _config(
        "lease_table_deletion_protection_enabled", _boolean(), _LATER
    ),
    "leaseTablePitrEnabled": _config("lease_table_pitr_enabled", _boolean(), _LATER),
    "initialLeaseTableReadCapacity": _config("initial_lease_table_read_capacity", _integer(note=_UNBILLED)),
    "initialLeaseTableWriteCapacity": _config("initial_lease_table_write_capacity", _integer(note=_UNBILLED)),
    "leaseAssignmentIntervalMillis": Key(
        "no leader assigns leases; workers scan the table every `lease_scan_interval`", versions=_THIRD
    ),
    "maxLeaseRenewalThreads": Key("leases are renewed by 8 threads"),
    "leaseTableScanTotalSegments": Key("the table is scanned in one piece", versions=_THIRD),
    # shards
    "shardSyncIntervalMillis": _config("shard_sync_interval", _seconds(1, 86_400)),
    "parentShardPollIntervalMillis": _config("parent_shard_poll_interval", _seconds(0.1, 3600)),
    "cleanupLeasesUponShardCompletion": _config(
        "cleanup_leases_upon_shard_completion",
        _boolean(),
        effect="`cleanup_leases_upon_shard_completion`; the KCL 2.x and 3.x ignore `false`",
    ),
    "leaseCleanupIntervalMillis": _config("lease_cleanup_interval", _seconds(1, 86_400), _FIRST),
    "leasesRecoveryAuditorExecutionFrequencyMillis": _config(
        "leases_recovery_auditor_execution_frequency", _seconds(1, 86_400), _FIRST
    ),
    "leasesRecoveryAuditorInconsistencyConfidenceThreshold": _config(
        "leases_recovery_auditor_inconsistency_confidence_threshold", _integer(), _FIRST
    ),
    "completedLeaseCleanupThresholdMillis": Key(
        "the table is searched for finished leases every `lease_cleanup_interval`", versions=_FIRST
    ),
    "garbageLeaseCleanupThresholdMillis": Key(
        "the table is searched for leases of deleted shards every `lease_cleanup_interval`", versions=_FIRST
    ),
    "shardSyncStrategyType": Key(
        "children get leases when their parents end, and at each `shard_sync_interval`", versions=_FIRST
    ),
    "ignoreUnexpectedChildShards": Key("child shards are never unexpected: all shards are compared at once"),
    "skipShardSyncAtWorkerInitializationIfLeasesExist": Key("it would save one ListShards call at the start"),
    "skipShardSyncAtStartupIfLeasesExist": Key(
        "it would save one ListShards call at the start", versions=_FIRST
    ),
    "shardPrioritization": Key("parents come first; the KCL 2.x and 3.x do not start with this key"),
    "shardPrioritizationStrategy": Key("parents come first", versions=_FIRST),
    "listShardsBackoffTimeInMillis": Key(_OWN_RETRIES),
    "maxListShardsRetryAttempts": Key(_OWN_RETRIES),
    "schedulerInitializationBackoffTimeMillis": Key(_OWN_RETRIES, versions=_LATER),
    "maxInitializationAttempts": Key(_OWN_RETRIES, versions=_FIRST),
    # reading
    "retrievalMode": _config(
        "retrieval_mode",
        _retrieval,
        _LATER,
        "`retrieval_mode`; without the key it is polling, also where the KCL's daemon would use fan-out. `DEFAULT` is what "
        "the daemon does: polling if the file has a setting of polling, else fan-out",
    ),
    "maxRecords": _config("max_records", _integer(1, 10_000)),
    "idleTimeBetweenReadsInMillis": _config("idle_time_between_reads", _seconds(0.2, 3600)),
    "maxGetRecordsThreadPool": _config("max_fetch_threads", _integer(1, 1000)),
    "millisBehindLatestThresholdForReducedTps": Key(
        "a reader that is behind does not pause; see `min_idle_time_between_reads`", versions=_THIRD
    ),
    "retryGetRecordsInSeconds": Key("a read without a response ends after 15 s and is repeated"),
    "fanoutConfig.consumerName": _config("consumer_name", _text, _LATER),
    "fanoutConfig.consumerArn": _config("consumer_arn", _text, _LATER),
    "fanoutConfig.maxDescribeStreamSummaryRetries": Key(_OWN_RETRIES, versions=_LATER),
    "fanoutConfig.maxDescribeStreamConsumerRetries": Key(_OWN_RETRIES, versions=_LATER),
    "fanoutConfig.registerStreamConsumerRetries": Key(_OWN_RETRIES, versions=_LATER),
    "fanoutConfig.retryBackoffMillis": Key(_OWN_RETRIES, versions=_LATER),
    "maxPendingProcessRecordsInput": Key(_NO_CACHE, versions=_FIRST),
    "maxCacheByteSize": Key(_NO_CACHE, versions=_FIRST),
    "maxRecordsCount": Key(_NO_CACHE, versions=_FIRST),
    "dataFetchingStrategy": Key("records are always read ahead", versions=_FIRST),
    "idleMillisBetweenCalls": Key("see `idle_time_between_reads`", versions=_FIRST),
    # handlers
    "maxActiveThreads": _config("max_threads", _threads),
    "taskBackoffTimeMillis": _config("task_backoff_time", _seconds(0.001, 3600)),
    "logWarningForTaskAfterMillis": _config(
        "stall_timeout",
        _seconds(1, 86_400),
        effect="`stall_timeout`; it also restarts a read that hangs",
    ),
    "validateSequenceNumberBeforeCheckpointing": Key(
        "a checkpoint is always compared with what was delivered; the KCL 2.x and 3.x ignore the key"
    ),
    # metrics
    "metricsLevel": Key(
        "`CloudWatchMetrics(level=…)`; the KCL uploads `DETAILED` by default, this SDK nothing",
        "metrics",
        "level",
        _choice("none", "summary", "detailed"),
    ),
    "metricsBufferTimeMillis": Key(
        "`CloudWatchMetrics(upload_delay=…)`", "metrics", "upload_delay", _seconds(1, 60)
    ),
    "metricsMaxQueueSize": Key("sums are kept, not single values: `CloudWatchMetrics(max_series=…)`"),
    "metricsEnabledDimensions": Key("`CloudWatchMetrics(granularity=…)` chooses the dimensions"),
    # fleets of KCL 3.x
    "clientVersionConfig": Key(_JAVA_FLEET, versions=_THIRD),
    "migrateAllEntitiesToLeaseTable": Key(_JAVA_FLEET, versions=_THIRD),
    "tableMigrationCompleteBakeTimeSeconds": Key(_JAVA_FLEET, versions=_THIRD),
    "disableWorkerMetrics": Key(
        "no use of CPU or network is measured; `coordination.worker_metrics` is off by default",
        versions=_THIRD,
    ),
    **{
        name: Key(_JAVA_FLEET, versions=_THIRD)
        for name in (
            "inMemoryWorkerMetricsCaptureFrequencyMillis",
            "workerMetricsReporterFreqInMillis",
            "noOfPersistedMetricsPerWorkerMetrics",
            "maxThroughputPerHostKBps",
            "dampeningPercentage",
            "reBalanceThresholdPercentage",
            "allowThroughputOvershoot",
            "varianceBalancingFrequency",
            "workerMetricsEMAAlpha",
            "staleWorkerMetricsEntryCleanupDuration",
        )
    },
    **{
        f"{table}{name}": Key(_JAVA_TABLE, versions=_THIRD)
        for table in ("coordinatorState", "workerMetrics")
        for name in (
            "TableName",
            "BillingMode",
            "ReadCapacity",
            "WriteCapacity",
            "PointInTimeRecoveryEnabled",
            "DeletionProtectionEnabled",
            "Tags",
        )
    },
}
KEYS = {key: target if target.versions else target._replace(versions=_ALL) for key, target in KEYS.items()}
"""All keys of the MultiLangDaemon of KCL 1.15, 2.7 and 3.5."""

_POLLING_KEYS = (
    "maxRecords",
    "idleTimeBetweenReadsInMillis",
    "maxGetRecordsThreadPool",
    "millisBehindLatestThresholdForReducedTps",
    "retryGetRecordsInSeconds",
)

_BEANS = ("pollingConfig.",)
"""Prefixes that the KCL accepts without documenting them."""

_CLIENTS = ("kinesisClient.", "dynamoDbClient.", "cloudWatchClient.")


def _canonical(key: str) -> str:
    """Return a key without the KCL's prefixes and in its usual case."""
    for bean in _BEANS:
        key = key.removeprefix(bean)
    if key.lower().startswith("awscredentialsprovider"):
        for known in KEYS:
            if known.lower() == key.lower():
                return known
    return key


def _reject_client_setting(key: str, value: str) -> None:
    if key.startswith(_CLIENTS):
        raise ConfigError(
            key, value, "only kinesisClient.region and endpointOverride: pass clients of your own to Worker"
        )


def _resolve_retrieval(config: dict[str, Any], keys: set[str]) -> None:
    if config.get("retrieval_mode") == "default":
        config["retrieval_mode"] = "polling" if keys & set(_POLLING_KEYS) else "fanout"


def _reject_without_effect(result: KclProperties) -> None:
    for key, closest in result.unknown:
        raise ConfigError(
            "properties", key, "a key of the KCL" + (f"; did you mean {closest}?" if closest else "")
        )
    for key, reason in (*result.adjusted, *result.ignored):
        raise ConfigError("properties", key, f"only keys that take effect ({reason})")


# The table in the documentation


def reference() -> str:
    """Return the table of all keys for docs/kcl-properties.md."""
    return "\n".join(_table())


def _table() -> Iterator[str]:
    yield "| key | KCL | here |"
    yield "|---|---|---|"
    for key, target in KEYS.items():
        yield f"| `{key}` | {target.versions} | {target.shown} |"


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]), reference())
