"""Types as users see them.

`integration/typing/program.py`, a user's program, passes mypy and pyright, both strict; and pyright finds a complete type for
every public symbol of the package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "integration" / "typing" / "program.py"

WRONG = """
def wrong(batch: ks.RecordBatch) -> None:
    ks.Producer(client=DYNAMODB)
    ks.Worker("orders", application_name="billing", handler=handle, kinesis_client=DYNAMODB)
    ks.ConsumerConfig(initial_position="NOW")
    ks.ConsumerConfig(leases={"failover_time": 5})
    ks.LeaseConfig(failover_time="5")
    batch.records[0].partition_key.no_such_method()
"""
"""Every line is an error: proves that the checkers see the types of the package and not `Any`."""


def _directory(tmp_path: Path, addition: str) -> Path:
    """A project of the user's own, away from this repository's settings."""
    shutil.copy(PROGRAM, tmp_path / "program.py")
    with (tmp_path / "program.py").open("a") as program:
        program.write(addition)
    return tmp_path


def _mypy(directory: Path) -> list[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "program.py"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=directory)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def _pyright(directory: Path) -> list[str]:
    settings = {"include": ["program.py"], "typeCheckingMode": "strict", "pythonVersion": "3.10"}
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=directory)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in found]


@pytest.mark.parametrize("check", [_mypy, _pyright])
def test_a_typed_program_is_accepted(check, tmp_path: Path) -> None:
    assert check(_directory(tmp_path, "")) == []


@pytest.mark.parametrize("check", [_mypy, _pyright])
def test_each_wrong_line_is_rejected(check, tmp_path: Path) -> None:
    lines = len(PROGRAM.read_text().splitlines())
    wrong = {lines + number for number, line in enumerate(WRONG.splitlines(), 1) if line.startswith("    ")}
    found = check(_directory(tmp_path, WRONG))
    seen = {int(one.removeprefix("program.py:").split(":")[0]) for one in found}
    assert seen == wrong, found


SPARK = """
class DataSource: ...
class DataSourceArrowWriter: ...
class DataSourceReader: ...
class DataSourceStreamReader: ...
class DataSourceStreamWriter: ...
class InputPartition: ...
class WriterCommitMessage: ...
"""
"""Spark's classes from which those of `kinesis_sdk.spark` derive, for environments without pyspark."""


def _completeness(package: str, *search: Path) -> dict[str, Any]:
    """Verify the types of a package, as pyright sees them in an installed one."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    command += ["--verifytypes", package, "--ignoreexternal", "--outputjson"]
    paths = os.pathsep.join(str(path) for path in search)
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    assert report["packageName"] == package
    return report


SCREENS = ("kinesis_sdk.cli.tui.", "kinesis_sdk.cli.fitted_table.")
"""They derive from classes of Textual and rich, whose types this check does not see, and no program of a user imports them."""


def _incomplete(report: dict[str, Any]) -> list[str]:
    return [
        f"{symbol['name']}: {found['message']}"
        for symbol in report["symbols"]
        for found in symbol["diagnostics"]
        if found["severity"] == "error" and not symbol["name"].startswith(SCREENS)
    ]


def _without_spark(tmp_path: Path) -> Path:
    """A folder with the shape of pyspark, unless pyspark itself is installed."""
    if find_spec("pyspark") is None:
        home = tmp_path / "pyspark" / "sql"
        home.mkdir(parents=True)
        for name in ("../__init__.py", "../py.typed", "__init__.py"):
            (home / name).touch()
        (home / "datasource.py").write_text(SPARK)
    return tmp_path


def test_every_public_symbol_has_a_type(tmp_path: Path) -> None:
    report = _completeness("kinesis_sdk", ROOT, _without_spark(tmp_path))
    assert report["exportedSymbolCounts"]["withKnownType"] > 3000
    assert _incomplete(report) == []
    symbols = [
        symbol
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["name"].startswith(SCREENS)
    ]
    assert [symbol["name"] for symbol in symbols if not symbol["isTypeKnown"]] == []
    assert [symbol["name"] for symbol in symbols if symbol["isTypeAmbiguous"]] == []
