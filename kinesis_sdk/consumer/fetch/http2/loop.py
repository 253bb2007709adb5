"""A thread that serves several connections, and ends when no connection is left."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.consumer.fetch.http2.connection import Connection

_LOGGER = FieldLogger(logging.getLogger(__name__))

_EXPIRE_INTERVAL = 1.0
"""Seconds between two checks for silent streams."""


class Loop:
    """One thread that serves connections. The first `post` starts it; it ends once there are no connections. Thread-safe.

    Args:
        name: Name of the thread.
        clock: Clock of the deadlines.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._posted: deque[tuple[Connection, Callable[[float], None]]] = deque()
        self._wake: socket.socket | None = None
        # Only the thread uses these attributes.
        self._watched: dict[Connection, int] = {}

    def post(self, connection: Connection, work: Callable[[float], None]) -> None:
        """Have the thread call ``work``, which concerns a connection, with the monotonic time soon.

        Raises:
            RuntimeError: If the system has no more threads.
        """
        with self._lock:
            self._posted.append((connection, work))
            if self._wake is not None:
                with suppress(BlockingIOError):  # a full pipe wakes the thread, too
                    self._wake.send(b"x")
                return
            receiver, wake = socket.socketpair()
            receiver.setblocking(False)
            wake.setblocking(False)
            # Sent before the thread starts, so that it does not sleep for a second first.
            wake.send(b"x")
            thread = threading.Thread(target=self._run, args=(receiver, wake), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._posted.clear()
                receiver.close()
                wake.close()
                raise
            self._wake = wake

    def serve(self, connection: Connection) -> None:
        """Serve a connection until it is closed; called on the thread."""
        self._watched[connection] = 0

    def _run(self, receiver: socket.socket, wake: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, receiver, wake:
            selector.register(receiver, selectors.EVENT_READ)
            expire_at = self._clock.monotonic() + _EXPIRE_INTERVAL
            while self._has_work():
                self._watch(selector)
                is_busy = any(connection.has_more for connection in self._watched)
                timeout = 0.0 if is_busy else max(0.0, expire_at - self._clock.monotonic())
                for key, _ in selector.select(timeout):
                    if key.data is None:
                        with suppress(BlockingIOError):
                            receiver.recv(65_536)
                    else:
                        key.data.has_more = True
                now = self._clock.monotonic()
                with self._lock:
                    posted, self._posted = self._posted, deque()
                for connection, work in posted:
                    _guarded(connection, work, now)
                for connection in list(self._watched):
                    if connection.wants_to_write:
                        _guarded(connection, connection.flush)
                    if connection.has_more:
                        _guarded(connection, connection.read, now)
                if now >= expire_at:
                    expire_at = now + _EXPIRE_INTERVAL
                    for connection in list(self._watched):
                        _guarded(connection, connection.expire, now)

    def _has_work(self) -> bool:
        """Return whether to continue; if not, the next `post` starts another thread."""
        with self._lock:
            if self._posted or self._watched:
                return True
            self._wake = None
            return False

    def _watch(self, selector: selectors.BaseSelector) -> None:
        for connection, watched in list(self._watched.items()):
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_to_write else 0)
            if not connection.is_open:
                if watched:
                    selector.unregister(connection.channel)
                    self._watched[connection] = 0
                # Streams that wait for room still have events to read. `post` must not need a new thread for these
                # streams, so this thread continues.
                if not connection.has_streams:
                    del self._watched[connection]
            elif not watched:
                selector.register(connection.channel, wanted, connection)
                self._watched[connection] = wanted
            elif watched != wanted:
                selector.modify(connection.channel, wanted, connection)
                self._watched[connection] = wanted


def _guarded(connection: Connection, work: Callable[..., None], *now: float) -> None:
    try:
        work(*now)
    except Exception as error:
        # A mistake of this program. This connection's streams get the error; other connections continue.
        _LOGGER.exception("a connection of enhanced fan-out failed")
        try:
            connection.close(error)
        except Exception:
            # Streams that do not get the error end by their timeout. The thread continues, because it serves other
            # connections.
            _LOGGER.exception("a connection of enhanced fan-out failed")
