"""What a worker says about itself."""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.shard_state import ShardState


@dataclass(frozen=True, kw_only=True)
class ShardHealth:
    """One shard that this worker holds.

    Attributes:
        shard_id: The shard.
        state: Where its consumer is in its life.
        millis_behind_latest: Milliseconds behind the tip at the last fetch; None before the first.
        seconds_since_progress: Seconds since the last successful fetch or delivery.
        records_delivered: User records delivered under this lease.
        checkpoint: Stored position.
        last_error: What holds it up now, or None.
    """

    shard_id: str
    state: ShardState
    millis_behind_latest: int | None
    seconds_since_progress: float
    records_delivered: int
    checkpoint: ExtendedSequenceNumber
    last_error: str | None


@dataclass(frozen=True, kw_only=True)
class WorkerHealth:
    """A snapshot of a worker.

    Attributes:
        worker_id: Its id in the lease table.
        running: Whether it was started and has not stopped.
        stopping: Whether it was asked to stop.
        leases: Keys of the leases that it holds, in order.
        shards: One entry per shard consumer, in order of shard ids.
        records_delivered: User records delivered since the start, shards that are gone included.
        error: The fatal error, if there was one.
    """

    worker_id: str
    running: bool
    stopping: bool
    leases: tuple[str, ...]
    shards: tuple[ShardHealth, ...]
    records_delivered: int
    error: BaseException | None
