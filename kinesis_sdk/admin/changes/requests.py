"""Requests to the owner of a shard whose handler fails: call it again now, or leave exactly one record out.

A request is an attribute of the lease's row that only workers of this SDK read. A request changes no counter, so the owner
is not disturbed. The owner removes the request when it has carried it out.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.changes.description import ChangeDescription, Result, Write, done
from kinesis_sdk.admin.changes.desk import POLL, Desk
from kinesis_sdk.admin.changes.rows import WriteKind
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.formatting import duration
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import HandlerRequest, HandlerVerb, attributes


class HandlerRequestChange:
    """A request to the owner of a shard; see `Planned`."""

    def __init__(
        self, desk: Desk, lease: Lease, request: HandlerRequest, description: ChangeDescription
    ) -> None:
        self.description: ChangeDescription = description
        self.lease_key: str = lease.lease_key
        self.shard_id: str = lease.shard
        self.request: HandlerRequest = request
        self._desk = desk

    def apply(self, *, wait: float = 60.0) -> Result:
        """Make the request, and watch until its owner has carried it out; see `Planned.apply`."""
        store = self._desk.application.store
        if not self._desk.audit(self.description.command).around(
            lambda: store.set_handler_request(self.lease_key, self.request),
            lease_key=self.lease_key,
            request=self.request.to_text(),
        ):
            raise ChangeRefusedError(
                f"the row of {self.lease_key} was deleted meanwhile; nothing was written"
            )
        return done(self._watch(wait))

    def so_far(self) -> Result | None:
        """Return None."""
        return None

    def to_dict(self, result: Result | None) -> dict[str, Any]:
        """See `Planned.to_dict`."""
        return {
            "writes": [str(write) for write in self.description.writes],
            "request": self.request.to_text(),
            "done": result is not None,
            **({} if result is None else {"outcome": result.summary}),
        }

    @property
    def stream(self) -> StreamId:
        """The stream of the shard; raises ConfigError if it is not known, AwsError if a call failed."""
        scan = self._desk.application.scan()
        name = next((row.stream_name for row in scan.leases if row.lease_key == self.lease_key), None)
        return self._desk.application.streams(scan)[name]

    def _watch(self, wait: float) -> str:
        clock = self._desk.clock
        begun = clock.monotonic()
        while True:
            lease = self._desk.application.store.get(self.lease_key)
            after = duration(max(0.0, clock.monotonic() - begun))
            if lease is None or lease.handler_request not in (None, self.request):
                return "Another operator has replaced the request, or the row was deleted."
            if lease.handler_request is None:
                return f"Done after {after}."
            if self.request.record is not None and _is_behind(lease, self.request.record):
                return f"The record was left out after {after}; the request ends with the next checkpoint."
            if clock.monotonic() - begun >= wait:
                return (
                    "Written; the owner acts on it within seconds."
                    if not wait
                    else f"Written, but no worker has acted on it for {duration(wait)}: explain the shard to see what its owner does."
                )
            self._desk.report(f"waiting for {printable(lease.holder or 'an owner')}")
            self._desk.sleep(POLL)


def plan_retry(desk: Desk, shard: str) -> HandlerRequestChange:
    """Plan to have the handler of a shard called again now."""
    lease = desk.lease(shard)
    if lease.holder is None:
        raise ChangeRefusedError(f"{_name(lease)}: no worker holds the lease: start one")
    failing = lease.current_progress.failing if lease.current_progress is not None else None
    return _plan(
        desk,
        lease,
        HandlerRequest(HandlerVerb.RETRY, _new_id()),
        f"{printable(lease.holder)} calls the handler with its next look at the table, within seconds, and does not wait for the end of its "
        "pause. If the call fails again, the pauses go on as before.",
        () if failing is not None else ("its owner tells of no failure, so the call may change nothing",),
        ("retry", "Call it now?", desk.command("retry", shard=shard)),
    )


def plan_skip_record(
    desk: Desk, shard: str, record: ExtendedSequenceNumber | None = None
) -> HandlerRequestChange:
    """Plan to have exactly one record of a shard left out; None means the record on which the handler fails."""
    lease = desk.lease(shard)
    named = None if record is None else f"at:{record}"
    record = _failing_record(lease) if record is None else record
    if lease.checkpoint >= record:
        raise ChangeRefusedError(
            f"{_name(lease)}: record {record} is processed: the checkpoint is {lease.checkpoint}"
        )
    return _plan(
        desk,
        lease,
        HandlerRequest(HandlerVerb.LEAVE_OUT, _new_id(), record),
        f"The owner passes record {record}, and no other, to its dead-letter hook, and continues after it. If its policy has no hook, the record "
        "is named in the log, and it stays in the stream until it expires. A rewind to before it brings it back.",
        ()
        if lease.holder is not None
        else ("no worker holds the lease; the next owner acts on the request",),
        (
            "skip-record",
            "Leave this record out?",
            desk.command("skip-record", shard=shard, record=named),
        ),
    )


def _plan(
    desk: Desk,
    lease: Lease,
    request: HandlerRequest,
    effect: str,
    warnings: tuple[str, ...],
    words: tuple[str, str, Command],
) -> HandlerRequestChange:
    if lease.is_finished:
        raise ChangeRefusedError(f"{_name(lease)} is processed to its end")
    if lease.holder is not None and desk.owners.kind(lease.holder) is not OwnerKind.SDK:
        raise ChangeRefusedError(
            f"{printable(lease.holder)} is a Java worker, or one of another release: it does not read requests"
        )
    before = lease.handler_request
    if before is not None and before.record is not None and before.record != request.record:
        warnings = (*warnings, f"it replaces the request to leave record {before.record} out")
    verb, question, command = words
    was = "–" if before is None else before.to_text()
    line = f"{attributes.HANDLER_REQUEST}: {was} → {request.to_text()}; on condition: the row exists"
    call = desk.application.table.operation(WriteKind.UPDATE)
    description = ChangeDescription(
        title=f"{verb} {printable(lease.shard)}",
        question=question,
        command=command,
        writes=(Write(call=call, row=lease.lease_key, lines=(line,)),),
        effects=(effect,),
        warnings=warnings,
    )
    return HandlerRequestChange(desk, lease, request, description)


def _failing_record(lease: Lease) -> ExtendedSequenceNumber:
    progress = lease.current_progress
    failing = None if progress is None else progress.failing
    name = _name(lease)
    if failing is None or failing.position is None:
        problem = f"{name}: its owner tells of no record on which its handler fails: name one"
    elif failing.records > 1:
        problem = (
            f"{name}: the handler fails on {failing.records:,} records from {failing.position} on, and one of them is the cause. The owner "
            "delivers fewer with each attempt: wait until it is alone, or name it"
        )
    else:
        return failing.position
    raise ConfigError("record", None, "the position of a record", problem=problem)


def _is_behind(lease: Lease, record: ExtendedSequenceNumber) -> bool:
    """Return whether the owner has left a record out: the record is checkpointed, or the handler fails on a later record."""
    progress = lease.current_progress
    failing = None if progress is None else progress.failing
    return lease.checkpoint >= record or (
        failing is not None and failing.position is not None and failing.position > record
    )


def _name(lease: Lease) -> str:
    return f"shard {short_shard(lease.shard)}"


def _new_id() -> str:
    return uuid4().hex[:12]
