"""Operators against owners without responses, other operators, strange positions and shards that are written at their limit."""

from __future__ import annotations

import pytest

from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.marks import list_workers, plan_drain, plan_undrain
from kinesis_sdk.admin.changes.plans import plan_rewind, plan_skip
from kinesis_sdk.admin.changes.positions import AfterRecord
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.common.errors import ChangeRefusedError, ConfigError, KinesisSdkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from tests.admin.changes.operators import SHARD, SLOW, TABLE, SteeredFleet, kind_of, loaded, no_response
from tests.fuzz import share


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("phase", "late"),
    [
        ("answer lost", 0),
        ("never arrives", 0),
        *(("arrives late", late) for late in share([0.7, 0.1, 2.5], unit=1)),
    ],
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
                fleet.arrive(late, call)
            raise no_response()
        return call()

    fleet.air.catch = catch
    fleet.add("a", fleet.checkpointer("a", "each batch"))
    fleet.load(5)
    desk = fleet.behind()
    plan = plan_skip(desk, "LATEST")
    armed.append(True)
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert not armed
    assert (outcome.status, outcome.recipe) == (Status.DONE, Recipe.REQUEST)
    fleet.load(25)
    numbers = [number for _, run in fleet.runs() for number in run]
    places = {(sequence, sub): int(data) for _, _, data, sequence, sub in fleet.delivered}
    last = places[(outcome.checkpoint.sequence_number, outcome.checkpoint.sub_sequence_number)]
    missing = set(range(fleet.put_count)) - set(numbers)
    assert missing
    assert missing == set(range(last + 1, max(missing) + 1))
    assert len(numbers) == len(set(numbers))


def test_a_sequence_number_that_the_shard_does_not_have(tmp_path):
    fleet, _, _ = loaded(tmp_path, shards=2)
    shards = sorted(fleet.checkpoints())
    own, other = (int(fleet.checkpoints()[shard].sequence_number) for shard in shards)
    for number in ("1" * 56, "49" + "0" * 54, "9" * 56, str(other), str(own + 5)):
        for plan in (plan_rewind, plan_skip):
            with pytest.raises(KinesisSdkError):
                plan(fleet.desk(), ExtendedSequenceNumber(number), [shards[0]])


def test_a_shard_that_was_closed_before_the_start_is_told(tmp_path):
    fleet, _, _ = loaded(tmp_path)
    fleet.split()
    fleet.load(10)
    desk = fleet.desk()
    plan = plan_rewind(desk, fleet.moment(), [SHARD])
    assert not plan.changes
    assert any(note.startswith(f"{SHARD}: left as it is, because it ended before") for note in plan.notes)


def test_two_operators_drain_two_workers_at_once(tmp_path):
    fleet, _, _ = loaded(tmp_path, workers=("a", "b"), shards=4)
    fleet.run(10)
    one, two = fleet.desk(), fleet.desk()
    list_workers(one)
    list_workers(two)
    store = one.application.store
    set_drain = store.set_drain

    def racing(key, worker, on):
        store.set_drain = set_drain
        plan_drain(two, "b").apply(wait=0)
        return set_drain(key, worker, on)

    store.set_drain = racing
    drain = plan_drain(one, "a")
    with pytest.raises(ChangeRefusedError, match="no other worker"):
        drain.apply(wait=0)
    fleet.run(15)
    fleet.load(5)
    fleet.run(5)
    assert set(fleet.data()) == set(fleet.sent)


def test_a_worker_is_undrained_while_its_mark_is_nowhere(tmp_path):
    """The row with the mark was deleted, and the worker puts the mark on another row after its next scan."""
    fleet, _, _ = loaded(tmp_path, workers=("a", "b"), shards=4)
    fleet.run(10)
    desk = fleet.desk()
    plan_drain(desk, "a").apply(wait=0)
    fleet.run(15)
    assert set(fleet.owners().values()) == {"b"}
    carrier = next(lease.lease_key for lease in fleet.store.list() if lease.draining)
    fleet.dynamodb.delete_item(TableName=TABLE, Key={"leaseKey": {"S": carrier}})
    undrain = plan_undrain(desk, "a")
    assert undrain.description.writes
    assert undrain.apply().lines == ("a takes leases again.",)
    fleet.run(40, lambda: "a" in fleet.owners().values())
    assert not any(lease.draining for lease in fleet.store.list())
    assert "a" in fleet.owners().values()


def test_skip_to_latest_of_a_shard_that_is_written_at_its_limit_ends(tmp_path):
    fleet, _, _ = loaded(tmp_path)
    desk = fleet.desk()
    for _ in range(9):
        desk.read()
        fleet.run(1.0)
    begun = fleet.clock.monotonic()

    def sleep(seconds):
        assert fleet.clock.monotonic() - begun < 60, "it follows the tip for ever"
        fleet.clock.advance(seconds)
        for _ in range(2):
            fleet.put(round(500 * seconds))

    fleet.put(500)
    fleet.put(500)
    desk.sleep = sleep
    plan = plan_skip(desk, "LATEST")
    assert plan.changes


def test_a_skip_past_a_record_leaves_out_what_is_up_to_it(tmp_path):
    fleet, _, _ = loaded(tmp_path)
    checkpoint = fleet.checkpoints()[SHARD]
    after = AfterRecord(checkpoint)
    with pytest.raises(ConfigError, match="the record itself: a rewind begins with it"):
        plan_rewind(fleet.desk(), after, [SHARD])
    with pytest.raises(ConfigError, match="exactly one shard for a sequence number"):
        plan_skip(fleet.desk(), after)
    plan = plan_skip(fleet.desk(), after, [SHARD])
    assert plan.command.parameters["to"] == f"after:{checkpoint}"
