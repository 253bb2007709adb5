"""A TCP proxy that injects faults: real sockets and real resets, for any protocol.

```python
with Proxy("http://127.0.0.1:4566", seed=1) as proxy:
    client = boto3.client("kinesis", endpoint_url=proxy.endpoint_url)
    proxy.configure(reset_after=2_000, probability=0.1)
    ...
    proxy.heal()
```

| fault | what the client sees |
| --- | --- |
| `delay` | every piece of a response is this many seconds late |
| `reset_after` | a reset (RST) after this many bytes of a response; with 0, no response at all |
| `truncate_after` | an orderly end of the connection (FIN) after this many bytes of a response |
| `stall` | the response stops; it continues once healed |
| `black_hole` | requests disappear; connections stay open without any further response |
| `cut()` | live connections are reset at once: all, or only event streams |

With `operations`, a fault affects only these AWS operations: `reset_after=0` then loses the responses of calls that were carried out. With `after`, it
begins with a later request: `stall` then stops a program after the service has carried out that call, and `held` counts the responses that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests import HANG

if TYPE_CHECKING:
    from typing_extensions import Self

_PIECE = 1 << 16
_POLL = 0.02
_POLLS_AT_END = 250
_EVENT_STREAM = b"application/vnd.amazon.eventstream"
_TARGET = re.compile(rb"\r\nx-amz-target: *[^\r\n]*\.([A-Za-z]+)\r\n", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """Faults of responses; see the module's table. The default has none."""

    delay: float = 0.0
    reset_after: int | None = None
    truncate_after: int | None = None
    stall: bool = False
    black_hole: bool = False
    probability: float = 1.0
    """Chance that a request is affected, by the proxy's seed."""
    operations: tuple[str, ...] = ()
    """AWS operations that can be affected; empty for all requests."""
    after: int = 0
    """Number of such requests that go through first."""


class _Link:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.affected = False
        self.forwarded = 0
        self.is_event_stream = False
        self.is_lost = False

    def close(self, *, reset: bool) -> None:
        sock = self.client.get_extra_info("socket")
        if reset and sock is not None:
            with contextlib.suppress(OSError):  # Closed already.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.client.transport.abort()
        else:
            self.client.close()
        self.server.transport.abort()


class Proxy:
    """Listens on a free local port and forwards to a target. A context manager with a thread for its event loop.

    `configure`, `heal` and `cut` work from any thread while it runs. `seed` decides which requests `probability` hits.
    """

    def __init__(self, target: str, *, seed: int = 0) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._scheme = parts.scheme
        self._random = random.Random(seed)
        self._fault = FaultPlan()
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self._port = 0
        self.affected = 0
        """Number of requests affected so far."""
        self.affected_operations: Counter[str] = Counter()
        """Number of affected requests by operation, counted while a plan names operations."""
        self.held = 0
        """Number of responses that a stall has stopped so far; their calls were carried out."""
        self.spared = 0
        """Number of requests that `FaultPlan.after` has let through since the last `configure`."""

    # -- from any thread ----------------------------------------------------------------------------------------

    @property
    def endpoint_url(self) -> str:
        """``endpoint_url`` for boto3."""
        return f"{self._scheme}://127.0.0.1:{self._port}"

    def configure(self, **fault: object) -> None:
        """Replace the current faults, for responses in progress too."""
        self.spared = 0
        self._fault = FaultPlan(**fault)  # type: ignore[arg-type]

    def heal(self) -> None:
        """Stop injecting faults."""
        self._fault = FaultPlan()

    def cut(self, *, streams_only: bool = False) -> int:
        """Reset live connections, or only event streams; return their number."""
        done: list[int] = []
        finished = threading.Event()

        def do() -> None:
            links = [link for link in self._links if link.is_event_stream or not streams_only]
            for link in links:
                link.close(reset=True)
            done.append(len(links))
            # The loop closes the sockets in callbacks that are queued already; return only after these.
            self._loop.call_soon(finished.set)

        self._loop.call_soon_threadsafe(do)
        assert finished.wait(HANG)
        return done[0]

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(HANG)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(HANG)
        self._loop.close()

    # -- in the loop --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        # Connections end by themselves once their sockets are closed; cancelling one would log an error.
        # One that is still being opened has no `_Link` yet.
        self._fault = FaultPlan()
        for _ in range(_POLLS_AT_END):
            for link in list(self._links):
                link.close(reset=True)
            pending = asyncio.all_tasks() - {asyncio.current_task()}
            if not pending:
                return
            await asyncio.wait(pending, timeout=_POLL)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()  # The target cannot be reached, so the proxy drops the connection too.
            return
        link = _Link(writer, to_server)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._requests(link, reader)),
            asyncio.ensure_future(self._responses(link, from_server)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            link.close(reset=False)
            # The socket of a client that does not read the rest stays open, but must not outlive the loop.
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._links.discard(link)

    async def _requests(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(_PIECE):
                fault = self._fault
                if link.forwarded or not link.affected:
                    # The first piece of a request decides about its whole response.
                    link.affected = self._hits(fault, piece)
                    self.affected += link.affected
                link.forwarded = 0
                link.is_lost = link.is_lost or (fault.black_hole and link.affected)
                if not link.is_lost:
                    link.server.write(piece)
                    await link.server.drain()

    def _hits(self, fault: FaultPlan, piece: bytes) -> bool:
        if fault == FaultPlan():
            return False
        target = _TARGET.search(piece)
        operation = "" if target is None else target[1].decode()
        if fault.operations and operation not in fault.operations:
            return False
        if self._random.random() >= fault.probability:
            return False
        if self.spared < fault.after:
            self.spared += 1
            return False
        if fault.operations:
            self.affected_operations[operation] += 1
        return True

    async def _responses(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(_PIECE):
                if not link.forwarded:
                    # What TLS hides may be an event stream.
                    link.is_event_stream = self._scheme == "https" or _EVENT_STREAM in piece
                if not await self._forward(link, piece):
                    return

    def _fault_of(self, link: _Link) -> FaultPlan:
        """Return the fault of a response in progress. An event stream lasts for minutes, so a later fault affects it too."""
        fault = self._fault
        return fault if link.affected or (link.is_event_stream and not fault.operations) else FaultPlan()

    async def _forward(self, link: _Link, piece: bytes) -> bool:
        """Send a piece of a response to the client, or the part that the fault leaves; return False at the end."""
        if self._fault_of(link).stall:
            self.held += 1
        while (fault := self._fault_of(link)).stall:  # noqa: ASYNC110 — healed elsewhere
            await asyncio.sleep(_POLL)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        for limit, reset in ((fault.reset_after, True), (fault.truncate_after, False)):
            if limit is not None and link.forwarded + len(piece) > limit:
                link.client.write(piece[: max(0, limit - link.forwarded)])
                await link.client.drain()
                link.close(reset=reset)
                return False
        link.client.write(piece)
        await link.client.drain()
        link.forwarded += len(piece)
        return True
