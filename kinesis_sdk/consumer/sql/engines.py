"""SQLAlchemy engines, created from URLs or passed in by users.

SQLite and PostgreSQL are supported. Other databases are rejected, because this package has not been tested with them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_sdk.common.errors import ConfigError, without_userinfo
from kinesis_sdk.consumer.sql.dialect import Dialect, dialect_named
from kinesis_sdk.consumer.sql.driver import import_sqlalchemy
from kinesis_sdk.consumer.sql.failures import hide_parameters

if TYPE_CHECKING:
    from sqlalchemy.engine import URL, Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

_T = TypeVar("_T")


def open_engine(
    field: str, database: str | Engine, *, timeout: float | None = None, sets_journal: bool = True
) -> Engine:
    """Return an engine for a URL, or check and return the user's engine.

    An engine created here for SQLite keeps a write-ahead log, so that readers and the one writer do not wait for each other. By
    default, it waits 30 s for another writer.

    Args:
        field: Name of the setting, for errors.
        database: SQLAlchemy URL, for example ``sqlite:///totals.db`` or ``postgresql+psycopg://host/database``, or an engine.
        timeout: Seconds after which a statement, or the wait for a connection, fails. None waits 30 s for another writer of SQLite; with
            other databases, the driver decides. The user's engine keeps its own timeouts.
        sets_journal: Whether SQLite should keep a write-ahead log, which changes the file. A tool that only reads must not
            change it, because it may not be a database of this package.

    Raises:
        ConfigError: If ``database`` is neither a URL nor an engine; if the SQLite file cannot be opened; or for the URL of a SQLite
            database in memory, because each thread would have its own database.
        ImportError: If SQLAlchemy, or the driver, is not installed.
    """
    sqlalchemy = import_sqlalchemy()
    accepted = "a database URL such as 'sqlite:///totals.db', or a sqlalchemy.Engine"
    if not isinstance(database, str):
        if not isinstance(database, sqlalchemy.engine.Engine):
            raise ConfigError(field, database, accepted)
        given: Engine = database
        _check_given(field, given, accepted)
        return given
    url, dialect = _parse(field, database, accepted)
    if url.get_dialect().is_async:
        raise ConfigError(
            field,
            without_userinfo(database),
            "a driver that is not asynchronous (asynchronous drivers are for AsyncSqlSink)",
        )
    engine: Engine = sqlalchemy.create_engine(url, **dialect.options(url, timeout))
    if sets_journal:
        dialect.prepare(engine)
    return engine


def counted_engine(engine: Engine, count: Callable[[str], None]) -> Engine:
    """Return an engine on the same pool that reports each statement before it runs.

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


def is_shared(transaction: object, engine: Engine) -> bool:
    """Return whether the transaction of a sink is a connection to the database of an engine, so that both commit together."""
    from sqlalchemy.engine import Connection

    if not transaction:  # the worker has no sink
        return False
    connection = getattr(transaction, "sync_connection", transaction)  # of an AsyncConnection
    if not isinstance(connection, Connection):
        return False
    return connection.engine is engine or is_same_database(engine, connection.engine)


def is_same_database(one: Engine, other: Engine) -> bool:
    """Return whether the URLs of the engines ``one`` and ``other`` name the same database, with any drivers."""
    return _place(one.url) == _place(other.url) and one.url.database not in (None, "", ":memory:")


def _place(url: URL) -> tuple[object, ...]:
    """Return the parts of a URL that determine where the tables are; for PostgreSQL, these may include the query."""
    query = (url.query.get(name) for name in ("host", "hostaddr", "port", "service", "dbname", "options"))
    return (url.get_backend_name(), url.host, url.port, url.database, *query)


def run_in(transaction: Any, work: Callable[[Connection], _T]) -> Awaitable[_T] | _T:
    """Call ``work`` with the connection of a sink's ``transaction``; return its result, or for an `AsyncSqlSink` an awaitable of it.

    The text of an error has no parameters. Its class stays, because the sink has to know whether the error is transient.
    """

    def guarded(connection: Connection) -> _T:
        try:
            return work(connection)
        except Exception as error:
            hide_parameters(error)
            raise

    run_sync = getattr(transaction, "run_sync", None)
    result: Awaitable[_T] | _T = guarded(transaction) if run_sync is None else run_sync(guarded)
    return result


def open_async_engine(field: str, database: str | AsyncEngine) -> AsyncEngine:
    """Return an engine for a URL with an asynchronous driver, or check and return the user's engine; otherwise like `open_engine`."""
    sqlalchemy = import_sqlalchemy()
    from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

    accepted = (
        "the URL of a database with an asynchronous driver, such as 'postgresql+psycopg://host/totals' or "
        "'sqlite+aiosqlite:///totals.db', or an engine of sqlalchemy.ext.asyncio.create_async_engine"
    )
    if isinstance(database, AsyncEngine):
        _check_given(field, database.sync_engine, accepted)
        return database
    if not isinstance(database, str):
        raise ConfigError(field, database, accepted)
    url, dialect = _parse(field, database, accepted)
    try:
        engine = create_async_engine(url, **dialect.options(url, None))
    except sqlalchemy.exc.InvalidRequestError as error:  # the driver is not asynchronous
        raise ConfigError(field, without_userinfo(database), accepted) from error
    dialect.prepare(engine.sync_engine)
    return engine


def is_async_url(field: str, url: str) -> bool:
    """Return whether a URL has an asynchronous driver; raise `ConfigError` if it is not the URL of a database."""
    accepted = "a database URL such as 'sqlite:///totals.db'"
    return bool(_parse(field, url, accepted)[0].get_dialect().is_async)


def _parse(field: str, database: str, accepted: str) -> tuple[URL, Dialect]:
    sqlalchemy = import_sqlalchemy()
    shown = without_userinfo(database)
    try:
        url: URL = sqlalchemy.engine.make_url(database)
    except (sqlalchemy.exc.ArgumentError, ValueError):  # ValueError: the port is not a number
        # Their messages may contain the password: the whole URL (SQLAlchemy), or the text in place of the port.
        raise ConfigError(field, shown, accepted) from None
    dialect = dialect_named(field, url.get_backend_name(), shown, accepted)
    try:
        url.get_dialect()  # raises if there is no such driver
    except sqlalchemy.exc.ArgumentError:
        raise ConfigError(field, shown, accepted) from None
    if url.host and "@" in url.host:
        # A driver's error would show the host, which here contains a part of the password.
        raise ConfigError(field, shown, "a URL with %40 for each @ in the password")
    dialect.check_url(field, database, url)
    return url, dialect


def _check_given(field: str, engine: Engine, accepted: str) -> None:
    """Check that a user's engine has a known dialect and that its file can be opened; databases in memory are allowed."""
    url = engine.url
    dialect = dialect_named(field, engine.dialect.name, without_userinfo(url.render_as_string()), accepted)
    if dialect.file(url) is not None:
        dialect.check_url(field, url.render_as_string(), url)
