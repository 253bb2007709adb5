"""What one worker does for all: create missing leases, watch for holes, delete what is finished.

Every duty is safe to do twice and at the same time as a peer: creates are conditional, deletes follow rules that
everybody decides alike. `leases.leader` says who does them, so that the others need not pay.

Cost: one ListShards a stream and one consistent Scan per ``shard_sync_interval``, for the leader alone. Looking for
holes and for finished leases costs nothing: it uses the rows of the last look. While there are finished leases, a
consistent Scan per ``lease_cleanup_interval``, and a ListShards each half hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.errors import (
    AwsConfigError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    StreamRecreatedError,
)
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import LeaseStore, TableScan, is_refused_row
from kinesis_sdk.consumer.shard_sync.audit import (
    HashRangeHoleTracker,
    find_contradiction,
    find_lease_hole,
    find_row_problems,
    plan_ranges,
)
from kinesis_sdk.consumer.shard_sync.cleanup import needs_listing, plan_cleanup
from kinesis_sdk.consumer.shard_sync.plan import (
    bootstrap_filter,
    plan_bootstrap,
    plan_bootstrap_from_all,
    plan_sync,
)
from kinesis_sdk.consumer.streams import StreamDirectory, TrackedStream

_LOGGER = logging.getLogger(__name__)

_DOUBTS = 6
"""Looks in a row, seconds apart in all, that have to contradict the leases before a stream counts as made anew: a listing
may be behind a reshard that GetRecords and its peers know already."""

_GARBAGE_INTERVAL = 1800.0
"""Seconds between two looks for finished shards whose retention ended; as the KCL."""

_OTHERS_PATIENCE = 2
"""How many times the leader's threshold a hole must stand before a worker that does not lead acts."""


class LeaderTasks:
    """The duties of one worker. Used by one thread, the one that looks at the table.

    Args:
        store: Lease table.
        kinesis: For ListShards.
        streams: The streams.
        config: Settings.
        sleep: Waits between repetitions of calls.
        on_gone: Told about a stream, one of several, that can not be consumed any more.
    """

    def __init__(
        self,
        *,
        store: LeaseStore,
        kinesis: KinesisClient,
        streams: StreamDirectory,
        config: ConsumerConfig,
        sleep: Callable[[float], None],
        on_gone: Callable[[TrackedStream, KinesisSdkError], None],
    ) -> None:
        self._store = store
        self._kinesis = kinesis
        self._streams = streams
        self._config = config
        self._sleep = sleep
        self._on_gone = on_gone
        self._watches: dict[tuple[str | None, bool], HashRangeHoleTracker] = {}
        self._former: dict[str, float] = {}
        self._garbage_at = float("-inf")
        self._doubts: dict[str | None, int] = {}

    def list_shards(self, tracked: TrackedStream) -> list[Shard]:
        """All shards of a stream."""
        return list_shards(self._kinesis, tracked.stream)

    # Creating

    def start(self) -> None:
        """The audit of a start.

        One stream is always compared with its table, which also proves that it exists; of several, those whose leases
        leave a hole.

        Raises:
            StreamRecreatedError: See `sync`.
            AwsError: The stream does not exist, or nobody answers.
        """
        scan = self._store.scan(consistent=True)
        for tracked in self._streams.current():
            own = tracked.by_shard(scan.leases)
            if self._streams.is_single or not own or find_lease_hole(own) is not None:
                call_with_retries(
                    lambda tracked=tracked: self._sync_one(tracked, scan, first=True),  # type: ignore[misc]
                    operation="ListShards",
                    client=self._kinesis,
                    sleep=self._sleep,
                )

    def sync(self, wanted: Sequence[TrackedStream] | None = None) -> bool:
        """Create missing leases, fill in missing ranges.

        Args:
            wanted: Streams to compare; None takes all.

        Returns:
            Whether there are new leases.

        Raises:
            StreamRecreatedError: The leases are of a former stream (only of a single one; one of several is left
                out instead).
            AwsError: A call failed.
        """
        # Leases first: a shard that is split in between then looks unfinished, never orphaned.
        scan = self._store.scan(consistent=True)
        created = False
        for tracked in self._streams.current() if wanted is None else wanted:
            created = self._sync_one(tracked, scan) or created
        return created

    def _sync_one(self, tracked: TrackedStream, scan: TableScan, *, first: bool = False) -> bool:
        try:
            return self._create_missing(tracked, scan)
        except (PermanentAwsError, StreamRecreatedError) as error:
            # What is refused at the start is a mistake to be told; later, one stream must not end the others.
            refused = not isinstance(error, (ResourceNotFoundError, StreamRecreatedError))
            if self._streams.is_single or isinstance(error, AwsConfigError) or (refused and first):
                raise
            self._on_gone(tracked, error)
            return False

    def _create_missing(self, tracked: TrackedStream, scan: TableScan) -> bool:
        own, unreadable = tracked.by_shard(scan.leases), self._unreadable(tracked, scan)
        if own or unreadable:
            shards = self.list_shards(tracked)
            self._check_identity(tracked, shards, own)
            plan = plan_sync(shards, own, tracked.config.initial_checkpoint, unreadable)
            for shard_id, hash_key_range in plan_ranges(shards, own):
                try:
                    self._store.set_hash_key_range(tracked.lease_key(shard_id), hash_key_range)
                except PermanentAwsError as error:
                    if not is_refused_row(error):
                        raise
                    _LOGGER.warning("lease %s: hash key range not stored: %s", shard_id, error)
        else:
            plan = self._plan_bootstrap(tracked)
        # The whole fleet means the same instant, whenever and by whomever a shard is read first.
        moment = tracked.config.initial_timestamp_millis
        for planned in plan:
            lease = tracked.stored(planned)
            if lease.checkpoint.sequence_number == AT_TIMESTAMP:
                lease = replace(lease, initial_timestamp_millis=moment)
            if self._store.create_if_absent(lease):
                _LOGGER.info("lease %s: created at %s", lease.lease_key, lease.checkpoint.sequence_number)
        return bool(plan)

    def _unreadable(self, tracked: TrackedStream, scan: TableScan) -> set[str]:
        """Return the shards of a stream whose rows exist and cannot be read as leases."""
        return {
            lease_key.rpartition(":")[2]
            for lease_key in find_row_problems(scan, self._streams)
            if self._streams.named_by(lease_key) == tracked
        }

    def _plan_bootstrap(self, tracked: TrackedStream) -> list[Lease]:
        position = tracked.config.initial_checkpoint
        chosen = bootstrap_filter(position, tracked.config.initial_timestamp)
        try:
            listed = list_shards(self._kinesis, tracked.stream, shard_filter=chosen)
            return plan_bootstrap(listed, position)
        except ProtocolError as error:
            if position == LATEST:
                raise  # a reshard is under way; the next listing is whole
            _LOGGER.info("%s; asking for all shards instead", error)
            return plan_bootstrap_from_all(self.list_shards(tracked), position)

    def _check_identity(
        self, tracked: TrackedStream, shards: Sequence[Shard], leases: Sequence[Lease]
    ) -> None:
        evidence = find_contradiction(shards, leases)
        if evidence is None:
            self._doubts.pop(tracked.key, None)
            return
        doubts = self._doubts[tracked.key] = self._doubts.get(tracked.key, 0) + 1
        if doubts < _DOUBTS:
            raise ProtocolError(f"ListShards: {tracked}: {evidence}; looking again")
        raise StreamRecreatedError(
            f"stream {tracked}: {evidence}; the stream was deleted and made anew, so the positions in the lease "
            "table mean nothing any more. Delete its leases (or the table), or take another application name, "
            "to begin at the initial position"
        )

    # Watching

    def audit(self, leases: Sequence[Lease], now: float, *, leads: bool) -> list[TrackedStream]:
        """Streams whose leases leave a hole that stays.

        A worker that does not lead watches as well and is only slower, so that a leader whose calls fail is no reason
        for a shard to stay unread.

        Args:
            leases: Rows of the last look.
            now: Monotonic time.
            leads: Whether this worker leads.
        """
        result = []
        threshold = self._config.leases_recovery_auditor_inconsistency_confidence_threshold
        for tracked in self._streams.current():
            watch = self._watches.get((tracked.key, leads))
            if watch is None:
                self._watches.pop((tracked.key, not leads), None)
                watch = self._watches[tracked.key, leads] = HashRangeHoleTracker(
                    self._config.leases_recovery_auditor_execution_frequency,
                    threshold if leads else threshold * _OTHERS_PATIENCE,
                )
            if watch.look(tracked.by_shard(leases), now):
                if watch.hole is not None:
                    _LOGGER.warning(
                        "stream %s: no lease covers hash keys %d to %d",
                        tracked,
                        watch.hole.start,
                        watch.hole.end,
                    )
                result.append(tracked)
        return result

    # Deleting

    def clean_up(self, seen: Sequence[Lease], now: float) -> None:
        """Delete leases that nobody needs any more: of finished shards, and (if configured) of former streams.

        Args:
            seen: Rows of the last look: if none of them is a candidate, nothing is read.
            now: Monotonic time.
        """
        finished = self._config.cleanup_leases_upon_shard_completion
        former = self._former_streams(seen, now)
        if not former and not (finished and any(lease.is_finished for lease in seen)):
            return
        scan = self._store.scan(consistent=True)
        garbage = now >= self._garbage_at
        for tracked in self._streams.current() if finished else ():
            self._delete_finished(
                tracked, tracked.by_shard(scan.leases), self._unreadable(tracked, scan), garbage=garbage
            )
        if garbage:
            self._garbage_at = now + _GARBAGE_INTERVAL
        for lease in scan.leases:
            # A lease that somebody keeps is not former to him: another worker's list of streams may be newer.
            if (
                lease.stream_name in former
                and lease.holder is None
                and self._store.delete(lease.lease_key, unowned=lease)
            ):
                _LOGGER.info("lease %s: deleted, its stream is not consumed any more", lease.lease_key)

    def _delete_finished(
        self, tracked: TrackedStream, own: Sequence[Lease], unreadable: Collection[str], *, garbage: bool
    ) -> None:
        if not any(lease.is_finished for lease in own):
            return
        listed = None
        if needs_listing(own, garbage=garbage):
            shards = self.list_shards(tracked)
            # A lease of a trimmed shard is what tells that its successors were not read yet.
            if not plan_sync(shards, own, tracked.config.initial_checkpoint, unreadable):
                listed = {shard.shard_id for shard in shards}
        for shard_id in plan_cleanup(own, listed):
            self._store.delete(tracked.lease_key(shard_id))
            _LOGGER.info("lease %s: deleted, its shard is finished", tracked.lease_key(shard_id))

    def _former_streams(self, seen: Sequence[Lease], now: float) -> set[str]:
        wait = self._config.wait_period_to_delete_former_streams
        if wait is None or self._streams.is_single:
            return set()
        current = {tracked.key for tracked in self._streams.all()}
        names = {lease.stream_name for lease in seen if lease.stream_name is not None}
        self._former = {name: self._former.get(name, now) for name in names - current}
        return {name for name, since in self._former.items() if now - since >= wait}
