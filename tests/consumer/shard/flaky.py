"""Handlers that call a service which fails for a share of the records, and the calls that each way of delivering takes. Virtual time.

The best way repeats each call that failed, and no other: of n records that fail with a chance of p, it takes n / (1 - p) calls.
"""

from __future__ import annotations

from random import Random

from kinesis_sdk.common.errors import RestartShardError
from kinesis_sdk.consumer import BisectBatch, RecordHandler
from tests.consumer.leases.held_lease import at
from tests.consumer.shard.delivery_scene import Scene, record
from tests.consumer.sinks.house import House

TOTAL = 2_500
CHANCE = 0.0034
"""A service with 15 % errors and three attempts."""

WAYS = {
    "retry": {},
    "bisect": {"policy": "bisect"},
    "bisect, retry_only": {"policy": "retry_only"},
    "checkpoint at every 50th": {},
    "100 keys, 20 at once": {"concurrency": 20, "keys": 100},
    "3 keys, 20 at once": {"concurrency": 20, "keys": 3},
    "sink": {},
    "a restart for each failure": {},
}


class Flaky:
    """A handler that calls a service for each record.

    Args:
        seed: Of the failures.
        chance: Chance that a call of the service fails.
        checkpoints: Whether it checkpoints at every 50th record of a call.

    Attributes:
        calls: Calls of the service.
        handled: Calls of the handler.
        dead: Records that were passed to the dead-letter hook.
    """

    def __init__(self, seed, chance=CHANCE, *, checkpoints=False):
        self.random = Random(seed)
        self.chance = chance
        self.checkpoints = checkpoints
        self.calls = self.handled = 0
        self.dead = []

    def handle(self, batch):
        self.handled += 1
        for done, one in enumerate(batch.records, 1):
            self.calls += 1
            if self.random.random() < self.chance:
                raise ConnectionError("the service is busy")
            if self.checkpoints and done % 50 == 0:
                batch.checkpoint(one)


def best(chance=CHANCE, total=TOTAL):
    """Return the expected calls of the best way."""
    return total / (1 - chance)


def play(way, seed, chance=CHANCE, total=TOTAL):
    """Deliver records in one of the ways until all are processed. Return the handler."""
    flaky = Flaky(seed, chance, checkpoints=way == "checkpoint at every 50th")
    if way == "sink":
        _play_sink(flaky, total)
        return flaky
    if way == "a restart for each failure":
        _play_restarts(flaky, total)
        return flaky
    options = dict(WAYS[way])
    keys, policy = options.pop("keys", 1), options.pop("policy", None)
    if policy is not None:
        retry_only = (ConnectionError,) if policy == "retry_only" else ()
        options["policy"] = BisectBatch(dead_letter=flaky.dead.append, retry_only=retry_only)
    scene = Scene(flaky.handle, rng=Random(seed), **options)
    for begin in range(0, total, TOTAL):
        numbers = range(begin + 1, min(begin + TOTAL, total) + 1)
        scene.offer(*[record(number, f"k{number % keys}") for number in numbers])
        assert scene.run(1e7) is None, "it ends"
    assert scene.checkpointer.largest_delivered == at(total)
    assert scene.delivery.records_delivered == total
    return flaky


def put_slowly(fleet, total):
    """Put records at a rate that a shard accepts."""
    for begin in range(0, total, 500):
        fleet.put(min(500, total - begin))
        fleet.clock.advance(1)


def _play_sink(flaky, total):
    """Each call is a transaction, and what a failed one wrote is rolled back: every effect once, in order."""

    def handle(batch):
        flaky.handle(batch)
        batch.transaction.extend(("w1", one.data) for one in batch.records)

    house = House()
    put_slowly(house.fleet, total)
    house.fleet.add("w1", handle)
    assert house.fleet.run(100_000, lambda: len(house.sink.effects) == total)
    assert house.data == house.fleet.sent


def _play_restarts(flaky, total):
    """Each failure ends the handler, as that of a child process does. It checkpoints what a call finished."""
    house = House()
    house.fleet.more = {}
    got = []

    class Child(RecordHandler):
        def process_records(self, batch):
            try:
                flaky.handle(batch)
            except ConnectionError as error:
                raise RestartShardError("the child has ended") from error
            got.extend(one.data for one in batch.records)
            batch.checkpoint()

    put_slowly(house.fleet, total)
    house.fleet.add("w1", Child)
    assert house.fleet.run(100_000, lambda: len(got) == total)
    assert got == house.fleet.sent
