from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.consumer import RetryBatch
from kinesis_sdk.multilang.settings import load_settings, parse_settings

REQUIRED = "executableName = app.py\nstreamName = orders\napplicationName = billing\n"


def test_defaults() -> None:
    settings = parse_settings(REQUIRED)
    assert settings.words == ("app.py",)
    assert (settings.stream, settings.application_name, settings.worker_id) == ("orders", "billing", None)
    assert settings.shutdown_grace == 30
    assert settings.exit_grace == 5
    assert settings.call_timeout is None
    assert not settings.empty_batches
    assert (settings.on_child_failure, settings.on_child_exception) == ("restart", "ignore")
    assert settings.metrics is None
    assert settings.notes == ()
    assert settings.config.max_threads == 1000
    assert settings.config.failure.handler_timeout is None
    assert settings.config.error_policy == RetryBatch(initial_delay=1, max_delay=60)


def test_the_sample_of_amazon_kclpy(tmp_path: Path) -> None:
    text = """
# The script that abides by the multi-language protocol.
executableName = sample_kclpy_app.py
streamName = words
applicationName = PythonKCLSample
AwsCredentialsProvider = DefaultCredentialsProvider
processingLanguage = python/3.8
initialPositionInStream = TRIM_HORIZON
regionName = us-east-1
maxActiveThreads = 0
timeoutInSeconds = 300
shutdownGraceMillis = 5000
callProcessRecordsEvenForEmptyRecordList = true
metricsLevel = SUMMARY
"""
    path = tmp_path / "sample.properties"
    path.write_text(text)
    settings = load_settings(path)
    assert settings.config.initial_position == "TRIM_HORIZON"
    assert settings.call_timeout == 300
    assert settings.shutdown_grace == 5
    assert settings.empty_batches
    assert settings.metrics is not None
    assert settings.metrics.level == "summary"
    assert settings.client.region_name == "us-east-1"
    # Everything that has no effect is named, and only that.
    assert [key for key, _ in settings.notes] == ["maxActiveThreads", "processingLanguage"]


@pytest.mark.parametrize(
    ("line", "where", "default", "value"),
    [
        ("onChildFailure = EXIT", "on_child_failure", "restart", "exit"),
        ("onChildException = restart", "on_child_exception", "ignore", "restart"),
        ("childExitGraceMillis = 250", "exit_grace", 5, 0.25),
        ("batchRecords = 250", "config.batch_records", 1_000, 250),
        ("recognizeRepetitions = False", "config.retrieval.recognize_repetitions", True, False),
        ("leaseStore = sqlite:///leases.db", "config.lease_table.lease_store", None, "sqlite:///leases.db"),
        *(
            (f"workerMetrics = {place}", "config.coordination.worker_metrics", "off", place)
            for place in ("off", "lease_table", "separate_table")
        ),
    ],
)
def test_keys_of_this_daemon(line: str, where: str, default: object, value: object) -> None:
    assert attrgetter(where)(parse_settings(REQUIRED)) == default
    settings = parse_settings(f"{REQUIRED}{line}\n")
    assert attrgetter(where)(settings) == value
    assert settings.notes == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("onChildFailure = ignore", "onChildFailure.*restart or exit"),
        ("onChildException = exit", "onChildException.*ignore or restart"),
        ("workerMetrics = on", "workerMetrics.*off or lease_table or separate_table"),
        ("leaseStore = leases.db", r"leaseStore.*sqlite:///leases\.db"),
        ("childExitGraceMillis = 0", "childExitGraceMillis.*1 to 600,000"),
        ("childExitGraceMillis = 5s", "childExitGraceMillis.*1 to 600,000"),
        ("recognizeRepetitions = no", "recognizeRepetitions.*true or false"),
        ("batchRecords = 0", "batchRecords.*1 to 1,000,000,000"),
        ("batchRecords = all", "batchRecords.*1 to 1,000,000,000"),
        ("shutdownGraceMillis = 5s", "shutdownGraceMillis.*integer"),
        ("timeoutInSeconds = 2.5", "timeoutInSeconds.*integer"),
        ("executableName = 'app", "executableName.*closed quotes"),
        ("executableName =", "executableName"),
        ("applicationName =", "applicationName"),
    ],
)
def test_wrong_values(line: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_settings(f"{REQUIRED}{line}\n")


@pytest.mark.parametrize("key", ["executableName", "streamName", "applicationName"])
def test_missing_keys(key: str) -> None:
    text = "".join(line + "\n" for line in REQUIRED.splitlines() if not line.startswith(key))
    with pytest.raises(ConfigError, match=f"{key}.*which the file does not have") as caught:
        parse_settings(text)
    assert "did you mean" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"{key.lower()} is not a key, did you mean {key}"):
        parse_settings(f"{text}{key.lower()} = x\n")


def test_an_in_process_application_needs_no_command() -> None:
    text = REQUIRED.replace("executableName = app.py\n", "")
    assert parse_settings(text, needs_executable=False).words == ()


def test_notes_teach() -> None:
    text = REQUIRED + "failoverTimeMilis = 1\nonChildFailur = exit\nshutdownGraceMillis = 0\nuserAgent = x\n"
    notes = dict(parse_settings(text).notes)
    assert notes["failoverTimeMilis"].endswith("did you mean failoverTimeMillis?")
    assert notes["onChildFailur"].endswith("did you mean onChildFailure?")
    assert "30000 is the default" in notes["shutdownGraceMillis"]
    assert "botocore" in notes["userAgent"]
    assert parse_settings(text).shutdown_grace == 0
