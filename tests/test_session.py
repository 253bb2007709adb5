"""The recorded session of the documentation: a valid asciicast, of commands that exist."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from kinesis_sdk.cli.main import cli
from tests.cli.commands import parse
from tests.readme import DOCS
from tools.record_session import (
    CAST,
    HEIGHT,
    LONGEST_PAUSE,
    READING,
    SESSION,
    WIDTH,
)

HEADER, *EVENTS = [json.loads(line) for line in CAST.read_text(encoding="utf-8").splitlines()]
TEXT = "".join(text for _, _, text in EVENTS)


@pytest.mark.parametrize("step", SESSION, ids=lambda step: step.command)
def test_every_command_exists_and_was_recorded(step) -> None:
    parse(cli, step.command.split()[1:], quoted=False)
    assert f"$ {step.command}\r\n" in TEXT, "run `python -m tools.record_session`"


def test_the_recording_is_an_asciicast_of_two_minutes() -> None:
    assert (HEADER["version"], HEADER["width"], HEADER["height"]) == (2, WIDTH, HEIGHT)
    times = [at for at, _, _ in EVENTS]
    assert {kind for _, kind, _ in EVENTS} == {"o"}
    assert times == sorted(times)
    assert times[-1] <= 150
    assert max(later - at for at, later in pairwise(times)) <= LONGEST_PAUSE + READING
    assert CAST.stat().st_size < 300_000
    assert "PASSED" in TEXT


def test_the_recording_shows_nothing_of_the_machine() -> None:
    assert not re.search(r"/(?:home|tmp|root|Users)/", TEXT)


def test_the_page_lists_the_commands() -> None:
    page = (DOCS / "session.md").read_text(encoding="utf-8")
    assert "(session.cast)" in page
    assert [step.command for step in SESSION] == re.findall(r"^(kinesis-sdk .+)$", page, re.MULTILINE)
