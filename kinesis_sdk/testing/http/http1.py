"""One connection of HTTP/1.1: requests in, responses out, with keep-alive.

The package h11 is not used, because it takes 46 µs for a request and its response, compared with 6 µs in this module. The whole fake takes
45 µs
for a small call.
"""

from __future__ import annotations

import json
import select
import uuid
from contextlib import closing

from kinesis_sdk.testing.http.eventstream import CONTENT_TYPE
from kinesis_sdk.testing.http.messages import MAX_BODY, Channel, Rejected, Request, Responder, event_messages
from kinesis_sdk.testing.kinesis.fanout import Subscription

_MAX_HEADER = 64 << 10
_MAX_LENGTH_DIGITS = 18
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Payload Too Large",
    415: "Unsupported Media Type",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_LAST_CHUNK = b"0\r\n\r\n"


def _chunk(message: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(message), message)


class Http1Connection:
    """One client connection: reads requests and writes responses until either side closes it."""

    def __init__(self, responder: Responder, channel: Channel, begun: bytes = b"") -> None:
        self._responder = responder
        self._channel = channel
        self._buffer = bytearray(begun)

    def run(self) -> None:
        """Respond to requests until there are no more.

        Raises OSError if the client closes the connection within a request or response, and ResponseLostError if the
        connection must be closed without a response.
        """
        while True:
            try:
                request = self._read()
                if request is None:
                    return
                status, kind, body = self._responder.respond(request)
            except Rejected as rejected:
                self.reject(rejected.status, rejected.message)
                return
            if isinstance(body, Subscription):
                self._push(body)
                return
            keep = request.headers.get("connection", "").lower() != "close"
            self._write(status, kind, body, keep=keep)
            if not keep:
                return

    def reject(self, status: int, message: str) -> None:
        """Send an error as the last response of the connection."""
        self._write(status, "application/json", json.dumps({"message": message}).encode(), keep=False)

    def _more(self) -> bool:
        data = self._channel.recv(1 << 18)
        self._buffer += data
        return bool(data)

    def _read(self) -> Request | None:
        buffer = self._buffer
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            if len(buffer) > _MAX_HEADER:
                raise Rejected(400, "the header is too large")
            if not self._more():
                return None
        lines = buffer[:end].decode("latin-1").split("\r\n")
        try:
            method, path, _ = lines[0].split(" ")
        except ValueError:
            raise Rejected(400, "the request line is not HTTP/1.1") from None
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if "transfer-encoding" in headers:
            raise Rejected(411, "send a Content-Length; chunked requests are not understood")
        length_text = headers.get("content-length", "0")
        if not length_text.isdecimal():
            raise Rejected(400, "Content-Length is not a number")
        # `int` raises ValueError for thousands of digits.
        length = int(length_text) if len(length_text) <= _MAX_LENGTH_DIGITS else MAX_BODY + 1
        if length > MAX_BODY:
            raise Rejected(413, f"the body is larger than {MAX_BODY} bytes")
        if headers.get("expect", "").lower() == "100-continue":
            self._channel.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        start = end + 4
        if len(buffer) - start < length:
            # Read the rest into one block; a growing buffer would copy large bodies repeatedly.
            block = bytearray(length)
            have = len(buffer) - start
            block[:have] = buffer[start:]
            view = memoryview(block)
            while have < length:
                count = self._channel.recv_into(view[have:])
                if count == 0:
                    return None
                have += count
            buffer.clear()
            return Request(method, path, headers, bytes(block))
        body = bytes(buffer[start : start + length])
        del buffer[: start + length]
        return Request(method, path, headers, body)

    def _push(self, subscription: Subscription) -> None:
        """Send events until the subscription ends or the client closes the connection."""
        head = (
            "HTTP/1.1 200 OK\r\n"
            f"x-amzn-RequestId: {uuid.uuid4()}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\n"
            "Transfer-Encoding: chunked\r\n"
            f"{self._date_line()}"
            "Connection: close\r\n\r\n"
        )
        with closing(event_messages(subscription)) as messages:
            self._channel.sendall(head.encode())
            for message in messages:
                if message:
                    self._channel.sendall(_chunk(message))
                elif self._has_gone():
                    return
        self._channel.sendall(_LAST_CHUNK)

    def _date_line(self) -> str:
        date = self._responder.date()
        return "" if date is None else f"Date: {date}\r\n"

    def _has_gone(self) -> bool:
        """Return whether the client has closed the connection: during a subscription, a client sends nothing else."""
        readable, _, _ = select.select([self._channel], [], [], 0)
        return bool(readable) and not self._channel.recv(1 << 12)

    def _write(self, status: int, kind: str, body: bytes, *, keep: bool) -> None:
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\n"
            f"x-amzn-RequestId: {uuid.uuid4()}\r\n"
            f"Content-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"{self._date_line()}"
            f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        ).encode()
        if len(body) < 1 << 14:
            self._channel.sendall(head + body)
        else:
            self._channel.sendall(head)
            self._channel.sendall(body)
