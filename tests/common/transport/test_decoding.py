"""Records of a response: both decoders read and reject the same, and what arrives is bounded."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.transport import decoding, get_records
from tests import fuzz
from tests.common.transport.pages import meaning
from tests.common.transport.wire import Wire, outcome

GOOD = {
    "Data": "eA==",
    "SequenceNumber": "7",
    "PartitionKey": "k",
    "ApproximateArrivalTimestamp": 1785578400.123,
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["", "7", "eA==", "eA", "e A = =", "é", "\ud800", "2026-08-01T10:00:00Z", "x" * 9])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
odd_records = st.fixed_dictionaries(
    {}, optional=dict.fromkeys([*GOOD, "EncryptionType", "SomethingNew"], values)
)
records = st.one_of(st.just(GOOD), odd_records.map(lambda odd: {**GOOD, **odd}), odd_records, values)
documents = st.fixed_dictionaries(
    {},
    optional={
        "Records": st.lists(records, max_size=4) | values,
        "NextShardIterator": values,
        "MillisBehindLatest": values,
        "ChildShards": st.lists(st.just({"ShardId": "shardId-000000000001"}), max_size=2) | values,
        "SomethingNew": values,
    },
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=35, fuzz=3_000))
@given(documents | values)
@example({"Records": [{**GOOD, "ApproximateArrivalTimestamp": 1785578400}, GOOD]})
@example({"Records": [{**GOOD, "ApproximateArrivalTimestamp": 1e300}]})
@example({"Records": [{**GOOD, "SequenceNumber": "x"}]})
@example({"Records": [{**GOOD, "PartitionKey": None, "EncryptionType": "KMS"}], "MillisBehindLatest": 2**65})
def test_both_decoders_agree(document: Any) -> None:
    body = json.dumps(document).encode()
    ours = outcome(lambda: meaning(decoding.decode(body)))
    theirs = outcome(lambda: meaning(decoding.decode_by_standard_library(body)))
    assert repr(ours) == repr(theirs)  # NaN is not equal to itself


BODIES = {
    "nothing": b"",
    "half a document": b'{"Records": [',
    "two documents": b'{"Records": []}{"Records": []}',
    "not UTF-8": b'{"Records": [], "NextShardIterator": "\xff"}',
    "a key twice": b'{"Records": [{"Data": "eQ==", "Data": "eA==", "SequenceNumber": "7"}]}',
    "lists without end": b'{"Records": [], "SomethingNew": ' + b"[" * 200_000,
    "deep records": b'{"Records": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep members": b'{"Records": [], "X": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "a long number": b'{"Records": [], "MillisBehindLatest": ' + b"9" * 5_000 + b"}",
}


@pytest.mark.parametrize("name", BODIES)
def test_hostile_bodies(name: str) -> None:
    ours = outcome(lambda: meaning(decoding.decode(BODIES[name])))
    theirs = outcome(lambda: meaning(decoding.decode_by_standard_library(BODIES[name])))
    # From Python 3.14 on, each parser takes as many levels as fit on its stack.
    assert ours == theirs or (name == "deep members" and None in (ours, theirs))
    assert ours is None or isinstance(ours, tuple)


@pytest.mark.parametrize("lean", [True, False])
def test_the_number_of_records_is_bounded(lean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_RECORDS", 3)
    wire = Wire()
    client = wire.lean if lean else wire.client
    for count in (3, 3, 4):
        wire.session.responses = [(200, json.dumps({"Records": [GOOD] * count}).encode())]
        if count == 4:
            with pytest.raises(ProtocolError, match="4 records"):
                get_records(client, "first", 100)
        else:
            assert len(get_records(client, "first", 100).records) == 3
    assert wire.session.last_was_lean is lean


def test_what_msgspec_decodes_shows_no_payload() -> None:
    typed = pytest.importorskip(
        "kinesis_sdk.common.transport.typed_decoding", reason="the extra `fast` is not installed"
    )
    shown = repr(typed._parse(json.dumps({"Records": [GOOD]}).encode()))
    assert "SequenceNumber='7'" in shown
    assert "eA==" not in shown


def test_without_msgspec_the_standard_library_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("msgspec", reason="the extra `fast` is not installed")
    module = "kinesis_sdk.common.transport.typed_decoding"
    fastest = decoding.fastest.__wrapped__  # not the kept one
    assert fastest().__module__ == module
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert fastest() is decoding.decode_by_standard_library
