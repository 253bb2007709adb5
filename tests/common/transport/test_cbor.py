"""CBOR: what it says is what JSON says, what arrives is bounded, and only large records use it."""

from __future__ import annotations

import base64
import json
import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import KinesisSdkError, ProtocolError, TransientAwsError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import (
    PutEntry,
    Transport,
    cbor,
    decoding,
    get,
    get_records,
    put,
    put_records,
)
from tests import fuzz
from tests.common.transport.pages import child_shards, meaning, wire_items
from tests.common.transport.signatures import signer_of
from tests.common.transport.wire import ARN, CHILDREN, STREAM, Wire, outcome, plain_put

LARGE = bytes(cbor.LARGE)


class Time(int):
    """Milliseconds, to be written with a tag."""


class Writer:
    """Writes documents in all forms that CBOR has for them, as a generator of random numbers says."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def write(self, value: Any) -> bytes:
        if isinstance(value, Time):
            return b"\xc1" + self._head(0x00, value)
        if value is None:
            return self._rng.choice([b"\xf6", b"\xf7"])
        if isinstance(value, bool):
            return b"\xf5" if value else b"\xf4"
        if isinstance(value, int) and -(2**64) <= value < 2**64:
            return self._head(0x00, value) if value >= 0 else self._head(0x20, -1 - value)
        if isinstance(value, int | float):
            return b"\xfb" + struct.pack(">d", value)
        if isinstance(value, dict):
            pairs = list(value.items())
            self._rng.shuffle(pairs)
            return self._all(0xA0, [self.write(name) + self.write(each) for name, each in pairs])
        if isinstance(value, list):
            return self._all(0x80, [self.write(each) for each in value])
        kind, whole = (0x40, value) if isinstance(value, bytes) else (0x60, value.encode())
        if self._rng.random() < 0.8:
            return self._head(kind, len(whole)) + whole
        parts = [whole[:3], whole[3:]] if whole.isascii() or kind == 0x40 else [whole]
        return bytes([kind | 31]) + b"".join([self._head(kind, len(part)) + part for part in parts]) + b"\xff"

    def _all(self, kind: int, parts: list[bytes]) -> bytes:
        if self._rng.random() < 0.5:
            return bytes([kind | 31]) + b"".join(parts) + b"\xff"
        return cbor.head(kind, len(parts)) + b"".join(parts)  # a record has less than 24 members

    def _head(self, kind: int, length: int) -> bytes:
        if self._rng.random() < 0.7:
            return cbor.head(kind, length)
        return bytes([kind | 27]) + length.to_bytes(8, "big")  # longer than it has to be


def as_cbor_says(document: dict[str, Any]) -> dict[str, Any]:
    """A page as JSON has it, with the types of CBOR."""
    items = []
    for item in document["Records"]:
        changed = {"Data": base64.b64decode(item["Data"])}
        arrival = item.get("ApproximateArrivalTimestamp")
        if isinstance(arrival, int | float):
            changed["ApproximateArrivalTimestamp"] = Time(round(arrival * 1000))
        items.append({**item, **changed})
    return {**document, "Records": items}


# -- documents --------------------------------------------------------------------------------------------------------

pages = st.fixed_dictionaries(
    {
        "Records": st.lists(
            wire_items.map(lambda item: {**item, "Data": base64.b64encode(item["Data"]).decode()}), max_size=6
        )
    },
    optional={
        "NextShardIterator": st.none() | st.text(min_size=1, max_size=40),
        "MillisBehindLatest": st.none() | st.integers(0, 10**9),
        "ChildShards": child_shards,
        "SomethingNew": st.lists(
            st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.none()
        ),
    },
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=25, fuzz=2_000))
@given(pages, st.integers(0, 2**32))
@example(
    {"Records": [{"SequenceNumber": "7", "Data": "", "EncryptionType": "KMS"}] * 2, "ChildShards": CHILDREN},
    0,
)
def test_a_page_says_what_it_says_in_json(document: dict[str, Any], seed: int) -> None:
    body = Writer(seed).write(as_cbor_says(document))
    expected = decoding.decode_by_standard_library(json.dumps(document).encode())
    assert meaning(cbor.decode(body)) == meaning(expected)
    assert cbor.document(body).keys() == document.keys()


MOMENT = "2026-08-01T05:56:57.339000+00:00"


def test_as_the_sdk_for_java_writes_and_reads() -> None:
    # Recorded from its version 2.41.21, which read the record as the one of `MOMENT`.
    entries = [PutEntry(b"\1\2\3" + LARGE, "a", "123"), PutEntry(LARGE, "é")]
    size = len(LARGE)
    expected = (
        b"\xbfgRecords\x9f\xbfdDataY" + (size + 3).to_bytes(2, "big") + entries[0].data
        + b"oExplicitHashKeyc123lPartitionKeyaa\xff\xbfdDataY" + size.to_bytes(2, "big") + LARGE
        + b"lPartitionKeyb\xc3\xa9\xff\xffjStreamNameebench\xff"
    )  # fmt: skip
    assert put._cbor(StreamId("bench"), entries) == expected
    request = {
        "ShardIterator": "x" * 220,
        "Limit": 10_000,
        "StreamARN": "arn:aws:kinesis:us-east-1:1:stream/bench",
    }
    assert get._body(request, in_cbor=True) == (
        b"\xbfmShardIteratorx\xdc"
        + b"x" * 220
        + b"eLimit\x19\x27\x10iStreamARNx("
        + request["StreamARN"].encode()
        + b"\xff"
    )
    page = cbor.decode(
        b"\xbfgRecords\x9f\xbfdDataAax\x1bApproximateArrivalTimestamp\xc1\x1b\x00\x00\x01\x9f\xbb\xe5\xa5{"
        b"lPartitionKeyaknSequenceNumbera7\xff\xff\xff"
    )
    assert page is not None
    (record,) = page.records
    assert record[:3] == (b"a", "k", "7")
    assert record.approximate_arrival_timestamp is not None
    assert record.approximate_arrival_timestamp.isoformat() == MOMENT


RECORD = b"\xa2dDataAanSequenceNumberx\x017"
GOOD = b"\xa1gRecords\x81" + RECORD
BODIES = {
    "nothing": b"",
    "half a document": GOOD[:-1],
    "two documents": GOOD + b"\xa0",
    "JSON": b'{"Records": []}',
    "not a map": b"\x80",
    "no records": b"\xa0",
    "records of another type": b"\xa1gRecords\xa0",
    "records twice": b"\xa2gRecords\x80gRecords\x80",
    "a name that is no text": b"\xa1\x01\x80",
    "not UTF-8": b"\xa2gRecords\x80qNextShardIteratora\xff",
    "a record that is no map": b"\xa1gRecords\x81\x80",
    "no Data": b"\xa1gRecords\x81\xa1nSequenceNumbera7",
    "Data as text": b"\xa1gRecords\x81\xa2dDatadeA==nSequenceNumbera7",
    "a key of bytes": b"\xa1gRecords\x81\xa3dDataAanSequenceNumbera7lPartitionKeyAk",
    "a number as sequence number": b"\xa1gRecords\x81\xa2dDataAanSequenceNumber\x07",
    "a time that no calendar has": GOOD[:-len(RECORD)] + b"\xa3" + RECORD[1:] + b"x\x1bApproximateArrivalTimestamp\xc1\xfb" + struct.pack(">d", 1e20),
    "the longest string": b"\xa1gRecords\x81\xa1dData[" + b"\xff" * 8 + b"a",
    "the longest list": b"\xa2gRecords\x80aX\x9b" + b"\xff" * 8,
    "the longest map": b"\xa2gRecords\x80aX\xbb" + b"\xff" * 8,
    "lists without end": b"\xa2gRecords\x80aX" + b"\x81" * 100_000,
    "lists of unknown length without end": b"\xa2gRecords\x80aX" + b"\x9f" * 100_000,
    "tags without end": b"\xa2gRecords\x80aX" + b"\xc1" * 100_000,
    "strings in strings": b"\xa2gRecords\x80aX" + b"\x7f" * 100_000,
    "a string of parts of another type": b"\xa2gRecords\x80aX\x7fAa\xff",
    "members without end": b"\xa1gRecords\x81\xbf" + b"dData\x40" * 100_000 + b"\xff",
    "reserved": b"\xa2gRecords\x80aX\x1c",
    "a bare end": b"\xa2gRecords\x80aX\xff",
    "a simple value": b"\xa2gRecords\x80aX\xf8\xff",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_hostile_bodies(name: str) -> None:
    try:
        assert cbor.decode(BODIES[name]) is None
    except ProtocolError as error:
        assert error.retryable


def test_every_prefix_of_a_document_is_incomplete() -> None:
    records = [
        {"Data": bytes(size), "SequenceNumber": "7", "PartitionKey": "k" * size, "ApproximateArrivalTimestamp": Time(1), "New": [1.5]}
        for size in (0, 30)
    ]  # fmt: skip
    body = Writer(0).write({"Records": records, "NextShardIterator": "next"})
    assert cbor.decode(body) is not None
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            cbor.decode(body[:end])
        with pytest.raises(ValueError, match=r"\w"):
            cbor.document(body[:end])


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=25, fuzz=5_000))
@given(
    pages, st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4)
)
def test_damaged_documents_raise_nothing_else(
    document: Any, seed: int, damage: list[tuple[int, int]]
) -> None:
    body = bytearray(Writer(seed).write(as_cbor_says(document)))
    for place, value in damage:
        body[place % len(body)] = value
    with suppress(ProtocolError):
        cbor.decode(bytes(body))
    with suppress(ValueError):
        json.dumps(cbor.document(bytes(body)))


def of_records(count: int, record: bytes = RECORD) -> list[bytes]:
    return [
        b"\xa1gRecords" + cbor.head(cbor.LIST, count) + record * count,
        b"\xa1gRecords\x9f" + record * count + b"\xff",
    ]


def test_the_number_of_records_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_RECORDS", 3)
    monkeypatch.setattr(cbor, "MAX_RECORDS", 3)
    for body in of_records(3):
        assert len(cbor.decode(body).records) == 3  # type: ignore[union-attr]
    for body in of_records(4):
        with pytest.raises(ProtocolError, match="4 records"):
            cbor.decode(body)


def test_the_number_of_members_of_a_record_is_bounded() -> None:
    for count, good in ((cbor.MAX_MEMBERS - 2, True), (cbor.MAX_MEMBERS - 1, False)):
        record = b"\xbf" + RECORD[1:] + b"aX\x01" * count + b"\xff"
        found = outcome(lambda record=record: cbor.decode(b"\xa1gRecords\x81" + record))
        assert isinstance(found, decoding.Content) is good


def test_the_number_of_other_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cbor, "MAX_ELEMENTS", 20)
    for count, good in ((18, True), (19, False)):
        for values in (cbor.head(cbor.LIST, count) + b"\xa0" * count, b"\x9f" + b"\xa0" * count + b"\xff"):
            found = outcome(lambda values=values: cbor.decode(b"\xa2gRecords\x80aX" + values))
            assert isinstance(found, decoding.Content) is good
    for count, good in ((19, True), (20, False)):  # unknown members of records count as well
        body = b"\xa1gRecords" + cbor.head(cbor.LIST, count) + (b"\xa3" + RECORD[1:] + b"aX\x01") * count
        assert isinstance(outcome(lambda body=body: cbor.decode(body)), decoding.Content) is good


# -- calls ------------------------------------------------------------------------------------------------------------


def in_json(document: Any) -> bytes:
    return json.dumps(document).encode()


def in_cbor(document: Any) -> bytes:
    return Writer(3).write(document)


Answer = Callable[[Any], tuple[int, bytes, dict[str, str]]]


def answer(document: Any, status: int = 200) -> Answer:
    """A response in the format of the request."""

    def respond(request: Any) -> tuple[int, bytes, dict[str, str]]:
        kind = type_of(request)
        return status, (in_cbor if kind == cbor.CONTENT_TYPE else in_json)(document), {"content-type": kind}

    return respond


def stored(count: int) -> Answer:
    entry = {"SequenceNumber": "49", "ShardId": "shardId-000000000000"}
    return answer({"FailedRecordCount": 0, "Records": [entry] * count})


def page(size: int) -> Answer:
    record = {"SequenceNumber": "7", "Data": base64.b64encode(bytes(size)).decode(), "PartitionKey": "k"}
    document = {"Records": [record] * 3, "NextShardIterator": "next", "MillisBehindLatest": 5}
    return lambda request: answer(
        as_cbor_says(document) if type_of(request) == cbor.CONTENT_TYPE else document
    )(request)


def always_json(respond: Answer) -> Answer:
    return lambda _: respond(mock.Mock(headers={"content-type": "application/x-amz-json-1.1"}))


@pytest.fixture(scope="module")
def one_wire() -> Wire:
    wire = Wire()
    wire.lean = Transport(wire.client, speaks_cbor=True)
    wire.session.responses = [stored(1)]
    put_records(wire.lean, STREAM, [PutEntry(LARGE, "k")])
    wire.session.responses = [page(len(LARGE))]
    for _ in range(2):
        get_records(wire.lean, "it", 10)
    assert {type_of(request) for request in wire.session.requests} == {"application/x-amz-json-1.1"}
    return wire


@pytest.fixture
def wire(one_wire: Wire) -> Wire:
    """A client that speaks CBOR, of which the forms are known and the last records were large."""
    one_wire.session.requests.clear()
    one_wire.lean.large_records.clear()
    one_wire.lean.large_records[None] = True
    return one_wire


def type_of(request: Any) -> str:
    headers = {name.lower(): value for name, value in request.headers.items()}
    kind = headers["content-type"]
    return kind.decode() if isinstance(kind, bytes) else str(kind)


def said_by(request: Any) -> Any:
    return cbor.document(request.body) if type_of(request) == cbor.CONTENT_TYPE else json.loads(request.body)


def speaks(wire: Wire) -> bool:
    """Whether the last request was CBOR; checks its signature."""
    request = wire.session.requests[-1]
    assert signer_of(request) == "AKID"
    return type_of(request) == cbor.CONTENT_TYPE


@pytest.mark.parametrize("arn", [None, ARN])
def test_only_large_records_are_put_in_cbor(wire: Wire, arn: str | None) -> None:
    stream = StreamId("orders", arn)
    wire.session.responses = [stored(2)]
    for data, spoken in ((LARGE, True), (LARGE[1:], False)):
        entries = [PutEntry(data, "é", "5"), PutEntry(data, None)]
        for _ in range(2):  # the first one with an ARN is boto3's
            response = put_records(wire.lean, stream, entries)
        assert speaks(wire) is spoken
        assert (response["ResponseMetadata"]["HTTPHeaders"]["content-type"] == cbor.CONTENT_TYPE) is spoken
        assert len(response["Records"]) == 2
        said = said_by(wire.session.requests[-1])
        plain_put(wire.client, stream, entries)
        assert said == said_by(wire.session.requests[-1])


@pytest.mark.parametrize(
    "entry",
    [
        PutEntry(LARGE, "\ud800"),
        PutEntry(bytearray(LARGE), "k"),  # type: ignore[arg-type]
        PutEntry(LARGE, ""),
        PutEntry(LARGE, 5),  # type: ignore[arg-type]
        PutEntry(LARGE, "k", 5),  # type: ignore[arg-type]
        PutEntry("é" * len(LARGE), "k"),  # type: ignore[arg-type]
    ],
)
def test_what_cbor_cannot_write_is_left_to_json_and_boto3(wire: Wire, entry: PutEntry) -> None:
    wire.session.responses = [stored(1)]
    ours = outcome(lambda: put_records(wire.lean, STREAM, [entry]))
    assert ours == outcome(lambda: plain_put(wire.client, STREAM, [entry]))
    assert all(type_of(request) != cbor.CONTENT_TYPE for request in wire.session.requests)


def test_a_stream_is_read_in_cbor_while_its_records_are_large(wire: Wire) -> None:
    small = len(LARGE) - 1
    sizes = (len(LARGE), True), (0, True), (small, True), (small, False), (len(LARGE), False), (small, True)
    for size, spoken in sizes:
        wire.session.responses = [
            page(size) if size else answer({"Records": [], "NextShardIterator": "next"})
        ]
        found = get_records(wire.lean, "it", 10)
        assert speaks(wire) is spoken
        assert [len(record.data) for record in found.records] == [size] * (3 if size else 0)
    wire.lean.large_records[None] = True
    assert get_records(wire.lean, "it", 10, ARN).records  # another stream, whose records are not known
    assert not speaks(wire)


def test_the_end_of_a_shard(wire: Wire) -> None:
    wire.session.responses = [answer({"Records": [], "ChildShards": CHILDREN, "MillisBehindLatest": 0})]
    found = get_records(wire.lean, "it", 10)
    assert speaks(wire)
    plain = wire.client.get_records(ShardIterator="it", Limit=10)
    assert (found.next_iterator, found.child_shards) == (None, plain["ChildShards"])
    assert found.child_shards


def test_an_answer_in_json_is_read_as_such(wire: Wire) -> None:
    wire.session.responses = [always_json(page(9))]
    assert len(get_records(wire.lean, "it", 10).records) == 3
    assert speaks(wire)
    wire.session.responses = [always_json(stored(1))]
    assert len(put_records(wire.lean, STREAM, [PutEntry(LARGE, "k")])["Records"]) == 1
    assert speaks(wire)


ERRORS = {
    "throttled": (400, {"__type": "ProvisionedThroughputExceededException", "message": "slow"}),
    "a name of a shape": (
        400,
        {"__type": "com.amazonaws.kinesis#ExpiredIteratorException", "message": "old"},
    ),
    "internal failure": (500, {"__type": "InternalFailure", "message": "oops"}),
    "no members": (503, {}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_json(wire: Wire, name: str) -> None:
    status, document = ERRORS[name]
    for call in (
        lambda: put_records(wire.lean, STREAM, [PutEntry(LARGE, "k")]),
        lambda: get_records(wire.lean, "it", 10),
    ):
        found = []
        for respond in (answer(document, status), always_json(answer(document, status))):
            before = len(wire.session.requests)
            wire.session.responses = [respond]
            kind, text, response = outcome(call)
            assert speaks(wire)
            assert len(wire.session.requests) == before + 1
            found.append((kind, text, response and response["Error"]))
        assert found[0] == found[1]
        assert issubclass(found[0][0], KinesisSdkError)


@pytest.mark.parametrize(("status", "kind"), [(200, ProtocolError), (500, TransientAwsError)])
@pytest.mark.parametrize("body", [b"", b"\xff", b"\x9f", b"\xa1", b"<html>", b"\xa0"])
def test_answers_that_cannot_be_read(wire: Wire, status: int, kind: type, body: bytes) -> None:
    wire.session.responses = [(status, body, {"content-type": cbor.CONTENT_TYPE})]
    for call in (
        lambda: put_records(wire.lean, STREAM, [PutEntry(LARGE, "k")]),
        lambda: get_records(wire.lean, "it", 10),
    ):
        with pytest.raises(kind):
            call()


def test_an_endpoint_that_knows_no_cbor_is_named_once(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    wire.lean._was_understood = True
    wire.session.responses = [(400, b'{"__type": "SerializationException"}')]
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(KinesisSdkError, match="SerializationException"):
                get_records(wire.lean, "it", 10)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "status 400" in line
    assert 'wire_format="json"' in line


def test_retries_of_boto3_are_json_and_carry_the_whole_request(
    monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    patient = Wire(retries={"mode": "standard", "total_max_attempts": 3})
    lean = Transport(patient.client, speaks_cbor=True)
    entries = [PutEntry(LARGE, "é")] * 2
    patient.session.responses = [
        stored(2),
        answer({"__type": "InternalFailure"}, 500),
        stored(2),
    ]
    for _ in range(2):
        response = put_records(lean, STREAM, entries)
    assert response["ResponseMetadata"]["RetryAttempts"] == 1
    first, second, third = patient.session.requests
    assert [type_of(each) == cbor.CONTENT_TYPE for each in (first, second, third)] == [False, True, False]
    assert said_by(first) == said_by(second) == said_by(third)


def test_other_services_speak_json() -> None:
    assert not Transport(Wire(service="dynamodb", endpoint=None).client, speaks_cbor=True).speaks_cbor


def test_a_new_access_key_is_learned_from_a_request_in_cbor(wire: Wire) -> None:
    wire.client._request_signer._credentials = type(wire.client._request_signer._credentials)(
        "OTHER", "secret"
    )
    entries = [PutEntry(LARGE, "k")]
    for kind in ("application/x-amz-json-1.1", cbor.CONTENT_TYPE):
        wire.session.responses = [stored(1)]
        put_records(wire.lean, STREAM, entries)
        assert type_of(wire.session.requests[-1]) == kind
        assert signer_of(wire.session.requests[-1]) == "OTHER"
