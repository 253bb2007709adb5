"""Runs the Spark suite of `integration/spark` in an environment of its own for each Spark version.

The newest version runs everything, the oldest the core. ``SPARK_VERSIONS=4.3.0`` (or several, with commas) chooses;
``SPARK_TESTS=…`` is handed to pytest as ``-k``. With ``AWS_ENDPOINT_URL`` the suite talks to that endpoint.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from integration.spark.environments import NEWEST, OLDEST, ROOT, CannotRunSparkError, prepare

VERSIONS = [v for v in os.environ.get("SPARK_VERSIONS", f"{NEWEST},{OLDEST}").split(",") if v]


@pytest.mark.parametrize("version", VERSIONS)
def test_suite(version: str, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        python = prepare(version)
    except CannotRunSparkError as error:
        pytest.skip(str(error))
    command = [
        str(python),
        "-m",
        "pytest",
        "integration/spark",
        "-p",
        "no:cacheprovider",
        "-rs",
        "--durations=8",
    ]
    # pyspark and pandas warn about each other's next versions.
    command += ["-o", "filterwarnings=default"]
    if version != NEWEST:
        command += ["-m", "core"]
    if chosen := os.environ.get("SPARK_TESTS"):
        command += ["-k", chosen]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    with capfd.disabled():
        sys.stdout.write(f"\nSpark {version}:\n")
        sys.stdout.flush()
        code = subprocess.run(command, cwd=ROOT, env=environment, timeout=900, check=False).returncode
    assert code == 0
