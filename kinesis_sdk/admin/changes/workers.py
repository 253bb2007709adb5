"""Workers of an application, and marks that they honour: drain, and leases pinned to one of them.

Both are attributes of lease rows that only workers of this SDK read. They change no counter, so no worker is disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinesis_sdk.admin.applications import Application, find_lease_key, metrics_in
from kinesis_sdk.admin.changes.audit import AuditLog, default_audit_log
from kinesis_sdk.admin.changes.owners import OwnerWatch
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ChangeRefusedError
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import attributes

_POLL = 1.0


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """A worker, as the table shows it.

    Attributes:
        worker_id: Its id.
        kind: What kind of worker it is.
        leases: Number of unfinished leases that it holds.
        is_alive: Whether it was seen to write; False if it was not for the failover time; None if that is not known yet.
        is_draining: Whether it is to hold no leases.
        pinned: Number of leases that are pinned to it.
    """

    worker_id: str
    kind: OwnerKind
    leases: int
    is_alive: bool | None
    is_draining: bool
    pinned: int


class WorkerMarks:
    """Lists the workers of an application, and drains and pins. Not thread-safe.

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
        self._owners = OwnerWatch(failover_time)

    def workers(self, *, watch: bool = True) -> tuple[WorkerInfo, ...]:
        """Return the workers, in the order of their ids.

        Args:
            watch: Whether to read the table until it is known of each whether it is alive, at most one failover time.

        Raises:
            ConfigError: If there is no such table.
            AwsError: If a call failed.
        """
        self._read()
        if watch:
            self._judge(self._owners.workers())
        now = self._clock.monotonic()
        pins = [lease.pinned_to for lease in self._owners.leases]
        return tuple(
            WorkerInfo(
                worker_id=worker,
                kind=self._owners.kind(worker) or OwnerKind.OTHER,
                leases=self._owners.load(worker),
                is_alive=self._owners.is_alive(worker, now) if self._owners.is_judged(worker, now) else None,
                is_draining=self._owners.is_draining(worker),
                pinned=pins.count(worker),
            )
            for worker in self._owners.workers()
        )

    def plan_drain(self, worker: str, *, on: bool = True) -> list[str]:
        """Return the writes that `drain` or `undrain` make, in words.

        Raises:
            ChangeRefusedError: If the worker does not read the mark, or no other worker would hold its leases.
        """
        if not on:
            return [
                f"{lease.lease_key}: {attributes.DRAIN}{worker}: 1 → –" for lease in self._find_marked(worker)
            ]
        carrier = self._check_drain(worker, self._read())
        return [f"{carrier.lease_key}: {attributes.DRAIN}{worker}: – → 1; on condition: the row exists"]

    def drain(self, worker: str, *, command: tuple[str, ...] = ()) -> None:
        """Tell a worker to hand off all leases, to take none, and to stay up.

        Args:
            worker: Its id.
            command: The command, for the audit log.

        Raises:
            ChangeRefusedError: If the worker does not read the mark, or no other worker would hold its leases.
            AuditLogError: If the audit log cannot be written.
            AwsError: If the call failed; repeating it is safe.
        """
        audit = self._audit(command)
        for _ in range(5):
            carrier = self._check_drain(worker, self._read())
            self._logged(
                audit,
                carrier,
                {"drain": worker},
                lambda carrier=carrier: self._application.store.set_drain(carrier.lease_key, worker, True),  # type: ignore[misc]
            )
            leases = self._read()
            if any(worker in lease.draining for lease in leases):
                try:
                    self._check_drain(worker, leases)
                except ChangeRefusedError:
                    # Another operator drained the other workers at the same time, and no worker would hold a lease.
                    self.undrain(worker, command=command)
                    raise
                return
            self._report("the row was deleted meanwhile, using another one")
        raise ChangeRefusedError("the rows of the table are deleted as fast as they are marked; try again")

    def undrain(self, worker: str, *, command: tuple[str, ...] = ()) -> bool:
        """Let a worker take leases again.

        Returns:
            Whether it was draining.

        Raises:
            AuditLogError: If the audit log cannot be written.
            AwsError: If the call failed; repeating it is safe.
        """
        audit = self._audit(command)
        was_draining = False
        quiet_since = self._clock.monotonic()
        while True:
            for lease in self._find_marked(worker):
                was_draining = True
                self._logged(
                    audit,
                    lease,
                    {"undrain": worker},
                    lambda lease=lease: self._application.store.set_drain(lease.lease_key, worker, False),  # type: ignore[misc]
                )
                quiet_since = self._clock.monotonic()
            # The worker moves its mark when a row is finished: it may have written the new one after this scan.
            if not was_draining or self._clock.monotonic() - quiet_since >= 2 * _POLL:
                return was_draining
            self._sleep(_POLL)

    def _find_marked(self, worker: str) -> list[Lease]:
        """Return the rows with the drain mark of a worker.

        A mark whose row was deleted is nowhere until the worker has put it on another row after its next scan, so the table is read
        for two seconds before the answer is that there is none.
        """
        until = self._clock.monotonic() + 2 * _POLL
        while True:
            marked = [lease for lease in self._read() if worker in lease.draining]
            if marked or self._clock.monotonic() >= until:
                return marked
            self._sleep(_POLL)

    def wait_drained(self, worker: str, *, timeout: float | None = None) -> bool:
        """Wait until no row has named a worker for two failover times.

        Args:
            worker: Its id.
            timeout: Seconds after which to give up; None waits for ever.

        Returns:
            Whether it holds nothing.
        """
        begun = self._clock.monotonic()
        empty_since: float | None = None
        told: int | None = None
        while True:
            count = sum(
                1
                for lease in self._read()
                if worker in (lease.owner, lease.checkpoint_owner) and not lease.is_finished
            )
            now = self._clock.monotonic()
            if count != told:
                self._report(f"{printable(worker)} holds {count} leases")
                told = count
            empty_since = None if count else now if empty_since is None else empty_since
            if empty_since is not None and now - empty_since >= 2 * self._failover_time:
                return True
            if timeout is not None and now - begun > timeout:
                return False
            self._sleep(_POLL)

    def plan_pin(self, shard: str, worker: str | None) -> str:
        """Return the write that `pin` makes, in words.

        Raises:
            ConfigError: If there is no such row, or no such worker.
        """
        lease = self._row(shard)
        if worker is not None:
            self._owners.check_known("to", worker)
        return (
            f"{lease.lease_key}: {attributes.PINNED_TO}: {printable(lease.pinned_to or '–')} → {printable(worker or '–')}; "
            "on condition: the row exists"
        )

    def pin(self, shard: str, worker: str | None, *, command: tuple[str, ...] = ()) -> None:
        """Pin a lease to a worker, which holds it while it is alive; None removes the pin.

        Only workers of this SDK honour it: a Java worker takes the lease as any other.

        Raises:
            ConfigError: If there is no such row, or no such worker.
            ChangeRefusedError: If the row was deleted meanwhile, so that nothing was written, or the worker is a Java worker.
            AuditLogError: If the audit log cannot be written.
            AwsError: If the call failed; repeating it is safe.
        """
        lease = self._row(shard)
        if worker is not None:
            self._owners.check_known("to", worker)
            self._judge([worker])
            if self._owners.kind(worker) is not OwnerKind.SDK:
                raise ChangeRefusedError(f"{printable(worker)} is a Java worker: it does not read pins")
        done = self._logged(
            self._audit(command),
            lease,
            {"pin": worker},
            lambda: self._application.store.set_pin(lease.lease_key, worker),
        )
        if not done:
            raise ChangeRefusedError(
                f"the row of {lease.lease_key} was deleted meanwhile; nothing was pinned"
            )

    def _row(self, shard: str) -> Lease:
        leases = {lease.lease_key: lease for lease in self._read()}
        return leases[find_lease_key(shard, leases)]

    def _check_drain(self, worker: str, leases: list[Lease]) -> Lease:
        self._owners.check_known("worker", worker)  # before the wait that tells who is alive
        self._judge([worker])
        name = printable(worker)
        kind = self._owners.kind(worker)
        if kind is not OwnerKind.SDK:
            raise ChangeRefusedError(
                f"{name} is a Java worker or an unknown one, which does not read the mark: stop its process with SIGTERM; its leases "
                "move after 20 to 40 s"
            )
        now = self._clock.monotonic()
        others = [
            one
            for one in self._owners.workers()
            if one != worker and not self._owners.is_draining(one) and not self._owners.is_silent(one, now)
        ]
        if not others:
            raise ChangeRefusedError(
                f"no other worker would hold the leases of {name}: start one, or stop {name}"
            )
        unfinished = sorted(
            (lease for lease in leases if not lease.is_finished), key=lambda lease: lease.lease_key
        )
        if not unfinished:
            raise ChangeRefusedError("the table has no unfinished lease that could carry the mark")
        return unfinished[0]

    def _judge(self, workers: list[str]) -> None:
        until = self._clock.monotonic() + self._failover_time + 2 * _POLL
        while True:
            now = self._clock.monotonic()
            if now >= until or all(self._owners.is_judged(worker, now) for worker in workers):
                return
            self._sleep(_POLL)
            self._read()

    def _read(self) -> list[Lease]:
        scan = self._application.scan(consistent=True)
        now = self._clock.monotonic()
        self._owners.observe(scan.leases, now)
        reports = {**(self._application.worker_metrics() or {}), **metrics_in(scan.others)}
        self._owners.observe_metrics(reports, wall=self._clock.time(), now=now)
        return scan.leases

    def _audit(self, command: tuple[str, ...]) -> AuditLog:
        log = AuditLog(
            self._audit_log,
            clock=self._clock,
            command=("kinesis-sdk", *command),
            table=self._application.table.label,
        )
        log.check()
        return log

    def _logged(
        self, audit: AuditLog, lease: Lease, what: Mapping[str, Any], write: Callable[[], bool]
    ) -> bool:
        audit.append("begin", lease_key=lease.lease_key, **what)
        done = write()
        audit.append("done" if done else "failed", lease_key=lease.lease_key, **what)
        return done
