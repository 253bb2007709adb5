"""Where leases live: the operations that a store offers, each one conditional write.

The conditions are the KCL's (``DynamoDBLeaseSerializer``). Ownership is fenced by the counter: whoever writes
must name the counter that it saw last, and every write adds one, so a worker whose lease was taken can not
write any more. Three kinds of writes leave the counter alone, because they must not disturb the owner: metadata
(children, hash range), the request for a handoff, and the marks of workers that stand by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from kinesis_sdk.common.errors import PermanentAwsError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Item, Lease


@dataclass(frozen=True)
class Conflict:
    """A conditional write that lost: somebody changed the row since it was read.

    Attributes:
        current: The row as it is now; None if it was deleted or could not be read.
    """

    current: Lease | None


@dataclass(frozen=True, kw_only=True)
class TableScan:
    """All rows of the lease table, as one scan read them.

    Attributes:
        leases: Every lease.
        unreadable: Why a row could not be read as a lease, by its key (escaped, so that it can be logged).
        others: Items of other kinds, by their key: KCL 3.5 keeps its coordinator state in the lease table.
    """

    leases: list[Lease]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Item] = field(default_factory=dict)


def is_refused_row(error: BaseException) -> bool:
    """Return whether DynamoDB refused to write one row for what the row holds, which repeating does not cure.

    For example a row that reached its maximum size. Every other worker would be refused as well, so it must cost the
    fleet this one lease and not all of its workers.
    """
    return isinstance(error, PermanentAwsError) and error.code == "ValidationException"


class LeaseStore(Protocol):
    """The lease table. Implementations are thread-safe.

    Every method makes one attempt and raises an `AwsError` when the call itself fails; `ensure_ready` and
    `scan` repeat transient failures themselves. A method that writes on a condition returns the row as it is
    after the write, or a `Conflict`. A condition failure that shows the effect of our own earlier write (its
    answer was lost) counts as success.
    """

    def ensure_ready(self) -> None:
        """Create the table if it is missing and wait until it can be used."""
        ...

    def scan(self, *, consistent: bool = False) -> TableScan:
        """Read the whole table.

        Args:
            consistent: Pay for strongly consistent reads.
        """
        ...

    def get(self, lease_key: str) -> Lease | None:
        """One lease, read consistently; None if there is none.

        Raises:
            ProtocolError: What is stored under this key is no lease.
        """
        ...

    def create_if_absent(self, lease: Lease) -> bool:
        """Create a lease; False if its key exists already (nothing is changed then)."""
        ...

    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Make ``owner`` the owner: counter + 1, switches + 1 if it was another's, handoff marker removed."""
        ...

    def renew(self, lease: Lease) -> Lease | Conflict:
        """Heartbeat: counter + 1, throughput if the row carries one.

        Fails once when a handoff was requested meanwhile: beside the counter it demands that there is no marker,
        unless the row as passed shows one.
        """
        ...

    def checkpoint(self, lease: Lease, checkpoint: ExtendedSequenceNumber) -> Lease | Conflict:
        """Store a position: counter + 1 (so it is a heartbeat too), switches 0, pending checkpoint removed.

        With the throughput if the row as passed carries one.
        """
        ...

    def prepare(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """First half of a two-phase checkpoint: counter + 1, pending position and state, switches 0."""
        ...

    def pin(self, lease: Lease, timestamp_millis: int) -> Lease | Conflict:
        """Store the instant that a sentinel position was resolved to: counter + 1."""
        ...

    def release(self, lease: Lease) -> Lease | Conflict:
        """Give the lease back: counter + 1, owner removed, so that a peer takes it at its next look.

        Fails as `renew` does when a handoff was requested meanwhile: the lease then has a next owner.
        """
        ...

    def request_handoff(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Ask the owner to hand the lease to ``owner``: it becomes ``leaseOwner``, the old one the marker.

        The counter stays, so the old owner goes on undisturbed until it sees the marker. The condition is the
        KCL's: the owner as seen, and no marker; the counter may have moved.
        """
        ...

    def complete_handoff(self, lease: Lease) -> Lease | Conflict:
        """The old owner is done: marker removed, counter + 1; switches stay.

        The condition is the KCL's (both owners as seen) and the counter.
        """
        ...

    def set_hash_key_range(self, lease_key: str, hash_key_range: HashKeyRange) -> bool:
        """Store the range of a shard whose old row lacks it; the counter stays. False if there is no such lease."""
        ...

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        """Store the children of an ended shard; the counter stays. False if there is no such lease."""
        ...

    def put_standby_heartbeat(self, lease_key: str, worker_id: str, beat: int | None) -> bool:
        """Leave a worker's mark on a row, or take it away (None); the counter stays. False if there is no such lease."""
        ...

    def delete(self, lease_key: str, *, unowned: Lease | None = None) -> bool:
        """Remove a lease, whether or not it exists.

        Args:
            lease_key: Its key.
            unowned: The row as seen, without an owner: remove it only if nobody wrote it since. None asks nothing, as
                the KCL: a finished lease may be deleted under the worker that still renews it.

        Returns:
            False if somebody has taken it meanwhile.
        """
        ...


# What each write makes of a row. The DynamoDB store writes exactly these differences as update expressions;
# the in-memory store keeps the results; both recognise a lost answer by comparing with them.


def taken(lease: Lease, owner: str) -> Lease:
    """The row after `LeaseStore.take`."""
    switched = lease.holder is not None and lease.holder != owner
    return replace(
        lease,
        owner=owner,
        counter=lease.counter + 1,
        owner_switches=lease.owner_switches + switched,
        checkpoint_owner=None,
        handoff_owner=owner,
    )


def renewed(lease: Lease) -> Lease:
    """The row after `LeaseStore.renew`."""
    return replace(lease, counter=lease.counter + 1)


def checkpointed(lease: Lease, checkpoint: ExtendedSequenceNumber) -> Lease:
    """The row after `LeaseStore.checkpoint`; a pinned start has done its work then."""
    return replace(
        lease,
        counter=lease.counter + 1,
        checkpoint=checkpoint,
        owner_switches=0,
        pending_checkpoint=None,
        pending_checkpoint_state=None,
        initial_timestamp_millis=None,
    )


def prepared(lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None) -> Lease:
    """The row after `LeaseStore.prepare`."""
    return replace(
        lease,
        counter=lease.counter + 1,
        owner_switches=0,
        pending_checkpoint=checkpoint,
        pending_checkpoint_state=state,
    )


def pinned(lease: Lease, timestamp_millis: int) -> Lease:
    """The row after `LeaseStore.pin`."""
    return replace(lease, counter=lease.counter + 1, initial_timestamp_millis=timestamp_millis)


def released(lease: Lease) -> Lease:
    """The row after `LeaseStore.release`."""
    return replace(lease, counter=lease.counter + 1, owner=None, checkpoint_owner=None, handoff_owner=None)


def marked(lease: Lease, owner: str) -> Lease:
    """The row after `LeaseStore.request_handoff`."""
    return replace(lease, owner=owner, checkpoint_owner=lease.owner, handoff_owner=owner)


def handed_over(lease: Lease) -> Lease:
    """The row after `LeaseStore.complete_handoff`."""
    return replace(lease, counter=lease.counter + 1, checkpoint_owner=None, handoff_owner=None)


def shows(current: Lease | None, wanted: Lease) -> bool:
    """Whether a row that we lost against is the very row that we tried to write (its answer was lost).

    Only the same owner can have written this counter: another worker's write from the same row carries another
    owner. The KCL recovers renewals in the same way (``DynamoDBLeaseRefresher.renewLease``).
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
    )
