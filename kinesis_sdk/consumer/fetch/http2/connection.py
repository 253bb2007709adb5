"""One connection and its streams: moves bytes between a socket, the protocol and the responses."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kinesis_sdk.consumer.fetch.events import EventReader, Next
from kinesis_sdk.consumer.fetch.http2.protocol import Body, BrokenConnection, End, GoAway, Head, Http2Protocol
from kinesis_sdk.consumer.fetch.http2.pushed import PushedResponse

IDLE_SECONDS = 10.0
"""Seconds for which a connection without streams stays open."""

_MAX_OUT = 1024 * 1024
"""Maximum bytes that wait for room in the socket. Requests are small, but a service that never reads may request any number of responses,
for example to PING frames."""

_READ = 128 * 1024
_READS = 16
"""Maximum reads from one connection before the other connections of its thread are served."""


class Channel(Protocol):
    """A socket that does not block, with or without TLS."""

    def recv(self, size: int, /) -> bytes: ...  # noqa: D102

    def send(self, data: bytes, /) -> int: ...  # noqa: D102

    def fileno(self) -> int: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send; the names of its headers are in lower case."""

    authority: str
    path: str
    headers: Mapping[str, str] = field(repr=False)  # with the signature
    body: bytes = field(repr=False)


class _Stream:
    __slots__ = ("has_ended", "number", "reader", "response", "touched", "waits")

    def __init__(self, response: PushedResponse, number: int, now: float) -> None:
        self.response = response
        self.number = number
        self.reader: EventReader | None = None
        self.waits = False  # whether its reader waits for room, so that nothing is read
        self.has_ended = False
        self.touched = now  # time of the last part, or of the last event for which there was room


class Connection:
    """The streams of one connection. Only the thread of its loop calls methods.

    Args:
        channel: The socket, connected.
        now: Monotonic seconds.
        on_free: Called when a stream has ended, so that another stream may be opened.

    Attributes:
        wants_to_write: Whether bytes wait for room in the socket.
        has_more: Whether `read` stopped although more may have arrived.
        is_ready: Whether the service has sent its settings.
        is_open: Whether the socket is open.
        accepts: Whether further streams may be opened. Any thread may make it False.
    """

    def __init__(self, channel: Channel, now: float, on_free: Callable[[], None] = lambda: None) -> None:
        self.channel: Channel = channel
        self.wants_to_write: bool = False
        self.has_more: bool = False
        self.is_open: bool = True
        self.accepts: bool = True
        self._on_free = on_free
        self._protocol = Http2Protocol()
        self._out = b""
        self._streams: dict[PushedResponse, _Stream] = {}
        self._by_number: dict[int, _Stream] = {}
        self._idle_since = now

    @property
    def is_ready(self) -> bool:
        """Whether the service has sent its settings."""
        return self._protocol.is_ready

    @property
    def capacity(self) -> int:
        """Maximum number of streams."""
        return self._protocol.capacity

    @property
    def has_streams(self) -> bool:
        """Whether a response is not yet read to its end."""
        return bool(self._streams)

    def open(self, request: Request, response: PushedResponse, now: float) -> None:
        """Send a request whose response goes to ``response``."""
        try:
            if not self.is_open:
                raise BrokenConnection("the connection is closed")
            number = self._protocol.request(
                request.authority, request.path, request.headers.items(), request.body
            )
        except BrokenConnection as error:
            self.accepts = False
            response.end_broken(error)
            self._on_free()
            return
        self._streams[response] = self._by_number[number] = _Stream(response, number, now)
        self.flush()

    def attach(self, response: PushedResponse, reader: EventReader, now: float) -> None:
        """Let ``reader`` read all data that arrives from now on. The response may have ended."""
        stream = self._streams.get(response)
        if stream is None:  # the connection broke, and the response has the error
            stream = self._streams[response] = _Stream(response, 0, now)
            stream.has_ended = True
        response.never_wait()
        stream.reader, stream.touched = reader, now
        self._pump(stream)
        self.flush()

    def resume(self, response: PushedResponse, now: float) -> None:
        """Continue reading, because there may be room for the waiting event."""
        stream = self._streams.get(response)
        if stream is not None and stream.waits:
            stream.waits, stream.touched = False, now
            self._pump(stream, has_event=True)
            self.flush()

    def cancel(self, response: PushedResponse, now: float) -> None:
        """Forget a response; cancel it at the service unless it has ended."""
        stream = self._streams.pop(response, None)
        if stream is None:
            return
        self._by_number.pop(stream.number, None)
        self._idle_since = now
        unread = response.discard()
        if self.is_open and unread:
            self._protocol.consumed(stream.number, unread)
        if not stream.has_ended:
            self._protocol.cancel(stream.number)
        self._on_free()
        self.flush()

    def read(self, now: float) -> None:
        """Take the bytes that have arrived."""
        self.has_more = True
        try:
            for _ in range(_READS):
                data = self.channel.recv(_READ)
                if not data:
                    raise BrokenConnection("the service has closed the connection")
                self.receive(data, now)
                if not self.is_open:
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.has_more = False
        except (OSError, BrokenConnection) as error:
            self.close(error)
        self.flush()

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of the service; raises `BrokenConnection` like `Http2Protocol.receive`."""
        touched: dict[_Stream, None] = {}
        try:
            for part in self._protocol.receive(data):
                if isinstance(part, GoAway):
                    # h2 accepts no frames after a GOAWAY, so streams that the service would still serve end too. Their
                    # shards are subscribed again where the streams stopped.
                    raise BrokenConnection(f"the service ends the connection (GOAWAY, code {part.code})")
                stream = self._by_number.get(part.stream)
                if stream is None:
                    if isinstance(part, Body):  # of a stream that was cancelled
                        self._protocol.consumed(part.stream, part.size)
                    continue
                stream.touched = now
                touched[stream] = None
                self._take_part(stream, part)
        finally:
            # Do this even if the connection breaks next: events that arrived completely are read first.
            for stream in touched:
                self._pump(stream)

    def _take_part(self, stream: _Stream, part: Head | Body | End) -> None:
        response = stream.response
        if isinstance(part, Head):
            response.begin(part.status, part.headers)
        elif isinstance(part, Body):
            try:
                response.feed(part.data, part.size)
            except ValueError as error:
                self._protocol.cancel(stream.number)
                stream.has_ended = True
                response.end_broken(error)
        else:
            stream.has_ended = True
            if part.reset is None:
                response.end()
            else:
                response.end_broken(BrokenConnection(f"the service reset the stream, code {part.reset}"))

    def _pump(self, stream: _Stream, *, has_event: bool = False) -> None:
        """Read the events for which there is room, a waiting event first, and allow the service to send the same number of bytes again."""
        reader, response = stream.reader, stream.response
        while reader is not None and not stream.waits and (has_event or response.is_ready):
            has_event = False
            following = reader.read_one()
            if following is Next.STOP:
                # The reader has closed the response, which posts a `cancel`. Until that runs, more may arrive.
                stream.reader = None
                return
            stream.waits = following is Next.WAIT
        credit = response.take_credit()
        if (
            credit and self.is_open
        ):  # also of a stream that has ended: the bytes count against the connection's window, too
            self._protocol.consumed(stream.number, credit)

    def expire(self, now: float) -> None:
        """End streams that were silent for too long, and end the connection once it has had no streams for a while."""
        from botocore.exceptions import ReadTimeoutError

        for stream in list(self._streams.values()):
            response = stream.response
            if stream.reader is None or stream.waits or now - stream.touched < response.timeout:
                continue
            # The connection may be dead without an error. Streams that are not silent continue.
            self.accepts = False
            response.end(ReadTimeoutError(endpoint_url=response.url))
            self._pump(stream)
        if (
            self.is_open
            and not self._streams
            and (not self.accepts or now - self._idle_since >= IDLE_SECONDS)
        ):
            self.accepts = False
            self._protocol.farewell()
            self.flush()
            self.close(BrokenConnection("idle"))

    def close(self, error: Exception) -> None:
        """Close the socket. Readers of the streams get all earlier data, then the error."""
        if not self.is_open:
            return
        self.is_open = self.accepts = self.has_more = self.wants_to_write = False
        streams = list(self._streams.values())
        for stream in streams:
            stream.has_ended = True
            stream.response.end_broken(error)
        self.channel.close()
        for stream in streams:
            self._pump(stream)

    def flush(self) -> None:
        """Send as many of the waiting bytes as the socket accepts."""
        if not self.is_open:
            return
        self._out += self._protocol.outgoing()
        self.wants_to_write = False
        try:
            while self._out:
                self._out = self._out[self.channel.send(self._out) :]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.wants_to_write = True
            if len(self._out) > _MAX_OUT:
                waiting, self._out = len(self._out), b""
                self.close(BrokenConnection(f"the service does not read: {waiting:,} bytes wait to be sent"))
        except OSError:
            # Reading shows the same error, or first the last message of the service before it closed the connection.
            self._out = b""
            self.has_more = True
