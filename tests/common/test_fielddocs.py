"""Documentation under the fields of a configuration class, as `help` shows it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pydoc

import pytest

from kinesis_sdk import (
    ConsumerConfig,
    CoordinationConfig,
    FailureConfig,
    LeaseConfig,
    LeaseTableConfig,
    ProducerConfig,
    RetrievalConfig,
)
from kinesis_sdk.common.fielddocs import documented_fields

CONFIGS = [
    ConsumerConfig,
    CoordinationConfig,
    FailureConfig,
    LeaseConfig,
    LeaseTableConfig,
    ProducerConfig,
    RetrievalConfig,
]


@dataclasses.dataclass(frozen=True)
class Bulb:
    watts: int = 5


@documented_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a lamp.

    Raises:
        ValueError: It is too bright.
    """

    brightness: float = 0.5
    """Share of the full power,
    0 to 1."""

    colours: list[str] = dataclasses.field(default_factory=list)
    """What it can show."""

    bulb: Bulb = dataclasses.field(default_factory=Bulb)
    """What shines."""

    socket: str
    """Where it is plugged in."""

    plain: int = 3

    def __post_init__(self) -> None:
        """Not a field."""


def test_the_docstrings_under_fields_become_a_section_before_raises() -> None:
    assert Settings.__doc__ == inspect.cleandoc("""Settings of a lamp.

    Attributes:
        brightness: Share of the full power,
            0 to 1. Default: 0.5.
        colours: What it can show. Default: [].
        bulb: What shines. Default: Bulb().
        socket: Where it is plugged in.

    Raises:
        ValueError: It is too bright.
    """)
    assert Settings(socket="a").__doc__ == Settings.__doc__


def test_a_class_without_source_keeps_its_own_docstring() -> None:
    namespace: dict[str, type] = {"__name__": "json"}  # a module whose source does not have the class
    exec(
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class Lamp:\n"
        "    'A lamp.'\n"
        "    power: int = 1\n"
        "    'Watts.'\n",
        namespace,
    )
    assert documented_fields(namespace["Lamp"]).__doc__ == "A lamp."


@pytest.mark.parametrize("config", CONFIGS)
def test_help_shows_every_field_of_a_configuration(config: type) -> None:
    text = pydoc.render_doc(config, renderer=pydoc.plaintext)
    fields = dataclasses.fields(config)
    entries = text[text.index(" |  Attributes:") : text.index(" |  Raises:")]
    for field in fields:
        assert f" |      {field.name}: " in entries, field.name
    assert entries.count(" Default: ") == len(fields)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_field_is_documented_where_it_stands(config: type) -> None:
    (tree,) = ast.parse(inspect.getsource(config)).body
    assert isinstance(tree, ast.ClassDef)
    documented = {
        field.target.id
        for field, below in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }
    assert documented == {field.name for field in dataclasses.fields(config)}
