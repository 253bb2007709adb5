from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.position import Ended, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.reading import ShardRange
from kinesis_sdk.spark.tasks import group
from tests import fuzz
from tests.common.once.steps import steps_of

ORDERS, FLIGHTS = StreamId("orders"), StreamId("flights")


def shard(
    number: int, *parents: int, weight: int = 1, stream: StreamId = ORDERS, **fields: Any
) -> ShardRange:
    return ShardRange(
        stream,
        f"shardId-{number:012d}",
        TrimHorizon(),
        Ended(),
        parents=tuple(f"shardId-{parent:012d}" for parent in parents),
        weight=weight,
        **fields,
    )


def ids(tasks: Sequence[Sequence[ShardRange]]) -> list[list[int]]:
    return [[int(item.shard_id[8:]) for item in task] for task in tasks]


@st.composite
def batches(draw: st.DrawFn) -> list[ShardRange]:
    """Ranges of two streams; a shard's parents have smaller numbers, as after splits and merges, then shuffled."""
    items = []
    for stream in (ORDERS, FLIGHTS):
        for number in range(draw(st.integers(0, 14))):
            parents = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
            weight = draw(st.sampled_from([0, 1, 1, 1, 5, 100]))
            items.append(shard(number, *parents, weight=weight, stream=stream))
    return draw(st.permutations(items))


def families(ranges: Sequence[ShardRange]) -> list[set[tuple[StreamId, str]]]:
    found: list[set[tuple[StreamId, str]]] = []
    for item in ranges:
        linked = {(item.stream, name) for name in (item.shard_id, *item.parents)}
        for family in [family for family in found if family & linked]:
            found.remove(family)
            linked |= family
        found.append(linked)
    return found


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=40, fuzz=1_000))
@given(batches(), st.integers(1, 8), st.none() | st.integers(1, 6), st.randoms())
def test_what_holds_for_every_batch(
    ranges: list[ShardRange], max_tasks: int, shards_per_task: int | None, random: Random
) -> None:
    tasks = group(ranges, max_tasks=max_tasks, shards_per_task=shards_per_task)
    key = {item: (item.stream, item.shard_id) for item in ranges}
    assert sorted(str(key[item]) for task in tasks for item in task) == sorted(map(str, key.values()))
    assert all(tasks)
    for task in tasks:
        place = {key[item]: at for at, item in enumerate(task)}
        for item in task:  # a KeyError would be a family in two tasks
            assert all(place[item.stream, parent] < place[key[item]] for parent in item.parents)
    expected = families(ranges)
    if shards_per_task is None:
        assert len(tasks) == min(max_tasks, len(expected))
    else:
        for task in tasks:
            members = {key[item] for item in task}
            assert len(task) <= shards_per_task or members in expected
    shuffled = random.sample(ranges, len(ranges))
    assert group(shuffled, max_tasks=max_tasks, shards_per_task=shards_per_task) == tasks


def test_a_parent_that_is_not_in_the_batch_connects_nothing() -> None:
    assert ids(group([shard(1, 0), shard(2, 0)], max_tasks=9, shards_per_task=None)) == [[1], [2]]


def test_adjacent_shards_of_equal_weight_are_in_different_tasks() -> None:
    ranges = [shard(number) for number in range(100)]
    for task in ids(group(ranges, max_tasks=7, shards_per_task=None)):
        assert min(b - a for a, b in zip(sorted(task), sorted(task)[1:], strict=False)) > 1


def test_the_children_of_a_hot_shard_are_apart() -> None:
    ranges = [shard(n, weight=1000 if n in {10, 11} else 10) for n in range(12)]
    tasks = ids(group(ranges, max_tasks=4, shards_per_task=None))
    assert [task for task in tasks if 10 in task or 11 in task] == [[10], [11]]


def test_tasks_are_balanced_by_weight_and_the_heaviest_is_first() -> None:
    rng = Random(4)
    ranges = [shard(number, weight=rng.randrange(1, 1000)) for number in range(300)]
    tasks = group(ranges, max_tasks=16, shards_per_task=None)
    loads = [sum(item.weight or 1 for item in task) for task in tasks]
    assert loads == sorted(loads, reverse=True)
    assert max(loads) < 1.02 * sum(loads) / 16


def test_shards_per_task_is_a_maximum_for_all_but_larger_families() -> None:
    ranges = [shard(number) for number in range(10)]
    assert [len(task) for task in group(ranges, max_tasks=1, shards_per_task=1)] == [
        1
    ] * 10  # not limited by max_tasks
    assert sorted(len(task) for task in group(ranges, max_tasks=64, shards_per_task=4)) == [3, 3, 4]
    assert len(group(ranges, max_tasks=64, shards_per_task=100)) == 1
    chain = [shard(0), shard(1, 0), shard(2, 1), shard(3)]
    assert ids(group(chain, max_tasks=64, shards_per_task=2)) == [[0, 1, 2], [3]]
    # Two families of two and two of one fill tasks of three only if those of two are apart.
    mixed = [shard(0), shard(1, 0), shard(2), shard(3, 2), shard(4), shard(5)]
    assert ids(group(mixed, max_tasks=64, shards_per_task=3)) == [[0, 1, 4], [2, 3, 5]]


@pytest.mark.parametrize(("max_tasks", "shards_per_task"), [(0, None), (64, 0)])
def test_maximums_below_one_are_rejected(max_tasks: int, shards_per_task: int | None) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        group([shard(0)], max_tasks=max_tasks, shards_per_task=shards_per_task)


def test_shards_that_are_parents_of_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="cycle"):
        group([shard(0, 1), shard(1, 0)], max_tasks=2, shards_per_task=None)


@pytest.mark.parametrize("shards_per_task", [None, 3])
def test_the_steps_for_each_range_hardly_grow_with_their_number(shards_per_task: int | None) -> None:
    def steps(count: int) -> int:
        rng = Random(1)
        ranges = [shard(0)] + [
            shard(n, *([n - 1] if n % 5 else []), weight=rng.randrange(1, 50)) for n in range(1, count)
        ]
        return steps_of(
            lambda: group(ranges, max_tasks=64, shards_per_task=shards_per_task), below="kinesis_sdk/spark"
        )

    assert 0 < steps(400) < 5 * steps(100)
