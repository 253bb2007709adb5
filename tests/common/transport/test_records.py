"""Records put and read by a transport: what is sent, stored and read is what boto3 would have sent, stored and read."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timezone
from typing import Any
from unittest import mock

import botocore.session
import pytest
from botocore.client import BaseClient
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.aws import translate_errors
from kinesis_sdk.common.errors import (
    AwsConfigError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    TransientAwsError,
)
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage, PutEntry, get_records, put_records
from tests import HANG, fuzz
from tests.common.transport.pages import child_shards, wire_items
from tests.common.transport.signatures import signer_of
from tests.common.transport.wire import ARN, STREAM, Wire, outcome, plain_put


@pytest.fixture
def wire() -> Wire:
    return used(Wire())


@pytest.fixture(scope="module")
def one_wire() -> Wire:
    return used(Wire())


@pytest.fixture
def used_wire(one_wire: Wire) -> Wire:
    """A client that other tests have used, for tests that leave nothing behind: creating one costs more than they do."""
    one_wire.session.requests.clear()
    return one_wire


def used(wire: Wire) -> Wire:
    """A client whose requests have known forms."""
    for stream in (STREAM, StreamId("orders", ARN)):
        wire.session.responses = [stored(1)]
        put_records(wire.lean, stream, [PutEntry(b"x", "k")])
    wire.session.responses = [page(0)]
    get_records(wire.lean, "it", 1)
    wire.session.requests.clear()
    return wire


def bodies(wire: Wire) -> list[Any]:
    return [json.loads(request.body) for request in wire.session.requests]


def stored(count: int) -> tuple[int, bytes]:
    entry = {"SequenceNumber": "49", "ShardId": "shardId-000000000000"}
    return 200, json.dumps({"FailedRecordCount": 0, "Records": [entry] * count}).encode()


def item(index: int, size: int = 3, **more: Any) -> dict[str, Any]:
    return {
        "SequenceNumber": str(49 * 10**54 + index),
        "ApproximateArrivalTimestamp": 1785578400.123 + index,
        "Data": base64.b64encode(bytes([index % 256]) * size).decode(),
        "PartitionKey": f"key-{index}",
        **more,
    }


def page(count: int, **more: Any) -> tuple[int, bytes]:
    document = {
        "Records": [item(index) for index in range(count)],
        "NextShardIterator": "next",
        "MillisBehindLatest": 12,
        **more,
    }
    return 200, json.dumps(document).encode()


@pytest.fixture(scope="module")
def shared() -> Iterator[Wire]:
    yield used(Wire())


# -- requests -------------------------------------------------------------------------------------------------

texts = st.text(st.characters(codec=None), min_size=1, max_size=12)  # lone surrogates, too
entries_of = st.lists(
    st.builds(PutEntry, st.binary(max_size=80), texts, st.none() | st.integers(0, 2**128 - 1).map(str)),
    min_size=1,
    max_size=8,
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=20, fuzz=1_000))
@given(entries_of, st.sampled_from([STREAM, StreamId("orders", ARN)]))
@example([PutEntry(b"", '"\\\n\x00\x7f\u2028é😀', "0")], STREAM)
@example([PutEntry(b'{"Records":[]}', "]}", None)], STREAM)
@example([PutEntry(b"x", "k", None), PutEntry(b"y", "-" * 256, "1")], STREAM)
@example([PutEntry(b"x", None), PutEntry(b"", "k", None), PutEntry(b"", None)], STREAM)
def test_the_request_says_what_boto3s_would_say(
    shared: Wire, entries: list[PutEntry], stream: StreamId
) -> None:
    shared.session.requests.clear()
    shared.session.responses = [stored(len(entries))]
    ours = put_records(shared.lean, stream, entries)
    assert shared.session.last_was_lean
    assert ours == plain_put(shared.client, stream, entries)
    sent, theirs = shared.session.requests
    assert json.loads(sent.body) == json.loads(theirs.body)
    assert type(sent.body) is bytes
    assert (sent.url, sent.method) == (theirs.url, theirs.method)
    assert int(sent.headers["Content-Length"]) == len(sent.body)
    assert signer_of(sent) == signer_of(theirs) == "AKID"


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [PutEntry(b"x", "")],
        [PutEntry(b"x", 5)],  # type: ignore[arg-type]
        [PutEntry(5, "k")],  # type: ignore[arg-type]
        [PutEntry(b"x", "k", 5)],  # type: ignore[arg-type]
    ],
)
def test_boto3_rejects_bad_records_with_its_own_messages(used_wire: Wire, entries: list[PutEntry]) -> None:
    with pytest.raises(PermanentAwsError) as plain:
        plain_put(used_wire.client, STREAM, entries)
    with pytest.raises(PermanentAwsError) as ours:
        put_records(used_wire.lean, STREAM, entries)
    assert str(ours.value) == str(plain.value)
    assert used_wire.session.requests == []


@pytest.mark.parametrize("data", [bytearray(b"x"), "é"])
def test_what_boto3_takes_beyond_bytes_is_left_to_it(used_wire: Wire, data: Any) -> None:
    used_wire.session.responses = [stored(1)]
    put_records(used_wire.lean, STREAM, [PutEntry(data, "k")])
    plain_put(used_wire.client, STREAM, [PutEntry(data, "k")])
    ours, theirs = bodies(used_wire)
    assert ours == theirs


def test_the_first_put_of_a_form_is_boto3s(used_wire: Wire) -> None:
    used_wire.session.responses = [stored(2)]
    for lean in (False, True):
        put_records(used_wire.lean, StreamId("orders", ARN + "2"), [PutEntry(b"x", "k")] * 2)
        assert used_wire.session.last_was_lean is lean
        assert len(bodies(used_wire)[-1]["Records"]) == 2


# -- responses --------------------------------------------------------------------------------------------------


def plain_get(client: Any, iterator: str = "it", limit: int = 100) -> GetRecordsPage:
    with translate_errors("GetRecords", client):
        response = client.get_records(ShardIterator=iterator, Limit=limit)
    return GetRecordsPage(
        [KinesisRecord.from_api(each) for each in response["Records"]],
        response.get("NextShardIterator"),
        ResponseHeader.from_api(response, ended=not response.get("NextShardIterator")),
        response.get("ChildShards"),
        response["ResponseMetadata"],
    )


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=20, fuzz=1_000))
@given(
    st.lists(wire_items, max_size=9),
    st.fixed_dictionaries(
        {},
        optional={
            "NextShardIterator": st.none() | st.text(min_size=1, max_size=9),
            "MillisBehindLatest": st.none() | st.integers(0, 10**9),
            "ChildShards": child_shards,
            "SomethingNew": st.none() | st.integers(),
        },
    ),
    st.booleans(),
)
def test_the_response_is_read_as_boto3_reads_it(
    shared: Wire, items: list[dict[str, Any]], rest: dict[str, Any], ascii_only: bool
) -> None:
    encoded = [{**each, "Data": base64.b64encode(each["Data"]).decode()} for each in items]
    document = {**rest, "Records": encoded}
    body = json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    shared.session.responses = [(200, body)]
    ours = get_records(shared.lean, "it", 100)
    assert shared.session.last_was_lean
    assert ours == plain_get(shared.client)
    assert all(type(each) is KinesisRecord for each in ours.records)
    for each in ours.records:
        when = each.approximate_arrival_timestamp
        assert when is None or when.tzinfo is timezone.utc


# -- errors ---------------------------------------------------------------------------------------------------


BROKEN_BODIES = [
    b"",
    b"{",
    b"[]",
    b"7",
    b"null",
    b"\xff\xfe",
    b'{"Records":"\xff"}',
    b"{}",
    b'{"Records":null}',
    b'{"Records":7}',
    b'{"Records":{}}',
    b"<html>a proxy</html>",
]


@pytest.mark.parametrize("body", BROKEN_BODIES)
def test_broken_responses(used_wire: Wire, body: bytes) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda client: put_records(client, STREAM, [PutEntry(b"x", "k")]),
        lambda client: get_records(client, "it", 10),
    ]
    for call in calls:
        used_wire.session.requests.clear()
        used_wire.session.responses = [(200, body)]
        ours = outcome(lambda call=call: call(used_wire.lean))
        assert used_wire.session.last_was_lean
        assert len(used_wire.session.requests) == 1
        assert ours == outcome(lambda call=call: call(used_wire.client))
        if body != b'{"Records":{}}':  # botocore takes it for a list without elements
            assert issubclass(ours[0], ProtocolError | TransientAwsError)


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize(
    "change",
    [
        {"Data": None},
        {"Data": 5},
        {"Data": "é"},
        {"Data": "a"},
        {"SequenceNumber": None},
        {"ApproximateArrivalTimestamp": float("nan")},
        {"ApproximateArrivalTimestamp": 1e300},
        {"ApproximateArrivalTimestamp": 1e17},
        {"ApproximateArrivalTimestamp": {}},
    ],
)
def test_broken_records(used_wire: Wire, change: dict[str, Any], count: int) -> None:
    items = [item(index) for index in range(count)]
    items[-1] = {name: value for name, value in {**items[-1], **change}.items() if value is not None}
    used_wire.session.responses = [page(0, Records=items)]
    with pytest.raises(KinesisSdkError) as caught:
        get_records(used_wire.lean, "it", 10)
    assert caught.value.retryable
    assert isinstance(caught.value, ProtocolError)
    assert used_wire.session.last_was_lean


def test_missing_credentials_are_said_and_nothing_is_sent() -> None:
    session = botocore.session.Session()
    for name in list(session.get_component("credential_provider").providers):
        session.get_component("credential_provider").remove(name.METHOD)
    wire = Wire(creator=session)
    for _ in range(2):
        with pytest.raises(AwsConfigError, match="credentials"):
            put_records(wire.lean, STREAM, [PutEntry(b"x", "k")])
    assert wire.session.requests == []


# -- other users of the client, other clients -----------------------------------------------------------------


def test_hooks_may_change_what_is_put_and_read(wire: Wire) -> None:
    def encrypt(params: dict[str, Any], **_: Any) -> None:
        for record in params["Records"]:
            record["Data"] = record["Data"][::-1]

    def decrypt(parsed: dict[str, Any], **_: Any) -> None:
        for record in parsed["Records"]:
            record["Data"] = record["Data"] + b"!"

    events = wire.client.meta.events
    events.register("before-parameter-build.kinesis.PutRecords", encrypt)
    events.register("after-call.kinesis.GetRecords", decrypt)
    wire.session.responses = [stored(2)]
    put_records(wire.lean, STREAM, [PutEntry(b"abc", "k"), PutEntry(b"de", "k")])
    assert [each["Data"] for each in bodies(wire)[-1]["Records"]] == ["Y2Jh", "ZWQ="]
    wire.session.responses = [page(3)]
    found = get_records(wire.lean, "it", 10)
    assert [record.data for record in found.records] == [bytes([index]) * 3 + b"!" for index in range(3)]


def test_wrappers_and_mocks_get_plain_calls(wire: Wire) -> None:
    class Wrapper:
        __slots__ = ("calls",)  # not weakly referable either

        def __init__(self) -> None:
            self.calls: list[dict[str, Any]] = []

        def put_records(self, **request: Any) -> dict[str, Any]:
            self.calls.append(request)
            return {"Records": []}

        def get_records(self, **request: Any) -> dict[str, Any]:
            self.calls.append(request)
            return {"Records": [{"Data": b"x", "SequenceNumber": "1"}]}

    wrapper = Wrapper()
    put_records(wrapper, STREAM, [PutEntry(b"x", "k")])  # type: ignore[arg-type]
    found = get_records(wrapper, "it", 10)  # type: ignore[arg-type]
    assert wrapper.calls == [
        {"StreamName": "orders", "Records": [{"Data": b"x", "PartitionKey": "k"}]},
        {"ShardIterator": "it", "Limit": 10},
    ]
    assert type(wrapper.calls[0]["Records"]) is list
    assert type(wrapper.calls[1]["ShardIterator"]) is str
    assert found == ([KinesisRecord(b"x", "", "1", None, None)], None, ResponseHeader(ended=True), None, {})

    mocked = mock.MagicMock(spec=BaseClient)
    mocked.put_records = mock.Mock(return_value={"Records": []})
    put_records(mocked, STREAM, [PutEntry(b"x", "k")])
    mocked.put_records.assert_called_once_with(
        StreamName="orders", Records=[{"Data": b"x", "PartitionKey": "k"}]
    )


def test_many_threads_share_a_client(used_wire: Wire) -> None:
    def respond(request: Any) -> tuple[int, bytes]:
        # The response says what was asked: every thread can tell its own.
        asked = json.loads(request.body)["Records"]
        entries = [{"SequenceNumber": each["PartitionKey"], "ShardId": each["Data"]} for each in asked]
        return 200, json.dumps({"FailedRecordCount": 0, "Records": entries}).encode()

    used_wire.session.responses = [respond]
    barrier = threading.Barrier(6)

    def work(thread: int) -> None:
        barrier.wait(HANG)
        for turn in range(9):
            tag = f"{thread}-{turn}"
            entries = [PutEntry(f"{tag}-{index}".encode(), tag) for index in range(turn % 7 + 1)]
            if (thread + turn) % 3:
                result = put_records(used_wire.lean, STREAM, entries)["Records"]
            else:
                result = plain_put(used_wire.client, STREAM, entries)["Records"]
            assert [base64.b64decode(each["ShardId"]) for each in result] == [each.data for each in entries]
            assert {each["SequenceNumber"] for each in result} == {tag}

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
    finally:
        sys.setswitchinterval(interval)


def test_importing_is_cheap() -> None:
    code = "import sys, kinesis_sdk.common.transport; sys.exit('botocore' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)
