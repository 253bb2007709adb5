"""The console's server gives up on requests that do not arrive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

from uvicorn.server import ServerState  # noqa: E402 - after the skip

from kinesis_sdk.cli.web.server import REQUEST_SECONDS, _OnceAMinute, _PatientProtocol  # noqa: E402


class Timer:
    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self.seconds, self.act, self.is_on = seconds, act, True

    def cancel(self) -> None:
        self.is_on = False


class Loop:
    """Runs nothing."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, act: Callable[[], None], *_: Any) -> Timer:
        self.timers.append(Timer(seconds, act))
        return self.timers[-1]

    def create_task(self, task: Coroutine[Any, Any, Any]) -> Any:
        task.close()
        return Task()

    def deadlines(self) -> list[Timer]:
        return [timer for timer in self.timers if timer.is_on and timer.seconds == REQUEST_SECONDS]


class Task:
    def add_done_callback(self, _act: Any) -> None: ...


class Transport:
    is_closed = False

    def get_extra_info(self, _name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def write(self, _data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Never runs."""


@pytest.fixture
def connection() -> tuple[_PatientProtocol, Loop, Transport]:
    loop, transport = Loop(), Transport()
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    protocol = _PatientProtocol(config, ServerState(), {}, loop)  # type: ignore[arg-type]
    protocol.connection_made(transport)  # type: ignore[arg-type]
    return protocol, loop, transport


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"GET / HT"],
        [b"G", b"E", b"T"],
        [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", b"half"],
    ],
    ids=["nothing", "half", "slowly", "half-a-body"],
)
def test_a_connection_whose_request_does_not_arrive_is_closed(
    connection: tuple[_PatientProtocol, Loop, Transport], parts: list[bytes]
) -> None:
    protocol, loop, transport = connection
    for part in parts:
        protocol.data_received(part)
    (deadline,) = loop.deadlines()
    assert deadline is loop.timers[0], "slow bytes do not put it off"
    deadline.act()
    assert transport.is_closed


def test_a_request_that_arrived_has_no_deadline(connection: tuple[_PatientProtocol, Loop, Transport]) -> None:
    protocol, loop, transport = connection
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert loop.deadlines() == []
    assert not transport.is_closed
    protocol.connection_lost(None)
    assert loop.deadlines() == []


def test_the_line_about_too_many_connections_is_logged_once_a_minute() -> None:
    now = 0.0
    once = _OnceAMinute(lambda: now)

    def passes(message: str) -> bool:
        return once.filter(logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, message, None, None))

    assert [passes("Exceeded concurrency limit.") for _ in range(3)] == [True, False, False]
    assert passes("something else")
    now = 60.0
    assert [passes("Exceeded concurrency limit.") for _ in range(2)] == [True, False]
