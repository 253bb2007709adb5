"""What of the writer, the progress and the package needs neither pyspark nor pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import AfterSequence, AtSequence, Ended
from kinesis_sdk.common.transport import Transport
from kinesis_sdk.spark import describe_progress, progress_frame
from kinesis_sdk.spark.connection import ConnectionSettings, _model_loader, shared_client
from kinesis_sdk.spark.offsets import QueryOffset, StreamOffset
from kinesis_sdk.spark.progress import format_progress

NOON = 1_769_860_800_000


def offset(cut: int | None = NOON, **shards: Any) -> dict[str, Any]:
    """Half of the shards are of another stream."""
    named = {f"shard-{name}": position for name, position in shards.items()}
    streams = {
        stream: StreamOffset(created=1, shards={name: named[name] for name in names})
        for stream, names in (("orders", list(named)[::2]), ("flights", list(named)[1::2]))
    }
    return QueryOffset(starting="LATEST", started=1, cut=cut, streams=streams).to_dict()


def report(**fields: Any) -> dict[str, Any]:
    return {"cut": NOON, "maxBehindMs": 0, "limitedBy": None, "fallingBehind": False, **fields}


def progress(**source: Any) -> dict[str, Any]:
    return {
        "batchId": 7,
        "timestamp": "2026-01-31T12:00:10.000Z",
        "numInputRows": 1_234,
        "processedRowsPerSecond": 617.0,
        "durationMs": {"triggerExecution": 2_000, "latestOffset": 40},
        "sources": [source],
    }


def described(item: dict[str, Any]) -> dict[str, Any]:
    numbers = describe_progress(item)
    assert numbers is not None
    return dict(numbers)


def test_progress_with_the_planners_report() -> None:
    end = offset(a=AfterSequence("1"), b=Ended(), c=AtSequence("2"))
    numbers = described(progress(endOffset=end, latestOffset=report(maxBehindMs=1_500)))
    assert (numbers["batchId"], numbers["rows"], numbers["maxLagMs"]) == (7, 1_234, 1_500)
    assert (numbers["shards"], numbers["ended"]) == (2, 1)
    assert (numbers["limitedBy"], numbers["fallingBehind"]) == (None, False)
    assert format_progress("q", numbers) == (
        "q batch 7: 1,234 rows, 617 rows/s, 2.00 s (planning 0.04 s), lag 1.5 s, 2 shards, 1 ended"
    )
    # At the tip the lag is 0, although the cut is older than the report.
    tip = describe_progress(progress(endOffset=end, latestOffset=json.dumps(report())))
    assert tip is not None
    assert tip["maxLagMs"] == 0


def test_progress_says_what_limits_a_batch() -> None:
    held = report(maxBehindMs=9_000, limitedBy="maxBatchSpan", fallingBehind=True)
    numbers = describe_progress(progress(endOffset=offset(a=AtSequence("1")), latestOffset=held))
    assert numbers is not None
    assert (numbers["limitedBy"], numbers["fallingBehind"]) == ("maxBatchSpan", True)
    assert format_progress("q", numbers).endswith(
        "1 shards, 0 ended, limited by maxBatchSpan, falling behind"
    )


def test_progress_without_a_report_uses_the_age_of_the_cut() -> None:
    end = offset(a=AfterSequence("1"), b=AtSequence("1"))
    for text in (end, json.dumps(end)):
        numbers = described(progress(endOffset=text, latestOffset=end))
        assert numbers["maxLagMs"] == 10_000
        assert (numbers["limitedBy"], numbers["fallingBehind"]) == (None, None)
    ahead = describe_progress(progress(endOffset=offset(NOON + 60_000, a=Ended()), latestOffset=None))
    assert ahead is not None
    assert ahead["maxLagMs"] == 0


@pytest.mark.parametrize("timestamp", [None, "", "soon"])
def test_the_lag_is_unknown_without_a_report_and_a_time(timestamp: str | None) -> None:
    item = progress(endOffset=offset(a=Ended()), latestOffset=None)
    if timestamp is None:
        del item["timestamp"]
    else:
        item["timestamp"] = timestamp
    numbers = described(item)
    assert numbers["maxLagMs"] is None
    assert "lag unknown" in format_progress("q", numbers)


def test_the_lag_is_unknown_before_the_first_batch() -> None:
    numbers = described(progress(endOffset=offset(None), latestOffset="nonsense"))
    assert (numbers["maxLagMs"], numbers["shards"]) == (None, 0)


def test_the_source_that_is_furthest_behind_counts() -> None:
    item = progress()
    item["sources"] = [
        {"endOffset": offset(a=Ended()), "latestOffset": report(maxBehindMs=20, limitedBy="span")},
        {"endOffset": offset(a=AtSequence("1")), "latestOffset": None},
        {"endOffset": offset(b=AtSequence("1")), "latestOffset": report(fallingBehind=True)},
        {"endOffset": {"topic": {"0": 5}}, "latestOffset": report(maxBehindMs=10**9)},
    ]
    numbers = described(item)
    assert (numbers["maxLagMs"], numbers["limitedBy"], numbers["fallingBehind"]) == (10_000, None, True)
    assert (numbers["shards"], numbers["ended"]) == (2, 1)
    item["sources"][0]["latestOffset"]["maxBehindMs"] = 11_000
    numbers = described(item)
    assert (numbers["maxLagMs"], numbers["limitedBy"]) == (11_000, "span")


def test_progress_of_another_source_is_none() -> None:
    assert describe_progress(progress(endOffset={"topic": {"0": 5}}, latestOffset=None)) is None
    assert describe_progress({"sources": []}) is None


def test_the_frame_has_a_column_for_each_number() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed here; `make spark` runs this with it")
    item = progress(endOffset=offset(a=AtSequence("1")), latestOffset=report(limitedBy="span"))
    frame = progress_frame(SimpleNamespace(recentProgress=[item, {"sources": []}]))
    assert list(frame.columns) == list(describe_progress(item) or {})
    assert len(frame) == 1
    assert frame["limitedBy"][0] == "span"


def test_clients_are_shared_within_a_process() -> None:
    connection = ConnectionSettings(
        region_name="us-east-1", endpoint_url="http://127.0.0.1:1", access_key_id="a", secret_access_key="b"
    )
    assert shared_client(connection) is shared_client(connection)
    assert isinstance(shared_client(connection), Transport)
    other = ConnectionSettings(
        region_name="us-east-1", endpoint_url="http://127.0.0.1:2", access_key_id="a", secret_access_key="b"
    )
    assert shared_client(other) is not shared_client(connection)


def test_a_client_is_made_without_a_look_into_the_folders_of_all_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed: list[str] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or listdir(path))
    _model_loader.cache_clear()
    ConnectionSettings(region_name="eu-west-1", access_key_id="a", secret_access_key="b").client()
    assert 0 < len(listed) < 20


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
