"""A scan shows a held row that somebody else has changed: it is lost now, and an own write is never mistaken for that."""

from __future__ import annotations

import logging
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.common.errors import KinesisSdkError, LeaseLostError, TransientAwsError
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import InMemoryLeaseStore, Lease
from kinesis_sdk.consumer.leases.table import transitions
from kinesis_sdk.testing import VirtualClock
from tests import fuzz
from tests.consumer.fleet.operator import set_position
from tests.consumer.leases.held_lease import at, hold

START = ExtendedSequenceNumber(TRIM_HORIZON)


class Air(InMemoryLeaseStore):
    """A store that shows what a scan could see at each instant of a write, and loses or delays writes by script."""

    def __init__(self):
        super().__init__()
        self.history = []
        self.script = []
        self.instant = lambda what: None
        self._late = []

    def _swap(self, seen, change, **conditions):
        what = self.script.pop(0) if self.script else "fine"
        self.instant("sent")
        if what == "before":
            raise TransientAwsError("no answer", operation="UpdateItem")
        if what == "late":
            self._late.append((seen, change, conditions))
            raise TransientAwsError("no answer", operation="UpdateItem")
        result = super()._swap(seen, change, **conditions)
        self.note()
        self.instant("applied")
        if what == "after":
            raise TransientAwsError("no answer", operation="UpdateItem")
        return result

    def arrive(self):
        """Apply the writes that are late, if their conditions still hold."""
        late, self._late = self._late, []
        for seen, change, conditions in late:
            super()._swap(seen, change, **conditions)
        self.note()

    def note(self):
        row = self.get("s")
        if row is not None and (not self.history or self.history[-1] != row):
            self.history.append(row)


class Scenario:
    def __init__(self):
        self.clock = VirtualClock()
        self.store = Air()
        self.store.create_if_absent(Lease(lease_key="s", checkpoint=START))
        self.store.note()
        for owner in ("you", "me", "you", "me"):  # so that a stale scan may show other owners
            row = self.store.take(self.store.get("s"), owner)
        self.held = hold(self.store, row, self.clock)

    @property
    def row(self):
        return self.store.get("s")


def renewed(held):
    held.renew()


def checkpointed(held):
    held.checkpoint(at(int(held.lease.counter) + 100))


def prepared(held):
    held.prepare(at(7))


def pinned(held):
    held.pin(5)


def released(held):
    held.release()


WRITES = [renewed, checkpointed, prepared, pinned]
LOSSES = ["fine", "fine", "before", "after", "late"]
STEPS = st.lists(
    st.tuples(st.sampled_from([*WRITES, released]), st.lists(st.sampled_from(LOSSES), max_size=2))
)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=80, fuzz=3000))
@given(STEPS, st.integers(0, 10**6), st.booleans())
def test_no_scan_mistakes_an_own_write_for_a_foreign_one(steps, seed, requested):
    """Any own writes, answered, lost or late; handoff requests; scans at each instant that show any earlier row."""
    rng = Random(seed)
    scenario = Scenario()
    held, store = scenario.held, scenario.store
    scans = 0

    def scan(_what):
        nonlocal scans
        scans += 1
        # Eventually consistent: a row as it was at any time, most often as it is.
        row = store.history[-1] if rng.random() < 0.5 else rng.choice(store.history)
        assert not held.observe_foreign_change(row), row
        assert held.gone is None or "outside" not in held.gone

    store.instant = scan
    for number, (write, script) in enumerate(steps):
        if requested and number == 1 and scenario.row.owner == "me":
            store.request_handoff(scenario.row, "you")
            store.note()
        store.script = [*script]
        try:
            write(held)
        except LeaseLostError:
            break  # released before
        except KinesisSdkError:
            scenario.clock.advance(0.1)
        scan("between")
        if rng.random() < 0.5:
            store.arrive()
            scan("late")
    assert scans >= len(steps) or held.gone is not None


def peer_takes(scenario):
    """Past the script, which is for the writes of the worker under test."""
    row = scenario.row
    return InMemoryLeaseStore._swap(scenario.store, row, lambda row: transitions.taken(row, "you"))


def restarted(scenario):
    set_position(scenario.store, "s", at(3))


def restarted_in_place(scenario):
    set_position(scenario.store, "s", None)


def freed(scenario):
    set_position(scenario.store, "s", at(3), free=True)


@pytest.mark.fuzz
@settings(max_examples=fuzz.how_many(unit=80, fuzz=2000))
@given(
    st.lists(st.tuples(st.sampled_from(WRITES), st.lists(st.sampled_from(LOSSES), max_size=2)), max_size=5),
    st.sampled_from([peer_takes, restarted, restarted_in_place, freed]),
    st.integers(0, 3),
)
def test_the_next_scan_shows_every_foreign_change(steps, change, when):
    """Whatever writes of our own are lost or in the air: nobody has to wait for the next renewal."""
    scenario = Scenario()
    held, store = scenario.held, scenario.store
    instants = 0
    changed = None

    def maybe_change(_what):
        nonlocal instants, changed
        instants += 1
        if instants > when and changed is None:
            before = scenario.row
            change(scenario)
            changed = scenario.row
            assert changed.counter > before.counter
            store.note()

    store.instant = maybe_change
    for write, script in steps:
        store.script = [*script]
        try:
            write(held)
        except KinesisSdkError:
            scenario.clock.advance(0.1)
    store.instant = lambda what: None
    if changed is None:
        change(scenario)
        changed = scenario.row
    store.arrive()
    assert scenario.row == changed, "no write of ours went over it"
    first = held.gone is None
    assert held.observe_foreign_change(scenario.row) is first
    assert held.gone is not None
    assert held.changed_from_outside is (change in (restarted, restarted_in_place))
    with pytest.raises(LeaseLostError):
        held.checkpoint(at(10**6))
    assert scenario.row == changed


def test_one_more_under_the_own_name_may_be_a_write_whose_answer_is_missing():
    scenario = Scenario()
    ahead = replace(scenario.row, counter=scenario.row.counter + 1)
    assert not scenario.held.observe_foreign_change(ahead)
    assert scenario.held.observe_foreign_change(replace(ahead, counter=ahead.counter + 1))
    assert not scenario.held.observe_foreign_change(replace(ahead, counter=ahead.counter + 1)), "news once"


def test_a_release_on_its_way_back_and_a_fast_next_owner_are_no_foreign_change():
    """Release is sent; it takes effect; a peer takes the lease; the scan shows that before the answer arrives."""
    scenario = Scenario()
    seen = []

    def instant(what):
        if what == "applied" and scenario.row.owner is None:
            taken = peer_takes(scenario)
            seen.append(
                (taken.counter - scenario.held.lease.counter, scenario.held.observe_foreign_change(taken))
            )

    scenario.store.instant = instant
    scenario.held.release()
    assert seen == [(2, False)]
    assert scenario.held.gone == "released"


def test_a_change_from_outside_is_logged_with_both_positions(caplog):
    for by_scan in (True, False):
        caplog.clear()
        scenario = Scenario()
        scenario.held.checkpoint(at(700, 2))
        restarted(scenario)
        if by_scan:
            assert scenario.held.observe_foreign_change(scenario.row)
        else:
            with pytest.raises(LeaseLostError, match="changed from outside"):
                scenario.held.renew()
        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert "changed from outside" in record.getMessage()
        assert "checkpoint 700/2 became 3/0" in record.getMessage()
        assert "checkpoint 700/2 became 3/0" in scenario.held.gone


def test_a_lease_that_another_worker_took_is_not_logged_as_changed_by_hand(caplog):
    scenario = Scenario()
    peer_takes(scenario)
    assert scenario.held.observe_foreign_change(scenario.row)
    assert scenario.held.gone == f"its counter is {scenario.row.counter}, owner you"
    assert not scenario.held.changed_from_outside
    assert caplog.text == ""
