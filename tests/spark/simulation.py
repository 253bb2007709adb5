"""A streaming query under a trigger, in virtual time: the real planner and the real readers, without Spark.

Spark plans a batch at every multiple of the trigger interval, at once if the last batch took longer, and keeps nothing but offsets if
the driver is restarted. `Simulation` does the same, and `Audit` accounts for every row.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kinesis_sdk.common.position import AtTimestamp, Latest, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.offsets import QueryOffset
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.planner import StreamPlanner
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.spark.reading import ReadPolicy, ShardRange, read_range
from kinesis_sdk.spark.shardio import ShardIo, arrival_of
from kinesis_sdk.spark.tasks import group
from tests.spark.service import Log, Service

OVERHEAD = 0.3
"""Seconds that a batch takes besides its rows."""

Row = tuple[str, str, int, int]
"""Stream, shard id, number in the shard, arrival in epoch milliseconds."""


def reader_options(streams: Iterable[str], values: Mapping[str, Any]) -> SourceOptions:
    """Return the options of a reader of these streams."""
    return SourceOptions(
        streams=tuple(StreamId.parse(name) for name in streams),
        **{"probe_threads": 1, "records_per_fetch": 1_000, **values},
    )


@dataclass
class Bounds:
    """What the audit allows. Seconds.

    Attributes:
        disorder: Largest difference between a record's arrival time and the time at which it was stored.
        visible_after: Time until a stored record can be read.
        clock: Error of the planner's estimate of the clock of the service.
        unseen: Longest time for which an idle shard is not looked at.
    """

    disorder: float = 0.0
    visible_after: float = 0.05
    unseen: float = 5.0
    clock: float = 0.0

    @property
    def past(self) -> float:
        """How far at most a row lies behind the cut."""
        return 2 * self.disorder + self.clock

    @property
    def left(self) -> float:
        """How far at most a row below the cut is left for a later batch."""
        return 2 * self.disorder + self.visible_after + self.unseen + self.clock

    @property
    def slack(self) -> float:
        """How much older a row can be than a row of an earlier batch."""
        return self.past + self.left


class Audit:
    """Accounts for all rows of a query.

    Args:
        service: The service that is read.
        bounds: Bounds of the promises about times.

    Attributes:
        late: Rows that a watermark with a delay of ten seconds would drop.
    """

    def __init__(self, service: Service, bounds: Bounds) -> None:
        self.service = service
        self.bounds = bounds
        self.next: dict[tuple[str, str], int] = {}
        self.newest = float("-inf")
        self.slack = 0.0
        self.late = 0
        self.rows = 0

    def begin(self, stream: str, shard_id: str, number: int) -> None:
        """Say with which record of a shard the query begins, if that is not its first one."""
        self.next[stream, shard_id] = number

    def _is_deleted(self, stream: str, shard_id: str, numbers: range) -> bool:
        """Return whether records are older than the retention period."""
        stored = self.service.logs[stream][shard_id].plan.stored
        horizon = self.service.horizon(stream)
        return all(stored[number] < horizon for number in numbers)

    def at(self, stream: str, log: Log) -> int:
        """Return the number of the shard's next record."""
        return self.next.get((stream, log.shard_id), 0)

    def batch(self, tasks: Sequence[Sequence[Row]], cut: int | None) -> None:
        """Check the rows of a batch, task by task in the order in which they were read."""
        newest, before = self.newest, dict(self.next)
        for rows in tasks:
            own = dict(before)
            for stream, shard_id, number, arrival in rows:
                key = stream, shard_id
                expected = own.get(key, 0)
                assert number == expected or (
                    number > expected and self._is_deleted(stream, shard_id, range(expected, number))
                ), f"{stream}/{shard_id}: record {number} follows, expected was {expected}"
                if number == 0:
                    self._check_parents(stream, shard_id, own)
                own[key] = self.next[key] = number + 1
                self.rows += 1
                newest = max(newest, arrival)
                if self.newest > arrival:
                    self.slack = max(self.slack, (self.newest - arrival) / 1000)
                    self.late += arrival < self.newest - 10_000
                if cut is not None:
                    past = (arrival - cut) / 1000
                    assert past <= self.bounds.past, (
                        f"{stream}/{shard_id}: record {number} arrived {past:.3f} s past the cut"
                    )
        self.newest = newest
        if cut is not None:
            self._check_left(cut)
            assert self.slack <= self.bounds.slack + 0.002, (
                f"a row is {self.slack:.3f} s older than one of an earlier batch, allowed are {self.bounds.slack:.3f} s"
            )

    def _check_parents(self, stream: str, shard_id: str, done: dict[tuple[str, str], int]) -> None:
        logs = self.service.logs[stream]
        for parent in logs[shard_id].plan.parents:
            name = f"shardId-{parent:012d}"
            count = len(logs[name].plan.stored)
            read = done.get((stream, name), 0)
            assert read == count or self._is_deleted(stream, name, range(read, count)), (
                f"{stream}/{shard_id} begins before its parent {name} was read to its end in the same task or earlier"
            )

    def _check_left(self, cut: int) -> None:
        limit = cut - self.bounds.left * 1000 - 2
        for stream, logs in self.service.logs.items():
            for log in logs.values():
                first = self.at(stream, log)
                for number in range(first, min(first + 50, len(log.arrivals))):
                    assert log.arrivals[number] >= limit or self._is_deleted(
                        stream, log.shard_id, range(number, number + 1)
                    ), (
                        f"{stream}/{log.shard_id}: record {number} was left although it arrived "
                        f"{(cut - log.arrivals[number]) / 1000:.3f} s before the cut"
                    )

    def unread(self) -> Iterator[tuple[str, Log, int]]:
        """Yield the shards that have records to read, with the number of their next record."""
        for stream, logs in self.service.logs.items():
            for log in logs.values():
                deleted = bisect_left(log.plan.stored, self.service.horizon(stream))
                first = max(self.at(stream, log), deleted)
                if first < self.service.readable(log):
                    yield stream, log, first

    def left(self) -> int:
        """Return the number of records that can be read and were not."""
        return sum(self.service.readable(log) - first for _, log, first in self.unread())

    def lag(self) -> float:
        """Return the age of the oldest record that can be read and was not, in seconds."""
        now = self.service.millis(self.service.clock.monotonic())
        return max(((now - log.arrivals[first]) / 1000 for _, log, first in self.unread()), default=0.0)


@dataclass
class Outcome:
    """What a query did.

    Attributes:
        looks: Number of plans.
        sizes: Rows of each batch.
        durations: Seconds of each batch without its planning.
        planning: Seconds of each plan.
        lags: Virtual time, and lag at the end of each trigger in seconds.
    """

    looks: int = 0
    sizes: list[int] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    planning: list[float] = field(default_factory=list)
    lags: list[tuple[float, float]] = field(default_factory=list)

    def lag(self, last: int = 1) -> float:
        """Return the largest lag of the last triggers."""
        return max((lag for _, lag in self.lags[-last:]), default=0.0)


class Simulation:
    """A query that runs under a trigger.

    Args:
        service: The service.
        values: Options of the reader by field.
        trigger: Seconds between two batches.
        speed: Rows that the cluster handles per second.
        bounds: See `Audit`.
        crash: Probability of a restart at each of the points of a batch where it makes a difference.
    """

    def __init__(
        self,
        service: Service,
        values: dict[str, Any] | None = None,
        *,
        trigger: float = 1.0,
        speed: float = 50_000.0,
        bounds: Bounds | None = None,
        crash: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.service = service
        self.options = reader_options(service.logs, values or {})
        self.trigger = trigger
        self.speed = speed
        self.client = service.client()
        self.executors = service.client(hurried=True)
        self.audit = Audit(service, bounds or Bounds())
        self.outcome = Outcome()
        self.end: Any = None
        self._random = Random(seed)
        self._crash = crash
        self.restart()

    def restart(self) -> None:
        """A new driver: everything but the offsets is gone."""
        self.client.forget()
        self.planner: Any = StreamPlanner(
            self.client,  # type: ignore[arg-type]
            self.options,
            clock=self.service.clock,
            sleep=self.service.clock.advance,
            rng=Random(1),
            admission_control=True,
        )
        self.initial = self.planner.initial()

    @property
    def start(self) -> Any:
        """The committed offset, or the initial one."""
        return self.initial if self.end is None else self.end

    def _crashes(self) -> bool:
        if self._crash and self._random.random() < self._crash:
            self.restart()
            return True
        return False

    # -- a batch ------------------------------------------------------------------------------------------------

    def plan(self, **how: Any) -> Any:
        """Return the end of the next batch, or None if there is nothing new."""
        self._crashes()
        begun = self.service.clock.monotonic()
        start = self.start
        end = self.planner.plan(start, **how)
        self.outcome.looks += 1
        self.outcome.planning.append(self.service.clock.monotonic() - begun)
        if end is start or end.to_json() == start.to_json():
            return None
        return QueryOffset.from_json(end.to_json())

    def ranges(self, end: Any) -> list[ShardRange]:
        found: list[ShardRange] = self.planner.ranges(self.start, end)
        return found

    def read(self, ranges: list[ShardRange]) -> list[list[Row]]:
        """Return the rows of each task, as the executors read them."""
        return [[row for item in task for row in self._read_range(item)] for task in self.tasks(ranges)]

    def tasks(self, ranges: list[ShardRange]) -> Sequence[Sequence[ShardRange]]:
        """Divide the ranges of a batch as the driver does."""
        return group(ranges, max_tasks=64, shards_per_task=self.options.shards_per_task)

    def _read_range(self, item: ShardRange) -> Iterator[Row]:
        io = ShardIo(
            self.executors,  # type: ignore[arg-type]
            item.stream,
            clock=self.service.clock,
            sleep=self.service.clock.advance,
            rng=Random(2),
            retry_timeout=self.options.retry_timeout,
        )
        policy = ReadPolicy(
            limit=self.options.records_per_fetch,
            interval=0.0,
            stall_timeout=self.options.retry_timeout,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        for records in read_range(io, item, policy):
            for record in records:
                yield item.stream.name, item.shard_id, int(record.data), arrival_of(record)

    def run_batch(self, **how: Any) -> int | None:
        """Plan, read and commit one batch, and let its time pass; return its rows, None if there was nothing to plan."""
        clock = self.service.clock
        end = self.plan(**how)
        if end is None:
            return None
        begun = clock.monotonic()
        self._crashes()
        if self.end is None:
            self._find_beginnings(end)
        ranges = self.ranges(end)
        rows = self.read(ranges)
        if self._crashes():
            # The sink failed: the same batch comes again.
            again = self.read(self.ranges(end))
            assert sorted(map(tuple, again)) == sorted(map(tuple, rows)), (
                "a batch that came again is another one"
            )
        self.audit.batch(rows, end.cut)
        count = sum(map(len, rows))
        duration = max(OVERHEAD + count / self.speed, clock.monotonic() - begun)
        clock.advance_to(begun + duration)
        self.end = end
        self.outcome.sizes.append(count)
        self.outcome.durations.append(duration)
        return count

    def _find_beginnings(self, end: Any) -> None:
        """Tell the audit with which record the query begins in the shards that were open at its starting position."""
        starting = StartingPosition.parse(end.starting)
        for stream, logs in self.service.logs.items():
            default = starting.for_stream(stream).default
            if isinstance(default, TrimHorizon):
                continue
            at = default.millis if isinstance(default, AtTimestamp) else end.started
            # A shard that closed at the very time of LATEST is open, too.
            moment = self.service.seconds(at) - (1.0 if isinstance(default, Latest) else 0.0)
            open_then = [
                log.shard_id
                for log in logs.values()
                if log.plan.born <= moment and (log.plan.closed is None or log.plan.closed > moment)
            ]
            for shard_id in open_then:
                self.audit.begin(stream, shard_id, self.service.first_at(logs[shard_id], at))
            for shard_id in _ancestors(logs, open_then):
                self.audit.begin(stream, shard_id, len(logs[shard_id].arrivals))

    # -- a query ------------------------------------------------------------------------------------------------

    def run(self, until: float, **how: Any) -> Outcome:
        """Trigger until a virtual time."""
        clock, trigger = self.service.clock, self.trigger
        while clock.monotonic() < until:
            begun = clock.monotonic()
            self.run_batch(**how)
            self.outcome.lags.append((clock.monotonic(), self.audit.lag()))
            following = (math.floor(begun / trigger + 1e-9) + 1) * trigger
            clock.advance_to(max(following, begun + 0.01))
        return self.outcome

    def run_available(self, *, most: int = 10_000) -> Outcome:
        """Run as AvailableNow: batch after batch until there is nothing to plan.

        All that existed must then be read, up to the first record whose arrival time is ahead of the time at which it was stored.
        """
        crash, self._crash = self._crash, 0.0  # a restarted AvailableNow query would stop at a later time
        now = self.service.millis(self.service.clock.monotonic())
        existed = {
            (stream, shard_id): next(
                (n for n in range(self.service.readable(log)) if log.arrivals[n] > now),
                self.service.readable(log),
            )
            for stream, logs in self.service.logs.items()
            for shard_id, log in logs.items()
        }
        self.planner.stop_at_now()
        for _ in range(most):
            if self.run_batch() is None:
                for (stream, shard_id), count in existed.items():
                    read = self.audit.at(stream, self.service.logs[stream][shard_id])
                    assert read >= count or self.end is None, (
                        f"{stream}/{shard_id}: {read} of {count} records were read"
                    )
                self._crash = crash
                return self.outcome
            self.outcome.lags.append((self.service.clock.monotonic(), self.audit.lag()))
        raise AssertionError(f"AvailableNow did not stop after {most} batches")

    def settle(self, seconds: float = 60.0, **how: Any) -> None:
        """Trigger until all was read and nothing new came for some seconds."""
        clock, quiet = self.service.clock, 0
        step = min(max(self.trigger, 1.0), 60.0)
        for _ in range(10_000):
            quiet = quiet + 1 if self.run_batch(**how) is None else 0
            if quiet * step >= seconds and quiet > 10:
                return
            clock.advance(step)
        raise AssertionError("the query never comes to rest")


def _ancestors(logs: dict[str, Log], names: Any) -> set[str]:
    found: set[str] = set()
    todo = [name for name in names if name in logs]
    while todo:
        for parent in logs[todo.pop()].plan.parents:
            name = f"shardId-{parent:012d}"
            if name not in found:
                found.add(name)
                todo.append(name)
    return found
