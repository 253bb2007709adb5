"""The public surface: every exported name with its parameters, every command with its options, every metric.

``make surface`` writes it to ``tools/public_surface.txt``. A test fails if the file differs from the code, so that a review shows every
change. ``python -m tools.public_surface TAG`` compares it with the file of a release, and ends with 1 if something that programs can use
is gone or takes other arguments.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import griffe

from kinesis_sdk.cli.main import cli
from kinesis_sdk.common.catalogue import CATALOGUE
from tools.docs_reference import PACKAGES, public_names

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tools" / "public_surface.txt"


def surface() -> list[str]:
    """Return one sorted line for each public name, command and metric."""
    return sorted({*_names(), *_commands("kinesis-sdk", cli), *_metrics()})


def breaks(old: list[str], new: list[str]) -> list[str]:
    """Return a line for everything that a program made for the old surface could miss in the new one."""
    offered = dict(map(_parts, new))
    found = []
    for line in old:
        name, arguments = _parts(line)
        if name not in offered:
            found.append(f"{name} is gone")
        elif why := _narrower(arguments, offered[name]):
            found.append(f"{name}: {why}")
    return found


def _parts(line: str) -> tuple[str, list[str]]:
    name, _, arguments = line.partition("(")
    return name, [argument for argument in arguments.removesuffix(")").split("; ") if argument]


def _narrower(old: list[str], new: list[str]) -> str:
    """Return why a call with the old arguments can fail or mean something else; empty if it cannot."""
    missing = [argument for argument in old if argument not in new]
    if missing:
        return f"no longer takes {', '.join(missing)} like this"
    kept = [argument for argument in new if argument in old and "keyword" not in argument]
    if kept != [argument for argument in old if "keyword" not in argument]:
        return "takes its positional arguments in another order"
    added = [argument for argument in new if argument not in old]
    if required := [argument for argument in added if "=" not in argument and not argument.startswith("*")]:
        return f"needs {', '.join(required)}"
    if any("keyword" not in argument for argument in added) and new[: len(kept)] != kept:
        return "has a new positional argument before an old one"
    return ""


def _names() -> Iterator[str]:
    # Parsed, not imported: the package for Spark needs pyspark.
    root = griffe.load("kinesis_sdk", search_paths=[ROOT], resolve_aliases=True)
    places: dict[str, str] = {}
    for package in PACKAGES:
        module = root[package.partition(".")[2]] if "." in package else root
        for name in public_names(package):
            place = f"{package}.{name}"
            first = places.setdefault(_target(module[name]).path, place)
            # A name that several packages export is described once.
            yield from _described(place, module[name]) if first == place else [f"{place} is {first}"]


def _described(place: str, found: griffe.Object | griffe.Alias) -> Iterator[str]:
    value = _target(found)
    if not value.is_class:
        yield f"{place}{_signature(value)}" if value.is_function else place
        return
    yield f"{place}{_signature(value)}"
    for name, member in value.all_members.items():
        if not name.startswith("_"):
            target = _target(member)
            yield f"{place}.{name}{_signature(target)}" if target.is_function else f"{place}.{name}"


def _target(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def _signature(value: griffe.Object) -> str:
    # Callers do not pass the first parameter of a method, `self` or the class.
    is_bound = value.is_class or (value.parent is not None and value.parent.is_class)
    is_bound = is_bound and "staticmethod" not in value.labels
    parameters = list(getattr(value, "parameters", ()))
    if is_bound and parameters and parameters[0].name in {"self", "cls"}:
        del parameters[0]
    return f"({'; '.join(map(_parameter, parameters))})"


def _parameter(parameter: griffe.Parameter) -> str:
    kind = griffe.ParameterKind
    if parameter.kind in {kind.var_positional, kind.var_keyword}:
        return f"{'*' if parameter.kind is kind.var_positional else '**'}{parameter.name}"
    keyword = "keyword " if parameter.kind is kind.keyword_only else ""
    return f"{keyword}{parameter.name}" + ("" if parameter.default is None else f"={parameter.default}")


def _commands(path: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _commands(f"{path} {name}", found)
        return
    words = []
    for parameter in command.params:
        name = (
            "/".join(parameter.opts) if isinstance(parameter, click.Option) else str(parameter.name).upper()
        )
        words.append(name if parameter.required else f"{name}=")
    yield f"{path}({'; '.join(words)})"


def _metrics() -> Iterator[str]:
    yield from (f"metric {metric.name}" for metric in CATALOGUE)


def main() -> int:
    """Write the file, or compare it with a release's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag", nargs="?", help="release to compare with; without one, the file is written")
    tag = parser.parse_args().tag
    if tag is None:
        FILE.write_text("\n".join(surface()) + "\n", encoding="utf-8")
        return 0
    shown = subprocess.run(
        ["git", "show", f"{tag}:{FILE.relative_to(ROOT).as_posix()}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = breaks(shown.stdout.splitlines(), surface())
    print("\n".join(found) or f"Nothing that {tag} offers is gone.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
