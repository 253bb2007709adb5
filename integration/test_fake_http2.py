"""The fake AWS over HTTP/2, with prior knowledge and over TLS: many requests on one connection, windows, faults, subscriptions."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from importlib import util
from typing import Any

import boto3
import pytest

from integration.http2_client import Http2Client
from kinesis_sdk.testing import FakeAws, FakeAwsServer, Fault, VirtualClock
from kinesis_sdk.testing.http import cbor, server
from tests import HANG

SHARD = "shardId-000000000000"
MAXIMUM = 64 << 20


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws(clock=VirtualClock(), throttle=False)


@pytest.fixture(params=["prior knowledge", "TLS"])
def client(aws: FakeAws, request: pytest.FixtureRequest) -> Iterator[Http2Client]:
    with FakeAwsServer(aws, tls=request.param == "TLS") as running:
        client = Http2Client(running.endpoint_url, running.ca_file)
        yield client
        client.close()


def call(client: Http2Client, operation: str, **members: Any) -> dict[str, Any]:
    answer = client.receive(client.send_call(operation, json.dumps(members).encode()))
    assert answer.status == 200, answer.body
    return json.loads(answer.body) if answer.body else {}


def test_calls_in_json_and_cbor(client: Http2Client) -> None:
    call(client, "CreateStream", StreamName="s", ShardCount=1)
    data = base64.b64encode(bytes(range(256))).decode()
    put = cbor.encode({"StreamName": "s", "Data": data, "PartitionKey": "é"})
    answer = client.receive(client.send_call("PutRecord", put, cbor.CONTENT_TYPE))
    assert (answer.status, answer.headers["content-type"]) == (200, cbor.CONTENT_TYPE)
    assert cbor.decode(bytes(answer.body))["ShardId"] == SHARD
    iterator = call(
        client, "GetShardIterator", StreamName="s", ShardId=SHARD, ShardIteratorType="TRIM_HORIZON"
    )
    (record,) = call(client, "GetRecords", **iterator)["Records"]
    assert (record["Data"], record["PartitionKey"]) == (data, "é")


def test_an_error_has_its_status_and_document(client: Http2Client) -> None:
    answer = client.receive(client.send_call("DescribeStream", b'{"StreamName": "nothing"}'))
    assert answer.status == 400
    assert json.loads(answer.body)["__type"] == "ResourceNotFoundException"
    assert answer.headers["x-amzn-requestid"]
    assert client.request("GET", "/").status == 405
    assert json.loads(client.request("GET", "/_fake/health").body) == {"status": "ok"}


def test_bodies_larger_than_every_window(client: Http2Client) -> None:
    call(client, "CreateStream", StreamName="s", ShardCount=1, MaxRecordSizeInKiB=10240)
    data = [base64.b64encode(os.urandom(4 << 20)).decode() for _ in range(2)]
    for one in data:
        call(client, "PutRecord", StreamName="s", Data=one, PartitionKey="k")
    iterator = call(
        client, "GetShardIterator", StreamName="s", ShardId=SHARD, ShardIteratorType="TRIM_HORIZON"
    )
    # Two responses of 11 MB share the connection, whose window is 64 KiB.
    first = client.send_call("GetRecords", json.dumps(iterator).encode())
    second = client.send_call("GetRecords", json.dumps(iterator).encode())
    for stream in (second, first):
        records = json.loads(client.receive(stream).body)["Records"]
        assert [record["Data"] for record in records] == data


def test_a_body_beyond_the_limit_is_rejected(client: Http2Client) -> None:
    assert client.request("POST", "/", bytes(MAXIMUM + 1), Authorization="x").status == 413
    assert client.request("GET", "/_fake/health").status == 200


def test_a_request_that_waits_holds_up_no_other(aws: FakeAws, client: Http2Client) -> None:
    call(client, "CreateStream", StreamName="s", ShardCount=1)
    is_inside, may_end = threading.Event(), threading.Event()
    plain = aws.call

    def held(service: str, operation: str, *arguments: Any, **keywords: Any) -> Any:
        if operation == "ListStreams":
            is_inside.set()
            assert may_end.wait(HANG)
        return plain(service, operation, *arguments, **keywords)

    aws.call = held  # type: ignore[method-assign]
    slow = client.send_call("ListStreams", b"{}")
    assert is_inside.wait(HANG)
    assert call(client, "DescribeStreamSummary", StreamName="s")
    assert not client.answers[slow].is_over
    may_end.set()
    assert json.loads(client.receive(slow).body)["StreamNames"] == ["s"]


def test_a_lost_response_costs_one_stream_only(aws: FakeAws, client: Http2Client) -> None:
    call(client, "CreateStream", StreamName="s", ShardCount=1)
    aws.faults.add(Fault(kind="timeout_after_storing", operation="PutRecord", count=1))
    put = json.dumps({"StreamName": "s", "Data": "eA==", "PartitionKey": "k"}).encode()
    assert client.receive(client.send_call("PutRecord", put)).error_code == 2, "INTERNAL_ERROR"
    assert aws.stats()["records_stored"] == 1
    assert client.receive(client.send_call("PutRecord", put)).status == 200


def test_a_client_that_asks_first_is_told_to_continue(client: Http2Client) -> None:
    answer = client.request("POST", "/_fake/reset", b"{}", Expect="100-continue")
    assert (answer.was_told_to_continue, answer.status) == (True, 200)


def subscribe(client: Http2Client) -> int:
    call(client, "CreateStream", StreamName="s", ShardCount=1)
    arn = call(client, "DescribeStreamSummary", StreamName="s")["StreamDescriptionSummary"]["StreamARN"]
    made = call(client, "RegisterStreamConsumer", StreamARN=arn, ConsumerName="c")["Consumer"]
    return client.send_call(
        "SubscribeToShard",
        json.dumps(
            {
                "ConsumerARN": made["ConsumerARN"],
                "ShardId": SHARD,
                "StartingPosition": {"Type": "TRIM_HORIZON"},
            }
        ).encode(),
    )


def await_text(client: Http2Client, stream: int, text: bytes) -> None:
    while text not in client.answers[stream].body:
        client.read()


def test_a_subscription_beside_calls_to_the_end_of_the_shard(client: Http2Client) -> None:
    stream = subscribe(client)
    await_text(client, stream, b"SubscribeToShardEvent")
    assert client.answers[stream].headers["content-type"] == "application/vnd.amazon.eventstream"
    call(client, "PutRecord", StreamName="s", Data=base64.b64encode(b"one").decode(), PartitionKey="k")
    await_text(client, stream, base64.b64encode(b"one"))
    call(client, "SplitShard", StreamName="s", ShardToSplit=SHARD, NewStartingHashKey="5")
    assert b"ChildShards" in client.receive(stream).body


def test_a_fault_cuts_a_subscription_but_not_its_connection(aws: FakeAws, client: Http2Client) -> None:
    stream = subscribe(client)
    await_text(client, stream, b"SubscribeToShardEvent")
    aws.faults.add(Fault(kind="broken_stream", operation="SubscribeToShard", count=1))
    call(client, "PutRecord", StreamName="s", Data="eA==", PartitionKey="k")
    assert client.receive(stream).error_code == 2
    assert call(client, "DescribeStreamSummary", StreamName="s")


def test_a_subscription_ends_with_its_stream(aws: FakeAws, client: Http2Client) -> None:
    closed = threading.Event()
    stream = subscribe(client)
    await_text(client, stream, b"SubscribeToShardEvent")
    (consumer,) = aws._registry.by_name("s").consumers.values()
    subscription = consumer.subscriptions[SHARD]
    plain = subscription.close

    def close(*arguments: Any) -> None:
        plain(*arguments)
        closed.set()

    subscription.close = close  # type: ignore[method-assign]
    client.protocol.reset_stream(stream)
    client.flush()
    assert closed.wait(HANG)
    assert call(client, "DescribeStreamSummary", StreamName="s")


def test_rubbish_after_the_preface_closes_that_connection_only(aws: FakeAws) -> None:
    with FakeAwsServer(aws) as running:
        client = Http2Client(running.endpoint_url)
        client.sock.sendall(b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x")  # DATA of no stream
        with pytest.raises(ConnectionError):
            while True:
                client.read()
        client.close()
        kinesis = boto3.client("kinesis", endpoint_url=running.endpoint_url)
        assert kinesis.list_streams()["StreamNames"] == []


def test_without_h2_the_client_is_told_what_to_install(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None if name == "h2" else util.find_spec(name))
    with FakeAwsServer(aws) as running:
        client = Http2Client(running.endpoint_url)
        while client.farewell is None:
            client.read()
        client.close()
    assert "pip install '.[fake]'" in client.farewell
    assert client.farewell in caplog.text
