"""Requests to an ASGI application in this process, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class Reply:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def data(self) -> Any:
        return json.loads(self.body)


def scope_of(method: str, url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    parts = urlsplit(url)
    given = {"host": "localhost:8787", **{name.lower(): value for name, value in headers.items()}}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8787),
    }


async def send(
    app: App, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> Reply:
    """Send one request, and return the whole response."""
    reply = Reply()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()  # the client neither sends more nor goes away
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def take(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            reply.body += message.get("body", b"")

    await app(scope_of(method, url, headers or {}), receive, take)
    return reply


def request(
    app: App, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> Reply:
    """Send one request from a test that is not asynchronous."""
    return asyncio.run(send(app, method, url, headers, body))


class Events:
    """An open stream of events."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = asyncio.Event()

    async def next(self) -> tuple[str, Any]:
        """Return name and data of the next event; comments are passed over."""
        while True:
            text = (await self.chunks.get()).decode()
            if text.startswith(":"):
                continue
            name, data = text.strip().split("\n")
            return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@asynccontextmanager
async def stream(app: App, url: str) -> AsyncIterator[Events]:
    """Open a stream of events; leaving the context is the page that goes away."""
    events = Events()
    gone = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def take(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            events.chunks.put_nowait(message["body"])

    async def run() -> None:
        await app(scope_of("GET", url, {}), receive, take)
        events.ended.set()

    task = asyncio.create_task(run())
    try:
        yield events
    finally:
        gone.set()
        await task


async def settled() -> None:
    """Let every other task of the event loop run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)
