"""Row transitions of the lease table: the conditions and effects of every write, as pure functions.

The DynamoDB store writes these differences as update expressions. A store on another database reads the row inside its
own transaction, calls the function, and writes the result; `InMemoryLeaseStore` is the shortest example. In both
cases, condition and write must be one atomic step.

Ownership is fenced by the counter. A writer names the counter that it saw last, and every write of an owner adds one, so
a worker whose lease was taken can no longer write the row. Some writes do not change the counter, because they must not disturb the owner:
the handoff request, metadata (children, hash key range), standby heartbeats, drain marks, pins and requests to
a handler.

| `LeaseStore` method | function | condition | attributes changed | KCL source |
|---|---|---|---|---|
| ``create_if_absent`` | – | no row has this key | all | ``createLeaseIfNotExists`` |
| ``take`` | `taken` | counter | ``leaseOwner``, ``leaseCounter`` + 1, ``ownerSwitchesSinceCheckpoint`` + 1 if another worker held it, ``checkpointOwner`` and ``progress`` removed, ``handoffOwner`` | ``takeLease`` |
| ``renew`` | `renewed` | counter; no ``checkpointOwner``, unless the row as passed has one | ``leaseCounter`` + 1, ``throughputKBps`` and ``progress`` if the row as passed has them | ``renewLease`` |
| ``checkpoint`` | `checkpointed` | counter | ``checkpoint``, ``checkpointSubSequenceNumber``, ``leaseCounter`` + 1, ``ownerSwitchesSinceCheckpoint`` 0, pending attributes and ``initialTimestampMillis`` removed (with a state: ``pendingCheckpoint``, its sub-sequence number and ``pendingCheckpointState`` are written instead), ``throughputKBps`` and ``progress`` as `renewed` | ``DynamoDBCheckpointer.setCheckpoint`` |
| ``prepare`` | `prepared` | counter | ``pendingCheckpoint``, ``pendingCheckpointSubSequenceNumber``, ``pendingCheckpointState``, ``leaseCounter`` + 1, ``ownerSwitchesSinceCheckpoint`` 0 | ``DynamoDBCheckpointer.prepareCheckpoint`` |
| ``pin`` | `pinned` | counter | ``initialTimestampMillis``, ``leaseCounter`` + 1 | – (this SDK's) |
| ``mark_processed`` | `marked_processed` | counter | ``processedUntil``, ``leaseCounter`` + 1 | – (this SDK's) |
| ``release`` | `released` | counter; no ``checkpointOwner``, unless the row as passed has one | ``leaseOwner``, ``checkpointOwner``, ``handoffOwner`` removed, ``leaseCounter`` + 1 | ``evictLease`` |
| ``request_handoff`` | `handoff_requested` | ``leaseOwner`` as passed, no ``checkpointOwner``; any counter | ``checkpointOwner`` = old owner, ``leaseOwner`` = ``handoffOwner`` = requester | ``initiateGracefulLeaseHandoff`` |
| ``complete_handoff`` | `handed_off` | counter; ``leaseOwner`` and ``checkpointOwner`` as passed | ``checkpointOwner``, ``handoffOwner`` removed, ``leaseCounter`` + 1 | ``evictLease`` |
| ``set_hash_key_range`` | – | the row exists | ``startingHashKey``, ``endingHashKey`` | ``updateLeaseWithMetaInfo`` |
| ``set_child_shard_ids`` | – | the row exists | ``childShardIds`` | ``updateLeaseWithMetaInfo`` |
| ``put_standby_heartbeat`` | – | the row exists | ``standby:<worker id>`` | – (this SDK's) |
| ``set_drain`` | – | the row exists | ``drain:<worker id>`` | – (this SDK's) |
| ``set_pin`` | – | the row exists | ``pinnedTo`` | – (this SDK's) |
| ``set_handler_request`` | – | the row exists; with ``instead_of``: it carries that request | ``handlerRequest`` | – (this SDK's) |
| ``delete`` | – | none; with ``unowned``: the counter, or no row; with ``finished``: ``checkpoint`` = ``SHARD_END``, or no row | the row | ``deleteLease`` |

The KCL's methods are those of ``DynamoDBLeaseRefresher`` (3.x), and their conditions come from ``DynamoDBLeaseSerializer``.

A write whose response was lost may have taken effect. If such a write is repeated, it finds another counter: the counter that this very
write would leave. This counts as success (`has_effect_of`). Another worker's write from the same row leaves another owner, with two
exceptions. If a handoff takes too long, the old owner may complete it while the requester takes the lease. If the shard has ended and the
lease expires, both workers may release it. In both cases, the two writes leave equal rows, and each worker wanted exactly this row. The
KCL recovers renewals in the same way (``renewLease``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease, ProcessedUntil


@dataclass(frozen=True)
class Conflict:
    """The outcome of a conditional write whose condition did not hold: the row was changed since it was read.

    Attributes:
        current: The current row; None if it was deleted or cannot be read.
    """

    current: Lease | None


def taken(lease: Lease, owner: str) -> Lease:
    """Return the row after `LeaseStore.take`."""
    switched = lease.holder is not None and lease.holder != owner
    return replace(
        lease,
        owner=owner,
        counter=lease.counter + 1,
        owner_switches=lease.owner_switches + switched,
        checkpoint_owner=None,
        handoff_owner=owner,
        progress=None,
    )


def renewed(lease: Lease) -> Lease:
    """Return the row after `LeaseStore.renew`."""
    return replace(lease, counter=lease.counter + 1)


def checkpointed(lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None) -> Lease:
    """Return the row after `LeaseStore.checkpoint`; a pinned start is no longer needed."""
    return replace(
        lease,
        counter=lease.counter + 1,
        checkpoint=checkpoint,
        owner_switches=0,
        pending_checkpoint=None if state is None else checkpoint,
        pending_checkpoint_state=state,
        initial_timestamp_millis=None,
    )


def prepared(lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None) -> Lease:
    """Return the row after `LeaseStore.prepare`."""
    return replace(
        lease,
        counter=lease.counter + 1,
        owner_switches=0,
        pending_checkpoint=checkpoint,
        pending_checkpoint_state=state,
    )


def pinned(lease: Lease, timestamp_millis: int) -> Lease:
    """Return the row after `LeaseStore.pin`."""
    return replace(lease, counter=lease.counter + 1, initial_timestamp_millis=timestamp_millis)


def marked_processed(lease: Lease, millis: int) -> Lease:
    """Return the row after `LeaseStore.mark_processed`."""
    return replace(lease, counter=lease.counter + 1, processed_until=ProcessedUntil(millis, lease.checkpoint))


def released(lease: Lease) -> Lease:
    """Return the row after `LeaseStore.release`."""
    return replace(lease, counter=lease.counter + 1, owner=None, checkpoint_owner=None, handoff_owner=None)


def handoff_requested(lease: Lease, owner: str) -> Lease:
    """Return the row after `LeaseStore.request_handoff`."""
    return replace(lease, owner=owner, checkpoint_owner=lease.owner, handoff_owner=owner)


def handed_off(lease: Lease) -> Lease:
    """Return the row after `LeaseStore.complete_handoff`."""
    return replace(lease, counter=lease.counter + 1, checkpoint_owner=None, handoff_owner=None)


def with_measurements_of(row: Lease, seen: Lease) -> Lease:
    """Return a row with the throughput and the progress that the writer measured, if any; see `LeaseStore.renew`."""
    if seen.throughput_kbps is not None:
        row = replace(row, throughput_kbps=seen.throughput_kbps)
    return row if seen.progress is None else replace(row, progress=seen.progress)


def has_effect_of(current: Lease | None, wanted: Lease) -> bool:
    """Return whether the row that made a write fail is the result of this write, which succeeded although its response was lost.

    Args:
        current: The current row.
        wanted: The row that the write would leave.
    """
    return (
        current is not None
        and current.counter == wanted.counter
        and current.owner == wanted.owner
        and current.checkpoint_owner == wanted.checkpoint_owner
        and current.checkpoint == wanted.checkpoint
        and current.pending_checkpoint == wanted.pending_checkpoint
        and current.pending_checkpoint_state == wanted.pending_checkpoint_state
        and current.initial_timestamp_millis == wanted.initial_timestamp_millis
        and current.processed_until == wanted.processed_until
    )


def compare_and_set(
    current: Lease | None,
    seen: Lease,
    change: Callable[[Lease], Lease],
    *,
    no_handoff: bool = False,
    same_owners: bool = False,
) -> Lease | Conflict:
    """Decide a write that is conditional on the counter.

    Args:
        current: The current row, read in the same transaction; None if there is none.
        seen: The row that the writer read last.
        change: The transition, for example ``lambda row: taken(row, owner)``.
        no_handoff: Whether the row must also have no handoff marker (``checkpointOwner``).
        same_owners: Whether owner and handoff marker must also be unchanged.

    Returns:
        The row to store; or ``current`` itself if this very write has already taken effect, so that no write is needed; or a `Conflict`.
    """
    if current is None:
        return Conflict(None)
    if (
        current.counter != seen.counter
        or (no_handoff and current.in_handoff)
        or (same_owners and (current.owner, current.checkpoint_owner) != (seen.owner, seen.checkpoint_owner))
    ):
        return current if has_effect_of(current, change(seen)) else Conflict(current)
    return change(current)


def compare_owner_and_request_handoff(current: Lease | None, seen: Lease, owner: str) -> Lease | Conflict:
    """Decide a handoff request, which is conditional on the owner and on the absence of another request.

    Args:
        current: The current row, read in the same transaction; None if there is none.
        seen: The row that the requester read last.
        owner: The requester.

    Returns:
        As `compare_and_set`.
    """
    if current is None:
        return Conflict(None)
    if current.owner != seen.owner or current.in_handoff:
        return current if is_requested_by(current, seen, owner) else Conflict(current)
    return handoff_requested(current, owner)


def is_requested_by(current: Lease, seen: Lease, owner: str) -> bool:
    """Return whether a row shows the effect of this very handoff request, whose response was lost."""
    return (current.owner, current.checkpoint_owner) == (owner, seen.owner)
