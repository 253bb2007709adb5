"""Plans of rewinds, skips, releases, moves and imports, made from the table and the stream. Nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from kinesis_sdk.admin.changes.desk import POLL, Desk
from kinesis_sdk.admin.changes.execute import HANDOFF_WAIT
from kinesis_sdk.admin.changes.plan import (
    NOT_REACHED,
    Action,
    ChangePlan,
    Goal,
    PlannedChange,
    Refusal,
    StreamRows,
    build,
    is_unread,
    least_loaded,
    refuse_rewind,
    rewind_goals,
    roots,
    skip_goals,
)
from kinesis_sdk.admin.changes.positions import AfterRecord, PositionResolver, Start, show_start
from kinesis_sdk.admin.changes.rows import TableRead
from kinesis_sdk.admin.changes.survey import (
    chosen_keys,
    each_shard,
    is_unresolved,
    list_from,
    read_stream,
    refuse_misfit,
    resolve_exported,
    resolve_pins,
    rewind_effects,
    rows_of,
    skip_effects,
    survey,
)
from kinesis_sdk.admin.changes.transfer import (
    Export,
    import_goals,
    make_export,
    refuse_other_stream,
    unchanged_by_import,
)
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.formatting import counted
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError
from kinesis_sdk.common.once import CopySearch
from kinesis_sdk.common.sequence import LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable


def plan_rewind(desk: Desk, to: Start, shards: Collection[str] = ()) -> ChangePlan:
    """Plan to process records again.

    Shards that were open at the start get its position; later shards begin at TRIM_HORIZON. Finished shards become unfinished, and deleted
    rows are restored. ``LATEST`` only stores a position in rows that have none yet, so that no record that arrives from now on is skipped.

    ``to`` is a time, a record (inclusive; needs exactly one shard), ``TRIM_HORIZON`` or ``LATEST``. If the record is a repetition, the copy
    that was delivered is used. Without ``shards``, all are rewound.
    """
    if isinstance(to, AfterRecord):
        raise ConfigError("to", str(to), "the record itself: a rewind begins with it")
    read, stream, rows, resolver, listed, refusals, chosen = survey(desk, shards)
    copies: list[str] = []
    if isinstance(to, ExtendedSequenceNumber):
        if len(chosen) != 1:
            raise ConfigError("shard", sorted(chosen), "exactly one shard for a sequence number")
        (shard_id,) = chosen
        to, copies = _at_first_copies(desk, stream, shard_id, to, resolver, listed)
    affected: Sequence[Shard]
    if to == LATEST:
        affected = [shard for shard in listed if is_unresolved(rows, shard.shard_id)]
        starts = resolve_pins(desk, resolver, rows, affected)
    else:
        if isinstance(to, datetime):
            affected = list_from(desk, stream, to)
        elif isinstance(to, ExtendedSequenceNumber) or copies:
            affected = [shard for shard in listed if shard.shard_id in chosen]
        else:
            affected = listed
        begin = roots(affected)
        wanted = [shard_id for shard_id in begin if not chosen or shard_id in chosen]
        starts = each_shard(desk, wanted, lambda shard_id: resolver.resolve(shard_id, to))
    effects, notes = rewind_effects(desk, rows, starts, resolver)
    notes = copies + notes
    notes += [
        f"{shard_id}: left as it is, because it "
        + ("has a position already" if to == LATEST else f"ended before {show_start(to)}")
        for shard_id in sorted(chosen - {shard.shard_id for shard in affected})
    ]
    goals = rewind_goals(
        rows, affected, starts, listed=listed, chosen=chosen, resolves=to == LATEST, effects=effects
    )
    graph = ShardGraph(listed)
    notes += [
        f"{shard.shard_id}: not read yet, because a parent is still being read; all of it follows then"
        for shard in affected
        if (not chosen or shard.shard_id in chosen) and is_unread(rows, graph, shard.shard_id)
    ]
    watch_owners(desk, goals, read)
    now = desk.clock.monotonic()
    refusals += refuse_rewind(rows, affected, goals, desk.owners, now)
    return _plan(
        desk,
        Action.REWIND,
        goals,
        desk.command("rewind", stream=stream, to=show_start(to), shard=chosen),
        refusals,
        [*notes, *_skipped_rows(rows), NOT_REACHED],
        stream,
        listed,
    )


def _at_first_copies(
    desk: Desk,
    stream: StreamId,
    shard_id: str,
    to: ExtendedSequenceNumber,
    resolver: PositionResolver,
    listed: Sequence[Shard],
) -> tuple[Start, list[str]]:
    """Return the position of a rewind that delivers a record, and a note if the record is stored elsewhere."""
    record = resolver.record_at(shard_id, to)
    search = CopySearch(
        desk.application.connection.kinesis,
        stream,
        shard_id,
        record,
        clock=desk.clock,
        sleep=desk.sleep,
        shards=listed,
        report=desk.report,
    )
    copies = search.earliest(to.sub_sequence_number)
    if not copies:
        doubt = f"record {to} may be a repetition of one that has expired or may not be read; then it is not delivered"
        return to, [doubt] if search.is_uncertain else []
    notes = [
        f"record {to} is a repetition; it is delivered at {one.sequence_number} in {one.shard_id}"
        for one in copies
    ]
    for one in copies:
        if one.shard_id != shard_id:
            copy = show_start(ExtendedSequenceNumber(one.sequence_number))
            notes.append(f"rewind {one.shard_id} as well, to {copy}")
    if copies[0].shard_id != shard_id:
        return TRIM_HORIZON, notes
    return ExtendedSequenceNumber(copies[0].sequence_number), notes


def plan_skip(desk: Desk, to: Start, shards: Collection[str] = ()) -> ChangePlan:
    """Plan to leave records out: every unfinished shard, or every shard in ``shards``, continues at a later position.

    ``to`` is a time, the first record to process, the last record to leave out (a record needs exactly one shard), or ``LATEST``.
    """
    read, stream, rows, resolver, listed, refusals, chosen = survey(desk, shards)
    if to == TRIM_HORIZON:
        raise ConfigError("to", to, "a moment, LATEST or a sequence number")
    if isinstance(to, (ExtendedSequenceNumber, AfterRecord)) and len(chosen) != 1:
        raise ConfigError("shard", sorted(chosen), "exactly one shard for a sequence number")
    wanted = [
        shard.shard_id
        for shard in listed
        if shard.shard_id in rows.rows
        and not rows.rows[shard.shard_id].lease.is_finished
        and (not chosen or shard.shard_id in chosen)
    ]
    starts = each_shard(desk, wanted, lambda shard_id: resolver.resolve(shard_id, to))
    effects = skip_effects(desk, rows, starts, resolver)
    goals = skip_goals(rows, listed, starts, effects=effects)
    watch_owners(desk, goals, read)
    return _plan(
        desk,
        Action.SKIP,
        goals,
        desk.command("skip-to", stream=stream, to=show_start(to), shard=chosen),
        refusals,
        [*_skipped_rows(rows), NOT_REACHED],
    )


def plan_release(desk: Desk, shards: Collection[str]) -> ChangePlan:
    """Plan to take leases from their owners: each goes to the live peer with the smallest load, or, without live peers, to any worker."""
    read = desk.read()
    chosen = sorted(chosen_keys(shards, read.rows))
    for _ in range(2):
        now = desk.clock.monotonic()
        goals = []
        for key in chosen:
            lease = read.rows[key].lease
            peer = least_loaded(desk.owners, now, without={lease.holder} if lease.holder else ())
            goals.append(Goal(lease_key=key, shard_id=lease.shard, action=Action.RELEASE, worker=peer))
        if all(goal.worker is not None for goal in goals):
            break
        watch_owners(desk, goals, read, others=True)
    watch_owners(desk, goals, read)
    notes = [
        "Workers may move a lease back within seconds, if they balance better with it: drain the worker, or pin the lease",
        *_pin_notes(read, chosen, None),
    ]
    return _plan(desk, Action.RELEASE, goals, desk.command("release", shard=chosen), [], notes)


def plan_move(desk: Desk, shards: Collection[str], worker: str, *, swap: bool = False) -> ChangePlan:
    """Plan to move leases to a live worker.

    With ``swap`` (one shard only), the worker gives one of its own leases to the current owner in return, which keeps
    the balance.
    """
    if not shards or (swap and len(shards) > 1):
        raise ConfigError(
            "shard", sorted(shards), "exactly one shard for a swap" if swap else "at least one shard"
        )
    read = desk.read()
    desk.owners.check_known("to", worker)  # before the wait that shows which owners are alive
    chosen = sorted(chosen_keys(shards, read.rows))
    goals = [
        Goal(lease_key=key, shard_id=read.rows[key].lease.shard, action=Action.MOVE, worker=worker)
        for key in chosen
    ]
    notes = _pin_notes(read, chosen, worker)
    lease = read.rows[chosen[0]].lease
    if swap and lease.holder is not None and lease.holder != worker:
        back = min(
            (
                row.lease
                for row in read.rows.values()
                if row.lease.holder == worker
                and not row.lease.is_finished
                and row.lease.lease_key != lease.lease_key
            ),
            key=lambda one: one.lease_key,
            default=None,
        )
        if back is None:
            notes.append(f"{printable(worker)} holds no lease that it could give in return")
        else:
            goals.append(
                Goal(
                    lease_key=back.lease_key,
                    shard_id=back.shard,
                    action=Action.MOVE,
                    worker=lease.holder,
                )
            )
    elif not swap:
        notes.append(
            "A move that unbalances the fleet is undone by its strategy within seconds: swap two leases, or pin the lease"
        )
    watch_owners(desk, goals, read, others=True, wanted={worker})
    desk.owners.check_known("to", worker)
    command = desk.command("move", shard=chosen, to=worker, swap=swap)
    return _plan(desk, Action.MOVE, goals, command, [], notes)


def export_leases(desk: Desk, *, skip_unreadable: bool = False) -> Export:
    """Return the current leases of the application.

    Args:
        desk: The application.
        skip_unreadable: Whether to leave out rows that cannot be read, see `Export.left_out`. An import does not restore the positions of
            their shards.

    Raises:
        ChangeRefusedError: If rows cannot be read, and ``skip_unreadable`` is False.
        ConfigError: If there is no such table, or its stream is not known.
        AwsError: If a call failed.
    """
    read, stream = read_stream(desk)
    if read.unreadable and not skip_unreadable:
        named = "; ".join(f"{key}: {printable(read.unreadable[key])}" for key in sorted(read.unreadable))
        raise ChangeRefusedError(
            f"the export would lack the positions of {counted(len(read.unreadable), 'row')} that cannot be read ({named})"
        )
    facts = desk.application.stream_facts(stream)
    return make_export(
        desk.application.name,
        read,
        stream=stream.name,
        stream_created=facts.created,
        at=desk.clock.time(),
    )


def plan_import(desk: Desk, export: Export) -> ChangePlan:
    """Plan to bring the rows to the positions of an export. The change creates the table if it is missing."""
    stream = desk.application.given_stream or StreamId.parse(export.stream)
    facts = desk.application.stream_facts(stream)
    read = desk.read(may_be_missing=True)
    listed = desk.application.shards(stream)
    names = {row.lease.stream_name for row in export.rows}
    if read.rows or names <= {None}:
        rows = rows_of(read, stream)
    else:
        own = [name for name in names if name is not None and name.split(":")[1:2] == [stream.name]]
        rows = StreamRows(rows={}, stream_name=own[0] if len(own) == 1 else None)
    refusals = refuse_other_stream(export, stream=stream.name, stream_created=facts.created)
    refusals += refuse_misfit(desk, rows, listed, stream)
    starts = {} if refusals else resolve_exported(desk, rows, export, stream, listed)
    goals, more, notes = import_goals(rows, export, listed, starts)
    watch_owners(desk, goals, read)
    rewinds = [goal for goal in goals if goal.action is Action.REWIND]
    more += refuse_rewind(rows, listed, rewinds, desk.owners, desk.clock.monotonic())
    command = desk.command("import", stream=stream, export=export.file)
    plan = _plan(
        desk, Action.IMPORT, goals, command, [*refusals, *more], [*notes, NOT_REACHED], stream, listed
    )
    return replace(plan, unchanged=(*plan.unchanged, *unchanged_by_import(rows, export)))


def watch_owners(
    desk: Desk,
    goals: Sequence[Goal],
    read: TableRead,
    *,
    others: bool = False,
    wanted: Collection[str] = (),
) -> None:
    """Watch the table until each affected owner is known to be alive or silent."""
    names = set(wanted)
    for goal in goals:
        row = read.rows.get(goal.lease_key)
        if row is not None and row.lease.holder is not None and not row.lease.is_finished:
            names.add(row.lease.holder)
    if others:
        names.update(desk.owners.workers())
    desk.judge(names)


def _plan(
    desk: Desk,
    action: Action,
    goals: Sequence[Goal],
    command: Command,
    refusals: Sequence[Refusal],
    notes: Sequence[str],
    stream: StreamId | None = None,
    listed: Iterable[Shard] = (),
) -> ChangePlan:
    until = desk.clock.monotonic() + HANDOFF_WAIT
    while True:
        read = desk.read_rows(may_be_missing=action is Action.IMPORT)
        now = desk.clock.monotonic()
        changes, unchanged, refused = build(goals, read.rows, desk.owners, now, operator=desk.operator)
        if now >= until or not any(refusal.waits_for_handoff for refusal in refused):
            break
        desk.report("waiting for the end of a handoff between two workers")
        desk.sleep(POLL)
    return ChangePlan(
        action=action,
        application=desk.application.name,
        command=command,
        changes=tuple(changes),
        unchanged=tuple(unchanged),
        refusals=(*refusals, *refused),
        notes=(*notes, *_kind_notes(changes)),
        stream=stream,
        listed=frozenset(shard.shard_id for shard in listed),
    )


def _kind_notes(changes: Sequence[PlannedChange]) -> list[str]:
    if all(change.kind is not OwnerKind.OTHER for change in changes):
        return []
    note = (
        "Owners of KCL 1 or 2, or unknown ones, are not asked: they lose the lease, and may work on for up to 4 s beside "
        "the next owner"
    )
    return [note]


def _pin_notes(read: TableRead, keys: Iterable[str], worker: str | None) -> list[str]:
    """Return notes about leases that are pinned to a worker other than their new holder."""
    pins = [(key, read.rows[key].lease.pinned_to) for key in keys]
    return [
        f"{printable(key)} is pinned to {printable(pin)}, to which workers give it back: remove the pin first"
        for key, pin in pins
        if pin is not None and pin != worker
    ]


def _skipped_rows(rows: StreamRows) -> list[str]:
    if not rows.unreadable:
        return []
    return [
        f"{len(rows.unreadable)} rows cannot be read and are left alone: {', '.join(sorted(rows.unreadable)[:5])}"
    ]
