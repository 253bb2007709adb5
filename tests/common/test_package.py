"""What the ground floor exports, and what it costs to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kinesis_sdk
from kinesis_sdk import common
from tests import HANG


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
