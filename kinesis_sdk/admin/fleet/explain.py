"""Explanation of one shard in plain words: why it moves, or why it does not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.failing import failing_text
from kinesis_sdk.admin.fleet.formatting import duration
from kinesis_sdk.admin.fleet.model import (
    FleetView,
    LagSource,
    LeaseState,
    LeaseView,
    OwnerKind,
    OwnerView,
)
from kinesis_sdk.admin.fleet.problems import concerns, lag_growth
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.common.text import printable

_MAX_GENERATIONS = 5
"""Generations of ancestors to describe; earlier generations are only counted."""


def explain(view: FleetView, lease_key: str, spell: Callable[[Command], str] = str) -> list[str]:
    """Return paragraphs that explain the state of a shard and the remedies.

    Args:
        view: The fleet. Times are known only after watching it for about two failover times.
        lease_key: The lease.
        spell: Formats a command that helps, so that the reader can run it.

    Raises:
        KeyError: If the view has no such lease.
    """
    by_key = {lease.lease_key: lease for lease in view.leases}
    lease = by_key[lease_key]
    owners = {owner.worker_id: owner for owner in view.owners}
    paragraphs = [
        _what_happens(view, lease, owners),
        *_ancestors(view, lease, by_key, owners),
        _where_it_is(lease),
        *_how_far_behind(lease),
        *_handler(lease),
        *_attributes(lease, owners),
        *_what_to_do(view, lease, by_key, spell),
    ]
    if not _watched(view) and lease.state is not LeaseState.FINISHED:
        paragraphs.append(
            "The table was read only once, so it is not known whether the owner is alive. Watch for two failover times "
            f"({duration(2 * view.failover_time)}) to know."
        )
    return paragraphs


def _watched(view: FleetView) -> float:
    """Return the seconds between the first scan and the newest scan; 0 if the table was read only once."""
    return max(0.0, view.watched - view.table_age)


def _name(lease: LeaseView) -> str:
    return f"Shard {short_shard(lease.shard_id)}" + (f" of {printable(lease.stream)}" if lease.stream else "")


def _kind(lease: LeaseView) -> str:
    return {
        OwnerKind.SDK: "a worker of this SDK",
        OwnerKind.KCL3: "a KCL 3 worker",
        OwnerKind.OTHER: "a KCL 1 or 2 worker, as far as the table shows",
        None: "unknown",
    }[lease.kind]


def _seen_for(view: FleetView, lease: LeaseView) -> str:
    """Return how long the lease has been seen in its state, as a phrase such as " for 5 min"; empty if unknown."""
    if lease.state_for is not None:
        return f" for {duration(lease.state_for)}"
    return f" for at least {duration(_watched(view))}" if _watched(view) else ""


def _what_happens(view: FleetView, lease: LeaseView, owners: Mapping[str, OwnerView]) -> str:
    name = _name(lease)
    owner = printable(str(lease.owner))
    since = _seen_for(view, lease)
    if lease.state is LeaseState.UNREADABLE:
        return f"{name}: its row cannot be read as a lease ({lease.note}). No worker processes the shard until it is repaired."
    if lease.state is LeaseState.MISSING:
        return f"{name} is open and has no lease{since}. A worker that compares the table with the stream creates it."
    if lease.state is LeaseState.FINISHED:
        return f"{name} was processed to its end. Its row stays until the children are processed, and is then deleted."
    if lease.state is LeaseState.UNOWNED:
        living = view.totals.owners
        who = (
            f"{living} {'worker renews' if living == 1 else 'workers renew'} other leases and could take it"
            if living
            else "No other worker is alive either"
        )
        return f"{name} has no owner{since}. {who}."
    renewed = (
        f", and the lease was renewed {duration(lease.renewed_ago)} ago"
        if lease.renewed_ago is not None
        else ", and the lease was not seen to be renewed yet"
        if _watched(view)
        else ""
    )
    if lease.state is LeaseState.SILENT:
        alone = owners.get(str(lease.owner))
        others = (
            " None of its leases is renewed: the worker is gone, frozen, or cut off from DynamoDB."
            if alone is not None and alone.silent_for is not None
            else " It renews other leases, so it has given up this one, or is about to."
        )
        silence = "" if lease.renewed_ago is None else f" for {duration(lease.renewed_ago)}"
        return (
            f"{name} is owned by {owner} ({_kind(lease)}), which has not renewed the lease{silence}, longer than the "
            f"failover time of {duration(view.failover_time)}.{others}"
        )
    if lease.state is LeaseState.HANDOFF:
        return (
            f"{name} is being handed off{since}: {owner} ({_kind(lease)}) finishes what it has in its hands, then "
            f"{printable(str(lease.next_owner))} begins{renewed}."
        )
    if lease.state is LeaseState.WAITING:
        held = f"It is owned by {owner} ({_kind(lease)}){renewed}." if lease.owner else "It has no owner yet."
        return f"{name} waits for its parents{since}: a child is read only after its parents were processed. {held}"
    held_for = f"{since}" if lease.state_for is not None else ""
    return f"{name} is owned by {owner} ({_kind(lease)}){held_for}{renewed}."


def _ancestors(
    view: FleetView, lease: LeaseView, by_key: Mapping[str, LeaseView], owners: Mapping[str, OwnerView]
) -> Iterable[str]:
    """Describe the unfinished parents, their parents, and so on."""
    prefix = "" if lease.stream is None else f"{lease.stream}:"
    seen = {lease.lease_key}
    layer = [lease]
    generation = 0
    while layer:
        found: list[LeaseView] = []
        for child in layer:
            for shard in child.parents:
                parent = by_key.get(prefix + shard)
                if parent is None or parent.lease_key in seen or parent.state is LeaseState.FINISHED:
                    continue
                seen.add(parent.lease_key)
                found.append(parent)
                if generation < _MAX_GENERATIONS:
                    lag = (
                        f" It is {duration(parent.lag.millis / 1000)} behind."
                        if parent.lag is not None
                        else ""
                    )
                    yield f"Its {'grand' * min(generation, 1)}parent: {_what_happens(view, parent, owners)}{lag}"
        generation += 1
        layer = found
    if generation > _MAX_GENERATIONS + 1:
        yield f"{generation - 1 - _MAX_GENERATIONS} more generations of ancestors are unfinished."


def _where_it_is(lease: LeaseView) -> str:
    checkpoint = lease.checkpoint
    if checkpoint is None:
        return "There is no checkpoint."
    name = checkpoint.sequence_number
    if checkpoint.is_shard_end:
        return "Checkpoint: SHARD_END."
    if name == TRIM_HORIZON:
        return "Nothing was checkpointed yet: it starts at TRIM_HORIZON, the oldest record of the shard."
    if name in (LATEST, AT_TIMESTAMP):
        fixed = (
            f"at the epoch millisecond {lease.initial_timestamp_millis}"
            if lease.initial_timestamp_millis is not None
            else "and the row has no time: what it means is decided when a worker first reads the shard"
        )
        return f"Nothing was checkpointed yet: it starts at {name}, {fixed}."
    when = (
        f", stored {duration(lease.checkpointed_ago)} ago"
        if lease.checkpointed_ago is not None
        else ", not seen to change"
    )
    return f"Checkpoint: record {name}, user record {checkpoint.sub_sequence_number} of it{when}."


def _how_far_behind(lease: LeaseView) -> Iterable[str]:
    lag = lease.lag
    if lag is None:
        if lease.lag_note and lease.state is not LeaseState.FINISHED:
            yield f"Its lag is not known: {lease.lag_note}."
        return
    source = "as its owner says" if lag.source is LagSource.PROGRESS else "as the stream says"
    measured = f"{source}, {duration(lag.age)} ago" if lag.age >= 1 else source
    text = (
        f"It is at the tip of the shard ({measured})."
        if not lag.millis
        else f"It is {duration(lag.millis / 1000)} behind ({measured})."
    )
    behind = lease.checkpoint_lag
    if behind is not None and lag.source is LagSource.PROGRESS and behind.millis > lag.millis:
        text += f" Its checkpoint was {duration(behind.millis / 1000)} behind {duration(behind.age)} ago: that much comes again if its owner dies."
    change = lag_growth(lease)
    if change:
        text += f" A minute ago it was {duration(abs(change))} {'less' if change > 0 else 'more'}."
    if lease.retention_left is not None and lag.millis:
        text += (
            f" The retention passes its oldest unprocessed record in {duration(lease.retention_left)}."
            if lease.retention_left > 0
            else " The retention has passed its oldest unprocessed records: they are lost."
        )
    if lease.note:
        text += f" Note: {lease.note}."
    yield text


def _handler(lease: LeaseView) -> Iterable[str]:
    if lease.failing is not None:
        text = failing_text(lease.failing)
        yield (
            f"{text[0].upper()}{text[1:]}. No later record of the shard is processed before this call succeeds."
            if lease.failing.position is None or lease.failing.records == 1
            else f"{text[0].upper()}{text[1:]}. Smaller parts of them are tried, until the record that fails is alone."
        )
    if lease.handler_seconds is None or lease.handler_seconds < 1:
        return
    yield (
        f"The handler of its owner has been in one call for {duration(lease.handler_seconds)}: the shard moves on when it "
        "returns, and not before."
    )


def _attributes(lease: LeaseView, owners: Mapping[str, OwnerView]) -> Iterable[str]:
    if lease.pinned_to is not None:
        alive = lease.pinned_to in owners and owners[lease.pinned_to].silent_for is None
        yield (
            f"It is pinned to {printable(lease.pinned_to)}, which is "
            + ("alive." if alive else "not alive, so that any worker may take it.")
        )
    if lease.owner is not None and lease.owner in owners and owners[lease.owner].is_draining:
        yield f"Its owner {printable(lease.owner)} drains: it hands off all its leases."


def _what_to_do(
    view: FleetView, lease: LeaseView, by_key: Mapping[str, LeaseView], spell: Callable[[Command], str]
) -> Iterable[str]:
    """Yield the remedies for the problems of this lease, its owner and its ancestors, or a sentence that says that there are none."""
    related = {lease.lease_key}
    prefix = "" if lease.stream is None else f"{lease.stream}:"
    todo = [lease]
    while todo:
        for shard in todo.pop().parents:
            parent = by_key.get(prefix + shard)
            if (
                parent is not None
                and parent.lease_key not in related
                and parent.state is not LeaseState.FINISHED
            ):
                related.add(parent.lease_key)
                todo.append(parent)
    workers = {by_key[key].owner for key in related} - {None}
    found = [
        problem
        for problem in view.problems
        if problem.lease_key in related or (problem.lease_key is None and concerns(problem, lease, workers))
    ]
    for problem in found:
        command = (
            ""
            if problem.command is None or problem.command.operation == "explain"
            else f" Command: {spell(problem.command)}"
        )
        yield f"Problem ({problem.code}): {problem.text}. What to do: {problem.remedy}.{command}"
        for action in problem.actions:
            yield f"To {action.title}: {spell(action.command)}"
    if not found and lease.state in (LeaseState.HELD, LeaseState.HANDOFF) and _watched(view):
        yield "No problem was found: the lease is renewed."
