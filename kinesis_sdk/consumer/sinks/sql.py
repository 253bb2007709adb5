"""Sinks in a SQL database: the handler's statements and the position of the shard commit together.

`AsyncSqlSink` runs a `SqlSink` in greenlets, which yield to the event loop while the driver waits. SQLAlchemy's asyncio extension
runs its own synchronous engine in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_sdk.common.errors import SinkError, TransientSinkError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.validation import check_seconds
from kinesis_sdk.consumer.sinks.sink import SinkKey, SinkRow
from kinesis_sdk.consumer.sql.dialect import dialect_of
from kinesis_sdk.consumer.sql.driver import import_sqlalchemy, state_of
from kinesis_sdk.consumer.sql.engines import open_async_engine, open_engine
from kinesis_sdk.consumer.sql.failures import check_refusal, translated
from kinesis_sdk.consumer.sql.sessions import LOCK_NOT_AVAILABLE
from kinesis_sdk.consumer.sql.tables import Tables

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

_T = TypeVar("_T")

_VERSION = 1

TABLE = "kinesis_sdk_positions"
"""Default name of the table."""

IDLE_TIMEOUT = 300.0
"""Default of ``idle_timeout``: longer than the usual wait of a handler for another service. The next owner of the shard does not
wait for this time."""
LOCK_TIMEOUT = 60.0
"""Default of ``lock_timeout``: longer than transactions on a busy table usually lock a row."""


class SqlTransaction:
    """A transaction of a `SqlSink`. Commit and roll back through the worker only: return from the handler, or raise.

    Attributes:
        handle: The `sqlalchemy.Connection` on which the handler works.
    """

    def __init__(self, sink: SqlSink, connection: Connection, key: SinkKey, seen: SinkRow) -> None:
        self.handle: Connection = connection
        self._sink = sink
        self._key = key
        self._seen = seen
        self._transaction = connection.get_transaction()

    def commit(self, row: SinkRow) -> bool:
        """Change the row and commit it with the handler's statements."""
        connection = self.handle
        try:
            if self._transaction is None or not self._transaction.is_active:
                raise SinkError(
                    "the handler ended the sink's transaction by itself: after commit(), its writes are stored without the position; "
                    "after rollback(), they are lost. Leave both to the worker; begin_nested() makes a savepoint"
                )
            if not self._sink.change(connection, self._key, self._seen, row):
                self.rollback()
                return False
            self._transaction.commit()
        except BaseException:
            self._sink.on_failure(self._key)
            raise
        finally:
            self._close()
        return True

    def rollback(self) -> None:
        """Discard the handler's statements."""
        self._sink.on_failure(self._key)
        self._close()

    def _close(self) -> None:
        # Closing rolls back. If that fails, the connection is lost, and the database discards the transaction.
        from sqlalchemy.exc import SQLAlchemyError

        with suppress(SQLAlchemyError):
            self.handle.close()


class SqlSink:
    """A `Sink` in a SQL database, through SQLAlchemy Core (extra ``sql``).

    ```python
    sink = SqlSink("sqlite:///totals.db")

    def handle(batch):
        for record in batch.records:
            batch.transaction.execute(insert(orders).values(id=record.id, data=record.data))

    Worker("orders", application_name="totals", handler=handle, sink=sink).run()
    ```

    ``batch.transaction`` is a `sqlalchemy.Connection` with an open transaction. The worker commits it when the handler returns, and
    rolls it back when the handler raises. Each transaction holds a connection of the engine's pool. With more shards than
    connections, some shards wait (``create_engine(pool_size=…)``).

    The table is created if it is missing, in the first schema of the database or the given schema. Several applications can
    share the table. SQLite has one writer at a time, so the shards of an application take turns. From its first statement on,
    a transaction reads data that no other transaction can change. Other databases read at the isolation level of the engine.

    In PostgreSQL, a process that is stopped inside a transaction (SIGSTOP, a paused machine, a cut network) does not keep its rows
    locked. The worker that takes the shard ends the process's session, which the same database user may do, and the server ends this
    session after ``idle_timeout`` in any case. In SQLite, such a process blocks all writers until it ends.

    Args:
        database: A SQLAlchemy URL, or an engine.
        table: Name of the table with the positions.
        schema: Schema of the database that holds the table; None is the default schema.
        idle_timeout: PostgreSQL: maximum seconds between two statements of the handler's transaction, for example while it calls
            another service; 1 to 86,400. After that, the server ends the transaction, and the batch is processed again. Applies
            unless the server, the user or the engine sets ``idle_in_transaction_session_timeout``. None sets no limit.
        lock_timeout: PostgreSQL: maximum seconds for which a statement of the handler waits for another session's lock; 0.1 to
            86,400. After that, the statement fails, and the batch is processed again. Applies unless the server, the user or the
            engine sets ``lock_timeout``. None sets no limit: the shard waits for as long as the other session keeps the lock.

    Attributes:
        engine: The engine.

    Raises:
        ConfigError: If the database is neither a URL nor an engine, neither SQLite nor PostgreSQL, or a SQLite database in
            memory.
        ImportError: If SQLAlchemy or the driver is not installed.
    """

    max_records: int | None = None

    def __init__(
        self,
        database: str | Engine,
        *,
        table: str = TABLE,
        schema: str | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT,
        lock_timeout: float | None = LOCK_TIMEOUT,
    ) -> None:
        if idle_timeout is not None:
            check_seconds("idle_timeout", idle_timeout, 1, 86_400)
        if lock_timeout is not None:
            check_seconds("lock_timeout", lock_timeout, 0.1, 86_400)
        sqlalchemy = import_sqlalchemy()
        self.engine: Engine = open_engine("database", database)
        self._owns_engine = isinstance(database, str)
        column, text, number = sqlalchemy.Column, sqlalchemy.String, sqlalchemy.BigInteger
        metadata = sqlalchemy.MetaData()
        # The lengths are the maxima of Kinesis.
        self._table = sqlalchemy.Table(
            table,
            metadata,
            column("application", text(255), primary_key=True),
            column("stream", text(255), primary_key=True),
            column("lease_key", text(255), primary_key=True),
            column("sequence_number", text(129)),
            column("sub_sequence_number", number),
            column("fence", number, nullable=False),
            column("ended", sqlalchemy.Boolean, nullable=False),
            schema=schema,
        )
        self._tables = Tables(self.engine, table, _VERSION, metadata, schema=schema)
        self._dialect = dialect_of(self.engine)
        self._sessions = self._dialect.shard_sessions(self._table, idle_timeout, lock_timeout)
        # Shards with a failed transaction, whose session may still be open in the server, for example behind a cut network.
        self._failed: set[SinkKey] = set()
        # The only writer has the lock from the beginning of its transaction, so none of its statements waits for
        # another transaction.
        self.serves_coroutines: bool = self._dialect.has_one_writer

    def ensure_ready(self) -> None:
        """Create the table if it is missing; check its version, and that the engine can roll back.

        Raises:
            ConfigError: If the server rejects the user, the password or the database.
            SinkError: If the database cannot be used.
        """
        try:
            self._tables.ensure(SinkError)
            if self._sessions is not None and not self._sessions.works_on(self.engine):
                self._sessions = None
        except Exception as error:
            check_refusal("database", self.engine, error)
            raise self._translated(error) from error

    def close(self) -> None:
        """Close the connections, unless the engine was passed in."""
        if self._owns_engine:
            self.engine.dispose()

    def read(self, key: SinkKey) -> SinkRow | None:
        """Return a row, or None."""
        table = self._table
        try:
            with self.engine.connect() as connection:
                found = connection.execute(table.select().where(*self._is(key))).one_or_none()
        except Exception as error:
            raise self._translated(error) from error
        if found is None:
            return None
        number, sub = found.sequence_number, found.sub_sequence_number
        position = None if number is None else ExtendedSequenceNumber(number, int(sub))
        return SinkRow(position, int(found.fence), bool(found.ended))

    def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """Change or create a row."""
        try:
            return self._write(key, seen, row)
        except Exception as error:
            if self._sessions is None or state_of(error) != LOCK_NOT_AVAILABLE:
                raise self._translated(error) from error
            locked = error
        # An earlier owner of the shard is stopped between its write of the row and its commit.
        try:
            if self._ends_stopped(key):
                return self._write(key, seen, row)
        except Exception as error:
            if state_of(error) != LOCK_NOT_AVAILABLE:
                raise self._translated(error) from error
        raise TransientSinkError(f"{self._explain(key)} has the row of {'/'.join(key)} locked") from locked

    def _write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        from sqlalchemy.exc import IntegrityError

        try:
            with self.engine.begin() as connection:
                if self._sessions is not None:
                    self._sessions.begin_claim(connection, key)
                if seen is None:
                    connection.execute(self._table.insert().values(**key._asdict(), **_values(row)))
                elif not self.change(connection, key, seen, row):
                    return False
                if self._sessions is not None:
                    # While this transaction has the row, no other worker can claim it. So all other sessions of the shard belong
                    # to earlier owners and can no longer commit.
                    self._sessions.end_stopped(connection, key)
                return True
        except IntegrityError:
            return False  # another worker created it after it was read

    def _ends_stopped(self, key: SinkKey) -> bool:
        with self.engine.connect() as connection:
            return self._sessions is not None and self._sessions.end_stopped(connection, key)

    def _explain(self, key: SinkKey) -> str:
        try:
            with self.engine.connect() as connection:
                assert self._sessions is not None
                return self._sessions.explain(connection, self._is(key))
        except Exception as error:
            raise self._translated(error) from error

    def begin(self, key: SinkKey, seen: SinkRow) -> SqlTransaction | None:
        """Begin a transaction."""
        try:
            connection = self.engine.connect()
        except Exception as error:
            raise self._translated(error) from error
        try:
            if self._dialect.has_one_writer:
                # Write first: SQLite's driver begins a transaction at the first statement that writes. Otherwise the handler
                # reads a total of 5, another shard commits 6, and the handler writes 5 + 1.
                unchanged = self.change(connection, key, seen, seen)
            else:
                query = self._table.select().where(*self._is(key), *self._as(seen))
                if self._sessions is not None:
                    query = query.add_columns(*self._sessions.of_handler(key))
                unchanged = connection.execute(query).one_or_none() is not None
                if unchanged and self._sessions is not None and key in self._failed:
                    self._sessions.end_stopped(connection, key)
                    self._failed.discard(key)
            if unchanged:
                return SqlTransaction(self, connection, key, seen)
        except BaseException as error:
            # Close even if a coroutine is cancelled here. Otherwise the connection keeps SQLite's only lock for writers until it
            # is garbage collected.
            with suppress(Exception):
                connection.close()
            problem = self._translated(error)
            if problem is error:
                raise
            raise problem from error
        connection.close()
        return None

    def lease_keys(self, application: str, stream: str) -> list[str]:
        """Return the lease keys of all rows of an application and a stream."""
        columns = self._table.c
        query = import_sqlalchemy().select(columns.lease_key)
        query = query.where(columns.application == application, columns.stream == stream)
        try:
            with self.engine.connect() as connection:
                return [str(key) for key in connection.execute(query).scalars()]
        except Exception as error:
            raise self._translated(error) from error

    def delete_ended(self, key: SinkKey) -> bool:
        """Delete the row of a finished shard."""
        statement = self._table.delete().where(*self._is(key), self._table.c.ended.is_(True))
        try:
            with self.engine.begin() as connection:
                if self._sessions is not None:
                    self._sessions.begin_claim(connection, key)
                return bool(connection.execute(statement).rowcount)
        except Exception as error:
            raise self._translated(error) from error

    def change(self, connection: Connection, key: SinkKey, seen: SinkRow, row: SinkRow) -> bool:
        """Change a row in an open transaction, if the row has not changed."""
        statement = self._table.update().where(*self._is(key), *self._as(seen)).values(**_values(row))
        return connection.execute(statement).rowcount == 1

    def on_failure(self, key: SinkKey) -> None:
        """Remember that a transaction of a shard did not commit."""
        if self._sessions is not None:
            self._failed.add(key)

    def translate(self, error: BaseException) -> BaseException:
        """Return `TransientSinkError` for a failure of the database that is usually temporary, otherwise the error itself.

        The handler may have wrapped the failure in its own error, or used a cursor of the driver.
        """
        driver_errors = (self.engine.dialect.loaded_dbapi.Error,)
        return translated(self._dialect, error, TransientSinkError, driver_errors=driver_errors)

    def _translated(self, error: BaseException) -> BaseException:
        return translated(self._dialect, error, TransientSinkError, SinkError)

    def _is(self, key: SinkKey) -> list[Any]:
        return [self._table.c[name] == value for name, value in key._asdict().items()]

    def _as(self, row: SinkRow) -> list[Any]:
        columns = self._table.c
        # `== None` is IS NULL in SQLAlchemy.
        return [columns[name] == value for name, value in _values(row).items()]


class AsyncSqlTransaction:
    """A transaction of an `AsyncSqlSink`.

    Attributes:
        handle: The `sqlalchemy.ext.asyncio.AsyncConnection` on which the handler works.
    """

    def __init__(self, engine: AsyncEngine, inner: SqlTransaction) -> None:
        from sqlalchemy.ext.asyncio import AsyncConnection

        self.handle: AsyncConnection = AsyncConnection(engine, inner.handle)
        self._inner = inner

    async def commit(self, row: SinkRow) -> bool:
        """Change the row and commit it with the handler's statements."""
        return await _in_greenlet(self._inner.commit, row)

    async def rollback(self) -> None:
        """Discard the handler's statements."""
        await _in_greenlet(self._inner.rollback)


class AsyncSqlSink:
    """A sink in a SQL database for handlers that are coroutine functions: none of its statements blocks the event loop.

    ```python
    sink = AsyncSqlSink("postgresql+psycopg://host/totals")

    async def handle(batch):
        for record in batch.records:
            await batch.transaction.execute(insert(orders).values(id=record.id, data=record.data))

    Worker("orders", application_name="totals", handler=handle, sink=sink).run()
    ```

    ``batch.transaction`` is a `sqlalchemy.ext.asyncio.AsyncConnection` with an open transaction. In all other respects,
    the sink works like `SqlSink`. Both sinks use the same table, so a worker can change from one sink to the other.

    The connections of an asynchronous engine belong to one event loop, here the worker's. So do not use an engine that you pass in
    anywhere else in the process.

    Args:
        database: A SQLAlchemy URL with an asynchronous driver, for example ``postgresql+psycopg://…``, ``postgresql+asyncpg://…`` or
            ``sqlite+aiosqlite:///totals.db``, or an engine of ``create_async_engine``.
        table: Name of the table with the positions.
        schema: Schema of the database that holds the table; None is the default schema.
        idle_timeout: As for `SqlSink`.
        lock_timeout: As for `SqlSink`.

    Attributes:
        engine: The engine.

    Raises:
        ConfigError: If the database is neither a URL nor an engine, its driver is not asynchronous, or it is a SQLite database in
            memory.
        ImportError: If SQLAlchemy, greenlet or the driver is not installed.
    """

    max_records: int | None = None

    def __init__(
        self,
        database: str | AsyncEngine,
        *,
        table: str = TABLE,
        schema: str | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT,
        lock_timeout: float | None = LOCK_TIMEOUT,
    ) -> None:
        self.engine: AsyncEngine = open_async_engine("database", database)
        self._owns_engine = isinstance(database, str)
        self._inner = SqlSink(
            self.engine.sync_engine,
            table=table,
            schema=schema,
            idle_timeout=idle_timeout,
            lock_timeout=lock_timeout,
        )

    async def ensure_ready(self) -> None:
        """As `SqlSink.ensure_ready`."""
        await _in_greenlet(self._inner.ensure_ready)

    async def close(self) -> None:
        """Close the connections, unless the engine was passed in."""
        if self._owns_engine:
            await self.engine.dispose()

    async def read(self, key: SinkKey) -> SinkRow | None:
        """Return a row, or None."""
        return await _in_greenlet(self._inner.read, key)

    async def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """Change or create a row."""
        return await _in_greenlet(self._inner.write, key, seen, row)

    async def lease_keys(self, application: str, stream: str) -> list[str]:
        """Return the lease keys of all rows of an application and a stream."""
        return await _in_greenlet(self._inner.lease_keys, application, stream)

    async def delete_ended(self, key: SinkKey) -> bool:
        """Delete the row of a finished shard."""
        return await _in_greenlet(self._inner.delete_ended, key)

    async def begin(self, key: SinkKey, seen: SinkRow) -> AsyncSqlTransaction | None:
        """Begin a transaction."""
        inner = await _in_greenlet(self._inner.begin, key, seen)
        return None if inner is None else AsyncSqlTransaction(self.engine, inner)

    def translate(self, error: BaseException) -> BaseException:
        """As `SqlSink.translate`."""
        return self._inner.translate(error)


async def _in_greenlet(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function that uses the synchronous engine inside an asynchronous engine."""
    from sqlalchemy.util.concurrency import greenlet_spawn

    return await greenlet_spawn(function, *arguments)


def _values(row: SinkRow) -> dict[str, Any]:
    position = row.position
    return {
        "sequence_number": None if position is None else position.sequence_number,
        "sub_sequence_number": None if position is None else position.sub_sequence_number,
        "fence": row.fence,
        "ended": row.ended,
    }
