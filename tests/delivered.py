"""What readers of this SDK deliver of a stream of the fake."""

from __future__ import annotations

import time

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.once.reader import RunReader
from kinesis_sdk.common.once.shell import carry_out
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.testing import FakeAws


def delivered(aws: FakeAws, stream: str) -> list[bytes]:
    """Payloads of the records that are delivered, sorted."""
    client = aws.client("kinesis")
    found: list[bytes] = []
    for shard in list_shards(client, StreamId(stream)):
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard.shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records = [
            KinesisRecord.from_api(one) for one in client.get_records(ShardIterator=iterator)["Records"]
        ]
        reader = RunReader(stream, shard.shard_id, shard.hash_key_range, parents=())
        reader.begin(records)
        users = deaggregate(records, on_tagged=reader.add)
        look_up = reader.look_up()
        if look_up is not None:
            carry_out(look_up, client, StreamId(stream), shard.shard_id)
        dropped = reader.decide(int(time.time() * 1000)).dropped
        found.extend(record.data for record in users.without(dropped))
    return sorted(found)
