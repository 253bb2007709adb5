"""How a worker's shards are read."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse

from kinesis_sdk.common.metrics import NOT_MEASURED
from kinesis_sdk.common.position import AtTimestamp, Latest, TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.config import RetrievalConfig
from kinesis_sdk.consumer.engine.fetchers import FetcherSource
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.runtime.scheduler import Scheduler
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.common.transport.wire import forget_moto
from tests.consumer.fleet.engines import Fleet


class _Session:
    """Takes the place of botocore's HTTP session."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def send(self, request: Any) -> AWSResponse:
        self.requests.append(request)
        response = AWSResponse(request.url, 200, {}, None)
        document = {
            "ShardIterator": "x",
            "Records": [{"Data": "A" * 4000, "SequenceNumber": "7"}],
            "NextShardIterator": "y",
            "MillisBehindLatest": 0,
        }
        response._content = json.dumps(document).encode()
        return response


JSON, CBOR = "application/x-amz-json-1.1", "application/x-amz-cbor-1.1"


@pytest.mark.parametrize(("wire_format", "types"), [("json", [JSON] * 3), ("cbor", [JSON, JSON, CBOR])])
def test_shards_share_a_transport(wire_format: Any, types: list[str]) -> None:
    client = botocore.session.Session().create_client(
        "kinesis", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    forget_moto(client)
    session = client._endpoint.http_session = _Session()
    clock = VirtualClock()
    source = FetcherSource(
        kinesis=client,
        retrieval=RetrievalConfig(wire_format=wire_format),
        application_name="app",
        budget=ByteBudget(1 << 30),
        scheduler=Scheduler(lambda task: task(), clock, lambda: None),
        run=lambda read: read(),
        rng=random.Random(1),
        clock=clock,
    )

    def lean() -> Iterator[bool]:
        for number in range(3):
            polling = source._poll(
                StreamId("s"), f"shard-{number}", f"shard-{number}", TrimHorizon(), 0.0, NOT_MEASURED
            )
            polling.fetch(0.0)
            yield all(type(request.headers) is dict for request in session.requests[-2:])

    assert list(lean()) == [False, True, True]
    assert len(session.requests) == 6
    spoken = [request.headers["Content-Type"] for request in session.requests[1::2]]
    assert [kind.decode() if isinstance(kind, bytes) else kind for kind in spoken] == types


def test_shards_of_a_billed_stream_give_each_other_no_hints() -> None:
    clock = VirtualClock()
    source = FetcherSource(
        kinesis=FakeAws(clock=clock).client("kinesis"),
        retrieval=RetrievalConfig(),
        application_name="app",
        budget=ByteBudget(1 << 30),
        scheduler=Scheduler(lambda task: task(), clock, lambda: None),
        run=lambda read: read(),
        rng=random.Random(1),
        clock=clock,
    )

    def share_traffic(stream: StreamId) -> bool:
        first, second = (
            source._poll(stream, shard, shard, TrimHorizon(), 0.0, NOT_MEASURED) for shard in ("a", "b")
        )
        return first._idle._traffic is second._idle._traffic

    assert share_traffic(StreamId("orders"))
    table = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-27T00:00:00.000"
    assert not share_traffic(StreamId("orders", table))


@pytest.mark.parametrize("mode", ["polling", "fanout"])
def test_latest_is_resolved_when_a_shard_is_opened(mode: str) -> None:
    """And not with the first read: what arrives between the two, for example while a handler starts, belongs to the stream."""
    fleet = Fleet()
    fleet.put(2)
    clock = fleet.clock
    clock.advance(10)
    source = FetcherSource(
        kinesis=fleet.kinesis,  # type: ignore[arg-type]
        retrieval=RetrievalConfig(retrieval_mode=mode),  # type: ignore[arg-type]
        application_name="app",
        budget=ByteBudget(1 << 30),
        scheduler=Scheduler(lambda task: task(), clock, lambda: None),
        run=lambda read: None,
        rng=random.Random(1),
        clock=clock,
    )
    shard = fleet.open_shards()[0]["ShardId"]
    opened_at = int(clock.time()) * 1000
    fetcher: Any = source.open(
        fleet.stream, shard, shard, Latest(), clock.monotonic(), lambda: None, metrics=NOT_MEASURED
    )
    calls = fleet.aws.stats()["calls"]
    assert calls["GetShardIterator"] == 1
    assert calls.get("GetRecords", 0) == 0
    fleet.put(2)
    clock.advance(400)
    if mode == "polling":
        # The iterator of the opening has expired; what stands for it is the time at which it was made.
        result = fetcher._inner.fetch(clock.monotonic())
        assert [record.data for record in result.records] == [b"2", b"3"]
        assert result.started_at_millis == opened_at - 1000
    else:
        assert fetcher._position == AtTimestamp(opened_at - 1000)
