"""Runs the Spark suite of `integration/spark` in an environment of its own for each Spark version.

The newest version runs everything, the oldest the core; then the newest runs a part of it against LocalStack.
``SPARK_VERSIONS=4.3.0`` (or several, with commas) chooses, ``SPARK_TESTS=…`` is handed to pytest as ``-k``. With
``AWS_ENDPOINT_URL`` the suite talks to that endpoint. ``SPARK_FULL=1`` runs what takes minutes, and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from integration.spark.environments import NEWEST, OLDEST, ROOT, CannotRunSparkError, prepare
from tools.run_tests import REPORTS

VERSIONS = [v for v in os.environ.get("SPARK_VERSIONS", f"{NEWEST},{OLDEST}").split(",") if v]
FULL = os.environ.get("SPARK_FULL") == "1"
LIMIT = 3600
"""Seconds of one run of the suite, which takes six minutes on an idle machine. A test that hangs fails after a quarter of it."""
pytestmark = pytest.mark.timeout(LIMIT + 60)
# What of the unit tests needs pyarrow or pyspark, which the usual environment does not have.
UNIT = (
    "tests/spark/test_arrow.py",
    "tests/spark/test_avro_values.py",
    "tests/spark/test_csv_values.py",
    "tests/spark/test_parse.py",
    "tests/spark/test_protobuf_values.py",
    "tests/spark/test_sink.py",
    "tests/spark/test_source.py",
)


def run_suite(
    version: str, marker: str, capfd: pytest.CaptureFixture[str], *more: str, **variables: str
) -> None:
    try:
        python = prepare(version)
    except CannotRunSparkError as error:
        pytest.skip(str(error))
    command = [str(python), "-m", "pytest", "integration/spark", *more, "-p", "no:cacheprovider", "-rs"]
    command += ["--durations=8", "-m", marker]
    # The conftest above it needs packages that the Spark environments do not have.
    command += ["--confcutdir", "integration/spark"]
    # pyspark and pandas warn about each other's next versions, and py4j leaves its sockets to the collector.
    command += ["-o", "filterwarnings=default\nignore::ResourceWarning"]
    command += ["-o", "faulthandler_timeout=800"]  # stacks of a test that hangs
    if FULL:
        command += ["-s"]
    if reports := os.environ.get(REPORTS):
        command += [f"--junitxml={reports}/spark-{version}-{marker.replace(' ', '-')}.xml"]
    if chosen := os.environ.get("SPARK_TESTS"):
        command += ["-k", chosen]
    environment = {
        **os.environ,
        **variables,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        # This tree, also in processes that start elsewhere.
        "PYTHONPATH": str(ROOT),
    }
    with capfd.disabled():
        sys.stdout.write(f"\nSpark {version}, {marker}:\n")
        sys.stdout.flush()
        code = subprocess.run(command, cwd=ROOT, env=environment, timeout=LIMIT, check=False).returncode
    assert code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_suite(version: str, capfd: pytest.CaptureFixture[str]) -> None:
    if FULL:
        run_suite(version, "full", capfd)
    elif version == NEWEST:
        run_suite(version, "not full", capfd, *UNIT)
    else:
        run_suite(version, "core", capfd)


@pytest.mark.skipif(FULL, reason="SPARK_FULL=1 is for our own fake")
@pytest.mark.skipif(NEWEST not in VERSIONS, reason=f"LocalStack is used with Spark {NEWEST}")
def test_localstack(localstack: str, capfd: pytest.CaptureFixture[str]) -> None:
    run_suite(NEWEST, "localstack and not scene", capfd, AWS_ENDPOINT_URL=localstack)


@pytest.mark.skipif(FULL, reason="SPARK_FULL=1 is for our own fake")
def test_scene(localstack: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The part of the suite that `make test` runs."""
    run_suite(NEWEST, "scene", capfd, AWS_ENDPOINT_URL=localstack)
