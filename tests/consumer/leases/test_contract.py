"""The contract of lease stores: both stores keep it, and every kind of broken store fails it."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import Conflict, InMemoryLeaseStore, Lease, TableScan
from kinesis_sdk.consumer.leases.table import transitions
from kinesis_sdk.consumer.leases.table.lease import ProcessedUntil
from kinesis_sdk.testing.contracts import lease_stores
from kinesis_sdk.testing.contracts.lease_stores import LEASE_STORE_CHECKS, RACERS
from tests.fuzz import TIMES


def by_name(check):
    return check.__name__


SEQUENCES = lease_stores.random_sequences_match_the_reference


@pytest.mark.parametrize(
    "check", [check for check in LEASE_STORE_CHECKS if check is not SEQUENCES], ids=by_name
)
def test_the_store_keeps_the_contract(check, store):
    check(store)


@pytest.mark.fuzz
def test_random_sequences_match_the_reference(store, request, monkeypatch):
    """A unit test plays them all in memory and on the fake, and a fifth of them in SQLite."""
    if not TIMES and request.node.callspec.params["store"] == "sqlite file":
        monkeypatch.setattr(lease_stores, "SEQUENCES", 8)
    SEQUENCES(store)


def test_every_check_is_listed():
    """A check is a public function of the module that takes a store and is described by its docstring."""
    found = {
        value
        for name, value in vars(lease_stores).items()
        if callable(value) and getattr(value, "__annotations__", {}).keys() == {"store", "return"}
        if not name.startswith("_")
    }
    assert found == set(LEASE_STORE_CHECKS)
    assert len(LEASE_STORE_CHECKS) == len(found)
    assert all(check.__doc__ for check in LEASE_STORE_CHECKS)


def test_the_contract_needs_no_test_framework():
    code = (
        "import sys, kinesis_sdk.testing.contracts.lease_stores as c; c.LEASE_STORE_CHECKS[0](c.InMemoryLeaseStore());"
        "print([m for m in sys.modules if m.split('.')[0] in ('pytest', '_pytest', 'unittest')])"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# Broken stores

Memory = InMemoryLeaseStore


def broken(**methods):
    """Return a store with other methods."""
    return type("Broken", (Memory,), methods)


def storing(method, change):
    """Return a store whose write stores, and returns, what ``change(before, after, lease)`` makes of its row."""

    def write(store, lease, *arguments):
        before = store.get(lease.lease_key)
        outcome = getattr(Memory, method)(store, lease, *arguments)
        if isinstance(outcome, Lease):
            outcome = store._rows[lease.lease_key] = change(before, outcome, lease)
        return outcome

    return broken(**{method: write})


def on_any_row(method):
    """Return a store whose write asks for no counter."""

    def write(store, lease, *arguments):
        current = store.get(lease.lease_key)
        return Conflict(None) if current is None else getattr(Memory, method)(store, current, *arguments)

    return broken(**{method: write})


class AfterAllHaveRead(Memory):
    """Every racer reads before any of them writes."""

    def __init__(self):
        super().__init__()
        self._all_have_read = threading.Barrier(RACERS)


class NonAtomicTake(AfterAllHaveRead):
    def take(self, lease, owner):
        outcome = transitions.compare_and_set(
            self.get(lease.lease_key), lease, lambda row: transitions.taken(row, owner)
        )
        self._all_have_read.wait(30)
        if isinstance(outcome, Lease):
            self._rows[lease.lease_key] = outcome
        return outcome


class NonAtomicCreate(AfterAllHaveRead):
    def create_if_absent(self, lease):
        exists = lease.lease_key in self._rows
        self._all_have_read.wait(30)
        self._rows[lease.lease_key] = lease
        return not exists


def lost_checkpoint(store, lease, checkpoint, state=None):
    before = store.get(lease.lease_key)
    outcome = Memory.checkpoint(store, lease, checkpoint, state)
    if isinstance(outcome, Lease):
        store._rows[lease.lease_key] = transitions.renewed(before)
    return outcome


def upsert(store, seen, change, **conditions):
    if seen.lease_key not in store._rows:
        store._rows[seen.lease_key] = change(seen)
    return Memory._swap(store, seen, change, **conditions)


def needs_the_counter(method):
    def write(store, lease, *arguments, **conditions):
        row = store.get(lease.lease_key)
        if row is not None and row.counter != lease.counter:
            return Conflict(row)
        return getattr(Memory, method)(store, lease, *arguments, **conditions)

    return broken(**{method: write})


def raises_the_counter(store, lease_key, **changes):
    row = store.get(lease_key)
    return row is not None and Memory._set(store, lease_key, counter=row.counter + 1, **changes)


def anyones_take(store, lease, owner):
    outcome = Memory.take(store, lease, owner)
    if isinstance(outcome, Conflict) and outcome.current is not None:
        return outcome.current if outcome.current.counter == lease.counter + 1 else outcome
    return outcome


def second_request(store, lease, owner):
    current = store.get(lease.lease_key)
    if current is None:
        return Conflict(None)
    row = store._rows[lease.lease_key] = replace(current, owner=owner, checkpoint_owner=current.holder)
    return row


def conflict_with_the_old_row(store, seen, change, **conditions):
    outcome = Memory._swap(store, seen, change, **conditions)
    return Conflict(seen) if isinstance(outcome, Conflict) and outcome.current is not None else outcome


def delete_needs_an_unchanged_row(store, lease_key, *, unowned=None, finished=False):
    row = store.get(lease_key)
    if finished and row is not None and row.counter != 2:
        return False
    return Memory.delete(store, lease_key, unowned=unowned, finished=finished)


def forgetful_mark(store, lease, millis):
    mark = ProcessedUntil(millis, ExtendedSequenceNumber("TRIM_HORIZON"))
    return store._swap(lease, lambda row: replace(row, counter=row.counter + 1, processed_until=mark))


def unconditional_request(store, lease_key, request, *, instead_of=None):
    return Memory.set_handler_request(store, lease_key, request)


def renewed_by(change, **conditions):
    def renew(store, lease):
        return store._swap(
            lease, lambda row: change(transitions.with_measurements_of(row, lease)), **conditions
        )

    return broken(renew=renew)


BROKEN = {
    "take is not atomic": (NonAtomicTake, "one_racer_takes"),
    "create is not atomic": (NonAtomicCreate, "one_racer_creates"),
    "last take wins": (on_any_row("take"), "old_counter_loses"),
    "counter goes down": (
        storing("release", lambda _, row, __: replace(row, counter=0)),
        "pin_renew_release",
    ),
    "renewal without counter": (
        renewed_by(lambda row: row, no_handoff=True),
        "renewal_fails_once_after_a_request",
    ),
    "checkpoint is only said to be stored": (
        broken(checkpoint=lost_checkpoint),
        "checkpoint_clears_what_is_over",
    ),
    "sub-sequence number is lost": (
        broken(
            checkpoint=lambda s, lease, at: Memory.checkpoint(
                s, lease, ExtendedSequenceNumber(at.sequence_number)
            )
        ),
        "checkpoint_clears_what_is_over",
    ),
    "a lost lease is checkpointed": (on_any_row("checkpoint"), "old_counter_loses"),
    "pending checkpoint stays": (
        storing("checkpoint", lambda old, row, _: replace(row, pending_checkpoint=old.pending_checkpoint)),
        "prepared_checkpoint",
    ),
    "checkpoint without state": (
        broken(checkpoint=lambda s, lease, at, state=None: Memory.checkpoint(s, lease, at)),
        "checkpoint_with_state",
    ),
    "an update creates the row": (broken(_swap=upsert), "delete_is_final"),
    "metadata creates rows": (
        broken(
            _set=lambda s, key, **new: (
                s._rows.setdefault(key, lease_stores.new_lease(key)) and Memory._set(s, key, **new)
            )
        ),
        "children_leave_the_counter",
    ),
    "metadata raises the counter": (broken(_set=raises_the_counter), "ranges_leave_the_counter"),
    "create overwrites": (
        broken(create_if_absent=lambda s, lease: s._rows.update({lease.lease_key: lease}) or True),
        "create_is_conditional",
    ),
    "foreign attributes are forgotten": (
        broken(create_if_absent=lambda s, lease: Memory.create_if_absent(s, replace(lease, extra={}))),
        "every_attribute_is_stored",
    ),
    "lost response is a loss": (needs_the_counter("_swap"), "lost_response_counts_as_success"),
    "lost response is anyone's": (broken(take=anyones_take), "lost_response_counts_as_success"),
    "request raises the counter": (
        storing("request_handoff", lambda _, row, lease: replace(row, counter=lease.counter + 1)),
        "handoff_request_leaves_the_counter",
    ),
    "request needs the counter": (
        needs_the_counter("request_handoff"),
        "handoff_request_depends_on_the_owner",
    ),
    "second request wins": (broken(request_handoff=second_request), "handoff_request_leaves_the_counter"),
    "renewal hides the request": (renewed_by(transitions.renewed), "renewal_fails_once_after_a_request"),
    "release ignores the request": (
        broken(release=lambda s, lease: s._swap(lease, transitions.released)),
        "renewal_fails_once_after_a_request",
    ),
    "anybody completes": (
        broken(complete_handoff=lambda s, lease: s._swap(lease, transitions.handed_off)),
        "handoff_between_others_is_not_completed",
    ),
    "take leaves the marker": (
        storing(
            "take",
            lambda old, row, _: (
                replace(row, checkpoint_owner=old.checkpoint_owner) if old.in_handoff else row
            ),
        ),
        "take_ends_a_handoff",
    ),
    "conflict with the old row": (broken(_swap=conflict_with_the_old_row), "old_counter_loses"),
    "what is owned is deleted": (
        broken(
            delete=lambda s, key, *, unowned=None, finished=False: Memory.delete(s, key, finished=finished)
        ),
        "unowned_lease_is_deleted_as_seen",
    ),
    "what was rewound is deleted": (
        broken(delete=lambda s, key, *, unowned=None, finished=False: Memory.delete(s, key, unowned=unowned)),
        "finished_lease_is_deleted_only_while_it_is_finished",
    ),
    "a renewed finished lease stays": (
        broken(delete=delete_needs_an_unchanged_row),
        "finished_lease_is_deleted_only_while_it_is_finished",
    ),
    "one mark per row": (
        broken(set_drain=lambda s, key, worker, on: s._set(key, draining=(worker,) if on else ())),
        "drain_marks_leave_the_counter",
    ),
    "renewal removes marks": (
        storing(
            "renew", lambda _, row, lease: replace(row, draining=lease.draining, pinned_to=lease.pinned_to)
        ),
        "drain_marks_leave_the_counter",
    ),
    "pin raises the counter": (
        broken(set_pin=lambda s, key, worker: raises_the_counter(s, key, pinned_to=worker)),
        "pins_leave_the_counter",
    ),
    "anyone ends requests": (
        broken(set_handler_request=unconditional_request),
        "requests_leave_the_counter",
    ),
    "former owner's progress stays": (
        storing("take", lambda old, row, _: replace(row, progress=old.progress)),
        "progress_is_stored_with_renewals",
    ),
    "inclusive starts are refused": (
        broken(
            create_if_absent=lambda s, lease: (
                lease.checkpoint.sub_sequence_number >= 0 and Memory.create_if_absent(s, lease)
            )
        ),
        "inclusive_starts_are_stored",
    ),
    "one heartbeat per row": (
        broken(
            put_standby_heartbeat=lambda s, key, worker, beat: s._set(
                key, standby_heartbeats={} if beat is None else {worker: beat}
            )
        ),
        "standby_heartbeats_leave_the_counter",
    ),
    "mark forgets its position": (
        broken(mark_processed=forgetful_mark),
        "processed_mark_names_the_checkpoint",
    ),
    "scan misses unowned rows": (
        broken(
            scan=lambda s, *, consistent=False: TableScan(
                leases=[row for row in Memory.scan(s).leases if row.owner]
            )
        ),
        "create_is_conditional",
    ),
}
CHECKS = {check.__name__: check for check in LEASE_STORE_CHECKS}


@pytest.mark.parametrize("store_and_check", BROKEN.values(), ids=BROKEN)
def test_a_broken_store_fails(store_and_check):
    kind, check = store_and_check
    with pytest.raises(AssertionError) as failure:
        CHECKS[check](kind())
    assert "actual: " in str(failure.value), "it shows what the store returned"


def test_a_check_that_fails_names_the_rule():
    with pytest.raises(AssertionError, match=r"(?s)take is atomic.*actual"):
        CHECKS["one_racer_takes"](NonAtomicTake())
