"""Evidence of a run from two sides: the lease table, polled frequently, and the workers' logs."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from integration.java.processes import Stage, WorkerProcess

_POLL_SECONDS = 0.1
_SENTINELS = {"AT_TIMESTAMP": -3, "TRIM_HORIZON": -2, "LATEST": -1}


class Delivery(NamedTuple):
    """One delivery of a user record to a worker."""

    t: float
    worker: str
    shard: str
    number: int
    sub: int
    data: str
    key: str


def deliveries(workers: Iterable[WorkerProcess]) -> list[Delivery]:
    """Return all deliveries, by time."""
    found = [
        Delivery(event["t"], event["worker"], event["shard"], int(number), sub, data, key)
        for worker in workers
        for event in worker.events("records")
        for number, sub, data, key in event["records"]
    ]
    return sorted(found, key=lambda delivery: delivery.t)


class Tenure(NamedTuple):
    """From a worker's `initialize` for a shard to the end of its last batch or callback."""

    begin: float
    end: float
    worker: str


def tenures(workers: Iterable[WorkerProcess]) -> dict[str, list[Tenure]]:
    """Return the tenures of workers by shard and time. A shard that returns to a worker starts a new tenure."""
    found: dict[str, list[Tenure]] = defaultdict(list)
    for worker in workers:
        current: dict[str, Tenure] = {}
        for event in sorted(worker.events(), key=lambda event: event["t"]):
            shard = event["shard"]
            if event["event"] == "initialize":
                if shard in current:
                    found[shard].append(current[shard])
                current[shard] = Tenure(event["t"], event["t"], worker.name)
            # A lost lease is logged late, possibly when another worker already has the shard.
            elif event["event"] != "lease_lost":
                current[shard] = current[shard]._replace(end=event["t"])
        for shard, tenure in current.items():
            found[shard].append(tenure)
    return {shard: sorted(parts) for shard, parts in found.items()}


def overlaps(workers: Iterable[WorkerProcess]) -> list[tuple[str, Tenure, Tenure]]:
    """Return the shards on which two workers worked at the same time."""
    return [
        (shard, first, second)
        for shard, parts in tenures(workers).items()
        for first, second in itertools.pairwise(parts)
        if second.begin < first.end
    ]


def duplicates(found: Iterable[Delivery]) -> dict[str, int]:
    """Return the data of records that were delivered more than once, and how often."""
    counts = Counter(delivery.data for delivery in found)
    return {data: count for data, count in counts.items() if count > 1}


def disorder(found: Iterable[Delivery]) -> list[Delivery]:
    """Return first deliveries that came after a later record of their shard."""
    seen: set[tuple[str, int, int]] = set()
    latest: dict[str, tuple[int, int]] = {}
    wrong = []
    for delivery in found:
        place = (delivery.number, delivery.sub)
        if (delivery.shard, *place) in seen:
            continue
        seen.add((delivery.shard, *place))
        if place < latest.get(delivery.shard, (-1, -1)):
            wrong.append(delivery)
        latest[delivery.shard] = max(place, latest.get(delivery.shard, place))
    return wrong


def position_of(item: Mapping[str, Any]) -> tuple[float, int]:
    """Return a row's checkpoint as a sortable position."""
    text = item["checkpoint"]["S"]
    if text == "SHARD_END":
        return float("inf"), 0
    return _SENTINELS[text] if text in _SENTINELS else int(text), int(
        item["checkpointSubSequenceNumber"]["N"]
    )


class Change(NamedTuple):
    """A row whose owner or handoff request changed between two polls, a tenth of a second apart."""

    t: float
    shard: str
    owner: str | None
    marker: str | None


class TableWatch:
    """Polls a lease table from its own thread, and records forbidden changes. A context manager.

    Attributes:
        changes: Changes of owners, by time.
        faults: Counters and checkpoints that went down.
    """

    def __init__(self, stage: Stage, application: str) -> None:
        self._stage = stage
        self._application = application
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="table-watch", daemon=True)
        self.changes: list[Change] = []
        self.faults: list[str] = []
        self.error: Exception | None = None
        self.rows: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> TableWatch:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(_POLL_SECONDS):
                self._look()
        except Exception as error:  # noqa: BLE001 - told by `holders`
            self.error = error

    def _look(self) -> None:
        rows = self._stage.rows(self._application)
        now = time.monotonic()
        for shard, row in rows.items():
            former = self.rows.get(shard)
            owner, marker = (row.get(name, {}).get("S") for name in ("leaseOwner", "checkpointOwner"))
            if former is None or (owner, marker) != tuple(
                former.get(name, {}).get("S") for name in ("leaseOwner", "checkpointOwner")
            ):
                self.changes.append(Change(now, shard, owner, marker))
            if former is None:
                continue
            if int(row["leaseCounter"]["N"]) < int(former["leaseCounter"]["N"]):
                self.faults.append(f"{shard}: the counter went down")
            if position_of(row) < position_of(former):
                self.faults.append(f"{shard}: the checkpoint went back")
        self.rows = rows

    def holders(self) -> dict[str, str | None]:
        """Return the holder of each unfinished lease; None if it is unowned or in handoff."""
        if self.error is not None:
            raise self.error
        return {
            shard: None if "checkpointOwner" in row else row.get("leaseOwner", {}).get("S")
            for shard, row in self.rows.items()
            if row["checkpoint"]["S"] != "SHARD_END"
        }

    def counts(self) -> dict[str | None, int]:
        """Return the number of unfinished leases that each worker holds."""
        return dict(Counter(self.holders().values()))

    def moves_since(self, moment: float) -> list[Change]:
        """Return the changes of owners after a time."""
        return [change for change in self.changes if change.t > moment]


def wait_for(condition: Any, seconds: float, what: str) -> float:
    """Wait until a condition holds; return the seconds it took, or raise AssertionError after `seconds`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.1)
    return time.monotonic() - began
