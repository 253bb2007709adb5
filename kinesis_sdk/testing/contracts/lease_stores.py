"""The contract of `LeaseStore` as checks for any store.

Use them from pytest (this module itself needs only the standard library):

```python
import pytest
from kinesis_sdk.testing.contracts.lease_stores import LEASE_STORE_CHECKS

@pytest.mark.parametrize("check", LEASE_STORE_CHECKS, ids=lambda check: check.__name__)
def test_lease_store_contract(check):
    store = MyLeaseStore(empty_database())
    store.ensure_ready()
    check(store)
```

Every check needs a fresh, empty store that is ready. It raises an `AssertionError` that names the rule and shows what the
store returned. In two checks, threads compete with each other. A broken store may pass these by luck, so run them repeatedly
against a new store. The errors that a store raises when its database fails are not checked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from kinesis_sdk.consumer import Conflict, InMemoryLeaseStore, Lease, LeaseStore
from kinesis_sdk.consumer.leases import HandlerRequest, HandlerVerb, ProcessedUntil, Progress

__all__ = ["LEASE_STORE_CHECKS", "Check"]

Check = Callable[[LeaseStore], None]
"""A rule of the contract: raises `AssertionError` if the store breaks it."""

KEY = "shard-0"
RACE_ROUNDS, RACERS = 5, 12
_DEADLINE = 60.0
"""Maximum seconds to wait for all competing threads."""


def _equal(actual: object, expected: object, rule: str) -> None:
    if actual != expected:
        raise AssertionError(f"{rule}\n  expected: {expected!r}\n  actual:   {actual!r}")


def _true(actual: object, rule: str) -> None:
    if not actual:
        raise AssertionError(f"{rule}\n  actual: {actual!r}")


def _row(outcome: Lease | Conflict | None, rule: str = "the write succeeds") -> Lease:
    if not isinstance(outcome, Lease):
        raise AssertionError(f"{rule}\n  actual: {outcome!r}")  # noqa: TRY004 - a check has failed
    return outcome


def _conflict(outcome: object, rule: str) -> None:
    if not isinstance(outcome, Conflict):
        raise AssertionError(f"{rule}\n  expected a Conflict\n  actual: {outcome!r}")  # noqa: TRY004 - a check has failed


def _position(text: str, sub: int = 0) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(text, sub)


def new_lease(key: str = KEY, **attributes: Any) -> Lease:
    """Return a lease without an owner at TRIM_HORIZON.

    Args:
        key: Lease key.
        attributes: Values of other attributes of `Lease`.
    """
    lease = Lease(
        lease_key=key,
        checkpoint=_position(TRIM_HORIZON),
        hash_key_range=HashKeyRange(0, 5),
        parent_shard_ids=("p",),
    )
    return replace(lease, **attributes)


def _taken(store: LeaseStore, owner: str = "a", **attributes: Any) -> Lease:
    """Create a lease and take it."""
    _true(store.create_if_absent(new_lease(**attributes)), "a lease is created in an empty table")
    return _row(store.take(_row(store.get(KEY)), owner))


def _in_handoff(store: LeaseStore) -> tuple[Lease, Lease]:
    """Return a row that worker a holds, and the same row after worker b requested it."""
    mine = _taken(store)
    return mine, _row(store.request_handoff(mine, "b"))


# Reading and creating


def create_is_conditional(store: LeaseStore) -> None:
    """A lease is created once; a second create changes nothing."""
    _equal(store.get(KEY), None, "an empty table has no lease")
    _equal(store.create_if_absent(new_lease()), True, "create_if_absent returns True for a new key")
    _equal(
        store.create_if_absent(new_lease(counter=9)),
        False,
        "create_if_absent returns False for a key that exists",
    )
    _equal(store.get(KEY), new_lease(), "a second create changes nothing")
    _equal(store.scan().leases, [new_lease()], "a scan returns the lease")
    _equal(store.get("other"), None, "get returns None for a key that does not exist")


def every_attribute_is_stored(store: LeaseStore) -> None:
    """Every attribute of a lease is read with the value that was written."""
    full = Lease(
        lease_key="123456789012:orders:1700000000:shardId-000000000001",
        counter=2**40,
        owner="a|host:1",
        owner_switches=3,
        checkpoint=_position("49590338271490256608559692538361571095921575989136588898", 7),
        pending_checkpoint=_position("49590338271490256608559692538361571095921575989136588899", 1),
        pending_checkpoint_state=b"\x00\xffstate",
        parent_shard_ids=("shardId-000000000000", "shardId-000000000002"),
        child_shard_ids=("shardId-000000000003", "shardId-000000000004"),
        hash_key_range=HashKeyRange(0, 2**128 - 1),
        throughput_kbps=0.000886,
        checkpoint_owner="b|host:2",
        stream_name="123456789012:orders:1700000000",
        shard_id="shardId-000000000001",
        initial_timestamp_millis=1_700_000_000_123,
        handoff_owner="a|host:1",
        processed_until=ProcessedUntil(
            1_700_000_000_456, _position("49590338271490256608559692538361571", 7)
        ),
        standby_heartbeats={"c|host:3": 5},
        progress=Progress(1_500, None, 12, "b|host:2"),
        handler_request=HandlerRequest(HandlerVerb.LEAVE_OUT, "a-1", _position("9", 2)),
        pinned_to="d|host:4",
        draining=("e|host:5", "f|host:6"),
        extra={"fromTheFuture": {"L": [{"S": "x"}]}},
    )
    bare = Lease(lease_key="bare", checkpoint=_position(LATEST))
    for lease in (full, bare):
        _true(store.create_if_absent(lease), "a lease is created")
        _equal(store.get(lease.lease_key), lease, "get returns every attribute as it was written")
    rows = {row.lease_key: row for row in store.scan(consistent=True).leases}
    _equal(
        rows, {full.lease_key: full, bare.lease_key: bare}, "a scan returns every attribute as it was written"
    )


def sentinels_are_stored(store: LeaseStore) -> None:
    """Every named position is read with the value that was written."""
    for name in (TRIM_HORIZON, LATEST, AT_TIMESTAMP, SHARD_END):
        lease = Lease(lease_key=name, checkpoint=_position(name))
        store.create_if_absent(lease)
        _equal(store.get(name), lease, f"the position {name} is stored")


def inclusive_starts_are_stored(store: LeaseStore) -> None:
    """A position before a record is read with the value that was written. Operators write it with a negative sub-sequence number."""
    lease = new_lease(checkpoint=_position("7", -1))
    store.create_if_absent(lease)
    _equal(store.get(KEY), lease, "a negative sub-sequence number is stored")
    _row(store.checkpoint(_row(store.take(lease, "a")), _position("7", 0)))
    _equal(_row(store.get(KEY)).checkpoint, _position("7", 0), "a checkpoint replaces it")


# Taking, renewing, releasing


def take_counts_switches(store: LeaseStore) -> None:
    """A take raises the counter. The count of switches grows only if another worker held the lease."""
    store.create_if_absent(new_lease())
    first = _row(store.take(new_lease(), "a"))
    _equal((first.owner, first.counter, first.owner_switches), ("a", 1, 0), "a first take counts no switch")
    again = _row(store.take(first, "a"))
    _equal((again.counter, again.owner_switches), (2, 0), "a take by the owner counts no switch")
    stolen = _row(store.take(again, "b"))
    _equal(
        (stolen.owner, stolen.counter, stolen.owner_switches),
        ("b", 3, 1),
        "a take by another worker counts one",
    )
    _equal(store.get(KEY), stolen, "take stores the row that it returns")


def old_counter_loses(store: LeaseStore) -> None:
    """A write with an old counter changes nothing and shows the current row."""
    mine = _taken(store)
    theirs = _row(store.take(mine, "b"))
    for name, outcome in (
        ("renew", store.renew(mine)),
        ("checkpoint", store.checkpoint(mine, _position("7"))),
        ("prepare", store.prepare(mine, _position("7"), b"x")),
        ("pin", store.pin(mine, 5)),
        ("mark_processed", store.mark_processed(mine, 5)),
        ("release", store.release(mine)),
        ("take", store.take(mine, "c")),
    ):
        _equal(
            outcome, Conflict(theirs), f"{name} with an old counter returns a Conflict with the current row"
        )
    _equal(store.get(KEY), theirs, "a write with an old counter changes nothing")


def pin_renew_release(store: LeaseStore) -> None:
    """Pin, renew and release each add one to the counter."""
    row = _row(store.pin(_taken(store), 1_700_000_000_000))
    row = _row(store.renew(row))
    row = _row(store.release(row))
    _equal(
        (row.owner, row.counter, row.initial_timestamp_millis),
        (None, 4, 1_700_000_000_000),
        "pin, renew and release add one each, and release removes the owner",
    )
    _equal(store.get(KEY), row, "release stores the row that it returns")
    _equal(_row(store.take(row, "b")).owner_switches, 0, "taking a released lease counts no switch")


def processed_mark_names_the_checkpoint(store: LeaseStore) -> None:
    """A mark is stored with the checkpoint in the same write, and later writes keep it."""
    row = _row(store.checkpoint(_taken(store), _position("12", 3)))
    row = _row(store.mark_processed(row, 1_700_000_000_000))
    mark = ProcessedUntil(1_700_000_000_000, _position("12", 3))
    _equal((row.processed_until, row.counter), (mark, 3), "mark_processed adds one to the counter")
    _equal(store.get(KEY), row, "mark_processed stores the row that it returns")
    row = _row(store.checkpoint(_row(store.renew(row)), _position("13")))
    _equal(row.processed_until, mark, "renewals and checkpoints keep the mark as it was written")
    _true(row.was_processed_until(1_700_000_000_000), "a mark holds for later positions")


def throughput_is_stored_with_renewals(store: LeaseStore) -> None:
    """Renewals and checkpoints store the throughput if the passed row has one."""
    row = _row(store.renew(replace(_taken(store), throughput_kbps=1.5)))
    _equal(_row(store.get(KEY)).throughput_kbps, 1.5, "renew stores the throughput")
    store.renew(replace(row, throughput_kbps=None))
    _equal(_row(store.get(KEY)).throughput_kbps, 1.5, "a renewal without a throughput keeps the stored one")
    row = _row(store.get(KEY))
    store.checkpoint(replace(row, throughput_kbps=0.000001), _position("5"))
    _equal(_row(store.get(KEY)).throughput_kbps, 0.000001, "checkpoint stores the throughput")


def progress_is_stored_with_renewals(store: LeaseStore) -> None:
    """Renewals and checkpoints store the progress if the passed row has one; a take removes it."""
    first, second = Progress(None, None, None, "a"), Progress(0, 1_700_000_000_000, 250, "a")
    row = _row(store.renew(replace(_taken(store), progress=first)))
    _equal(_row(store.get(KEY)).progress, first, "renew stores the progress")
    row = _row(store.checkpoint(replace(row, progress=second), _position("5")))
    _equal(_row(store.get(KEY)).progress, second, "checkpoint stores the progress")
    _row(store.renew(replace(row, progress=None)))
    row = _row(store.get(KEY))
    _equal(row.progress, second, "a renewal without progress keeps the stored one")
    _row(store.take(row, "b"))
    _equal(_row(store.get(KEY)).progress, None, "take removes the progress of the former owner")


# Checkpoints


def checkpoint_clears_what_is_over(store: LeaseStore) -> None:
    """A checkpoint stores both parts of the position and removes the pending position, the pin and the switches."""
    mine = _taken(
        store,
        pending_checkpoint=_position("5", 1),
        pending_checkpoint_state=b"x",
        initial_timestamp_millis=5,
        owner_switches=4,
    )
    done = store.checkpoint(mine, _position("12", 3))
    row = _row(store.get(KEY))
    _equal(row, done, "checkpoint stores the row that it returns")
    _equal(row.checkpoint, _position("12", 3), "sequence and sub-sequence number are stored together")
    _equal(
        (
            row.owner_switches,
            row.pending_checkpoint,
            row.pending_checkpoint_state,
            row.initial_timestamp_millis,
        ),
        (0, None, None, None),
        "a checkpoint clears switches, pending position, state and pinned instant",
    )
    _equal(row.counter, 2, "a checkpoint adds one to the counter")


def prepared_checkpoint(store: LeaseStore) -> None:
    """Prepare stores a pending position and state next to the checkpoint, which it does not change."""
    mine = _taken(store, owner_switches=3)
    position = _position("7", 2)
    row = _row(store.prepare(mine, position, b"state"))
    _equal(
        (row.pending_checkpoint, row.pending_checkpoint_state), (position, b"state"), "prepare stores both"
    )
    _equal(
        (row.counter, row.owner_switches), (2, 0), "prepare adds one to the counter and clears the switches"
    )
    _equal(row.checkpoint, mine.checkpoint, "prepare leaves the checkpoint")
    _equal(store.get(KEY), row, "prepare stores the row that it returns")
    _equal(
        store.prepare(mine, position, b"state"), row, "a repeated prepare whose response was lost succeeds"
    )
    _conflict(store.prepare(mine, position, b"other"), "a prepare with another state is another write")
    row = _row(store.prepare(row, _position("8")))
    _equal(
        _row(store.get(KEY)).pending_checkpoint_state, None, "prepare without a state removes the former one"
    )
    store.checkpoint(row, _position("5"))
    _equal(_row(store.get(KEY)).pending_checkpoint, None, "any checkpoint clears the pending one")


def checkpoint_with_state(store: LeaseStore) -> None:
    """A checkpoint with a state stores position, state, and itself as the pending position in one write; the next one removes the state."""
    mine = _taken(store, initial_timestamp_millis=5)
    position = _position("7", 2)
    row = _row(store.checkpoint(mine, position, b"state"))
    _equal(
        (row.checkpoint, row.pending_checkpoint, row.pending_checkpoint_state, row.initial_timestamp_millis),
        (position, position, b"state", None),
        "a checkpoint with a state stores both",
    )
    _equal(store.get(KEY), row, "a checkpoint with a state stores the row that it returns")
    _equal(row.counter, 2, "a checkpoint with a state adds one to the counter")
    _equal(store.checkpoint(mine, position, b"state"), row, "a repeated one whose response was lost succeeds")
    _conflict(store.checkpoint(mine, position, b"other"), "one with another state is another write")
    later = _row(store.checkpoint(row, _position("8")))
    _equal(
        (later.pending_checkpoint, later.pending_checkpoint_state),
        (None, None),
        "the next checkpoint removes the state",
    )


def lost_response_counts_as_success(store: LeaseStore) -> None:
    """Repeating a write that took effect succeeds; a different write from the same row does not."""
    store.create_if_absent(new_lease())
    taken = _row(store.take(new_lease(), "a"))
    _equal(store.take(new_lease(), "a"), taken, "a repeated take whose response was lost succeeds")
    _equal(store.take(new_lease(), "b"), Conflict(taken), "another worker's take from the same row does not")
    renewed = _row(store.renew(taken))
    _equal(store.renew(taken), renewed, "a repeated renewal whose response was lost succeeds")
    position = _position("9")
    stored = _row(store.checkpoint(renewed, position))
    _equal(
        store.checkpoint(renewed, position), stored, "a repeated checkpoint whose response was lost succeeds"
    )
    _conflict(
        store.checkpoint(renewed, _position("8")),
        "a checkpoint at another position from the same row does not",
    )
    released = _row(store.release(stored))
    _equal(store.release(stored), released, "a repeated release whose response was lost succeeds")
    _equal(store.get(KEY), released, "a repeated write is not applied twice")


# Handoff


def handoff_request_leaves_the_counter(store: LeaseStore) -> None:
    """A handoff request names both workers and does not disturb the owner."""
    mine, requested = _in_handoff(store)
    _equal(
        (requested.owner, requested.checkpoint_owner, requested.counter),
        ("b", "a", mine.counter),
        "the requester becomes the owner, the old owner the marker, and the counter stays",
    )
    _equal(
        (requested.owner_switches, requested.holder, requested.in_handoff, requested.handoff_owner),
        (0, "a", True, "b"),
        "a request counts no switch, and names the requester as one that will take the lease",
    )
    _equal(store.get(KEY), requested, "request_handoff stores the row that it returns")
    _equal(store.request_handoff(mine, "b"), requested, "a repeated request whose response was lost succeeds")
    _equal(store.request_handoff(mine, "c"), Conflict(requested), "a second requester gets a Conflict")
    _equal(store.request_handoff(requested, "c"), Conflict(requested), "there is one request at a time")
    _equal(
        store.request_handoff(replace(mine, lease_key="other"), "b"), Conflict(None), "there is no such row"
    )


def handoff_request_depends_on_the_owner(store: LeaseStore) -> None:
    """A handoff request depends on the owner, not on the counter."""
    seen = _taken(store)
    store.renew(_row(store.renew(seen)))
    requested = _row(
        store.request_handoff(seen, "b"), "a request succeeds although the owner has renewed meanwhile"
    )
    _equal(requested.counter, 3, "a request leaves the counter")
    other = _row(store.take(requested, "c"))
    _equal(store.request_handoff(seen, "d"), Conflict(other), "a request to a former owner gets a Conflict")


def renewal_fails_once_after_a_request(store: LeaseStore) -> None:
    """After a handoff request, the owner's first renewal or release fails and shows the request; the next one succeeds."""
    mine, requested = _in_handoff(store)
    _equal(
        store.renew(mine), Conflict(requested), "a renewal that does not know of the request gets a Conflict"
    )
    _equal(
        store.release(mine),
        Conflict(requested),
        "a release that does not know of the request gets a Conflict",
    )
    renewed = _row(store.renew(requested))
    _equal(
        (renewed.counter, renewed.owner, renewed.checkpoint_owner),
        (2, "b", "a"),
        "the old owner renews the row with the marker",
    )
    _equal(store.renew(requested), renewed, "a repeated renewal whose response was lost succeeds")


def checkpoints_continue_during_a_handoff(store: LeaseStore) -> None:
    """A checkpoint by an owner that has not seen the request succeeds and shows the request."""
    mine, _ = _in_handoff(store)
    stored = _row(store.checkpoint(mine, _position("5")))
    _equal(
        (stored.counter, stored.owner, stored.checkpoint_owner),
        (2, "b", "a"),
        "checkpoint returns the row as stored, with the request",
    )
    _equal(store.get(KEY), stored, "checkpoint stores the row that it returns")
    _true(_row(store.prepare(stored, _position("6"))).in_handoff, "prepare returns the row with the request")
    _true(_row(store.pin(_row(store.get(KEY)), 5)).in_handoff, "pin returns the row with the request")


def completed_handoff(store: LeaseStore) -> None:
    """The old owner hands the lease off; the next owner takes it, which does not count as a switch."""
    _, requested = _in_handoff(store)
    done = _row(store.complete_handoff(requested))
    _equal(
        (done.owner, done.checkpoint_owner, done.counter),
        ("b", None, 2),
        "complete_handoff removes the marker",
    )
    _equal((done.owner_switches, done.handoff_owner), (0, None), "complete_handoff counts no switch")
    _equal(store.get(KEY), done, "complete_handoff stores the row that it returns")
    _equal(store.complete_handoff(requested), done, "a repeated one whose response was lost succeeds")
    taken = _row(store.take(done, "b"))
    _equal((taken.counter, taken.owner_switches), (3, 0), "the next owner takes the lease")
    _equal(store.complete_handoff(requested), Conflict(taken), "the old owner cannot write any longer")


def forced_take_fences_the_old_owner(store: LeaseStore) -> None:
    """The requester can take the lease in the middle of a handoff. The old owner cannot write it afterwards."""
    _, requested = _in_handoff(store)
    forced = _row(store.take(requested, "b"))
    _equal(
        (forced.owner, forced.checkpoint_owner, forced.owner_switches),
        ("b", None, 1),
        "a forced take removes the marker and counts a switch",
    )
    _equal(store.renew(requested), Conflict(forced), "the old owner cannot renew")
    _equal(store.release(requested), Conflict(forced), "the old owner cannot release")
    _equal(
        _row(store.complete_handoff(requested)).owner,
        "b",
        "a handoff that is complete already counts as completed",
    )
    _equal(store.get(KEY), forced, "the old owner changed nothing")


def handoff_between_others_is_not_completed(store: LeaseStore) -> None:
    """complete_handoff succeeds only if both owners are still the owners that were seen."""
    _, requested = _in_handoff(store)
    for wrong in (replace(requested, owner="c"), replace(requested, checkpoint_owner="x")):
        _equal(store.complete_handoff(wrong), Conflict(requested), "both owners must be as passed")
    _equal(store.get(KEY), requested, "nothing is changed")


def take_ends_a_handoff(store: LeaseStore) -> None:
    """A take by a third worker removes the handoff marker."""
    store.create_if_absent(new_lease(owner="b", checkpoint_owner="a", counter=4))
    _equal(_row(store.take(_row(store.get(KEY)), "c")).checkpoint_owner, None, "a take removes the marker")
    _equal(_row(store.get(KEY)).checkpoint_owner, None, "and stores the row so")


# Metadata and deletion


def children_leave_the_counter(store: LeaseStore) -> None:
    """The children of a shard are stored sorted, without disturbing the owner."""
    mine = _taken(store)
    _equal(store.set_child_shard_ids(KEY, ["c2", "c1"]), True, "children are stored")
    _equal(
        store.get(KEY),
        replace(mine, child_shard_ids=("c1", "c2")),
        "children are sorted, nothing else changes",
    )
    _row(store.checkpoint(mine, _position(SHARD_END)), "the owner is not disturbed")
    _equal(_row(store.get(KEY)).child_shard_ids, ("c1", "c2"), "a checkpoint keeps the children")
    _equal(store.set_child_shard_ids("other", ["c"]), False, "there is no such row")
    _equal(store.get("other"), None, "metadata creates no row")


def ranges_leave_the_counter(store: LeaseStore) -> None:
    """A hash key range is stored without disturbing the owner."""
    mine = _taken(store, hash_key_range=None, parent_shard_ids=())
    _equal(store.set_hash_key_range(KEY, HashKeyRange(3, 9)), True, "a range is stored")
    _equal(store.get(KEY), replace(mine, hash_key_range=HashKeyRange(3, 9)), "nothing else changes")
    _row(store.renew(mine), "the owner is not disturbed")
    _equal(store.set_hash_key_range("other", HashKeyRange(3, 9)), False, "there is no such row")
    _equal(store.get("other"), None, "metadata creates no row")


def standby_heartbeats_leave_the_counter(store: LeaseStore) -> None:
    """Standby heartbeats are stored by worker, without disturbing the owner or each other."""
    mine = _taken(store)
    _equal(store.put_standby_heartbeat(KEY, "b|1", 1), True, "a heartbeat is stored")
    _equal(store.put_standby_heartbeat(KEY, "c:2", 5), True, "and another worker's")
    _equal(store.get(KEY), replace(mine, standby_heartbeats={"b|1": 1, "c:2": 5}), "nothing else changes")
    store.put_standby_heartbeat(KEY, "b|1", 2)
    mine = _row(store.renew(mine), "the owner need not know of heartbeats")
    _row(store.checkpoint(mine, _position("5")), "the owner need not know of heartbeats")
    _equal(_row(store.get(KEY)).standby_heartbeats, {"b|1": 2, "c:2": 5}, "writes of the owner keep them")
    scanned = {row.lease_key: dict(row.standby_heartbeats) for row in store.scan().leases}
    _equal(scanned, {KEY: {"b|1": 2, "c:2": 5}}, "a scan returns them")
    _equal(store.put_standby_heartbeat(KEY, "b|1", None), True, "a heartbeat is removed")
    _equal(
        store.put_standby_heartbeat(KEY, "unknown", None), True, "removing one that does not exist succeeds"
    )
    _equal(_row(store.get(KEY)).standby_heartbeats, {"c:2": 5}, "the other worker's stays")
    for heartbeat in (1, None):
        _equal(store.put_standby_heartbeat("other", "b|1", heartbeat), False, "there is no such row")
    _equal(store.get("other"), None, "heartbeats create no row")


def drain_marks_leave_the_counter(store: LeaseStore) -> None:
    """Drain marks are stored by worker, without disturbing the owner or each other."""
    mine = _taken(store)
    _equal(store.set_drain(KEY, "c:2", True), True, "a mark is stored")
    _equal(store.set_drain(KEY, "b|1", True), True, "and another worker's")
    _equal(store.set_drain(KEY, "b|1", True), True, "storing it again succeeds")
    _equal(store.get(KEY), replace(mine, draining=("b|1", "c:2")), "marks are sorted, nothing else changes")
    mine = _row(store.renew(mine), "the owner need not know of marks")
    _row(store.checkpoint(mine, _position("5")), "the owner need not know of marks")
    _equal(_row(store.get(KEY)).draining, ("b|1", "c:2"), "writes of the owner keep them")
    _equal({row.draining for row in store.scan().leases}, {("b|1", "c:2")}, "a scan returns them")
    _equal(store.set_drain(KEY, "b|1", False), True, "a mark is removed")
    _equal(store.set_drain(KEY, "unknown", False), True, "removing one that does not exist succeeds")
    _equal(_row(store.get(KEY)).draining, ("c:2",), "the other worker's stays")
    for on in (True, False):
        _equal(store.set_drain("other", "b|1", on), False, "there is no such row")
    _equal(store.get("other"), None, "marks create no row")


def pins_leave_the_counter(store: LeaseStore) -> None:
    """A pin is stored, replaced and removed without disturbing the owner."""
    mine = _taken(store)
    _equal(store.set_pin(KEY, "b|1"), True, "a pin is stored")
    _equal(store.get(KEY), replace(mine, pinned_to="b|1"), "nothing else changes")
    _equal(store.set_pin(KEY, "c:2"), True, "a pin is replaced")
    mine = _row(store.renew(mine), "the owner need not know of the pin")
    _row(store.checkpoint(mine, _position("5")), "the owner need not know of the pin")
    _equal(_row(store.get(KEY)).pinned_to, "c:2", "writes of the owner keep it")
    _equal(store.set_pin(KEY, None), True, "a pin is removed")
    _equal(store.set_pin(KEY, None), True, "removing one that does not exist succeeds")
    _equal(_row(store.get(KEY)).pinned_to, None, "it is gone")
    for worker in ("b|1", None):
        _equal(store.set_pin("other", worker), False, "there is no such row")
    _equal(store.get("other"), None, "pins create no row")


def requests_leave_the_counter(store: LeaseStore) -> None:
    """A handler request is stored, replaced, and removed by a caller that names it, without disturbing the owner."""
    mine = _taken(store)
    one = HandlerRequest(HandlerVerb.RETRY, "a1")
    two = HandlerRequest(HandlerVerb.LEAVE_OUT, "b2", _position("7", 3))
    _equal(store.set_handler_request(KEY, one), True, "a request is stored")
    _equal(store.get(KEY), replace(mine, handler_request=one), "nothing else changes")
    _equal(store.set_handler_request(KEY, two), True, "a request is replaced")
    mine = _row(store.renew(mine), "the owner need not know of the request")
    _row(store.checkpoint(mine, _position("5")), "the owner need not know of the request")
    _equal(_row(store.get(KEY)).handler_request, two, "writes of the owner keep it")
    _equal(store.set_handler_request(KEY, None, instead_of=one), False, "it is not the one that is to go")
    _equal(_row(store.get(KEY)).handler_request, two, "another request stays")
    _equal(store.set_handler_request(KEY, None, instead_of=two), True, "a request is removed")
    _equal(store.set_handler_request(KEY, None, instead_of=two), False, "it is gone already")
    _equal(store.set_handler_request(KEY, None), True, "removing any request succeeds without one")
    _equal(_row(store.get(KEY)).handler_request, None, "it is gone")
    for request in (one, None):
        _equal(store.set_handler_request("other", request), False, "there is no such row")
    _equal(store.get("other"), None, "requests create no row")


def delete_is_final(store: LeaseStore) -> None:
    """No write brings a deleted row back."""
    mine = _taken(store)
    _equal(store.delete(KEY), True, "a row is deleted")
    _equal(store.delete(KEY), True, "deleting a row that does not exist succeeds")
    _equal(store.scan().leases, [], "the table is empty")
    for name, outcome in (
        ("take", store.take(mine, "b")),
        ("renew", store.renew(mine)),
        ("checkpoint", store.checkpoint(mine, _position("5"))),
        ("release", store.release(mine)),
    ):
        _equal(outcome, Conflict(None), f"{name} of a deleted row returns a Conflict without a row")
    _equal(store.get(KEY), None, "an update must not bring a row back")


def unowned_lease_is_deleted_as_seen(store: LeaseStore) -> None:
    """A conditional delete keeps a row that has changed since it was seen."""
    store.create_if_absent(new_lease())
    seen = _row(store.get(KEY))
    mine = _row(store.take(seen, "a"))
    _equal(store.delete(KEY, unowned=seen), False, "a lease that was taken meanwhile is not deleted")
    _equal(store.get(KEY), mine, "it is unchanged")
    released = _row(store.release(mine))
    _equal(store.delete(KEY, unowned=seen), False, "a lease that was used meanwhile is not deleted")
    _equal(store.delete(KEY, unowned=released), True, "a lease that is as seen is deleted")
    _equal(store.get(KEY), None, "it is gone")
    _equal(store.delete(KEY, unowned=released), True, "a repeated delete whose response was lost succeeds")


def finished_lease_is_deleted_only_while_it_is_finished(store: LeaseStore) -> None:
    """A clean-up deletes a finished lease that its worker still renews, but not a lease that was rewound in the meantime."""
    mine = _row(store.checkpoint(_taken(store), _position(SHARD_END)))
    renewed = _row(store.renew(mine))
    rewound = _row(store.checkpoint(renewed, _position("7")), "a store does not judge positions")
    _equal(store.delete(KEY, finished=True), False, "a lease that was rewound meanwhile is not deleted")
    _equal(store.get(KEY), rewound, "it is unchanged")
    again = _row(store.checkpoint(rewound, _position(SHARD_END)))
    _row(store.renew(again))
    _equal(store.delete(KEY, unowned=again, finished=True), False, "both conditions must hold")
    _equal(store.delete(KEY, finished=True), True, "a finished lease is deleted although it was renewed")
    _equal(store.get(KEY), None, "it is gone")
    _equal(store.delete(KEY, finished=True), True, "a repeated delete whose response was lost succeeds")


# Races


def _race(racers: int, run: Callable[[int], object]) -> list[object]:
    """Run a function in many threads at once and return the results in the order of the threads."""
    barrier = threading.Barrier(racers)
    outcomes: list[object] = [None] * racers

    def racer(number: int) -> None:
        barrier.wait(_DEADLINE)
        try:
            outcomes[number] = run(number)
        except BaseException as error:  # noqa: BLE001 - shown with the outcomes
            outcomes[number] = error

    threads = [threading.Thread(target=racer, args=(number,), daemon=True) for number in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_DEADLINE)
    return outcomes


def one_racer_takes(store: LeaseStore) -> None:
    """If many workers take the same row at the same time, exactly one succeeds."""
    store.create_if_absent(new_lease())
    for number in range(RACE_ROUNDS):
        seen = _row(store.get(KEY))
        outcomes = _race(RACERS, lambda racer, seen=seen: store.take(seen, f"w{racer}"))  # type: ignore[misc]
        winners = [f"w{racer}" for racer, outcome in enumerate(outcomes) if isinstance(outcome, Lease)]
        _true(
            len(winners) == 1,
            f"take is atomic: one of {RACERS} racers succeeds, but {winners} did: {outcomes}",
        )
        _equal(
            sum(isinstance(outcome, Conflict) for outcome in outcomes),
            RACERS - 1,
            "the others get a Conflict",
        )
        row = _row(store.get(KEY))
        _equal((row.owner, row.counter), (winners[0], number + 1), "the row is the winner's, written once")


def one_racer_creates(store: LeaseStore) -> None:
    """If many workers create the same row at the same time, exactly one succeeds."""
    outcomes = _race(RACERS, lambda racer: store.create_if_absent(new_lease(owner_switches=racer)))
    _equal(sorted(map(str, outcomes)), ["False"] * (RACERS - 1) + ["True"], "create_if_absent is atomic")
    _equal(_row(store.get(KEY)).owner_switches, outcomes.index(True), "the row is the winner's")


# Any sequence of operations

SEQUENCES, STEPS = 40, 40
_WORKERS = ("a", "b", "c")


def _operation(
    rng: Random, key: str, seen: list[Lease], step: int
) -> tuple[str, Callable[[LeaseStore], object]]:
    """Return the name and the call of a random operation on a row that may be outdated, as in a real worker."""
    row = rng.choice(seen[-2:] if rng.random() < 0.8 else seen)
    owner = rng.choice(_WORKERS)
    requester = _WORKERS[(_WORKERS.index(owner) + 1) % len(_WORKERS)]
    position = _position(rng.choice(["5", "6", SHARD_END, TRIM_HORIZON]))
    if not position.is_sentinel:
        position = _position(position.sequence_number, rng.randrange(3))
    ask = HandlerRequest(HandlerVerb.LEAVE_OUT, owner, _position("5", rng.randrange(3)))
    measured = replace(
        row,
        throughput_kbps=rng.choice([None, 0.5, 0.000001]),
        progress=rng.choice([None, Progress(0, None, None, owner), Progress(None, 5, 7, owner)]),
    )
    wrong = replace(row, owner=owner, checkpoint_owner=rng.choice(_WORKERS))
    requested = row if row.owner and row.in_handoff else wrong
    owned = replace(row, owner=row.owner or owner)
    state = rng.choice([None, b"x"])
    moment = rng.randrange(3)
    return rng.choice(
        [
            ("create_if_absent", lambda store: store.create_if_absent(replace(seen[0], counter=0))),
            ("take", lambda store: store.take(row, owner)),
            ("renew", lambda store: store.renew(measured)),
            ("checkpoint", lambda store: store.checkpoint(measured, position)),
            ("prepare", lambda store: store.prepare(row, position, state)),
            ("pin", lambda store: store.pin(row, moment)),
            ("mark_processed", lambda store: store.mark_processed(row, moment)),
            ("release", lambda store: store.release(row)),
            ("request_handoff", lambda store: store.request_handoff(owned, requester)),
            ("request_handoff", lambda store: store.request_handoff(owned, requester)),
            ("complete_handoff", lambda store: store.complete_handoff(requested)),
            ("complete_handoff of other owners", lambda store: store.complete_handoff(wrong)),
            ("set_child_shard_ids", lambda store: store.set_child_shard_ids(key, ["y", "x"])),
            ("set_hash_key_range", lambda store: store.set_hash_key_range(key, HashKeyRange(1, 2))),
            ("put_standby_heartbeat", lambda store: store.put_standby_heartbeat(key, owner, moment or None)),
            ("set_drain", lambda store: store.set_drain(key, owner, moment > 0)),
            ("set_pin", lambda store: store.set_pin(key, owner if moment else None)),
            (
                "set_handler_request",
                lambda store: store.set_handler_request(
                    key, ask if moment else None, instead_of=ask if step % 2 else None
                ),
            ),
            ("delete", lambda store: moment == 0 and step % 5 == 0 and store.delete(key)),
            ("delete if finished", lambda store: store.delete(key, finished=True)),
            ("delete as seen", lambda store: moment == 0 and store.delete(key, unowned=row)),
            ("get", lambda store: store.get(key)),
        ]
    )


def _leases_in(outcome: object) -> Iterator[Lease]:
    row = outcome.current if isinstance(outcome, Conflict) else outcome
    if isinstance(row, Lease):
        yield row


def comparable(outcome: object) -> object:
    """Remove the attributes that other writers may change without the counter: a store need not return these with every write."""
    if isinstance(outcome, Conflict):
        return Conflict(next((_plain(row) for row in _leases_in(outcome)), None))
    return _plain(outcome) if isinstance(outcome, Lease) else outcome


def _plain(row: Lease) -> Lease:
    return replace(
        row,
        child_shard_ids=(),
        hash_key_range=None,
        throughput_kbps=None,
        standby_heartbeats={},
        progress=None,
        draining=(),
        pinned_to=None,
        handler_request=None,
    )


def random_sequences_match_the_reference(store: LeaseStore) -> None:
    """Random sequences of operations have the same outcomes as on `InMemoryLeaseStore`."""
    reference = InMemoryLeaseStore()
    kinds: dict[str, set[str]] = {}
    for seed in range(SEQUENCES):
        rng = Random(seed)
        key = f"s{seed}"
        seen = [Lease(lease_key=key, checkpoint=_position(TRIM_HORIZON))]
        for step in range(STEPS):
            name, call = _operation(rng, key, seen, step)
            expected, actual = call(reference), call(store)
            where = f"sequence {seed}, step {step}: {name}"
            _equal(comparable(actual), comparable(expected), where)
            kinds.setdefault(name, set()).add(type(expected).__name__)
            seen = [*seen[-4:], *_leases_in(expected)]
        _equal(store.get(key), reference.get(key), f"the row after sequence {seed}")
    rows = sorted(store.scan(consistent=True).leases, key=lambda row: row.lease_key)
    _equal(rows, sorted(reference.list(), key=lambda row: row.lease_key), "the table after all sequences")
    for name in (
        "take",
        "renew",
        "checkpoint",
        "prepare",
        "pin",
        "mark_processed",
        "release",
        "request_handoff",
        "complete_handoff",
    ):
        _equal(kinds[name], {"Lease", "Conflict"}, f"{name} succeeded and failed in these sequences")


LEASE_STORE_CHECKS: tuple[Check, ...] = (
    create_is_conditional,
    every_attribute_is_stored,
    sentinels_are_stored,
    inclusive_starts_are_stored,
    take_counts_switches,
    old_counter_loses,
    pin_renew_release,
    processed_mark_names_the_checkpoint,
    throughput_is_stored_with_renewals,
    progress_is_stored_with_renewals,
    checkpoint_clears_what_is_over,
    prepared_checkpoint,
    checkpoint_with_state,
    lost_response_counts_as_success,
    handoff_request_leaves_the_counter,
    handoff_request_depends_on_the_owner,
    renewal_fails_once_after_a_request,
    checkpoints_continue_during_a_handoff,
    completed_handoff,
    forced_take_fences_the_old_owner,
    handoff_between_others_is_not_completed,
    take_ends_a_handoff,
    children_leave_the_counter,
    ranges_leave_the_counter,
    standby_heartbeats_leave_the_counter,
    drain_marks_leave_the_counter,
    pins_leave_the_counter,
    requests_leave_the_counter,
    delete_is_final,
    unowned_lease_is_deleted_as_seen,
    finished_lease_is_deleted_only_while_it_is_finished,
    one_racer_takes,
    one_racer_creates,
    random_sequences_match_the_reference,
)
"""Every check of the contract; its argument is a fresh, empty store that is ready."""
