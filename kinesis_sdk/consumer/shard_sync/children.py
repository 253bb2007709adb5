"""End of a shard: its children's leases are created before its own lease is marked as finished."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.shards import Shard, ShardGraph
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import LeaseStore, is_rejected_row
from kinesis_sdk.consumer.shard_sync.plan import plan_children
from kinesis_sdk.consumer.streams import TrackedStream

_LOGGER = FieldLogger(logging.getLogger(__name__))


def _same(lease: Lease) -> Lease:
    return lease


class ChildLeases:
    """Creates the leases of a finished shard's children.

    Args:
        store: Lease table.
        list_shards: Lists all shards of the stream.
        request_sync: Requests a shard sync soon.
        tracked: The stream, for the form of its lease keys; None for single-stream mode.
        worker_id: Id of the worker, for the log.
    """

    def __init__(
        self,
        store: LeaseStore,
        list_shards: Callable[[], list[Shard]],
        request_sync: Callable[[], None],
        tracked: TrackedStream | None = None,
        *,
        worker_id: str | None = None,
    ) -> None:
        self._stream = None if tracked is None else tracked.stream
        self._worker_id = worker_id
        self._key: Callable[[str], str] = tracked.lease_key if tracked is not None else str
        self._stored: Callable[[Lease], Lease] = tracked.stored if tracked is not None else _same
        self._store = store
        self._list_shards = list_shards
        self._request_sync = request_sync

    def _fields(self, shard_id: str) -> dict[str, str | None]:
        return log_fields(stream=self._stream, shard=shard_id, worker=self._worker_id)

    def create(
        self,
        parent: str,
        children: Iterable[Shard],
        *,
        heirs: Collection[str] = (),
        inherit: Callable[[Lease], Lease] = _same,
    ) -> bool:
        """Create the children's missing leases and store their ids on the parent's lease.

        The child of a merge waits for both parents. If the other parent has no lease yet although the stream still lists
        it, that parent's data has not been read. The child's lease must then wait, because a child treats a parent
        without a lease as finished. (The KCL waits as well, and sometimes drops its lease.)

        An operator may restore the row of a shard long after its children were finished and their leases deleted. Such a
        child must not get a lease again: it would be processed a second time, and the child of a merge would wait forever
        for the other parent, whose lease was deleted as well. The operator therefore stores other child ids in the row, namely the ids of
        the shards to be read instead of these children.

        Args:
            parent: Id of the finished shard.
            children: Its children; empty if the shard's retention ended and the children are unknown.
            heirs: Child ids that the row already has; all other children were read before.
            inherit: Changes the starting position of a child's lease; by default, children start at their beginning.

        Returns:
            False if the caller must call again later.

        Raises:
            AwsError: If a call failed; calling again is safe.
        """
        children = list(children)
        leases = [inherit(lease) for lease in plan_children(children)]
        if heirs:
            leases = self._without_finished(parent, leases, heirs)
        for lease in leases:
            others = [other for other in lease.parent_shard_ids if other != parent]
            missing = [other for other in others if self._store.get(self._key(other)) is None]
            if missing and self._store.get(self._key(lease.lease_key)) is None:
                graph = ShardGraph(self._list_shards())
                listed = graph.shards.keys()
                # A descendant has a lease, so the child and both of its parents were read before. Since then, an import has
                # restored the row of one parent, and the lease of the other parent was deleted.
                was_read = any(
                    self._store.get(self._key(one)) is not None for one in graph.descendants(lease.lease_key)
                )
                # A parent that is not listed has expired only if a newer shard is listed. If it is newer than all
                # listed shards, the listing is older than the reshard.
                if not was_read and any(
                    other in listed or other > max(listed, default="") for other in missing
                ):
                    _LOGGER.info(
                        "shard %s: child %s waits for the lease of its other parent %s",
                        parent,
                        lease.lease_key,
                        ", ".join(missing),
                        extra=self._fields(parent),
                    )
                    self._request_sync()
                    return False
            if self._store.create_if_absent(self._stored(lease)):
                _LOGGER.info(
                    "lease %s: created as a child of %s",
                    lease.lease_key,
                    parent,
                    extra=self._fields(lease.lease_key),
                )
        if not children:
            # The shard was trimmed. A shard sync must find its successors while its lease still exists.
            self._request_sync()
        else:
            try:
                self._store.set_child_shard_ids(
                    self._key(parent), heirs or [child.shard_id for child in children]
                )
            except KinesisSdkError as error:
                if not is_rejected_row(error):
                    raise
                # Only the cleanup reads these ids; it lists the stream if they are missing.
                _LOGGER.warning(
                    "lease %s: failed to store child shard ids: %s", parent, error, extra=self._fields(parent)
                )
        return True

    def are_past(self, parent: str, children: Iterable[Shard], is_past: Callable[[Lease], bool]) -> bool:
        """Return whether all records of children that wait for another parent come after a given time.

        The other parent may have no lease because one of its ancestors is processed only up to the moment of ``until``. The other parent
        gets its lease once a later run has read that ancestor to its end. All descendants of the ancestor start after its end.

        Args:
            parent: Id of the finished shard.
            children: Its children.
            is_past: Returns whether a row's shard is processed up to the moment.

        Raises:
            AwsError: If a call failed; calling again is safe.
        """
        graph = ShardGraph(self._list_shards())
        ancestors = {one for child in children for one in graph.ancestors(child.shard_id)} - {parent}
        rows = (self._store.get(self._key(one)) for one in sorted(ancestors))
        return any(row is not None and not row.is_finished and is_past(row) for row in rows)

    def _without_finished(self, parent: str, leases: list[Lease], heirs: Collection[str]) -> list[Lease]:
        kept = [lease for lease in leases if lease.lease_key in heirs]
        if len(kept) < len(leases):
            _LOGGER.info(
                "shard %s: its child %s was finished before, and gets no new lease",
                parent,
                ", ".join(lease.lease_key for lease in leases if lease not in kept),
                extra=self._fields(parent),
            )
        return kept
