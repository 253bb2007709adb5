"""The commands of dead letters: what they print, what they ask, and what they never print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kinesis_sdk.cli import dlq
from kinesis_sdk.dead_letters import FileDeadLetters, State
from kinesis_sdk.testing import VirtualClock
from tests.cli.invoking import invoke
from tests.dead_letters.letters import letter

Run = Callable[..., Result]
HANDLER = """
seen = []

def handle(batch):
    if batch.records[0].data == b"secret":
        raise KeyError(batch.records[0].data)
    seen.append(batch.records[0].id)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(dlq, "clock_and_sleep", lambda: {"clock": VirtualClock(start_time=1_700_000_100.0)})
    store = FileDeadLetters(tmp_path / "letters.jsonl")
    for n in range(3):
        store.keep(letter(n))
    store.keep(letter(3, error="KeyError", shard="shardId-000000000007", data=b"secret"))
    return store.location


@pytest.fixture
def run(place: str, tmp_path: Path) -> Run:
    def run(command: str, *arguments: str, code: int = 0, text: str | None = None) -> Result:
        change = ["--audit-log", f"{tmp_path}/audit.jsonl"] if command in ("replay", "drop") else []
        return invoke("dlq", command, place, *arguments, *change, code=code, input=text)

    return run


def states(place: str) -> list[str]:
    return [one.state.value for one in FileDeadLetters(place.removeprefix("file:")).letters()]


def test_letters_are_listed_by_group_or_each_and_chosen(run: Run) -> None:
    table = run("list").output
    assert "ValueError" in table
    assert "KeyError" in table
    assert letter(2).id in table, "the newest one of a group, for `show`"
    document = json.loads(run("list", "--json").output)
    assert [(group["error"], group["letters"]) for group in document["groups"]] == [
        ("ValueError", 3),
        ("KeyError", 1),
    ]
    each = run("list", "--letters", "--error", "ValueError", "--limit", "2").output.splitlines()
    assert [line.split()[0] for line in each] == [letter(0).id, letter(1).id]
    for choice, count in (
        (["--shard", "7"], 1),
        (["--shard", "shardId-000000000003"], 3),
        (["--key", "key-1", "--key", "key-3"], 2),
        (["--application", "billing"], 4),
        (["--letter", letter(1).id], 1),
        (["--since", "2023-11-14T22:13:20Z"], 4),
        (["--until", "2023-11-14T22:13:20.002Z"], 2),
        (["--since", "NOW"], 0),
    ):
        found = json.loads(run("list", "--json", "--letters", *choice).output)
        assert len(found["letters"]) == count, choice
    assert "has no such letters" in run("list", "--key", "none").output
    assert "has no such letters" in run("list", "--key", "none", "--letters").output


def test_a_payload_is_shown_only_if_asked_for(run: Run) -> None:
    identity = letter(3, shard="shardId-000000000007").id
    for arguments in ([], ["--json"]):
        shown = run("show", identity, *arguments).output
        assert "shardId-000000000007" in shown
        assert "tenant" in shown
        assert "secret" not in shown
        assert "a\\xff" not in shown
    assert "secret" in run("show", identity, "--payload").output
    document = json.loads(run("show", identity, "--payload", "--json").output)
    assert document["payload"] == {"encoding": "text", "data": "secret", "truncated": False}
    assert document["headers"] == {"tenant;b64": "Yf8="}
    missing = run("show", "0" * 16, code=3)
    assert "has no letter" in missing.output
    run("show", "5", code=2)


def test_a_replay_shows_its_plan_asks_and_is_in_the_audit_log(
    run: Run, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "dlq_handler.py").write_text(HANDLER)
    replay = ("replay", "--all", "--handler", "dlq_handler:handle")
    planned = run(*replay, "--dry-run")
    assert "Replay 4 dead letters" in planned.output
    assert "replay: " not in planned.output
    assert "billing: KeyError, orders, shardId-000000000007: 1 letter, 6 bytes" in planned.output
    assert f"Command: kinesis-sdk dlq replay {place} --all --handler dlq_handler:handle" in planned.output
    document = json.loads(run(*replay, "--dry-run", "--json").stdout)
    assert (document["letters"], document["done"]) == (4, None)
    run(*replay, text="", code=4)
    assert set(states(place)) == {"open"}
    done = run(*replay, "--yes", code=1)
    assert "3 of 4 dead letters replayed, 1 failed (KeyError) and are open again." in done.output
    assert "secret" not in done.output
    import dlq_handler  # type: ignore[import-not-found]

    assert len(dlq_handler.seen) == 3
    assert sorted(states(place)) == ["open", "replayed", "replayed", "replayed"]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(line["event"], line.get("done"), line["table"]) for line in lines] == [
        ("begin", None, place),
        ("done", 3, place),
    ]
    assert (
        "Nothing to do." in run("replay", "--error", "ValueError", "--handler", "dlq_handler:handle").output
    )


def test_ctrl_c_says_how_far_it_came_and_how_to_go_on(
    run: Run, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "dlq_slow.py").write_text("def handle(batch):\n    raise KeyboardInterrupt\n")
    stopped = run("replay", "--error", "ValueError", "--handler", "dlq_slow:handle", "--yes", code=130)
    assert "Interrupted: 0 of 3 dead letters replayed." in stopped.output
    assert f"The rest: kinesis-sdk dlq replay {place} --error ValueError" in stopped.output
    assert states(place)[0] == State.REPLAYING.value
    assert (
        "a replay of 1 of them has begun: it is still running, or it was killed"
        in run("replay", "--all", "--handler", "dlq_slow:handle", "--dry-run").output
    )


def test_letters_are_dropped(run: Run, place: str) -> None:
    run("drop", "--error", "ValueError", "--yes")
    assert len(states(place)) == 1
    document = json.loads(run("drop", "--all", "--yes", "--json").stdout)
    assert (document["letters"], document["done"], document["target"]) == (1, 1, None)


@pytest.mark.parametrize(
    "wrong",
    [
        ["replay"],
        ["replay", "--all", "--key", "k"],
        ["replay", "--replayed"],
        ["replay", "--all", "--handler", "m:x", "--to", "s"],
        ["replay", "--all", "--allow-stream", "orders", "--to", "s"],
        ["replay", "--all", "--allow-stream", "payments", "--region", "eu-west-1"],
        ["replay", "--all", "--handler", "no_such_module:x"],
        ["replay", "--all", "--handler", "json:JSONDecodeError"],
        ["drop", "--letter", "5"],
        ["drop"],
    ],
)
def test_a_wrong_choice_is_a_usage_error(run: Run, place: str, wrong: list[str]) -> None:
    run(*wrong, "--yes", code=2)
    assert set(states(place)) == {"open"}


def test_a_place_may_come_from_the_environment_and_must_be_one(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("KINESIS_SDK_DEAD_LETTERS", place)
    assert "ValueError" in invoke("dlq", "list").output
    wrong = invoke("dlq", "list", "letters", code=2)
    assert "'sqlite:///letters.db'" in wrong.output
