"""One watch of an application, shared by all open pages.

States of a `Channel`: *idle* (no page; no calls), *watching* (at least one visible page), *lingering* (the last page was closed less than
`LINGER` seconds ago, so that a reload does not start again from nothing). The last view is kept in all states.

Threads: the watch calls `Channel.receive` in its own thread; `receive` makes the picture and passes it to the event loop; all other work
happens in the event loop.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from kinesis_sdk.admin import FleetView
from kinesis_sdk.admin.recording.recorder import Recording
from kinesis_sdk.cli.web.wire import Picture, changes, lease_detail, picture

LINGER = 3.0
"""Seconds for which a watch continues after its last page was closed or hidden."""
KEEP_ALIVE = 10.0
"""Seconds after which a quiet stream of events sends a comment, which reveals that a page is closed."""
FOCUS = 15.0
"""Seconds for which a lease counts as open after a request from its page; the page sends a request with each event."""
PATIENCE = 5.0
"""Seconds for which a call may run before the pages are told about it."""
_POLL_INTERVAL = 2.0
"""Seconds between two checks whether a quiet watch waits for a call."""
_BACKLOG = 8
"""Maximum events that wait for one slow page; beyond that, the page gets a whole picture instead."""


class Watch(Protocol):
    """Repeated reads of an application, in a thread of its own."""

    def start(self) -> None:
        """Start, or continue with the views that were seen before."""

    def stop(self) -> None:
        """End all calls, without waiting. The watch may be started again."""

    def focus(self, lease_keys: frozenset[str]) -> None:
        """Measure these leases more often, because their pages are open."""

    def refresh(self) -> None:
        """Read again now."""

    def waiting(self) -> tuple[str, float] | None:
        """Return the pending operation and the seconds since its start; None if none is pending."""

    def close(self) -> None:
        """Stop for good; this may wait for a call in progress."""


MakeWatch = Callable[[Callable[[FleetView], None]], Watch]
"""Makes the watch of an application that passes each view to a function."""


class _Page:
    """One open stream of events."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue(_BACKLOG)


class Channel:
    """The watch of one application, and the pages that show it.

    ``options`` are the options of the connection, for the commands on the page.
    """

    def __init__(
        self,
        make_watch: MakeWatch,
        recording: Recording,
        *,
        options: tuple[str, ...] = (),
        linger: float = LINGER,
        keep_alive: float = KEEP_ALIVE,
    ) -> None:
        self._watch = make_watch(self.receive)
        self._recording = recording
        self._is_kept = False
        self._options = options
        self._linger = linger
        self._keep_alive = keep_alive
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pages: set[_Page] = set()
        self._stopping: asyncio.TimerHandle | None = None
        self._watching = False
        self._picture: Picture | None = None
        self._view: FleetView | None = None
        self._focus: dict[str, float] = {}

    @property
    def pages(self) -> int:
        """Number of pages that get events now."""
        return len(self._pages)

    @property
    def is_kept(self) -> bool:
        """Whether the channel watches even without a page."""
        return self._is_kept

    @property
    def watching(self) -> bool:
        """Whether the watch makes calls."""
        return self._watching

    def receive(self, view: FleetView) -> None:
        """Take the newest view. Called by the watch, in its thread."""
        self._recording.update(view)
        new = picture(view, options=self._options)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._publish, view, new)

    def lease(self, lease_key: str) -> Mapping[str, Any] | None:
        """Return the view of one lease, and its time; None if there is no view of it."""
        found = lease_detail(self._view, lease_key) if self._view is not None else None
        if found is None or self._view is None:
            return None
        self._focus[lease_key] = time.monotonic() + FOCUS
        self._watch.focus(frozenset(self._focus))
        return {"lease": found, "at": self._view.at}

    def keep(self) -> None:
        """Watch until `close`, even while no page is open, so that the recording has no gaps."""
        self._is_kept = True
        if not self._watching:
            self._watching = True
            self._watch.start()

    @property
    def view(self) -> FleetView | None:
        """The newest view; None before the first view."""
        return self._view

    async def events(self) -> AsyncIterator[bytes]:
        """Yield server-sent events until the page is closed: first the whole picture, if there is one, then changes."""
        page = _Page()
        self._join(page)
        try:
            if self._picture is not None:
                yield _event("picture", self._picture)
            quiet = 0.0
            while True:
                pause = min(_POLL_INTERVAL, self._keep_alive)
                try:
                    event = await asyncio.wait_for(page.events.get(), pause)
                except (asyncio.TimeoutError, TimeoutError):
                    quiet += pause
                    if (call := self._watch.waiting()) is not None and call[1] >= PATIENCE:
                        yield _event("waiting", {"operation": call[0], "seconds": round(call[1])})
                        quiet = 0.0
                    elif quiet >= self._keep_alive:
                        yield b": keep-alive\n\n"
                        quiet = 0.0
                    continue
                quiet = 0.0
                if event is None:
                    return
                yield event
        finally:
            self._leave(page)

    def refresh(self) -> None:
        """Read again now, for example after a change. Thread-safe."""
        self._watch.refresh()

    def close(self) -> None:
        """End all streams of events and the watch. A thread waits for the watch to end."""
        for page in self._pages:
            _drain(page)
            page.events.put_nowait(None)
        self._stop()
        threading.Thread(target=self._watch.close, name="kinesis-sdk-ui-close", daemon=True).start()

    def _join(self, page: _Page) -> None:
        self._loop = asyncio.get_running_loop()
        self._pages.add(page)
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None
        if not self._watching:
            self._watching = True
            self._watch.start()

    def _leave(self, page: _Page) -> None:
        self._pages.discard(page)
        if not self._pages and self._watching and not self._is_kept and self._stopping is None:
            self._stopping = asyncio.get_running_loop().call_later(self._linger, self._stop)

    def _stop(self) -> None:
        self._stopping = None
        if self._watching:
            self._watching = False
            self._watch.stop()

    def _publish(self, view: FleetView, new: Picture) -> None:
        before, self._picture, self._view = self._picture, new, view
        now = time.monotonic()
        open_leases = {key: until for key, until in self._focus.items() if until > now}
        if open_leases != self._focus:
            self._focus = open_leases
            self._watch.focus(frozenset(open_leases))
        if not self._pages:
            return
        difference = _event("changes", changes(before, new)) if before is not None else None
        for page in self._pages:
            # A page that does not read gets the whole picture once it reads again, instead of a growing queue.
            if page.events.full() or difference is None:
                _drain(page)
                page.events.put_nowait(_event("picture", new))
            else:
                page.events.put_nowait(difference)


def _drain(page: _Page) -> None:
    while not page.events.empty():
        page.events.get_nowait()


def _event(name: str, data: object) -> bytes:
    text = json.dumps(data, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode("ascii")
