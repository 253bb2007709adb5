"""A lease table in the hands of a test: workers write by the store's own transitions, the observer reads scans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kinesis_sdk.admin.fleet.model import FleetView, LeaseView
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table import transitions
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import TableScan

AT = 1_800_000_000.0


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


def even_shards(count: int, first: int = 0) -> list[Shard]:
    edges = [MAX_HASH_KEY * n // count for n in range(count + 1)]
    return [
        Shard(
            shard_id(first + n),
            HashKeyRange(edges[n] + (n > 0), edges[n + 1]),
            starting_sequence_number=str(1000 * (first + n)),
        )
        for n in range(count)
    ]


class Fleet:
    """A table, its stream and an observer, with a clock that the test moves.

    Args:
        shards: Number of shards; each has a lease at TRIM_HORIZON.
        observe_stream: Whether the observer knows the shards.
        options: Arguments of the observer.
    """

    def __init__(self, shards: int = 4, *, observe_stream: bool = True, **options: Any) -> None:
        self.now = 100.0
        self.shards = even_shards(shards)
        self.rows = {one.shard_id: Lease.for_shard(one, TRIM_HORIZON) for one in self.shards}
        self.unreadable: dict[str, str] = {}
        self.others: dict[str, Mapping[str, Any]] = {}
        self.observer = FleetObserver("app", **options)
        self.observer.observe_streams({None: StreamId("orders")})
        self._observe_stream = observe_stream

    # Workers

    def take(self, worker: str, *numbers: int) -> None:
        for number in numbers:
            self._put(transitions.taken(self[number], worker))

    def take_as_java(self, worker: str, *numbers: int) -> None:
        for number in numbers:
            row = self[number]
            self._put(replace(row, owner=worker, counter=row.counter + 1, checkpoint_owner=None))

    def renew(self, worker: str) -> None:
        for row in list(self.rows.values()):
            if row.holder == worker:
                self._put(transitions.renewed(row))

    def checkpoint(self, number: int, position: str, sub: int = 0) -> None:
        self._put(transitions.checkpointed(self[number], ExtendedSequenceNumber(position, sub)))

    def release(self, number: int) -> None:
        self._put(transitions.released(self[number]))

    def request(self, number: int, worker: str) -> None:
        self._put(transitions.handoff_requested(self[number], worker))

    def hand_off(self, number: int) -> None:
        self._put(transitions.handed_off(self[number]))

    def change(self, number: int, **attributes: Any) -> None:
        self._put(replace(self[number], **attributes))

    def _put(self, row: Lease) -> None:
        self.rows[row.lease_key] = row

    def __getitem__(self, number: int) -> Lease:
        return self.rows[shard_id(number)]

    # The observer

    def scan(self, seconds: float = 0.0, rows: Iterable[Lease] | None = None) -> FleetView:
        """Let time pass, scan the table and return the view."""
        self.now += seconds
        leases = list(self.rows.values()) if rows is None else list(rows)
        self.observer.observe_table(
            TableScan(leases=leases, unreadable=dict(self.unreadable), others=dict(self.others)),
            self.now,
            AT + self.now,
        )
        if self._observe_stream:
            self.observer.observe_shards(None, self.shards, self.now)
        return self.view()

    def view(self) -> FleetView:
        return self.observer.view(self.now, AT + self.now)

    def lease(self, number: int) -> LeaseView:
        return lease_of(self.view(), number)


def held(shards: int = 1, by: Mapping[str, tuple[int, ...]] | None = None) -> Fleet:
    """Return a fleet that was seen once.

    Args:
        shards: Number of shards.
        by: Shards by worker; "a" has all by default.
    """
    fleet = Fleet(shards)
    for worker, numbers in (by or {"a": tuple(range(shards))}).items():
        fleet.take(worker, *numbers)
    fleet.scan()
    return fleet


def lease_of(view: FleetView, number: int) -> LeaseView:
    (found,) = [lease for lease in view.leases if lease.shard_id == shard_id(number)]
    return found


def codes(view: FleetView) -> list[str]:
    return [problem.code for problem in view.problems]
