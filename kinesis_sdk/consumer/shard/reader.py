"""From the service to user records: where a shard is read from, what is left out, what its end means."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.errors import InvalidPositionError, ResourceNotFoundError, TransientAwsError
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.position import (
    AfterSequence,
    AtSequence,
    Latest,
    Position,
    TrimHorizon,
    from_checkpoint,
    iterator_start,
)
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.common.user_records import UserRecords
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.fetch.fetcher import Fetcher, FetchResult, KnowsStart
from kinesis_sdk.consumer.leases.ownership.held_lease import HeldLease
from kinesis_sdk.consumer.leases.table.lease import INITIAL_TIMESTAMP, Lease
from kinesis_sdk.consumer.shard.state import ShardConsumerParts
from kinesis_sdk.consumer.shard.watermark import position_of

_LOGGER = logging.getLogger(__name__)


_MOST_OVERHEAD = 4 * 1024 * 1024
"""Bytes of memory beyond the Kinesis records (see `UserRecords.overhead`) that the user records of a batch take, plus at
most one Kinesis record's: an answer with more is passed on in several batches. About 65,000 user records."""

_PART_BYTES = 256 * 1024
"""Bytes of Kinesis records that are deaggregated together, before their overhead is looked at."""


@dataclass(frozen=True)
class UserBatch:
    """User records of one answer, or of a part of it.

    Attributes:
        records: In order; may be empty.
        header: Header of the response that they came in.
        charge: To be called with the bytes that the delivery takes for them.
        on_done: To be called once they are not in memory any more.
    """

    records: Sequence[UserRecord]
    header: ResponseHeader
    charge: Callable[[int], None]
    on_done: Callable[[], None]


class _Answer:
    """An answer that is passed on in parts, and what these take in memory."""

    def __init__(self, result: FetchResult) -> None:
        self.result = result
        self._taken = 0
        self._parts = 0
        self._overhead = 0

    @property
    def rest(self) -> list[KinesisRecord]:
        """The Kinesis records that were not passed on yet."""
        return self.result.records[self._taken :] if self._taken else self.result.records

    @property
    def is_taken(self) -> bool:
        """Whether all of it was passed on."""
        return self._taken == len(self.result.records)

    @property
    def waiting_since(self) -> float | None:
        """Monotonic time at which the oldest record arrived that was not passed on; None if that is not known."""
        arrivals, taken = (
            self.result.header.arrivals,
            self._taken,
        )  # another thread may pass on more meanwhile
        if arrivals is None or taken == len(self.result.records):
            return None
        return arrivals.of(self.result.records[taken])

    def part(self, count: int, overhead: int) -> tuple[Callable[[int], None], Callable[[], None]]:
        """Pass on the next Kinesis records; returns a batch's ``charge`` and ``on_done``."""
        self._taken += count
        self._parts += 1
        mine = 0

        def charge(more: int) -> None:
            nonlocal mine
            mine += more
            self._overhead += more
            self.result.charge(self._overhead)

        def done() -> None:
            self._parts -= 1
            charge(-mine)
            self._settle()

        charge(overhead)
        return charge, done

    def drop(self) -> None:
        """Forget what was not passed on."""
        self._taken = len(self.result.records)
        self._settle()

    def _settle(self) -> None:
        if self.is_taken and not self._parts:
            self.result.on_done()


def start_position(lease: Lease, config: ConsumerConfig, *, follows_parent: bool) -> Position:
    """Where a lease's shard is read from.

    Args:
        lease: The lease.
        config: For the instant of an AT_TIMESTAMP start whose lease carries none (Java's do not).
        follows_parent: Whether this application read a parent to its end: then LATEST means the beginning.

    Raises:
        InvalidPositionError: An AT_TIMESTAMP start without an instant: the KCL's lease table does not hold it.
    """
    checkpoint, instant = lease.checkpoint, lease.initial_timestamp_millis
    if checkpoint.sequence_number == LATEST and follows_parent:
        return TrimHorizon()
    if checkpoint.sequence_number == AT_TIMESTAMP and instant is None:
        # The pin first: a worker that comes later may have been given a later instant ("an hour ago").
        instant = config.initial_timestamp_millis
        if instant is None:
            raise InvalidPositionError(
                f"lease {lease.lease_key} starts at AT_TIMESTAMP, and neither the lease table nor initial_position says at "
                "which instant. Give this worker the initial_position (a datetime) of the worker that created the lease, "
                f"or put the instant into the row ({INITIAL_TIMESTAMP}, a number of epoch milliseconds), or another "
                "checkpoint"
            )
    # A checkpoint may lie inside an aggregate: it opens at its Kinesis record, and `take` drops what was processed.
    return from_checkpoint(checkpoint, instant)


class ShardReader:
    """Reads one shard under its lease. Used by one thread at a time.

    Args:
        parts: What shard consumers share.
        held: The lease.
        follows_parent: See `start_position`.
        on_ready: Called from any thread when `take` may have something.
        metrics: Metrics of the shard.

    Attributes:
        ended: Whether everything was taken.
        child_shards: Known once it ended.
        reading_since: Monotonic time at which a call of the fetcher under way began.
    """

    def __init__(
        self,
        parts: ShardConsumerParts,
        held: HeldLease,
        *,
        follows_parent: bool,
        on_ready: Callable[[], None],
        metrics: BoundMetrics,
    ) -> None:
        self.ended: bool = False
        self._metrics = metrics
        self.child_shards: tuple[Shard, ...] = ()
        self.reading_since: float | None = None
        self._parts = parts
        self._held = held
        self._follows_parent = follows_parent
        self._on_ready = on_ready
        self._fetcher: Fetcher | None = None
        self._fetched: _Answer | None = None
        self._skip_through: ExtendedSequenceNumber | None = None
        # Where a new fetcher goes on: after a Kinesis record that was taken whole, or at a position inside of
        # one. Neither: where the lease says.
        self._taken_through: str | None = None
        self._rewound: ExtendedSequenceNumber | None = None
        # The record that the first answer has to begin with: its position is a record's, so it exists or expired.
        self._awaited: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a fetcher."""
        return self._fetcher is not None

    @property
    def due(self) -> float:
        """Monotonic time before which `take` has nothing."""
        if self._fetched is not None or self._fetcher is None:
            return float("-inf")
        return self._fetcher.due

    @property
    def has_pending(self) -> bool:
        """Whether an answer is here that could not be passed on yet."""
        return self._fetched is not None

    @property
    def waiting_since(self) -> float | None:
        """Monotonic time at which the oldest record arrived that was read and not taken; None if there is none."""
        fetched, fetcher = self._fetched, self._fetcher
        if fetched is not None:
            return fetched.waiting_since
        ahead = fetcher.waiting if fetcher is not None else None
        return None if ahead is None else ahead.waiting_since

    def open(self, now: float) -> None:
        """Begin at the lease's position, or go on after what was taken.

        A LATEST start is pinned here, by the same call that resolves it, so that neither a slow ``initialize``
        nor a crash can skip what arrives from now on. Cost: one UpdateItem per such start.

        Raises:
            InvalidPositionError: See `start_position`.
            AwsError: The call failed; calling again is safe.
            LeaseLostError: The pin found the lease gone.
        """
        lease = self._held.lease
        if self._taken_through is not None:
            start: Position = AfterSequence(self._taken_through)
        elif self._rewound is not None:
            start = from_checkpoint(self._rewound)
            self._skip_through = self._rewound
        else:
            start = start_position(lease, self._parts.config, follows_parent=self._follows_parent)
            self._skip_through = None if lease.checkpoint.is_sentinel else lease.checkpoint
        if self._fetcher is None:
            self._fetcher = self._parts.open_fetcher(
                self._held.shard_id, start, now, self._on_ready, self._metrics
            )
            opened = iterator_start(start)
            self._awaited = opened.sequence_number if isinstance(opened, AtSequence) else None
            _LOGGER.info("shard %s: starts at %s (lease %s)", self._held.shard_id, opened, lease.checkpoint)
        if isinstance(start, Latest) and isinstance(self._fetcher, KnowsStart):
            self._pin(self._fetcher.started_at_millis)

    def close(self) -> None:
        """Give up connections and what was read ahead."""
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
        if self._fetched is not None:
            self._fetched.drop()
            self._fetched = None

    def rewind(self, delivered: ExtendedSequenceNumber) -> None:
        """Close, and begin after a delivered position at the next `open`; a sentinel stands for the start."""
        self.close()
        self.ended = False
        self._taken_through = None
        # At the record itself: it may be an aggregate that was delivered in part.
        self._rewound = None if delivered.is_sentinel else delivered

    def take(self, now: float) -> UserBatch | None:
        """The next records, if some are due.

        Raises:
            AwsError, ProtocolError: The read failed; the position is unchanged.
            LeaseLostError: The pin found the lease gone.
        """
        fetcher = self._fetcher
        if fetcher is None:  # abandoned meanwhile
            return None
        if self._fetched is None:
            if fetcher.due > now:
                return None
            self.reading_since = now
            try:
                self._fetched = _Answer(fetcher.fetch(now))
            except ResourceNotFoundError as error:
                self._fetched = _Answer(self._explain_missing(error))
            finally:
                self.reading_since = None
        answer = self._fetched
        result = answer.result
        self._pin_start(result)
        if self._awaited is not None and result.records:
            self._look_for_loss(self._awaited, result.records[0])
            self._awaited = None
        rest = answer.rest
        records, overhead, count = self._user_records(rest)
        if count:
            self._taken_through = rest[count - 1].sequence_number
        charge, on_done = answer.part(count, overhead)
        if answer.is_taken:
            self._fetched = None
            if result.header.ended:
                self.ended = True
                self.child_shards = result.header.child_shards
        return UserBatch(records, result.header, charge, on_done)

    def _explain_missing(self, error: ResourceNotFoundError) -> FetchResult:
        """The service knows no such shard: its retention is over, or the stream itself is gone."""
        shard_id = self._held.shard_id
        listed = self._parts.list_shards()
        ids = {shard.shard_id for shard in listed}
        # What expired is older than something that is listed; a listing may be behind a reshard.
        if shard_id in ids or not any(other > shard_id for other in ids):
            state = "lists" if shard_id in ids else "does not list yet"
            raise TransientAwsError(
                f"the stream {state} shard {shard_id}, but it can not be read: {error.message}",
                operation=error.operation,
                code=error.code,
                endpoint=error.endpoint,
            ) from error
        _LOGGER.warning(
            "shard %s: the stream does not list it any more; what was not read after %s is gone",
            shard_id,
            self._held.lease.checkpoint,
        )
        children = tuple(shard for shard in listed if shard_id in shard.parents)
        return FetchResult(records=[], header=ResponseHeader(ended=True, child_shards=children))

    def _look_for_loss(self, awaited: str, first: KinesisRecord) -> None:
        """Tell what nobody else does: from a position before its horizon, the service reads on at the horizon.

        Whether anything was lost can not be known: a shard may have been idle for all that time.
        """
        if first.sequence_number == awaited:
            return
        shard_id = self._held.shard_id
        _LOGGER.warning(
            "shard %s: the record of its checkpoint %s has expired, reading goes on at %s; if something arrived "
            "between them, it expired unread",
            shard_id,
            awaited,
            first.sequence_number,
        )
        self._metrics.add(catalogue.CHECKPOINT_EXPIRED, 1)

    def _pin_start(self, result: FetchResult) -> None:
        """Store what a LATEST or AT_TIMESTAMP start meant, before anything is delivered.

        A failover before the first checkpoint then starts at the same instant, instead of skipping to a new
        LATEST. The next checkpoint removes the pin.
        """
        name = self._held.lease.checkpoint.sequence_number
        if name == LATEST:
            self._pin(result.started_at_millis)
        elif name == AT_TIMESTAMP:
            self._pin(self._parts.config.initial_timestamp_millis)

    def _pin(self, millis: int | None) -> None:
        lease = self._held.lease
        if millis is not None and lease.initial_timestamp_millis is None and lease.checkpoint.is_sentinel:
            self._held.pin(millis)

    def _user_records(self, records: list[KinesisRecord]) -> tuple[Sequence[UserRecord], int, int]:
        """User records for a batch, their overhead, and how many Kinesis records they are the content of."""
        parts: list[UserRecords] = []
        overhead = count = 0
        # In C: streams without aggregates pay for this, too.
        sizes = list(accumulate(map(len, map(itemgetter(0), records))))
        while True:
            # What fits, at least one; all of them at a time if they are few.
            before = sizes[count - 1] if count else 0
            end = max(count + 1, bisect_right(sizes, before + _PART_BYTES))
            part = self._deaggregate(records[count:end])
            parts.append(part)
            overhead += part.overhead
            count = min(end, len(records))
            if count >= len(records) or overhead >= _MOST_OVERHEAD:
                break
        result = UserRecords.joined(parts)
        through = self._skip_through
        if through is None or not result:
            return result, overhead, count
        for index, record in enumerate(result):
            if position_of(record) > through:
                self._skip_through = None
                return (result[index:] if index else result), overhead, count
        return [], overhead, count

    def _deaggregate(self, records: list[KinesisRecord]) -> UserRecords:
        discard = self._parts.config.failure.misplaced_aggregates == "discard"
        return deaggregate(
            records,
            hash_key_range=self._held.lease.hash_key_range if discard else None,
            on_misplaced=self._discard if discard else None,
        )

    def _discard(self, record: KinesisRecord, count: int) -> bool:
        _LOGGER.warning(
            "shard %s: aggregate %s with %d user records is discarded (misplaced_aggregates=discard): "
            "a record in it belongs to another shard",
            self._held.shard_id,
            record.sequence_number,
            count,
        )
        return True
