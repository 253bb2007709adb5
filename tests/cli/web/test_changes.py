from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kinesis_sdk.cli.web.changes import PLAN_LIFETIME, ChangeJobs
from kinesis_sdk.common.errors import KinesisSdkError


class Fixture:
    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: list[Callable[[], None]] = []
        self.jobs = ChangeJobs(clock=lambda: self.now, spawn=self.waiting.append)
        self.made = 0
        self.ended = 0

    def act(self, line: Callable[[str], None]) -> Mapping[str, object]:
        self.made += 1
        line("written")
        return {"text": "noticed"}

    def add(self, act: Callable[..., Mapping[str, object]] | None = None) -> str:
        def after() -> None:
            self.ended += 1

        return self.jobs.add({}, act or self.act, after)


def test_a_plan_runs_once() -> None:
    one = Fixture()
    plan = one.add()
    assert one.jobs.start(plan)
    assert not one.jobs.start(plan)
    assert one.jobs.state(plan) == {"state": "running", "lines": [], "outcome": None, "error": ""}
    one.waiting.pop()()
    assert not one.jobs.start(plan)
    assert one.jobs.state(plan) == {
        "state": "done",
        "lines": ["written"],
        "outcome": {"text": "noticed"},
        "error": "",
    }
    assert (one.made, one.ended) == (1, 1)


def test_an_old_plan_does_not_run() -> None:
    one = Fixture()
    plan = one.add()
    one.now = PLAN_LIFETIME + 1
    assert not one.jobs.start(plan)
    assert one.made == 0


def test_an_unknown_plan_does_not_run() -> None:
    one = Fixture()
    assert not one.jobs.start("guessed")
    assert one.jobs.state("guessed") is None


def test_a_failure_is_told() -> None:
    def fail(line: Callable[[str], None]) -> Mapping[str, object]:
        line("read")
        raise KinesisSdkError("the row was changed five times")

    one = Fixture()
    plan = one.add(fail)
    one.jobs.start(plan)
    one.waiting.pop()()
    state = one.jobs.state(plan)
    assert state is not None
    assert (state["state"], state["lines"], state["error"]) == (
        "failed",
        ["read"],
        "the row was changed five times",
    )
    assert one.ended == 1


def test_an_unforeseen_failure_is_told_without_its_text() -> None:
    def fail(_: object) -> Mapping[str, object]:
        raise RuntimeError("of customer 7")

    one = Fixture()
    plan = one.add(fail)
    one.jobs.start(plan)
    with pytest.raises(RuntimeError):
        one.waiting.pop()()
    state = one.jobs.state(plan)
    assert state is not None
    assert (state["state"], state["error"]) == ("failed", "The console failed: RuntimeError.")


def test_plans_are_bounded() -> None:
    one = Fixture()
    plans = [one.add() for _ in range(300)]
    assert one.jobs.state(plans[0]) is None
    assert one.jobs.state(plans[-1]) is not None
