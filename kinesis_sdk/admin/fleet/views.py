"""Makes a `FleetView` from a `FleetMemory`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kinesis_sdk.admin.fleet.memory import FleetMemory, Row, key_of, reading_of
from kinesis_sdk.admin.fleet.model import (
    FleetView,
    HandlerFailure,
    LeaseState,
    LeaseView,
    OwnerView,
    Totals,
)
from kinesis_sdk.admin.fleet.problems import Hole, ProblemSettings, TableFacts, find_problems
from kinesis_sdk.common.retry_tiers import delay_of
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST
from kinesis_sdk.common.shards import is_shard_id, is_table_shard_id
from kinesis_sdk.consumer.leases import attributes

LOAD_INTERVAL = 60.0
"""Seconds between two measurements of the load of a busy shard."""
REPORT_LIFETIME = 120.0
"""Seconds without a new report after which a KCL 3 worker without leases is hidden; it reports every 30 s."""
_RECENT = 600.0
"""Seconds for which a move counts in `Totals.moves`."""
_LONG_CALL = 5.0
"""Duration in seconds from which a handler's call that ran at the time of a write counts as still running."""


def view_of(memory: FleetMemory, now: float, at: float, settings: ProblemSettings) -> FleetView:
    """Return the view of a memory, at monotonic time ``now`` and wall time ``at``."""
    leases = _lease_views(memory, now)
    owners = _owner_views(memory, leases, now)
    retentions = memory.retentions()
    view = FleetView(
        application=memory.application,
        streams=tuple(known.stream.name for known in memory.streams.values()),
        at=at,
        watched=0.0 if memory.started is None else now - memory.started,
        table_age=0.0 if memory.started is None else now - memory.scanned,
        retention=next(iter(retentions.values())) if len(retentions) == 1 else None,
        failover_time=memory.failover_time,
        totals=_totals(memory, leases, owners, now),
        owners=owners,
        leases=leases,
        moves=tuple(move for _, move in reversed(memory.moves)),
        entities=memory.entities,
        calls_per_minute=memory.calls,
        error=memory.error,
        error_code=memory.error_code,
    )
    if memory.started is None:
        return view
    return replace(view, problems=find_problems(view, _facts(memory, now, retentions), settings))


def _lease_views(memory: FleetMemory, now: float) -> tuple[LeaseView, ...]:
    retentions = memory.retentions()
    views = [_lease_view(memory, row, now, retentions) for row in memory.rows.values()]
    for key, note in memory.unreadable.items():
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
    for key, since in memory.missing.items():
        views.append(_missing_view(memory, key, since, now))
    views.sort(key=lambda view: (view.stream or "", view.shard_id, view.lease_key))
    return tuple(views)


def _lease_view(
    memory: FleetMemory, row: Row, now: float, retentions: Mapping[str | None, float]
) -> LeaseView:
    lease = row.lease
    known = memory.streams.get(lease.stream_name)
    shard = known.shards.get(lease.shard) if known is not None else None
    parents, children = lease.parent_shard_ids, lease.child_shard_ids
    if shard is not None and known is not None:
        parents = parents or shard.parents
        children = children or known.graph.children(shard.shard_id)
    holder = lease.holder
    finished = lease.is_finished
    lag = None if finished else memory.lag_of(row, now)
    retention = retentions.get(lease.stream_name)
    left = None
    if lag is not None and retention is not None:
        # While a record is unprocessed, the tip moves away from the checkpoint with time.
        left = retention - lag.millis / 1000 - (lag.age if lag.millis else 0.0)
    return LeaseView(
        lease_key=lease.lease_key,
        shard_id=lease.shard,
        stream=lease.stream_name,
        state=row.state or LeaseState.HELD,
        owner=holder,
        next_owner=lease.owner if lease.in_handoff else None,
        kind=None if holder is None else memory.kind(holder),
        counter=lease.counter,
        owner_switches=lease.owner_switches,
        checkpoint=lease.checkpoint,
        parents=parents,
        children=children,
        hash_key_range=lease.hash_key_range or (shard.hash_key_range if shard is not None else None),
        throughput_kbps=None if holder is None else lease.throughput_kbps,
        renewed_ago=max(0.0, now - row.since) if row.changed else None,
        checkpointed_ago=None if row.checkpoint_at is None else max(0.0, now - row.checkpoint_at),
        handler_seconds=_handler_seconds(row, now),
        failing=_failing(row, now),
        lag=lag,
        checkpoint_lag=None if finished else reading_of(row.probe, now),
        lag_note="" if finished else row.lag_note or ("" if lag is not None else _why_no_lag(memory, row)),
        trend=row.trend,
        retention_left=left,
        pinned_to=lease.pinned_to,
        other_attributes=tuple(sorted(name for name in lease.extra if name != attributes.CHANGED_BY)),
        note=_note(memory, row),
        state_for=None if row.state_since is None else max(0.0, now - row.state_since),
        checkpoint_trimmed=row.trimmed,
        initial_timestamp_millis=lease.initial_timestamp_millis,
    )


def _note(memory: FleetMemory, row: Row) -> str:
    if row.lease.lease_key in memory.cycles:
        return memory.cycles[row.lease.lease_key]
    if row.lease.damaged:
        return f"cannot be read, and count as absent: {', '.join(row.lease.damaged)}"
    return ""


def _handler_seconds(row: Row, now: float) -> float | None:
    progress = row.lease.current_progress
    if progress is None or progress.handler_millis is None or row.lease.is_finished:
        return None
    seconds = progress.handler_millis / 1000
    # A call that had just begun at the time of the write has probably returned since.
    return seconds + max(0.0, now - row.since) if seconds >= _LONG_CALL else seconds


def _failing(row: Row, now: float) -> HandlerFailure | None:
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


def _why_no_lag(memory: FleetMemory, row: Row) -> str:
    lease = row.lease
    if lease.checkpoint.sequence_number == LATEST and lease.initial_timestamp_millis is None:
        return "starts at the tip of the shard when a worker first reads it"
    if lease.checkpoint.sequence_number == AT_TIMESTAMP and lease.initial_timestamp_millis is None:
        return "starts at a time that the row does not have"
    known = memory.streams.get(lease.stream_name)
    if is_table_shard_id(lease.shard):
        return "no live worker tells it"
    if known is None:
        return "the stream is not known"
    return "the stream does not exist" if known.is_gone else "not measured yet"


def _missing_view(memory: FleetMemory, key: str, since: float | None, now: float) -> LeaseView:
    name, _, shard_id = key.rpartition(":")
    known = memory.streams[name or None]
    shard = known.shards[shard_id]
    parent_rows = (memory.rows.get(key_of(name or None, parent)) for parent in shard.parents)
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


def _owner_views(memory: FleetMemory, leases: Iterable[LeaseView], now: float) -> tuple[OwnerView, ...]:
    held: dict[str, list[LeaseView]] = {}
    for view in leases:
        if view.owner is not None and view.state is not LeaseState.FINISHED:
            held.setdefault(view.owner, []).append(view)
    signs: dict[str, float] = {}
    silent: dict[str, bool] = {}
    for row in memory.rows.values():
        holder = row.lease.holder
        if holder is not None:
            # A KCL worker renews its finished leases as well.
            signs[holder] = max(signs.get(holder, row.since), row.since)
            silent[holder] = silent.get(holder, True) and memory.is_silent(row)
    idle = {
        worker
        for worker, (_, since) in memory.standby.items()
        if now - since <= memory.failover_time + (now - memory.scanned)
    }
    for reports in (memory.reports, memory.separate_reports):
        idle.update(
            worker
            for worker, report in reports.items()
            if report.is_fresh and now - report.since <= REPORT_LIFETIME
        )
    next_owners = {view.next_owner for view in leases if view.next_owner is not None}
    owners = []
    for worker in held.keys() | idle | memory.draining | next_owners:
        mine = held.get(worker, [])
        lags = [view.lag.millis for view in mine if view.lag is not None]
        rates = [view.throughput_kbps for view in mine if view.throughput_kbps is not None]
        owners.append(
            OwnerView(
                worker_id=worker,
                group=memory.groups[worker] or None,
                kind=memory.kind(worker),
                lease_keys=tuple(view.lease_key for view in mine),
                silent_for=now - signs[worker] if mine and silent[worker] else None,
                is_standby=not mine and worker in idle,
                is_draining=worker in memory.draining,
                worst_lag_millis=max(lags, default=None),
                throughput_kbps=sum(rates) if rates else None,
                trend=memory.owner_trends.get(worker, ()),
            )
        )
    owners.sort(key=lambda owner: (owner.group or "", owner.worker_id))
    return tuple(owners)


def _totals(
    memory: FleetMemory, leases: Iterable[LeaseView], owners: Iterable[OwnerView], now: float
) -> Totals:
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
        moves=sum(now - when <= _RECENT for when, _ in memory.moves),
    )


def _facts(memory: FleetMemory, now: float, retentions: Mapping[str | None, float]) -> TableFacts:
    foreign, gone = [], []
    delays: dict[str | None, float] = {}
    for key, row in memory.rows.items():
        lease = row.lease
        if lease.progress is not None and lease.progress.delay_millis:
            delays[lease.stream_name] = lease.progress.delay_millis / 1000
        known = memory.streams.get(lease.stream_name)
        if lease.is_finished or known is None or known.listed_at is None or lease.shard in known.shards:
            continue
        if not is_shard_id(lease.shard):
            foreign.append(key)
        elif known.shards and lease.shard < max(known.shards):
            # A shard newer than the listing is not known yet. Any other unlisted shard has expired, maybe before an
            # older shard that was open longer.
            gone.append(key)
    return TableFacts(
        retentions=retentions,
        tiers={
            known.facts.name: (delay, known.facts.retention)
            for name, known in memory.streams.items()
            if known.facts is not None
            and (delay := delays.get(name) or delay_of(known.facts.name)) is not None
        },
        holes=tuple(
            Hole(name, known.hole, now - known.hole_since)
            for name, known in memory.streams.items()
            if known.hole is not None
        ),
        contradictions={
            known.stream.name: known.contradiction
            for known in memory.streams.values()
            if known.contradiction is not None
        },
        misfits={key: text for known in memory.streams.values() for key, text in known.misfits.items()},
        missing_streams=tuple(known.stream.name for known in memory.streams.values() if known.is_gone),
        recreated_streams=tuple(
            known.stream.name for known in memory.streams.values() if known.recreated_at is not None
        ),
        table_recreated_for=None if memory.recreated_at is None else now - memory.recreated_at,
        foreign=tuple(foreign),
        expired_shards=tuple(gone),
        cycles=memory.cycles,
        is_single_scan=memory.started == memory.scanned,
        loads={
            key: load
            for key, (load, at) in memory.loads.items()
            if key in memory.rows and now - at <= 2 * LOAD_INTERVAL
        },
        throttled=memory.throttled,
        skew=memory.skew,
    )
