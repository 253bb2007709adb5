"""A unit test that waits for real time to pass, or that uses a network, fails and hears where."""

from __future__ import annotations

import asyncio
import functools
import inspect
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from tests import conftest, waiting


@pytest.fixture
def watch():
    watch = waiting.Watch()
    watch.is_on = True
    return watch


def test_a_test_that_sleeps_fails(monkeypatch):
    slept = []
    monkeypatch.setattr(time.sleep, "_sleep", slept.append)
    time.sleep(0.2)
    place = f"tests/test_waiting.py:{inspect.currentframe().f_lineno - 1}"
    with pytest.raises(
        pytest.fail.Exception, match=f"(?s)neither waits.*sleep.0.2. at {place}: pass a clock"
    ):
        conftest._fail_if_it_waited()
    assert slept == [0.2]
    conftest._fail_if_it_waited()


def test_a_sleep_of_any_thread_is_found(watch):
    sleep = waiting._Sleep(watch, lambda seconds: None)

    def poll():
        sleep(0.1)

    for target in (poll, functools.partial(sleep, 0.1)):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    (found,) = watch.take()  # nothing of the second one, which stands for a thread of a library
    assert found.startswith("time.sleep(0.1) at tests/test_waiting.py:")
    sleep(0.001)
    assert not watch.take(), "the standard library does that"


@pytest.mark.parametrize(
    ("timeout", "came", "expected"), [(1.0, False, 1), (1.0, True, 0), (None, True, 0), (0.0, False, 0)]
)
def test_a_wait_in_vain_is_found(watch, timeout, came, expected):
    wait = waiting._watched_wait(watch, lambda condition, timeout: came)
    assert wait(threading.Condition(), timeout) is came
    assert len(watch.take()) == expected


def test_this_process_is_watched():
    """Events, queues, semaphores and futures wait with a condition."""
    for function in (threading.Condition.wait, threading.Thread.join, asyncio.sleep, asyncio.wait_for):
        assert function.__wrapped__
    assert isinstance(time.sleep, waiting._Sleep)
    with socket.socket() as local:
        local.bind(("127.0.0.1", 0))
    (found,) = conftest.WATCH.take()
    assert found.startswith("socket.bind of ('127.0.0.1', 0) at tests/test_waiting.py:")


@pytest.mark.parametrize(("passed", "expected"), [(1.0, 1), (0.0, 0)])
def test_an_asynchronous_sleep_is_found_unless_its_loop_has_a_clock_of_its_own(watch, passed, expected):
    now = [0.0]

    async def sleep(delay, result):
        now[0] += passed
        return result

    watched = waiting._watched_async_sleep(watch, sleep, lambda: now[0])
    assert asyncio.run(watched(1.0, "result")) == "result"
    assert len(watch.take()) == expected


@pytest.mark.parametrize("event", ["socket.bind", "socket.connect"])
def test_a_connection_is_found_and_a_local_socket_passes(watch, event):
    watch.on_audit(event, (SimpleNamespace(family=socket.AF_UNIX), "/tmp/socket"))
    assert not watch.take()
    watch.on_audit(event, (SimpleNamespace(family=socket.AF_INET), ("127.0.0.1", 80)))
    place = f"tests/test_waiting.py:{inspect.currentframe().f_lineno - 1}"
    assert watch.take()[0].startswith(f"{event} of ('127.0.0.1', 80) at {place}: use `FakeAws.client`")
