"""``--config``: one file names the application for the workers and for the commands that look at them."""

from __future__ import annotations

from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kinesis_sdk.cli.application import ApplicationOptions
from kinesis_sdk.cli.main import cli
from kinesis_sdk.cli.options import ConnectionOptions
from kinesis_sdk.cli.run import command as run_module
from kinesis_sdk.cli.run.config_file import read_file
from kinesis_sdk.common.errors import ConfigError
from tests.cli.invoking import invoke

FILE = """
max_threads = 3
[leases]
failover_time = 20
[lease_table]
table_name = "billing-leases"
lease_store = "sqlite:///of-the-file.db"
[application]
name = "billing"
stream = "orders"
region = "eu-west-1"
profile = "prod"
endpoint_url = "http://127.0.0.1:9"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "worker.toml"
    path.write_text(FILE)
    return str(path)


class OpenedError(Exception):
    """The command got as far as its application."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a command passed on when it opened its application."""
    found: dict[str, Any] = {}

    def opened(app: ApplicationOptions) -> None:
        found.update(asdict(app.account), name=app.name, stream=app.stream, table=app.table)
        raise OpenedError

    monkeypatch.setattr(ApplicationOptions, "open", opened)
    monkeypatch.delenv("KINESIS_SDK_LEASE_STORE", raising=False)
    return found


def run(*arguments: str, code: int | None = None) -> Result:
    return invoke(*arguments, code=code)


OF_FILE = {
    "name": "billing",
    "stream": "orders",
    "table": "billing-leases",
    "lease_store": "sqlite:///of-the-file.db",
    "region": "eu-west-1",
    "profile": "prod",
    "endpoint_url": "http://127.0.0.1:9",
}


@pytest.mark.parametrize(
    "command", [["lag"], ["lag", "--max-lag", "5m"], ["leases", "rewind", "--to", "-15m", "--dry-run"]]
)
def test_a_command_takes_all_from_the_file(command: list[str], file: str, opened: dict[str, Any]) -> None:
    result = run(*command, "--config", file)
    assert isinstance(result.exception, OpenedError), result.output
    assert opened == OF_FILE


def test_options_have_priority(file: str, opened: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run("lag", "billing", "--config", file, "--stream", "clicks", "--region", "us-east-1", "--table", "t-1")
    assert opened == {**OF_FILE, "stream": "clicks", "region": "us-east-1", "table": "t-1"}
    monkeypatch.setenv("KINESIS_SDK_LEASE_STORE", "sqlite:///of-the-environment.db")
    run("lag", "--config", file)
    assert opened["lease_store"] == "sqlite:///of-the-environment.db"
    run("lag", "--config", file, "--lease-store", "sqlite:///of-the-option.db")
    assert opened["lease_store"] == "sqlite:///of-the-option.db"


def test_the_account_of_the_file_has_priority_over_the_aws_settings_of_the_environment(
    file: str, opened: dict[str, Any], sources: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "of-the-environment")
    run("lag", "--config", file)
    assert opened == OF_FILE
    run("run", "app:handle", "--config", file)
    assert sources[0][0] == ("eu-west-1", "prod", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("command", "label"),
    [
        (["lag", "other"], "APP"),
        (["leases", "delete-app", "other", "--yes", "--no-backup"], "APP"),
        (["leases", "explain", "other", "3"], "APP"),
        (["worker", "drain", "other", "w-1"], "APP"),
        (["run", "app:handle", "--app", "other"], "--app"),
    ],
)
def test_another_application_than_the_file_s_is_refused(
    command: list[str], label: str, file: str, opened: dict[str, Any], sources: list[Any]
) -> None:
    result = run(*command, "--config", file, code=2)
    assert (
        f"the file of --config is of application 'billing', not of 'other': leave {label} out, or give the options of "
        "'other' without --config" in " ".join(result.output.split())
    )
    assert (opened, sources) == ({}, [])


def test_a_file_that_names_no_application_serves_all(tmp_path: Path, opened: dict[str, Any]) -> None:
    path = tmp_path / "worker.toml"
    path.write_text("[application]\nstream = 'orders'\n")
    run("lag", "other", "--config", str(path))
    assert (opened["name"], opened["stream"]) == ("other", "orders")


def test_the_failover_time_is_that_of_the_workers(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(ApplicationOptions, "open", lambda _: None)
    monkeypatch.setattr(
        "kinesis_sdk.cli.lag_view.show_lag", lambda _, **more: seen.append(more["failover_time"])
    )
    run("lag", "--config", file)
    run("lag", "--config", file, "--failover-time", "5s")
    run("lag", "billing")
    assert seen == [20.0, 5.0, 10.0]


@pytest.mark.parametrize(
    ("arguments", "name", "worker"),
    [
        (["w-1"], "billing", "w-1"),
        (["billing", "w-1"], "billing", "w-1"),
        (["billing", "billing"], "billing", "billing"),
    ],
)
def test_the_application_may_be_left_out_before_other_arguments(
    arguments: list[str], name: str, worker: str, file: str, opened: dict[str, Any]
) -> None:
    callback = cli.get_command(None, "worker").get_command(None, "drain")  # type: ignore[arg-type,union-attr]
    context = callback.make_context("drain", [*arguments, "--config", file])
    assert (context.params["application_name"], context.params["worker"]) == (name, worker)
    result = run("worker", "drain", *arguments, "--config", file)
    assert isinstance(result.exception, OpenedError), result.output
    assert opened["name"] == name


def test_what_is_missing_everywhere_is_named(file: str, tmp_path: Path) -> None:
    result = run("worker", "drain", "--config", file)
    assert (result.exit_code, "Missing argument 'WORKER'" in result.output) == (2, True)
    result = run("worker", "drain", "billing", "--config", file)
    assert (result.exit_code, "Missing argument 'WORKER'" in result.output) == (2, True)
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    for command, missing in ((["lag"], "APP"), (["worker", "drain", "w"], "WORKER")):
        result = run(*command, "--config", str(empty))
        assert (result.exit_code, f"Missing argument '{missing}'" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense = 1", "nonsense"),
        ("[leases]\nfailover_time = -1", "leases.failover_time=-1"),
        ("application = 3", "a table, [application]"),
        (
            "[application]\nstraem = 'orders'",
            "application.straem is invalid: expected one of name, stream",
        ),
        ("[application]\nname = 3", "application.name=3 is invalid: expected a text"),
        ("[application]\nstreams = 'orders'", "a list of texts"),
        ("[application]\nstreams = []", "a list of texts"),
        ("[application]\nstream = ''", "a text"),
        ("[application]\nstream = 'a'\ndynamodb_table = 'b'", "nothing beside stream"),
        ("[application]\nlease_store = 'leases.db'", "application.lease_store='leases.db' is invalid"),
        (
            "[application]\nlease_store = 'sqlite:///a.db'\n[lease_table]\nlease_store = 'sqlite:///b.db'",
            "nothing beside lease_table.lease_store",
        ),
    ],
)
@pytest.mark.parametrize(
    "command", [["lag", "billing"], ["run", "app:handle", "--stream", "s", "--app", "billing"]]
)
def test_unknown_names_and_wrong_values_are_errors(
    command: list[str], text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    result = run(*command, "--config", str(path), code=2)
    assert message in result.output


URL = "'postgresql://ann:SECRET@host/db?password=SECRET'"


@pytest.mark.parametrize(
    "text",
    [
        f"nonsense = {URL}",
        f"leases = {URL}",
        f"[leases]\nlease_store = {URL}",
        f"application = {URL}",
        f"application = [{{ name = {URL} }}]",
        f"[application]\nleasestore = {URL}",
        f"[application]\nname = [{URL}]",
        f"[application]\nstreams = {URL}",
        f"[application]\nstream = 'a'\ndynamodb_table = {URL}",
        "[application]\nlease_store = 'oracle://ann:SECRET@host/db?password=SECRET'",
        f"[application]\nlease_store = {URL}\n[lease_table]\nlease_store = {URL}",
    ],
)
def test_no_error_shows_a_password(text: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_file(str(path))
    assert "SECRET" not in f"{caught.value} {caught.value.value!r}"


def test_the_lease_store_may_be_in_the_table_of_the_application(
    tmp_path: Path, opened: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "worker.toml"
    path.write_text("[application]\nname = 'billing'\nlease_store = 'postgresql://ann:SECRET@host/db'\n")
    read = read_file(str(path))
    assert read.config.lease_table.lease_store == "postgresql://ann:SECRET@host/db"
    assert "SECRET" not in repr(read)
    run("lag", "--config", str(path))
    assert opened["lease_store"] == "postgresql://ann:SECRET@host/db"
    monkeypatch.setenv("KINESIS_SDK_LEASE_STORE", "sqlite:///of-the-environment.db")
    run("lag", "--config", str(path))
    assert opened["lease_store"] == "sqlite:///of-the-environment.db"


def test_several_streams_leave_the_choice_to_the_command(tmp_path: Path, opened: dict[str, Any]) -> None:
    path = tmp_path / "worker.toml"
    path.write_text("[application]\nname = 'billing'\nstreams = ['a', 'b']\n")
    assert read_file(str(path)).application.all_streams == ("a", "b")
    run("lag", "--config", str(path))
    assert opened["stream"] is None


def test_a_file_of_endless_depth_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("application = " + "[" * 20_000)
    with pytest.raises(ConfigError, match="a TOML file"):
        read_file(str(path))


def test_a_file_that_is_gone_is_named() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        read_file("/nowhere/at/all.toml")


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `run` looks for before it starts processes."""
    found: list[Any] = []

    def _sources(connection: Any, streams: tuple[str, ...], dynamodb_table: str | None) -> None:
        found.append((connection, streams, dynamodb_table))
        raise OpenedError

    monkeypatch.setattr(run_module, "_sources", _sources)
    monkeypatch.setattr(ConnectionOptions, "connect", lambda place: astuple(place)[:3])
    return found


def test_run_takes_application_and_streams_from_the_file(
    file: str, sources: list[Any], tmp_path: Path
) -> None:
    result = run("run", "app:handle", "--config", file)
    assert isinstance(result.exception, OpenedError), result.output
    run("run", "app:handle", "--config", file, "--stream", "clicks", "--region", "us-east-1")
    run("run", "app:handle", "--config", file, "--dynamodb-table", "orders-table")
    table = tmp_path / "table.toml"
    table.write_text("[application]\nname = 'copier'\ndynamodb_table = 'orders'\n")
    run("run", "app:handle", "--config", str(table))
    run("run", "app:handle", "--config", str(table), "--stream", "clicks")
    place = ("eu-west-1", "prod", "http://127.0.0.1:9")
    assert sources == [
        (place, ("orders",), None),
        (("us-east-1", *place[1:]), ("clicks",), None),
        (place, (), "orders-table"),
        ((None, None, None), (), "orders"),
        ((None, None, None), ("clicks",), None),
    ]


def test_run_without_an_application_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "worker.toml"
    path.write_text("[application]\nstream = 'orders'\n")
    result = run("run", "app:handle", "--config", str(path))
    assert (result.exit_code, "Missing option '--app'" in result.output) == (2, True)
