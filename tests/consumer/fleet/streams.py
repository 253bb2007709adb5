"""Engines over several streams of one account in virtual time."""

from __future__ import annotations

from random import Random

from kinesis_sdk.consumer import DynamoDBLeaseStore
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.consumer.fleet.engines import UNHURRIED


class Streams:
    """Engines over several streams of one fake account, in virtual time."""

    def __init__(self, *names, config=UNHURRIED, shards=2):
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock)
        self.raw = self.aws.client("kinesis")
        self.kinesis = self.raw
        self.config = config
        self.clock.advance(1000)
        for name in names:
            self.raw.create_stream(StreamName=name, ShardCount=shards)
        self.store = DynamoDBLeaseStore(
            self.aws.client("dynamodb"), "app", sleep=self.clock.advance, monotonic=self.clock.monotonic
        )
        self.listed = [*names]
        self.engines = {}
        self.got = []

    def arn(self, name):
        return self.raw.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]

    def add(self, name, streams=None, **more):
        def handle(batch):
            self.got.extend((str(batch.stream), batch.shard_id, record.data) for record in batch.records)

        engine = ConsumerEngine(
            streams=streams or (lambda: [*self.listed]),
            worker_id=name,
            config=self.config,
            handlers=HandlerSource.of(handle),
            store=self.store,
            kinesis=self.kinesis,
            runtime=InlineRuntime(self.clock, Random(name), self.clock.advance),
            **{"application_name": "app", **more},
        )
        engine.start()
        self.engines[name] = engine

    def put(self, stream, *data):
        for one in data:
            self.raw.put_record(StreamName=stream, Data=one, PartitionKey=one.decode())

    def run(self, seconds, until=lambda: False):
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            if until():
                return True
            following = end
            for name in [*self.engines]:
                engine = self.engines[name]
                due = engine.tick(self.clock.monotonic())
                if due is None:
                    del self.engines[name]
                else:
                    following = min(following, due)
                if engine.error is not None:
                    raise engine.error
            self.clock.advance_to(max(following, self.clock.monotonic() + 0.001))
        return until()

    def rows(self):
        return {row.lease_key: row for row in self.store.list()}

    def data(self):
        return {data for _, _, data in self.got}
