"""Rules for all commands, checked on the whole tree: what each of them offers, and that an option means the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict

import click
import pytest

from kinesis_sdk.cli.options import DURATION
from kinesis_sdk.testing.__main__ import build_parser
from tests.cli.commands import ALL
from tests.cli.invoking import invoke

SHARED = ("--json", "--region", "--profile", "--endpoint-url")

WITHOUT = {
    "completion": (set(SHARED), "prints a script for a shell, and calls nothing"),
    "schema": (set(SHARED), "prints a schema, and calls nothing"),
    "fake": ({"--profile", "--endpoint-url"}, "is an endpoint itself, and calls none"),
}
"""Options that a command does not have, and why."""

TYPES_DIFFER = {
    "--key": "put names the field that has the keys, tail a key to look for",
    "--shard": "one shard, or several where the command changes each on its own",
    "--stream": "run consumes several streams in one application",
    "--to": "what moves goes to a worker, a position to a moment or record",
}
"""Options whose type depends on the command, and why."""

HELP_DIFFERS = {
    **TYPES_DIFFER,
    "--all": "what is left out by default",
    "--allow-changes": "what may be changed",
    "--from": "a tail of one shard may begin at a record",
    "--health-port": "whether several processes share it",
    "--host": "whether a token protects it",
    "--limit": "records or letters",
    "--shards": "of the demo's stream, or of the one to create",
    "--timeout": "what is waited for",
    "--until": "what happens without it",
    "--wait": "what is waited for",
    "--watch-for": "what becomes known meanwhile",
}
"""Options of one meaning whose help has to say more than that."""


def options_of(name: str) -> set[str]:
    if name == "fake":  # its options are argparse's
        return {text for action in build_parser()._actions for text in action.option_strings}
    return {text for parameter in ALL[name].params for text in parameter.opts}


def test_each_command_has_the_shared_options() -> None:
    missing = {name: found for name in ALL if (found := set(SHARED) - options_of(name))}
    assert missing == {name: lacks for name, (lacks, _) in WITHOUT.items()}


def kind_of(option: click.Option) -> tuple[object, ...]:
    """Return what an option takes. Bounds do not count."""
    kind: object = type(option.type).__name__
    if isinstance(option.type, (click.IntRange, click.FloatRange)):
        kind = type(option.type).__mro__[2].__name__
    kind = {"IntParamType": "integer", "FloatParamType": "number"}.get(str(kind), kind)
    return kind, option.is_flag, option.multiple, option.nargs, option.metavar


def by_name() -> dict[str, dict[str, click.Option]]:
    found: dict[str, dict[str, click.Option]] = defaultdict(dict)
    for command, one in ALL.items():
        for parameter in one.params:
            if isinstance(parameter, click.Option):
                found[parameter.opts[0]][command] = parameter
    return found


def test_an_option_of_one_name_takes_the_same_everywhere() -> None:
    wrong = {}
    for name, uses in by_name().items():
        kinds = {kind_of(option) for option in uses.values()}
        if (len(kinds) > 1) != (name in TYPES_DIFFER):
            wrong[name] = {command: kind_of(option) for command, option in uses.items()}
    assert wrong == {}


def test_an_option_of_one_name_means_the_same_everywhere() -> None:
    wrong = {}
    for name, uses in by_name().items():
        texts = {option.help for option in uses.values()}
        if len(texts) > 1 and name not in HELP_DIFFERS:
            wrong[name] = texts
    assert wrong == {}
    assert by_name().keys() >= set(HELP_DIFFERS)


def test_lengths_of_time_are_durations() -> None:
    """No command takes plain seconds where another one takes 30s or 5m."""
    for name in (
        "--failover-time",
        "--timeout",
        "--stop-timeout",
        "--interval",
        "--ttl",
        "--duration",
        "--max-lag",
    ):
        for command, option in by_name()[name].items():
            assert type(option.type) is type(DURATION), f"{command} {name}"


def test_commands_that_change_nothing_ask_nothing() -> None:
    for name in (
        "worker list",
        "leases list",
        "leases show",
        "leases explain",
        "leases export",
        "lag",
        "balance",
    ):
        assert not options_of(name) & {"--yes", "--dry-run", "--audit-log"}, name


@pytest.mark.parametrize("group", ["", "stream", "leases", "worker", "dlq"])
def test_the_list_of_commands_is_in_whole_sentences(group: str) -> None:
    result = invoke(*group.split(), "--help")
    listed = result.output.partition("Commands:")[2].splitlines()
    assert len(listed) > 3
    assert not [line for line in listed if line.rstrip().endswith(("...", "…"))]


def test_each_option_has_a_help() -> None:
    for name, command in ALL.items():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and name != "fake":
                assert parameter.help, (name, parameter.opts)


HEAVY = (
    "kinesis_sdk.consumer kinesis_sdk.producer kinesis_sdk.admin.applications boto3 botocore rich textual starlette uvicorn "
    "prometheus_client pyarrow asyncio"
)
"""What a command imports when it runs, and not before: --help and completion have to be fast."""


def test_help_and_completion_import_no_more_than_the_options() -> None:
    code = (
        "import sys, click; from kinesis_sdk.cli.main import cli\n"
        "def walk(command):\n"
        "    command.get_help(click.Context(command))\n"
        "    for name in command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ():\n"
        "        walk(command.get_command(click.Context(command), name))\n"
        f"walk(cli); print(*sorted(set({HEAVY!r}.split()) & set(sys.modules)), len(sys.modules), sep='\\n')"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    *loaded, count = result.stdout.split()
    assert loaded == []
    assert int(count) < 450
