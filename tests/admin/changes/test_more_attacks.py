"""Operators against owners without responses, other operators, strange positions and shards that are written at their limit."""

from __future__ import annotations

from contextlib import suppress

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.admin.changes.execute import Status
from kinesis_sdk.admin.changes.positions import AfterRecord
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.changes.workers import WorkerMarks
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError, InvalidPositionError, KinesisSdkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from tests.admin.changes.operators import SHARD, SLOW, TABLE, SteeredFleet, kind_of, loaded, no_response


def operator(fleet):
    application = fleet.steering()._application
    return WorkerMarks(application, audit_log=fleet.audit, clock=fleet.clock, sleep=fleet.run)


@pytest.mark.parametrize(
    ("phase", "late"),
    [("answer lost", 0), ("never arrives", 0), *(("arrives late", late) for late in (0.1, 0.7, 2.5))],
)
def test_the_release_of_an_owner_that_was_asked_has_no_response(tmp_path, phase, late):
    fleet = SteeredFleet(tmp_path, config=SLOW)
    armed = []

    def catch(name, request, call):
        if armed and kind_of(request) == "ownership":
            armed.clear()
            if phase == "answer lost":
                call()
            elif phase == "arrives late":
                fleet.timeline.at(fleet.clock.monotonic() + late, lambda: quietly(call))
            raise no_response()
        return call()

    def quietly(call):
        with suppress(ClientError):
            call()

    fleet.air.catch = catch
    fleet.add("a", fleet.checkpointer("a", "each batch"))
    fleet.load(10)
    steering = fleet.behind()
    plan = steering.plan_skip("LATEST")
    armed.append(True)
    (outcome,) = steering.apply(plan)
    assert not armed
    assert (outcome.status, outcome.recipe) == (Status.DONE, Recipe.REQUEST)
    fleet.load(40)
    numbers = [number for _, run in fleet.runs() for number in run]
    places = {(sequence, sub): int(data) for _, _, data, sequence, sub in fleet.delivered}
    last = places[(outcome.checkpoint.sequence_number, outcome.checkpoint.sub_sequence_number)]
    missing = set(range(fleet.put_count)) - set(numbers)
    assert missing
    assert missing == set(range(last + 1, max(missing) + 1))
    assert len(numbers) == len(set(numbers))


def test_a_sequence_number_of_another_shard(tmp_path):
    fleet, _, _ = loaded(tmp_path, shards=2)
    shards = sorted(fleet.checkpoints())
    other = fleet.checkpoints()[shards[1]]
    for plan in ("plan_rewind", "plan_skip"):
        with pytest.raises((ConfigError, InvalidPositionError)):
            getattr(fleet.steering(), plan)(ExtendedSequenceNumber(other.sequence_number), [shards[0]])


@pytest.mark.parametrize("number", ["1" * 56, "49" + "0" * 54, "9" * 56])
def test_a_sequence_number_that_does_not_exist(tmp_path, number):
    fleet, _, _ = loaded(tmp_path)
    for plan in ("plan_rewind", "plan_skip"):
        with pytest.raises(KinesisSdkError):
            getattr(fleet.steering(), plan)(ExtendedSequenceNumber(number), [SHARD])


def test_a_number_after_the_tip(tmp_path):
    fleet, _, _ = loaded(tmp_path)
    last = fleet.checkpoints()[SHARD].sequence_number
    with pytest.raises(KinesisSdkError):
        fleet.steering().plan_skip(ExtendedSequenceNumber(str(int(last) + 5)), [SHARD])


@pytest.mark.parametrize("to", ["LATEST", "TRIM_HORIZON", "time"])
def test_an_empty_shard(tmp_path, to):
    fleet = SteeredFleet(tmp_path)
    fleet.add("a", fleet.checkpointer("a", "each batch"))
    fleet.run(20)
    start = fleet.moment() if to == "time" else to
    fleet.run(5)
    steering = fleet.steering()
    plan = steering.plan_rewind(start)
    steering.apply(plan)
    if to != "TRIM_HORIZON":
        skip = fleet.steering()
        skip.apply(skip.plan_skip(start))
    fleet.load(5)
    assert [int(data) for data in fleet.data()] == [*range(fleet.put_count)]


def test_a_shard_that_was_closed_before_the_start_is_told(tmp_path):
    fleet, _, _ = loaded(tmp_path)
    fleet.split()
    fleet.load(10)
    steering = fleet.steering()
    plan = steering.plan_rewind(fleet.moment(), [SHARD])
    assert not plan.changes
    assert any(note.startswith(f"{SHARD}: left as it is, because it ended before") for note in plan.notes)


def test_two_operators_drain_two_workers_at_once(tmp_path):
    fleet, _, _ = loaded(tmp_path, workers=("a", "b"), shards=4)
    fleet.run(10)
    one, two = operator(fleet), operator(fleet)
    one.workers()
    two.workers()
    store = one._application.store
    set_drain = store.set_drain

    def racing(key, worker, on):
        store.set_drain = set_drain
        two.drain("b")
        return set_drain(key, worker, on)

    store.set_drain = racing
    with pytest.raises(ChangeRefusedError, match="no other worker"):
        one.drain("a")
    fleet.run(30)
    fleet.load(10)
    fleet.run(5)
    assert set(fleet.data()) == set(fleet.sent)


def test_a_worker_is_undrained_while_its_mark_is_nowhere(tmp_path):
    """The row with the mark was deleted, and the worker puts the mark on another row after its next scan."""
    fleet, _, _ = loaded(tmp_path, workers=("a", "b"), shards=4)
    fleet.run(10)
    marks = operator(fleet)
    marks.drain("a")
    fleet.run(15)
    assert set(fleet.owners().values()) == {"b"}
    carrier = next(lease.lease_key for lease in fleet.store.list() if lease.draining)
    fleet.dynamodb.delete_item(TableName=TABLE, Key={"leaseKey": {"S": carrier}})
    assert marks.plan_drain("a", on=False)
    assert marks.undrain("a")
    fleet.run(40)
    assert not any(lease.draining for lease in fleet.store.list())
    assert "a" in fleet.owners().values()


def test_skip_to_latest_of_a_shard_that_is_written_at_its_limit_ends(tmp_path):
    fleet, _, _ = loaded(tmp_path)
    steering = fleet.steering()
    for _ in range(9):
        steering.read()
        fleet.run(1.0)
    begun = fleet.clock.monotonic()

    def sleep(seconds):
        assert fleet.clock.monotonic() - begun < 60, "it follows the tip for ever"
        fleet.clock.advance(seconds)
        for _ in range(2):
            fleet.put(round(500 * seconds))

    fleet.put(500)
    fleet.put(500)
    steering._sleep = sleep
    plan = steering.plan_skip("LATEST")
    assert plan.changes


def test_a_skip_past_a_record_leaves_out_what_is_up_to_it(tmp_path):
    fleet, _, _ = loaded(tmp_path)
    checkpoint = fleet.checkpoints()[SHARD]
    after = AfterRecord(checkpoint)
    with pytest.raises(ConfigError, match="the record itself: a rewind begins with it"):
        fleet.steering().plan_rewind(after, [SHARD])
    with pytest.raises(ConfigError, match="exactly one shard for a sequence number"):
        fleet.steering().plan_skip(after)
    plan = fleet.steering().plan_skip(after, [SHARD])
    assert f"--to after:{checkpoint}" in " ".join(plan.command)
