"""How the sink, the lease and the fence work together, one rule each, in virtual time."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from kinesis_sdk.common.errors import (
    ConfigError,
    SinkError,
    TransientSinkError,
)
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import BisectBatch, ConsumerConfig, RecordHandler, Worker
from kinesis_sdk.consumer.leases.table.attributes import CHANGED_BY
from kinesis_sdk.consumer.shard.state import ShardState
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.consumer.sinks.operations import set_position
from kinesis_sdk.consumer.sinks.sink import SinkRow
from tests.consumer.fleet.engines import UNHURRIED
from tests.consumer.sinks.house import KEY, SHARD, House


@pytest.mark.parametrize("place", ["begin", "end"])
@pytest.mark.parametrize("successor_commits", [True, False])
def test_a_worker_that_was_frozen_through_a_take_over_cannot_commit(place, successor_commits):
    """Without a commit of the successor the position is still the old one: the fence alone stops the frozen worker."""
    house = House()
    house.put_and_run(5, 0)
    seen = {}

    def hook(name, where, batch):
        if name == "w1" and where == place and not seen:
            seen["before"] = house.row
            house.fleet.freeze("w1", 61)
            house.add("w2")
            house.fleet.run(60)
            seen["after"], seen["owner"] = house.row, house.lease.owner
        if name == "w1" and where == "end":
            seen["w1 ends"] = [record.data for record in batch.records]
        if name == "w2" and not successor_commits and where == "begin" and "woken" not in seen:
            raise RuntimeError("the successor cannot process the batch yet")

    house.hook = hook
    house.add("w1")
    house.fleet.run(1, lambda: "w1 ends" in seen)
    assert seen["w1 ends"] == house.fleet.sent, "the frozen worker went on to its commit"
    assert seen["owner"] == "w2"
    assert (seen["after"].position is not None) == successor_commits
    assert "w1" not in {name for name, _ in house.sink.effects}
    assert seen["after"].fence > seen["before"].fence
    seen["woken"] = True
    house.fleet.run(60)
    assert house.sink.effects == [("w2", data) for data in house.fleet.sent]


def test_the_position_of_the_sink_decides_and_lease_checkpoints_are_rare():
    house = House()
    house.add("w1")
    for _ in range(20):
        house.put_and_run(5, 5)
    assert house.data == house.fleet.sent
    behind = house.lease.checkpoint
    assert behind < house.row.position, "the last minute is not in the lease yet"
    house.fleet.crash("w1")
    house.add("w2")
    house.put_and_run(5, 60)
    assert house.data == house.fleet.sent


def test_a_clean_stop_brings_the_lease_up_to_date():
    house = House()
    house.add("w1")
    house.put_and_run(5, 5)
    house.fleet.stop("w1")
    house.fleet.run(5)
    assert house.lease.checkpoint == house.row.position
    assert house.lease.owner is None


def test_a_checkpoint_before_the_first_commit_stores_what_an_earlier_owner_committed():
    """The lease is still at its start, and the sink is not."""
    house = House()
    house.add("w1")
    house.put_and_run(5, 5)
    position = house.row.position
    assert house.lease.checkpoint.is_sentinel
    house.fleet.crash("w1")
    stored = []

    def handle(batch):
        batch.checkpoint()
        stored.append(batch.checkpointer.last_checkpoint)
        batch.transaction.extend(("w2", record.data) for record in batch.records)

    house.add("w2", handle)
    house.put_and_run(5, 60)
    assert stored[0] == position
    assert house.data == house.fleet.sent


@pytest.mark.parametrize("when", ["hook", "commit"])
def test_a_record_is_set_aside_in_the_transaction_that_moves_past_it(when):
    """Whatever the moment at which the worker loses the shard, the record is set aside once."""
    tried = []

    def keep(poison):
        poison.transaction.append((f"aside by attempt {len(tried)}", poison.record.data))
        tried.append(poison.record.data)
        if len(tried) == 1 and when == "hook":
            raise OSError("the hook fails once")
        if len(tried) == 1:  # another worker takes the shard before the commit
            house.fleet.freeze("w1", 61)
            house.add("w2")
            house.fleet.run(60)

    house = House(config=replace(UNHURRIED, on_handler_error=BisectBatch(dead_letter=keep)))

    def hook(name, where, batch):
        if where == "end" and any(record.data == b"3" for record in batch.records):
            raise ValueError("poison")

    house.hook = hook
    house.fleet.put(4)
    house.add("w1")
    house.fleet.run(120)
    assert len(tried) == 2
    assert house.data == house.fleet.sent
    assert [name for name, data in house.sink.effects if data == b"3"] == ["aside by attempt 1"]


class FailingSink(InMemorySink):
    """Fails in one of its calls for a while."""

    failing: str | None = None
    error: Exception = TransientSinkError("the database is away")

    def _check(self, call):
        if self.failing == call:
            raise self.error

    def read(self, key):
        self._check("read")
        return super().read(key)

    def write(self, key, seen, row):
        self._check("write")
        return super().write(key, seen, row)

    def begin(self, key, seen):
        self._check("begin")
        return super().begin(key, seen)

    def change(self, key, seen, row, effects):
        if effects:
            self._check("commit")
        return super().change(key, seen, row, effects)


@pytest.mark.parametrize("policy", ["retry", "stop"])
@pytest.mark.parametrize("call", ["read", "write", "begin", "commit"])
def test_a_sink_that_fails_for_a_moment_stops_no_worker(call, policy):
    house = House(config=UNHURRIED.with_fields(on_handler_error=policy), sink=FailingSink())
    house.sink.failing = call
    house.add("w1")
    house.put_and_run(5, 20)
    assert house.data == []
    assert "is away" in house.errors("w1")[0]
    house.sink.failing = None
    house.fleet.run(60)
    assert house.data == house.fleet.sent
    assert house.errors("w1") == [None]


@pytest.mark.parametrize("call", ["read", "begin"])
def test_a_sink_that_fails_for_good_stops_the_worker(call):
    house = House(sink=FailingSink())
    house.sink.failing, house.sink.error = call, SinkError("no such table")
    house.add("w1")
    with pytest.raises(SinkError, match="no such table"):
        house.put_and_run(5, 60)


def test_the_end_of_a_shard_is_in_the_sink_before_it_is_in_the_lease():
    house = House()
    ended = []

    class Handler(RecordHandler):
        def process_records(self, batch):
            batch.transaction.extend(("w1", record.data) for record in batch.records)

        def shard_ended(self, checkpointer):
            ended.append((house.row.ended, checkpointer.last_checkpoint.is_shard_end))
            if len(ended) > 1:
                checkpointer.checkpoint()  # at the first call, its worker dies in between

    house.add("w1", Handler)
    house.put_and_run(5, 5)
    house.fleet.split()
    house.fleet.run(10, lambda: bool(ended))
    house.fleet.crash("w1")
    house.add("w2", Handler)
    house.put_and_run(5, 120)
    assert ended == [(True, False), (True, False)]
    assert house.lease is None or house.lease.is_finished
    assert sorted(house.data) == sorted(house.fleet.sent)


def test_children_wait_for_their_parents_end_in_a_sink_that_went_back(caplog):
    """The database is restored from a backup; the lease table says that the parent is finished."""
    house = House()
    house.add("w1")
    house.put_and_run(5, 5)
    backup = (list(house.sink.effects), dict(house.sink.rows))
    house.put_and_run(5, 5)
    house.fleet.split()
    house.fleet.run(10)
    assert house.lease.is_finished
    house.fleet.crash("w1")
    house.sink.effects, house.sink.rows = backup
    house.add("w2")
    house.put_and_run(5, 60)
    assert house.sink.effects == backup[0]
    (child, _) = house.fleet.engines["w2"].shard_health()
    assert child.state is ShardState.WAITING_ON_PARENTS
    assert f"parent {SHARD} has ended" in child.last_error
    assert "leases rewind" in caplog.text

    house.change_lease(checkpoint=backup[1][KEY].position, owner=None)
    house.fleet.run(120)
    assert sorted(house.data) == sorted(house.fleet.sent), "the rest of the parent, then its children"


def test_a_sink_that_was_restored_continues_where_its_effects_end(caplog):
    house = House()
    house.add("w1")
    house.put_and_run(5, 5)
    backup = (list(house.sink.effects), dict(house.sink.rows))
    house.put_and_run(5, 5)
    house.fleet.stop("w1")
    house.fleet.run(5)
    house.sink.effects, house.sink.rows = backup
    house.add("w2")
    house.put_and_run(5, 10)
    assert house.data == house.fleet.sent
    assert "is beyond the sink's position" in caplog.text


def test_a_sink_that_is_new_starts_at_the_lease(caplog):
    house = House()
    house.fleet.more = {}
    house.fleet.add("before")
    house.put_and_run(5, 30)
    house.fleet.stop("before")
    house.fleet.run(5)
    house.fleet.more = {"sink": house.sink, "application_name": "totals"}
    house.add("w1")
    house.put_and_run(5, 30)
    assert house.data == house.fleet.sent[5:]
    assert "no position" in caplog.text


@pytest.mark.parametrize("forward", [False, True])
def test_an_operator_who_moves_the_lease_moves_nothing_and_is_told(caplog, forward):
    house = House()
    house.add("w1")
    house.put_and_run(5, 5)
    first = house.row.position
    house.put_and_run(5, 90)
    position = house.row.position
    numbers = ExtendedSequenceNumber(str(int(position.sequence_number) + 10**6))
    house.change_lease(checkpoint=numbers if forward else first, extra={CHANGED_BY: {"S": "anna:7"}})
    house.fleet.run(30)
    house.put_and_run(5, 60)
    assert house.data == house.fleet.sent, "nothing is skipped, and nothing happens again"
    assert ("is beyond the sink's position" if forward else "an operator (anna:7)") in caplog.text


def test_a_lease_table_that_was_deleted(caplog):
    """Counters begin again below the fence: a renewal proves that the acquisition is the present one."""
    house = House()
    house.add("w1")
    house.put_and_run(5, 600)
    fence = house.row.fence
    house.fleet.crash("w1")
    house.fleet.store.delete(SHARD)
    house.sink.rows[KEY] = replace(house.row, fence=fence + 1000)
    house.add("w2")
    house.put_and_run(5, 60)
    assert house.data == house.fleet.sent
    assert house.row.fence == fence + 1001
    assert "lease table was replaced" in caplog.text


def test_latest_is_pinned_until_the_first_commit():
    house = House(config=ConsumerConfig(initial_position="LATEST"))
    house.put_and_run(3, 10)  # a pin is the second at which the tip was read
    fails = [True]

    def hook(name, where, batch):
        if fails[0]:
            raise RuntimeError("no")

    house.hook = hook
    house.add("w1")
    house.fleet.run(10)
    house.put_and_run(4, 10)
    assert house.row == SinkRow(None, house.row.fence)
    house.fleet.crash("w1")
    house.fleet.put(4)
    fails[0] = False
    house.add("w2")
    house.fleet.run(60)
    assert house.data == house.fleet.sent[3:]


def test_at_timestamp_is_the_start_until_the_first_commit():
    house = House()
    house.put_and_run(3, 100)
    since = datetime.fromtimestamp(house.fleet.clock.time(), timezone.utc) - timedelta(seconds=50)
    house.fleet.config = ConsumerConfig(initial_position=since)
    house.put_and_run(4, 0)
    house.add("w1")
    house.fleet.run(30)
    house.fleet.crash("w1")
    house.fleet.config = ConsumerConfig(initial_position=since + timedelta(days=1))
    house.add("w2")
    house.put_and_run(4, 60)
    assert house.data == house.fleet.sent[3:]


def test_checkpoints_of_the_lease_cannot_be_left_to_the_handler():
    """They follow the sink's position; without them, a sink that lost its data would start at the beginning."""
    with pytest.raises(ConfigError, match="auto_checkpoint"):
        Worker(
            "orders",
            application_name="totals",
            handler=print,
            sink=InMemorySink(),
            config=ConsumerConfig(auto_checkpoint=False),
        )


def test_an_operator_sets_position_and_effects_together_while_the_worker_runs():
    house = House()
    house.add("w1")
    house.put_and_run(5, 5)
    first = house.row.position
    house.put_and_run(5, 5)

    def forget(handle):
        del house.sink.effects[5:]
        handle.append(("operator", b"was here"))

    row = set_position(house.sink, KEY, first, forget)
    assert (house.row, row.position) == (row, first)
    house.put_and_run(5, 60)
    assert house.sink.effects[5] == ("operator", b"was here")
    assert [data for name, data in house.sink.effects if name == "w1"] == house.fleet.sent


def test_an_operator_fences_the_worker_even_if_the_position_stays():
    """Otherwise the effects of a transaction that is under way would be added to what the operator has left."""
    sink = InMemorySink()
    row = SinkRow(ExtendedSequenceNumber("7"), 3)
    assert sink.write(KEY, None, row)
    transaction = sink.begin(KEY, row)
    transaction.handle.append("of the worker")
    changed = set_position(sink, KEY, row.position, lambda handle: handle.append("of the operator"))
    assert changed == sink.read(KEY) == replace(row, fence=4)
    assert not transaction.commit(replace(row, position=ExtendedSequenceNumber("9")))
    assert sink.effects == ["of the operator"]


def test_an_operator_who_fails_changes_nothing():
    house = House()
    house.add("w1")
    house.put_and_run(5, 5)
    before = house.row

    def fail(handle):
        handle.append("no")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        set_position(house.sink, KEY, before.position, fail)
    with pytest.raises(SinkError, match="position for totals"):
        set_position(house.sink, KEY._replace(lease_key="none"), before.position, fail)

    def race(_handle):
        assert house.sink.write(KEY, before, replace(before, fence=before.fence + 5))

    with pytest.raises(SinkError, match="changed meanwhile"):
        set_position(house.sink, KEY, before.position, race)
    assert house.data == house.fleet.sent


def test_partition_keys_cannot_be_processed_at_once():
    with pytest.raises(ConfigError, match="concurrency"):
        Worker(
            "orders",
            application_name="totals",
            handler=print,
            sink=InMemorySink(),
            config=ConsumerConfig(concurrency=2),
        )

    class Handler(RecordHandler):
        concurrency = 2

        def process_records(self, batch):
            pass

    house = House()
    house.add("w1", Handler)
    with pytest.raises(ConfigError, match="concurrency"):
        house.put_and_run(5, 30)


@pytest.fixture(autouse=True)
def _log_level(caplog):
    caplog.set_level(logging.WARNING, logger="kinesis_sdk")


def test_a_start_waits_for_a_sink_that_is_away_for_a_moment():
    class Starting(InMemorySink):
        failures = 4

        def ensure_ready(self):
            if self.failures:
                self.failures -= 1
                raise TransientSinkError("the database is starting")

    house = House(sink=Starting())
    house.add("w1")
    house.put_and_run(5, 30)
    assert house.data == house.fleet.sent

    house.sink.failures = 10**9
    with pytest.raises(TransientSinkError, match="starting"):
        house.add("w2")
