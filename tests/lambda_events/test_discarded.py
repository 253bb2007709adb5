"""A batch that Lambda gave up is read from the stream again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesis_sdk import ConfigError, InvalidEventError, ProtocolError
from kinesis_sdk.common.errors import AwsError
from kinesis_sdk.lambda_events import KinesisEvent, discarded, discarded_event
from kinesis_sdk.testing import FakeAws
from tests.lambda_events.support import ARN, SHARD, aggregate, discarded_message, stored


@pytest.mark.parametrize("as_text", [True, False])
def test_the_event_has_the_records_of_the_batch(as_text: bool) -> None:
    aws, numbers = stored(b"before", b"1", aggregate(["2", "3"]), b"4", b"after")
    told: Any = discarded_message(numbers[1], numbers[3], 3)
    opened = KinesisEvent(discarded_event(json.dumps(told) if as_text else told, aws.client("kinesis")))
    assert [record.data for record in opened.user_records] == [b"1", b"2", b"3", b"4"]
    assert (opened.stream_arn, opened.shard_id) == (ARN, SHARD)
    assert all(record.approximate_arrival_timestamp for record in opened.user_records)


def test_a_batch_that_is_not_complete_is_an_error() -> None:
    aws, numbers = stored(b"1", b"2")
    client = aws.client("kinesis")
    with pytest.raises(ProtocolError, match="2 of 3 records"):
        discarded_event(discarded_message(numbers[0], numbers[1], 3), client)
    with pytest.raises(ProtocolError, match="more records"):
        discarded_event(discarded_message(numbers[0], numbers[1], 1), client)
    with pytest.raises(AwsError):
        discarded_event(discarded_message(numbers[0], numbers[1], 2, shardId="shardId-000000000009"), client)


class Endless:
    """A shard whose end does not come."""

    def __init__(self) -> None:
        self.calls = 0

    def get_shard_iterator(self, **_request: Any) -> dict[str, Any]:
        return {"ShardIterator": "i"}

    def get_records(self, **_request: Any) -> dict[str, Any]:
        self.calls += 1
        return {"Records": [], "NextShardIterator": "i"}


def test_the_bytes_of_a_batch_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discarded, "_MAX_BYTES", 10)
    aws, numbers = stored(b"12345", b"12345", b"1")
    client = aws.client("kinesis")
    assert len(discarded_event(discarded_message(numbers[0], numbers[1], 2), client)["Records"]) == 2
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        discarded_event(discarded_message(numbers[0], numbers[2], 3), client)


def test_the_calls_are_bounded() -> None:
    client: Any = Endless()
    with pytest.raises(ProtocolError, match="1000 calls"):
        discarded_event(discarded_message("1", "2", 2), client)
    assert client.calls == 1000


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (" " * (1 << 21), "at most"),
        ({"DDBStreamBatchInfo": {}}, "KinesisBatchInfo"),
        (discarded_message("1", "2", 0), "batchSize"),
        (discarded_message("1", "2", 10_001), "batchSize"),
        (discarded_message("x", "2", 1), "startSequenceNumber"),
        (discarded_message("1", "2", 1, streamArn=None), "streamArn"),
    ],
)
def test_a_wrong_message_is_named(broken: Any, place: str) -> None:
    with pytest.raises(InvalidEventError, match=place):
        discarded_event(broken, FakeAws().client("kinesis"))


def test_a_client_of_another_service_is_named() -> None:
    with pytest.raises(ConfigError, match="client"):
        discarded_event(discarded_message("1", "2", 1), FakeAws().client("dynamodb"))
