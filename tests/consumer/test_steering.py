"""Operators change the lease table of a live fleet: rewinds, skips and drains, seen by whole workers in virtual time."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

import pytest

from kinesis_sdk.common.errors import RestartShardError, TransientLeaseStoreError
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer import InMemorySink, RecordHandler, RetryBatch
from kinesis_sdk.consumer.leases import Conflict
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb
from kinesis_sdk.consumer.leases.table.progress import Progress
from tests.consumer.fleet.dynamodb import on_dynamodb
from tests.consumer.fleet.engines import HORIZON, UNHURRIED, Fleet
from tests.consumer.fleet.operator import set_position
from tests.consumer.leases.handoffs import key

NOTICE = 1.1
"""Seconds within which a worker notices a change: one scan interval, and the scan."""


def consumed(shards=1, workers=("a",), **options):
    """Return a fleet at rest that has processed some records of each shard."""
    fleet = Fleet(shards=shards, config=HORIZON)
    for name in workers:
        fleet.add(name, fleet.recorder(name, **options))
    fleet.run(15)
    for _ in range(4):
        fleet.put(10 * shards)
        fleet.run(2)
    assert fleet.all_delivered()
    return fleet


def positions(fleet, shard):
    """Return the positions of a shard's records in order of their first delivery."""
    found = [ExtendedSequenceNumber(number, sub) for _, of, _, number, sub in fleet.delivered if of == shard]
    return sorted(set(found))


def after(fleet, moment, what):
    return next(when for when, _, _, event in fleet.events if when >= moment and event == what)


# Changed from outside


@pytest.mark.parametrize("phase", range(7))
def test_a_rewind_is_noticed_in_the_next_scan_and_repeats_exactly_its_window(phase, caplog):
    fleet = consumed(checkpoint=True)
    before = Counter(fleet.data())
    numbers = positions(fleet, key(0))
    target = numbers[11]
    fleet.run(phase * 0.97)  # at any time between two renewals
    written_at = fleet.clock.monotonic()
    caplog.clear()
    set_position(fleet.store, key(0), target)
    fleet.run(5)
    assert after(fleet, written_at, "lease_lost") - written_at <= NOTICE
    assert after(fleet, written_at, "initialize") - written_at <= NOTICE + 0.2, "and taken again at once"
    again = [ExtendedSequenceNumber(number, sub) for _, _, _, number, sub in fleet.delivered[len(numbers) :]]
    assert again == [position for position in numbers if position > target]
    assert set(before.values()) == {1}
    assert fleet.store.get(key(0)).checkpoint == numbers[-1]
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any(f"checkpoint {numbers[-1]} became {target}" in text for text in warnings)


def test_a_change_during_a_call_never_makes_two_consumers():
    """The row is changed while the handler runs; the lease is taken again only after the call has ended."""
    fleet = Fleet(config=HORIZON)
    running = 0
    most = 0
    rewound = []

    def handle(batch):
        nonlocal running, most
        running += 1
        most = max(most, running)
        fleet.note("a", batch)
        if not rewound:
            rewound.append(set_position(fleet.store, key(0), ExtendedSequenceNumber(TRIM_HORIZON)))
            engine = fleet.engines["a"]
            fleet.clock.advance(1.5)
            engine.tick_table(fleet.clock.monotonic())  # the scan, on the thread of the table loop
            assert not list(engine.coordinator.held), "the lease is lost while the call runs"
            fleet.clock.advance(1.5)
            engine.tick_table(fleet.clock.monotonic())
            assert fleet.store.get(key(0)).counter == rewound[0].counter, "not taken yet"
        running -= 1

    fleet.put(5)
    fleet.add("a", handle)
    fleet.run(10)
    assert most == 1
    assert Counter(fleet.data()) == dict.fromkeys(fleet.sent, 2)
    assert fleet.store.get(key(0)).counter > rewound[0].counter


def test_a_change_of_one_row_costs_one_more_scan():
    fleet = on_dynamodb(4)
    fleet.add("a")
    fleet.run(60)
    calls = dict(fleet.aws.stats()["calls"])
    row = fleet.store.get(key(0))
    fleet.store._set(key(0), {"leaseCounter": {"N": str(row.counter + 2)}})
    fleet.run(30)
    more = {name: count - calls.get(name, 0) for name, count in fleet.aws.stats()["calls"].items()}
    assert more["Scan"] <= 30 * 62 / 60 + 2.5
    assert more.get("GetItem", 0) <= 1  # the test's own
    assert fleet.owners()[key(0)] == "a"


# Progress


def test_progress_is_written_with_renewals_and_checkpoints():
    fleet = Fleet(shards=1)
    fleet.add("a", fleet.recorder("a", checkpoint=False))
    fleet.run(10)
    progress = fleet.store.get(key(0)).current_progress
    assert progress == Progress(0, None, None, "a"), "at the tip, nothing processed, no call is running"
    fleet.put(5)
    put_at = fleet.clock.time() * 1000
    fleet.run(10)
    progress = fleet.store.get(key(0)).current_progress
    assert progress.last_arrival_millis == pytest.approx(put_at, abs=2)
    fleet.crash("a")
    fleet.add("b", fleet.recorder("b", checkpoint=False))
    assert fleet.run(20, lambda: fleet.owners()[key(0)] == "b")
    assert fleet.store.get(key(0)).progress is None, "that of the former owner is gone"
    fleet.run(8)
    assert fleet.store.get(key(0)).current_progress.owner == "b", "with the first renewal"


def test_progress_is_written_with_checkpoints_that_replace_renewals():
    fleet = Fleet(shards=1)
    fleet.add("a", fleet.recorder("a"))
    for _ in range(30):
        fleet.put(1)
        put_at = fleet.clock.time() * 1000
        fleet.run(1)
    row = fleet.store.get(key(0))
    assert row.counter > 25, "a checkpoint a second"
    assert row.current_progress.last_arrival_millis == pytest.approx(put_at - 1000, abs=2), (
        "the record of the running call is not processed yet"
    )


@pytest.mark.parametrize("concurrency", [1, 4])
def test_progress_tells_for_how_long_a_handler_has_been_running(concurrency):
    fleet = Fleet(config=UNHURRIED.with_fields(concurrency=concurrency))
    seen, lags = [], []

    def hangs(batch):
        if not seen:
            (held,) = fleet.engines["a"].coordinator.held
            for _ in range(3):
                fleet.clock.advance(6.5)
                held.renew()  # the thread that renews is not held up by the handler
                progress = fleet.store.get(key(0)).current_progress
                seen.append(progress.handler_millis)
                lags.append(progress.lag_millis)

    fleet.put(1)
    fleet.add("a", hangs)
    fleet.run(1)
    assert seen == [6500, 13000, 19500]
    assert lags == [pytest.approx(age, abs=1500) for age in seen], "its record is unprocessed, and grows old"
    fleet.run(10)
    assert fleet.store.get(key(0)).current_progress.handler_millis is None


def test_progress_tells_at_once_that_a_handler_fails_again_and_again():
    fleet = Fleet(config=UNHURRIED)
    calls = []

    def fails(batch):
        calls.append(fleet.clock.monotonic())
        raise KeyError("price")

    fleet.add("a", fails)
    fleet.run(20)
    fleet.put(1)
    assert fleet.run(30, lambda: len(calls) == 3)
    failing = fleet.store.get(key(0)).current_progress.failing
    assert (failing.attempts, failing.error) == (3, "KeyError: 'price'"), "and not with a renewal in seconds"


@pytest.mark.parametrize("lost", [True, False])
def test_what_happens_to_the_early_heartbeat_of_a_failing_handler(lost):
    fleet = Fleet(config=UNHURRIED)
    renew, refused = fleet.store.renew, []

    def renewal(lease):
        progress = lease.progress
        if progress is not None and progress.failing is not None and not refused:
            refused.append(progress)
            if lost:
                return Conflict(replace(lease, counter=lease.counter + 5, owner="b"))
            raise TransientLeaseStoreError("no answer")
        return renew(lease)

    fleet.store.renew = renewal

    def fails(batch):
        raise KeyError("price")

    fleet.add("a", fails)
    fleet.put(1)
    fleet.run(60)
    assert len(refused) == 1
    progress = fleet.store.get(key(0)).current_progress
    assert progress.failing.attempts > 3, "the next one tells it, or the next acquisition"


@pytest.mark.parametrize("callback", ["initialize", "process_records"])
def test_progress_tells_of_a_handler_that_does_not_begin_or_restarts(callback):
    fleet = Fleet(config=UNHURRIED)

    class Handler(RecordHandler):
        def initialize(self, context):
            if callback == "initialize" and fleet.clock.monotonic() < 60:
                raise OSError("no database")

        def process_records(self, batch):
            if fleet.clock.monotonic() < 60:
                raise RestartShardError("the child died")

    fleet.put(1)
    fleet.add("a", Handler)
    fleet.run(15)
    failing = fleet.store.get(key(0)).current_progress.failing
    assert failing.attempts >= 3
    assert 8_000 < failing.since_millis < 15_000
    assert (failing.records, failing.position) == (0, None)
    assert (
        failing.error
        == {
            "initialize": "initialize: OSError: no database",
            "process_records": "RestartShardError: the child died",
        }[callback]
    )
    fleet.run(100)
    assert fleet.store.get(key(0)).current_progress.failing is None


def poisoned(workers=("a",), **options):
    """Return a fleet whose handler fails on the third of five records, the position of that record, and what was set aside."""
    fleet = Fleet(config=UNHURRIED)
    dead = []
    fleet.config = fleet.config.with_fields(on_handler_error=RetryBatch(dead_letter=dead.append, **options))

    def handle(batch):
        for each in batch.records:
            if each.data == fleet.sent[2]:
                raise KeyError("price")
        fleet.processed.extend(each.data for each in batch.records)

    fleet.processed = []
    for name in workers:
        fleet.add(name, handle)
    fleet.put(5)
    fleet.run(40)
    failing = fleet.store.get(key(0)).current_progress.failing
    assert failing.records == 1
    return fleet, failing.position, dead


def test_an_operator_leaves_one_record_out_and_the_request_ends_with_its_checkpoint():
    fleet, position, dead = poisoned()
    assert fleet.processed == fleet.sent[:2]
    fleet.store.set_handler_request(key(0), HandlerRequest(HandlerVerb.LEAVE_OUT, "r1", position))
    fleet.run(3)
    assert fleet.processed == [*fleet.sent[:2], *fleet.sent[3:]], "all other records, each once"
    assert [(poison.record.data, str(poison.error)) for poison in dead] == [(fleet.sent[2], "'price'")]
    fleet.run(70)
    row = fleet.store.get(key(0))
    assert row.checkpoint > position
    assert (row.handler_request, row.current_progress.failing) == (None, None)


def test_the_next_owner_leaves_the_same_record_out():
    fleet, position, dead = poisoned(workers=("a", "b"))
    holder = fleet.store.get(key(0)).holder
    fleet.crash(holder)
    fleet.store.set_handler_request(key(0), HandlerRequest(HandlerVerb.LEAVE_OUT, "r1", position))
    fleet.run(80)
    assert [poison.record.data for poison in dead] == [fleet.sent[2]]
    row = fleet.store.get(key(0))
    assert (row.holder != holder, row.checkpoint > position, row.handler_request) == (True, True, None)


def test_a_record_is_left_out_of_a_sink_and_the_others_have_their_effect_once():
    fleet = Fleet(config=UNHURRIED)
    sink, dead = InMemorySink(), []
    fleet.more = {"sink": sink, "application_name": "app"}
    fleet.config = fleet.config.with_fields(on_handler_error=RetryBatch(dead_letter=dead.append))

    def handle(batch):
        batch.transaction.extend(each.data for each in batch.records)
        if any(each.data == fleet.sent[2] for each in batch.records):
            raise KeyError("price")

    fleet.add("a", handle)
    fleet.put(5)
    fleet.run(40)
    position = fleet.store.get(key(0)).current_progress.failing.position
    fleet.store.set_handler_request(key(0), HandlerRequest(HandlerVerb.LEAVE_OUT, "r1", position))
    fleet.run(5)
    fleet.put(1)
    fleet.run(30)
    assert sorted(sink.effects) == sorted({*fleet.sent} - {fleet.sent[2]}), "each once"
    assert [poison.record.data for poison in dead] == [fleet.sent[2]]
    row = fleet.store.get(key(0))
    assert (row.handler_request, row.checkpoint > position) == (None, True)


def test_a_record_that_was_left_out_comes_again_after_a_rewind():
    fleet, position, dead = poisoned()
    fleet.store.set_handler_request(key(0), HandlerRequest(HandlerVerb.LEAVE_OUT, "r1", position))
    fleet.run(80)
    assert len(dead) == 1
    set_position(fleet.store, key(0), ExtendedSequenceNumber(TRIM_HORIZON))
    fleet.run(30)
    assert fleet.store.get(key(0)).current_progress.failing.position == position
    assert len(dead) == 1


@pytest.mark.parametrize("callback", ["initialize", "process_records"])
def test_an_operator_has_the_next_attempt_made_now(callback):
    fleet = Fleet(config=HORIZON.with_fields(on_handler_error=RetryBatch(initial_delay=600, max_delay=600)))
    calls = []

    class Handler(RecordHandler):
        def initialize(self, context):
            if callback == "initialize":
                calls.append(fleet.clock.monotonic())
                raise OSError("no database")

        def process_records(self, batch):
            calls.append(fleet.clock.monotonic())
            raise KeyError("price")

    fleet.put(1)
    fleet.add("a", Handler)
    fleet.run(30)
    assert len(calls) == 1
    asked_at = fleet.clock.monotonic()
    fleet.store.set_handler_request(key(0), HandlerRequest(HandlerVerb.RETRY, "r1"))
    fleet.run(5)
    assert len(calls) == 2
    assert calls[1] - asked_at <= NOTICE
    assert fleet.store.get(key(0)).handler_request is None
    fleet.run(60)
    assert len(calls) == 2, "once"


def test_progress_adds_little_to_a_row():
    fleet = on_dynamodb(1)
    fleet.add("zone-a|web-7f6c9d-x2x8p:24:0123abcd")
    fleet.put(5)
    fleet.run(20)
    client = fleet.aws.client("dynamodb")
    item = client.get_item(TableName="app", Key={"leaseKey": {"S": key(0)}})["Item"]
    size = len("progress") + len(item["progress"]["S"])
    assert size <= 40 + len("zone-a|web-7f6c9d-x2x8p:24:0123abcd")


# Clean-up


def test_a_rewound_parent_is_read_again_and_cleaned_up_afterwards():
    fleet = Fleet(shards=1)
    fleet.add("a", fleet.recorder("a"))
    fleet.put(20)
    fleet.run(5)
    fleet.split()
    fleet.run(5)
    fleet.put(20)
    fleet.run(5)
    assert fleet.store.get(key(0)).checkpoint.sequence_number == SHARD_END
    set_position(fleet.store, key(0), ExtendedSequenceNumber(TRIM_HORIZON))
    fleet.run(400)
    counts = Counter(fleet.data())
    assert [counts[data] for data in fleet.sent] == [2] * 20 + [1] * 20
    assert sorted(fleet.owners()) == [key(1), key(2)]
    assert fleet.store.get(key(0)) is None, "finished again, and deleted"
