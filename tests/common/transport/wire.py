"""A client of boto3 and the lean transport on one fake HTTP session, which answers as a test says."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from kinesis_sdk.common.aws import translate_errors
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import (
    GetRecordsPage,
    PutEntry,
    Transport,
    get_records,
)

SESSION = botocore.session.Session()
URL = "http://stream.example:4567"
ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
DATE = "Sat, 01 Aug 2026 10:00:00 GMT"
POSITION = {
    "StreamName": "orders",
    "ShardId": "shardId-000000000000",
    "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
    "StartingSequenceNumber": "49590338271490256608559692538361571095921575989136588802",
}


def forget_moto(client: Any) -> None:
    """Remove the hook that moto adds to every client that is created after its import, which takes as long as many tests."""
    if models := sys.modules.get("moto.core.models"):
        client.meta.events.unregister("before-send", models.botocore_stubber)


class _Raw:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self.body


class FakeSession:
    """Takes the place of botocore's HTTP session. ``responses`` are used one by one, the last one stays."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.responses: list[Any] = [(200, page())]

    def send(self, request: Any) -> AWSResponse:
        self.requests.append(request)
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if callable(response):
            response = response(request)
        if isinstance(response, Exception):
            raise response
        status, body, *more = response
        headers = {
            "x-amzn-RequestId": "id",
            "Date": DATE,
            "content-type": "application/x-amz-json-1.1",
            "Content-Length": str(len(body)),
            **(more[0] if more else {}),
        }
        return AWSResponse(request.url, status, headers, _Raw(body))

    @property
    def last_was_lean(self) -> bool:
        """Whether the last request was made without boto3, whose headers are not a plain dict."""
        return type(self.requests[-1].headers) is dict


class Wire:
    """A client of boto3 with a fake session, plain and lean."""

    def __init__(
        self, *, service: str = "kinesis", endpoint: str | None = URL, creator: Any = None, **config: Any
    ) -> None:
        keys = {} if creator else {"aws_access_key_id": "AKID", "aws_secret_access_key": "secret"}
        self.client = (creator or SESSION).create_client(
            service,
            region_name="eu-central-1",
            endpoint_url=endpoint,
            **keys,
            config=Config(**{"retries": {"total_max_attempts": 1, "mode": "standard"}, **config}),
        )
        forget_moto(self.client)
        self.session = self.client._endpoint.http_session = FakeSession()
        self.lean = Transport(self.client)

    def both(self, call: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Outcomes of a call by boto3 and of the same call without it, with as many requests."""
        script = list(self.session.responses)
        self.session.responses = [(200, page())]
        get(self.lean)
        self.session.responses = [(200, b'{"ShardIterator": "x"}')]
        self.lean.get_shard_iterator(**POSITION)
        outcomes = []
        for client in (self.client, self.lean):
            self.session.responses, before = list(script), len(self.session.requests)
            outcomes.append(
                (outcome(lambda client=client: call(client)), len(self.session.requests) - before)
            )
        return outcomes[0], outcomes[1]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - compared with another
        return type(error), str(error), getattr(error, "response", None)


def page(count: int = 0, **more: Any) -> bytes:
    items = [
        {
            "SequenceNumber": str(49 * 10**54 + index),
            "ApproximateArrivalTimestamp": 1785578400.123 + index,
            "Data": base64.b64encode(b"x" * index).decode(),
            "PartitionKey": f"key-{index}",
        }
        for index in range(count)
    ]
    document = {"Records": items, "NextShardIterator": "next", "MillisBehindLatest": 12, **more}
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


CHILDREN = [
    {
        "ShardId": f"shardId-00000000000{index}",
        "ParentShards": ["shardId-000000000000"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
        "FieldOfTheFuture": 1,
    }
    for index in (1, 2)
]


def get(client: Any) -> GetRecordsPage:
    return get_records(client, "first", 100)


STREAM = StreamId("orders")


def plain_items(entries: list[PutEntry]) -> list[dict[str, Any]]:
    names = ("Data", "PartitionKey", "ExplicitHashKey")
    return [{n: v for n, v in zip(names, e, strict=True) if v is not None} for e in entries]


def plain_put(client: Any, stream: StreamId, entries: list[PutEntry]) -> dict[str, Any]:
    with translate_errors("PutRecords", client):
        response: dict[str, Any] = client.put_records(Records=plain_items(entries), **stream.request)
    return response
