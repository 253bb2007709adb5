"""Writing: byte for byte the KPL's, and its size known beforehand."""

from __future__ import annotations

import gc
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common import aggregate_writer
from kinesis_sdk.common.aggregate_reader import AGGREGATE_PARTITION_KEY, OVERHEAD, Aggregate, decode
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, explicit_hash_key_to_bytes, hash_partition_key
from tests import fuzz
from tests.common.drawn import DATA, HASHES, KEYS

from . import reference
from .reference import Item, append, filled, place

ITEMS = st.lists(st.tuples(KEYS, HASHES, DATA), min_size=1, max_size=30)


def subs(items: list[Item]) -> list[tuple[str | None, str | None, bytes]]:
    return [(key, explicit, data) for key, explicit, data in items]


# Written out by hand from aggregation-format.md; the digests are md5sum's of the bytes between. In the first:
# partition_key_table "a" and "b"; a Record with index 0 (which is written) and "x"; one with index 1 and "yz".
# In the second: an explicit_hash_key_table with "5" that only the first Record points to.
GOLDEN: list[tuple[str, list[Item], str]] = [
    (
        "two keys",
        [("a", None, b"x"), ("b", None, b"yz")],
        "f3899ac2 0a0161 0a0162 1a0508001a0178 1a0608011a02797a 6fe1bc1407aabc41e3e0c88f3f668baf",
    ),
    (
        "explicit hash key beside none, equal partition key, empty data",
        [("a", "5", b"x"), ("a", None, b"")],
        "f3899ac2 0a0161 120135 1a07080010001a0178 1a0408001a00 30e052adae4a79842277d11546b6ba1b",
    ),
]


@pytest.mark.parametrize(("items", "blob"), [case[1:] for case in GOLDEN], ids=[case[0] for case in GOLDEN])
def test_golden_vectors(items: list[Item], blob: str) -> None:
    assert filled(items).encode() == bytes.fromhex(blob)
    assert reference.encode(items) == bytes.fromhex(blob)
    assert decode(bytes.fromhex(blob)) == subs(items)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(ITEMS)
def test_bytes_are_those_of_protobuf_and_size_is_exact_after_every_append(items: list[Item]) -> None:
    aggregate = Aggregate(2**30, 2**30)
    assert (aggregate.size, aggregate.count) == (0, 0)
    for done, item in enumerate(items, 1):
        assert append(aggregate, item)
        blob = aggregate.encode()
        assert aggregate.count == done
        assert aggregate.size == len(blob)
        assert blob == reference.encode(items[:done])


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(ITEMS, st.integers(0, 40_000), st.integers(1, 12))
def test_limits_hold_and_a_rejected_append_changes_nothing(
    items: list[Item], max_size: int, max_count: int
) -> None:
    aggregate = Aggregate(max_size, max_count)
    inside: list[Item] = []
    for item in items:
        before = inside and (
            aggregate.encode(),
            aggregate.size,
            aggregate.count,
            aggregate.partition_key,
            aggregate.hash_key,
        )
        if append(aggregate, item):
            inside.append(item)
        else:
            assert before == (
                aggregate.encode(),
                aggregate.size,
                aggregate.count,
                aggregate.partition_key,
                aggregate.hash_key,
            )
            # Refused for a reason only: with it, a limit would be broken.
            assert len(inside) == max_count or len(reference.encode([*inside, item])) > max_size
        assert aggregate.count <= max_count
        assert aggregate.count == 1 or aggregate.size <= max_size
    # Rejected records left no trace in the tables either.
    assert aggregate.encode() == reference.encode(inside)


@pytest.mark.parametrize(("border", "explicit"), [*product([127, 128, 129], [False, True]), (16_384, True)])
def test_table_indexes_across_varint_borders(border: int, explicit: bool) -> None:
    hash_keys = iter(range(10**30, 10**30 + border + 1))
    items = [(f"k{number}", str(next(hash_keys)) if explicit else None, b"") for number in range(border + 1)]
    aggregate = filled(items)
    blob = aggregate.encode()
    assert aggregate.size == len(blob)
    expected = reference.AggregatedRecord()
    expected.partition_key_table.extend(key for key, _hash, _data in items)
    if explicit:
        expected.explicit_hash_key_table.extend(text for _key, text, _data in items if text)
    for index in range(border + 1):
        record = expected.records.add(partition_key_index=index, data=b"")
        if explicit:
            record.explicit_hash_key_index = index
    assert blob == reference.seal(expected.SerializeToString())
    assert decode(blob) == subs(items)


def test_data_sizes_across_varint_borders() -> None:
    sizes = [*range(118, 132), *range(16_372, 16_390), *range(2_097_138, 2_097_154)]
    for size in sizes:
        items: list[Item] = [("k", None, b""), ("k", "7", bytes(size)), ("k", None, bytes(size))]
        aggregate = filled(items)
        blob = aggregate.encode()
        assert aggregate.size == len(blob) == len(reference.message(items).SerializeToString()) + OVERHEAD


def test_size_limit_is_exact_to_the_byte() -> None:
    items: list[Item] = [("a", None, b"12345"), ("b", "77", b"67890")]
    need = len(reference.encode(items))
    for max_size, fits in [(need - 1, False), (need, True)]:
        aggregate = Aggregate(max_size, 10)
        assert append(aggregate, items[0])
        assert append(aggregate, items[1]) is fits


def test_a_single_record_is_not_wrapped_and_keeps_its_key_even_beyond_the_limit() -> None:
    item: Item = ("order-7", None, b"payload" * 100)
    aggregate = Aggregate(10, 10)
    assert append(aggregate, item)
    assert aggregate.encode() == item[2]
    assert aggregate.size == 700
    assert aggregate.partition_key == "order-7"
    assert aggregate.hash_key == place(item)
    assert not append(aggregate, ("order-7", None, b""))
    assert aggregate.partition_key == "order-7"


def test_entry_of_several_records_is_placed_by_the_first() -> None:
    aggregate = filled([("abcd", None, b"1"), ("z", "9", b"2")])
    assert aggregate.partition_key == AGGREGATE_PARTITION_KEY == "a"
    assert aggregate.hash_key.hex().upper() == "E2FC714C4727EE9395F324CD2E7F331F"
    assert aggregate.explicit_hash_key == str(0xE2FC714C4727EE9395F324CD2E7F331F)
    assert filled([("z", "9", b"2"), ("abcd", None, b"1")]).explicit_hash_key == "9"


def test_empty_aggregate_has_no_encoding() -> None:
    with pytest.raises(ValueError, match="empty"):
        Aggregate(100, 100).encode()
    assert not append(Aggregate(100, 0), ("a", None, b""))


def test_a_key_that_has_no_utf8_form_raises_and_changes_nothing() -> None:
    aggregate = filled([("a", None, b"1"), ("b", None, b"2")])
    before = aggregate.encode()
    with pytest.raises(UnicodeEncodeError):
        aggregate.try_append("\ud800", None, b"3", bytes(16))
    assert (aggregate.encode(), aggregate.count, aggregate.size) == (before, 2, len(before))


def test_prefix_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate_writer, "_PREFIX_CACHE_SIZE", 4)
    monkeypatch.setattr(aggregate_writer, "_prefixes", {})
    items: list[Item] = [("k", None, bytes(size % 11)) for size in range(40)]
    sizes = []
    aggregate = Aggregate(2**20, 100)
    for item in items:
        append(aggregate, item)
        sizes.append(len(aggregate_writer._prefixes))
    assert max(sizes) == 4
    assert any(after < before for before, after in pairwise(sizes))
    assert aggregate.encode() == reference.encode(items)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([None, None, "0", "7", str(MAX_HASH_KEY)])))
)
def test_bounds_of_the_hash_keys_inside(pairs: list[tuple[str, str | None]]) -> None:
    # A key may come first with an explicit hash key and later without one: then its own hash counts, too.
    items: list[Item] = [(key, explicit, b"x") for key, explicit in pairs]
    aggregate = Aggregate(2**20, 100)
    for number, item in enumerate(items, 1):
        taken = append(aggregate, item)
        assert taken == (number <= 100)
        hashes = sorted(place(other) for other in items[: min(number, 100)])
        assert (aggregate.lowest, aggregate.highest) == (hashes[0], hashes[-1])


def test_a_rejected_record_does_not_move_the_bounds() -> None:
    for max_size, max_count in ((60, 100), (2**20, 2)):
        aggregate = Aggregate(max_size, max_count)
        assert append(aggregate, ("k", "5", b"x"))
        assert append(aggregate, ("k", "6", b"x"))
        before = (aggregate.lowest, aggregate.highest, aggregate.encode(), aggregate.payload_size)
        for rejected in (("k", "4", bytes(60)), ("l", "7", bytes(60)), ("k", None, bytes(60))):
            assert not append(aggregate, rejected)
        assert before == (aggregate.lowest, aggregate.highest, aggregate.encode(), 2)


def test_the_short_way_takes_what_is_known_and_leaves_room() -> None:
    aggregate = Aggregate(2**20, 4)
    assert not aggregate.append_known("k", b"1"), "a new key"
    assert append(aggregate, ("k", None, b"1"))
    assert not aggregate.append_known("k", b"2"), "the second record"
    assert append(aggregate, ("k", None, b"2"))
    assert aggregate.append_known("k", b"3")
    assert not aggregate.append_known("k", b"4"), "it would be the last"
    assert append(aggregate, ("k", None, b"4"))
    assert aggregate.is_full
    assert aggregate.count == 4
    aggregate = Aggregate(100, 10)
    two: list[Item] = [("k", None, b"1"), ("k", None, b"2")]
    assert all(append(aggregate, item) for item in two)
    room = 100 - filled([*two, ("k", None, b"")]).size
    assert not aggregate.append_known("k", bytes(room)), "it would fill it"
    assert aggregate.append_known("k", bytes(room - 1))
    assert not aggregate.is_full
    placed = filled([("k", "7", b"1")])
    assert not placed.append_known("k", b"2"), "where its key belongs is not looked at"


def test_an_aggregate_of_one_record_has_one_collection() -> None:
    held = gc.get_referents(filled([("k", None, b"1")]))
    assert [type(value) for value in held if isinstance(value, (list, dict)) and value] == [list]


def test_the_second_record_has_the_keys_listed() -> None:
    aggregate = filled([("k", None, b"1")])
    assert aggregate.append_new("k", b"2", hash_partition_key("k")), "the second record may have the same key"
    assert aggregate.encode() == reference.encode([("k", None, b"1"), ("k", None, b"2")])
    sealed = filled([("k", None, b"1"), ("l", None, b"2")])
    sealed.seal()
    before = sealed.encode()
    assert not sealed.append_new("m", b"3", hash_partition_key("m"))
    assert sealed.encode() == before


def test_more_keys_than_prefixes_are_remembered_for() -> None:
    count = (1 << aggregate_writer._INDEX_BITS) + 3
    # The first that are not remembered are a byte shorter than the first of all: packed, their pairs would be the same.
    items: list[Item] = [(f"k{number}", None, bytes(2 - number % 3)) for number in range(count)]
    items += items[:2] + items[-2:]
    assert filled(items).encode() == reference.encode(items)


def test_the_fast_paths_leave_keys_alone_whose_prefixes_are_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregate_writer, "_INDEX_BITS", 2)
    monkeypatch.setattr(aggregate_writer, "_prefixes", {})
    items: list[Item] = [(f"k{number % 6}", None, bytes(2 - number % 3)) for number in range(20)]
    aggregate = Aggregate(2**20, 10_000)
    for key, _, data in items:
        place = hash_partition_key(key)
        _ = (
            aggregate.append_known(key, data)
            or aggregate.append_new(key, data, place)
            or aggregate.try_append(key, None, data, place)
        )
    assert aggregate.encode() == reference.encode(items)


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("explicit", [None, "5"])
def test_a_sealed_aggregate_is_what_it_was_and_takes_no_more(count: int, explicit: str | None) -> None:
    items: list[Item] = [(f"key-{number % 7}", explicit, b"%d" % number) for number in range(count)]
    aggregate = filled(items)
    before = (aggregate.encode(), aggregate.size, aggregate.payload_size, aggregate.partition_key)
    aggregate.seal()
    assert (aggregate.encode(), aggregate.size, aggregate.payload_size, aggregate.partition_key) == before
    assert aggregate.payload_size == sum(len(data) for _, _, data in items)
    for key, hash_key, data in (items[0], ("new", None, b"x")):
        assert not append(aggregate, (key, hash_key, data))
    assert aggregate.encode() == before[0]


@given(
    records=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 60)), min_size=1, max_size=40
    ),
    max_size=st.integers(64, 2_000),
    max_count=st.integers(1, 30),
)
def test_the_fast_paths_write_what_try_append_writes(
    records: list[tuple[str, bool, int]], max_size: int, max_count: int
) -> None:
    plain, fast = Aggregate(max_size, max_count), Aggregate(max_size, max_count)
    for key, explicit, length in records:
        data = bytes(length)
        hash_key = explicit_hash_key_to_bytes("7") if explicit else hash_partition_key(key)
        text = "7" if explicit else None
        before = (fast.size, fast.count, fast.lowest, fast.highest)
        taken = not explicit and (fast.append_known(key, data) or fast.append_new(key, data, hash_key))
        if taken:
            assert not fast.is_full, "what fills an aggregate is for try_append, whose caller closes it"
        else:
            assert (fast.size, fast.count, fast.lowest, fast.highest) == before
            taken = fast.try_append(key, text, data, hash_key)
        assert plain.try_append(key, text, data, hash_key) == taken
        assert fast.encode() == plain.encode()
        assert (fast.size, fast.lowest, fast.highest) == (plain.size, plain.lowest, plain.highest)
        assert len(fast.encode()) == fast.size
