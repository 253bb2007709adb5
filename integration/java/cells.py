"""A column of the matrix: every consumer reads one stream at once, each with its own application."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from integration.java.books import Books, audit
from integration.java.evidence import TableWatch, wait_for
from integration.java.processes import METRICS, Stage, WorkerProcess
from integration.java.scenes import QUARTER, everything_arrived, make_leases, open_shards
from tests import HANG

SUCCESSORS: Mapping[str, str] = {"ours": "2.7.2", "2.7.2": "ours", "3.1.3": "ours", "3.5.1": "ours"}
"""The kind of consumer that continues from the checkpoints of a killed one."""


class Cells:
    """Every consumer of the matrix on one stream of two shards. Each checkpoints every batch at a random record.

    Attributes:
        applications: By consumer.
        workers: Workers of each application, by consumer: the creator of the leases, the consumer, its successor.
    """

    def __init__(self, stage: Stage, stream: str) -> None:
        self._stage = stage
        self._stream = stream
        stage.kinesis.create_stream(StreamName=stream, ShardCount=2)
        self.applications = {kind: f"{stream}-{kind.replace('.', '-')}" for kind in SUCCESSORS}
        self.workers: dict[str, list[WorkerProcess]] = {}
        for kind, application in self.applications.items():
            maker = make_leases(stage, stream, application, 2, worker_metrics=METRICS.get(kind, "off"))
            self.workers[kind] = [maker]
        self._watches = {kind: TableWatch(stage, name) for kind, name in self.applications.items()}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch every lease table for the length of a with statement."""
        with contextlib.ExitStack() as stack:
            for watch in self._watches.values():
                stack.enter_context(watch)
            yield

    def _start(self, kind: str, application: str, name: str, metrics: str) -> WorkerProcess:
        """Start a consumer. One of ours cleans up its table every second."""
        if kind == "ours":
            settings: dict[str, Any] = {"worker_metrics": metrics, "lease_cleanup_interval": 1.0}
            return self._stage.start_ours(f"{name}-ours", self._stream, application, middle=1.0, **settings)
        return self._stage.start_worker(f"{name}-java", self._stream, application, version=kind, middle=1.0)

    def start(self) -> None:
        """Start every consumer."""
        for kind, application in self.applications.items():
            metrics = METRICS.get(kind, "off")
            self.workers[kind].append(self._start(kind, application, "first", metrics))

    def _told(self) -> dict[str, str]:
        return {
            f"{kind}: {worker.name}": worker.process.tail(6)
            for kind, parts in self.workers.items()
            for worker in parts[1:]
        }

    def wait_for_all(self, what: str, condition: Callable[[str], object]) -> None:
        """Wait until a condition holds for each consumer."""
        began = time.monotonic()
        for kind in self.workers:
            wait_for(lambda kind=kind: condition(kind), HANG, lambda kind=kind: (kind, what, self._told()))
            print(f"{kind}: {what} after {time.monotonic() - began:.1f} s", flush=True)

    def work(self) -> None:
        """Wait until every consumer has processed something."""
        self.wait_for_all("works", lambda kind: self.workers[kind][1].events("processed"))

    def _shards(self, kind: str, event: str) -> int:
        return len({one["shard"] for worker in self.workers[kind] for one in worker.events(event)})

    def split_and_merge(self, quarter: int = QUARTER) -> None:
        """Split the first shard and merge its halves; wait until every consumer reads the two shards that remain."""
        stage, stream = self._stage, self._stream
        first = open_shards(stage, stream)[0]["ShardId"]
        stage.kinesis.split_shard(StreamName=stream, ShardToSplit=first, NewStartingHashKey=str(quarter))
        time.sleep(3)
        left, right = (shard["ShardId"] for shard in open_shards(stage, stream)[-2:])
        stage.kinesis.merge_shards(StreamName=stream, ShardToMerge=left, AdjacentShardToMerge=right)
        self.wait_for_all(
            "has seen three shards to their end, and works on the two that follow",
            lambda kind: (self._shards(kind, "shard_ended"), self._shards(kind, "processed")) == (3, 5),
        )

    def replace(self) -> dict[str, dict[str, Any]]:
        """Kill every consumer and start its successor; return the other items in KCL 3.5's table at that time."""
        left = {}
        for kind, parts in self.workers.items():
            parts[1].kill()
            if kind == "3.5.1":
                left = self.foreign()
            metrics = METRICS.get(kind, "off")
            parts.append(self._start(SUCCESSORS[kind], self.applications[kind], "second", metrics))
        self.wait_for_all(
            "has a successor", lambda kind: len(self.workers[kind][2].events("initialize")) >= 2
        )
        return left

    def foreign(self) -> dict[str, dict[str, Any]]:
        """Return KCL 3.5's items that nothing writes once its only worker is dead."""
        items = self._stage.foreign(self.applications["3.5.1"])
        return {key: item for key, item in items.items() if not key.endswith("-ours")}

    def finish(self, producer: str, acknowledged: Mapping[str, AbstractSet[str]]) -> dict[str, Books]:
        """Wait until each consumer has delivered `acknowledged`; raise AssertionError if anything is wrong."""
        found = {}
        for kind, parts in self.workers.items():
            wanted = acknowledged[kind]
            everything_arrived(lambda wanted=wanted: wanted, parts)
            found[kind] = books = audit(self._stage, self._stream, parts, wanted)
            print(f"{producer} x {kind}: {books}")
            assert not books.faults, books.faults
            assert not self._watches[kind].faults, self._watches[kind].faults
            assert books.resumed >= 2, "both living shards went on behind what the killed worker had stored"
        assert any(books.resumed_inside for books in found.values()), "most of them inside an aggregate"
        return found
