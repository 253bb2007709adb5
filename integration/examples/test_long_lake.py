"""Tables on a lake: `examples/lake.py` as docs/tutorial-5-lake.md runs it, killed, frozen and compacted. ``make spark-lake``.

Delta and Iceberg have no builds for the newest Spark, so this runs on the oldest one that we support.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.examples.support import EXAMPLES, Account
from integration.java import maven
from integration.localstack.install import CannotInstallError
from integration.sessions import kill_all, signal_all
from integration.spark.environments import OLDEST, CannotRunSparkError, prepare
from kinesis_sdk import Producer
from kinesis_sdk.testing.flights import load_flights

KINDS = ("delta", "iceberg")
LOCKS = {kind: Path(__file__).with_name(f"{kind}.jars") for kind in KINDS}
PROGRAM = EXAMPLES / "lake.py"
DAYS = [f"2001-01-{day:02}" for day in range(1, 7)]
CHUNK = 150
"""Flights of a put; each has some of each day, so that there is something to compact."""
SECONDS = "4"
"""Between compactions, so that some come while the stream is written."""
LIMIT = 900.0
"""Seconds after which something hangs. On an idle machine, a driver starts in ten."""
pytestmark = pytest.mark.timeout(5 * LIMIT)
ATTEMPTS = 20
"""After which a moment that lasts a second was missed too often."""


class Driver:
    """A driver and what it printed. It starts again if Spark ended it because the machine was slow.

    Spark waits 10 s, which no setting changes, for a new Python process to connect, and otherwise ends the query.
    """

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("w") as file:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._log.parent,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        signal_all(self._process.pid, number)

    def kill(self) -> None:
        kill_all(self._process)

    def printed(self) -> str:
        """Return what it printed so far."""
        return self._log.read_text(errors="replace")

    def is_compacting(self) -> bool:
        """Whether the newest compaction that began is one that did not end, as far as it said."""
        return self.printed().rfind("compacting") > self.printed().rfind(" files\n")

    def ended(self) -> int | None:
        return self._process.poll()

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait for something, which the driver has to survive. Look often: some moments are short."""
        deadline = time.monotonic() + LIMIT
        while not reached():
            if self.ended() is not None:
                assert "failed to connect back" in self.printed(), f"no {what}: {self.printed()[-5000:]}"
                self.kill()
                self._start()
            assert time.monotonic() < deadline, f"no {what}: {self.printed()[-5000:]}"
            time.sleep(0.01)


class Lake:
    """A table, the checkpoint of its query, and its drivers. Files are read without Spark."""

    def __init__(self, kind: str, account: Account, folder: Path) -> None:
        self.account = account
        self.kind = kind
        self.folder = folder
        self._numbers = itertools.count()
        self._python = prepare(OLDEST)
        (package,) = re.findall(rf'"(\S+{kind}-\S+:[\d.]+)"', PROGRAM.read_text())
        assert f"\n{package} " in LOCKS[kind].read_text(), "the test's jars are the program's package"
        self._jars = ",".join(map(str, sorted(maven.install(LOCKS[kind]).glob("*.jar"))))
        self._checkpoint = folder / "lake" / f"{kind}-checkpoint"
        flights = [flight for flight in load_flights() if flight.line[9:19].decode() <= "2001/01/06"]
        self._flights = itertools.cycle(random.Random(1).sample(flights, len(flights)))

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        """Run the program; kill it at the end."""
        environment = {
            **self.account.environment,
            "PYSPARK_PYTHON": str(self._python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # The package, without a download by Spark.
            "PYSPARK_SUBMIT_ARGS": f"--conf spark.jars.packages= --jars {self._jars} --driver-memory 1g"
            " --conf spark.databricks.delta.snapshotPartitions=2 --conf spark.sql.shuffle.partitions=2 pyspark-shell",
        }
        log = self.folder / f"driver-{next(self._numbers)}.log"
        driver = Driver([str(self._python), str(PROGRAM), self.kind, SECONDS], environment, log)
        try:
            yield driver
        finally:
            driver.kill()

    def kill(self, moment: Callable[[Driver], object], holds: Callable[[Driver], bool]) -> None:
        """Kill a driver at a moment, and further drivers until what tells this moment holds afterwards."""
        for _ in range(ATTEMPTS):
            with self.driver() as driver:
                moment(driver)
            if holds(driver):
                return
        raise AssertionError(f"no driver was killed at the moment of {moment.__name__}")

    def put(self) -> None:
        """Put some flights, in aggregates."""
        with Producer(client=self.account.client("kinesis")) as producer:
            chunk = itertools.islice(self._flights, CHUNK)
            futures = [producer.put("flights", flight.origin, flight.line) for flight in chunk]
            producer.flush()
        assert [future.exception() for future in futures] == [None] * CHUNK

    def history(self) -> list[int | str]:
        """Return the commits of the table: the batch of each commit of the query, else the name of the operation."""
        return list(self._delta() if self.kind == "delta" else self._iceberg())

    def _delta(self) -> Iterator[int | str]:
        for file in sorted((self.folder / "lake" / "delta" / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            batches = [action["txn"]["version"] for action in actions if "txn" in action]
            yield from batches or [one["commitInfo"]["operation"] for one in actions if "commitInfo" in one]

    def _iceberg(self) -> Iterator[int | str]:
        files = (self.folder / "lake" / "iceberg" / "metadata").glob("v*.metadata.json")
        newest = max(files, key=lambda file: int(re.findall(r"\d+", file.name)[0]), default=None)
        for snapshot in [] if newest is None else json.loads(newest.read_text())["snapshots"]:
            batch = snapshot["summary"].get("spark.sql.streaming.epochId")
            yield snapshot["summary"]["operation"] if batch is None else int(batch)

    def batches(self) -> list[int]:
        return [one for one in self.history() if isinstance(one, int)]

    def compactions(self) -> list[str]:
        """Return the names of commits that compacted the table."""
        return [one for one in self.history() if one in ("OPTIMIZE", "replace")]

    def written(self) -> int:
        """Return the number of the newest batch in the table; -1 without one."""
        return max(self.batches(), default=-1)

    def newest(self, log: str) -> int:
        """Return the number of the newest batch in ``offsets`` or ``commits`` of the checkpoint; -1 without one."""
        return max((int(file.name) for file in (self._checkpoint / log).glob("[0-9]*")), default=-1)

    def forget_commit(self, batch: int) -> None:
        """Remove a batch from ``commits``, as if the driver had been killed before it wrote this file."""
        (self._checkpoint / "commits" / str(batch)).unlink()
        (self._checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    def wait_until_planned(self, driver: Driver) -> None:
        """Put flights until a batch is planned and not yet in the table."""
        for _ in range(ATTEMPTS):
            before = self.newest("offsets")
            self.put()
            driver.until(lambda n=before: self.newest("offsets") > n, "a batch")
            if self.is_planned():
                return
        raise AssertionError("batches are never seen before they are in the table")

    def is_planned(self) -> bool:
        return self.newest("offsets") > self.written()

    def wait_until_written(self, driver: Driver) -> None:
        """Put flights, and wait until some are in the table."""
        before = self.written()
        self.put()
        driver.until(lambda: self.written() > before, "a commit of the table")

    def wait_until_compacting(self, driver: Driver) -> None:
        """Wait until a compaction begins, after some batches."""
        for _ in range(3):
            self.wait_until_written(driver)
        driver.until(driver.is_compacting, "a compaction")

    def wait_until_complete(self, driver: Driver) -> None:
        """Wait until the program says that the table has each flight once."""
        wanted = f"{len(self.account.records('flights')):,} flights, 0 of them twice,"
        driver.until(lambda: wanted in driver.printed(), wanted)
        assert set(re.findall(r"flights, (\S+) of them twice", driver.printed())) == {"0"}


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, account: Account, tmp_path: Path) -> Lake:
    account.create_stream("flights", 2)
    (tmp_path / "lake").mkdir()
    try:
        return Lake(request.param, account, tmp_path)
    except (CannotInstallError, CannotRunSparkError) as error:
        pytest.skip(str(error))


def test_each_flight_is_in_the_table_once_whatever_is_killed(lake: Lake) -> None:
    # While it reads: the batch is planned and not in the table.
    lake.kill(lake.wait_until_planned, lambda _: lake.is_planned())

    # Between the commit of the table and Spark's: here, by removing what it wrote if it was faster.
    lake.kill(lake.wait_until_written, lambda _: lake.newest("offsets") == lake.written())
    if lake.newest("commits") == lake.written():
        lake.forget_commit(lake.written())

    kinesis = lake.account.client("kinesis")
    (shard, *_) = kinesis.list_shards(StreamName="flights")["Shards"]
    middle = int(shard["HashKeyRange"]["EndingHashKey"]) // 2
    kinesis.split_shard(StreamName="flights", ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
    lake.kill(lake.wait_until_compacting, Driver.is_compacting)

    with lake.driver() as driver:
        while not lake.compactions():
            lake.wait_until_written(driver)
        lake.put()
        lake.wait_until_complete(driver)
    batches = lake.batches()
    assert batches == list(range(len(batches))), "each batch is one commit"
    history = lake.history()
    assert history.index(lake.compactions()[0]) < history.index(batches[-1]), "compacted between batches"
    folders = (lake.folder / "lake" / lake.kind).rglob("day=*")
    assert sorted({folder.name for folder in folders}) == [f"day={day}" for day in DAYS]


def test_a_driver_that_froze_writes_nothing_after_its_successor(lake: Lake) -> None:
    """It froze while it read a batch, its successor wrote this batch and the next ones, and it goes on."""
    with lake.driver() as frozen:
        for _ in range(ATTEMPTS):
            lake.wait_until_planned(frozen)
            frozen.signal(signal.SIGSTOP)
            if lake.is_planned():
                break
            frozen.signal(signal.SIGCONT)
        planned = lake.newest("offsets")
        with lake.driver() as successor:
            successor.until(lambda: lake.newest("commits") >= planned, "the batch of the frozen driver")
            lake.put()
            lake.wait_until_complete(successor)
        written = lake.batches()
        frozen.signal(signal.SIGCONT)
        deadline = time.monotonic() + LIMIT
        while frozen.ended() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert frozen.ended() not in (None, 0), "Spark ends a driver whose batch another one has completed"
        # Or it found the machine too slow, see `Driver`.
        assert re.search("CONCURRENT_STREAM_LOG_UPDATE|failed to connect back", frozen.printed())
    assert lake.batches() == written
