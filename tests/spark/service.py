"""Kinesis with its habits, on the fake account in virtual time: what the records, the clock and the calls of the real service do.

A stream is laid out beforehand: `Shard` says when each record is stored, when the shard is born and when it closes. `Service` carries
this out while the clock moves, at no cost until someone looks. A record's payload is its number in its shard, so that a reader can
be checked without a second copy of the data.
"""

from __future__ import annotations

import base64
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from botocore.exceptions import ClientError

from kinesis_sdk.testing import FakeAws, Fault, VirtualClock
from kinesis_sdk.testing.clock import millis
from kinesis_sdk.testing.kinesis.shard import Shard as FakeShard

CALLS_PER_SECOND = 5
"""GetRecords, and GetShardIterator, for each shard."""

GET_RECORDS, GET_SHARD_ITERATOR = "get_records", "get_shard_iterator"


@dataclass
class Shard:
    """What happens to one shard. Times are seconds of virtual time.

    Attributes:
        stored: Times at which its records are stored, rising.
        born: Time of the reshard that opens it.
        closed: Time of the reshard that closes it; None if none does.
        parents: Indices of its parents in the stream.
    """

    stored: Sequence[float]
    born: float = 0.0
    closed: float | None = None
    parents: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How the service differs from an ideal one.

    Attributes:
        disorder: Seconds by which a record's arrival time may differ from the time at which it was stored.
        visible_after: Seconds until a stored record can be read.
        finds_shown_time: Whether AT_TIMESTAMP finds the first record whose arrival time is late enough; otherwise it finds the
            first one that was stored late enough. The two differ if arrival times are out of order.
        other_reads: Reads per second that other applications make of every shard.
        rejected: Probability that a call is rejected although it is within the limits.
        empty_pages: Probability that a read begins a run of pages without records.
        empty_run: Longest run of such pages.
        clock_skew: Seconds by which the service's clock is ahead of the machine's.
        latency: Seconds that a call takes.
    """

    disorder: float = 0.0
    visible_after: float = 0.05
    finds_shown_time: bool = True
    other_reads: int = 0
    rejected: float = 0.0
    empty_pages: float = 0.0
    empty_run: int = 1
    clock_skew: float = 0.0
    latency: float = 0.0


class _ServiceClock:
    """The service's clock: the machine's, plus the skew. `pinned` holds it at a past moment while a reshard is carried out."""

    def __init__(self, machine: VirtualClock, skew: float) -> None:
        self._machine = machine
        self._skew = skew
        self.epoch: float = machine.time() - machine.monotonic() + skew
        self._pinned: float | None = None

    def monotonic(self) -> float:
        return self._machine.monotonic() if self._pinned is None else self._pinned

    def time(self) -> float:
        return self.epoch + self.monotonic()

    @contextmanager
    def pinned(self, at: float) -> Any:
        self._pinned = at
        try:
            yield
        finally:
            self._pinned = None


@dataclass
class Log:
    """A shard of the service: its plan, and what of it has happened.

    Attributes:
        arrivals: Arrival time of each record in epoch milliseconds, as readers see it.
        numbers: Sequence numbers of the records that can be read.
    """

    shard_id: str
    plan: Shard
    arrivals: Sequence[int]
    numbers: list[int] = field(default_factory=list)
    windows: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    empty_left: int = 0


class Service:
    """An account with streams that live by their plans.

    Args:
        streams: Shards by stream name. A shard's index is the number in its id, so parents come before their children.
        habits: How it behaves.
        seed: Seed of everything random.

    Attributes:
        clock: The machine's clock. Nothing else moves time, except for the latency of calls.
        aws: The account.
        logs: State of every shard, by stream and shard id, including those not born yet.
    """

    def __init__(
        self,
        streams: Mapping[str, Sequence[Shard]],
        habits: Habits | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.habits = habits or Habits()
        self.clock = VirtualClock()
        self.lock = threading.RLock()
        self.random = Random(seed)
        self.logs: dict[str, dict[str, Log]] = {}
        self._wall = _ServiceClock(self.clock, self.habits.clock_skew)
        self.aws = FakeAws(clock=self._wall, throttle=False, sleep=self.clock.advance)
        self.kinesis = self.aws.client("kinesis")
        self._events: list[tuple[float, str, tuple[int, ...], list[int]]] = []
        for name, shards in streams.items():
            self._lay_out(name, shards)
        self._events.sort(key=lambda event: (event[0], event[1], event[3]))

    def client(self, *, hurried: bool = False) -> Client:
        """Return a client with counters of its own.

        Args:
            hurried: Whether its calls take no time and pass the limits, as those of executors do here: they read while no
                batch is planned.
        """
        return Client(self, hurried=hurried)

    def millis(self, at: float) -> int:
        """Return a virtual time as epoch milliseconds of the service."""
        return millis(self._wall.epoch + at)

    def seconds(self, at: int) -> float:
        """Return epoch milliseconds of the service as virtual time."""
        return at / 1000 - self._wall.epoch

    def readable(self, log: Log) -> int:
        """Return the number of records of a shard that can be read now."""
        return bisect_right(log.plan.stored, self.clock.monotonic() - self.habits.visible_after)

    def horizon(self, name: str) -> float:
        """Return the virtual time before which the records of a stream are deleted."""
        hours: float = self.aws.kinesis.registry.by_name(name).retention_hours
        return self.clock.monotonic() - hours * 3_600

    def first_at(self, log: Log, at: int) -> int:
        """Return the number of the first record of a shard that a reader which starts at a time in epoch milliseconds has to get."""
        stored = 0
        if not self.habits.finds_shown_time:
            stored = bisect_left([self.millis(moment) for moment in log.plan.stored], at)
        return next((n for n in range(stored, len(log.arrivals)) if log.arrivals[n] >= at), len(log.arrivals))

    # -- carrying out the plan ----------------------------------------------------------------------------------

    def _lay_out(self, name: str, shards: Sequence[Shard]) -> None:
        roots = [shard for shard in shards if not shard.parents]
        self.kinesis.create_stream(StreamName=name, ShardCount=len(roots))
        self.logs[name] = {}
        children: dict[tuple[float, tuple[int, ...]], list[int]] = defaultdict(list)
        for index, shard in enumerate(shards):
            spread = round(self.habits.disorder * 1000)
            shown = [self.millis(at) for at in shard.stored]
            if spread:
                shown = [at + self.random.randint(-spread, spread) for at in shown]
            shard_id = f"shardId-{index:012d}"
            self.logs[name][shard_id] = Log(shard_id, shard, array("q", shown))
            if shard.parents:
                children[shard.born, shard.parents].append(index)
        self._events += [(at, name, parents, new) for (at, parents), new in children.items()]

    def settle(self) -> None:
        """Carry out the reshards that are due."""
        while self._events and self._events[0][0] <= self.clock.monotonic():
            at, name, parents, new = self._events.pop(0)
            with self._wall.pinned(at):
                self._reshard(name, parents, new)

    def _reshard(self, name: str, parents: tuple[int, ...], new: list[int]) -> None:
        listed = {shard["ShardId"]: shard for shard in self.kinesis.list_shards(StreamName=name)["Shards"]}
        names = [f"shardId-{index:012d}" for index in parents]
        if len(names) == 1:
            low, high = (
                int(listed[names[0]]["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending")
            )
            self.kinesis.split_shard(
                StreamName=name, ShardToSplit=names[0], NewStartingHashKey=str((low + high + 1) // 2)
            )
        else:
            self.kinesis.merge_shards(StreamName=name, ShardToMerge=names[0], AdjacentShardToMerge=names[1])
        fake = self.aws.kinesis.registry.by_name(name)
        created = [f"shardId-{index:012d}" for index in new]
        assert list(fake.shards)[-len(new) :] == created, "shards are born in another order than planned"

    def fake_shard(self, name: str, log: Log) -> FakeShard:
        """Return the fake's shard with all records that can be read by now."""
        shard = self.aws.kinesis.registry.by_name(name).shards[log.shard_id]
        plan = log.plan
        first, stop = len(log.numbers), self.readable(log)
        for index in range(first, stop):
            data = b"%d" % index
            stored = self.millis(plan.stored[index])
            log.numbers.append(
                shard.append(
                    base64.b64encode(data).decode(),
                    ',"PartitionKey":"k"',
                    len(data) + 1,
                    stored,
                    stored - log.arrivals[index],
                )
            )
        return shard

    def admit(self, operation: str, log: Log, *, hurried: bool) -> bool:
        """Return whether the limits allow a call now, and count it."""
        if hurried:
            return True
        if self.habits.rejected and self.random.random() < self.habits.rejected:
            return False
        now, window = self.clock.monotonic(), log.windows[operation]
        while window and window[0] <= now - 1:
            window.popleft()
        others = self.habits.other_reads if operation == GET_RECORDS else 0
        if len(window) + others >= CALLS_PER_SECOND:
            return False
        window.append(now)
        return True


class Client:
    """Boto3-shaped client of a service, with counters.

    Attributes:
        made: Virtual times of the calls, by operation, stream and shard id.
        most: What `most_per_second` was before the counters were set to 0.
        rejected: Number of rejected calls by operation.
    """

    def __init__(self, service: Service, *, hurried: bool) -> None:
        self._service = service
        self._hurried = hurried
        self.meta = service.kinesis.meta
        self.made: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self.most: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()

    # -- counters -----------------------------------------------------------------------------------------------

    def count(self, operation: str) -> int:
        """Return the number of calls of an operation."""
        return sum(len(times) for (made, *_), times in self.made.items() if made == operation)

    def most_per_second(self, operation: str) -> int:
        """Return the largest number of calls of one shard that one process made within a second."""
        most = self.most[operation]
        for (made, _, _), times in self.made.items():
            if made == operation:
                # The calls of one thread are in order; those of several are not. Calls are counted when they arrive, which is
                # their latency after the client has decided to make them.
                ordered = sorted(times)
                most = max(
                    most,
                    *(i + 1 - bisect_right(ordered, at - 0.95) for i, at in enumerate(ordered)),
                )
        return most

    def forget(self) -> None:
        """Set the counters to 0: another process makes the following calls."""
        for operation in (GET_RECORDS, GET_SHARD_ITERATOR):
            self.most[operation] = self.most_per_second(operation)
        self.made.clear()
        self.rejected.clear()

    # -- operations ---------------------------------------------------------------------------------------------

    def __getattr__(self, method: str) -> Callable[..., dict[str, Any]]:
        operation = getattr(self._service.kinesis, method)

        def call(**request: Any) -> dict[str, Any]:
            self._wait()
            with self._service.lock:
                self._service.settle()
                self.made[method, str(request.get("StreamName")), ""].append(self._service.clock.monotonic())
                answer: dict[str, Any] = operation(**request)
                return answer

        return call

    def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        self._wait()
        service = self._service
        name = request.get("StreamName") or str(request["StreamARN"]).split("/")[-1]
        with service.lock:
            service.settle()
            log = service.logs[name].get(request["ShardId"])
            # A shard whose records have expired is gone.
            if log is None or log.shard_id not in service.aws.kinesis.registry.by_name(name).shards:
                answer: dict[str, Any] = service.kinesis.get_shard_iterator(**request)
                return answer
            self._count(GET_SHARD_ITERATOR, name, log)
            service.fake_shard(name, log)
            moment = request.get("Timestamp")
            if moment is not None and service.habits.finds_shown_time and service.habits.disorder:
                at = round(moment.timestamp() * 1000)
                index = _first_shown(log, at, round(service.habits.disorder * 1000), service)
                if index < len(log.numbers) and at <= millis(service._wall.time()):
                    request.pop("Timestamp")
                    request["ShardIteratorType"] = "AT_SEQUENCE_NUMBER"
                    request["StartingSequenceNumber"] = str(log.numbers[index])
            answer = service.kinesis.get_shard_iterator(**request)
            return answer

    def get_records(self, **request: Any) -> dict[str, Any]:
        self._wait()
        service = self._service
        place = service.aws.kinesis.records.position_of(request["ShardIterator"])
        with service.lock:
            service.settle()
            if place is None or place[1] not in service.aws.kinesis.registry.by_name(place[0]).shards:
                answer: dict[str, Any] = service.kinesis.get_records(**request)
                return answer
            name, shard_id = place
            log = service.logs[name][shard_id]
            self._count(GET_RECORDS, name, log)
            shard = service.fake_shard(name, log)
            request.pop("StreamARN", None)
            fault = None
            habits = service.habits
            if habits.empty_pages and not log.empty_left and service.random.random() < habits.empty_pages:
                log.empty_left = service.random.randint(1, habits.empty_run)
            if log.empty_left and not self._hurried:
                log.empty_left -= 1
                fault = service.aws.faults.add(Fault(kind="empty_read"))
            # A shard that has just closed has not ended for its readers before its last records can be read.
            stream = service.aws.kinesis.registry.by_name(name)
            closed_at, closed = shard.closed_at, stream._closed
            if len(log.numbers) < len(log.plan.stored):
                # The stream must not look at the closing times now: it deletes shards that closed long ago.
                shard.closed_at, stream._closed = None, deque()
            try:
                answer = service.kinesis.get_records(**request)
            finally:
                shard.closed_at, stream._closed = closed_at, closed
                if fault is not None:
                    service.aws.faults.remove(fault)
            return answer

    # -- what a call costs --------------------------------------------------------------------------------------

    def _wait(self) -> None:
        if self._service.habits.latency and not self._hurried:
            self._service.clock.advance(self._service.habits.latency)

    def _count(self, operation: str, name: str, log: Log) -> None:
        self.made[operation, name, log.shard_id].append(self._service.clock.monotonic())
        if not self._service.admit(operation, log, hurried=self._hurried):
            self.rejected[operation] += 1
            answer: Any = {
                "Error": {
                    "Code": "ProvisionedThroughputExceededException",
                    "Message": f"Rate exceeded for shard {log.shard_id} in stream {name}.",
                },
                "ResponseMetadata": {"HTTPStatusCode": 400},
            }
            raise ClientError(answer, "".join(part.capitalize() for part in operation.split("_")))


def _first_shown(log: Log, at: int, spread: int, service: Service) -> int:
    """Return the index of the first record, in the order of the shard, whose arrival time is `at` or later."""
    index = bisect_left(log.plan.stored, service.seconds(at - spread) - 0.002)
    while index < len(log.arrivals) and log.arrivals[index] < at:
        index += 1
    return index


# -- traffic ------------------------------------------------------------------------------------------------------


def poisson(rng: Random, rate: float, begin: float, end: float) -> list[float]:
    """Return the times of records that come at random, `rate` of them a second."""
    times: list[float] = []
    at = begin
    while rate > 0:
        at += rng.expovariate(rate)
        if at >= end:
            break
        times.append(at)
    return times


def steady(rate: float, begin: float, end: float) -> list[float]:
    """Return the times of records that come at a fixed interval."""
    return [begin + number / rate for number in range(int((end - begin) * rate))]


def resharded(rng: Random, roots: int, times: Iterable[float], rate: float, end: float) -> list[Shard]:
    """Return the shards of a stream that is resharded: at each time a shard is split, or two neighbours are merged.

    Args:
        rng: Source of the choices.
        roots: Shards at the start.
        times: Times of the reshards.
        rate: Records per second and shard.
        end: Time of the last records.
    """
    shards = [Shard([]) for _ in range(roots)]
    row = list(range(roots))
    for at in sorted(times):
        if len(row) > 1 and rng.random() < 0.4:
            place = rng.randrange(len(row) - 1)
            parents, width = (row[place], row[place + 1]), 1
        else:
            place = rng.randrange(len(row))
            parents, width = (row[place],), 2
        for parent in parents:
            shards[parent].closed = at
        new = [len(shards) + number for number in range(width)]
        shards += [Shard([], born=at, parents=parents) for _ in new]
        row[place : place + len(parents)] = new
    for shard in shards:
        shard.stored = poisson(rng, rate, shard.born, end if shard.closed is None else shard.closed)
    return shards
