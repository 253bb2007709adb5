"""What happened in a run, as logs of the processes, the lease table and whoever did the harm tell it. Data only.

All times are wall-clock seconds of one machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.testing.accounting.verify import Delivery, Put

STRIDE = 1_000_000_000
"""Numbers of records that each producer process has to itself."""


WRONG_SHARD = "Wrong Shard"
"""Code of an attempt whose aggregate landed across a reshard."""


class Pause(NamedTuple):
    """Time in which a worker could not do its work.

    Attributes:
        begin: When it began.
        end: When its effects were over.
        cause: ``freeze`` (SIGSTOP), ``stall`` (the machine gave it no time) or ``wire`` (its calls failed).
    """

    begin: float
    end: float
    cause: str


@dataclass
class ProducerLife:
    """One producer process.

    Attributes:
        name: Its name.
        first: Number of its first record; the others follow.
        ordered: Whether it promises the order of each key.
        count: Records that it put, once it said so at an orderly end.
        killed_at: When it was killed.
    """

    name: str
    first: int
    ordered: bool = False
    count: int | None = None
    killed_at: float | None = None


@dataclass
class WorkerLife:
    """One worker process.

    Attributes:
        name: Its worker id.
        killed_at: When it was killed.
        pauses: When it was frozen, or stood still by itself.
    """

    name: str
    killed_at: float | None = None
    pauses: list[Pause] = field(default_factory=list)


@dataclass
class Acquisition:
    """A worker's hold on a lease, from ``initialize`` on.

    Attributes:
        worker: The worker.
        number: Which of its acquisitions.
        shard_id: The shard.
        start: Checkpoint that it was given.
        at: When ``initialize`` was called.
        checkpoints: (when the call returned, position), in order.
        failures: When checkpoints failed; the batch is then delivered again.
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
    """Something that must not be.

    Attributes:
        kind: One of the kinds that the checks name, for counting.
        text: What and where.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Event(NamedTuple):
    """Something that was done on the way, for people.

    Attributes:
        at: When (wall clock).
        kind: ``kill``, ``stop``, ``freeze``, ``reshard``, ``wire``, ``end`` or ``lost``.
        text: In words.
        seconds: How long it lasts.
    """

    at: float
    kind: str
    text: str
    seconds: float = 0.0


class Sample(NamedTuple):
    """How far everything was at an instant.

    Attributes:
        at: Wall clock.
        put: Records put.
        acknowledged: Of these, acknowledged.
        processed: Different records processed.
        rss: Resident memory of each process, bytes.
        threads: Threads of each process.
    """

    at: float
    put: int
    acknowledged: int
    processed: int
    rss: Mapping[str, int]
    threads: Mapping[str, int]


class TableWatch:
    """Looks at the lease table while a run goes on: nothing in it may go back.

    Attributes:
        violations: What was seen so far.
        looks: How often it looked.
        vanished: Leases that were gone at a look and not finished at the one before: (when, key, position). Between two
            looks a shard may be finished and its lease be cleaned up, which its worker's log then says.
    """

    def __init__(self) -> None:
        self.vanished: list[tuple[float, str, ExtendedSequenceNumber]] = []
        self.violations: list[Violation] = []
        self.looks = 0
        self._rows: dict[str, Lease] = {}
        self._deleted: set[str] = set()

    def look(self, rows: Iterable[Lease], at: float) -> None:
        """Take in all rows of a consistent read that ended then."""
        self.looks += 1
        current = {row.lease_key: row for row in rows}
        for key, row in current.items():
            before = self._rows.get(key)
            if key in self._deleted:
                self._deleted.discard(key)
                self.violations.append(Violation("lease reappeared", f"{key} at {row.checkpoint}"))
            if before is None:
                continue
            if row.checkpoint < before.checkpoint:
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
class History:
    """A whole run.

    Attributes:
        puts: What producers know about each record: acknowledged, or failed (no position).
        moved: Numbers of records of which a copy landed across a reshard, so that they were put again.
        retries: Records by the code of a failed attempt.
        producers: By name.
        workers: By name.
        deliveries: In any order.
        acquisitions: By worker and number.
        corrupt: What workers said about records that are not what was put.
        everybody: Pauses of all workers at once: of the wire, or of the machine.
        watch: What became of the lease table meanwhile.
        shards: All shards of the stream at the end, by id.
        rows: The lease table at the end, after all workers stopped.
        failover_time: Of the workers.
    """

    puts: dict[int, Put] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    retries: Counter[str] = field(default_factory=Counter)
    producers: dict[str, ProducerLife] = field(default_factory=dict)
    workers: dict[str, WorkerLife] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    acquisitions: dict[tuple[str, int], Acquisition] = field(default_factory=dict)
    corrupt: list[str] = field(default_factory=list)
    everybody: list[Pause] = field(default_factory=list)
    watch: TableWatch = field(default_factory=TableWatch)
    shards: Mapping[str, Shard] = field(default_factory=dict)
    rows: Mapping[str, Lease] = field(default_factory=dict)
    failover_time: float = 10.0

    def pause_of(self, worker: str, begin: float, end: float) -> Pause | None:
        """Something that kept a worker from its work at any time between two instants."""
        pauses = [*self.workers[worker].pauses, *self.everybody]
        return next((p for p in pauses if p.begin <= end and p.end >= begin), None)

    def producer_of(self, number: int) -> ProducerLife | None:
        """The producer whose record has this number."""
        for life in self.producers.values():
            if life.first <= number < life.first + STRIDE:
                return life
        return None
