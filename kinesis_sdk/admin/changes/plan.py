"""Plans of writes that bring rows to their goals, in a safe order. Pure: rows, shards, owners and positions in, writes out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from kinesis_sdk.admin.changes import recipes
from kinesis_sdk.admin.changes.owners import OwnerWatch
from kinesis_sdk.admin.changes.positions import ResolvedStart
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.changes.rows import Row, RowWrite
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.admin.plain import plain
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease

_UNRESOLVED = (LATEST, AT_TIMESTAMP)


class Action(str, Enum):
    """Purpose of a change."""

    REWIND = "rewind"
    SKIP = "skip-to"
    RELEASE = "release"
    MOVE = "move"
    IMPORT = "import"
    """A plan of rewinds, skips and restored rows."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Desired state of one row.

    Attributes:
        worker: Worker that is to hold the lease after a move or release; None for any.
        missing: Lease to put back if there is no row; None if a missing row is an error.
        arrival_millis: Arrival time of the first record after the position, in epoch milliseconds; None if unknown. It is compared with
            the time that a sentinel checkpoint represents.
        resolves: Whether the goal is only to replace a sentinel checkpoint with the record that it represents.
    """

    lease_key: str
    shard_id: str
    action: Action
    position: ExtendedSequenceNumber | None = None
    worker: str | None = None
    missing: Lease | None = None
    arrival_millis: int | None = None
    resolves: bool = False
    effect: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedChange:
    """A write that brings a row to its goal.

    Attributes:
        write: The exact first write. After a `Recipe.REQUEST`, the position is written when the owner has responded.
        before: The row before the write; None if there is none.
    """

    goal: Goal
    recipe: Recipe
    write: RowWrite
    before: Row | None
    owner: str | None = None
    kind: OwnerKind | None = None
    guarantee: str = ""

    @property
    def differences(self) -> list[str]:
        """The changed attributes, before → after, and the condition."""
        lines = self.write.differences(None if self.before is None else self.before.item)
        if self.recipe is Recipe.REQUEST and self.goal.action is Action.SKIP:
            lines.append(f"then, once the owner has answered: checkpoint: … → {self.goal.position}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the change as data for JSON."""
        lease = None if self.before is None else self.before.lease
        return {
            "lease_key": self.goal.lease_key,
            "shard_id": self.goal.shard_id,
            "recipe": self.recipe.value,
            "owner": self.owner,
            "owner_kind": None if self.kind is None else self.kind.value,
            "checkpoint": None if lease is None else plain(lease.checkpoint),
            "position": plain(self.goal.position),
            "worker": self.goal.worker,
            "write": self.differences,
            "effect": self.goal.effect,
            "guarantee": self.guarantee,
        }


@dataclass(frozen=True, kw_only=True)
class Unchanged:
    """A row that needs no change."""

    goal: Goal
    reason: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A change that would not be safe.

    Attributes:
        shard_id: The shard; None if it concerns the whole application.
        waits_for_handoff: Whether the change becomes possible when a handoff in progress has ended.
    """

    reason: str
    shard_id: str | None = None
    waits_for_handoff: bool = False


Decision = PlannedChange | Unchanged | Refusal


@dataclass(frozen=True, kw_only=True)
class ChangePlan:
    """Changes that can be shown and applied.

    Attributes:
        command: The command that makes the same plan.
        changes: In the order of their writes: parents before children.
        refusals: Reasons why nothing may be written. A plan with a refusal is not applied.
        listed: Ids of the shards that the stream had when the plan was made.
    """

    action: Action
    application: str
    command: Command
    changes: tuple[PlannedChange, ...] = ()
    unchanged: tuple[Unchanged, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    stream: StreamId | None = None
    listed: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as data for JSON."""
        return {
            "action": self.action.value,
            "application": self.application,
            "command": plain(self.command),
            "changes": [change.to_dict() for change in self.changes],
            "unchanged": [{"shard_id": one.goal.shard_id, "reason": one.reason} for one in self.unchanged],
            "refusals": [{"shard_id": one.shard_id, "reason": one.reason} for one in self.refusals],
            "notes": list(self.notes),
        }


NOT_REACHED = (
    "Not reached by this change: state outside the lease table (a sink that stores its own positions, windows in memory), "
    "and the batch that a handler is processing right now."
)
"""Shown before every change to a position."""

_GUARANTEES = {
    (
        Action.REWIND,
        Recipe.RESTART,
    ): "the owner notices at its next scan or write and begins again; nothing is skipped, and "
    "what it has in hand until then comes again",
    (
        Action.REWIND,
        Recipe.FREE,
    ): "any worker takes it and begins there; nothing is skipped, and the old owner may work on for "
    "a few seconds beside the new one",
    (Action.REWIND, Recipe.CREATE): "the row is put back; a worker reads the shard again from there",
    (
        Action.SKIP,
        Recipe.REQUEST,
    ): "the owner finishes its batch and checkpoints first; exactly what lies between that "
    "checkpoint and the new one is skipped",
    (Action.SKIP, Recipe.FREE): "the owner is not asked, so a part of the gap may still be processed",
    (
        Action.RELEASE,
        Recipe.REQUEST,
    ): "the owner finishes its batch first; no record comes twice if the handler checkpoints "
    "when it is asked to stop",
    (Action.RELEASE, Recipe.FREE): "what is not checkpointed comes twice",
    (
        Action.MOVE,
        Recipe.REQUEST,
    ): "the owner finishes its batch first; no record comes twice if the handler checkpoints when "
    "it is asked to stop",
    (Action.MOVE, Recipe.ASSIGN): "the lease has no live owner, and what was not checkpointed comes twice",
}


def decide(
    goal: Goal, row: Row | None, owners: OwnerWatch, now: float, *, may_request: bool = True, operator: str
) -> Decision:
    """Return the write that brings a row to its goal.

    ``row`` must come from a consistent read; None if there is no row. ``may_request`` is False if the owner did not respond to a
    handoff request. ``operator`` is the unique id that each write names, and the worker for which a skip requests the lease.
    """
    if row is None:
        if goal.missing is None:
            return Refusal(shard_id=goal.shard_id, reason=f"lease {goal.lease_key} has no row")
        return _planned(goal, Recipe.CREATE, recipes.create(goal.missing, by=operator), None, owners)
    lease = row.lease
    if lease.in_handoff:
        return Refusal(
            shard_id=goal.shard_id,
            reason=f"a handoff from {printable(lease.checkpoint_owner or '')} to {printable(lease.owner or '')} is in "
            "progress; repeat the command when it has ended (40 s at most)",
            waits_for_handoff=True,
        )
    reason = _reached(goal, lease)
    if reason:
        return Unchanged(goal=goal, reason=reason)
    holder = lease.owner
    kind = _kind(lease, owners)
    listens = (
        holder is not None
        and kind in (OwnerKind.SDK, OwnerKind.KCL3)
        and not owners.is_silent(holder, now)
        # No worker reads a finished shard; a Java worker leaves its name on the row.
        and not lease.is_finished
    )
    if goal.action is Action.REWIND:
        assert goal.position is not None
        position = goal.position
        if _is_before(lease, goal):
            # The owner may have processed more than it has stored, so it restarts at its own checkpoint. Moving the checkpoint
            # forward would skip records.
            if holder is None or owners.is_silent(holder, now) or lease.is_finished:
                reason = f"its checkpoint {_short(lease.checkpoint)} is not after {_short(position)}, and no live worker reads it"
                return Unchanged(goal=goal, reason=reason)
            position = lease.checkpoint
            goal = replace(goal, effect="begins again at its own checkpoint, which is not after that point")
        if listens:
            return _planned(goal, Recipe.RESTART, recipes.restart(row, position, by=operator), row, owners)
        return _planned(goal, Recipe.FREE, recipes.free(row, position, by=operator), row, owners)
    if goal.action is Action.SKIP:
        assert goal.position is not None
        if listens and may_request:
            return _planned(goal, Recipe.REQUEST, recipes.request(row, operator), row, owners)
        return _planned(goal, Recipe.FREE, recipes.free(row, goal.position, by=operator), row, owners)
    if goal.worker is not None and goal.action is Action.MOVE:
        refusal = _refuse_move(goal, lease, kind, owners, now, listens=listens)
        if refusal is not None:
            return refusal
        is_python = owners.kind(goal.worker) is OwnerKind.SDK
        if not listens:
            write = recipes.assign(row, goal.worker, is_python=is_python, by=operator)
            return _planned(goal, Recipe.ASSIGN, write, row, owners)
        if not may_request:
            return Refusal(
                shard_id=goal.shard_id,
                reason=f"{printable(holder or '')} did not answer the request; nothing was moved",
            )
        write = recipes.request(row, goal.worker, is_python=is_python)
        return _planned(goal, Recipe.REQUEST, write, row, owners)
    if goal.worker is not None and listens and may_request:
        is_python = owners.kind(goal.worker) is OwnerKind.SDK
        write = recipes.request(row, goal.worker, is_python=is_python)
        return _planned(goal, Recipe.REQUEST, write, row, owners)
    return _planned(goal, Recipe.FREE, recipes.free(row, by=operator), row, owners)


def _planned(
    goal: Goal, recipe: Recipe, write: RowWrite, row: Row | None, owners: OwnerWatch
) -> PlannedChange:
    lease = None if row is None else row.lease
    return PlannedChange(
        goal=goal,
        recipe=recipe,
        write=write,
        before=row,
        owner=None if lease is None else lease.holder,
        kind=None if lease is None else _kind(lease, owners),
        guarantee=_GUARANTEES.get((goal.action, recipe), ""),
    )


def _kind(lease: Lease, owners: OwnerWatch) -> OwnerKind | None:
    if lease.owner is not None and lease.handoff_owner == lease.owner:
        return OwnerKind.SDK
    return owners.kind(lease.holder)


def _refuse_move(
    goal: Goal, lease: Lease, kind: OwnerKind | None, owners: OwnerWatch, now: float, *, listens: bool
) -> Refusal | None:
    assert goal.worker is not None
    worker = printable(goal.worker)
    target = owners.kind(goal.worker)
    reason = None
    if target is OwnerKind.OTHER:
        reason = (
            f"{worker} is a KCL 1 or 2, or unknown: such a worker takes only leases without an owner and expired ones. "
            "Release the lease instead"
        )
    elif not owners.is_alive(goal.worker, now):
        reason = f"{worker} was not seen to write to the table, so it may not be running"
    elif owners.is_draining(goal.worker):
        reason = f"{worker} drains, so it takes no lease until the drain is ended"
    elif not listens and kind is OwnerKind.OTHER and not owners.is_silent(lease.owner or "", now):
        reason = (
            f"the owner {printable(lease.owner or '')} is a KCL 1 or 2, or unknown: it does not hear a request. Release the lease "
            "instead"
        )
    return None if reason is None else Refusal(shard_id=goal.shard_id, reason=reason)


def _reached(goal: Goal, lease: Lease) -> str:
    """Return the reason why a row needs no change; empty if it needs one."""
    checkpoint = lease.checkpoint
    if goal.action is Action.SKIP:
        assert goal.position is not None
        if checkpoint.is_shard_end:
            return "its shard is finished"
        if goal.position.is_sentinel:
            return "it has no record before that point, so nothing would be skipped"
        if checkpoint >= goal.position:
            return f"its checkpoint {_short(checkpoint)} is not before {_short(goal.position)}, so nothing would be skipped"
    elif goal.action is Action.REWIND:
        return ""
    elif checkpoint.is_shard_end:
        return "its shard is finished"
    elif goal.action is Action.RELEASE and lease.owner is None:
        return "it has no owner"
    elif goal.action is Action.MOVE and lease.owner == goal.worker:
        return f"{printable(goal.worker or '')} holds it already"
    return ""


def _is_before(lease: Lease, goal: Goal) -> bool:
    """Return whether a checkpoint is at or before the position of a rewind, so that nothing would be repeated."""
    assert goal.position is not None
    checkpoint = lease.checkpoint
    if checkpoint.sequence_number not in _UNRESOLVED:
        return checkpoint <= goal.position
    if goal.resolves or goal.position.is_sentinel or lease.initial_timestamp_millis is None:
        return False
    return goal.arrival_millis is None or goal.arrival_millis >= lease.initial_timestamp_millis


def _short(position: ExtendedSequenceNumber) -> str:
    number = position.sequence_number
    return number if position.is_sentinel else f"…{number[-8:]}/{position.sub_sequence_number}"


@dataclass(frozen=True, kw_only=True)
class StreamRows:
    """The rows of one stream, and the form of its lease keys.

    Attributes:
        stream_name: ``account:name:creationEpoch`` in a multi-stream table; None in a single-stream table.
    """

    rows: Mapping[str, Row]
    stream_name: str | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def lease_key(self, shard_id: str) -> str:
        """Return the lease key of a shard."""
        return shard_id if self.stream_name is None else f"{self.stream_name}:{shard_id}"

    def lease_for(self, shard: Shard, position: ExtendedSequenceNumber) -> Lease:
        """Return a new lease of a shard, without an owner."""
        lease = replace(Lease.for_shard(shard, TRIM_HORIZON), checkpoint=position)
        if self.stream_name is None:
            return lease
        return replace(
            lease,
            lease_key=self.lease_key(shard.shard_id),
            stream_name=self.stream_name,
            shard_id=shard.shard_id,
        )


def in_creation_order(shards: Iterable[Shard]) -> list[Shard]:
    """Return shards in the order of their creation: parents before their children."""
    return sorted(shards, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id))


def roots(shards: Iterable[Shard]) -> list[str]:
    """Return the shards without a listed parent: those open at the time from which the shards were listed."""
    graph = ShardGraph(shards)
    return [shard_id for shard_id in graph.shards if not graph.parents(shard_id)]


def rewind_goals(
    table: StreamRows,
    shards: Sequence[Shard],
    starts: Mapping[str, ResolvedStart],
    *,
    listed: Sequence[Shard],
    chosen: Collection[str] = (),
    resolves: bool = False,
    effects: Mapping[str, str] | None = None,
) -> list[Goal]:
    """Return the goals of a rewind, parents before children.

    ``starts`` are the positions of the shards that were open at the start; ``shards`` are these shards and all later shards (ListShards
    with ``FROM_TIMESTAMP``). Shards that were open get their position. Later shards get TRIM_HORIZON, so that they wait for their parents
    and are delivered again completely. A shard that was not read yet, because an ancestor is still being read, gets no row: it would be
    read at once, from the position, and the records before it would be lost. If ``chosen`` is not empty, only its shards are rewound.
    """
    result = []
    horizon = ExtendedSequenceNumber(TRIM_HORIZON)
    graph = ShardGraph(listed)
    wanted = [
        shard
        for shard in in_creation_order(shards)
        if (not chosen or shard.shard_id in chosen) and not is_unread(table, graph, shard.shard_id)
    ]
    for shard in wanted:
        start = starts.get(shard.shard_id)
        position = horizon if start is None else start.position
        effect = (effects or {}).get(shard.shard_id)
        result.append(
            Goal(
                lease_key=table.lease_key(shard.shard_id),
                shard_id=shard.shard_id,
                action=Action.REWIND,
                position=position,
                missing=replace(
                    table.lease_for(shard, position),
                    child_shard_ids=_heirs(graph, shard.shard_id, table.rows),
                ),
                arrival_millis=(
                    None
                    if start is None or start.arrival is None
                    else round(start.arrival.timestamp() * 1000)
                ),
                resolves=resolves,
                effect=effect if effect is not None else "all of its records come again",
            )
        )
    return result


def is_unread(table: StreamRows, graph: ShardGraph, shard_id: str) -> bool:
    """Return whether a shard has no row because an ancestor is still being read.

    If a descendant has a row, the shard was read before, and its ancestor is read again.
    """
    return (
        shard_id not in table.rows
        and any(
            ancestor in table.rows and not table.rows[ancestor].lease.is_finished
            for ancestor in graph.ancestors(shard_id)
        )
        and not any(descendant in table.rows for descendant in graph.descendants(shard_id))
    )


def _heirs(graph: ShardGraph, shard_id: str, there: Collection[str]) -> tuple[str, ...]:
    """Return the child ids for the restored row of a shard; none if all children's leases are created as usual at the end of the shard.

    A child that was read, and whose row was deleted, must not be read again at the end of its parent. Its nearest descendants with rows,
    for which the cleanup waits, replace it: see `ChildLeases.create`. If the child is also to be read again, the same plan restores its
    row, before or after the parent ends. ``there`` are the shards with a row.
    """
    heirs: list[str] = []
    children = graph.children(shard_id)
    for child in children:
        found: list[str] = []
        for one in () if child in there else graph.descendants(child):
            if one in there and not set(found).intersection(graph.ancestors(one)):
                found.append(one)
        heirs += found or [child]
    return () if set(heirs) == set(children) else tuple(sorted(set(heirs)))


def refuse_rewind(
    table: StreamRows, shards: Sequence[Shard], goals: Sequence[Goal], owners: OwnerWatch, now: float
) -> list[Refusal]:
    """Return the reason why a rewind is not safe.

    A Java worker that finished a parent keeps it in its deletion queue. As soon as every child has left TRIM_HORIZON, it deletes the
    parent's row without checking the checkpoint. So with live Java workers, a parent is only rewound with its
    children.
    """
    graph = ShardGraph(shards)
    positions = {goal.shard_id: goal.position for goal in goals}
    java = owners.java_workers(now)
    if not java:
        return []
    result = []
    for goal in goals:
        row = table.rows.get(goal.shard_id)
        if row is not None and not row.lease.is_finished:
            continue
        children = graph.children(goal.shard_id)
        kept = [
            child
            for child in children
            if (positions.get(child) or _checkpoint(table, child)) != ExtendedSequenceNumber(TRIM_HORIZON)
        ]
        if kept:
            result.append(
                Refusal(
                    shard_id=goal.shard_id,
                    reason=f"{goal.shard_id} is finished, and its children {', '.join(kept)} would keep their checkpoints: the "
                    f"Java worker {printable(java[0])} would delete the row again within five minutes. Rewind the children "
                    "as well (a rewind of all shards does), or stop the Java workers",
                )
            )
    return result


def _checkpoint(table: StreamRows, shard_id: str) -> ExtendedSequenceNumber | None:
    row = table.rows.get(shard_id)
    return None if row is None else row.lease.checkpoint


def skip_goals(
    table: StreamRows,
    shards: Sequence[Shard],
    starts: Mapping[str, ResolvedStart],
    *,
    effects: Mapping[str, str] | None = None,
) -> list[Goal]:
    """Return the goals of a skip: one for each shard of ``starts`` that has a row, with the resolved position."""
    return [
        Goal(
            lease_key=table.lease_key(shard.shard_id),
            shard_id=shard.shard_id,
            action=Action.SKIP,
            position=starts[shard.shard_id].position,
            effect=(effects or {}).get(shard.shard_id, ""),
        )
        for shard in in_creation_order(shards)
        if shard.shard_id in starts and shard.shard_id in table.rows
    ]


def least_loaded(owners: OwnerWatch, now: float, *, without: Collection[str]) -> str | None:
    """Return the live worker with the smallest load among those that support handoffs; None if there is none.

    The load is the throughput, by which workers balance, or the number of leases if the rows have no throughput.
    """
    candidates = [
        worker
        for worker in owners.workers()
        if worker not in without
        and owners.is_alive(worker, now)
        and not owners.is_draining(worker)
        and owners.kind(worker) in (OwnerKind.SDK, OwnerKind.KCL3)
    ]
    return min(
        candidates, key=lambda worker: (owners.throughput(worker), owners.load(worker), worker), default=None
    )


def build(
    goals: Iterable[Goal],
    rows: Mapping[str, Row],
    owners: OwnerWatch,
    now: float,
    *,
    operator: str,
) -> tuple[list[PlannedChange], list[Unchanged], list[Refusal]]:
    """Return the decisions about goals, in order, by kind of decision."""
    changes: list[PlannedChange] = []
    unchanged: list[Unchanged] = []
    refusals: list[Refusal] = []
    for goal in goals:
        decision = decide(goal, rows.get(goal.lease_key), owners, now, operator=operator)
        if isinstance(decision, PlannedChange):
            changes.append(decision)
        elif isinstance(decision, Unchanged):
            unchanged.append(decision)
        else:
            refusals.append(decision)
    return changes, unchanged, refusals
