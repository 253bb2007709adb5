"""What is stored in the fake stream: Kinesis records, and the headers of user records."""

from __future__ import annotations

from collections.abc import Mapping

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.testing import FakeAws
from tests.producer.simulation import STREAM


def stored(aws: FakeAws) -> list[KinesisRecord]:
    client = aws.client("kinesis")
    found: list[KinesisRecord] = []
    for shard in list_shards(client, StreamId(STREAM)):
        iterator = client.get_shard_iterator(
            StreamName=STREAM, ShardId=shard.shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        page = client.get_records(ShardIterator=iterator)
        found.extend(map(KinesisRecord.from_api, page["Records"]))
    return found


def stored_headers(aws: FakeAws) -> dict[bytes, Mapping[str, bytes]]:
    return {record.data: record.headers for record in deaggregate(stored(aws))}
