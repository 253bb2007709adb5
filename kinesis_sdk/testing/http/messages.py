"""Requests, responders, and events of subscriptions: the part of the server that both versions of HTTP share."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from kinesis_sdk.testing.errors import AwsError
from kinesis_sdk.testing.http.eventstream import encode_event, encode_exception
from kinesis_sdk.testing.kinesis.fanout import Subscription

MAX_BODY = 64 << 20
"""Maximum size of a request's body in bytes, before and after decompression."""

# Seconds after which an idle subscription checks its client and the (perhaps virtual) clock.
_PUSH_WAIT = 0.2


class Request:
    """A request; the names of its headers are in lower case."""

    __slots__ = ("body", "headers", "method", "path")

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method: str = method
        self.path: str = path
        self.headers: dict[str, str] = headers
        self.body: bytes = body


class Rejected(Exception):  # noqa: N818 — a response, not an error of the program
    """A request to which the response is an HTTP error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Channel(Protocol):
    """The byte stream of a connection: a socket, or TLS over one."""

    def recv(self, size: int, /) -> bytes:
        """Wait for bytes and return them; empty if the client has closed the connection."""

    def recv_into(self, view: memoryview, /) -> int:
        """Wait for bytes, write them to the view, and return their number; 0 if the client has closed the connection."""

    def sendall(self, data: bytes, /) -> None:
        """Send all bytes."""

    def fileno(self) -> int:
        """Return the socket's file descriptor, for `select`."""


class Responder(Protocol):
    """Returns the response to each request."""

    def respond(self, request: Request) -> tuple[int, str, bytes | Subscription]:
        """Return the status, the content type and the body. A `Subscription` instead of a body is pushed.

        Raises ResponseLostError if the client must not get a response.
        """

    def date(self) -> str | None:
        """Return the ``Date`` header; None if responses have none."""


def event_messages(subscription: Subscription) -> Generator[bytes, None, None]:
    """Yield the messages of a subscription when they are due, and ``b""`` from time to time while no message is due.

    Closing the generator ends the subscription. An error that ends the subscription is its last message. Raises
    ResponseLostError if a fault cuts the subscription.
    """
    try:
        yield encode_event("initial-response", b"{}")
        while not subscription.is_over:
            payload = subscription.take(_PUSH_WAIT)
            yield b"" if payload is None else encode_event("SubscribeToShardEvent", payload)
    except AwsError as error:
        yield encode_exception(error)
    finally:
        subscription.close()
