"""Draws a schedule from its seed and plays it: producers, reshards, faults of the service, and two applications."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from kinesis_sdk.consumer import ConsumerConfig
from kinesis_sdk.consumer.config import FailureConfig, LeaseConfig, RetrievalConfig
from kinesis_sdk.testing import Fault
from tests.consumer.fleet.engines import STREAM, Fleet
from tests.exactly_once.databases import AsyncDatabase, Database, DynamoDatabase, SqliteDatabase
from tests.exactly_once.oracle import Oracle, Verdict
from tests.exactly_once.producers import ProducerProcess, Put, draw_config
from tests.exactly_once.workers import Application, Outages, Weather
from tests.once_model.simulated import PUTS

READS: tuple[dict[str, Any], ...] = (
    {"kind": "timeout_after_storing", "operation": "GetRecords", "probability": 0.1},
    {"kind": "throttle", "operation": "GetRecords", "probability": 0.1},
    {"kind": "error", "operation": "GetRecords", "probability": 0.1},
    {"kind": "expired_iterator", "operation": "GetRecords", "probability": 0.1},
    {"kind": "empty_read", "operation": "GetRecords", "probability": 0.1},
    {"kind": "error", "operation": "GetShardIterator", "probability": 0.2},
    {"kind": "error", "operation": "ListShards", "probability": 0.3},
    {"kind": "timeout_after_storing", "operation": "TransactWriteItems", "probability": 0.1},
    {"kind": "throttle", "operation": "TransactWriteItems", "probability": 0.1},
)
"""Faults of what workers call."""

LATE = (0.5, 3.0, 5.0, 8.0, 40.0)
"""Seconds after which a late write is stored."""

LATEST = 250.0
"""The same in one of twenty schedules. Copies that are farther apart than 900 s are not recognized."""


@dataclass
class Played:
    """What a schedule came to.

    Attributes:
        verdicts: What the oracle found, by application.
        counts: What happened on the way, by name.
    """

    verdicts: dict[str, Verdict]
    counts: Counter[str]


class Schedule:
    """One random schedule.

    Args:
        seed: What it is drawn from.
        folder: Folder for a folder with spools and databases.
        idempotent: Whether producers may be idempotent at all.
    """

    def __init__(self, seed: int, folder: Path, *, idempotent: bool = True) -> None:
        self.random = random = Random(seed)
        self.seed, self.folder = seed, folder / f"seed-{seed}"
        self.folder.mkdir()
        self._may_be_idempotent = idempotent
        self.fleet = Fleet(shards=random.choice([1, 1, 2, 3]), seed=seed)
        self.counts: Counter[str] = Counter()
        self.puts: dict[bytes, Put] = {}
        self.producers: list[ProducerProcess] = []
        self.horizon = random.choice([2.0, 10.0, 25.0])
        self._processes = 0
        self._latest = 0.0
        self.date_offset = self._draw_date_offset()
        self.fleet.aws.date_offset = self.date_offset
        # Draws of its own, so that everything else of a schedule stays as it was without these dimensions.
        self._more = Random(f"{seed} fan-out and rewinds")
        self._add_faults()
        self.applications = self._applications()
        self._plan_producers()
        self._plan_changes()

    # -------------------------------------------------------------- drawing

    def _draw_date_offset(self) -> float | None:
        """By how much the ``Date`` header is off, in seconds; None for no header."""
        random = self.random
        kind = random.random()
        if kind < 0.6:
            return 0.0
        if kind < 0.65:
            return None
        if kind < 0.8:
            return -random.uniform(0, 1.5)
        if kind < 0.9:
            return -random.uniform(0, 60)
        return random.uniform(2, 60)

    def _add_faults(self) -> None:
        random, faults = self.random, self.fleet.aws.faults
        for drawn in random.sample(PUTS, random.randrange(1, 4)):
            fault = dict(drawn)
            if fault["kind"] == "late_store" or fault.pop("late", False):
                fault["seconds"] = LATEST if random.random() < 0.05 else random.choice(LATE)
                self._latest = max(self._latest, fault["seconds"])
            count, after = random.choice([1, 3, 10]), random.randrange(3)
            faults.add(Fault(**fault, operation="PutRecords", count=count, after=after))
        for drawn in random.sample(READS, random.randrange(3)):
            faults.add(Fault(**drawn, count=random.choice([1, 3, 10])))

    def _applications(self) -> list[Application]:
        random = self.random
        first = AsyncDatabase() if random.random() < 0.4 else Database()
        second: Database = (
            SqliteDatabase(str(self.folder), f"effects-{self.seed}")
            if random.random() < 0.25
            else DynamoDatabase(self.fleet.aws, "second", random.choice([3, 99]))
        )
        return [self._application("first", first), self._application("second", second)]

    def _application(self, name: str, database: Database) -> Application:
        random = self.random
        config = ConsumerConfig(
            initial_position="TRIM_HORIZON",
            leases=LeaseConfig(
                failover_time=random.choice([4.0, 10.0]),
                lease_scan_interval=random.choice([2.0, 3.0]),
                graceful_lease_handoff_timeout=random.choice([0.0, 5.0]),
            ),
            retrieval=RetrievalConfig(
                max_records=random.choice([1, 5, 10_000]),
                # Idle workers take most of the processor's time.
                max_idle_time_between_reads=5.0,
            ),
            failure=FailureConfig(misplaced_aggregates=random.choice(["deliver", "deliver", "discard"])),
        )
        weather = Weather(
            Random(f"{self.seed} {name}"),
            kill=random.choice([0.0, 0.01, 0.03]),
            freeze=random.choice([0.0, 0.01, 0.03]),
            lost=random.choice([0.0, 0.03, 0.1]),
            refused=random.choice([0.0, 0.03, 0.1]),
            failing=random.choice([0.0, 0.01]),
            most=random.choice([2, 4]),
            counts=self.counts,
        )
        outages = [Outages(self._draw_outages()) for _ in range(2)]
        pushed = self._more.random() < 0.3
        if pushed:
            self.counts["applications with fan-out"] += 1
            if self._more.random() < 0.5:
                broken = Fault(kind="broken_stream", probability=0.1, count=self._more.choice([1, 5]))
                self.fleet.aws.faults.add(broken)
        return Application(name, self.fleet, database, weather, config, *outages, pushed=pushed)

    def _draw_outages(self) -> list[tuple[float, float]]:
        random, now = self.random, self.fleet.clock.monotonic()
        if random.random() < 0.7:
            return []
        begin = now + random.uniform(0, self.horizon + 20)
        return [(begin, begin + random.choice([2.0, 10.0, 30.0]))]

    def _plan_producers(self) -> None:
        random = self.random
        number = random.choice([2, 2, 3])
        kinds = [self._may_be_idempotent, self._may_be_idempotent and random.random() < 0.6, False][:number]
        if number == 2 and random.random() < 0.5:
            kinds[1] = False
        # Half of the schedules reshard while most records are on their way, so that many of them are misplaced.
        self.is_stormy = random.random() < 0.5
        span = 0.5 if self.is_stormy else self.horizon
        for kind in kinds:
            process = self._start_producer(idempotent=kind)
            keys = random.choice([1, 4, 50])
            for _ in range(random.randrange(1, 16)):
                self._plan_put(
                    process, f"k{random.randrange(keys)}", self._now + random.uniform(0, span), 0.0
                )
            if random.random() < 0.3:
                moment = self._now + random.uniform(0.05, span + 3)
                self.fleet.timeline.at(moment, partial(self._kill_producer, process))
            self.fleet.timeline.at(
                self._now + random.uniform(span, self.horizon + 30), partial(self._resume, process)
            )
        idempotent = [process for process in self.producers if process.config.idempotent]
        if idempotent and random.random() < 0.5:
            for _ in range(random.randrange(1, 5)):
                self._plan_named(idempotent, span)

    @property
    def _now(self) -> float:
        return self.fleet.clock.monotonic()

    def _start_producer(self, *, idempotent: bool) -> ProducerProcess:
        random = self.random
        self._processes += 1
        process = ProducerProcess(
            f"producer-{self._processes}",
            self.seed * 100 + self._processes,
            self.fleet,
            draw_config(random, idempotent=idempotent, ordered=random.random() < 0.4),
            random.choice([0.01, 0.05, 0.5]),
            self.folder,
        )
        self.producers.append(process)
        self.counts["producers, idempotent" if idempotent else "producers, plain"] += 1
        if process.config.ordering == "per_shard":
            self.counts["producers, ordered"] += 1
        return process

    def _plan_put(self, process: ProducerProcess, key: str, moment: float, window: float) -> Put:
        data = b"%d of %s" % (len(self.puts), process.name.encode())
        put = self.puts[data] = Put(data, key, process.config.idempotent, window)
        process.plan(moment, put)
        return put

    def _plan_named(self, processes: list[ProducerProcess], span: float) -> None:
        """Put a record by a name, and again: at once, later, or after its window."""
        random = self.random
        window = random.choice([5.0, 60.0, 300.0])
        put = self._plan_put(
            random.choice(processes), f"k{random.randrange(4)}", self._now + random.uniform(0, span), window
        )
        for _ in range(random.randrange(1, 3)):
            moment = self._now + random.choice([random.uniform(0, span), random.uniform(0, 20), 55.0])
            random.choice(processes).plan(moment, put)
        self.counts["names put again"] += 1

    def _kill_producer(self, process: ProducerProcess) -> None:
        if not process.is_idle:
            self.counts["producers killed"] += 1
            process.kill()

    def _resume(self, process: ProducerProcess) -> None:
        """A new process takes up the spool of another one, which goes on if it was not killed."""
        if process.path.exists():
            other = self._start_producer(idempotent=process.config.idempotent)
            self.counts["records put again from a spool"] += other.resume(process.path, self.puts)

    def _plan_changes(self) -> None:
        random, timeline = self.random, self.fleet.timeline
        number = random.randrange(1, 4) if self.is_stormy else random.randrange(3)
        for _ in range(number):
            moment = random.uniform(0.1, 1.5) if self.is_stormy else random.uniform(0, self.horizon + 8)
            timeline.at(self._now + moment, self._reshard)
        for application in self.applications:
            for _ in range(random.choice([1, 2, 2, 2, 3])):
                timeline.at(self._now + random.choice([0.0, 0.0, 1.0, 10.0]), application.start)
            if random.random() < 0.3:
                timeline.at(self._now + random.uniform(1, self.horizon + 20), application.replace)
            for _ in range(random.randrange(3)):
                timeline.at(self._now + random.uniform(1, self.horizon + 20), application.restart_reads)
            if self._more.random() < 0.4:
                for _ in range(self._more.randrange(1, 4)):
                    moment = self._now + self._more.uniform(1, self.horizon + 20)
                    timeline.at(moment, partial(application.rewind, self._more))

    def _reshard(self) -> None:
        random, fleet = self.random, self.fleet
        # Past the faults, which are for the processes.
        answer: Any = fleet.aws.kinesis.operations["ListShards"](
            {"StreamName": STREAM, "ShardFilter": {"Type": "AT_LATEST"}}
        )
        shards = sorted(answer["Shards"], key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]))
        if len(shards) > 1 and random.random() < 0.5:
            index = random.randrange(len(shards) - 1)
            fleet.raw.merge_shards(
                StreamName=STREAM,
                ShardToMerge=shards[index]["ShardId"],
                AdjacentShardToMerge=shards[index + 1]["ShardId"],
            )
            self.counts["merges"] += 1
            return
        shard = random.choice(shards)
        low, high = (int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
        if high - low > 2:
            fleet.raw.split_shard(
                StreamName=STREAM,
                ShardToSplit=shard["ShardId"],
                NewStartingHashKey=str(random.randrange(low + 1, high)),
            )
            self.counts["splits"] += 1

    # -------------------------------------------------------------- playing

    def play(self) -> Played:
        """Play it, and judge it."""
        fleet = self.fleet
        end = self._now + self.horizon + 20
        fleet.run(end - self._now)
        for _ in range(100):
            for process in self.producers:
                self._resume(process)
            if all(process.is_idle for process in self.producers):
                break
            fleet.run(5)
        assert all(process.is_idle for process in self.producers)
        if self._latest:
            fleet.run(self._latest + 1)
        fleet.aws.faults.clear()
        fleet.aws.date_offset = 0.0
        for application in self.applications:
            application.weather.calm = True
        ahead = self.date_offset or 0.0
        oracle = Oracle(fleet.raw, fleet.clock, STREAM, self.puts, ahead)
        self._wait(oracle)
        verdicts = {}
        for application in self.applications:
            effects = application.database.effects()
            verdicts[application.name] = oracle.check(effects, discards=application.discards)
        return Played(verdicts, self.counts)

    def _wait(self, oracle: Oracle) -> None:
        """Wait until all effects are there, and then for those that should not be."""
        waiting = list(self.applications)
        for _ in range(60):
            waiting = [
                application
                for application in waiting
                if oracle.lacks(application.database.effects(), discards=application.discards)
            ]
            if not waiting:
                break
            self.fleet.run(5)
        self.fleet.run(15)


def play(seed: int, folder: Path, **more: Any) -> Played:
    """Play the schedule of a seed."""
    schedule = Schedule(seed, folder, **more)
    try:
        return schedule.play()
    finally:
        for application in schedule.applications:
            application.database.close()
        shutil.rmtree(schedule.folder)
