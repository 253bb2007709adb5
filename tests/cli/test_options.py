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
from kinesis_sdk.cli.options import (
    DURATION,
    Bytes,
    ConnectionOptions,
    Duration,
    Ending,
    PositionType,
    connection_options,
)
from kinesis_sdk.cli.output import CommandError, ExitCode, confirm, with_exit_codes
from kinesis_sdk.cli.spelling import options_of
from kinesis_sdk.common.errors import AwsConfigError, ConfigError, EndpointUnreachableError
from kinesis_sdk.common.position import AtTimestamp, Latest, TrimHorizon
from tests.cli.invoking import invoke

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("64k", 65_536), ("2M", 2 << 20), ("1g", 1 << 30), ("", None), ("M", None), ("-1", None), ("1.5M", None),
     ("1T", None), ("1kk", None), ("٣", None), ("9" * 5000, None), ("2G", None), ("10", None)],
)  # fmt: skip
def test_sizes(text: str, size: int | None) -> None:
    kind = Bytes(1000, 1 << 30)
    if size is not None:
        assert kind.convert(text, None, None) == size
    else:
        with pytest.raises(click.BadParameter, match=r"64M or 1G|1,000 to 1,073,741,824 bytes"):
            kind.convert(text, None, None)


def test_the_types_of_options_speak_the_grammar_of_positions() -> None:
    assert DURATION.convert("1h30m", None, None) == 5400.0
    assert DURATION.convert(20, None, None) == 20.0  # from a file of --config
    beginning = PositionType(Latest, AtTimestamp, now=NOW.timestamp)
    assert beginning.convert("-15m", None, None) == AtTimestamp(millis(NOW) - 900_000)
    assert beginning.convert(Latest(), None, None) == Latest()
    ending = Ending(now=NOW.timestamp)
    assert ending.convert("now", None, None) == "NOW"
    assert ending.convert("2026-11-21T09:00:00", None, None) == datetime(2026, 11, 21, 9, tzinfo=timezone.utc)
    assert ending.convert("-15m", None, None) == NOW - timedelta(minutes=15)
    assert ending.convert(NOW, None, None) == NOW


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (DURATION, "30", "got '30', expected a duration .*; write 30s for seconds"),
        (Duration(1.0, 60.0), "5h", "got '5h', expected a duration from 1s to 60s"),
        (Duration(1.0, 60.0), 90, "from 1s to 60s"),
        (PositionType(Latest, AtTimestamp), "15m", "got '15m', expected LATEST, a time .*; write -15m"),
        (PositionType(TrimHorizon), "LATEST", "got 'LATEST', expected TRIM_HORIZON$"),
        (Ending(), "soon", "expected a time .*; or NOW"),
        (Ending(), "x" * 5000, "got 'x{80}', expected a time"),
    ],
)
def test_a_text_of_another_kind_is_refused_with_the_forms(
    kind: click.ParamType[Any], text: Any, message: str
) -> None:
    with pytest.raises(click.BadParameter, match=message):
        kind.convert(text, None, None)


def millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


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
    def show(account: ConnectionOptions) -> None:
        click.echo(" ".join(options_of(account.connect())))

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
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_KINESIS_SDK_COMPLETE" in result.stdout
