"""The console's page of dead letters: its routes, its plans, and what a browser must not be able to do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.web.letters import MAX_LETTERS, LetterPages
from kinesis_sdk.common.dead_letters import Origin
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.dead_letters import FileDeadLetters
from kinesis_sdk.testing import FakeAws
from tests.cli.web.asgi import App
from tests.cli.web.console import app_of as console_of
from tests.cli.web.console import get, post
from tests.dead_letters.letters import SHARD, letter


@pytest.fixture
def aws() -> FakeAws:
    return FakeAws(streams={"orders": 1}, throttle=False)


@pytest.fixture
def store(tmp_path: Path) -> FileDeadLetters:
    made = FileDeadLetters(tmp_path / "letters.jsonl")
    for n in range(2):
        made.keep(letter(n, data=b"secret"))
    made.keep(letter(2, error="KeyError"))
    return made


@pytest.fixture
def pages(aws: FakeAws, store: FileDeadLetters, tmp_path: Path) -> LetterPages:
    connection = Connection(clients={"kinesis": aws.client("kinesis")})
    return LetterPages(
        connection, [store.location], allow_streams=["orders"], audit_log=tmp_path / "audit.jsonl"
    )


def app_of(pages: LetterPages | None, *, allow_changes: bool = True) -> App:
    return console_of(letters=pages, allow_changes=allow_changes)


def test_groups_letters_and_one_letter_are_shown_without_payloads(
    pages: LetterPages, store: FileDeadLetters
) -> None:
    app = app_of(pages)
    assert get("/api/session", app).data["deadLetters"] == [store.location]
    found = get("/api/letters/0/groups", app).data
    assert [(group["error"], group["letters"]) for group in found["groups"]] == [
        ("ValueError", 2),
        ("KeyError", 1),
    ]
    some = get(f"/api/letters/0/list?error=ValueError&shard={SHARD}&key=key-1&application=billing", app).data
    assert [one["id"] for one in some["letters"]] == [letter(1).id]
    one = f"/api/letters/0/letter?id={letter(1).id}"
    shown = get(one, app).data
    assert (shown["payload"], shown["headers"]) == (None, {"tenant": ""})
    assert "secret" not in json.dumps([found, some, shown])
    whole = get(f"{one}&payload=1", app).data
    assert (whole["payload"]["text"], whole["headers"]) == ("secret", {"tenant;b64": "Yf8="})
    assert get("/api/letters/0/letter?id=0", app).status == 404


def test_a_page_of_letters_is_bounded(
    pages: LetterPages, store: FileDeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesis_sdk.cli.web.letters.MAX_LETTERS", 2)
    found = pages.letters(0, {})
    assert (len(found["letters"]), found["more"]) == (2, True)
    assert MAX_LETTERS == 100


def test_a_replay_is_planned_confirmed_and_followed(
    pages: LetterPages, store: FileDeadLetters, aws: FakeAws, tmp_path: Path
) -> None:
    app = app_of(pages)
    plan = post("/api/letters/0/plans", {"operation": "replay-letters", "error": "ValueError"}, app).data
    assert plan["title"].startswith("Replay 2 dead letters")
    assert (
        plan["command"] == f"kinesis-sdk dlq replay {store.location} --error ValueError --allow-stream orders"
    )
    assert post(f"/api/plans/{plan['id']}/run", {}, app).status == 202
    deadline = time.monotonic() + 30
    while (state := get(f"/api/plans/{plan['id']}", app).data)["state"] == "running":
        assert time.monotonic() < deadline
    assert state["outcome"] == {"text": "2 of 2 dead letters replayed."}
    assert [one.history.error for one in store.letters() if one.state.value == "open"] == ["KeyError"]
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 2
    dropped = post("/api/letters/0/plans", {"operation": "drop-letters", "letter": letter(2).id}, app).data
    assert dropped["title"].startswith("Drop 1 dead letter of")


def test_a_plan_that_was_agreed_to_changes_no_letter_that_arrived_since(
    pages: LetterPages, store: FileDeadLetters
) -> None:
    before = [one.id for one in store.letters() if one.history.error != "ValueError"]
    _, act = pages.plan(0, {"operation": "drop-letters", "error": "ValueError"})
    store.keep(letter(50))
    act(lambda _: None)
    assert [one.id for one in store.letters()] == [*before, letter(50).id]


def test_a_read_only_console_keeps_no_plan(pages: LetterPages) -> None:
    app = app_of(pages, allow_changes=False)
    plan = post("/api/letters/0/plans", {"operation": "drop-letters", "error": "KeyError"}, app).data
    assert plan["id"] is None


@pytest.mark.parametrize(
    "body",
    [
        {"operation": "rewind", "error": "ValueError"},
        {"operation": "replay-letters"},
        {"operation": "replay-letters", "handler": "os:system"},
        {"operation": "replay-letters", "error": ["ValueError"]},
        {"operation": "replay-letters", "error": "TypeError", "allow-stream": "payments"},
        {"operation": "drop-letters", "letter": "5"},
        {"operation": "drop-letters", "key": "k" * 1_001},
    ],
)
def test_a_wrong_request_is_refused(pages: LetterPages, store: FileDeadLetters, body: dict[str, Any]) -> None:
    # Which streams are allowed is said on the command line, and not by a browser.
    store.keep(letter(9, error="TypeError", origin=Origin("payments", SHARD, "7", 0)))
    assert post("/api/letters/0/plans", body, app_of(pages)).status == 400


def test_a_console_without_places_says_how_to_name_one(pages: LetterPages) -> None:
    for app, url in ((app_of(None), "/api/letters/0/groups"), (app_of(pages), "/api/letters/7/groups")):
        assert get(url, app).status == 400
    with pytest.raises(ConfigError):
        LetterPages(Connection(), ["letters.jsonl"])
    database = LetterPages(Connection(), ["postgresql://me:secret@host/db"])
    assert database.places == ["postgresql://host/db"]
