"""A shard that gets more than it takes: how the rate limit adapts, alone and with other producers."""

from __future__ import annotations

import random

import pytest

from kinesis_sdk.producer.records.entry import Entry
from kinesis_sdk.producer.stream.dispatch import Lane
from tests.fuzz import how_many
from tests.producer.hot_shard import AGGREGATES, BYTES, RECORDS, Traffic, run_hot_shard
from tests.producer.support import interpreted, make_entry, rate_of, rated_lane

PUBLISHED = 1 / 1.5
"""The published limit of a shard as a share of the default rate limit of 150 %."""


def sent(limiter: Lane, count: int, now: float, size: int = 100) -> list[Entry]:
    """Kinesis records that pass the limiter at a moment, as far as it lets them pass."""
    for _ in range(count):
        limiter.add(make_entry(size))
    released = list(limiter.release(now))
    limiter.take_all()
    return released


def share_at(limiter: Lane, now: float) -> float:
    rate_of(limiter)._recover(now)
    return rate_of(limiter).share


# ---------------------------------------------------------------- with the service


@pytest.mark.parametrize(
    ("producers", "traffic"),
    [
        pytest.param(1, BYTES, marks=pytest.mark.fuzz_only),
        pytest.param(4, BYTES, marks=pytest.mark.fuzz_only),
        pytest.param(1, AGGREGATES, marks=pytest.mark.fuzz_only),
        (4, AGGREGATES),
    ],
)
def test_an_overloaded_shard_is_used_up_and_rarely_throttles(producers: int, traffic: Traffic) -> None:
    result = run_hot_shard(producers, traffic, overload=1.4, seconds=how_many(unit=12, fuzz=60), settle=15)
    assert result.utilisation >= 0.96
    assert result.thrown_back <= 0.02
    assert result.fairness > 0.75


@pytest.mark.fuzz_only
def test_many_small_records_use_up_the_shard_too() -> None:
    # As long as several cycles of probing: a window of ten seconds says as much about its place in a cycle as about the rate.
    result = run_hot_shard(2, RECORDS, overload=1.3, seconds=60, settle=15)
    assert result.utilisation >= 0.96
    assert result.thrown_back <= 0.02


@interpreted
@pytest.mark.fuzz_only
def test_the_rule_of_the_kpl_wastes_most_calls_in_the_same_simulation() -> None:
    # The comparison is only worth something if the simulation can show the difference.
    assert run_hot_shard(3, BYTES, seconds=5, settle=5, like_kpl=True).thrown_back > 0.25


@pytest.mark.fuzz_only
def test_the_rate_comes_back_after_the_other_producers_have_gone() -> None:
    result = run_hot_shard(4, BYTES, overload=6, seconds=40, settle=60, leaves=30)
    assert result.shares == (1, 0, 0, 0)
    assert result.utilisation > 0.96


@pytest.mark.fuzz_only
def test_a_producer_that_joins_gets_a_share_and_leaves_one() -> None:
    result = run_hot_shard(2, BYTES, seconds=40, settle=40, joins=20)
    assert all(share > 0.25 for share in result.shares)


# ---------------------------------------------------------------- decisions


def test_a_throttle_cuts_the_rate_once_for_everything_that_passed_before_it() -> None:
    limiter = rated_lane(150, 0.0)
    rng = random.Random(1)
    first, second = sent(limiter, 10, 1.0), sent(limiter, 10, 1.01)
    rate_of(limiter).on_throttled(first[:1], 1.1, rng)
    cut = rate_of(limiter).share
    assert 0.9 * PUBLISHED < cut < PUBLISHED, "just below the limit that Kinesis publishes"
    rate_of(limiter).on_throttled(first[1:], 1.11, rng)
    rate_of(limiter).on_throttled(second, 1.2, rng)  # in flight at the same time, and throttled as a whole
    assert share_at(limiter, 1.2) >= cut
    rate_of(limiter).on_throttled(
        [make_entry(100)], 1.3, rng
    )  # an isolated part of an entry never passed the limiter
    assert share_at(limiter, 1.3) >= cut
    rate_of(limiter).on_throttled(sent(limiter, 5, 1.4), 1.5, rng)
    assert share_at(limiter, 1.5) < cut


def test_a_cut_is_as_deep_as_the_share_of_throttled_entries() -> None:
    limiter = rated_lane(150, 0.0)
    rng = random.Random(1)
    rate_of(limiter).on_throttled(sent(limiter, 100, 0.0)[:1], 0.1, rng)
    before = rate_of(limiter).share
    released = sent(limiter, 1_000, 1.0)
    assert len(released) > 500
    rate_of(limiter).on_throttled(released[: len(released) * 3 // 10], 1.1, rng)
    assert rate_of(limiter).share == pytest.approx(before * 0.7, rel=0.05)
    before = share_at(limiter, 2.1)
    rate_of(limiter).on_throttled(sent(limiter, 1_000, 2.1), 2.1, rng)  # all of them
    assert rate_of(limiter).share == pytest.approx(before / 2, rel=0.05), "half at most"


def test_a_single_throttled_entry_right_after_a_cut_is_no_proof_of_overload() -> None:
    limiter = rated_lane(150, 0.0)
    rng = random.Random(1)
    rate_of(limiter).on_throttled(sent(limiter, 20, 0.0, 50_000)[:1], 0.1, rng)
    before = rate_of(limiter).share
    rate_of(limiter).on_throttled(sent(limiter, 1, 0.2, 50_000), 0.3, rng)
    assert rate_of(limiter).share > before * 0.85


def test_nothing_that_was_saved_up_is_sent_after_a_throttle() -> None:
    limiter = rated_lane(150, 0.0)
    throttled = sent(limiter, 1, 0.0)
    # The bucket is full again: 1,000 records could go.
    rate_of(limiter).on_throttled(throttled, 10.0, random.Random(1))
    assert len(sent(limiter, 1_000, 10.0)) == 0
    assert len(sent(limiter, 1_000, 10.1)) <= 100


def test_the_rate_returns_to_a_plateau_below_the_throttled_rate_and_then_rises_faster_and_faster() -> None:
    limiter = rated_lane(150, 0.0)
    rate_of(limiter).on_throttled(sent(limiter, 100, 0.0)[:1], 0.0, random.Random(1))
    cut = rate_of(limiter).share
    shares = [share_at(limiter, now / 10) for now in range(400)]
    assert shares == sorted(shares)
    assert shares[30] - cut > 0.8 * (shares[60] - cut), "most of the way in half of the plateau"
    assert cut < shares[60] < PUBLISHED
    assert shares[75] == pytest.approx(shares[60], rel=0.01)
    assert max(shares[:180]) <= PUBLISHED * 1.02 + 1e-9, "no probing far beyond the published limit"
    assert shares[399] == 1.0, "all of the configured rate, once nothing was throttled for long"


def test_a_shard_that_takes_few_entries_is_probed_less_often() -> None:
    def rise_after(size: int, seconds: float) -> float:
        limiter = rated_lane(150, 0.0)
        rng = random.Random(1)
        rate_of(limiter).on_throttled(sent(limiter, 40, 0.0, size)[:1], 0.0, rng)
        for number in range(20):  # competitors: it has a small part of the shard
            released = sent(limiter, 40, number + 1.0, size)
            rate_of(limiter).on_throttled(released, number + 1.1, rng)
        cut = rate_of(limiter).share
        return share_at(limiter, 20.1 + seconds) / cut

    assert rise_after(100, 14.0) > 2
    assert rise_after(50_000, 14.0) < 2


def test_the_rate_never_goes_to_nothing() -> None:
    limiter = rated_lane(150, 0.0)
    rng = random.Random(1)
    for number in range(40):
        rate_of(limiter).on_throttled(sent(limiter, 100, float(number)), number + 0.5, rng)
    assert rate_of(limiter).share == pytest.approx(0.05 * PUBLISHED), "50 records or 51 KiB per second"
    assert share_at(limiter, 200.0) == 1.0


def test_a_shard_that_never_throttles_gets_the_configured_rate() -> None:
    limiter = rated_lane(150, 0.0)
    assert len(sent(limiter, 2_000, 0.0)) == 1_000
    for second in range(1, 4):
        assert len(sent(limiter, 1_000, second / 2)) == pytest.approx(750, abs=1)
    assert rate_of(limiter).share == 1.0
