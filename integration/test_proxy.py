"""The fault-injecting proxy, by plain HTTP and by boto3."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError, HTTPClientError, ReadTimeoutError

from integration.proxy import Proxy
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests import HANG


@pytest.fixture
def aws() -> FakeAws:
    aws = FakeAws(throttle=False)
    aws.client("kinesis").create_stream(StreamName="s", ShardCount=1)
    return aws


@pytest.fixture
def proxy(aws: FakeAws) -> Iterator[Proxy]:
    with FakeAwsServer(aws) as server, Proxy(server.endpoint_url, seed=7) as proxy:
        yield proxy


@pytest.fixture
def kinesis(proxy: Proxy) -> Iterator[Any]:
    client = connect(proxy, HANG)
    yield client
    client.close()


@pytest.fixture
def impatient(proxy: Proxy) -> Iterator[Any]:
    """A client for requests that get no answer."""
    client = connect(proxy, 0.5)
    yield client
    client.close()


def connect(proxy: Proxy, read_timeout: float) -> Any:
    return boto3.client(
        "kinesis",
        endpoint_url=proxy.endpoint_url,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=read_timeout, connect_timeout=HANG),
    )


def health(proxy: Proxy) -> bytes:
    connection = http.client.HTTPConnection(urlsplit(proxy.endpoint_url).netloc, timeout=HANG)
    try:
        connection.request("GET", "/_fake/health")
        return connection.getresponse().read()
    finally:
        connection.close()


def put(kinesis: Any, data: bytes = b"x") -> Any:
    return kinesis.put_record(StreamName="s", Data=data, PartitionKey="k")


def test_reset_and_truncation_in_the_middle_of_an_answer(aws: FakeAws, proxy: Proxy, kinesis: Any) -> None:
    proxy.configure(reset_after=30)
    with pytest.raises((ConnectionResetError, http.client.HTTPException)):
        health(proxy)
    proxy.configure(truncate_after=200)
    with pytest.raises(http.client.HTTPException):
        health(proxy)
    proxy.configure(reset_after=0)
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        put(kinesis)
    # The request had its effect, only the answer is lost.
    assert aws.stats()["records_stored"] == 1
    proxy.heal()
    put(kinesis)
    assert proxy.affected == 3


def test_answers_of_one_operation_are_lost_after_the_call(aws: FakeAws, proxy: Proxy, kinesis: Any) -> None:
    # A body as large as this comes in several pieces, of which only the first names the operation.
    records = [{"Data": bytes(100_000), "PartitionKey": "k"} for _ in range(5)]
    proxy.configure(reset_after=0, operations=("PutRecords",))
    put(kinesis)
    for _ in range(3):
        with pytest.raises((ConnectionClosedError, HTTPClientError)):
            kinesis.put_records(StreamName="s", Records=records)
    assert proxy.affected_operations == {"PutRecords": 3}
    assert aws.stats()["records_stored"] == 16
    proxy.heal()
    kinesis.put_records(StreamName="s", Records=records)


def test_a_stall_may_begin_with_a_later_call_of_an_operation(
    aws: FakeAws, proxy: Proxy, kinesis: Any, impatient: Any
) -> None:
    proxy.configure(stall=True, operations=("PutRecord",), after=2)
    put(kinesis)
    put(kinesis)
    assert proxy.held == 0
    with pytest.raises(ReadTimeoutError):
        put(impatient)
    assert proxy.held == 1
    # It was carried out, and all else goes on.
    assert aws.stats()["records_stored"] == 3
    assert health(proxy) == b'{"status": "ok"}'
