"""Signals to the daemon: the first one stops it cleanly, a second one at once, and a copy of the first one does nothing."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from kinesis_sdk.multilang import daemon as module
from kinesis_sdk.multilang.daemon import MultiLangDaemon


def test_a_copy_of_a_signal_is_not_a_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    now = [100.0]
    monkeypatch.setattr(module.signal, "signal", handlers.setdefault)
    # A shell starts what ends in "&" with SIGINT ignored, and then the daemon leaves it so.
    monkeypatch.setattr(module.signal, "getsignal", lambda _: signal.SIG_DFL)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    daemon = object.__new__(MultiLangDaemon)
    stops: list[str] = []
    monkeypatch.setattr(daemon, "request_stop", stops.append)
    with daemon._signals():
        for number, later in [(signal.SIGTERM, 0.0), (signal.SIGTERM, 0.02), (signal.SIGINT, 0.0)]:
            now[0] += later
            handlers[number](number, None)
        assert stops == ["received SIGTERM", "received SIGINT"]
        now[0] += 1.0
        handlers[signal.SIGTERM](signal.SIGTERM, None)
        assert len(stops) == 3
