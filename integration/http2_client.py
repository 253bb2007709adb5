"""A client of HTTP/2 for tests: one connection with prior knowledge or ALPN, and what each of its streams has received."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)

from tests import HANG


@dataclass
class Answer:
    """What a stream has received."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    is_over: bool = False
    was_told_to_continue: bool = False
    error_code: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[":status"])


class Http2Client:
    """One connection to a server. It reads only while a method waits.

    With `ca_file`, the certificate to trust, the server must agree on HTTP/2 by ALPN.
    """

    def __init__(self, url: str, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        self.authority = parts.netloc
        self.sock: socket.socket = socket.create_connection((parts.hostname, parts.port), timeout=HANG)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ca_file is not None:
            context = ssl.create_default_context(cafile=ca_file)
            context.set_alpn_protocols(["h2"])
            tls = context.wrap_socket(self.sock, server_hostname=parts.hostname)
            assert tls.selected_alpn_protocol() == "h2"
            self.sock = tls
        self.protocol = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.answers: dict[int, Answer] = {}
        self.farewell: str | None = None
        self.protocol.initiate_connection()
        self.flush()

    def close(self) -> None:
        self.sock.close()

    def flush(self) -> None:
        self.sock.sendall(self.protocol.data_to_send())

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        """Send a request without waiting; return the number of its stream."""
        stream = self.protocol.get_next_available_stream_id()
        self.answers[stream] = Answer()
        pairs = [(name.lower().replace("_", "-"), value) for name, value in headers.items()]
        self.protocol.send_headers(
            stream,
            [
                (":method", method),
                (":scheme", "https"),
                (":authority", self.authority),
                (":path", path),
                *pairs,
            ],
            end_stream=not body,
        )
        start = 0
        while start < len(body):
            window = self.protocol.local_flow_control_window(stream)
            if window == 0:
                self.flush()
                self.read()
                continue
            size = min(window, self.protocol.max_outbound_frame_size, len(body) - start)
            self.protocol.send_data(stream, body[start : start + size], end_stream=start + size == len(body))
            start += size
        self.flush()
        return stream

    def read(self) -> None:
        """Wait for more bytes of any stream."""
        data = self.sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the server has closed the connection")
        for event in self.protocol.receive_data(data):
            if isinstance(event, InformationalResponseReceived):
                self.answers[event.stream_id].was_told_to_continue = True
            elif isinstance(event, ResponseReceived):
                self.answers[event.stream_id].headers = {
                    str(name): str(value) for name, value in event.headers
                }
            elif isinstance(event, DataReceived):
                self.answers[event.stream_id].body += event.data
                self.protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                self.answers[event.stream_id].is_over = True
            elif isinstance(event, StreamReset):
                self.answers[event.stream_id].error_code = int(event.error_code)
                self.answers[event.stream_id].is_over = True
            elif isinstance(event, ConnectionTerminated):
                self.farewell = (event.additional_data or b"").decode()
                return
        self.flush()

    def receive(self, stream: int) -> Answer:
        """Wait until a stream has ended."""
        while not self.answers[stream].is_over:
            self.read()
        return self.answers[stream]

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        return self.receive(self.send(method, path, body, **headers))

    def send_call(self, operation: str, body: bytes, content_type: str = "application/x-amz-json-1.1") -> int:
        """Send a Kinesis call."""
        return self.send(
            "POST",
            "/",
            body,
            X_Amz_Target=f"Kinesis_20131202.{operation}",
            Content_Type=content_type,
            Authorization="AWS4-HMAC-SHA256 Credential=x/",
        )
