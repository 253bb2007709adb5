"""The writes that are safe on a row that a live worker holds. Pure.

Five rules apply to each write; `docs/operations.md` explains the reasons.

1. The condition is the counter that was seen. A position is never written without raising the counter, because the owner would not notice
the change, and its next checkpoint would overwrite the position.
2. The counter rises by two if the owner's name stays. A KCL owner whose renewal fails reads the row again. If it finds its own
   name and its counter plus one, it concludes that its own renewal succeeded, and continues at its old position.
3. A new position removes the pending checkpoint and the initial timestamp. A pending checkpoint that stays would be passed to the next
``initialize``, which may commit it and jump forward again.
4. Each write names the operator (``by``), so that the row shows whether a write with a lost response took effect.
5. Positions are numbers or TRIM_HORIZON. A Java worker cannot read AT_TIMESTAMP, and LATEST means a different record each time that it is
resolved.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from kinesis_sdk.admin.changes.rows import Row, RowWrite, WriteKind, position_removals
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, ExtendedSequenceNumber
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import attributes, checkpoint_attributes, lease_to_item


class Recipe(str, Enum):
    """The form of a change."""

    RESTART = "restart"
    """New position, counter + 2; the owner stays, and restarts there."""
    FREE = "free"
    """New position if there is one, counter + 2, no owner: any worker may take it."""
    REQUEST = "request"
    """A handoff is requested from the owner, which finishes its work first; then the change is written."""
    ASSIGN = "assign"
    """A lease without a live owner gets an owner."""
    CREATE = "create"
    """A row that was deleted is put back."""


def restart(row: Row, position: ExtendedSequenceNumber, *, by: str) -> RowWrite:
    """Return the write that makes the owner restart at a position."""
    return _update(row, by, counter=2, position=position)


def free(row: Row, position: ExtendedSequenceNumber | None = None, *, by: str) -> RowWrite:
    """Return the write that takes a lease from its owner, so that any worker may take it, with a new position if one is given."""
    return _update(row, by, counter=2, position=position, owner=None)


def assign(row: Row, owner: str, *, is_python: bool, by: str) -> RowWrite:
    """Return the write that names an owner for a lease whose owner is dead or absent, as a KCL 3 leader does."""
    return _update(row, by, counter=2, owner=owner, is_python=is_python)


def give_back(row: Row, owner: str, position: ExtendedSequenceNumber | None, *, by: str) -> RowWrite:
    """Return the write that ends a handoff to the operator: a position if one is given, and the old owner's name.

    The old owner no longer holds the lease, so it cannot mistake this write for its own, and a counter of + 1 is enough.
    """
    return _update(row, by, counter=1, position=position, owner=owner)


def request(row: Row, requester: str, *, is_python: bool = True) -> RowWrite:
    """Return the write that requests a lease from its owner. The counter stays, so its owner is not disturbed.

    If ``is_python`` (a worker of this SDK, or the operator), an old owner of this SDK takes the lease back if the requester does not take
    it within three seconds. A Java worker needs up to ten.
    """
    sets = {
        attributes.LEASE_OWNER: {"S": requester},
        attributes.CHECKPOINT_OWNER: {"S": row.lease.owner or ""},
    }
    removes: tuple[str, ...] = ()
    if is_python:
        sets[attributes.HANDOFF_OWNER] = {"S": requester}
    elif attributes.HANDOFF_OWNER in row.item:
        removes = (attributes.HANDOFF_OWNER,)
    return RowWrite(
        lease_key=row.lease.lease_key,
        sets=sets,
        removes=removes,
        equals={attributes.LEASE_OWNER: {"S": row.lease.owner or ""}},
        absent=(attributes.CHECKPOINT_OWNER,),
    )


def withdraw(before: Row, requester: str) -> RowWrite:
    """Return the write that withdraws a handoff request to which the owner has not responded. ``before`` is the row before the request."""
    name = attributes.HANDOFF_OWNER
    sets: dict[str, Any] = {attributes.LEASE_OWNER: {"S": before.lease.owner or ""}}
    removes: tuple[str, ...] = (attributes.CHECKPOINT_OWNER,)
    if name in before.item:
        sets[name] = before.item[name]
    else:
        removes += (name,)
    return RowWrite(
        lease_key=before.lease.lease_key,
        sets=sets,
        removes=removes,
        equals={
            attributes.LEASE_OWNER: {"S": requester},
            attributes.CHECKPOINT_OWNER: {"S": before.lease.owner or ""},
        },
    )


def create(lease: Lease, *, by: str) -> RowWrite:
    """Return the write that puts a missing row back."""
    return RowWrite(
        lease_key=lease.lease_key,
        kind=WriteKind.PUT,
        sets={**lease_to_item(lease), attributes.CHANGED_BY: {"S": by}},
        absent=(attributes.LEASE_KEY,),
    )


_KEEP = "\0"
_TIMED = (LATEST, AT_TIMESTAMP)


def _update(
    row: Row,
    by: str,
    *,
    counter: int,
    position: ExtendedSequenceNumber | None = None,
    owner: str | None = _KEEP,
    is_python: bool = False,
) -> RowWrite:
    sets: dict[str, Any] = {
        attributes.LEASE_COUNTER: {"N": str(row.lease.counter + counter)},
        # With the counter that was seen, because an operator may write a row twice: after a lost response to the second write,
        # the mark of the first write must not count as an effect of the second.
        attributes.CHANGED_BY: {"S": f"{by}:{row.lease.counter}"},
    }
    removes: list[str] = []
    if position is not None:
        sets.update(checkpoint_attributes(position))
        sets[attributes.OWNER_SWITCHES] = {"N": "0"}
        removes += position_removals(row.item)
        if position == row.lease.checkpoint and position.sequence_number in _TIMED:
            removes = [name for name in removes if name != attributes.INITIAL_TIMESTAMP]
    if owner != _KEEP:
        removes += [
            name
            for name in (attributes.LEASE_OWNER, attributes.CHECKPOINT_OWNER, attributes.HANDOFF_OWNER)
            if name in row.item
        ]
        if owner is not None:
            sets[attributes.LEASE_OWNER] = {"S": owner}
            if is_python:
                sets[attributes.HANDOFF_OWNER] = {"S": owner}
    return RowWrite(
        lease_key=row.lease.lease_key,
        sets=sets,
        removes=tuple(name for name in removes if name not in sets),
        equals={attributes.LEASE_COUNTER: row.item[attributes.LEASE_COUNTER]},
    )
