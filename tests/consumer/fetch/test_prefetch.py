"""Pace, pauses, the byte budget, and reading ahead: in virtual time, threads replaced by the test."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import PermanentAwsError, TransientAwsError
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import NO_RESPONSE, ResponseHeader
from kinesis_sdk.consumer.fetch import ByteBudget, FetchResult, Prefetcher, ReadRate
from kinesis_sdk.consumer.fetch.prefetch import RECORD_OVERHEAD
from tests.fuzz import how_many

NEVER = float("inf")
MB = 1024 * 1024


def test_the_pace_is_five_reads_and_two_megabytes_a_second():
    pace = ReadRate()
    pace.sent(10.0)
    assert pace.ready_at == pytest.approx(10.2)
    pace.succeeded(10.0, 10 * MB)
    assert pace.ready_at == pytest.approx(15.0)
    pace.sent(11.0)
    assert pace.ready_at == pytest.approx(15.0), "a debt stays"


def test_throttles_slow_the_pace_and_successes_bring_it_back():
    pace = ReadRate()
    for _ in range(10):
        pace.throttled()
    assert pace.interval == 2.0
    for _ in range(100):
        pace.succeeded(0.0, 0)
    assert pace.interval == 0.2


def test_a_budget_serves_who_waits_in_order():
    budget = ByteBudget(100)
    woken = []
    first = budget.reserve("a", 60, lambda: woken.append("a"))
    assert first is not None
    assert budget.reserve("b", 60, lambda: woken.append("b")) is None
    assert budget.reserve("c", 10, lambda: woken.append("c")) is None, "it would fit, but b was first"
    assert budget.is_crowded
    first.release()
    assert woken == ["b"]
    first.release()
    assert budget.used == 0, "released once"
    assert budget.reserve("c", 10, lambda: woken.append("c")) is None
    assert budget.reserve("b", 60, lambda: None) is not None
    assert woken == ["b", "c"]
    assert budget.reserve("c", 10, lambda: None) is not None
    assert (budget.used, budget.is_crowded) == (70, False)


def test_what_is_larger_than_the_budget_goes_alone():
    budget = ByteBudget(100)
    large = budget.reserve("a", 500, lambda: None)
    assert large is not None
    assert budget.reserve("b", 1, lambda: None) is None
    large.resize(20)
    assert budget.reserve("b", 1, lambda: None) is not None
    large.release()
    large.resize(50)
    assert budget.used == 1, "what is released does not come back"


def test_who_leaves_the_queue_lets_the_next_go_on():
    budget = ByteBudget(100)
    woken = []
    held = budget.reserve("a", 60, lambda: None)
    budget.reserve("b", 90, lambda: woken.append("b"))
    budget.reserve("c", 30, lambda: woken.append("c"))
    budget.leave("b")
    assert woken == ["c"]
    assert held is not None


@pytest.mark.fuzz
@settings(max_examples=how_many(unit=50, fuzz=2000))
@given(st.integers(0, 2**32))
def test_a_budget_holds_and_nobody_starves(seed):
    rng = Random(seed)
    budget = ByteBudget(100)
    held, awake, served = [], dict.fromkeys(range(6), True), dict.fromkeys(range(6), 0)

    def wake(who):
        awake[who] = True

    for _ in range(400):
        ready = [who for who in awake if awake[who]]
        if ready and (not held or rng.random() < 0.6):
            who = rng.choice(ready)
            granted = budget.reserve(who, rng.randint(1, 80), lambda who=who: wake(who))
            if granted is None:
                awake[who] = False
            else:
                served[who] += 1
                held.append(granted)
        elif held:
            held.pop(rng.randrange(len(held))).release()
        assert budget.used == sum(one.size for one in held)
        assert budget.used <= 100
        assert held or not budget.is_crowded or any(awake.values()), "somebody can go on"
    assert min(served.values()) > 0


class Inner:
    """A fetcher that plays a script."""

    def __init__(self, *results):
        self.results = list(results)
        self.due = 0.0
        self.calls = 0
        self.closed = False
        self.started_at_millis = 5

    def listen(self, wake):
        self.woken_by = wake

    def expected_bytes(self, now):
        return 1000

    def fetch(self, now):
        self.calls += 1
        self.due = now + 1.0
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def close(self):
        self.closed = True


def got(*sizes, **more):
    records = [KinesisRecord(b"x" * size, "k", "1") for size in sizes]
    return FetchResult(records=records, header=ResponseHeader(millis_behind_latest=0, **more))


class Scene:
    def __init__(self, *results, capacity=10_000):
        self.inner = Inner(*results)
        self.budget = ByteBudget(capacity)
        self.ready = 0
        self.wakes = 0
        self.prefetcher = Prefetcher(self.inner, budget=self.budget, on_ready=self.on_ready)
        self.prefetcher.bind(self.wake)

    def on_ready(self):
        self.ready += 1

    def wake(self):
        self.wakes += 1


def test_two_answers_are_read_ahead_and_count_until_they_are_done():
    scene = Scene(got(10), got(20), got(30))
    ahead = scene.prefetcher
    assert ahead.due == NEVER
    assert ahead.step(0.0) == 1.0
    assert ahead.due == -NEVER
    assert scene.ready == 1
    assert ahead.step(0.5) == 1.0, "not before it is due"
    assert ahead.step(1.0) == 2.0
    assert ahead.step(2.0) == NEVER, "enough"
    assert scene.inner.calls == 2
    assert scene.budget.used == 30 + 2 * RECORD_OVERHEAD
    result = ahead.fetch(2.0)
    assert scene.wakes == 1, "there is room again"
    assert ahead.step(2.0) == 3.0
    assert scene.budget.used == 60 + 3 * RECORD_OVERHEAD, "the one in hand counts"
    result.on_done()
    assert scene.budget.used == 50 + 2 * RECORD_OVERHEAD
    assert ahead.started_at_millis == 5


def test_a_reader_that_has_room_is_not_woken():
    scene = Scene(got(1))
    scene.prefetcher.step(0.0)
    scene.prefetcher.fetch(0.0)
    assert scene.wakes == 0


def test_a_response_without_records_may_be_settled_where_it_was_read():
    error = TransientAwsError("x", operation="GetRecords")
    scene = Scene(got(), got(), got(), got(1), got(), error, got(), got(ended=True))
    ahead, offered, answers = scene.prefetcher, [], [True, False]

    def settle(result):
        offered.append(result)
        return answers.pop(0)

    ahead.settle_quiet = settle
    assert ahead.step(0.0) == 1.0
    assert (ahead.due, scene.ready) == (NEVER, 0), "settled"
    assert ahead.step(1.0) == 2.0
    assert (ahead.due, scene.ready) == (-NEVER, 1), "refused"
    assert ahead.step(2.0) == 3.0, "not while something waits"
    for _ in range(2):
        assert ahead.fetch(2.0).records == []
    ahead.step(3.0)
    ahead.step(4.0)
    assert [len(ahead.fetch(4.0).records) for _ in range(2)] == [1, 0]
    ahead.step(5.0)
    ahead.step(6.0)
    assert ahead.fetch(6.0).records == [], "an error that passed is not told"
    assert ahead.step(7.0) is None
    assert ahead.fetch(7.0).header.ended
    assert len(offered) == 2
    assert scene.budget.used == 1 + RECORD_OVERHEAD, "the record that was taken"


def test_an_error_comes_after_what_was_read_before_it():
    scene = Scene(got(1), TransientAwsError("x", operation="GetRecords"), got(2))
    ahead = scene.prefetcher
    ahead.step(0.0)
    assert ahead.step(1.0) == 2.0, "a passing error does not stop reading"
    assert len(ahead.fetch(1.0).records[0].data) == 1
    with pytest.raises(TransientAwsError):
        ahead.fetch(1.0)
    assert ahead.due == NEVER
    assert ahead.step(2.0) == 3.0
    assert len(ahead.fetch(2.0).records[0].data) == 2
    assert scene.budget.used == 2 * RECORD_OVERHEAD + 3


def test_a_lasting_error_stops_reading_until_it_was_told():
    scene = Scene(PermanentAwsError("x", operation="GetRecords"), got(2))
    ahead = scene.prefetcher
    assert ahead.step(0.0) == NEVER
    assert ahead.step(5.0) == NEVER
    assert scene.inner.calls == 1
    with pytest.raises(PermanentAwsError):
        ahead.fetch(5.0)
    assert scene.wakes == 1
    assert ahead.step(5.0) == 6.0


def test_closing_gives_everything_back_even_while_a_read_hangs():
    scene = Scene(got(10))
    ahead = scene.prefetcher
    seen = []

    def fetch(now):
        ahead.close()
        seen.append(scene.budget.used)
        return got(50)

    scene.inner.fetch = fetch
    assert ahead.step(0.0) is None
    assert seen == [0], "others do not wait for a read that hangs"
    assert scene.budget.used == 0
    assert scene.inner.closed
    assert scene.ready == 0
    assert ahead.step(1.0) is None


def test_without_room_it_waits_to_be_woken():
    scene = Scene(got(10), capacity=1000)
    other = scene.budget.reserve("other", 500, lambda: None)
    assert scene.prefetcher.step(0.0) == NEVER
    assert scene.inner.calls == 0
    other.release()
    assert scene.wakes == 1
    assert scene.prefetcher.step(0.0) == 1.0


def test_who_is_closed_while_it_queues_is_not_left_in_the_queue():
    scene = Scene(got(10), capacity=1000)
    other = scene.budget.reserve("other", 500, lambda: None)
    # Another thread closes it after the step looked whether it is closed, and before it asks the budget.
    scene.inner.expected_bytes = lambda now: scene.prefetcher.close() or 1000
    assert scene.prefetcher.step(0.0) is None
    assert not scene.budget.is_crowded
    other.release()
    assert scene.budget.reserve("next", 500, lambda: None) is not None, "no reader waits before it"


def test_nothing_read_ahead_says_nothing_about_the_lag():
    fetcher = Prefetcher(SimpleNamespace(due=0.0), budget=ByteBudget(100), on_ready=lambda: None)
    assert fetcher.waiting is None
    result = fetcher.fetch(0.0)
    assert (result.records, result.header) == ([], NO_RESPONSE)
