"""The interface of lease stores.

A worker keeps its leases and checkpoints in a `LeaseStore`: in DynamoDB (`DynamoDBLeaseStore`, one table per application,
shared with Java KCL workers), in memory (`InMemoryLeaseStore`), or in a database of the user's choice. The conditions and
effects of every write are in `transitions`; `kinesis_sdk.testing.contracts.lease_stores` tests a store against all of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kinesis_sdk.common.errors import LeaseRowRejectedError, PermanentAwsError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest
from kinesis_sdk.consumer.leases.table.lease import Item, Lease
from kinesis_sdk.consumer.leases.table.transitions import Conflict


@dataclass(frozen=True, kw_only=True)
class TableScan:
    """All rows of the lease table in one scan.

    Attributes:
        leases: Every lease.
        unreadable: Reason why a row could not be read as a lease, by its key (escaped for logs).
        others: Items of other kinds, by their key: KCL 3.5 keeps its coordinator state in the lease table.
    """

    leases: list[Lease]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Item] = field(default_factory=dict)


def is_rejected_row(error: BaseException) -> bool:
    """Return whether a store rejected a write because of the row's content, for example its maximum size.

    Repeating the write cannot succeed, and every other worker would be rejected as well. So a rejected row must cost the fleet one lease,
    not all of its workers.
    """
    return isinstance(error, LeaseRowRejectedError) or (
        isinstance(error, PermanentAwsError) and error.code == "ValidationException"
    )


class LeaseStore(Protocol):
    """The lease table. Implementations are thread-safe.

    **Atomicity.** Methods that write check their condition and write in one atomic step: a compare-and-set, a
    transaction, or a conditional update. Two workers that write the same row at the same time must not both succeed.
    Conditions and effects are the functions and the table of `kinesis_sdk.consumer.leases.table.transitions`. A write
    whose condition does not hold returns a `Conflict` with the current row and changes nothing. If the row shows the effect of this very
    write, because the response to an earlier attempt was lost, the method returns the row instead.

    **Errors.** Every method makes one attempt; `ensure_ready` and `scan` may repeat transient failures themselves. A
    method raises a `KinesisSdkError` if the call itself fails, and ``retryable`` shows whether a repeated call may succeed:

    - `TransientLeaseStoreError` (retryable): a timeout, a lost connection, throttling, a deadlock. The worker logs it,
      retries, and stops processing a shard before its lease expires. The write may have taken effect.
    - `LeaseStoreError`: repeating cannot succeed (access denied, no such table). This error stops the worker.
    - `LeaseRowRejectedError`: no worker can write this one row. The worker releases only this lease. From
      `create_if_absent` and `delete`, the error stops the worker, because otherwise a shard would not be consumed, or its
      lease would stay forever.

    The DynamoDB store raises `AwsError` and its subclasses in the same way. Any other exception counts as a bug in the
    store: it stops the worker, which raises it from ``run``. Translate the exceptions of your database's client.

    **Reading back.** Every attribute of a `Lease` must be stored and returned, ``extra`` included; ``damaged`` is not
    stored. `kinesis_sdk.testing.contracts.lease_stores` checks all of this.
    """

    def ensure_ready(self) -> None:
        """Create the table if it is missing and wait until it can be used.

        Called once when a worker starts. Another worker may create the table at the same time.

        Raises:
            KinesisSdkError: If the table cannot be used; the worker does not start.
        """
        ...

    def scan(self, *, consistent: bool = False) -> TableScan:
        """Read the whole table.

        Args:
            consistent: Whether every write that completed before the call must be visible. Other scans may be stale, which
                is safe because every write is conditional.

        Raises:
            KinesisSdkError: If the call fails; after a retryable error, the call is repeated with backoff.
        """
        ...

    def get(self, lease_key: str) -> Lease | None:
        """Read one lease; every write that completed before the call is visible.

        Returns:
            The lease, or None if there is no row with this key.

        Raises:
            ProtocolError: If the row exists but cannot be read as a lease. The lease must not count as absent: a shard
                whose parent has no lease is read at once.
            KinesisSdkError: If the call fails.
        """
        ...

    def create_if_absent(self, lease: Lease) -> bool:
        """Create a row unless its key exists.

        Returns:
            False if the key exists; then no row is changed.

        Raises:
            KinesisSdkError: If the call fails; it is repeated with the next comparison of table and stream.
        """
        ...

    def take(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Make ``owner`` the owner (`transitions.taken`), on the condition that the counter equals that of ``lease``.

        Args:
            lease: The row that was read last.
            owner: Worker id of the new owner.

        Raises:
            KinesisSdkError: If the call fails. After a retryable error, the next scan shows whether the call took effect.
        """
        ...

    def renew(self, lease: Lease) -> Lease | Conflict:
        """Renew a lease (`transitions.renewed`), on the condition that the counter equals that of ``lease``.

        The row must also have no handoff marker (``checkpoint_owner``), unless ``lease`` has such a marker. So the first
        renewal after a handoff request fails and shows the request to the owner, which then renews the row with the marker.
        ``lease.throughput_kbps`` and ``lease.progress`` are stored as well, each unless it is None.

        Raises:
            KinesisSdkError: If the call fails. After a retryable error, the call is repeated while the lease has not expired.
        """
        ...

    def checkpoint(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a position (`transitions.checkpointed`), on the condition that the counter equals that of ``lease``.

        A checkpoint counts as a renewal, and stores throughput and progress in the same way. Position, counter and state change together.

        Args:
            lease: The row that the worker read last.
            checkpoint: The position.
            state: State of the application, stored with the position as the pending state; None removes a stored state. Workers
                pass this argument only if there is a state.

        Raises:
            KinesisSdkError: If the call fails. After a retryable error, the call is repeated for
                ``checkpoint_timeout``; then the checkpoint call of the handler raises the error.
        """
        ...

    def prepare(
        self, lease: Lease, checkpoint: ExtendedSequenceNumber, state: bytes | None = None
    ) -> Lease | Conflict:
        """Store a pending position and the application's state (`transitions.prepared`); otherwise as `checkpoint`.

        Raises:
            KinesisSdkError: If the call fails, or if the state is too large for the store.
        """
        ...

    def pin(self, lease: Lease, timestamp_millis: int) -> Lease | Conflict:
        """Store the instant to which a sentinel position was resolved (`transitions.pinned`); conditional on the counter.

        Raises:
            KinesisSdkError: If the call fails; nothing is delivered until it succeeds.
        """
        ...

    def mark_processed(self, lease: Lease, millis: int) -> Lease | Conflict:
        """Store that every record which arrived before a time is processed (`transitions.marked_processed`).

        The write is conditional on the counter; the mark is valid for the checkpoint of ``lease``.

        Raises:
            KinesisSdkError: If the call fails. After a retryable error, the call is repeated.
        """
        ...

    def release(self, lease: Lease) -> Lease | Conflict:
        """Remove the owner (`transitions.released`), so that another worker takes the lease after its next scan.

        The condition is the same as in `renew`: after a handoff request, the lease has a next owner.

        Raises:
            KinesisSdkError: If the call fails. After a retryable error, the call is repeated for the failover time; then the lease expires.
        """
        ...

    def request_handoff(self, lease: Lease, owner: str) -> Lease | Conflict:
        """Request a lease from its owner (`transitions.handoff_requested`), so that ``owner`` becomes the next owner.

        The counter stays, so the old owner continues undisturbed until it sees the request. The row must have the same owner
        as ``lease`` and no other request; the counter may have changed.

        Raises:
            KinesisSdkError: If the call fails. After a retryable error, the next scan shows whether the call took effect.
        """
        ...

    def complete_handoff(self, lease: Lease) -> Lease | Conflict:
        """Hand a lease off to its next owner (`transitions.handed_off`), once the old owner has finished.

        Counter and both owners must be the same as in ``lease``.

        Raises:
            KinesisSdkError: If the call fails; it is repeated like `release`.
        """
        ...

    def set_hash_key_range(self, lease_key: str, hash_key_range: HashKeyRange) -> bool:
        """Store the range of a shard whose row lacks it. The counter stays.

        Returns:
            False if there is no row with this key; the method must not create one.

        Raises:
            KinesisSdkError: If the call fails; it is repeated with the next comparison of table and stream.
        """
        ...

    def set_child_shard_ids(self, lease_key: str, child_shard_ids: Iterable[str]) -> bool:
        """Store the children of an ended shard, sorted. The counter stays.

        Returns:
            False if there is no row with this key; the method must not create one.

        Raises:
            KinesisSdkError: If the call fails; after a retryable error, the call is repeated before the shard ends.
        """
        ...

    def put_standby_heartbeat(self, lease_key: str, worker_id: str, heartbeat: int | None) -> bool:
        """Store or remove the standby heartbeat of a worker; other workers' heartbeats and the counter stay.

        Args:
            lease_key: Row that carries it.
            worker_id: Worker that holds no lease.
            heartbeat: Increasing number; None removes it, if there is one.

        Returns:
            False if there is no row with this key; the method must not create one.

        Raises:
            KinesisSdkError: If the call fails; after a retryable error, the call is repeated.
        """
        ...

    def set_drain(self, lease_key: str, worker_id: str, on: bool) -> bool:
        """Set or remove the mark that makes a worker drain; other workers' marks and the counter stay.

        Args:
            lease_key: Row that carries it.
            worker_id: Worker to drain.
            on: Whether to set the mark; False removes it, if there is one.

        Returns:
            False if there is no row with this key; the method must not create one.

        Raises:
            KinesisSdkError: If the call fails; after a retryable error, the call is repeated.
        """
        ...

    def set_pin(self, lease_key: str, worker_id: str | None) -> bool:
        """Store the worker that gets this lease while it is alive; None removes the pin. The counter stays.

        Returns:
            False if there is no row with this key; the method must not create one.

        Raises:
            KinesisSdkError: If the call fails.
        """
        ...

    def set_handler_request(
        self, lease_key: str, request: HandlerRequest | None, *, instead_of: HandlerRequest | None = None
    ) -> bool:
        """Store an operator's request to the holder of a lease; None removes it. The counter stays.

        Args:
            lease_key: The row.
            request: The request; it replaces an earlier request.
            instead_of: The request that the row must carry; None requires no request.

        Returns:
            False if there is no row with this key (the method must not create one), or if the row does not carry ``instead_of``.

        Raises:
            KinesisSdkError: If the call fails; after a retryable error, the call is repeated.
        """
        ...

    def delete(self, lease_key: str, *, unowned: Lease | None = None, finished: bool = False) -> bool:
        """Remove a lease; without a condition, whatever its state. A missing row counts as removed.

        Args:
            lease_key: Key of the lease.
            unowned: The row in the scan, without an owner. The row is removed only if its counter is the same.
            finished: Whether to remove the row only if its checkpoint is ``SHARD_END``. The counter does not matter: as in
                the KCL, a finished lease may be deleted while a worker still renews it.

        Returns:
            False if a condition did not hold.

        Raises:
            KinesisSdkError: If the call fails; it is repeated with the next clean-up.
        """
        ...
