"""Reader of one shard: from its starting position and the responses of Kinesis to user records."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import accumulate
from operator import itemgetter

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.change_records import ChangeRecord
from kinesis_sdk.common.errors import CodecUnavailableError, ResourceNotFoundError, TransientAwsError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.log_throttle import LogThrottle
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.once import Decision, LookUp, LookUpBudget, RunReader
from kinesis_sdk.common.position import (
    AfterSequence,
    AtSequence,
    Latest,
    Position,
    from_checkpoint,
    iterator_start,
)
from kinesis_sdk.common.record_ids import located_record_type
from kinesis_sdk.common.records import KinesisRecord, UserRecord, position_of
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, ExtendedSequenceNumber
from kinesis_sdk.common.serialization import decoding_record_type
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.user_records import PlainRun, UserRecords
from kinesis_sdk.consumer.fetch.fetcher import Fetcher, FetchResult, KnowsStart
from kinesis_sdk.consumer.fetch.prefetch import Prefetcher
from kinesis_sdk.consumer.handler import StartingPosition
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.shard.look_ups import ShardLookUp
from kinesis_sdk.consumer.shard.runtime import ShardRuntime
from kinesis_sdk.consumer.shard.start import resolve_start
from kinesis_sdk.consumer.until import Until

_LOGGER = FieldLogger(logging.getLogger(__name__))

_LOOK_UP_BYTES_PER_SECOND = 256 * 1024
"""Bytes per second by which the budget of look-ups refills: an eighth of a shard's read limit."""

_MAX_OVERHEAD = 4 * 1024 * 1024
"""Maximum bytes that the user records of a batch take in addition to their Kinesis records (see `UserRecords.overhead`): about
65,000 user records. The last Kinesis record may exceed this maximum. A response with more overhead is delivered in several batches."""

_PART_BYTES = 256 * 1024
"""Bytes of Kinesis records that are deaggregated together before their overhead is checked."""


@dataclass(frozen=True)
class UserBatch:
    """User records of one response, or of a part of it.

    Attributes:
        records: The records in order; may be empty.
        charge: Called with the bytes of memory that the delivery takes for the records; charges them to the budget.
        on_done: Called once the records are no longer in memory.
        dropped_end: The last user record of the batch, without payload, if it was dropped: it is not delivered, but its position
            counts as delivered. None if the last record is in ``records``.
    """

    records: Sequence[UserRecord]
    header: ResponseHeader
    charge: Callable[[int], None]
    on_done: Callable[[], None]
    dropped_end: UserRecord | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """The next part of a response, deaggregated: ``count`` Kinesis records."""

    users: UserRecords  # before repetitions are dropped
    overhead: int  # bytes that they take in addition to their Kinesis records
    count: int


class _Response:
    """A response that is taken in parts, and the memory of the user records in these parts."""

    def __init__(self, result: FetchResult) -> None:
        self.result = result
        self._taken = 0
        self._open_parts = 0
        self._overhead = 0

    @property
    def rest(self) -> list[KinesisRecord]:
        """Kinesis records that are not yet taken."""
        return self.result.records[self._taken :] if self._taken else self.result.records

    @property
    def is_taken(self) -> bool:
        """Whether all records were taken."""
        return self._taken == len(self.result.records)

    @property
    def waiting_since(self) -> float | None:
        """Monotonic time at which the oldest record not yet taken arrived; None if unknown."""
        # Read `_taken` once. Health checks call this on another thread. If the shard's step took the rest between two
        # reads, the second read would index past the end.
        arrivals, taken = self.result.header.arrivals, self._taken
        if arrivals is None or taken == len(self.result.records):
            return None
        return arrivals.of(self.result.records[taken])

    def part(self, count: int, overhead: int) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Take the next Kinesis records, charge their overhead in bytes; return ``charge`` and ``on_done`` of a `UserBatch`."""
        self._taken += count
        self._open_parts += 1
        charged = 0

        def charge(more: int) -> None:
            nonlocal charged
            charged += more
            self._overhead += more
            self.result.charge(self._overhead)

        def done() -> None:
            self._open_parts -= 1
            charge(-charged)
            self._finish_if_done()

        charge(overhead)
        return charge, done

    def drop(self) -> None:
        """Discard the records not yet taken."""
        self._taken = len(self.result.records)
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self.is_taken and not self._open_parts:
            self.result.on_done()


class ShardReader:
    """Reader of one shard under its lease. Used by one thread at a time; `on_ready` is called from any thread.

    Attributes:
        ended: Whether all records of the shard were taken.
        reached_until: Whether all records that arrived before the worker's ``until`` were taken.
        child_shards: Children of the shard; empty until it has ended.
        reading_since: Monotonic time at which the running call of the fetcher began; None if no call is running.
        computing_since: Monotonic time at which the reader began to decode a part of a response, or to select the records to deliver; None
            if it is not computing.
        progress_at: Monotonic time of the last progress without a batch: a look-up's call succeeded, or a part of a response was decoded.
        requested_start: Position that the handler requested; None reads from the lease's checkpoint. Set it before `open`.
    """

    def __init__(
        self,
        runtime: ShardRuntime,
        held: HeldLease,
        *,
        follows_parent: bool,
        on_ready: Callable[[], None],
        settle_quiet: Callable[[FetchResult], bool],
        metrics: BoundMetrics,
    ) -> None:
        self.ended: bool = False
        self.reached_until: bool = False
        self.child_shards: tuple[Shard, ...] = ()
        self.reading_since: float | None = None
        self.computing_since: float | None = None
        self.progress_at: float = float("-inf")
        self.requested_start: StartingPosition | None = None
        self._logger = runtime.log(_LOGGER, held.shard_id)
        self._metrics = metrics
        self._runtime = runtime
        self._held = held
        self._follows_parent = follows_parent
        self._on_ready = on_ready
        self._settle_quiet = settle_quiet
        deserializer = runtime.config.deserializer
        stream = runtime.stream
        self._record_type: type[UserRecord] = (
            located_record_type(
                ChangeRecord if stream.is_of_table else UserRecord, stream.name, held.shard_id
            )
            if deserializer is None or stream.is_of_table
            else decoding_record_type(deserializer, stream.name, held.shard_id)
        )
        self._fetcher: Fetcher | None = None
        self._response: _Response | None = None
        # Deaggregated records that wait for the look-up.
        self._part: _Part | None = None
        self._look_up: ShardLookUp | None = None
        self._runs = self._new_run_reader()
        self._has_told_shortage = False
        self._log_throttle = LogThrottle(self._logger, logging.INFO)
        self._warning_throttle = LogThrottle(self._logger)
        # Misplaced user records dropped from the part that is taken now, except those of idempotent producers.
        self._discarded: dict[str, list[tuple[int, int]]] = {}
        self._skip_through: ExtendedSequenceNumber | None = None
        # Where a new fetcher resumes: after the last Kinesis record taken, or at a position that may lie inside an
        # aggregate. If both are None, the fetcher starts at the starting position.
        self._taken_through: str | None = None
        self._rewound: ExtendedSequenceNumber | None = None
        # Whether reading starts at the lease's checkpoint, not at a position that the handler requested.
        self._starts_at_lease = True
        # Whether to poll although fan-out is configured: only a response to a request shows that the tip was reached.
        self._polled = False
        # Whether the response that is taken now has a record that arrived at `until` or later.
        self._found_until = False
        # Sequence number of the first record to expect. Reading starts at a record, so another first record means that
        # this record has expired.
        self._expected_first: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether no record is left to take: the shard ended, or ``until`` was reached."""
        return self.ended or self.reached_until

    @property
    def is_open(self) -> bool:
        """Whether there is a fetcher."""
        return self._fetcher is not None

    @property
    def due(self) -> float:
        """Monotonic time before which `take` has no batch."""
        if self._look_up is not None and self._fetcher is not None:
            return self._look_up.due
        if self._response is not None or self._fetcher is None:
            return float("-inf")
        return self._fetcher.due

    @property
    def has_pending(self) -> bool:
        """Whether a part of a response has not been taken yet."""
        return self._response is not None

    @property
    def looks_up(self) -> str | None:
        """Shard that is being searched for earlier copies of the next records: this one or an ancestor; None without a search."""
        look_up = self._look_up
        return None if look_up is None else look_up.shard_id

    @property
    def waiting_since(self) -> float | None:
        """Monotonic time at which the oldest record that was read but not taken arrived; None if there is none."""
        response, fetcher = self._response, self._fetcher
        if response is not None:
            return response.waiting_since
        ahead = fetcher.waiting if fetcher is not None else None
        return None if ahead is None else ahead.waiting_since

    def open(self, now: float) -> None:
        """Start at the starting position, or resume after the records that were taken.

        After an `AwsError`, another call is safe. Pinning a LATEST start may raise `LeaseLostError`, and `resolve_start` may raise
        `InvalidPositionError`.
        """
        lease = self._held.lease
        if self._taken_through is not None:
            position: Position = AfterSequence(self._taken_through)
        elif self._rewound is not None:
            position = from_checkpoint(self._rewound)
            self._skip_through = self._rewound
        else:
            start = resolve_start(
                lease, self._runtime.config, self.requested_start, follows_parent=self._follows_parent
            )
            position, self._skip_through, self._starts_at_lease = start
            # This position need not follow the records that were read before.
            self._runs = self._new_run_reader()
        if self._fetcher is None:
            self._fetcher = self._runtime.open_fetcher(
                self._held.shard_id, position, now, self._on_ready, self._metrics, polled=self._polled
            )
            if isinstance(self._fetcher, Prefetcher):
                self._fetcher.settle_quiet = self._settle_quiet
            opened = iterator_start(position)
            self._expected_first = opened.sequence_number if isinstance(opened, AtSequence) else None
            self._logger.info(
                "shard %s: reading starts at %s (lease checkpoint %s)",
                self._held.shard_id,
                opened,
                lease.checkpoint,
            )
            if not self._starts_at_lease and self._taken_through is None:
                self._log_requested_start(lease.checkpoint)
        if isinstance(position, Latest) and isinstance(self._fetcher, KnowsStart):
            millis = self._fetcher.started_at_millis
            if self._starts_at_lease:
                # Pin now, at the call that resolves LATEST, so that neither a slow `initialize` nor a crash skips records that
                # arrive from now on. Cost: one UpdateItem per such start.
                self._pin(millis)
            elif millis is not None:
                # Resolve LATEST once per acquisition. If this read hangs before its first record and is restarted, a second
                # LATEST would skip the records that arrived in between.
                self.requested_start = datetime.fromtimestamp(0, timezone.utc) + timedelta(
                    milliseconds=millis
                )

    def _log_requested_start(self, checkpoint: ExtendedSequenceNumber) -> None:
        through = self._skip_through
        skips = through is not None and not checkpoint.is_sentinel and through > checkpoint
        self._logger.info(
            "shard %s: the handler starts at %s instead of the lease checkpoint %s%s",
            self._held.shard_id,
            through or self.requested_start,
            checkpoint,
            ", records in between are skipped" if skips else "",
        )

    def close(self) -> None:
        """Close connections; discard all records that were read ahead, the look-up, and the records that wait for it."""
        self._part = None
        self._runs.forget_batch()
        if self._look_up is not None:
            self._look_up.close()
            self._look_up = None
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
        if self._response is not None:
            self._response.drop()
            self._response = None

    def rewind(self, delivered: ExtendedSequenceNumber | None) -> None:
        """Close; the next `open` resumes after a delivered position, or with None at the starting position."""
        self.close()
        self.ended = self.reached_until = False
        self._taken_through = None
        # Read at the record itself and skip: it may be an aggregate that was delivered in part.
        self._rewound = delivered

    def take(self, now: float) -> UserBatch | None:
        """Return the next records; None if no records are due, or while they wait for a look-up.

        An `AwsError` or `ProtocolError` of a read, or of a look-up's read, leaves the position unchanged. Pinning a start may raise
        `LeaseLostError`.
        """
        fetcher = self._fetcher
        if fetcher is None:
            return None  # another thread abandoned the shard while this step was running
        if self._response is None:
            if fetcher.due > now:
                return None
            self.reading_since = now
            try:
                self._response = _Response(self._before_until(fetcher.fetch(now)))
            except ResourceNotFoundError as error:
                self._response = _Response(self._explain_missing(error))
            finally:
                self.reading_since = None
        response = self._response
        result = response.result
        self._pin_start(result)
        if self._expected_first is not None and result.records:
            self._report_expiry(self._expected_first, result.records[0])
            self._expected_first = None
        rest = response.rest
        part = self._part
        if part is None:
            self.computing_since = self._runtime.clock.monotonic()
            try:
                part = self._part = self._user_records(rest)
                look_up = self._runs.look_up(self._service_millis(result.header))
            finally:
                self.computing_since = None
            self.progress_at = self._runtime.clock.monotonic()
            if look_up is not None:
                self._note_look_up(look_up)
                self._look_up = ShardLookUp(self._runtime, self._held.shard_id, look_up, now)
        if not self._has_looked_up(now):
            return None
        self._part = None
        self.computing_since = self._runtime.clock.monotonic()
        try:
            records, dropped_end = self._decided(part, rest, result.header)
        finally:
            self.computing_since = None
        if (used := self._runs.size) > 0:
            self._metrics.add(catalogue.REPETITION_MEMORY_USED, used)
        if part.count:
            self._taken_through = rest[part.count - 1].sequence_number
        charge, on_done = response.part(part.count, part.overhead)
        if response.is_taken:
            self._response = None
            if result.header.ended:
                self.ended = True
                self.child_shards = result.header.child_shards
            elif self._runtime.until is not None:
                self._note_until(self._runtime.until, result)
        return UserBatch(records, result.header, charge, on_done, dropped_end)

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether `take` would have no effect if the next response has no records."""
        lease = self._held.lease
        return (
            self._response is None
            and self._part is None
            and self._look_up is None
            and not self._runs.size  # the runs in memory expire with time
            and not self.is_done
            and (
                not self._starts_at_lease
                or not lease.checkpoint.is_sentinel
                or lease.initial_timestamp_millis is not None
                or lease.checkpoint.sequence_number not in {LATEST, AT_TIMESTAMP}
            )
        )

    def _note_look_up(self, look_up: LookUp) -> None:
        """Count a look-up; warn once if the memory is too small, because then every batch needs a look-up."""
        self._metrics.add(catalogue.REPETITION_LOOK_UPS, 1)
        shortage = look_up.shortage
        if shortage is None:
            return
        self._metrics.add(catalogue.REPETITION_LOOK_UPS_BEYOND_MEMORY, 1)
        if not self._has_told_shortage:
            self._has_told_shortage = True
            self._logger.warning(
                "shard %s: max_repetition_bytes is too small to recognize repetitions without reading the stream again for each "
                "batch: %.1f MiB are allowed, and the last %.0f s need about %.1f MiB at the present rate",
                self._held.shard_id,
                shortage.allowed / 2**20,
                shortage.window_millis / 1000,
                shortage.needed / 2**20,
            )

    def _has_looked_up(self, now: float) -> bool:
        """Make the next call of the look-up, if any; return whether the look-up is complete."""
        look_up = self._look_up
        if look_up is None:
            return True
        if now < look_up.due:
            return False
        self.reading_since = now
        try:
            if look_up.advance(now):
                self.progress_at = now
        finally:
            self.reading_since = None
        if not look_up.is_complete:
            return False
        look_up.close()
        self._look_up = None
        self._metrics.add(catalogue.REPETITION_LOOK_UP_BYTES, look_up.bytes_read)
        if look_up.over_budget is not None:
            self._metrics.add(catalogue.REPETITION_LOOK_UPS_OVER_BUDGET, 1)
            self._warning_throttle.log(
                now,
                "budget",
                "shard %s: max_look_up_bytes ended a search for earlier copies, most of it for record %s; possible repetitions are delivered",
                self._held.shard_id,
                look_up.over_budget,
            )
        return True

    def _before_until(self, result: FetchResult) -> FetchResult:
        """Leave out the records that arrived at the worker's ``until`` or later."""
        until = self._runtime.until
        end = None if until is None else until.cut(result.records)
        self._found_until = end is not None
        if end is None:
            return result
        # The header describes the shard after the records that are left out here.
        header = replace(result.header, ended=False, child_shards=(), millis_behind_latest=None)
        return replace(result, records=result.records[:end], header=header)

    def _note_until(self, until: Until, result: FetchResult) -> None:
        """After a response was taken completely, check whether all records from before ``until`` were taken."""
        if self._found_until or (
            not result.pushed and until.is_tip_after(result.header, empty=not result.records)
        ):
            self.reached_until = True
            self.close()
        elif result.pushed and until.is_over(result.header.service_time) and not self._polled:
            # An event does not show that the shard was read up to a time. So poll the end of a subscribed shard.
            self._polled = True
            self.close()

    def _explain_missing(self, error: ResourceNotFoundError) -> FetchResult:
        """Return the end of a shard that has expired, or raise `TransientAwsError` if the listing does not confirm it."""
        shard_id = self._held.shard_id
        listed = self._runtime.list_shards()
        ids = {shard.shard_id for shard in listed}
        # An expired shard is older than some listed shard. Otherwise, the shard may be new: a listing may lag behind a
        # reshard.
        if shard_id in ids or not any(other > shard_id for other in ids):
            state = "lists" if shard_id in ids else "does not list yet"
            raise TransientAwsError(
                f"the stream {state} shard {shard_id}, but it cannot be read: {error.message}",
                operation=error.operation,
                code=error.code,
                endpoint=error.endpoint,
            ) from error
        self._logger.warning(
            "shard %s: no longer listed by the stream, its retention is over; records after %s that were not read are lost",
            shard_id,
            self._held.lease.checkpoint,
        )
        children = tuple(shard for shard in listed if shard_id in shard.parents)
        return FetchResult(records=[], header=ResponseHeader(ended=True, child_shards=children))

    def _report_expiry(self, expected: str, first: KinesisRecord) -> None:
        """If the record at the starting position has expired, report this."""
        if first.sequence_number == expected:
            return
        # Kinesis resumes at the trim horizon without an error. Whether records were lost cannot be known, because the shard may
        # have been idle in between.
        self._logger.warning(
            "shard %s: starting position %s is past the retention period, resuming at %s; records in between may have "
            "expired unread",
            self._held.shard_id,
            expected,
            first.sequence_number,
        )
        self._metrics.add(catalogue.CHECKPOINT_EXPIRED, 1)

    def _pin_start(self, result: FetchResult) -> None:
        """Store the time of a LATEST or AT_TIMESTAMP start before any record is delivered; the next checkpoint removes it."""
        # Without this pin, a failover before the first checkpoint would make the next owner resolve LATEST again and skip the
        # records that arrived in between. A start that the handler asked for is not pinned: the lease's own start is unused.
        if not self._starts_at_lease:
            return
        name = self._held.lease.checkpoint.sequence_number
        if name == LATEST:
            self._pin(result.started_at_millis)
        elif name == AT_TIMESTAMP:
            self._pin(self._runtime.config.initial_timestamp_millis)

    def _pin(self, millis: int | None) -> None:
        lease = self._held.lease
        if millis is not None and lease.initial_timestamp_millis is None and lease.checkpoint.is_sentinel:
            self._held.pin(millis)

    def _new_run_reader(self) -> RunReader:
        lease = self._held.lease
        return RunReader(
            self._runtime.stream.name,
            self._held.shard_id,
            lease.hash_key_range,
            parents=lease.parent_shard_ids,
            max_bytes=self._runtime.config.retrieval.max_repetition_bytes,
            budget=LookUpBudget(
                self._runtime.config.retrieval.max_look_up_bytes, per_second=_LOOK_UP_BYTES_PER_SECOND
            ),
        )

    def _service_millis(self, header: ResponseHeader) -> int:
        return round((header.service_time or self._runtime.clock.time()) * 1000)

    def _user_records(self, records: list[KinesisRecord]) -> _Part:
        """Deaggregate as many Kinesis records as fit into a batch, at least one."""
        parts: list[UserRecords] = []
        overhead = count = 0
        self._discarded = {}
        # `accumulate` and `itemgetter` run in C: streams without aggregates pay for this as well.
        sizes = list(accumulate(map(len, map(itemgetter(0), records))))
        while True:
            # As many Kinesis records as fit, at least one; all of them at once if they are few.
            before = sizes[count - 1] if count else 0
            end = max(count + 1, bisect_right(sizes, before + _PART_BYTES))
            part, unreadable = self._deaggregate(records[count:end])
            parts.append(part)
            overhead += part.overhead
            if unreadable is not None:
                # Deliver the records before this one first. The next call begins with it and raises.
                count = next(index for index, record in enumerate(records) if record is unreadable[0])
                if not count:
                    self._metrics.add(catalogue.AGGREGATES_UNREADABLE, 1)
                    raise unreadable[1]
                return _Part(UserRecords.joined(parts), overhead, count)
            count = min(end, len(records))
            if count >= len(records) or overhead >= _MAX_OVERHEAD:
                return _Part(UserRecords.joined(parts), overhead, count)

    def _decided(
        self, part: _Part, records: list[KinesisRecord], header: ResponseHeader
    ) -> tuple[Sequence[UserRecord], UserRecord | None]:
        """Return the records of a part to deliver, and `UserBatch.dropped_end`. The part's look-up must be complete.

        ``records`` begins with the Kinesis records of the part.
        """
        result, dropped = part.users, self._discarded
        if not self._runs.is_idle:
            decision = self._runs.decide(self._service_millis(header))
            self._report(decision)
            result = result.without(decision.dropped)
            dropped = {**dropped, **decision.dropped}
        end = self._dropped_end(records[part.count - 1], dropped) if dropped else None
        if end is not None and result and position_of(result[-1]) > position_of(end):
            end = None  # the dropped records lie before the end of their aggregate
        through = self._skip_through
        if through is None:
            return result, end
        if end is not None and position_of(end) <= through:
            end = None
        for index, record in enumerate(result):
            if position_of(record) > through:
                self._skip_through = None
                return (result[index:] if index else result), end
        return [], end

    def _dropped_end(
        self, last: KinesisRecord, dropped: Mapping[str, Sequence[tuple[int, int]]]
    ) -> UserRecord | None:
        parts = dropped.get(last.sequence_number)
        if not parts:
            return None
        return UserRecord(b"", *last[1:], sub_sequence_number=parts[-1][1], aggregated=True)

    def _report(self, decision: Decision) -> None:
        count = decision.repeated + decision.misplaced
        if count:
            self._metrics.add(catalogue.REPETITIONS_DROPPED, count)
            self._log_throttle.log(
                self._runtime.clock.monotonic(),
                "dropped",
                "shard %s: dropped %d repeated and %d misplaced user records of idempotent producers",
                self._held.shard_id,
                decision.repeated,
                decision.misplaced,
            )
        if decision.named:
            self._metrics.add(catalogue.NAMES_DROPPED, decision.named)
            self._warning_throttle.log(
                self._runtime.clock.monotonic(),
                "named",
                "shard %s: dropped %d user records that were put for the first time, from %s on: earlier records have their dedup_id",
                self._held.shard_id,
                decision.named,
                decision.first_named,
            )
        if decision.unknown:
            self._metrics.add(catalogue.REPETITIONS_UNKNOWN, decision.unknown)
            self._log_throttle.log(
                self._runtime.clock.monotonic(),
                "unknown",
                "shard %s: delivering %d user records that may be repetitions, because the stream cannot be searched for earlier copies",
                self._held.shard_id,
                decision.unknown,
            )

    def _deaggregate(
        self, records: list[KinesisRecord]
    ) -> tuple[UserRecords, tuple[KinesisRecord, CodecUnavailableError] | None]:
        """Return the user records up to the first Kinesis record that needs a missing codec, and this record with its error."""
        if self._runtime.stream.is_of_table:
            found = UserRecords([PlainRun(records)] if records else ()).of_type(self._record_type)
            return found, None
        unreadable: list[tuple[KinesisRecord, CodecUnavailableError]] = []

        def on_unreadable(record: KinesisRecord, error: CodecUnavailableError | None) -> bool:
            if error is None:
                self._note_damaged(record)
                return False
            last = ExtendedSequenceNumber(record.sequence_number, (error.records or 0) - 1)
            if self._skip_through is not None and last <= self._skip_through:
                return True  # the aggregate is processed, so it need not be opened
            stream, shard_id = self._runtime.stream.name, self._held.shard_id
            unreadable.append((record, error.located(stream=stream, shard_id=shard_id)))
            return False

        discard = self._runtime.config.failure.misplaced_aggregates == "discard"
        recognizes = self._runtime.config.retrieval.recognize_repetitions
        if recognizes:
            self._runs.begin(records)
        result = deaggregate(
            records,
            hash_key_range=self._held.lease.hash_key_range if discard else None,
            on_misplaced=self._discard if discard else None,
            on_tagged=self._runs.add if recognizes else None,
            on_unreadable=on_unreadable,
        )
        return result.of_type(self._record_type), next(iter(unreadable), None)

    def _note_damaged(self, record: KinesisRecord) -> None:
        self._metrics.add(catalogue.AGGREGATES_UNREADABLE, 1)
        self._warning_throttle.log(
            self._runtime.clock.monotonic(),
            "unreadable",
            "shard %s: record %s says that it is a compressed aggregate, and is damaged; it is delivered as it is",
            self._held.shard_id,
            record.sequence_number,
        )

    def _discard(self, record: KinesisRecord, count: int) -> bool:
        self._logger.warning(
            "shard %s: discarding aggregate %s with %d user records (misplaced_aggregates=discard): it contains records "
            "outside the shard's hash key range",
            self._held.shard_id,
            record.sequence_number,
            count,
        )
        self._discarded[record.sequence_number] = [(0, count - 1)]
        return True
