"""Drained workers: they hand over all leases, take none, and stay up; their peers take over and do not count them."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from kinesis_sdk.common.errors import LeaseRowRejectedError, TransientLeaseStoreError
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, Lease
from kinesis_sdk.consumer.leases.ownership.drain import Drain
from tests.consumer.fleet.coordinators import CoordinatorFleet
from tests.consumer.fleet.engines import Fleet
from tests.consumer.fleet.runs import rest, settle
from tests.consumer.leases.handoffs import duplicates, key

HORIZON = ConsumerConfig(initial_position="TRIM_HORIZON")


def fleet_of(shards, *names, config=HORIZON, **options):
    fleet = Fleet(shards=shards, config=config)
    for name in names:
        fleet.add(name, fleet.recorder(name, checkpoint=False, last_words=True, **options))
    fleet.run(15)
    fleet.put(20 * shards)
    fleet.run(3)
    return fleet


def drain(fleet, name, on=True, row=0):
    assert fleet.store.set_drain(key(row), name, on)


def leases_of(fleet):
    return Counter(fleet.owners().values())


def health(fleet, name):
    return fleet.engines[name].coordinator.is_draining


# Whole workers


def test_a_drained_worker_hands_over_takes_nothing_and_stays_up():
    fleet = fleet_of(6, "a", "b", "c")
    assert leases_of(fleet) == {"a": 2, "b": 2, "c": 2}
    drain(fleet, "a")
    assert fleet.run(5, lambda: leases_of(fleet) == {"b": 3, "c": 3})
    assert health(fleet, "a") and not health(fleet, "b")
    assert "a" in fleet.engines
    fleet.put(60)
    fleet.crash("b")
    fleet.run(30)
    assert leases_of(fleet) == {"c": 6}, "nor does it take what is free"
    fleet.split()
    fleet.put(20)
    assert fleet.run(20, fleet.all_delivered)
    assert set(leases_of(fleet)) == {"c"}


def test_a_drain_repeats_no_record_and_leaves_no_shard_idle():
    """The peers request the leases, so that each moves within a second, with a checkpoint in shutdown_requested."""
    fleet = fleet_of(4, "a", "b")
    drain(fleet, "a")
    marked_at = fleet.clock.monotonic()
    for _ in range(30):
        fleet.put(4)
        fleet.run(0.25)
    assert leases_of(fleet) == {"b": 4}
    stops = {
        shard: at for at, name, shard, what in fleet.events if what == "shutdown_requested" and name == "a"
    }
    starts = {
        shard: at
        for at, name, shard, what in fleet.events
        if what == "initialize" and name == "b" and at >= marked_at
    }
    assert len(stops) == 2
    assert max(starts[shard] - stopped for shard, stopped in stops.items()) <= 0.6
    fleet.run(5)
    assert fleet.all_delivered()
    assert duplicates(fleet) == 0


def test_when_all_drain_nobody_consumes_and_each_says_so(caplog):
    fleet = fleet_of(4, "a", "b")
    drain(fleet, "a")
    drain(fleet, "b")
    fleet.run(10)
    assert leases_of(fleet) == {None: 4}
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    for name in "ab":
        assert sum(f"worker {name}: draining" in text for text in told) == 1
    delivered = len(fleet.data())
    fleet.put(20)
    fleet.run(60)
    assert len(fleet.data()) == delivered, "that is what was asked for"
    drain(fleet, "a", on=False)
    assert fleet.run(5, fleet.all_delivered)
    assert leases_of(fleet) == {"a": 4}
    assert duplicates(fleet) == 0


def test_a_drained_group_leaves_everything_to_the_other():
    names = ("x|1", "x|2", "y|1", "y|2")
    fleet = fleet_of(8, *names)
    assert set(leases_of(fleet).values()) == {2}
    for row, name in enumerate(names[:2]):
        drain(fleet, name, row=row)
    assert fleet.run(15, lambda: leases_of(fleet) == {"y|1": 4, "y|2": 4})
    fleet.run(60)
    assert not any(row.standby_heartbeats for row in fleet.store.list()), "a draining worker is no standby"
    for row, name in enumerate(names[:2]):
        drain(fleet, name, on=False, row=row)
    assert fleet.run(60, lambda: set(leases_of(fleet).values()) == {2})


def test_a_worker_that_starts_with_a_mark_takes_nothing():
    """A drain lasts across a restart under the same worker id."""
    fleet = fleet_of(2, "a", "b")
    drain(fleet, "a")
    fleet.crash("a")
    fleet.add("a")
    fleet.put(10)
    fleet.run(3)
    assert leases_of(fleet) == {"b": 2}, (
        "what still names it is released at once, and does not have to expire"
    )
    assert fleet.run(5, fleet.all_delivered)
    drain(fleet, "a", on=False)
    fleet.run(10)
    assert leases_of(fleet) == {"a": 1, "b": 1}


def test_peers_with_the_kcl_2_strategy_take_what_the_worker_releases():
    """They do not request the leases of a draining worker, so it releases them after two of their scans."""
    fleet = fleet_of(4, "a", "b", config=HORIZON.with_fields(lease_strategy="kcl2"))
    fleet.run(60)
    assert leases_of(fleet) == {"a": 2, "b": 2}
    drain(fleet, "a")
    fleet.run(90)  # such a fleet scans every 20 s
    assert leases_of(fleet) == {"b": 4}
    assert duplicates(fleet) == 0


def test_a_lease_that_was_requested_before_the_drain_goes_on_to_others():
    fleet = fleet_of(4, "a", "b")
    row = fleet.store.get(next(k for k, owner in fleet.owners().items() if owner == "b"))
    fleet.store.request_handoff(row, "a")
    drain(fleet, "a")
    fleet.run(10)
    assert leases_of(fleet) == {"b": 4}
    fleet.run(20)
    assert leases_of(fleet) == {"b": 4}


def test_a_drain_ends_a_handler_that_does_not_return_after_the_handoff_timeout():
    """The peers have requested the lease, so that the timeout of handoffs holds for it."""
    fleet = fleet_of(2, "a", "b")
    engine = fleet.engines["a"]
    ((consumer, _task),) = engine._consumers.values()
    consumer._must_wait = lambda now: True  # as while a call of the handler runs
    drain(fleet, "a")
    fleet.run(25)
    assert leases_of(fleet)["a"] == 0, "requested"
    assert all(row.holder == "a" for row in fleet.store.list() if row.in_handoff)
    fleet.run(15)
    assert [row.holder for row in fleet.store.list()] == ["b", "b"]


# The mark


def test_the_mark_moves_when_its_shard_ends_and_when_its_row_is_deleted():
    fleet = fleet_of(1, "a", "b")
    drain(fleet, "a")
    fleet.run(5)
    assert leases_of(fleet) == {"b": 1}
    fleet.split()
    fleet.run(8)
    carriers = [row.lease_key for row in fleet.store.list() if "a" in row.draining]
    assert len(carriers) == 1
    assert carriers[0] in {key(1), key(2)}
    other = ({key(1), key(2)} - {*carriers}).pop()
    del fleet.store._rows[carriers[0]]
    fleet.run(3)
    assert [row.lease_key for row in fleet.store.list() if "a" in row.draining] == [other]
    assert health(fleet, "a")
    fleet.store.set_drain(other, "a", False)
    fleet.run(3)
    assert not health(fleet, "a")


class Marks:
    """A table with some rows, and the drain of one worker."""

    def __init__(self, *keys):
        self.store = InMemoryLeaseStore(
            Lease(lease_key=name, checkpoint=ExtendedSequenceNumber(TRIM_HORIZON)) for name in keys
        )
        self.drain = Drain(self.store, "w")
        self.now = 0.0

    def scan(self, rows=None):
        self.now += 1
        self.drain.observe(self.store.list() if rows is None else rows, self.now)
        self.drain.tick(self.now)

    def finish(self, name):
        self.store._set(name, checkpoint=ExtendedSequenceNumber(SHARD_END))

    @property
    def carriers(self):
        return [row.lease_key for row in self.store.list() if "w" in row.draining]


def test_a_stale_scan_neither_ends_nor_moves_a_drain():
    marks = Marks("r", "s")
    before = marks.store.list()
    marks.store.set_drain("r", "w", True)
    marks.scan()
    assert (marks.drain.active, marks.drain.since) == (True, 1)
    marks.scan(before)
    assert (marks.drain.active, marks.drain.since, marks.carriers) == (True, 1, ["r"])
    marks.scan([row for row in before if row.lease_key == "s"])
    assert (marks.drain.active, marks.carriers) == (True, ["r"])


def test_a_stale_scan_that_shows_the_mark_where_it_was_does_not_end_a_drain():
    marks = Marks("r", "s")
    marks.store.set_drain("r", "w", True)
    marks.scan()
    marks.finish("r")
    before = marks.store.list()
    marks.scan()
    assert marks.carriers == ["s"]
    marks.scan(before)
    assert (marks.drain.active, marks.drain.since, marks.carriers) == (True, 1, ["s"])


def test_a_mark_that_was_removed_from_a_finished_row_does_not_come_back():
    """The scan shows the mark on a finished row, the operator removes it, the worker is about to move it."""
    marks = Marks("r", "s")
    marks.store.set_drain("r", "w", True)
    marks.scan()
    marks.finish("r")
    seen = marks.store.list()
    marks.store.set_drain("r", "w", False)
    marks.scan(seen)
    assert (marks.drain.active, marks.carriers) == (False, [])


def test_a_drain_outlives_a_table_without_unfinished_rows():
    marks = Marks("r")
    marks.store.set_drain("r", "w", True)
    marks.scan()
    marks.finish("r")
    marks.scan()
    marks.store.delete("r")
    marks.scan()
    assert marks.drain.active
    marks.store.create_if_absent(Lease(lease_key="s", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON)))
    marks.scan()
    assert (marks.drain.active, marks.carriers) == (True, ["s"])


def test_a_full_row_is_passed_over_and_a_failed_call_is_repeated():
    marks = Marks("r", "s", "t")
    marks.store.set_drain("r", "w", True)
    marks.scan()
    marks.finish("r")
    put, failures = marks.store.set_drain, []

    def set_drain(name, worker, on):
        if on and len(failures) < 2:
            failures.append(name)
            raise (TransientLeaseStoreError("timeout"), LeaseRowRejectedError("row too large"))[
                len(failures) - 1
            ]
        return put(name, worker, on)

    marks.store.set_drain = set_drain
    with pytest.raises(TransientLeaseStoreError):
        marks.scan()
    assert marks.drain.due <= marks.now, "still due"
    marks.drain.tick(marks.now)
    marks.drain.tick(marks.now)
    assert failures[0] == failures[1]
    assert marks.carriers == [({"s", "t"} - {failures[1]}).pop()]


# Lease loops, with faults


@pytest.mark.parametrize("by_rate", [False, True])
def test_the_fleet_settles_without_drained_workers_and_rests(by_rate):
    fleet = CoordinatorFleet(shards_at_start=12)
    if by_rate:
        fleet.rate = lambda name: 30.0 * 2 ** (int(name[-2:]) % 5)
    for name in "abcd":
        fleet.add(name)
    settle(fleet, 100)
    if by_rate:
        fleet.run(fleet.now + 60)
        settle(fleet, 200)
    for process in fleet.processes[:2]:
        fleet.drain(process)
    settle(fleet, 60)
    assert set(fleet.load()) == {"c", "d"}
    rest(fleet, 60)
    fleet.undrain(fleet.processes[0])
    settle(fleet, 200)
    assert set(fleet.load()) == {"a", "c", "d"}
    rest(fleet, 60)
