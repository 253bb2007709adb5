"""A batch of user records is as good as a list of them."""

from __future__ import annotations

import pickle
import sys
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.user_records import (
    USER_RECORD_OVERHEAD,
    AggregatedRun,
    PlainRun,
    RecordRun,
    UserRecords,
    part_of,
    payload_bytes,
)
from tests import fuzz

ARRIVAL = datetime(2026, 1, 2, tzinfo=timezone.utc)

ROWS = st.lists(st.tuples(st.binary(max_size=4), st.sampled_from("ab"), st.none() | st.just("7")), max_size=4)


def carrier(data: bytes, key: str, number: int) -> KinesisRecord:
    return KinesisRecord(data, key, str(number), ARRIVAL, "KMS")


def build(
    shape: list[tuple[bool, list[tuple[bytes, str, str | None]]]],
) -> tuple[UserRecords, list[UserRecord]]:
    """Runs of aggregated or plain records, and what they stand for, made one by one."""
    runs: list[RecordRun] = []
    expected: list[UserRecord] = []
    for number, (aggregated, rows) in enumerate(shape):
        if aggregated:
            hashes = [row[2] for row in rows]
            given_hashes = hashes if any(hashes) else None
            runs.append(
                AggregatedRun(
                    carrier(b"blob", "a", number),
                    [row[0] for row in rows],
                    [row[1] for row in rows],
                    given_hashes,
                )
            )
            expected += [
                UserRecord(data, key, str(number), ARRIVAL, "KMS", index, hash_key, True)
                for index, (data, key, hash_key) in enumerate(rows)
            ]
        else:
            runs.append(PlainRun([carrier(data, key, number) for data, key, _ in rows]))
            expected += [
                UserRecord(data, key, str(number), ARRIVAL, "KMS", 0, None, False) for data, key, _ in rows
            ]
    return UserRecords(runs), expected


@pytest.mark.parametrize("size", [1, 2_047, 2_048, 2_049, 5_000])
def test_sub_sequence_numbers_of_large_aggregates(size: int) -> None:
    run = AggregatedRun(carrier(b"", "a", 1), [b""] * size, ["k"] * size, None)
    records = list(run)
    assert [record.sub_sequence_number for record in records] == list(range(size))
    assert records[-1] == run.at(size - 1)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=25, fuzz=1_000))
@given(st.lists(st.tuples(st.booleans(), ROWS), max_size=5), st.data())
def test_it_behaves_as_a_list_does(
    shape: list[tuple[bool, list[tuple[bytes, str, str | None]]]], data: st.DataObject
) -> None:
    records, expected = build(shape)
    size = len(expected)
    assert len(records) == size
    assert bool(records) is bool(expected)
    assert list(records) == list(records) == expected
    assert all(type(record) is UserRecord for record in records)
    assert records == expected
    assert expected == records
    assert records == build(shape)[0]
    assert f"{size} user records, {payload_bytes(expected)} bytes" in repr(records)
    assert list(reversed(records)) == expected[::-1]
    assert [records[index] for index in range(-size, size)] == expected + expected
    assert all(type(records[index]) is UserRecord for index in range(size))
    for beyond in (size, -size - 1):
        with pytest.raises(IndexError):
            records[beyond]
    part = data.draw(st.slices(size))
    assert records[part] == expected[part]
    assert payload_bytes(records) == payload_bytes(expected) == sum(len(record.data) for record in expected)
    for record in expected:
        assert record in records
        assert records.index(record) == expected.index(record)
        assert records.count(record) == expected.count(record)


def test_it_differs_from_everything_else() -> None:
    records, expected = build([(True, [(b"x", "a", None), (b"y", "b", "7")])])
    assert records != expected[:1]
    assert records != [expected[0], expected[0]]
    assert records != UserRecords()
    assert records != tuple(expected)
    assert records != "xy"
    assert UserRecords() == []
    with pytest.raises(TypeError):
        hash(records)


def test_it_cannot_be_changed() -> None:
    records, expected = build([(True, [(b"x", "a", None)])])
    with pytest.raises(TypeError):
        records[0] = expected[0]  # type: ignore[index]
    with pytest.raises(AttributeError):
        records.append(expected[0])  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        records[0].data = b"y"  # type: ignore[misc]


def test_readers_do_not_disturb_each_other() -> None:
    records, expected = build([(True, [(b"x", "a", None), (b"y", "b", None)]), (False, [(b"z", "c", None)])])
    pairs = [(one, other) for one in records for other in records]
    assert pairs == [(one, other) for one in expected for other in expected]


def test_it_crosses_processes_as_a_list() -> None:
    records, expected = build([(True, [(b"x", "a", None)]), (False, [(b"z", "c", None)])])
    again = pickle.loads(pickle.dumps(records))
    assert type(again) is list
    assert again == expected


def test_the_data_of_an_aggregate_is_not_kept() -> None:
    blob = bytes(1000)
    before = sys.getrefcount(blob)
    run = AggregatedRun(carrier(blob, "a", 1), [b"x"], ["k"], None)
    assert sys.getrefcount(blob) == before
    assert len(run) == 1


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(
    st.lists(st.tuples(st.booleans(), ROWS.filter(bool)), max_size=4),
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))),
)
def test_records_are_left_out_by_position(
    shape: list[tuple[bool, list[tuple[bytes, str, str | None]]]], chosen: set[tuple[int, int]]
) -> None:
    records, expected = build(shape)
    chosen = {
        (number, sub)
        for number, sub in chosen
        if number < len(shape) and shape[number][0] and sub < len(shape[number][1])
    }
    dropped: dict[str, list[tuple[int, int]]] = {}
    for number, sub in sorted(chosen):
        dropped.setdefault(str(number), []).append((sub, sub))
    rest = [one for one in expected if (int(one.sequence_number), one.sub_sequence_number) not in chosen]
    left = records.without(dropped)
    assert left == rest
    assert list(left) == rest
    assert [left[index] for index in range(len(rest))] == rest
    assert list(left.payloads) == [one.data for one in rest]


def test_what_is_left_of_an_aggregate_keeps_its_keys() -> None:
    run = AggregatedRun(carrier(b"", "a", 1), [b"0", b"1", b"2"], ["k0", "k1", "k2"], [None, "1", "2"])
    (part,) = run.without([(0, 0)])
    assert [(record.data, record.partition_key, record.explicit_hash_key) for record in part] == [
        (b"1", "k1", "1"),
        (b"2", "k2", "2"),
    ]
    assert [part.at(index) for index in range(2)] == list(part)


def test_explicit_hash_keys_count_for_the_memory_of_a_batch() -> None:
    with_keys = AggregatedRun(carrier(b"", "a", 1), [b"x"] * 10, ["k"] * 10, ["1"] * 10)
    without = AggregatedRun(carrier(b"", "a", 1), [b"x"] * 10, ["k"] * 10, None)
    assert (with_keys.overhead, without.overhead) == (20 * USER_RECORD_OVERHEAD, 10 * USER_RECORD_OVERHEAD)


def test_a_whole_aggregate_is_left_out() -> None:
    run = AggregatedRun(carrier(b"", "a", 1), [b"x", b"y"], ["k", "k"], None)
    assert len(UserRecords([run]).without({"1": [(0, 1)]})) == 0
    assert run.sequence_number == "1"


def test_the_end_of_a_large_aggregate_keeps_its_numbers() -> None:
    run = AggregatedRun(carrier(b"", "a", 1), [b"x"] * 5000, ["k"] * 5000, None)
    left = UserRecords([run]).without({"1": [(0, 4000)]}).of_type(UserRecord)
    assert [record.sub_sequence_number for record in left] == list(range(4001, 5000))


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=20, fuzz=2_000))
@given(st.lists(st.tuples(st.booleans(), ROWS), max_size=5), st.data())
def test_a_part_of_a_part_is_what_slices_of_a_list_are(
    shape: list[tuple[bool, list[tuple[bytes, str, str | None]]]], data: st.DataObject
) -> None:
    batch, expected = build(shape)
    batch.of_type(type("Decoded", (UserRecord,), {}))
    for _ in range(3):
        begin = data.draw(st.integers(0, len(expected)))
        end = data.draw(st.integers(begin, len(expected)))
        batch, expected = batch.part(begin, end), expected[begin:end]
        assert isinstance(batch, UserRecords)
        assert list(batch) == expected
        assert [batch[index] for index in range(len(batch))] == expected
        assert all(type(one).__name__ == "Decoded" for one in batch)
        assert part_of(expected, 0, len(expected)) is not expected
        assert part_of(batch, 0, 0) == part_of(expected, 0, 0) == []


def test_a_part_touches_only_its_own_records() -> None:
    """So that a batch in a thousand parts costs as much as in one, whatever an aggregate holds."""
    touched = 0

    class Column(list[bytes]):
        def __getitem__(self, index: object) -> list[bytes]:  # type: ignore[override]
            nonlocal touched
            assert isinstance(index, slice)
            touched += len(range(*index.indices(len(self))))
            return super().__getitem__(index)

    size = 5_000
    batch = UserRecords([AggregatedRun(carrier(b"", "a", 1), Column([b""] * size), ["k"] * size, None)])
    parts = [batch.part(begin, begin + 1) for begin in range(size)]
    assert touched == size
    assert [part[0].sub_sequence_number for part in parts] == list(range(size))
