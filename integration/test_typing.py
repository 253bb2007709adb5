"""Results of type checkers for a user's program: `integration/typing/program.py` under mypy and pyright, both strict."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "typing" / "program.py"

WRONG = """
def wrong(batch: ks.RecordBatch) -> None:
    ks.Producer(client=DYNAMODB)
    ks.Worker("orders", application_name="billing", handler=handle, kinesis_client=DYNAMODB)
    ks.ConsumerConfig(initial_position="NOW")
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
