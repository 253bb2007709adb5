"""CBOR at LocalStack: what is put in one format and read in the other is the same, and so are the errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage, PutEntry, Transport, cbor, get_records, put_records

SHARD = "shardId-000000000000"


def clients(endpoint: str, stream: StreamId) -> tuple[Any, Any]:
    """Transports that know the forms of their calls: one for JSON, one for CBOR."""
    found = []
    for speaks_cbor in (False, True):
        client: Any = Transport(boto3.client("kinesis", endpoint_url=endpoint), speaks_cbor=speaks_cbor)
        for _ in range(2):
            put_records(client, stream, [PutEntry(b"first", "k")])
            get_records(client, iterator_of(client, stream), 10)
        found.append(client)
    return found[0], found[1]


def iterator_of(client: Any, stream: StreamId) -> str:
    request = {**stream.request, "ShardId": SHARD, "ShardIteratorType": "TRIM_HORIZON"}
    return str(client.get_shard_iterator(**request)["ShardIterator"])


def type_of(metadata: Any) -> str:
    return str(metadata["HTTPHeaders"]["content-type"])


def failure_of(call: Callable[[], object]) -> tuple[type, str | None]:
    with pytest.raises(KinesisSdkError) as caught:
        call()
    return type(caught.value), getattr(caught.value, "code", None)


def test_both_formats_say_the_same(localstack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cbor, "LARGE", 0)
    stream = StreamId("cbor")
    plain = boto3.client("kinesis", endpoint_url=localstack)
    plain.create_stream(StreamName=stream.name, ShardCount=1)
    plain.get_waiter("stream_exists").wait(StreamName=stream.name, WaiterConfig={"Delay": 1})
    try:
        in_json, in_cbor = clients(localstack, stream)
        rng = random.Random(7)
        sizes = (0, 1, 23, 24, 255, 256, 65_535, 65_536, 300_000)
        entries = [
            PutEntry(rng.randbytes(size), "é" * (index * 28 + 1), str(index) if index % 2 else None)
            for index, size in enumerate(sizes)
        ]
        for client in (in_json, in_cbor):
            response = put_records(client, stream, entries)
            assert response["FailedRecordCount"] == 0
            assert len(response["Records"]) == len(entries)
            assert cbor.CONTENT_TYPE in type_of(response["ResponseMetadata"]) or client is in_json
        pages: list[GetRecordsPage] = [
            get_records(client, iterator_of(client, stream), 100) for client in (in_json, in_cbor)
        ]
        assert [type_of(page.metadata) == cbor.CONTENT_TYPE for page in pages] == [False, True]
        assert pages[1].records == pages[0].records
        read = [record.data for record in pages[0].records if record.data != b"first"]
        assert read == [entry.data for entry in entries] * 2
        assert {type(page.header.millis_behind_latest) for page in pages} == {int}
        for call in (
            lambda client: get_records(client, "none", 10),
            lambda client: put_records(client, StreamId("missing"), entries),
            lambda client: put_records(client, stream, [PutEntry(b"x", "k" * 257)]),
        ):
            assert failure_of(lambda call=call: call(in_cbor)) == failure_of(lambda call=call: call(in_json))
    finally:
        plain.delete_stream(StreamName=stream.name)
