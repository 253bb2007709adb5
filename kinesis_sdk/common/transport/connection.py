"""Sends requests on the open connections of a boto3 client.

boto3's HTTP session opens every connection, because only the session has the certificates, proxies and socket options. This module uses the
connections in its pool without urllib3, which costs more than the call itself. urllib3's pool still counts connections and
drops dead connections.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

from kinesis_sdk.common.transport.form import SignedRequest

MAX_BODY = 64 << 20
"""Maximum bytes of a response. GetRecords returns at most 10 MiB of data, which is 14 MB as base64, and 10,000 keys."""

_BLOCK = 2 << 20
"""Bytes to write at a time. The timeout applies to each block, so a slow network may take longer for a large request. Smaller blocks cost
more: a request of 5 MB in blocks of 128 KiB takes 5 % more CPU."""

_PIECE = 64 << 10

_USUAL_HEADERS = 64
"""Maximum number of headers that `_head` reads; ``http.client`` allows more."""

_USUAL_DIGITS = 10
"""Maximum digits of a length that `_head` reads."""


class Response:
    """A response that bypassed boto3's session, with the attributes of botocore's ``AWSResponse``."""

    __slots__ = ("content", "headers", "raw", "status_code", "url")

    def __init__(self, url: str, status_code: int, headers: dict[str, str], content: bytes) -> None:
        self.url: str = url
        self.status_code: int = status_code
        self.headers: dict[str, str] = headers  # by lower-case name
        self.content: bytes = content
        self.raw: None = None


class Connections:
    """The connections of a client to one URL. Thread-safe.

    The pool is found in the first response of the session of botocore's ``endpoint``. urllib3 has no public way to take a connection from
    the pool; if its private attributes do not exist, the session sends every request.
    """

    __slots__ = ("_endpoint", "_known")

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint
        self._known: tuple[Any, Any] | None = None

    @property
    def endpoint(self) -> Any:
        """Botocore's endpoint."""
        return self._endpoint

    def learn(self, response: Any) -> None:
        """Find the connection pool in a response of the session."""
        pool = getattr(getattr(response, "raw", None), "_pool", None)
        if _is_usable(pool):
            self._known = (self._endpoint.http_session, pool)

    def send(self, request: SignedRequest) -> Any:
        """Send a request and read the response, which is an ``AWSResponse`` if the session sent the request.

        Raises:
            HTTPClientError: The error that the session would raise.
        """
        session = self._endpoint.http_session
        known = self._known
        # A closed session loses its pool, and a user may replace the session.
        if known is not None and known[0] is session and request.is_plain:
            connection = _take(known[1])
            if connection is not None:
                return _converse(known[1], connection, request)
        response = session.send(request.prepared())
        self.learn(response)
        return response


def _is_usable(pool: Any) -> bool:
    return (
        hasattr(pool, "_get_conn")
        and hasattr(pool, "_put_conn")
        and hasattr(getattr(pool, "timeout", None), "read_timeout")
        # Through a proxy, requests have another form, which only the session knows.
        and getattr(pool, "proxy", None) is None
    )


def _take(pool: Any) -> Any:
    """Return an open connection of a pool; None if it has none."""
    from urllib3.exceptions import HTTPError

    try:
        connection = pool._get_conn()
    except HTTPError:  # the pool is closed: the session opens another pool
        return None
    if getattr(connection, "sock", None) is not None:
        return connection
    pool._put_conn(connection)
    return None


def _converse(pool: Any, connection: Any, request: SignedRequest) -> Response:
    from botocore.exceptions import ConnectionClosedError, ReadTimeoutError, SSLError

    reusable = False
    try:
        response, reusable = _exchange(connection.sock, pool.timeout.read_timeout, request)
    except TimeoutError as error:
        raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
    except ssl.SSLError as error:
        raise SSLError(endpoint_url=request.url, error=error) from error
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionClosedError(endpoint_url=request.url, error=error) from error
    finally:
        if not reusable:
            connection.close()
        pool._put_conn(connection)
    return response


def _exchange(sock: Any, timeout: float | None, request: SignedRequest) -> tuple[Response, bool]:
    """Send a request and return its response, and whether the connection can be used again."""
    if sock.gettimeout() != timeout:
        sock.settimeout(timeout)  # a system call
    try:
        for block in _blocks(request.head, request.body):
            sock.sendall(block)
    except BrokenPipeError:
        pass  # the service may have responded before reading everything
    with sock.makefile("rb") as stream:
        head = _head(stream.peek())
        if head is None:
            return _read_any(stream, request.url)
        stream.read(head.size)
        content = stream.read(head.length)
        whole = len(content) == head.length and not head.closes
        return Response(request.url, head.status, head.headers, content), whole


class _Head(NamedTuple):
    """Head of a response: ``size`` bytes, followed by ``length`` bytes of the body."""

    status: int
    headers: dict[str, str]
    size: int
    length: int
    closes: bool


def _head(start: bytes) -> _Head | None:
    """Read the head of a response as ``http.client`` does; None if ``start`` lacks a part of it, or if it is unusual.

    ``http.client`` takes a quarter of a whole call, because it parses the headers as those of an e-mail.
    """
    size = start.find(b"\r\n\r\n")
    if size < 0 or not start.startswith(b"HTTP/1.1 "):
        return None
    first, *lines = start[:size].decode("latin-1").split("\r\n")
    status = first[9:12]
    if (
        not status.isdecimal()
        or first[12:13] not in {"", " "}
        or not first.isprintable()
        or len(lines) > _USUAL_HEADERS
    ):
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key = name.lower()
        # A continued line begins with a space. A repeated header may be one of which only the first value counts.
        if (
            not colon
            or not name
            or " " in name
            or key in headers
            or not line.isascii()
            or not line.isprintable()
        ):
            return None
        headers[key] = value.lstrip(" ")
    length = headers.get("content-length", "")
    code = int(status)
    if (
        not length.isdecimal()
        or len(length) > _USUAL_DIGITS
        or int(length) > MAX_BODY
        or "transfer-encoding" in headers
        or code < 200
        or code in {204, 304}
    ):
        return None
    return _Head(code, headers, size + 4, int(length), "close" in headers.get("connection", "").lower())


class _Stream(NamedTuple):
    """The response of a socket, for ``http.client``."""

    stream: Any

    def makefile(self, _: str) -> Any:
        return self.stream


def _read_any(stream: Any, url: str) -> tuple[Response, bool]:
    """Return a response of any form, and whether the connection can be used again."""
    response = http.client.HTTPResponse(_Stream(stream), method="POST")  # type: ignore[arg-type]
    try:
        response.begin()
        content, whole = _read(response, url)
        headers: dict[str, str] = {}
        for name, value in response.headers.items():
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        return Response(url, response.status, headers, content), whole and not response.will_close
    finally:
        response.close()


def _blocks(head: bytes, body: bytes) -> Iterator[bytes | memoryview]:
    if len(body) <= _BLOCK:
        yield head + body
        return
    yield head
    view = memoryview(body)
    for start in range(0, len(body), _BLOCK):
        yield view[start : start + _BLOCK]


def _read(response: http.client.HTTPResponse, url: str) -> tuple[bytes, bool]:
    """Return the body of a response, and whether it is complete."""
    from botocore.exceptions import HTTPClientError

    pieces: list[bytes] = []
    size = 0
    try:
        if response.length is not None:
            if response.length <= MAX_BODY:
                return response.read(), True
            size = response.length
        while size <= MAX_BODY:
            piece = response.read(_PIECE)
            if not piece:
                return b"".join(pieces), True
            pieces.append(piece)
            size += len(piece)
    except http.client.IncompleteRead as error:
        return b"".join([*pieces, error.partial]), False  # boto3 decides what this body means
    raise HTTPClientError(error=f"the response of {url} has more than {MAX_BODY:,} bytes")
