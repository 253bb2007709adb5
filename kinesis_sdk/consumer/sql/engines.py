"""Engines of SQLAlchemy, from URLs and as users made them.

SQLite and PostgreSQL are supported. Another database is refused, because nothing of this package was run there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kinesis_sdk.common.errors import ConfigError, without_userinfo
from kinesis_sdk.consumer.sql.dialect import Dialect, dialect_named
from kinesis_sdk.consumer.sql.driver import import_sqlalchemy

if TYPE_CHECKING:
    from sqlalchemy.engine import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


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
        ConfigError: If it is neither; if the SQLite file cannot be opened; or for a SQLite database in memory, because each thread
            would have a database of its own.
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
            "a driver that is not asynchronous (those are for AsyncSqlSink)",
        )
    engine: Engine = sqlalchemy.create_engine(url, **dialect.options(url, timeout))
    if sets_journal:
        dialect.prepare(engine)
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
    """Return whether a URL has an asynchronous driver.

    Raises:
        ConfigError: If it is not the URL of a database.
        ImportError: If SQLAlchemy, or the driver, is not installed.
    """
    accepted = "a database URL such as 'sqlite:///totals.db'"
    return bool(_parse(field, url, accepted)[0].get_dialect().is_async)


def _parse(field: str, database: str, accepted: str) -> tuple[URL, Dialect]:
    sqlalchemy = import_sqlalchemy()
    shown = without_userinfo(database)
    try:
        url: URL = sqlalchemy.engine.make_url(database)
    except (sqlalchemy.exc.ArgumentError, ValueError):  # ValueError: the port is not a number
        # Their messages may have the password: the whole URL (SQLAlchemy), or what stands where the port should.
        raise ConfigError(field, shown, accepted) from None
    dialect = dialect_named(field, url.get_backend_name(), shown, accepted)
    try:
        url.get_dialect()  # which a wrong name of a driver has not
    except sqlalchemy.exc.ArgumentError:
        raise ConfigError(field, shown, accepted) from None
    if url.host and "@" in url.host:
        # A driver would name what it takes for the host, which is a part of the password, in its error.
        raise ConfigError(field, shown, "a URL with %40 for each @ in the password")
    dialect.check_url(field, database, url)
    return url, dialect


def _check_given(field: str, engine: Engine, accepted: str) -> None:
    """See that an engine which the user made is of a known database, and its file can be opened; memory is the user's decision."""
    url = engine.url
    dialect = dialect_named(field, engine.dialect.name, without_userinfo(url.render_as_string()), accepted)
    if dialect.file(url) is not None:
        dialect.check_url(field, url.render_as_string(), url)
