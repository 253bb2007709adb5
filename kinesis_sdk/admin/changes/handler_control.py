"""Requests to the owner of a shard whose handler fails: call it again now, or leave exactly one record out.

A request is an attribute of the lease's row that only workers of this SDK read. It changes no counter, so the owner is not disturbed, and
the owner removes it when it has carried it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from kinesis_sdk.admin.applications import Application, find_lease_key, short_shard
from kinesis_sdk.admin.changes.audit import AuditLog, default_audit_log
from kinesis_sdk.admin.changes.owners import OwnerWatch
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.admin.fleet.words import duration
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import HandlerRequest, HandlerVerb, attributes

_POLL = 1.0


@dataclass(frozen=True, kw_only=True)
class RequestPlan:
    """A request that can be made.

    Attributes:
        lease_key: The row.
        shard_id: Its shard.
        request: What is asked for.
        write: The write, in words.
        effect: What follows from it.
        warnings: What the user has to know.
    """

    lease_key: str
    shard_id: str
    request: HandlerRequest
    write: str
    effect: str
    warnings: tuple[str, ...] = ()


class HandlerControl:
    """Makes requests to the owners of an application's shards. Not thread-safe.

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
        self._audit_log = audit_log or default_audit_log()
        self._clock = clock
        self._sleep = sleep
        self._report = report
        self._owners = OwnerWatch(failover_time)

    def plan_retry(self, shard: str) -> RequestPlan:
        """Plan to have the handler of a shard called again now.

        Raises:
            ConfigError: If there is no such row.
            ChangeRefusedError: If no worker of this SDK holds the lease.
            AwsError: If a call failed.
        """
        lease = self._row(shard)
        if lease.holder is None:
            raise ChangeRefusedError(f"{_name(lease)}: no worker holds the lease: start one")
        failing = lease.current_progress.failing if lease.current_progress is not None else None
        return self._plan(
            lease,
            HandlerRequest(HandlerVerb.RETRY, _new_id()),
            f"{printable(lease.holder)} calls the handler with its next look at the table, within seconds, and does not wait for the end of its "
            "pause. If the call fails again, the pauses go on as before.",
            () if failing is not None else ("its owner tells of no failure, so the call may change nothing",),
        )

    def plan_leave_out(self, shard: str, record: ExtendedSequenceNumber | None = None) -> RequestPlan:
        """Plan to have exactly one record of a shard left out.

        Args:
            shard: The shard.
            record: Position of the record; None for the record on which the handler fails.

        Raises:
            ConfigError: If there is no such row, or the record is not named and the owner tells of none.
            ChangeRefusedError: If the record was processed before, or a Java worker holds the lease.
            AwsError: If a call failed.
        """
        lease = self._row(shard)
        if record is None:
            record = _failing_record(lease)
        if lease.checkpoint >= record:
            raise ChangeRefusedError(
                f"{_name(lease)}: record {record} is processed: the checkpoint is {lease.checkpoint}"
            )
        return self._plan(
            lease,
            HandlerRequest(HandlerVerb.LEAVE_OUT, _new_id(), record),
            f"The owner passes record {record}, and no other, to its dead-letter hook, and goes on behind it. If its policy has no hook, the record "
            "is named in the log, and it stays in the stream until it expires. A rewind to before it brings it back.",
            ()
            if lease.holder is not None
            else ("no worker holds the lease; the next owner acts on the request",),
        )

    def apply(self, plan: RequestPlan, *, wait: float, command: tuple[str, ...] = ()) -> str:
        """Make a request, and watch until its owner has carried it out.

        Args:
            plan: The request.
            wait: Seconds to watch; 0 does not watch.
            command: The command, for the audit log.

        Returns:
            What happened, as a sentence.

        Raises:
            ChangeRefusedError: If the row was deleted meanwhile.
            AuditLogError: If the audit log cannot be written.
            AwsError: If a call failed. The request may have been made.
        """
        audit = AuditLog(
            self._audit_log,
            clock=self._clock,
            command=("kinesis-sdk", *command),
            table=self._application.table.label,
        )
        fields = {"lease_key": plan.lease_key, "request": plan.request.to_text()}
        audit.append("begin", **fields)
        done = self._application.store.set_handler_request(plan.lease_key, plan.request)
        audit.append("done" if done else "failed", **fields)
        if not done:
            raise ChangeRefusedError(
                f"the row of {plan.lease_key} was deleted meanwhile; nothing was written"
            )
        return self._watch(plan, wait)

    def _watch(self, plan: RequestPlan, wait: float) -> str:
        begun = self._clock.monotonic()
        while True:
            lease = self._application.store.get(plan.lease_key)
            after = duration(max(0.0, self._clock.monotonic() - begun))
            if lease is None or lease.handler_request not in (None, plan.request):
                return "Another operator has replaced the request, or the row was deleted."
            if lease.handler_request is None:
                return f"Done after {after}."
            if plan.request.record is not None and _is_behind(lease, plan.request.record):
                return f"The record was left out after {after}; the request ends with the next checkpoint."
            if self._clock.monotonic() - begun >= wait:
                return (
                    "Written; the owner acts on it within seconds."
                    if not wait
                    else f"Written, but no worker has acted on it for {duration(wait)}: look at the owner with `leases explain`."
                )
            self._report(f"waiting for {printable(lease.holder or 'an owner')}")
            self._sleep(_POLL)

    def _plan(
        self, lease: Lease, request: HandlerRequest, effect: str, warnings: tuple[str, ...]
    ) -> RequestPlan:
        if lease.is_finished:
            raise ChangeRefusedError(f"{_name(lease)} is processed to its end")
        if lease.holder is not None and self._owners.kind(lease.holder) is not OwnerKind.SDK:
            raise ChangeRefusedError(
                f"{printable(lease.holder)} is a Java worker, or one of another release: it does not read requests"
            )
        before = lease.handler_request
        if before is not None and before.record is not None and before.record != request.record:
            warnings = (*warnings, f"it replaces the request to leave record {before.record} out")
        return RequestPlan(
            lease_key=lease.lease_key,
            shard_id=lease.shard,
            request=request,
            write=f"{lease.lease_key}: {attributes.HANDLER_REQUEST}: {'–' if before is None else before.to_text()} → {request.to_text()}; on condition: "
            "the row exists",
            effect=effect,
            warnings=warnings,
        )

    def _row(self, shard: str) -> Lease:
        scan = self._application.scan(consistent=True)
        self._owners.observe(scan.leases, self._clock.monotonic())
        leases = {lease.lease_key: lease for lease in scan.leases}
        return leases[find_lease_key(shard, leases)]

    def stream_of(self, plan: RequestPlan) -> StreamId:
        """Return the stream of the shard.

        Raises:
            ConfigError: If it is not known.
            AwsError: If a call failed.
        """
        scan = self._application.scan()
        name = next((row.stream_name for row in scan.leases if row.lease_key == plan.lease_key), None)
        return self._application.streams(scan)[name]


def _failing_record(lease: Lease) -> ExtendedSequenceNumber:
    progress = lease.current_progress
    failing = None if progress is None else progress.failing
    name = _name(lease)
    if failing is None or failing.position is None:
        problem = f"{name}: its owner tells of no record on which its handler fails: name one with --record"
    elif failing.records > 1:
        problem = (
            f"{name}: the handler fails on {failing.records:,} records from {failing.position} on, and one of them is the cause. The owner "
            "delivers fewer with each attempt: wait until it is alone, or name it with --record"
        )
    else:
        return failing.position
    raise ConfigError("record", None, "the position of a record", problem=problem)


def _is_behind(lease: Lease, record: ExtendedSequenceNumber) -> bool:
    """Return whether the owner has left a record out: it is checkpointed, or the owner fails on a later one."""
    progress = lease.current_progress
    failing = None if progress is None else progress.failing
    return lease.checkpoint >= record or (
        failing is not None and failing.position is not None and failing.position > record
    )


def _name(lease: Lease) -> str:
    return f"shard {short_shard(lease.shard)}"


def _new_id() -> str:
    return uuid4().hex[:12]
