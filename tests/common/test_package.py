"""What the ground floor exports, and what it costs to import."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import kinesis_sdk
from kinesis_sdk import common
from kinesis_sdk.common import Clock, Metrics, NoMetrics, SystemClock
from kinesis_sdk.common.catalogue import USER_RECORDS_PUT
from kinesis_sdk.common.metrics import Scope
from tests import HANG


def test_exported_names() -> None:
    assert sorted(common.__all__) == [
        "AT_TIMESTAMP",
        "Clock",
        "ExtendedSequenceNumber",
        "HashKeyRange",
        "KinesisRecord",
        "LATEST",
        "Metrics",
        "NoMetrics",
        "SHARD_END",
        "Shard",
        "ShardGraph",
        "ShardMap",
        "StreamId",
        "SystemClock",
        "TRIM_HORIZON",
        "UserRecord",
        "deaggregate",
        "format_position",
        "parse_duration",
        "parse_position",
        "parse_time",
    ]
    assert all(hasattr(common, name) for name in common.__all__)


def test_importing_every_module_of_common_loads_no_heavy_library_and_nothing_above() -> None:
    modules = [
        f"kinesis_sdk.common.{path.stem}"
        for path in Path(common.__file__).parent.glob("*.py")
        if path.stem != "__init__"
    ]
    assert len(modules) >= 11
    script = f"""
import sys
for name in {modules!r}:
    __import__(name)
heavy = {{"boto3", "botocore", "google.protobuf", "tenacity", "pyspark", "click"}}
print(*sorted(heavy & set(sys.modules)))
print(*sorted(n for n in sys.modules if n.startswith("kinesis_sdk.") and not n.startswith("kinesis_sdk.common")))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(kinesis_sdk.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heavy, others = done.stdout.splitlines()
    assert heavy == ""
    assert set(others.split()) <= {"kinesis_sdk._lazy", "kinesis_sdk._version"}


def test_the_clock_of_this_machine() -> None:
    clock: Clock = SystemClock()
    before = time.monotonic()
    assert before <= clock.monotonic() <= time.monotonic()
    wall = time.time()
    assert wall - 1 <= clock.time() <= time.time() + 1


def test_no_metrics_takes_everything() -> None:
    metrics: Metrics = NoMetrics()
    assert metrics.add(USER_RECORDS_PUT, Scope({"StreamName": "s"}), 1.0) is None  # type: ignore[func-returns-value]
