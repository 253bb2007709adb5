"""The client's side of one HTTP/2 connection, without a socket: it takes and returns bytes.

The package h2, from the extra ``http2``, implements the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import H2Error
from h2.settings import SettingCodes

MAX_STREAMS = 128
"""Maximum subscriptions of a connection. The service may allow fewer."""

STREAM_WINDOW = 256 * 1024
"""Bytes that the service may send for a subscription that is not being read: enough for 2 MiB/s at a distance of 100 ms."""

_CONNECTION_WINDOW = 2 * MAX_STREAMS * STREAM_WINDOW
"""Bytes that may be in flight on a connection: enough so that unread subscriptions never stop other subscriptions."""

_MAX_FRAME = 256 * 1024
_MAX_HEADERS = 64 * 1024


class BrokenConnection(Exception):  # noqa: N818 - translated before a user sees it
    """The connection can no longer be used, because the service closed it or broke the protocol."""


@dataclass(frozen=True)
class Head:
    """Status and headers of a response."""

    stream: int
    status: int
    headers: dict[str, str]


@dataclass(frozen=True)
class Body:
    """A part of a response's body. ``size`` counts against the window, padding included."""

    stream: int
    data: bytes = field(repr=False)
    size: int


@dataclass(frozen=True)
class End:
    """The end of a response; ``reset`` is the error code of the service if it did not end by itself."""

    stream: int
    reset: int | None = None


@dataclass(frozen=True)
class GoAway:
    """The service ends the connection."""

    code: int


Part = Head | Body | End | GoAway


class Http2Protocol:
    """State of one connection. Used by one thread at a time.

    Attributes:
        is_ready: Whether the service has sent its settings.
    """

    def __init__(self) -> None:
        self.is_ready: bool = False
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._h2.update_settings(
            {
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                SettingCodes.MAX_FRAME_SIZE: _MAX_FRAME,
                SettingCodes.MAX_HEADER_LIST_SIZE: _MAX_HEADERS,
            }
        )
        self._h2.increment_flow_control_window(_CONNECTION_WINDOW - 65_535)

    @property
    def capacity(self) -> int:
        """Maximum number of streams at a time."""
        return min(MAX_STREAMS, int(self._h2.remote_settings.max_concurrent_streams))

    def request(self, authority: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> int:
        """Send a POST request over a new stream; return its number.

        Raises:
            BrokenConnection: If the connection accepts no further stream.
        """
        try:
            stream = self._h2.get_next_available_stream_id()
            pseudo = [(":method", "POST"), (":scheme", "https"), (":authority", authority), (":path", path)]
            self._h2.send_headers(stream, [*pseudo, *headers])
            if len(body) > min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size):
                # A subscription's request has less than 1 KiB. Every service takes it at once.
                raise BrokenConnection(f"the service takes no request of {len(body)} bytes")
            self._h2.send_data(stream, body, end_stream=True)
        except H2Error as error:
            raise BrokenConnection(
                f"no further request is possible: {error or type(error).__name__}"
            ) from error
        return stream

    def receive(self, data: bytes) -> list[Part]:
        """Take bytes of the service; return the events that they contain for the streams.

        Raises:
            BrokenConnection: If the service breaks the protocol.
        """
        parts: list[Part] = []
        try:
            for event in self._h2.receive_data(data):
                if isinstance(event, events.DataReceived):
                    parts.append(Body(event.stream_id, event.data, event.flow_controlled_length))
                elif isinstance(event, events.ResponseReceived):
                    headers = {str(name): str(value) for name, value in event.headers}
                    parts.append(Head(event.stream_id, int(headers.pop(":status", "0")), headers))
                elif isinstance(event, events.StreamEnded):
                    parts.append(End(event.stream_id))
                elif isinstance(event, events.StreamReset):
                    parts.append(End(event.stream_id, int(event.error_code)))
                elif isinstance(event, events.RemoteSettingsChanged):
                    self.is_ready = True
                elif isinstance(event, events.ConnectionTerminated):
                    parts.append(GoAway(int(event.error_code or 0)))
        except (H2Error, ValueError) as error:
            raise BrokenConnection(
                f"the service broke the protocol: {error or type(error).__name__}"
            ) from error
        return parts

    def consumed(self, stream: int, size: int) -> None:
        """Allow the service to send this number of further bytes of a stream, which may have ended."""
        self._h2.acknowledge_received_data(size, stream)

    def cancel(self, stream: int) -> None:
        """Request that the service does not send the rest of a stream, which may have ended."""
        with suppress(H2Error):  # it has ended
            self._h2.reset_stream(stream, ErrorCodes.CANCEL)

    def farewell(self) -> None:
        """End the connection."""
        with suppress(H2Error):
            self._h2.close_connection()

    def outgoing(self) -> bytes:
        """Return the bytes to send."""
        return self._h2.data_to_send()
