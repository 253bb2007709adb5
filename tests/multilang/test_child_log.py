"""The queue of lines that children print."""

from __future__ import annotations

import logging
import threading

import pytest

from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.multilang.child_log import ChildLog


def test_a_line_is_offered_again_after_no_thread_could_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    log = ChildLog()
    logger = FieldLogger(logging.getLogger(__name__))
    with monkeypatch.context() as no_threads:
        no_threads.setattr(threading.Thread, "start", fails)
        assert not log.add(logger, logging.WARNING, "first")
    assert log.add(logger, logging.WARNING, "first")
    log.close()
    assert caplog.messages == ["first"]


def test_a_log_without_a_thread_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    log = ChildLog()
    monkeypatch.setattr(threading.Thread, "start", fails)
    assert not log.add(FieldLogger(logging.getLogger(__name__)), logging.INFO, "lost")
    log.close()
