"""Where a record is delivered of which several copies are stored, and which calls finding it out costs."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.once import copies as module
from kinesis_sdk.common.once.budget import CALL_BYTES
from kinesis_sdk.common.once.copies import CopySearch, first_copy
from kinesis_sdk.common.once.table import NAMED, REPEAT, Run
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import get_records
from tests.common.account import STREAM, Account
from tests.common.once.streams import aggregate

PARENT, LEFT, RIGHT = (f"shardId-00000000000{number}" for number in range(3))


class World(Account):
    def put(
        self, *runs: tuple[int, int, int], incarnation: bytes = b"producer", made_for: str | None = None
    ) -> str:
        """Store an aggregate of runs: first number, count and flags."""
        table = [Run(count, 4, flags, incarnation, self.date, first) for first, count, flags in runs]
        found = self.store(aggregate(table, made_for))
        self.clock.advance(5)
        return found

    def first(self, number: str, sub: int = 0, shard: str = PARENT) -> tuple[str, str, int, bool]:
        self.calls.clear()
        found = first_copy(self, STREAM, shard, number, sub, clock=self.clock, sleep=self.clock.advance)
        assert not found.is_uncertain
        return found.shard_id, found.sequence_number, found.sub_sequence_number, found.is_repetition


@pytest.fixture
def world() -> World:
    return World()


READ = ["get_shard_iterator", "get_records"]


def test_records_that_cannot_be_repetitions_cost_no_further_call(world: World) -> None:
    plain, tagged = world.store(b"plain"), world.put((7, 2, 0), made_for=PARENT)
    assert world.first(plain) == (PARENT, plain, 0, False)
    assert world.calls == READ
    assert world.first(tagged, 1) == (PARENT, tagged, 1, False)
    assert world.calls == READ


@pytest.mark.parametrize("flags", [0, REPEAT], ids=["late", "marked"])
def test_a_repetition_is_delivered_at_its_first_copy(world: World, flags: int) -> None:
    first = world.put((7, 3, 0))
    world.store(b"plain")
    second = world.put((9, 1, flags), (20, 1, flags))
    third = world.put((7, 3, REPEAT))
    assert world.first(second, 0) == (PARENT, first, 2, True)
    assert world.first(second, 1) == (PARENT, second, 1, False)
    assert world.first(third, 1) == (PARENT, first, 1, True)
    assert world.calls == [*READ, "list_shards", *READ]
    assert world.first(first) == (PARENT, first, 0, False)


def test_a_named_record(world: World) -> None:
    first, second = world.put((7, 1, NAMED)), world.put((8, 1, NAMED), (7, 1, NAMED))
    assert world.first(second, 1) == (PARENT, first, 0, True)
    assert world.first(second, 0) == (PARENT, second, 0, False)


def test_a_copy_that_is_not_valid_does_not_count(world: World) -> None:
    """An aggregate for the right half, stored in the left one: readers drop it, so it is no first copy."""
    world.split()
    world.date = int(world.clock.time() * 1000)
    table = [Run(1, 4, 0, b"producer", world.date, 7)]
    misplaced = aggregate(table, RIGHT, [2**127 + 1])
    world.store(misplaced)
    valid, again = world.put((7, 1, REPEAT)), world.put((7, 1, REPEAT))
    assert world.first(valid, shard=LEFT) == (LEFT, valid, 0, False)
    assert world.first(again, shard=LEFT) == (LEFT, valid, 0, True)


def test_a_copy_in_the_parent(world: World) -> None:
    world.put((1, 1, 0))
    first = world.put((7, 2, 0))
    world.split()
    second = world.put((8, 1, REPEAT))
    third = world.put((7, 2, REPEAT), (30, 1, 0))
    assert world.first(second, shard=LEFT) == (PARENT, first, 1, True)
    assert world.first(third, shard=LEFT) == (PARENT, first, 0, True)
    assert world.first(third, 2, shard=LEFT) == (LEFT, third, 2, False)


def test_it_tells_what_it_could_not_read(world: World) -> None:
    world.put((7, 1, 0))
    world.split()
    second = world.put((7, 1, REPEAT))
    world.denied.add("list_shards")
    world.calls.clear()
    found = first_copy(world, STREAM, LEFT, second, clock=world.clock, sleep=world.clock.advance)
    assert (found.sequence_number, found.is_repetition, found.is_uncertain) == (second, False, True)
    assert world.calls.count("list_shards") == 1


def test_a_forged_record_makes_it_read_no_more_than_a_worker_would(world: World, monkeypatch: Any) -> None:
    """A run that claims to be old asks for all that was put since."""
    for _ in range(20):
        world.store(b"x" * 1000)
        world.clock.advance(40)
    last = world.put((7, 1, REPEAT))
    assert world.first(last) == (PARENT, last, 0, False)
    monkeypatch.setattr(module, "MAX_SEARCH_BYTES", 5 * CALL_BYTES)
    monkeypatch.setattr(module, "_PAGE", 1)
    world.calls.clear()
    found = first_copy(world, STREAM, PARENT, last, clock=world.clock, sleep=world.clock.advance)
    assert (found.sequence_number, found.is_repetition, found.is_uncertain) == (last, False, True)
    assert world.calls.count("get_records") <= 6, "three quarters of the budget, and the record itself"


def test_a_long_search_tells_how_far_it_is(world: World, monkeypatch: Any) -> None:
    for _ in range(20):
        world.store(b"x" * 150_000)
    last = world.put((7, 1, REPEAT))
    iterator = world.client.get_shard_iterator(
        StreamName=STREAM, ShardId=PARENT, ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=last
    )["ShardIterator"]
    (record,) = get_records(world.client, iterator, 1).records
    monkeypatch.setattr(module, "_PAGE", 1)
    told: list[str] = []
    CopySearch(
        world,  # type: ignore[arg-type]
        StreamId(STREAM),
        PARENT,
        record,
        clock=world.clock,
        sleep=world.clock.advance,
        report=told.append,
    )
    assert len(told) in {3, 4}, "every five seconds, for 20 responses"
    assert "1 MB" in told[0]


@pytest.mark.parametrize(
    ("hours", "sub", "name"), [(25, 0, "sequence_number"), (0, 1, "sub_sequence_number")]
)
def test_what_is_not_there_is_refused(world: World, hours: int, sub: int, name: str) -> None:
    number = world.put((7, 1, 0))
    world.clock.advance(hours * 3600)
    world.store(b"plain")
    with pytest.raises(ConfigError, match=f"^{name}="):
        first_copy(world, STREAM, PARENT, number, sub, clock=world.clock, sleep=world.clock.advance)


def test_copies_are_bounded_and_cost_few_look_ups(world: World, monkeypatch: Any) -> None:
    first = world.put((7, 1, 0))
    for _ in range(30):
        world.store(aggregate([Run(1, 4, REPEAT, b"producer", world.date, 7)], None))
    last = world.put((7, 1, REPEAT))
    decided: list[int] = []
    judge = module.CopySearch._judge

    def counted(self: Any, copies: Any) -> Any:
        decided.append(len(copies))
        return judge(self, copies)

    monkeypatch.setattr(module.CopySearch, "_judge", counted)
    assert world.first(last) == (PARENT, first, 0, True)
    assert len(decided) <= 7, "31 copies: all of them, and a bisection"
    monkeypatch.setattr(module, "MAX_COPIES", 30)
    with pytest.raises(ConfigError, match="fewer than 30 copies"):
        world.first(last)
