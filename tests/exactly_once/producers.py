"""Producer processes: real pipelines that are killed, begin again from their spool, and share the stream with others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.once.identity import Identity, resumed
from kinesis_sdk.common.once.names import Names
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.failures.hooks import FailedRecord
from kinesis_sdk.producer.failures.spool import FileSpool, read_spool
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.records.future import PendingRecord
from tests.consumer.fleet.engines import Fleet
from tests.producer.simulation import STREAM, Simulation

_NAMES = Names("orders")


@dataclass
class Put:
    """What a program wanted to store once.

    Attributes:
        data: Its payload, which no other one has.
        key: Its partition key.
        idempotent: Whether an idempotent producer put it.
        window: Seconds of its ``dedup_id``, if it has one; else 0.
        records: The futures: more than one if it was put again, by its name or from a spool.
        lane: Producer process and key, and its place there, if that process promises order; None if it does not, or if the record was put
            a second time.
    """

    data: bytes
    key: str
    idempotent: bool
    window: float = 0.0
    records: list[PendingRecord] = field(default_factory=list)
    lane: tuple[str, int] | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether its program was told that it is stored."""
        return any(record.done() and record.exception() is None for record in self.records)


class _Pipeline(Simulation):
    """A pipeline that the oracle alone judges: its clock may show anything."""

    def check_attempt(self, entries: list[Entry]) -> None:
        """Check nothing."""


class ProducerProcess:
    """A producer process on the timeline of a fleet.

    Args:
        name: Its name.
        seed: Of its pipeline; two processes with equal ones would draw equal incarnations.
        fleet: The stream and the timeline.
        config: Its settings.
        latency: Longest way of a request, in seconds.
        folder: Folder of its spool.
    """

    def __init__(
        self, name: str, seed: int, fleet: Fleet, config: ProducerConfig, latency: float, folder: Path
    ) -> None:
        self.name, self.config, self.fleet = name, config, fleet
        self.pipeline = _Pipeline(config, seed=seed, latency=latency, beside=fleet, balanced=False)  # type: ignore[arg-type]
        self.path = folder / f"{name}.jsonl"
        self.pipeline.on_failed = self._spool_failed
        self._spool = FileSpool(self.path, fsync="never", clock=fleet.clock)
        self.dead = False
        self._lanes: dict[str, int] = {}
        fleet.add_script(name, self._run)

    def _spool_failed(self, record: PendingRecord, error: BaseException) -> None:
        identity = None if record.identity is None else record.identity.shared
        self._spool(
            FailedRecord(STREAM, record.partition_key, record.explicit_hash_key, record.data, error, identity)
        )

    def _run(self, now: float) -> float:
        if self.dead:
            return float("inf")
        while self.pipeline.turn(now):
            """Go on until nothing is due."""
        return self.pipeline.upcoming(now)

    def kill(self) -> None:
        """End without warning: requests that have arrived may be stored, and the producer does not learn of it."""
        self.dead = True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return self.dead or (not self.pipeline.pipeline.pending.entries and not self.pipeline._events)

    def plan(self, moment: float, put: Put) -> None:
        """Put a record at a moment."""
        self.pipeline.at(moment, partial(self._put, put))
        self._wake(moment)

    def _wake(self, moment: float) -> None:
        alarm = self.fleet._members[self.name].alarm
        if alarm._moment is None or moment < alarm._moment:
            alarm.set(moment)

    def _put(self, put: Put) -> None:
        identity: Identity | None = None
        if put.window:
            identity = _NAMES.identity(put.data.decode(), put.window, hash_partition_key(put.key))
        elif self.config.ordering == "per_shard" and not put.records:
            place = self._lanes[put.key] = self._lanes.get(put.key, 0) + 1
            put.lane = f"{self.name} {put.key}", place
        else:
            put.lane = None
        put.records.append(self.pipeline.put(put.key, put.data, identity=identity))

    def resume(self, path: Path, puts: dict[bytes, Put]) -> int:
        """Put again what another process left in its spool, and return the number of records."""
        if not path.exists():
            return 0
        taken = path.with_suffix(".taken")
        path.rename(taken)
        now = self.fleet.clock.monotonic()
        number = 0
        for spooled in read_spool(taken):
            put = puts[spooled.data]
            put.lane = None
            identity = None if spooled.identity is None else resumed(spooled.identity, now)
            put.records.append(self.pipeline.put(put.key, put.data, identity=identity))
            number += 1
        taken.unlink()
        self._wake(now)
        return number


def draw_config(random: Random, *, idempotent: bool, ordered: bool) -> ProducerConfig:
    """Draw the settings of a producer."""
    timeout = random.choice([0.5, 2.0, 6.0])
    return ProducerConfig(
        idempotent=idempotent,
        request_timeout=timeout,
        record_ttl=random.choice([4.0 + timeout, 15.0, 30.0, 60.0]),
        aggregation_enabled=random.random() < 0.9,
        aggregation_max_count=random.choice([1, 3, 100]),
        record_max_buffered_time=random.choice([0.0, 0.1, 1.0]),
        ordering="per_shard" if ordered else "none",
    )
