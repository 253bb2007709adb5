"""Decides which tasks of a streaming query certainly write their rows for the first time.

A row with a name may be written by several attempts: Spark repeats tasks and batches. Readers find the first copy by searching the stream
for earlier copies, which costs another read of the stream for each batch. Readers skip the search for a row that certainly was written by
a first attempt (`kinesis_sdk.common.once.table.FIRST`). This is correct if no other attempt puts the row before the hold-off of the first
attempt has ended, which two rules ensure:

1. The date of a first attempt is a time before which no task or driver began an attempt of its batch, namely the time at which this
process had written its last task of a lower batch of the run. A batch begins only after the batch before it is committed. The start of the
task itself would be too late: a driver may freeze before that start, while another driver continues from the checkpoint and writes the
batch.
2. An attempt that may repeat a first attempt puts no rows before `FIRST_HOLD_OFF` seconds after its own start.

A batch that is repeated after a restart has another run id, so the first batch of a run that a process writes is never
a first attempt. Within a run, only attempts of tasks repeat a batch, and they are counted, with one exception: a stage
that runs again, because the output of an earlier stage is lost, begins with attempt 0. So the writing stage must be the only stage of its
batch, which is the case if stage ids grow by one for each batch. A batch takes at least one stage, and
other queries of the same application only make the ids grow faster.

Pure: no clock, no Spark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from kinesis_sdk.common.once import FIRST_HOLD_OFF

_MAX_RUNS = 64
"""Maximum query runs that a process remembers. A forgotten run counts as new."""

_MAX_DIGITS = 18


class StreamTask(NamedTuple):
    """A task of a streaming query.

    Attributes:
        run: Id of the query's run; each start of the query has a new id.
        attempt: Number of the attempt of the task, from 0.
        speculates: Whether Spark may run a task twice at the same time.
    """

    run: str
    batch: int
    stage: int
    attempt: int
    speculates: bool

    @classmethod
    def of(cls, property_of: Callable[[str], str | None], *, stage: int, attempt: int) -> StreamTask | None:
        """Return the task with these local properties; None without a streaming query, or if Spark uses other names for them."""
        run, batch = property_of("spark.jobGroup.id"), property_of("streaming.sql.batchId")
        if (
            not run
            or batch is None
            or not (batch.isascii() and batch.isdigit() and len(batch) <= _MAX_DIGITS)
        ):
            return None
        speculates = (property_of("spark.speculation") or "false").strip().lower() != "false"
        return cls(run, int(batch), stage, attempt, speculates)


class Attempt(NamedTuple):
    """Rules by which a task writes its rows.

    Attributes:
        since: Time at Kinesis, in milliseconds since 1970, before which no attempt of the batch began; None if unknown.
        is_first: Whether this certainly is the first attempt.
        wait: Seconds after the start of the task during which it puts no rows.
        again: Whether an earlier attempt may have written the rows; readers do not warn of copies of such rows.
    """

    since: int | None = None
    is_first: bool = False
    wait: float = 0.0
    again: bool = False

    @property
    def first(self) -> int | None:
        """Date of the rows of a first attempt; None if the attempt may be a repetition."""
        return self.since if self.is_first else None


class _Written(NamedTuple):
    """The last task of a batch that this process wrote.

    Attributes:
        millis: Time at Kinesis, in milliseconds since 1970, when all rows were stored; None if unknown.
    """

    batch: int
    stage: int
    millis: int | None


class FirstAttempts:
    """Memory of the tasks of each run that a process has written; it shows whether the next task is a first attempt.

    Used by one thread at a time.
    """

    def __init__(self) -> None:
        # The last two batches of each run; the most recently used run is last.
        self._runs: OrderedDict[str, tuple[_Written | None, _Written]] = OrderedDict()

    def begin(self, task: StreamTask | None) -> Attempt:
        """Return the `Attempt` of a task that starts now. An unknown task (None) is never a first attempt."""
        if task is None:
            return Attempt()
        before = self._before(task)
        if before is None:
            # No attempt of batch 0 was ever a first attempt, because there is no lower batch.
            return Attempt(wait=FIRST_HOLD_OFF if task.batch else 0.0, again=True)
        if task.attempt:
            wait = 0.0 if task.speculates else FIRST_HOLD_OFF
            return Attempt(before.millis, wait=wait, again=True)
        if task.speculates or task.stage - before.stage != task.batch - before.batch:
            return Attempt(before.millis, again=True)
        is_known = before.millis is not None
        return Attempt(before.millis, is_first=is_known, again=not is_known)

    def end(self, task: StreamTask | None, millis: int | None) -> None:
        """Note that a task has written all of its rows; ``millis`` is the time at Kinesis at that moment, or None if unknown."""
        if task is None:
            return
        lower, latest = self._runs.get(task.run, (None, None))
        written = _Written(task.batch, task.stage, millis)
        if latest is None or latest.batch < task.batch:
            lower, latest = latest, written
        elif latest.batch == task.batch:
            latest = written
        self._runs[task.run] = lower, latest
        self._runs.move_to_end(task.run)
        if len(self._runs) > _MAX_RUNS:
            self._runs.popitem(last=False)

    def _before(self, task: StreamTask) -> _Written | None:
        """Return the last task that this process wrote for a lower batch of the run."""
        found = [one for one in self._runs.get(task.run, ()) if one is not None and one.batch < task.batch]
        return found[-1] if found else None
