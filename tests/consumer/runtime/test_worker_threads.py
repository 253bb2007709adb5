"""The runtime of a real worker: its pools, its sleeps, and a stop before its start."""

from __future__ import annotations

import threading
from random import Random

import pytest

from kinesis_sdk.common.clock import SystemClock
from kinesis_sdk.consumer.runtime.worker_threads import WorkerThreads

LONG = 30.0
"""Seconds after which a test gives up."""


@pytest.fixture
def threads():
    made = WorkerThreads(
        SystemClock(), Random(1), max_threads=1, max_fetch_threads=1, on_error=lambda error: None
    )
    yield made
    made.end_sleeps()
    made.close()


@pytest.mark.parametrize("pool", ["steps", "fetches"])
def test_a_stuck_thread_is_replaced_in_its_own_pool(threads, pool):
    run, other = (
        (threads.run_step, threads.run_fetch) if pool == "steps" else (threads.run_fetch, threads.run_step)
    )
    stuck, hangs, after, queued = (threading.Event() for _ in range(4))
    for submit in (run, other):
        hangs.clear()
        submit(lambda: (hangs.set(), stuck.wait(LONG)))
        assert hangs.wait(LONG)
    threads.replace_stuck_thread(pool)
    run(after.set)
    assert after.wait(LONG)
    other(queued.set)
    assert not queued.is_set(), "its only thread hangs and was not replaced"
    stuck.set()
    assert queued.wait(LONG)


def test_an_abort_ends_sleeps(threads):
    slept = threading.Event()
    threading.Thread(target=lambda: (threads.sleep(3600), slept.set()), daemon=True).start()
    assert not threads.is_aborted
    threads.end_sleeps()
    assert slept.wait(LONG)
    assert threads.is_aborted


def test_a_stop_before_the_start_leaves_the_pools_usable(threads):
    """`Worker.stop` before `Worker.start`: the start then runs the steps of a stop."""
    threads.close()
    done = threading.Event()
    threads.run_step(done.set)
    assert done.wait(LONG)


def test_loops_start_in_the_given_order_and_are_woken_by_name(threads, monkeypatch):
    ticks, order = {}, []
    begin = threading.Thread.start

    def record(thread):
        order.append(thread.name)
        begin(thread)

    def tick(name):
        ticks[name] = [threading.Event(), threading.Event()]
        pending = iter(ticks[name])
        return lambda now: next(pending).set()

    monkeypatch.setattr(threading.Thread, "start", record)
    threads.wake("table")  # does nothing before the start
    threads.start({name: tick(name) for name in ("steps", "renewals", "table")})
    assert order == ["kinesis-steps", "kinesis-renewals", "kinesis-table"]
    assert all(first.wait(LONG) for first, _ in ticks.values())
    threads.wake("table")
    assert ticks["table"][1].wait(LONG)
    assert not ticks["steps"][1].is_set()
