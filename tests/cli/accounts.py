"""A fake account for commands about fleets."""

from __future__ import annotations

from operator import attrgetter
from typing import TypeAlias

import pytest
from click.testing import Result

from kinesis_sdk.admin import Connection
from kinesis_sdk.admin.fleet import reader as reader_module
from kinesis_sdk.admin.fleet.calls import CallCounter
from kinesis_sdk.cli.options import ConnectionOptions
from kinesis_sdk.common.shards import list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.sql import SqlLeaseStore
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.cli.invoking import invoke

Store: TypeAlias = "DynamoDBLeaseStore | SqlLeaseStore"


class Account:
    """A fake account with one application on one stream, whose leases are in DynamoDB or in another database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lease_store: str | None = None) -> None:
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock)
        self.kinesis, self.dynamodb = self.aws.client("kinesis"), self.aws.client("dynamodb")
        clients = {"kinesis": self.kinesis}
        if lease_store is None:
            clients["dynamodb"] = self.dynamodb
        self.connection = Connection(clients=clients, lease_store=lease_store)
        monkeypatch.setattr(ConnectionOptions, "connect", lambda _: self.connection)
        # The machine has the time of the account; its monotonic clock is the real one, for commands that wait.
        monkeypatch.setattr(reader_module, "CallCounter", lambda _: CallCounter(self.clock))

    @property
    def is_sql(self) -> bool:
        return self.connection.lease_store is not None

    def make(self, application: str, stream: str, shards: int) -> Store:
        self.kinesis.create_stream(StreamName=stream, ShardCount=shards)
        store: Store
        if self.is_sql:
            store = SqlLeaseStore(self.connection.database, application, sleep=self.clock.advance)
        else:
            store = DynamoDBLeaseStore(
                self.dynamodb, application, sleep=self.clock.advance, monotonic=self.clock.monotonic
            )
        store.ensure_ready()
        for shard in list_shards(self.kinesis, StreamId(stream)):
            store.create_if_absent(Lease.for_shard(shard, "TRIM_HORIZON"))
        return store

    def take(self, store: Store, *workers: str) -> None:
        for lease, worker in zip(sorted(store.list(), key=attrgetter("lease_key")), workers, strict=False):
            store.take(lease, worker)

    def run(self, *arguments: str, code: int = 0) -> Result:
        return invoke(*arguments, code=code)
