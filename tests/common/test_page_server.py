"""Pages by path, and the bound of the number of connections; `integration/test_health.py` tries the server over sockets."""

from __future__ import annotations

from socketserver import ThreadingTCPServer
from typing import Any

import pytest

from kinesis_sdk.common.page_server import MAX_CONNECTIONS, Page, _Server, pages_by_path, probe_page


def no_page(path: str) -> Page:
    raise AssertionError(f"no page is served here: {path}")


def test_connections_beyond_the_bound_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadingTCPServer, "__init__", lambda *_: None)
    started: list[Any] = []
    closed: list[Any] = []
    monkeypatch.setattr(ThreadingTCPServer, "process_request", lambda _, request, __: started.append(request))
    monkeypatch.setattr(ThreadingTCPServer, "process_request_thread", lambda *_: None)
    monkeypatch.setattr(_Server, "shutdown_request", lambda _, request: closed.append(request))
    server = _Server(no_page, "127.0.0.1", 0)
    for number in range(MAX_CONNECTIONS + 3):
        server.process_request(number, None)
    assert (len(started), len(closed)) == (MAX_CONNECTIONS, 3)
    server.process_request_thread(0, None)
    server.process_request("again", None)
    assert started[-1] == "again"


def test_pages_by_path() -> None:
    page = pages_by_path(
        {"/live": lambda: probe_page("live", []), "/ready": lambda: probe_page("ready", ["it stops"])}
    )
    assert page("/live?verbose=1") == (200, "application/json", b'{\n  "live": true,\n  "problems": []\n}\n')
    status, _, body = page("/ready")
    assert (status, b"it stops" in body) == (503, True)
    status, _, body = page("/")
    assert (status, b"/ready" in body) == (404, True)
