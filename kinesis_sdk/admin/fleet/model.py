"""The view of a fleet at a given time, as plain data.

The lease table has no times: the counter of a row shows *that* it changed, and each observer measures *when* by its own
monotonic clock. So an age is the time since this observer saw a change, and None if it has not seen a change yet;
`FleetView.watched` is the time since the observer began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.plain import plain
from kinesis_sdk.common.errors import AwsConfigError, AwsError, LeaseTableNotFoundError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

TREND_STEP = 10.0
"""Seconds between two values of `LeaseView.trend` and `OwnerView.trend`."""
TREND_LENGTH = 60
"""Maximum number of values of a trend: ten minutes."""
_EXPIRED = ("ExpiredToken", "ExpiredTokenException")
"""Codes of expired credentials. A worker repeats the call, because its credentials may be renewed."""


class OwnerKind(str, Enum):
    """The kind of an owner, as far as its rows show it."""

    SDK = "kinesis_sdk"
    """This SDK: its rows name it in ``handoffOwner``."""
    KCL3 = "KCL 3"
    """Java KCL 3.x, which has fresh worker metrics."""
    OTHER = "KCL 1 or 2"
    """Any other worker, which does not support handoff requests."""


class LeaseState(str, Enum):
    """The state of a shard, as far as its row shows it."""

    HELD = "held"
    """An owner renews the lease."""
    SILENT = "silent"
    """The owner has not renewed the lease for longer than the failover time."""
    HANDOFF = "handoff"
    """The holder finishes its work before the next owner begins."""
    UNOWNED = "unowned"
    """No worker holds the lease."""
    WAITING = "waiting for parents"
    """A parent of the shard is not finished."""
    FINISHED = "finished"
    """The shard was processed to its end."""
    UNREADABLE = "unreadable"
    """The row cannot be read as a lease."""
    MISSING = "no lease"
    """The stream lists the shard, but the table has no row for it."""


class LagSource(str, Enum):
    """The origin of a lag."""

    PROGRESS = "progress"
    """The owner, which knows its own progress, wrote the lag to the row with a renewal."""
    PROBE = "probe"
    """A probe read the stream at the checkpoint, so all records after the checkpoint count as unprocessed."""


class ErrorCode(str, Enum):
    """The kind of an error, for programs: they must not depend on the words of its message."""

    NO_LEASE_TABLE = "no-lease-table"
    """The application has no lease table, or no leases, in this store."""
    AWS_SETTINGS = "aws-settings"
    """No region, no credentials, or credentials that AWS rejects or that have expired."""
    OTHER = "other"

    @classmethod
    def of(cls, error: BaseException) -> ErrorCode:
        """Return the kind of an error."""
        if isinstance(error, LeaseTableNotFoundError):
            return cls.NO_LEASE_TABLE
        is_expired = isinstance(error, AwsError) and error.code in _EXPIRED
        return cls.AWS_SETTINGS if is_expired or isinstance(error, AwsConfigError) else cls.OTHER


class Severity(str, Enum):
    """The severity of a problem."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class LagReading:
    """A lag: the age of the oldest unprocessed record of a shard.

    Attributes:
        millis: Milliseconds; 0 if nothing is unprocessed.
        age: Seconds since it was measured, by the observer's clock.
        source: Its origin.
    """

    millis: int
    age: float
    source: LagSource


@dataclass(frozen=True, kw_only=True)
class Action:
    """An action of an operator that solves a problem.

    Attributes:
        title: Short name of the action: a verb with its object.
        command: The command that carries the action out.
    """

    title: str
    command: Command


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A condition that prevents the processing of records, or soon will.

    Attributes:
        code: Stable name for programs, for example ``near-horizon``.
        severity: How bad it is.
        title: Two or three words for people.
        text: The observation in one sentence, with numbers.
        remedy: Remedy, in one sentence.
        command: A command that helps; None if no command does.
        actions: Actions for an operator, the most likely first; empty if ``command`` is the only action.
        lease_key: The lease that the problem concerns; None if it concerns an owner or the whole application.
        shard_id: The shard of that lease.
        owner: The worker that the problem concerns, or that owns the lease; None if there is none.
        count: Leases that it concerns.
    """

    code: str
    severity: Severity
    title: str
    text: str
    remedy: str
    command: Command | None = None
    actions: tuple[Action, ...] = ()
    lease_key: str | None = None
    shard_id: str | None = None
    owner: str | None = None
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class HandlerFailure:
    """Failure of the handler of a shard, as the owner of the lease last reported it.

    Attributes:
        attempts: Consecutive failed calls.
        seconds: Duration for which the calls have failed.
        retry_in: Seconds until the next call; 0 if it is due or runs.
        records: Number of user records in the last failed call; 0 if a callback other than ``process_records`` failed.
        position: Position of the first of these records; None if there are none. If ``records`` is 1, this is the record on which the
            handler fails.
        error: Class and text of the error, printable and shortened.
    """

    attempts: int
    seconds: float
    retry_in: float
    records: int
    position: ExtendedSequenceNumber | None
    error: str


@dataclass(frozen=True, kw_only=True)
class LeaseView:
    """One row of the lease table, decoded, or a shard without a row.

    Attributes:
        lease_key: Key of the row.
        shard_id: The shard.
        stream: ``account:name:creationEpoch`` in a table of several streams; None in a single-stream table.
        state: State of the shard.
        owner: Worker that holds the lease, even if the worker is silent; None if there is none.
        next_owner: Worker that waits for a handoff.
        kind: Kind of the owner; None without an owner.
        counter: Lease counter.
        owner_switches: Changes of the owner since the last checkpoint.
        checkpoint: Stored position; None if the row is missing or unreadable.
        parents: Parent shards, from the row and the stream.
        children: Child shards, from the row and the stream.
        hash_key_range: Range of the shard.
        throughput_kbps: KB/s, as a KCL 3 or this SDK last stored it.
        renewed_ago: Seconds since the counter was last seen to change; None if it was not.
        checkpointed_ago: Seconds since the checkpoint was last seen to change; None if it was not.
        handler_seconds: Duration of the handler's running call, if the owner reports it; otherwise None.
        failing: Failure of the handler, if the owner reports one; otherwise None.
        lag: Age of the oldest unprocessed record that the owner reports, otherwise ``checkpoint_lag``; None if both are unknown.
        checkpoint_lag: Age of the oldest record after the checkpoint, which is processed again if the owner dies now. Measured by a probe;
            None without a probe.
        lag_note: Reason for a missing fresh reading; otherwise empty.
        trend: The lag in milliseconds every `TREND_STEP` seconds, oldest first; None where it was unknown.
        retention_left: Seconds until the oldest unprocessed record is trimmed: retention minus lag; None if unknown.
        pinned_to: Worker that the lease is pinned to.
        other_attributes: Names of unknown attributes.
        note: Reason why the row is unreadable, or another remark; usually empty.
        state_for: Seconds since this observer saw the state begin; None if it began before the first scan.
        checkpoint_trimmed: Whether, at the newest probe, the retention had passed the checkpoint, so that records after it may be lost.
        initial_timestamp_millis: Instant that the checkpoint ``AT_TIMESTAMP`` or ``LATEST`` means, in epoch milliseconds, if
            the row has it.
    """

    lease_key: str
    shard_id: str
    stream: str | None = None
    state: LeaseState
    owner: str | None = None
    next_owner: str | None = None
    kind: OwnerKind | None = None
    counter: int = 0
    owner_switches: int = 0
    checkpoint: ExtendedSequenceNumber | None = None
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    hash_key_range: HashKeyRange | None = None
    throughput_kbps: float | None = None
    renewed_ago: float | None = None
    checkpointed_ago: float | None = None
    handler_seconds: float | None = None
    failing: HandlerFailure | None = None
    lag: LagReading | None = None
    checkpoint_lag: LagReading | None = None
    lag_note: str = ""
    trend: tuple[int | None, ...] = ()
    retention_left: float | None = None
    pinned_to: str | None = None
    other_attributes: tuple[str, ...] = ()
    note: str = ""
    state_for: float | None = None
    checkpoint_trimmed: bool = False
    initial_timestamp_millis: int | None = None


@dataclass(frozen=True, kw_only=True)
class OwnerView:
    """One worker, as the table shows it.

    Attributes:
        worker_id: Its id.
        group: Its group: the part of the id before ``|``; None without a group.
        kind: Kind of the worker.
        lease_keys: Unfinished leases that it holds, by shard.
        silent_for: Seconds since any of its rows was seen to change, if that is longer than the failover time; otherwise None.
        is_standby: Whether it holds no leases and writes a standby heartbeat.
        is_draining: Whether an operator marked it to hand off its leases.
        worst_lag_millis: Largest lag of its leases; None if no lag is known.
        throughput_kbps: Sum over its leases; None if no throughput is known.
        trend: Largest lag of its leases every `TREND_STEP` seconds, oldest first.
    """

    worker_id: str
    group: str | None = None
    kind: OwnerKind
    lease_keys: tuple[str, ...] = ()
    silent_for: float | None = None
    is_standby: bool = False
    is_draining: bool = False
    worst_lag_millis: int | None = None
    throughput_kbps: float | None = None
    trend: tuple[int | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of the owner of a lease, as the observer saw it.

    Attributes:
        at: Wall time of the observer, in epoch seconds.
        lease_key: The lease.
        shard_id: Its shard.
        before: Worker that held the lease; None for no worker.
        after: Worker that holds it now; None for no worker.
        reason: ``handoff``, ``released``, ``taken`` (it had no owner), ``expired``, ``stolen`` (taken from a live worker),
            ``operator`` (a command moved it, or set its position), ``new shard``, or ``unobserved`` (it happened while this
            observer did not watch).
        idle: Observed seconds between the last sign of the old owner and the first sign of the new owner; None if unknown.
    """

    at: float
    lease_key: str
    shard_id: str
    before: str | None
    after: str | None
    reason: str
    idle: float | None = None


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The first line of the screen.

    Attributes:
        leases: Leases that are not finished, shards without a lease included.
        finished: Finished leases that are still in the table.
        unowned: Leases without a holder whose shards could be read now.
        owners: Workers that renew their leases.
        silent_owners: Workers that no longer renew their leases.
        measured: Leases with a known lag.
        worst_lag_millis: Largest lag; None if no lag is known.
        worst_shard: Shard with the largest lag.
        total_lag_millis: Sum of the lags.
        behind_a_minute: Leases that are more than a minute behind.
        throughput_kbps: Sum of the throughputs in the rows.
        moves: Moves in the last ten minutes.
    """

    leases: int = 0
    finished: int = 0
    unowned: int = 0
    owners: int = 0
    silent_owners: int = 0
    measured: int = 0
    worst_lag_millis: int | None = None
    worst_shard: str | None = None
    total_lag_millis: int = 0
    behind_a_minute: int = 0
    throughput_kbps: float = 0.0
    moves: int = 0


@dataclass(frozen=True, kw_only=True)
class FleetView:
    """An application at a given time.

    Attributes:
        application: Name of the application, which is the name of its lease table.
        streams: Names of the streams that it consumes, as far as they are known.
        at: Wall time of the observer, in epoch seconds.
        watched: Seconds since the observer's first scan.
        table_age: Seconds since the table was last read.
        retention: Retention of the stream in seconds; None if unknown or if there are several streams.
        failover_time: Seconds without a change after which an owner counts as silent.
        totals: Sums.
        problems: Worst first.
        owners: In a stable order: by group, then by id.
        leases: In a stable order: by stream, then by shard.
        moves: Newest first.
        entities: Number of rows that are not leases, by their ``entityType`` (KCL 3.5 keeps its state in the table).
        calls_per_minute: API calls of this view in the last minute, by operation.
        error: Reason why the newest read failed; otherwise empty. The rest is then stale, see ``table_age``.
        error_code: Kind of ``error``; if both the table and the stream failed, the kind of the table's error. None without an error.
    """

    application: str
    streams: tuple[str, ...] = ()
    at: float
    watched: float = 0.0
    table_age: float = 0.0
    retention: float | None = None
    failover_time: float = 10.0
    totals: Totals = Totals()
    problems: tuple[Problem, ...] = ()
    owners: tuple[OwnerView, ...] = ()
    leases: tuple[LeaseView, ...] = ()
    moves: tuple[Move, ...] = ()
    entities: Mapping[str, int] = field(default_factory=dict)
    calls_per_minute: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    error_code: ErrorCode | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the view as data that ``json.dumps`` accepts."""
        result: dict[str, Any] = plain(self)
        return result
