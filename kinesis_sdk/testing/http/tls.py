"""TLS of the fake: a certificate authority that lives as long as the server, and TLS over a blocking socket.

trustme, from the extra ``fake``, makes the certificate. The authority is new at each start and its key is never written to
a file, so trusting it cannot harm a developer's machine later.
"""

from __future__ import annotations

import logging
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kinesis_sdk.common.extras import install_hint

_log = logging.getLogger(__name__)

_LOCAL = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 — compared, not listened on
_READ = 1 << 18
_Result = TypeVar("_Result")


class Certificate:
    """The certificate of a server, and the authority that clients must trust.

    Args:
        names: Host names and IP addresses by which clients reach the server, in addition to the names of the loopback.
        ca_file: Path for the authority's certificate (PEM); None chooses a temporary file, which `close` removes.
        protocols: Protocols to offer to clients (ALPN), the preferred protocol first.

    Attributes:
        ca_file: Path of the authority's certificate, for ``AWS_CA_BUNDLE`` and ``boto3.client(verify=…)``.
    """

    def __init__(
        self, names: Sequence[str] = (), *, ca_file: str | Path | None = None, protocols: Sequence[str] = ()
    ) -> None:
        try:
            import trustme
        except ModuleNotFoundError as error:
            if error.name != "trustme":
                raise
            raise ModuleNotFoundError(
                install_hint("TLS of the fake AWS server", "trustme", "fake"), name="trustme"
            ) from error
        authority = trustme.CA(organization_name="kinesis_sdk fake AWS")
        known = dict.fromkeys((*_LOCAL, *(name for name in names if name not in _EVERYWHERE)))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*known).configure_cert(self._context)
        if protocols:
            self._context.set_alpn_protocols(list(protocols))
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if ca_file is None:
            self._folder = tempfile.TemporaryDirectory(prefix="fake-aws-")
            ca_file = Path(self._folder.name) / "ca.pem"
        self.ca_file: str = str(Path(ca_file).absolute())
        Path(self.ca_file).write_bytes(authority.cert_pem.bytes())

    def accept(self, sock: socket.socket) -> TlsChannel:
        """Perform the server's handshake on a connection.

        Raises OSError if the client does not speak TLS, does not trust the certificate, or closes the connection.
        """
        channel = TlsChannel(sock, self._context)
        channel.handshake()
        return channel

    def close(self) -> None:
        """Remove the temporary file."""
        if self._folder is not None:
            self._folder.cleanup()


class TlsChannel:
    """The server's side of TLS over a blocking socket, for one reading thread and any number of writing threads.

    `ssl.SSLSocket` does not work here, because a thread in `recv` and a thread in `sendall` would either use the same OpenSSL object at
    the same time or wait for each other. So the TLS object works on memory under a lock, and a reader waits for the socket without holding
    the lock.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._lock = threading.Lock()

    def handshake(self) -> None:
        """Agree with the client on keys and protocol; raise OSError if that fails."""
        self._advance(self._tls.do_handshake)

    def recv(self, size: int, /) -> bytes:
        """Wait for bytes; empty if the client has closed the connection."""
        return self._advance(lambda: self._tls.read(size)) or b""

    def recv_into(self, view: memoryview, /) -> int:
        """Wait for bytes, write them to the view, and return their number; 0 if the client has closed the connection."""
        data = self.recv(len(view))
        view[: len(data)] = data
        return len(data)

    def sendall(self, data: bytes, /) -> None:
        """Send all bytes."""
        with self._lock:
            self._tls.write(data)
            self._flush()

    def fileno(self) -> int:
        """Return the socket's file descriptor, for `select`."""
        return self._sock.fileno()

    def close(self) -> None:
        """Notify the client that no more data follows. The socket remains open."""
        with self._lock:
            try:
                self._tls.unwrap()
            except ssl.SSLError as error:
                # The client has not announced its end yet, or the handshake has failed.
                _log.debug("the end of a TLS connection: %s", error)
            self._flush()

    def _advance(self, step: Callable[[], _Result]) -> _Result | None:
        while True:
            with self._lock:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    pass
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return None
                finally:
                    self._flush()
            data = self._sock.recv(_READ)
            with self._lock:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._sock.sendall(data)
