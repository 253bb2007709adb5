"""The lease table of a simulated fleet: the invariants of every write, and the ways on which calls get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ThrottledError, TransientAwsError
from kinesis_sdk.consumer.leases import InMemoryLeaseStore, Lease
from kinesis_sdk.consumer.leases.table.store import Conflict, TableScan

if TYPE_CHECKING:
    from tests.consumer.fleet_simulator import FleetSimulator, Process

DRIFT = 0.0005
"""Most by which a clock runs fast or slow: 500 ppm, what time daemons slew by."""


class Gone(BaseException):
    """Unwinds the calls of a process that died in the middle of them."""


@dataclass
class Faults:
    """What goes wrong with calls to the table, as probabilities and seconds."""

    lost: float = 0.0
    """A write without effect and without answer."""
    unanswered: float = 0.0
    """A write with effect and without answer."""
    late: float = 0.0
    """A write without answer whose effect comes seconds later."""
    throttled: float = 0.0
    """Any call, refused at once."""
    slow: float = 0.0
    """Any call takes up to ``slowness`` seconds."""
    slowness: float = 3.0


class Table(InMemoryLeaseStore):
    """The table itself, with the invariants."""

    def __init__(self, fleet: FleetSimulator) -> None:
        super().__init__()
        self.fleet = fleet
        self.writer: Process | None = None
        self.taker: dict[str, Process] = {}
        self.written: dict[str, float] = {}
        # A repeated write that finds its own earlier effect counts as success at the time of the repetition, as in
        # the KCL: the belief lasts longer by that pause, and the counter fences what is left.
        self.recovered: set[str] = set()
        self.transfers = 0

    def create_if_absent(self, lease: Lease) -> bool:
        for parent in lease.parent_shard_ids if lease.lease_key not in self._rows else ():
            assert parent in self._rows or parent not in self.fleet.shards, (
                f"{lease.lease_key} before {parent}"
            )
        return super().create_if_absent(lease)

    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        before = self.get(lease.lease_key)
        since = self.fleet.now - self.written.get(lease.lease_key, self.fleet.now)
        recovered = lease.lease_key in self.recovered
        row = super().take(lease, owner)
        if isinstance(row, Lease):
            assert self.writer is not None
            assert before is not None
            if before.owner is not None and before.owner != owner and not recovered:
                self._check_nobody_believes(before, since)
            if self.taker.get(lease.lease_key) is not self.writer:
                self.transfers += 1
            self.taker[lease.lease_key] = self.writer
        return row

    def _check_nobody_believes(self, row: Lease, since: float) -> None:
        """Nobody is robbed who wrote within the failover time, except by the KCL's theft."""
        former = self.taker.get(row.lease_key)
        failover = self.fleet.config.failover_time
        assert self.writer is not None
        if former is None or former.state == "dead":
            return
        held = former.held(row.lease_key)
        if since >= failover * (1 - 2 * DRIFT):
            soon = former.monotonic() + 4 * DRIFT * failover
            believes = held is not None and held.is_held(soon)
            assert not believes, f"{row.lease_key}: {self.writer.name} takes it, {former.name} believes in it"
        else:
            steals = self.fleet.config.graceful_lease_handoff_timeout == 0
            # Handed over, and not taken yet by whom it was for: nobody has it.
            between = row.in_handoff or row.handoff_owner is None
            assert steals or between or "kcl2" in (self.writer.kind, former.kind), (
                f"{row.lease_key}: {self.writer.name} robs {former.name} after {since:.1f} s"
            )

    def _swap(self, seen: Lease, change: Any, **conditions: Any) -> Any:
        before = self._rows.get(seen.lease_key)
        result = super()._swap(seen, change, **conditions)
        after = self._rows.get(seen.lease_key)
        if after is not before and after is not None and before is not None:
            assert after.counter == before.counter + 1
            assert after.checkpoint >= before.checkpoint
            self.written[seen.lease_key] = self.fleet.now
            self.recovered.discard(seen.lease_key)
            if after.owner == before.owner and after.checkpoint_owner == before.checkpoint_owner:
                writer = self.taker.get(seen.lease_key)
                # The take itself is noted by `take`, after this.
                assert writer in (self.writer, None) or after.handoff_owner == self._name(), (
                    f"{seen.lease_key}: {self._name()} wrote what {writer and writer.name} holds"
                )
        elif isinstance(result, Lease):
            self.recovered.add(seen.lease_key)
        return result

    def _name(self) -> str:
        return self.writer.name if self.writer is not None else "?"


class Link:
    """A process's way to the table: every call may take time, fail, or both."""

    def __init__(self, process: Process, table: Table) -> None:
        self._process, self._table = process, table
        self.reads = self.writes = 0

    def ensure_ready(self) -> None:
        pass

    def scan(self, *, consistent: bool = False) -> TableScan:
        self.reads += 1
        for _ in range(4):  # the store repeats scans itself
            rows = self._table.scan()
            try:
                self._process.wait(self._delay())
            except ThrottledError:
                self._process.wait(0.3)
            else:
                return rows
        raise ThrottledError("slow down", operation="Scan")

    def get(self, lease_key: str) -> Lease | None:
        row = self._table.get(lease_key)
        self._process.wait(self._delay())
        return row

    def delete(self, lease_key: str) -> None:
        self._table.delete(lease_key)

    def create_if_absent(self, lease: Lease) -> bool:
        return self._write(lambda: self._table.create_if_absent(lease))

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        children = [*child_shard_ids]
        return self._write(lambda: self._table.set_child_shard_ids(lease_key, children))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._table, name)
        return lambda *arguments: self._write(lambda: method(*arguments))

    def _delay(self) -> float:
        faults, rng = self._process.fleet.faults, self._process.fleet.rng
        if faults.throttled and rng.random() < faults.throttled:
            raise ThrottledError("slow down", operation="table")
        if faults.slow and rng.random() < faults.slow:
            return rng.random() * faults.slowness
        return 0.005

    def _apply(self, call: Callable[[], Any]) -> Any:
        self._table.writer = self._process
        try:
            return call()
        finally:
            self._table.writer = None

    def _write(self, call: Callable[[], Any]) -> Any:
        fleet, process = self._process.fleet, self._process
        self.writes += 1
        delay = self._delay()
        chance = fleet.rng.random()
        faults = fleet.faults
        timeout = process.config.lease_call_timeout
        if chance < faults.lost:
            process.wait(timeout)
            raise TransientAwsError("no answer", operation="UpdateItem")
        chance -= faults.lost
        if chance < faults.unanswered:
            self._apply(call)
            process.wait(timeout)
            raise TransientAwsError("no answer", operation="UpdateItem")
        chance -= faults.unanswered
        if chance < faults.late:
            fleet.at(fleet.now + fleet.rng.random() * 8, lambda: self._apply(call))
            process.wait(timeout)
            raise TransientAwsError("no answer", operation="UpdateItem")
        # A slow write takes its time before its effect, or after it.
        before = delay * fleet.rng.random() if delay > timeout / 10 else delay
        process.wait(min(before, timeout))
        if before > timeout:
            raise TransientAwsError("no answer", operation="UpdateItem")
        result = self._apply(call)
        process.wait(min(delay, timeout) - before + 0.002 if delay > before else 0.002)
        if delay > timeout:
            raise TransientAwsError("no answer", operation="UpdateItem")
        return result
