"""Names that a shell completes, and that an error suggests: those that exist, or none."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from kinesis_sdk.cli import names as names_module
from kinesis_sdk.cli.main import cli
from kinesis_sdk.cli.names import Name, in_time
from kinesis_sdk.cli.options import ConnectionOptions
from tests.cli.accounts import Account
from tests.cli.commands import ALL
from tests.cli.invoking import invoke


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    one = Account(monkeypatch)
    one.take(one.make("billing", "orders", 2), "zone-a|web1", "zone-b|web2")
    one.make("bills-archive", "orders-archive", 1)
    one.dynamodb.create_table(
        TableName="bill-of-materials",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    monkeypatch.setattr(ConnectionOptions, "connect", lambda _: one.connection)
    # In the caller's thread, so that nothing depends on how fast another one is.
    monkeypatch.setattr(names_module, "in_time", lambda ask: sorted(set(ask())))
    return one


def completed(words: Sequence[str], incomplete: str) -> list[str]:
    shell = ShellComplete(cli, {}, "kinesis-sdk", "_KINESIS_SDK_COMPLETE")
    return [item.value for item in shell.get_completions(list(words), incomplete)]


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        (["lag"], "bil", ["billing", "bills-archive"]),
        (["lag", "--max-lag", "5m"], "billi", ["billing"]),
        (["apps"], "bil", ["billing", "bills-archive"]),
        (["ui", "billing"], "bills", ["bills-archive"]),
        (["exporter"], "nothing", []),
        (["leases", "rewind"], "b", ["billing", "bills-archive"]),
        (["stream", "describe"], "orders-", ["orders-archive"]),
        (["tail"], "or", ["orders", "orders-archive"]),
        (["copy"], "or", ["orders", "orders-archive"]),
        (["lag", "billing", "--stream"], "", ["orders", "orders-archive"]),
        (["worker", "drain", "billing"], "zone-b", ["zone-b|web2"]),
        (["leases", "move", "billing", "--to"], "", ["zone-a|web1", "zone-b|web2"]),
        (["worker", "drain", "billing", "--region", "eu-west-1"], "zone-a", ["zone-a|web1"]),
    ],
)
def test_names_are_completed(words: Sequence[str], incomplete: str, found: Sequence[str]) -> None:
    assert completed(words, incomplete) == found


def test_every_parameter_that_is_shown_as_a_name_completes_it() -> None:
    without = [
        f"{name} {parameter.name}"
        for name, command in ALL.items()
        for parameter in command.params
        if (parameter.metavar or "").strip("[].").removesuffix("]") in ("APP", "STREAM", "WORKER")
        and not isinstance(parameter.type, Name)
        and parameter.type is not click.UNPROCESSED
    ]
    assert without == []


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["lag", "biling"], "Did you mean billing?"),
        (["leases", "list", "bills-archiv"], "Did you mean bills-archive?"),
        (["balance", "bill-of-material"], ""),  # a table of something else is no application
        (["lag", "something-else"], ""),
        (["lag", "billing", "--stream", "order"], "Did you mean orders"),
    ],
)
def test_a_wrong_name_is_answered_with_those_that_are_close(words: list[str], hint: str) -> None:
    result = invoke(*words, code=None)
    assert result.exit_code in (2, 3)
    if hint:
        assert hint in result.stderr.replace("\n", " ")
    else:
        assert "Did you mean" not in result.stderr


def test_an_account_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "TIMEOUT", 0.0)
    never = threading.Event()

    def hangs() -> list[str]:
        never.wait()
        return ["late"]

    assert in_time(hangs) == []
    never.set()


def test_what_fails_is_no_answer() -> None:
    def fails() -> list[str]:
        raise ZeroDivisionError

    assert in_time(fails) == []


def test_a_database_of_leases_lists_its_applications(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    one = Account(monkeypatch, f"sqlite:///{tmp_path}/leases.db")
    one.make("billing", "orders", 1)
    monkeypatch.setattr(ConnectionOptions, "connect", lambda _: one.connection)
    monkeypatch.setattr(names_module, "in_time", lambda ask: sorted(set(ask())))
    assert completed(["lag"], "b") == ["billing"]
    one.connection.database.dispose()
