"""The README and the guides, word by word: their commands and code blocks, in the order of the pages, against the fake AWS.

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
from typing import Any

import boto3
import pytest

from integration import page_program
from integration.commands import execute
from integration.examples.support import records_of
from integration.spark.environments import NEWEST, CannotRunSparkError, prepare
from kinesis_sdk import FailedRecord, FileSpool, RecordFailedError
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests.readme import DOCS, GUIDES, NOT_RUN, OWN_TESTS, ROOT, Block, blocks, programs
from tests.spark.messages import descriptors
from tools.docs_examples import text_of

BIN = Path(sys.executable).parent
TIMEOUT = 300.0


@dataclass(frozen=True)
class Expected:
    """The output of a program; ``put`` is a record that arrives before it runs, ``spooled`` one that it finds in a spool and puts."""

    prints: str
    put: bytes | None = None
    spooled: bytes | None = None
    runs_on: bool = False


NOTHING = Expected(r"\A\Z")
FIRST_READ = Expected(r"""^customer-7 b'\{"total": 12\}'$""", runs_on=True)  # it shows the first put
EXPECTED = {
    "README.md": [
        Expected(r"""^customer-7 b'\{"total": 12\}'$"""),  # a fake of its own, in the process
        Expected(r"^\d{50,}$"),
        FIRST_READ,
    ],
    "producer.md": [
        Expected(r"^\d{50,}$"),
        NOTHING,  # the configuration
        Expected(r"^shardId-00000000000[01]$"),
        NOTHING,  # an idempotent producer
        Expected(r"\A\Z", spooled=b"late"),
    ],
    "consumer.md": [
        # The lease table is there, and the worker goes on behind the README's.
        Expected(r"^customer-9 b'again'$", put=b"again", runs_on=True),
        Expected(r"^customer-9 b'next'$", put=b"next", runs_on=True),
        NOTHING,  # a handler that checkpoints inside a batch
        Expected(r"^customer-9 b'beside'$", put=b"beside", runs_on=True),
        NOTHING,  # the settings
    ],
}


def shell_lines(section: str) -> list[str]:
    """Commands of a section's blocks without a language, without their comments."""
    text = "\n".join(block.text for block in blocks("") if block.section == section)
    return [line.split("  #")[0].strip() for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The fake and the variables as the README says, but on a free port."""
    start, *exports = shell_lines("Against AWS, or a fake in another process")
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


def client(environment: dict[str, str]) -> Any:
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


def test_every_program_runs_in_the_order_of_the_pages(environment: dict[str, str], tmp_path: Path) -> None:
    pages = {page.name: page for page in GUIDES}
    for name, expectations in EXPECTED.items():
        found = programs(pages[name])
        # A block that a page gains at its end has at least to run to its end.
        whole = [*expectations, *[Expected("")] * (len(found) - len(expectations))]
        folder = tmp_path / name
        folder.mkdir()
        for block, expected in zip(found, whole, strict=True):
            if expected.put is not None:
                client(environment).put_record(
                    StreamName="orders", Data=expected.put, PartitionKey="customer-9"
                )
            if expected.spooled is not None:
                error = RecordFailedError("expired", stream="orders", partition_key="customer-9", attempts=())
                record = FailedRecord("orders", "customer-9", None, expected.spooled, error)
                FileSpool(folder / "unsent.jsonl")(record)
            printed = run(block, expected, environment, folder)
            assert expected.spooled is None or expected.spooled in {
                record.data for record in records_of(client(environment), "orders")
            }
            assert re.search(expected.prints, printed, re.MULTILINE), f"{name}:{block.line}: {printed!r}"


OTHER_PAGES = [
    name
    for page in (*sorted(DOCS.rglob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md")
    if (name := page.relative_to(ROOT).as_posix()) not in OWN_TESTS and programs(page)
]


@pytest.mark.parametrize("name", OTHER_PAGES)
def test_the_programs_of_a_page(name: str, tmp_path: Path) -> None:
    """Runs every Python block of the page, in order and in one namespace: `page_program`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    with FakeAwsServer(FakeAws()) as server:
        environment |= {"AWS_ENDPOINT_URL": server.endpoint_url, "PYTHONPATH": str(ROOT)}
        page_program.prepare(environment, tmp_path)
        done = execute(
            [sys.executable, "-m", "integration.page_program", name],
            stdin=subprocess.DEVNULL,
            cwd=tmp_path,
            env=environment,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    expected = [f"ran {name}:{block.line}" for block in programs(ROOT / name)]
    assert [line for line in done.stdout.splitlines() if line.startswith("ran ")] == expected


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
(query,) = spark.streams.active
flights = spark.read.format("kinesis_sdk").option("streamName", "flights").load()
copies = spark.read.format("kinesis_sdk").option("streamName", "copy").load()
while not any(bytes(row.data) == b"0" for row in copies.collect()):
    query.processAllAvailable()  # raises if the query has failed
query.stop()
print("FLIGHTS", sorted(bytes(row.data) for row in flights.collect()))
print("COPIES", sorted(bytes(row.data) for row in copies.collect()))
"""
MIGRATED = """
query.processAllAvailable()
query.stop()
print("MIGRATED", sorted(row.line for row in spark.read.json("new-lines").collect()))
"""
RECORD_IDS = """
frame = spark.read.format("kinesis_sdk").option("streamName", "flights").load()
"""
FLIGHT = """
name: "flights.proto" syntax: "proto3"
message_type { name: "Flight" field { name: "origin" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
"""
STOP = ".show(truncate=False)\nspark.stop()\n"


def test_the_spark_blocks_run(environment: dict[str, str], tmp_path: Path) -> None:
    try:
        python = prepare(NEWEST)
    except CannotRunSparkError as error:
        pytest.skip(str(error))
    kinesis = client(environment)
    for name in ("flights", "copy", "values"):
        kinesis.create_stream(StreamName=name, ShardCount=1)
    kinesis.put_record(StreamName="flights", Data=b"0", PartitionKey="k")
    kinesis.put_record(StreamName="values", Data=b'{"origin": "ORD", "delay": 20}', PartitionKey="k")
    (register,) = programs(DOCS / "spark.md")
    frames, functions = (block.text for block in programs(DOCS / "spark-guide.md"))
    values, binary = (
        "".join(block.text for block in programs(DOCS / page))
        for page in ("spark-values.md", "spark-binary-values.md")
    )
    (ids,) = (
        block
        for block in blocks("python", DOCS / "exactly-once.md")
        if ("docs/exactly-once.md", block.first_line) in NOT_RUN
    )
    migrated = text_of("examples/migration/spark_jvm/after.py:program")
    assert frames.count("s3://…") == 1
    # What a reader has to fill in.
    frames = frames.replace("s3://…", str(tmp_path / "checkpoint"))
    (tmp_path / "flights.desc").write_bytes(descriptors(FLIGHT))
    program = tmp_path / "program.py"
    program.write_text(
        SPARK
        + register.text
        + frames
        + BETWEEN
        + functions
        + AFTERWARDS
        + values.replace('streamName="flights"', 'streamName="values"')
        + binary
        + migrated
        + MIGRATED
        + RECORD_IDS
        + ids.text.rstrip()
        + STOP
    )
    done = execute(
        [python, program],
        timeout=900,
        cwd=tmp_path,
        env={**environment, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "FLIGHTS [b'0', b'2', b'2']" in done.stdout  # one foreachPartition each
    assert "COPIES [b'0', b'1'" in done.stdout  # the query's and the batch write's
    assert "delay BIGINT, origin STRING" in done.stdout
    assert "MIGRATED ['0', '2', '2']" in done.stdout
    assert re.search(r"flights/shardId-000000000000/\d+/0 *\|", done.stdout)  # the record ids
