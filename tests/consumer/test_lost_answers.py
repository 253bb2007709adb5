"""Writes whose response is lost: the effect of the own write counts as success, that of a peer's write never does.

Every write of a held lease, on every kind of store, with losses before or after it had effect, and everything that a peer can write
between a loss and the repetition; in memory with every order of two losses in a row.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import count, product
from random import Random

import pytest

from kinesis_sdk.common.errors import AwsError, LeaseLostError, TransientAwsError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import Conflict, DynamoDBLeaseStore, InMemoryLeaseStore, Lease, SqlLeaseStore
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.consumer.leases.conftest import sqlite_in_memory
from tests.consumer.leases.held_lease import hold
from tests.fuzz import seeds, share

POSITION = ExtendedSequenceNumber("77", 3)


class Unreliable:
    """A store whose writes lose their responses by script."""

    def __init__(self, store):
        self.store = store
        self.script = []

    def __getattr__(self, name):
        method = getattr(self.store, name)

        def call(*arguments, **more):
            what = self.script.pop(0) if self.script else "fine"
            if what == "before":
                raise TransientAwsError("no answer", operation=name)
            result = method(*arguments, **more)
            if what == "after":
                raise TransientAwsError("no answer", operation=name)
            return result

        return call


def in_memory():
    return InMemoryLeaseStore()


@cache
def database():
    """One for all tables: SQLAlchemy compiles each statement once for an engine, which takes longer than to carry it out."""
    return sqlite_in_memory().engine


@pytest.fixture(scope="module", autouse=True)
def _database_is_closed():
    yield
    if database.cache_info().currsize:
        database().dispose()
        database.cache_clear()


APPLICATIONS = count()


def in_sqlite():
    return SqlLeaseStore(database(), f"app {next(APPLICATIONS)}")


def on_the_fake():
    clock = VirtualClock()
    client = FakeAws(clock=clock).client("dynamodb")
    store = DynamoDBLeaseStore(client, "app", sleep=clock.advance, monotonic=clock.monotonic)
    store.ensure_ready()
    return store


class Scenario:
    def __init__(self, make):
        self.table = make()
        self.mine = Unreliable(self.table)
        self.table.create_if_absent(Lease(lease_key="s", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON)))
        self.held = hold(self.mine, self.table.take(self.row, "me"))

    @property
    def row(self):
        return self.table.get("s")


def java_assigns(scenario):
    """A Java leader's plain assignment asks for owners, not for the counter."""
    seen = scenario.row
    scenario.table.take(seen, "java")


def comes_and_goes(scenario):
    taken = scenario.table.take(scenario.row, "peer")
    scenario.table.take(taken, "me")  # as another process of our name would, or a leader


WRITES = {
    "renew": (lambda held: held.renew(), lambda row: True),
    "checkpoint": (lambda held: held.checkpoint(POSITION), lambda row: row.checkpoint == POSITION),
    "prepare": (
        lambda held: held.prepare(POSITION, b"state"),
        lambda row: (row.pending_checkpoint, row.pending_checkpoint_state) == (POSITION, b"state"),
    ),
    "mark_processed": (lambda held: held.mark_processed(5), lambda row: row.was_processed_until(5)),
    "pin": (lambda held: held.pin(5), lambda row: row.initial_timestamp_millis == 5),
    "release": (lambda held: held.release(), lambda row: row.owner in (None, "peer")),
}
LOSSES = [[*losses] for count in (1, 2) for losses in product(("before", "after"), repeat=count)]
# What a held lease makes of two losses in a row does not depend on the store, which meets a counter that is one ahead each time.
ON_STORES = [
    *((in_memory, losses) for losses in LOSSES),
    *(
        (make, losses)
        for make in (in_sqlite, on_the_fake)
        for losses in (["before"], ["after"], ["after", "after"])
    ),
]
# Each write with four of these ten.
CASES = share([(name, make, losses) for name in WRITES for make, losses in ON_STORES], unit=25)
HARMLESS = {
    "nothing": lambda scenario: None,
    "metadata": lambda scenario: scenario.table.set_child_shard_ids("s", ["c"]),
    "range": lambda scenario: scenario.table.set_hash_key_range("s", HashKeyRange(0, 5)),
    "asked for it": lambda scenario: (
        scenario.row.owner and scenario.table.request_handoff(scenario.row, "peer")
    ),
}
FATAL = {
    "took it": lambda scenario: scenario.table.take(scenario.row, "peer"),
    "assigned it": java_assigns,
    "took it and gave it back": comes_and_goes,
    "deleted it": lambda scenario: scenario.table.delete("s"),
}


def attempt(scenario, write, losses, between):
    """Repeat a write until it gets a response; a peer acts after the first loss."""
    scenario.mine.script = [*losses]
    for number in range(len(losses) + 1):
        try:
            write(scenario.held)
        except AwsError:
            if number == 0:
                between(scenario)
        else:
            return
    raise AssertionError("it never came through")


@pytest.mark.fuzz
@pytest.mark.parametrize(("name", "make", "losses"), CASES)
def test_a_workers_own_write_counts_once(name, losses, make):
    write, shows = WRITES[name]
    for between in HARMLESS.values():
        scenario = Scenario(make)
        before = scenario.row
        attempt(scenario, write, losses, between)
        row = scenario.row
        assert shows(row), "it has effect"
        assert before.counter < row.counter <= before.counter + 1 + len(losses)
        assert replace(scenario.held.lease, **METADATA) == replace(row, **METADATA), "and we know the row"
        if name != "release":
            assert row.holder == "me"
            scenario.held.renew()
            assert scenario.row.counter == row.counter + 1


METADATA = {"child_shard_ids": (), "hash_key_range": None}


@pytest.mark.fuzz
@pytest.mark.parametrize(("name", "make", "losses"), CASES)
def test_a_peers_write_never_counts(name, losses, make):
    write, _ = WRITES[name]
    for between in FATAL.values():
        scenario = Scenario(make)
        after = []

        def act(scenario, between=between, after=after):
            between(scenario)
            after.append(scenario.row)

        with pytest.raises(LeaseLostError):
            attempt(scenario, write, losses, act)
        assert scenario.row == after[0], "nothing was written over it"
        for again in WRITES.values():
            with pytest.raises(LeaseLostError):
                again[0](scenario.held)
        assert scenario.row == after[0]


@pytest.mark.parametrize("make", [in_memory, in_sqlite, on_the_fake])
@pytest.mark.parametrize("times", [1, 2])
def test_writes_based_on_a_scan(make, times):
    """Create, take, request, complete, metadata, delete: done once, however often the response is lost."""
    store = Unreliable(make())
    table = store.store
    new = Lease(lease_key="s", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON))

    def repeated(write):
        store.script = ["after"] * times
        for _ in range(times):
            with pytest.raises(AwsError):
                write()
        return write()

    assert repeated(lambda: store.create_if_absent(new)) is False, "it is there, which is all that it says"
    assert table.get("s") == new
    mine = repeated(lambda: store.take(new, "me"))
    assert mine == table.get("s")
    assert (mine.owner, mine.counter, mine.owner_switches) == ("me", 1, 0)
    assert store.take(new, "peer") == Conflict(mine)
    asked = repeated(lambda: store.request_handoff(mine, "peer"))
    assert asked == table.get("s")
    assert (asked.owner, asked.checkpoint_owner, asked.counter) == ("peer", "me", 1)
    assert store.request_handoff(mine, "third") == Conflict(asked)
    done = repeated(lambda: store.complete_handoff(asked))
    assert done == table.get("s")
    assert (done.owner, done.counter) == ("peer", 2)
    taken = table.take(done, "third")
    assert store.complete_handoff(asked) == Conflict(taken)
    assert store.take(done, "peer") == Conflict(taken)
    assert repeated(lambda: store.set_child_shard_ids("s", ["c"]))
    assert repeated(lambda: store.set_hash_key_range("s", HashKeyRange(1, 2)))
    assert table.get("s") == replace(taken, child_shard_ids=("c",), hash_key_range=HashKeyRange(1, 2))
    assert repeated(lambda: store.delete("s"))
    assert table.get("s") is None
    assert not repeated(lambda: store.set_child_shard_ids("s", ["c"]))
    assert table.get("s") is None, "metadata bring no row back"


@pytest.mark.fuzz
@pytest.mark.parametrize("make", [in_memory, in_sqlite, on_the_fake])
def test_consecutive_lost_responses_of_different_writes(make):
    """A write with a response has effect, whatever was lost before it; counters and checkpoints only rise."""
    for seed in seeds(unit=30 if make is in_memory else 4, fuzz=200):
        rng = Random(seed)
        scenario = Scenario(make)
        last = scenario.row
        for number in range(12):
            position = ExtendedSequenceNumber(str(number + 1))
            write, shows = rng.choice(
                [
                    (lambda held: held.renew(), lambda row: True),
                    (
                        lambda held, p=position: held.checkpoint(p),
                        lambda row, p=position: row.checkpoint == p,
                    ),
                    (
                        lambda held, p=position: held.prepare(p),
                        lambda row, p=position: row.pending_checkpoint == p,
                    ),
                ]
            )
            scenario.mine.script = rng.choices(["fine", "before", "after"], k=2)
            try:
                write(scenario.held)
            except TransientAwsError:
                pass
            else:
                assert shows(scenario.row), seed
                assert scenario.held.lease == scenario.row, seed
            assert scenario.row.counter >= last.counter
            assert scenario.row.checkpoint >= last.checkpoint
            last = scenario.row
