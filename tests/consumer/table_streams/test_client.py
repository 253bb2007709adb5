from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from kinesis_sdk.common.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    ProtocolError,
    ResourceNotFoundError,
    ThrottledError,
)
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import get_records
from kinesis_sdk.consumer.table_streams.client import TableStreamClient

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000"
STREAM = StreamId("orders", ARN)
NOW = 1_700_000_000
SHARD = "shardId-00000001700000000000-00000001"
CHILD = "shardId-00000001700000000001-00000002"


class Scripted:
    """A client that gives the responses of a script, and notes the requests."""

    def __init__(self, **responses: Any) -> None:
        self.responses = {
            name: [*found] if isinstance(found, list) else [found] for name, found in responses.items()
        }
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "meta":
            raise AttributeError(name)

        def call(**request: Any) -> Any:
            self.requests.append((name, request))
            found = self.responses[name]
            response = found.pop(0) if len(found) > 1 else found[0]
            if isinstance(response, Exception):
                raise response
            return response

        return call


def error(code: str, status: int = 400) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "X")


def page(*records: dict[str, Any], iterator: str | None = "next") -> dict[str, Any]:
    date = datetime.fromtimestamp(NOW, timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    response: dict[str, Any] = {"Records": [*records], "ResponseMetadata": {"HTTPHeaders": {"date": date}}}
    if iterator:
        response["NextShardIterator"] = iterator
    return response


def record(number: int, age: float = 0.0, **more: Any) -> dict[str, Any]:
    change = {
        "ApproximateCreationDateTime": datetime.fromtimestamp(NOW - age, timezone.utc),
        "Keys": {"k": {"S": "a"}},
        "SequenceNumber": f"{number:021d}",
        **more,
    }
    return {"eventID": str(number), "eventName": "INSERT", "dynamodb": change}


def described(*shards: dict[str, Any], status: str = "ENABLED", last: str | None = None) -> dict[str, Any]:
    more = {"LastEvaluatedShardId": last} if last else {}
    return {"StreamDescription": {"Shards": [*shards], "StreamStatus": status, **more}}


def open_at(client: TableStreamClient, kind: str = "TRIM_HORIZON", **more: Any) -> str:
    response = client.get_shard_iterator(StreamARN=ARN, ShardId=SHARD, ShardIteratorType=kind, **more)
    return str(response["ShardIterator"])


def read(client: TableStreamClient, iterator: str, limit: int = 10_000) -> Any:
    return get_records(client, iterator, limit, ARN)  # type: ignore[arg-type]


def test_shards_are_listed_in_pages_of_a_hundred() -> None:
    shard = {"ShardId": SHARD, "SequenceNumberRange": {"StartingSequenceNumber": "1" * 21}}
    child = {"ShardId": CHILD, "ParentShardId": SHARD, "SequenceNumberRange": {}}
    script = Scripted(describe_stream=[described(shard, last=SHARD), described(child)])
    listed = list_shards(TableStreamClient(script), STREAM)  # type: ignore[arg-type]
    assert [(one.shard_id, one.parents, one.hash_key_range.end) for one in listed] == [
        (SHARD, (), 1),
        (CHILD, (SHARD,), 1),
    ]
    assert script.requests == [
        ("describe_stream", {"StreamArn": ARN, "Limit": 100}),
        ("describe_stream", {"StreamArn": ARN, "Limit": 100, "ExclusiveStartShardId": SHARD}),
    ]


def test_a_page_has_the_records_as_json_and_their_lag() -> None:
    script = Scripted(
        get_shard_iterator={"ShardIterator": "first"}, get_records=page(record(1, 7), record(2, 5))
    )
    client = TableStreamClient(script)
    got = read(client, open_at(client))
    assert [one.sequence_number for one in got.records] == [f"{1:021d}", f"{2:021d}"]
    assert got.records[0].partition_key == '{"k":{"S":"a"}}'
    assert got.records[0].data.startswith(b'{"eventID":"1"')
    assert got.header.millis_behind_latest == 5000
    assert not got.header.ended
    assert script.requests[-1] == ("get_records", {"ShardIterator": "first", "Limit": 1000})
    read(client, got.next_iterator)
    assert script.requests[-1][1]["ShardIterator"] == "next"


def test_the_tip_is_known_after_a_young_record_or_three_empty_responses() -> None:
    script = Scripted(get_shard_iterator={"ShardIterator": "x"}, get_records=page())
    client = TableStreamClient(script)
    iterator, lags = open_at(client), []
    for _ in range(4):
        got = read(client, iterator)
        lags.append(got.header.millis_behind_latest)
        iterator = got.next_iterator
    assert lags == [None, None, 0, 0]
    assert read(client, open_at(client, "LATEST")).header.millis_behind_latest == 0
    script.responses["get_records"] = [page(record(1, 1)), page()]
    got = read(client, open_at(client))
    assert got.header.millis_behind_latest == 0
    assert read(client, got.next_iterator).header.millis_behind_latest == 0
    undated = page(record(1))
    del undated["ResponseMetadata"]
    script.responses["get_records"] = [undated]
    assert read(client, open_at(client)).header.millis_behind_latest is None


def test_a_timestamp_is_a_filter_until_the_first_record_that_is_young_enough() -> None:
    pages = [page(record(1, 50), record(2, 40)), page(record(3, 30), record(4, 20)), page(record(5, 35))]
    script = Scripted(get_shard_iterator={"ShardIterator": "x"}, get_records=pages)
    client = TableStreamClient(script)
    moment = datetime.fromtimestamp(NOW - 29.5, timezone.utc)
    iterator = open_at(client, "AT_TIMESTAMP", Timestamp=moment)
    assert script.requests == [
        ("get_shard_iterator", {"StreamArn": ARN, "ShardId": SHARD, "ShardIteratorType": "TRIM_HORIZON"})
    ]
    numbers = []
    for _ in range(3):
        got = read(client, iterator)
        numbers.append([int(one.sequence_number) for one in got.records])
        assert got.header.millis_behind_latest, "a page whose records were dropped is not the tip"
        iterator = got.next_iterator
    # Times are whole seconds: record 3 may be from the last half of its second.
    assert numbers == [[], [3, 4], [5]]


def test_the_end_of_a_shard_names_its_children() -> None:
    child = {"ShardId": CHILD, "ParentShardId": SHARD}
    other = {"ShardId": "shardId-00000001700000000009-00000009", "ParentShardId": "shardId-x"}
    script = Scripted(
        get_shard_iterator={"ShardIterator": "x"},
        get_records=page(iterator=None),
        describe_stream=described(other, child),
    )
    client = TableStreamClient(script)
    got = read(client, open_at(client))
    assert got.header.ended
    assert [one["ShardId"] for one in got.child_shards] == [CHILD]
    assert script.requests[-1][1]["ShardFilter"] == {"Type": "CHILD_SHARDS", "ShardId": SHARD}
    for status, children in (("ENABLED", None), ("DISABLED", []), ("DISABLING", [])):
        script.responses["describe_stream"] = [described(status=status)]
        assert read(client, open_at(client)).child_shards == children
    script.responses["describe_stream"] = [described(other, last="o"), described(child)]
    assert [one["ShardId"] for one in read(client, open_at(client)).child_shards] == [CHILD]


def test_a_botocore_without_the_filter_lists_everything() -> None:
    unknown = ParamValidationError(report='Unknown parameter in input: "ShardFilter"')
    script = Scripted(
        get_shard_iterator={"ShardIterator": "x"},
        get_records=page(iterator=None),
        describe_stream=[unknown, described({"ShardId": CHILD, "ParentShardId": SHARD})],
    )
    client = TableStreamClient(script)
    assert [one["ShardId"] for one in read(client, open_at(client)).child_shards] == [CHILD]


def test_a_position_that_was_trimmed_is_the_oldest_record(caplog: pytest.LogCaptureFixture) -> None:
    trimmed = error("TrimmedDataAccessException")
    script = Scripted(get_shard_iterator=[trimmed, {"ShardIterator": "oldest"}], get_records=trimmed)
    client = TableStreamClient(script)
    iterator = open_at(client, "AT_SEQUENCE_NUMBER", StartingSequenceNumber="1" * 21)
    assert script.requests[0][1]["SequenceNumber"] == "1" * 21
    assert script.requests[1][1] == {"StreamArn": ARN, "ShardId": SHARD, "ShardIteratorType": "TRIM_HORIZON"}
    assert "the oldest record" in caplog.text
    with pytest.raises(ExpiredIteratorError):
        read(client, iterator)


def test_errors_are_those_of_the_sdk() -> None:
    script = Scripted(get_shard_iterator=error("ValidationException"))
    client = TableStreamClient(script)
    with pytest.raises(InvalidPositionError, match="from 111"):
        open_at(client, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber="1" * 21)
    script.responses["get_shard_iterator"] = [error("ResourceNotFoundException")]
    with pytest.raises(ResourceNotFoundError):
        open_at(client)
    script.responses["get_shard_iterator"] = [{}]
    with pytest.raises(ProtocolError, match="no iterator"):
        open_at(client)
    script.responses["get_shard_iterator"] = [{"ShardIterator": "x"}]
    script.responses["get_records"] = [error("LimitExceededException")]
    with pytest.raises(ThrottledError):
        read(client, open_at(client))
    script.responses["describe_stream"] = [error("ResourceNotFoundException")]
    with pytest.raises(ResourceNotFoundError) as caught:
        list_shards(client, STREAM)  # type: ignore[arg-type]
    assert caught.value.operation == "DescribeStream"


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"Records": None},
        page({"eventID": "1"}),
        page(record(1, Keys=None)),
        page(record(1, SequenceNumber="x")),
        page(record(1, NewImage={"k": {"S": object()}})),
    ],
)
def test_a_damaged_response_is_not_an_empty_one(response: dict[str, Any]) -> None:
    client = TableStreamClient(Scripted(get_shard_iterator={"ShardIterator": "x"}, get_records=response))
    with pytest.raises(ProtocolError):
        read(client, open_at(client))


@pytest.mark.parametrize("response", [{}, {"StreamDescription": {}}, {"StreamDescription": None}])
def test_a_damaged_description_is_not_an_empty_one(response: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="Shards"):
        list_shards(TableStreamClient(Scripted(describe_stream=response)), STREAM)  # type: ignore[arg-type]
