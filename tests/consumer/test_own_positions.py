"""A fleet whose handlers keep their own positions: exactly once by their own store, whatever crashes."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import pytest

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import RecordHandler
from tests.consumer.fleet.engines import Fleet
from tests.fuzz import seeds


class Ledger:
    """A database of an application: results and positions change in one transaction."""

    def __init__(self):
        self.results = []
        self.positions = {}

    def commit(self, shard_id, before, records):
        """Store the results of some records and the position after them, unless another worker was faster."""
        if self.positions.get(shard_id) != before:
            raise RuntimeError(f"the position of {shard_id} is no longer {before}")
        last = records[-1]
        self.positions[shard_id] = ExtendedSequenceNumber(last.sequence_number, last.sub_sequence_number)
        self.results += [(shard_id, record.data) for record in records]
        return self.positions[shard_id]


class CrashError(Exception):
    """The process of a worker ends here."""


class Bank:
    """A fleet of such workers, of which some crash before or after a commit."""

    def __init__(self, seed, *, asks_ledger=True):
        self.rng = Random(seed)
        self.fleet = Fleet(shards=2, seed=seed)
        self.ledger = Ledger()
        self.asks_ledger = asks_ledger
        self.count = 0
        self.dying = None
        self.starts = []

    def add(self):
        self.count += 1
        name = f"w{self.count}"
        self.fleet.add(name, self.handler(name))

    def handler(self, name):
        bank = self

        class Handler(RecordHandler):
            position = None

            def starting_position(self, shard):
                self.shard_id = shard.shard_id
                self.position = bank.ledger.positions.get(shard.shard_id)
                bank.starts.append((self.position, shard.checkpoint))
                return self.position if bank.asks_ledger else None

            def process_records(self, batch):
                if bank.dying is not None:
                    raise CrashError  # the process is gone, only the test does not know it yet
                crash = bank.rng.random()
                if crash < 0.1:
                    bank.dying = name
                    raise CrashError("before the commit")
                records = list(batch.records)
                if bank.rng.random() < 0.3:
                    records = records[: 1 + len(records) // 2]
                self.position = bank.ledger.commit(self.shard_id, self.position, records)
                if crash < 0.2:
                    bank.dying = name
                    raise CrashError("after the commit")
                if len(records) < len(batch.records):
                    self.position = bank.ledger.commit(
                        self.shard_id, self.position, list(batch.records)[len(records) :]
                    )
                if bank.rng.random() < 0.1:
                    batch.checkpoint()  # now and then, so that the lease is behind, and not only at its start

        return Handler

    def run(self, seconds):
        end = self.fleet.clock.monotonic() + seconds
        while self.fleet.run(end - self.fleet.clock.monotonic(), lambda: self.dying is not None):
            self.fleet.crash(self.dying)
            self.dying = None
            self.add()


@lru_cache(maxsize=4)
def play(seed, *, asks_ledger=True):
    bank = Bank(seed, asks_ledger=asks_ledger)
    for _ in range(2):
        bank.add()
    for turn in range(12):
        bank.fleet.put(bank.rng.randint(1, 30))
        if turn in (3, 7):
            bank.fleet.split(bank.rng.randrange(2))
        bank.run(bank.rng.uniform(1, 15))
    bank.run(90)
    return bank


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=2, fuzz=100))
def test_every_record_takes_effect_exactly_once(seed):
    bank = play(seed)
    assert sorted(data for _, data in bank.ledger.results) == sorted(bank.fleet.sent)
    for shard_id in bank.ledger.positions:
        mine = [int(data) for shard, data in bank.ledger.results if shard == shard_id]
        assert mine == sorted(mine), "in the order of the shard"
