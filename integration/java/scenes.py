"""Helpers for tests with several workers: a fleet of both kinds on one lease table."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from integration.java.books import Books, audit
from integration.java.evidence import Delivery, TableWatch, deliveries, overlaps, wait_for
from integration.java.load import Load
from integration.java.processes import METRICS, PATIENT, Stage, WorkerProcess
from tests import HANG

QUARTER = 1 << 126
"""The hash key that halves the lower one of two shards."""


def open_shards(stage: Stage, stream: str) -> list[dict[str, Any]]:
    """Return the open shards of a stream."""
    shards = stage.kinesis.list_shards(StreamName=stream)["Shards"]
    return [shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]


def split_and_merge(stage: Stage, stream: str) -> None:
    """Split the first shard of two, and merge the halves again, each under load."""
    first = open_shards(stage, stream)[0]["ShardId"]
    for reshard in (
        lambda: stage.kinesis.split_shard(
            StreamName=stream, ShardToSplit=first, NewStartingHashKey=str(QUARTER)
        ),
        lambda: stage.kinesis.merge_shards(
            StreamName=stream,
            ShardToMerge=open_shards(stage, stream)[-2]["ShardId"],
            AdjacentShardToMerge=open_shards(stage, stream)[-1]["ShardId"],
        ),
    ):
        reshard()
        time.sleep(3)


def make_leases(stage: Stage, stream: str, application: str, shards: int, **config: Any) -> WorkerProcess:
    """Let a worker of ours create the table and the leases, and stop it: a Java worker takes a minute or two for that."""
    maker = stage.start_ours("maker", stream, application, **config)
    wait_for(lambda: len(stage.rows(application)) == shards, HANG, maker.process.tail)
    maker.stop()
    return maker


def everything_arrived(
    acknowledged: Callable[[], AbstractSet[str]], workers: Sequence[WorkerProcess], seconds: float = 120
) -> list[Delivery]:
    """Wait until every acknowledged record was delivered; return all deliveries."""
    found: list[Delivery] = []

    def missing() -> set[str]:
        found[:] = deliveries(workers)
        return acknowledged() - {one.data for one in found}

    wait_for(
        lambda: not missing(),
        seconds,
        lambda: f"{len(missing())} records are missing: {sorted(missing())[:5]}",
    )
    return found


def only(watch: TableWatch, *names: str) -> Callable[[], bool]:
    """Return whether each of these workers holds a lease, and no other worker does."""
    return lambda: bool(watch.holders()) and set(watch.holders().values()) == set(names)


class Fleet:
    """Workers of one application: a version of the KCL, and ours. Each checkpoints some batches in the middle.

    Args:
        stage: The account.
        name: Name of the stream and of the application.
        shards: Number of shards of the stream, which is created with its leases.
        version: Version of the Java workers, and of the fleet that ours are told to join.

    Attributes:
        watch: The lease table, once `begin` was called.
    """

    def __init__(self, stage: Stage, name: str, shards: int, version: str) -> None:
        self.stage = stage
        self.name = name
        self.version = version
        self.metrics = METRICS[version]
        stage.kinesis.create_stream(StreamName=name, ShardCount=shards)
        self.workers = [make_leases(stage, name, name, shards, worker_metrics=self.metrics)]
        self.watch = TableWatch(stage, name)
        self._began = time.monotonic()

    def java(self, name: str, **settings: Any) -> WorkerProcess:
        """Start a Java worker with the KCL's own intervals. The settings are `Stage.start_worker`'s."""
        settings = {"version": self.version, "middle": 0.3, "properties": PATIENT, **settings}
        self.workers.append(self.stage.start_worker(name, self.name, self.name, **settings))
        return self.workers[-1]

    def two_javas(self) -> tuple[WorkerProcess, WorkerProcess]:
        """Start two Java workers, the second once the first has leases.

        If two workers of KCL 3.5.1 create the item `Migration3.0` at the same time, one never starts: it logs
        "AssignmentMode is not initialized" twenty times and ends.
        """
        first = self.java("java-1")
        self.wait(lambda: first.events("initialize"), 300, "the first Java worker consumes")
        return first, self.java("java-2")

    def ours(self, name: str, **config: Any) -> WorkerProcess:
        """Start a worker of ours."""
        config = {"worker_metrics": self.metrics, "middle": 0.3, **config}
        self.workers.append(self.stage.start_ours(name, self.name, self.name, **config))
        return self.workers[-1]

    def say(self, text: str) -> None:
        """Print a figure with its time since the start."""
        print(f"  {time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def told(self) -> dict[str, object]:
        """Return what may explain a wait that does not end."""
        tails: dict[str, object] = {worker.name: worker.process.tail(6) for worker in self.workers[1:]}
        return {"holders": self.watch.holders(), **tails}

    def wait(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Wait for a condition, and print how long it took."""
        took = wait_for(condition, seconds, lambda: (what, self.told()))
        self.say(f"{what}: after {took:.1f} s")

    def held_only_by(self, *workers: WorkerProcess) -> Callable[[], bool]:
        """Return whether each of these workers holds a lease, and no other worker does."""
        return only(self.watch, *(worker.name for worker in workers))

    def held_within(self, *workers: WorkerProcess) -> Callable[[], bool]:
        """Return whether every lease is held by one of these workers.

        In KCL 2.x finished leases count as shares, so one of two workers may hold only finished leases for minutes.
        """
        names = {worker.name for worker in workers}
        return lambda: bool(self.watch.holders()) and set(self.watch.holders().values()) <= names

    def held_by(self, worker: WorkerProcess) -> list[str]:
        """Return the unfinished leases of a worker."""
        return sorted(shard for shard, name in self.watch.holders().items() if name == worker.name)

    def rest(self, quiet: float, seconds: float, *, equal: Sequence[WorkerProcess] = ()) -> None:
        """Wait until no lease has changed its owner for `quiet` seconds, with equal shares for some workers.

        Raises AssertionError if the fleet does not come to rest within `seconds`.
        """
        began = time.monotonic()

        def at_rest() -> bool:
            now = time.monotonic()
            counts = self.watch.counts()
            shares = {counts.get(worker.name) for worker in equal}
            return len(shares) <= 1 and now - began > quiet and not self.watch.moves_since(now - quiet)

        wait_for(at_rest, seconds, lambda: (self.watch.moves_since(began), self.told()))
        moves = [change for change in self.watch.moves_since(began) if change.owner is not None]
        self.say(f"at rest for {quiet:g} s, {len(moves)} changes of owner before; {self.watch.counts()}")

    def split(self, shard: str) -> None:
        """Split a shard in the middle."""
        (one,) = [one for one in open_shards(self.stage, self.name) if one["ShardId"] == shard]
        low, high = (int(one["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
        self.stage.kinesis.split_shard(
            StreamName=self.name, ShardToSplit=shard, NewStartingHashKey=str((low + high) // 2 + 1)
        )

    def merge_across(self, first: Sequence[str], second: Sequence[str]) -> tuple[str, str] | None:
        """Merge two neighbours with different sides as owners; None if there are none."""
        shards = sorted(
            open_shards(self.stage, self.name), key=lambda one: int(one["HashKeyRange"]["StartingHashKey"])
        )
        for left, right in itertools.pairwise(shards):
            pair = left["ShardId"], right["ShardId"]
            if any(pair[0] in one and pair[1] in other for one, other in ((first, second), (second, first))):
                self.stage.kinesis.merge_shards(
                    StreamName=self.name, ShardToMerge=pair[0], AdjacentShardToMerge=pair[1]
                )
                return pair
        return None

    def leased(self) -> bool:
        """Whether exactly the open shards have unfinished leases, each with an owner."""
        wanted = {one["ShardId"] for one in open_shards(self.stage, self.name)}
        return self.watch.holders().keys() == wanted and None not in self.watch.holders().values()

    def finish(self, *loads: Load, seconds: float = 120) -> Books:
        """After the loads have ended, wait for every record and print the account; raise AssertionError if anything is wrong."""
        acknowledged = {data for load in loads for data in load.stored}
        everything_arrived(lambda: acknowledged, self.workers, seconds)
        books = audit(self.stage, self.name, self.workers, acknowledged)
        self.say(str(books))
        both = overlaps(self.workers)
        longest = max((first.end - second.begin for _, first, second in both), default=0.0)
        self.say(f"shards that two worked on at a time: {len(both)}, {longest:.1f} s at most")
        assert not books.faults, books.faults
        assert not self.watch.faults, self.watch.faults
        return books
