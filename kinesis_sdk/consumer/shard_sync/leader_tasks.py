"""Leader tasks: create missing leases, audit hash range coverage, delete finished leases.

Every task is idempotent and may run on several workers at once: creates are conditional, and all workers derive deletes from
the same rules. Only the leader (`leases.leader`) runs the tasks, so its peers do not pay for them.

Cost for the leader: one ListShards per stream and one consistent Scan per ``shard_sync_interval``. The audit and the search
for finished leases cost nothing, because they use the rows of the last scan. While there are finished leases, this adds one consistent
Scan per ``lease_cleanup_interval``, and a ListShards per stream every half hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Protocol, runtime_checkable

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.errors import (
    AwsConfigError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    StreamRecreatedError,
)
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import CoordinationConfig
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import LeaseStore, TableScan, is_rejected_row
from kinesis_sdk.consumer.shard_sync.audit import (
    HashRangeHoleTracker,
    find_contradiction,
    find_lease_hole,
    find_misfits,
    find_row_problems,
    plan_ranges,
)
from kinesis_sdk.consumer.shard_sync.cleanup import needs_listing, plan_cleanup
from kinesis_sdk.consumer.shard_sync.lineage import find_missing_children, plan_by_lineage
from kinesis_sdk.consumer.shard_sync.plan import (
    bootstrap_filter,
    plan_bootstrap,
    plan_bootstrap_from_all,
    plan_sync,
)
from kinesis_sdk.consumer.streams import StreamDirectory, StreamListener, TrackedStream

_LOGGER = FieldLogger(logging.getLogger(__name__))

_MAX_CONTRADICTIONS = 6
"""Consecutive listings, over a few seconds, that must contradict the leases before a stream counts as recreated. A single
listing may be older than a reshard that GetRecords and other workers have already seen."""

_GARBAGE_INTERVAL = 1800.0
"""Seconds between two checks for finished shards whose retention ended (as in the KCL)."""

_FOLLOWER_FACTOR = 2
"""Factor on the leader's threshold: other workers act on a hash range hole later than the leader."""


@runtime_checkable
class KnowsFormerStreams(Protocol):
    """A client for a table's stream; ``former`` are the table's earlier streams that can still be read."""

    former: tuple[StreamId, ...]


class LeaderTasks:
    """The leader tasks of one worker. Used by the table loop."""

    def __init__(
        self,
        *,
        store: LeaseStore,
        kinesis: KinesisClient,
        streams: StreamDirectory,
        settings: CoordinationConfig,
        sleep: Callable[[float], None],
        rng: Random,
        listener: StreamListener,
        worker_id: str | None = None,
    ) -> None:
        self._worker_id = worker_id
        self._store = store
        self._kinesis = kinesis
        self._streams = streams
        self._settings = settings
        self._sleep = sleep
        self._rng = rng
        self._listener = listener
        self._hole_trackers: dict[tuple[str | None, bool], HashRangeHoleTracker] = {}
        self._former: dict[str, float] = {}
        self._without_shards: set[str | None] = set()
        self._missing_since: dict[str | None, float] = {}
        self._garbage_at = float("-inf")
        self._contradictions: dict[str | None, int] = {}
        self._misfits: dict[str | None, Mapping[str, tuple[str, Lease]]] = {}

    def _fields(self, stream: object, shard_id: str | None = None) -> dict[str, str | None]:
        return log_fields(stream=stream, shard=shard_id, worker=self._worker_id)

    def list_shards(self, tracked: TrackedStream) -> list[Shard]:
        """List all shards of a stream."""
        return list_shards(self._kinesis, tracked.stream)

    def list_readable(self, tracked: TrackedStream) -> set[str]:
        """Return the ids of all readable shards, including shards of a table's former streams."""
        shards = {shard.shard_id for shard in self.list_shards(tracked)}
        if tracked.stream.is_of_table and isinstance(self._kinesis, KnowsFormerStreams):
            for stream in self._kinesis.former:
                with suppress(ResourceNotFoundError):
                    shards |= {shard.shard_id for shard in list_shards(self._kinesis, stream)}
        return shards

    # Creating

    def start(self) -> None:
        """Sync the streams when the worker starts.

        A single stream is always synced, which also proves that it exists. One of several streams is synced only if it has
        no leases or its leases leave a hash range hole. Raises a `StreamRecreatedError` like `sync`, and also if a former stream of a
        table was not read to its end.
        """
        scan = self._store.scan(consistent=True)
        for tracked in self._streams.current():
            own = tracked.by_shard(scan.leases)
            if self._streams.is_single or not own or find_lease_hole(own) is not None:
                # ListShards and the store raise errors of this package. Any other exception is a bug in the store.
                call_with_retries(
                    lambda tracked=tracked: self._sync_one(tracked, scan, first=True),  # type: ignore[misc]
                    operation=None,
                    sleep=self._sleep,
                    rng=self._rng,
                )

    def sync(self, streams: Sequence[TrackedStream] | None = None) -> bool:
        """Create missing leases and hash key ranges of some streams (None: all); return whether leases were missing.

        If the leases belong to a deleted stream, raise a `StreamRecreatedError` in single-stream mode, and suspend the stream in
        multi-stream mode.
        """
        # Read the leases before the shards. In the other order: the shards are listed, shard A is split and read to its
        # end, the leases are read. Now A's lease is finished although A is listed as open, and its children have leases
        # although they are not listed, which looks like a recreated stream.
        scan = self._store.scan(consistent=True)
        created = False
        for tracked in self._streams.current() if streams is None else streams:
            created = self._sync_one(tracked, scan) or created
        return created

    def _sync_one(self, tracked: TrackedStream, scan: TableScan, *, first: bool = False) -> bool:
        try:
            return self._create_missing(tracked, scan, first=first)
        except (PermanentAwsError, StreamRecreatedError) as error:
            # A call that is rejected at the start is a configuration error and raises. Later, one stream must not end the worker.
            rejected = not isinstance(error, (ResourceNotFoundError, StreamRecreatedError))
            if self._streams.is_single or isinstance(error, AwsConfigError) or (rejected and first):
                raise
            self._listener.on_stream_unavailable(tracked, error)
            return False

    def _create_missing(self, tracked: TrackedStream, scan: TableScan, *, first: bool) -> bool:
        own, unreadable = tracked.by_shard(scan.leases), self._unreadable(tracked, scan)
        if tracked.stream.is_of_table:
            # No identity check: shard ids are never reused, not even by a new stream.
            shards = self.list_shards(tracked)
            if first:
                self._check_former_streams(shards, own)
            position = tracked.config.initial_checkpoint
            if not (shards or own or unreadable):
                self._without_shards.add(tracked.key)
            elif position == LATEST and tracked.key in self._without_shards:
                # The stream was just enabled when the application started, and had no shards yet. All records arrived since
                # then. LATEST would mean the moment of this listing and skip them.
                position = TRIM_HORIZON
            plan = plan_by_lineage(shards, own, position, unreadable)
        elif own or unreadable:
            shards = self.list_shards(tracked)
            self._check_identity(tracked, shards, own)
            plan = plan_sync(shards, own, tracked.config.initial_checkpoint, unreadable)
            for shard_id, hash_key_range in plan_ranges(shards, own):
                try:
                    self._store.set_hash_key_range(tracked.lease_key(shard_id), hash_key_range)
                except KinesisSdkError as error:
                    if not is_rejected_row(error):
                        raise
                    _LOGGER.warning(
                        "lease %s: failed to store hash key range: %s",
                        shard_id,
                        error,
                        extra=self._fields(tracked.stream, shard_id),
                    )
        else:
            plan = self._plan_bootstrap(tracked)
        # Store the timestamp on the lease, so that every worker starts the shard at the same time.
        moment = tracked.config.initial_timestamp_millis
        for planned in plan:
            lease = tracked.stored(planned)
            if lease.checkpoint.sequence_number == AT_TIMESTAMP:
                lease = replace(lease, initial_timestamp_millis=moment)
            if self._store.create_if_absent(lease):
                _LOGGER.info(
                    "lease %s: created at %s",
                    lease.lease_key,
                    lease.checkpoint.sequence_number,
                    extra=self._fields(tracked.stream, planned.shard),
                )
        return bool(plan)

    def _check_former_streams(self, shards: Sequence[Shard], leases: Sequence[Lease]) -> None:
        """Raise a `StreamRecreatedError` if a former stream of the table has unread records."""
        # The stream is disabled and enabled again while no worker runs. Now the table's name means the new stream, which does
        # not list the shards of the leases. Those shards would count as expired and be finished, with their last
        # records unread.
        listed = {shard.shard_id for shard in shards}
        unread = {
            lease.shard: lease for lease in leases if not lease.is_finished and lease.shard not in listed
        }
        former = self._kinesis.former if isinstance(self._kinesis, KnowsFormerStreams) else ()
        for stream in former if unread else ():
            try:
                there = [
                    shard.shard_id for shard in list_shards(self._kinesis, stream) if shard.shard_id in unread
                ]
            except ResourceNotFoundError:
                continue  # the former stream can no longer be read
            if there:
                raise StreamRecreatedError(
                    f"the stream of table {stream.name} was disabled and enabled again, and {len(there)} shards of the former "
                    f"stream were not read to their end, for example {there[0]} after {unread[there[0]].checkpoint}. Read the "
                    f'rest first, with DynamoDbStream("{stream}") and the same application_name, until all leases are '
                    "finished. To skip it, delete these leases"
                )

    def _unreadable(self, tracked: TrackedStream, scan: TableScan) -> set[str]:
        """Return the shards of a stream whose rows exist but cannot be read as leases."""
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
                raise  # a reshard is under way; the next listing is complete
            _LOGGER.info(
                "stream %s: listing all shards instead: %s",
                tracked,
                error,
                extra=self._fields(tracked.stream),
            )
            return plan_bootstrap_from_all(self.list_shards(tracked), position)

    def _check_identity(
        self, tracked: TrackedStream, shards: Sequence[Shard], leases: Sequence[Lease]
    ) -> None:
        leases = tuple(leases)
        evidence = find_contradiction(shards, leases)
        if evidence is None:
            self._contradictions.pop(tracked.key, None)
            found = find_misfits(shards, leases)
            self._misfits[tracked.key] = {
                tracked.lease_key(lease.lease_key): (found[lease.lease_key], lease)
                for lease in leases
                if lease.lease_key in found
            }
            return
        contradictions = self._contradictions[tracked.key] = self._contradictions.get(tracked.key, 0) + 1
        if contradictions < _MAX_CONTRADICTIONS:
            raise ProtocolError(f"ListShards: {tracked}: {evidence}; checking again")
        raise StreamRecreatedError(
            f"stream {tracked}: {evidence}; the stream was deleted and recreated, so the checkpoints in the lease "
            "table are no longer valid. Delete its leases (or the table), or choose another application_name, "
            "to start at the initial position"
        )

    def misfits(self, rows: Iterable[Lease]) -> dict[str, str]:
        """Return the problems, by lease key, of rows that `find_misfits` found and that have not changed since."""
        known = {key: found for each in self._misfits.values() for key, found in each.items()}
        return {
            row.lease_key: f"{problem}; the other rows fit the stream, so this one is wrong"
            for row in (rows if known else ())
            for problem, judged in ([known[row.lease_key]] if row.lease_key in known else [])
            if (row.checkpoint, row.hash_key_range) == (judged.checkpoint, judged.hash_key_range)
        }

    # Auditing

    def audit(self, leases: Sequence[Lease], now: float, *, leads: bool) -> list[TrackedStream]:
        """Return the streams that must be synced because their leases leave a lasting hash range hole.

        Workers that do not lead audit as well, with a longer delay, so that no shard stays unread if the leader's calls
        fail.
        """
        result = []
        threshold = self._settings.leases_recovery_auditor_inconsistency_confidence_threshold
        for tracked in self._streams.current():
            if tracked.stream.is_of_table:
                if self._lacks_children(
                    tracked, leases, now, threshold if leads else threshold * _FOLLOWER_FACTOR
                ):
                    result.append(tracked)
                continue
            tracker = self._hole_trackers.get((tracked.key, leads))
            if tracker is None:
                self._hole_trackers.pop((tracked.key, not leads), None)
                tracker = self._hole_trackers[tracked.key, leads] = HashRangeHoleTracker(
                    self._settings.leases_recovery_auditor_execution_frequency,
                    threshold if leads else threshold * _FOLLOWER_FACTOR,
                )
            if tracker.check(tracked.by_shard(leases), now):
                if tracker.hole is not None:
                    _LOGGER.warning(
                        "stream %s: no lease covers hash keys %d to %d",
                        tracked,
                        tracker.hole.start,
                        tracker.hole.end,
                        extra=self._fields(tracked.stream),
                    )
                result.append(tracked)
        return result

    def _lacks_children(
        self, tracked: TrackedStream, leases: Sequence[Lease], now: float, threshold: int
    ) -> bool:
        """Return whether a table's stream must be synced because leases have been missing for a while."""
        missing = find_missing_children(tracked.by_shard(leases))
        if not missing:
            self._missing_since.pop(tracked.key, None)
            return False
        frequency = self._settings.leases_recovery_auditor_execution_frequency
        since = self._missing_since.setdefault(tracked.key, now)
        if now - since < frequency * threshold:
            return False
        self._missing_since[tracked.key] = now
        _LOGGER.warning(
            "stream %s: %d shards that continue finished ones have no leases, the first is %s",
            tracked,
            len(missing),
            missing[0],
            extra=self._fields(tracked.stream, missing[0]),
        )
        return True

    # Deleting

    def clean_up(self, seen: Sequence[Lease], now: float) -> None:
        """Delete leases of finished shards and (if configured) of former streams.

        Reads nothing if the rows of the last scan, ``seen``, contain no candidate.
        """
        finished = self._settings.cleanup_leases_upon_shard_completion
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
            # An owned lease is in use: another worker's list of streams may be newer than ours.
            if (
                lease.stream_name in former
                and lease.holder is None
                and self._store.delete(lease.lease_key, unowned=lease)
            ):
                _LOGGER.info(
                    "lease %s: deleted, its stream is no longer consumed",
                    lease.lease_key,
                    extra=self._fields(lease.stream_name, lease.shard),
                )

    def _delete_finished(
        self, tracked: TrackedStream, own: Sequence[Lease], unreadable: Collection[str], *, garbage: bool
    ) -> None:
        if not any(lease.is_finished for lease in own):
            return
        listed = None
        if needs_listing(own, garbage=garbage):
            shards = self.list_shards(tracked)
            # Do not delete the lease of a trimmed shard while its successors have no leases: only this lease shows that they
            # have not been read yet.
            plan = plan_by_lineage if tracked.stream.is_of_table else plan_sync
            if not plan(shards, own, tracked.config.initial_checkpoint, unreadable):
                listed = {shard.shard_id for shard in shards}
        for shard_id in plan_cleanup(own, listed, keep_generation=tracked.stream.is_of_table):
            # The rows are read; an operator rewinds a finished lease; the row is deleted. Without the condition, the rewind
            # would vanish; if the shard's children already have checkpoints, no worker would read the shard again. The
            # counter is not a condition: a Java worker renews its finished leases until they are deleted.
            if self._store.delete(tracked.lease_key(shard_id), finished=True):
                _LOGGER.info(
                    "lease %s: deleted, its shard is finished",
                    tracked.lease_key(shard_id),
                    extra=self._fields(tracked.stream, shard_id),
                )
            else:
                _LOGGER.warning(
                    "lease %s: not deleted, it is no longer finished: it was rewound from outside",
                    tracked.lease_key(shard_id),
                    extra=self._fields(tracked.stream, shard_id),
                )

    def _former_streams(self, seen: Sequence[Lease], now: float) -> set[str]:
        wait = self._settings.wait_period_to_delete_former_streams
        if wait is None or self._streams.is_single:
            return set()
        current = {tracked.key for tracked in self._streams.all()}
        names = {lease.stream_name for lease in seen if lease.stream_name is not None}
        self._former = {name: self._former.get(name, now) for name in names - current}
        return {name for name, since in self._former.items() if now - since >= wait}
