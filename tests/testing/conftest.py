from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.testing import FakeAws, VirtualClock

SHARD = "shardId-000000000000"


class Account:
    """A fake account with its clients and the few helpers that most tests want."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(**{"clock": self.clock, **options})
        self.kinesis = self.aws.client("kinesis")
        self.dynamodb = self.aws.client("dynamodb")

    def stream(self, shards: int = 1, name: str = "s", **more: Any) -> None:
        self.kinesis.create_stream(StreamName=name, ShardCount=shards, **more)

    def shards(self, name: str = "s", **more: Any) -> list[dict[str, Any]]:
        return self.kinesis.list_shards(StreamName=name, **more)["Shards"]

    def open_shards(self) -> list[dict[str, Any]]:
        return self.shards(ShardFilter={"Type": "AT_LATEST"})

    def put(self, *data: bytes, key: str = "k", **more: Any) -> dict[str, Any]:
        records = [{"Data": one, "PartitionKey": key, **more} for one in data]
        return self.kinesis.put_records(StreamName="s", Records=records)

    def iterator(self, kind: str = "TRIM_HORIZON", shard: int = 0, **more: Any) -> str:
        return self.kinesis.get_shard_iterator(
            StreamName="s", ShardId=f"shardId-{shard:012d}", ShardIteratorType=kind, **more
        )["ShardIterator"]

    def read(self, kind: str = "TRIM_HORIZON", shard: int = 0, **more: Any) -> list[bytes]:
        answer = self.kinesis.get_records(ShardIterator=self.iterator(kind, shard, **more))
        return [record["Data"] for record in answer["Records"]]

    def table(self, *, sort: bool = False, **more: Any) -> None:
        schema = [{"AttributeName": "pk", "KeyType": "HASH"}]
        types = [{"AttributeName": "pk", "AttributeType": "S"}]
        if sort:
            schema.append({"AttributeName": "sk", "KeyType": "RANGE"})
            types.append({"AttributeName": "sk", "AttributeType": "N"})
        types += more.pop("types", [])
        self.dynamodb.create_table(
            TableName="tab",
            KeySchema=schema,
            AttributeDefinitions=types,
            BillingMode="PAY_PER_REQUEST",
            **more,
        )


class FanOut(Account):
    """An account with a stream, a consumer, and the events that it was pushed."""

    def __init__(self, shards: int = 1, **options: Any) -> None:
        super().__init__(**{"throttle": False, **options})
        self.stream(shards, MaxRecordSizeInKiB=10240)
        self.arn = self.kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"][
            "StreamARN"
        ]
        made = self.kinesis.register_stream_consumer(StreamARN=self.arn, ConsumerName="c")
        self.consumer = made["Consumer"]["ConsumerARN"]

    def request(self, kind: str = "TRIM_HORIZON", shard: str = SHARD, **more: Any) -> dict[str, Any]:
        return {"ConsumerARN": self.consumer, "ShardId": shard, "StartingPosition": {"Type": kind, **more}}

    def subscribe(self, kind: str = "TRIM_HORIZON", **more: Any) -> Any:
        events = iter(self.kinesis.subscribe_to_shard(**self.request(kind, **more))["EventStream"])
        return (event["SubscribeToShardEvent"] for event in events)


@pytest.fixture
def make() -> type[Account]:
    return Account


@pytest.fixture
def account() -> Account:
    return Account(throttle=False)


def code_of(call: Any, **request: Any) -> str:
    """The error code with which a call fails."""
    with pytest.raises(ClientError) as caught:
        call(**request)
    return caught.value.response["Error"]["Code"]


@pytest.fixture
def code() -> Any:
    return code_of
