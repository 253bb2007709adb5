"""Properties files of the KCL: every key is mapped, explained or rejected."""

from __future__ import annotations

import dataclasses
import logging
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk import AwsConfigError, ConfigError, ConsumerConfig, Worker
from kinesis_sdk.consumer.config import GROUP_OF_FIELD
from kinesis_sdk.consumer.java_credentials import KNOWN, Provider, make_session, parse_credentials
from kinesis_sdk.consumer.properties import (
    KEYS,
    ApplicationSettings,
    ClientSettings,
    MetricsSettings,
    load_properties,
    parse_properties,
    reference,
)
from tests.readme import ROOT, blocks

PAGE = ROOT / "docs" / "kcl-properties.md"

KCL_3 = re.findall(
    r"\S+",
    """
executableName processingLanguage maxActiveThreads applicationName streamName streamArn tableName workerId workerIdentifier
regionName kinesisEndpoint dynamoDBEndpoint AwsCredentialsProvider AwsCredentialsProviderDynamoDB AwsCredentialsProviderCloudWatch
initialPositionInStream initialPositionInStreamExtended failoverTimeMillis leaseAssignmentIntervalMillis
enablePriorityLeaseAssignment leaseTableDeletionProtectionEnabled leaseTablePitrEnabled shardSyncIntervalMillis
cleanupLeasesUponShardCompletion ignoreUnexpectedChildShards maxLeasesForWorker maxLeasesToStealAtOneTime
initialLeaseTableReadCapacity initialLeaseTableWriteCapacity leaseTableScanTotalSegments maxLeaseRenewalThreads
listShardsBackoffTimeInMillis maxListShardsRetryAttempts callProcessRecordsEvenForEmptyRecordList parentShardPollIntervalMillis
shardPrioritization skipShardSyncAtWorkerInitializationIfLeasesExist schedulerInitializationBackoffTimeMillis clientVersionConfig
migrateAllEntitiesToLeaseTable tableMigrationCompleteBakeTimeSeconds taskBackoffTimeMillis logWarningForTaskAfterMillis
metricsBufferTimeMillis metricsMaxQueueSize metricsLevel metricsEnabledDimensions retrievalMode maxRecords
idleTimeBetweenReadsInMillis millisBehindLatestThresholdForReducedTps retryGetRecordsInSeconds maxGetRecordsThreadPool
fanoutConfig.consumerName fanoutConfig.consumerArn fanoutConfig.maxDescribeStreamSummaryRetries
fanoutConfig.maxDescribeStreamConsumerRetries fanoutConfig.registerStreamConsumerRetries fanoutConfig.retryBackoffMillis
validateSequenceNumberBeforeCheckpointing shutdownGraceMillis timeoutInSeconds gracefulLeaseHandoffTimeoutMillis
isGracefulLeaseHandoffEnabled inMemoryWorkerMetricsCaptureFrequencyMillis workerMetricsReporterFreqInMillis
noOfPersistedMetricsPerWorkerMetrics disableWorkerMetrics maxThroughputPerHostKBps dampeningPercentage reBalanceThresholdPercentage
allowThroughputOvershoot varianceBalancingFrequency workerMetricsEMAAlpha staleWorkerMetricsEntryCleanupDuration
coordinatorStateTableName coordinatorStateBillingMode coordinatorStateReadCapacity coordinatorStateWriteCapacity
coordinatorStatePointInTimeRecoveryEnabled coordinatorStateDeletionProtectionEnabled coordinatorStateTags
workerMetricsTableName workerMetricsBillingMode workerMetricsReadCapacity workerMetricsWriteCapacity
workerMetricsPointInTimeRecoveryEnabled workerMetricsDeletionProtectionEnabled workerMetricsTags
""",
)
"""Fields of MultiLangDaemonConfiguration 3.5.1 and of its beans."""

KCL_1 = re.findall(
    r"\S+",
    """
streamName tableName kinesisEndpoint dynamoDBEndpoint initialPositionInStream timestampAtInitialPositionInStream failoverTimeMillis
shardSyncIntervalMillis maxRecords idleTimeBetweenReadsInMillis callProcessRecordsEvenForEmptyRecordList
parentShardPollIntervalMillis cleanupLeasesUponShardCompletion ignoreUnexpectedChildShards userAgent taskBackoffTimeMillis
metricsBufferTimeMillis metricsMaxQueueSize metricsLevel metricsEnabledDimensions validateSequenceNumberBeforeCheckpointing
skipShardSyncAtStartupIfLeasesExist shardSyncStrategyType leasesRecoveryAuditorExecutionFrequencyMillis
leasesRecoveryAuditorInconsistencyConfidenceThreshold regionName maxLeasesForWorker maxLeasesToStealAtOneTime
initialLeaseTableReadCapacity initialLeaseTableWriteCapacity shardPrioritizationStrategy maxLeaseRenewalThreads
retryGetRecordsInSeconds maxGetRecordsThreadPool maxPendingProcessRecordsInput maxCacheByteSize dataFetchingStrategy maxRecordsCount
timeoutInSeconds shutdownGraceMillis idleMillisBetweenCalls logWarningForTaskAfterMillis listShardsBackoffTimeInMillis
maxListShardsRetryAttempts maxInitializationAttempts leaseCleanupIntervalMillis completedLeaseCleanupThresholdMillis
garbageLeaseCleanupThresholdMillis
""",
)
"""The ``with…`` methods of KinesisClientLibConfiguration 1.15.2 that take text, a number, a boolean, a date or a set of text."""

CLIENTS = [
    "kinesisClient.region",
    *(f"{c}Client.endpointOverride" for c in ("kinesis", "dynamoDb", "cloudWatch")),
]


# Keys


def test_every_key_of_every_version_is_known_and_no_other() -> None:
    assert set(KEYS) == {*KCL_3, *KCL_1, *CLIENTS}
    for key, target in KEYS.items():
        versions = set(target.versions.split(", "))
        assert ("3" in versions) == (key in {*KCL_3, *CLIENTS}), key
        if key in KCL_1:
            assert "1" in versions, key


def test_every_target_exists() -> None:
    fields = {
        "config": {*GROUP_OF_FIELD, "initial_position", "max_threads", "graceful"},
        "application": {
            *(field.name for field in dataclasses.fields(ApplicationSettings)),
            "stream_name",
            "stream_arn",
        },
        "client": {field.name for field in dataclasses.fields(ClientSettings)},
        "metrics": {field.name for field in dataclasses.fields(MetricsSettings)},
    }
    for key, target in KEYS.items():
        assert target.effect, key
        assert (target.read is None) == (not target.part), key
        assert not target.part or target.name in fields[target.part], key


def test_a_key_without_a_counterpart_is_named_with_the_reason() -> None:
    ignored = [key for key, target in KEYS.items() if target.read is None]
    found = parse_properties("\n".join(f"{key} = 1" for key in ignored))
    assert found.ignored == [(key, KEYS[key].effect) for key in ignored]
    assert (found.config, found.unknown, found.adjusted) == ({}, [], [])


@pytest.mark.parametrize(
    ("typo", "closest"),
    [
        ("maxRecord", "maxRecords"),
        ("MaxRecords", "maxRecords"),
        ("failover_time_millis", "failoverTimeMillis"),
        ("initialPositionInStrem", "initialPositionInStream"),
        ("consumerName", "fanoutConfig.consumerName"),
        ("fanoutConfig.consumername", "fanoutConfig.consumerName"),
        ("RetrievalMode", "retrievalMode"),
        ("colour", None),
    ],
)
def test_a_typo_gets_the_closest_key(typo: str, closest: str | None) -> None:
    found = parse_properties(f"{typo} = 1")
    assert found.unknown == [(typo, closest)]
    hint = f"; did you mean {closest}?" if closest else ""
    assert found.without_effect() == [(typo, f"the KCL does not know it{hint}")]
    with pytest.raises(ConfigError, match=re.escape(f"a key of the KCL{hint}")):
        parse_properties(f"{typo} = 1", strict=True)


# Values


def test_a_file_with_every_setting() -> None:
    found = parse_properties(
        r"""
        # an application
        applicationName = billing
        streamName : orders
        workerId worker-7
        tableName = leases
        executableName = sample.py --fast
        processingLanguage = python/3.12
        shutdownGraceMillis = 30000
        timeoutInSeconds = 60
        callProcessRecordsEvenForEmptyRecordList = true
        regionName = eu-west-1
        kinesisEndpoint = https://localhost:4567
        dynamoDBEndpoint = localhost:4567/ddb
        cloudWatchClient.endpointOverride = http://localhost:1
        initialPositionInStream = trim_horizon
        failoverTimeMillis = 20000
        maxLeasesForWorker = 12
        maxLeasesToStealAtOneTime = 3
        enablePriorityLeaseAssignment = true
        gracefulLeaseHandoffTimeoutMillis = 5000
        isGracefulLeaseHandoffEnabled = yes
        leaseTableDeletionProtectionEnabled = on
        leaseTablePitrEnabled = Y
        initialLeaseTableReadCapacity = 5
        initialLeaseTableWriteCapacity = 6
        shardSyncIntervalMillis = 30000
        parentShardPollIntervalMillis = 4000
        cleanupLeasesUponShardCompletion = false
        leaseCleanupIntervalMillis = 45000
        leasesRecoveryAuditorExecutionFrequencyMillis = 90000
        leasesRecoveryAuditorInconsistencyConfidenceThreshold = 4
        retrievalMode = Polling
        pollingConfig.maxRecords = 500
        idleTimeBetweenReadsInMillis = 750
        maxGetRecordsThreadPool = 9
        fanoutConfig.consumerName = reader
        fanoutConfig.consumerArn = arn:aws:kinesis:eu-west-1:1:stream/orders/consumer/reader:1
        maxActiveThreads = 40
        taskBackoffTimeMillis = 250
        logWarningForTaskAfterMillis = 90000
        metricsLevel = SUMMARY
        metricsBufferTimeMillis = 20000
        """
    )
    assert found.config == {
        "initial_position": "TRIM_HORIZON",
        "table_name": "leases",
        "failover_time": 20.0,
        "max_leases_for_worker": 12,
        "max_leases_to_steal_at_one_time": 3,
        "enable_priority_lease_assignment": True,
        "graceful_lease_handoff_timeout": 5.0,
        "lease_table_deletion_protection_enabled": True,
        "lease_table_pitr_enabled": True,
        "initial_lease_table_read_capacity": 5,
        "initial_lease_table_write_capacity": 6,
        "shard_sync_interval": 30.0,
        "parent_shard_poll_interval": 4.0,
        "cleanup_leases_upon_shard_completion": False,
        "lease_cleanup_interval": 45.0,
        "leases_recovery_auditor_execution_frequency": 90.0,
        "leases_recovery_auditor_inconsistency_confidence_threshold": 4,
        "retrieval_mode": "polling",
        "max_records": 500,
        "idle_time_between_reads": 0.75,
        "max_fetch_threads": 9,
        "consumer_name": "reader",
        "consumer_arn": "arn:aws:kinesis:eu-west-1:1:stream/orders/consumer/reader:1",
        "max_threads": 40,
        "task_backoff_time": 0.25,
        "stall_timeout": 90.0,
        "handler_timeout": 60.0,
    }
    assert ConsumerConfig().with_fields(**found.config).leases.failover_time == 20.0
    assert found.application == ApplicationSettings(
        application_name="billing",
        stream="orders",
        worker_id="worker-7",
        executable_name="sample.py --fast",
        processing_language="python/3.12",
        shutdown_grace=30.0,
        call_timeout=60.0,
        empty_batches=True,
    )
    assert found.client == ClientSettings(
        region_name="eu-west-1",
        kinesis_endpoint="https://localhost:4567",
        dynamodb_endpoint="https://localhost:4567/ddb",
        cloudwatch_endpoint="http://localhost:1",
    )
    assert found.metrics == MetricsSettings(level="summary", upload_delay=20.0)
    assert (found.ignored, found.unknown) == ([], [])
    assert [key for key, _ in found.adjusted] == [
        "callProcessRecordsEvenForEmptyRecordList",
        "initialLeaseTableReadCapacity",
        "initialLeaseTableWriteCapacity",
    ]


def test_each_key_of_a_config_alone_makes_a_config() -> None:
    samples = {"initial_position": ("LATEST", "1700000000"), "retrieval_mode": ("DEFAULT",)}
    for key, target in KEYS.items():
        if target.part == "config":
            for value in samples.get(target.name, ("1", "100000", "x")):
                try:
                    found = parse_properties(f"{key} = {value}")
                except ConfigError as error:
                    assert error.field == key
                else:
                    ConsumerConfig().with_fields(**found.config)


@pytest.mark.parametrize("value", ["10s", "1,000", "7.0", "0x10", "", "-1", "9" * 40, "1e3"])
@pytest.mark.parametrize(
    "key", ["failoverTimeMillis", "maxRecords", "timeoutInSeconds", "shutdownGraceMillis"]
)
def test_a_number_that_java_would_take_as_zero_is_an_error(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}=.*an integer from 0"):
        parse_properties(f"{key} = {value}")


def test_zero_is_not_set_as_in_the_kcl_where_it_has_no_meaning() -> None:
    found = parse_properties("failoverTimeMillis = 0\nmaxRecords = 0\nmaxActiveThreads = 0")
    assert found.config == {}
    assert [key for key, _ in found.adjusted] == ["failoverTimeMillis", "maxRecords", "maxActiveThreads"]
    assert parse_properties("gracefulLeaseHandoffTimeoutMillis = 0").config == {
        "graceful_lease_handoff_timeout": 0.0
    }


def test_values_beyond_our_limits_are_limited_and_named() -> None:
    found = parse_properties(
        "maxRecords = 20000\nfailoverTimeMillis = 100\nidleTimeBetweenReadsInMillis = 50"
    )
    assert found.config == {"max_records": 10_000, "failover_time": 0.5, "idle_time_between_reads": 0.2}
    assert found.adjusted == [
        ("maxRecords", "20,000 was limited to 10,000, the maximum of this SDK"),
        ("failoverTimeMillis", "0.1 s was raised to 0.5 s, the minimum of this SDK"),
        ("idleTimeBetweenReadsInMillis", "0.05 s was raised to 0.2 s, the minimum of this SDK"),
    ]
    with pytest.raises(ConfigError, match="maxRecords"):
        parse_properties("maxRecords = 20000", strict=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cleanupLeasesUponShardCompletion = nope", "true or false"),
        ("initialPositionInStream = AT_TIMESTAMP", "for a time, initialPositionInStreamExtended"),
        ("initialPositionInStream = NOW", "LATEST, TRIM_HORIZON"),
        ("initialPositionInStreamExtended = 1700000000000", "seconds since 1970"),
        ("retrievalMode = PUSH", "polling, fanout, default"),
        ("metricsLevel = ALL", "none, summary, detailed"),
        ("workerId =", "workerId='' .*text"),
        ("applicationName = ", "text"),
        ("streamArn = orders", "the ARN of a stream"),
        ("kinesisEndpoint = not a url", "a URL"),
        ("kinesisClient.httpClientBuilder.maxConcurrency = 7", "pass clients of your own"),
        ("workerId = a\nworkerIdentifier = b", "one value: workerId says something else"),
        (
            "initialPositionInStream = LATEST\ninitialPositionInStreamExtended = 7",
            "one value: initialPositionInStream",
        ),
        (
            "streamName = orders\nstreamArn = arn:aws:kinesis:eu-west-1:123456789012:stream/other",
            "'orders' of streamName",
        ),
    ],
)
def test_a_value_that_cannot_be_meant_is_an_error(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_properties(line)


def test_a_time_is_in_seconds() -> None:
    for key in ("initialPositionInStreamExtended", "timestampAtInitialPositionInStream"):
        found = parse_properties(f"{key} = 1700000000")
        assert found.config == {"initial_position": datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)}


def test_the_retrieval_mode_of_the_daemon() -> None:
    assert parse_properties("maxRecords = 10").config == {"max_records": 10}, "polling, our default"
    assert parse_properties("retrievalMode = DEFAULT").config == {"retrieval_mode": "fanout"}
    assert parse_properties("retrievalMode = DEFAULT\nmaxRecords = 10").config["retrieval_mode"] == "polling"
    assert parse_properties("retrievalMode = FANOUT\nmaxRecords = 10").config["retrieval_mode"] == "fanout"


def test_handoffs_can_be_switched_off() -> None:
    found = parse_properties(
        "isGracefulLeaseHandoffEnabled = false\ngracefulLeaseHandoffTimeoutMillis = 9000"
    )
    assert found.config == {"graceful_lease_handoff_timeout": 0.0}


def test_a_stream_by_arn() -> None:
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    assert parse_properties(f"streamArn = {arn}").application.stream == arn
    both = parse_properties(f"streamArn = {arn}\nstreamName = orders")
    assert both.application.stream == "orders", "the sample files have an ARN that is a placeholder"
    assert both.adjusted == [("streamArn", "streamName is used: of an ARN, the KCL, too, uses only the name")]


# The face


def test_from_properties_warns_about_what_it_does_not_apply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "app.properties"
    path.write_bytes(
        "# café\nfailoverTimeMillis=20000\nmaxRecord=5\nuserAgent=x\nstreamName=orders\n".encode("latin-1")
    )
    config = ConsumerConfig.from_properties(path)
    assert config == ConsumerConfig().with_fields(failover_time=20.0)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    lines = [record.getMessage().removeprefix(f"{path}: ") for record in caplog.records]
    assert lines == [
        "userAgent is not applied as it is written: the user agent is botocore's",
        "maxRecord is not applied as it is written: the KCL does not know it; did you mean maxRecords?",
        "streamName is not applied as it is written: not a setting of ConsumerConfig, see `Worker(stream)`",
    ]
    assert load_properties(path).application.stream == "orders"


def test_the_table_of_the_page_is_the_one_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("<!-- keys -->\n")[1].split("\n<!-- end of keys -->")[0]
    assert table == reference(), "run `make docs`"
    for name in KNOWN:
        assert f"`{name}" in text, name


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks("python", PAGE)
    (tmp_path / "app.properties").write_text(
        "applicationName = billing\nstreamName = orders\nregionName = eu-west-1\n"
        "AwsCredentialsProvider = EnvironmentVariableCredentialsProvider\n"
    )
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"handle": lambda batch: None}
    exec(compile(block.text, f"kcl-properties.md:{block.line}", "exec"), names)
    assert isinstance(names["worker"], Worker)
    assert names["found"].session().region_name == "eu-west-1"


# Credentials


@pytest.mark.parametrize(
    ("value", "chain"),
    [
        ("DefaultCredentialsProvider", [Provider("DefaultCredentialsProvider")]),
        ("DefaultAWSCredentialsProviderChain", [Provider("DefaultCredentialsProvider")]),
        ("com.amazonaws.auth.DefaultAWSCredentialsProviderChain", [Provider("DefaultCredentialsProvider")]),
        ("ProfileCredentialsProvider", [Provider("ProfileCredentialsProvider")]),
        ("ProfileCredentialsProvider|dev", [Provider("ProfileCredentialsProvider", profile="dev")]),
        (
            "EnvironmentVariableCredentialsProvider, InstanceProfileCredentialsProvider",
            [
                Provider("EnvironmentVariableCredentialsProvider"),
                Provider("InstanceProfileCredentialsProvider"),
            ],
        ),
        (
            "STSAssumeRoleSessionCredentialsProvider|arn:aws:iam::1:role/r|me",
            [
                Provider(
                    "StsAssumeRoleCredentialsProvider",
                    role_arn="arn:aws:iam::1:role/r",
                    role_session_name="me",
                )
            ],
        ),
        (
            "KclStsAssumeRoleCredentialsProvider|arn|me|externalId=x|endpoint=sts.local^eu-west-1",
            [
                Provider(
                    "StsAssumeRoleCredentialsProvider",
                    role_arn="arn",
                    role_session_name="me",
                    external_id="x",
                    sts_region="eu-west-1",
                    sts_endpoint="https://sts.local",
                )
            ],
        ),
    ],
)
def test_a_chain_of_providers(value: str, chain: list[Provider]) -> None:
    assert parse_credentials("AwsCredentialsProvider", value) == tuple(chain)


def test_any_spelling_of_the_key() -> None:
    for key in ("AWSCredentialsProvider", "awsCredentialsProvider"):
        assert parse_properties(f"{key} = DefaultCredentialsProvider").client.credentials
    found = parse_properties("AWSCredentialsProviderDynamoDB = EnvironmentVariableCredentialsProvider")
    assert found.client.dynamodb_credentials == (Provider("EnvironmentVariableCredentialsProvider"),)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "the name of a credentials provider"),
        ("com.acme.VaultProvider", "a Java class cannot be used from Python, so pass a session of your own"),
        ("StaticCredentialsProvider", "put them into a profile"),
        ("AnonymousCredentialsProvider", "signed requests only"),
        ("SystemPropertyCredentialsProvider", "no system properties"),
        ("ProcessCredentialsProvider", "credential_process"),
        ("EnvironmentVariableCredentialsProvider|x", "without arguments"),
        ("ProfileCredentialsProvider|a|b", "without arguments"),
        ("StsAssumeRoleCredentialsProvider|arn", "ROLE_ARN|ROLE_SESSION_NAME"),
        ("StsAssumeRoleCredentialsProvider|arn|me|endpoint=a^b^c", "endpoint=URL"),
        ("StsAssumeRoleCredentialsProvider|arn|me|colour=blue", "externalId=ID"),
    ],
)
def test_an_error_that_teaches(value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parse_credentials("AwsCredentialsProvider", value)
    assert caught.value.field == "AwsCredentialsProvider"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shared files with two profiles, environment variables with other keys, and nothing else."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    credentials = tmp_path / "credentials"
    credentials.write_text(
        "[default]\naws_access_key_id = OF-DEFAULT\naws_secret_access_key = s\n"
        "[dev]\naws_access_key_id = OF-DEV\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OF-ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    return tmp_path


@pytest.mark.parametrize(
    ("value", "access_key"),
    [
        ("DefaultCredentialsProvider", "OF-ENVIRONMENT"),
        ("EnvironmentVariableCredentialsProvider", "OF-ENVIRONMENT"),
        ("ProfileCredentialsProvider", "OF-DEFAULT"),
        ("ProfileCredentialsProvider|dev", "OF-DEV"),
        ("InstanceProfileCredentialsProvider, ProfileCredentialsProvider|dev", "OF-DEV"),
        ("ContainerCredentialsProvider, DefaultCredentialsProvider", "OF-ENVIRONMENT"),
    ],
)
@pytest.mark.usefixtures("files")
def test_a_session_finds_the_credentials_of_its_chain(value: str, access_key: str) -> None:
    found = parse_properties(f"AwsCredentialsProvider = {value}\nregionName = eu-west-1")
    session: Any = found.session()
    assert session.get_credentials().access_key == access_key
    assert session.region_name == "eu-west-1"


@pytest.mark.usefixtures("files")
def test_a_session_without_any_credentials() -> None:
    session: Any = make_session(parse_credentials("k", "InstanceProfileCredentialsProvider"))
    assert session.get_credentials() is None


@pytest.mark.usefixtures("files")
def test_a_profile_that_does_not_exist() -> None:
    with pytest.raises(AwsConfigError, match="nobody"):
        make_session(parse_credentials("k", "ProfileCredentialsProvider|nobody"))


@pytest.mark.usefixtures("files")
def test_a_role_is_assumed_with_what_the_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.session import Session

    calls: list[tuple[Any, ...]] = []

    class Sts:
        def assume_role(self, **request: Any) -> dict[str, Any]:
            calls.append(("assume_role", request))
            keys = {"AccessKeyId": "OF-ROLE", "SecretAccessKey": "s", "SessionToken": "t"}
            return {"Credentials": {**keys, "Expiration": datetime(2099, 1, 1, tzinfo=timezone.utc)}}

    def create_client(_self: Any, service: str, **arguments: Any) -> Sts:
        calls.append(
            (service, arguments["region_name"], arguments["endpoint_url"], arguments["aws_access_key_id"])
        )
        return Sts()

    monkeypatch.setattr(Session, "create_client", create_client)
    value = (
        "StsAssumeRoleCredentialsProvider|arn:aws:iam::1:role/r|me|externalId=x|endpoint=sts.local^eu-west-1"
    )
    session: Any = make_session(parse_credentials("k", value))
    credentials = session.get_credentials()
    assert calls == [], "nothing is called before they are used"
    assert credentials.get_frozen_credentials().access_key == "OF-ROLE"
    assert calls == [
        ("sts", "eu-west-1", "https://sts.local", "OF-ENVIRONMENT"),
        ("assume_role", {"RoleArn": "arn:aws:iam::1:role/r", "RoleSessionName": "me", "ExternalId": "x"}),
    ]
