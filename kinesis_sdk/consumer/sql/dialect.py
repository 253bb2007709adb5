"""Dialects of SQL: the differences between databases, in one object for leases, sinks and administration. See `Dialect`.

A dialect is added here, and passes the contracts of stores and sinks against a real server, before its URLs are accepted.
"""

from __future__ import annotations

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
"""Seconds without a sign of life after which a connection counts as lost, if calls have no timeout of their own."""


class Dialect(Protocol):
    """A kind of database. Stateless, so there is one object of each.

    Attributes:
        name: SQLAlchemy's name of it, with which its URLs begin.
        has_one_writer: Whether a transaction that has written keeps all other ones from writing until it ends.
    """

    name: str
    has_one_writer: bool

    def check_url(self, field: str, database: str, url: URL) -> None:
        """Raise `ConfigError` if nothing can be opened at a URL.

        Args:
            field: Name of the setting, for the error.
            database: The URL as the user wrote it.
            url: The URL.
        """

    def file(self, url: URL) -> Path | None:
        """Return the file that is the database; None for a server, for memory, and for names that only the driver understands."""

    def options(self, url: URL, timeout: float | None) -> dict[str, Any]:
        """Return the options of ``create_engine`` for a URL.

        Args:
            url: The URL.
            timeout: Seconds after which a statement, or the wait for a connection, fails; None for calls without a timeout of their own.
        """

    def prepare(self, engine: Engine) -> None:
        """Make the settings of an engine that is made here, for each connection."""

    def is_transient(self, error: BaseException) -> bool:
        """Return whether an exception of the driver, or SQLAlchemy's around it, tells of a failure that usually passes."""

    def was_not_done(self, error: BaseException) -> bool:
        """Return whether a statement that commits by itself certainly changed nothing, so that it may be repeated at once."""

    def refusal(self, error: BaseException) -> str | None:
        """Return the server's words if it refused a connection because of its user, password or database; else None."""

    def hint(self, error: BaseException, *, of_handler: bool) -> str:
        """Return what helps against an error, to be put behind its text; empty if there is nothing.

        Args:
            error: The error.
            of_handler: Whether a statement of the user's handler failed.
        """

    def own_limits(self) -> Sequence[Any]:
        """Return expressions that, selected first, limit a transaction in which only this package sends statements."""

    def shard_sessions(
        self, table: Any, idle_timeout: float | None, lock_timeout: float | None
    ) -> ShardSessions | None:
        """Return what ends the sessions of stopped processes; None if the database has nothing for it."""


class Sqlite:
    """SQLite, in a file."""

    name = "sqlite"
    has_one_writer = True

    def check_url(self, field: str, database: str, url: URL) -> None:
        """See that the file can be opened. SQLite's own error is the same for a wrong path and for what passes, such as too many open files."""
        shown, file = without_userinfo(database), url.database
        if file in (None, "", ":memory:"):
            raise ConfigError(field, shown, "a database in a file: one in memory exists once for each thread")
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
        """Return the waits for another writer."""
        wait = _BUSY_TIMEOUT if timeout is None else timeout
        return {"connect_args": {"timeout": wait}, "pool_timeout": wait}

    def prepare(self, engine: Engine) -> None:
        """Keep a write-ahead log, so that readers and the one writer do not wait for each other."""
        import_sqlalchemy().event.listen(engine, "connect", _use_write_ahead_log)

    def is_transient(self, error: BaseException) -> bool:
        """Return whether the words are none of an error that repeating does not cure."""
        return _lost_or_busy(error) and not any(words in str(_cause(error)) for words in _PERMANENT_SQLITE)

    def was_not_done(self, error: BaseException) -> bool:  # noqa: ARG002 - of the interface
        """Return False: SQLite has waited for other writers already."""
        return False

    def refusal(self, error: BaseException) -> str | None:  # noqa: ARG002 - of the interface
        """Return None: a file has no users."""
        return None

    def hint(self, error: BaseException, *, of_handler: bool) -> str:  # noqa: ARG002 - of the interface
        """Return nothing."""
        return ""

    def own_limits(self) -> Sequence[Any]:
        """Return nothing: a stopped writer holds up the others until it ends."""
        return ()

    def shard_sessions(
        self, table: Any, idle_timeout: float | None, lock_timeout: float | None
    ) -> ShardSessions | None:  # the lock of a file ends with its process
        """Return None."""
        del table, idle_timeout, lock_timeout
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
    """PostgreSQL, and servers that speak its protocol."""

    name = "postgresql"
    has_one_writer = False

    def check_url(self, field: str, database: str, url: URL) -> None:
        """Accept every URL: the server decides."""

    def file(self, url: URL) -> Path | None:  # noqa: ARG002 - of the interface
        """Return None."""
        return None

    def options(self, url: URL, timeout: float | None) -> dict[str, Any]:
        """Return settings that keep every call from waiting forever."""
        is_libpq = url.get_driver_name() in _LIBPQ_DRIVERS
        if timeout is None:
            options: dict[str, Any] = {"pool_pre_ping": True}
            if is_libpq:
                options["connect_args"] = _libpq_settings(url, _LOST_SECONDS, {})
            return options
        # Without the ping, which costs a round trip for each call: workers repeat calls whose connections were lost.
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
        """Return whether the state, or without one the kind of error, is that of a failure that usually passes."""
        state = state_of(error)
        if state is None:
            return _lost_or_busy(error)
        # 08 connection, 25 a transaction that the server ended, 40 rollback, 53 resources, 55 locks, 57 intervention, 58 system
        return state[:2] in ("08", "40", "53", "55", "57", "58") or state == _IDLE_STATE

    def was_not_done(self, error: BaseException) -> bool:
        """Return whether it could not be serialised, or was in a deadlock."""
        return state_of(error) in ("40001", "40P01")

    def refusal(self, error: BaseException) -> str | None:
        """Return the server's words. Some drivers tell only these (psycopg), which are known in English."""
        lines, state = without_userinfo(str(_cause(error))).strip().splitlines() or [""], state_of(error)
        if state is not None:
            return lines[0] if state[:2] in ("28", "3D") else None
        # Of several servers or addresses, there is a line for each. One that starts may accept what another one refuses.
        text = next(filter(_REFUSALS.search, lines), None)
        return None if any(map(_NOT_NOW.search, lines)) else text

    def hint(self, error: BaseException, *, of_handler: bool) -> str:
        """Return which setting ended a statement or a transaction."""
        state = state_of(error)
        if state == _IDLE_STATE:
            return _IDLE_HINT
        # What this package sends itself has a limit of its own.
        return _LOCK_HINT if state == _LOCK_STATE and of_handler else ""

    def own_limits(self) -> Sequence[Any]:
        """Return limits of idleness and of waits for locks."""
        return own_limits()

    def shard_sessions(
        self, table: Any, idle_timeout: float | None, lock_timeout: float | None
    ) -> ShardSessions | None:
        """Return the marks of shards by advisory locks."""
        return ShardSessions(table, idle_timeout, lock_timeout, self.is_transient)


_LIBPQ_DRIVERS = ("psycopg", "psycopg2", "psycopg_async")
"""Drivers whose connections have the settings of PostgreSQL's own library."""

_REFUSALS = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r'|role ".*" (?:does not exist|is not permitted to log in)|database ".*" does not exist'
)
"""Words of PostgreSQL when it refuses a connection because of its user, password or database."""

_NOT_NOW = re.compile(
    r"the database system is |accepting connections|in recovery mode|too many (?:clients|connections)|connection slots"
)
"""Words of PostgreSQL when it accepts no connection for the moment: it starts, stops, recovers, or is full."""

_IDLE_STATE = "25P03"
_LOCK_STATE = "55P03"
_LOCK_HINT = ". Another session kept a lock for too long: see lock_timeout of SqlSink, and pg_blocking_pids() for the session"
_IDLE_HINT = f". Too long passed between two statements of the transaction: see {IDLE_TIMEOUT_SETTING}, and idle_timeout of SqlSink"


def _libpq_settings(url: URL, timeout: float, more: dict[str, Any]) -> dict[str, Any]:
    """Return connection settings that keep every call from waiting forever; settings in the URL are left unchanged.

    The system ends a connection whose other end no longer answers, for example because its machine lost power: nothing would
    arrive at all, and the driver would wait.

    Args:
        url: URL of the database.
        timeout: Seconds for which the other end may be silent.
        more: Further settings.
    """
    seconds = max(2, round(timeout))  # the library takes 1 for 2
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
    """Return whether an error without a state is of a kind that tells of the connection or the server, and not of the statement."""
    from sqlalchemy import exc

    return isinstance(error, (exc.OperationalError, exc.InterfaceError))


_DIALECTS: dict[str, Dialect] = {one.name: one for one in (Sqlite(), Postgresql())}
NAMES = tuple(_DIALECTS)
"""Names of the dialects: what comes before ``+driver://`` or ``://`` in an accepted URL."""


def dialect_named(field: str, name: str, shown: object, accepted: str) -> Dialect:
    """Return the dialect with a name.

    Args:
        field: Name of the setting, for the error.
        name: SQLAlchemy's name of the dialect.
        shown: URL or engine for the error, without its password.
        accepted: What is accepted, for the error.

    Raises:
        ConfigError: If it is another database than SQLite and PostgreSQL.
    """
    dialect = _DIALECTS.get(name)
    if dialect is None:
        raise ConfigError(
            field, shown, f"{accepted}; {printable(name, 40)} is not supported, SQLite and PostgreSQL are"
        )
    return dialect


def dialect_of(engine: Engine) -> Dialect:
    """Return the dialect of an engine that was checked before."""
    return _DIALECTS[engine.dialect.name]
