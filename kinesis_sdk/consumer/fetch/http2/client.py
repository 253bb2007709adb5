"""SubscribeToShard over HTTP/2: many subscriptions on few connections and few threads."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.transport import sending
from kinesis_sdk.consumer.fetch.events import EventReader, start_thread
from kinesis_sdk.consumer.fetch.http2.connection import Connection, Request
from kinesis_sdk.consumer.fetch.http2.loop import Loop
from kinesis_sdk.consumer.fetch.http2.protocol import BrokenConnection
from kinesis_sdk.consumer.fetch.http2.pushed import PushedResponse

_LOGGER = FieldLogger(logging.getLogger(__name__))

THREADS = 4
"""Maximum number of threads that read events."""

_NO_TIMEOUT = 60.0
"""Seconds used instead of a timeout of None, which means forever in a boto3 client. A subscription sends something every 5 s."""

_LEFT_OUT = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"})
"""Headers that HTTP/2 does not use."""

_MAX_PREFACE = 64 * 1024
"""Maximum bytes that the service may send before its settings, which HTTP/2 requires to come first."""


class Http2Client:
    """A boto3 client whose SubscribeToShard calls use HTTP/2. Thread-safe; all other attributes are the client's.

    boto3 makes each call, with its own parameters, endpoint, signature, retries, errors and event stream. Only the request and the
    response travel over a connection of this object. boto3 sends the request itself, with HTTP/1.1 and a connection and a thread for each
    subscription, if the endpoint does not offer HTTP/2 (by ALPN, therefore only over TLS), behind a proxy, and for a modified client.

    Args:
        client: boto3 client, wrapped in a `kinesis_sdk.common.transport.Transport`.
        clock: Clock of the deadlines.
    """

    def __init__(self, client: Any, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._loops = [Loop(f"kinesis-fanout-{index}", clock) for index in range(THREADS)]
        # `_opening` is held while a connection is opened, so that a thousand shards do not open a connection each.
        # `_lock` is a leaf.
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._opened = 0
        self._without: set[str] = set()  # endpoints that do not offer HTTP/2

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the client."""
        return getattr(object.__getattribute__(self, "_client"), name)

    def subscribe_to_shard(self, **request: Any) -> Mapping[str, Any]:
        """SubscribeToShard, see the class. The ``EventStream`` of the response is read by a reader that `start` gets."""
        call = _Call(self)
        try:
            with sending(call.send):
                response: Mapping[str, Any] = self._client.subscribe_to_shard(**request)
        except BaseException:
            call.forget()
            raise
        if call.sent is None or "EventStream" not in response:
            call.forget()
            return response
        return {**response, "EventStream": _Events(response["EventStream"], *call.sent)}

    def start(self, reader: EventReader, shard_id: str) -> None:
        """Run a reader on the thread of its connection; on a thread of its own if it subscribed with HTTP/1.1.

        Raises:
            RuntimeError: If the system has no more threads.
        """
        if isinstance(reader.stream, _Events):
            reader.stream.start(reader)
        else:
            start_thread(reader, shard_id)

    def link(self, url: str) -> _Link | None:
        """Return a connection with room for one more stream, which is taken; None if HTTP/2 cannot be used.

        Raises:
            HTTPClientError: If the connection cannot be opened; this is botocore's error.
        """
        from botocore.exceptions import ConnectTimeoutError

        endpoint = urlsplit(url).netloc
        session = getattr(getattr(self._client, "_endpoint", None), "http_session", None)
        if not url.startswith("https:") or endpoint in self._without or not _is_usable(session, url):
            return None
        link = self._reserve(endpoint)
        if link is not None:
            return link
        # Another thread may hold the lock while it connects to a silent service, so the wait for the lock has a
        # timeout, too.
        if not self._opening.acquire(timeout=_seconds(self._client.meta.config.connect_timeout)):
            error = TimeoutError("another connection is still being opened")
            raise ConnectTimeoutError(endpoint_url=url, error=error)
        try:
            return self._reserve(endpoint) or self._open(endpoint, url, session)
        finally:
            self._opening.release()

    def _open(self, endpoint: str, url: str, session: Any) -> _Link | None:
        if endpoint in self._without:
            return None
        config = self._client.meta.config
        channel = _connect(url, session, config)
        if channel is None:
            self._without.add(endpoint)
            _LOGGER.info(
                "%s does not offer HTTP/2: each subscription has a connection and a thread", endpoint
            )
            return None
        link = _Link(endpoint, channel, self._loops[self._opened % THREADS], self._clock, self._release)
        link.begin(url, channel, _seconds(config.read_timeout))
        with self._lock:
            self._opened += 1
            self._links.append(link)
            link.streams += 1
        return link

    def _reserve(self, endpoint: str) -> _Link | None:
        with self._lock:
            self._links = [link for link in self._links if link.connection.is_open]
            for link in self._links:
                connection = link.connection
                if link.endpoint == endpoint and connection.accepts and link.streams < connection.capacity:
                    link.streams += 1
                    return link
        return None

    def _release(self, link: _Link) -> None:
        with self._lock:
            link.streams -= 1


class _Link:
    """A connection and its loop, for other threads. `streams` counts streams that are open or will be opened."""

    def __init__(self, endpoint: str, channel: socket.socket, loop: Loop, clock: Clock, release: Any) -> None:
        self.endpoint: str = endpoint
        self.streams: int = 0
        self.connection: Connection = Connection(channel, clock.monotonic(), lambda: release(self))
        self._loop = loop
        self._clock = clock

    def begin(self, url: str, channel: socket.socket, timeout: float) -> None:
        """Exchange settings within ``timeout`` seconds, then pass the connection to the loop."""
        from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

        connection, now, received = self.connection, self._clock.monotonic(), 0
        deadline = now + timeout
        try:
            connection.flush()
            while not connection.is_ready:
                # Each read gets the rest of the time: a service that sends anything but its settings must not extend
                # the time.
                if (left := deadline - self._clock.monotonic()) <= 0:
                    raise TimeoutError("the service has not sent its settings")
                channel.settimeout(left)
                data = channel.recv(16_384)
                if not data:
                    raise BrokenConnection("the service has closed the connection")
                received += len(data)
                connection.receive(data, now)
                if received > _MAX_PREFACE and not connection.is_ready:
                    raise BrokenConnection(f"the service sent {received:,} bytes before its settings")
        except TimeoutError as error:
            connection.close(error)
            raise ReadTimeoutError(endpoint_url=url, error=error) from error
        except Exception as error:
            connection.close(error)
            raise ConnectionClosedError(endpoint_url=url, error=error) from error
        channel.setblocking(False)
        connection.flush()
        connection.has_more = True  # TLS may hold bytes that no selector sees
        self._post(lambda _: self._loop.serve(connection))

    def send(self, request: Request, response: PushedResponse) -> None:
        """Send a request."""
        self._post(lambda now: self.connection.open(request, response, now))

    def start(self, response: PushedResponse, reader: EventReader) -> None:
        """Let a reader read a response."""
        reader.on_resume = lambda: self._post(lambda now: self.connection.resume(response, now))
        self._post(lambda now: self.connection.attach(response, reader, now))

    def cancel(self, response: PushedResponse) -> None:
        """Forget a response."""
        if response.has_timed_out:
            # The connection may be dead, see `Connection.expire`. Set now, not on the loop: boto3 repeats the call at
            # once.
            self.connection.accepts = False
        with suppress(RuntimeError):  # the connection has no thread, and is closed
            self._post(lambda now: self.connection.cancel(response, now))

    def _post(self, work: Any) -> None:
        try:
            self._loop.post(self.connection, work)
        except RuntimeError as error:  # no thread serves the connection, so this one may close it
            self.connection.close(error)
            raise


class _Events:
    """An ``EventStream`` of botocore whose pieces arrive over HTTP/2."""

    def __init__(self, stream: Any, link: _Link, response: PushedResponse) -> None:
        self._stream = stream
        self._link = link
        self._response = response

    def __iter__(self) -> Iterator[Any]:
        # Not `iter` of botocore's stream, which skips events that it parses to nothing, such as events of an unknown
        # type, and waits for the next event. The loop would wait, and all streams of its connections.
        return map(self._stream._parse_event, self._stream._event_generator)

    def start(self, reader: EventReader) -> None:
        self._link.start(self._response, reader)

    def close(self) -> None:
        self._stream.close()


class _Call:
    """One call of boto3. `sent` is the connection and the response of its last attempt; None if boto3 sent the request itself."""

    def __init__(self, client: Http2Client) -> None:
        self.sent: tuple[_Link, PushedResponse] | None = None
        self._client = client

    def send(self, prepared: Any) -> Any:
        """Send a request of boto3 and wait for the head of the response; return None to let boto3 send it."""
        from botocore.awsrequest import AWSResponse
        from botocore.compat import HTTPHeaders
        from botocore.exceptions import HTTPClientError

        self.forget()
        try:
            link = self._client.link(prepared.url)
            if link is None:
                return None
            response = PushedResponse(
                prepared.url, _seconds(self._client.meta.config.read_timeout), link.cancel
            )
            link.send(_request(prepared), response)
        except RuntimeError as error:  # the system has no more threads
            raise HTTPClientError(error=error) from error
        self.sent = link, response
        status, headers = response.head()
        return AWSResponse(prepared.url, status, HTTPHeaders.from_dict(headers), response)

    def forget(self) -> None:
        """Cancel the last attempt."""
        if self.sent is not None:
            self.sent[1].close()
            self.sent = None


def _seconds(timeout: float | None) -> float:
    return _NO_TIMEOUT if timeout is None else timeout


def _request(prepared: Any) -> Request:
    parts = urlsplit(prepared.url)
    headers = {
        name.lower(): value.decode("latin-1") if isinstance(value, bytes) else str(value)
        for name, value in prepared.headers.items()
    }
    body = prepared.body or b""
    path = parts.path or "/"
    return Request(
        headers.get("host") or _signed_host(parts),
        f"{path}?{parts.query}" if parts.query else path,
        {name: value for name, value in headers.items() if name not in _LEFT_OUT},
        body.encode() if isinstance(body, str) else bytes(body),
    )


def _signed_host(parts: SplitResult) -> str:
    """Return the host that botocore signs: in lower case, without the default port and without a user."""
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return host if parts.port in {None, 443} else f"{host}:{parts.port}"


_SESSION = ("_verify", "_proxy_config", "_socket_options", "_cert_file", "_key_file", "_get_ssl_context")


def _is_usable(session: Any, url: str) -> bool:
    """Return whether a session of botocore has the attributes that `_connect` reads, and no proxy for the URL."""
    return all(hasattr(session, name) for name in _SESSION) and not session._proxy_config.proxy_url_for(url)


def _connect(url: str, session: Any, config: Any) -> ssl.SSLSocket | None:
    """Open a connection with the certificates, options and timeouts of a boto3 client; None if HTTP/2 is not offered."""
    from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, SSLError
    from botocore.httpsession import get_cert_path

    parts = urlsplit(url)
    context = session._get_ssl_context()
    if session._verify:
        context.check_hostname = True
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(get_cert_path(session._verify))
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if session._cert_file:
        context.load_cert_chain(session._cert_file, session._key_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        address = (parts.hostname, parts.port or 443)
        plain = socket.create_connection(address, timeout=_seconds(config.connect_timeout))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in session._socket_options:
                plain.setsockopt(*option)
            channel: ssl.SSLSocket = context.wrap_socket(plain, server_hostname=parts.hostname)
        except BaseException:
            plain.close()
            raise
    except TimeoutError as error:
        raise ConnectTimeoutError(endpoint_url=url, error=error) from error
    except ssl.SSLError as error:
        raise SSLError(endpoint_url=url, error=error) from error
    except OSError as error:
        raise EndpointConnectionError(endpoint_url=url, error=error) from error
    if channel.selected_alpn_protocol() != "h2":
        channel.close()
        return None
    channel.settimeout(_seconds(config.read_timeout))
    return channel
