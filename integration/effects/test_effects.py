"""A short `make effects`: killed and frozen workers on several stores at the same time, and the baseline without transactions."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration.waiting import eventually

pytest.importorskip("sqlalchemy")

from integration.effects.account import HEADER, Outcome
from integration.effects.play import Plan, play
from integration.localstack.server import family
from integration.postgres import why_no_postgres
from tests import HANG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

EFFECTS, RATE, SEED = 2_000, 200.0, 7


def play_together(plans: Sequence[Plan], folder: Path) -> list[Outcome]:
    folders = [folder / str(number) for number in range(len(plans))]
    for one in folders:
        one.mkdir()
    with ThreadPoolExecutor(len(plans)) as pool:
        outcomes = list(pool.map(play, plans, folders))
    print(HEADER, *(outcome.line() for outcome in outcomes), sep="\n")
    return outcomes


def test_every_record_takes_effect_once_and_without_transactions_some_do_twice(tmp_path: Path) -> None:
    runs = [
        ("sqlite", False, "plain"),
        ("sqlite", True, "mixed"),
        ("dynamodb", True, "idempotent"),
    ]
    if why_no_postgres() is None:
        runs.append(("postgresql", True, "idempotent"))
    # Without transactions, a worker spends most of its time between effects and checkpoint: soon a kill strikes there.
    plans = [
        Plan("fake", store, EFFECTS, RATE, SEED, sink, kind, pause=0.02 if sink else 1.0)
        for store, sink, kind in runs
    ]
    outcomes = play_together(plans, tmp_path)
    for outcome in outcomes:
        assert outcome.is_good, outcome
        assert outcome.faults["kills"] >= 1, outcome
        assert outcome.faults["answers lost"] >= 1 or outcome.twice, outcome
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_every_record_that_is_relayed_takes_effect_once_and_without_ids_some_do_twice(tmp_path: Path) -> None:
    plans = [
        Plan("fake", "sqlite", 1_000, 100.0, SEED, ids, "idempotent", pause=0.02 if ids else 1.0, relay=True)
        for ids in (False, True)
    ]
    for outcome in play_together(plans, tmp_path):
        assert outcome.is_good, outcome
        assert outcome.faults["kills"] >= 1, outcome
        assert outcome.copies, outcome


def test_every_record_takes_effect_once_on_localstack(localstack: str, tmp_path: Path) -> None:
    # Effects in SQLite: with those in its DynamoDB as well, LocalStack falls behind on two cores until every call times out.
    outcome = play(Plan(localstack, "sqlite", 500, 50.0, SEED, True, "mixed", 5.0, 6.0, 1.0), tmp_path)
    print(HEADER, outcome.line(), sep="\n")
    assert outcome.is_good, outcome
    assert outcome.faults["kills"] >= 1, outcome


def test_ctrl_c_ends_the_run_and_its_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "integration.effects.run", "--stores", "sqlite", "--baseline", "0"]
    printed = tmp_path / "printed"
    with printed.open("wb") as output:
        # In a session of its own, so that its children are found, and so that they do not get the signal themselves.
        run = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=output,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
    eventually(lambda: " put " in printed.read_text() or run.poll() is not None)
    assert run.poll() is None, printed.read_text()
    started = family(run.pid)
    assert len(started) >= 4, "three workers and the fake"
    run.send_signal(signal.SIGINT)
    assert run.wait(HANG) == 130, printed.read_text()
    assert "not judged" in printed.read_text()
    assert "Traceback" not in printed.read_text()
    assert not {pid for pid in started if Path(f"/proc/{pid}").exists()}
