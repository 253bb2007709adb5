"""Token buckets and the queue behind them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.stream.limiter import TokenBuckets
from tests.producer.support import make_entry, rated_lane

MIB = 1024 * 1024
ENDLESS = (1e12, 1e12)


def test_the_vectors_of_the_kpl() -> None:
    # token_bucket_test.cc: max 200, rate 1000
    bucket = TokenBuckets(ENDLESS, (200, 1000), 0.0)
    assert bucket.ready_in(200, 0.0) == 0
    bucket.take(200)
    assert bucket.ready_in(110, 0.1) > 0
    assert bucket.ready_in(90, 0.1) == 0
    bucket.take(90)
    assert bucket.ready_in(11, 0.1) == pytest.approx(0.001)


def test_the_kpl_refuses_201_of_200_and_we_take_them_as_a_debt() -> None:
    bucket = TokenBuckets(ENDLESS, (200, 1000), 0.0)
    bucket.take(1)
    assert bucket.ready_in(201, 0.0) > 0, "not before it is full"
    assert bucket.ready_in(201, 0.001) == 0
    bucket.take(201)
    assert bucket.ready_in(1, 0.001) == pytest.approx(0.002), "the debt is paid first"


def test_a_bucket_does_not_overflow_and_time_does_not_go_back() -> None:
    bucket = TokenBuckets(ENDLESS, (200, 1000), 10.0)
    bucket.take(200)
    assert bucket.ready_in(1, 5.0) == pytest.approx(0.001)
    assert bucket.ready_in(200, 1_000.0) == 0
    bucket.take(200)
    assert bucket.ready_in(1, 1_000.0) > 0


def test_both_buckets_count() -> None:
    records = rated_lane(100, 0.0)
    for _ in range(1_001):
        records.add(make_entry(10))
    assert len(list(records.release(0.0))) == 1_000
    assert records.next_event(0.0) == pytest.approx(0.001)
    assert len(list(records.release(0.001))) == 1
    size = rated_lane(100, 0.0)
    for _ in range(5):
        size.add(make_entry(MIB // 4))
    assert len(list(size.release(0.0))) == 4
    assert size.next_event(0.0) == pytest.approx(0.25)
    assert len(list(size.release(0.25))) == 1


def test_earliest_deadline_first_and_the_head_stops_the_rest() -> None:
    limiter = rated_lane(100, 0.0)
    limiter.add(make_entry(MIB))  # empties the bucket
    assert len(list(limiter.release(0.0))) == 1
    late, big, middle = (
        make_entry(10, deadline=9.0),
        make_entry(MIB // 2, deadline=1.0),
        make_entry(10, deadline=5.0),
    )
    for entry in (late, big, middle):
        limiter.add(entry)
    assert list(limiter.release(0.4)) == [], "small ones do not overtake the one that is due first"
    assert list(limiter.release(0.6)) == [big, middle, late]


def test_equal_deadlines_leave_in_the_order_of_arrival() -> None:
    limiter = rated_lane(100, 0.0)
    entries = [make_entry(10, deadline=1.0) for _ in range(20)]
    for entry in entries:
        limiter.add(entry)
    assert list(limiter.release(0.0)) == entries


def test_an_oversize_record_passes_a_full_bucket_and_others_wait_for_its_debt() -> None:
    limiter = rated_lane(100, 0.0)
    giant = make_entry(10 * MIB, deadline=0.0)
    small = make_entry(10, deadline=1.0)
    limiter.add(giant)
    limiter.add(small)
    assert list(limiter.release(0.0)) == [giant]
    assert limiter.next_event(0.0) == pytest.approx(9.0, abs=0.01)
    assert list(limiter.release(8.9)) == []
    assert list(limiter.release(9.1)) == [small]


def test_expired_entries_leave_first_whatever_the_bucket_says() -> None:
    limiter = rated_lane(100, 0.0)
    limiter.add(make_entry(10 * MIB))
    list(limiter.release(0.0))
    dying, living = make_entry(10, expires=2.0), make_entry(10, expires=60.0)
    limiter.add(living)
    limiter.add(dying)
    assert limiter.next_event(0.0) == 2.0
    assert limiter.take_expired(1.999) == []
    assert limiter.take_expired(2.0) == [dying]
    assert len(limiter) == 1
    assert limiter.take_expired(59.0) == []
    assert limiter.take_all() == [living]
    assert limiter.next_event(59.0) is None


def test_expedite_marks_what_waits() -> None:
    limiter = rated_lane(100, 0.0)
    waiting, later = make_entry(10), make_entry(10)
    limiter.add(waiting)
    limiter.expedite()
    limiter.add(later)
    assert waiting.urgent
    assert not later.urgent


def test_the_rate_is_a_per_cent_of_the_services() -> None:
    limiter = rated_lane(50, 0.0)
    for _ in range(1_500):
        limiter.add(make_entry(10))
    assert len(list(limiter.release(0.0))) == 1_000
    assert len(list(limiter.release(1.0))) == 500


def test_a_wait_is_never_so_short_that_the_clock_does_not_move() -> None:
    now = 1e6  # a machine that has been up for eleven days
    bucket = TokenBuckets(ENDLESS, (1_000, 100_000), now)
    bucket.take(1_000)
    bucket._bytes = 1 - 2e-9  # what rounding leaves
    wait = bucket.ready_in(1, now)
    assert wait > 0
    assert now + wait > now
    assert bucket.ready_in(1, now + wait) == 0


@given(
    entries=st.lists(
        st.tuples(st.floats(0, 5), st.integers(2, 3 * MIB), st.floats(0, 5), st.floats(0.1, 60)), max_size=40
    ),
    rate_limit=st.integers(1, 10_000),
    start=st.sampled_from([0.0, 12.5, 1e5, 1e7]),
)
def test_a_drain_never_exceeds_capacity_plus_rate_and_never_spins(
    entries: list[tuple[float, int, float, float]], rate_limit: int, start: float
) -> None:
    limiter = rated_lane(rate_limit, start)
    rate = rate_limit / 100 * MIB
    arrivals = sorted(
        ((start + at, size, start + at + wait, start + at + life) for at, size, wait, life in entries),
        reverse=True,
    )
    now, taken, left = start, 0, 0
    largest = 0
    released: list[Entry] = []
    for _ in range(10 * len(entries) + 10):
        while arrivals and arrivals[-1][0] <= now:
            _, size, deadline, expires = arrivals.pop()
            limiter.add(make_entry(size, deadline=deadline, expires=expires))
        expired = limiter.take_expired(now)
        assert all(entry.expires <= now for entry in expired)
        left += len(expired)
        for entry in limiter.release(now):
            released.append(entry)
            assert entry.expires > now
            # Before it was taken the bucket had it, or was full: the excess over the line is a single debt.
            line = MIB + rate * (now - start) + 1
            assert taken <= line
            taken += entry.size
            largest = max(largest, entry.size)
            assert taken <= max(line, MIB + rate * (now - start) + max(0, largest - MIB) + 1)
        event = limiter.next_event(now)
        upcoming = min(math.inf if event is None else event, arrivals[-1][0] if arrivals else math.inf)
        if upcoming == math.inf:
            break
        assert upcoming > now, "asks to be called now, but has nothing to do"
        now = upcoming
    assert len(limiter) == 0
    assert len(released) + left == len(entries)
