"""Programs as users start them: in an environment that is not activated, on Spark Connect, as a declarative pipeline."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT = 900
"""Seconds after which a program hangs. Each takes half a minute on an idle machine."""


def run(command: list[str], environment: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done


def payloads(stream: Any) -> Counter[str]:
    return Counter(data.decode() for data in stream.payloads())


@pytest.mark.core
def test_an_environment_that_is_not_activated(stream: Any, folder: Path, endpoint: Any) -> None:
    """The python3 of the PATH has no package, and nothing says so but Spark's error; register() makes it work."""
    orders = stream(2)
    venv.create(folder / "bare", symlinks=True)
    unset = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PATH"] = f"{folder / 'bare' / 'bin'}{os.pathsep}{environment['PATH']}"
    environment["KINESIS_SDK_LOG_LEVEL"] = "INFO"
    program = str(PROGRAMS / "unactivated.py")
    done = run([sys.executable, program, orders.name, endpoint.url], environment, folder)
    found = json.loads(done.stdout.splitlines()[-1])
    assert "DATA_SOURCE_NOT_FOUND" in found["before"]
    assert found["read"] == 40
    assert payloads(orders) == {str(number): 2 for number in range(20)}
    task = (
        rf"INFO kinesis_sdk\.spark\.{{}} \[{re.escape(orders.name)}, stage \d+, partition [01], attempt 1\]"
    )
    for module, text in (
        ("sink", r"10 records \(\d+ bytes of payload\) stored by this task"),
        ("partition", "10 records stored by this task"),
        ("source", r"\d+ rows of 1 shards read by this task"),
    ):
        lines = re.findall(f"{task.format(module)} {re.escape(orders.name)}: {text}", done.stderr)
        assert len(lines) == 2, done.stderr[-3000:]
    assert re.search(
        rf"INFO kinesis_sdk\.spark\.sink \[{re.escape(orders.name)}, commit\] write to", done.stderr
    )


def test_spark_connect(stream: Any, folder: Path, endpoint: Any) -> None:
    """Batches, a query into a stream, foreachBatch and the progress listener, in a client without a JVM of its own."""
    orders, copy = stream(2), stream(2)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    program = str(PROGRAMS / "connect.py")
    done = run(
        [sys.executable, program, orders.name, copy.name, endpoint.url, str(folder)], environment, folder
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["read"] == 500
    assert payloads(copy) == {str(number): 1 for number in range(500)}
    assert found["batches"] == sorted(str(number) for number in range(500))
    assert any(" 500 rows, " in line for line in found["lines"])


@pytest.mark.skipif(
    importlib.util.find_spec("pyspark.pipelines") is None, reason="Spark 4.0 has no declarative pipelines"
)
def test_a_declarative_pipeline(stream: Any, folder: Path, endpoint: Any) -> None:
    orders, copy = stream(2), stream(2)
    for key in "abcdef":
        orders.put(*[f"{key}:{number}".encode() for number in range(50)], key=key)
    (folder / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: {(folder / 'storage').as_uri()}\n"
        "libraries:\n  - glob:\n      include: pipeline.py\n"
        'configuration:\n  spark.sql.shuffle.partitions: "2"\n'
    )
    (folder / "pipeline.py").write_text((PROGRAMS / "pipeline.py").read_text())
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PIPELINE_ENDPOINT": endpoint.url,
        "PIPELINE_STREAM": orders.name,
        "PIPELINE_COPY": copy.name,
    }
    done = run([str(home / "bin" / "spark-pipelines"), "run"], environment, folder)
    assert "Run is COMPLETED" in done.stdout + done.stderr
    assert payloads(copy) == {f"{key}:{number}": 1 for key in "abcdef" for number in range(50)}
    assert list((folder / "spark-warehouse" / "per_shard").glob("*.parquet"))
