"""The two stores do the same: any sequence of operations, with rows as fresh or stale as may be."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import Conflict, InMemoryLeaseStore, Lease
from tests.consumer.test_lost_answers import on_the_fake

WORKERS = ("a", "b", "c")
KEYS = ("s0",)


def operation(rng, seen, step):
    """A name, and a call of it on a store."""
    key = rng.choice(KEYS)
    row = rng.choice(seen[key][-2:] if rng.random() < 0.8 else seen[key])
    owner = rng.choice(WORKERS)
    position = ExtendedSequenceNumber(rng.choice(["5", "6", SHARD_END, TRIM_HORIZON]))
    if not position.is_sentinel:
        position = ExtendedSequenceNumber(position.sequence_number, rng.randrange(3))
    measured = replace(row, throughput_kbps=rng.choice([None, 0.5, 0.000001]))
    wrong = replace(row, owner=owner, checkpoint_owner=rng.choice(WORKERS))
    marked = row if row.owner and row.in_handoff else wrong
    owned = replace(row, owner=row.owner or owner)
    state = rng.choice([None, b"x"])
    moment = rng.randrange(3)
    return rng.choice(
        [
            ("create", lambda store: store.create_if_absent(replace(seen[key][0], counter=0))),
            ("take", lambda store: store.take(row, owner)),
            ("renew", lambda store: store.renew(measured)),
            ("checkpoint", lambda store: store.checkpoint(measured, position)),
            ("prepare", lambda store: store.prepare(row, position, state)),
            ("pin", lambda store: store.pin(row, moment)),
            ("release", lambda store: store.release(row)),
            ("ask", lambda store: store.request_handoff(owned, rng_owner(owner))),
            ("ask", lambda store: store.request_handoff(owned, rng_owner(owner))),
            ("complete", lambda store: store.complete_handoff(marked)),
            ("complete wrongly", lambda store: store.complete_handoff(wrong)),
            ("children", lambda store: store.set_child_shard_ids(key, ["y", "x"])),
            ("range", lambda store: store.set_hash_key_range(key, HashKeyRange(1, 2))),
            ("stand by", lambda store: store.put_standby_heartbeat(key, owner, moment or None)),
            ("delete", lambda store: moment == 0 and step % 5 == 0 and store.delete(key)),
            ("delete as seen", lambda store: moment == 0 and store.delete(key, unowned=row)),
            ("get", lambda store: store.get(key)),
        ]
    )


def rng_owner(owner):
    return WORKERS[(WORKERS.index(owner) + 1) % 3]


def plain(outcome):
    """Without what others may write beside the counter, or before it: DynamoDB is not always asked for the new row."""
    if isinstance(outcome, Conflict):
        return Conflict(plain(outcome.current))
    if isinstance(outcome, Lease):
        return replace(
            outcome, child_shard_ids=(), hash_key_range=None, throughput_kbps=None, standby_heartbeats={}
        )
    return outcome


def test_any_sequence_of_operations_has_the_same_outcomes():
    kinds: dict[str, set[str]] = {}
    for seed in range(40):
        rng = Random(seed)
        memory, table = InMemoryLeaseStore(), on_the_fake()
        seen = {key: [Lease(lease_key=key, checkpoint=ExtendedSequenceNumber(TRIM_HORIZON))] for key in KEYS}
        for step in range(40):
            name, call = operation(rng, seen, step)
            ours, theirs = call(memory), call(table)
            assert plain(ours) == plain(theirs), f"seed {seed}, step {step}: {name}"
            kinds.setdefault(name, set()).add(type(ours).__name__)
            for outcome in (ours, ours.current if isinstance(ours, Conflict) else None):
                if isinstance(outcome, Lease):
                    seen[outcome.lease_key] = [*seen[outcome.lease_key][-3:], outcome]
        assert sorted(memory.list(), key=str) == sorted(table.list(), key=str), f"seed {seed}"
    for name in ("take", "renew", "checkpoint", "prepare", "pin", "release", "ask", "complete"):
        assert kinds[name] == {"Lease", "Conflict"}, name
