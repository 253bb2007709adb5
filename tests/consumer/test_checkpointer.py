"""Every form of a checkpoint that the KCL has, in one and in two phases."""

from __future__ import annotations

from random import Random

import pytest

from kinesis_sdk.common.errors import (
    InvalidCheckpointError,
    LeaseLostError,
    ThrottledError,
    TransientAwsError,
)
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.checkpointer import Checkpointer
from tests.consumer.checkpoint_scenario import Scenario
from tests.consumer.leases.held_lease import Scenario as HeldScenario
from tests.consumer.leases.held_lease import at

END = ExtendedSequenceNumber(SHARD_END)


def record(number, sub=0):
    return UserRecord(b"x", "k", str(number), None, None, sub, None, True)


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        ((), at(9, 4)),
        ((record(7, 2),), at(7, 2)),
        (("7",), at(7)),
        (("7", 2), at(7, 2)),
        (("9", 4), at(9, 4)),
    ],
)
def test_every_form(arguments, stored):
    scenario = Scenario()
    scenario.checkpointer.checkpoint(*arguments)
    assert scenario.row.checkpoint == stored
    other = Scenario()
    prepared = other.checkpointer.prepare_checkpoint(*arguments, state=b"mine")
    row = other.row
    assert (row.checkpoint.sequence_number, row.pending_checkpoint) == (TRIM_HORIZON, stored)
    assert row.pending_checkpoint_state == b"mine"
    assert prepared.position == stored
    prepared.checkpoint()
    row = other.row
    assert (row.checkpoint, row.pending_checkpoint, row.pending_checkpoint_state) == (stored, None, None)


@pytest.mark.parametrize(
    "arguments",
    [
        (record(9, 5),),
        ("10",),
        ("9", 5),
        (None, 1),
        (record(7), 1),
        ("7", -1),
        ("LATEST",),
        ("SHARD_END",),
        ("x",),
        (7,),
    ],
)
@pytest.mark.parametrize("method", ["checkpoint", "prepare_checkpoint"])
def test_what_is_out_of_bounds_writes_nothing(method, arguments):
    scenario = Scenario()
    writes = scenario.store.writes
    with pytest.raises(InvalidCheckpointError) as caught:
        getattr(scenario.checkpointer, method)(*arguments)
    assert not caught.value.retryable
    assert scenario.store.writes == writes


@pytest.mark.parametrize("number", ["0", "4"])
@pytest.mark.parametrize("method", ["checkpoint", "prepare_checkpoint"])
def test_no_number_before_the_first_record_although_it_is_after_a_sentinel(method, number):
    """The next sync of the shards would find a checkpoint before the start of the shard, and stop the worker."""
    scenario = Scenario()
    writes = scenario.store.writes
    with pytest.raises(InvalidCheckpointError, match="5/2"):
        getattr(scenario.checkpointer, method)(number)
    assert scenario.store.writes == writes
    scenario.checkpointer.checkpoint("5")  # the first record of the aggregate of which a part was delivered
    assert scenario.row.checkpoint == at(5)


def test_no_number_at_the_end_of_a_shard_without_records():
    scenario = HeldScenario()
    checkpointer = Checkpointer(
        scenario.held, clock=scenario.clock, sleep=scenario.clock.advance, rng=Random(1), timeout=3.0
    )
    checkpointer.end_shard()
    with pytest.raises(InvalidCheckpointError, match="delivered"):
        checkpointer.checkpoint("0")
    checkpointer.checkpoint()
    assert scenario.store.get("s").checkpoint == END


def test_nothing_below_the_last_checkpoint_and_the_same_again_is_free():
    scenario = Scenario()
    scenario.checkpointer.checkpoint("7", 2)
    writes = scenario.store.writes
    scenario.checkpointer.checkpoint("7", 2)
    scenario.checkpointer.prepare_checkpoint("7", 2).checkpoint()
    assert scenario.store.writes == writes
    with pytest.raises(InvalidCheckpointError, match=r"7/1 .*7/2"):
        scenario.checkpointer.checkpoint("7", 1)


def test_a_prepared_checkpoint_that_was_passed_over_is_refused():
    scenario = Scenario()
    prepared = scenario.checkpointer.prepare_checkpoint("5")
    scenario.checkpointer.checkpoint("6")
    assert scenario.row.pending_checkpoint is None, "any checkpoint removes the announcement"
    with pytest.raises(InvalidCheckpointError):
        prepared.checkpoint()
    assert scenario.row.checkpoint == at(6)


def test_at_the_end_of_the_shard_the_last_position_means_its_end():
    scenario = Scenario()
    scenario.checkpointer.end_shard()
    assert scenario.checkpointer.largest_delivered == END
    prepared = scenario.checkpointer.prepare_checkpoint(state=b"last")
    assert scenario.row.pending_checkpoint == END
    prepared.checkpoint()
    assert scenario.row.checkpoint == END
    other = Scenario()
    other.checkpointer.end_shard()
    other.checkpointer.checkpoint(record(9, 4))
    assert other.row.checkpoint == END


def test_a_position_and_its_state_are_stored_in_one_write():
    scenario = Scenario()
    with_state = scenario.checkpointer.checkpoint_with_state
    with_state(scenario.checkpointer.last_checkpoint, b"before the first record")
    row = scenario.row
    assert (row.checkpoint.sequence_number, row.pending_checkpoint_state) == (
        TRIM_HORIZON,
        b"before the first record",
    )
    with_state(at(7, 2), b"mine")
    row = scenario.row
    assert (row.checkpoint, row.pending_checkpoint, row.pending_checkpoint_state) == (
        at(7, 2),
        at(7, 2),
        b"mine",
    )
    assert scenario.checkpointer.stored == at(7, 2)
    with_state(at(7, 2), b"mine")
    assert scenario.row.counter == row.counter, "it is stored already"
    with_state(at(7, 2), None)
    assert scenario.row.pending_checkpoint_state is None
    for wrong in ((at(9, 5), b""), (at(6), b""), (at(7, 2), "text")):
        with pytest.raises(InvalidCheckpointError):
            with_state(*wrong)
    scenario.held.mark_lost("test")
    for position in (at(7, 2), at(8)):
        with pytest.raises(LeaseLostError):
            with_state(position, b"mine")


def test_a_limit_before_the_end_of_the_shard_is_not_its_end():
    scenario = Scenario()
    scenario.checkpointer.limit_to(lambda: at(7))
    scenario.checkpointer.end_shard()
    scenario.checkpointer.checkpoint("7")
    assert scenario.row.checkpoint == at(7)


def test_state_is_bytes():
    with pytest.raises(InvalidCheckpointError, match="state"):
        Scenario().checkpointer.prepare_checkpoint(state="text")


@pytest.mark.parametrize("method", ["checkpoint", "prepare_checkpoint"])
def test_trouble_is_repeated_until_the_timeout(method):
    scenario = Scenario()
    scenario.store.script = ["throttle", "before", "after"]
    getattr(scenario.checkpointer, method)()
    row = scenario.row
    assert at(9, 4) in (row.checkpoint, row.pending_checkpoint)
    late = Scenario()
    late.store.script = ["throttle"] * 50
    with pytest.raises(ThrottledError) as caught:
        getattr(late.checkpointer, method)()
    assert caught.value.retryable
    assert late.clock.monotonic() <= 3.0


def test_a_lost_lease_ends_it():
    scenario = Scenario()
    prepared = scenario.checkpointer.prepare_checkpoint("5")
    scenario.take("other")
    for call in (
        scenario.checkpointer.checkpoint,
        prepared.checkpoint,
        scenario.checkpointer.prepare_checkpoint,
    ):
        with pytest.raises(LeaseLostError) as caught:
            call()
        assert not caught.value.retryable
    assert TransientAwsError.retryable


# With a sink, which no checkpoint may pass


def test_nothing_is_stored_before_the_first_commit_of_the_sink():
    """A sink without a row of the shard starts at the lease's checkpoint: what lies before it would be lost."""
    scenario = Scenario()
    scenario.checkpointer.limit_to(lambda: None)
    before, writes = scenario.row, scenario.store.writes
    scenario.checkpointer.checkpoint()
    assert scenario.checkpointer.largest_delivered == before.checkpoint
    for method in (scenario.checkpointer.checkpoint, scenario.checkpointer.prepare_checkpoint):
        with pytest.raises(InvalidCheckpointError):
            method("7", 2)
    assert (scenario.row, scenario.store.writes) == (before, writes)


def test_no_checkpoint_passes_the_sink():
    scenario = Scenario()
    committed = at(7, 1)
    scenario.checkpointer.limit_to(lambda: committed)
    with pytest.raises(InvalidCheckpointError):
        scenario.checkpointer.checkpoint("7", 2)
    scenario.checkpointer.checkpoint()
    assert scenario.row.checkpoint == at(7, 1)
    committed = at(12)
    scenario.checkpointer.checkpoint()
    assert scenario.row.checkpoint == at(9, 4), "nor what was delivered"


def test_what_an_earlier_owner_committed_is_not_stored_before_something_is_delivered():
    scenario = Scenario()
    scenario.checkpointer.restart()
    scenario.checkpointer.limit_to(lambda: at(7))
    before = scenario.row
    scenario.checkpointer.checkpoint()
    assert scenario.row == before
    with pytest.raises(InvalidCheckpointError):
        scenario.checkpointer.checkpoint("7")
