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
    """A unit test plays them all in memory, in SQLite and on the fake; the other stores have the same statements and requests."""
    if not TIMES and request.node.callspec.params["store"] in ("moto", "sqlite file"):
        # As few as let each operation succeed and fail.
        monkeypatch.setattr(lease_stores, "STEPS", 40)
        monkeypatch.setattr(lease_stores, "SEQUENCES", 4)
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


class NonAtomicTake(InMemoryLeaseStore):
    """Every racer reads before any of them writes."""

    def __init__(self):
        super().__init__()
        self._all_have_read = threading.Barrier(RACERS)

    def take(self, lease, owner):
        outcome = transitions.compare_and_set(
            self.get(lease.lease_key), lease, lambda row: transitions.taken(row, owner)
        )
        self._all_have_read.wait(30)
        if isinstance(outcome, Lease):
            self._rows[lease.lease_key] = outcome
        return outcome


class NonAtomicCreate(InMemoryLeaseStore):
    def __init__(self):
        super().__init__()
        self._all_have_read = threading.Barrier(RACERS)

    def create_if_absent(self, lease):
        exists = lease.lease_key in self._rows
        self._all_have_read.wait(30)
        self._rows[lease.lease_key] = lease
        return not exists


class LastTakeWins(InMemoryLeaseStore):
    """Asks for no counter."""

    def take(self, lease, owner):
        current = self.get(lease.lease_key)
        return Conflict(None) if current is None else super().take(current, owner)


class CounterGoesDown(InMemoryLeaseStore):
    def release(self, lease):
        outcome = super().release(lease)
        if isinstance(outcome, Lease):
            outcome = self._rows[lease.lease_key] = replace(outcome, counter=0)
        return outcome


class RenewalWithoutCounter(InMemoryLeaseStore):
    def renew(self, lease):
        return self._swap(lease, lambda row: transitions.with_measurements_of(row, lease), no_handoff=True)


class LostCheckpoint(InMemoryLeaseStore):
    """Says that it stored it."""

    def checkpoint(self, lease, checkpoint, state=None):
        before = self.get(lease.lease_key)
        outcome = super().checkpoint(lease, checkpoint, state)
        if isinstance(outcome, Lease):
            self._rows[lease.lease_key] = replace(transitions.renewed(before))
        return outcome


class LostSubSequenceNumber(InMemoryLeaseStore):
    def checkpoint(self, lease, checkpoint):
        return super().checkpoint(lease, ExtendedSequenceNumber(checkpoint.sequence_number))


class CheckpointWithoutFence(InMemoryLeaseStore):
    """A worker that lost the lease can still write its checkpoint."""

    def checkpoint(self, lease, checkpoint):
        current = self.get(lease.lease_key)
        return Conflict(None) if current is None else super().checkpoint(current, checkpoint)


class PendingCheckpointStays(InMemoryLeaseStore):
    def checkpoint(self, lease, checkpoint, state=None):
        before = self.get(lease.lease_key)
        outcome = super().checkpoint(lease, checkpoint, state)
        if isinstance(outcome, Lease):
            outcome = self._rows[lease.lease_key] = replace(
                outcome, pending_checkpoint=before.pending_checkpoint
            )
        return outcome


class CheckpointWithoutState(InMemoryLeaseStore):
    def checkpoint(self, lease, checkpoint, state=None):
        return super().checkpoint(lease, checkpoint)


class Upsert(InMemoryLeaseStore):
    """An update of a row that was deleted creates it again."""

    def _swap(self, seen, change, **conditions):
        if seen.lease_key not in self._rows:
            self._rows[seen.lease_key] = change(seen)
        return super()._swap(seen, change, **conditions)


class MetadataCreatesRows(InMemoryLeaseStore):
    def _set(self, lease_key, **changes):
        self._rows.setdefault(lease_key, lease_stores.new_lease(lease_key))
        return super()._set(lease_key, **changes)


class MetadataRaisesTheCounter(InMemoryLeaseStore):
    def _set(self, lease_key, **changes):
        row = self.get(lease_key)
        return row is not None and super()._set(lease_key, counter=row.counter + 1, **changes)


class CreateOverwrites(InMemoryLeaseStore):
    def create_if_absent(self, lease):
        self._rows[lease.lease_key] = lease
        return True


class ForgetsForeignAttributes(InMemoryLeaseStore):
    def create_if_absent(self, lease):
        return super().create_if_absent(replace(lease, extra={}))


class LostResponseIsALoss(InMemoryLeaseStore):
    """Does not recognize its own earlier write."""

    def _swap(self, seen, change, **conditions):
        current = self.get(seen.lease_key)
        if current is not None and current.counter != seen.counter:
            return Conflict(current)
        return super()._swap(seen, change, **conditions)


class LostResponseIsAnyones(InMemoryLeaseStore):
    """Recognizes another worker's write as its own."""

    def take(self, lease, owner):
        outcome = super().take(lease, owner)
        if isinstance(outcome, Conflict) and outcome.current is not None:
            return outcome.current if outcome.current.counter == lease.counter + 1 else outcome
        return outcome


class RequestRaisesTheCounter(InMemoryLeaseStore):
    def request_handoff(self, lease, owner):
        outcome = super().request_handoff(lease, owner)
        if isinstance(outcome, Lease):
            outcome = self._rows[lease.lease_key] = replace(outcome, counter=lease.counter + 1)
        return outcome


class RequestNeedsTheCounter(InMemoryLeaseStore):
    """While the owner renews, no request would ever succeed."""

    def request_handoff(self, lease, owner):
        current = self.get(lease.lease_key)
        if current is not None and current.counter != lease.counter:
            return Conflict(current)
        return super().request_handoff(lease, owner)


class SecondRequestWins(InMemoryLeaseStore):
    def request_handoff(self, lease, owner):
        current = self.get(lease.lease_key)
        if current is None:
            return Conflict(None)
        row = self._rows[lease.lease_key] = replace(current, owner=owner, checkpoint_owner=current.holder)
        return row


class RenewalHidesTheRequest(InMemoryLeaseStore):
    """The owner would never learn that its lease is requested."""

    def renew(self, lease):
        return self._swap(
            lease, lambda row: transitions.renewed(transitions.with_measurements_of(row, lease))
        )


class ReleaseIgnoresTheRequest(InMemoryLeaseStore):
    def release(self, lease):
        return self._swap(lease, transitions.released)


class AnybodyCompletes(InMemoryLeaseStore):
    def complete_handoff(self, lease):
        return self._swap(lease, transitions.handed_off)


class TakeLeavesTheMarker(InMemoryLeaseStore):
    def take(self, lease, owner):
        before = self.get(lease.lease_key)
        outcome = super().take(lease, owner)
        if isinstance(outcome, Lease) and before.in_handoff:
            outcome = self._rows[lease.lease_key] = replace(outcome, checkpoint_owner=before.checkpoint_owner)
        return outcome


class ConflictWithTheOldRow(InMemoryLeaseStore):
    """Shows the row that the writer knows anyway."""

    def _swap(self, seen, change, **conditions):
        outcome = super()._swap(seen, change, **conditions)
        return Conflict(seen) if isinstance(outcome, Conflict) and outcome.current is not None else outcome


class DeletesWhatIsOwned(InMemoryLeaseStore):
    def delete(self, lease_key, *, unowned=None, finished=False):
        return super().delete(lease_key, finished=finished)


class DeletesWhatWasRewound(InMemoryLeaseStore):
    def delete(self, lease_key, *, unowned=None, finished=False):
        return super().delete(lease_key, unowned=unowned)


class DeleteOfAFinishedLeaseNeedsAnUnchangedRow(InMemoryLeaseStore):
    """A worker that renews its finished lease would keep it for ever."""

    def delete(self, lease_key, *, unowned=None, finished=False):
        row = self.get(lease_key)
        if finished and row is not None and row.counter != 2:
            return False
        return super().delete(lease_key, unowned=unowned, finished=finished)


class OneMarkPerRow(InMemoryLeaseStore):
    def set_drain(self, lease_key, worker_id, on):
        return self._set(lease_key, draining=(worker_id,) if on else ())


class RenewalRemovesMarks(InMemoryLeaseStore):
    """Writes the whole row as its owner knows it."""

    def renew(self, lease):
        outcome = super().renew(lease)
        if isinstance(outcome, Lease):
            outcome = self._rows[lease.lease_key] = replace(
                outcome, draining=lease.draining, pinned_to=lease.pinned_to
            )
        return outcome


class PinRaisesTheCounter(InMemoryLeaseStore):
    def set_pin(self, lease_key, worker_id):
        row = self.get(lease_key)
        return row is not None and self._set(lease_key, counter=row.counter + 1, pinned_to=worker_id)


class RequestsAreEndedByAnyone(InMemoryLeaseStore):
    def set_handler_request(self, lease_key, request, *, instead_of=None):
        return super().set_handler_request(lease_key, request)


class ProgressOfTheFormerOwnerStays(InMemoryLeaseStore):
    def take(self, lease, owner):
        before = self.get(lease.lease_key)
        outcome = super().take(lease, owner)
        if isinstance(outcome, Lease):
            outcome = self._rows[lease.lease_key] = replace(outcome, progress=before.progress)
        return outcome


class RefusesInclusiveStarts(InMemoryLeaseStore):
    def create_if_absent(self, lease):
        return lease.checkpoint.sub_sequence_number >= 0 and super().create_if_absent(lease)


class OneHeartbeatPerRow(InMemoryLeaseStore):
    def put_standby_heartbeat(self, lease_key, worker_id, heartbeat):
        return self._set(lease_key, standby_heartbeats={} if heartbeat is None else {worker_id: heartbeat})


class MarkForgetsItsPosition(InMemoryLeaseStore):
    def mark_processed(self, lease, millis):
        mark = ProcessedUntil(millis, ExtendedSequenceNumber("TRIM_HORIZON"))
        return self._swap(lease, lambda row: replace(row, counter=row.counter + 1, processed_until=mark))


class ScanMissesUnownedRows(InMemoryLeaseStore):
    def scan(self, *, consistent=False):
        return TableScan(leases=[row for row in super().scan().leases if row.owner is not None])


BROKEN = {
    NonAtomicTake: "one_racer_takes",
    NonAtomicCreate: "one_racer_creates",
    LastTakeWins: "old_counter_loses",
    CounterGoesDown: "pin_renew_release",
    RenewalWithoutCounter: "renewal_fails_once_after_a_request",
    LostCheckpoint: "checkpoint_clears_what_is_over",
    LostSubSequenceNumber: "checkpoint_clears_what_is_over",
    CheckpointWithoutFence: "old_counter_loses",
    PendingCheckpointStays: "prepared_checkpoint",
    CheckpointWithoutState: "checkpoint_with_state",
    Upsert: "delete_is_final",
    MetadataCreatesRows: "children_leave_the_counter",
    MetadataRaisesTheCounter: "ranges_leave_the_counter",
    CreateOverwrites: "create_is_conditional",
    ForgetsForeignAttributes: "every_attribute_is_stored",
    LostResponseIsALoss: "lost_response_counts_as_success",
    LostResponseIsAnyones: "lost_response_counts_as_success",
    RequestRaisesTheCounter: "handoff_request_leaves_the_counter",
    RequestNeedsTheCounter: "handoff_request_depends_on_the_owner",
    SecondRequestWins: "handoff_request_leaves_the_counter",
    RenewalHidesTheRequest: "renewal_fails_once_after_a_request",
    ReleaseIgnoresTheRequest: "renewal_fails_once_after_a_request",
    AnybodyCompletes: "handoff_between_others_is_not_completed",
    TakeLeavesTheMarker: "take_ends_a_handoff",
    ConflictWithTheOldRow: "old_counter_loses",
    DeletesWhatIsOwned: "unowned_lease_is_deleted_as_seen",
    DeletesWhatWasRewound: "finished_lease_is_deleted_only_while_it_is_finished",
    DeleteOfAFinishedLeaseNeedsAnUnchangedRow: "finished_lease_is_deleted_only_while_it_is_finished",
    OneMarkPerRow: "drain_marks_leave_the_counter",
    RenewalRemovesMarks: "drain_marks_leave_the_counter",
    PinRaisesTheCounter: "pins_leave_the_counter",
    RequestsAreEndedByAnyone: "requests_leave_the_counter",
    ProgressOfTheFormerOwnerStays: "progress_is_stored_with_renewals",
    RefusesInclusiveStarts: "inclusive_starts_are_stored",
    OneHeartbeatPerRow: "standby_heartbeats_leave_the_counter",
    MarkForgetsItsPosition: "processed_mark_names_the_checkpoint",
    ScanMissesUnownedRows: "create_is_conditional",
}
CHECKS = {check.__name__: check for check in LEASE_STORE_CHECKS}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_store_fails(kind):
    with pytest.raises(AssertionError) as failure:
        CHECKS[BROKEN[kind]](kind())
    assert "actual: " in str(failure.value), "it shows what the store returned"


def test_a_check_that_fails_names_the_rule():
    with pytest.raises(AssertionError, match=r"(?s)take is atomic.*actual"):
        CHECKS["one_racer_takes"](NonAtomicTake())
