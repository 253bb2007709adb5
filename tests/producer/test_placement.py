"""Verdicts: the KPL's retrier cases, with the KCL's rule for aggregates (all or nothing)."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.hashkeys import MAX_HASH_KEY
from kinesis_sdk.producer.placement import Placement, check_placement
from tests.producer.support import make_entry, shard_map

S0, S1, S2, S5 = (f"shardId-{n:012d}" for n in (0, 1, 2, 5))


def test_wrong_shard_but_correct_hash_range() -> None:
    # retrier_test.cc: hash keys 0, 1, 5, 10, predicted elsewhere, landed in 0-10
    entry = make_entry(shard_id=S2, hash_keys=(0, 1, 5, 10))
    assert check_placement(entry, S1, shard_map((1, 0, 10))) is Placement.STORED


@pytest.mark.parametrize("hash_keys", [(0, 1, 11), (3, 11), (3, 2), (3, 10, 4, 2)])
def test_wrong_shard_and_wrong_hash_range(hash_keys: tuple[int, ...]) -> None:
    # The KPL judges user record by user record; a KCL drops all of them for one that lies outside.
    entry = make_entry(shard_id=S2, hash_keys=hash_keys)
    assert check_placement(entry, S1, shard_map((0, 0, 2), (1, 3, 10))) is Placement.WRONG_SHARD


@pytest.mark.parametrize("hash_keys", [(3, 10), (3, 4, 5), (10, 10)])
def test_both_ends_of_a_range_belong_to_it(hash_keys: tuple[int, ...]) -> None:
    entry = make_entry(shard_id=S1, hash_keys=hash_keys)
    assert check_placement(entry, S1, shard_map((0, 0, 2), (1, 3, 10))) is Placement.STORED


def test_even_the_predicted_shard_is_checked() -> None:
    # A stream that was deleted and made anew has the same shard ids with other ranges.
    entry = make_entry(shard_id=S1, hash_keys=(3, 11))
    assert check_placement(entry, S1, shard_map((0, 0, 2), (1, 3, 10))) is Placement.WRONG_SHARD


def test_a_single_record_is_stored_wherever_it_landed() -> None:
    assert (
        check_placement(make_entry(shard_id=S1, hash_keys=(11,)), S5, shard_map((1, 0, 10)))
        is Placement.STORED
    )
    assert (
        check_placement(make_entry(shard_id=None, hash_keys=(11,)), S5, None, service_places=True)
        is Placement.STORED
    )


def test_a_group_of_one_hash_key_is_right_wherever_it_landed() -> None:
    assert check_placement(make_entry(shard_id=None, hash_keys=(7, 7)), S5, None) is Placement.STORED


def test_unless_the_service_places_by_itself() -> None:
    entry = make_entry(shard_id=None, hash_keys=(7, 7))
    ranges = shard_map((0, 0, 6), (1, 7, MAX_HASH_KEY))
    assert check_placement(entry, S1, ranges, service_places=True) is Placement.STORED
    assert check_placement(entry, S0, ranges, service_places=True) is Placement.WRONG_SHARD
    assert check_placement(entry, S0, None, service_places=True) is Placement.UNKNOWN_SHARD


def test_an_unknown_shard_needs_a_new_map() -> None:
    entry = make_entry(shard_id=S1, hash_keys=(3, 4))
    assert check_placement(entry, S5, shard_map((0, 0, 2), (1, 3, 10))) is Placement.UNKNOWN_SHARD
    assert check_placement(entry, S1, None) is Placement.UNKNOWN_SHARD


def test_a_closed_parent_of_the_map_before_is_known() -> None:
    old = shard_map((1, 0, MAX_HASH_KEY), loaded_at=1.0)
    new = shard_map((2, 0, 5), (3, 6, MAX_HASH_KEY), loaded_at=2.0, previous=old)
    assert check_placement(make_entry(shard_id=S1, hash_keys=(3, 9)), S1, new) is Placement.STORED
    assert check_placement(make_entry(shard_id=S1, hash_keys=(3, 9)), S2, new) is Placement.WRONG_SHARD
    assert check_placement(make_entry(shard_id=S1, hash_keys=(3, 4)), S2, new) is Placement.STORED
