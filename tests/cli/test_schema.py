"""The JSON Schemas of outputs: each command has one, and what does not fit is noticed. `conftest` compares every output of the other tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Literal

import click
import pytest

from kinesis_sdk.admin.plain import plain
from kinesis_sdk.cli.json_schema import schema_of
from kinesis_sdk.cli.main import cli
from kinesis_sdk.cli.outputs import OUTPUTS, output_schema
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from tests.cli.conftest import check
from tests.cli.invoking import invoke
from tests.cli.web.generated import GeneratedFleet
from tests.fuzz import share

jsonschema = pytest.importorskip("jsonschema")


def with_json(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the words of every command that has ``--json``."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from with_json(found, (*words, name))
    elif any("--json" in option.opts for option in command.params):
        yield " ".join(words)


def test_every_command_with_json_has_a_schema_and_no_other_has() -> None:
    assert sorted(with_json(cli)) == sorted(OUTPUTS)


@pytest.mark.fuzz
@pytest.mark.parametrize("command", share(OUTPUTS, unit=15))
def test_each_schema_is_valid(command: str) -> None:
    found = output_schema(command)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$id"] == f"urn:kinesis-sdk:{command.replace(' ', '-')}:1"


@pytest.mark.fuzz
@pytest.mark.parametrize("command", share(OUTPUTS, unit=5))
def test_a_schema_is_printed(command: str) -> None:
    result = invoke("schema", *command.split())
    assert json.loads(result.stdout) == output_schema(command)


def test_the_list_and_a_wrong_name() -> None:
    assert "leases show" in invoke("schema").stdout
    wrong = invoke("schema", "leases", "shw", code=2)
    assert "Did you mean leases show" in wrong.stderr


def test_a_fleet_fits_and_each_damage_is_noticed() -> None:
    view = GeneratedFleet(30, 3).view().to_dict()
    check("leases show", view)
    check("lag", view)
    for damage in (
        {"leases": None},
        {"totals": {**view["totals"], "owners": "3"}},
        {"more": 1},
        {"problems": [{**view["problems"][0], "severity": "fatal"}]},
        {"schema": "lag/9"},
    ):
        with pytest.raises(AssertionError):
            check("leases show", {**view, **damage})
    with pytest.raises(AssertionError):
        check("leases show", {name: value for name, value in view.items() if name != "error"})
    # Readers of a published schema accept the fields of a later release.
    assert jsonschema.Draft202012Validator(output_schema("leases show")).is_valid({**view, "more": 1})


class Colour(Enum):
    RED = "red"


@dataclass
class Part:
    """A part.

    Attributes:
        name: Its name,
            in two lines.
        inner: Parts of it.
    """

    name: str
    inner: tuple[Part, ...] = ()


@dataclass
class Whole:
    part: Part
    colour: Colour
    at: datetime | None
    counts: Mapping[str, int]
    ids: frozenset[str]
    point: ExtendedSequenceNumber
    between: HashKeyRange
    word: Literal["a", "b"]
    value: Any
    number: float
    hidden: bytes = field(default=b"", repr=False)


def test_a_schema_fits_what_plain_makes_of_each_kind_of_field() -> None:
    whole = Whole(
        Part("x", (Part("y"),)), Colour.RED, datetime(2026, 1, 1, tzinfo=timezone.utc), {"a": 1}, frozenset("b"), ExtendedSequenceNumber("5"),
        HashKeyRange(0, 9), "a", {"any": 1}, 1.5,
    )  # fmt: skip
    found = schema_of(Whole, is_open=False)
    jsonschema.Draft202012Validator(found).validate(plain(whole))
    part = found["$defs"]["Part"]
    assert part["description"] == "A part."
    assert part["properties"]["name"]["description"] == "Its name, in two lines."
    with pytest.raises(TypeError, match="bytes"):
        schema_of(bytes)
