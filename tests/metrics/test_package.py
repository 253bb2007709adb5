"""What users import, and that it costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kinesis_sdk.common.metrics import snake_case
from kinesis_sdk.metrics.conventions import base_unit


def test_nothing_heavy_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys, kinesis_sdk.metrics as m; m.CloudWatchMetrics; m.PrometheusMetrics; m.OpenTelemetryMetrics; "
        "heavy = {'boto3', 'botocore', 'prometheus_client', 'opentelemetry'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("UserRecordsPut", "user_records_put"),
        ("KinesisRecordsPerPutRecordsRequest", "kinesis_records_per_put_records_request"),
        ("RecordProcessor.initialize.Time", "record_processor_initialize_time"),
        ("SQSQueueTime", "sqs_queue_time"),
        ("GetLease:Error", "get_lease_error"),
        ("ShardId", "shard_id"),
        ("---", "unnamed"),
    ],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_units() -> None:
    assert base_unit("Milliseconds") == (0.001, "seconds", "s")
    assert base_unit("Count") == (1.0, "", "1")
    assert base_unit("Bytes/Second") == (1.0, "", "1")
