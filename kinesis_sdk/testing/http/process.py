"""The fake account in a separate process, so that it does not share an interpreter with the code under test."""

from __future__ import annotations

import contextlib
import json
import queue
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from typing import IO, Any

READY_PREFIX = "fake AWS listening on "
CA_PREFIX = "certificate to trust: "


class ServerProcess:
    """A running server process.

    Attributes:
        endpoint_url: ``endpoint_url`` for boto3.
        pid: Process id.
        ca_file: With ``--tls``, path of the certificate that clients have to trust; otherwise None.
    """

    def __init__(self, endpoint_url: str, pid: int, ca_file: str | None = None) -> None:
        self.endpoint_url = endpoint_url
        self.pid = pid
        self.ca_file = ca_file

    def admin(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        """Send a request to the admin endpoint, for example ``admin("faults", {"kind": "throttle"})``.

        Args:
            path: Path after ``/_fake/``.
            body: JSON value to send; with None the request is a GET.
            method: HTTP method; by default GET without a body and POST with one.

        Returns:
            The JSON value of the response.

        Raises:
            urllib.error.URLError: If the server rejects the request or cannot be reached.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.endpoint_url}/_fake/{path}", data=data, method=method)  # noqa: S310 — our own URL
        context = None if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)
        with urllib.request.urlopen(request, timeout=60, context=context) as response:  # noqa: S310
            return json.load(response)


def _pump(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _await_line(
    process: subprocess.Popen[str], lines: queue.Queue[str | None], timeout: float, prefix: str
) -> str:
    try:
        line = lines.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"the fake AWS process printed nothing within {timeout:g} seconds") from None
    if line is None:
        raise RuntimeError(f"the fake AWS process ended with status {process.wait()}; see its error output")
    if not line.startswith(prefix):
        raise RuntimeError(f"the fake AWS process wrote an unexpected line: {line!r}")
    return line.removeprefix(prefix).strip()


@contextlib.contextmanager
def start_server_process(
    *arguments: str, timeout: float = 120.0, env: dict[str, str] | None = None, own_session: bool = False
) -> Iterator[ServerProcess]:
    """Run ``python -m kinesis_sdk.testing`` for the duration of a ``with`` statement.

    Args:
        arguments: Further command-line arguments, for example ``"--create-stream", "orders:4"``.
        timeout: Maximum seconds until the process listens, and until it ends.
        env: Environment of the process; by default the environment of this process.
        own_session: Whether the process runs in its own session, so that Ctrl-C in the terminal does not end it.

    Raises:
        TimeoutError: If the process does not listen in time.
        RuntimeError: If the process ends before it listens; its error output appears on the error output of this process.
    """
    command: Sequence[str] = (
        sys.executable, "-m", "kinesis_sdk.testing", "--port", "0", "--exit-with-parent", *arguments
    )  # fmt: skip
    process = subprocess.Popen(  # noqa: S603 — our own interpreter and module
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=own_session,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_pump, args=(process.stdout, lines), name="fake-aws-output", daemon=True)
    reader.start()
    try:
        url = _await_line(process, lines, timeout, READY_PREFIX)
        ca_file = _await_line(process, lines, timeout, CA_PREFIX) if url.startswith("https:") else None
        yield ServerProcess(url, process.pid, ca_file)
    finally:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()
        reader.join()
        process.stdout.close()
