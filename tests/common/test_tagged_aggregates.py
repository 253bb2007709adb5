"""Aggregates with a table of runs: protobuf's bytes, and sizes that are exact after every append."""

from __future__ import annotations

from hashlib import md5

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.aggregate_reader import AGGREGATE_PARTITION_KEY, MAGIC, Aggregate, decode
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.table import TAG_KEY
from tests import fuzz
from tests.common.drawn import DATA, HASHES, KEYS
from tests.common.tagged import identity, runs_in, value_of

from . import reference
from .reference import Item, place

# Item, and the number of its identity, if it has one.
APPENDS = st.lists(
    st.tuples(st.tuples(KEYS | st.just("key"), HASHES, DATA), st.none() | st.integers(1, 3)),
    min_size=1,
    max_size=12,
)


def counts_of(aggregate: Aggregate) -> list[int]:
    ends = [*runs_in(aggregate).starts[1:], aggregate.count]
    return [end - start for start, end in zip(runs_in(aggregate).starts, ends, strict=True)]


def tagged(items: list[Item], value: str) -> bytes:
    message = reference.message(items)
    message.records[0].tags.add(key=TAG_KEY, value=value)
    return reference.seal(message.SerializeToString())


def test_golden_bytes() -> None:
    """Written out by hand: the Record of 1 byte of data has 7 bytes, and 52 more for its tag of 50."""
    aggregate = Aggregate(1000, 10, runs=Runs())
    assert aggregate.try_append("k", None, b"x", hash_partition_key("k"))
    runs_in(aggregate).tag = value_of([1])
    body = bytes.fromhex("0a016b 1a39 0800 1a0178 2232 0a026b31 122c") + runs_in(aggregate).tag.encode()
    assert len(runs_in(aggregate).tag) == 0x2C
    assert aggregate.encode() == MAGIC + body + md5(body, usedforsecurity=False).digest()
    assert aggregate.size == len(aggregate.encode())
    assert aggregate.partition_key == AGGREGATE_PARTITION_KEY
    assert decode(aggregate.encode()) == [("k", None, b"x")]


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(APPENDS, st.booleans())
def test_bytes_are_those_of_protobuf_and_size_is_exact_after_every_append(
    appends: list[tuple[Item, int | None]], seals: bool
) -> None:
    aggregate = Aggregate(2**30, 2**30, runs=Runs())
    assert (aggregate.size, aggregate.count) == (0, 0)
    items: list[Item] = []
    expected: list[int] = []
    before: int | None = None
    for item, number in appends:
        key, explicit, data = item
        if number != (before if before is None else before + 1) or not items:
            expected.append(len(items))
        before = number
        assert aggregate.try_append(
            key, explicit, data, place(item), identity=None if number is None else identity(number)
        )
        items.append(item)
        runs_in(aggregate).tag = value_of(counts_of(aggregate))
        blob = aggregate.encode()
        assert aggregate.size == len(blob)
        assert blob == tagged(items, runs_in(aggregate).tag)
        assert decode(blob) == [(*first, last) for *first, last in items]
        assert aggregate.partition_key == AGGREGATE_PARTITION_KEY
        assert aggregate.payload_size == sum(len(data) for _, _, data in items)
    assert runs_in(aggregate).starts == expected
    if seals:
        aggregate.seal()
        assert aggregate.encode() == blob
        assert aggregate.is_full
        assert aggregate.payloads == [data for _, _, data in items]


def test_the_fast_path_continues_a_run_and_ends_with_an_identity() -> None:
    aggregate = Aggregate(51_200, 1000, runs=Runs())
    place = hash_partition_key("k")
    assert aggregate.try_append("k", None, b"1", place)
    assert aggregate.append_new("l", b"2", hash_partition_key("l"))
    assert aggregate.append_known("k", b"3")
    assert counts_of(aggregate) == [3]
    assert aggregate.try_append("k", None, b"4", place, identity=identity(1))
    assert not aggregate.append_known("k", b"5"), "it would join the run of a repetition"
    assert not aggregate.append_new("m", b"5", hash_partition_key("m"))
    assert aggregate.try_append("k", None, b"5", place, identity=identity(2))
    assert aggregate.try_append("k", None, b"6", place)
    assert counts_of(aggregate) == [3, 2, 1]
    runs_in(aggregate).tag = value_of([3, 2, 1])
    assert aggregate.size == len(aggregate.encode())


@pytest.mark.fuzz
def test_no_run_exceeds_the_limit() -> None:
    for limit in fuzz.share(range(140, 300), unit=54):
        aggregate = Aggregate(limit, 1000, runs=Runs())
        place = hash_partition_key("k")
        assert aggregate.try_append("k", None, b"d" * 60, place)
        refused = 0
        while not refused:
            number = 2 * aggregate.count  # never the next of the record before
            before = (aggregate.size, aggregate.count, list(runs_in(aggregate).starts))
            if not aggregate.try_append("k", None, b"d" * 10, place, identity=identity(number)):
                refused += 1
                assert (aggregate.size, aggregate.count, runs_in(aggregate).starts) == before, limit
        runs_in(aggregate).tag = value_of(counts_of(aggregate))
        assert len(aggregate.encode()) == aggregate.size, limit
        assert aggregate.count == 1 or aggregate.size <= limit


def test_it_is_not_sent_without_its_table() -> None:
    aggregate = Aggregate(1000, 10, runs=Runs())
    with pytest.raises(ValueError, match="empty"):
        aggregate.encode()
    aggregate.try_append("k", None, b"x", hash_partition_key("k"))
    with pytest.raises(ValueError, match="set"):
        aggregate.encode()


def test_a_record_alone_is_sealed_with_its_keys() -> None:
    aggregate = Aggregate(10, 10, runs=Runs())
    assert aggregate.try_append("key", "5", b"larger than the limit", place(("key", "5", b"")))
    assert aggregate.is_full
    aggregate.seal()
    runs_in(aggregate).tag = value_of([1])
    assert decode(aggregate.encode()) == [("key", "5", b"larger than the limit")]
    assert aggregate.explicit_hash_key == "5"
