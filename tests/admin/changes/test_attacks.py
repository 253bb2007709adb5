"""Sequences of events that would lose records, repeat too many, or tell the operator something that is not true."""

from __future__ import annotations

import pytest

from kinesis_sdk.admin.changes import plan as plans
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.plans import plan_move, plan_rewind
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import AuditLogError, ChangeRefusedError
from tests.admin.changes.operators import SHARD, Air, SteeredFleet, loaded, no_response


def test_a_late_confirmation_still_restarts_an_owner_that_stored_nothing(tmp_path):
    """Taken for dead, it would not be restarted, and nothing would come again."""
    fleet = SteeredFleet(tmp_path)
    fleet.rested = True
    fleet.add("a", fleet.checkpointer("a", "never"))
    fleet.load(8)
    start = fleet.moment()
    fleet.load(5)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    fleet.run(25)
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert outcome.status is Status.DONE
    fleet.check_repeated(0)


def test_an_owner_that_dies_before_the_confirmation_loses_the_lease(tmp_path):
    fleet, start, first = loaded(tmp_path)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    fleet.crash("a")
    fleet.run(25)
    (outcome,) = LeaseChange(desk, plan).carry_out(wait=0)
    assert outcome.recipe is Recipe.FREE
    fleet.add("b", fleet.checkpointer("b", "each batch"))
    fleet.check_repeated(first, "b#1")


@pytest.mark.parametrize("recipe", [Recipe.RESTART, Recipe.FREE])
def test_the_mark_of_an_earlier_write_is_not_taken_for_a_lost_one(tmp_path, monkeypatch, recipe):
    """One operator rewinds twice; the second write never arrives, and has no response."""
    if recipe is Recipe.FREE:
        monkeypatch.setattr(plans, "_kind", lambda lease, owners: OwnerKind.OTHER)
    fleet, start, first = loaded(tmp_path)
    air = Air(fleet.dynamodb)
    desk = fleet.desk(air)
    LeaseChange(desk, plan_rewind(desk, start)).carry_out()
    fleet.load(6)
    acquisitions = len(fleet.runs())
    plan = plan_rewind(desk, start)

    def lose(name, request, call):
        air.catch = None
        raise no_response()

    air.catch = lose
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert outcome.status is Status.DONE
    fleet.load(5)
    runs = fleet.runs()
    assert len(runs) == acquisitions + 1
    assert runs[-1][1] == [*range(first, fleet.put_count)]


def test_a_rewind_ends_the_validity_of_a_mark_that_all_is_processed(tmp_path):
    """An owner that stored nothing begins again at its own checkpoint, for which the mark would still hold."""
    fleet = SteeredFleet(tmp_path)
    fleet.rested = True
    fleet.add("a", fleet.checkpointer("a", "never"))
    fleet.load(8)
    start = fleet.moment()
    fleet.load(5)
    millis = round(fleet.moment().timestamp() * 1000)
    fleet.write("SET processedUntil = :mark", mark={"S": f"{millis}|TRIM_HORIZON|0"})
    assert fleet.store.get(SHARD).was_processed_until(millis)
    desk = fleet.desk()
    LeaseChange(desk, plan_rewind(desk, start)).carry_out(wait=0)
    assert not fleet.store.get(SHARD).was_processed_until(millis)


@pytest.mark.parametrize("what", ["split", "merge"])
def test_a_reshard_between_the_plan_and_the_confirmation_refuses_the_plan(tmp_path, what):
    """Its children would keep their positions while the parent is read again beside them."""
    fleet, start, first = loaded(tmp_path, shards=2)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    getattr(fleet, what)()
    fleet.load(6)
    before = fleet.checkpoints()
    with pytest.raises(ChangeRefusedError, match="repeat the command"):
        LeaseChange(desk, plan).carry_out()
    assert all(position >= before[key] for key, position in fleet.checkpoints().items())
    mark = len(fleet.delivered)
    again = fleet.desk()
    LeaseChange(again, plan_rewind(again, start)).carry_out()
    fleet.run(25)
    assert sorted(int(entry[2]) for entry in fleet.delivered[mark:]) == [*range(first, fleet.put_count)]


def test_another_operators_write_is_not_taken_for_the_owners(tmp_path):
    fleet, start, _ = loaded(tmp_path)
    fleet.crash("a")
    one, two = fleet.desk(), fleet.desk()
    change = LeaseChange(one, plan_rewind(one, start))
    change.carry_out(wait=0)
    plan = plan_rewind(two, "TRIM_HORIZON")
    LeaseChange(two, plan).carry_out(wait=0)
    change._executor.wait()
    (outcome,) = change.outcomes
    assert outcome.noticed_by is None
    assert "another operator" in outcome.message


def test_an_audit_log_that_fills_up_after_a_write_does_not_ask_for_the_write_again(tmp_path):
    fleet, start, _ = loaded(tmp_path, shards=2)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    assert len(plan.changes) == 2
    send = desk.application.table.send

    def fill(write):
        done = send(write)
        fleet.audit.unlink()
        fleet.audit.mkdir()
        return done

    desk.application.table.send = fill
    change = LeaseChange(desk, plan)
    with pytest.raises(AuditLogError):
        change.carry_out()
    assert [outcome.status for outcome in change.outcomes] == [Status.DONE]
    command = change.remaining()
    assert command.parameters["shard"] == (plan.changes[1].goal.shard_id,)


def test_the_rest_of_an_interrupted_swap_is_the_other_move(tmp_path):
    fleet, _, _ = loaded(tmp_path, workers=("a", "b"), shards=4)
    fleet.run(10)
    shard = next(key for key, owner in fleet.owners().items() if owner == "a")
    desk = fleet.desk()
    plan = plan_move(desk, [shard], "b", swap=True)
    report = desk.report

    def interrupt(text):
        report(text)
        if text.endswith("written"):
            desk.report = report
            change._executor._report = report
            raise KeyboardInterrupt

    desk.report = interrupt
    change = LeaseChange(desk, plan)
    with pytest.raises(KeyboardInterrupt):
        change.carry_out()
    command = change.remaining()
    other = plan.changes[1].goal.lease_key
    assert command == Command.of("move", application="app", shard=[other], to="a")
    assert plan.command.parameters["swap"] is True
