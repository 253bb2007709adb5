"""One connection of HTTP/2, which the SDK for Java requires for Kinesis.

The package h2, from the extra ``fake``, implements the protocol. One client sends all its requests and subscriptions over a
single connection. So one thread reads, and each request has a thread that responds.
"""

from __future__ import annotations

import logging
import threading
import uuid
from contextlib import closing

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from kinesis_sdk.testing.errors import ResponseLostError
from kinesis_sdk.testing.http.eventstream import CONTENT_TYPE
from kinesis_sdk.testing.http.messages import MAX_BODY, Channel, Request, Responder, event_messages
from kinesis_sdk.testing.kinesis.fanout import Subscription

_log = logging.getLogger(__name__)

_READ = 1 << 18
_WINDOW = 16 << 20
_STREAMS = 128


class _Gone(Exception):  # noqa: N818 — the end of a response, not an error of the program
    """The client has reset the stream, or closed the connection."""


class _Arriving:
    """A request whose body is still incomplete."""

    __slots__ = ("body", "headers")

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers
        self.body = bytearray()


class Http2Connection:
    """A connection whose client has sent the preface of HTTP/2, after ALPN or with prior knowledge.

    `begun` contains the bytes that were already read from the connection. The channel's `sendall` is called from several threads, one at
    a time.
    """

    def __init__(self, responder: Responder, channel: Channel, begun: bytes) -> None:
        self._responder = responder
        self._channel = channel
        self._begun = begun
        # Guards everything below. Notified when a window may have grown, and when a stream or the connection has ended.
        self._changed = threading.Condition()
        self._protocol = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._protocol.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
                SettingCodes.MAX_CONCURRENT_STREAMS: _STREAMS,
            },
        )
        self._arriving: dict[int, _Arriving] = {}
        self._responding: set[int] = set()
        self._is_open = True

    def run(self) -> None:
        """Read until either side closes the connection. Raises OSError if the client closes the connection within a request."""
        protocol = self._protocol
        try:
            with self._changed:
                protocol.initiate_connection()
                protocol.increment_flow_control_window(_WINDOW)
                self._flush()
            data = self._begun
            while data:
                with self._changed:
                    try:
                        for event in protocol.receive_data(data):
                            self._take(event)
                    except ProtocolError:
                        # h2 has queued a GOAWAY frame, which tells the client why.
                        self._flush()
                        return
                    self._flush()
                    self._changed.notify_all()
                data = self._channel.recv(_READ)
        finally:
            with self._changed:
                self._is_open = False
                self._changed.notify_all()

    def _flush(self) -> None:
        if data := self._protocol.data_to_send():
            self._channel.sendall(data)

    def _take(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            headers = {str(name): str(value) for name, value in event.headers}
            self._arriving[event.stream_id] = _Arriving(headers)
            if headers.get("expect", "").lower() == "100-continue":
                self._protocol.send_headers(event.stream_id, [(":status", "100")])
        elif isinstance(event, DataReceived):
            self._protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            arriving = self._arriving.get(event.stream_id)
            if arriving is None:
                return
            arriving.body += event.data
            if len(arriving.body) > MAX_BODY:
                # Ignore the rest of this stream.
                del self._arriving[event.stream_id]
                self._protocol.send_headers(event.stream_id, [(":status", "413")], end_stream=True)
        elif isinstance(event, StreamEnded):
            arriving = self._arriving.pop(event.stream_id, None)
            if arriving is None:
                return
            headers = arriving.headers
            request = Request(
                headers.pop(":method", ""), headers.pop(":path", ""), headers, bytes(arriving.body)
            )
            self._responding.add(event.stream_id)
            threading.Thread(
                target=self._respond, args=(event.stream_id, request), name="fake-aws-stream", daemon=True
            ).start()
        elif isinstance(event, StreamReset):
            self._arriving.pop(event.stream_id, None)
            self._responding.discard(event.stream_id)

    # -- in the thread of a request ---------------------------------------------------------------------------

    def _respond(self, stream: int, request: Request) -> None:
        try:
            try:
                status, kind, body = self._responder.respond(request)
                if isinstance(body, Subscription):
                    self._push(stream, body)
                else:
                    self._send_head(stream, status, kind, ("content-length", str(len(body))))
                    self._send(stream, body, is_last=True)
            except ResponseLostError:
                with self._changed:
                    self._require(stream)
                    self._protocol.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)
                    self._flush()
        except (_Gone, OSError, ProtocolError) as error:
            # The client does not wait for the rest: it has reset the stream, or begun to close the connection.
            _log.debug("the end of stream %d: %r", stream, error)
        finally:
            with self._changed:
                self._responding.discard(stream)

    def _push(self, stream: int, subscription: Subscription) -> None:
        """Send events until the subscription ends or the client resets the stream."""
        with closing(event_messages(subscription)) as messages:
            self._send_head(stream, 200, CONTENT_TYPE)
            for message in messages:
                self._send(stream, message)
        self._send(stream, b"", is_last=True)

    def _require(self, stream: int) -> None:
        if not self._is_open or stream not in self._responding:
            raise _Gone

    def _send_head(self, stream: int, status: int, kind: str, *more: tuple[str, str]) -> None:
        headers = [
            (":status", str(status)),
            ("x-amzn-requestid", str(uuid.uuid4())),
            ("content-type", kind),
            *more,
        ]
        date = self._responder.date()
        if date is not None:
            headers.append(("date", date))
        with self._changed:
            self._require(stream)
            self._protocol.send_headers(stream, headers)
            self._flush()

    def _send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        """Send a part of a body as the client's windows permit. Without data, only check that the client is still there."""
        view, start = memoryview(data), 0
        with self._changed:
            while True:
                self._require(stream)
                if start == len(view) and not is_last:
                    self._flush()
                    return
                rest = len(view) - start
                window = self._protocol.local_flow_control_window(stream)
                if window < min(rest, 1):
                    self._flush()
                    self._changed.wait()
                    continue
                size = min(rest, window, self._protocol.max_outbound_frame_size)
                ends = is_last and size == rest
                self._protocol.send_data(stream, bytes(view[start : start + size]), end_stream=ends)
                start += size
                if ends:
                    self._flush()
                    return
