"""Starting position of a shard: the lease's checkpoint, or a position of the handler's own."""

from __future__ import annotations

import logging
from datetime import datetime, timezone

import pytest

from kinesis_sdk.common.error_policy import BisectBatch
from kinesis_sdk.common.errors import InvalidCheckpointError, InvalidPositionError, RestartShardError
from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Latest, TrimHorizon
from kinesis_sdk.common.sequence import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from kinesis_sdk.consumer import ConsumerConfig, Lease, RecordHandler
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.fetch.fetcher import FetchResult
from kinesis_sdk.consumer.shard.start import resolve_start
from tests.consumer.leases.held_lease import at
from tests.consumer.shard.consumer_scene import AT_TIP, ENDED, Scene, aggregate, got

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NOON_MILLIS = 1_769_860_800_000


def leased(checkpoint, **more):
    position = (
        checkpoint if isinstance(checkpoint, ExtendedSequenceNumber) else ExtendedSequenceNumber(checkpoint)
    )
    return Lease(lease_key="s", checkpoint=position, **more)


def resolved(lease, requested=None, *, follows_parent=False):
    return resolve_start(lease, ConsumerConfig(), requested, follows_parent=follows_parent)


@pytest.mark.parametrize(
    ("requested", "position", "through"),
    [
        (at(7, 3), AfterSequence("7", sub_sequence_number=3), at(7, 3)),
        ("7", AfterSequence("7", sub_sequence_number=0), at(7)),
        (at(7, -1), AfterSequence("7", sub_sequence_number=-1), at(7, -1)),
        ("TRIM_HORIZON", TrimHorizon(), None),
        (ExtendedSequenceNumber(TRIM_HORIZON), TrimHorizon(), None),
        ("LATEST", Latest(), None),
        (NOON, AtTimestamp(NOON_MILLIS), None),
    ],
)
def test_a_requested_position_replaces_the_checkpoint(requested, position, through):
    for lease in (leased(at(100)), leased(TRIM_HORIZON), leased(AT_TIMESTAMP)):
        assert resolved(lease, requested) == (position, through, False)


@pytest.mark.parametrize(
    "requested",
    [
        "soon",
        "",
        "SHARD_END",
        "AT_TIMESTAMP",
        ExtendedSequenceNumber(SHARD_END),
        NOON.replace(tzinfo=None),
        7,
        b"7",
    ],
)
def test_a_malformed_position_is_rejected(requested):
    with pytest.raises(InvalidPositionError, match="starting_position"):
        resolved(leased(at(100)), requested)


def test_latest_loses_nothing_at_a_reshard():
    assert resolved(leased(at(100)), "LATEST", follows_parent=True).position == TrimHorizon()
    assert resolved(leased(LATEST), "LATEST", follows_parent=True).position == TrimHorizon()


def test_latest_of_a_lease_at_latest_is_the_same_start_and_pinned():
    pinned = leased(LATEST, initial_timestamp_millis=5_000)
    assert resolved(pinned, "LATEST") == (AtTimestamp(5_000), None, True)
    assert resolved(leased(LATEST), "LATEST") == (Latest(), None, True)
    assert resolved(leased(TRIM_HORIZON, initial_timestamp_millis=5_000), "LATEST").position == Latest()


class Own(Scene):
    """A scene whose handler keeps its own positions."""

    def __init__(self, *results, start, checkpoints=True, poison=None, **more):
        scene = self
        self.asked = []
        self.start = start

        class Handler(RecordHandler):
            def starting_position(self, shard):
                scene.asked.append(shard)
                start = scene.start
                if isinstance(start, list):
                    start = start.pop(0)
                if isinstance(start, Exception):
                    raise start
                return start

            def initialize(self, shard):
                scene.events.append("initialize")
                assert scene.asked, "asked before"

            def process_records(self, batch):
                if scene.errors and (error := scene.errors.pop(0)) is not None:
                    raise error
                data = [record.data for record in batch.records]
                if poison in data:
                    raise ValueError(poison)
                scene.delivered += data
                if checkpoints:
                    batch.checkpoint()

        super().__init__(*results, handler=Handler, **more)


def test_records_before_the_checkpoint_are_redelivered_and_it_never_decreases():
    scene = Own(got(5, 6, 7), got(8, 9), start="5", lease=leased(at(7)))
    scene.run()
    assert scene.opened == [AfterSequence("5", sub_sequence_number=0)]
    assert scene.delivered == [b"6", b"7", b"8", b"9"]
    assert scene.row.checkpoint == at(9)
    assert scene.asked[0].checkpoint == at(7)


def test_checkpoints_write_nothing_until_delivery_has_passed_the_old_one():
    scene = Own(got(5, 6), start="TRIM_HORIZON", lease=leased(at(7)))
    counter = scene.row.counter
    scene.run(renew=False)
    assert scene.delivered == [b"5", b"6"]
    assert (scene.row.checkpoint, scene.row.counter) == (at(7), counter)
    checkpointer = scene.consumer._checkpointer
    assert (checkpointer.delivered, checkpointer.largest_delivered) == (at(6), at(7))
    with pytest.raises(InvalidCheckpointError):
        checkpointer.checkpoint("6")


def test_a_batch_before_the_checkpoint_that_fails_is_retried_whole():
    """Its records are below the checkpoint, but nothing says that this handler has processed them."""
    scene = Own(got(5, 6), got(8), start="4", lease=leased(at(7)))
    scene.errors = [RuntimeError("no"), RuntimeError("no")]
    scene.run(30)
    assert scene.delivered == [b"5", b"6", b"8"]
    assert scene.row.checkpoint == at(8)


def test_bisection_before_the_checkpoint_isolates_the_record():
    letters = []
    policy = BisectBatch(dead_letter=lambda poison: letters.append(poison.record.data), attempts=1)
    scene = Own(got(4, 5, 6), start="3", poison=b"5", lease=leased(at(7)), on_handler_error=policy)
    scene.run(60)
    assert (scene.delivered, letters) == ([b"4", b"6"], [b"5"])
    assert scene.row.checkpoint == at(7)


def test_a_position_after_the_checkpoint_skips_and_says_so(caplog):
    caplog.set_level(logging.INFO)
    scene = Own(got(9, 10), start=at(9), lease=leased(at(7)))
    scene.run()
    assert scene.delivered == [b"10"]
    assert "in between are skipped" in caplog.text


def test_a_position_inside_an_aggregate():
    records = [aggregate(5, "a", "b", "c", "d")]
    for start, expected in ((at(5, 1), [b"5/2", b"5/3"]), ("5", [b"5/1", b"5/2", b"5/3"])):
        scene = Own(FetchResult(records=records, header=AT_TIP), start=start)
        scene.run()
        assert scene.delivered == expected


def test_none_is_the_checkpoint_of_the_lease():
    scene = Own(got(7, 8), start=None, lease=leased(at(7)))
    scene.run()
    assert scene.delivered == [b"8"]
    assert len(scene.asked) == 1


def test_an_unpinned_latest_lease_stays_unpinned():
    """The lease's own start was not used, so there is no timestamp to remember for it."""
    scene = Own(got(8, started_at_millis=9_000), start="7", checkpoints=False, lease=leased(LATEST))
    scene.run()
    assert scene.delivered == [b"8"]
    assert scene.row.checkpoint == ExtendedSequenceNumber(LATEST)
    assert scene.row.initial_timestamp_millis is None


def test_the_end_of_the_shard_is_checkpointed_as_always():
    scene = Own(got(5, 6, **ENDED), start="4", checkpoints=False, lease=leased(at(6)))
    assert scene.run() is None
    assert scene.delivered == [b"5", b"6"]
    assert scene.row.is_finished


def test_an_error_is_subject_to_the_policy():
    scene = Own(got(8), start=[RuntimeError("store is down"), ConnectionError(), "7"])
    scene.run(30)
    assert scene.delivered == [b"8"]
    assert len(scene.asked) == 3
    assert scene.events == ["initialize"]


def test_a_malformed_position_quarantines_and_the_handler_is_asked_again():
    scene = Own(got(8), start=["nonsense", "7"])
    scene.run(5)
    assert scene.consumer.is_quarantined
    assert scene.consumer.held.gone is None, "the lease is kept"
    assert "starting_position 'nonsense'" in scene.consumer.progress.last_error
    assert (scene.delivered, scene.events) == ([], [])
    scene.run(20)
    assert scene.delivered == [b"8"]
    assert not scene.consumer.is_quarantined
    assert len(scene.asked) == 2


def test_a_position_that_the_shard_does_not_have_is_asked_for_again():
    def bad():
        return InvalidPositionError("not of this shard")

    scene = Own(bad(), got(8), start=["99", "7"])
    scene.run(5)
    assert scene.consumer.is_quarantined
    scene.run(60)
    assert scene.opened == [
        AfterSequence("99", sub_sequence_number=0),
        AfterSequence("7", sub_sequence_number=0),
    ]
    assert scene.delivered == [b"8"]


def test_a_coroutine_may_name_the_position():
    class Handler(RecordHandler):
        async def starting_position(self, shard):
            return "7"

        async def process_records(self, batch):
            scene.delivered += [record.data for record in batch.records]

    scene = Scene(got(7, 8), handler=Handler)
    scene.run()
    assert scene.delivered == [b"8"]


def test_a_restarted_shard_asks_its_new_handler():
    """The handler's own position has moved on meanwhile; the lease's checkpoint is another place."""
    scene = Own(got(6, 7), got(7, 8), start=["5", "6"], lease=leased(at(2)), on_handler_error="stop")
    scene.errors = [RestartShardError("the child is gone")]
    scene.run(30)
    assert len(scene.asked) == 2
    assert scene.opened == [
        AfterSequence("5", sub_sequence_number=0),
        AfterSequence("6", sub_sequence_number=0),
    ]
    assert scene.delivered == [b"7", b"8"]


def test_a_restarted_read_keeps_the_tip_that_latest_was_resolved_to():
    """A second LATEST would skip what arrived between the two."""
    scene = Own(got(), got(), start="LATEST", lease=leased(at(7)))
    scene.script.started_at_millis = 9_000
    scene.run(1)
    scene.consumer.restart_read()
    scene.run(3)
    assert scene.opened == [Latest(), AtTimestamp(9_000)]
    assert len(scene.asked) == 1
    assert scene.row.initial_timestamp_millis is None


def test_a_dropped_batch_before_the_checkpoint_is_read_again_from_where_delivery_was(monkeypatch):
    """Not from the lease's checkpoint, which is further on: that would skip records that the handler wants."""
    monkeypatch.setattr(ByteBudget, "is_crowded", True)
    scene = Own(got(5), got(6), got(5, 6), got(8), start="4", lease=leased(at(7)))
    scene.errors = [None, *[RuntimeError("no")] * 3]
    scene.run(30)
    assert scene.opened == [
        AfterSequence("4", sub_sequence_number=0),
        AfterSequence("5", sub_sequence_number=0),
    ]
    assert scene.delivered == [b"5", b"6", b"8"]
    assert scene.row.checkpoint == at(8)
