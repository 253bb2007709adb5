"""Fleets with a sink in virtual time, whose workers crash and freeze around each commit."""

from __future__ import annotations

import logging
from random import Random

from kinesis_sdk.consumer import RecordHandler
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from tests.consumer.fleet.engines import UNHURRIED, Fleet

APPLICATION = "totals"

LAST = 30.0
"""Seconds that a fleet goes on after the last record: longer than a take-over, which is when an effect would be repeated."""


class CrashError(Exception):
    """The process of a worker ends here."""


class Unreliable:
    """A sink whose commits sometimes fail, or take effect although their answer is lost."""

    def __init__(self, inner, rng, *, rate=0.1, error=None):
        self.inner, self.rng, self.rate = inner, rng, rate
        self.error = error or (lambda: ConnectionError("the connection is lost"))
        self.lost_answers = self.failures = 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def begin(self, key, seen):
        if self.rng.random() < self.rate / 2:
            self.failures += 1
            raise self.inner.translate(self.error())
        transaction = self.inner.begin(key, seen)
        return None if transaction is None else _UnreliableTransaction(self, transaction)


class _UnreliableTransaction:
    def __init__(self, sink, inner):
        self.sink, self.inner, self.handle = sink, inner, inner.handle

    def rollback(self):
        self.inner.rollback()

    def commit(self, row):
        chance = self.sink.rng.random()
        if chance < self.sink.rate:
            self.sink.failures += 1
            self.inner.rollback()
            raise self.sink.error()
        done = self.inner.commit(row)
        if done and chance < 2 * self.sink.rate:
            self.sink.lost_answers += 1
            raise self.sink.error()
        return done


class Books:
    """A fleet whose handlers write each record to a sink.

    Args:
        seed: Of everything that is random.
        sink: The sink; a new `InMemorySink` by default.
        write: Writes one effect; by default, appends to the list that `InMemorySink` hands out.
        crashes: Whether workers crash.
        freezes: Whether workers freeze inside their handler until another worker has taken the shard over.
    """

    def __init__(self, seed, *, sink=None, write=None, crashes=True, freezes=True, shards=2, config=None):
        self.rng = Random(seed)
        self.fleet = Fleet(shards=shards, seed=seed, config=config or UNHURRIED)
        self.sink = sink if sink is not None else InMemorySink()
        self.fleet.more = {"sink": self.sink, "application_name": APPLICATION}
        self.write = write or (lambda transaction, effect: transaction.append(effect))
        self.crashes, self.freezes = crashes, freezes
        self.count = 0
        self.dying = None
        self.frozen = 0
        self.starts = []
        self.handled = set()

    def add(self):
        self.count += 1
        name = f"w{self.count}"
        self.fleet.add(name, self.handler(name))
        return name

    def handler(self, name):
        books = self

        class Handler(RecordHandler):
            shard_id = "?"

            def initialize(self, shard):
                self.shard_id = shard.shard_id
                books.starts.append((name, shard.shard_id, shard.checkpoint))

            def process_records(self, batch):
                books.at(name, "begin")
                for record in batch.records:
                    books.write(batch.transaction, (self.shard_id, record.id, record.data))
                    books.handled.add(record.data)
                books.at(name, "end")

        return Handler

    def at(self, name, place):
        """A worker reaches a place in its handler, where it may crash or freeze."""
        if self.dying is not None:
            raise CrashError  # the process is gone, only the test does not know it yet
        chance = self.rng.random()
        if self.crashes and chance < 0.04:
            self.dying = name
            raise CrashError(place)
        if self.freezes and chance > 0.97 and self.fleet.timeline.depth == 1:
            self.freeze(name, self.rng.uniform(5, 60))

    def freeze(self, name, seconds):
        """Let other workers go on while this one stands still inside its handler."""
        self.frozen += 1
        self.fleet.freeze(name, seconds + 1)  # its own loop must not run inside of its handler
        self.run(seconds)

    def run(self, seconds, until=lambda: False):
        end = self.fleet.clock.monotonic() + seconds
        while self.fleet.timeline.run(end, lambda: self.dying is not None or until()):
            if self.dying is None:
                return
            self.fleet.crash(self.dying)
            self.dying = None
            self.add()

    def play(self, turns=20, splits=(6,), merges=(12,)):
        logging.disable()  # pytest would format each of the many warnings
        try:
            self._play(turns, splits, merges)
        finally:
            logging.disable(logging.NOTSET)
        return self

    def _play(self, turns, splits, merges):
        for _ in range(2):
            self.add()
        for turn in range(turns):
            self.fleet.put(self.rng.randint(1, 30))
            if turn in splits:
                self.fleet.split(self.rng.randrange(2))
            if turn in merges:
                self.fleet.merge(0)
            self.run(self.rng.uniform(1, 15))
        self.crashes = self.freezes = False
        self.run(200, lambda: len(self.handled) == len(self.fleet.sent))
        self.run(LAST)

    def check(self, effects):
        """Check that each record took effect once, and in the order of its shard."""
        assert sorted(data for _, _, data in effects) == sorted(self.fleet.sent)
        assert len({record_id for _, record_id, _ in effects}) == len(effects)
        for shard_id in {shard for shard, _, _ in effects}:
            mine = [int(data) for shard, _, data in effects if shard == shard_id]
            assert mine == sorted(mine)
