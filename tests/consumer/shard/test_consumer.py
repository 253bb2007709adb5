"""One shard under one lease, stepped by hand in virtual time."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from kinesis_sdk.common.errors import (
    HandlerError,
    InvalidCheckpointError,
    LeaseLostError,
    ProtocolError,
    ResourceNotFoundError,
    RestartShardError,
    ThrottledError,
)
from kinesis_sdk.common.hashkeys import HashKeyRange, hash_partition_key
from kinesis_sdk.common.position import (
    AfterSequence,
    AtSequence,
    AtTimestamp,
    Latest,
    TrimHorizon,
    iterator_start,
)
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard
from kinesis_sdk.consumer import Lease, RecordHandler, ShardState
from kinesis_sdk.consumer.fetch import FetchResult
from kinesis_sdk.consumer.shard.state import ShutdownReason
from tests.consumer.leases.held_lease import at
from tests.consumer.shard.consumer_scene import (
    AT_TIP,
    CHILD,
    END,
    ENDED,
    FULL,
    Restarting,
    Scene,
    Script,
    aggregate,
    got,
    plain,
    recorded,
    restarting,
)


def test_a_shard_from_its_beginning_to_its_end():
    scene = recorded(got(1, 2), got(), got(3, **ENDED), checkpoint=True)
    assert scene.consumer.state is ShardState.WAITING_ON_PARENTS
    assert scene.run() is None
    assert scene.events == ["initialize", "process", "process", "shard_ended"]
    assert scene.delivered == [b"1", b"2", b"3"]
    assert scene.consumer.state is ShardState.COMPLETE
    assert (scene.row.checkpoint, scene.row.owner, scene.row.child_shard_ids) == (END, None, ("c",))
    assert scene.store.get("c").checkpoint == ExtendedSequenceNumber(TRIM_HORIZON)
    assert scene.script.closed


def test_children_exist_before_the_parent_is_finished():
    scene = recorded(got(1, **ENDED))
    seen = []
    original = scene.store.checkpoint

    def checkpoint(lease, position):
        if position.is_shard_end:
            seen.append((scene.store.get("c") is not None, scene.row.child_shard_ids))
        return original(lease, position)

    scene.store.checkpoint = checkpoint
    assert scene.run() is None
    assert seen == [(True, ("c",))]


def test_the_context_of_a_resumed_shard():
    lease = Lease(
        lease_key="s",
        checkpoint=at(5, 1),
        pending_checkpoint=at(9),
        pending_checkpoint_state=b"x",
        hash_key_range=FULL,
    )
    scene = recorded(lease=lease)
    scene.run()
    context = scene.context
    assert (context.shard_id, context.worker_id, context.checkpoint) == ("s", "me", at(5, 1))
    assert (context.pending_checkpoint, context.pending_checkpoint_state) == (at(9), b"x")
    assert scene.opened == [AfterSequence("5", sub_sequence_number=1)]


def test_a_negative_sub_sequence_number_starts_at_exactly_that_record():
    """As in the Java KCL: an operator writes it, so that all of an aggregate is processed again."""
    lease = Lease(lease_key="s", checkpoint=at(5, -1), hash_key_range=FULL)
    scene = recorded(FetchResult(records=[aggregate(5, "a", "b")], header=AT_TIP), got(6), lease=lease)
    scene.run()
    assert scene.delivered == [b"5/0", b"5/1", b"6"]
    assert scene.opened == [AfterSequence("5", sub_sequence_number=-1)]
    assert iterator_start(scene.opened[0]) == AtSequence("5")


def test_a_stop_before_anything_was_delivered_keeps_the_inclusive_start():
    lease = Lease(lease_key="s", checkpoint=at(5, -1), hash_key_range=FULL)
    scene = recorded(lease=lease)
    scene.run(1)
    scene.consumer.request_stop()
    assert scene.run() is None
    assert scene.events == ["initialize", "shutdown_requested"]
    assert (scene.row.checkpoint, scene.row.owner) == (at(5, -1), None)


@pytest.mark.parametrize("position", [AT_TIMESTAMP, LATEST, TRIM_HORIZON])
def test_progress_inside_of_an_aggregate_is_kept_wherever_the_shard_was_begun(position):
    """A checkpoint is the pair, and it ends the pin: neither may leave something behind that filters the rest."""
    first = FetchResult(records=[aggregate(5, "a", "b", "c", "d")], header=AT_TIP, started_at_millis=9)
    scene = Scene(first, lease=row("s", position), initial_position=datetime(2026, 1, 2, tzinfo=timezone.utc))

    def handle(batch):
        batch.checkpoint(batch.records[0])
        batch.checkpoint(batch.records[2])  # the same sequence number, further on

    scene.use(handle)
    scene.config = replace(scene.config, auto_checkpoint=False)
    scene.run(0.5)
    assert (scene.row.checkpoint, scene.row.initial_timestamp_millis) == (at(5, 2), None)
    scene.take("other")
    scene.script = Script(first, got(6))
    scene.handler = scene.function
    scene.take("me")
    scene.run()
    assert scene.opened[-1] == AfterSequence("5", sub_sequence_number=2)
    assert scene.delivered == [b"5/3", b"6"]


def test_a_failure_in_the_last_batch_holds_up_the_shards_end():
    scene = Scene(got(1), got(2, 3, **ENDED))
    scene.errors = [None, RuntimeError("x"), RuntimeError("y")]
    assert scene.run(60) is None
    assert scene.delivered == [b"1", b"2", b"3"]
    assert scene.row.checkpoint == END


def test_a_last_answer_that_can_not_be_read_holds_up_the_shards_end():
    scene = Scene(got(1), ProtocolError("garbage"), got(2, 3, **ENDED))
    assert scene.run(60) is None
    assert scene.delivered == [b"1", b"2", b"3"]
    assert scene.row.checkpoint == END


def test_a_first_batch_that_is_all_old_is_skipped_whole():
    lease = Lease(lease_key="s", checkpoint=at(5, 3), hash_key_range=FULL)
    first = FetchResult(
        records=[aggregate(5, "a", "b", "c", "d")], header=ResponseHeader(millis_behind_latest=5)
    )
    scene = Scene(first, got(6), lease=lease)
    scene.run()
    assert scene.delivered == [b"6"]


@pytest.mark.parametrize("mode", ["deliver", "discard"])
def test_misplaced_aggregates(mode, caplog):
    low = HashKeyRange(0, 2**127 - 1)
    inside = [k for k in map(str, range(50)) if hash_partition_key(k) in low]
    outside = [k for k in map(str, range(50)) if hash_partition_key(k) not in low]
    records = [aggregate(1, *inside[:2]), aggregate(2, inside[0], outside[0]), *plain(3)]
    lease = Lease(lease_key="s", checkpoint=ExtendedSequenceNumber(TRIM_HORIZON), hash_key_range=low)
    scene = Scene(FetchResult(records=records, header=AT_TIP), lease=lease, misplaced_aggregates=mode)
    scene.run()
    discarded = [r.getMessage() for r in caplog.records if "discarding" in r.getMessage()]
    if mode == "deliver":
        assert scene.delivered == [b"1/0", b"1/1", b"2/0", b"2/1", b"3"]
        assert discarded == []
    else:
        assert scene.delivered == [b"1/0", b"1/1", b"3"]
        assert len(discarded) == 1
        assert "discarding aggregate 2" in discarded[0]


# Failing handlers


def test_no_checkpoint_passes_over_a_failed_batch():
    scene = recorded(got(1), got(2, 3), fail={})
    fails = {"process": 0}
    scene.use(scene.recorder(fail=fails))
    scene.run(0.5)
    fails["process"] = 1000
    scene.run(3)
    scene.consumer.request_stop()
    assert scene.run() is None
    assert scene.events[-1] == "shutdown_requested"
    # shutdown_requested checkpoints "everything": that is record 1, not the failed batch behind it.
    assert scene.row.checkpoint == at(1)
    assert scene.row.owner is None


def test_the_stop_policy_raises_with_the_cause():
    scene = Scene(got(1), on_handler_error="stop")
    cause = ValueError("poison")
    scene.errors = [cause]
    with pytest.raises(HandlerError, match=r"shard s: .*poison") as caught:
        scene.run()
    assert caught.value.__cause__ is cause
    scene.consumer.request_stop()
    assert scene.run() is None
    assert (scene.row.owner, scene.row.checkpoint.sequence_number) == (None, TRIM_HORIZON)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_handler_cannot_checkpoint_before_its_first_record(concurrency):
    scene = Scene(got(7, 8), concurrency=concurrency)
    refused = []

    def handle(batch):
        if not refused:
            with pytest.raises(InvalidCheckpointError) as caught:
                batch.checkpoint("0")
            refused.append(str(caught.value))

    scene.use(handle)
    scene.run(0.5)
    assert "7/0" in refused[0]
    assert scene.row.checkpoint.sequence_number in (TRIM_HORIZON, "8")


@pytest.mark.parametrize("callback", ["initialize", "shard_ended"])
def test_a_step_that_comes_early_does_not_repeat_a_failed_callback(callback):
    """A read that ends wakes the shard, whatever the shard waits for."""
    scene = recorded(got(1, **ENDED), fail={callback: 1})
    due = scene.run(0.05)
    assert due is not None
    for _ in range(5):
        assert scene.consumer.step(scene.clock.monotonic()) == due
    assert scene.events.count(callback) == 1
    scene.run(30)
    assert scene.events.count(callback) == 2
    assert scene.row.checkpoint == END


@pytest.mark.parametrize("callback", ["initialize", "shard_ended"])
def test_a_stop_does_not_wait_for_the_pause_after_a_failed_callback(callback):
    scene = recorded(got(1, **ENDED), fail={callback: 9})
    assert scene.run(0.05) is not None
    scene.consumer.request_stop()
    assert scene.run(0.0) is None
    assert scene.row.owner is None


def test_the_pause_after_a_failed_initialize_begins_at_its_end():
    scene = recorded(got(1), fail={"initialize": 1})
    recorder = scene.handler

    class Slow(recorder):
        def initialize(self, shard):
            scene.clock.advance(7)
            super().initialize(shard)

    scene.use(Slow)
    due = scene.run(0.0)
    assert due is not None
    assert due > scene.clock.monotonic()


def test_a_shard_end_without_a_checkpoint_is_an_error_that_repeats(caplog):
    scene = recorded(got(1, **ENDED), end=False)
    assert scene.run(20) is not None
    assert scene.events.count("shard_ended") > 2
    assert "without a checkpoint" in caplog.text
    assert not scene.row.is_finished
    scene.consumer.request_stop()
    assert scene.run() is None
    assert scene.row.owner is None
    assert not scene.row.is_finished


# A handler that asks for a restart


def test_a_restart_begins_at_the_checkpoint_with_a_new_handler(caplog):
    scene = restarting(got(1), got(2), got(3), got(1, 2, 3), got(4, **ENDED), process_records=1)
    assert scene.run(30) is None
    assert scene.events == [
        "new",
        "initialize at TRIM_HORIZON/0",
        [b"1"],
        [b"2"],
        [b"3"],
        "new",
        "initialize at 1/0",
        [b"2", b"3"],
        [b"4"],
        "shard_ended",
    ]
    assert list(map(iterator_start, scene.opened)) == [TrimHorizon(), AtSequence("1")]
    assert scene.row.checkpoint == END
    assert "again at checkpoint 1/0" in caplog.text


def test_a_new_handler_cannot_checkpoint_what_the_former_one_got():
    scene = restarting(got(1), got(2), got(3), process_records=1)
    scene.run(30)
    with pytest.raises(InvalidCheckpointError):
        scene.consumer._checkpointer.checkpoint("2")


def test_the_pause_begins_when_the_callback_has_failed_however_long_it_took():
    scene = restarting(got(3), got(3), process_records=1)
    error = RestartShardError("the child hangs")

    class Slow(Restarting):
        def process_records(self, batch):
            if self.failing.get("process_records"):
                scene.clock.advance(3)
            super().process_records(batch)

    failing = {"process_records": 1}
    scene.use(lambda: Slow(scene, failing, error))
    due = scene.run(0.01)
    assert due is not None
    assert due > scene.clock.monotonic()
    # A step that comes early, because a read ended, does not start the shard either.
    assert scene.consumer.step(scene.clock.monotonic()) == due
    assert scene.events.count("new") == 1


def test_restarts_without_progress_come_with_growing_pauses():
    scene = restarting(*[got(2, 3)] * 6, process_records=5)
    began = [scene.clock.monotonic()]
    failing = {"process_records": 5}
    scene.use(lambda: began.append(scene.clock.monotonic()) or Restarting(scene, failing))
    scene.run(120)
    pauses = [after - before for before, after in itertools.pairwise(began[1:])]
    assert len(pauses) == 5
    assert all(later > earlier for earlier, later in itertools.pairwise(pauses))
    assert scene.delivered[-2:] == [b"2", b"3"], "first in smaller calls, without a checkpoint between them"


def test_a_restart_at_the_start_or_at_the_shards_end():
    scene = restarting(got(1, **ENDED), got(**ENDED), got(**ENDED), initialize=2, shard_ended=2)
    assert scene.run(60) is None
    assert [event for event in scene.events if event != "new"] == [
        "initialize at TRIM_HORIZON/0",
        "initialize at TRIM_HORIZON/0",
        "initialize at TRIM_HORIZON/0",
        [b"1"],
        "shard_ended",
        "initialize at 1/0",
        "shard_ended",
        "initialize at 1/0",
        "shard_ended",
    ]
    assert scene.row.checkpoint == END


def test_a_stop_during_the_pause_releases_the_lease_without_callbacks():
    scene = restarting(got(3), process_records=1)
    due = scene.run(0.1)
    assert due is not None
    scene.consumer.request_stop()
    assert scene.run() is None
    assert scene.row.owner is None
    assert scene.events == ["new", "initialize at TRIM_HORIZON/0", [b"3"]]


def test_a_lease_that_is_lost_during_the_pause_is_not_reported_to_a_handler():
    scene = restarting(got(3), process_records=1)
    scene.run(0.1)
    scene.held.mark_lost("taken")
    assert scene.run() is None
    assert "lease_lost" not in scene.events


def test_a_restart_waits_for_the_calls_of_other_partition_keys():
    scene = Scene(
        FetchResult(records=[KinesisRecord(b"1", "a", "1"), KinesisRecord(b"2", "b", "2")], header=AT_TIP),
        got(1, 2),
    )
    running, calls, tasks = [], [], []

    def handle(batch):
        data = [record.data for record in batch.records]
        calls.append(data)
        if data == [b"2"]:
            raise RestartShardError("the child is gone")

    class Parallel(RecordHandler):
        concurrency = 2

        def initialize(self, shard):
            running.append("new")

        def process_records(self, batch):
            handle(batch)

    scene.use(Parallel, run_step=tasks.append)
    scene.run(1)
    assert len(tasks) == 2
    tasks[1]()  # fails, while the call of the other key has not even begun
    scene.run(2)
    assert running == ["new"]
    tasks[0]()
    scene.run(20)
    assert running == ["new", "new"]


# Batches without records


@pytest.mark.parametrize(
    ("wanted", "expected"), [(False, [[b"1"], [b"2"]]), (True, [[], [b"1"], [], [b"2"]])]
)
def test_empty_batches_are_delivered_to_a_handler_that_wants_them(wanted, expected):
    found = []

    class Handler(RecordHandler):
        empty_batches = wanted

        def process_records(self, batch):
            found.append([record.data for record in batch.records])
            batch.checkpoint()

    scene = Scene(got(), got(1), got(), got(2), got(**ENDED), handler=Handler)
    assert scene.run(30) is None
    assert found == expected
    assert scene.row.checkpoint == END


def test_a_failure_in_an_empty_batch_is_logged_and_loses_nothing(caplog):
    class Handler(RecordHandler):
        empty_batches = True

        def process_records(self, batch):
            if not batch.records:
                raise RuntimeError("no records")
            scene.delivered += [record.data for record in batch.records]

    scene = Scene(got(), got(1, **ENDED), handler=Handler)
    assert scene.run(30) is None
    assert scene.delivered == [b"1"]
    assert "no records" in caplog.text


# Losing and giving back


def test_a_lost_lease_ends_delivery():
    scene = recorded(got(1), got(2), got(3))
    scene.run(0.5)
    scene.take("other")
    with pytest.raises(LeaseLostError):
        scene.held.renew()
    assert scene.run() is None
    assert scene.events == ["initialize", "process", "lease_lost"]
    assert scene.consumer.reason is ShutdownReason.LEASE_LOST
    assert scene.row.owner == "other"


def test_a_lease_that_was_not_renewed_is_lost_by_its_holder():
    scene = recorded(*[got(n) for n in range(1, 30)])
    assert scene.run(30, renew=False) is None
    assert scene.events[-1] == "lease_lost"
    assert scene.clock.monotonic() <= 12
    assert scene.row.owner == "me"


def test_a_checkpoint_by_a_handler_that_lost_its_lease():
    scene = recorded(got(1), checkpoint=True)
    scene.take("other")
    assert scene.run() is None
    assert scene.events == ["initialize", "process", "lease_lost"]
    assert scene.row.checkpoint.sequence_number == TRIM_HORIZON


def test_a_clean_stop_checkpoints_and_releases():
    scene = recorded(got(1), got(2))
    scene.run(3)
    assert scene.row.checkpoint.sequence_number == TRIM_HORIZON
    scene.consumer.request_stop()
    assert scene.run() is None
    assert scene.events[-1] == "shutdown_requested"
    assert (scene.row.checkpoint, scene.row.owner) == (at(2), None)


def test_a_stop_before_the_start_calls_nothing():
    scene = recorded(got(1))
    scene.consumer.request_stop()
    assert scene.run() is None
    assert scene.events == []
    assert scene.row.owner is None


def test_lease_lost_is_stronger_than_a_stop():
    scene = recorded(got(1))
    scene.run(0.5)
    scene.take("other")
    scene.consumer.request_stop()
    assert scene.run() is None
    # shutdown_requested ran and its checkpoint found the lease gone
    assert scene.events[-1] == "lease_lost"
    assert scene.consumer.reason is ShutdownReason.LEASE_LOST


@pytest.mark.parametrize("failures", [1, 3, 6])
def test_a_release_that_fails_is_repeated(failures, caplog):
    scene = recorded(got(1))
    scene.run(0.5)
    scene.consumer.request_stop()
    scene.store.script = [None] + ["throttle"] * failures  # the checkpoint of the stop, then releases
    assert scene.run(9, renew=False) is None
    assert scene.store.script == []
    assert scene.row.owner is None
    assert "will expire" not in caplog.text


@pytest.mark.parametrize("renew", [True, False])
def test_a_release_that_keeps_failing_is_left_to_expire(renew, monkeypatch):
    scene = recorded(got(1))
    scene.run(0.5)

    def throttled(lease):
        raise ThrottledError("slow down", operation="UpdateItem")

    monkeypatch.setattr(scene.store, "release", throttled)
    scene.consumer.request_stop()
    began = scene.clock.monotonic()
    assert scene.run(60, renew=renew) is None
    assert scene.row.owner == "me"
    assert scene.held.gone is not None
    assert scene.events.count("shutdown_requested") == 1
    assert 8 < scene.clock.monotonic() - began <= 12, "the failover time, whether or not renewals succeed"


def test_a_release_that_is_refused_is_not_repeated(caplog):
    scene = recorded(got(1))
    scene.run(0.5)
    scene.consumer.request_stop()
    scene.store.script = [None, "refuse", "refuse"]
    assert scene.run(0.1) is None
    assert scene.row.owner == "me"
    assert scene.store.script == ["refuse"]
    assert "to expire" in caplog.text


# Plain functions


def test_returning_means_processed():
    scene = Scene(got(1), got(2), checkpoint_interval=10.0)
    scene.run(9)
    assert scene.row.checkpoint.sequence_number == TRIM_HORIZON
    scene.run(3)
    assert scene.row.checkpoint == at(2)
    writes = scene.store.writes
    scene.run(2.5, renew=False)
    assert scene.store.writes == writes, "nothing new, nothing written"


def test_a_failed_automatic_checkpoint_is_repeated():
    scene = Scene(got(1), checkpoint_interval=1.0, checkpoint_timeout=0.0)
    scene.run(0.5)
    scene.store.script = ["throttle", "throttle"]
    scene.run(6)
    assert scene.row.checkpoint == at(1)
    assert scene.held.gone is None


# Parents, start positions, pins


def row(key, checkpoint, **more):
    return Lease(lease_key=key, checkpoint=ExtendedSequenceNumber(checkpoint), **more)


def test_a_child_waits_for_its_parents():
    lease = row("s", TRIM_HORIZON, parent_shard_ids=("p", "q", "gone"))
    scene = recorded(got(1), lease=lease, rows=[row("p", SHARD_END), row("q", "77")])
    scene.run(20)
    assert scene.consumer.is_waiting_on_parents
    assert scene.events == []
    parent = scene.store.get("q")
    scene.store.checkpoint(parent, END)
    scene.run(3)
    assert scene.events == ["initialize", "process"]


def test_a_child_waits_while_its_parents_row_can_not_be_read():
    scene = recorded(got(1), lease=row("s", TRIM_HORIZON, parent_shard_ids=("p",)))
    read, scene.store.get = scene.store.get, lambda key: unreadable(key) if key == "p" else read(key)
    scene.run(20)
    assert scene.consumer.is_waiting_on_parents
    assert "item p" in scene.consumer.progress.last_error
    scene.store.get = read
    scene.run(20)
    assert scene.events == ["initialize", "process"]


def unreadable(key):
    raise ProtocolError(f"lease table app: item {key} is no lease")


@pytest.mark.parametrize(
    ("parents", "pinned", "expected"),
    [
        ((), None, Latest()),
        ((), 5000, AtTimestamp(5000)),
        (("gone",), None, Latest()),
        (("p",), None, TrimHorizon()),
    ],
)
def test_latest_starts(parents, pinned, expected):
    lease = row("s", LATEST, parent_shard_ids=parents, initial_timestamp_millis=pinned)
    scene = Scene(lease=lease, rows=[row("p", SHARD_END)])
    scene.run()
    assert scene.opened == [expected]


def test_latest_is_pinned_before_the_first_delivery():
    scene = Scene(got(1, started_at_millis=123_000), lease=row("s", LATEST))
    pins = []

    def handle(batch):
        pins.append(scene.row.initial_timestamp_millis)
        batch.checkpoint()

    scene.use(handle)
    scene.store.script = ["throttle", "after"]  # the pin itself may fail at first
    scene.run(10)
    assert pins == [123_000]
    assert scene.row.initial_timestamp_millis is None, "the checkpoint makes it pointless"
    assert scene.row.checkpoint == at(1)


def test_an_idle_latest_start_is_pinned_too():
    scene = Scene(got(started_at_millis=123_000), lease=row("s", LATEST))
    scene.run(3)
    assert scene.row.initial_timestamp_millis == 123_000
    scene.take("other")
    scene.take("me")
    scene.run(3)
    assert scene.opened == [Latest(), AtTimestamp(123_000)]


def test_timestamp_starts_come_from_the_pin_else_from_the_configuration():
    """Java stores no instant; where there is one, it is the one from which the shard was read before."""
    moment = datetime(2026, 1, 2, tzinfo=timezone.utc)
    millis = int(moment.timestamp() * 1000)
    scene = Scene(got(), lease=row("s", AT_TIMESTAMP), initial_position=moment)
    scene.run(1)
    assert scene.opened == [AtTimestamp(millis)]
    assert scene.row.initial_timestamp_millis == millis
    later = Scene(lease=row("s", AT_TIMESTAMP, initial_timestamp_millis=777), initial_position=moment)
    later.run(1)
    assert later.opened == [AtTimestamp(777)]
    assert later.row.initial_timestamp_millis == 777
    other = Scene(lease=row("s", AT_TIMESTAMP, initial_timestamp_millis=777))
    other.run(1)
    assert other.opened == [AtTimestamp(777)]
    unknown = Scene(lease=row("s", AT_TIMESTAMP))
    unknown.run(1)
    assert unknown.opened == []
    assert unknown.consumer.is_quarantined
    assert "initial_position" in unknown.consumer.progress.last_error


def test_a_finished_lease_is_given_back_untouched():
    scene = recorded(lease=row("s", SHARD_END))
    assert scene.run() is None
    assert scene.events == []
    assert (scene.row.checkpoint, scene.row.owner) == (END, None)


def test_a_merge_waits_for_the_lease_of_the_other_parent():
    merged = Shard("c", FULL, "s", "t")
    scene = recorded(got(1, ended=True, child_shards=(merged,)), listed=["s", "t"])
    scene.run(10)
    assert scene.syncs > 1
    assert not scene.row.is_finished
    scene.store.create_if_absent(row("t", TRIM_HORIZON))
    assert scene.run(10) is None
    assert scene.row.checkpoint == END


# Failing reads


def test_passing_failures_are_repeated_and_logged_once(caplog):
    caplog.set_level(logging.WARNING)
    scene = Scene(*[ThrottledError("slow", operation="GetRecords")] * 8, got(1))
    scene.run(30)
    assert scene.delivered == [b"1"]
    assert sum("; retrying" in r.getMessage() for r in caplog.records) == 1
    assert scene.consumer.progress.last_error is None


def test_a_shard_that_left_the_stream_is_finished_without_children(caplog):
    scene = recorded(
        got(1), ResourceNotFoundError("no such shard", operation="GetShardIterator"), listed=["t"]
    )
    assert scene.run() is None
    assert scene.events == ["initialize", "process", "shard_ended"]
    assert scene.row.checkpoint == END
    assert "no longer listed" in caplog.text
    assert scene.syncs == 1, "what follows it has to be found"


def test_children_of_a_shard_that_left_the_stream_are_created_at_its_end():
    scene = recorded(got(1), ResourceNotFoundError("no such shard", operation="GetRecords"))
    scene.listed = [CHILD, Shard("x", FULL)]
    assert scene.run() is None
    assert (scene.row.checkpoint, scene.row.child_shard_ids) == (END, ("c",))
    assert scene.store.get("c").checkpoint == ExtendedSequenceNumber(TRIM_HORIZON)


@pytest.mark.parametrize("listed", [["s"], ["s", "t"], ["r"], []], ids="".join)
def test_a_shard_that_did_not_expire_and_is_not_found_is_tried_again(listed):
    """A listing may be behind: a new shard is not yet in it. What expired is older than something in it."""
    scene = Scene(ResourceNotFoundError("no such shard", operation="GetShardIterator"), got(1), listed=listed)
    scene.run(10)
    assert not scene.row.is_finished
    assert scene.delivered == [b"1"]


# Answers with many user records


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_answer_with_many_user_records_is_delivered_in_parts(monkeypatch, concurrency):
    """Six aggregates, each with 3,200 bytes of memory beside their own; a batch is full with 5,000."""
    monkeypatch.setattr("kinesis_sdk.consumer.shard.reader._MAX_OVERHEAD", 5_000)
    monkeypatch.setattr("kinesis_sdk.consumer.shard.reader._PART_BYTES", 100)
    records = [aggregate(number, *["k"] * 50) for number in range(1, 7)]
    charged, done, sizes = [], [], []
    answer = FetchResult(
        records=records,
        header=replace(AT_TIP, **ENDED),
        charge=charged.append,
        on_done=lambda: done.append(len(charged)),
    )

    def handle(batch):
        sizes.append(len(batch.records))
        scene.function(batch)

    scene = Scene(answer, handler=handle, concurrency=concurrency)
    assert scene.run() is None
    assert scene.delivered == [b"%d/%d" % (number, index) for number in range(1, 7) for index in range(50)]
    assert scene.row.is_finished
    assert charged[-1] == 0
    assert done == [len(charged)], "given back once, at the end"
    if concurrency == 1:
        assert sizes == [100, 100, 100]
        assert max(charged) == 6_400
    else:
        assert max(charged) >= 6_400 + 100 * 512


def test_a_shard_that_is_left_in_the_middle_of_an_answer_gives_it_back_once(monkeypatch):
    monkeypatch.setattr("kinesis_sdk.consumer.shard.reader._MAX_OVERHEAD", 1)
    monkeypatch.setattr("kinesis_sdk.consumer.shard.reader._PART_BYTES", 100)
    done = []
    answer = FetchResult(
        records=[aggregate(number, *["k"] * 50) for number in range(1, 4)],
        header=AT_TIP,
        on_done=lambda: done.append(True),
    )

    def handle(batch):
        scene.function(batch)
        scene.consumer.request_stop()

    scene = Scene(answer, handler=handle)
    assert scene.run() is None
    assert len(scene.delivered) == 50
    assert scene.row.checkpoint == ExtendedSequenceNumber("1", 49)
    assert done == [True]


def test_a_call_that_was_given_up_gives_its_records_back_when_it_ends():
    ends, done = [], []

    def run_async(awaitable, on_done):
        awaitable.close()
        ends.append(on_done)

    async def handle(batch):
        pass

    scene = Scene(got(1, 2, on_done=lambda: done.append(True)))
    scene.use(handle, run_async=run_async)
    scene.run()
    assert len(ends) == 1
    scene.consumer.abandon("its call runs for too long")
    now = scene.clock.monotonic()
    assert scene.consumer.step(now) == float("inf")
    assert done == [], "the call still holds them"
    ends[0](None)
    assert scene.consumer.step(now) is None
    assert done == [True]
    assert scene.consumer.step(now) is None
    assert done == [True], "given back once"
