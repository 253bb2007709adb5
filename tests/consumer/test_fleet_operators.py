"""Random fleets whose lease table operators change: rewinds, skips, drains and pins beside crashes, pauses and resharding.

The books: what a rewind asks for comes again, what a skip names may be missing, nothing else is lost, and nothing before a
rewind's target comes again because of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from tests import fuzz
from tests.consumer.fleet.engines import HORIZON, Fleet
from tests.consumer.fleet.operator import set_position

ACTIONS = ["put", "put", "run", "run", "split", "merge", "crash", "add", "stop", "pause"]
CHANGES = ["restart", "free", "restart", "free", "skip", "drain", "undrain", "pin", "unpin"]


@dataclass
class Change:
    """A position that an operator wrote.

    Attributes:
        shard: The shard.
        target: The position.
        before: The checkpoint before.
        index: Number of deliveries before it.
    """

    shard: str
    target: ExtendedSequenceNumber
    before: ExtendedSequenceNumber
    index: int

    @property
    def is_rewind(self) -> bool:
        return self.target < self.before


class Books:
    """What was stored, what operators wrote, and what has to be delivered because of both."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.stored: dict[str, list[tuple[ExtendedSequenceNumber, bytes]]] = {}
        self.changes: list[Change] = []
        original = fleet.raw.put_records

        def put_records(**request: Any) -> Any:
            response = original(**request)
            for entry, result in zip(request["Records"], response["Records"], strict=True):
                position = ExtendedSequenceNumber(result["SequenceNumber"])
                self.stored.setdefault(result["ShardId"], []).append((position, entry["Data"]))
            return response

        fleet.raw.put_records = put_records

    def change(self, shard: str, target: ExtendedSequenceNumber, *, free: bool) -> None:
        row = self.fleet.store.get(shard)
        self.changes.append(Change(shard, target, row.checkpoint, len(self.fleet.delivered)))
        set_position(self.fleet.store, shard, target, free=free)

    def may_be_missing(self, shard: str, position: ExtendedSequenceNumber) -> bool:
        """Return whether a skip went over a record."""
        return any(
            not change.is_rewind and change.before < position <= change.target
            for change in self.changes
            if change.shard == shard
        )

    def missing(self) -> list[str]:
        """Return what is still to be delivered."""
        result = []
        seen = set(self.fleet.data())
        for shard, records in self.stored.items():
            result += [
                f"{shard} {position} never"
                for position, data in records
                if data not in seen and not self.may_be_missing(shard, position)
            ]
        for number, change in enumerate(self.changes):
            if not change.is_rewind:
                continue
            again = {entry[2] for entry in self.fleet.delivered[change.index :]}
            later = [other for other in self.changes[number + 1 :] if other.shard == change.shard]
            # A later change of the same row may come before the rewind has been read.
            end = min((other.target for other in later if other.target < change.target), default=None)
            skipped = max((other.target for other in later if other.target > change.target), default=None)
            result += [
                f"{change.shard} {position} after the rewind to {change.target}"
                for position, data in self.stored.get(change.shard, ())
                if position > change.target
                and end is None
                and (skipped is None or position > skipped)
                and data not in again
            ]
        return result

    def check_windows(self) -> None:
        """Check that nothing up to a target comes again: only a checkpoint below it could ask for it."""
        lowest: dict[str, list[Change]] = {}
        for change in self.changes:
            lowest.setdefault(change.shard, []).append(change)
        for shard, changes in lowest.items():
            if not changes[0].is_rewind or changes[0].target.is_sentinel:
                continue
            floor = min(change.target for change in changes)
            if floor < changes[0].target:
                continue
            again = [
                ExtendedSequenceNumber(number, sub)
                for _, of, _, number, sub in self.fleet.delivered[changes[0].index :]
                if of == shard
            ]
            assert all(position > floor for position in again), f"{shard}: before the target {floor}"


def play(seed: int, actions: list[str], *, checkpoint: bool) -> Fleet:
    """Play a schedule and check the books."""
    rng = Random(seed)
    fleet = Fleet(shards=rng.randint(1, 4), seed=seed, config=HORIZON)
    books = Books(fleet)
    number = 0

    def add() -> None:
        nonlocal number
        number += 1
        name = f"w{number}"
        fleet.add(name, fleet.recorder(name) if checkpoint else None)

    def steer(action: str) -> None:
        rows = [row for row in fleet.store.list() if not row.in_handoff]
        names = [f"w{n + 1}" for n in range(number)]
        if action == "undrain":
            name = rng.choice(names)
            for row in fleet.store.list():
                fleet.store.set_drain(row.lease_key, name, False)
        if not rows:
            return
        row = rng.choice(rows)
        records = books.stored.get(row.lease_key, [])
        if action in ("restart", "free"):
            below = [position for position, _ in records if position <= row.checkpoint]
            targets = [ExtendedSequenceNumber(TRIM_HORIZON)]
            targets += [rng.choice(below)] if below else []
            targets += [ExtendedSequenceNumber(rng.choice(below).sequence_number, -1)] if below else []
            target = rng.choice(targets)
            if target < row.checkpoint:
                books.change(row.lease_key, target, free=action == "free")
        elif action == "skip":
            above = [position for position, _ in records if position > row.checkpoint]
            if above and not row.is_finished:
                books.change(row.lease_key, rng.choice(above), free=rng.random() < 0.5)
        elif action == "drain":
            fleet.store.set_drain(row.lease_key, rng.choice(names), True)
        elif action == "pin":
            fleet.store.set_pin(row.lease_key, rng.choice([*names, "nobody"]))
        elif action == "unpin":
            fleet.store.set_pin(row.lease_key, None)

    def nothing_undelivered_below(before: Any, lease: Any) -> None:
        """At each write: a record of the shard up to the checkpoint was delivered, or a skip went over it."""
        if lease.checkpoint.is_sentinel:
            return
        seen = {entry[2] for entry in fleet.delivered if entry[1] == lease.lease_key}
        for position, data in books.stored.get(lease.lease_key, ()):
            if position <= lease.checkpoint:
                assert data in seen or books.may_be_missing(lease.lease_key, position)

    fleet.store.on_write.append(nothing_undelivered_below)
    counters: Counter[str] = Counter()

    def counters_only_rise() -> None:
        for row in fleet.store.list():
            assert row.counter >= counters[row.lease_key]
            counters[row.lease_key] = row.counter

    add()
    for action in actions:
        if action == "put":
            fleet.put(rng.randint(1, 60))
        elif action == "run":
            fleet.run(rng.choice([0.3, 2.0, 12.0, 30.0]))
        elif action == "split" and len(fleet.open_shards()) < 8:
            fleet.split(rng.randrange(len(fleet.open_shards())))
        elif action == "merge" and len(fleet.open_shards()) > 1:
            fleet.merge(rng.randrange(len(fleet.open_shards()) - 1))
        elif action == "crash" and fleet.engines:
            fleet.crash(rng.choice(sorted(fleet.engines)))
        elif action == "stop" and fleet.engines:
            fleet.stop(rng.choice(sorted(fleet.engines)))
        elif action == "add" and len(fleet.engines) < 4:
            add()
        elif action == "pause" and fleet.engines:
            fleet.freeze(rng.choice(sorted(fleet.engines)), rng.choice([4.0, 15.0, 40.0]))
        else:
            steer(action)
        fleet.run(rng.random())
        counters_only_rise()
    add()  # not drained
    fleet.run(200, lambda: not books.missing())
    assert books.missing() == []
    fleet.run(60)
    counters_only_rise()
    fleet.check_order()
    books.check_windows()
    check_end(fleet)
    return fleet


def check_end(fleet: Fleet) -> None:
    """Check that each shard has exactly one consumer, none of them drained, and that pins are honoured."""
    rows = {row.lease_key: row for row in fleet.store.list() if not row.is_finished}
    drained = {worker for row in fleet.store.list() for worker in row.draining}
    owners = fleet.owners()
    takers = {*fleet.engines} - drained
    assert {shard["ShardId"] for shard in fleet.open_shards()} <= owners.keys()
    assert {*owners.values()} <= takers
    for name, engine in fleet.engines.items():
        assert engine.coordinator.is_draining is (name in drained)
    for key, row in rows.items():
        assert row.pinned_to not in takers or owners[key] == row.pinned_to
    now = fleet.clock.monotonic()
    believers = [
        held.key for engine in fleet.engines.values() for held in engine.coordinator.held if held.is_held(now)
    ]
    assert sorted(believers) == sorted(owners)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=6, fuzz=500), suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([*ACTIONS, *CHANGES]), min_size=5, max_size=25),
    st.booleans(),
)
def test_random_runs_with_operators_keep_the_books(seed, actions, checkpoint):
    play(seed, actions, checkpoint=checkpoint)
