"""Every JSON document that a test of the command line sees is compared with the schema of its command."""

from __future__ import annotations

from functools import cache
from typing import Any

import click
import pytest

from kinesis_sdk.admin.plain import plain
from kinesis_sdk.cli import output
from tests.cli.operators import operator  # noqa: F401 - a fixture


@cache
def validator_of(command: str) -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    from kinesis_sdk.cli.outputs import output_schema

    return jsonschema.Draft202012Validator(output_schema(command, is_open=False))


def check(command: str, document: Any) -> None:
    """Compare a document with the schema of a command, whose objects may have no further fields here."""
    if isinstance(document, dict):
        assert document.get("schema") in (None, output.schema_name(command))
        document = {name: value for name, value in document.items() if name != "schema"}
    errors = [
        f"{error.json_path}: {error.message[:300]}" for error in validator_of(command).iter_errors(document)
    ]
    assert errors == [], f"kinesis-sdk {command} --json"


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give commands a terminal of 140 columns, whatever the terminal in which the tests run."""
    monkeypatch.setenv("COLUMNS", "140")


@pytest.fixture(autouse=True)
def output_fits_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare what commands print; the assertion ends the command."""
    real = output._json_text

    def checked(value: object, indent: int | None) -> str:
        context = click.get_current_context(silent=True)
        if context is not None and context.parent is not None:
            check(output.command_words(context), plain(value))
        return real(value, indent)

    monkeypatch.setattr(output, "_json_text", checked)
