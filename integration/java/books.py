"""Accounting of a run: the content of a stream against the deliveries of workers of any kind.

Only facts that do not depend on the machine's load are faults: a missing record, a record at the wrong position, a worker that
did not start right after the position it was given, or was given an older position than one already stored. Repeated
deliveries follow from these; they are counted by how the former worker ended.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aws_kinesis_agg.deaggregator import messages_pb2

from integration.java.processes import Stage, WorkerProcess
from integration.stored import stored_in_shard, stored_shards

_MAGIC = b"\xf3\x89\x9a\xc2"
_SENTINELS = {"TRIM_HORIZON": (-1, 0)}


class Record(NamedTuple):
    """A user record of a stream.

    Attributes:
        number, sub: Its position in the shard.
        data: Its text.
        optional: Whether its aggregate also holds a record of another shard, so that a KCL that knows the shard drops it.
    """

    number: int
    sub: int
    data: str
    optional: bool

    @property
    def place(self) -> tuple[int, int]:
        """Its position in the shard."""
        return self.number, self.sub


@dataclass
class Acquisition:
    """A worker's work on a shard, from one `initialize` on.

    Attributes:
        shard, worker, begin: The shard, the worker, and the time of the start.
        position: Position from which it started.
        delivered: Positions and data, in order.
        stored: Positions that it checkpointed, by time.
        ended: ``"stopped"`` if it checkpointed and released the lease, ``"finished"`` at the shard's end, else ``"lost"``
            (taken, or killed).
        was_told: Whether a checkpoint was rejected, or its handler called because the lease was lost.
    """

    shard: str
    worker: str
    begin: float
    position: tuple[int, int]
    delivered: list[tuple[float, tuple[int, int], str]] = field(default_factory=list)
    stored: list[tuple[float, tuple[int, int]]] = field(default_factory=list)
    ended: str = "lost"
    was_told: bool = False

    @property
    def is_late(self) -> bool:
        """Whether the worker learned that it had lost the lease before it could store anything.

        KCL 2.x takes leases without asking. The former owner may have read the checkpoint already, and call `initialize`
        after the new owner has stored newer ones. Its deliveries are then duplicates, and none of its checkpoints counts.
        """
        return self.was_told and not self.stored


def _place(position: Sequence[Any]) -> tuple[int, int]:
    number, sub = position
    return _SENTINELS.get(number) or (int(number), int(sub))


def acquisitions(workers: Iterable[WorkerProcess]) -> dict[str, list[Acquisition]]:
    """Return what each worker did with each shard, by shard and time."""
    found: dict[str, list[Acquisition]] = defaultdict(list)
    for worker in workers:
        current: dict[str, Acquisition] = {}
        for event in sorted(worker.events(), key=lambda event: event["t"]):
            shard, kind = event["shard"], event["event"]
            if kind == "initialize":
                current[shard] = Acquisition(shard, worker.name, event["t"], _place(event["position"]))
                found[shard].append(current[shard])
                continue
            acquisition = current.get(shard)
            if acquisition is None:
                continue  # The KCL lost the lease before it could initialize anything.
            if kind == "records":
                acquisition.delivered += [
                    (event["t"], (int(number), sub), data) for number, sub, data, _ in event["records"]
                ]
            elif kind == "processed" and "position" in event:
                acquisition.stored.append((event["t"], _place(event["position"])))
            elif kind in {"shutdown_requested", "shard_ended"}:
                acquisition.ended = "stopped" if kind == "shutdown_requested" else "finished"
            elif kind in {"refused", "lease_lost"} and acquisition.ended == "lost":
                acquisition.was_told = True
    return {shard: sorted(parts, key=lambda acquisition: acquisition.begin) for shard, parts in found.items()}


def read_stream(stage: Stage, stream: str) -> dict[str, list[Record]]:
    """Return the whole content of a stream, by shard. A library that is not ours opens the aggregates."""
    return {
        shard["ShardId"]: list(_read_shard(stage, stream, shard))
        for shard in stored_shards(stage.kinesis, stream)
    }


def _read_shard(stage: Stage, stream: str, shard: Mapping[str, Any]) -> Iterable[Record]:
    low, high = (int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
    for record in stored_in_shard(stage.kinesis, stream, shard["ShardId"]):
        yield from _open(record, low, high)


def _open(record: Mapping[str, Any], low: int, high: int) -> Iterable[Record]:
    blob, number = record["Data"], int(record["SequenceNumber"])
    if not blob.startswith(_MAGIC) or hashlib.md5(blob[4:-16]).digest() != blob[-16:]:
        yield Record(number, 0, blob.decode(), optional=False)
        return
    aggregate = messages_pb2.AggregatedRecord.FromString(blob[4:-16])

    def hash_key(entry: Any) -> int:
        if entry.HasField("explicit_hash_key_index"):
            return int(aggregate.explicit_hash_key_table[entry.explicit_hash_key_index])
        key = aggregate.partition_key_table[entry.partition_key_index].encode()
        return int.from_bytes(hashlib.md5(key).digest(), "big")

    optional = any(not low <= hash_key(entry) <= high for entry in aggregate.records)
    for sub, entry in enumerate(aggregate.records):
        yield Record(number, sub, entry.data.decode(), optional)


@dataclass
class Books:
    """The result.

    Attributes:
        faults: Everything that is wrong.
        acknowledged: Number of records acknowledged to the producer.
        stored_again: Records that the stream holds more than once: aggregates across a reshard.
        resumed, resumed_inside: How often a worker started after another's checkpoint, and how often inside an aggregate.
        again: Records delivered again, by how the former worker ended.
        transitions: Changes of the worker, by how the former one ended.
        late: How often a worker started with a lease that had been taken from it; see `Acquisition.is_late`.
    """

    faults: list[str] = field(default_factory=list)
    acknowledged: int = 0
    stored_again: int = 0
    resumed: int = 0
    resumed_inside: int = 0
    again: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)
    late: int = 0

    def __str__(self) -> str:
        again = ", ".join(f"{count} after {how}" for how, count in sorted(self.again.items())) or "none"
        moves = ", ".join(f"{count} {how}" for how, count in sorted(self.transitions.items())) or "none"
        return (
            f"{self.acknowledged:,} acknowledged records, {len(self.faults)} faults; stored twice: {self.stored_again};"
            f" resumed behind a checkpoint: {self.resumed} ({self.resumed_inside} inside aggregates);"
            f" changes of the worker: {moves}; delivered again: {again}; began too late: {self.late}"
        )


def keep(
    held: Mapping[str, Sequence[Record]],
    parents: Mapping[str, Iterable[str]],
    acknowledged: Iterable[str],
    found: Mapping[str, Sequence[Acquisition]],
) -> Books:
    """Compare the stream's content with the deliveries.

    Args:
        held: Content of the stream, by shard, in order.
        parents: By shard, the shards whose records must come before its own.
        acknowledged: Data of the acknowledged records.
        found: What workers did.
    """
    books = Books()
    wanted = set(acknowledged)
    books.acknowledged = len(wanted)
    everything = Counter(record.data for records in held.values() for record in records)
    books.stored_again = sum(count - 1 for count in everything.values())
    delivered = {
        data for parts in found.values() for acquisition in parts for _, _, data in acquisition.delivered
    }
    missing = wanted - delivered
    if missing:
        books.faults.append(f"{len(missing)} acknowledged records are missing: {sorted(missing)[:5]}")
    for shard, parts in found.items():
        records = held.get(shard, ())
        for acquisition in parts:
            _check_run(books, acquisition, records)
        owners = [acquisition for acquisition in parts if not acquisition.is_late]
        books.late += len(parts) - len(owners)
        for number in range(1, len(owners)):
            _check_transition(books, owners[:number], owners[number], records)
    _check_parents(books, parents, found)
    return books


def _check_run(books: Books, acquisition: Acquisition, records: Sequence[Record]) -> None:
    """Check that a worker delivered the records after its position one by one; only optional records can be missing."""
    where = f"{acquisition.shard} at {acquisition.worker} from {acquisition.position}"
    following = iter([record for record in records if record.place > acquisition.position])
    for _, place, data in acquisition.delivered:
        expected = next(following, None)
        while expected is not None and expected.optional and expected.place != place:
            expected = next(following, None)
        if expected is None or (expected.place, expected.data) != (place, data):
            books.faults.append(f"{where}: {data} at {place}, where {expected} follows")
            return


def _check_transition(
    books: Books, former: Sequence[Acquisition], acquisition: Acquisition, records: Sequence[Record]
) -> None:
    last = former[-1]
    books.transitions[last.ended] += 1
    stored = [place for one in former for t, place in one.stored if t < acquisition.begin]
    if stored and acquisition.position < max(stored):
        books.faults.append(
            f"{acquisition.shard}: {acquisition.worker} began at {acquisition.position}, and {max(stored)} was stored before"
        )
    before = {place for one in former for _, place, _ in one.delivered}
    # A worker may be killed after its checkpoint was stored and before it logged that.
    if acquisition.position in before:
        books.resumed += 1
        behind = next((record for record in records if record.place > acquisition.position), None)
        books.resumed_inside += behind is not None and behind.number == acquisition.position[0]
    elif acquisition.position not in _SENTINELS.values():
        books.faults.append(
            f"{acquisition.shard}: {acquisition.worker} began at {acquisition.position}, which no worker had delivered"
        )
    # The last worker that delivered the record decides; one in between may have stopped without any delivery.
    latest = {place: one for one in former for _, place, _ in one.delivered}
    again = Counter(latest[place].ended for _, place, _ in acquisition.delivered if place in latest)
    books.again.update(again)
    if again["stopped"]:
        books.faults.append(
            f"{acquisition.shard}: {acquisition.worker} delivered {again['stopped']} records again that were delivered by a worker "
            "that had stopped in order"
        )


def _check_parents(
    books: Books, parents: Mapping[str, Iterable[str]], found: Mapping[str, Sequence[Acquisition]]
) -> None:
    """Check that each record of a parent is first delivered before any record of its children."""
    for shard, above in parents.items():
        times = [t for acquisition in found.get(shard, ()) for t, _, _ in acquisition.delivered]
        for parent in above:
            first: dict[tuple[int, int], float] = {}
            for acquisition in found.get(parent, ()):
                for t, place, _ in acquisition.delivered:
                    first[place] = min(t, first.get(place, t))
            if times and first and min(times) < max(first.values()):
                books.faults.append(f"{shard} began before the end of its parent {parent}")


def parents(stage: Stage, stream: str) -> dict[str, list[str]]:
    """Return each shard's parents."""
    return {
        shard["ShardId"]: [
            shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if name in shard
        ]
        for shard in stored_shards(stage.kinesis, stream)
    }


def audit(stage: Stage, stream: str, workers: Sequence[WorkerProcess], acknowledged: Iterable[str]) -> Books:
    """Return the account of a run that has ended."""
    return keep(read_stream(stage, stream), parents(stage, stream), acknowledged, acquisitions(workers))
