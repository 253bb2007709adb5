"""The fast path has the same requests, responses and errors as boto3, and does not affect other users of the client."""

from __future__ import annotations

import base64
import gc
import hashlib
import hmac
import json
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.config import Config
from botocore.credentials import CredentialProvider, RefreshableCredentials
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from botocore.stub import Stubber
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesis_sdk.common import fast_get, fast_put, fastpath
from kinesis_sdk.common.aws import translate_errors
from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    EndpointUnreachableError,
    ExpiredIteratorError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    ThrottledError,
    TransientAwsError,
)
from kinesis_sdk.common.fast_hooks import MARK
from kinesis_sdk.common.fastpath import GetRecordsPage, PutEntry
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests import HANG, fuzz

STREAM = StreamId("orders")
ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI"

SESSION = botocore.session.Session()


class _Raw:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def stream(self, *_: Any, **__: Any) -> Any:
        yield self.body


class Wire:
    """A real client whose requests end here, and whose responses come from here.

    ``responses`` are used up one by one, the last one stays: ``(status, body)``, an exception, or a function of
    the request that returns one of them.
    """

    def __init__(
        self, *, session: Any = None, service: str = "kinesis", used: bool = True, **config: Any
    ) -> None:
        self.requests: list[Any] = []
        self.responses: list[Any] = [(200, b"{}")]
        self.client = (session or SESSION).create_client(
            service,
            region_name="eu-central-1",
            endpoint_url="http://stream.example:4567",
            **({} if session else {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET}),
            config=Config(**{"retries": {"total_max_attempts": 1, "mode": "standard"}, **config}),
        )
        self.client.meta.events.register(f"before-send.{service}", self._send)
        if used:
            # A client's first PutRecords is special.
            self.responses = [stored(1)]
            fastpath.put_records(self.client, STREAM, [PutEntry(b"x", "k")])
            self.requests.clear()
            self.responses = [(200, b"{}")]

    def _send(self, request: Any, **_: Any) -> AWSResponse:
        self.requests.append(request)
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if callable(response):
            response = response(request)
        if isinstance(response, Exception):
            raise response
        status, body = response
        headers = {
            "x-amzn-requestid": f"id-{len(self.requests)}",
            "content-type": "application/x-amz-json-1.1",
            "date": "Sat, 01 Aug 2026 10:00:00 GMT",
        }
        return AWSResponse(request.url, status, headers, _Raw(body))

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.body) for request in self.requests]


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture(scope="module")
def one_wire() -> Wire:
    return Wire()


@pytest.fixture
def used_wire(one_wire: Wire) -> Wire:
    """A client that other tests have used, for tests that leave nothing behind: creating one costs more than they do."""
    one_wire.requests.clear()
    one_wire.responses = [(200, b"{}")]
    return one_wire


def stored(count: int) -> tuple[int, bytes]:
    entry = {"SequenceNumber": "49", "ShardId": "shardId-000000000000"}
    return 200, json.dumps({"FailedRecordCount": 0, "Records": [entry] * count}).encode()


def plain_items(entries: list[PutEntry]) -> list[dict[str, Any]]:
    names = ("Data", "PartitionKey", "ExplicitHashKey")
    return [{n: v for n, v in zip(names, e, strict=True) if v is not None} for e in entries]


def plain_put(client: Any, stream: StreamId, entries: list[PutEntry]) -> dict[str, Any]:
    with translate_errors("PutRecords", client):
        response: dict[str, Any] = client.put_records(Records=plain_items(entries), **stream.request)
    return response


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


def fast_for(client: Any) -> tuple[bool, bool]:
    """Whether puts and gets of a client still take the fast path."""
    puts, gets = fast_put._equipment.of(client), fast_get._equipment.of(client)
    assert puts is not None
    assert gets is not None
    return puts.useful, gets.useful


def parsed_items(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records botocore converts itself, call by call; proof of which path was taken."""
    counts: list[int] = []
    real = fast_get._page

    def spy(response: Any) -> GetRecordsPage:
        counts.append(len(response.get("Records") or ()))
        return real(response)

    monkeypatch.setattr(fast_get, "_page", spy)
    return counts


SHARED = Wire()

# -- requests -------------------------------------------------------------------------------------------------

texts = st.text(st.characters(codec=None), min_size=1, max_size=12)  # lone surrogates, too
entries_of = st.lists(
    st.builds(PutEntry, st.binary(max_size=80), texts, st.none() | st.integers(0, 2**128 - 1).map(str)),
    min_size=1,
    max_size=8,
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
@given(entries_of, st.sampled_from([STREAM, StreamId("orders", ARN)]))
@example([PutEntry(b"", '"\\\n\x00\x7f\u2028é😀', "0")], STREAM)
@example([PutEntry(b'{"Records":[]}', "]}", None)], STREAM)
@example([PutEntry(b"x", "k", None), PutEntry(b"y", "-" * 256, "1")], STREAM)
@example([PutEntry(b"x", None), PutEntry(b"", "k", None), PutEntry(b"", None)], STREAM)
def test_the_request_says_what_boto3s_would_say(entries: list[PutEntry], stream: StreamId) -> None:
    SHARED.requests.clear()
    SHARED.responses = [stored(len(entries))]
    fast = fastpath.put_records(SHARED.client, stream, entries)
    plain = plain_put(SHARED.client, stream, entries)
    ours, theirs = SHARED.requests
    assert json.loads(ours.body) == json.loads(theirs.body)
    assert type(ours.body) is bytes
    assert ours.url == theirs.url
    assert ours.method == theirs.method
    assert int(ours.headers["Content-Length"]) == len(ours.body)
    volatile = {"authorization", "x-amz-date", "content-length", "amz-sdk-invocation-id"}
    assert {name: value for name, value in ours.headers.items() if name.lower() not in volatile} == {
        name: value for name, value in theirs.headers.items() if name.lower() not in volatile
    }
    fast["ResponseMetadata"]["HTTPHeaders"].pop("x-amzn-requestid")
    plain["ResponseMetadata"]["HTTPHeaders"].pop("x-amzn-requestid")
    assert {**fast, "ResponseMetadata": {**fast["ResponseMetadata"], "RequestId": ""}} == {
        **plain,
        "ResponseMetadata": {**plain["ResponseMetadata"], "RequestId": ""},
    }
    assert fast_for(SHARED.client) == (True, True)


def test_boto3_does_not_see_the_records(wire: Wire) -> None:
    """That they are in the request proves nothing about the way they took."""
    wire.responses = [stored(3)]
    seen = []
    wire.client.meta.events.register_last(
        "before-parameter-build", lambda params, **_: seen.append(params["Records"])
    )
    fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")] * 3)
    assert seen == [[fast_put._PLACEHOLDER]]
    assert len(wire.bodies[-1]["Records"]) == 3


def test_kinesis_would_reject_the_placeholder() -> None:
    client = FakeAws(clock=VirtualClock(), throttle=False).client("kinesis")
    client.create_stream(StreamName="orders", ShardCount=1)
    for member in ("PartitionKey", "ExplicitHashKey"):
        good = {"Data": b"", "PartitionKey": "k", member: fast_put._PLACEHOLDER[member]}
        with pytest.raises(PermanentAwsError), translate_errors("PutRecords", client):
            client.put_records(StreamName="orders", Records=[good])


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
def test_boto3_rejects_bad_records_with_its_own_messages(wire: Wire, entries: list[PutEntry]) -> None:
    with pytest.raises(PermanentAwsError) as plain:
        plain_put(wire.client, STREAM, entries)
    with pytest.raises(PermanentAwsError) as fast:
        fastpath.put_records(wire.client, STREAM, entries)
    assert str(fast.value) == str(plain.value)
    assert wire.requests == []
    assert fast_for(wire.client) == (True, True)


@pytest.mark.parametrize("data", [bytearray(b"x"), "é"])
def test_what_boto3_takes_beyond_bytes_is_left_to_it(wire: Wire, data: Any) -> None:
    wire.responses = [stored(1)]
    fastpath.put_records(wire.client, STREAM, [PutEntry(data, "k")])
    plain_put(wire.client, STREAM, [PutEntry(data, "k")])
    assert wire.bodies[0] == wire.bodies[1]
    assert fast_for(wire.client) == (True, True)


# -- signatures -----------------------------------------------------------------------------------------------


def expected_signature(request: Any, secret: str) -> str:
    """SigV4 of what arrived, by the book and not by botocore."""
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    url = urlsplit(request.url)
    headers.setdefault("host", url.netloc)
    fields = dict(part.strip().split("=", 1) for part in headers["authorization"].split(" ", 1)[1].split(","))
    _, day, region, service, terminator = fields["Credential"].split("/")
    signed = fields["SignedHeaders"]
    canonical = "\n".join(
        [
            request.method,
            url.path or "/",
            url.query,
            *(f"{name}:{' '.join(headers[name].split())}" for name in signed.split(";")),
            "",
            signed,
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    scope = f"{day}/{region}/{service}/{terminator}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, terminator):
        key = hmac.digest(key, part.encode(), "sha256")
    assert fields["Signature"] == hmac.digest(key, text.encode(), "sha256").hex()
    return fields["Credential"].split("/")[0]


def test_the_signature_covers_what_arrives(wire: Wire) -> None:
    wire.responses = [stored(2)]
    fastpath.put_records(wire.client, STREAM, [PutEntry(b"a" * 5000, "é"), PutEntry(b"", "k", "7")])
    fastpath.put_records(wire.client, StreamId("orders", ARN), [PutEntry(b"b", "k")] * 2)
    wire.responses = [page(5)]
    fastpath.get_records(wire.client, "it", 5)
    assert len(wire.requests) == 3
    for request in wire.requests:
        assert expected_signature(request, SECRET) == KEY_ID


def test_session_credentials_are_refreshed_as_ever() -> None:
    turns = []

    def fetch() -> dict[str, str]:
        turns.append(1)
        # Within the span in which botocore insists on new ones.
        expiry = datetime.now(timezone.utc) + timedelta(seconds=60)
        return {
            "access_key": f"AKID{len(turns)}",
            "secret_key": f"secret-{len(turns)}",
            "token": f"token-{len(turns)}",
            "expiry_time": expiry.isoformat(),
        }

    class Provider(CredentialProvider):
        METHOD = CANONICAL_NAME = "test"

        def load(self) -> RefreshableCredentials:
            return RefreshableCredentials.create_from_metadata(fetch(), fetch, "test")

    session = botocore.session.Session()
    session.get_component("credential_provider").insert_before("env", Provider())
    wire = Wire(session=session)
    wire.responses = [stored(1)]
    turns.clear()
    keys = []
    for _ in range(2):
        fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")])
        token = wire.requests[-1].headers["X-Amz-Security-Token"]
        turn = (token.decode() if isinstance(token, bytes) else token).removeprefix("token-")
        keys.append(expected_signature(wire.requests[-1], f"secret-{turn}"))
    assert len(set(keys)) == 2


def test_missing_credentials_are_said_once_and_nothing_is_sent() -> None:
    session = botocore.session.Session()
    for name in list(session.get_component("credential_provider").providers):
        session.get_component("credential_provider").remove(name.METHOD)
    wire = Wire(session=session, used=False)
    with pytest.raises(AwsConfigError, match="credentials"):
        fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")])
    assert wire.requests == []
    assert fast_for(wire.client) == (True, True)


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


def without_request_id(found: GetRecordsPage) -> GetRecordsPage:
    metadata = {**found.metadata, "RequestId": ""}
    metadata["HTTPHeaders"] = {**metadata["HTTPHeaders"], "x-amzn-requestid": ""}
    return found._replace(metadata=metadata)


moments = (
    st.integers(0, 4 * 10**12).map(lambda millis: millis / 1000)
    | st.integers(0, 4 * 10**9)
    | st.just("2026-08-01T10:00:00Z")
    | st.none()
)
wire_items = st.fixed_dictionaries(
    {"SequenceNumber": st.integers(0, 10**56).map(str), "Data": st.binary(max_size=40)},
    optional={
        "PartitionKey": st.text(max_size=8) | st.none(),
        "ApproximateArrivalTimestamp": moments,
        "EncryptionType": st.sampled_from(["NONE", "KMS", None]),
        "SomethingNew": st.none() | st.integers(),
    },
)
child_shards = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "ShardId": st.just("shardId-000000000001"),
            "ParentShards": st.lists(st.just("shardId-000000000000"), max_size=2),
            "HashKeyRange": st.just({"StartingHashKey": "0", "EndingHashKey": "9"}),
        }
    ),
    max_size=2,
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=30, fuzz=1_000))
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
    items: list[dict[str, Any]], rest: dict[str, Any], ascii_only: bool
) -> None:
    encoded = [{**each, "Data": base64.b64encode(each["Data"]).decode()} for each in items]
    document = {**rest, "Records": encoded}
    body = json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    SHARED.responses = [(200, body)]
    fast = fastpath.get_records(SHARED.client, "it", 100)
    plain = plain_get(SHARED.client)
    assert without_request_id(fast) == without_request_id(plain)
    assert all(type(each) is KinesisRecord for each in fast.records)
    for each in fast.records:
        when = each.approximate_arrival_timestamp
        assert when is None or when.tzinfo is timezone.utc
    assert fast_for(SHARED.client) == (True, True)


def test_the_request_for_records(wire: Wire) -> None:
    wire.responses = [page(9)]
    fastpath.get_records(wire.client, 'it"1', 77, ARN)
    fastpath.get_records(wire.client, "it2", 5)
    assert wire.bodies == [
        {"ShardIterator": 'it"1', "Limit": 77, "StreamARN": ARN},
        {"ShardIterator": "it2", "Limit": 5},
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 50])
def test_botocore_converts_a_sample_only(wire: Wire, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    counts = parsed_items(monkeypatch)
    wire.responses = [page(count)]
    found = fastpath.get_records(wire.client, "it", 100)
    assert [record.partition_key for record in found.records] == [f"key-{index}" for index in range(count)]
    assert found.metadata["HTTPHeaders"]["date"] == "Sat, 01 Aug 2026 10:00:00 GMT"
    assert counts == [1 if count >= fast_get._WORTH_IT else count]


# -- errors ---------------------------------------------------------------------------------------------------


def calls() -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    entries = [PutEntry(b"x", "k", "0")] * 3
    return {
        "put": (lambda c: fastpath.put_records(c, STREAM, entries), lambda c: plain_put(c, STREAM, entries)),
        "get": (lambda c: fastpath.get_records(c, "it", 10), lambda c: plain_get(c, limit=10)),
    }


def service_response(code: str, status: int = 400) -> tuple[int, bytes]:
    return status, json.dumps({"__type": code, "message": f"because of {code}"}).encode()


@pytest.mark.parametrize("call", ["put", "get"])
@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (service_response("ProvisionedThroughputExceededException"), ThrottledError),
        (service_response("ResourceNotFoundException"), ResourceNotFoundError),
        (service_response("ExpiredIteratorException"), ExpiredIteratorError),
        (service_response("InvalidArgumentException"), PermanentAwsError),
        (service_response("UnrecognizedClientException"), AwsConfigError),
        (service_response("com.amazonaws.kinesis#InternalFailure", 500), TransientAwsError),
        ((500, b""), TransientAwsError),
        ((503, b"<html><body>Service Unavailable</body></html>"), TransientAwsError),
        ((403, b"not json"), PermanentAwsError),
        (ReadTimeoutError(endpoint_url="http://x"), TransientAwsError),
        (ConnectTimeoutError(endpoint_url="http://x"), EndpointUnreachableError),
        (ConnectionResetError("reset"), TransientAwsError),
    ],
)
def test_errors_are_those_of_the_plain_call(
    used_wire: Wire, call: str, response: Any, kind: type[KinesisSdkError]
) -> None:
    fast, plain = calls()[call]
    used_wire.responses = [response]
    errors = []
    for function in (plain, fast):
        with pytest.raises(KinesisSdkError) as caught:
            function(used_wire.client)
        errors.append(caught.value)
        assert isinstance(caught.value, AwsError)
    theirs, ours = (dict(vars(error), request_id=None) for error in errors)
    assert type(errors[1]) is type(errors[0]) is kind
    assert ours == theirs
    assert str(errors[0]) == str(errors[1])
    if isinstance(response, tuple):
        plain_id = errors[0].request_id  # type: ignore[attr-defined]
        assert errors[1].request_id == (plain_id and "id-2")  # type: ignore[attr-defined]
        assert errors[1].status == response[0]  # type: ignore[attr-defined]
    assert len(used_wire.requests) == 2
    assert fast_for(used_wire.client) == (True, True)


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
def test_broken_responses_to_gets(used_wire: Wire, body: bytes) -> None:
    used_wire.responses = [(200, body)]
    with pytest.raises(ProtocolError) as caught:
        fastpath.get_records(used_wire.client, "it", 10)
    assert caught.value.retryable
    assert len(used_wire.requests) == 1
    used_wire.responses = [page(6)]
    assert len(fastpath.get_records(used_wire.client, "it", 10).records) == 6


@pytest.mark.parametrize("body", BROKEN_BODIES)
def test_broken_responses_to_puts(used_wire: Wire, body: bytes) -> None:
    """Here botocore reads them; over some it stumbles, and others it takes for an response without results."""
    used_wire.responses = [(200, body)]
    try:
        response = fastpath.put_records(used_wire.client, STREAM, [PutEntry(b"x", "k")])
    except ProtocolError as error:
        assert error.retryable
    except TransientAwsError as error:
        assert error.code in {"AttributeError", "TypeError", "ResponseParserError"}
    else:
        assert response["Records"] == []
        assert body == b'{"Records":{}}'
    assert len(used_wire.requests) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"\xff\xfe", b'{"Records":null}', b"<html></html>"])
def test_responses_to_puts_without_results(used_wire: Wire, body: bytes) -> None:
    used_wire.responses = [(200, body)]
    with pytest.raises(ProtocolError, match="PutRecords: "):
        fastpath.put_records(used_wire.client, STREAM, [PutEntry(b"x", "k")])


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
        {"ApproximateArrivalTimestamp": {}},
    ],
)
def test_broken_records(used_wire: Wire, change: dict[str, Any], count: int) -> None:
    items = [item(index) for index in range(count)]
    items[-1] = {name: value for name, value in {**items[-1], **change}.items() if value is not None}
    used_wire.responses = [page(0, Records=items)]
    with pytest.raises(KinesisSdkError) as caught:
        fastpath.get_records(used_wire.client, "it", 10)
    assert caught.value.retryable
    if count > 1:
        assert isinstance(caught.value, ProtocolError)


# -- botocore's own retries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["standard", "legacy"])
def test_botocores_retries_carry_the_whole_request(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    wire = Wire(retries={"mode": mode, "total_max_attempts": 3})
    wire.responses = [(500, b"{}"), ConnectTimeoutError(endpoint_url="http://x"), stored(2)]
    response = fastpath.put_records(wire.client, STREAM, [PutEntry(b"x" * 100, "k")] * 2)
    assert response["ResponseMetadata"]["RetryAttempts"] == 2
    assert len({request.body for request in wire.requests}) == 1
    assert len(wire.bodies[0]["Records"]) == 2
    for request in wire.requests:
        expected_signature(request, SECRET)

    wire.responses = [service_response("ProvisionedThroughputExceededException"), (500, b""), page(7)]
    assert len(fastpath.get_records(wire.client, "it", 10).records) == 7
    assert fast_for(wire.client) == (True, True)


def test_a_hook_that_requests_another_attempt_gets_the_last_response(wire: Wire) -> None:
    wire.client.meta.events.register(
        "needs-retry.kinesis.GetRecords", lambda attempts, **_: 0 if attempts == 1 else None
    )
    wire.responses = [page(9), page(5)]
    assert len(fastpath.get_records(wire.client, "it", 10).records) == 5
    wire.responses = [(200, b"{"), page(5)]
    assert len(fastpath.get_records(wire.client, "it", 10).records) == 5
    wire.responses = [page(9), (200, b"{")]
    with pytest.raises(ProtocolError):
        fastpath.get_records(wire.client, "it", 10)


# -- other users of the client --------------------------------------------------------------------------------


def test_calls_of_others_are_not_touched(wire: Wire) -> None:
    wire.responses = [page(6)]
    fastpath.get_records(wire.client, "it", 10)

    wire.responses = [stored(6)]
    wire.client.put_records(StreamName="s", Records=[{"Data": "é", "PartitionKey": "k"}] * 6)
    assert (
        wire.bodies[-1]["Records"]
        == [{"Data": base64.b64encode("é".encode()).decode(), "PartitionKey": "k"}] * 6
    )
    wire.responses = [page(6)]
    response = wire.client.get_records(ShardIterator="it")
    assert [each["Data"] for each in response["Records"]] == [bytes([index]) * 3 for index in range(6)]
    wire.responses = [(200, b"{")]
    assert "Records" not in wire.client.get_records(ShardIterator="it")


def test_hooks_see_what_the_plain_call_shows_them(wire: Wire) -> None:
    seen: dict[str, list[Any]] = {"params": [], "build": [], "call": [], "signed": [], "parse": []}
    events = wire.client.meta.events

    def on_call(params: dict[str, Any], **_: Any) -> None:
        seen["call"].append(json.loads(params["body"]))

    def on_sign(request: Any, **_: Any) -> None:
        seen["signed"].append(json.loads(request.data))

    events.register("provide-client-params.*.*", lambda params, **_: seen["params"].append(dict(params)))
    events.register("before-parameter-build.*.*", lambda params, **_: seen["build"].append(dict(params)))
    events.register("before-call.*.*", on_call)
    events.register("before-sign.*.*", on_sign)
    events.register(
        "before-parse.*.*", lambda response_dict, **_: seen["parse"].append(response_dict["body"])
    )
    entries = [PutEntry(b"x", "k", "1"), PutEntry(b"y", "l")]
    wire.responses = [stored(2)]
    plain_put(wire.client, STREAM, entries)
    fastpath.put_records(wire.client, STREAM, entries)
    wire.responses = [page(7)]
    plain_get(wire.client)
    fastpath.get_records(wire.client, "it", 100)
    for name, values in seen.items():
        assert len(values) == 4, name
        assert values[0] == values[1], name
        assert values[2] == values[3], name


def test_hooks_may_change_a_request(wire: Wire) -> None:
    def encrypt(params: dict[str, Any], **_: Any) -> None:
        for record in params["Records"]:
            record["Data"] = record["Data"][::-1]

    def rename(params: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**params, "StreamName": "elsewhere"}

    wire.client.meta.events.register("before-parameter-build.kinesis.PutRecords", encrypt)
    wire.client.meta.events.register("provide-client-params.kinesis.PutRecords", rename)
    wire.responses = [stored(2)]
    fastpath.put_records(wire.client, STREAM, [PutEntry(b"abc", "k"), PutEntry(b"de", "k")])
    assert wire.bodies == [
        {
            "StreamName": "elsewhere",
            "Records": [
                {"Data": base64.b64encode(b"cba").decode(), "PartitionKey": "k"},
                {"Data": base64.b64encode(b"ed").decode(), "PartitionKey": "k"},
            ],
        }
    ]
    assert fast_for(wire.client) == (True, True)


def test_a_hook_that_adds_what_we_do_not_know_is_left_to_boto3(wire: Wire) -> None:
    def add(params: dict[str, Any], **_: Any) -> None:
        params["Records"][0]["Colour"] = "red"

    wire.client.meta.events.register("before-parameter-build.kinesis.PutRecords", add)
    with pytest.raises(PermanentAwsError, match="Colour"):
        fastpath.put_records(wire.client, STREAM, [PutEntry(b"abc", "k")])


def test_a_hook_that_changes_the_placeholder_ends_the_fast_path(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    def encrypt(params: dict[str, Any], **_: Any) -> None:
        for record in params["Records"]:
            record["Data"] = record["Data"] + b"!"

    wire.client.meta.events.register_last("before-parameter-build", encrypt)
    wire.responses = [stored(2)]
    with caplog.at_level(logging.WARNING, "kinesis_sdk"):
        for _ in range(2):
            fastpath.put_records(wire.client, STREAM, [PutEntry(b"abc", "k"), PutEntry(b"de", "k")])
    assert [[each["Data"] for each in body["Records"]] for body in wire.bodies] == [
        [base64.b64encode(b"abc!").decode(), base64.b64encode(b"de!").decode()]
    ] * 2
    assert fast_for(wire.client) == (False, True)
    assert len(caplog.records) == 1


def test_a_hook_that_decrypts_records_gets_all_of_them(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    def decrypt(parsed: dict[str, Any], **_: Any) -> None:
        for record in parsed["Records"]:
            record["Data"] = record["Data"] + b"!"

    wire.client.meta.events.register("after-call.kinesis.GetRecords", decrypt)
    wire.responses = [page(6)]
    with caplog.at_level(logging.WARNING, "kinesis_sdk"):
        for _ in range(2):
            found = fastpath.get_records(wire.client, "it", 10)
            assert [record.data for record in found.records] == [bytes([i]) * 3 + b"!" for i in range(6)]
    assert len(wire.requests) == 3
    assert fast_for(wire.client) == (True, False)
    assert len(caplog.records) == 1


def test_a_hook_that_needs_all_records_gets_them(wire: Wire) -> None:
    seen = []

    def last_of_many(parsed: dict[str, Any], **_: Any) -> None:
        seen.append(parsed["Records"][5])

    wire.client.meta.events.register("after-call.kinesis.GetRecords", last_of_many)
    wire.responses = [page(6)]
    assert len(fastpath.get_records(wire.client, "it", 10).records) == 6
    assert len(seen) == 1
    assert fast_for(wire.client) == (True, False)


def test_a_failing_hook_fails_the_call_as_ever(wire: Wire) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("no")

    wire.client.meta.events.register("before-parameter-build.kinesis.*", fail)
    wire.client.meta.events.register("before-call.kinesis.*", fail)
    for function in (calls()["put"][0], calls()["get"][0]):
        with pytest.raises(TransientAwsError, match="no"):
            function(wire.client)
    assert fast_for(wire.client) == (True, True)
    assert wire.requests == []


def test_a_hook_may_call_the_same_operations_in_the_middle_of_ours(wire: Wire) -> None:
    inner: list[Any] = []
    busy = threading.local()

    def nested(request: Any, event_name: str, **_: Any) -> None:
        if getattr(busy, "on", False):
            return
        busy.on = True
        try:
            if event_name.endswith("PutRecords"):
                record = {"Data": b"inner", "PartitionKey": "k"}
                inner.append(wire.client.put_records(StreamName="inner", Records=[record]))
            else:
                inner.append(wire.client.get_records(ShardIterator="inner"))
                inner.append(fastpath.get_records(wire.client, "inner", 10))
        finally:
            busy.on = False

    wire.client.meta.events.register_first("before-send.kinesis", nested)

    def response(request: Any) -> tuple[int, bytes]:
        document = json.loads(request.body)
        if "Records" in document:
            return stored(len(document["Records"]))
        return page(5 if document["ShardIterator"] == "inner" else 8)

    wire.responses = [response]
    assert len(fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")] * 3)["Records"]) == 3
    assert len(fastpath.get_records(wire.client, "it", 10).records) == 8
    assert [len(each["Records"] if isinstance(each, dict) else each.records) for each in inner] == [1, 5, 5]
    assert [body["StreamName"] for body in wire.bodies[:2]] == ["inner", "orders"]
    assert fast_for(wire.client) == (True, True)


# -- hooks that do not run ------------------------------------------------------------------------------------


def reject_placeholders(request: Any) -> tuple[int, bytes]:
    records = json.loads(request.body)["Records"]
    bad = any(len(record["PartitionKey"]) > 256 for record in records)
    return service_response("ValidationException") if bad else stored(len(records))


def test_without_the_hook_that_places_the_records_nothing_is_lost(wire: Wire) -> None:
    wire.responses = [reject_placeholders]
    wire.client.meta.events.unregister("before-call.*.*", unique_id="kinesis-sdk-put-call")
    for _ in range(2):
        assert len(fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")] * 4)["Records"]) == 4
    assert [len(body["Records"]) for body in wire.bodies] == [1, 4, 4]
    assert fast_for(wire.client) == (False, True)


def test_an_outage_does_not_end_the_fast_path(wire: Wire) -> None:
    wire.responses = [ReadTimeoutError(endpoint_url="http://x")]
    for _ in range(3):
        with pytest.raises(TransientAwsError):
            fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")])
    assert len(wire.requests) == 3
    wire.responses = [stored(1)]
    fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")])
    assert fast_for(wire.client) == (True, True)


@pytest.mark.parametrize(
    ("event", "unique_id"),
    [
        ("before-parameter-build", "kinesis-sdk-put-parameters"),
        ("before-parameter-build.kinesis.GetRecords", "kinesis-sdk-get-parameters"),
        ("before-call.kinesis.GetRecords", "kinesis-sdk-get-call"),
        ("before-parse", "kinesis-sdk-get-response"),
    ],
)
def test_without_another_hook_boto3_does_the_work(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, event: str, unique_id: str
) -> None:
    fast_for(wire.client)
    counts = parsed_items(monkeypatch)
    wire.client.meta.events.unregister(event, unique_id=unique_id)
    wire.responses = [stored(5)]
    fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")] * 5)
    wire.responses = [page(6)]
    assert len(fastpath.get_records(wire.client, "it", 10).records) == 6
    assert counts == [1 if unique_id.startswith("kinesis-sdk-put") else 6]
    assert len(wire.bodies[0]["Records"]) == 5
    assert len(wire.requests) == 2


def test_the_first_call_of_a_client_sends_no_placeholder() -> None:
    """Not even where the hook that completes requests is never called; an emulator might store it."""
    wire = Wire(used=False)
    fast_for(wire.client)
    wire.client.meta.events.unregister("before-call.*.*", unique_id="kinesis-sdk-put-call")
    wire.responses = [stored(2)]
    for _ in range(3):
        fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")] * 2)
    assert [len(body["Records"]) for body in wire.bodies] == [2, 2, 2]


def test_a_body_that_is_not_json_is_not_sent(wire: Wire) -> None:
    """As if botocore had begun to speak another protocol with Kinesis."""
    state = fast_put._equipment.of(wire.client)
    assert state is not None
    for body in (b"\xa1", b"[]", b"{}", b'{"Records":[]}', b"\xff"):
        records = fast_put._Records([], state)
        records.replaced = True
        request = {"body": body}
        with pytest.raises(fast_put._NotPlacedError):
            fast_put._on_call(params=request, context={MARK: records})
        assert request == {"body": body}
        assert not records.placed


def test_only_json_clients_of_kinesis_are_equipped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fast_put._equipment.of(Wire(service="dynamodb", used=False).client) is None
    wire = Wire(used=False)
    model = wire.client.meta.service_model
    monkeypatch.setattr(model, "resolved_protocol", "smithy-rpc-v2-cbor", raising=False)
    assert fast_put._equipment.of(wire.client) is None
    monkeypatch.undo()
    assert fast_for(wire.client) == (True, True)


# -- other clients --------------------------------------------------------------------------------------------


def test_the_fake_client() -> None:
    aws = FakeAws(clock=VirtualClock(), throttle=False)
    client = aws.client("kinesis")
    client.create_stream(StreamName="orders", ShardCount=1)
    entries = [PutEntry(bytes([index]), f"key-{index}", str(index)) for index in range(9)]
    response = fastpath.put_records(client, STREAM, entries)
    assert response["FailedRecordCount"] == 0
    iterator = client.get_shard_iterator(
        StreamName="orders", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    found = fastpath.get_records(client, iterator, 100)
    assert [(record.data, record.partition_key) for record in found.records] == [e[:2] for e in entries]
    assert [record.sequence_number for record in found.records] == [
        each["SequenceNumber"] for each in response["Records"]
    ]
    assert found.next_iterator
    assert found.header.millis_behind_latest == 0
    assert found.child_shards is None
    with pytest.raises(ResourceNotFoundError):
        fastpath.put_records(client, StreamId("missing"), entries)


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
    fastpath.put_records(wrapper, STREAM, [PutEntry(b"x", "k")])  # type: ignore[arg-type]
    found = fastpath.get_records(wrapper, "it", 10)  # type: ignore[arg-type]
    assert wrapper.calls == [
        {"StreamName": "orders", "Records": [{"Data": b"x", "PartitionKey": "k"}]},
        {"ShardIterator": "it", "Limit": 10},
    ]
    assert type(wrapper.calls[0]["Records"]) is list
    assert type(wrapper.calls[1]["ShardIterator"]) is str
    assert found == ([KinesisRecord(b"x", "", "1", None, None)], None, ResponseHeader(ended=True), None, {})

    mocked = mock.MagicMock(spec=BaseClient)
    mocked.put_records = mock.Mock(return_value={"Records": []})
    fastpath.put_records(mocked, STREAM, [PutEntry(b"x", "k")])
    mocked.put_records.assert_called_once_with(
        StreamName="orders", Records=[{"Data": b"x", "PartitionKey": "k"}]
    )


def test_a_stubbed_client(wire: Wire) -> None:
    entry = {"SequenceNumber": "1", "ShardId": "shardId-000000000000"}
    records = [{"Data": b"x", "PartitionKey": "k"}] * 2
    read = [{"Data": b"x", "PartitionKey": "k", "SequenceNumber": str(index)} for index in range(6)]
    with Stubber(wire.client) as stubber:
        stubber.add_response(
            "put_records", {"Records": [entry] * 2}, {"StreamName": "orders", "Records": records}
        )
        stubber.add_response("get_records", {"Records": read}, {"ShardIterator": "it", "Limit": 10})
        stubber.add_client_error("put_records", "ResourceNotFoundException", http_status_code=400)
        assert fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")] * 2)["Records"] == [entry] * 2
        assert len(fastpath.get_records(wire.client, "it", 10).records) == 6
        with pytest.raises(ResourceNotFoundError):
            fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")])
        stubber.assert_no_pending_responses()
    assert wire.requests == []
    assert fast_for(wire.client) == (True, True)


def test_a_session_without_parameter_validation() -> None:
    wire = Wire(parameter_validation=False)
    wire.responses = [stored(3)]
    fastpath.put_records(wire.client, STREAM, [PutEntry(b"x", "k")] * 3)
    assert len(wire.bodies[0]["Records"]) == 3
    assert fast_for(wire.client) == (True, True)


# -- threads, life ------------------------------------------------------------------------------------------


def test_many_threads_share_a_client() -> None:
    wire = Wire()

    def response(request: Any) -> tuple[int, bytes]:
        document = json.loads(request.body)
        if "Records" in document:
            # The response says what was asked: every thread can tell its own.
            entries = [
                {"SequenceNumber": r["PartitionKey"], "ShardId": r["Data"]} for r in document["Records"]
            ]
            return 200, json.dumps({"FailedRecordCount": 0, "Records": entries}).encode()
        tag = int(document["ShardIterator"])
        return page(0, Records=[item(index, PartitionKey=str(tag)) for index in range(tag % 40)])

    wire.responses = [response]
    barrier = threading.Barrier(6)

    def work(thread: int) -> None:
        barrier.wait(HANG)
        for turn in range(9):
            tag = f"{thread}-{turn}"
            entries = [PutEntry(f"{tag}-{index}".encode(), tag) for index in range(turn % 7 + 1)]
            put = plain_put if (thread + turn) % 3 == 0 else fastpath.put_records
            result = put(wire.client, STREAM, entries)["Records"]
            assert [base64.b64decode(each["ShardId"]) for each in result] == [each.data for each in entries]
            assert {each["SequenceNumber"] for each in result} == {tag}
            number = thread * 1000 + turn
            if (thread + turn) % 3 == 1:
                records = plain_get(wire.client, str(number)).records
            else:
                records = fastpath.get_records(wire.client, str(number), 100).records
            assert [record.partition_key for record in records] == [str(number)] * (number % 40)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
    finally:
        sys.setswitchinterval(interval)
    assert fast_for(wire.client) == (True, True)


def test_a_client_is_equipped_once_and_may_go() -> None:
    wire = Wire()
    states = [fast_put._equipment.of(wire.client) for _ in range(3)]
    assert states[0] is states[1] is states[2] is not None
    gone = weakref.ref(wire.client)
    del wire, states
    gc.collect()
    assert gone() is None


def test_importing_is_cheap() -> None:
    code = "import sys, kinesis_sdk.common.fastpath; sys.exit('botocore' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)
