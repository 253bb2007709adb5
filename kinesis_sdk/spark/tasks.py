"""Division of a batch into tasks by pure functions, whose result does not depend on the order of the ranges.

Ranges that are connected by parents form a *family*. One task reads a whole family, because it must read a child after its parents.
There are no other constraints: each family is assigned to the task with the fewest expected records, the largest family first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_sdk.spark.reading import ShardRange

DEFAULT_MAX_TASKS = 64
"""Maximum number of tasks if neither the user nor the session sets it."""

MAX_TASKS = 10_000
"""Largest number of tasks that can be requested."""


def group(
    ranges: Sequence[ShardRange], *, max_tasks: int, shards_per_task: int | None
) -> list[tuple[ShardRange, ...]]:
    """Divide the ranges of a batch among tasks; in each task, parents precede their children.

    If there are at least as many tasks as families, each family has its own task. Otherwise families with the same
    expected number of records and adjacent shard ids go to different tasks, because the children of a hot shard have
    adjacent ids. The task with the most expected records is first, so that Spark starts it first. No task is empty.

    If ``shards_per_task`` (at least 1) is set, it limits the ranges per task, except for a larger family, and
    ``max_tasks`` is not used.

    Raises:
        ValueError: If a maximum is below 1, or if ranges are parents of each other.
    """
    if max_tasks < 1:
        raise ValueError(f"max_tasks must be at least 1, not {max_tasks}")
    if shards_per_task is not None and shards_per_task < 1:
        raise ValueError(f"shards_per_task must be at least 1 or None, not {shards_per_task}")
    weighed = [(sum(_weight(item) for item in family), family) for family in _families(ranges)]
    weighed.sort(
        key=lambda entry: -entry[0]
    )  # stable: families of equal weight stay in the order of shard ids
    if shards_per_task is None:
        tasks = _spread(weighed, min(max_tasks, len(weighed)), len(ranges))
    else:
        tasks = _spread(weighed, -(-len(ranges) // shards_per_task), shards_per_task)
    tasks.sort(key=lambda task: -sum(map(_weight, task)))
    return [tuple(task) for task in tasks]


def _weight(item: ShardRange) -> int:
    return max(1, item.weight or 1)


def _families(ranges: Sequence[ShardRange]) -> list[list[ShardRange]]:
    """Return the families in the order of their first streams and shard ids, each with parents before children."""
    items = sorted(ranges, key=lambda item: (str(item.stream), item.shard_id))
    numbers = {(item.stream, item.shard_id): number for number, item in enumerate(items)}
    order: TopologicalSorter[int] = TopologicalSorter()
    root = list(range(len(items)))  # union-find: a range of the same family with a smaller number, or itself

    def find(number: int) -> int:
        while root[number] != number:
            root[number] = number = root[root[number]]
        return number

    for number, item in enumerate(items):
        order.add(number)
        for parent in item.parents:
            other = numbers.get((item.stream, parent))
            if other is not None:
                order.add(number, other)
                one, two = find(number), find(other)
                root[max(one, two)] = min(one, two)
    families: dict[int, list[ShardRange]] = {
        number: [] for number in range(len(items)) if root[number] == number
    }
    for number in order.static_order():
        families[find(number)].append(items[number])
    return list(families.values())


def _spread(
    weighed: Sequence[tuple[int, list[ShardRange]]], count: int, capacity: int
) -> list[list[ShardRange]]:
    """Put each family into the lightest task that has room for it, or into a new task if none has room."""
    tasks: list[list[ShardRange]] = [[] for _ in range(count)]
    # Weight, number of ranges and index of each task that is not full. The index makes the choice unique.
    open_tasks = [(0, 0, index) for index in range(count)]
    for weight, family in weighed:
        skipped: list[tuple[int, int, int]] = []
        chosen = None
        while open_tasks and chosen is None:
            task = heapq.heappop(open_tasks)
            if (
                task[1] == 0 or task[1] + len(family) <= capacity
            ):  # a family that is too large has a task of its own
                chosen = task
            else:
                skipped.append(task)
        if chosen is None:
            chosen = (0, 0, len(tasks))
            tasks.append([])
        load, size, index = chosen
        tasks[index] += family
        if size + len(family) < capacity:
            heapq.heappush(open_tasks, (load + weight, size + len(family), index))
        for task in skipped:
            heapq.heappush(open_tasks, task)
    return [task for task in tasks if task]
