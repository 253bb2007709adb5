"""The fake account over HTTP, for any AWS client in any process.

One thread for each connection on blocking sockets: of the servers available in Python, this costs the least CPU per request.
HTTP/1.1 with keep-alive; JSON by ``X-Amz-Target`` for Kinesis, DynamoDB and CloudWatch, the query protocol for
CloudWatch and STS; for Kinesis also CBOR, which the SDK for Java uses, except for the events of SubscribeToShard.
Requests are not verified beyond access key and session token.

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
| ``POST /_fake/reset`` | forgets everything |

An admin request with an ``Origin`` header is rejected: only browsers send it, and a web page in a developer's browser must
not be able to reset the fake. Bodies are limited to 64 MiB, before and after decompression.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import select
import socket
import threading
import time
import uuid
import zlib
from email.utils import formatdate
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from kinesis_sdk.testing.aws import FakeAws
from kinesis_sdk.testing.clock import VirtualClock
from kinesis_sdk.testing.errors import AwsError, ResponseLostError
from kinesis_sdk.testing.faults import Fault
from kinesis_sdk.testing.http import cbor
from kinesis_sdk.testing.http.eventstream import CONTENT_TYPE, encode_event, encode_exception
from kinesis_sdk.testing.http.query import parse_query, render_error, render_response
from kinesis_sdk.testing.kinesis.fanout import Subscription

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger(__name__)

_MAX_HEADER = 64 << 10
_MAX_BODY = 64 << 20
_MAX_LENGTH_DIGITS = 18
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Payload Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")
_EMPTY_ANSWERS = frozenset({"kinesis"})


# Seconds after which a subscription without events checks its client and the (perhaps virtual) clock.
_PUSH_WAIT = 0.2
_LAST_CHUNK = b"0\r\n\r\n"


def _chunk(message: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(message), message)


class _Request:
    __slots__ = ("body", "headers", "method", "path")

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method: str = method
        self.path: str = path
        self.headers: dict[str, str] = headers
        self.body: bytes = body


class _Rejected(Exception):  # noqa: N818 — a response, not an error of the program
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _Connection:
    """One client connection: reads requests and writes responses until either side closes it."""

    def __init__(self, server: FakeAwsServer, sock: socket.socket) -> None:
        self._server = server
        self._sock = sock
        self._buffer = bytearray()

    def run(self) -> None:
        sock = self._sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                try:
                    request = self._read()
                    if request is None:
                        return
                    status, kind, body = self._server.respond(request)
                except ResponseLostError:
                    return
                except _Rejected as rejected:
                    self._reject(rejected.status, rejected.message)
                    return
                if isinstance(body, Subscription):
                    self._push(body)
                    return
                keep = request.headers.get("connection", "").lower() != "close"
                self._write(status, kind, body, keep=keep)
                if not keep:
                    return
        except (ConnectionError, ResponseLostError):
            # The client has closed the connection, or a fault cuts a subscription.
            return
        finally:
            self._server.forget(sock)

    def reject_connection(self) -> None:
        """Respond that there are too many connections, and close this one."""
        try:
            self._reject(503, "the fake AWS server has too many connections")
        except ConnectionError as error:
            _log.debug("a rejected client closed its connection: %s", error)
        finally:
            self._server.forget(self._sock)

    def _reject(self, status: int, message: str) -> None:
        self._write(status, "application/json", json.dumps({"message": message}).encode(), keep=False)

    def _more(self) -> bool:
        data = self._sock.recv(1 << 18)
        self._buffer += data
        return bool(data)

    def _read(self) -> _Request | None:
        buffer = self._buffer
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            if len(buffer) > _MAX_HEADER:
                raise _Rejected(400, "the header is too large")
            if not self._more():
                return None
        lines = buffer[:end].decode("latin-1").split("\r\n")
        try:
            method, path, _ = lines[0].split(" ")
        except ValueError:
            raise _Rejected(400, "the request line is not HTTP/1.1") from None
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if "transfer-encoding" in headers:
            raise _Rejected(411, "send a Content-Length; chunked requests are not understood")
        length_text = headers.get("content-length", "0")
        if not length_text.isdecimal():
            raise _Rejected(400, "Content-Length is not a number")
        # Python does not convert thousands of digits.
        length = int(length_text) if len(length_text) <= _MAX_LENGTH_DIGITS else _MAX_BODY + 1
        if length > _MAX_BODY:
            raise _Rejected(413, f"the body is larger than {_MAX_BODY} bytes")
        if headers.get("expect", "").lower() == "100-continue":
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        start = end + 4
        if len(buffer) - start < length:
            # Read the rest into one block; a growing buffer would copy large bodies repeatedly.
            block = bytearray(length)
            have = len(buffer) - start
            block[:have] = buffer[start:]
            view = memoryview(block)
            while have < length:
                count = self._sock.recv_into(view[have:])
                if count == 0:
                    return None
                have += count
            buffer.clear()
            return _Request(method, path, headers, bytes(block))
        body = bytes(buffer[start : start + length])
        del buffer[: start + length]
        return _Request(method, path, headers, body)

    def _push(self, subscription: Subscription) -> None:
        """Send events until the subscription ends or the client closes the connection."""
        head = (
            "HTTP/1.1 200 OK\r\n"
            f"x-amzn-RequestId: {uuid.uuid4()}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\n"
            "Transfer-Encoding: chunked\r\n"
            f"Date: {self._server.date()}\r\n"
            "Connection: close\r\n\r\n"
        )
        try:
            self._sock.sendall(head.encode() + _chunk(encode_event("initial-response", b"{}")))
            while not subscription.is_over:
                payload = subscription.take(_PUSH_WAIT)
                if payload is not None:
                    self._sock.sendall(_chunk(encode_event("SubscribeToShardEvent", payload)))
                elif self._has_gone():
                    return
            self._sock.sendall(_LAST_CHUNK)
        except AwsError as error:
            self._sock.sendall(_chunk(encode_exception(error)) + _LAST_CHUNK)
        finally:
            subscription.close()

    def _has_gone(self) -> bool:
        """Return whether the client has closed the connection. It sends nothing else during a subscription."""
        readable, _, _ = select.select([self._sock], [], [], 0)
        return bool(readable) and not self._sock.recv(1 << 12)

    def _write(self, status: int, kind: str, body: bytes, *, keep: bool) -> None:
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\n"
            f"x-amzn-RequestId: {uuid.uuid4()}\r\n"
            f"Content-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"Date: {self._server.date()}\r\n"
            f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        ).encode()
        if len(body) < 1 << 14:
            self._sock.sendall(head + body)
        else:
            self._sock.sendall(head)
            self._sock.sendall(body)


class FakeAwsServer:
    """Serves a fake account over HTTP. A context manager.

    Args:
        aws: The account; code in this process may use it at the same time.
        host: Address to listen on. Requests are hardly authenticated, so keep it local.
        port: Port; 0 lets the system choose.
        latency: Seconds added to every AWS call, to simulate distance.
        max_connections: Maximum simultaneous connections, each with a thread; further ones get a 503 and are closed.
    """

    def __init__(
        self,
        aws: FakeAws,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        latency: float = 0.0,
        max_connections: int = 1_024,
    ) -> None:
        self.aws = aws
        self._max_connections = max_connections
        self._address = (host, port)
        self._latency = latency
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
            OSError: If the address is in use or does not belong to this machine.
        """
        if self._listener is not None:
            raise RuntimeError("the server is already running")
        self._listener = socket.create_server(self._address, backlog=512)
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
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

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
            connection = _Connection(self, sock)
            if is_full:
                _log.warning("rejected a connection: %d are open, the maximum", self._max_connections)
                connection.reject_connection()
                continue
            threading.Thread(target=connection.run, name="fake-aws", daemon=True).start()

    def forget(self, sock: socket.socket) -> None:
        """Close a finished connection."""
        with self._lock:
            self._connections.discard(sock)
        sock.close()

    def date(self) -> str:
        """Return the ``Date`` header. It is the system time, because clients correct their signing clocks by it."""
        second = int(time.time())
        if self._date[0] != second:
            self._date = (second, formatdate(second, usegmt=True))
        return self._date[1]

    # -- requests -----------------------------------------------------------------------------------------------

    def respond(self, request: _Request) -> tuple[int, str, bytes | Subscription]:
        """Return status, content type and body for a request; a `Subscription` instead of a body is pushed.

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
        kind = "application/x-amz-json-1.1" if service in {"kinesis", None} else "application/x-amz-json-1.0"
        in_cbor = service == "kinesis" and request.headers.get("content-type") == cbor.CONTENT_TYPE
        if in_cbor:
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
            # Most likely a member of an unexpected type. The client gets a response, and the log the reason.
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
        self, service: str, operation: str, request: _Request, values: dict[str, Any]
    ) -> dict[str, Any] | bytes:
        self._authorise(operation, request)
        if self._latency:
            time.sleep(self._latency)
        return self.aws.call(service, operation, values, sleep=time.sleep)

    def _authorise(self, operation: str, request: _Request) -> None:
        header = request.headers.get("authorization")
        if not header:
            raise AwsError("MissingAuthenticationTokenException", "Missing Authentication Token", status=400)
        match = _CREDENTIAL.search(header)
        key = match.group(1) if match else None
        self.aws.authorise(operation, key, request.headers.get("x-amz-security-token"))

    @staticmethod
    def _body(request: _Request) -> bytes:
        # botocore compresses large PutMetricData requests.
        encoding = request.headers.get("content-encoding", "")
        if encoding in {"", "identity"}:
            return request.body
        if encoding != "gzip":
            raise AwsError("SerializationException", f"Content-Encoding {encoding} is not understood.")
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(request.body)) as file:
                body = file.read(_MAX_BODY + 1)
        except (OSError, EOFError, zlib.error):
            raise AwsError("SerializationException", "The body is not gzip.") from None
        if len(body) > _MAX_BODY:
            message = f"The inflated body is larger than {_MAX_BODY} bytes."
            raise AwsError("SerializationException", message, status=413)
        return body

    def _document(self, request: _Request, *, in_cbor: bool) -> dict[str, Any]:
        body = self._body(request)
        form = "CBOR" if in_cbor else "JSON"
        try:
            values = {} if not body else cbor.decode(body) if in_cbor else json.loads(body)
        except ValueError:
            raise AwsError("SerializationException", f"The body is not {form}.") from None
        if not isinstance(values, dict):
            raise AwsError("SerializationException", f"The body is not a {form} object.")
        return values

    def _query(self, request: _Request) -> tuple[int, str, bytes]:
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

    def _admin(self, request: _Request) -> tuple[int, str, bytes]:
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

    def _administer(self, request: _Request) -> Any:
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
        if what == ("POST", "clock"):
            if not isinstance(aws.clock, VirtualClock):
                raise ValueError("the account runs on the machine's clock, which cannot be advanced")
            aws.clock.advance(float(json.loads(request.body)["advance"]))
            return {"time": aws.clock.time()}
        return None
