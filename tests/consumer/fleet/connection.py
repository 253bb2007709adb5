"""A simulated worker's connection to the lease table: calls take time, fail, or have their effect too late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ThrottledError, TransientAwsError
from kinesis_sdk.consumer.leases import Lease
from kinesis_sdk.consumer.leases.table.store import TableScan

if TYPE_CHECKING:
    from tests.consumer.fleet.coordinators import WorkerProcess
    from tests.consumer.fleet.ownership import OwnedLeaseTable


class ProcessDied(BaseException):
    """Unwinds the calls of a process that died in the middle of them."""


@dataclass
class TableFaults:
    """Faults of calls to the table, as probabilities and seconds."""

    lost: float = 0.0
    """A write without effect and without response."""
    unanswered: float = 0.0
    """A write with effect and without response."""
    late: float = 0.0
    """A write without response whose effect comes seconds later."""
    throttled: float = 0.0
    """Any call, rejected at once."""
    slow: float = 0.0
    """Any call takes up to ``slowness`` seconds."""
    slowness: float = 3.0


class TableConnection:
    """The lease store of one process: the fleet's table, at the end of calls that may take time, fail, or both.

    Args:
        process: The process that calls.
        table: The table of the fleet.

    Attributes:
        reads: Scans so far.
        writes: Writes so far, whatever became of them.
    """

    def __init__(self, process: WorkerProcess, table: OwnedLeaseTable) -> None:
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

    def delete(self, lease_key: str, *, unowned: Lease | None = None, finished: bool = False) -> bool:
        return self._table.delete(lease_key, unowned=unowned, finished=finished)

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
        timeout = process.config.leases.call_timeout
        if chance < faults.lost:
            process.wait(timeout)
            raise TransientAwsError("no response", operation="UpdateItem")
        chance -= faults.lost
        if chance < faults.unanswered:
            self._apply(call)
            process.wait(timeout)
            raise TransientAwsError("no response", operation="UpdateItem")
        chance -= faults.unanswered
        if chance < faults.late:
            fleet.at(fleet.now + fleet.rng.random() * 8, lambda: self._apply(call))
            process.wait(timeout)
            raise TransientAwsError("no response", operation="UpdateItem")
        # A slow write takes its time before its effect, or after it.
        before = delay * fleet.rng.random() if delay > timeout / 10 else delay
        process.wait(min(before, timeout))
        if before > timeout:
            raise TransientAwsError("no response", operation="UpdateItem")
        result = self._apply(call)
        process.wait(min(delay, timeout) - before + 0.002 if delay > before else 0.002)
        if delay > timeout:
            raise TransientAwsError("no response", operation="UpdateItem")
        return result


class KclTableConnection(TableConnection):
    """Writes rows as a KCL 2.x does: without the attribute that tells peers to request a handoff."""

    def take(self, lease: Lease, owner: str) -> Any:
        return self._write(lambda: self._table.take(lease, owner))

    def _apply(self, call: Callable[[], Any]) -> Any:
        result = super()._apply(call)
        if isinstance(result, Lease) and result.handoff_owner == self._process.name:
            self._table._set(result.lease_key, handoff_owner=None)
        return result
