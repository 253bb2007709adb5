"""The commands that change an application, on fleets of real engines in virtual time."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import replace

import pytest

from kinesis_sdk.admin.changes.deletions import plan_row_deletion
from kinesis_sdk.admin.lease_tables.dynamodb import DynamoDBLeaseTable
from kinesis_sdk.cli import steer
from kinesis_sdk.common.errors import ChangeRefusedError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig
from tests.admin.changes.operators import SHARD
from tests.admin.changes.places import any_place, both_places, place  # noqa: F401 - fixtures


def iso(moment):
    return moment.isoformat()


@both_places
def test_a_rewind_shows_the_write_and_the_command_and_reports_who_noticed(operator):
    operator = operator()
    fleet = operator.fleet
    start, first = fleet.moment(), fleet.put_count
    fleet.load(10)
    result = operator.change("leases", "rewind", "app", "--to", iso(start))
    assert result.stdout == ""
    for text in (
        "held by a (kinesis_sdk): restart: repeats 9 s of records",
        "on condition: leaseCounter = ",
        "Command: kinesis-sdk leases rewind app --stream orders --to 20",
        "noticed after ",
        "Not reached by this change",
        "Done: 1 row written.",
    ):
        assert text in result.stderr, text
    fleet.load(5)
    assert fleet.runs()[-1][1] == [*range(first, fleet.put_count)]


@pytest.mark.usefixtures("any_place")
def test_a_dry_run_writes_nothing(operator):
    operator = operator()
    fleet = operator.fleet
    start = fleet.moment()
    fleet.load(10)
    before = fleet.store.get(SHARD).checkpoint
    result = operator.change("leases", "rewind", "app", "--to", iso(start), "--dry-run", "--json")
    plan = json.loads(result.stdout)["plan"]
    assert plan["action"] == "rewind"
    assert plan["changes"][0]["recipe"] == "restart"
    assert plan["command"]["operation"] == "rewind"
    assert fleet.store.get(SHARD).checkpoint >= before
    assert not operator.audit.exists()


REFUSED = [
    (("leases", "rewind", "app", "--to", "tomorrow"), 2, "expected TRIM_HORIZON, LATEST, a time"),
    (("leases", "rewind", "app", "--to", "2099-01-01T00:00:00Z"), 2, "a moment in the past"),
    (("leases", "skip-to", "app", "--to", "TRIM_HORIZON"), 2, "expected LATEST, a time"),
    (("leases", "rewind", "nothing", "--to", "-15m"), 2, "nothing"),
    (("leases", "move", "app", "--shard", "0", "--to", "w9"), 2, "a worker of the table: a"),
    (("leases", "pin", "app", "--shard", "0", "--to", "w9"), 2, "a worker of the table: a"),
    (("leases", "release", "app", "--shard", "77"), 2, "shard"),
    (("worker", "drain", "app", "a"), 4, "no other worker would hold the leases"),
    (("worker", "drain", "app", "w9"), 2, "a worker of the table"),
    (("leases", "delete-app", "app"), 4, "is running: a writes to its table"),
]


@pytest.mark.usefixtures("any_place")
def test_refusals_and_errors_have_their_codes(operator):
    operator = operator()
    rows = [(row.owner, row.draining) for row in operator.fleet.store.list()]
    for arguments, code, message in REFUSED:
        result = operator.change(*arguments, code=code)
        assert message in result.stderr
        assert [(row.owner, row.draining) for row in operator.fleet.store.list()] == rows


@pytest.mark.usefixtures("any_place")
def test_a_drained_worker_holds_nothing_until_it_is_undrained(operator):
    operator = operator(workers=("a", "b"), shards=4)
    fleet = operator.fleet
    fleet.run(6)
    result = operator.change("worker", "drain", "app", "a")
    assert "a holds 0 leases" in result.stderr
    assert "To undo this: kinesis-sdk worker undrain app a" in result.stderr
    assert set(fleet.owners().values()) == {"b"}
    listed = json.loads(operator.run("worker", "list", "app", "--json").stdout)
    assert [(one["worker_id"], one["leases"], one["is_draining"]) for one in listed] == [
        ("a", 0, True),
        ("b", 4, False),
    ]
    operator.change("worker", "undrain", "app", "a")
    assert fleet.run(40, lambda: set(fleet.owners().values()) == {"a", "b"})
    fleet.load(3)
    assert sorted(int(data) for data in fleet.data()) == [*range(fleet.put_count)], "no record twice"
    assert [json.loads(line)["event"] for line in operator.audit.read_text().splitlines()] == [
        "begin",
        "done",
        "begin",
        "done",
    ]


@pytest.mark.parametrize("deleted", [True, False])
def test_an_export_restores_a_deleted_application(operator, tmp_path, deleted):
    operator = operator(workers=("a",), config=ConsumerConfig(initial_position="LATEST"))
    fleet = operator.fleet
    file = tmp_path / "app.jsonl"
    result = operator.run("leases", "export", "app", "--stream", "orders", "-o", str(file))
    saved, first = fleet.store.get(SHARD).checkpoint, fleet.put_count
    fleet.load(5)
    fleet.stop("a")
    fleet.run(30)
    if deleted:
        result = operator.change("leases", "delete-app", "app")
        assert "1 lease and its position is lost;" in result.stderr
        assert not fleet.dynamodb.list_tables()["TableNames"]
        backups = list((tmp_path / "state" / "kinesis-sdk").glob("app-*.jsonl"))
        assert len(backups) == 1
    tables = fleet.dynamodb.list_tables()["TableNames"]
    result = operator.change("leases", "import", "app", str(file), "--dry-run")
    assert fleet.dynamodb.list_tables()["TableNames"] == tables
    result = operator.change("leases", "import", "app", str(file), "--timeout", "0s")
    assert fleet.store.get(SHARD).checkpoint == saved
    fleet.add("b", fleet.checkpointer("b", "each batch"))
    fleet.load(5)
    assert fleet.runs()[-1][1] == [*range(first, fleet.put_count)]
    again = operator.change("leases", "import", "app", str(file), "--dry-run", "--json")
    assert len(json.loads(again.stdout)["plan"]["changes"]) == 1, "only what has moved since"


def damage_row(fleet, key):
    """Make a row unreadable, as a script with a mistake would."""
    if fleet.place == "dynamodb":
        fleet.dynamodb.update_item(
            TableName="app",
            Key={"leaseKey": {"S": key}},
            UpdateExpression="SET checkpoint = :value",
            ExpressionAttributeValues={":value": {"S": "not a position"}},
        )
        return
    from sqlalchemy import text

    with fleet.connection.database.begin() as database:
        done = database.execute(
            text("UPDATE kinesis_sdk_leases SET checkpoint = 'not a position' WHERE lease_key = :key"),
            {"key": key},
        )
        assert done.rowcount == 1


@both_places
def test_an_export_without_a_row_that_cannot_be_read_is_refused(operator, tmp_path):
    """A copy that silently lacked a lease would lose its position with the import."""
    operator = operator(shards=3)
    fleet = operator.fleet
    fleet.stop("a")
    fleet.run(30)
    keys = sorted(lease.lease_key for lease in fleet.store.list())
    damage_row(fleet, keys[1])
    file = tmp_path / "app.jsonl"
    result = operator.run("leases", "export", "app", "--stream", "orders", "-o", str(file), code=4)
    assert not file.exists()
    for text in ("Nothing was saved", keys[1], "not a position", "--skip-unreadable"):
        assert text in result.stderr, text
    assert operator.run("leases", "export", "app", "--stream", "orders", code=4).stdout == ""

    command = ("leases", "export", "app", "--stream", "orders", "-o", str(file), "--skip-unreadable")
    result = operator.run(*command, "--json")
    saved = json.loads(result.stdout)
    assert saved["leases"] == 2
    assert list(saved["left_out"]) == [keys[1]]
    assert f"Left out: {keys[1]} cannot be read" in result.stderr
    result = operator.change("leases", "import", "app", str(file), "--dry-run", code=4)
    assert f"{keys[1]}: the export lacks this row" in result.stderr


def test_an_application_is_not_deleted_while_a_row_cannot_be_saved(operator, tmp_path):
    operator = operator(shards=2)
    fleet = operator.fleet
    fleet.stop("a")
    fleet.run(30)
    damage_row(fleet, SHARD)
    result = operator.change("leases", "delete-app", "app", code=4)
    assert SHARD in result.stderr
    assert fleet.dynamodb.list_tables()["TableNames"] == ["app"]
    result = operator.change("leases", "delete-app", "app", "--skip-unreadable")
    assert f"Left out: {SHARD} cannot be read" in result.stderr
    assert not fleet.dynamodb.list_tables()["TableNames"]


def test_an_import_counts_the_rows_that_it_leaves_as_they_are(operator, tmp_path):
    operator = operator(shards=3)
    fleet = operator.fleet
    fleet.run(5)
    file = tmp_path / "app.jsonl"
    result = operator.run("leases", "export", "app", "--stream", "orders", "-o", str(file), "--json")
    assert json.loads(result.stdout) == {
        "schema": "leases-export/1",
        "file": str(file),
        "leases": 3,
        "left_out": {},
    }
    before = {row.lease_key: row.checkpoint for row in fleet.store.list()}
    fleet.put(2)
    fleet.run(5)
    moved = [row.lease_key for row in fleet.store.list() if row.checkpoint != before[row.lease_key]]
    assert len(moved) == 2
    result = operator.change("leases", "import", "app", str(file), "--dry-run")
    assert "1 row unchanged; -v lists them" in result.stderr
    result = operator.change("leases", "import", "app", str(file), "--dry-run", "-v")
    unchanged = [line for line in result.stderr.splitlines() if "unchanged, it is at the position" in line]
    (line,) = unchanged
    assert not any(shard in line for shard in moved)


def test_ctrl_c_between_two_writes_tells_what_was_done_and_the_rest(operator, monkeypatch):
    operator = operator(shards=2)
    fleet = operator.fleet
    monkeypatch.setattr(
        steer, "clock_and_sleep", lambda: {"clock": fleet.clock, "sleep": fleet.run, "threads": 1}
    )
    start, first = fleet.moment(), fleet.put_count
    fleet.load(10)
    send = DynamoDBLeaseTable.send
    count = 0

    def interrupted(self, write):
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return send(self, write)

    monkeypatch.setattr(DynamoDBLeaseTable, "send", interrupted)
    result = operator.change("leases", "rewind", "app", "--to", iso(start), code=130)
    assert "Interrupted: 1 of 2 rows were written" in result.stderr
    (rest,) = [line for line in result.stderr.splitlines() if line.startswith("The rest: kinesis-sdk ")]
    assert "--shard shardId-000000000001" in rest
    monkeypatch.setattr(DynamoDBLeaseTable, "send", send)
    result = operator.run(*shlex.split(rest)[3:], "--yes", "--json", "--audit-log", str(operator.audit))
    (told,) = json.loads(result.stdout)["outcomes"]
    assert (told["shard_id"], told["status"], told["noticed_by"]) == ("shardId-000000000001", "done", "a")
    fleet.run(5)
    times = Counter(int(data) for data in fleet.data())
    assert [times[number] for number in range(fleet.put_count)] == [1] * first + [2] * (
        fleet.put_count - first
    )
    events = [json.loads(line)["event"] for line in operator.audit.read_text().splitlines()]
    assert events == ["begin", "done", "begin", "interrupted", "begin", "done"]


@both_places
@pytest.mark.parametrize("kind", ["no such shard", "cannot be read", "finished"])
def test_one_row_is_deleted(operator, kind):
    operator = operator(shards=2)
    fleet = operator.fleet
    keys = sorted(lease.lease_key for lease in fleet.store.list())
    bad = "shardId-000000000777" if kind == "no such shard" else keys[1]
    if kind == "no such shard":
        fleet.store.create_if_absent(replace(fleet.store.get(keys[1]), lease_key=bad, owner=None))
    elif kind == "finished":
        fleet.stop("a")
        fleet.run(30)
        lease = fleet.store.get(bad)
        fleet.store.delete(bad)
        fleet.store.create_if_absent(replace(lease, checkpoint=ExtendedSequenceNumber("SHARD_END")))
        fleet.add("b", fleet.checkpointer("b", "each batch"))
    else:
        fleet.stop("a")
        fleet.run(30)
        damage_row(fleet, bad)
    command = ("leases", "delete-row", "app", "--row", bad if kind == "finished" else str(int(bad[-12:])))
    result = operator.run(
        *command, "--stream", "orders", "--audit-log", str(operator.audit), "--dry-run", "--json"
    )
    shown = json.loads(result.stdout)
    assert (shown["row"], shown["deleted"]) == (bad, False)
    assert ("has no such shard: no record is concerned" in " ".join(shown["effects"])) == (
        kind == "no such shard"
    )
    assert ("rewind shard 0001 afterwards" in " ".join(shown["effects"])) == (kind != "no such shard")
    result = operator.change(*command)
    assert "Done: 1 row deleted" in result.stderr
    begin, done = (json.loads(line) for line in operator.audit.read_text().splitlines())
    assert (begin["event"], done["event"], done["delete_row"]) == ("begin", "done", bad)
    if fleet.place == "dynamodb" or kind != "cannot be read":
        assert begin["before"]["leaseKey"] == {"S": bad}, "the row as it was"
    assert fleet.store.get(bad) is None
    result = operator.change(*command, code=2)
    assert "the key of one of the" in result.stderr


@both_places
def test_a_row_in_use_is_not_deleted(operator):
    operator = operator()
    fleet = operator.fleet
    result = operator.change("leases", "delete-row", "app", "--row", "0", code=4)
    assert f"{SHARD} is in use: a renews it" in result.stderr
    fleet.stop("a")
    fleet.run(30)
    plan = plan_row_deletion(fleet.desk(), SHARD)
    fleet.add("b", fleet.checkpointer("b", "each batch"))
    fleet.run(5)
    with pytest.raises(ChangeRefusedError, match="has changed meanwhile; nothing was deleted"):
        plan.apply()
    assert fleet.store.get(SHARD).owner == "b"
