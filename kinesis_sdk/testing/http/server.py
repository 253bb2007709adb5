"""The fake account over HTTP, for any AWS client in any process.

Each connection has a thread and a blocking socket. An ASGI server would run the account's blocking calls on a pool and use four to seven
times the CPU time for each request (45 µs here, 185 µs with uvicorn and httptools, which has no HTTP/2, and 335 µs with hypercorn). Most
importantly, an ASGI server cannot lose a response, because it cannot cut a connection before a response or in the middle of a body. The
server
speaks HTTP/1.1 with keep-alive, and HTTP/2, over plain sockets or TLS. Kinesis, DynamoDB, Glue and CloudWatch accept JSON with the header
``X-Amz-Target``; CloudWatch and STS accept the query protocol. Kinesis also accepts CBOR, which the SDK for Java uses, except for the
events of SubscribeToShard. Only the access key and the session token of a request are verified.

| admin request | response |
| --- | --- |
| ``GET /_fake/health`` | ``{"status": "ok"}`` |
| ``GET /_fake/stats`` | counters, see `FakeAws.stats` |
| ``GET /_fake/faults`` | active faults |
| ``POST /_fake/faults`` | adds one fault or a list; responds with ``{"ids": […]}`` |
| ``DELETE /_fake/faults`` | removes all faults; ``/_fake/faults/3`` only that one |
| ``GET /_fake/metrics`` | metric data received |
| ``POST /_fake/credentials`` | ``{"seconds": 60}``: temporary credentials, see `FakeAws.credentials` |
| ``POST /_fake/clock`` | ``{"advance": seconds}`` on a virtual clock |
| ``POST /_fake/streams`` | ``{"roll": table, "split": false}`` closes the open shards of a table's stream; ``{"trim": table}`` forgets its records |
| ``POST /_fake/date`` | ``{"offset": seconds}`` by which the ``Date`` header is ahead; null for no header |
| ``POST /_fake/reset`` | forgets everything |

An admin request with an ``Origin`` header is rejected, because only browsers send it, and a web page in a developer's browser must not be
able to reset the fake. Bodies are limited to 64 MiB, before and after decompression.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import socket
import ssl
import struct
import threading
import time
import zlib
from email.utils import formatdate
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.testing.aws import FakeAws
from kinesis_sdk.testing.clock import VirtualClock
from kinesis_sdk.testing.errors import AwsError, ResponseLostError
from kinesis_sdk.testing.faults import Fault
from kinesis_sdk.testing.http import cbor
from kinesis_sdk.testing.http.eventstream import CONTENT_TYPE
from kinesis_sdk.testing.http.http1 import Http1Connection
from kinesis_sdk.testing.http.messages import MAX_BODY, Channel, Request
from kinesis_sdk.testing.http.query import parse_query, render_error, render_response
from kinesis_sdk.testing.http.tls import Certificate
from kinesis_sdk.testing.kinesis.fanout import Subscription

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger(__name__)

_READ = 1 << 18
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")
_EMPTY_ANSWERS = frozenset({"kinesis"})
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_NEEDS_H2 = install_hint("HTTP/2 of the fake AWS server", "h2", "fake")
_NEEDS_CBOR = install_hint("CBOR of the fake AWS server", "cbor2", "fake")


def _can_http2() -> bool:
    return find_spec("h2") is not None


def _refuse_http2(channel: Channel) -> None:
    """Send an HTTP/2 client the reason why it is rejected: an empty SETTINGS frame, then GOAWAY with a text and the code HTTP_1_1_REQUIRED."""
    text = _NEEDS_H2.encode()
    settings = struct.pack("!BHBBI", 0, 0, 4, 0, 0)
    away = struct.pack("!BHBBIII", 0, len(text) + 8, 7, 0, 0, 0, 13) + text
    channel.sendall(settings + away)


class FakeAwsServer:
    """Serves a fake account over HTTP. A context manager.

    Args:
        aws: The account; code in this process may use it at the same time.
        host: Address to listen on. Requests are hardly authenticated, so use a local address.
        port: Port; 0 lets the system choose.
        latency: Seconds that are added to every AWS call, to simulate a distant service.
        max_connections: Maximum simultaneous connections, each with a thread; additional connections get a 503 response and are closed.
        tls: Whether to serve https. A certificate for the host and the names of the loopback is created at each start.
            Needs the extra ``fake``.
        ca_file: Path for the certificate of the authority that clients have to trust; None chooses a temporary file, which `stop` removes.
            Ignored without TLS.
    """

    def __init__(
        self,
        aws: FakeAws,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        latency: float = 0.0,
        max_connections: int = 1_024,
        tls: bool = False,
        ca_file: str | Path | None = None,
    ) -> None:
        self.aws = aws
        self._max_connections = max_connections
        self._address = (host, port)
        self._latency = latency
        self._tls = tls
        self._ca_file = ca_file
        self._certificate: Certificate | None = None
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._date = (0, "")

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def start(self) -> FakeAwsServer:
        """Listen and serve from background threads.

        Raises:
            RuntimeError: If the server is running.
            OSError: If the address is in use or does not belong to this machine, or the CA file cannot be written.
            ModuleNotFoundError: If TLS is requested and trustme is not installed.
        """
        if self._listener is not None:
            raise RuntimeError("the server is already running")
        if self._tls:
            protocols = ("h2", "http/1.1") if _can_http2() else ("http/1.1",)
            self._certificate = Certificate(self._address[:1], ca_file=self._ca_file, protocols=protocols)
        try:
            self._listener = socket.create_server(self._address, backlog=512)
        except OSError:
            self._forget_certificate()
            raise
        self._thread = threading.Thread(
            target=self._accept, args=(self._listener,), name="fake-aws-accept", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the listener and every connection. Do nothing if the server is not running."""
        listener, thread = self._listener, self._thread
        if listener is None or thread is None:
            return
        self._listener = None
        # Closing alone does not wake a thread that waits in accept().
        try:
            listener.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            _log.debug("the listening socket could not be shut down: %s", error)
        listener.close()
        thread.join()
        with self._lock:
            connections = list(self._connections)
        for sock in connections:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                _log.debug("a connection was closed already: %s", error)
        self._forget_certificate()

    def _forget_certificate(self) -> None:
        if self._certificate is not None:
            self._certificate.close()
            self._certificate = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        """``endpoint_url`` for boto3.

        Raises:
            RuntimeError: If the server is not running.
        """
        if self._listener is None:
            raise RuntimeError("the server is not running: call start() or use it as a context manager")
        host, port = self._listener.getsockname()[:2]
        scheme = "https" if self._tls else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def ca_file(self) -> str | None:
        """Path of the certificate that clients have to trust (PEM), for ``verify`` of boto3; None without TLS.

        Raises:
            RuntimeError: If the server is not running.
        """
        if self._listener is None:
            raise RuntimeError("the server is not running: call start() or use it as a context manager")
        return None if self._certificate is None else self._certificate.ca_file

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if self._listener is listener:
                    _log.error("the fake AWS server stops listening: %s", error)
                return
            with self._lock:
                is_full = len(self._connections) >= self._max_connections
                self._connections.add(sock)
            if is_full:
                _log.warning("rejected a connection: %d are open, the maximum", self._max_connections)
                self._reject(sock)
                continue
            threading.Thread(target=self._serve, args=(sock,), name="fake-aws", daemon=True).start()

    def _reject(self, sock: socket.socket) -> None:
        try:
            # A TLS client would not understand plain text.
            if self._certificate is None:
                Http1Connection(self, sock).reject(503, "the fake AWS server has too many connections")
        except OSError as error:
            _log.debug("a rejected client closed its connection: %s", error)
        finally:
            self._forget(sock)

    def _serve(self, sock: socket.socket) -> None:
        """Serve a connection until either side closes it."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._certificate is None:
                self._converse(sock)
                return
            try:
                channel = self._certificate.accept(sock)
            except ssl.SSLError as error:
                self._tell_about_tls(sock, error)
                return
            try:
                self._converse(channel)
            finally:
                channel.close()
        except (OSError, ResponseLostError) as error:
            # The client has closed the connection, or a fault cuts it.
            _log.debug("a connection ends: %s", error)
        finally:
            self._forget(sock)

    def _tell_about_tls(self, sock: socket.socket, error: ssl.SSLError) -> None:
        if error.reason == "HTTP_REQUEST":
            Http1Connection(self, sock).reject(400, "this fake AWS server speaks TLS: use an https:// URL")
        else:
            _log.warning("a TLS handshake failed (does the client trust the CA file?): %s", error)

    def _converse(self, channel: Channel) -> None:
        begun = channel.recv(_READ)
        # A client with prior knowledge speaks HTTP/2 without ALPN, so its first bytes decide.
        while begun and len(begun) < len(_PREFACE) and _PREFACE.startswith(begun):
            more = channel.recv(_READ)
            if not more:
                return
            begun += more
        if not begun.startswith(_PREFACE):
            Http1Connection(self, channel, begun).run()
        elif _can_http2():
            from kinesis_sdk.testing.http.http2 import Http2Connection

            Http2Connection(self, channel, begun).run()
        else:
            _log.error(_NEEDS_H2)
            _refuse_http2(channel)

    def _forget(self, sock: socket.socket) -> None:
        with self._lock:
            self._connections.discard(sock)
        sock.close()

    def date(self) -> str | None:
        """Return the ``Date`` header; None if responses have none.

        It is the system time plus the account's `date_offset`, even on a virtual clock, because clients correct their signing clocks with
        it.
        """
        offset = self.aws.date_offset
        if offset is None:
            return None
        second = int(time.time() + offset)
        if self._date[0] != second:
            self._date = (second, formatdate(second, usegmt=True))
        return self._date[1]

    # -- requests -----------------------------------------------------------------------------------------------

    def respond(self, request: Request) -> tuple[int, str, bytes | Subscription]:
        """Return the status, the content type and the body for a request; a `Subscription` instead of a body is pushed.

        Raises:
            ResponseLostError: If the connection must be closed without a response.
        """
        if request.path.startswith("/_fake/"):
            return self._admin(request)
        if request.method != "POST":
            return 405, "application/json", b'{"message":"AWS calls are POST requests"}'
        target = request.headers.get("x-amz-target", "")
        if not target and "x-www-form-urlencoded" in request.headers.get("content-type", ""):
            return self._query(request)
        prefix, _, operation = target.rpartition(".")
        service = self.aws.service_of_target(prefix)
        kind = (
            "application/x-amz-json-1.1"
            if service in {"kinesis", "glue", None}
            else "application/x-amz-json-1.0"
        )
        in_cbor = service == "kinesis" and request.headers.get("content-type") == cbor.CONTENT_TYPE
        if in_cbor:
            if not cbor.is_installed():
                _log.error(_NEEDS_CBOR)
                return (
                    415,
                    kind,
                    json.dumps({"__type": "UnsupportedMediaType", "message": _NEEDS_CBOR}).encode(),
                )
            kind = cbor.CONTENT_TYPE
        try:
            if service is None:
                raise AwsError(
                    "UnknownOperationException", f"The fake has no operation for X-Amz-Target {target!r}."
                )
            body = self._call(service, operation, request, self._document(request, in_cbor=in_cbor))
        except AwsError as error:
            document = {"__type": error.code, "message": error.message, **error.members}
            return error.status, kind, cbor.encode(document) if in_cbor else json.dumps(document).encode()
        except ResponseLostError:
            raise
        except Exception:  # noqa: BLE001 — logged, and reported to the client
            # Most likely a member of an unexpected type. The client gets an error, the log the traceback.
            _log.exception("%s failed", target)
            document = {"__type": "InternalFailure", "message": "The fake failed; see its log."}
            return 500, kind, cbor.encode(document) if in_cbor else json.dumps(document).encode()
        if isinstance(body, bytes):
            return 200, kind, cbor.encode(json.loads(body)) if in_cbor else body
        if isinstance(body.get("EventStream"), Subscription):
            return 200, CONTENT_TYPE, body["EventStream"]
        if not body and service in _EMPTY_ANSWERS:
            return 200, kind, b""
        return 200, kind, cbor.encode(body) if in_cbor else json.dumps(body, separators=(",", ":")).encode()

    def _call(
        self, service: str, operation: str, request: Request, values: dict[str, Any]
    ) -> dict[str, Any] | bytes:
        self._authorise(operation, request)
        if self._latency:
            time.sleep(self._latency)
        return self.aws.call(service, operation, values, sleep=time.sleep)

    def _authorise(self, operation: str, request: Request) -> None:
        header = request.headers.get("authorization")
        if not header:
            raise AwsError("MissingAuthenticationTokenException", "Missing Authentication Token", status=400)
        match = _CREDENTIAL.search(header)
        key = match.group(1) if match else None
        self.aws.authorise(operation, key, request.headers.get("x-amz-security-token"))

    @staticmethod
    def _body(request: Request) -> bytes:
        # botocore compresses large PutMetricData requests.
        encoding = request.headers.get("content-encoding", "")
        if encoding in {"", "identity"}:
            return request.body
        if encoding != "gzip":
            raise AwsError("SerializationException", f"Content-Encoding {encoding} is not understood.")
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(request.body)) as file:
                body = file.read(MAX_BODY + 1)
        except (OSError, EOFError, zlib.error):
            raise AwsError("SerializationException", "The body is not gzip.") from None
        if len(body) > MAX_BODY:
            message = f"The inflated body is larger than {MAX_BODY} bytes."
            raise AwsError("SerializationException", message, status=413)
        return body

    def _document(self, request: Request, *, in_cbor: bool) -> dict[str, Any]:
        body = self._body(request)
        form = "CBOR" if in_cbor else "JSON"
        try:
            values = {} if not body else cbor.decode(body) if in_cbor else json.loads(body)
        except ValueError:
            raise AwsError("SerializationException", f"The body is not {form}.") from None
        if not isinstance(values, dict):
            raise AwsError("SerializationException", f"The body is not a {form} object.")
        return values

    def _query(self, request: Request) -> tuple[int, str, bytes]:
        action = "Unknown"
        try:
            try:
                pairs = dict(parse_qsl(self._body(request).decode(), keep_blank_values=True))
            except ValueError:
                raise AwsError("MalformedInput", "The body is not a form in UTF-8.") from None
            action = pairs.pop("Action", "")
            pairs.pop("Version", None)
            service = next(
                (name for name in ("cloudwatch", "sts") if action in self.aws.operations(name)), None
            )
            if service is None:
                raise AwsError("InvalidAction", f"The fake has no action {action!r}.")
            response = self._call(service, action, request, parse_query(pairs))
        except AwsError as error:
            return error.status, "text/xml", render_error(error)
        assert isinstance(response, dict)
        return 200, "text/xml", render_response(action, response)

    # -- administration -----------------------------------------------------------------------------------------

    def _admin(self, request: Request) -> tuple[int, str, bytes]:
        if "origin" in request.headers:
            message = "admin requests of web pages (with an Origin header) are rejected"
            return 403, "application/json", json.dumps({"message": message}).encode()
        try:
            response = self._administer(request)
        except KeyError as error:
            message = f"the document needs the member {error.args[0]!r}"
            return 400, "application/json", json.dumps({"message": message}).encode()
        except (ValueError, TypeError, RecursionError) as error:
            return 400, "application/json", json.dumps({"message": str(error)}).encode()
        if response is None:
            message = f"no admin request {request.method} {request.path}"
            return 404, "application/json", json.dumps({"message": message}).encode()
        return 200, "application/json", json.dumps(response).encode()

    def _administer(self, request: Request) -> Any:
        aws = self.aws
        what = (request.method, request.path.removeprefix("/_fake/"))
        if what == ("GET", "health"):
            return {"status": "ok"}
        if what == ("GET", "stats"):
            return aws.stats()
        if what == ("GET", "faults"):
            return aws.faults.active()
        if what == ("GET", "metrics"):
            return aws.cloudwatch.metric_data()
        if what == ("POST", "reset"):
            aws.reset()
            return {}
        if what == ("DELETE", "faults"):
            aws.faults.clear()
            return {}
        if request.method == "DELETE" and what[1].startswith("faults/"):
            return {"removed": aws.faults.remove(int(what[1].removeprefix("faults/")))}
        if what == ("POST", "faults"):
            values = json.loads(request.body)
            faults = [Fault.from_dict(value) for value in (values if isinstance(values, list) else [values])]
            return {"ids": [aws.faults.add(fault) for fault in faults]}
        if what == ("POST", "credentials"):
            return aws.credentials.issue(float(json.loads(request.body)["seconds"]))
        if what == ("POST", "streams"):
            values = json.loads(request.body)
            if "trim" in values:
                aws.table_streams.trim(values["trim"])
            else:
                aws.table_streams.roll(values["roll"], split=bool(values.get("split")))
            return {}
        if what == ("POST", "date"):
            offset = json.loads(request.body)["offset"]
            aws.date_offset = None if offset is None else float(offset)
            return {}
        if what == ("POST", "clock"):
            if not isinstance(aws.clock, VirtualClock):
                raise ValueError("the account runs on the machine's clock, which cannot be advanced")
            aws.clock.advance(float(json.loads(request.body)["advance"]))
            return {"time": aws.clock.time()}
        return None
