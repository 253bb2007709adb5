"""The programs of docs/migration.md: each old one runs on the library that it was written for, and each new one has the same effect.

Two accounts begin alike. The old program runs on one, the new program on the other; what they print and what the streams hold
afterwards must be the same. The KPL's program runs in `integration/java/kpl/test_migration.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.bench_producer import PACKAGES
from benchmarks.jvm_connector import COMMIT, SPARK, jar_path
from integration.commands import execute
from integration.examples.peers import PINS, peers
from integration.examples.support import BIN, EXAMPLES, ROOT, TIMEOUT, Account, environment_for
from integration.localstack.install import CannotInstallError
from integration.multilang.install import AMAZON_KCLPY, amazon_kclpy
from integration.multilang.scene import WIDTH, aggregate
from integration.spark.environments import CACHE
from integration.stored import stored_in_shard, stored_shards
from integration.waiting import eventually
from kinesis_sdk import ProducerConfig
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.testing import FakeAws, FakeAwsServer

PROGRAMS = EXAMPLES / "migration"
PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
MIDDLE = (WIDTH // 2).to_bytes(16, "big")
RECORD = r"^\S+ b'\S*'$"


@pytest.fixture
def accounts() -> Iterator[tuple[Account, Account]]:
    """Two accounts, for the old program and for the new one."""
    with one_account() as old, one_account() as new:
        yield old, new


@contextmanager
def one_account() -> Iterator[Account]:
    aws = FakeAws()
    with FakeAwsServer(aws) as server:
        yield Account(aws, environment_for(server.endpoint_url))


def installed(install: Callable[[], Path]) -> Path:
    try:
        return install()
    except CannotInstallError as error:
        pytest.skip(str(error))


def copy(name: str, folder: Path) -> Path:
    """Copy a pair of programs into a folder, as a reader would who tries them."""
    return Path(shutil.copytree(PROGRAMS / name, folder / name))


def put(account: Account, label: str, *, stream: str = "orders", aggregates: bool = False) -> list[str]:
    """Put records into both shards of the stream; return the lines that show them."""
    keys = [f"{label}-{number}" for number in range(20)]
    if aggregates:
        entries = []
        for high in (False, True):  # the halves of the hash keys are the shards
            part = [(key, key.encode()) for key in keys if (hash_partition_key(key) >= MIDDLE) is high]
            entries.append(aggregate(WIDTH // 2 if high else 0, part))
    else:
        entries = [{"PartitionKey": key, "Data": key.encode()} for key in keys]
    response = account.client("kinesis").put_records(StreamName=stream, Records=entries)
    assert response["FailedRecordCount"] == 0
    assert len(last_numbers(account, stream)) == 2
    return [f"{key} {key.encode()}" for key in keys]


def last_numbers(account: Account, stream: str = "orders") -> list[str]:
    """Return the last sequence number of each shard that has records."""
    found = []
    kinesis = account.client("kinesis")
    for shard in stored_shards(kinesis, stream):
        records = list(stored_in_shard(kinesis, stream, shard["ShardId"]))
        found += [record["SequenceNumber"] for record in records[-1:]]
    return found


def stored(account: Account) -> list[tuple[str, bytes]]:
    return sorted((record.partition_key, bytes(record.data)) for record in account.records("orders"))


class Running:
    """A program that does not end by itself.

    Args:
        account: Where.
        folder: In which it runs.
        command: Its words.
        shown: Matches the lines that show records.
        environment: Variables of its own.
    """

    def __init__(
        self, account: Account, folder: Path, *command: object, shown: str = RECORD, **environment: str
    ) -> None:
        self._log = folder / f"log-{len(list(folder.glob('log-*')))}"
        self._shown = shown
        self._process = account.start(*command, folder=folder, log=self._log, **environment)

    def lines(self) -> list[str]:
        """Return the lines that show records so far, sorted."""
        return sorted(re.findall(self._shown, self._log.read_text(), re.MULTILINE))

    def shows(self, expected: list[str]) -> list[str]:
        """Wait for these lines, then stop the program; return all that it showed."""
        try:
            eventually(
                lambda: set(expected) <= set(self.lines()) or self._process.poll() is not None,
                f"it shows {self.lines()}: {self._log.read_text()[-3000:]}",
            )
            assert self._process.poll() is None, self._log.read_text()[-3000:]
        finally:
            self._process.send_signal(signal.SIGTERM)
            try:
                self.exit_code = self._process.wait(TIMEOUT)
            finally:
                self._process.kill()
        return self.lines()


def test_from_amazon_kclpy(accounts: tuple[Account, Account], tmp_path: Path) -> None:
    """Below our daemon; and each program goes on where the other one was stopped, behind its checkpoints."""
    library = installed(amazon_kclpy)
    environment = {
        "PYTHONPATH": os.pathsep.join([str(library), str(ROOT)]),
        "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
    }
    shown: dict[str, list[list[str]]] = {"before": [], "after": []}
    for account, order in zip(accounts, (("before", "after"), ("after", "before")), strict=True):
        account.create_stream("orders", 2)
        folder = copy("amazon_kclpy", tmp_path / order[0])
        for number, program in enumerate(order):
            expected = sorted(
                put(account, f"plain-{number}") + put(account, f"aggregated-{number}", aggregates=True)
            )
            command = (
                [BIN / "kinesis-sdk", "multilang", "app.properties", "--raw-stderr"]
                if program == "before"
                else [sys.executable, "after.py"]
            )
            running = Running(account, folder, *command, **environment)
            found = running.shows(expected)
            assert found == expected, "each record once: a stop writes the checkpoints"
            assert running.exit_code == 0
            shown[program].append(found)
    assert sorted(shown["before"]) == sorted(shown["after"])


def test_from_boto3(accounts: tuple[Account, Account], tmp_path: Path) -> None:
    """The old loop goes on behind the positions of its file; the new program behind its checkpoints."""
    found = []
    for account, program in zip(accounts, ("before.py", "after.py"), strict=True):
        account.create_stream("orders", 2)
        folder = copy("boto3", tmp_path / program)
        rounds = []
        for number in range(2):
            expected = sorted([*put(account, f"round-{number}"), "customer-7 b'1'"])
            running = Running(account, folder, sys.executable, program)
            eventually(lambda: set(expected) <= set(running.lines()), "records are missing")  # noqa: B023
            if program == "before.py":  # it may not be stopped between a record and its position
                positions = folder / "positions.json"
                eventually(
                    lambda: all(last in positions.read_text() for last in last_numbers(account)),  # noqa: B023
                    "the positions are not written",
                )
            rounds.append(running.shows(expected))
            assert rounds[-1] == expected
        found.append((rounds, stored(account)))
    assert found[0] == found[1]


def test_from_async_kinesis(accounts: tuple[Account, Account], tmp_path: Path) -> None:
    interpreters = {"before.py": installed(peers), "after.py": sys.executable}
    found = []
    for account, (program, python) in zip(accounts, interpreters.items(), strict=True):
        account.create_stream("orders", 2)
        entries = [
            {"PartitionKey": f"customer-{number}", "Data": b'{"total": %d}' % number}
            for number in range(100, 120)
        ]
        account.client("kinesis").put_records(StreamName="orders", Records=entries)
        folder = copy("async_kinesis", tmp_path / program)
        expected = sorted(["12", *(str(number) for number in range(100, 120))])
        running = Running(account, folder, python, program, shown=r"^\d+$")
        found.append((running.shows(expected), stored(account)))
        assert found[-1][0] == expected
    assert found[0] == found[1]


def test_a_processor_of_async_kinesis_cannot_open_aggregates(tmp_path: Path) -> None:
    """What the page says about readers that still use the old library."""
    python = installed(peers)
    record = aggregate(0, [(f"customer-{number}", b'{"total": 12}') for number in range(2)])
    (tmp_path / "data").write_bytes(record["Data"])
    done = execute(
        [
            python,
            "-c",
            "from kinesis import JsonProcessor\nprint(list(JsonProcessor().parse(open('data', 'rb').read())))",
        ],
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "UnicodeDecodeError" in done.stderr


def test_from_aiokpl(accounts: tuple[Account, Account], tmp_path: Path) -> None:
    interpreters = {"before.py": installed(peers), "after.py": sys.executable}
    found = []
    for account, (program, python) in zip(accounts, interpreters.items(), strict=True):
        account.create_stream("orders", 2)
        folder = copy("aiokpl", tmp_path / program)
        process = account.start(python, program, folder=folder)
        printed, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, printed
        found.append((printed, stored(account)))
    assert found[0] == found[1]
    assert re.fullmatch(r"shardId-00000000000[01]\n", found[0][0])
    assert found[0][1] == [("customer-7", b"1")]


def test_from_the_connector_for_the_jvm(accounts: tuple[Account, Account], tmp_path: Path) -> None:
    """Only where `make bench-spark-jvm` has built the connector: that takes minutes, and a clone from GitHub."""
    python = CACHE / f"spark-{SPARK}" / "bin" / "python"
    if not jar_path().exists() or not python.exists():
        pytest.skip("AWS Labs' connector is not built here; `make bench-spark-jvm` builds it")
    found = []
    for account, program, lines in zip(accounts, ("before", "after"), ("lines", "new-lines"), strict=True):
        account.create_stream("flights", 2)
        put(account, "plain", stream="flights")
        put(account, "aggregated", stream="flights", aggregates=True)
        folder = copy("spark_jvm", tmp_path / program)
        options = f"--master local[2] --jars {jar_path()} pyspark-shell"
        process = account.start(
            python, f"{program}.py", folder=folder, PYSPARK_SUBMIT_ARGS=options, PYSPARK_PYTHON=str(python)
        )
        printed, _ = process.communicate(timeout=900)
        assert process.returncode == 0, printed[-4000:]
        rows = [line for file in (folder / lines).glob("*.json") for line in file.read_text().splitlines()]
        found.append(sorted(rows))
    assert len(found[0]) == 40
    assert found[0] == found[1]


NAMES = """
import dataclasses, inspect, json
from aiokpl import Config, Producer as Aiokpl, SyncProducer
from kinesis import Consumer, Producer
print(json.dumps({
    "Config": {one.name: one.default for one in dataclasses.fields(Config) if isinstance(one.default, (int, float))},
    "Config names": [one.name for one in dataclasses.fields(Config)],
    "Producer": [*inspect.signature(Producer).parameters],
    "put": [*inspect.signature(Producer.put).parameters],
    "idle_timeout": inspect.signature(Consumer).parameters["idle_timeout"].default,
}))
"""


def test_the_tables_name_the_settings_of_the_old_libraries(tmp_path: Path) -> None:
    done = subprocess.run(
        [installed(peers), "-c", NAMES],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    theirs = json.loads(done.stdout)
    named = re.findall(r"(\w+)=", " ".join(re.findall(r"^\| `Config\((.*?)\)` \|", PAGE, re.MULTILINE)))
    assert len(named) >= 13
    assert {*named} <= {*theirs["Config names"]}
    (same,) = re.findall(r"the same names with the same defaults: `ProducerConfig\((.*?)\)`", PAGE)
    for name in re.findall(r"(\w+)=", same):
        assert getattr(ProducerConfig(), name) == theirs["Config"][name], name
    assert "`async with Producer(stream_name=…)`, `await producer.put(data, partition_key=…)`" in PAGE
    assert "stream_name" in theirs["Producer"]
    assert {"data", "partition_key"} <= {*theirs["put"]}
    assert f"`idle_timeout` ({theirs['idle_timeout']:g} s)" in PAGE


def test_the_page_names_the_versions_that_run() -> None:
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", PINS.read_text() + AMAZON_KCLPY, re.MULTILINE))
    for name in ("aiokpl", "async-kinesis", "amazon_kclpy"):
        assert f"{name} {pins[name]}" in PAGE, name
    assert f"commit `{COMMIT[:7]}` on Spark {SPARK}" in PAGE
    for name in ("aiokpl", "async-kinesis"):
        assert any(re.fullmatch(rf"{name}(\[\w+\])?=={pins[name]}", package) for package in PACKAGES), (
            "the benchmarks compare with the same version"
        )
