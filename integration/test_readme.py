"""The README, word by word: its commands and its code blocks, in the order of the page, against the fake AWS.

Each block runs as a program of its own, in the environment that the README tells the reader to set. A block that does
not end by itself (a worker) gets SIGTERM when it has printed what is expected, and has to end cleanly.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

from integration.spark.environments import NEWEST, CannotRunSparkError, prepare
from tests.readme import ROOT, Block, blocks

BIN = Path(sys.executable).parent
TIMEOUT = 60.0


@dataclass(frozen=True)
class Expected:
    """Return the output of the n-th block of a section; ``put`` is a record that arrives before it runs."""

    section: str
    prints: str
    put: bytes | None = None
    runs_on: bool = False


EXPECTED = [
    Expected("Produce", r"^\d{50,}$"),
    Expected("Produce", r"\A\Z"),  # the configuration
    Expected("Produce", r"^shardId-00000000000[01]$"),
    # The first read shows the first put.
    Expected("Consume", r"""^customer-7 b'\{"total": 12\}'$""", runs_on=True),
    Expected("Consume", r"^customer-8 b'next'$", put=b"next", runs_on=True),
    Expected("Consume", r"\A\Z"),  # the settings
    Expected("Test your own code", r"\A\Z"),
]


def shell_lines(section: str) -> list[str]:
    """Commands of a section's blocks without a language, without their comments."""
    text = "\n".join(block.text for block in blocks("") if block.section == section)
    return [line.split("  #")[0].strip() for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The fake and the variables as the section "Produce" says, but on a free port."""
    start, *exports = shell_lines("Produce")
    command = shlex.split(start)
    process = subprocess.Popen(
        [BIN / command[0], *command[1:], "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        told = {}
        for line in exports:
            word, *settings = shlex.split(line)
            assert word == "export"
            told.update(setting.split("=", 1) for setting in settings)
        assert told["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4567"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        yield {**inherited, **told, "AWS_ENDPOINT_URL": url, "PYTHONPATH": str(ROOT)}
    finally:
        process.terminate()
        process.wait(TIMEOUT)
        process.stdout.close()


def client(environment: dict[str, str]) -> object:
    return boto3.client(
        "kinesis",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=environment["AWS_DEFAULT_REGION"],
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )


def run(block: Block, expected: Expected, environment: dict[str, str], folder: Path) -> str:
    """Run a block as a program; returns what it printed."""
    program = folder / "program.py"
    program.write_text(block.text)
    process = subprocess.Popen(
        [sys.executable, "-u", str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    )
    watchdog = threading.Timer(TIMEOUT, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        printed = []
        while expected.runs_on and (line := process.stdout.readline()):
            printed.append(line)
            if re.search(expected.prints, line):
                process.send_signal(signal.SIGTERM)
                break
        out, err = process.communicate()
    finally:
        watchdog.cancel()
    assert process.returncode == 0, err
    return "".join([*printed, out])


def test_every_block_runs_in_the_order_of_the_page(environment: dict[str, str], tmp_path: Path) -> None:
    found = [block for block in blocks("python") if block.section != "From Spark"]
    assert [block.section for block in found] == [expected.section for expected in EXPECTED]
    for number, (block, expected) in enumerate(zip(found, EXPECTED, strict=True)):
        if expected.put is not None:
            client(environment).put_record(  # type: ignore[attr-defined]
                StreamName="orders", Data=expected.put, PartitionKey="customer-8"
            )
        folder = tmp_path / str(number)
        folder.mkdir()
        printed = run(block, expected, environment, folder)
        assert re.search(expected.prints, printed, re.MULTILINE), f"README.md:{block.line}: {printed!r}"


SPARK = """
import os
from pyspark.sql import Row, SparkSession

spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
df = spark.createDataFrame([Row(partitionKey="ORD", data="1")])
"""
BETWEEN = 'df = spark.createDataFrame([Row(origin="ORD", line="2")])\n'
AFTERWARDS = """
for query in spark.streams.active:
    query.processAllAvailable()
    query.stop()
flights = spark.read.format("kinesis_sdk").option("streamName", "flights").load()
copies = spark.read.format("kinesis_sdk").option("streamName", "copy").load()
print("FLIGHTS", sorted(bytes(row.data) for row in flights.collect()))
print("COPIES", sorted(bytes(row.data) for row in copies.collect()))
spark.stop()
"""


def test_the_spark_blocks_run(environment: dict[str, str], tmp_path: Path) -> None:
    try:
        python = prepare(NEWEST)
    except CannotRunSparkError as error:
        pytest.skip(str(error))
    kinesis = client(environment)
    for name in ("flights", "copy"):
        kinesis.create_stream(StreamName=name, ShardCount=1)  # type: ignore[attr-defined]
    kinesis.put_record(StreamName="flights", Data=b"0", PartitionKey="k")  # type: ignore[attr-defined]
    frames, functions = (block.text for block in blocks("python") if block.section == "From Spark")
    assert frames.count("s3://…") == 1
    # The one thing that a reader has to fill in.
    frames = frames.replace("s3://…", str(tmp_path / "checkpoint"))
    program = tmp_path / "program.py"
    program.write_text(SPARK + frames + BETWEEN + functions + AFTERWARDS)
    done = subprocess.run(
        [python, program],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**environment, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "FLIGHTS [b'0', b'2', b'2']" in done.stdout  # one foreachPartition each
    assert "COPIES [b'0', b'1'" in done.stdout  # the query's and the batch write's
