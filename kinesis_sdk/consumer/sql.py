"""SQL databases, for sinks and for leases: engines, versions of tables, and which errors pass.

Needs the extra ``sql`` (SQLAlchemy 2), which is imported on first use. SQLite and PostgreSQL are tested; other databases work as far as
their SQLAlchemy dialect does.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kinesis_sdk.common.errors import ConfigError, KinesisSdkError, without_userinfo
from kinesis_sdk.common.extras import install_hint
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    import sqlalchemy
    from sqlalchemy.engine import URL, Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

_VERSIONS = "kinesis_sdk_versions"
_BUSY_TIMEOUT = 30.0
"""Seconds for which SQLite waits for another writer before it reports that the database is locked."""

_IDLE_TIMEOUT = "idle_in_transaction_session_timeout"
"""Setting of PostgreSQL: the server ends a session whose transaction waits longer for its next statement."""

_OWN_IDLE_SECONDS = 5.0
"""Seconds for which a transaction may be idle in which only this package sends statements."""

_OWN_LOCK_SECONDS = 10.0
"""Seconds for which a statement waits for such a transaction of another process. The server has ended that by then."""

_LOST_SECONDS = 30
"""Seconds without a sign of life after which a connection counts as lost, if calls have no timeout of their own."""

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

_LOCK_TIMEOUT = "lock_timeout"
_LOCK_STATE = "55P03"
_LOCK_HINT = ". Another session kept a lock for too long: see lock_timeout of SqlSink, and pg_blocking_pids() for the session"
_FAILED_BEFORE = "25P02"
"""State of a statement that PostgreSQL refuses because an earlier one of its transaction failed: it says nothing of the reason."""
_MAX_CAUSES = 20
"""Maximum number of errors that are inspected in a chain of causes, which may be a circle."""
_IDLE_HINT = f". Too long passed between two statements of the transaction: see {_IDLE_TIMEOUT}, and idle_timeout of SqlSink"

_PERMANENT_SQLITE = (
    "no such",
    "near ",
    "readonly",
    "has no column",
    "file is not a database",
    "not authorized",
)


def import_sqlalchemy() -> Any:
    """Import SQLAlchemy.

    Raises:
        ImportError: If it is not installed; the message names the extra.
    """
    try:
        import sqlalchemy
    except ImportError as error:
        raise ImportError(install_hint("A SQL database", "sqlalchemy", "sql")) from error
    return sqlalchemy


def exact_text(length: int) -> Any:
    """Return the type of a column of text whose values are equal only if they have the same characters.

    MySQL and MariaDB would compare without regard to case: the streams ``orders`` and ``Orders`` would share their rows.
    """
    sqlalchemy = import_sqlalchemy()
    from sqlalchemy.dialects import mysql

    exact = mysql.VARCHAR(length, collation="utf8mb4_bin")
    return sqlalchemy.String(length).with_variant(exact, "mysql", "mariadb")


def open_engine(
    field: str, database: str | Engine, *, timeout: float | None = None, sets_journal: bool = True
) -> Engine:
    """Return an engine for a URL, or the engine that the user made.

    An engine for SQLite that is made here keeps a write-ahead log, so that readers and the one writer do not wait for each other,
    and waits 30 s for another writer.

    Args:
        field: Name of the setting, for errors.
        database: URL of SQLAlchemy, for example ``sqlite:///totals.db`` or ``postgresql+psycopg://host/database``, or an engine.
        timeout: Seconds after which a statement, or the wait for a connection, fails; None waits 30 s for another writer of
            SQLite, and for other databases as long as their drivers do. An engine that was passed keeps its own.
        sets_journal: Whether SQLite is to keep a write-ahead log, which it notes in the file. A tool that reads leaves a file as it is: it
            may not be a database of this package at all.

    Raises:
        ConfigError: If it is neither, a SQLite file that cannot be opened, or the URL of a SQLite database in memory, of which each thread
            would see another one.
        ImportError: If SQLAlchemy, or the driver, is not installed.
    """
    sqlalchemy = import_sqlalchemy()
    accepted = "a database URL such as 'sqlite:///totals.db', or a sqlalchemy.Engine"
    if not isinstance(database, str):
        if not isinstance(database, sqlalchemy.engine.Engine):
            raise ConfigError(field, database, accepted)
        given: Engine = database
        _check_given(field, given)
        return given
    url = _parse(field, database, accepted)
    if url.get_dialect().is_async:
        raise ConfigError(
            field,
            without_userinfo(database),
            "a driver that is not asynchronous (those are for AsyncSqlSink)",
        )
    engine: Engine = sqlalchemy.create_engine(url, **_options(url, timeout))
    if sets_journal:
        _prepare(engine)
    return engine


def counted_engine(engine: Engine, count: Callable[[str], None]) -> Engine:
    """Return an engine over the same connections that tells of each statement before it is carried out.

    Args:
        engine: The engine.
        count: Called with the verb of each statement, such as ``SELECT``.
    """
    sqlalchemy = import_sqlalchemy()
    counted = engine.execution_options()

    def tell(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        count(statement.split(None, 1)[0].upper())

    sqlalchemy.event.listen(counted, "before_cursor_execute", tell)
    return counted


def open_async_engine(field: str, database: str | AsyncEngine) -> AsyncEngine:
    """Return an asynchronous engine for a URL, or the one that the user made; otherwise as `open_engine`.

    Args:
        field: Name of the setting, for errors.
        database: URL of SQLAlchemy with an asynchronous driver, or an engine of ``create_async_engine``.

    Raises:
        ConfigError: If it is neither, its driver is not asynchronous, or it is a SQLite file that cannot be opened, or the URL of a SQLite
            database in memory.
        ImportError: If SQLAlchemy, greenlet, or the driver, is not installed.
    """
    sqlalchemy = import_sqlalchemy()
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

    accepted = (
        "the URL of a database with an asynchronous driver, such as 'postgresql+psycopg://host/totals' or "
        "'sqlite+aiosqlite:///totals.db', or an engine of sqlalchemy.ext.asyncio.create_async_engine"
    )
    if isinstance(database, AsyncEngine):
        _check_given(field, database.sync_engine)
        return database
    if not isinstance(database, str):
        raise ConfigError(field, database, accepted)
    url = _parse(field, database, accepted)
    try:
        engine = create_async_engine(url, **_options(url))
    except sqlalchemy.exc.InvalidRequestError as error:  # the driver is not asynchronous
        raise ConfigError(field, without_userinfo(database), accepted) from error
    _prepare(engine.sync_engine)
    return engine


def is_async_url(field: str, url: str) -> bool:
    """Return whether a URL has an asynchronous driver.

    Raises:
        ConfigError: If it is not the URL of a database.
        ImportError: If SQLAlchemy, or the driver, is not installed.
    """
    accepted = "a database URL such as 'sqlite:///totals.db'"
    return bool(_parse(field, url, accepted).get_dialect().is_async)


def _parse(field: str, database: str, accepted: str) -> URL:
    sqlalchemy = import_sqlalchemy()
    try:
        url: URL = sqlalchemy.engine.make_url(database)
        url.get_dialect()  # which a wrong name of a driver has not
    except (sqlalchemy.exc.ArgumentError, ValueError):  # ValueError: the port is not a number
        # Their messages may have the password: the whole URL (SQLAlchemy), or what stands where the port should.
        raise ConfigError(field, without_userinfo(database), accepted) from None
    if url.host and "@" in url.host:
        # A driver would name what it takes for the host, which is a part of the password, in its error.
        raise ConfigError(field, without_userinfo(database), "a URL with %40 for each @ in the password")
    if url.get_backend_name() == "sqlite":
        _check_file(field, database, url.database)
    return url


def _check_given(field: str, engine: Engine) -> None:
    """See that the file of a SQLite engine which the user made can be opened; one in memory is the user's decision."""
    url = engine.url
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        _check_file(field, url.render_as_string(), url.database)


def _check_file(field: str, database: str, file: str | None) -> None:
    """See that SQLite can open a file. Its own error is the same for a wrong path and for what passes, such as too many open files."""
    shown = without_userinfo(database)
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


def _options(url: URL, timeout: float | None = None) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        wait = _BUSY_TIMEOUT if timeout is None else timeout
        return {"connect_args": {"timeout": wait}, "pool_timeout": wait}
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
        options["connect_args"] = _libpq_settings(url, timeout, {"options": f"-c statement_timeout={millis}"})
    return options


def _prepare(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        import_sqlalchemy().event.listen(engine, "connect", _use_write_ahead_log)


def _libpq_settings(url: URL, timeout: float, more: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a connection with which no call waits for ever; those of the URL stay as the user wrote them.

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


def _use_write_ahead_log(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
    finally:
        cursor.close()


def idle_limit(seconds: float) -> Any:
    """Return an expression for PostgreSQL that limits for how long the transaction may wait for its next statement.

    It changes nothing if the server, the user or the engine sets a limit.
    """
    return _limit_unless_set(_IDLE_TIMEOUT, seconds)


def lock_limit(seconds: float) -> Any:
    """Return an expression for PostgreSQL that limits for how long a statement of the transaction may wait for a lock.

    It changes nothing if the server, the user or the engine sets a limit.
    """
    return _limit_unless_set(_LOCK_TIMEOUT, seconds)


def _limit_unless_set(name: str, seconds: float) -> Any:
    sqlalchemy = import_sqlalchemy()
    return sqlalchemy.case((sqlalchemy.func.current_setting(name, True) == "0", _set_local(name, seconds)))


def own_limits(lock_seconds: float = _OWN_LOCK_SECONDS) -> list[Any]:
    """Return expressions for PostgreSQL that limit a transaction in which only this package sends statements.

    It is ended by the server if its process stops in it, and does not wait for ever for another one.

    Args:
        lock_seconds: Seconds for which a statement may wait for a lock.
    """
    sqlalchemy = import_sqlalchemy()
    return [
        # A database that speaks PostgreSQL's protocol may not have the setting.
        sqlalchemy.case((sqlalchemy.func.current_setting(name, True).is_not(None), _set_local(name, seconds)))
        for name, seconds in ((_IDLE_TIMEOUT, _OWN_IDLE_SECONDS), (_LOCK_TIMEOUT, lock_seconds))
    ]


def _set_local(name: str, seconds: float) -> Any:
    """Return an expression that changes a setting of PostgreSQL until the end of the transaction."""
    return import_sqlalchemy().func.set_config(name, f"{max(1, round(seconds * 1000))}ms", True)


def is_transient(error: BaseException) -> bool:
    """Return whether an exception of SQLAlchemy tells of something that usually passes.

    That is a lost connection, a database that is starting or stopping, a deadlock, a conflict of transactions, a lock that is not free, and
    a pool without a free connection.
    """
    from sqlalchemy import exc

    if isinstance(error, exc.TimeoutError):
        return True
    if not isinstance(error, exc.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    cause, state = error.orig, state_of(error)
    if state is not None:
        return _is_transient_state(state)
    if not isinstance(error, (exc.OperationalError, exc.InterfaceError)):
        return False
    return not any(text in str(cause) for text in _PERMANENT_SQLITE)


def _is_transient_state(state: str) -> bool:
    # 08 connection, 25 a transaction that the server ended, 40 rollback, 53 resources, 55 locks, 57 intervention, 58 system
    return state[:2] in ("08", "40", "53", "55", "57", "58") or state == "25P03"


def state_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an exception of SQLAlchemy or of a driver.

    None if it has none, as most of those of SQLite and of a lost connection.
    """
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    fields = cause.args[0] if isinstance(cause, Exception) and cause.args else None
    if state is None and isinstance(fields, Mapping):
        state = fields.get(
            "C"
        )  # pg8000 has the fields of the server's message, by their letters in the protocol
    return state if isinstance(state, str) else None


def check_refusal(field: str, engine: Engine, error: BaseException) -> None:
    """Raise an error of configuration if a server refuses the user, the password or the database of an engine.

    For the start of a worker. While it runs, this may pass: a password is being changed, or the server is being restored.

    Args:
        field: Name of the setting, for errors.
        engine: The engine.
        error: The exception. Some drivers tell only the server's words (psycopg), which are known in English.

    Raises:
        ConfigError: If so.
    """
    from sqlalchemy import exc, util

    if not isinstance(error, exc.DBAPIError):
        return
    lines, state = without_userinfo(str(error.orig)).strip().splitlines() or [""], state_of(error)
    if state is None:
        # Of several servers or addresses, there is a line for each. One that starts may accept what another one refuses.
        text = next(filter(_REFUSALS.search, lines), None)
        refused = text is not None and not any(map(_NOT_NOW.search, lines))
    else:
        text, refused = lines[0], state[:2] in ("28", "3D")
    if refused:
        # The query may have a password, too.
        url = engine.url._replace(username=None, password=None, query=util.EMPTY_DICT).render_as_string()
        raise ConfigError(
            field,
            url,
            "a database that accepts this user and password",
            problem=f"{field}={url!r}: the server refused the connection: {text}",
        ) from error


def translated(
    error: BaseException,
    transient: type[KinesisSdkError],
    permanent: type[KinesisSdkError] | None = None,
    *,
    driver_errors: tuple[type[BaseException], ...] = (),
) -> BaseException:
    """Return an error of this package for one of SQLAlchemy; any other is returned as it is.

    Args:
        error: The error.
        transient: Class for what usually passes.
        permanent: Class for the others. None is for the errors of a handler: the others are returned as they are, and one that
            was raised because of a failure that usually passes counts as that failure.
        driver_errors: Classes of the driver's own exceptions, which a handler gets if it uses a cursor of the driver.
    """
    from sqlalchemy import exc

    if permanent is None:
        found, kind = _transient_cause(error, driver_errors), transient
        if found is None:
            return error
    elif isinstance(error, exc.SQLAlchemyError):
        found, kind = error, transient if is_transient(error) else permanent
    else:
        return error
    # Of a failed statement, neither the statement nor its parameters: they hold what the records hold.
    cause = found.orig if isinstance(found, exc.DBAPIError) else found
    text = without_userinfo(str(cause)).strip().partition("\n")[0]
    if state_of(found) == "25P03":
        text += _IDLE_HINT
    if state_of(found) == _LOCK_STATE and permanent is None:
        text += _LOCK_HINT  # of a handler; what this package sends itself has a limit of its own
    return kind(f"the database failed: {type(cause).__name__}: {text}")


def _transient_cause(
    error: BaseException, driver_errors: tuple[type[BaseException], ...]
) -> BaseException | None:
    """Return the failure of the database that usually passes and that a handler's error is or was raised for; None without one.

    The first error in the chain that tells why the database failed decides. Cancellation and the errors of this package say
    themselves what they are.
    """
    from sqlalchemy import exc

    if not isinstance(error, Exception) or isinstance(error, KinesisSdkError):
        return None
    link: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if link is None:
            break
        is_driver_error = isinstance(link, driver_errors)
        state = state_of(link) if is_driver_error or isinstance(link, exc.DBAPIError) else None
        if is_transient(link) or (is_driver_error and state is not None and _is_transient_state(state)):
            return link
        if state != _FAILED_BEFORE and (state is not None or isinstance(link, exc.DBAPIError)):
            break
        if link.__cause__ is None and not link.__suppress_context__:
            link = link.__context__
        else:
            link = link.__cause__
    return None


class Tables:
    """Tables of one part of this package in a database, and their version. Thread-safe.

    Args:
        engine: The database.
        part: Name of the part, for example ``positions``.
        version: Version of the tables that this code reads and writes.
        metadata: The tables.
        schema: Schema of the database that holds them; None is the default one.
    """

    def __init__(
        self,
        engine: Engine,
        part: str,
        version: int,
        metadata: sqlalchemy.MetaData,
        *,
        schema: str | None = None,
    ) -> None:
        sqlalchemy = import_sqlalchemy()
        self._engine = engine
        self._part = part
        self._version = version
        self._metadata = metadata
        self._versions = sqlalchemy.Table(
            _VERSIONS,
            metadata,
            sqlalchemy.Column("part", sqlalchemy.String(100), primary_key=True),
            sqlalchemy.Column("version", sqlalchemy.Integer, nullable=False),
            schema=schema,
        )
        self._lock = threading.Lock()

    def ensure(self, failure: type[KinesisSdkError], *, needs_transactions: bool = True) -> None:
        """Create the tables that are missing, and check their version and that transactions can be rolled back.

        Args:
            failure: Class of errors that repeating does not cure.
            needs_transactions: Whether to check that the engine does not commit each statement.

        Raises:
            KinesisSdkError: An error of that class, if the version is newer, or if the engine commits each statement.
            sqlalchemy.exc.SQLAlchemyError: If the database failed.
        """
        from sqlalchemy import exc

        with self._lock:
            for _ in self._metadata.tables:
                # Another worker may create a table after this one has checked that it is missing, each time another one.
                with suppress(exc.DBAPIError):
                    self._create_all()
                    break
            else:
                self._create_all()
            stored = self._stored_version()
            if stored is None:
                try:
                    with self._engine.begin() as connection:
                        self._limit(connection)
                        connection.execute(
                            self._versions.insert().values(part=self._part, version=self._version)
                        )
                except exc.DBAPIError:
                    # Another worker stored it first, perhaps while this process was stopped and its transaction ended.
                    stored = self._stored_version()
                    if stored is None:
                        raise
                else:
                    stored = self._version
            self._check_version(stored, failure)
            if needs_transactions:
                self._check_transactions(failure)

    def exist(self, failure: type[KinesisSdkError]) -> bool:
        """Return whether the tables are there, and check their version. Nothing is created.

        Args:
            failure: Class of errors that repeating does not cure.

        Raises:
            KinesisSdkError: An error of that class, if the version is another one.
            sqlalchemy.exc.SQLAlchemyError: If the database failed.
        """
        import sqlalchemy

        there = sqlalchemy.inspect(self._engine)
        if not all(there.has_table(one.name, schema=one.schema) for one in self._metadata.tables.values()):
            return False
        stored = self._stored_version()
        if stored is None:
            return False
        self._check_version(stored, failure)
        return True

    def _check_version(self, stored: int | None, failure: type[KinesisSdkError]) -> None:
        if stored != self._version:
            raise failure(
                f"the tables of {self._part} have version {stored}, and this release of kinesis_sdk knows version "
                f"{self._version}: run the release that made them, or a newer one"
            )

    def _create_all(self) -> None:
        with self._engine.begin() as connection:
            self._limit(connection)
            self._metadata.create_all(connection)

    def _limit(self, connection: Connection) -> None:
        """See that a process which is stopped in a transaction does not hold up the start of others."""
        if self._engine.dialect.name == "postgresql":
            connection.execute(import_sqlalchemy().select(*own_limits()))

    def _stored_version(self) -> int | None:
        import sqlalchemy

        with self._engine.connect() as connection:
            return self._version_in(connection, sqlalchemy, self._part)

    def _version_in(self, connection: Connection, sqlalchemy: Any, part: str) -> int | None:
        query = sqlalchemy.select(self._versions.c.version).where(self._versions.c.part == part)
        version: int | None = connection.execute(query).scalar_one_or_none()
        return version

    def _check_transactions(self, failure: type[KinesisSdkError]) -> None:
        """Write a row, roll back, and read it: an engine with ``AUTOCOMMIT`` would store effects without their position."""
        import sqlalchemy

        probe = f"probe {uuid4().hex}"
        with self._engine.connect() as connection:
            connection.execute(self._versions.insert().values(part=probe, version=0))
            connection.rollback()
        with self._engine.begin() as connection:
            if self._version_in(connection, sqlalchemy, probe) is None:
                return
            connection.execute(self._versions.delete().where(self._versions.c.part == probe))
        raise failure(
            "the engine commits each statement by itself (isolation level AUTOCOMMIT, or tables without transactions)"
        )
