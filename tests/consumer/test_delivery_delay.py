"""Records that are delivered some time after their arrival, in virtual time."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.consumer import ConsumerConfig, FailureConfig, LeaseConfig, StreamSpec
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.shard.hold_back import HoldBack
from kinesis_sdk.consumer.streams import StreamDirectory
from tests.consumer.fleet.engines import STREAM, Fleet

DELAY = 24.0
LATE = 3.0
"""The clock of Kinesis is known up to a second, and a shard is read about once a second."""


class Waiting(Fleet):
    """A fleet that notes when each record arrived and when it was delivered, by the same clock."""

    def __init__(self, **config):
        config.setdefault("leases", LeaseConfig(lease_scan_interval=3.0))
        super().__init__(
            config=ConsumerConfig(initial_position="TRIM_HORIZON", delivery_delay=DELAY, **config)
        )
        self.put_at, self.came_at = {}, {}

    def put(self, number):
        begin = self.put_count
        super().put(number)
        self.put_at.update((b"%d" % one, self.clock.monotonic()) for one in range(begin, self.put_count))

    def note(self, name, batch):
        super().note(name, batch)
        for record in batch.records:
            self.came_at.setdefault(record.data, []).append(self.clock.monotonic())

    def waits(self):
        return [self.came_at[data][0] - self.put_at[data] for data in self.sent]

    def health(self, name="w1"):
        (found,) = self.engines[name].shard_health()
        return found


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_record_comes_early_and_none_more_than_seconds_late(concurrency):
    fleet = Waiting(concurrency=concurrency)
    fleet.add("w1")
    for _ in range(4):
        fleet.put(3)
        fleet.run(7)
    assert set(fleet.came_at) == set(fleet.sent[:3]), "only the first were due after 28 s"
    fleet.run(DELAY)
    assert all(DELAY <= wait <= DELAY + LATE for wait in fleet.waits()), fleet.waits()
    assert [data for _, _, data, _, _ in fleet.delivered] == fleet.sent or concurrency > 1
    assert all(len(times) == 1 for times in fleet.came_at.values())


def test_a_waiting_shard_is_neither_late_nor_stalled_and_checkpoints_nothing():
    fleet = Waiting(failure=FailureConfig(stall_timeout=5))
    fleet.add("w1")
    fleet.put(3)
    fleet.run(DELAY - 2)
    health = fleet.health()
    assert (health.oldest_unprocessed_millis, health.stall, health.last_error) == (0, None, None)
    assert health.checkpoint.is_sentinel
    (lease,) = fleet.store.list()
    assert lease.progress.delay_millis == DELAY * 1000
    fleet.run(6)
    assert len(fleet.delivered) == 3
    assert fleet.health().stall is None


def test_lag_counts_from_the_moment_at_which_a_record_is_due():
    fleet = Waiting()

    def fail(_batch):
        raise OSError("away")

    fleet.add("w1", fail)
    fleet.put(1)
    fleet.run(DELAY + 10)
    assert fleet.health().oldest_unprocessed_millis == pytest.approx(10_000, abs=3_000)


def test_a_stop_does_not_wait_and_the_next_owner_does():
    fleet = Waiting()
    fleet.add("w1")
    fleet.put(3)
    fleet.run(8)
    fleet.stop("w1")
    fleet.run(2)
    assert "w1" not in fleet.engines
    fleet.add("w2")
    fleet.run(DELAY)
    assert all(DELAY <= wait <= DELAY + LATE for wait in fleet.waits())
    assert {name for name, *_ in fleet.delivered} == {"w2#0"}


def test_records_that_wait_give_their_memory_to_other_shards(monkeypatch):
    """They are read again when they are due, in order and once."""
    monkeypatch.setattr(ByteBudget, "is_crowded", True)
    fleet = Waiting(failure=FailureConfig(stall_timeout=5))
    fleet.add("w1")
    fleet.put(3)
    fleet.run(DELAY - 4)
    ((consumer, _),) = fleet.engines["w1"]._consumers.values()
    assert consumer.progress.delivery.lanes.is_empty
    assert fleet.health().stall is None
    assert fleet.health().oldest_unprocessed_millis == 0
    fleet.run(8)
    assert [data for _, _, data, _, _ in fleet.delivered] == fleet.sent
    assert all(DELAY <= wait <= DELAY + LATE for wait in fleet.waits())


def test_without_arrival_times_nothing_is_known_to_be_early():
    assert HoldBack(60).released([UserRecord(b"", "k", "1")], ResponseHeader(), 5.0) == (1, 5.0)


@pytest.mark.parametrize("value", [-1, 31_536_001])
def test_the_delay_of_one_stream_is_checked(value):
    with pytest.raises(ConfigError, match="delivery_delay"):
        StreamSpec("s", delivery_delay=value)


def test_each_of_several_streams_may_have_its_own():
    fleet = Fleet()
    specs = [STREAM, StreamSpec(STREAM, delivery_delay=60, creation_epoch=5)]
    directory = StreamDirectory(
        ConsumerConfig(delivery_delay=7), fleet.kinesis, streams=specs, sleep=fleet.clock.advance
    )
    directory.refresh(first=True)
    assert [one.config.delivery_delay for one in directory.current()] == [7, 60]
