"""The page docs/dynamodb-streams.md: its example runs, and is short."""

from __future__ import annotations

from typing import Any

import pytest

import kinesis_sdk
from tests.consumer.fleet.tables import TABLE, TableFleet
from tests.readme import DOCS, blocks

PAGE = DOCS / "dynamodb-streams.md"


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    example = blocks("python", PAGE)[0].text
    assert len(example.splitlines()) < 15
    tables = TableFleet()
    tables.write(3)
    made: list[Any] = []

    class Stepped:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            made.append((arguments, options))

        def run(self) -> None:
            (arguments, options) = made[0]
            assert arguments[0].resolve(tables.client) == tables.fleet.stream
            tables.handler = lambda name: options["handler"]  # type: ignore[method-assign]
            tables.add("w", options["config"])
            tables.run(5)

    monkeypatch.setattr(kinesis_sdk, "Worker", Stepped)
    exec(compile(example, PAGE.name, "exec"), {})
    assert made[0][0][0].table == TABLE
    assert capsys.readouterr().out.count("{'k': 'k") >= 3


def test_the_other_blocks_are_valid() -> None:
    for block in blocks("python", PAGE):
        compile(block.text, PAGE.name, "exec")
