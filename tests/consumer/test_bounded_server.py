"""The number of connections of an HTTP endpoint is bounded; `integration/test_health.py` tries it over sockets."""

from __future__ import annotations

from socketserver import ThreadingTCPServer
from typing import Any

import pytest

from kinesis_sdk.consumer import health_server
from kinesis_sdk.consumer.health_server import MAX_CONNECTIONS, BoundedHandler, BoundedServer


def test_connections_beyond_the_bound_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadingTCPServer, "__init__", lambda *_: None)
    started: list[Any] = []
    closed: list[Any] = []
    monkeypatch.setattr(ThreadingTCPServer, "process_request", lambda _, request, __: started.append(request))
    monkeypatch.setattr(ThreadingTCPServer, "process_request_thread", lambda *_: None)
    monkeypatch.setattr(BoundedServer, "shutdown_request", lambda _, request: closed.append(request))
    server = BoundedServer("127.0.0.1", 0, BoundedHandler)
    for number in range(MAX_CONNECTIONS + 3):
        server.process_request(number, None)
    assert (len(started), len(closed)) == (MAX_CONNECTIONS, 3)
    server.process_request_thread(0, None)
    server.process_request("again", None)
    assert started[-1] == "again"


def test_pages_are_served_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Server:
        server_address = ("127.0.0.1", 9)

        def __init__(self, *arguments: Any) -> None:
            made.append(arguments)

        def serve_forever(self, poll_interval: float) -> None: ...

    monkeypatch.setattr(health_server, "BoundedServer", Server)
    assert health_server.PageServer(lambda _: health_server.Page(200, "", b""), "127.0.0.1", 0).port == 9
    assert issubclass(made[0][2], BoundedHandler)
