"""Health of a worker: snapshots of its leases and shard consumers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.shard.state import ShardState

_LATE_RENEWAL = 1 / 6
"""Fraction of the failover time by which a renewal may be late. At a third, the lease is lost."""


@dataclass(frozen=True)
class Stall:
    """A shard without progress for longer than ``stall_timeout``.

    Attributes:
        problem: The reason why the shard waits, or the last failure.
        seconds: Seconds without progress, or seconds for which the handler has been running.
        reading: Whether a read hangs. Such a read is restarted.
    """

    problem: str
    seconds: float
    reading: bool

    def __str__(self) -> str:
        return f"{self.problem} ({self.seconds:.0f} s)"


@dataclass(frozen=True, kw_only=True)
class LeaseProblem:
    """A lease whose row needs repair. Until the repair, no worker can take the lease, or no worker can consume its shard.

    A worker that already held the lease when the row was damaged continues as long as it can renew the lease.

    Attributes:
        lease_key: Key of the lease: the shard id, or with several streams ``account:name:creationEpoch:shardId``.
        problem: Description of the problem.
    """

    lease_key: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class ShardHealth:
    """Health of one shard that this worker holds.

    Attributes:
        shard_id: Id of the shard.
        state: State of its shard consumer.
        oldest_unprocessed_millis: Age of the oldest unprocessed record in milliseconds: the lag to alert on. It is 0 if all records were
            processed as of the last read, None if unknown. `docs/metrics.md` describes how large the error of this age may be.
        read_lag_millis: Milliseconds by which the last read was behind the tip of the shard, as reported by Kinesis; None if it reported
            none. This excludes records that were read but not yet processed.
        seconds_since_progress: Seconds since the last successful fetch or delivery.
        records_delivered: Number of user records delivered under this lease.
        checkpoint: Stored checkpoint.
        last_error: Error or problem that currently delays the shard; None if there is none.
        records_dead_lettered: Number of user records passed to the dead-letter hook under this lease.
        stall: Set if the shard has made no progress for longer than ``stall_timeout``; otherwise None.
        quarantined: Whether the lease is kept but the shard is not consumed, because it cannot be read from the checkpoint
            in its row. The row is checked repeatedly until it is repaired.
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
        """Return the snapshot as plain data; see `WorkerHealth.to_dict`."""
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
    """A snapshot of a worker.

    `to_dict` returns data that ``json.dumps`` accepts. The health endpoint responds with `live_problems` and `ready_problems`.

    Attributes:
        worker_id: Id of the worker in the lease table.
        running: Whether the worker was started and has not stopped.
        stopping: Whether a stop was requested.
        draining: Whether the worker hands off its leases and takes none, because an operator marked it in the lease
            table. The worker keeps running until the mark is removed.
        leases: Keys of the held leases, sorted.
        shards: One entry per shard consumer, sorted by shard id.
        records_delivered: Number of user records delivered since the start, including shards that are no longer held.
        error: The fatal error that stopped the worker, or None.
        lease_problems: Leases of the whole table that need repair, as of this worker's last scan, sorted by key.
        scan_overdue_seconds: Seconds by which the next scan of the lease table is late; 0 while scans succeed in time, None
            before the first scan.
        renewal_overdue_seconds: Maximum seconds by which the renewal of a held lease is late; 0 while renewals succeed in time.
        failover_time: ``LeaseConfig.failover_time``.
        stuck_loops: Loops of the worker that have ended, or whose current call has taken more than ten minutes.
        until: The moment up to which records are processed before the worker ends, in ISO 8601; None if it does not end by itself.
    """

    worker_id: str
    running: bool
    stopping: bool
    leases: tuple[str, ...]
    shards: tuple[ShardHealth, ...]
    records_delivered: int
    error: BaseException | None
    lease_problems: tuple[LeaseProblem, ...] = ()
    draining: bool = False
    scan_overdue_seconds: float | None = None
    renewal_overdue_seconds: float = 0.0
    failover_time: float = 10.0
    stuck_loops: tuple[str, ...] = ()
    until: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as dictionaries, lists, numbers and strings, for example for a health endpoint.

        A checkpoint becomes a dictionary of ``sequence_number`` and ``sub_sequence_number``. The error becomes a string of its
        class and message.
        """
        error = self.error
        result = asdict(replace(self, shards=(), error=None))
        result["leases"] = list(self.leases)
        result["stuck_loops"] = list(self.stuck_loops)
        result["lease_problems"] = [asdict(problem) for problem in self.lease_problems]
        result["shards"] = [shard.to_dict() for shard in self.shards]
        result["error"] = None if error is None else f"{type(error).__name__}: {error}"
        return result

    def live_problems(self) -> list[str]:
        """Return the problems that only a restart of the process can solve, for ``/live``.

        A worker that cannot reach AWS is live, because a restart would not change that. A worker that starts or stops is also live.

        Returns:
            Sentences for an operator; empty if the process can continue.
        """
        found = [f"the loop {loop!r} makes no progress" for loop in self.stuck_loops]
        if self.error is not None:
            found.insert(0, f"the worker failed: {type(self.error).__name__}: {self.error}")
        return found

    def ready_problems(self) -> list[str]:
        """Return the problems that prevent the worker from taking and processing shards, for ``/ready``.

        Lag, and handlers that fail or hang, do not count: they require alerts, but are not a reason to stop a deployment.

        Returns:
            Sentences for an operator, `live_problems` first; empty if there are no problems.
        """
        found = self.live_problems()
        if not self.running:
            return [*found, "the worker does not run"]
        if self.stopping:
            found.append("the worker stops")
        if self.draining:
            found.append("the worker drains: an operator marked it in the lease table")
        overdue = self.scan_overdue_seconds
        if overdue is None:
            found.append("the lease table was not read yet")
        elif overdue > self.failover_time:
            found.append(f"the lease table could not be read for {overdue:.0f} s longer than usual")
        if self.renewal_overdue_seconds > self.failover_time * _LATE_RENEWAL:
            found.append(f"the renewal of a lease is {self.renewal_overdue_seconds:.1f} s late")
        return found
