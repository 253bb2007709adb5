"""What a worker says about itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.shard.state import ShardState


@dataclass(frozen=True)
class Stall:
    """A shard without progress for longer than ``stall_timeout``.

    Attributes:
        problem: What is going on instead, in words.
        seconds: For how long.
        reading: Whether a read hangs, which is begun anew.
    """

    problem: str
    seconds: float
    reading: bool

    def __str__(self) -> str:
        return f"{self.problem} ({self.seconds:.0f} s)"


@dataclass(frozen=True, kw_only=True)
class LeaseProblem:
    """A lease whose row has to be repaired: until then no worker can take it, or none can consume its shard.

    A worker that held the lease before the row was damaged may go on as long as it can renew it.

    Attributes:
        lease_key: Its key: the shard id, or of several streams ``account:name:epoch:shardId``.
        problem: What is wrong, in words.
    """

    lease_key: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class ShardHealth:
    """One shard that this worker holds.

    Attributes:
        shard_id: The shard.
        state: Where its consumer is in its life.
        oldest_unprocessed_millis: Age of the oldest record that is not processed, in milliseconds: the lag to alert on.
            0 if everything was processed as of the last read, None if it is not known. See the metric
            ``OldestUnprocessedRecordAge`` for its error.
        read_lag_millis: Milliseconds by which the last read was behind the tip of the shard, as the service reported it;
            None if it did not. It says nothing about records that were read and are not processed.
        seconds_since_progress: Seconds since the last successful fetch or delivery.
        records_delivered: User records delivered under this lease.
        checkpoint: Stored position.
        last_error: What holds it up now, or None.
        records_dead_lettered: User records that went to the dead-letter hook under this lease.
        stall: Set if there was no progress for longer than ``stall_timeout``.
        quarantined: Whether its lease names a position that the shard does not have, so that it is not consumed.
    """

    shard_id: str
    state: ShardState
    oldest_unprocessed_millis: int | None
    read_lag_millis: int | None
    seconds_since_progress: float
    records_delivered: int
    checkpoint: ExtendedSequenceNumber
    last_error: str | None
    records_dead_lettered: int = 0
    stall: Stall | None = None
    quarantined: bool = False

    def to_dict(self) -> dict[str, Any]:
        """See `WorkerHealth.to_dict`."""
        return {
            **asdict(self),
            "state": self.state.value,
            "checkpoint": {
                "sequence_number": self.checkpoint.sequence_number,
                "sub_sequence_number": self.checkpoint.sub_sequence_number,
            },
        }


@dataclass(frozen=True, kw_only=True)
class WorkerHealth:
    """A snapshot of a worker; `to_dict` makes it JSON.

    Attributes:
        worker_id: Its id in the lease table.
        running: Whether it was started and has not stopped.
        stopping: Whether it was asked to stop.
        leases: Keys of the leases that it holds, in order.
        shards: One entry per shard consumer, in order of shard ids.
        records_delivered: User records delivered since the start, shards that are gone included.
        error: The fatal error, if there was one.
        lease_problems: Leases of the whole table that need repair, as this worker's last scan shows them, in
            order of their keys.
    """

    worker_id: str
    running: bool
    stopping: bool
    leases: tuple[str, ...]
    shards: tuple[ShardHealth, ...]
    records_delivered: int
    error: BaseException | None
    lease_problems: tuple[LeaseProblem, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as dictionaries, lists, numbers and text, for example for ``json.dumps`` in a health endpoint.

        A checkpoint is a dictionary of ``sequence_number`` and ``sub_sequence_number``; the error is its class and message.
        """
        error = self.error
        result = asdict(replace(self, shards=(), error=None))
        result["leases"] = list(self.leases)
        result["lease_problems"] = [asdict(problem) for problem in self.lease_problems]
        result["shards"] = [shard.to_dict() for shard in self.shards]
        result["error"] = None if error is None else f"{type(error).__name__}: {error}"
        return result
