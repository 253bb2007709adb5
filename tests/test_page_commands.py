"""Every command on a page is one that exists, with arguments that its program takes: `kinesis-sdk …`, `make …`, `python …`, `pip install …`.

The commands are parsed by the programs' own parsers, and nothing of them runs. Tests of the pages in `integration/` run many of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from kinesis_sdk.cli.main import cli
from tests.cli.commands import parse
from tests.readme import PAGES, ROOT, blocks

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OURS = ("benchmarks.", "integration.", "kinesis_sdk.", "tests.", "tools.")
"""Packages whose programs are parsed here; of others, such as pytest, only the files that they get."""

_PROGRAM = re.compile(r"(?:\$ )?(?:\w+=\S+ )*(?:\S*/)?(kinesis-sdk|make|python3?|pip) (?!…)")
_ENDS = {"|", "||", "&&", ";", "&", ">", "2>"}


@dataclass(frozen=True)
class Command:
    """A command as it stands on a page; ``quoted`` in the middle of a sentence, where required arguments may be left out."""

    text: str
    quoted: bool

    @property
    def words(self) -> list[str]:
        """The words of the shell, up to a pipe; without optional parts in brackets, environment variables and the prompt."""
        words = shlex.split(re.sub(r"\[[^]']*\]", "", self.text), comments=True)
        while words[0] == "$" or re.fullmatch(r"\w+=.*", words[0]):
            del words[0]
        end = next((number for number, word in enumerate(words) if word in _ENDS), len(words))
        return words[:end]


def commands(page: Path, *programs: str) -> list[Command]:
    """Return the commands of a page that start one of these programs."""
    found = []
    for block in blocks(page=page):
        if block.language in ("", "sh", "text", "console"):
            text = block.text.replace("\\\n", " ")
            found += [Command(line.strip(), quoted=False) for line in text.splitlines()]
    prose = re.sub(
        r"^ *(```+).*?^ *\1 *$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    found += [Command(code, quoted=True) for code in re.findall(r"`([^`\n]+)`", prose)]
    return [one for one in found if (match := _PROGRAM.match(one.text)) and match[1] in programs]


def named(*programs: str) -> list[tuple[str, Command]]:
    """Return the commands of all pages that start one of these programs, with the names of the pages."""
    return [
        (page.relative_to(ROOT).as_posix(), command)
        for page in PAGES
        for command in commands(page, *programs)
    ]


# kinesis-sdk


def test_every_command_of_ours_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no file of the repository stands for one of the page
    accepted = set()
    for page, command in named("kinesis-sdk"):
        every = list(alternatives(command.words[1:]))
        for words in every:
            # "stream list|describe" shows which commands there are, not their arguments.
            quoted = command.quoted or len(every) > 1
            if (*words, quoted) in accepted:
                continue
            try:
                parse(cli, words, quoted=quoted)
            except click.UsageError as error:
                pytest.fail(f"{page}: {command.text}: {error.format_message()}")
            accepted.add((*words, quoted))


def alternatives(words: list[str]) -> Iterator[list[str]]:
    """Yield `stream list` and `stream create` of `stream list|create`."""
    for number, word in enumerate(words):
        if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word):
            for one in word.split("|"):
                yield from alternatives([*words[:number], one, *words[number + 1 :]])
            return
    yield words


def test_a_wrong_command_is_refused() -> None:
    for wrong in (
        "leases rewind billing --too -15m",
        "leases rewnd billing --to -15m",
        "lag",
        "stream scale orders many",
        "leases rewind billing --to yesterday-ish",
    ):
        with pytest.raises(click.UsageError):
            parse(cli, shlex.split(wrong), quoted=False)
    parse(cli, ["lag"], quoted=True)
    with pytest.raises(click.UsageError):
        parse(cli, ["lag", "--too"], quoted=True)
    assert list(alternatives(["stream", "list|create", "x"])) == [
        ["stream", "list", "x"],
        ["stream", "create", "x"],
    ]


def test_the_commands_are_found() -> None:
    found = [command for _, command in named("kinesis-sdk")]
    assert sum(not command.quoted for command in found) >= 60
    assert sum(command.quoted for command in found) >= 100


# make


def test_every_target_exists_and_uses_its_variables() -> None:
    for page, command in named("make"):
        target, *settings = command.words[1:]
        where = f"{page}: {command.text}"
        assert re.search(rf"^{re.escape(target)}:.*##", MAKEFILE, re.MULTILINE), where
        given = {}
        for setting in settings:
            name, sign, value = setting.partition("=")
            assert sign, where
            assert re.search(rf"\$\({name}\)|ifdef {name}\b", MAKEFILE), where
            given[name] = value
        if "ARGS" in given:
            line = next((line for line in recipe(target) if "$(ARGS)" in line), None)
            assert line is not None, f"{where}: the target does not use ARGS"
            assert_parses(shlex.split(expanded(line, given)), where)


def recipe(target: str) -> list[str]:
    """Return the commands of a target."""
    found = re.findall(rf"^{re.escape(target)}:.*##.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    return [line.lstrip("\t@") for lines in found for line in lines.splitlines()]


def expanded(line: str, given: dict[str, str]) -> str:
    """Return a line of a recipe with the values of its variables."""
    values = dict(re.findall(r"^(\w+) [?:]?= ?(.*)$", MAKEFILE, re.MULTILINE)) | given
    line = re.sub(
        r"\$\(if \$\((\w+)\),((?:[^()]|\(\w+\))*)\)", lambda match: match[2] if values[match[1]] else "", line
    )
    while match := re.search(r"\$\((\w+)\)", line):
        line = line.replace(match[0], values[match[1]])
    return line


def test_the_recipe_of_a_target_is_read() -> None:
    (line,) = recipe("effects")
    assert shlex.split(expanded(line, {"ARGS": "--stores sqlite", "SEED": "7"}))[1:] == [
        *("-m", "integration.effects.run", "--effects", "20000", "--seed", "7", "--stores", "sqlite"),
    ]
    assert "--seed" not in expanded(line, {"ARGS": ""})


# python, pip


def test_every_program_exists_and_takes_its_arguments() -> None:
    for page, command in named("python", "python3", "pip"):
        assert_parses(command.words, f"{page}: {command.text}")


def assert_parses(words: list[str], where: str) -> None:
    """Assert that a program exists and takes its arguments."""
    program, *arguments = words
    program = Path(program).name
    if program == "kinesis-sdk":
        parse(cli, arguments, quoted=False)
    elif program == "pip":
        assert_installs(arguments, where)
    elif arguments[0] == "-m":
        module = arguments[1]
        assert importlib.util.find_spec(module) is not None, where
        if module.startswith(OURS):
            assert_takes(module, arguments[2:], where)
        elif module == "pytest":
            for argument in arguments[2:]:
                assert argument.startswith("-") or (ROOT / argument.partition("::")[0]).exists(), where
    elif "/" in arguments[0]:
        assert (ROOT / arguments[0]).is_file(), where
        assert_takes(ROOT / arguments[0], arguments[1:], where)
    # Otherwise it is a program that the page shows, such as produce.py.


def assert_installs(arguments: list[str], where: str) -> None:
    """Assert that an extra of ours exists, which pip only warns about."""
    assert arguments[0] == "install", where
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for requirement in arguments[1:]:
        if match := re.fullmatch(r"(?:\.|kinesis-sdk)\[([\w,-]+)\]", requirement):
            assert set(match[1].split(",")) <= set(extras), where


class _ParsedError(Exception):
    """The program has parsed its arguments; the rest of it does not run."""


TAKEN: set[tuple[str | Path, ...]] = set()
"""Programs with arguments that they take. Several pages name the same ones."""


def assert_takes(program: str | Path, arguments: list[str], where: str) -> None:
    """Assert that a program's own argparse parser takes the arguments. A program without one takes none."""
    if (program, *arguments) not in TAKEN:
        _assert_takes(program, arguments, where)
        TAKEN.add((program, *arguments))


def _assert_takes(program: str | Path, arguments: list[str], where: str) -> None:
    if isinstance(program, Path):
        source = program
    else:
        spec = importlib.util.find_spec(program)
        assert spec is not None
        assert spec.origin is not None, where
        package = spec.submodule_search_locations
        source = Path(package[0]) / "__main__.py" if package else Path(spec.origin)
    if "ArgumentParser" not in source.read_text(encoding="utf-8"):
        assert not arguments or "sys.argv" in source.read_text(encoding="utf-8"), where
        return
    real = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, *args: object) -> None:
        real(parser, *args)  # type: ignore[call-overload]
        raise _ParsedError

    name = str(program) if isinstance(program, Path) else program
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        patch.setattr(sys, "argv", [name, *arguments])
        patch.syspath_prepend(str(source.parent if isinstance(program, Path) else ROOT))
        try:
            if isinstance(program, Path):
                runpy.run_path(name, run_name="__main__")
            else:
                # Another test may have imported it, and runpy warns of a module that is run and imported.
                patch.delitem(sys.modules, name, raising=False)
                runpy.run_module(name, run_name="__main__", alter_sys=True)
        except _ParsedError:
            return
        except SystemExit as ended:
            if ended.code == 0 and "--help" in arguments:
                return
            pytest.fail(f"{where}: the program does not take {arguments}")
    pytest.fail(f"{where}: the program does not parse its arguments")


def test_a_wrong_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        "python benchmarks/bench_columns.py --no-such-option",
        "python -m integration.effects.run --store sqlite --efects 1",
        "python -m tools.docs_examples --all",
    ):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            assert_parses(shlex.split(wrong), wrong)
    capsys.readouterr()
    assert_parses(shlex.split("python -m integration.effects.run --stores sqlite --effects 1"), "")
    with pytest.raises(AssertionError):
        assert_parses(["pip", "install", ".[clii]"], "")
