"""What is stored in the fake stream: Kinesis records, payloads, and the headers of user records."""

from __future__ import annotations

from collections import Counter
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


def payloads(aws: FakeAws, stream: str = "orders") -> Counter[bytes]:
    """Payloads that a consumer like the KCL would deliver; faults are over."""
    aws.faults.clear()
    client = aws.client("kinesis")
    found: Counter[bytes] = Counter()
    for shard in list_shards(client, StreamId(stream)):
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard.shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            page = client.get_records(ShardIterator=iterator)
            records = [KinesisRecord.from_api(item) for item in page["Records"]]
            found.update(
                record.data
                for record in deaggregate(
                    records, hash_key_range=shard.hash_key_range, on_misplaced=lambda _record, _count: True
                )
            )
            iterator = page.get("NextShardIterator")
            if not page["Records"] and page["MillisBehindLatest"] == 0:
                break
    return found
