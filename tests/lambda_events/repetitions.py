"""A stream with records that an idempotent producer repeats, and events with its records."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from kinesis_sdk.common.once.table import Run
from kinesis_sdk.common.transport import get_records
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.common.once.streams import aggregate
from tests.lambda_events.support import ARN

STREAM = "orders"
SHARD, CHILD = "shardId-000000000000", "shardId-000000000001"
LEFT, RIGHT = 5, 2**128 - 5


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock, throttle=False)
        self.client: Any = self.aws.client("kinesis")
        self.client.create_stream(StreamName=STREAM, ShardCount=1)
        self.clock.advance(5)
        self.date = int(self.clock.time() * 1000)

    def put(
        self,
        *numbers: int,
        flags: int = 0,
        date: int | None = None,
        keys: list[int] | None = None,
        made_for: str = SHARD,
    ) -> None:
        runs = [
            Run(1, 4, flags, b"producer", self.date if date is None else date, number) for number in numbers
        ]
        places = keys or [LEFT] * len(numbers)
        self.client.put_record(
            StreamName=STREAM,
            PartitionKey="a",
            ExplicitHashKey=str(places[0]),
            Data=aggregate(runs, made_for, places, stream=STREAM),
        )
        self.clock.advance(5)

    def event(self, begin: int = 0, end: int | None = None, shard_id: str = SHARD) -> Mapping[str, Any]:
        """The event with some of the shard's records."""
        iterator = self.client.get_shard_iterator(
            StreamName=STREAM, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records = [
            {
                "kinesis": {
                    "partitionKey": one.partition_key,
                    "sequenceNumber": one.sequence_number,
                    "data": b64encode(one.data).decode(),
                    "approximateArrivalTimestamp": one.approximate_arrival_timestamp.timestamp(),
                },
                "eventSource": "aws:kinesis",
                "eventID": f"{shard_id}:{one.sequence_number}",
                "eventSourceARN": ARN,
            }
            for one in get_records(self.client, iterator, 100).records[begin:end]
            if one.approximate_arrival_timestamp is not None
        ]
        return {"Records": json.loads(json.dumps(records))}
