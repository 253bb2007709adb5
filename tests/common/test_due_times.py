"""Items by the moments at which they are due, against a dict that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.due_times import DueTimes

ITEMS, MOMENTS = st.sampled_from("abc"), st.integers(0, 9)
ACTIONS = st.lists(
    st.tuples(st.just("set"), ITEMS, MOMENTS)
    | st.tuples(st.just("discard"), ITEMS, st.just(0))
    | st.tuples(st.just("take"), st.just(""), MOMENTS),
    max_size=40,
)


@given(ACTIONS)
def test_each_item_has_the_moment_that_was_set_last(actions: list[tuple[str, str, int]]) -> None:
    times: DueTimes[str] = DueTimes()
    expected: dict[str, tuple[int, int]] = {}  # moment, and when it was set
    for number, (action, item, moment) in enumerate(actions):
        if action == "set":
            times.set(item, moment)
            expected[item] = moment, number
        elif action == "discard":
            times.discard(item)
            expected.pop(item, None)
        else:
            first = min(expected, key=lambda name: expected[name], default=None)
            if first is not None and expected[first][0] > moment:
                first = None
            assert times.take(moment) == first
            if first is not None:
                del expected[first]
        assert times.next == min((due for due, _ in expected.values()), default=float("inf"))


def test_replaced_moments_do_not_pile_up() -> None:
    """A shard whose steps are woken by its reads, or an aggregate that fills early, would leave gigabytes a day."""
    times: DueTimes[int] = DueTimes()
    times.set(0, 1.0)  # stays at the head
    for number in range(5_000):
        times.set(1 + number % 2, 3_600.0 + number)
        if number % 3 == 0:
            times.discard(1)
    assert len(times._heap) < 100
    assert times.take(1.0) == 0
    assert times.next > 8_000.0
