"""The health endpoint: a small HTTP server for ``/live``, ``/ready`` and ``/status``.

It decides nothing: `health.liveness` and `health.readiness` do. It answers GET and HEAD, closes each connection after the
answer, and neither slow clients nor rubbish can occupy it: a request must arrive within three seconds, and of too many
connections the newest are closed at once.
"""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.validation import check_int, check_text

_LOGGER = FieldLogger(logging.getLogger(__name__))

_REQUEST_SECONDS = 3.0
_ANSWER_SECONDS = 10.0
_MAX_REQUEST_BYTES = 16 * 1024
MAX_CONNECTIONS = 32
"""Maximum connections of a server at the same time."""


class Answer(NamedTuple):
    """Answer to a request.

    Attributes:
        ok: Whether the status is 200; it is 503 otherwise.
        content: Content, as data that ``json.dumps`` accepts.
    """

    ok: bool
    content: Mapping[str, Any]


Answers = Mapping[str, Callable[[], Answer]]
"""From a path to what answers it."""


def check_health_address(host: str, port: int | None) -> None:
    """Check ``health_host`` and ``health_port``.

    Raises:
        ConfigError: If one of them is not valid; the message names it.
    """
    check_text("health_host", host, 1)
    if port is not None:
        check_int("health_port", port, 0, 65535)


class HealthServer:
    """Serves answers at a port, on daemon threads.

    Args:
        host: Address to listen at.
        port: Port to listen at; 0 picks a free one.
        answers: The answers, by path.

    Attributes:
        port: Port that it listens at.

    Raises:
        ConfigError: If it cannot listen there, for example because the port is in use.
    """

    def __init__(self, host: str, port: int, answers: Answers) -> None:
        try:
            self._server = _Server(host, port, _Handler)
            self._server.answers = answers
        except (OSError, UnicodeError) as error:
            reason = f"a port at which {host} can be listened at ({error})"
            raise ConfigError("health_port", port, reason) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.1), name="kinesis-health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Closing twice is harmless."""
        self._server.shutdown()
        self._server.server_close()


class BoundedServer(ThreadingTCPServer):
    """An HTTP server with a bounded number of threads: of too many connections, the newest are closed at once.

    Args:
        host: Address to listen at.
        port: Port; 0 takes a free one.
        handler: Class of the handlers.

    Raises:
        OSError: If the address cannot be listened at.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, handler: type[BoundedHandler]) -> None:
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family: int = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request on a thread, or close its connection."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # the system gives no more threads
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle a request, on its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the signature of socketserver
        """Ignore a client that goes away, or that is too slow."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _LOGGER.error("an HTTP endpoint failed", exc_info=error)


class BoundedHandler(BaseHTTPRequestHandler):
    """A handler of one request, which must arrive within three seconds."""

    server_version = "kinesis_sdk"
    sys_version = ""

    def setup(self) -> None:
        """Read the request."""
        super().setup()
        # Read the whole request before it is parsed, against one deadline. A timeout for each read would let a client that
        # sends one byte a second hold a thread for ever.
        self.rfile: io.BufferedIOBase = io.BytesIO(self._read_head())
        self.connection.settimeout(_ANSWER_SECONDS)

    def _read_head(self) -> bytes:
        deadline = time.monotonic() + _REQUEST_SECONDS
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) < _MAX_REQUEST_BYTES:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the request did not arrive in time")
            self.connection.settimeout(left)
            part = self.connection.recv(4096)
            if not part:
                break
            head += part
        return head

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of http.server
        """Log nothing: a probe comes every few seconds, and requests are text of others."""


class Page(NamedTuple):
    """Answer of a `PageServer`.

    Attributes:
        status: HTTP status.
        kind: Content type.
        body: Content.
    """

    status: int
    kind: str
    body: bytes


class PageServer:
    """Serves pages by path on daemon threads, until it is closed.

    Args:
        page: Returns the page of a path, which has the query too.
        host: Address to listen at.
        port: Port; 0 takes a free one.

    Attributes:
        port: The port.

    Raises:
        OSError: If the address cannot be listened at.
    """

    def __init__(self, page: Callable[[str], Page], host: str, port: int) -> None:
        class Handler(BoundedHandler):
            def do_GET(self) -> None:
                status, kind, body = page(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = BoundedServer(host, port, Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.1), name="kinesis-pages", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


class _Server(BoundedServer):
    answers: Answers


class _Handler(BoundedHandler):
    server: _Server

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            self._send(404, {"error": "not found", "paths": [*self.server.answers]})
            return
        try:
            ok, content = answer()
        except Exception:
            _LOGGER.exception("the health endpoint failed to answer %s", self.path)
            self._send(500, {"error": "internal error"})
            return
        self._send(200 if ok else 503, content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, status: int, content: Mapping[str, Any]) -> None:
        body = json.dumps(content, indent=2).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
