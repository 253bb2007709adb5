from __future__ import annotations

from kinesis_sdk.testing.kinesis.throttle import MIB, ReadLimit, TokenBucket, WriteLimit


def test_bucket_starts_full_refills_steadily_and_holds_no_more_than_its_capacity() -> None:
    bucket = TokenBucket(10, now=0)
    assert bucket.take(10, 0)
    assert not bucket.take(1, 0.05)
    assert bucket.take(1, 0.1)
    assert bucket.take(10, 100)
    assert not bucket.take(1, 100)


def test_a_shard_takes_1000_records_a_second() -> None:
    limit = WriteLimit(0)
    assert sum(limit.admit(1, 0) for _ in range(1500)) == 1000
    assert sum(limit.admit(1, 0.5) for _ in range(1500)) == 500


def test_a_shard_takes_one_mebibyte_a_second() -> None:
    limit = WriteLimit(0)
    assert sum(limit.admit(MIB // 4, 0) for _ in range(9)) == 4
    assert not limit.admit(MIB // 4, 0.24)
    assert limit.admit(MIB // 4, 0.25)


def test_a_refused_record_costs_nothing() -> None:
    limit = WriteLimit(0)
    assert limit.admit(MIB - 10, 0)
    assert not limit.admit(11, 0)
    assert limit.admit(10, 0)


def test_a_record_above_the_rate_is_taken_by_an_idle_shard_and_paid_for_afterwards() -> None:
    limit = WriteLimit(0)
    assert limit.admit(10 * MIB, 0)
    assert not limit.admit(1, 9)
    assert limit.admit(1, 9.1)


def test_five_reads_a_second() -> None:
    limit = ReadLimit(0)
    assert sum(limit.admit(0) for _ in range(9)) == 5
    assert limit.admit(0.2)
    assert not limit.admit(0.2)


def test_ten_mebibytes_block_a_shard_for_five_seconds() -> None:
    limit = ReadLimit(0)
    assert limit.admit(0)
    limit.charge(10 * MIB)
    assert not limit.admit(4.999)
    assert limit.admit(5.0)


def test_reads_within_two_mebibytes_are_not_blocked() -> None:
    limit = ReadLimit(0)
    for _ in range(5):
        assert limit.admit(0)
        limit.charge(MIB // 5)
    assert limit.admit(0.2)
