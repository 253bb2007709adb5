"""Aggregates with a sealed body: what is written, what is read again, and what a forged one costs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common import codec as codecs
from kinesis_sdk.common.aggregate_reader import deaggregate, decode, open_aggregate
from kinesis_sdk.common.aggregate_writer import Aggregate, SealedAggregate
from kinesis_sdk.common.codec import CODEC_KEY, MAX_INNER_SIZE, MAX_RATIO, form_of
from kinesis_sdk.common.errors import CodecUnavailableError
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.table import TAG_KEY
from kinesis_sdk.common.records import KinesisRecord
from tests import fuzz
from tests.codecs import Deflated, Identity
from tests.common.drawn import DATA, HASHES, KEYS
from tests.common.tagged import forged, runs_in, value_of

from . import reference
from .reference import Item, filled, place

ITEMS: list[Item] = [("alpha", "5", b"one"), ("beta", None, b""), ("alpha", None, b"three")]
APPENDS = st.lists(st.tuples(KEYS | st.just("key"), HASHES, DATA), min_size=1, max_size=12)


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(codecs._made, "deflated", Deflated())
        patch.setitem(codecs._made, "same", Identity())
        yield


def carrier(data: bytes, number: int = 1) -> KinesisRecord:
    return KinesisRecord(data, "a", str(number))


@settings(max_examples=fuzz.how_many(unit=35, fuzz=3_000))
@given(items=APPENDS, tagged=st.booleans(), closed=st.booleans())
def test_what_is_sealed_is_read_again(items: list[Item], tagged: bool, closed: bool) -> None:
    aggregate = Aggregate(1 << 30, 1 << 30, runs=Runs() if tagged else None)
    for key, explicit, data in items:
        assert aggregate.try_append(key, explicit, data, place((key, explicit, data)))
    if closed:
        aggregate.seal()
    sealed = aggregate.seal_with(Identity())
    if tagged:
        runs_in(aggregate).tag = value_of([len(items)])
    blob = sealed.encode()
    assert sealed.size == len(blob)
    columns, outer = open_aggregate(blob), reference.AggregatedRecord.FromString(blob[4:-16])
    assert columns is not None
    assert decode(blob) == items
    assert columns.tag == (runs_in(aggregate).tag if tagged else None)
    # To a reader that knows no codecs: one record, in the place of the first one.
    (record,) = outer.records
    assert list(outer.partition_key_table) == [items[0][0]]
    explicit = list(outer.explicit_hash_key_table)
    assert place((items[0][0], explicit[0] if explicit else None, b"")) == aggregate.hash_key
    assert [tag.key for tag in record.tags] == [CODEC_KEY, *([TAG_KEY] if tagged else [])]
    assert record.tags[0].value == f"same;{len(record.data)};{len(items)}"


def test_records_of_a_sealed_aggregate_are_those_of_a_plain_one() -> None:
    plain = filled(ITEMS)
    records = [carrier(plain.encode()), carrier(plain.seal_with(Deflated()).encode(), 2), carrier(b"x", 3)]
    users = list(deaggregate(records))
    assert [record[:2] + record[4:] for record in users[:3]] == [
        record[:2] + record[4:] for record in users[3:6]
    ]
    assert [record.sub_sequence_number for record in users] == [0, 1, 2, 0, 1, 2, 0]


BODY = filled(ITEMS).body
FORM = f"same;{len(BODY)};3"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "same",
        f"same;{len(BODY)}",
        f"same;{len(BODY)};3;",
        f"same;{len(BODY)};03 ",
        f"same;-{len(BODY)};3",
        f"SAME;{len(BODY)};3",
        f"same;{len(BODY)};2",
        f"same;{len(BODY)};4",
        f"same;{len(BODY)};0",
        f"same;{len(BODY) - 1};3",
        f"same;{len(BODY) + 1};3",
        f"same;{MAX_INNER_SIZE + 1};3",
        f"same;{len(BODY)};{len(BODY)}",
        f"same;{'9' * 400};3",
        f"same;\u0661{len(BODY)};3",
        f"deflated;{len(BODY)};3",
        f"{'n' * 17};{len(BODY)};3",
    ],
)
def test_what_no_producer_writes_is_delivered_as_it_is(text: str) -> None:
    told: list[Any] = []
    blob = forged(BODY, (CODEC_KEY, text))
    (record,) = deaggregate([carrier(blob)], on_unreadable=lambda *found: bool(told.append(found)))
    assert record.data == BODY
    assert told == [(carrier(blob), None)]


def test_a_tag_counts_only_once_and_on_the_only_record() -> None:
    assert decode(forged(BODY, (CODEC_KEY, FORM))) == ITEMS
    assert decode(forged(BODY, (CODEC_KEY, FORM), (CODEC_KEY, FORM))) == [("k", None, BODY)]
    assert decode(forged(BODY, (CODEC_KEY, FORM), count=2)) == [("k", None, BODY)] * 2


def test_a_body_in_a_body_is_not_opened() -> None:
    inner = forged(BODY, (CODEC_KEY, FORM), (TAG_KEY, "forged"))[4:-16]
    columns = open_aggregate(forged(inner, (CODEC_KEY, f"same;{len(inner)};1"), (TAG_KEY, "outside")))
    assert columns is not None
    assert (columns.payloads, columns.tag) == ([BODY], "outside")


def test_nothing_is_opened_that_grows_more_than_allowed() -> None:
    assert form_of(f"same;{100 * MAX_RATIO};3", 100) is not None
    assert form_of(f"same;{100 * MAX_RATIO + 1};3", 100) is None
    assert form_of(f"same;{MAX_INNER_SIZE};3", MAX_INNER_SIZE) is not None
    bomb = zlib.compress(bytes(MAX_INNER_SIZE), 9)
    assert len(bomb) * MAX_RATIO < MAX_INNER_SIZE
    assert decode(forged(bomb, (CODEC_KEY, f"deflated;{MAX_INNER_SIZE};1"))) == [("k", None, bomb)]


def test_without_its_codec_nothing_of_it_is_delivered_and_nothing_behind_it() -> None:
    plain, strange = filled(ITEMS).encode(), forged(BODY, (CODEC_KEY, f"strange;{len(BODY)};3"))
    records = [carrier(plain), carrier(b"x", 2), carrier(strange, 3), carrier(b"y", 4)]
    with pytest.raises(
        CodecUnavailableError, match=r"record 3: the codec 'strange' .* does not know this codec .* skip-to"
    ):
        deaggregate(records)
    told: list[tuple[KinesisRecord, CodecUnavailableError | None]] = []
    users = deaggregate(records, on_unreadable=lambda *found: bool(told.append(found)))
    assert [record.data for record in users] == [b"one", b"", b"three", b"x"]
    ((record, error),) = told
    assert record == records[2]
    assert error is not None
    assert (error.retryable, error.records) == (True, 3)
    passed = deaggregate(records, on_unreadable=lambda *_found: True)
    assert [record.data for record in passed] == [b"one", b"", b"three", b"x", b"y"]


def test_a_codec_without_its_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codecs.HOMES, "absent", "kinesis_sdk.compression.absent:Codec")
    with pytest.raises(CodecUnavailableError, match="No module named"):
        decode(forged(BODY, (CODEC_KEY, f"absent;{len(BODY)};3")))


def test_memory_that_a_body_takes_counts_as_overhead() -> None:
    items: list[Item] = [("k", None, bytes(1_000))] * 50
    plain, sealed = (
        deaggregate([carrier(blob)])
        for blob in (filled(items).encode(), filled(items).seal_with(Deflated()).encode())
    )
    assert sealed.overhead - plain.overhead > 49_000
    assert sealed.part(0, 25).overhead - plain.part(0, 25).overhead < 26_000


def test_a_sealed_form_needs_its_table_of_runs() -> None:
    aggregate = Aggregate(1_000, 10, runs=Runs())
    aggregate.try_append("k", None, b"x", place(("k", None, b"x")))
    sealed: SealedAggregate = aggregate.seal_with(Identity())
    with pytest.raises(ValueError, match="set"):
        sealed.encode()
