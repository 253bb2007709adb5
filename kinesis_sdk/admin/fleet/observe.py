"""The observer of a fleet: it turns scans of the lease table, shards and lag readings into a `FleetMemory`. No clock, no calls.

**Times.** The counter of a row shows that it changed, but not when. All ages are measured from the moment at which this
observer saw a change, on its caller's monotonic clock. A value that was never seen to change has no age.

**Stale scans.** Scans are eventually consistent: a scan may show an older state of a row, or miss the row. A lower
counter is therefore ignored until it has been shown for `STALE` seconds; then the table was restored or created again.
A missing row is kept for one more scan.

**Lag.** The age of the oldest unprocessed record. An owner of this SDK writes it to its rows (`progress`). The owner's lag counts once the
row was seen to change; before that, the age of this lag is unknown. Otherwise a probe measures it (`kinesis_sdk.admin.fleet.lag`), and
counts all records after the checkpoint as unprocessed. A fresh report of a live owner has priority over a probe, because the owner knows
which records it has processed since the checkpoint.

**Cost.** A scan and a view of 1,000 leases of 200 workers: ``make bench-admin``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kinesis_sdk.admin.applications import StreamFacts, metrics_in
from kinesis_sdk.admin.fleet.lag import LagCandidate, LagProbeResult
from kinesis_sdk.admin.fleet.memory import FleetMemory, KnownStream, Row, WorkerReport, key_of
from kinesis_sdk.admin.fleet.model import (
    TREND_LENGTH,
    TREND_STEP,
    ErrorCode,
    FleetView,
    LeaseState,
    Move,
)
from kinesis_sdk.admin.fleet.problems import (
    ProblemSettings,
)
from kinesis_sdk.admin.fleet.views import LOAD_INTERVAL, view_of
from kinesis_sdk.admin.load import SHARD_BYTES_PER_SECOND, ShardLoad
from kinesis_sdk.common.position import from_checkpoint
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST
from kinesis_sdk.common.shards import Shard, ShardGraph, find_hole
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import Lease, TableScan
from kinesis_sdk.consumer.leases import GROUP_SEPARATOR, Groups, attributes, entity_type_of
from kinesis_sdk.consumer.shard_sync import find_contradiction, find_cycles, find_misfits

BUSY_AT_A_TIME = 3
"""Maximum number of shards whose load is measured at a time."""
BUSY_KBPS = 0.6 * SHARD_BYTES_PER_SECOND / 1024
"""Rate in a row from which the shard may be full: the rate is exact to a factor of 1.4."""
STALE = 10.0
"""Seconds for which a scan may show an older state of a row. Replicas of DynamoDB usually agree within one second."""
_METRICS_FRESH = 600.0
"""Seconds by which a KCL 3 worker's clock may differ from this machine's when its first report is judged."""
_GAP = 30.0
"""Seconds between two scans beyond which the time in between was not watched."""
_STUCK = 10.0
"""Seconds without a checkpoint, while the lease is renewed, after which a shard is probed first."""


class FleetObserver:
    """Observer of a fleet, fed by its caller. Not thread-safe: one thread feeds it and takes its views.

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
        self.application: str = application
        self.failover_time: float = failover_time
        self._memory = FleetMemory(
            application=application, failover_time=failover_time, groups=Groups(separator)
        )
        self._settings = settings or ProblemSettings()
        self._scanned_before = 0.0
        self._was_watching = False
        self._sampled: float | None = None

    # What comes in

    def observe_table(
        self, scan: TableScan, now: float, at: float, *, began: float | None = None, consistent: bool = False
    ) -> None:
        """Process a complete scan of the lease table.

        Args:
            scan: The rows.
            now: Monotonic seconds after the scan.
            at: Wall time in epoch seconds, for the times of moves.
            began: Monotonic seconds before the scan: rows without a change were unchanged until then. ``now`` by default.
            consistent: Whether the scan was strongly consistent, and so never stale.
        """
        first = self._memory.started is None
        if first:
            self._memory.started = now
        # Without a scan in between, the reason and the idle time of a move are unknown.
        self._was_watching = first or now - self._memory.scanned <= max(_GAP, self._memory.failover_time)
        self._scanned_before, self._memory.scanned, self._memory.scan_began = (
            self._memory.scanned,
            now,
            now if began is None else began,
        )
        self._memory.unreadable = scan.unreadable
        self._memory.entities = {}
        for item in scan.others.values():
            entity = entity_type_of(item)
            self._memory.entities[entity] = self._memory.entities.get(entity, 0) + 1
        self._memory.reports = self._judge(metrics_in(scan.others), self._memory.reports, now, at)
        seen: set[str] = set()
        went_back = 0
        changed: list[tuple[Row, Lease]] = []
        for lease in scan.leases:
            seen.add(lease.lease_key)
            row = self._memory.rows.get(lease.lease_key)
            if row is None:
                self._memory.rows[lease.lease_key] = self._new_row(lease, now, at, first=first)
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
            self._memory.recreated_at = now
        self._find_workers(now)
        for row, old in changed:
            self._note_move(row, old, now, at)
        for row in self._memory.rows.values():
            row.handoff_to = row.lease.owner if row.lease.in_handoff else None
        self._find_lineage_problems(now)
        self._refresh_states(now)
        self._sample(now)

    def observe_streams(self, streams: Mapping[str | None, StreamId]) -> None:
        """Set the streams of the application, by the ``streamName`` of their rows; None where rows have none."""
        self._memory.streams = {
            name: self._memory.streams.get(name) or KnownStream(stream, {}, ShardGraph(()))
            for name, stream in streams.items()
        }

    def observe_shards(self, name: str | None, shards: Iterable[Shard], now: float) -> None:
        """Process a listing of a stream's shards, which was made after the newest scan of the table.

        Args:
            name: ``streamName`` of the stream's rows.
            shards: All shards.
            now: Monotonic seconds.
        """
        known = self._memory.streams.get(name)
        if known is None:
            return
        known.graph = ShardGraph(shards)
        known.shards = known.graph.shards
        known.listed_at = now
        known.is_gone = False
        leases = self._leases_by_shard(name)
        known.contradiction = find_contradiction(known.shards.values(), leases)
        known.misfits = {
            key_of(name, shard_id): evidence
            for shard_id, evidence in find_misfits(known.shards.values(), leases).items()
        }
        self._find_holes(name, known, now)
        self._refresh_states(now)

    def observe_stream(self, name: str | None, facts: StreamFacts | None, now: float) -> None:
        """Process a description of a stream; ``facts`` is None if the stream does not exist."""
        known = self._memory.streams.get(name)
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
        self._memory.separate_reports = self._judge(metrics, self._memory.separate_reports, now, at)

    def observe_lag(self, lease_key: str, result: LagProbeResult, now: float) -> None:
        """Process the result of a probe. The result is ignored if the row no longer exists."""
        row = self._memory.rows.get(lease_key)
        if row is None:
            return
        row.lag_note = result.note
        if result.millis is not None:
            row.probe = (result.millis, now)
            row.trimmed = result.trimmed

    def observe_error(self, error: str, code: ErrorCode | None = None) -> None:
        """Set the error of the newest read; an empty text if it succeeded."""
        self._memory.error, self._memory.error_code = error, code

    def observe_calls(
        self, calls: Mapping[str, int], *, throttled: int = 0, skew: float | None = None
    ) -> None:
        """Set the facts that the calls of the last minute showed.

        Args:
            calls: Their number, by operation.
            throttled: Number of calls that the lease table throttled.
            skew: Minimum seconds by which this machine's clock is behind AWS, negative if it is ahead; None if unknown.
        """
        self._memory.calls, self._memory.throttled, self._memory.skew = dict(calls), throttled, skew

    def observe_loads(self, loads: Mapping[str, ShardLoad], now: float) -> None:
        """Process the measured loads of busy shards, by lease key."""
        self._memory.loads.update({key: (load, now) for key, load in loads.items()})

    # What goes out

    def busy_leases(self, now: float) -> list[tuple[str, StreamId, str]]:
        """Return the lease key, stream and shard of at most `BUSY_AT_A_TIME` of the busiest leases, whose load should be measured.

        The rate of a row is only exact to a factor of 1.4: workers rewrite it when it has changed by that factor.
        """
        busy = []
        for key, row in self._memory.rows.items():
            lease, rate = row.lease, row.lease.throughput_kbps or 0.0
            known = self._memory.streams.get(lease.stream_name)
            if rate < BUSY_KBPS or lease.holder is None or lease.is_finished or known is None:
                continue
            measured = self._memory.loads.get(key)
            if measured is None or now - measured[1] >= LOAD_INTERVAL:
                busy.append((rate, key, known.stream, lease.shard))
        busy.sort(key=lambda one: (-one[0], one[1]))
        return [(key, stream, shard_id) for _, key, stream, shard_id in busy[:BUSY_AT_A_TIME]]

    def lag_candidates(self, now: float) -> list[LagCandidate]:
        """Return the leases whose lag a probe can measure, with the facts that the schedule needs."""
        found = []
        for key, row in self._memory.rows.items():
            lease = row.lease
            known = self._memory.streams.get(lease.stream_name)
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

    def reported_lag(self, lease_key: str) -> int | None:
        """Return the lag in milliseconds that the current owner of a lease last wrote to its row, even if it is old.

        Returns:
            None if it wrote none, or is known to be silent.
        """
        row = self._memory.rows.get(lease_key)
        if row is None or row.state is LeaseState.SILENT or row.lease.current_progress is None:
            return None
        return row.lease.current_progress.lag_millis

    def view(self, now: float, at: float) -> FleetView:
        """Return the view of the current state.

        Args:
            now: Monotonic seconds.
            at: Wall time in epoch seconds.
        """
        return view_of(self._memory, now, at, self._settings)

    # Rows

    def _new_row(self, lease: Lease, now: float, at: float, *, first: bool) -> Row:
        # Owners renew each third of the failover time. An owner that does not renew in the first half of it was silent before
        # the first scan.
        after = now - self._memory.failover_time / 2 if first else self._scanned_before
        row = Row(lease, now, after=after, is_new=not first)
        if not first and lease.holder is not None and not lease.is_finished:
            row.is_new = False
            self._add_move(row, None, "new shard", None, now, at)
        return row

    def _update(self, row: Row, lease: Lease, now: float) -> None:
        old = row.lease
        if lease.counter != old.counter or lease.holder != old.holder:
            # A handoff request names another owner but does not come from the holder, so it does not show that the
            # holder is alive.
            row.renewed = lease.holder == old.holder
            row.changed = row.changed or lease.counter != old.counter
            row.last_sign, row.since = row.since, now
            row.last_sign_after, row.since_after = row.since_after, self._scanned_before
        if lease.checkpoint != old.checkpoint:
            row.checkpoint_at = now
            row.trimmed = False
        row.lease = lease

    def _drop_absent(self, seen: set[str], *, consistent: bool) -> None:
        for key in [key for key in self._memory.rows if key not in seen]:
            row = self._memory.rows[key]
            if row.is_absent or consistent or key in self._memory.unreadable:
                del self._memory.rows[key]
            row.is_absent = True

    def _leases_by_shard(self, name: str | None) -> list[Lease]:
        """Return the leases of one stream, with shard ids as keys."""
        return [
            row.lease if name is None else replace(row.lease, lease_key=row.lease.shard)
            for row in self._memory.rows.values()
            if row.lease.stream_name == name
        ]

    # Workers

    def _find_workers(self, now: float) -> None:
        """Determine the kinds of the workers, and which of them are on standby or draining."""
        heartbeats: dict[str, int] = {}
        self._memory.draining = set()
        for row in self._memory.rows.values():
            lease = row.lease
            if lease.handoff_owner is not None and lease.handoff_owner == lease.owner:
                self._memory.sdk.add(lease.handoff_owner)
            if lease.progress is not None and lease.progress.owner in (lease.owner, lease.checkpoint_owner):
                self._memory.sdk.add(lease.progress.owner)
            for worker, value in lease.standby_heartbeats.items():
                heartbeats[worker] = max(value, heartbeats.get(worker, value))
            self._memory.draining.update(lease.draining)
        self._memory.sdk.update(heartbeats)
        self._memory.standby = {
            worker: known
            if (known := self._memory.standby.get(worker)) is not None and known[0] == value
            else (value, now)
            for worker, value in heartbeats.items()
        }
        present = {row.lease.holder for row in self._memory.rows.values()} | {
            row.lease.owner for row in self._memory.rows.values()
        }
        # Ids of dead workers would accumulate over months, because every restart makes a new id.
        self._memory.sdk &= (
            {worker for worker in present if worker is not None} | heartbeats.keys() | self._memory.draining
        )

    @staticmethod
    def _judge(
        metrics: Mapping[str, float], known: Mapping[str, WorkerReport], now: float, at: float
    ) -> dict[str, WorkerReport]:
        """Return the reports and whether they are fresh: seen to change, or with a time near this observer's clock."""
        judged = {}
        for worker, reported in metrics.items():
            before = known.get(worker)
            if before is None:
                judged[worker] = WorkerReport(reported, now, is_fresh=abs(at - reported) < _METRICS_FRESH)
            elif before.reported != reported:
                judged[worker] = WorkerReport(reported, now, is_fresh=True)
            else:
                judged[worker] = before
        return judged

    # Moves

    def _note_move(self, row: Row, old: Lease, now: float, at: float) -> None:
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
        elif row.handoff_to == after or (after in self._memory.sdk and _is_handed_off(old, lease)):
            reason = "handoff"
        elif now - row.last_sign_after > self._memory.failover_time:
            # The last renewal came between two scans, so the silence may be longer than observed, by up to the time
            # between the scans.
            reason = "expired"
        elif self._holds_anything(before):
            reason = "stolen"
        else:
            # The old owner has no leases left: it stopped, and they were released and taken between two scans.
            reason = "released"
        row.is_new = False
        self._add_move(row, before, reason, idle if self._was_watching else None, now, at)

    def _holds_anything(self, worker: str) -> bool:
        return any(
            row.lease.holder == worker and not row.lease.is_finished for row in self._memory.rows.values()
        )

    def _add_move(
        self, row: Row, before: str | None, reason: str, idle: float | None, now: float, at: float
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
        self._memory.moves.append((now, move))

    # States

    def _find_lineage_problems(self, now: float) -> None:
        self._memory.cycles = find_cycles(row.lease for row in self._memory.rows.values())
        for name, known in self._memory.streams.items():
            self._find_holes(name, known, now)

    def _find_holes(self, name: str | None, known: KnownStream, now: float) -> None:
        """Find the hash keys that no unfinished lease covers; for old rows without a range, the range of the shard is used."""
        ranges = []
        for row in self._memory.rows.values():
            lease = row.lease
            if lease.stream_name != name or lease.is_finished:
                continue
            shard = known.shards.get(lease.shard)
            hash_key_range = lease.hash_key_range or (shard.hash_key_range if shard is not None else None)
            if hash_key_range is None:
                known.hole = None  # the range of this row is not known
                return
            ranges.append(hash_key_range)
        hole = find_hole(ranges) if ranges else None
        if hole != known.hole:
            known.hole, known.hole_since = hole, now

    def _refresh_states(self, now: float) -> None:
        unfinished = {key for key, row in self._memory.rows.items() if not row.lease.is_finished}
        unfinished.update(self._memory.unreadable)
        for row in self._memory.rows.values():
            state = self._state(row, unfinished)
            if state is not row.state:
                row.state_since = None if row.state is None and not row.is_new else now
                row.state = state
        missing: dict[str, float | None] = {}
        for name, known in self._memory.streams.items():
            for shard in known.graph.open_shards:
                key = key_of(name, shard.shard_id)
                if key not in self._memory.rows and key not in self._memory.unreadable:
                    missing[key] = self._memory.missing.get(
                        key, None if self._memory.started == self._memory.scanned else now
                    )
        self._memory.missing = missing

    def _state(self, row: Row, unfinished: set[str]) -> LeaseState:
        lease = row.lease
        if lease.is_finished:
            return LeaseState.FINISHED
        if lease.holder is not None and self._memory.is_silent(row):
            return LeaseState.SILENT
        if lease.in_handoff:
            return LeaseState.HANDOFF
        if any(key_of(lease.stream_name, parent) in unfinished for parent in lease.parent_shard_ids):
            return LeaseState.WAITING
        return LeaseState.UNOWNED if lease.holder is None else LeaseState.HELD

    # Lag

    def _sample(self, now: float) -> None:
        """Append the current values to the trends, once in `TREND_STEP` seconds."""
        if self._sampled is not None and now - self._sampled < TREND_STEP:
            return
        self._sampled = now
        worst: dict[str, int | None] = {}
        for row in self._memory.rows.values():
            if row.lease.is_finished:
                continue
            reading = self._memory.lag_of(row, now)
            millis = None if reading is None else reading.millis
            row.trend = (*row.trend[1 - TREND_LENGTH :], millis)
            owner = row.lease.holder
            if owner is not None:
                known = worst.get(owner)
                worst[owner] = millis if known is None else max(known, millis or 0)
        self._memory.owner_trends = {
            owner: (*self._memory.owner_trends.get(owner, ())[1 - TREND_LENGTH :], millis)
            for owner, millis in worst.items()
        }


def _operator(lease: Lease) -> object:
    """Return the operator that last changed the owner or the position of a row, as the row names it."""
    return lease.extra.get(attributes.CHANGED_BY)


def _is_handed_off(old: Lease, new: Lease) -> bool:
    """Return whether a row whose holder changed to another worker of this SDK between two scans was handed off.

    A take from another worker counts as a change of owner since the last checkpoint. After a handoff, the row already
    names its new owner, so the new owner's take does not count.
    """
    if new.handoff_owner is None:
        return True  # the new owner has not taken it yet; a take sets handoffOwner
    switches = old.owner_switches if new.checkpoint == old.checkpoint else 0
    return new.owner_switches <= switches
