"""Random schedules of the real producer and the real rules of readers, in virtual time, judged by the oracle.

The producer is the pipeline of `tests.producer.simulation`, the service is the fake, and each shard is read by owners that
begin anywhere, die anywhere, and read again what their handler failed on. Nothing here knows how repetitions are recognized: the oracle
compares payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.once.reader import RunReader
from kinesis_sdk.common.once.shell import carry_out
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.testing import Fault
from kinesis_sdk.testing.accounting.stored_copies import CopyPosition, deliveries, read_copies
from tests.exactly_once.oracle import Patient
from tests.producer.simulation import STREAM, Simulation, run_together
from tests.producer.stream.schedules import reshard

LATEST_STORE = 250.0
"""Seconds after which the last late write is stored. Copies that are farther apart than 900 s are not recognized."""

PUTS: tuple[dict[str, Any], ...] = (
    {"kind": "timeout_after_storing", "probability": 0.5},
    {"kind": "timeout_before_storing", "probability": 0.4},
    {"kind": "late_store", "probability": 0.5},
    {"kind": "late_store", "probability": 0.4, "code": "InternalFailure"},
    {"kind": "late_store", "probability": 0.4, "status": 503, "code": "ServiceUnavailable"},
    {"kind": "partial", "probability": 0.4},
    {"kind": "partial", "probability": 0.4, "code": "InternalFailure"},
    {"kind": "partial", "probability": 0.4, "code": "InternalFailure", "late": True},
    {"kind": "throttle", "probability": 0.4},
    {"kind": "error", "probability": 0.3},
    {"kind": "early_arrival", "probability": 0.3, "seconds": 0.9},
)
"""Faults of PutRecords."""


class _WithAnyClock(Simulation):
    """A producer whose clock may be ahead of the service's, which the simulation otherwise checks at each attempt."""

    def check_attempt(self, entries: list[Entry]) -> None:
        """Check nothing."""


@dataclass
class Outcome:
    """What became of a schedule.

    Attributes:
        expected: Positions at which each payload is delivered, by the oracle.
        delivered: Positions at which it was delivered, by all owners.
        acknowledged: Payloads that producers acknowledged.
        idempotent: Payloads of idempotent producers.
        repeated: Number of copies in the stream beyond the first of each payload of an idempotent producer.
    """

    expected: dict[bytes, set[CopyPosition]]
    delivered: dict[bytes, set[CopyPosition]] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    idempotent: set[bytes] = field(default_factory=set)
    repeated: int = 0


def play(seed: int, **more: Any) -> Outcome:
    """Play a schedule and read its stream, drawn from its seed alone; see `produce`."""
    simulation, outcome, random = produce(seed, **more)
    for shard in list_shards(simulation.client, simulation.stream):
        _ShardReading(simulation, shard, random, outcome).run()
    return outcome


def produce(
    seed: int,
    *,
    date_offset: Callable[[Random], float | None] = lambda random: 0.0,
    idempotent: bool = True,
    only_late: bool = False,
) -> tuple[Simulation, Outcome, Random]:
    """Play a schedule up to the moment at which all is stored; nothing is delivered yet.

    Args:
        seed: The seed.
        date_offset: Draws by how much the ``Date`` header is off, in seconds; None for no header.
        idempotent: Whether the first producer is idempotent; the second one is not.
        only_late: Whether every request is stored late, after its repetition.
    """
    random = Random(seed)
    first = _WithAnyClock(
        _config(random, idempotent=idempotent),
        shards=random.choice([1, 1, 2, 3]),
        seed=seed,
        latency=random.choice([0.01, 0.05, 0.5]),
        balanced=False,
    )
    simulations: list[Simulation] = [first]
    if random.random() < 0.3:
        simulations.append(
            _WithAnyClock(_config(random, idempotent=False), seed=seed, beside=first, balanced=False)
        )
    offset = date_offset(random)
    first.aws.date_offset = offset
    faults = (
        [dict(PUTS[2])] if only_late else [dict(one) for one in random.sample(PUTS, random.randrange(1, 4))]
    )
    for fault in faults:
        if fault["kind"] == "late_store" or fault.pop("late", False):
            fault["seconds"] = random.choice([0.5, 3.0, 5.0, 8.0, 40.0, LATEST_STORE])
        first.aws.faults.add(
            Fault(**fault, operation="PutRecords", count=random.choice([1, 3, 10]), after=random.randrange(3))
        )
    horizon = random.choice([0.5, 3.0, 10.0])
    # Half of the schedules reshard while most records are on their way, so that many of them are misplaced.
    is_stormy = random.random() < 0.5
    for place, simulation in enumerate(simulations):
        _plan_puts(simulation, place, random, 0.5 if is_stormy else horizon)
    for _ in range(random.randrange(1, 4) if is_stormy else random.randrange(3)):
        first.at(
            random.uniform(0.1, 1.5) if is_stormy else random.uniform(0, horizon + 8),
            partial(reshard, first, random),
        )
    run_together(simulations, first.clock.monotonic() + horizon + 140)
    assert all(record.done() for simulation in simulations for record in simulation.records)
    first.clock.advance(LATEST_STORE + 10)
    first.aws.faults.clear()
    first.aws.date_offset = 0.0

    copies = read_copies(Patient(first.client, first.clock), STREAM)
    expected = {name: set(found) for name, found in deliveries(copies, lambda data: data).items()}
    outcome = Outcome(expected)
    for simulation in simulations:
        for record, data in zip(simulation.records, simulation.payloads, strict=True):
            if record.exception() is None:
                outcome.acknowledged.add(data)
            if simulation.config.idempotent:
                outcome.idempotent.add(data)
    valid = [copy.data for copy in copies if copy.is_valid and copy.data in outcome.idempotent]
    outcome.repeated = len(valid) - len(set(valid))
    return first, outcome, random


def _config(random: Random, *, idempotent: bool) -> ProducerConfig:
    timeout = random.choice([0.5, 2.0, 6.0])
    return ProducerConfig(
        idempotent=idempotent,
        request_timeout=timeout,
        record_ttl=random.choice([4.0 + timeout, 30.0, 120.0]),
        aggregation_enabled=random.random() < 0.9,
        aggregation_max_count=random.choice([1, 3, 100]),
        record_max_buffered_time=random.choice([0.0, 0.1, 1.0]),
        ordering=random.choice(["none", "none", "per_shard"]),
    )


def _plan_puts(simulation: Simulation, place: int, random: Random, horizon: float) -> None:
    keys = random.choice([1, 4, 50])
    for number in range(random.randrange(1, 25)):
        data = b"%d of producer %d" % (number, place)
        key = f"k{random.randrange(keys)}"
        simulation.at(random.uniform(0, horizon), partial(_put, simulation, key, data))


def _put(simulation: Simulation, key: str, data: bytes) -> None:
    simulation.put(key, data)


def read_shard(simulation: Simulation, shard: Shard) -> list[KinesisRecord]:
    """Return all Kinesis records of a shard."""
    client = Patient(simulation.client, simulation.clock)
    iterator = client.get_shard_iterator(
        StreamName=STREAM, ShardId=shard.shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    page = client.get_records(ShardIterator=iterator)
    assert page["MillisBehindLatest"] == 0, "one page has all records of these schedules"
    return [KinesisRecord.from_api(record) for record in page["Records"]]


class _ShardReading:
    """Reads one shard by owners that end at random points."""

    def __init__(self, simulation: Simulation, shard: Shard, random: Random, outcome: Outcome) -> None:
        self._simulation, self._shard, self._random, self._outcome = simulation, shard, random, outcome
        self._records = read_shard(simulation, shard)
        self._reader = self._new_owner()
        # Kinesis record and user record at which the next owner begins.
        self._checkpoint = self._resume = (0, 0)

    def _new_owner(self) -> RunReader:
        parents = self._shard.parents
        return RunReader(
            STREAM,
            self._shard.shard_id,
            self._random.choice([self._shard.hash_key_range, None]),
            parents=self._random.choice([None, parents]),
            drops_equal=self._random.random() < 0.5,
        )

    def run(self) -> None:
        """Read to the end."""
        at = 0
        while at < len(self._records):
            batch = self._records[at : at + self._random.choice([1, 2, 5, 100])]
            positions = self._judge(batch, at)
            fate = self._random.random()
            if fate < 0.7:
                self._deliver(positions)
                at += len(batch)
                self._checkpoint = self._random.choice(
                    [self._checkpoint, *[place for place, *_ in positions], (at, 0)]
                )
                continue
            self._deliver(positions[: self._random.randrange(len(positions) + 1)])
            if fate < 0.85:
                # The handler failed: the same owner reads the batch again, and knows it already.
                continue
            self._reader = self._new_owner()
            self._resume = self._checkpoint
            at = self._checkpoint[0]

    def _judge(
        self, batch: Sequence[KinesisRecord], at: int
    ) -> list[tuple[tuple[int, int], bytes, CopyPosition]]:
        """Return what is delivered of a batch: place, payload, position."""
        simulation, reader = self._simulation, self._reader
        reader.begin(batch)
        users = deaggregate(batch, hash_key_range=self._shard.hash_key_range, on_tagged=reader.add)
        look_up = reader.look_up()
        if look_up is not None:
            carry_out(
                look_up,
                simulation.client,
                simulation.stream,
                self._shard.shard_id,
                clock=simulation.clock,
                sleep=simulation.clock.advance,
            )
        users = users.without(reader.decide(int(simulation.clock.time() * 1000)).dropped)
        places = {record.sequence_number: at + index for index, record in enumerate(batch)}
        found = [
            (
                (places[user.sequence_number], user.sub_sequence_number),
                user.data,
                CopyPosition(self._shard.shard_id, int(user.sequence_number), user.sub_sequence_number),
            )
            for user in users
        ]
        return [one for one in found if one[0] >= self._resume]

    def _deliver(self, positions: Sequence[tuple[tuple[int, int], bytes, CopyPosition]]) -> None:
        for _, data, position in positions:
            self._outcome.delivered.setdefault(data, set()).add(position)
