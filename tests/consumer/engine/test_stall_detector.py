"""Every stall is reported, and a shard that cannot be read does not affect the others."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from kinesis_sdk.common.errors import LeaseLostError
from kinesis_sdk.common.metrics import NOT_MEASURED
from kinesis_sdk.common.once.reader import RunReader
from kinesis_sdk.common.once.table import REPEAT, Run
from kinesis_sdk.common.sequence import AT_TIMESTAMP, SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer import (
    ConsumerConfig,
    InMemoryLeaseStore,
    Lease,
    RecordHandler,
    RetrievalConfig,
    ShardState,
)
from kinesis_sdk.consumer.leases.table.transitions import checkpointed
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from kinesis_sdk.consumer.shard import reader as reader_module
from kinesis_sdk.consumer.shard.bad_position import Quarantine
from kinesis_sdk.testing import Fault
from tests import HANG
from tests.common.once.streams import aggregate
from tests.consumer.fleet.engines import STREAM, UNHURRIED, Fleet, never_ending
from tests.consumer.leases.held_lease import hold
from tests.consumer.leases.rows import put_row

PARENT = "shardId-000000000000"
CONFIG = UNHURRIED.with_fields(stall_timeout=30.0)


def stalls(caplog):
    return [r.getMessage() for r in caplog.records if "stalled" in r.getMessage()]


def test_failing_reads_are_reported_and_restarted_where_they_stopped(caplog):
    fleet = Fleet(config=CONFIG)
    fleet.put(5)
    engine = fleet.add("a", fleet.recorder("a", checkpoint=False))
    fleet.run(10)
    fleet.put(5)
    fleet.aws.faults.add(Fault(kind="error", operation="GetRecords", code="InternalFailure"))
    fleet.run(70)
    (health,) = engine.shard_health()
    assert health.stall.seconds > 30
    assert "InternalFailure" in health.stall.problem
    assert f"{PARENT}: stalled: TransientAwsError" in stalls(caplog)[0]
    opened = fleet.aws.stats()["calls"]["GetShardIterator"]
    assert opened >= 2, "another iterator"
    fleet.aws.faults.clear()
    fleet.run(20)
    assert fleet.data() == fleet.sent
    assert engine.shard_health()[0].stall is None


class OnThreads:
    """A fleet of one whose steps run on threads, as a pool runs them; time stays in the test's hands."""

    def __init__(self, handler, **config):
        self.fleet = Fleet(config=CONFIG.with_fields(**config))
        self.fleet.put(3)
        self.threads = []
        self.stuck = []
        stuck = self.stuck

        class Counting(InlineRuntime):
            def replace_stuck_thread(self, pool):
                if pool == "steps":
                    stuck.append(1)

        self.fleet.runtime = Counting
        self.engine = self.fleet.add("a", handler)
        original = self.engine.scheduler.add
        self.engine.scheduler.add = lambda step, run=None: original(step, run or self.on_a_thread)

    def on_a_thread(self, function):
        self.threads.append(threading.Thread(target=function))
        self.threads[-1].start()

    def run(self, seconds, until=lambda: False):
        """Run all loops every half second; threads get real time to finish."""
        for _ in range(int(seconds * 2)):
            self.fleet.clock.advance(0.5)
            now = self.fleet.clock.monotonic()
            self.engine.renew(now)
            self.engine.tick_table(now)
            self.engine.scheduler.dispatch(now)
            pause = threading.Event()
            for _ in range(200):
                if until() or not self.busy():
                    break
                pause.wait(0.001)
            if until():
                return True
        return until()

    def busy(self):
        """Whether a step is under way that is not a handler which hangs."""
        hanging = sum(c.progress.running_callback is not None for c, _ in self.engine._consumers.values())
        return sum(thread.is_alive() for thread in self.threads) > hanging + len(self.stuck)

    def close(self):
        for thread in self.threads:
            thread.join(HANG)


def test_a_handler_that_hangs_is_reported_and_not_called_again(caplog):
    calls = []
    leave = threading.Event()

    def handle(batch):
        calls.append(len(batch.records))
        leave.wait(HANG)

    scene = OnThreads(handle)
    try:
        assert scene.run(30, lambda: bool(calls))
        scene.run(120)
        (health,) = scene.engine.shard_health()
        assert "process_records" in str(health.stall)
        assert not health.stall.reading
        assert "process_records" in stalls(caplog)[0]
        assert calls == [3]
        assert scene.stuck == []
    finally:
        leave.set()
        scene.close()


def test_the_lease_of_a_hung_handler_is_released_after_handler_timeout(caplog):
    """The shard restarts with a new handler, and the writes of the old call are rejected."""
    leave, late = threading.Event(), []

    class Handler(RecordHandler):
        def process_records(self, batch):
            handlers.append((self, [record.data for record in batch.records]))
            if len(handlers) > 1:
                batch.checkpoint()
                return
            leave.wait(HANG)
            try:
                batch.checkpoint()
            except LeaseLostError as error:
                late.append(error)

        def lease_lost(self):
            late.append("lease_lost")

    handlers = []
    scene = OnThreads(Handler, handler_timeout=90.0)
    try:
        assert scene.run(30, lambda: len(handlers) == 1)
        scene.run(85)
        assert len(handlers) == 1
        assert scene.run(60, lambda: len(handlers) == 2)
        (first, data), (second, again) = handlers
        assert first is not second
        assert data == again == scene.fleet.sent
        assert scene.stuck == [1], "its thread is replaced"
        assert scene.run(5, lambda: not scene.fleet.store.list()[0].checkpoint.is_sentinel)
        assert "exceeded handler_timeout" in caplog.text
        leave.set()
        scene.stuck.clear()
        scene.run(5)
        assert [str(one) for one in late] and isinstance(late[0], LeaseLostError)
        assert "lease_lost" not in late, "its shard is in other hands since long"
        assert scene.engine.records_delivered == 3
        scene.engine.request_stop()
        assert scene.run(10, lambda: scene.engine.is_stopped)
        assert scene.engine.error is None
    finally:
        leave.set()
        scene.close()


@pytest.mark.parametrize("work", ["deaggregate", "look_up", "decide"])
def test_a_shard_that_computes_for_long_says_so(work, caplog, monkeypatch):
    """It is not said to read nothing, and reading again would only repeat the work."""
    fleet = Fleet(config=CONFIG.with_fields(failover_time=600.0))
    engine = fleet.add("a")
    fleet.run(5)
    seen = []

    def slowly(original):
        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            if not seen:
                fleet.clock.advance(90)
                seen.append(engine.shard_health()[0].stall)
                engine._stall_detector.check(
                    [c for c, _ in engine._consumers.values()], fleet.clock.monotonic()
                )
            return result

        return call

    if work == "deaggregate":
        monkeypatch.setattr(reader_module, work, slowly(reader_module.deaggregate))
    else:
        monkeypatch.setattr(RunReader, work, slowly(getattr(RunReader, work)))
        now = int(fleet.clock.time() * 1000)
        runs = [Run(2, 4, REPEAT, b"producer", now - 1000, 7)]
        fleet.raw.put_record(StreamName=STREAM, PartitionKey="a", Data=aggregate(runs, PARENT))
    fleet.put(3)
    opened = fleet.aws.stats()["calls"]["GetShardIterator"]
    assert fleet.run(10, lambda: bool(seen))
    assert engine.shard_health()[0].stall is None, "it has made progress, also if a look-up follows"
    fleet.run(20)
    (stall,) = seen
    assert stall is not None
    assert stall.problem.startswith("computing: ")
    assert (stall.seconds, stall.reading) == (90, False)
    assert "stalled: computing: " in stalls(caplog)[0]
    assert "(90 s)" in stalls(caplog)[0]
    looked_up = 0 if work == "deaggregate" else 2
    assert fleet.aws.stats()["calls"]["GetShardIterator"] - opened <= looked_up, "the read is not restarted"
    assert set(fleet.sent) <= set(fleet.data())


# Quarantine


def damage(fleet, key, sequence):
    row = fleet.store.get(key)
    put_row(fleet.store, checkpointed(row, ExtendedSequenceNumber(sequence)))


def test_a_damaged_checkpoint_quarantines_its_shard_only(caplog):
    fleet = Fleet(shards=2, config=CONFIG)
    fleet.add("a")
    fleet.run(5)
    fleet.put(20)
    fleet.run(15)
    fleet.stop("a")
    fleet.run(5)
    bad, good = "shardId-000000000000", "shardId-000000000001"
    right = fleet.store.get(bad).checkpoint
    damage(fleet, bad, "9" * 56)
    fleet.put(20)
    engine = fleet.add("b")
    fleet.run(60)
    health = {shard.shard_id: shard for shard in engine.shard_health()}
    assert engine.error is None
    assert (health[bad].quarantined, health[good].quarantined) == (True, False)
    assert health[bad].state is ShardState.PROCESSING
    assert "quarantined" in health[bad].last_error
    errors = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert 2 <= len(errors) <= 6, "repeated with growing pauses"
    assert f"shard {bad}: quarantined" in errors[0].getMessage()
    assert fleet.store.get(bad).owner == "b", "no other worker takes it"
    assert {data for _, shard, data, _, _ in fleet.delivered if shard == good} <= set(fleet.sent)
    assert not fleet.all_delivered()
    # An operator repairs the row; the counter does not change.
    put_row(fleet.store, replace(fleet.store.get(bad), checkpoint=right))
    assert fleet.run(700, fleet.all_delivered)
    assert not engine.shard_health()[0].quarantined
    fleet.check_order()
    fleet.put(10)
    fleet.run(30)
    assert fleet.store.get(bad).checkpoint > right
    assert len(fleet.data()) == len(set(fleet.data()))


@pytest.mark.parametrize("repair", ["instant", "checkpoint", "configuration"])
def test_a_missing_timestamp_quarantines_its_shard_only(repair, caplog):
    """A Java worker wrote AT_TIMESTAMP, whose instant is in its configuration and nowhere else."""
    fleet = Fleet(shards=2, config=CONFIG)
    fleet.put(20)
    bad, good = "shardId-000000000000", "shardId-000000000001"
    before = fleet.add("before")
    before.abort()
    fleet.crash("before")
    put_row(fleet.store, replace(fleet.store.get(bad), checkpoint=ExtendedSequenceNumber(AT_TIMESTAMP)))
    engine = fleet.add("a")
    fleet.run(30)
    assert engine.error is None
    health = {shard.shard_id: shard for shard in engine.shard_health()}
    assert (health[bad].quarantined, health[good].quarantined) == (True, False)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) <= 4
    assert bad in errors[0]
    assert "initial_position" in errors[0]
    assert "initialTimestampMillis" in errors[0]
    assert {shard for _, shard, *_ in fleet.delivered} == {good}
    row = fleet.store.get(bad)
    if repair == "instant":
        put_row(fleet.store, replace(row, initial_timestamp_millis=1000))
    elif repair == "checkpoint":
        put_row(fleet.store, replace(row, checkpoint=ExtendedSequenceNumber("TRIM_HORIZON")))
    else:
        fleet.stop("a")
        knowing = replace(CONFIG, initial_position=datetime(2001, 9, 10, tzinfo=timezone.utc))
        fleet.run(5)
        fleet.add("knowing", config=knowing)
    assert fleet.run(700, fleet.all_delivered)
    assert sorted(fleet.data()) == sorted(fleet.sent), "nothing twice"


def test_a_quarantined_row_that_is_repaired_to_shard_end_ends_its_shard_only():
    """An operator gives up what is left of a shard. The end of a shard has no iterator."""
    fleet = Fleet(shards=2, config=CONFIG)
    fleet.put(20)
    bad = "shardId-000000000000"
    fleet.add("before").abort()
    fleet.crash("before")
    put_row(fleet.store, replace(fleet.store.get(bad), checkpoint=ExtendedSequenceNumber(AT_TIMESTAMP)))
    fleet.split(0)
    engine = fleet.add("a")
    fleet.run(30)
    assert bad in engine.coordinator.held.keys()  # noqa: SIM118 - not a mapping
    put_row(fleet.store, replace(fleet.store.get(bad), checkpoint=ExtendedSequenceNumber(SHARD_END)))
    fleet.run(60)
    assert engine.error is None
    assert bad not in engine.coordinator.held.keys()  # noqa: SIM118 - not a mapping
    assert not engine.is_stopping
    assert bad not in {shard for _, shard, *_ in fleet.delivered}
    fleet.put(20)
    fleet.run(60)
    assert {shard for _, shard, *_ in fleet.delivered} == {f"shardId-00000000000{n}" for n in (1, 2, 3)}


@pytest.mark.parametrize(
    "repair", [{"initial_timestamp_millis": 5}, {"checkpoint": ExtendedSequenceNumber("5")}, {}]
)
def test_a_repaired_row_is_accepted_before_any_write_shows_it(repair):
    """DynamoDB does not tell a renewal what else is new on the row."""
    store = InMemoryLeaseStore([Lease(lease_key="s", checkpoint=ExtendedSequenceNumber(AT_TIMESTAMP))])
    taken = store.take(store.get("s"), "a")
    held = hold(store, taken)
    quarantine = Quarantine(
        SimpleNamespace(store=store, log=lambda logger, shard_id: logger), held, NOT_MEASURED
    )
    put_row(store, replace(taken, **repair))
    quarantine.accept_repair()
    assert held.lease == taken, "not in quarantine"
    quarantine.active = True
    quarantine.accept_repair()
    assert held.lease == replace(taken, **repair)


def test_a_stop_does_not_write_over_a_repaired_row():
    fleet = Fleet(config=CONFIG)
    fleet.add("a", fleet.recorder("a"))
    fleet.put(20)
    fleet.run(15)
    fleet.stop("a")
    fleet.run(5)
    key = "shardId-000000000000"
    right = fleet.store.get(key).checkpoint
    damage(fleet, key, "9" * 56)
    fleet.add("b")
    fleet.run(15)
    put_row(fleet.store, replace(fleet.store.get(key), checkpoint=right))
    fleet.run(8)  # a heartbeat has seen it, the next check is not due
    fleet.stop("b")
    fleet.run(5)
    assert fleet.store.get(key).checkpoint == right


# What else shows only in a whole worker


@pytest.mark.parametrize(
    ("is_class", "auto", "expected"), [(True, True, True), (True, None, False), (False, False, False)]
)
def test_automatic_checkpoints(is_class, auto, expected):
    fleet = Fleet(config=ConsumerConfig(initial_position="TRIM_HORIZON", auto_checkpoint=auto))
    fleet.put(5)
    fleet.add("a", fleet.recorder("a", checkpoint=False) if is_class else None)
    fleet.run(12)
    assert fleet.store.get("shardId-000000000000").is_started is expected


def test_automatic_checkpoints_by_records():
    config = ConsumerConfig(initial_position="TRIM_HORIZON", checkpoint_records=10, checkpoint_interval=3600)
    fleet = Fleet(config=config)
    fleet.add("a")
    fleet.put(9)
    fleet.run(5)
    assert not fleet.store.get("shardId-000000000000").is_started
    fleet.put(1)
    fleet.run(5)
    assert fleet.store.get("shardId-000000000000").is_started


def test_coroutine_callbacks_of_a_class():
    fleet = Fleet()
    events = []

    class Handler(RecordHandler):
        async def initialize(self, shard):
            events.append("initialize")

        async def process_records(self, batch):
            fleet.note("a", batch)
            batch.checkpoint()

        async def shard_ended(self, checkpointer):
            events.append("shard_ended")
            checkpointer.checkpoint()

        async def shutdown_requested(self, checkpointer):
            events.append("shutdown_requested")

    fleet.add("a", Handler)
    fleet.put(10)
    fleet.run(5)
    fleet.split()
    fleet.put(10)
    assert fleet.run(30, fleet.all_delivered)
    fleet.run(5)
    fleet.stop("a")
    fleet.run(5)
    assert events[0] == "initialize"
    assert events.count("shard_ended") == 1
    assert events.count("shutdown_requested") == 2
    assert len(fleet.data()) == 20


def test_a_rejected_batch_returns_its_memory_to_the_budget():
    config = ConsumerConfig(
        initial_position="TRIM_HORIZON", retrieval=RetrievalConfig(max_prefetch_bytes=1024 * 1024)
    )
    fleet = Fleet(shards=3, config=config)
    bad = "shardId-000000000000"
    refused = []
    refusing = []

    def handle(batch):
        if batch.shard_id == bad and refusing:
            refused.append(batch.records[0].sequence_number)
            raise RuntimeError("no")
        fleet.note("a", batch)

    engine = fleet.add("a", handle)
    fleet.put(30)
    assert fleet.run(9, fleet.all_delivered)
    fleet.delivered.clear()
    fleet.sent.clear()
    refusing.append(True)
    fleet.put(60)
    fleet.run(60)
    assert {shard for _, shard, _, _, _ in fleet.delivered} == {
        "shardId-000000000001",
        "shardId-000000000002",
    }
    assert len(set(refused)) == 1, "always from the same record on"
    refusing.clear()
    assert fleet.run(120, fleet.all_delivered)
    fleet.check_order()
    assert len(fleet.data()) == 60, "nothing twice"
    assert engine._budget.used < 1024 * 1024


def test_abandoned_calls_return_their_budget_when_they_end():
    ends = []

    async def handle(batch):
        pass

    fleet = Fleet(config=CONFIG.with_fields(handler_timeout=60.0))
    fleet.runtime = never_ending(ends)
    fleet.put(3)
    engine = fleet.add("a", handle)
    assert fleet.run(20, lambda: len(ends) == 1)
    one = engine._budget.used
    assert fleet.run(300, lambda: len(ends) == 3)
    assert engine._budget.used == 3 * one, "calls that were given up still hold their records"
    ends[0](None)
    ends[1](None)
    fleet.run(2)
    assert len(ends) == 3
    assert engine._budget.used == one
    ends[2](None)
    fleet.run(2)
    assert engine._budget.used == 0
