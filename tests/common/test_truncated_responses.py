"""Truncated responses must not pass for complete ones: neither for empty tables nor for errors."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from kinesis_sdk.common.aws import translate_errors
from kinesis_sdk.common.errors import PermanentAwsError, TransientAwsError
from kinesis_sdk.common.truncated_responses import reject_truncated_responses
from kinesis_sdk.consumer.leases import DynamoDBLeaseStore

SESSION = botocore.session.Session()
ROWS = json.dumps({"Items": [], "Count": 0}).encode()
REJECTION = json.dumps({"__type": "ValidationException", "message": "no"}).encode()


class Wire:
    """A client of botocore's whose responses come from here."""

    def __init__(self, service: str = "dynamodb") -> None:
        self.status, self.body = 200, ROWS
        self.headers: dict[str, str] = {}
        self.client = SESSION.create_client(
            service,
            region_name="eu-central-1",
            endpoint_url="http://table.example:4567",
            aws_access_key_id="AKID",
            aws_secret_access_key="secret",
            config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
        )
        self.client.meta.events.register(f"before-send.{service}", self._send)

    def _send(self, request: Any, **_: Any) -> AWSResponse:
        body = self.body
        return AWSResponse(request.url, self.status, self.headers, Mock(stream=lambda *a, **k: iter([body])))

    def response(self, body: bytes, *, status: int = 200, length: str | None = None, **headers: str) -> None:
        self.status, self.body = status, body
        self.headers = {**headers, **({} if length is None else {"content-length": length})}

    def scan(self) -> Any:
        with translate_errors("Scan", self.client):
            return self.client.scan(TableName="leases")


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    reject_truncated_responses(wire.client)
    return wire


def test_botocore_itself_takes_what_is_left_for_the_whole() -> None:
    wire = Wire()
    wire.response(ROWS[:5], length=str(len(ROWS)))
    assert "Items" not in wire.scan(), "otherwise this hook is no longer needed"


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("kept", [0, 1, -1])
def test_fewer_bytes_than_declared(wire: Wire, status: int, kept: int) -> None:
    whole = ROWS if status == 200 else REJECTION
    wire.response(whole[:kept], status=status, length=str(len(whole)))
    with pytest.raises(TransientAwsError) as caught:
        wire.scan()
    assert caught.value.code == "IncompleteReadError"
    assert caught.value.retryable


@pytest.mark.parametrize("length", [None, "", "x"])
@pytest.mark.parametrize("status", [200, 400])
def test_a_cut_through_the_header(wire: Wire, length: str | None, status: int) -> None:
    for body in (b"", ROWS[:7]):
        wire.response(body, status=status, length=length)
        with pytest.raises(TransientAwsError):
            wire.scan()


def test_complete_responses_pass(wire: Wire) -> None:
    wire.response(ROWS, length=str(len(ROWS)))
    assert wire.scan()["Items"] == []
    wire.response(ROWS)
    assert wire.scan()["Items"] == [], "a stub declares no length"
    wire.response(ROWS, **{"transfer-encoding": "chunked"})
    assert wire.scan()["Items"] == []
    wire.response(REJECTION, status=400, length=str(len(REJECTION)))
    with pytest.raises(PermanentAwsError, match="ValidationException"):
        wire.scan()


def test_calls_without_a_result_accept_an_empty_response() -> None:
    wire = Wire("kinesis")
    reject_truncated_responses(wire.client)
    for length in ("0", None):
        wire.response(b"", length=length)
        wire.client.delete_stream(StreamName="orders")


def test_once_is_enough_and_other_objects_are_left_alone(wire: Wire) -> None:
    reject_truncated_responses(wire.client)
    reject_truncated_responses(Mock())
    reject_truncated_responses(None)
    wire.response(ROWS, length=str(len(ROWS)))
    assert wire.scan()["Items"] == []


def test_kinesis_responses_without_a_length_are_left_to_their_callers() -> None:
    wire = Wire("kinesis")
    reject_truncated_responses(wire.client)
    wire.response(b"")
    assert "Shards" not in wire.client.list_shards(StreamName="orders")


def test_a_lease_store_requires_them_of_any_client() -> None:
    wire = Wire()
    store = DynamoDBLeaseStore(wire.client, "leases", sleep=lambda _: None)
    wire.response(b"", length=str(len(ROWS)))
    with pytest.raises(TransientAwsError):
        store.list()
    with pytest.raises(TransientAwsError):
        store.get("shard-0")
    wire.response(b"{}", length="2")
    with pytest.raises(Exception, match="has no Items"):
        store.list()
    assert store.get("shard-0") is None, "that is how the service says that there is none"
