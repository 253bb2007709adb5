"""Recorded events of a run, from the logs of its processes, its lease table and its faults. Data only.

All times are wall-clock seconds of one machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing.accounting.verify import Delivery, Put

STRIDE = 1_000_000_000
"""Size of each producer process's range of record numbers."""

WRONG_SHARD = "Wrong Shard"
"""Error code of an attempt whose aggregate landed across a reshard."""


CAUSES = ("freeze", "stall", "wire")
"""Causes of pauses; see `Pause`."""


class Pause(NamedTuple):
    """Time in which a worker could not do its work.

    Attributes:
        end: When its effects were over.
        cause: ``freeze`` (SIGSTOP), ``stall`` (the machine gave it no time) or ``wire`` (its calls failed).
    """

    begin: float
    end: float
    cause: str


@dataclass
class ProducerRun:
    """One producer process.

    Attributes:
        first: Number of its first record; the others are numbered from there.
        ordered: Whether it promises the order of each key.
        count: Number of records that it put, as logged at a clean end; None before.
        killed_at: Time at which it was killed.
    """

    name: str
    first: int
    ordered: bool = False
    count: int | None = None
    killed_at: float | None = None


@dataclass
class WorkerRun:
    """One worker process.

    Attributes:
        name: Its worker id.
        killed_at: Time at which it was killed.
        pauses: Times at which it was frozen, or stalled by itself.
    """

    name: str
    killed_at: float | None = None
    pauses: list[Pause] = field(default_factory=list)


@dataclass
class Acquisition:
    """A worker's hold on a lease, from ``initialize`` on.

    Attributes:
        number: Number of the acquisition within the worker.
        start: Checkpoint passed to ``initialize``.
        at: Time of ``initialize``.
        checkpoints: (time at which the call returned, position), in order.
        failures: Times of failed checkpoints; the batch is then delivered again.
    """

    worker: str
    number: int
    shard_id: str
    start: ExtendedSequenceNumber
    at: float
    checkpoints: list[tuple[float, ExtendedSequenceNumber]] = field(default_factory=list)
    failures: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Violation:
    """A fact that must not occur. `kind` is the name in the checks, `text` the details."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Event(NamedTuple):
    """An action during the run, for the report.

    Attributes:
        kind: ``kill``, ``stop``, ``freeze``, ``reshard``, ``wire``, ``end`` or ``lost``.
        seconds: Duration.
    """

    at: float
    kind: str
    text: str
    seconds: float = 0.0


class Sample(NamedTuple):
    """Progress of the run at an instant.

    Attributes:
        at: Wall clock.
        acknowledged: Number of records put that were acknowledged.
        processed: Number of different records processed.
        rss: Resident memory of each process, bytes.
        threads: Threads of each process.
    """

    at: float
    put: int
    acknowledged: int
    processed: int
    rss: Mapping[str, int]
    threads: Mapping[str, int]


class LeaseTableMonitor:
    """Checks that nothing in the lease table goes back during the run.

    Attributes:
        violations: Violations so far.
        checks: Number of checks so far.
        vanished: (time, key, position) of leases that were missing at a check and unfinished at the previous one. Between
            two checks a shard may have been finished and its lease deleted, as its worker's log then shows.
        rewinding: Positions that an operator is about to write, by key: checkpoints may go back to these, and leases
            may reappear.
    """

    def __init__(self) -> None:
        self.vanished: list[tuple[float, str, ExtendedSequenceNumber]] = []
        self.violations: list[Violation] = []
        self.checks = 0
        self.rewinding: Mapping[str, ExtendedSequenceNumber] = {}
        self._rows: dict[str, Lease] = {}
        self._deleted: set[str] = set()

    def check(self, rows: Iterable[Lease], at: float) -> None:
        """Check all rows of a consistent read that ended at ``at``."""
        self.checks += 1
        current = {row.lease_key: row for row in rows}
        for key, row in current.items():
            before = self._rows.get(key)
            rewound = self.rewinding.get(key)
            if key in self._deleted:
                self._deleted.discard(key)
                if rewound is None:
                    self.violations.append(Violation("lease reappeared", f"{key} at {row.checkpoint}"))
            if before is None or (
                rewound is not None and before.is_finished and row.counter < before.counter
            ):
                continue  # A new row, or one that a worker deleted and the operator restored between two checks.
            if row.checkpoint < before.checkpoint and (rewound is None or row.checkpoint < rewound):
                text = f"{key} in the table: {before.checkpoint}, later {row.checkpoint}"
                self.violations.append(Violation("checkpoint went back", text))
            if row.counter < before.counter:
                text = f"{key}: {before.counter}, later {row.counter}"
                self.violations.append(Violation("counter went back", text))
        for key, before in self._rows.items():
            if key not in current:
                self._deleted.add(key)
                if not before.is_finished:
                    self.vanished.append((at, key, before.checkpoint))
        self._rows = current


@dataclass
class RecordedEvents:
    """Everything recorded about a run.

    Attributes:
        puts: Result of each record: acknowledged, or failed (without position).
        moved: Numbers of records that were sent again because a copy landed across a reshard.
        retries: Number of records by the code of a failed attempt.
        producers: By name.
        workers: By name.
        deliveries: In any order.
        acquisitions: By worker and number.
        corrupt: Descriptions of records that differ from the put ones.
        shared_pauses: Pauses of all workers at once, caused by the wire or the machine.
        table_monitor: Checks of the lease table during the run.
        shards: All shards of the stream at the end, by id.
        rows: The lease table at the end, after all workers stopped.
        failover_time: The workers', in seconds.
    """

    puts: dict[int, Put] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    retries: Counter[str] = field(default_factory=Counter)
    producers: dict[str, ProducerRun] = field(default_factory=dict)
    workers: dict[str, WorkerRun] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    acquisitions: dict[tuple[str, int], Acquisition] = field(default_factory=dict)
    corrupt: list[str] = field(default_factory=list)
    shared_pauses: list[Pause] = field(default_factory=list)
    table_monitor: LeaseTableMonitor = field(default_factory=LeaseTableMonitor)
    shards: Mapping[str, Shard] = field(default_factory=dict)
    rows: Mapping[str, Lease] = field(default_factory=dict)
    failover_time: float = 10.0

    def pause_of(self, worker: str, begin: float, end: float, causes: Sequence[str] = CAUSES) -> Pause | None:
        """Return a pause of a worker that has one of these causes and overlaps an interval; None without one."""
        pauses = [*self.workers[worker].pauses, *self.shared_pauses]
        return next((p for p in pauses if p.begin <= end and p.end >= begin and p.cause in causes), None)

    def producer_of(self, number: int) -> ProducerRun | None:
        """Return the producer whose range contains this record number; None without one."""
        for run in self.producers.values():
            if run.first <= number < run.first + STRIDE:
                return run
        return None
