from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.admin.scaling import (
    MergeAt,
    ScalePlan,
    SplitAt,
    UpdateCount,
    is_even,
    plan_scaling,
    uniform_starts,
)
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY

SPACE = MAX_HASH_KEY + 1

layouts = st.one_of(
    st.integers(1, 40).map(uniform_starts),
    st.sets(st.integers(1, MAX_HASH_KEY), max_size=40).map(lambda keys: [0, *sorted(keys)]),
    # Boundaries near those of an equal layout, as halves of halves have them.
    st.tuples(st.integers(1, 40), st.integers(-3, 3)).map(
        lambda pair: [0, *(start + pair[1] for start in uniform_starts(pair[0])[1:])]
    ),
)


def carry_out(starts: list[int], plan: ScalePlan) -> tuple[list[int], int]:
    """Apply a plan as Kinesis would; return the boundaries and the largest number of shards on the way."""
    present, peak = set(starts), len(starts)
    for step in plan.steps:
        if isinstance(step, SplitAt):
            assert 0 < step.hash_key < SPACE
            assert step.hash_key not in present
            present.add(step.hash_key)
        elif isinstance(step, MergeAt):
            assert step.hash_key != 0
            present.remove(step.hash_key)
        else:
            assert len(present) <= 2 * step.target <= 4 * len(present)
            present = set(uniform_starts(step.target))
        peak = max(peak, len(present))
    return sorted(present), peak


def widths(starts: list[int]) -> list[int]:
    return [right - left for left, right in pairwise([*starts, SPACE])]


@given(layouts, st.integers(1, 60))
def test_splits_and_merges_end_in_equal_shards(starts: list[int], target: int) -> None:
    plan = plan_scaling(starts, target, method="split-merge")
    end, peak = carry_out(starts, plan)
    assert len(end) == target
    assert max(widths(end)) - min(widths(end)) <= SPACE // target // 250 + target
    assert peak == plan.peak
    assert is_even(end, target)
    assert plan_scaling(end, target).steps == ()


@given(layouts, st.integers(1, 60))
def test_no_split_or_merge_is_wasted(starts: list[int], target: int) -> None:
    """Each split adds a boundary and each merge removes one, so fewer calls than the difference cannot do."""
    plan = plan_scaling(starts, target, method="split-merge")
    end, _ = carry_out(starts, plan)
    assert len(plan.steps) == len(set(starts) ^ set(end))


@given(layouts, st.integers(1, 60))
def test_a_scaling_that_was_interrupted_continues_with_the_rest(starts: list[int], target: int) -> None:
    plan = plan_scaling(starts, target, method="split-merge")
    present = set(starts)
    for done, step in enumerate(plan.steps, 1):
        assert not isinstance(step, UpdateCount)
        present ^= {step.hash_key}
        rest = plan_scaling(sorted(present), target, method="split-merge")
        assert len(rest.steps) == len(plan.steps) - done


@given(layouts, st.integers(1, 60))
def test_no_shard_on_the_way_is_wider_than_those_before_and_after(starts: list[int], target: int) -> None:
    plan = plan_scaling(starts, target, method="split-merge")
    end, _ = carry_out(starts, plan)
    widest = max(*widths(starts), *widths(end)) if len(starts) + len(end) > 2 else SPACE
    present = set(starts)
    for step in plan.steps:
        assert not isinstance(step, UpdateCount)
        present ^= {step.hash_key}
        assert max(widths(sorted(present))) <= widest


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_update_shard_count_stays_within_half_and_double(current: int, target: int) -> None:
    starts = uniform_starts(current)
    plan = plan_scaling(starts, target, updates_left=100)
    end, _ = carry_out(starts, plan)
    assert is_even(end, target)
    if target not in (current, 1) and any(isinstance(step, UpdateCount) for step in plan.steps):
        assert len(plan.steps) < len(plan_scaling(starts, target, method="split-merge").steps)


@pytest.mark.parametrize(
    ("current", "target", "calls"),
    [(4, 8, [8]), (4, 100, [7, 13, 25, 50, 100]), (100, 4, [64, 32, 16, 8, 4]), (4, 3, [3]), (10, 5, [5])],
)
def test_update_shard_count_is_taken_where_it_saves_calls(
    current: int, target: int, calls: list[int]
) -> None:
    plan = plan_scaling(uniform_starts(current), target)
    assert [step.target for step in plan.steps if isinstance(step, UpdateCount)] == calls
    assert len(calls) == len(plan.steps)


def test_one_split_is_a_split() -> None:
    plan = plan_scaling([0], 2)
    assert plan.steps == (SplitAt(SPACE // 2),)
    assert "no daily limit" in plan.reason


def test_equal_shards_of_the_same_number_need_splits_and_merges() -> None:
    uneven = [0, 1 << 100]
    plan = plan_scaling(uneven, 2)
    assert plan.steps == (SplitAt(SPACE // 2), MergeAt(1 << 100)) or plan.steps == (
        MergeAt(1 << 100),
        SplitAt(SPACE // 2),
    )
    assert "only their ranges differ" in plan.reason


def test_new_shards_are_few_generations_deep() -> None:
    def depth(starts: list[int], target: int) -> int:
        generation = dict.fromkeys(starts, 0)
        for step in plan_scaling(starts, target, method="split-merge").steps:
            keys = sorted(generation)
            if isinstance(step, SplitAt):
                parent = max(key for key in keys if key < step.hash_key)
                generation[parent] += 1
                generation[step.hash_key] = generation[parent]
            elif isinstance(step, MergeAt):
                left = keys[keys.index(step.hash_key) - 1]
                generation[left] = 1 + max(generation[left], generation.pop(step.hash_key))
        return max(generation.values())

    assert depth([0], 64) == 6
    assert depth(uniform_starts(64), 1) == 6
    assert depth(uniform_starts(4), 64) == 4


@pytest.mark.parametrize("target", [0, -1, 100_001, True])
def test_a_target_out_of_range_is_named(target: int) -> None:
    with pytest.raises(ConfigError, match=r"target.*1 to 100,000"):
        plan_scaling([0], target)


def test_a_forced_way_that_cannot_lead_there_is_rejected() -> None:
    with pytest.raises(ConfigError, match="at most 10,000 shards"):
        plan_scaling(uniform_starts(9000), 10_001, method="update-shard-count")
    with pytest.raises(ConfigError, match="called 10 times, and 2 more are possible"):
        plan_scaling([0], 1000, method="update-shard-count", updates_left=2)
    with pytest.raises(ConfigError, match="one of auto"):
        plan_scaling([0], 2, method="magic")  # type: ignore[arg-type]
