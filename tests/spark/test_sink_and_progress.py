"""What of the writer, the progress and the package needs neither pyspark nor pyarrow."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.lean_calls import LeanKinesis
from kinesis_sdk.common.position import AfterSequence, Ended
from kinesis_sdk.spark import KinesisPartitionWriter, describe_progress
from kinesis_sdk.spark.connection import ConnectionSettings, shared_client
from kinesis_sdk.spark.offsets import StreamOffset
from kinesis_sdk.spark.progress import format_progress


def offset(**shards: Any) -> dict[str, Any]:
    return StreamOffset(
        stream="orders",
        created=1,
        starting="LATEST",
        started=1,
        shards={f"shard-{n}": p for n, p in shards.items()},
    ).to_dict()


def progress(**source: Any) -> dict[str, Any]:
    return {
        "batchId": 7,
        "timestamp": "2026-01-31T12:00:10.000Z",
        "numInputRows": 1_234,
        "processedRowsPerSecond": 617.0,
        "durationMs": {"triggerExecution": 2_000, "latestOffset": 40},
        "sources": [source],
    }


NOON = 1_769_860_800_000


def test_progress_with_the_planners_lag() -> None:
    end = offset(a=AfterSequence("1", arrival=NOON), b=Ended())
    numbers = describe_progress(progress(endOffset=end, latestOffset={"maxBehindMs": 1_500}))
    assert numbers is not None
    assert (numbers["batchId"], numbers["rows"], numbers["maxLagMs"]) == (7, 1_234, 1_500)
    assert (numbers["shards"], numbers["ended"]) == (1, 1)
    assert format_progress("q", numbers) == (
        "q batch 7: 1,234 rows, 617 rows/s, 2.00 s (planning 0.04 s), lag 1.5 s, 1 shards, 1 ended"
    )


def test_progress_without_it_uses_what_is_known_of_the_slowest_shard() -> None:
    end = offset(
        a=AfterSequence("1", arrival=NOON), b=AfterSequence("1", arrival=NOON - 5_000, drained=NOON + 9_000)
    )
    for text in (end, json.dumps(end)):
        numbers = describe_progress(progress(endOffset=text, latestOffset=end))
        assert numbers is not None
        assert numbers["maxLagMs"] == 10_000
    nothing = describe_progress(progress(endOffset=offset(a=Ended()), latestOffset=None))
    assert nothing is not None
    assert nothing["maxLagMs"] is None
    assert "lag unknown" in format_progress("q", nothing)


def test_progress_of_another_source_is_none() -> None:
    assert describe_progress(progress(endOffset={"topic": {"0": 5}}, latestOffset=None)) is None
    assert describe_progress({"sources": []}) is None


def test_clients_are_shared_within_a_process() -> None:
    connection = ConnectionSettings(
        region_name="us-east-1", endpoint_url="http://127.0.0.1:1", access_key_id="a", secret_access_key="b"
    )
    assert shared_client(connection) is shared_client(connection)
    assert isinstance(shared_client(connection), LeanKinesis)
    other = ConnectionSettings(
        region_name="us-east-1", endpoint_url="http://127.0.0.1:2", access_key_id="a", secret_access_key="b"
    )
    assert shared_client(other) is not shared_client(connection)


def test_a_role_is_assumed_when_it_is_needed_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    connection = ConnectionSettings(
        region_name="us-east-1",
        role_arn="arn:aws:iam::123456789012:role/reader",
        external_id="e",
        access_key_id="AKIDBASE",
        secret_access_key="b",
    )
    session = connection.session()
    credentials = session.get_credentials()
    assert type(credentials).__name__ == "DeferredRefreshableCredentials"
    assert credentials.method == "assume-role"
    assert session.region_name == "us-east-1"


def test_half_of_a_pair_is_refused() -> None:
    with pytest.raises(ConfigError):
        ConnectionSettings(access_key_id="a")
    with pytest.raises(ConfigError):
        ConnectionSettings(session_token="t")
    with pytest.raises(ConfigError):
        ConnectionSettings(external_id="e")


def test_importing_what_foreach_partition_needs_imports_nothing_heavy() -> None:
    code = (
        "import sys, kinesis_sdk.spark, kinesis_sdk.spark.planner; "
        "sys.exit(bool({'pyspark', 'boto3', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_may_be_anything_with_columns() -> None:
    writer = KinesisPartitionWriter("orders", partition_key=lambda row: row.key, data="data")
    assert callable(writer.partition_key)
    assert writer.partition_key(SimpleNamespace(key="k")) == "k"
