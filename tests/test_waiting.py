"""A unit test that waits for real time to pass, or that uses a network, fails and hears where."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
import time

import pytest

from tests import conftest, waiting


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


def test_this_process_is_watched():
    """Events, queues, semaphores and futures wait with a condition."""
    for function in (threading.Condition.wait, threading.Thread.join, asyncio.sleep, asyncio.wait_for):
        assert function.__wrapped__
    assert isinstance(time.sleep, waiting._Sleep)
    with socket.socket() as local:
        local.bind(("127.0.0.1", 0))
    (found,) = conftest.WATCH.take()
    assert found.startswith("socket.bind of ('127.0.0.1', 0) at tests/test_waiting.py:")
