"""A fleet with a sink in virtual time, whose workers write their name with each record."""

from __future__ import annotations

from dataclasses import replace

from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.consumer.sinks.sink import SinkKey
from tests.consumer.fleet.engines import STREAM, UNHURRIED, Fleet

SHARD = "shardId-000000000000"
KEY = SinkKey("totals", STREAM, SHARD)


class House:
    """A fleet with a sink; each worker appends (its name, data) to the transaction."""

    def __init__(self, *, shards=1, config=None, sink=None):
        self.sink = sink or InMemorySink()
        self.fleet = Fleet(shards=shards, config=config or UNHURRIED)
        self.fleet.more = {"sink": self.sink, "application_name": "totals"}
        self.hook = lambda name, place, batch: None

    def add(self, name, handler=None, **options):
        def handle(batch):
            self.hook(name, "begin", batch)
            batch.transaction.extend((name, record.data) for record in batch.records)
            self.hook(name, "end", batch)

        return self.fleet.add(name, handler or handle, **options)

    def put_and_run(self, count=5, seconds=30):
        self.fleet.put(count)
        self.fleet.run(seconds)

    @property
    def data(self):
        return [data for _, data in self.sink.effects]

    @property
    def lease(self):
        return self.fleet.store.get(SHARD)

    @property
    def row(self):
        return self.sink.rows[KEY]

    def change_lease(self, **changes):
        """Write the row as an operator does."""
        lease = self.lease
        self.fleet.store.delete(SHARD)
        self.fleet.store.create_if_absent(replace(lease, counter=lease.counter + 2, **changes))

    def errors(self, name):
        return [health.last_error for health in self.fleet.engines[name].shard_health()]
