"""Deletion of an application: its lease table, and the tables that a KCL 3 keeps beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kinesis_sdk.admin.applications import Application, metrics_in
from kinesis_sdk.admin.changes.audit import AuditLog, default_audit_log
from kinesis_sdk.admin.changes.owners import OwnerWatch
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ChangeRefusedError
from kinesis_sdk.common.text import printable

_POLL = 1.0


@dataclass(frozen=True, kw_only=True)
class RemovalPlan:
    """An application that may be deleted.

    Attributes:
        application: Its name.
        tables: The tables to delete, the lease table first; in a SQL database the application, whose rows are deleted.
        calls: The call that deletes each of them, in words.
        leases: Number of leases.
        counters: Lease counters at the end of the watch, by lease key.
    """

    application: str
    tables: tuple[str, ...]
    calls: tuple[str, ...]
    leases: int
    counters: Mapping[str, int] = field(default_factory=dict, repr=False)


class Removal:
    """Deletes applications that have stopped. Not thread-safe.

    Args:
        application: The application.
        failover_time: The workers' own setting, in seconds.
        audit_log: The audit log; by default `default_audit_log`.
        clock: Monotonic and wall clock.
        sleep: Waits, given seconds.
        report: Told what happens, in words.
    """

    def __init__(
        self,
        application: Application,
        *,
        failover_time: float = 10.0,
        audit_log: Path | None = None,
        clock: Clock,
        sleep: Callable[[float], None],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._application = application
        self._failover_time = failover_time
        self._audit_log = audit_log or default_audit_log()
        self._clock = clock
        self._sleep = sleep
        self._report = report

    def plan(self) -> RemovalPlan:
        """Watch the table for two failover times, and return what would be deleted.

        Raises:
            ChangeRefusedError: If a worker is alive.
            ConfigError: If there is no such table.
            AwsError: If a call failed.
        """
        info, table = self._application.info(), self._application.table
        owners = OwnerWatch(self._failover_time)
        begun = self._clock.monotonic()
        self._report(f"watching the table for {2 * self._failover_time:g} s: no worker may write to it")
        while True:
            scan = self._application.scan(consistent=True)
            now = self._clock.monotonic()
            owners.observe(scan.leases, now)
            reports = {**(self._application.worker_metrics() or {}), **metrics_in(scan.others)}
            owners.observe_metrics(reports, wall=self._clock.time(), now=now)
            for worker in owners.workers():
                if owners.is_alive(worker, now):
                    raise ChangeRefusedError(
                        f"the application {info.name} is running: {printable(worker)} writes to its table. Stop all workers first"
                    )
                if owners.kind(worker) is OwnerKind.KCL3:
                    raise ChangeRefusedError(
                        f"the Java worker {printable(worker)} reported to its fleet within the last two minutes. Stop it, or wait"
                    )
            if now - begun >= 2 * self._failover_time:
                break
            self._sleep(_POLL)
        tables = table.parts(info.name)
        return RemovalPlan(
            application=info.name,
            tables=tables,
            calls=tuple(map(table.deletion, tables)),
            leases=len(scan.leases),
            counters={lease.lease_key: lease.counter for lease in scan.leases},
        )

    def delete(self, plan: RemovalPlan, *, command: tuple[str, ...] = ()) -> None:
        """Delete the tables of a plan.

        Raises:
            ChangeRefusedError: If a worker has written to the table since the plan was made; nothing is deleted.
            AuditLogError: If the audit log cannot be written; nothing more is deleted.
            AwsError: If a call failed; repeating it is safe.
        """
        # The question to the user may have been open for minutes, and a worker may have been started meanwhile.
        now = {lease.lease_key: lease.counter for lease in self._application.scan(consistent=True).leases}
        if now != plan.counters:
            raise ChangeRefusedError(
                f"a worker has written to {self._application.table_name} since the question; nothing was deleted"
            )
        audit = AuditLog(
            self._audit_log,
            clock=self._clock,
            command=("kinesis-sdk", *command),
            table=self._application.table.label,
        )
        for table in plan.tables:
            audit.append("begin", delete_table=table)
            if not self._application.table.delete(table):
                self._report(f"{table}: deleted already")
            audit.append("done", delete_table=table)
            self._report(f"{table}: deleted")
