"""Shards that are read with enhanced fan-out in virtual time: one fetcher, and an engine for fleets."""

from __future__ import annotations

from random import Random

from kinesis_sdk.common.errors import ProtocolError, ThrottledError, TransientAwsError
from kinesis_sdk.common.position import TrimHorizon
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.fetch import ByteBudget, PollingFetcher, ReadRate, TipIdle
from kinesis_sdk.consumer.fetch.events import Next
from kinesis_sdk.consumer.fetch.fanout import FanOutFetcher
from kinesis_sdk.consumer.fetch.registration import ConsumerRegistration
from kinesis_sdk.testing import FakeAws, VirtualClock

SHARD = "shardId-000000000000"


class Spied:
    """A client that notes when it was asked to subscribe, and that can be told to answer differently."""

    def __init__(self, client, clock):
        self.client = client
        self.clock = clock
        self.meta = client.meta
        self.subscribed = []
        self.instead = {}

    def __getattr__(self, name):
        method = getattr(self.client, name)

        def call(**request):
            if name == "subscribe_to_shard":
                self.subscribed.append((self.clock.monotonic(), request["StartingPosition"]))
            if name in self.instead:
                return self.instead[name](method, request)
            return method(**request)

        return call


class Rig:
    """One fetcher, whose steps and readers run when the test says so."""

    def __init__(self, start=None, *, polling=True, arn=None, budget=64 << 20, **options):
        self.clock = VirtualClock()
        self.aws = FakeAws(clock=self.clock, **{"throttle": False, **options})
        self.raw = self.aws.client("kinesis")
        self.raw.create_stream(StreamName="s", ShardCount=1)
        self.arn = self.raw.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]["StreamARN"]
        self.client = Spied(self.raw, self.clock)
        self.registration = ConsumerRegistration(
            self.client, StreamId("s"), name=None if arn else "app", arn=arn
        )
        self.budget = ByteBudget(budget)
        self.readers = []
        self.ready = 0
        self.sent = []
        self.read = []
        self.polling = polling
        self.fetcher = self.make(start or TrimHorizon())
        self.due = self.clock.monotonic()

    def make(self, start):
        fetcher = FanOutFetcher(
            self.client,
            self.registration,
            SHARD,
            start,
            rng=Random(1),
            budget=self.budget,
            on_ready=self.on_ready,
            clock=self.clock,
            open_polling=self.open_polling if self.polling else None,
            start_reader=lambda reader, shard: self.readers.append(reader),
        )
        fetcher.bind(self.wake)
        return fetcher

    def open_polling(self, position, now):
        return PollingFetcher(
            self.client,
            StreamId("s"),
            SHARD,
            position,
            rng=Random(1),
            max_records=10_000,
            idle=TipIdle(1.0, 0.5, 2.0),
            read_rate=ReadRate(),
            now=now,
            clock=self.clock,
        )

    def on_ready(self):
        self.ready += 1

    def wake(self):
        self.due = self.clock.monotonic()

    def put(self, *data):
        self.sent += data
        self.raw.put_records(
            StreamName="s", Records=[{"Data": one, "PartitionKey": "k"} for one in data or [b"x"]]
        )

    def step(self):
        """What the scheduler does: steps that are due."""
        while self.due is not None and self.due <= self.clock.monotonic():
            self.due = None
            following = self.fetcher.step(self.clock.monotonic())
            if self.due is None:
                self.due = following
                return

    def pump(self):
        """One event from each live reader."""
        self.readers = [reader for reader in self.readers if reader.read_one() is not Next.STOP]

    def fetch(self):
        result = self.fetcher.fetch(self.clock.monotonic())
        self.read += [record.data for record in result.records]
        result.on_done()
        return result

    def run(self, seconds, every=0.5, put=None):
        """Let time pass, with whatever is due; errors that may be repeated are counted."""
        end = self.clock.monotonic() + seconds
        errors = []
        while self.clock.monotonic() < end:
            if put is not None:
                self.put(put())
            self.step()
            self.pump()
            while self.fetcher.due <= self.clock.monotonic():
                try:
                    if self.fetch().header.ended:
                        return errors
                except (ThrottledError, TransientAwsError, ProtocolError) as error:
                    errors.append(error)
            self.clock.advance(every)
        return errors

    def calls(self, operation):
        return self.aws.stats()["calls"].get(operation, 0)

    def times(self):
        return [moment for moment, _ in self.client.subscribed]


GOOD = {"Records": [], "ContinuationSequenceNumber": "5", "MillisBehindLatest": 0}
GARBLED = ["abc", "", 7, None, "9" * 500, "٣", "SHARD_END", "-1"]
"""What is no sequence number."""


class FanOutEngine(ConsumerEngine):
    """An engine whose shards are pushed; readers are tasks of its scheduler, so that one thread does everything."""

    registration = None
    consumer_name = "app"

    def _open_fetcher(self, tracked, shard_id, start, now, on_ready, metrics, *, polled=False, look_up=None):
        if look_up is not None:
            return super()._open_fetcher(tracked, shard_id, start, now, on_ready, metrics, look_up=look_up)
        if self.registration is None:
            self.registration = ConsumerRegistration(self._kinesis, tracked.stream, name=self.consumer_name)
        polling = PollingFetcher(
            self._kinesis,
            tracked.stream,
            shard_id,
            start,
            rng=self._runtime.rng,
            max_records=10_000,
            idle=TipIdle(1.0, 0.5, 2.0),
            read_rate=ReadRate(),
            now=now,
            clock=self._clock,
        )
        polling.resolve_start()

        def read(reader, shard):
            task = self.scheduler.add(lambda now: now + 0.2 if reader.read_one() is not Next.STOP else None)
            self.scheduler.wake(task)

        fetcher = FanOutFetcher(
            self._kinesis,
            self.registration,
            shard_id,
            polling.position,
            rng=self._runtime.rng,
            budget=self._budget,
            on_ready=on_ready,
            clock=self._clock,
            metrics=metrics,
            started_at_millis=polling.started_at_millis,
            start_reader=read,
        )
        task = self.scheduler.add(fetcher.step)
        fetcher.bind(lambda: self.scheduler.wake(task))
        self.scheduler.wake(task)
        return fetcher
