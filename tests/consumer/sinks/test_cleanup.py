"""Rows of finished shards in a sink: how long they stay, and that nothing is repeated or skipped because one is gone."""

from __future__ import annotations

import logging
import threading

import pytest

from kinesis_sdk.common.errors import SinkError
from kinesis_sdk.consumer import RecordHandler
from kinesis_sdk.consumer.shard_sync.cleanup import plan_forgotten
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.consumer.sinks.sink import SinkKey
from tests.consumer.fleet.engines import HORIZON, STREAM
from tests.consumer.sinks.coroutines import AsyncMemory
from tests.consumer.sinks.house import House

# What a worker does for other reasons, it does rarely: more than a day passes.
RARELY = {
    "idle_time_between_reads": 1800.0,
    "failover_time": 3600.0,
    "lease_scan_interval": 1200.0,
    "shard_sync_interval": 1800.0,
    "lease_cleanup_interval": 1800.0,
}
CONFIG = HORIZON.with_fields(**RARELY)


def shard_id(number):
    return f"shardId-{number:012}"


def rows(house):
    return sorted(int(key.lease_key.rpartition("-")[2]) for key in house.sink.rows)


def split_house(**options):
    house = House(config=CONFIG, **options)
    house.add("w1")
    house.put_and_run(5, 1200)
    house.fleet.split()
    house.put_and_run(10, 2 * 3600)
    assert house.fleet.store.get(shard_id(0)) is None, "the lease is deleted"
    assert rows(house) == [0, 1, 2]
    return house


def test_a_row_goes_after_its_shard_has_gone_from_the_stream_and_not_before():
    house = split_house()
    house.fleet.run(20 * 3600)
    assert rows(house) == [0, 1, 2], "the stream has the shard, so its lease could come back"
    house.fleet.run(4 * 3600)
    assert rows(house) == [1, 2]
    house.put_and_run(10, 3600)
    assert house.data == sorted(house.fleet.sent, key=house.data.index)
    assert sorted(house.data) == sorted(house.fleet.sent)


@pytest.mark.parametrize("hours", [2, 30])
def test_a_lost_lease_table_repeats_nothing_whether_the_row_is_there_or_gone(hours):
    """With the row gone too early, the shard would be read again from its beginning."""
    house = split_house()
    house.fleet.run(hours * 3600)
    house.fleet.stop("w1")
    house.fleet.run(60)
    assert (0 in rows(house)) == (hours == 2)
    for lease in house.fleet.store.list():
        house.fleet.store.delete(lease.lease_key)
    house.add("w2")
    house.put_and_run(10, 3600)
    assert sorted(house.data) == sorted(house.fleet.sent)


def test_a_child_that_begins_late_does_not_wait_for_a_row_that_is_gone():
    """It was restored to its beginning, say: its parent's row is gone, and a missing one counts as ended."""
    house = split_house()
    house.fleet.run(30 * 3600)
    assert rows(house) == [1, 2]
    del house.sink.rows[SinkKey("totals", STREAM, shard_id(1))]
    house.fleet.stop("w1")
    house.fleet.run(60)
    house.fleet.store.delete(shard_id(1))
    house.add("w2")
    house.put_and_run(10, 3600)
    assert set(house.data) == set(house.fleet.sent)


def test_rows_that_are_not_ended_and_rows_of_others_stay():
    house = split_house()
    ended = house.sink.rows[SinkKey("totals", STREAM, shard_id(0))]
    others = [
        SinkKey("others", STREAM, shard_id(0)),
        SinkKey("totals", "payments", shard_id(0)),
        SinkKey("totals", STREAM, f"123456789012:{STREAM}:1:{shard_id(0)}"),
    ]
    for key in others:
        house.sink.rows[key] = ended
    house.sink.rows[SinkKey("totals", STREAM, shard_id(0))] = type(ended)(ended.position, ended.fence)
    house.fleet.run(30 * 3600)
    assert rows(house) == [0, 0, 0, 0, 1, 2]


def test_one_listing_is_not_enough():
    """ListShards may lag behind, or a proxy may answer with an old listing."""
    house = split_house()
    engine = house.fleet.engines["w1"]
    positions = engine.coordinator._positions
    listed = positions._list_readable
    answers = iter([{shard_id(9)}])
    positions._list_readable = lambda tracked: next(answers, None) or listed(tracked)
    house.fleet.run(6 * 3600)
    assert next(answers, None) is None
    assert rows(house) == [0, 1, 2]
    positions._list_readable = lambda tracked: {shard_id(9)}
    house.fleet.run(2 * 3600)
    assert rows(house) == [1, 2], "those with leases stay in any case"


@pytest.mark.parametrize("error", [SinkError("access denied"), ZeroDivisionError("a bug")])
def test_a_sink_whose_clean_up_fails_stops_no_worker(error, caplog):
    class Denied(InMemorySink):
        def lease_keys(self, application, stream):
            raise error

    house = split_house(sink=Denied())
    house.fleet.run(30 * 3600)
    house.put_and_run(5, 3600)
    assert sorted(house.data) == sorted(house.fleet.sent)
    assert rows(house) == [0, 1, 2]
    assert str(error) in caplog.text
    assert house.fleet.engines["w1"].error is None


def test_a_sink_without_the_methods_keeps_its_rows():
    class Plain:
        def __init__(self):
            self.rows, self.effects = (inner := InMemorySink()).rows, inner.effects
            for name in (
                "max_records",
                "serves_coroutines",
                "ensure_ready",
                "read",
                "write",
                "begin",
                "translate",
            ):
                setattr(self, name, getattr(inner, name))

    house = split_house(sink=Plain())
    house.fleet.run(30 * 3600)
    assert rows(house) == [0, 1, 2]


def test_with_leases_that_are_kept_the_rows_are_kept():
    config = CONFIG.with_fields(cleanup_leases_upon_shard_completion=False)
    house = House(config=config)
    house.add("w1")
    house.put_and_run(5, 1200)
    house.fleet.split()
    house.put_and_run(10, 30 * 3600)
    assert rows(house) == [0, 1, 2]


def test_a_sink_with_coroutines(caplog):
    caplog.set_level(logging.INFO)
    sink = AsyncMemory()
    sink.rows = sink.inner.rows
    sink.effects = sink.inner.effects

    async def lease_keys(application, stream):
        return sink.inner.lease_keys(application, stream)

    async def delete_ended(key):
        return sink.inner.delete_ended(key)

    sink.lease_keys, sink.delete_ended = lease_keys, delete_ended

    class Handler(RecordHandler):
        async def process_records(self, batch):
            batch.transaction.extend(("w1", record.data) for record in batch.records)

    house = House(config=CONFIG, sink=sink)
    house.add("w1", Handler)
    house.put_and_run(5, 1200)
    house.fleet.split()
    house.put_and_run(10, 30 * 3600)
    assert rows(house) == [1, 2]
    assert "deleted its position in the sink" in caplog.text


def test_a_sink_that_hangs_holds_up_one_check_only():
    house = split_house()
    positions = house.fleet.engines["w1"].coordinator._positions
    jobs, calls = [], []
    positions._runtime = type("Runtime", (), {"run_step": lambda self, job: jobs.append(job)})()
    positions._sink = type("Sink", (), {"lease_keys": lambda *args: calls.append(args) or []})()
    positions.start()
    positions.start()
    assert len(jobs) == 1, "one check at a time"
    positions._runtime.run_async = None
    thread = threading.Thread(target=jobs[0])
    thread.start()
    thread.join(60)
    positions.start()
    assert len(jobs) == 2
    assert len(calls) == 1


def test_which_shards_are_forgotten():
    assert plan_forgotten({"a", "b", "z"}, {"b", "c"}) == {"a"}, "z is newer than the listing"
    assert plan_forgotten({"a"}, set()) == set(), "a stream without shards was just created"
