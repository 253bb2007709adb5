"""Operators that lose answers, die, or are not the only one; handoffs that are not answered."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.admin.changes import execute
from kinesis_sdk.admin.changes import plan as plans
from kinesis_sdk.admin.changes.description import Status
from kinesis_sdk.admin.changes.execute import ChangeExecutor, Outcome, _Result
from kinesis_sdk.admin.changes.lease_change import LeaseChange
from kinesis_sdk.admin.changes.owners import OwnerWatch
from kinesis_sdk.admin.changes.plan import least_loaded
from kinesis_sdk.admin.changes.plans import plan_move, plan_release, plan_rewind, plan_skip
from kinesis_sdk.admin.changes.recipes import Recipe
from kinesis_sdk.admin.changes.rows import Row
from kinesis_sdk.admin.fleet.model import OwnerKind
from kinesis_sdk.common.errors import AuditLogError, ConfigError, PermanentAwsError, TransientLeaseStoreError
from kinesis_sdk.common.sequence import SHARD_END, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease
from tests.admin.changes.operators import SHARD, SLOW, Air, loaded, no_response
from tests.admin.changes.places import both_places
from tests.fuzz import share

LOSSES = [losses for count in (1, 2, 3) for losses in product(("before", "after"), repeat=count)]


class OperatorDied(BaseException):
    pass


def losing(fleet, losses):
    """A client of the operator whose writes lose their responses by script."""
    air = Air(fleet.dynamodb)
    script = list(losses)

    def catch(name, request, call):
        what = script.pop(0) if script else "fine"
        if what != "before":
            response = call()
        if what != "fine":
            raise no_response()
        return response

    air.catch = catch
    return air


@pytest.mark.fuzz
@pytest.mark.parametrize(("losses", "recipe"), share(product(LOSSES, [Recipe.RESTART, Recipe.FREE]), unit=7))
def test_a_lost_answer_never_rewinds_twice(tmp_path, monkeypatch, losses, recipe):
    if recipe is Recipe.FREE:
        monkeypatch.setattr(plans, "_kind", lambda lease, owners: OwnerKind.OTHER)
    fleet, start, first = loaded(tmp_path)
    desk = fleet.desk(losing(fleet, losses))
    acquisitions = len(fleet.runs())
    counter = fleet.store.get(SHARD).counter
    (outcome,) = LeaseChange(desk, plan_rewind(desk, start)).carry_out()
    assert outcome.status is Status.DONE
    fleet.load(6)
    runs = fleet.runs()
    assert len(runs) == acquisitions + 1, "the owner began again once"
    assert runs[-1][1] == [*range(first, fleet.put_count)]
    assert fleet.store.get(SHARD).counter > counter + 2


@pytest.mark.fuzz
@pytest.mark.parametrize("losses", share(LOSSES, unit=5), ids="-".join)
def test_a_lost_answer_of_a_skip(tmp_path, losses):
    fleet, _, _ = loaded(tmp_path, config=SLOW)
    desk = fleet.behind()
    plan = plan_skip(desk, "LATEST")
    desk.application.table._client = losing(fleet, losses)
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert (outcome.status, outcome.recipe) == (Status.DONE, Recipe.REQUEST)
    fleet.load(10)
    numbers = [number for _, run in fleet.runs() for number in run]
    assert len(numbers) == len(set(numbers)), "nothing twice"
    assert set(range(fleet.put_count - 40, fleet.put_count)) <= set(numbers)
    assert len(set(range(fleet.put_count)) - set(numbers)) > 300


def test_it_does_not_write_twice_if_the_owner_was_faster_than_the_answer(tmp_path):
    """The owner acts on the rewind and passes its old checkpoint: but for the operator's name, the row looks undisturbed."""
    fleet, start, first = loaded(tmp_path)
    air = Air(fleet.dynamodb)
    desk = fleet.desk(air)
    plan = plan_rewind(desk, start)

    def catch(name, request, call):
        call()
        air.catch = None
        fleet.load(10)  # the call times out after ten seconds
        raise no_response()

    air.catch = catch
    writes = len(air.writes)
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert outcome.status is Status.DONE
    assert len(air.writes) == writes + 1
    fleet.check_repeated(first)


@both_places
def test_two_operators_at_once(tmp_path):
    fleet, start, first = loaded(tmp_path)
    one, two = fleet.desk(), fleet.desk()
    plans_of = [plan_rewind(one, start), plan_rewind(two, start)]
    acquisitions = len(fleet.runs())
    table = two.application.table
    send = table.send

    def meanwhile(write):
        table.send = send
        LeaseChange(one, plans_of[0]).carry_out(wait=0)
        send(write)

    table.send = meanwhile
    (outcome,) = LeaseChange(two, plans_of[1]).carry_out()
    assert outcome.status is Status.UNCHANGED
    assert "another operator has rewound it" in outcome.message
    fleet.load(10)
    assert len(fleet.runs()) == acquisitions + 1
    assert fleet.runs()[-1][1] == [*range(first, fleet.put_count)]


def test_a_row_that_changes_each_time_is_given_up_after_five_tries(tmp_path):
    fleet, start, _ = loaded(tmp_path)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    send = desk.application.table.send
    tries = 0

    def raced(write):
        nonlocal tries
        tries += 1
        fleet.write("ADD leaseCounter :one", one={"N": "1"})
        return send(write)

    desk.application.table.send = raced
    (outcome,) = LeaseChange(desk, plan).carry_out(wait=0)
    assert (outcome.status, tries) == (Status.REFUSED, 5)
    assert "changed the row 5 times" in outcome.message


@pytest.mark.usefixtures("any_place")
@pytest.mark.parametrize("dies", ["after the request", "before the position", "after the position"])
def test_an_operator_that_dies_leaves_the_lease_to_its_owner(tmp_path, dies):
    fleet, _, _ = loaded(tmp_path, config=SLOW)
    desk = fleet.behind()
    gap = fleet.put_count
    plan = plan_skip(desk, "LATEST")
    assert [change.recipe for change in plan.changes] == [Recipe.REQUEST]
    table = desk.application.table
    send, get = table.send, table.get
    writes = 0
    dead = False

    def dying_send(write):
        nonlocal writes, dead
        if dead or (dies == "before the position" and writes == 1):
            dead = True
            raise OperatorDied
        send(write)
        writes += 1
        if (dies, writes) in (("after the request", 1), ("after the position", 2)):
            dead = True
            raise OperatorDied

    def dying_get(key):
        if dead:
            raise OperatorDied
        return get(key)

    table.send, table.get = dying_send, dying_get
    with pytest.raises(OperatorDied):
        LeaseChange(desk, plan).carry_out()
    fleet.run(3.2)
    fleet.put(20)
    fleet.run(30)
    row = fleet.store.get(SHARD)
    assert (row.owner, row.checkpoint_owner) == ("a", None)
    numbers = [number for _, run in fleet.runs() for number in run]
    assert len(numbers) == len(set(numbers))
    assert set(range(gap, gap + 20)) <= set(numbers)
    if dies != "after the position":
        assert set(numbers) == set(range(fleet.put_count)), "nothing was changed"


@both_places
def test_an_interrupted_request_is_withdrawn(tmp_path):
    """Ctrl-C while the owner still works on its batch."""
    fleet, _, _ = loaded(tmp_path, config=SLOW)
    desk = fleet.behind()
    plan = plan_skip(desk, "LATEST")
    assert len(plan.changes) == 1

    def interrupt(_):
        raise KeyboardInterrupt

    desk.sleep = interrupt
    with pytest.raises(KeyboardInterrupt):
        LeaseChange(desk, plan).carry_out()
    row = fleet.store.get(SHARD)
    assert (row.owner, row.checkpoint_owner, row.handoff_owner) == ("a", None, "a")
    assert [line["event"] for line in fleet.lines()] == ["begin", "withdrawn", "interrupted"]
    fleet.run(30)
    assert sorted(int(data) for data in fleet.data()) == [*range(fleet.put_count)]


def test_an_owner_that_does_not_answer_loses_the_request_after_a_while(tmp_path, monkeypatch):
    """An owner that is taken for a KCL 3 and does not hear: the marker is taken back, and the lease is freed."""
    fleet, _, _ = loaded(tmp_path)
    fleet.put(300)
    fleet.stop("a")
    fleet.run(5)

    def renew(now):  # a worker that renews, and does not look at the marker, as KCL 2 does
        fleet.write("ADD leaseCounter :one", one={"N": "1"})
        return now + 1.9

    fleet.write("SET leaseOwner = :java", java={"S": "java"})
    fleet.add_script("java", renew)
    monkeypatch.setattr(plans, "_kind", lambda lease, owners: OwnerKind.KCL3)
    desk = fleet.desk()
    fleet.put(50)
    plan = plan_skip(desk, "LATEST")
    begun = fleet.clock.monotonic()
    (outcome,) = LeaseChange(desk, plan).carry_out(wait=0)
    assert 5.0 <= fleet.clock.monotonic() - begun <= 8.0
    assert (outcome.status, outcome.recipe) == (Status.DONE, Recipe.FREE)
    row = fleet.store.get(SHARD)
    assert (row.owner, row.checkpoint_owner) == (None, None)
    assert any("java did not answer" in line for line in fleet.said)


@pytest.mark.usefixtures("any_place")
def test_what_undoes_a_release_or_a_move_is_told_beforehand(tmp_path):
    fleet, _, _ = loaded(tmp_path, workers=("a", "b"), shards=4)
    fleet.run(6)
    shard = next(key for key, owner in fleet.owners().items() if owner == "a")
    fleet.store.set_pin(fleet.store.get(shard).lease_key, "c")
    for plan in (plan_release(fleet.desk(), [shard]), plan_move(fleet.desk(), [shard], "b")):
        assert any("within seconds" in note for note in plan.notes)
        assert f"{shard} is pinned to c, to which workers give it back: remove the pin first" in " ".join(
            plan.notes
        )
    fleet.store.set_pin(shard, "b")
    assert not any("is pinned" in note for note in plan_move(fleet.desk(), [shard], "b").notes)


@pytest.mark.parametrize(("rates", "chosen"), [((None, None), "b"), ((5.0, 900.0), "c")])
def test_a_release_goes_to_the_peer_with_the_least_to_do(rates, chosen):
    """ "b" has one lease and "c" two: where the rows tell rates, they decide, as they do in the workers' strategy."""
    owners = OwnerWatch(10.0)
    rates_of = {"c": rates[0], "b": rates[1]}
    for now in (0.0, 1.0):
        owners.observe(
            [
                Lease(
                    lease_key=f"shardId-{number:012}",
                    checkpoint=ExtendedSequenceNumber("TRIM_HORIZON"),
                    owner=owner,
                    handoff_owner=owner,
                    counter=int(now),
                    throughput_kbps=rates_of.get(owner),
                )
                for number, owner in enumerate(["a", "b", "c", "c"])
            ],
            now,
        )
    assert least_loaded(owners, 1.0, without={"a"}) == chosen


@pytest.mark.usefixtures("any_place")
def test_a_lease_that_comes_back_after_a_release_is_told(tmp_path, monkeypatch):
    """The strategy of the workers moves it again within seconds: "done" alone would be half of the truth."""
    fleet, _, _ = loaded(tmp_path, workers=("a", "b"), shards=4)
    fleet.run(6)
    shard = next(key for key, owner in fleet.owners().items() if owner == "a")
    desk = fleet.desk()
    plan = plan_release(desk, [shard])
    sleep = desk.sleep

    def undone(seconds):
        sleep(seconds)
        if seconds == execute._SETTLE_SECONDS:
            real = Row.of
            again = lambda item: SimpleNamespace(lease=replace(real(item).lease, owner="a"))  # noqa: E731
            monkeypatch.setattr(execute.Row, "of", again)

    desk.sleep = undone
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert outcome.status is Status.DONE
    assert (outcome.noticed_by, outcome.former_owner, outcome.final_owner) == ("b", "a", "a")
    assert outcome.message.endswith("; 5 s later, a has it again")
    assert any("pin it" in line for line in fleet.said)


@both_places
def test_a_release_without_a_peer_frees_the_lease(tmp_path):
    fleet, _, _ = loaded(tmp_path)
    desk = fleet.desk()
    plan = plan_release(desk, [SHARD])
    (change,) = plan.changes
    assert (change.recipe, change.goal.worker) == (Recipe.FREE, None)
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert outcome.noticed_by == "a"
    fleet.load(5)
    assert set(fleet.data()) == set(fleet.sent)


@pytest.mark.usefixtures("any_place")
def test_a_swap_keeps_the_balance(tmp_path):
    fleet, _, _ = loaded(tmp_path, workers=("a", "b"), shards=4)
    fleet.run(6)
    before = fleet.owners()
    shard = next(key for key, owner in before.items() if owner == "a")
    desk = fleet.desk()
    plan = plan_move(desk, [shard], "b", swap=True)
    assert [change.recipe for change in plan.changes] == [Recipe.REQUEST, Recipe.REQUEST]
    (outcome, *_) = LeaseChange(desk, plan).carry_out()
    assert (outcome.noticed_by, outcome.final_owner) == ("b", "b")
    assert "later" not in outcome.message
    fleet.run(20)
    after = fleet.owners()
    assert after[shard] == "b"
    assert sorted(after.values()) == ["a", "a", "b", "b"]
    fleet.load(3)
    assert sorted(int(data) for data in fleet.data()) == [*range(fleet.put_count)], "no record twice"


@pytest.mark.usefixtures("any_place")
@pytest.mark.parametrize("owner", ["alive", "dead"])
def test_moves_to_a_worker_that_is_not_there_are_rejected(tmp_path, owner):
    fleet, _, _ = loaded(tmp_path)
    if owner == "dead":
        fleet.crash("a")
    with pytest.raises(ConfigError, match="to='unknown-worker'"):
        plan_move(fleet.desk(), [SHARD], "unknown-worker")


@pytest.mark.usefixtures("any_place")
def test_a_skip_that_was_not_written_is_not_reported(tmp_path, monkeypatch):
    fleet, _, _ = loaded(tmp_path, config=SLOW)
    desk = fleet.behind()
    plan = plan_skip(desk, "LATEST")
    give_back = ChangeExecutor._give_back

    def overtaken(executor, change, answered):
        monkeypatch.setattr(ChangeExecutor, "_write", lambda *_: (_Result.CONFLICT, None))
        assert give_back(executor, change, answered)[0] is _Result.CONFLICT
        raise OperatorDied

    monkeypatch.setattr(ChangeExecutor, "_give_back", overtaken)
    with pytest.raises(OperatorDied):
        LeaseChange(desk, plan).carry_out()
    assert not [line for line in fleet.said if "skipped from" in line]


@both_places
def test_a_handoff_in_progress_is_waited_for(tmp_path):
    fleet, start, first = loaded(tmp_path)
    fleet.add("b", fleet.checkpointer("b", "each batch"))
    fleet.run(5)
    row = fleet.store.get(SHARD)
    fleet.store.request_handoff(row, "b" if row.owner == "a" else "a")
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    (outcome,) = LeaseChange(desk, plan).carry_out()
    assert outcome.status is Status.DONE
    fleet.check_repeated(first)


@pytest.mark.usefixtures("any_place")
def test_nothing_is_changed_without_an_audit_log(tmp_path):
    fleet, start, _ = loaded(tmp_path)
    (tmp_path / "file").write_text("")
    fleet.audit = tmp_path / "file" / "audit.jsonl"
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    before = fleet.store.get(SHARD)
    with pytest.raises(AuditLogError, match="cannot be written"):
        LeaseChange(desk, plan).carry_out()
    assert fleet.store.get(SHARD).checkpoint == before.checkpoint


def test_a_call_that_is_rejected_ends_the_command(tmp_path):
    fleet, start, _ = loaded(tmp_path)
    air = Air(fleet.dynamodb)

    def reject(name, request, call):
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "UpdateItem")

    air.catch = reject
    desk = fleet.desk(air)
    plan = plan_rewind(desk, start)
    with pytest.raises(PermanentAwsError, match="AccessDenied"):
        LeaseChange(desk, plan).carry_out()
    assert [line["event"] for line in fleet.lines()] == ["begin", "interrupted"]


def test_the_audit_log_keeps_the_bytes_that_a_rewind_removes(tmp_path):
    fleet, start, first = loaded(tmp_path)
    row = fleet.store.get(SHARD)
    fleet.crash("a")
    fleet.write(
        "SET pendingCheckpoint = :p, pendingCheckpointSubSequenceNumber = :s, pendingCheckpointState = :b",
        p={"S": row.checkpoint.sequence_number},
        s={"N": "0"},
        b={"B": b"\x00half"},
    )
    desk = fleet.desk()
    LeaseChange(desk, plan_rewind(desk, start)).carry_out(wait=0)
    begin = fleet.lines()[0]
    assert begin["before"]["pendingCheckpointState"] == {"B": "AGhhbGY="}
    after = fleet.store.get(SHARD)
    assert (after.pending_checkpoint, after.pending_checkpoint_state) == (None, None)
    assert json.dumps(begin)
    fleet.add("b", fleet.checkpointer("b", "each batch"))
    fleet.check_repeated(first)


def test_nothing_is_written_after_a_change_that_was_refused(tmp_path, monkeypatch):
    """Plans name parents before their children, which must not begin before them."""
    fleet, start, _ = loaded(tmp_path)
    desk = fleet.desk()
    plan = plan_rewind(desk, start)
    plan = replace(plan, changes=plan.changes * 2)
    begun = []

    def refused(executor, goal, outcomes):
        begun.append(goal)
        return Outcome(goal=goal, status=Status.REFUSED, message="its parent is missing")

    monkeypatch.setattr(ChangeExecutor, "_write_goal", refused)
    assert [outcome.status for outcome in LeaseChange(desk, plan).carry_out(wait=0)] == [Status.REFUSED]
    assert len(begun) == 1


def test_a_write_that_arrives_after_its_row_was_read_is_what_its_repetition_loses_against(tmp_path):
    """The first attempt has no response, and the row does not show it yet. It arrives; the second attempt fails its condition."""
    fleet, start, _ = loaded(tmp_path)
    (change,) = plan_rewind(fleet.desk(), start).changes
    before = change.before.item
    shown = iter([before, change.write.applied(before)])
    attempts = iter([True, False])

    class Table:
        def send(self, write):
            if next(attempts):
                raise TransientLeaseStoreError("no response")
            return False

        def get(self, key):
            return next(shown)

    desk = fleet.desk()
    desk.application.table = Table()
    executor = ChangeExecutor(desk, None)
    result, item = executor._write(change.write, change.before)
    assert result is _Result.WRITTEN
    assert item == change.write.applied(before)


def test_a_shard_whose_end_was_reached_before_its_owner_let_go_is_not_given_back(tmp_path, monkeypatch):
    fleet, _, _ = loaded(tmp_path, config=SLOW)
    desk = fleet.behind()
    plan = plan_skip(desk, "LATEST")
    give_back = ChangeExecutor._give_back

    def ended(executor, change, answered):
        lease = replace(answered.lease, checkpoint=ExtendedSequenceNumber(SHARD_END))
        monkeypatch.setattr(ChangeExecutor, "_write", lambda *_: pytest.fail("its row is finished"))
        found.append(give_back(executor, change, replace(answered, lease=lease)))
        raise OperatorDied

    found = []
    monkeypatch.setattr(ChangeExecutor, "_give_back", ended)
    monkeypatch.setattr(ChangeExecutor, "_withdraw_after_interruption", lambda *_: None)
    with pytest.raises(OperatorDied):
        LeaseChange(desk, plan).carry_out()
    assert found == [(_Result.CONFLICT, None, True)], "decided again"
