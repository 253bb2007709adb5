"""Failed calls of one shard, for its policy, for views and for later deliveries. Pure: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kinesis_sdk.common.records import position_of
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.progress import MAX_ERROR
from kinesis_sdk.consumer.shard.lanes import Lane, SubBatch

_LONGEST_ROW = 10_000
"""Maximum records in a row that are counted for `Failure`, because no policy of this package needs more."""


@dataclass(frozen=True, slots=True)
class FailingCalls:
    """Consecutive failed calls of one lane, or of a callback that gets no records.

    Attributes:
        attempts: Number of calls.
        since: Monotonic time at which the first of these calls failed.
        retry_at: Monotonic time of the next call.
        records: Number of records that the last call got and did not checkpoint.
        position: Position of the first of these records; None if there are none.
        error: Class and text of the last error, which is `cause`.
        same: Number of consecutive calls, up to the last, that got exactly these records.
        is_probe: Whether the next call gets a single record, because the circuit is open.
    """

    attempts: int
    since: float
    retry_at: float
    records: int
    position: ExtendedSequenceNumber | None
    error: str
    cause: BaseException | None = None
    same: int = 0
    is_probe: bool = False


class ShardFailures:
    """Failed calls of one shard under one lease: for its policy, for views, and for records that are read again.

    This object outlives a restart of the shard. One thread at a time uses it: the shard's step. Other threads may read
    `failing`.

    Attributes:
        failing: Failed calls of the lane that has failed for longest; None if the last call of each lane succeeded.
        is_circuit_open: Whether the last decision about a failed call was the pause of an open circuit, and no call has succeeded since.
    """

    def __init__(self) -> None:
        self.failing: FailingCalls | None = None
        self.is_circuit_open: bool = False
        # By key of the lane, in the order in which the lanes began to fail. Other threads read `failing`, never the dict, because
        # it may change while they iterate.
        self._failing: dict[str | None, FailingCalls] = {}
        # Failed calls before restarts of the shard, for lanes that have had no call since.
        self._before: dict[str | None, FailingCalls] = {}
        # Class of the last error, and the first records of the consecutive failed calls with it.
        self._row_of: type[BaseException] | None = None
        self._row: set[ExtendedSequenceNumber] = set()

    @property
    def in_a_row(self) -> int:
        """Records on which calls failed one after another with one class of errors."""
        return len(self._row)

    def of(self, lane: Lane) -> FailingCalls | None:
        """Return the failed calls of a lane; None if its last call succeeded, or there was none."""
        return self._failing.get(lane.key)

    def end_row(self, error: BaseException, *, got_on: bool) -> None:
        """End the earlier row of failures if this failure is of another class, or if its call had `got_on` first."""
        if got_on or self._row_of is not type(error):
            self._row_of = type(error)
            self._row.clear()

    def count(self, sub_batch: SubBatch) -> None:
        """Count the first unfinished record of a failed call for the row."""
        if len(self._row) < _LONGEST_ROW:
            self._row.add(position_of(sub_batch.records[sub_batch.begin]))

    def note(self, lane: Lane, count: int, error: BaseException, now: float) -> None:
        """Note the records on which a lane fails."""
        before, sub_batch = self._failing.get(lane.key), lane.pending[0]
        self._failing[lane.key] = FailingCalls(
            attempts=1 if before is None else before.attempts + 1,
            since=now if before is None else before.since,
            retry_at=now,
            records=count,
            position=position_of(sub_batch.records[sub_batch.begin]),
            error=f"{type(error).__name__}: {error}"[:MAX_ERROR],
            cause=error,
        )
        self.failing = next(iter(self._failing.values()))

    def note_pause(self, lane: Lane, retry_at: float, *, circuit: bool) -> FailingCalls:
        """Note the time of a lane's next try, and whether it is a probe of an open circuit; return the lane's failed calls."""
        noted = replace(self._failing[lane.key], retry_at=retry_at, same=lane.pending[0].failures)
        if circuit:
            noted = replace(noted, error=f"circuit open: {noted.error}"[:MAX_ERROR], is_probe=True)
            self.is_circuit_open = True
        self._failing[lane.key] = noted
        self.failing = next(iter(self._failing.values()))
        return noted

    def finished(self, lane: Lane) -> None:
        """Note that records of a lane are finished."""
        if self._failing and self._failing.pop(lane.key, None) is not None:
            self.failing = next(iter(self._failing.values()), None)

    def succeeded(self, lane: Lane) -> bool:
        """Note that a call has succeeded; return whether this closes the circuit."""
        self._row.clear()
        self.finished(lane)
        closes, self.is_circuit_open = self.is_circuit_open, False
        return closes

    def restarted(self) -> None:
        """Note that the shard starts again, so that no call counts as failed."""
        # Keep older failures, too: the calls of one lane may restart the shard again before the other lanes get a call.
        self._before |= self._failing
        self._failing, self.failing = {}, None

    def resume(self, lane: Lane) -> None:
        """Continue counting the failures of records that were dropped and read again.

        Sequence of events without this method: while a circuit is open, other shards need the memory in each pause, or the shard
        restarts. The count never reaches the number after which a record is set aside, and the shard stays blocked.
        """
        if not self._failing and not self._before:
            return
        sub_batch = lane.pending[0]
        if sub_batch.failures or sub_batch.halved or not sub_batch.left:
            return
        known = self._failing.get(lane.key) or self._before.pop(lane.key, None)
        if known is None or position_of(sub_batch.records[sub_batch.begin]) != known.position:
            return
        self._failing[lane.key] = known
        self.failing = next(iter(self._failing.values()))
        sub_batch.failures, sub_batch.failed_size = known.same, known.records
        sub_batch.fixed_size = sub_batch.fixed_size or int(known.is_probe)
