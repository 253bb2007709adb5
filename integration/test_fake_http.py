"""The fake AWS over HTTP with real boto3 clients, in this process and in others."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from kinesis_sdk.testing import FakeAws, FakeAwsServer, Fault, VirtualClock, start_server_process
from kinesis_sdk.testing.http import cbor
from tests import HANG


def connect(service: str, endpoint: str, key: str = "x", **config: Any) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="eu-central-1",
        aws_access_key_id=key,
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=32, **config),
    )


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws(clock=VirtualClock(), throttle=False)


@pytest.fixture
def endpoint(aws: FakeAws) -> Iterator[str]:
    with FakeAwsServer(aws) as server:
        yield server.endpoint_url


def test_kinesis(aws: FakeAws, endpoint: str) -> None:
    kinesis = connect("kinesis", endpoint)
    kinesis.create_stream(StreamName="s", ShardCount=1)
    summary = kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]
    when = datetime.fromtimestamp(aws.clock.time(), tz=timezone.utc)
    assert summary["StreamCreationTimestamp"] == when
    kinesis.put_record(StreamARN=summary["StreamARN"], Data=bytes(range(256)), PartitionKey='é"\\\n')
    answer = kinesis.put_records(
        StreamName="s", Records=[{"Data": b"%d" % index, "PartitionKey": "k"} for index in range(500)]
    )
    assert answer["FailedRecordCount"] == 0
    assert len({entry["SequenceNumber"] for entry in answer["Records"]}) == 500
    kinesis.split_shard(StreamName="s", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(1 << 127))
    iterator = kinesis.get_shard_iterator(
        StreamName="s", ShardId="shardId-000000000000", ShardIteratorType="AT_TIMESTAMP", Timestamp=when
    )["ShardIterator"]
    first = kinesis.get_records(ShardIterator=iterator, Limit=1)
    assert first["Records"][0]["Data"] == bytes(range(256))
    assert first["Records"][0]["PartitionKey"] == 'é"\\\n'
    assert first["Records"][0]["ApproximateArrivalTimestamp"] == when
    rest = kinesis.get_records(ShardIterator=first["NextShardIterator"])
    assert [record["Data"] for record in rest["Records"]] == [b"%d" % index for index in range(500)]
    assert "NextShardIterator" not in rest
    assert [child["ParentShards"] for child in rest["ChildShards"]] == [["shardId-000000000000"]] * 2
    shards = kinesis.list_shards(StreamName="s", ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": when})
    assert len(shards["Shards"]) == 3
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException, match="nothing"):
        kinesis.describe_stream(StreamName="nothing")
    assert kinesis.register_stream_consumer(StreamARN=summary["StreamARN"], ConsumerName="c")["Consumer"]
    kinesis.update_shard_count(StreamName="s", TargetShardCount=4, ScalingType="UNIFORM_SCALING")
    assert kinesis.delete_stream(StreamName="s", EnforceConsumerDeletion=True)["ResponseMetadata"]


def test_a_large_record_and_a_full_page(endpoint: str) -> None:
    kinesis = connect("kinesis", endpoint)
    kinesis.create_stream(StreamName="s", ShardCount=1, MaxRecordSizeInKiB=10240)
    data = os.urandom(5 << 20)
    kinesis.put_record(StreamName="s", Data=data, PartitionKey="k")
    iterator = kinesis.get_shard_iterator(
        StreamName="s", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    assert kinesis.get_records(ShardIterator=iterator)["Records"][0]["Data"] == data


def test_dynamodb(aws: FakeAws, endpoint: str) -> None:
    dynamodb = connect("dynamodb", endpoint)
    dynamodb.create_table(
        TableName="leases",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.get_waiter("table_exists").wait(TableName="leases")
    created = dynamodb.describe_table(TableName="leases")["Table"]["CreationDateTime"]
    assert created == datetime.fromtimestamp(aws.clock.time(), tz=timezone.utc)
    item = {"leaseKey": {"S": "a"}, "leaseCounter": {"N": "0"}, "pendingCheckpointState": {"B": b"\x00\xff"}}
    dynamodb.put_item(TableName="leases", Item=item, Expected={"leaseKey": {"Exists": False}})
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException) as caught:
        dynamodb.put_item(
            TableName="leases",
            Item=item,
            ConditionExpression="attribute_not_exists(leaseKey)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert caught.value.response["Item"] == item
    pages = dynamodb.get_paginator("scan").paginate(TableName="leases", PaginationConfig={"PageSize": 1})
    assert [found for page in pages for found in page["Items"]] == [item]
    resource = boto3.resource(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="eu-central-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    assert resource.Table("leases").get_item(Key={"leaseKey": "a"})["Item"]["leaseCounter"] == 0


def test_cloudwatch_and_sts(aws: FakeAws, endpoint: str) -> None:
    cloudwatch = connect("cloudwatch", endpoint)
    when = datetime(2024, 1, 2, tzinfo=timezone.utc)
    cloudwatch.put_metric_data(
        Namespace="ns", MetricData=[{"MetricName": "m", "Value": 2.0, "Timestamp": when}]
    )
    # More than 10 KiB: botocore compresses the request.
    many = [{"MetricName": f"metric-{index}", "Value": float(index)} for index in range(900)]
    cloudwatch.put_metric_data(Namespace="ns", MetricData=many)
    received = aws.cloudwatch.metric_data()
    assert len(received) == 901
    assert received[0] == {"Namespace": "ns", "MetricName": "m", "Value": 2.0, "Timestamp": when.timestamp()}
    with pytest.raises(ClientError):
        cloudwatch.put_metric_data(Namespace="ns", MetricData=many * 2)
    assert connect("sts", endpoint).get_caller_identity()["Account"] == "123456789012"


def request(
    endpoint: str, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, Any, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=HANG)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, answer.headers


def test_the_old_query_protocol(aws: FakeAws, endpoint: str) -> None:
    body = (
        b"Action=PutMetricData&Version=2010-08-01&Namespace=ns&MetricData.member.1.MetricName=m"
        b"&MetricData.member.1.Value=1.5"
    )
    kind = "application/x-www-form-urlencoded; charset=utf-8"
    status, content, _ = request(endpoint, "POST", "/", body, Content_Type=kind, Authorization="x")
    assert (status, b"PutMetricDataResponse" in content) == (200, True)
    assert aws.cloudwatch.metric_data() == [{"Namespace": "ns", "MetricName": "m", "Value": 1.5}]


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"X_Amz_Target": "Kinesis_20131202.ListStreams"}, b"{}", 400, "MissingAuthenticationTokenException"),
        (
            {"X_Amz_Target": "Kinesis_20131202.Nonsense", "Authorization": "x"},
            b"{}",
            400,
            "UnknownOperationException",
        ),
        (
            {"X_Amz_Target": "Other.ListStreams", "Authorization": "x"},
            b"{}",
            400,
            "UnknownOperationException",
        ),
        (
            {"X_Amz_Target": "Kinesis_20131202.ListStreams", "Authorization": "x"},
            b"{",
            400,
            "SerializationException",
        ),
        (
            {"X_Amz_Target": "Kinesis_20131202.ListStreams", "Authorization": "x"},
            b"[]",
            400,
            "SerializationException",
        ),
        (
            {
                "X_Amz_Target": "Kinesis_20131202.ListStreams",
                "Authorization": "x",
                "Content_Encoding": "gzip",
            },
            b"{}",
            400,
            "SerializationException",
        ),
    ],
)
def test_bad_requests_get_error_documents(
    endpoint: str, headers: dict[str, str], body: bytes, status: int, code: str
) -> None:
    got, content, answered = request(endpoint, "POST", "/", body, **headers)
    assert (got, json.loads(content)["__type"]) == (status, code)
    assert answered["x-amzn-RequestId"]
    assert answered["Date"].endswith("GMT")


def test_other_methods_and_odd_requests(endpoint: str) -> None:
    assert request(endpoint, "GET", "/")[0] == 405
    assert request(endpoint, "GET", "/_fake/nonsense")[0] == 404
    assert request(endpoint, "POST", "/_fake/faults", b'{"kind": "nonsense"}')[0] == 400
    assert request(endpoint, "POST", "/", b"", Transfer_Encoding="chunked")[0] == 411


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("credentials", b"{}"),
        ("credentials", b"[]"),
        ("clock", b"{}"),
        ("clock", b'{"advance": NaN}'),
        ("faults", b"5"),
        ("faults", b"[" * 200_000),
    ],
)
def test_odd_admin_documents_are_refused(endpoint: str, path: str, body: bytes) -> None:
    status, content, _ = request(endpoint, "POST", f"/_fake/{path}", body)
    assert (status, "message" in json.loads(content)) == (400, True)
    assert request(endpoint, "GET", "/_fake/health")[0] == 200


@pytest.mark.parametrize(
    ("length", "status"), [("-1", 400), ("x", 400), ("9" * 40, 413), ("9" * 5_000, 413), (str(1 << 40), 413)]
)
def test_odd_content_lengths_are_refused(endpoint: str, length: str, status: int) -> None:
    with socket.create_connection(urlsplit(endpoint).netloc.split(":"), timeout=HANG) as sock:
        sock.sendall(f"POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
        assert sock.recv(1 << 12).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_body_is_not_inflated_without_limit(endpoint: str) -> None:
    bomb = gzip.compress(bytes(65 << 20))
    assert len(bomb) < 100_000
    headers = {
        "X_Amz_Target": "Kinesis_20131202.ListStreams",
        "Authorization": "x",
        "Content_Encoding": "gzip",
    }
    status, content, _ = request(endpoint, "POST", "/", bomb, **headers)
    assert (status, json.loads(content)["__type"]) == (413, "SerializationException")
    assert request(endpoint, "POST", "/", gzip.compress(b"{}"), **headers)[0] == 200


def test_a_form_that_is_no_text_is_refused(endpoint: str) -> None:
    kind = "application/x-www-form-urlencoded"
    assert request(endpoint, "POST", "/", b"Action=\xff", Content_Type=kind, Authorization="x")[0] == 400


def test_a_web_page_cannot_administer_the_fake(aws: FakeAws, endpoint: str) -> None:
    connect("kinesis", endpoint).create_stream(StreamName="s", ShardCount=1)
    for method, path in [("POST", "reset"), ("DELETE", "faults"), ("POST", "clock")]:
        assert request(endpoint, method, f"/_fake/{path}", b"{}", Origin="http://evil.example")[0] == 403
    assert connect("kinesis", endpoint).list_streams()["StreamNames"] == ["s"]


def test_connections_are_limited(aws: FakeAws) -> None:
    with FakeAwsServer(aws, max_connections=2) as server:
        netloc = urlsplit(server.endpoint_url).netloc
        kept = [http.client.HTTPConnection(netloc, timeout=HANG) for _ in range(2)]
        for connection in kept:
            connection.request("GET", "/_fake/health")
            assert connection.getresponse().read()
        one_more = http.client.HTTPConnection(netloc, timeout=HANG)
        one_more.connect()
        answer = one_more.sock.recv(1 << 12)
        assert answer.startswith(b"HTTP/1.1 503 ")
        kept[0].request("GET", "/_fake/health")
        assert kept[0].getresponse().status == 200
        for connection in (*kept, one_more):
            connection.close()


def test_connections_are_kept(endpoint: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=HANG)
    connection.connect()
    sock = connection.sock
    for _ in range(3):
        connection.request("GET", "/_fake/health")
        assert json.load(connection.getresponse()) == {"status": "ok"}
        assert connection.sock is sock
    connection.close()


def test_cbor_as_the_sdk_for_java_speaks_it(endpoint: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=HANG)

    def call(operation: str, body: bytes) -> tuple[int, Any]:
        headers = {
            "X-Amz-Target": f"Kinesis_20131202.{operation}",
            "Content-Type": cbor.CONTENT_TYPE,
            "Authorization": "AWS4-HMAC-SHA256 Credential=x/",
        }
        connection.request("POST", "/", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        assert not text or answer.headers["Content-Type"] == cbor.CONTENT_TYPE
        return answer.status, cbor.decode(text) if text else None

    assert call("CreateStream", cbor.encode({"StreamName": "s", "ShardCount": 1})) == (200, None)
    put = {"StreamName": "s", "Data": base64.b64encode(bytes(range(256))).decode(), "PartitionKey": "k"}
    assert b"\x59\x01\x00\x00\x01\x02" in cbor.encode(put), "a byte string of 256 bytes"
    assert call("PutRecord", cbor.encode(put))[0] == 200
    where = {"StreamName": "s", "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    _, iterator = call("GetShardIterator", cbor.encode(where))
    _, answer = call("GetRecords", cbor.encode(iterator))
    assert answer["Records"][0]["Data"] == put["Data"]
    assert answer["Records"][0]["ApproximateArrivalTimestamp"] > 1e9
    status, error = call("GetRecords", cbor.encode({"ShardIterator": "none"}))
    assert (status, error["__type"]) == (400, "InvalidArgumentException")
    status, error = call("GetRecords", b"{}")
    assert (status, error["__type"]) == (400, "SerializationException")
    connection.close()


def test_temporary_credentials_over_http() -> None:
    clock = VirtualClock()
    with FakeAwsServer(FakeAws(clock=clock, access_keys=())) as server:
        url = f"{server.endpoint_url}/_fake/credentials"
        with urllib.request.urlopen(url, data=b'{"seconds": 30}') as answer:
            issued = json.load(answer)
        kinesis = boto3.client(
            "kinesis",
            endpoint_url=server.endpoint_url,
            region_name="eu-central-1",
            aws_access_key_id=issued["AccessKeyId"],
            aws_secret_access_key=issued["SecretAccessKey"],
            aws_session_token=issued["SessionToken"],
        )
        kinesis.list_streams()
        clock.advance(31)
        with pytest.raises(ClientError, match="ExpiredTokenException"):
            kinesis.list_streams()


def test_lost_answers_over_http(aws: FakeAws, endpoint: str) -> None:
    kinesis = connect("kinesis", endpoint)
    kinesis.create_stream(StreamName="s", ShardCount=1)
    for kind, stored in [("timeout_before_storing", 0), ("timeout_after_storing", 1)]:
        aws.faults.add(Fault(kind=kind, operation="PutRecord", count=1))  # type: ignore[arg-type]
        with pytest.raises(ConnectionClosedError):
            kinesis.put_record(StreamName="s", Data=b"x", PartitionKey="k")
        assert aws.stats()["records_stored"] == stored
    kinesis.put_record(StreamName="s", Data=b"x", PartitionKey="k")


WRITER = """
import sys, boto3
kinesis = boto3.client("kinesis", endpoint_url=sys.argv[1], region_name="us-east-1",
                       aws_access_key_id="x", aws_secret_access_key="x")
for number in range(20):
    data = f"{sys.argv[2]}:{number}".encode()
    kinesis.put_record(StreamName="s", Data=data, PartitionKey=sys.argv[2])
"""


def test_several_processes_and_the_admin_endpoint() -> None:
    with start_server_process("--create-stream", "s:2", "--no-throttle") as server:
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, server.endpoint_url, str(number)])
            for number in range(3)
        ]
        assert [writer.wait(HANG) for writer in writers] == [0, 0, 0]
        stats = server.admin("stats")
        assert (stats["records_stored"], stats["calls"]["PutRecord"]) == (60, 60)
        kinesis = connect("kinesis", server.endpoint_url)
        seen: dict[str, list[int]] = {}
        for shard in kinesis.list_shards(StreamName="s")["Shards"]:
            iterator = kinesis.get_shard_iterator(
                StreamName="s", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            for record in kinesis.get_records(ShardIterator=iterator)["Records"]:
                writer, number = record["Data"].decode().split(":")
                seen.setdefault(writer, []).append(int(number))
        assert seen == {str(writer): list(range(20)) for writer in range(3)}
        (fault,) = server.admin("faults", {"kind": "throttle", "operation": "PutRecord", "count": 1})["ids"]
        with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
            kinesis.put_record(StreamName="s", Data=b"x", PartitionKey="k")
        kinesis.put_record(StreamName="s", Data=b"x", PartitionKey="k")
        assert server.admin("faults")[0]["fired"] == 1
        assert server.admin(f"faults/{fault}", method="DELETE") == {"removed": True}
        server.admin("reset", {})
        assert kinesis.list_streams()["StreamNames"] == []


def test_a_virtual_clock_over_http() -> None:
    with start_server_process("--create-stream", "s:1", "--virtual-clock") as server:
        kinesis = connect("kinesis", server.endpoint_url)
        iterator = kinesis.get_shard_iterator(
            StreamName="s", ShardId="shardId-000000000000", ShardIteratorType="LATEST"
        )["ShardIterator"]
        server.admin("clock", {"advance": 301})
        with pytest.raises(kinesis.exceptions.ExpiredIteratorException):
            kinesis.get_records(ShardIterator=iterator)


def test_the_process_says_why_it_cannot_start() -> None:
    with pytest.raises(RuntimeError, match="status 2"), start_server_process("--nonsense"):
        pass


def launch(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kinesis_sdk.testing", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "http://" in process.stdout.readline()
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_process_cleanly(number: signal.Signals) -> None:
    with launch() as process:
        process.send_signal(number)
        assert process.wait(HANG) == 0


def test_the_process_follows_its_parent() -> None:
    with launch("--exit-with-parent") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(HANG) == 0


def test_stopping_closes_connections_and_frees_the_port(aws: FakeAws) -> None:
    server = FakeAwsServer(aws).start()
    with pytest.raises(RuntimeError, match="already running"):
        server.start()
    connect("kinesis", server.endpoint_url).list_streams()
    port = urlsplit(server.endpoint_url).port
    assert port is not None
    server.stop()
    server.stop()
    with FakeAwsServer(aws, port=port) as again:
        connect("kinesis", again.endpoint_url).list_streams()


def test_the_date_header_can_be_wrong_or_missing(aws: FakeAws, endpoint: str) -> None:
    kinesis = connect("kinesis", endpoint)

    def date() -> str | None:
        headers: dict[str, str] = kinesis.list_streams()["ResponseMetadata"]["HTTPHeaders"]
        return headers.get("date")

    for offset in (0.0, 90.0, -90.0):
        assert request(endpoint, "POST", "/_fake/date", json.dumps({"offset": offset}).encode())[0] == 200
        header = date()
        assert header is not None
        seen = parsedate_to_datetime(header).timestamp()
        assert abs(seen - time.time() - offset) < 45
    assert request(endpoint, "POST", "/_fake/date", b'{"offset": null}')[0] == 200
    assert date() is None
    assert request(endpoint, "POST", "/_fake/date", b"{}")[0] == 400
