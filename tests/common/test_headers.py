"""Headers of user records: their bytes, exact sizes, and what is refused."""

from __future__ import annotations

import pickle
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.aggregate_reader import (
    AGGREGATE_PARTITION_KEY,
    OVERHEAD,
    Aggregate,
    _rows,
    deaggregate,
    open_aggregate,
)
from kinesis_sdk.common.hashkeys import explicit_hash_key_to_bytes, hash_partition_key
from kinesis_sdk.common.headers import (
    MAX_HEADER_BYTES,
    MAX_TAGS,
    NO_HEADERS,
    SAME_TAG,
    Headers,
    encode_headers,
    headers_in,
    varint,
)
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.table import TAG_KEY, Run, encode_table
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from tests import fuzz
from tests.common.drawn import DATA, HASHES
from tests.common.tagged import identity

from .reference import AggregatedRecord, seal

NAMES = st.sampled_from(["traceparent", "b", "a-b", "x" * 128, "k11"])
VALUES = st.one_of(st.binary(max_size=12), st.text(max_size=12), st.just(b"v" * 130))
HEADERS = st.one_of(st.just({}), st.just({"same": "s"}), st.dictionaries(NAMES, VALUES, max_size=4))
APPENDS = st.lists(
    st.tuples(st.sampled_from(["k", "key", "schlüssel"]), HASHES, DATA, HEADERS, st.booleans()),
    min_size=1,
    max_size=12,
)


def shown(headers: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {name: value.encode() if isinstance(value, str) else value for name, value in headers.items()}


def expected_tags(headers: Mapping[str, str | bytes]) -> list[tuple[str, str]]:
    tags = []
    for name, value in shown(headers).items():
        try:
            tags.append((name, value.decode()))
        except UnicodeDecodeError:
            tags.append((f"{name};b64", b64encode(value).decode()))
    return tags


def tags_in(blob: bytes) -> list[list[tuple[str, str]]]:
    """Tags of each user record, as the published schema reads them."""
    message = AggregatedRecord.FromString(blob[4:-16])
    assert blob == seal(blob[4:-16])
    return [[(tag.key, tag.value) for tag in record.tags] for record in message.records]


def set_runs(aggregate: Aggregate) -> None:
    assert aggregate.runs is not None
    starts = aggregate.runs.starts
    counts = [end - start for start, end in zip(starts, [*starts[1:], aggregate.count], strict=True)]
    runs = [Run(count, 4, 0, bytes(8), 1, start) for count, start in zip(counts, starts, strict=True)]
    aggregate.runs.tag = encode_table("orders", "shardId-000000000000", runs)


def test_golden_bytes() -> None:
    """Written out by hand: the second user record refers to the headers of the first, and the third has none."""
    aggregate = Aggregate(1000, 10)
    for data, headers in ((b"x", {"n": "v"}), (b"y", {"n": b"v"}), (b"z", {})):
        assert aggregate.try_append("a", None, data, hash_partition_key("a"), headers=encode_headers(headers))
    assert aggregate.encode()[4:-16] == bytes.fromhex(
        "0a0161 1a0d 0800 2206 0a016e 120176 1a0178 1a0b 0800 2204 0a02683d 1a0179 1a05 0800 1a017a"
    )
    single = Aggregate(1000, 10)
    assert single.try_append("a", None, b"x", hash_partition_key("a"), headers=encode_headers({"n": b"\xff"}))
    assert single.is_wrapped
    assert single.partition_key == AGGREGATE_PARTITION_KEY
    assert tags_in(single.encode()) == [[("n;b64", "/w==")]]


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=25, fuzz=2_000))
@given(APPENDS, st.booleans(), st.sampled_from([60, 300, 40_000]))
def test_the_size_is_exact_after_every_append_and_never_over_the_limit(
    appends: list[tuple[str, str | None, bytes, dict[str, Any], bool]], tagged: bool, limit: int
) -> None:
    aggregate = Aggregate(limit, 100, runs=Runs() if tagged else None)
    taken: list[tuple[bytes, list[tuple[str, str]]]] = []
    put: list[tuple[str, bytes, dict[str, bytes]]] = []
    for key, explicit, data, headers, identified in appends:
        place = hash_partition_key(key) if explicit is None else explicit_hash_key_to_bytes(explicit)
        before = aggregate.size
        fields = encode_headers(headers)
        again = identity(1) if identified else None
        if not fields and explicit is None and not identified and aggregate.append_known(key, data):
            pass  # the fast path, between records with headers
        elif not aggregate.try_append(key, explicit, data, place, identity=again, headers=fields):
            assert aggregate.size == before
            continue
        taken.append((data, expected_tags(headers)))
        put.append((key, data, shown(headers)))
        if tagged:
            set_runs(aggregate)
        blob = aggregate.encode()
        assert len(blob) == aggregate.size
        assert len(taken) == 1 or aggregate.size <= limit
        if not aggregate.is_wrapped:
            assert blob == data
            assert not headers
            assert deaggregate([KinesisRecord(blob, "a", "1")])[0].headers is NO_HEADERS
            continue
        read = tags_in(blob)
        if tagged:
            assert read[0].pop()[0] == TAG_KEY
        for index, tags in enumerate(read):
            if tags == [("h=", "")]:
                read[index] = read[index - 1]
        assert read == [tags for _, tags in taken]
    if aggregate.is_wrapped:
        blob = aggregate.encode()
        batch = deaggregate([KinesisRecord(blob, "a", "1")])
        assert [(one.partition_key, one.data, one.headers) for one in batch] == put
        assert [batch[index].headers for index in range(len(batch))] == [headers for _, _, headers in put]
        columns = open_aggregate(blob)
        assert columns is not None
        assert columns == _rows(blob[4:-16])
        assert (columns.headers is None) == (not any(headers for _, _, headers in put))
        assert columns.tag == (aggregate.runs.tag if aggregate.runs is not None else None)


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"": "v"}, "a name is 1 to 128"),
        ({"x" * 129: "v"}, "a name is 1 to 128"),
        ({"k1": "v"}, "not one letter and one digit"),
        ({"Z9": "v"}, "not one letter and one digit"),
        ({"h=": "v"}, "a name is 1 to 128"),
        ({"a;b64": "v"}, "a name is 1 to 128"),
        ({"a\n": "v"}, "a name is 1 to 128"),
        ({"ä": "v"}, "a name is 1 to 128"),
        ({7: "secret"}, "not of type int"),
        ({"n": 7}, "n: expected a value of str or bytes, not int"),
        ({"n": None}, "n: expected a value of str or bytes, not NoneType"),
        ({"n": "secret\udc80"}, "n: the value is not encodable as UTF-8"),
        ([("n", "secret")], "expected a mapping, not list"),
        ({str(number): "" for number in range(65)}, "at most 64, not 65"),
        ({"n": "s" * MAX_HEADER_BYTES}, "at most 8,192 bytes of names and values, not 8,201"),
    ],
)
def test_what_is_refused_names_the_header_and_shows_no_value(headers: Any, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as raised:
        encode_headers(headers)
    assert "secret" not in str(raised.value)


def test_the_largest_headers() -> None:
    assert len(encode_headers({"n": "s" * (MAX_HEADER_BYTES - 9)})) == MAX_HEADER_BYTES
    assert len(encode_headers({str(number): b"" for number in range(100, 164)})) == 64 * 9
    aggregate = Aggregate(100, 1)
    fields = encode_headers({"x" * 128: b"\xff" * 4_000})
    assert aggregate.try_append("k", None, b"x", hash_partition_key("k"), headers=fields)
    assert aggregate.size == len(aggregate.encode()) == OVERHEAD + 3 + 1 + 2 + 2 + len(fields) + 2 + 1


def read(*rows: list[bytes]) -> list[UserRecord]:
    """User records with these tags, which a stranger wrote."""
    message = AggregatedRecord(partition_key_table=["k"])
    body = message.SerializeToString()
    for tags in rows:
        fields = b"\x08\x00\x1a\x01x" + b"".join(b"\x22" + varint(len(tag)) + tag for tag in tags)
        body += b"\x1a" + varint(len(fields)) + fields
    return list(deaggregate([KinesisRecord(seal(body), "a", "1")]))


def tag(key: bytes, value: bytes | None = b"v") -> bytes:
    tail = b"" if value is None else b"\x12" + varint(len(value)) + value
    return b"\x0a" + varint(len(key)) + key + tail


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (tag(b"n"), {"n": b"v"}),
        (tag(b"n", None), {"n": b""}),
        (tag(b"n", b"\xff"), {"n": b"\xff"}),
        (tag(b"n;b64", b"/w=="), {"n": b"\xff"}),
        (tag(b"n;b64", b"not base64"), {}),
        (tag(b";b64", b"/w=="), {}),
        (tag(b"k1"), {}),
        (tag(b"my tag"), {}),
        (tag(b"\xff"), {}),
        (tag(b"x" * 129), {}),
        (b"", {}),
        (b"\x0a", {}),
        (b"\x0a\x05n", {}),
        (tag(b"n") + b"\x18\x01", {}),
        (b"\x12\x01v" + tag(b"n", None), {}),
        (b"\x0a\x01n\x12\x7fv", {}),
        (b"\x0a" + b"\xff" * 100_000, {}),
        (SAME_TAG, {}),
    ],
)
def test_tags_of_strangers(raw: bytes, expected: dict[str, bytes]) -> None:
    """What is no header is left out; a length of 100,000 bytes is not added up, which would take a minute."""
    (record,) = read([raw])
    assert record.headers == expected


def test_more_tags_than_a_producer_writes_are_not_read() -> None:
    most = [tag(b"n%d" % number) for number in range(10, 10 + MAX_TAGS)]
    one, two, three = read(most, [*most, tag(b"n")], [SAME_TAG])
    assert len(one.headers) == MAX_TAGS
    assert two.headers == three.headers == {}


def test_the_memory_of_headers_counts() -> None:
    fields = encode_headers({"n": "v"})
    batches = []
    for each in ([b"", b""], [fields, fields], [fields, encode_headers({"n": "w", "m": "v"})]):
        aggregate = Aggregate(2**20, 100)
        for headers in each:
            assert aggregate.try_append("k", None, b"x", hash_partition_key("k"), headers=headers)
        batches.append(deaggregate([KinesisRecord(aggregate.encode(), "a", "1")]))
    without, shared, different = batches
    assert shared.overhead == without.overhead + 530, "one object for both"
    assert shared[0].headers is shared[1].headers
    assert different.overhead == without.overhead + 530 + 710
    assert different.part(1, 2)[0].headers == {"n": b"w", "m": b"v"}


def test_headers_are_a_value() -> None:
    headers = headers_in(encode_headers({"a": "secret", "b": b"\xff"}))
    assert headers == {"a": b"secret", "b": b"\xff"} == dict(headers)
    assert list(headers) == ["a", "b"]
    assert repr(headers) == "{'a': <6 bytes>, 'b': <1 bytes>}"
    again = pickle.loads(pickle.dumps(headers))
    assert again == headers
    assert hash(again) == hash(headers)
    assert isinstance(again, Headers)
    assert NO_HEADERS == {} == headers_in(b"")
    assert {UserRecord(b"x", "k", "1", headers=headers)} == {UserRecord(b"x", "k", "1", headers=again)}
