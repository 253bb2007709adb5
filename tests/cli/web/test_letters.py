"""The console's page of dead letters: its routes, its plans, and what a browser must not be able to do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.cli.web.app import Console
from kinesis_sdk.cli.web.letters import MAX_LETTERS, LetterPages
from kinesis_sdk.cli.web.security import CSRF_HEADER, Policy
from kinesis_sdk.common.dead_letters import Origin
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.dead_letters import FileDeadLetters
from kinesis_sdk.testing import FakeAws
from tests.cli.web.asgi import App, request
from tests.cli.web.generated import GeneratedBackend, GeneratedFleet
from tests.dead_letters.letters import SHARD, letter

CHANGE = {CSRF_HEADER: "csrf", "content-type": "application/json"}


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
    backend = GeneratedBackend({"billing": GeneratedFleet(4, 2)})
    return Console(backend, Policy(csrf_token="csrf"), letters=pages, allow_changes=allow_changes).make_app()


def get(app: App, url: str) -> tuple[int, Any]:
    reply = request(app, "GET", url, {})
    return reply.status, json.loads(reply.body)


def post(app: App, url: str, body: object) -> tuple[int, Any]:
    reply = request(app, "POST", url, CHANGE, json.dumps(body).encode())
    return reply.status, json.loads(reply.body)


def test_groups_letters_and_one_letter_are_shown_without_payloads(
    pages: LetterPages, store: FileDeadLetters
) -> None:
    app = app_of(pages)
    assert get(app, "/api/session")[1]["deadLetters"] == [store.location]
    _, found = get(app, "/api/letters/0/groups")
    assert [(group["error"], group["letters"]) for group in found["groups"]] == [
        ("ValueError", 2),
        ("KeyError", 1),
    ]
    _, some = get(app, f"/api/letters/0/list?error=ValueError&shard={SHARD}&key=key-1&application=billing")
    assert [one["id"] for one in some["letters"]] == [letter(1).id]
    one = f"/api/letters/0/letter?id={letter(1).id}"
    _, shown = get(app, one)
    assert (shown["payload"], shown["headers"]) == (None, {"tenant": ""})
    assert "secret" not in json.dumps([found, some, shown])
    _, whole = get(app, f"{one}&payload=1")
    assert (whole["payload"]["text"], whole["headers"]) == ("secret", {"tenant;b64": "Yf8="})
    assert get(app, "/api/letters/0/letter?id=0")[0] == 404


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
    _, plan = post(app, "/api/letters/0/plans", {"operation": "replay-letters", "error": "ValueError"})
    assert plan["title"].startswith("Replay 2 dead letters")
    assert (
        plan["command"] == f"kinesis-sdk dlq replay {store.location} --error ValueError --allow-stream orders"
    )
    assert post(app, f"/api/plans/{plan['id']}/run", {})[0] == 202
    deadline = time.monotonic() + 30
    while (state := get(app, f"/api/plans/{plan['id']}")[1])["state"] == "running":
        assert time.monotonic() < deadline
    assert state["outcome"] == {"text": "2 of 2 dead letters replayed."}
    assert [one.history.error for one in store.letters() if one.state.value == "open"] == ["KeyError"]
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 2
    _, dropped = post(app, "/api/letters/0/plans", {"operation": "drop-letters", "letter": letter(2).id})
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
    _, plan = post(
        app_of(pages, allow_changes=False),
        "/api/letters/0/plans",
        {"operation": "drop-letters", "error": "KeyError"},
    )
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
    assert post(app_of(pages), "/api/letters/0/plans", body)[0] == 400


def test_a_console_without_places_says_how_to_name_one(pages: LetterPages) -> None:
    for app, url in ((app_of(None), "/api/letters/0/groups"), (app_of(pages), "/api/letters/7/groups")):
        assert get(app, url)[0] == 400
    with pytest.raises(ConfigError):
        LetterPages(Connection(), ["letters.jsonl"])
    database = LetterPages(Connection(), ["postgresql://me:secret@host/db"])
    assert database.places == ["postgresql://host/db"]
