"""Lean calls are boto3's calls: the same requests, responses and exceptions, and nothing sent twice."""

from __future__ import annotations

import functools
import gzip
import json
import logging
import re
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock

import boto3
import botocore.session
import pytest
from botocore import UNSIGNED
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import BaseClient
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    ConnectionClosedError,
    CredentialRetrievalError,
    EndpointConnectionError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.stub import Stubber

from kinesis_sdk.common.aws import reject_truncated_responses
from kinesis_sdk.common.errors import (
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
)
from kinesis_sdk.common.transport import (
    Transport,
    calls,
    get_records,
    hooks,
)
from kinesis_sdk.common.transport import get as reading
from kinesis_sdk.common.transport.hooks import HookCheck
from tests.common.transport.wire import ARN, CHILDREN, POSITION, SESSION, URL, Wire, get, outcome, page

ITERATOR = {"ShardIterator": "first", "Limit": 100}


END = page(2, NextShardIterator=None, ChildShards=CHILDREN)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture(scope="module")
def one_wire() -> Wire:
    return Wire()


@pytest.fixture
def used_wire(one_wire: Wire) -> Wire:
    """A client that other tests have used, for tests that leave nothing behind: creating one costs more than they do."""
    one_wire.session.requests.clear()
    one_wire.session.responses = [(200, page())]
    return one_wire


def open_iterator(client: Any) -> Any:
    return client.get_shard_iterator(**POSITION)


# -- requests ---------------------------------------------------------------------------------------------------------

CLIENTS: dict[str, dict[str, Any]] = {
    "endpoint_url": {},
    "AWS": {"endpoint": None},
    "FIPS": {"endpoint": None, "use_fips_endpoint": True},
    "dualstack": {"endpoint": None, "use_dualstack_endpoint": True},
    "default port": {"endpoint": "https://Stream.Example:443"},
    "IPv6": {"endpoint": "http://[::1]:4567"},
    "user agent": {"user_agent_extra": "app/é"},
    "legacy retries": {"retries": {"mode": "legacy", "max_attempts": 3}},
    "no validation": {"parameter_validation": False},
}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("get_records", {"ShardIterator": 'é"😀', "Limit": 1}),
    ("get_records", {**ITERATOR, "StreamARN": ARN}),
    ("get_shard_iterator", POSITION),
    ("get_shard_iterator", {"StreamARN": ARN, "ShardId": "s", "ShardIteratorType": "LATEST"}),
    (
        "get_shard_iterator",
        {
            "StreamName": "orders",
            "ShardId": "s",
            "ShardIteratorType": "AT_TIMESTAMP",
            "Timestamp": datetime(2026, 8, 1, 10, 0, 0, 123456, timezone.utc),
        },
    ),
]


def make(client: Any, method: str, parameters: dict[str, Any]) -> None:
    if method == "get_records":
        get_records(client, parameters["ShardIterator"], parameters["Limit"], parameters.get("StreamARN"))
    else:
        getattr(client, method)(**parameters)


@pytest.mark.parametrize(
    ("name", "token"), [*((name, None) for name in CLIENTS), ("endpoint_url", "token"), ("AWS", "token")]
)
def test_the_request_is_boto3s(name: str, token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    creator = botocore.session.Session()
    creator.set_credentials("AKID", "secret", token)
    wire = Wire(creator=creator, **CLIENTS[name])
    wire.session.responses = [(200, json.dumps({"Records": [], "ShardIterator": "x"}).encode())]
    for method, parameters in REQUESTS:
        getattr(wire.client, method)(**parameters)
        theirs = wire.session.requests[-1]
        make(wire.lean, method, parameters)
        assert not wire.session.last_was_lean
        make(wire.lean, method, parameters)
        ours = wire.session.requests[-1]
        assert wire.session.last_was_lean
        assert (ours.method, ours.url, ours.body) == (theirs.method, theirs.url, theirs.body)
        shown = {each.lower(): value for each, value in ours.headers.items()}
        expected = {
            each.lower(): value.decode("latin-1") if isinstance(value, bytes) else value
            for each, value in theirs.headers.items()
        }
        volatile = {"authorization", "x-amz-date", "amz-sdk-invocation-id"}
        assert shown.keys() == expected.keys()
        assert {each: shown[each] for each in shown.keys() - volatile} == {
            each: expected[each] for each in expected.keys() - volatile
        }
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", shown["amz-sdk-invocation-id"])
        assert shown["amz-sdk-invocation-id"] != expected["amz-sdk-invocation-id"]
        # botocore signs the same request at the same time.
        signed = [each for each in ("Content-Type", "X-Amz-Target") if each in ours.headers]
        again = AWSRequest("POST", ours.url, {each: ours.headers[each] for each in signed}, ours.body)
        date = datetime.strptime(shown["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        with monkeypatch.context() as patch:
            patch.setattr("botocore.auth.get_current_datetime", lambda date=date, **_: date)
            SigV4Auth(creator.get_credentials().get_frozen_credentials(), "kinesis", "eu-central-1").add_auth(
                again
            )
        assert again.headers["Authorization"] == shown["authorization"]


def test_streams_may_have_different_endpoints() -> None:
    wire = Wire(endpoint=None)
    other = ARN.replace("123456789012", "999999999999")
    for _ in range(3):
        for arn in (ARN, other):
            get_records(wire.lean, "x", 1, arn)
            assert f"//{arn.split(':')[4]}." in wire.session.requests[-1].url
    assert wire.session.last_was_lean


def test_forms_are_bounded(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MAX_FORMS", 3)
    for index in range(10):
        get_records(wire.lean, "x", 1, f"{ARN}-{index}")
        assert 1 <= len(wire.lean._forms) <= 3


# -- responses --------------------------------------------------------------------------------------------------------

RESPONSES: dict[str, Any] = {
    "no records": (200, page()),
    "no records, spaces": (200, b' {"Records" : [ ] , "NextShardIterator": "\xc3\xa9", "Unknown": 1}\n'),
    "one record": (200, page(1)),
    "records": (200, page(30)),
    "end of shard": (200, END),
    "null members": (200, page().replace(b"12", b"null")),
    "chunked": (200, page(3), {"Transfer-Encoding": "chunked", "Content-Length": ""}),
    "not JSON": (200, b"<html>"),
    "not an object": (200, b"[]"),
    "no member": (200, b"{}"),
    "nothing": (200, b""),
    "records of another type": (200, b'{"Records": {"a": 1}}'),
    "a bad record": (200, b'{"Records": [{"Data": 5}]}'),
    "bad base64": (200, page(2).replace(b'"eA=="', b'"e"')),
    "not UTF-8": (200, b'{"Records": [], "NextShardIterator": "\xff"}'),
    "compressed": (200, gzip.compress(page(), mtime=0), {"Content-Encoding": "gzip"}),
    "truncated": (200, page()[:-9], {"Content-Length": str(len(page()))}),
    "truncated to JSON": (200, b'{"Records": []}', {"Content-Length": "999"}),
    "other success": (202, page()),
    "redirect": (301, b"", {"Location": "http://elsewhere.example"}),
    "throttled": (400, b'{"__type": "ProvisionedThroughputExceededException", "message": "slow"}'),
    "expired iterator": (400, b'{"__type": "ExpiredIteratorException", "message": "old"}'),
    "expired token": (400, b'{"__type": "ExpiredTokenException", "message": "old"}'),
    "clock skew": (403, b'{"__type": "InvalidSignatureException", "message": "Signature expired"}'),
    "modelled error": (400, b'{"__type": "KMSThrottlingException", "message": "kms"}'),
    "error without a document": (400, b""),
    "internal failure": (500, b'{"__type": "InternalFailure", "message": "oops"}'),
    "HTML error": (503, b"<html>busy</html>"),
    "timeout": ReadTimeoutError(endpoint_url=URL),
    "closed": ConnectionClosedError(endpoint_url=URL),
    "unreachable": EndpointConnectionError(endpoint_url=URL),
    "another exception": OSError("broken"),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_the_outcome_is_boto3s(used_wire: Wire, name: str) -> None:
    check_outcome(used_wire, name)


@pytest.mark.parametrize(
    "name", ["records", "chunked", "truncated", "truncated to JSON", "compressed", "timeout"]
)
def test_the_outcome_is_boto3s_where_truncated_responses_are_rejected(wire: Wire, name: str) -> None:
    reject_truncated_responses(wire.client)
    check_outcome(wire, name)


def check_outcome(wire: Wire, name: str) -> None:
    for call in (open_iterator, get):
        wire.session.responses = [RESPONSES[name]]
        boto3s, ours = wire.both(call)
        if call is get and name in {"a bad record", "bad base64"}:
            # botocore stumbles over them, or we do.
            assert ours[0][0] is ProtocolError
            assert issubclass(boto3s[0][0], KinesisSdkError)
        else:
            assert ours == boto3s
        assert ours[1] == 1, "one call is one request"
        assert wire.session.last_was_lean


def test_records_are_decoded_once(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    wire.session.responses = [(200, page(50))]
    parsed: list[int] = []
    real = reading._page
    monkeypatch.setattr(
        reading, "_page", lambda response: parsed.append(len(response["Records"])) or real(response)
    )
    for lean in (False, True):
        found = get_records(wire.lean, "first", 100)
        assert [record.data for record in found.records] == [b"x" * index for index in range(50)]
        assert wire.session.last_was_lean is lean
    assert parsed == [0, 0], "botocore sees no records"


@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_retries_are_boto3s(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time.sleep", pauses.append)
    wire = Wire(retries={"mode": mode, "total_max_attempts": 3})
    failures = [RESPONSES["throttled"], RESPONSES["internal failure"], RESPONSES["timeout"]]
    for first in failures:
        wire.session.responses = [first, RESPONSES["throttled"], (200, page(6))]
        boto3s, ours = wire.both(get)
        assert ours == boto3s
        assert ours[0].metadata["RetryAttempts"] == 2
        assert ours[1] == 3
        wire.session.responses = [first]
        boto3s, ours = wire.both(get)
        assert ours == boto3s
        assert ours[1] == 3
    # boto3 retried a lean call; its records are decoded by the fast path as usual.
    wire.session.responses = [RESPONSES["throttled"], (200, page(6))]
    found = get_records(wire.lean, "first", 100)
    assert len(found.records) == 6
    assert len(pauses) == 3 * 8 + 1
    get(wire.lean)
    assert wire.session.last_was_lean


def test_successful_calls_refill_the_retry_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    wire = Wire(retries={"mode": "standard", "total_max_attempts": 2})
    (release,) = [
        handler.__self__
        for handler in wire.client.meta.events._emitter._handlers.prefix_search("after-call.kinesis")
        if hasattr(handler, "__self__")
    ]
    get(wire.lean)
    wire.session.responses = [RESPONSES["internal failure"]]
    outcome(lambda: get(wire.lean))
    wire.session.responses = [(200, page())]
    before = release._quota.available_capacity
    get(wire.lean)
    assert wire.session.last_was_lean
    assert release._quota.available_capacity == before + 1


# -- what is left to boto3 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [*hooks._PER_CALL, "before-endpoint-resolution"])
def test_hooks_of_users_run(used_wire: Wire, event: str) -> None:
    wire, seen = used_wire, list[str]()

    def hook(**_: Any) -> None:
        seen.append(event)

    for _ in range(2):
        get(wire.lean)
    assert wire.session.last_was_lean
    if event == "after-call-error":
        wire.session.responses = [RESPONSES["timeout"]]
    for name in (event, f"{event}.kinesis"):
        seen.clear()
        wire.client.meta.events.register(name, hook)
        outcome(lambda: get(wire.lean))
        assert seen, "the hook ran"
        assert not wire.session.last_was_lean
        wire.client.meta.events.unregister(name, hook)
        outcome(lambda: get(wire.lean))
        assert wire.session.last_was_lean


def test_hooks_of_the_sdk_do_not_matter(wire: Wire) -> None:
    reject_truncated_responses(wire.client)
    Transport(wire.client)
    for _ in range(2):
        get(wire.lean)
    assert wire.session.last_was_lean


def test_the_stubber_answers(wire: Wire) -> None:
    for _ in range(2):
        get(wire.lean)
    sent = len(wire.session.requests)
    with Stubber(wire.client) as stubber:
        stubber.add_response("get_records", {"Records": [], "NextShardIterator": "stubbed"}, ITERATOR)
        stubber.add_client_error("get_shard_iterator", "ResourceNotFoundException")
        assert get(wire.lean).next_iterator == "stubbed"
        with pytest.raises(wire.client.exceptions.ResourceNotFoundException):
            open_iterator(wire.lean)
    assert len(wire.session.requests) == sent


@pytest.mark.fuzz_only
def test_moto_answers() -> None:
    """By a hook, as those of `test_hooks_of_users_run`. Here, because the import takes as long as many tests."""
    from moto import mock_aws

    with mock_aws():
        client = boto3.client("kinesis", "eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
        lean = Transport(client)
        lean.create_stream(StreamName="s", ShardCount=1)
        lean.put_record(StreamName="s", Data=b"x", PartitionKey="k")
        for _ in range(3):
            iterator = lean.get_shard_iterator(
                StreamName="s", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            assert [record["Data"] for record in lean.get_records(ShardIterator=iterator)["Records"]] == [
                b"x"
            ]


def test_replaced_methods_are_called(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        get(wire.lean)
    sent = len(wire.session.requests)
    with mock.patch(
        "botocore.client.BaseClient._make_api_call",
        return_value={"Records": [], "NextShardIterator": "patch"},
    ):
        assert get(wire.lean).next_iterator == "patch"
    with mock.patch.object(
        wire.client, "get_records", return_value={"Records": [], "NextShardIterator": "object"}
    ):
        assert get(wire.lean).next_iterator == "object"
    original = BaseClient._make_api_call
    traced: list[str] = []

    @functools.wraps(original)
    def wrapper(self: Any, operation: str, parameters: Any) -> Any:
        traced.append(operation)
        return original(self, operation, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(BaseClient, "_make_api_call", wrapper)
        get(wire.lean)
    assert traced == ["GetRecords"]
    assert len(wire.session.requests) == sent + 1
    get(wire.lean)
    assert wire.session.last_was_lean


@pytest.mark.parametrize(
    "options",
    [
        {"retries": {"mode": "adaptive"}},
        {"signature_version": UNSIGNED},
        {"signature_version": "v4a"},
        {"endpoint": "http://gateway.example/kinesis"},
        {"endpoint": "http://gateway.example/?a=b"},
        {"endpoint": "http://user:secret@stream.example"},
    ],
)
def test_unusual_clients_are_left_to_boto3(options: dict[str, Any]) -> None:
    wire = Wire(**options)
    for call in (get, open_iterator):
        wire.session.responses = [(200, b'{"Records": [], "ShardIterator": "x"}')]
        outcomes = [outcome(lambda call=call: call(wire.lean)) for _ in range(3)]
        assert outcomes == [outcome(lambda call=call: call(wire.client))] * 3
        assert not any(type(request.headers) is dict for request in wire.session.requests)


def test_debug_logs_show_all_calls(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        get(wire.lean)
    with caplog.at_level(logging.DEBUG, "botocore"):
        get(wire.lean)
    assert "Sending http request" in caplog.text
    assert not wire.session.last_was_lean


def test_lambda_requests_carry_the_trace_of_their_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    wire = Wire()
    get(wire.lean)
    get(wire.lean)
    assert "X-Amzn-Trace-Id" not in wire.session.requests[-1].headers
    for number in (1, 2):
        monkeypatch.setenv("_X_AMZN_TRACE_ID", f"Root={number};é")
        get(wire.lean)
        assert wire.session.last_was_lean
        assert wire.session.requests[-1].headers["X-Amzn-Trace-Id"] == f"Root={number};%C3%A9"


def test_parameters_are_checked_by_boto3(wire: Wire) -> None:
    for iterator, limit in (("", 1), (5, 1), (None, 1), ("x", "1"), ("x", 0)):
        boto3s, ours = wire.both(lambda client, i=iterator, n=limit: get_records(client, i, n))
        assert ours == boto3s
        assert ours[0][0] is PermanentAwsError
        assert ours[1] == 0
    bad = {**POSITION, "ShardId": 5}
    boto3s, ours = wire.both(lambda client: client.get_shard_iterator(**bad))
    assert ours == boto3s
    assert ours[0][0] is ParamValidationError
    boto3s, ours = wire.both(lambda client: get_records(client, "x", 1, ["x"]))  # type: ignore[arg-type]
    assert ours == boto3s
    with pytest.raises(TypeError, match="keyword"):
        wire.lean.get_shard_iterator("x")


def test_other_objects_are_passed_through() -> None:
    fake = mock.Mock()
    lean = Transport(Transport(fake))
    assert lean.client is fake
    assert lean.get_shard_iterator(ShardId="x") is fake.get_shard_iterator.return_value
    assert lean.list_shards is fake.list_shards
    sqs = SESSION.create_client("sqs", region_name="x", aws_access_key_id="a", aws_secret_access_key="b")
    assert not HookCheck(sqs, {}).unmodified
    assert not Transport(sqs)._models


def test_an_emitter_of_another_kind_is_left_to_boto3(wire: Wire) -> None:
    with mock.patch.object(wire.client.meta, "events", mock.Mock(spec=["emit"])):
        assert not HookCheck(wire.client, {"GetRecords": "get_records"}).unmodified


# -- renewals of leases -----------------------------------------------------------------------------------------------

RENEWAL = {
    "TableName": "leases",
    "Key": {"leaseKey": {"S": "shardId-000000000000"}},
    "UpdateExpression": "SET #c = :next",
    "ConditionExpression": "#c = :seen",
    "ExpressionAttributeNames": {"#c": "leaseCounter"},
    "ExpressionAttributeValues": {":seen": {"N": "7"}, ":next": {"N": "8"}},
    "ReturnValues": "NONE",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}
ROW = '{"leaseKey": {"S": "é"}, "data": {"B": "eA=="}, "old": {"NULL": true}, "set": {"BS": ["eA=="]}}'
UPDATES: dict[str, Any] = {
    "no row": (200, b"{}"),
    "a row": (200, f'{{"Attributes": {ROW}, "FieldOfTheFuture": 1}}'.encode()),
    "lost": (400, f'{{"__type": "x#ConditionalCheckFailedException", "Item": {ROW}}}'.encode()),
    "throttled": RESPONSES["throttled"],
    "internal failure": RESPONSES["internal failure"],
    "nothing": (200, b""),
    "truncated": (200, b"{}", {"Content-Length": "70"}),
    "truncated, without length": (200, b'{"Attr', {"Content-Length": ""}),
    "not JSON": (200, b"<html>"),
    "wrong checksum": (200, b"{}", {"x-amz-crc32": "1"}),
    "right checksum": (200, b"{}", {"x-amz-crc32": "2745614147"}),
    "timeout": RESPONSES["timeout"],
}


@pytest.fixture(scope="module")
def tables() -> dict[str, Wire]:
    """Clients for DynamoDB by retry mode, with a known form of UpdateItem."""
    wires = {
        mode: Wire(service="dynamodb", retries={"mode": mode, "total_max_attempts": 1})
        for mode in ("legacy", "standard")
    }
    for wire in wires.values():
        reject_truncated_responses(wire.client)
        wire.session.responses = [(200, b"{}")]
        wire.lean.update_item(**RENEWAL)
        assert not wire.session.last_was_lean
    return wires


@pytest.mark.parametrize("mode", ["legacy", "standard"])
@pytest.mark.parametrize("name", UPDATES)
def test_renewals_have_the_outcome_of_boto3(tables: dict[str, Wire], name: str, mode: str) -> None:
    wire = tables[mode]
    sent, outcomes = [], []
    for client in (wire.client, wire.lean):
        wire.session.responses = [UPDATES[name]]
        wire.session.requests.clear()
        outcomes.append(outcome(lambda client=client: client.update_item(**RENEWAL)))
        (request,) = wire.session.requests
        sent.append((request.url, request.body, {each.lower() for each in request.headers}))
    assert wire.session.last_was_lean
    assert outcomes[1] == outcomes[0]
    assert sent[1] == sent[0]


def test_updates_of_text_and_numbers_are_written_without_botocore(tables: dict[str, Wire]) -> None:
    transport = tables["standard"].lean
    theirs = transport._serializer.serialize_to_request(RENEWAL, transport._models["UpdateItem"])["body"]
    with mock.patch.object(transport, "_serializer", None):
        assert transport.serialized("UpdateItem", RENEWAL) == theirs


OTHER_UPDATES: dict[str, dict[str, Any]] = {
    "bytes": {"Key": {"leaseKey": {"B": b"x"}}},
    "a set": {"ExpressionAttributeValues": {":a": {"SS": ["x"]}}},
    "a number that is not text": {"ExpressionAttributeValues": {":a": {"N": 5}}},
    "two types": {"ExpressionAttributeValues": {":a": {"N": "5", "S": "5"}}},
    "no type": {"ExpressionAttributeValues": {":a": {}}},
    "a value without type": {"ExpressionAttributeValues": {":a": "5"}},
    "a name that is not text": {"ExpressionAttributeNames": {"#a": 5}},
    "text instead of a map": {"Key": "leaseKey"},
    "a map instead of text": {"TableName": {"S": "leases"}},
    "empty text": {"TableName": ""},
    "another member": {"ReturnConsumedCapacity": "TOTAL"},
    "an old member": {"AttributeUpdates": {}},
}


@pytest.mark.parametrize("name", OTHER_UPDATES)
def test_other_updates_are_written_or_rejected_by_botocore(tables: dict[str, Wire], name: str) -> None:
    transport = tables["standard"].lean
    with (
        mock.patch.object(
            transport, "_serializer", mock.Mock(serialize_to_request=mock.Mock(side_effect=KeyError))
        ),
        pytest.raises(KeyError),
    ):
        transport.serialized("UpdateItem", {**RENEWAL, **OTHER_UPDATES[name]})


def test_bad_parameters_of_renewals_are_rejected_by_boto3(tables: dict[str, Wire]) -> None:
    wire = tables["standard"]
    wire.session.requests.clear()
    bad = {**RENEWAL, "Key": {"leaseKey": {"S": 5}}}
    assert outcome(lambda: wire.lean.update_item(**bad)) == outcome(lambda: wire.client.update_item(**bad))
    assert wire.session.requests == []


# -- credentials ------------------------------------------------------------------------------------------------------


class Expiring:
    """Credentials that expire when the test says so."""

    def __init__(self) -> None:
        self.now = datetime(2026, 8, 1, tzinfo=timezone.utc)
        self.fetched = 0
        self.key = "AKID1"
        self.error: Exception | None = None
        self.credentials = RefreshableCredentials.create_from_metadata(
            self.fetch(), refresh_using=self.fetch, method="test"
        )
        self.credentials._time_fetcher = lambda: self.now

    def fetch(self) -> dict[str, str]:
        if self.error is not None:
            raise self.error
        self.fetched += 1
        return {
            "access_key": self.key,
            "secret_key": "secret",
            "token": f"token-{self.fetched}",
            "expiry_time": (self.now + timedelta(hours=1)).isoformat(),
        }


def test_credentials_are_refreshed() -> None:
    source = Expiring()
    creator = botocore.session.Session()
    creator._credentials = source.credentials
    wire = Wire(creator=creator)
    for _ in range(2):
        get(wire.lean)
    assert wire.session.requests[-1].headers["X-Amz-Security-Token"] == "token-1"
    source.now += timedelta(hours=2)
    get(wire.lean)
    assert wire.session.last_was_lean, "the same key has the same form"
    assert wire.session.requests[-1].headers["X-Amz-Security-Token"] == "token-2"
    source.now += timedelta(hours=2)
    source.key = "AKID2"
    for lean in (False, True):
        get(wire.lean)
        assert wire.session.last_was_lean is lean, "boto3 shows the form of requests with a new key"
    assert "Credential=AKID2/" in wire.session.requests[-1].headers["Authorization"]
    source.now += timedelta(hours=2)
    source.error = CredentialRetrievalError(provider="test", error_msg="no network")
    sent = len(wire.session.requests)
    assert outcome(lambda: get(wire.lean)) == outcome(lambda: get(wire.client))
    with pytest.raises(KinesisSdkError, match="cannot refresh"):
        get_records(wire.lean, "x", 1)  # type: ignore[arg-type]
    assert len(wire.session.requests) == sent


def test_a_refresh_that_fails_while_learning_does_not_fail_the_call() -> None:
    source = Expiring()
    creator = botocore.session.Session()
    creator._credentials = source.credentials
    wire = Wire(creator=creator)

    def expire(_: Any) -> tuple[int, bytes]:
        source.now += timedelta(hours=2)
        source.error = CredentialRetrievalError(provider="test", error_msg="no network")
        return 200, page()

    wire.session.responses = [expire]
    assert get(wire.lean).next_iterator == "next"
    assert wire.lean._forms == {}


# -- threads ----------------------------------------------------------------------------------------------------------
