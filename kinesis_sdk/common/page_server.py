"""The only HTTP server of this package, for the health of workers and metrics for Prometheus.

All decisions are the pages'. The server responds to GET and HEAD, then closes the connection. Slow or malformed requests cannot
occupy it: a request must arrive within three seconds, and connections beyond the maximum are closed at once.
"""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.text import printable

_LOGGER = FieldLogger(logging.getLogger(__name__))

_REQUEST_SECONDS = 3.0
_ANSWER_SECONDS = 10.0
_MAX_REQUEST_BYTES = 16 * 1024
MAX_CONNECTIONS = 32
"""Maximum connections of a server at the same time."""


class Page(NamedTuple):
    """Response of a `PageServer`.

    Attributes:
        status: HTTP status.
        kind: Content type.
        body: Content.
    """

    status: int
    kind: str
    body: bytes


def json_page(status: int, content: Mapping[str, Any]) -> Page:
    """Return a page of JSON.

    Args:
        status: HTTP status.
        content: Data that ``json.dumps`` accepts.
    """
    return Page(status, "application/json", json.dumps(content, indent=2).encode() + b"\n")


def probe_page(name: str, problems: Sequence[str]) -> Page:
    """Return the response to a health probe: 200 without problems, otherwise 503 with the problems.

    Args:
        name: Subject of the probe, such as ``live``; a member of the JSON, which is true or false.
        problems: Reasons why the probe fails; none if it succeeds.
    """
    return json_page(503 if problems else 200, {name: not problems, "problems": list(problems)})


def pages_by_path(pages: Mapping[str, Callable[[], Page]]) -> Callable[[str], Page]:
    """Return a function for `PageServer` that serves some paths, and 404 for all other paths.

    Args:
        pages: Maps each path to the function that makes its page. The query of a request is ignored.
    """

    def page(path: str) -> Page:
        make = pages.get(path.partition("?")[0])
        return json_page(404, {"error": "not found", "paths": [*pages]}) if make is None else make()

    return page


class PageServer:
    """Serves pages by path on daemon threads, until it is closed.

    Args:
        page: Returns the page of a path, which includes the query. Called on several threads at the same time; if it raises,
            the response is 500 and the error is logged.
        host: Address to listen on.
        port: Port to listen on; 0 picks a free port.
        setting: Name of the setting that gives the port, for the error.

    Attributes:
        port: Port that it listens on.

    Raises:
        ConfigError: If the server cannot listen on this address, for example because the port is in use.
    """

    def __init__(self, page: Callable[[str], Page], host: str, port: int, *, setting: str) -> None:
        try:
            self._server = _Server(page, host, port)
        except (OSError, UnicodeError) as error:
            accepted = f"a port at which {host} can be listened at ({error})"
            raise ConfigError(setting, port, accepted) from error
        self.port: int = self._server.server_address[1]
        threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.1), name="kinesis-pages", daemon=True
        ).start()

    def close(self) -> None:
        """Stop listening. Closing twice is harmless."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingTCPServer):
    """A server with a bounded number of threads; connections beyond it are closed at once."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, page: Callable[[str], Page], host: str, port: int) -> None:
        self.page = page
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family: int = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request on a thread, or close its connection."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # the system allows no more threads
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the signature of socketserver
        """Ignore a client that goes away, or that is too slow."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _LOGGER.error("an HTTP endpoint failed", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    """A handler of one request."""

    server: _Server
    server_version = "kinesis_sdk"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        # Read the whole request before it is parsed, against one deadline. A timeout for each read would let a client that
        # sends one byte a second hold a thread forever.
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
        """Log nothing, because probes arrive every few seconds, and clients could write any text to the log."""

    def do_GET(self) -> None:
        try:
            status, kind, body = self.server.page(self.path)
        except Exception:
            _LOGGER.exception("an HTTP endpoint failed to answer %s", printable(self.path))
            status, kind, body = json_page(500, {"error": "internal error"})
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()
