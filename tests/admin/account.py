"""A fake account in virtual time, as the tools of an operator see it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.fleet.reader import FleetReader
from kinesis_sdk.admin.streams import Streams
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.testing import FakeAws, VirtualClock

SHARD = "shardId-000000000000"


class Account:
    """The account.

    Args:
        options: Arguments of the fake.

    Attributes:
        said: Where a test may have a command tell what it does.
    """

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock, **options)
        self.kinesis, self.dynamodb = self.aws.client("kinesis"), self.aws.client("dynamodb")
        self.connection = Connection(clients={"kinesis": self.kinesis, "dynamodb": self.dynamodb})
        self.said: list[str] = []
        self.streams = Streams(self.connection, clock=self.clock, sleep=self.clock.advance)

    def create(self, stream: str, shards: int = 1) -> list[Shard]:
        """Create a stream; return its shards."""
        self.kinesis.create_stream(StreamName=stream, ShardCount=shards)
        return list_shards(self.kinesis, StreamId(stream))

    def put(self, stream: str, data: bytes = b"x", key: str = "p", **where: str) -> str:
        """Put a record; return its sequence number."""
        answer = self.kinesis.put_record(StreamName=stream, Data=data, PartitionKey=key, **where)
        return str(answer["SequenceNumber"])

    def lease_table(self, name: str, **settings: Any) -> DynamoDBLeaseStore:
        """Create a lease table."""
        store = DynamoDBLeaseStore(
            self.dynamodb, name, sleep=self.clock.advance, monotonic=self.clock.monotonic, **settings
        )
        store.ensure_ready()
        return store

    def application(self, name: str, **options: Any) -> Application:
        return Application(self.connection, name, **{"sleep": self.clock.advance, **options})

    def look(self, name: str, **options: Any) -> FleetReader:
        """Return a reader of an application's fleet."""
        return FleetReader(self.application(name, **options), clock=self.clock, sleep=self.clock.advance)

    def calls(self, operation: str) -> int:
        """Return how often an operation was called."""
        return int(self.aws.stats()["calls"].get(operation, 0))

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.time(), timezone.utc)
