"""A fleet of Java workers and ours under load, steered by an operator, with an account of what they delivered."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from integration.endtoend.stream import StreamControl
from integration.java.evidence import wait_for
from integration.java.load import Load
from integration.java.processes import QUICK, QUICK_2, Stage, WorkerProcess
from integration.steering.books import FAULT, LOST, Acquisition, Books, Delivery, Fault, Place
from integration.steering.operator import Operator, place_of
from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.common.errors import ResourceNotFoundError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease

OURS = "ours"
_MOST_LATE = 45.0
"""A Java worker can have lost a lease this many seconds before ``leaseLost``: the failover time and the batch in progress."""


class SteeredFleet:
    """Implements the scene of an `Operator`. A context manager: it puts records until it ends.

    Args:
        stage: The account.
        name: Name of the stream and of the application.
        folder: For the audit log.
        shards: Number of shards of the stream at first.
        rate: Records per second.
        seed: Decides which workers the faults hit.
        metrics: ``worker_metrics`` of our workers.
        batch: Records per read; a shard is read four times a second. Few, so that a rewound shard lags for a while and
            there is something to skip.

    Attributes:
        stream: Splits and merges the stream.
        members: All workers that were started.
        operator: Steers the application.
        faults: What happened to workers, for the account.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        folder: Path,
        *,
        shards: int = 4,
        rate: int = 100,
        seed: int = 0,
        metrics: str = "lease_table",
        batch: int = 5,
    ) -> None:
        self._batch = batch
        self._stage = stage
        self._metrics = metrics
        self._name = name
        self._rng = random.Random(seed)
        self._kinds: dict[str, str] = {}
        self._alive: list[WorkerProcess] = []
        self._frozen: list[tuple[float, float, WorkerProcess]] = []
        self._due: list[tuple[float, str]] = []
        self._store = DynamoDBLeaseStore(stage.dynamodb, name, sleep=time.sleep, monotonic=time.monotonic)
        self.stream = StreamControl(stage.kinesis, StreamId.parse(name), self._rng, self._note)
        self.stream.create(shards)
        self.members: list[WorkerProcess] = []
        self.faults: list[Fault] = []
        self.load = Load(stage, name, rate=rate, aggregation_enabled=False)
        connection = Connection(clients={"kinesis": stage.kinesis, "dynamodb": stage.dynamodb})
        self.operator = Operator(
            self,
            lambda: Application(connection, name, stream=name),
            folder,
            failover_time=10.0,
            sleep=self.go_on,
            note=self._note,
            offset=time.monotonic() - time.time(),
        )

    @staticmethod
    def _note(text: str) -> None:
        print(f"{time.monotonic() % 10_000:8.1f} {text}")

    def __enter__(self) -> SteeredFleet:
        self.load.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.load.__exit__(*exc_info)

    # What an operator sees

    def rows(self) -> list[Lease]:
        """Return the lease table; empty if it does not exist."""
        try:
            return self._store.list(consistent=True)
        except ResourceNotFoundError:
            return []

    def shards(self) -> list[Shard]:
        """Return all shards of the stream."""
        return self.stream.shards(only_open=False)

    def workers(self) -> list[str]:
        """Return the workers that should be alive."""
        return [worker.name for worker in self._alive]

    def places(self, shard: str) -> list[Place]:
        """Return the positions of a shard's acknowledged records, in order."""
        return sorted(
            (int(put.sequence_number), put.sub_sequence_number or 0)
            for put in self.load.acknowledged()
            if put.shard_id == shard
        )

    # What happens to it

    def add(self, kind: str) -> WorkerProcess:
        """Start a worker of ours (`OURS`) or of a KCL version."""
        name = f"{kind}-{len(self.members) + 1}"
        if kind == OURS:
            worker = self._stage.start_ours(
                name,
                self._name,
                self._name,
                max_records=self._batch,
                idle_time_between_reads=0.25,
                worker_metrics=self._metrics,
            )
        else:
            quick = QUICK_2 if kind.startswith("2.") else QUICK
            worker = self._stage.start_worker(
                name, self._name, self._name, version=kind, properties={**quick, "maxRecords": self._batch}
            )
        self._kinds[name] = kind
        self.members.append(worker)
        self._alive.append(worker)
        return worker

    def tails(self) -> dict[str, str]:
        """Return the ends of all workers' logs."""
        return {worker.name: worker.process.tail(6) for worker in self.members}

    def await_owners(self, *workers: WorkerProcess, seconds: float = 120.0) -> None:
        """Wait until each of these workers holds a lease, and each lease has an owner."""

        def holders() -> set[str | None]:
            return {row.holder for row in self.rows() if not row.is_finished}

        names = {one.name for one in workers}
        wait_for(lambda: holders() >= names and None not in holders(), seconds, self.tails)

    def go_on(self, seconds: float) -> None:
        """Let time pass, and resume and start the workers that are due."""
        end = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            for thawed in [one for one in self._frozen if one[1] <= now]:
                self._frozen.remove(thawed)
                thawed[2].process.signal(SIGCONT)
                self.faults.append(Fault(thawed[2].name, thawed[0], now + 15.0))
            for started in [one for one in self._due if one[0] <= now]:
                self._due.remove(started)
                self.add(started[1])
            if now >= end:
                return
            time.sleep(min(0.2, end - now))

    def _pick(self) -> WorkerProcess | None:
        frozen = {worker.name for _, _, worker in self._frozen}
        able = [one for one in self._alive if one.name not in frozen and one.events("initialize")]
        # At least one worker must go on reading.
        return self._rng.choice(able) if len(able) > 1 else None

    def kill(self, replace_after: float) -> None:
        """SIGKILL a worker, and start another of its kind after `replace_after` seconds."""
        worker = self._pick()
        if worker is None:
            return
        self._note(f"killed {worker.name}")
        now = time.monotonic()
        self.faults.append(Fault(worker.name, now, now))
        self._alive.remove(worker)
        worker.kill()
        self._due.append((now + replace_after, self._kinds[worker.name]))

    def freeze(self, seconds: float) -> None:
        """SIGSTOP a worker, and SIGCONT it after `seconds`."""
        worker = self._pick()
        if worker is None:
            return
        self._note(f"froze {worker.name} for {seconds:.1f} s")
        worker.process.signal(SIGSTOP)
        self._frozen.append((time.monotonic(), time.monotonic() + seconds, worker))

    def calm(self) -> None:
        """Resume all frozen workers, and start the ones that are due."""
        self._frozen = [(begin, 0.0, worker) for begin, _, worker in self._frozen]
        self._due = [(0.0, kind) for _, kind in self._due]
        self.go_on(0.0)

    # The books

    def _told(self) -> tuple[dict[tuple[str, int], Acquisition], list[Delivery], list[Fault]]:
        acquisitions: dict[tuple[str, int], Acquisition] = {}
        deliveries: list[Delivery] = []
        lost: list[Fault] = []
        for worker in self.members:
            current: dict[str, int] = defaultdict(int)
            for number, event in enumerate(sorted(worker.events(), key=lambda one: one["t"]), start=1):
                shard, at = event["shard"], event["t"]
                if event["event"] == "initialize":
                    current[shard] = number
                    start = place_of(ExtendedSequenceNumber(str(event["position"][0]), event["position"][1]))
                    acquisitions[worker.name, number] = Acquisition(worker.name, number, shard, start, at)
                elif event["event"] == "records":
                    deliveries += [
                        Delivery(shard, (int(sequence), sub), at, worker.name, current[shard])
                        for sequence, sub, _, _ in event["records"]
                    ]
                elif event["event"] in ("lease_lost", "refused"):
                    lost.append(Fault(worker.name, at - _MOST_LATE, at, LOST, shard))
        return acquisitions, deliveries, lost

    def await_everything(self, seconds: float = 240.0) -> None:
        """After the load has ended, wait until all records were delivered, and delivered again where they were rewound."""
        stored = self._stored()

        def missing() -> list[str]:
            acquisitions, deliveries, _ = self._told()
            self.go_on(0.0)
            lost, again, _ = Books(self.operator.done, ()).missing(stored, deliveries, acquisitions)
            return [*lost, *again]

        left = missing()
        moved = time.monotonic()
        while left:
            self.go_on(1.0)
            now_left = missing()
            if len(now_left) != len(left):
                moved = time.monotonic()
            left = now_left
            if time.monotonic() - moved > seconds:
                raise AssertionError(f"{len(left)} records are missing: {left[:10]}; {self.tails()}")

    def _stored(self) -> list[tuple[str, Place]]:
        return [
            (put.shard_id, (int(put.sequence_number), put.sub_sequence_number or 0))
            for put in self.load.stored.values()
        ]

    def close_books(self):
        """Account for everything; print and return the result."""
        acquisitions, deliveries, lost = self._told()
        account = Books(self.operator.done, [*self.faults, *lost]).close(
            self._stored(), deliveries, acquisitions
        )
        made, idle = (sum(one.values()) for one in (self.operator.made, self.operator.idle))
        done = self.operator.done
        print(
            f"{len(self.load.stored):,} records, {account.delivered:,} delivered, {len(account.lost)} lost; "
            f"{len(done.rewinds)} shards rewound: {account.repeated:,} repeated, {len(account.not_repeated)} not; "
            f"{len(done.gaps)} gaps: {account.skipped:,} left out; delivered again: {dict(account.reasons)}, "
            f"{len(account.without_reason)} without a reason; operations: {made} made {dict(self.operator.made)}, "
            f"{idle} without anything to do or refused"
        )
        return account


__all__ = ["FAULT", "OURS", "SteeredFleet"]
