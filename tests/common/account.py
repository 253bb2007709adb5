"""A stream of one shard in virtual time, and the calls that are made."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.common.errors import PermanentAwsError
from kinesis_sdk.testing import FakeAws, VirtualClock

STREAM = "orders"
SHARD = "shardId-000000000000"


class Account:
    """A client that notes what it is asked.

    Attributes:
        calls: Names of the methods that were called, in order.
        starts: Types of the iterators that were opened.
        denied: Methods that are not permitted.
        change: Called with a method and its response; returns the response that the caller gets.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock, throttle=False)
        self.client = self.aws.client("kinesis")
        self.client.create_stream(StreamName=STREAM, ShardCount=1)
        self.clock.advance(5)
        self.calls: list[str] = []
        self.starts: list[str] = []
        self.denied: set[str] = set()
        self.change: Any = None
        self.date = int(self.clock.time() * 1000)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.client, name)

        def spy(**request: Any) -> Any:
            self.calls.append(name)
            self.starts += [request["ShardIteratorType"]] if name == "get_shard_iterator" else []
            if name in self.denied:
                raise PermanentAwsError("no", operation=name, code="AccessDeniedException")
            response = call(**request)
            return response if self.change is None else self.change(name, response)

        return spy

    def store(self, data: bytes) -> str:
        """Store a Kinesis record, and return its sequence number."""
        response = self.client.put_record(StreamName=STREAM, PartitionKey="a", ExplicitHashKey="1", Data=data)
        return str(response["SequenceNumber"])

    def split(self) -> None:
        self.client.split_shard(StreamName=STREAM, ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
        self.clock.advance(30)
