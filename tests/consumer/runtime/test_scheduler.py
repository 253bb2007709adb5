from __future__ import annotations

import threading

from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.common.daemon_pool import DaemonPool
from kinesis_sdk.common.loop_thread import LoopThread
from kinesis_sdk.consumer.runtime.scheduler import Scheduler
from kinesis_sdk.testing import VirtualClock
from tests import HANG


class Inline:
    def __init__(self):
        self.clock = VirtualClock()
        self.changes = 0
        self.waiting = []
        self.inline = True
        self.scheduler = Scheduler(self.run, self.clock, self.changed)
        self.log = []

    def changed(self):
        self.changes += 1

    def run(self, function):
        if self.inline:
            function()
        else:
            self.waiting.append(function)

    def task(self, name, *dues):
        steps = list(dues)

        def step(now):
            self.log.append((now, name))
            return steps.pop(0) if steps else None

        task = self.scheduler.add(step)
        return task


def test_a_task_sleeps_until_it_is_woken_and_then_follows_its_due_times():
    scene = Inline()
    task = scene.task("a", 5.0, 7.0)
    assert scene.scheduler.dispatch(0) is None
    scene.scheduler.wake(task)
    assert scene.scheduler.dispatch(0) == 5.0
    scene.clock.advance(6)
    assert scene.scheduler.dispatch(6) == 7.0
    scene.clock.advance(1)
    assert scene.scheduler.dispatch(7) is None
    assert scene.log == [(0, "a"), (6, "a"), (7, "a")]
    assert len(scene.scheduler) == 0
    scene.scheduler.wake(task)
    assert scene.scheduler.dispatch(8) is None


def test_tasks_run_in_order_of_their_due_times():
    scene = Inline()
    for name, due in (("late", 3.0), ("early", 1.0)):
        scene.scheduler.wake(scene.task(name, due))
    scene.scheduler.dispatch(0)
    scene.clock.advance(5)
    scene.scheduler.dispatch(5)
    assert [name for _, name in scene.log] == ["late", "early", "early", "late"]


def test_a_running_task_is_not_started_again_but_runs_once_more_if_woken():
    scene = Inline()
    scene.inline = False
    task = scene.task("a", 100.0, 200.0)
    scene.scheduler.wake(task)
    scene.scheduler.dispatch(0)
    assert len(scene.waiting) == 1
    scene.scheduler.wake(task)
    scene.scheduler.wake(task)
    assert scene.scheduler.dispatch(0) is None
    assert len(scene.waiting) == 1
    scene.waiting.pop()()
    assert scene.scheduler.dispatch(0) is None
    scene.waiting.pop()()
    assert scene.scheduler.dispatch(0) == 200.0
    assert len(scene.log) == 2


def test_waking_moves_a_due_time_forward():
    scene = Inline()
    task = scene.task("a", 50.0, 60.0)
    scene.scheduler.wake(task)
    assert scene.scheduler.dispatch(0) == 50.0
    scene.clock.advance(2)
    scene.scheduler.wake(task)
    assert scene.scheduler.dispatch(2) == 60.0
    assert scene.changes == 2, "steps that end while tasks are started are found anyway"


def test_a_step_that_ends_asks_for_a_dispatch_only_before_the_next_one():
    scene = Inline()
    scene.inline = False
    scene.scheduler.wake(scene.task("first", 50.0))
    scene.scheduler.dispatch(0)
    scene.waiting.pop()()
    assert scene.changes == 2, "no dispatch was to come"
    assert scene.scheduler.dispatch(0) == 50.0
    for due, dispatches in ((60.0, 0), (40.0, 1)):
        scene.scheduler.wake(scene.task("other", due))
        assert scene.scheduler.dispatch(0) == 50.0
        before = scene.changes
        scene.waiting.pop()()
        assert scene.changes - before == dispatches


def test_a_function_between_steps_keeps_the_due_time_and_what_woke_the_task():
    scene = Inline()
    task = scene.task("a", 50.0, 60.0, None)
    seen = []

    def between(*wakes):
        def function():
            assert scene.scheduler.between_steps(task, lambda: True) is False, "it counts as a step"
            seen.append(scene.scheduler.dispatch(scene.clock.monotonic()))
            for _ in wakes:
                scene.scheduler.wake(task)
            return True

        return scene.scheduler.between_steps(task, function)

    scene.scheduler.wake(task)
    assert scene.scheduler.dispatch(0) == 50.0
    before = scene.changes
    assert between()
    assert seen == [None], "it cannot be started meanwhile"
    assert scene.changes == before + 1, "the loop must learn again when the task is due"
    assert scene.scheduler.dispatch(0) == 50.0
    assert between("wake")
    assert scene.scheduler.dispatch(0) == 60.0, "it was woken"
    assert [name for _, name in scene.log] == ["a", "a"]
    scene.clock.advance(60)
    scene.scheduler.dispatch(60)
    assert not scene.scheduler.between_steps(task, lambda: True), "it has ended"


def test_a_running_step_comes_before_what_runs_between_steps():
    scene = Inline()
    scene.inline = False
    task = scene.task("a", 100.0)
    scene.scheduler.wake(task)
    scene.scheduler.dispatch(0)
    assert not scene.scheduler.between_steps(task, lambda: True)


def test_a_pool_reports_errors_and_continues():
    errors: list[BaseException] = []
    pool = DaemonPool(1, "test", errors.append)
    done = threading.Event()

    def fail():
        raise SystemExit(3)

    pool.submit(fail)
    pool.submit(done.set)
    assert done.wait(HANG)
    assert [type(error) for error in errors] == [SystemExit]
    pool.close()
    pool.submit(fail)


def test_a_pool_widens_for_threads_that_are_stuck_up_to_twice_its_size():
    pool = DaemonPool(1, "test", lambda error: None)
    leave = threading.Event()
    entered = threading.Semaphore(0)

    def stuck():
        entered.release()
        leave.wait(HANG)

    try:
        pool.submit(stuck)
        pool.submit(stuck)
        assert entered.acquire(timeout=HANG)
        assert not entered.acquire(blocking=False)
        pool.widen()
        pool.submit(stuck)
        assert entered.acquire(timeout=HANG), "the second one runs on the new thread"
        pool.widen()
        pool.submit(stuck)
        assert pool._threads == 2
    finally:
        leave.set()
        pool.close()


def test_a_task_may_bring_its_own_runner():
    scene = Inline()
    scene.inline = False
    own = []
    task = scene.scheduler.add(lambda now: None, own.append)
    scene.scheduler.wake(task)
    scene.scheduler.dispatch(0)
    assert (len(own), scene.waiting) == (1, [])


def test_a_loop_survives_errors_and_can_stop_itself():
    errors: list[BaseException] = []
    seen = threading.Event()

    def tick(now):
        if not errors:
            raise RuntimeError("x")
        loop.stop()
        seen.set()
        return None

    loop = LoopThread("test", tick, SystemClock(), lambda error: (errors.append(error), loop.wake()))
    loop.start()
    assert seen.wait(HANG)
    loop.stop()
    assert len(errors) == 1
