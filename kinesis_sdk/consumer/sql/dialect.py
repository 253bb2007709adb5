"""SQL dialects: the differences between databases, in one object for leases, sinks and administration. See `Dialect`.

A new dialect is added here. URLs of a new dialect are accepted only once it passes the contracts of stores and sinks against a real server.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kinesis_sdk.common.errors import ConfigError, without_userinfo
from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer.sql.driver import import_sqlalchemy, state_of
from kinesis_sdk.consumer.sql.sessions import IDLE_TIMEOUT_SETTING, ShardSessions, own_limits

if TYPE_CHECKING:
    from sqlalchemy.engine import URL, Engine

_BUSY_TIMEOUT = 30.0
"""Seconds for which SQLite waits for another writer before it reports that the database is locked."""
_LOST_SECONDS = 30
"""Seconds of silence after which a connection counts as lost, if calls have no timeout of their own."""


class Dialect(Protocol):
    """A kind of database. Stateless, so one object per kind is enough.

    Attributes:
        name: SQLAlchemy's name of the dialect, with which its URLs begin.
        has_one_writer: Whether a transaction that has written blocks all other writers until it ends.
    """

    name: str
    has_one_writer: bool

    def check_url(self, field: str, database: str, url: URL) -> None:
        """Raise `ConfigError` if nothing can be opened at a URL; ``database`` is the URL as the user wrote it."""

    def file(self, url: URL) -> Path | None:
        """Return the database's file; None for a server, for memory, and for names that only the driver understands."""

    def options(self, url: URL, timeout: float | None) -> dict[str, Any]:
        """Return the options of ``create_engine`` for a URL.

        After ``timeout`` seconds, a statement or the wait for a connection fails; None sets no timeout for calls.
        """

    def prepare(self, engine: Engine) -> None:
        """Make an engine that this package created set up each of its connections."""

    def is_transient(self, error: BaseException) -> bool:
        """Return whether an exception of the driver, or SQLAlchemy's wrapper of it, is a transient failure."""

    def was_not_done(self, error: BaseException) -> bool:
        """Return whether an auto-committed statement certainly changed nothing, so that it can be repeated at once."""

    def refusal(self, error: BaseException) -> str | None:
        """Return the server's message if it rejected the user, password or database of a connection; otherwise None."""

    def hint(self, error: BaseException, *, of_handler: bool) -> str:
        """Return a hint to append to an error's text, or an empty text.

        ``of_handler`` is true if a statement of the user's handler failed.
        """

    def own_limits(self) -> Sequence[Any]:
        """Return expressions to select first in a transaction of this package alone; they limit how long it waits."""

    def shard_sessions(
        self, table: Any, idle_timeout: float | None, lock_timeout: float | None
    ) -> ShardSessions | None:
        """Return the object that ends sessions of stopped processes; None if the database cannot do that."""

    def turn(self, name: str) -> Any:
        """Return an expression that takes a lock until the end of the transaction, and is false if another transaction has the lock.

        None if the database has no such lock.
        """


class Sqlite:
    """SQLite, in a file."""

    name = "sqlite"
    has_one_writer = True

    def check_url(self, field: str, database: str, url: URL) -> None:
        """Check that the file can be opened."""
        # SQLite reports the same error for a wrong path and for transient causes such as too many open files.
        shown, file = without_userinfo(database), url.database
        if file in (None, "", ":memory:"):
            raise ConfigError(
                field, shown, "a database in a file: in memory, each thread would have a database of its own"
            )
        assert file is not None
        if file.startswith("file:"):
            return
        path = Path(file)
        where = printable(str(path.absolute()))
        if not path.parent.is_dir():
            raise ConfigError(field, shown, f"a file in a folder that exists, and {where} is not")
        if path.is_dir():
            raise ConfigError(field, shown, f"a file, and {where} is a folder")
        if not os.access(path if path.exists() else path.parent, os.R_OK | os.W_OK):
            raise ConfigError(field, shown, f"a file that may be read and written, and {where} is not")

    def file(self, url: URL) -> Path | None:
        """Return the file."""
        return None if url.database in (None, "", ":memory:") or "uri" in url.query else Path(url.database)

    def options(self, url: URL, timeout: float | None) -> dict[str, Any]:  # noqa: ARG002 - of the interface
        """Return the time to wait for another writer."""
        wait = _BUSY_TIMEOUT if timeout is None else timeout
        return {"connect_args": {"timeout": wait}, "pool_timeout": wait}

    def prepare(self, engine: Engine) -> None:
        """Keep a write-ahead log, so that readers and the one writer do not wait for each other."""
        import_sqlalchemy().event.listen(engine, "connect", _use_write_ahead_log)

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the error concerns the connection or the server, and its text does not name a permanent cause."""
        return _lost_or_busy(error) and not any(words in str(_cause(error)) for words in _PERMANENT_SQLITE)

    def was_not_done(self, error: BaseException) -> bool:  # noqa: ARG002 - of the interface
        """Return False, because SQLite has already waited for other writers."""
        return False

    def refusal(self, error: BaseException) -> str | None:  # noqa: ARG002 - of the interface
        """Return None, because a file has no users."""
        return None

    def hint(self, error: BaseException, *, of_handler: bool) -> str:  # noqa: ARG002 - of the interface
        """Return nothing."""
        return ""

    def own_limits(self) -> Sequence[Any]:
        """Return None, because a stopped writer blocks other writers until it ends."""
        return ()

    def shard_sessions(
        self, table: Any, idle_timeout: float | None, lock_timeout: float | None
    ) -> ShardSessions | None:  # the lock of a file ends with its process
        """Return None."""
        del table, idle_timeout, lock_timeout
        return None

    def turn(self, name: str) -> Any:  # noqa: ARG002 - of the interface
        """Return None."""
        return None


_PERMANENT_SQLITE = (
    "no such",
    "near ",
    "readonly",
    "has no column",
    "file is not a database",
    "not authorized",
)


def _use_write_ahead_log(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
    finally:
        cursor.close()


class Postgresql:
    """PostgreSQL, and servers that use its protocol."""

    name = "postgresql"
    has_one_writer = False

    def check_url(self, field: str, database: str, url: URL) -> None:
        """Accept every URL; the server decides."""

    def file(self, url: URL) -> Path | None:  # noqa: ARG002 - of the interface
        """Return None."""
        return None

    def options(self, url: URL, timeout: float | None) -> dict[str, Any]:
        """Return settings that prevent every call from waiting forever."""
        is_libpq = url.get_driver_name() in _LIBPQ_DRIVERS
        if timeout is None:
            options: dict[str, Any] = {"pool_pre_ping": True}
            if is_libpq:
                options["connect_args"] = _libpq_settings(url, _LOST_SECONDS, {})
            return options
        # No ping, which costs a round trip per call: workers repeat calls whose connection was lost.
        options = {"pool_timeout": timeout}
        if is_libpq:
            # The server ends a statement that waits for a lock.
            millis = max(1, round(timeout * 1000))
            options["connect_args"] = _libpq_settings(
                url, timeout, {"options": f"-c statement_timeout={millis}"}
            )
        return options

    def prepare(self, engine: Engine) -> None:
        """Set nothing."""

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the SQLSTATE (or the kind of error, if there is none) shows a transient failure."""
        state = state_of(error)
        if state is None:
            return _lost_or_busy(error)
        # 08 connection, 25 a transaction that the server ended, 40 rollback, 53 resources, 55 locks, 57 intervention, 58 system
        return state[:2] in ("08", "40", "53", "55", "57", "58") or state == _IDLE_STATE

    def was_not_done(self, error: BaseException) -> bool:
        """Return whether the error is a serialization failure or a deadlock."""
        return state_of(error) in ("40001", "40P01")

    def refusal(self, error: BaseException) -> str | None:
        """Return the server's message. Some drivers (psycopg) provide no state; then only English messages are recognized."""
        lines, state = without_userinfo(str(_cause(error))).strip().splitlines() or [""], state_of(error)
        if state is not None:
            return lines[0] if state[:2] in ("28", "3D") else None
        # With several servers or addresses, there is one line for each address. A starting server may soon accept a
        # connection that another server rejects.
        text = next(filter(_REFUSALS.search, lines), None)
        return None if any(map(_NOT_NOW.search, lines)) else text

    def hint(self, error: BaseException, *, of_handler: bool) -> str:
        """Return the setting that ended a statement or a transaction."""
        state = state_of(error)
        if state == _IDLE_STATE:
            return _IDLE_HINT
        # This package's own statements have another lock limit.
        return _LOCK_HINT if state == _LOCK_STATE and of_handler else ""

    def own_limits(self) -> Sequence[Any]:
        """Return limits for idle time and for waits for locks."""
        return own_limits()

    def shard_sessions(
        self, table: Any, idle_timeout: float | None, lock_timeout: float | None
    ) -> ShardSessions | None:
        """Return the shard marks, which are advisory locks."""
        return ShardSessions(table, idle_timeout, lock_timeout, self.is_transient)

    def turn(self, name: str) -> Any:
        """Return an advisory lock."""
        sa = import_sqlalchemy()
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        return sa.func.pg_try_advisory_xact_lock(sa.literal(number, sa.BigInteger))


_LIBPQ_DRIVERS = ("psycopg", "psycopg2", "psycopg_async")
"""Drivers whose connections accept the settings of PostgreSQL's own library."""

_REFUSALS = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r'|role ".*" (?:does not exist|is not permitted to log in)|database ".*" does not exist'
)
"""PostgreSQL's messages when it rejects the user, password or database of a connection."""

_NOT_NOW = re.compile(
    r"the database system is |accepting connections|in recovery mode|too many (?:clients|connections)|connection slots"
)
"""PostgreSQL's messages while it accepts no connection because it starts, stops, recovers, or is full."""

_IDLE_STATE = "25P03"
_LOCK_STATE = "55P03"
_LOCK_HINT = ". Another session kept a lock for too long: see lock_timeout of SqlSink, and pg_blocking_pids() for the session"
_IDLE_HINT = f". Too long passed between two statements of the transaction: see {IDLE_TIMEOUT_SETTING}, and idle_timeout of SqlSink"


def _libpq_settings(url: URL, timeout: float, more: dict[str, Any]) -> dict[str, Any]:
    """Return connection settings that prevent every call from waiting forever; settings in the URL are left unchanged.

    The operating system ends a connection whose other end is silent for ``timeout`` seconds, for example because its machine lost
    power. Otherwise the driver would wait forever.
    """
    seconds = max(2, round(timeout))  # the library treats 1 as 2
    settings = {
        "connect_timeout": seconds,
        "keepalives_idle": seconds,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        "tcp_user_timeout": max(1000, round(timeout * 1000)),
        **more,
    }
    return {name: value for name, value in settings.items() if name not in url.query}


def _cause(error: BaseException) -> BaseException:
    return getattr(error, "orig", None) or error


def _lost_or_busy(error: BaseException) -> bool:
    """Return whether an error without a SQLSTATE concerns the connection or the server rather than the statement."""
    from sqlalchemy import exc

    return isinstance(error, (exc.OperationalError, exc.InterfaceError))


_DIALECTS: dict[str, Dialect] = {one.name: one for one in (Sqlite(), Postgresql())}
NAMES = tuple(_DIALECTS)
"""Names of the dialects: the part of an accepted URL before ``+driver://`` or ``://``."""


def dialect_named(field: str, name: str, shown: object, accepted: str) -> Dialect:
    """Return the dialect with SQLAlchemy's name for it, or raise `ConfigError` with ``shown``, a URL without its password."""
    dialect = _DIALECTS.get(name)
    if dialect is None:
        raise ConfigError(
            field, shown, f"{accepted}; {printable(name, 40)} is not supported, SQLite and PostgreSQL are"
        )
    return dialect


def dialect_of(engine: Engine) -> Dialect:
    """Return the dialect of a checked engine."""
    return _DIALECTS[engine.dialect.name]
