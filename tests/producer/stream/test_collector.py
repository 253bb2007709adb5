"""Requests: never over the limits, in order, everything exactly once, in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.producer.stream.collector import Collector
from tests.producer.support import make_entry

NEVER = float("inf")


def test_due_by_deadline_by_count_and_by_size() -> None:
    by_deadline = Collector(500, 10**6)
    by_deadline.add(make_entry(), 2.0)
    by_deadline.add(make_entry(), 1.0)
    assert by_deadline.next_deadline == 1.0
    assert not by_deadline.is_due(0.999)
    assert by_deadline.is_due(1.0)
    by_count = Collector(2, 10**6)
    by_count.add(make_entry(), NEVER)
    assert not by_count.is_due(0.0)
    by_count.add(make_entry(), NEVER)
    assert by_count.is_due(0.0)
    by_size = Collector(500, 100)
    by_size.add(make_entry(99), NEVER)
    assert not by_size.is_due(0.0)
    by_size.add(make_entry(2), NEVER)
    assert by_size.is_due(0.0)


def test_take_where_keeps_order_and_sizes() -> None:
    collector = Collector(500, 25)
    entries = [make_entry(10, deadline=float(n)) for n in range(6)]
    for entry in entries:
        collector.add(entry, entry.deadline)
    assert collector.take_where(lambda entry: entry.deadline % 2 == 0) == entries[::2]
    assert collector.take().entries == [entries[1], entries[3]]
    assert collector.next_deadline == 5.0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(2, 300), st.floats(0, 10), st.floats(0, 10)),
            st.tuples(st.just("take"), st.just(0), st.just(0.0), st.just(0.0)),
            st.tuples(st.just("expire"), st.just(0), st.floats(0, 10), st.just(0.0)),
            st.tuples(st.just("expedite"), st.just(0), st.just(0.0), st.just(0.0)),
        ),
        max_size=80,
    ),
    st.integers(1, 7),
    st.integers(20, 400),
)
def test_any_use_keeps_limits_order_and_every_entry(
    steps: list[tuple[str, int, float, float]], max_count: int, max_size: int
) -> None:
    collector = Collector(max_count, max_size)
    order = []
    out = []
    inside: dict[int, float] = {}
    for step, size, first, second in steps:
        if step == "add":
            entry = make_entry(size, deadline=first, expires=second)
            order.append(entry)
            inside[id(entry)] = first
            collector.add(entry, first)
        elif step == "take" and len(collector):
            batch = collector.take().entries
            assert 1 <= len(batch) <= max_count
            assert len(batch) == 1 or sum(entry.size for entry in batch) <= max_size
            positions = [order.index(entry) for entry in batch]
            assert positions == sorted(positions)
            out.extend(batch)
            for entry in batch:
                del inside[id(entry)]
        elif step == "expire":
            for entry in collector.take_expired(first):
                assert entry.expires <= first
                out.append(entry)
                del inside[id(entry)]
            assert collector.next_expiry > first
        elif step == "expedite":
            collector.expedite()
            inside = dict.fromkeys(inside, -NEVER)
        assert len(collector) == len(inside)
        assert collector.next_deadline == min(inside.values(), default=NEVER)
    while len(collector):
        out.extend(collector.take().entries)
    assert sorted(map(id, out)) == sorted(map(id, order)), "everything exactly once"
