from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kinesis_sdk.cli import output
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.lazy_group import LazyGroup
from kinesis_sdk.cli.main import cli
from kinesis_sdk.cli.options import DURATION, Moment, connection_options, make_connection, parse_duration
from kinesis_sdk.cli.output import CommandError, ExitCode, confirm, with_exit_codes
from kinesis_sdk.common.errors import AwsConfigError, ConfigError, EndpointUnreachableError

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("15m", 900.0),
        ("15min", 900.0),
        ("2d", 172800.0),
        ("", None),
        ("s", None),
        ("-5s", None),
        ("5 s", None),
        ("1.2.3s", None),
        ("٣s", None),
        ("5parsecs", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


def test_a_duration_that_is_none_names_the_forms() -> None:
    with pytest.raises(click.BadParameter, match="30s, 15m, 2h or 1d"):
        DURATION.convert("soon", None, None)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-21T09:00:00Z", datetime(2026, 11, 21, 9, tzinfo=timezone.utc)),
        ("2026-11-21T09:00:00+02:00", datetime(2026, 11, 21, 7, tzinfo=timezone.utc)),
        ("15m", NOW - timedelta(minutes=15)),
        ("-15m", NOW - timedelta(minutes=15)),
        ("latest", "LATEST"),
    ],
)
def test_moments(text: str, moment: datetime | str) -> None:
    assert Moment("LATEST", now=lambda: NOW).convert(text, None, None) == moment


def test_a_moment_without_an_offset_is_local_time() -> None:
    moment = Moment().convert("2026-11-21T09:00:00", None, None)
    assert isinstance(moment, datetime)
    assert moment == datetime(2026, 11, 21, 9).astimezone()


@pytest.mark.parametrize("text", ["900", "yesterday", "LATEST", ""])
def test_a_moment_that_is_none_names_the_forms(text: str) -> None:
    with pytest.raises(click.BadParameter, match="15 minutes ago"):
        Moment("TRIM_HORIZON").convert(text, None, None)


def run(function: Any, *arguments: str) -> Any:
    return CliRunner().invoke(click.command()(function), arguments)


def test_a_missing_region_names_the_option_and_the_variable() -> None:
    @with_exit_codes
    def look() -> None:
        raise AwsConfigError("You must specify a region.", operation="", code="NoRegionError")

    result = run(look)
    assert result.exit_code == ExitCode.CALL_FAILED
    assert "--region" in result.stderr
    assert "AWS_DEFAULT_REGION" in result.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("NoCredentialsError", ("--profile", "AWS_ACCESS_KEY_ID", "takes any values")),
        ("ProfileNotFound", ("~/.aws/config",)),
    ],
)
def test_missing_credentials_name_where_they_may_come_from(code: str, words: tuple[str, ...]) -> None:
    @with_exit_codes
    def look() -> None:
        raise AwsConfigError("no usable AWS credentials", operation="Scan", code=code)

    result = run(look)
    assert result.exit_code == ExitCode.CALL_FAILED
    assert all(word in result.stderr for word in words)


def test_connection_options_reach_the_connection() -> None:
    @connection_options
    def show(region: str | None, profile: str | None, endpoint_url: str | None) -> None:
        click.echo(" ".join(make_connection(region, profile, endpoint_url).options))

    assert run(show, "--region", "eu-west-1", "--profile", "p").output == "--region eu-west-1 --profile p\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("shards", 0, "at least 1"), ExitCode.USAGE),
        (
            EndpointUnreachableError("nothing listens", operation="ListStreams", code="", endpoint=None),
            ExitCode.CALL_FAILED,
        ),
        (CommandError("no", ExitCode.REFUSED), ExitCode.REFUSED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
)
def test_errors_have_exit_codes(error: BaseException, code: ExitCode) -> None:
    @with_exit_codes
    def fail() -> None:
        raise error

    assert run(fail).exit_code == code


def test_a_bug_is_not_hidden() -> None:
    @with_exit_codes
    def fail() -> None:
        raise ZeroDivisionError

    assert isinstance(run(fail).exception, ZeroDivisionError)


def test_a_change_without_a_terminal_needs_yes() -> None:
    def change(*, yes: bool) -> None:
        confirm("Really?", yes=yes)
        click.echo("changed")

    refused = run(lambda: change(yes=False))
    assert (refused.exit_code, "Add --yes" in refused.output) == (ExitCode.REFUSED, True)
    assert run(lambda: change(yes=True)).output == "changed\n"


@pytest.mark.parametrize(("answer", "code"), [("y\n", ExitCode.DONE), ("n\n", ExitCode.REFUSED)])
def test_the_answer_decides(answer: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch) -> None:
    def change() -> None:
        monkeypatch.setattr(output.sys.stdin, "isatty", lambda: True)
        confirm("Really?", yes=False)

    assert CliRunner().invoke(click.command()(change), input=answer).exit_code == code


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(CommandError, match=r"\.\[tui\]"):
        need("no_such_package_at_all.part", "tui")
    assert need("json", "cli").dumps([]) == "[]"


def test_the_list_of_commands_imports_none() -> None:
    group = LazyGroup(homes={"broken": ("no_such_module:command", "Does nothing.")})
    listed = CliRunner().invoke(group, ["--help"])
    assert "Does nothing." in listed.output
    assert isinstance(CliRunner().invoke(group, ["broken"]).exception, ModuleNotFoundError)


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Every command with its path, those of groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


def test_every_command_teaches() -> None:
    runner = CliRunner()
    found = [path for path in commands(cli) if path != ("fake",)]  # whose help is argparse's
    assert ("demo",) in found
    for path in found:
        shown = runner.invoke(cli, [*path, "--help"])
        assert shown.exit_code == 0, (path, shown.output)
        assert "Usage:" in shown.output
        assert "\\b" not in shown.output, f"{path}: the mark of a paragraph is shown"
        examples = shown.output.partition("Example")[2].splitlines()[1:]
        assert all(line.startswith("    kinesis-sdk ") for line in examples[:1]), path


def test_the_page_of_the_command_line_has_every_command_and_exit_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in cli.list_commands(click.Context(cli)) if f"`{name}`" not in page] == []
    assert [code for code in ExitCode if f"| {int(code)} |" not in page] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.shell_completion.BashComplete._check_version", lambda *_: None)
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert "_KINESIS_SDK_COMPLETE" in result.stdout
