"""TLS in front of a plain TCP server, for clients that speak nothing else.

    python benchmarks/tls_front.py PORT CERTIFICATE KEY

Prints its own port on 127.0.0.1, then passes bytes on until standard input ends. It is a process of its own, so that its
CPU time does not count as the client's.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 18):
            sink.sendall(part)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _serve(plain: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with (
        contextlib.suppress(OSError),
        plain,
        context.wrap_socket(plain, server_side=True) as client,
        socket.create_connection(("127.0.0.1", port)) as server,
    ):
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        _pump(client, server)
        back.join()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1 with the command ``openssl``; returns it and its key."""
    certificate, key = folder / "front.pem", folder / "front.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return certificate, key


@contextlib.contextmanager
def tls_front(port: int, certificate: Path, key: Path) -> Iterator[int]:
    """Run the front of a port for the length of a with statement; yields its own port."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(port), str(certificate), str(key)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def main() -> None:
    port, certificate, key = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)

    def end_with_parent() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    while True:
        plain, _ = listener.accept()
        threading.Thread(target=_serve, args=(plain, context, port), daemon=True).start()


if __name__ == "__main__":
    main()
