"""The commands that look at an application, against the fake in process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kinesis_sdk.admin.fleet import poller as poller_module
from kinesis_sdk.admin.fleet.model import FleetView
from kinesis_sdk.admin.fleet.poller import FleetPoller
from kinesis_sdk.cli import exporter as exporter_module
from kinesis_sdk.cli.exporter import ErrorNotes
from kinesis_sdk.common import page_server
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease
from tests.cli.accounts import Account
from tests.cli.invoking import invoke


def made(place: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Account]:
    if place == "dynamodb":
        yield Account(monkeypatch)
        return
    pytest.importorskip("sqlalchemy")
    one = Account(monkeypatch, f"sqlite:///{folder}/leases.db")
    yield one
    one.connection.database.dispose()


@pytest.fixture(params=["dynamodb", "sqlite"])
def account(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Account]:
    """An account, once for each place of the leases."""
    yield from made(request.param, monkeypatch, tmp_path)


@pytest.fixture(params=["dynamodb", pytest.param("sqlite", marks=pytest.mark.fuzz_only)])
def any_account(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Account]:
    """As `account`, for tests of what does not depend on the place; SQLite when fuzzing."""
    yield from made(request.param, monkeypatch, tmp_path)


def document(result: Result) -> Any:
    return json.loads(result.stdout)


def test_apps_lists_lease_tables_only(account: Account) -> None:
    account.take(account.make("billing", "orders", 2), "zone-a|w1")
    account.dynamodb.create_table(
        TableName="billing-CoordinatorState",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    result = account.run("apps")
    assert [line.split()[:5] for line in result.stdout.splitlines()[1:]] == [
        ["billing", "2", "1", "1", "1/0/0"]
    ]
    (row,) = document(account.run("apps", "billing", "nothing", "--streams", "--json"))
    assert (row["application"], row["streams"], row["owners"]["kinesis_sdk"]) == ("billing", ["orders"], 1)
    if account.is_sql:
        assert row["created"] is None
    else:
        assert datetime.fromisoformat(row["created"]).tzinfo is not None  # as in `stream list --json`
    assert "There is no application nothing." in account.run("apps", "nothing").stderr


def test_lag_and_its_exit_codes(account: Account) -> None:
    account.take(account.make("billing", "orders", 2), "zone-a|w1", "w2")
    account.kinesis.put_record(StreamName="orders", Data=b"late", PartitionKey="p", ExplicitHashKey="0")
    account.clock.advance(600)
    result = account.run("lag", "billing", "--max-lag", "5m", code=1)
    assert "1 of 2 shards are more than 5 min behind." in result.stderr
    lines = [line.split() for line in result.stdout.splitlines()[3:]]
    assert lines[0][:3] == ["0000", "10", "min"]
    assert lines[1][:3] == ["0001", "0", "s"]
    account.run("lag", "billing", "--max-lag", "15m")
    view = document(account.run("lag", "billing", "--json"))
    assert [lease["lag"]["source"] for lease in view["leases"]] == ["probe", "probe"]
    assert view["totals"]["worst_lag_millis"] == pytest.approx(600_000, abs=1000)  # dates have whole seconds


def test_lag_of_all_applications_worst_first(account: Account) -> None:
    if not account.is_sql:  # where the database is made with its first application
        assert "No application was found" in account.run("lag", "--all-apps").stderr
    account.take(account.make("audit", "events", 1), "w1")
    account.take(account.make("billing", "orders", 2), "w1", "w2")
    account.kinesis.put_record(StreamName="orders", Data=b"late", PartitionKey="p", ExplicitHashKey="0")
    account.clock.advance(600)
    result = account.run("lag", "--all-apps", "--max-lag", "5m", code=1)
    assert "1 of 2 applications are more than 5 min behind." in result.stderr
    assert [line.split()[:6] for line in result.stdout.splitlines()[1:]] == [
        ["billing", "on", "orders", "10", "min", "1"],
        ["audit", "on", "events", "0", "s", "0"],
    ]
    account.run("lag", "--all-apps", "--max-lag", "15m")
    found = document(account.run("lag", "--all-apps", "--json"))["applications"]
    assert [(one["application"], one["totals"]["measured"]) for one in found] == [
        ("billing", 2),
        ("audit", 1),
    ]


def test_all_applications_or_one(account: Account) -> None:
    refused = account.run("lag", "billing", "--all-apps", "--stream", "orders", "--watch", code=2)
    assert "leave out APP and --stream and --watch" in refused.stderr
    missing = account.run("lag", code=2)
    assert "Missing argument 'APP'" in missing.stderr


def test_the_lag_of_a_tables_stream_is_what_its_workers_tell(account: Account) -> None:
    store = account.make("copier", "orders", 1)
    for lease in store.list():
        store.delete(lease.lease_key)
    key = "shardId-00000001795375578588-991082a5"
    store.create_if_absent(Lease(lease_key=key, checkpoint=ExtendedSequenceNumber("5")))
    result = account.run("lag", "copier", "--max-lag", "5m", "--json", code=1)
    assert "reads the stream of a DynamoDB table: its live workers report the lag" in result.stderr
    assert "The lag of 1 of 1 shards is not known." in result.stderr
    (lease_view,) = document(result)["leases"]
    assert (lease_view["lag"], lease_view["lag_note"]) == (None, "no live worker tells it")
    refused = account.run("leases", "explain", "copier", key, code=2)
    assert "reads the stream of a DynamoDB table, and this command needs" in refused.stderr
    assert "every view shows the lag that its workers report" in refused.stderr


@pytest.mark.parametrize(
    "command", [("lag", "billing"), ("leases", "show", "billing"), ("leases", "explain", "billing", "0")]
)
def test_a_stream_that_does_not_exist_is_an_error(any_account: Account, command: tuple[str, ...]) -> None:
    any_account.make("billing", "orders", 1)
    result = any_account.run(*command, "--stream", "missing", code=3)
    assert "missing" in result.stderr.splitlines()[-1]
    assert result.stdout == ""


def test_the_exporter_tells_an_error_once(capsys: pytest.CaptureFixture[str]) -> None:
    notes = ErrorNotes()
    for name, error in (
        ("a", "no table"),
        ("b", "no table"),
        ("a", "no table"),
        ("a", "no credentials"),
        ("a", None),
        ("a", "no table"),
    ):
        notes.update(FleetView(application=name, at=0.0, error=error))
    assert capsys.readouterr().err.splitlines() == [
        "a: no table",
        "b: no table",
        "a: no credentials",
        "a: no table",
    ]


def test_top_prints_snapshots_for_programs_without_a_terminal(
    any_account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_account.take(any_account.make("billing", "orders", 2), "w")
    polls: list[FleetPoller] = []

    def wait(poller: FleetPoller, _timeout: float, newer_than: FleetView | None = None) -> FleetView | None:
        polls.append(poller)
        if len(polls) > 2:
            raise KeyboardInterrupt
        poller.step_table()
        any_account.clock.advance(2)
        return poller.view()

    monkeypatch.setattr(FleetPoller, "start", lambda _poller: None)
    monkeypatch.setattr(FleetPoller, "wait", wait)
    monkeypatch.setattr(poller_module, "SystemClock", lambda: any_account.clock)
    result = any_account.run("top", "billing", "--json", code=130)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["totals"]["leases"] for line in lines] == [2, 2]
    any_account.run("top", "billing", "--json", "--allow-changes", code=2)
    any_account.run("top", "nothing", "--json", code=2)


def test_the_exporter_tells_programs_where_it_serves(
    any_account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FleetPoller] = []

    class Server:
        port = 4711

        def __init__(self, *_: object, setting: str) -> None:
            """Listen nowhere."""

        def close(self) -> None:
            """Nothing is open."""

    def start(poller: FleetPoller) -> None:
        made.append(poller)

    class Ended:
        def wait(self, timeout: float) -> None:
            """Without a limit, the main thread would miss a signal that another thread receives."""
            assert timeout < 1
            raise KeyboardInterrupt

    monkeypatch.setattr(page_server, "PageServer", Server)
    monkeypatch.setattr(exporter_module, "Event", Ended)
    monkeypatch.setattr(FleetPoller, "start", start)
    result = any_account.run(
        "exporter", "billing", "--table", "billing-leases", "--failover-time", "30s", "--json", code=130
    )
    assert json.loads(result.stdout) == {
        "url": "http://127.0.0.1:4711/metrics",
        "keda_url": "http://127.0.0.1:4711/keda",
        "health_url": "http://127.0.0.1:4711/healthz",
        "applications": ["billing"],
    }
    (poller,) = made
    assert poller.application.table_name == "billing-leases"
    assert poller.failover_time == 30.0


@pytest.mark.parametrize("command", [("exporter", "billing"), ("ui", "billing"), ("top", "billing")])
def test_bounds_of_a_recording_need_its_file(command: tuple[str, ...], tmp_path: Path) -> None:
    result = invoke(*command, "--recording-size", "64M", code=2)
    assert "expected --recording FILE as well" in result.stderr
    foreign = tmp_path / "notes.txt"
    foreign.write_text("no database " * 100)
    result = invoke(*command, "--recording", str(foreign), "--region", "us-east-1", code=2)
    assert "cannot be opened: file is not a database" in result.stderr


@pytest.mark.parametrize("command", [("exporter", "a", "b"), ("ui", "a", "b"), ("ui",)])
def test_a_table_is_that_of_one_application(command: tuple[str, ...]) -> None:
    result = invoke(*command, "--table", "leases", code=2)
    assert "expected exactly one APP" in result.stderr


def test_a_wrong_table_is_named(account: Account) -> None:
    account.make("billing", "orders", 1)
    for command in ("lag", "leases show"):
        result = account.run(*command.split(), "billing", "--table", "nope", code=2)
        missing = (
            "no leases of the application 'nope'" if account.is_sql else "there is no lease table 'nope'"
        )
        assert missing in result.stderr
        assert "application=" not in result.stderr


def test_an_unknown_lag_is_no_good_answer(any_account: Account) -> None:
    store = any_account.make("billing", "orders", 1)
    (lease,) = store.list()
    store.delete(lease.lease_key)
    store.create_if_absent(
        Lease(
            lease_key=lease.lease_key,
            checkpoint=ExtendedSequenceNumber("LATEST"),
            hash_key_range=lease.hash_key_range,
        )
    )
    result = any_account.run("lag", "billing", "--max-lag", "5m", code=1)
    assert "No lag for 0000: starts at the tip of the shard when a worker first reads it." in result.stdout


def test_explain_takes_short_shards(any_account: Account) -> None:
    any_account.take(any_account.make("billing", "orders", 3), "w1", "w2")
    result = any_account.run(
        "leases", "explain", "billing", "2"
    )  # without an owner, there is nothing to wait for
    assert result.stdout.startswith(
        "Shard 0002 has no owner. 2 workers renew other leases and could take it."
    )
    wrong = any_account.run("leases", "explain", "billing", "7", code=2)
    assert "one of the 3 shards of the application" in wrong.stderr
    found = document(any_account.run("leases", "explain", "billing", "0001", "--watch-for", "0s", "--json"))
    assert found["lease"]["owner"] == "w2"
    assert any("read only once" in paragraph for paragraph in found["explanation"])


def test_balance(any_account: Account) -> None:
    any_account.take(
        any_account.make("billing", "orders", 4), "zone-a|w1", "zone-a|w1", "zone-a|w1", "zone-b|w2"
    )
    found = document(any_account.run("balance", "billing", "--json"))
    assert (found["ideal"], found["spread"], found["moves"]) == (2.0, 2, 1)
    assert [(group["group"], group["leases"], group["ideal"]) for group in found["groups"]] == [
        ("zone-a", 3, 2.0),
        ("zone-b", 1, 2.0),
    ]
    assert "██▒" in any_account.run("balance", "billing").stdout
    other = document(any_account.run("balance", "billing", "--separator", "-", "--json"))
    assert [group["group"] for group in other["groups"]] == ["zone"]


def test_ids_of_other_programs_are_escaped(any_account: Account) -> None:
    any_account.take(any_account.make("billing", "orders", 1), "evil\x1b[31m\n[bold]worker")
    for command in (["leases", "list"], ["lag"], ["balance"], ["leases", "show"]):
        result = any_account.run(*command, "billing")
        assert "\x1b" not in result.stdout
        assert "evil\\x1b[31m\\n[bold]worker" in result.stdout.replace("\n", "")
    explained = any_account.run("leases", "explain", "billing", "0", "--watch-for", "0s")
    assert "\x1b" not in explained.stdout


def test_a_large_application_shows_its_worst_shards(any_account: Account) -> None:
    any_account.take(any_account.make("billing", "orders", 50), *["w1"] * 49)
    any_account.kinesis.put_record(StreamName="orders", Data=b"late", PartitionKey="p", ExplicitHashKey="0")
    any_account.clock.advance(120)
    lines = any_account.run("lag", "billing").stdout.splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["0049", "0000"]  # no owner, then most behind
    assert lines[-1] == "30 more shards; --all shows them."
    assert all(len(line) <= 100 for line in lines)
    assert len(any_account.run("lag", "billing", "--all").stdout.splitlines()) == 53
