from __future__ import annotations

import random

from kinesis_sdk.producer.limiter import ShardLimiter
from tests.producer.hot_shard import run_hot_shard


def test_producers_on_one_hot_shard_share_it_and_are_rarely_refused() -> None:
    result = run_hot_shard(3, offered=1_500, seconds=8, settle=8)
    assert result.stored_per_second > 950, "the shard is used up"
    assert result.wasted < 0.05
    assert result.fairness > 0.9


def test_the_rule_of_the_kpl_wastes_most_calls_in_the_same_simulation() -> None:
    # The comparison is only worth something if the simulation can show the difference.
    assert run_hot_shard(3, offered=1_500, seconds=3, settle=3, like_kpl=True).wasted > 0.25


def test_a_throttle_cuts_the_rate_once_for_all_requests_that_were_on_their_way() -> None:
    limiter = ShardLimiter(100, 0.0)
    rng = random.Random(1)
    for _ in range(20):
        limiter.on_throttled(0.9, 1.0, rng)
    assert 0.6 <= limiter.share <= 0.8
    before = limiter.share
    limiter.on_throttled(1.1, 1.2, rng)
    assert limiter.share < before


def test_the_rate_comes_back_and_never_goes_to_nothing() -> None:
    limiter = ShardLimiter(100, 0.0)
    rng = random.Random(1)
    for number in range(100):
        limiter.on_throttled(float(number), number + 0.5, rng)
    assert limiter.share >= 0.01
    limiter._recover(100.0 + 20.0)
    assert limiter.share == 1.0
