"""All logs that a producer can leave in a stream, and which records it may have acknowledged for each of them.

A period is the hold-off: what is repeated in a later period is repeated after its hold-off. Requests are sent alone or as an
aggregate, refused, stored at once or long after the producer gave up, answered, or their answer is lost; the stream is resharded
and the producer reads the shard map at any moment between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.once_model.layout import Plan


class Copy(NamedTuple):
    """A user record as it stands in a Kinesis record.

    Attributes:
        record: Its number.
        name: What the producer calls it; with the date the identity that readers compare.
        date: Period of its first sending that may have been stored.
        marked: Whether an earlier attempt may be stored.
    """

    record: int
    name: int
    date: int
    marked: bool


class Stored(NamedTuple):
    """A Kinesis record in a shard: its user records and the period in which it arrived."""

    copies: tuple[Copy, ...]
    arrived: int


Log = tuple[tuple[Stored, ...], ...]
"""Kinesis records of each shard of the plan."""


class Wanted(NamedTuple):
    """A record as the producer knows it.

    Attributes:
        status: ``waiting``, ``sent``, ``acknowledged`` or ``failed``.
        attempts: Number of attempts so far.
        held: Whether an attempt may be stored.
        date: Date of the identity that it keeps while it is held.
        name: Name that it keeps while it is held.
    """

    status: Literal["waiting", "sent", "acknowledged", "failed"]
    attempts: int
    held: bool
    date: int
    name: int


class Request(NamedTuple):
    """A request that can still have an effect: ``sent``, ``abandoned`` (may still be stored), ``stored``, ``doubled``."""

    status: Literal["sent", "abandoned", "stored", "doubled"]
    copies: tuple[Copy, ...]
    shard: str


class World(NamedTuple):
    """A state of stream and producer."""

    phase: int
    map_of: int
    period: int
    log: Log
    requests: tuple[Request, ...]
    records: tuple[Wanted, ...]


@dataclass(frozen=True)
class ProducerRules:
    """Rules of a producer; the defaults are those of the specification.

    Attributes:
        holds_off: Whether it waits for the next period before it repeats what may be stored.
        keeps_name: Whether a repetition keeps the identity of the first attempt.
        unknown_shard_is_void: Whether an answer that names a shard whose range is not known counts as not stored.
        singles_are_judged: Whether an aggregate of one is acknowledged only in the right shard.
        clock_ahead: Periods by which its clock is ahead of the service's.
        proxy_repeats: Whether something between producer and service may repeat a request at once.
    """

    holds_off: bool = True
    keeps_name: bool = True
    unknown_shard_is_void: bool = False
    singles_are_judged: bool = True
    clock_ahead: int = 0
    proxy_repeats: bool = False


@dataclass(frozen=True)
class Size:
    """Size of a search: number of records, of attempts for each, and of periods."""

    records: int
    attempts: int
    periods: int


class _Producing:
    """Yields the successors of a state."""

    def __init__(self, plan: Plan, size: Size, rules: ProducerRules) -> None:
        self._plan, self._size, self._rules = plan, size, rules

    def after(self, world: World) -> Iterator[World]:
        if world.phase + 1 < len(self._plan.phases):
            yield world._replace(phase=world.phase + 1)
        if world.map_of < world.phase:
            yield world._replace(map_of=world.map_of + 1)
        if world.period + 1 < self._size.periods:
            yield world._replace(period=world.period + 1)
        yield from self._sendings(world)
        for index, request in enumerate(world.requests):
            others = world.requests[:index] + world.requests[index + 1 :]
            yield from self._fates(world._replace(requests=others), request)

    def _may_send(self, world: World, record: Wanted) -> bool:
        if record.status != "waiting" or record.attempts == self._size.attempts:
            return False
        # The hold-off is counted from the sending, whatever the clock says: the date is ahead, the wait is not longer.
        sent = record.date - self._rules.clock_ahead
        return not (record.held and self._rules.holds_off) or world.period > sent

    def _sendings(self, world: World) -> Iterator[World]:
        by_shard: dict[str, list[int]] = defaultdict(list)
        for number, record in enumerate(world.records):
            if self._may_send(world, record):
                by_shard[self._plan.owner(world.map_of, number)].append(number)
        for numbers in by_shard.values():
            for chosen in {tuple(numbers), *((number,) for number in numbers)}:
                yield self._sent(world, chosen)

    def _sent(self, world: World, chosen: tuple[int, ...]) -> World:
        records = list(world.records)
        copies: list[Copy] = []
        for number in chosen:
            record = records[number]
            date = record.date if record.held else world.period + self._rules.clock_ahead
            keeps = self._rules.keeps_name or not record.attempts
            name = record.name if keeps else number + 10 * record.attempts
            records[number] = Wanted("sent", record.attempts + 1, record.held, date, name)
            copies.append(Copy(number, name, date, record.held))
        return _with(world._replace(records=tuple(records)), Request("sent", tuple(copies), ""))

    def _fates(self, world: World, request: Request) -> Iterator[World]:
        status, rules = request.status, self._rules
        if status in {"sent", "abandoned"}:
            for shard in self._destinations(world, request):
                stored = self._stored(world, request, shard)
                yield (
                    stored
                    if status == "abandoned"
                    else _with(stored, request._replace(status="stored", shard=shard))
                )
        if status == "sent":
            yield self._void(world, request)  # throttled: certainly not stored
            yield _with(self._unknown(world, request), request._replace(status="abandoned"))
        if status in {"stored", "doubled"}:
            yield self._unknown(world, request)  # the answer is lost
            if self._plan.opened_in[request.shard] > world.map_of:
                unknown = self._void if rules.unknown_shard_is_void else self._unknown
                yield unknown(world, request)  # no map with this shard can be loaded
            elif self._counts(request):
                yield self._acknowledged(world, request)
            else:
                yield self._void(world, request)
        if status == "stored" and rules.proxy_repeats:
            for shard in self._destinations(world, request):
                yield _with(self._stored(world, request, shard), request._replace(status="doubled"))

    def _destinations(self, world: World, request: Request) -> Iterator[str]:
        if self._plan.places_records:
            yield from self._plan.phases[world.phase]
        else:
            yield self._plan.owner(world.phase, request.copies[0].record)

    def _stored(self, world: World, request: Request, shard: str) -> World:
        index = self._plan.shards.index(shard)
        grown = (*world.log[index], Stored(request.copies, world.period))
        return world._replace(log=(*world.log[:index], grown, *world.log[index + 1 :]))

    def _counts(self, request: Request) -> bool:
        is_single = len(request.copies) == 1
        if is_single and not self._rules.singles_are_judged:
            return True
        return self._plan.is_valid(request.shard, [copy.record for copy in request.copies])

    def _acknowledged(self, world: World, request: Request) -> World:
        records = list(world.records)
        for copy in request.copies:
            records[copy.record] = Wanted("acknowledged", 0, held=False, date=0, name=0)
        return world._replace(records=tuple(records))

    def _void(self, world: World, request: Request) -> World:
        return self._again(world, request, stored=False)

    def _unknown(self, world: World, request: Request) -> World:
        return self._again(world, request, stored=True)

    def _again(self, world: World, request: Request, *, stored: bool) -> World:
        records = list(world.records)
        for copy in request.copies:
            attempts = records[copy.record].attempts
            held = copy.marked or stored
            if attempts == self._size.attempts:
                records[copy.record] = Wanted("failed", 0, held=False, date=0, name=0)
            else:
                records[copy.record] = Wanted("waiting", attempts, held, copy.date if held else 0, copy.name)
        return world._replace(records=tuple(records))


def _with(world: World, request: Request) -> World:
    return world._replace(requests=tuple(sorted((*world.requests, request))))


def explore(plan: Plan, size: Size, rules: ProducerRules) -> tuple[Mapping[Log, frozenset[int]], int]:
    """Return all logs that can be reached, each with the records that may be acknowledged for it, and the number of states."""
    records = tuple(Wanted("waiting", 0, held=False, date=0, name=number) for number in range(size.records))
    start = World(0, 0, 0, tuple(() for _ in plan.shards), (), records)
    producing = _Producing(plan, size, rules)
    seen, open_states = {start}, [start]
    logs: dict[Log, set[int]] = defaultdict(set)
    while open_states:
        world = open_states.pop()
        logs[world.log].update(
            number for number, record in enumerate(world.records) if record.status == "acknowledged"
        )
        for following in producing.after(world):
            if following not in seen:
                seen.add(following)
                open_states.append(following)
    return {log: frozenset(acknowledged) for log, acknowledged in logs.items()}, len(seen)
