"""Memory of a fleet: the observed rows, streams and workers. `FleetObserver` fills it, and `view_of` makes a view of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinesis_sdk.admin.applications import StreamFacts
from kinesis_sdk.admin.fleet.model import ErrorCode, LagReading, LagSource, LeaseState, Move, OwnerKind
from kinesis_sdk.admin.load import ShardLoad
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import Groups
from kinesis_sdk.consumer.leases.java import CLAIM_TIME

MOVES_KEPT = 1000
"""Maximum number of moves that are kept."""
_FRESH_PROGRESS = 30.0
"""Seconds after which an owner's progress no longer replaces a probe."""


class Row:
    """Memory of one row."""

    __slots__ = (
        "changed",
        "checkpoint_at",
        "first_seen",
        "handoff_to",
        "is_absent",
        "is_new",
        "lag_note",
        "last_sign",
        "last_sign_after",
        "lease",
        "lower_since",
        "probe",
        "renewed",
        "since",
        "since_after",
        "state",
        "state_since",
        "trend",
        "trimmed",
    )

    def __init__(self, lease: Lease, now: float, *, after: float, is_new: bool) -> None:
        self.lease: Lease = lease
        self.first_seen: float = now
        self.since: float = now
        """Time of the last observed change of the counter or the holder; the time of the first scan if neither has changed."""
        self.last_sign: float = now
        """Time of the change before `since`."""
        self.last_sign_after: float = after
        """Time of the scan before `last_sign`: the change happened after this scan."""
        self.since_after: float = after
        """Time of the scan before `since`."""
        self.changed: bool = False
        """Whether the counter was seen to change."""
        self.renewed: bool = False
        """Whether a write of the current holder was observed."""
        self.checkpoint_at: float | None = None
        self.is_new: bool = is_new
        """Whether the row appeared while this observer was watching, and had no owner yet."""
        self.is_absent: bool = False
        self.lower_since: float | None = None
        self.handoff_to: str | None = None
        self.state: LeaseState | None = None
        self.state_since: float | None = None
        self.probe: tuple[int, float] | None = None
        """Lag in milliseconds and when it was measured."""
        self.lag_note: str = ""
        self.trimmed: bool = False
        self.trend: tuple[int | None, ...] = ()

    def progress_lag(self) -> tuple[int, float] | None:
        """Return the lag that the owner wrote, and the time of the write; None unless the write was observed."""
        progress = self.lease.current_progress
        if progress is None or progress.lag_millis is None or not self.renewed:
            return None
        return progress.lag_millis, self.since

    def has_fresh_progress(self, now: float) -> bool:
        """Return whether the owner reports its lag, so that no probe is needed."""
        progress = self.progress_lag()
        return (
            progress is not None
            and now - progress[1] <= _FRESH_PROGRESS
            and self.state is not LeaseState.SILENT
        )


class WorkerReport(NamedTuple):
    """The newest report of a KCL 3 worker: its time, when this observer first saw it, and whether it is fresh."""

    reported: float
    since: float
    is_fresh: bool


@dataclass
class KnownStream:
    """Memory of one stream of the application."""

    stream: StreamId
    shards: dict[str, Shard]
    graph: ShardGraph
    listed_at: float | None = None
    facts: StreamFacts | None = None
    contradiction: str | None = None
    misfits: Mapping[str, str] = field(default_factory=dict)
    recreated_at: float | None = None
    is_gone: bool = False
    hole: HashKeyRange | None = None
    hole_since: float = 0.0


@dataclass(kw_only=True)
class FleetMemory:
    """Everything that was seen. Times are monotonic seconds."""

    application: str
    failover_time: float
    groups: Groups
    rows: dict[str, Row] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    entities: dict[str, int] = field(default_factory=dict)
    streams: dict[str | None, KnownStream] = field(default_factory=dict)
    started: float | None = None
    scanned: float = 0.0
    scan_began: float = 0.0
    sdk: set[str] = field(default_factory=set)
    reports: dict[str, WorkerReport] = field(default_factory=dict)
    separate_reports: dict[str, WorkerReport] = field(default_factory=dict)
    standby: dict[str, tuple[int, float]] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    moves: deque[tuple[float, Move]] = field(default_factory=lambda: deque(maxlen=MOVES_KEPT))
    owner_trends: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    recreated_at: float | None = None
    cycles: dict[str, str] = field(default_factory=dict)
    missing: dict[str, float | None] = field(default_factory=dict)
    error: str = ""
    error_code: ErrorCode | None = None
    calls: Mapping[str, int] = field(default_factory=dict)
    loads: dict[str, tuple[ShardLoad, float]] = field(default_factory=dict)
    throttled: int = 0
    skew: float | None = None

    def retentions(self) -> dict[str | None, float]:
        """Return the known retentions in seconds, by stream."""
        return {
            name: known.facts.retention for name, known in self.streams.items() if known.facts is not None
        }

    def kind(self, worker: str) -> OwnerKind:
        """Return the kind of a worker."""
        if worker in self.sdk:
            return OwnerKind.SDK
        report = self.report(worker)
        return OwnerKind.KCL3 if report is not None and report.is_fresh else OwnerKind.OTHER

    def report(self, worker: str) -> WorkerReport | None:
        """Return the newest report of a KCL 3 worker; None if it made no report."""
        return self.reports.get(worker) or self.separate_reports.get(worker)

    def is_silent(self, row: Row) -> bool:
        """Return whether the holder of a row has not written for longer than the failover time.

        A KCL 3 leader assigns a lease before the new owner reads the assignment. Until the owner has had time to notice, an unchanged row
        does not mean that the owner is silent.
        """
        holder = row.lease.holder
        allowed = self.failover_time
        if row.changed and not row.renewed and holder is not None and self.kind(holder) is not OwnerKind.SDK:
            allowed += CLAIM_TIME * self.failover_time
        return self.scan_began - row.since > allowed

    def lag_of(self, row: Row, now: float) -> LagReading | None:
        """Return the lag of a row, from its owner or a probe; None if unknown."""
        progress, probe = row.progress_lag(), row.probe
        if progress is not None and (probe is None or progress[1] >= probe[1] or row.has_fresh_progress(now)):
            return LagReading(millis=progress[0], age=max(0.0, now - progress[1]), source=LagSource.PROGRESS)
        return reading_of(probe, now)


def reading_of(probe: tuple[int, float] | None, now: float) -> LagReading | None:
    """Return the result of a probe as a reading."""
    if probe is None:
        return None
    return LagReading(millis=probe[0], age=max(0.0, now - probe[1]), source=LagSource.PROBE)


def key_of(name: str | None, shard_id: str) -> str:
    """Return the lease key of a shard."""
    return shard_id if name is None else f"{name}:{shard_id}"
