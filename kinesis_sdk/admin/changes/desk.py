"""The operator's access to an application: the objects that each change to the application needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from kinesis_sdk.admin.applications import Application, find_lease_key, metrics_in
from kinesis_sdk.admin.changes.audit import AuditLog, default_audit_log
from kinesis_sdk.admin.changes.owners import OwnerWatch
from kinesis_sdk.admin.changes.rows import TableRead
from kinesis_sdk.admin.command import Command
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import Lease

POLL = 1.0
"""Seconds between two reads of a table that is watched."""


def new_operator() -> str:
    """Return a new worker id for an operator. Each command has its own id, so two operators never take each other's rows."""
    return f"~operator-{uuid4().hex[:8]}"


@dataclass(kw_only=True)
class Desk:
    """An application, its settings, and the observed state of its workers. Not thread-safe: each operator has a desk of its own.

    Attributes:
        application: The application; its stream is given, or has to be found.
        failover_time: Seconds without a change after which an owner counts as dead: the workers' own setting.
        audit_log: The file of the audit log; None for `default_audit_log`.
        clock: Monotonic and wall clock.
        sleep: Waits, given seconds.
        report: Called with progress messages while a change is planned and made.
        threads: Maximum shards read at the same time.
        operator: Worker id under which skips request leases. This id is unique, and not used again.
        owners: Facts about the owners, gathered from successive reads of the table.
    """

    application: Application
    failover_time: float = 10.0
    audit_log: Path | None = None
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    report: Callable[[str], None] = lambda _: None
    threads: int = 16
    operator: str = field(default_factory=new_operator)
    owners: OwnerWatch = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.owners = OwnerWatch(self.failover_time)

    def read(self, *, may_be_missing: bool = False) -> TableRead:
        """Read the table consistently, and the metrics of Java workers."""
        read = self.read_rows(may_be_missing=may_be_missing)
        reports = {**(self.application.worker_metrics() or {}), **metrics_in(read.others)}
        self.owners.observe_metrics(reports, wall=self.clock.time(), now=self.clock.monotonic())
        return read

    def read_rows(self, *, may_be_missing: bool = False) -> TableRead:
        """Read the table consistently."""
        read = self.application.table.read(may_be_missing=may_be_missing)
        self.owners.observe((row.lease for row in read.rows.values()), self.clock.monotonic())
        return read

    def leases(self) -> list[Lease]:
        """Read the table as `read` does, and return its leases."""
        return [row.lease for row in self.read().rows.values()]

    def lease(self, shard: str) -> Lease:
        """Read the lease that a user specifies.

        Raises:
            ConfigError: If there is none, or if several match.
        """
        found = {lease.lease_key: lease for lease in self.leases()}
        return found[find_lease_key(shard, found)]

    def judge(self, workers: Collection[str]) -> None:
        """Watch the table until each worker is known to be alive or silent.

        A live worker renews its leases within two thirds of the failover time, so this takes a few seconds, or one failover time if a
        worker is dead.
        """
        until = self.clock.monotonic() + self.failover_time + 2 * POLL
        is_told = False
        while True:
            now = self.clock.monotonic()
            if now >= until or all(self.owners.is_judged(worker, now) for worker in workers):
                return
            if not is_told:
                self.report("checking which owners are alive (their leases change within a few seconds)")
                is_told = True
            self.sleep(POLL)
            self.read_rows()

    def audit(self, command: Command) -> AuditLog:
        """Return the audit log of a change; raises AuditLogError if it cannot be written."""
        log = AuditLog(
            self.audit_log or default_audit_log(),
            clock=self.clock,
            command=command,
            table=self.application.table.label,
        )
        log.check()
        return log

    def command(
        self,
        operation: str,
        *,
        stream: StreamId | None = None,
        **parameters: str | bool | Collection[str] | None,
    ) -> Command:
        """Return the command that makes a change to this application.

        Args:
            operation: Verb of the change.
            stream: Stream of the change; the command names it if a stream was given or the table has several. None if
                the change needs no stream.
            parameters: Values by option name; options with the value None or False are left out.
        """
        application = self.application
        is_other = application.table_name != application.name
        several = any(lease.stream_name is not None for lease in self.owners.leases)
        is_named = stream is not None and (several or application.given_stream is not None)
        return Command.of(
            operation,
            application=application.name,
            table=application.table_name if is_other else None,
            stream=str(stream) if is_named else None,
            **parameters,
        )
