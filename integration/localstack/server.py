"""One LocalStack for a test session: a running one, or our own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from localstack_client.config import get_service_endpoint

from integration.guarded import free_port
from integration.localstack.install import KINESIS_LOCAL, install

_POINTERS = ("AWS_ENDPOINT_URL", "LOCALSTACK_HOST", "EDGE_PORT")
_START_SECONDS = 300.0
_STOP_SECONDS = 20.0


def running_endpoint() -> str | None:
    """Return the endpoint of a LocalStack that the environment names, by localstack-client's rules; else None.

    Older releases of localstack-client combined EDGE_PORT with a LOCALSTACK_HOST without a port. The newer release that we
    use would silently take the default port.
    """
    if not any(os.environ.get(name, "").strip() for name in _POINTERS):
        return None
    host = os.environ.get("LOCALSTACK_HOST", "").strip() or "localhost"
    port = os.environ.get("EDGE_PORT", "").strip()
    if port and ":" not in host:
        host = f"{host}:{port}"
    return str(get_service_endpoint("kinesis", host))


def is_healthy(endpoint: str) -> bool:
    """Return whether a LocalStack responds at an endpoint."""
    try:
        with urllib.request.urlopen(f"{endpoint}/_localstack/health", timeout=5) as answer:
            return "services" in json.load(answer)
    except (OSError, ValueError):
        return False


def _settings(root: Path, port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
    return {
        **kept,
        # In what looks like a container it would write to the system's folders.
        "OVERRIDE_IN_DOCKER": "0",
        "FILESYSTEM_ROOT": str(root / "fs"),
        "XDG_CACHE_HOME": str(root / "cache"),
        "REAL_JAVA": shutil.which("java") or "java",
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "SERVICES": "kinesis,dynamodb,cloudwatch,sts",
        "KINESIS_MOCK_VERSION": KINESIS_LOCAL,
        "KINESIS_LATENCY": "50",
        "KINESIS_SHARD_LIMIT": "1000",
        "KINESIS_PERSISTENCE": "0",
        "DYNAMODB_IN_MEMORY": "1",
        # It must not access the internet.
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DISABLE_EVENTS": "1",
        "DNS_ADDRESS": "0",
        "LS_LOG": "warn",
        "PATH": f"{root / 'venv' / 'bin'}:{os.environ.get('PATH', '')}",
    }


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:]) or "(it wrote nothing)"


def _await_health(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not is_healthy(endpoint):
        if process.poll() is not None:
            raise RuntimeError(
                f"LocalStack ended with status {process.returncode}; its log ends:\n{_tail(log)}"
            )
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"LocalStack is not healthy after {_START_SECONDS:g} seconds; its log ends:\n{_tail(log)}"
            )
        time.sleep(0.1)


def _parents() -> dict[int, int]:
    """Return the parent of every living process."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        ).stdout.split()
        numbers = [int(number) for number in listed]
        return dict(zip(numbers[::2], numbers[1::2], strict=True))
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # It has just ended.
                # The second field is a name in parentheses with any content; state and parent follow it.
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(entry.name)] = int(parent)
    return parents


def family(pid: int) -> set[int]:
    """Return a process's descendants. Node and Java start their own sessions, so they are not in its group."""
    parents = _parents()
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def stop(process: subprocess.Popen[bytes], seconds: float = _STOP_SECONDS) -> bool:
    """End a process with SIGTERM, and make sure that its children have ended too.

    Returns whether all of them ended by themselves; the rest is killed. Raises RuntimeError if a killed process does not end.
    """
    children = family(process.pid)
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while process.poll() is None or children & _parents().keys():
        if time.monotonic() > deadline:
            for pid in children & _parents().keys():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
            _await_end(children)
            return False
        time.sleep(0.05)
    return True


def _await_end(killed: set[int]) -> None:
    """Wait for killed processes: the kernel carries SIGKILL out later, and ports and files are free only after that."""
    deadline = time.monotonic() + _STOP_SECONDS
    while killed & _parents().keys():
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {sorted(killed & _parents().keys())} were killed and do not end")
        time.sleep(0.01)


@contextlib.contextmanager
def start(root: Path, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run an installed LocalStack for the length of a with statement; yield endpoint and process.

    `root` is the result of `install`, `log` a file for the output. Raises RuntimeError if it does not become healthy, or
    does not end on request.
    """
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [root / "venv" / "bin" / "python", "-m", "localstack.runtime.main"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_settings(root, port),
            # Ctrl-C in the terminal must reach only the test run, which then ends it in order.
            start_new_session=True,
        )
    try:
        _await_health(process, endpoint, log)
        yield endpoint, process
    finally:
        clean = stop(process)
    if not clean:
        raise RuntimeError(f"LocalStack had to be killed; its log ends:\n{_tail(log)}")


@contextlib.contextmanager
def use(log: Path) -> Iterator[str]:
    """Return the endpoint of the LocalStack that the environment names; without one, install and start it.

    Raises:
        CannotInstallError: If it cannot be installed on this machine.
        RuntimeError: If the one that the environment names does not respond, or ours does not start.
    """
    endpoint = running_endpoint()
    if endpoint is not None:
        if not is_healthy(endpoint):
            raise RuntimeError(
                f"the environment names {endpoint} ({', '.join(_POINTERS)}), but no LocalStack answers there"
            )
        yield endpoint
        return
    with start(install(), log) as (started, _):
        yield started
