"""The observer of a fleet: scans of the lease table, shards and lag readings in, `FleetView` out. No clock, no calls.

**Times.** A row shows that it was changed, by its counter, and not when. All ages are measured from the moment at which this
observer saw a change, on the monotonic clock of its caller. What was never seen to change has no age.

**Stale scans.** Scans are eventually consistent: one of them may show a row as it was before, or not at all. A lower counter is
therefore ignored until it has been shown for `STALE` seconds; then the table was restored or created again. A row that is missing
is kept for one more scan.

**Lag.** The age of the oldest unprocessed record. An owner of this SDK writes it to its rows (`progress`), which counts once the
row was seen to change; before, its age is not known. Otherwise a probe tells (`kinesis_sdk.admin.fleet.lag`): to it, everything after
the checkpoint is unprocessed. A fresh word of the owner wins over a probe, because it knows what was processed since; a silent
owner's does not.

**Cost.** A scan and a view of 1,000 leases of 200 workers: ``make bench-admin``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kinesis_sdk.admin.applications import StreamFacts, metrics_in
from kinesis_sdk.admin.fleet.lag import LagCandidate, LagProbeResult
from kinesis_sdk.admin.fleet.model import (
    TREND_LENGTH,
    TREND_STEP,
    ErrorCode,
    FleetView,
    HandlerFailure,
    LagReading,
    LagSource,
    LeaseState,
    LeaseView,
    Move,
    OwnerKind,
    OwnerView,
    Totals,
)
from kinesis_sdk.admin.fleet.problems import (
    SHARD_WRITE_KBPS,
    Hole,
    ProblemSettings,
    TableFacts,
    find_problems,
)
from kinesis_sdk.admin.load import ShardLoad
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.position import from_checkpoint
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST
from kinesis_sdk.common.shards import Shard, ShardGraph, find_hole, is_shard_id, is_table_shard_id
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import Lease, TableScan
from kinesis_sdk.consumer.leases import GROUP_SEPARATOR, Groups, attributes, entity_type_of
from kinesis_sdk.consumer.leases.java import CLAIM_TIME
from kinesis_sdk.consumer.shard_sync import find_contradiction, find_cycles, find_misfits

LOAD_INTERVAL = 60.0
"""Seconds between two measurements of the load of a busy shard."""
BUSY_AT_A_TIME = 3
"""Maximum number of shards whose load is measured at a time."""
BUSY_KBPS = 0.6 * SHARD_WRITE_KBPS
"""Rate of a row from which on the shard may be full: the rate is exact to a factor of 1.4."""
STALE = 10.0
"""Seconds for which a scan may show an older state of a row. Replicas of DynamoDB usually agree within one."""
MOVES_KEPT = 1000
"""Maximum number of moves that are kept."""
_RECENT = 600.0
"""Seconds for which a move counts in `Totals.moves`."""
_METRICS_FRESH = 600.0
"""Seconds by which the clock of a KCL 3 worker may differ from this one's when its first report is judged."""
_REPORT_LIFETIME = 120.0
"""Seconds without a new report after which a KCL 3 worker without leases is not shown; it reports every 30."""
_LONG_CALL = 5.0
"""Seconds after which a handler's call that ran at the time of a write is taken to run still."""
_FRESH_PROGRESS = 30.0
"""Seconds after which the progress of an owner no longer replaces a probe."""
_GAP = 30.0
"""Seconds between two scans beyond which what happened in between was not watched."""
_STUCK = 10.0
"""Seconds without a checkpoint, while the lease is renewed, after which a shard is probed before others."""


class _Row:
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
        self.lease = lease
        self.first_seen = now
        self.since = now
        """Time of the last change of the counter or the holder that was seen; the first look if there was none."""
        self.last_sign = now
        """Time of the change before that."""
        self.last_sign_after = after
        """Time of the scan before that one: the change came after it."""
        self.since_after = after
        """The same for `since`."""
        self.changed = False
        """Whether the counter was seen to change."""
        self.renewed = False
        """Whether the present holder was seen to write."""
        self.checkpoint_at: float | None = None
        self.is_new = is_new
        """Whether the row appeared while this observer was watching, and had no owner yet."""
        self.is_absent = False
        self.lower_since: float | None = None
        self.handoff_to: str | None = None
        self.state: LeaseState | None = None
        self.state_since: float | None = None
        self.probe: tuple[int, float] | None = None
        """Lag in milliseconds and when it was measured."""
        self.lag_note = ""
        self.trimmed = False
        self.trend: tuple[int | None, ...] = ()

    def progress_lag(self) -> tuple[int, float] | None:
        """Return the lag that the owner wrote, and when; None unless it was seen to be written."""
        progress = self.lease.current_progress
        if progress is None or progress.lag_millis is None or not self.renewed:
            return None
        return progress.lag_millis, self.since

    def has_fresh_progress(self, now: float) -> bool:
        """Return whether the owner tells its lag, so that the stream need not be asked."""
        progress = self.progress_lag()
        return (
            progress is not None
            and now - progress[1] <= _FRESH_PROGRESS
            and self.state is not LeaseState.SILENT
        )


class _Report(NamedTuple):
    """The newest report of a KCL 3 worker: its time, when this observer first saw it, and whether it is fresh."""

    reported: float
    since: float
    is_fresh: bool


@dataclass
class _Stream:
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


class FleetObserver:
    """Memory of a fleet, fed by its caller. Not thread-safe: one thread feeds it and takes its views.

    Args:
        application: Name of the application.
        failover_time: Seconds without a change after which an owner counts as silent: the fleet's own setting.
        separator: Text that ends the group's label in a worker id.
        settings: Thresholds of the problems.
    """

    def __init__(
        self,
        application: str,
        *,
        failover_time: float = 10.0,
        separator: str = GROUP_SEPARATOR,
        settings: ProblemSettings | None = None,
    ) -> None:
        self.application = application
        self.failover_time = failover_time
        self._settings = settings or ProblemSettings()
        self._groups = Groups(separator)
        self._rows: dict[str, _Row] = {}
        self._unreadable: Mapping[str, str] = {}
        self._entities: dict[str, int] = {}
        self._streams: dict[str | None, _Stream] = {}
        self._started: float | None = None
        self._scanned = 0.0
        self._scanned_before = 0.0
        self._scan_began = 0.0
        self._was_watching = False
        self._sdk: set[str] = set()
        self._reports: dict[str, _Report] = {}
        self._separate_reports: dict[str, _Report] = {}
        self._standby: dict[str, tuple[int, float]] = {}
        self._draining: set[str] = set()
        self._moves: deque[tuple[float, Move]] = deque(maxlen=MOVES_KEPT)
        self._sampled: float | None = None
        self._owner_trends: dict[str, tuple[int | None, ...]] = {}
        self._recreated_at: float | None = None
        self._balance_since: float | None = None
        self._cycles: dict[str, str] = {}
        self._missing: dict[str, float | None] = {}
        self._error = ""
        self._error_code: ErrorCode | None = None
        self._calls: Mapping[str, int] = {}
        self._loads: dict[str, tuple[ShardLoad, float]] = {}
        self._throttled = 0
        self._skew: float | None = None

    # What comes in

    def observe_table(
        self, scan: TableScan, now: float, at: float, *, began: float | None = None, consistent: bool = False
    ) -> None:
        """Process a complete scan of the lease table.

        Args:
            scan: The rows.
            now: Monotonic seconds after the scan.
            at: Wall time in epoch seconds, for the times of moves.
            began: Monotonic seconds before the scan: rows are known to be unchanged until then. ``now`` by default.
            consistent: Whether the scan was strongly consistent, so that what it shows is never stale.
        """
        first = self._started is None
        if first:
            self._started = now
        # Without a scan in between, the reason and the idle time of a move cannot be told.
        self._was_watching = first or now - self._scanned <= max(_GAP, self.failover_time)
        self._scanned_before, self._scanned, self._scan_began = (
            self._scanned,
            now,
            now if began is None else began,
        )
        self._unreadable = scan.unreadable
        self._entities = {}
        for item in scan.others.values():
            entity = entity_type_of(item)
            self._entities[entity] = self._entities.get(entity, 0) + 1
        self._reports = self._judge(metrics_in(scan.others), self._reports, now, at)
        seen: set[str] = set()
        went_back = 0
        changed: list[tuple[_Row, Lease]] = []
        for lease in scan.leases:
            seen.add(lease.lease_key)
            row = self._rows.get(lease.lease_key)
            if row is None:
                self._rows[lease.lease_key] = self._new_row(lease, now, at, first=first)
                continue
            row.is_absent = False
            if lease.counter < row.lease.counter:
                if row.lower_since is None:
                    row.lower_since = now
                if not consistent and now - row.lower_since < STALE:
                    continue
                went_back += 1
            row.lower_since = None
            if lease.holder != row.lease.holder:
                changed.append((row, row.lease))
            self._update(row, lease, now)
        self._drop_absent(seen, consistent=consistent)
        if went_back and 2 * went_back >= len(seen):
            self._recreated_at = now
        self._find_workers(now)
        for row, old in changed:
            self._note_move(row, old, now, at)
        for row in self._rows.values():
            row.handoff_to = row.lease.owner if row.lease.in_handoff else None
        self._find_lineage_problems(now)
        self._refresh_states(now)
        self._sample(now)

    def observe_streams(self, streams: Mapping[str | None, StreamId]) -> None:
        """Set the streams of the application, by the ``streamName`` of their rows; None where rows have none."""
        self._streams = {
            name: self._streams.get(name) or _Stream(stream, {}, ShardGraph(()))
            for name, stream in streams.items()
        }

    def observe_shards(self, name: str | None, shards: Iterable[Shard], now: float) -> None:
        """Process a listing of a stream's shards, which was made after the newest scan of the table.

        Args:
            name: ``streamName`` of the stream's rows.
            shards: All shards.
            now: Monotonic seconds.
        """
        known = self._streams.get(name)
        if known is None:
            return
        known.graph = ShardGraph(shards)
        known.shards = known.graph.shards
        known.listed_at = now
        known.is_gone = False
        leases = self._leases_by_shard(name)
        known.contradiction = find_contradiction(known.shards.values(), leases)
        known.misfits = {
            _key(name, shard_id): evidence
            for shard_id, evidence in find_misfits(known.shards.values(), leases).items()
        }
        self._find_holes(name, known, now)
        self._refresh_states(now)

    def observe_stream(self, name: str | None, facts: StreamFacts | None, now: float) -> None:
        """Process a description of a stream; None if the stream does not exist."""
        known = self._streams.get(name)
        if known is None:
            return
        known.is_gone = facts is None
        if facts is None:
            return
        before = known.facts
        if before is not None and before.created is not None and facts.created != before.created:
            known.recreated_at = now
        known.facts = facts

    def observe_metrics(self, metrics: Mapping[str, float], now: float, at: float) -> None:
        """Process the reports of KCL 3.0 to 3.4 workers, which have a table of their own.

        Args:
            metrics: When each worker reported, in epoch seconds of its own clock, by worker id.
            now: Monotonic seconds.
            at: Wall time in epoch seconds.
        """
        self._separate_reports = self._judge(metrics, self._separate_reports, now, at)

    def observe_lag(self, lease_key: str, result: LagProbeResult, now: float) -> None:
        """Process the result of a probe. It is ignored if the row is gone."""
        row = self._rows.get(lease_key)
        if row is None:
            return
        row.lag_note = result.note
        if result.millis is not None:
            row.probe = (result.millis, now)
            row.trimmed = result.trimmed

    def observe_error(self, error: str, code: ErrorCode | None = None) -> None:
        """Set why the newest look failed; an empty text after one that did not."""
        self._error, self._error_code = error, code

    def observe_calls(
        self, calls: Mapping[str, int], *, throttled: int = 0, skew: float | None = None
    ) -> None:
        """Set what the calls of the last minute showed.

        Args:
            calls: Their number, by operation.
            throttled: Number of calls that the lease table throttled.
            skew: Seconds by which this machine's clock is behind AWS at least, below zero if it is ahead; None if it is not known.
        """
        self._calls, self._throttled, self._skew = dict(calls), throttled, skew

    def observe_loads(self, loads: Mapping[str, ShardLoad], now: float) -> None:
        """Process the measured loads of busy shards, by lease key."""
        self._loads.update({key: (load, now) for key, load in loads.items()})

    # What goes out

    def busy_leases(self, now: float) -> list[tuple[str, StreamId, str]]:
        """Return lease key, stream and shard of the busiest leases whose load should be measured, `BUSY_AT_A_TIME` at most.

        The rate of a row is exact to a factor of 1.4 only, as workers rewrite it when it has changed by as much.
        """
        busy = []
        for key, row in self._rows.items():
            lease, rate = row.lease, row.lease.throughput_kbps or 0.0
            known = self._streams.get(lease.stream_name)
            if rate < BUSY_KBPS or lease.holder is None or lease.is_finished or known is None:
                continue
            measured = self._loads.get(key)
            if measured is None or now - measured[1] >= LOAD_INTERVAL:
                busy.append((rate, key, known.stream, lease.shard))
        busy.sort(key=lambda one: (-one[0], one[1]))
        return [(key, stream, shard_id) for _, key, stream, shard_id in busy[:BUSY_AT_A_TIME]]

    def lag_candidates(self, now: float) -> list[LagCandidate]:
        """Return the leases whose lag a probe can tell, with what its schedule has to know."""
        found = []
        for key, row in self._rows.items():
            lease = row.lease
            known = self._streams.get(lease.stream_name)
            if lease.is_finished or known is None or known.is_gone:
                continue
            checkpoint = lease.checkpoint
            if (
                checkpoint.sequence_number in (LATEST, AT_TIMESTAMP)
                and lease.initial_timestamp_millis is None
            ):
                continue
            found.append(
                LagCandidate(
                    lease_key=key,
                    stream=known.stream,
                    shard_id=lease.shard,
                    position=from_checkpoint(checkpoint, lease.initial_timestamp_millis),
                    sub_sequence_number=None if checkpoint.is_sentinel else checkpoint.sub_sequence_number,
                    is_known=row.has_fresh_progress(now),
                    is_stuck=row.renewed
                    and now - (row.first_seen if row.checkpoint_at is None else row.checkpoint_at) > _STUCK
                    and row.state is not LeaseState.WAITING,
                )
            )
        return found

    def told_lag(self, lease_key: str) -> int | None:
        """Return the lag in milliseconds that the present owner of a lease wrote to its row, whenever that was.

        Returns:
            None if it wrote none, or is known to be silent.
        """
        row = self._rows.get(lease_key)
        if row is None or row.state is LeaseState.SILENT or row.lease.current_progress is None:
            return None
        return row.lease.current_progress.lag_millis

    def view(self, now: float, at: float) -> FleetView:
        """Return what is known.

        Args:
            now: Monotonic seconds.
            at: Wall time in epoch seconds.
        """
        leases = self._lease_views(now)
        owners = self._owner_views(leases, now)
        retentions = self._retentions()
        view = FleetView(
            application=self.application,
            streams=tuple(known.stream.name for known in self._streams.values()),
            at=at,
            watched=0.0 if self._started is None else now - self._started,
            table_age=0.0 if self._started is None else now - self._scanned,
            retention=next(iter(retentions.values())) if len(retentions) == 1 else None,
            failover_time=self.failover_time,
            totals=self._totals(leases, owners, now),
            owners=owners,
            leases=leases,
            moves=tuple(move for _, move in reversed(self._moves)),
            entities=self._entities,
            calls_per_minute=self._calls,
            error=self._error,
            error_code=self._error_code,
        )
        if self._started is None:
            return view
        return replace(view, problems=find_problems(view, self._facts(now, retentions), self._settings))

    # Rows

    def _new_row(self, lease: Lease, now: float, at: float, *, first: bool) -> _Row:
        # Owners renew each third of the failover time. One that does not do so in the first half of it was silent before the first look.
        after = now - self.failover_time / 2 if first else self._scanned_before
        row = _Row(lease, now, after=after, is_new=not first)
        if not first and lease.holder is not None and not lease.is_finished:
            row.is_new = False
            self._add_move(row, None, "new shard", None, now, at)
        return row

    def _update(self, row: _Row, lease: Lease, now: float) -> None:
        old = row.lease
        if lease.counter != old.counter or lease.holder != old.holder:
            # A handoff request names another owner and leaves the holder: it does not show that the holder is alive.
            row.renewed = lease.holder == old.holder
            row.changed = row.changed or lease.counter != old.counter
            row.last_sign, row.since = row.since, now
            row.last_sign_after, row.since_after = row.since_after, self._scanned_before
        if lease.checkpoint != old.checkpoint:
            row.checkpoint_at = now
            row.trimmed = False
        row.lease = lease

    def _drop_absent(self, seen: set[str], *, consistent: bool) -> None:
        for key in [key for key in self._rows if key not in seen]:
            row = self._rows[key]
            if row.is_absent or consistent or key in self._unreadable:
                del self._rows[key]
            row.is_absent = True

    def _leases_by_shard(self, name: str | None) -> list[Lease]:
        """Return the leases of one stream, with shard ids as keys."""
        return [
            row.lease if name is None else replace(row.lease, lease_key=row.lease.shard)
            for row in self._rows.values()
            if row.lease.stream_name == name
        ]

    # Workers

    def _find_workers(self, now: float) -> None:
        """Tell the kinds of the workers, and which of them are on standby or are to give up their leases."""
        heartbeats: dict[str, int] = {}
        self._draining = set()
        for row in self._rows.values():
            lease = row.lease
            if lease.handoff_owner is not None and lease.handoff_owner == lease.owner:
                self._sdk.add(lease.handoff_owner)
            if lease.progress is not None and lease.progress.owner in (lease.owner, lease.checkpoint_owner):
                self._sdk.add(lease.progress.owner)
            for worker, value in lease.standby_heartbeats.items():
                heartbeats[worker] = max(value, heartbeats.get(worker, value))
            self._draining.update(lease.draining)
        self._sdk.update(heartbeats)
        self._standby = {
            worker: known
            if (known := self._standby.get(worker)) is not None and known[0] == value
            else (value, now)
            for worker, value in heartbeats.items()
        }
        present = {row.lease.holder for row in self._rows.values()} | {
            row.lease.owner for row in self._rows.values()
        }
        # Ids of workers that are gone would pile up over the months, because every restart makes a new one.
        self._sdk &= {worker for worker in present if worker is not None} | heartbeats.keys() | self._draining

    @staticmethod
    def _judge(
        metrics: Mapping[str, float], known: Mapping[str, _Report], now: float, at: float
    ) -> dict[str, _Report]:
        """Return the reports with whether they are fresh: seen to change, or with a time near this observer's clock."""
        judged = {}
        for worker, reported in metrics.items():
            before = known.get(worker)
            if before is None:
                judged[worker] = _Report(reported, now, is_fresh=abs(at - reported) < _METRICS_FRESH)
            elif before.reported != reported:
                judged[worker] = _Report(reported, now, is_fresh=True)
            else:
                judged[worker] = before
        return judged

    def _report(self, worker: str) -> _Report | None:
        return self._reports.get(worker) or self._separate_reports.get(worker)

    def _kind(self, worker: str) -> OwnerKind:
        if worker in self._sdk:
            return OwnerKind.SDK
        report = self._report(worker)
        return OwnerKind.KCL3 if report is not None and report.is_fresh else OwnerKind.OTHER

    # Moves

    def _note_move(self, row: _Row, old: Lease, now: float, at: float) -> None:
        lease = row.lease
        before, after = old.holder, lease.holder
        if lease.is_finished:
            row.is_new = False
            return
        idle: float | None = now - row.last_sign
        if before is None:
            reason = "new shard" if row.is_new else "taken"
        elif after is None:
            reason, idle = "released", None
        elif not self._was_watching:
            reason = "unobserved"
        elif _operator(old) != _operator(lease):
            reason = "operator"
        elif row.handoff_to == after or (after in self._sdk and _is_handed_off(old, lease)):
            reason = "handoff"
        elif now - row.last_sign_after > self.failover_time:
            # The last renewal came between two scans, so the silence may be longer than was seen, by the time between them.
            reason = "expired"
        elif self._holds_anything(before):
            reason = "stolen"
        else:
            # The old owner has nothing left: it stopped, and its leases were released and taken between two scans.
            reason = "released"
        row.is_new = False
        self._add_move(row, before, reason, idle if self._was_watching else None, now, at)

    def _holds_anything(self, worker: str) -> bool:
        return any(row.lease.holder == worker and not row.lease.is_finished for row in self._rows.values())

    def _add_move(
        self, row: _Row, before: str | None, reason: str, idle: float | None, now: float, at: float
    ) -> None:
        lease = row.lease
        move = Move(
            at=at,
            lease_key=lease.lease_key,
            shard_id=lease.shard,
            before=before,
            after=lease.holder,
            reason=reason,
            idle=idle,
        )
        self._moves.append((now, move))

    # States

    def _find_lineage_problems(self, now: float) -> None:
        self._cycles = find_cycles(row.lease for row in self._rows.values())
        for name, known in self._streams.items():
            self._find_holes(name, known, now)

    def _find_holes(self, name: str | None, known: _Stream, now: float) -> None:
        """Find the part of the hash keys that no unfinished lease covers; old rows without a range take the shard's."""
        ranges = []
        for row in self._rows.values():
            lease = row.lease
            if lease.stream_name != name or lease.is_finished:
                continue
            shard = known.shards.get(lease.shard)
            hash_key_range = lease.hash_key_range or (shard.hash_key_range if shard is not None else None)
            if hash_key_range is None:
                known.hole = None  # what this row covers is not known
                return
            ranges.append(hash_key_range)
        hole = find_hole(ranges) if ranges else None
        if hole != known.hole:
            known.hole, known.hole_since = hole, now

    def _refresh_states(self, now: float) -> None:
        unfinished = {key for key, row in self._rows.items() if not row.lease.is_finished}
        unfinished.update(self._unreadable)
        for row in self._rows.values():
            state = self._state(row, unfinished)
            if state is not row.state:
                row.state_since = None if row.state is None and not row.is_new else now
                row.state = state
        missing: dict[str, float | None] = {}
        for name, known in self._streams.items():
            for shard in known.graph.open_shards:
                key = _key(name, shard.shard_id)
                if key not in self._rows and key not in self._unreadable:
                    missing[key] = self._missing.get(key, None if self._started == self._scanned else now)
        self._missing = missing

    def _state(self, row: _Row, unfinished: set[str]) -> LeaseState:
        lease = row.lease
        if lease.is_finished:
            return LeaseState.FINISHED
        if lease.holder is not None and self._is_silent(row):
            return LeaseState.SILENT
        if lease.in_handoff:
            return LeaseState.HANDOFF
        if any(_key(lease.stream_name, parent) in unfinished for parent in lease.parent_shard_ids):
            return LeaseState.WAITING
        return LeaseState.UNOWNED if lease.holder is None else LeaseState.HELD

    def _is_silent(self, row: _Row) -> bool:
        """Return whether the holder of a row has not written for longer than the failover time.

        A KCL 3 leader assigns a lease before its new owner knows of it. Until that one had the time to find out, the row is as
        the leader left it, and its silence says nothing.
        """
        holder = row.lease.holder
        allowed = self.failover_time
        if row.changed and not row.renewed and holder is not None and self._kind(holder) is not OwnerKind.SDK:
            allowed += CLAIM_TIME * self.failover_time
        return self._scan_began - row.since > allowed

    # Lag

    def _lag_of(self, row: _Row, now: float) -> LagReading | None:
        progress, probe = row.progress_lag(), row.probe
        if progress is not None and (probe is None or progress[1] >= probe[1] or row.has_fresh_progress(now)):
            return LagReading(millis=progress[0], age=max(0.0, now - progress[1]), source=LagSource.PROGRESS)
        return _reading(probe, now)

    def _sample(self, now: float) -> None:
        """Append to the trends what is known now, once in `TREND_STEP` seconds."""
        if self._sampled is not None and now - self._sampled < TREND_STEP:
            return
        self._sampled = now
        worst: dict[str, int | None] = {}
        for row in self._rows.values():
            if row.lease.is_finished:
                continue
            reading = self._lag_of(row, now)
            millis = None if reading is None else reading.millis
            row.trend = (*row.trend[1 - TREND_LENGTH :], millis)
            owner = row.lease.holder
            if owner is not None:
                known = worst.get(owner)
                worst[owner] = millis if known is None else max(known, millis or 0)
        self._owner_trends = {
            owner: (*self._owner_trends.get(owner, ())[1 - TREND_LENGTH :], millis)
            for owner, millis in worst.items()
        }

    # Views

    def _retentions(self) -> dict[str | None, float]:
        return {
            name: known.facts.retention for name, known in self._streams.items() if known.facts is not None
        }

    def _lease_views(self, now: float) -> tuple[LeaseView, ...]:
        retentions = self._retentions()
        views = [self._lease_view(row, now, retentions) for row in self._rows.values()]
        for key, note in self._unreadable.items():
            name, _, shard_id = key.rpartition(":")
            views.append(
                LeaseView(
                    lease_key=key,
                    shard_id=shard_id,
                    stream=name or None,
                    state=LeaseState.UNREADABLE,
                    note=note,
                )
            )
        for key, since in self._missing.items():
            views.append(self._missing_view(key, since, now))
        views.sort(key=lambda view: (view.stream or "", view.shard_id, view.lease_key))
        return tuple(views)

    def _lease_view(self, row: _Row, now: float, retentions: Mapping[str | None, float]) -> LeaseView:
        lease = row.lease
        known = self._streams.get(lease.stream_name)
        shard = known.shards.get(lease.shard) if known is not None else None
        parents, children = lease.parent_shard_ids, lease.child_shard_ids
        if shard is not None and known is not None:
            parents = parents or shard.parents
            children = children or known.graph.children(shard.shard_id)
        holder = lease.holder
        finished = lease.is_finished
        lag = None if finished else self._lag_of(row, now)
        retention = retentions.get(lease.stream_name)
        left = None
        if lag is not None and retention is not None:
            # While something is unprocessed, the tip moves away from the checkpoint with time.
            left = retention - lag.millis / 1000 - (lag.age if lag.millis else 0.0)
        return LeaseView(
            lease_key=lease.lease_key,
            shard_id=lease.shard,
            stream=lease.stream_name,
            state=row.state or LeaseState.HELD,
            owner=holder,
            next_owner=lease.owner if lease.in_handoff else None,
            kind=None if holder is None else self._kind(holder),
            counter=lease.counter,
            owner_switches=lease.owner_switches,
            checkpoint=lease.checkpoint,
            parents=parents,
            children=children,
            hash_key_range=lease.hash_key_range or (shard.hash_key_range if shard is not None else None),
            throughput_kbps=None if holder is None else lease.throughput_kbps,
            renewed_ago=max(0.0, now - row.since) if row.changed else None,
            checkpointed_ago=None if row.checkpoint_at is None else max(0.0, now - row.checkpoint_at),
            handler_seconds=self._handler_seconds(row, now),
            failing=self._failing(row, now),
            lag=lag,
            checkpoint_lag=None if finished else _reading(row.probe, now),
            lag_note="" if finished else row.lag_note or ("" if lag is not None else self._why_no_lag(row)),
            trend=row.trend,
            retention_left=left,
            pinned_to=lease.pinned_to,
            other_attributes=tuple(sorted(name for name in lease.extra if name != attributes.CHANGED_BY)),
            note=self._note(row),
            state_for=None if row.state_since is None else max(0.0, now - row.state_since),
            checkpoint_trimmed=row.trimmed,
            initial_timestamp_millis=lease.initial_timestamp_millis,
        )

    def _note(self, row: _Row) -> str:
        if row.lease.lease_key in self._cycles:
            return self._cycles[row.lease.lease_key]
        if row.lease.damaged:
            return f"cannot be read, and count as absent: {', '.join(row.lease.damaged)}"
        return ""

    @staticmethod
    def _handler_seconds(row: _Row, now: float) -> float | None:
        progress = row.lease.current_progress
        if progress is None or progress.handler_millis is None or row.lease.is_finished:
            return None
        seconds = progress.handler_millis / 1000
        # A call that had just begun at the time of the write has probably returned since.
        return seconds + max(0.0, now - row.since) if seconds >= _LONG_CALL else seconds

    @staticmethod
    def _failing(row: _Row, now: float) -> HandlerFailure | None:
        progress = row.lease.current_progress
        if progress is None or progress.failing is None or row.lease.is_finished:
            return None
        failing, age = progress.failing, max(0.0, now - row.since)
        return HandlerFailure(
            attempts=failing.attempts,
            seconds=failing.since_millis / 1000 + age,
            retry_in=max(0.0, failing.retry_millis / 1000 - age),
            records=failing.records,
            position=failing.position,
            error=failing.error,
        )

    def _why_no_lag(self, row: _Row) -> str:
        lease = row.lease
        if lease.checkpoint.sequence_number == LATEST and lease.initial_timestamp_millis is None:
            return "starts at the tip of the shard when a worker first reads it"
        if lease.checkpoint.sequence_number == AT_TIMESTAMP and lease.initial_timestamp_millis is None:
            return "starts at a time that the row does not have"
        known = self._streams.get(lease.stream_name)
        if is_table_shard_id(lease.shard):
            return "no live worker tells it"
        if known is None:
            return "the stream is not known"
        return "the stream does not exist" if known.is_gone else "not measured yet"

    def _missing_view(self, key: str, since: float | None, now: float) -> LeaseView:
        name, _, shard_id = key.rpartition(":")
        known = self._streams[name or None]
        shard = known.shards[shard_id]
        parent_rows = (self._rows.get(_key(name or None, parent)) for parent in shard.parents)
        waits = any(row is not None and not row.lease.is_finished for row in parent_rows)
        return LeaseView(
            lease_key=key,
            shard_id=shard_id,
            stream=name or None,
            state=LeaseState.WAITING if waits else LeaseState.MISSING,
            parents=shard.parents,
            hash_key_range=shard.hash_key_range,
            lag_note="the shard has no lease",
            note="its lease is created when its parents are finished" if waits else "",
            state_for=None if since is None else max(0.0, now - since),
        )

    def _owner_views(self, leases: Iterable[LeaseView], now: float) -> tuple[OwnerView, ...]:
        held: dict[str, list[LeaseView]] = {}
        for view in leases:
            if view.owner is not None and view.state is not LeaseState.FINISHED:
                held.setdefault(view.owner, []).append(view)
        signs: dict[str, float] = {}
        silent: dict[str, bool] = {}
        for row in self._rows.values():
            holder = row.lease.holder
            if holder is not None:
                # A KCL worker renews its finished leases as well.
                signs[holder] = max(signs.get(holder, row.since), row.since)
                silent[holder] = silent.get(holder, True) and self._is_silent(row)
        idle = {
            worker
            for worker, (_, since) in self._standby.items()
            if now - since <= self.failover_time + (now - self._scanned)
        }
        for reports in (self._reports, self._separate_reports):
            idle.update(
                worker
                for worker, report in reports.items()
                if report.is_fresh and now - report.since <= _REPORT_LIFETIME
            )
        next_owners = {view.next_owner for view in leases if view.next_owner is not None}
        owners = []
        for worker in held.keys() | idle | self._draining | next_owners:
            mine = held.get(worker, [])
            lags = [view.lag.millis for view in mine if view.lag is not None]
            rates = [view.throughput_kbps for view in mine if view.throughput_kbps is not None]
            owners.append(
                OwnerView(
                    worker_id=worker,
                    group=self._groups[worker] or None,
                    kind=self._kind(worker),
                    lease_keys=tuple(view.lease_key for view in mine),
                    silent_for=now - signs[worker] if mine and silent[worker] else None,
                    is_standby=not mine and worker in idle,
                    is_draining=worker in self._draining,
                    worst_lag_millis=max(lags, default=None),
                    throughput_kbps=sum(rates) if rates else None,
                    trend=self._owner_trends.get(worker, ()),
                )
            )
        owners.sort(key=lambda owner: (owner.group or "", owner.worker_id))
        return tuple(owners)

    def _totals(self, leases: Iterable[LeaseView], owners: Iterable[OwnerView], now: float) -> Totals:
        open_ = [view for view in leases if view.state is not LeaseState.FINISHED]
        finished = len(tuple(leases)) - len(open_)
        measured = [(view.lag.millis, view) for view in open_ if view.lag is not None]
        worst = max(measured, key=lambda pair: pair[0], default=None)
        holders = [owner for owner in owners if owner.lease_keys]
        silent = sum(owner.silent_for is not None for owner in holders)
        return Totals(
            leases=len(open_),
            finished=finished,
            unowned=sum(view.state is LeaseState.UNOWNED for view in open_),
            owners=len(holders) - silent,
            silent_owners=silent,
            measured=len(measured),
            worst_lag_millis=None if worst is None else worst[0],
            worst_shard=None if worst is None else worst[1].shard_id,
            total_lag_millis=sum(millis for millis, _ in measured),
            behind_a_minute=sum(millis > 60_000 for millis, _ in measured),
            throughput_kbps=sum(view.throughput_kbps or 0.0 for view in open_),
            moves=sum(now - when <= _RECENT for when, _ in self._moves),
        )

    def _facts(self, now: float, retentions: Mapping[str | None, float]) -> TableFacts:
        foreign, gone = [], []
        for key, row in self._rows.items():
            lease = row.lease
            known = self._streams.get(lease.stream_name)
            if lease.is_finished or known is None or known.listed_at is None or lease.shard in known.shards:
                continue
            if not is_shard_id(lease.shard):
                foreign.append(key)
            elif known.shards and lease.shard < min(known.shards):
                # A shard that is newer than the listing is not known yet, and an older one has expired.
                gone.append(key)
        return TableFacts(
            retentions=retentions,
            holes=tuple(
                Hole(name, known.hole, now - known.hole_since)
                for name, known in self._streams.items()
                if known.hole is not None
            ),
            contradictions={
                known.stream.name: known.contradiction
                for known in self._streams.values()
                if known.contradiction is not None
            },
            misfits={key: text for known in self._streams.values() for key, text in known.misfits.items()},
            missing_streams=tuple(known.stream.name for known in self._streams.values() if known.is_gone),
            recreated_streams=tuple(
                known.stream.name for known in self._streams.values() if known.recreated_at is not None
            ),
            table_recreated_for=None if self._recreated_at is None else now - self._recreated_at,
            foreign=tuple(foreign),
            expired_shards=tuple(gone),
            cycles=self._cycles,
            is_first_look=self._started == self._scanned,
            loads={
                key: load
                for key, (load, at) in self._loads.items()
                if key in self._rows and now - at <= 2 * LOAD_INTERVAL
            },
            throttled=self._throttled,
            skew=self._skew,
        )


def _operator(lease: Lease) -> object:
    """Return the name that the last operator who changed the owner or the position left in a row."""
    return lease.extra.get(attributes.CHANGED_BY)


def _is_handed_off(old: Lease, new: Lease) -> bool:
    """Return whether a row that got another worker of this SDK between two scans was handed off.

    A take from another worker counts as a change of owners since the last checkpoint. After a handoff the row already names its new
    owner, whose take does not count.
    """
    if new.handoff_owner is None:
        return True  # the new owner has not taken it yet; a take sets handoffOwner
    switches = old.owner_switches if new.checkpoint == old.checkpoint else 0
    return new.owner_switches <= switches


def _reading(probe: tuple[int, float] | None, now: float) -> LagReading | None:
    if probe is None:
        return None
    return LagReading(millis=probe[0], age=max(0.0, now - probe[1]), source=LagSource.PROBE)


def _key(name: str | None, shard_id: str) -> str:
    """Return the lease key of a shard."""
    return shard_id if name is None else f"{name}:{shard_id}"
