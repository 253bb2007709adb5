"""Supervisor of worker processes, in virtual time."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from kinesis_sdk.cli.output import ExitCode
from kinesis_sdk.cli.run.supervisor import (
    HEALTHY_AFTER,
    MAX_FAILURES,
    Action,
    ChildCode,
    Outcome,
    SlotState,
    Supervisor,
    Verb,
)
from tests.fuzz import seeds


class Scene:
    """Processes that start at once, and end when they are told to."""

    def __init__(self, processes=3, *, reloads=False, loads=True):
        self.now = 0.0
        self.loads = loads
        self.supervisor = Supervisor(processes, stop_timeout=20.0, reloads=reloads, rng=Random(1))
        self.started: list[tuple[float, int]] = []
        self.alive: set[int] = set()
        self.killed: list[int] = []
        self.obeys = True
        self.supervisor.begin(0.0)
        self.pump()

    def do(self, actions: list[Action]) -> None:
        for verb, number in actions:
            if verb is Verb.START:
                assert number not in self.alive, "two processes of one number"
                self.alive.add(number)
                self.started.append((self.now, number))
                if self.loads:
                    self.supervisor.on_loaded(self.now)
                    self.supervisor.on_started(number, self.now)
            elif verb is Verb.STOP and self.obeys:
                self.exit(number, ChildCode.STOPPED)
            elif verb is Verb.KILL:
                self.killed.append(number)
                self.exit(number, -9)

    def exit(self, number: int, code: int, reason: str = "it broke") -> None:
        self.alive.discard(number)
        self.do(self.supervisor.on_exit(number, code, reason, self.now))
        self.pump()

    def pump(self) -> None:
        while actions := self.supervisor.poll(self.now):
            self.do(actions)

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.supervisor.next_due <= end:
            self.now = max(self.now, self.supervisor.next_due)
            self.pump()
        self.now = end

    def stop(self, code=ExitCode.DONE) -> None:
        self.do(self.supervisor.request_stop(code, self.now))
        self.pump()


def test_the_first_process_loads_the_handler_before_the_others_start():
    scene = Scene(loads=False)
    scene.wait(100)
    assert scene.alive == {1}
    scene.supervisor.on_loaded(scene.now)
    scene.pump()
    assert scene.alive == {1, 2, 3}


@pytest.mark.parametrize(
    ("code", "expected"),
    [(ChildCode.USAGE, ExitCode.USAGE), (ChildCode.CALL_FAILED, ExitCode.CALL_FAILED)],
)
def test_what_no_restart_can_mend_ends_at_once(code, expected):
    scene = Scene(loads=False)
    scene.exit(1, code)
    assert scene.supervisor.outcome == Outcome(expected, "it broke")
    assert scene.alive == set()


def test_a_call_that_fails_later_is_tried_again():
    scene = Scene()
    scene.exit(2, ChildCode.CALL_FAILED)
    scene.wait(2)
    assert scene.alive == {1, 2, 3}


def test_a_process_that_dies_is_replaced_with_growing_pauses():
    scene = Scene()
    pauses = []
    for _ in range(MAX_FAILURES - 1):
        before = scene.now
        scene.exit(2, -9)
        assert scene.alive == {1, 3}
        scene.wait(60)
        assert scene.alive == {1, 2, 3}
        pauses.append(scene.started[-1][0] - before)
        scene.now = scene.started[-1][0] + 1
    assert 0.5 <= pauses[0] <= 1
    assert all(later > earlier for earlier, later in pairwise(pauses))
    assert pauses[-1] <= 30


def test_a_crash_loop_ends_everything():
    scene = Scene()
    for _ in range(MAX_FAILURES):
        assert scene.supervisor.outcome is None
        scene.exit(2, 1, "HandlerError: the database is away")
        scene.wait(40)
    outcome = scene.supervisor.outcome
    assert outcome is not None
    assert outcome.code == ExitCode.BAD_ANSWER
    assert "worker process 2 failed 5 times in a row" in outcome.message
    assert "the database is away" in outcome.message
    assert scene.alive == set()


def test_failures_are_forgotten_after_a_healthy_time():
    scene = Scene(1)
    for _ in range(3 * MAX_FAILURES):
        scene.exit(1, -11)
        scene.wait(30)
        scene.wait(HEALTHY_AFTER)
    assert scene.supervisor.outcome is None
    assert scene.supervisor.slots[0].restarts == 3 * MAX_FAILURES


def test_the_failures_of_two_processes_do_not_add_up():
    scene = Scene(2)
    for _ in range(MAX_FAILURES - 1):
        scene.exit(1, 1)
        scene.exit(2, 1)
        scene.wait(40)
    assert scene.supervisor.outcome is None


def test_a_process_that_somebody_stopped_is_started_again_at_once():
    scene = Scene(2)
    for _ in range(10):
        scene.exit(2, ChildCode.STOPPED)
        assert scene.alive == {1, 2}


@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.INTERRUPTED])
def test_a_clean_stop(code):
    scene = Scene()
    scene.stop(code)
    assert scene.supervisor.outcome == Outcome(code)
    assert scene.killed == []


def test_a_stop_while_a_process_waits_for_its_restart():
    scene = Scene()
    scene.exit(1, 1)
    scene.stop()
    scene.wait(100)
    assert scene.supervisor.outcome == Outcome(ExitCode.DONE)
    assert len(scene.started) == 3


def test_a_second_signal_kills():
    scene = Scene()
    scene.obeys = False
    scene.stop()
    scene.wait(1)
    assert scene.alive == {1, 2, 3}
    scene.stop()
    assert sorted(scene.killed) == [1, 2, 3]
    assert scene.supervisor.outcome.code == ExitCode.BAD_ANSWER


def test_a_process_that_does_not_stop_is_killed():
    scene = Scene(2)
    scene.obeys = False
    scene.stop(ExitCode.INTERRUPTED)
    scene.wait(19.9)
    assert scene.killed == []
    scene.exit(2, ChildCode.STOPPED)
    scene.wait(1)
    assert scene.killed == [1]
    assert scene.supervisor.outcome == Outcome(ExitCode.INTERRUPTED)


def test_everything_processed():
    scene = Scene()
    scene.exit(1, ChildCode.REACHED)
    assert scene.supervisor.outcome is None
    scene.exit(3, ChildCode.REACHED)
    scene.exit(2, ChildCode.REACHED)
    assert scene.supervisor.outcome == Outcome(ExitCode.DONE)
    scene.wait(100)
    assert len(scene.started) == 3


def test_a_process_that_dies_after_everything_was_processed_is_not_replaced():
    scene = Scene(2)
    scene.exit(1, ChildCode.REACHED)
    scene.exit(2, -9)
    scene.wait(100)
    assert scene.supervisor.outcome == Outcome(ExitCode.DONE)
    assert len(scene.started) == 2


def test_a_change_replaces_all_processes():
    scene = Scene(reloads=True)
    scene.wait(5)
    scene.do(scene.supervisor.on_change(scene.now))
    scene.pump()
    assert scene.alive == {1, 2, 3}
    assert [number for _, number in scene.started] == [1, 2, 3, 1, 2, 3]


def test_new_processes_wait_for_the_old_ones():
    scene = Scene(2, reloads=True)
    scene.obeys = False
    scene.do(scene.supervisor.on_change(scene.now))
    scene.exit(1, ChildCode.STOPPED)
    scene.do(scene.supervisor.on_change(scene.now))
    scene.wait(10)
    assert scene.alive == {2}
    scene.exit(2, ChildCode.STOPPED)
    assert scene.alive == {1, 2}


def test_with_reloads_a_broken_module_waits_for_its_repair():
    scene = Scene(2, reloads=True)
    scene.loads = False
    scene.do(scene.supervisor.on_change(scene.now))
    scene.pump()
    assert scene.alive == {1}
    scene.exit(1, ChildCode.USAGE)
    scene.wait(1000)
    assert (scene.alive, scene.supervisor.outcome) == (set(), None)
    scene.loads = True
    scene.do(scene.supervisor.on_change(scene.now))
    scene.pump()
    assert scene.alive == {1, 2}


def test_with_reloads_a_crash_loop_waits_too():
    scene = Scene(1, reloads=True)
    for _ in range(MAX_FAILURES):
        scene.exit(1, 1)
        scene.wait(40)
    assert (scene.alive, scene.supervisor.outcome) == (set(), None)
    scene.do(scene.supervisor.on_change(scene.now))
    scene.pump()
    assert scene.alive == {1}
    scene.stop()
    assert scene.supervisor.outcome == Outcome(ExitCode.DONE)


def test_a_stop_during_a_reload_ends():
    scene = Scene(2, reloads=True)
    scene.obeys = False
    scene.do(scene.supervisor.on_change(scene.now))
    scene.stop()
    scene.exit(1, ChildCode.STOPPED)
    scene.exit(2, ChildCode.STOPPED)
    assert scene.supervisor.outcome == Outcome(ExitCode.DONE)
    assert len(scene.started) == 2


@pytest.mark.fuzz
def test_random_events_never_leave_a_process_behind():
    for seed in seeds(unit=100, fuzz=300):
        rng = Random(seed)
        scene = Scene(rng.randint(1, 4), reloads=bool(seed % 2))
        for _ in range(40):
            if scene.supervisor.outcome is not None:
                break
            event = rng.choice(["exit", "exit", "wait", "change", "obey"])
            if event == "exit" and scene.alive:
                codes = [-9, 1, 3, 10, 2]
                scene.exit(rng.choice(sorted(scene.alive)), rng.choice(codes[: rng.randint(1, 5)]))
            elif event == "change" and scene.supervisor.reloads:
                scene.do(scene.supervisor.on_change(scene.now))
                scene.pump()
            elif event == "obey":
                scene.obeys = not scene.obeys
            scene.wait(rng.choice([0.1, 5, 100]))
        if scene.supervisor.outcome is None:
            scene.stop()
            scene.wait(30)
        assert scene.supervisor.outcome is not None
        assert scene.alive == set()
        assert {slot.state for slot in scene.supervisor.slots} == {SlotState.ENDED}
