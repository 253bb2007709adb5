"""The response to a subscription over HTTP/2: messages of an event stream that arrive piece by piece."""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator

MAX_MESSAGE = 25 * 1024 * 1024
"""Maximum bytes of a message, headers included: botocore rejects payloads of more than 24 MiB."""

_MAX_PLAIN = 1024 * 1024
"""Maximum bytes of a response that is not an event stream: the document of an error."""

_MIN_MESSAGE = 16
"""Bytes of a message without headers and payload. The first four contain the length of the whole message."""


class PushedResponse:
    """Body of a response for botocore's ``EventStream``: each piece of `stream` is one whole message.

    The thread that makes the call waits for the head and the first message. From then on a loop reads, and only while `is_ready`.
    An event stream reads one piece for each event, so it does not wait either.

    Args:
        url: URL of the request, for errors.
        timeout: Maximum seconds to wait for the next piece.
        cancel: Called when the rest of the response is not needed.

    Attributes:
        has_timed_out: Whether the thread that makes the call has waited for ``timeout`` seconds.
    """

    def __init__(self, url: str, timeout: float, cancel: Callable[[PushedResponse], None]) -> None:
        self.url: str = url
        self.timeout: float = timeout
        self.has_timed_out: bool = False
        self._cancel = cancel
        self._may_wait = True
        self._changed = threading.Condition()
        self._head: tuple[int, dict[str, str]] | None = None
        self._rest = bytearray()
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._is_over = False
        self._error: Exception | None = None

    # Called by the loop

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Take the head of the response."""
        with self._changed:
            self._head = status, headers
            self._changed.notify_all()

    def feed(self, data: bytes, size: int) -> None:
        """Take a part of the body, which used this many bytes of the window; raise ValueError if it is malformed or too large."""
        with self._changed:
            self._unread += size
            self._rest += data
            if self._head is None or self._head[0] != 200:
                if len(self._rest) > _MAX_PLAIN:
                    raise ValueError(f"the response has more than {_MAX_PLAIN:,} bytes")
                return
            start = 0
            while len(self._rest) - start >= 4:
                (length,) = struct.unpack_from("!I", self._rest, start)
                if not _MIN_MESSAGE <= length <= MAX_MESSAGE:
                    raise ValueError(f"a message of the event stream claims to have {length:,} bytes")
                if len(self._rest) - start < length:
                    break
                self._pieces.append(bytes(self._rest[start : start + length]))
                start += length
            del self._rest[:start]
            self._changed.notify_all()

    def end(self, error: Exception | None = None) -> None:
        """Take the end of the response, or the error that broke it; only the first call counts."""
        with self._changed:
            if self._is_over:
                return
            if self._rest and error is None:
                # The rest is the document of an error, or half a message, which botocore ignores at the end of a
                # connection.
                self._pieces.append(bytes(self._rest))
            self._rest.clear()
            self._is_over, self._error = True, error
            self._changed.notify_all()

    def end_broken(self, error: Exception) -> None:
        """Take the error that broke the response, so that it is raised as for HTTP/1.1: by botocore's session, or by urllib3's body."""
        from botocore.exceptions import ConnectionClosedError
        from urllib3.exceptions import ProtocolError

        broken = (
            ConnectionClosedError(endpoint_url=self.url, error=error)
            if self._head is None
            else ProtocolError(f"Connection broken: {error}")
        )
        broken.__cause__ = error
        self.end(broken)

    def take_credit(self) -> int:
        """Return the bytes of the window to give back to the service: none while whole messages wait to be read."""
        with self._changed:
            if self._pieces:
                return 0
            unread, self._unread = self._unread, 0
            return unread

    def discard(self) -> int:
        """Drop the unread messages; return the bytes of the window that they have used."""
        with self._changed:
            self._pieces.clear()
            self._rest.clear()
            unread, self._unread = self._unread, 0
            return unread

    def never_wait(self) -> None:
        """Make `stream` raise an error instead of waiting from now on, because a loop reads, and other streams need its thread."""
        self._may_wait = False

    @property
    def is_ready(self) -> bool:
        """Whether a piece, or the end, can be read without waiting."""
        return bool(self._pieces) or self._is_over

    # Called by the thread that makes the call, then by the loop

    def head(self) -> tuple[int, dict[str, str]]:
        """Wait for the status and the headers.

        Raises:
            HTTPClientError: If the connection breaks or is silent; this is botocore's error.
        """
        from botocore.exceptions import ConnectionClosedError

        with self._changed:
            self._wait(lambda: self._head is not None or self._is_over)
            if self._head is None:
                raise self._error or ConnectionClosedError(endpoint_url=self.url)
            return self._head

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        """Yield the pieces, each once it has arrived. Raises the errors of `head`, and urllib3's ``ProtocolError`` after `never_wait`."""
        from urllib3.exceptions import ProtocolError

        while True:
            with self._changed:
                if not self._may_wait and not self.is_ready:
                    raise ProtocolError("a message of the event stream has no event")
                self._wait(lambda: self.is_ready)
                if not self._pieces:
                    if self._error is not None:
                        raise self._error
                    return
                piece = self._pieces.popleft()
            yield piece

    def close(self) -> None:
        """Cancel the rest of the response."""
        self._cancel(self)

    def _wait(self, condition: Callable[[], bool]) -> None:
        from botocore.exceptions import ReadTimeoutError

        if not self._changed.wait_for(condition, self.timeout):
            self.has_timed_out = True
            raise ReadTimeoutError(endpoint_url=self.url)
