"""This package's tables in a database, and their versions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4
from weakref import ref

from kinesis_sdk.common.errors import KinesisSdkError, TransientSinkError
from kinesis_sdk.consumer.sql.dialect import dialect_of
from kinesis_sdk.consumer.sql.driver import import_sqlalchemy
from kinesis_sdk.consumer.sql.failures import translated

if TYPE_CHECKING:
    import sqlalchemy
    from sqlalchemy.engine import Connection, Engine

_T = TypeVar("_T")

_VERSIONS = "kinesis_sdk_versions"


class Tables:
    """The tables of one part of this package (for example ``positions``), and their version. Thread-safe.

    A ``schema`` of None is the database's default schema.
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
        """Create missing tables and check their version; raise ``failure`` if they have another version.

        With ``needs_transactions``, also raise it if the engine commits each statement. Errors of the database are not translated.
        """
        from sqlalchemy import exc

        with self._lock:
            for _ in self._metadata.tables:
                # After this worker's check, another worker may create a missing table, and a different one at each
                # attempt.
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
                    # Another worker stored it first, perhaps while this process was frozen and its transaction was ended.
                    stored = self._stored_version()
                    if stored is None:
                        raise
                else:
                    stored = self._version
            self._check_version(stored, failure)
            if needs_transactions:
                self._check_transactions(failure)

    def ensure_in(self, connection: Connection, failure: type[KinesisSdkError]) -> bool:
        """Do the same as `ensure` in an open transaction, because another connection could not write while SQLite's only lock is held.

        Return whether the tables already existed.
        """
        self._metadata.create_all(connection)
        stored = self._version_in(connection, import_sqlalchemy(), self._part)
        if stored is None:
            connection.execute(self._versions.insert().values(part=self._part, version=self._version))
            return False
        self._check_version(stored, failure)
        return True

    def exist(self, failure: type[KinesisSdkError]) -> bool:
        """Return whether the tables exist, without creating them; raise ``failure`` if the tables have another version."""
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
                f"the tables of {self._part} have version {stored}, and this release of kinesis_sdk supports version "
                f"{self._version}: run the release that created them, or a newer release"
            )

    def _create_all(self) -> None:
        with self._engine.begin() as connection:
            self._limit(connection)
            self._metadata.create_all(connection)

    def _limit(self, connection: Connection) -> None:
        """Limit the transaction, so that a process that freezes in it does not block the start of other workers."""
        limits = dialect_of(self._engine).own_limits()
        if limits:
            connection.execute(import_sqlalchemy().select(*limits))

    def _stored_version(self) -> int | None:
        import sqlalchemy

        with self._engine.connect() as connection:
            return self._version_in(connection, sqlalchemy, self._part)

    def _version_in(self, connection: Connection, sqlalchemy: Any, part: str) -> int | None:
        query = sqlalchemy.select(self._versions.c.version).where(self._versions.c.part == part)
        version: int | None = connection.execute(query).scalar_one_or_none()
        return version

    def _check_transactions(self, failure: type[KinesisSdkError]) -> None:
        """Check that a rollback undoes a write: an ``AUTOCOMMIT`` engine would store effects without their position."""
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


class SharedTables:
    """`Tables` that are written in transactions of their own and of a sink. The first transaction makes the tables. Thread-safe.

    Errors of the database are raised as `TransientSinkError`, without parameters.
    """

    def __init__(self, engine: Engine, part: str, version: int, metadata: sqlalchemy.MetaData) -> None:
        self._tables = Tables(engine, part, version, metadata)
        self._dialect = dialect_of(engine)
        self._lock = threading.Lock()
        self._is_ready = False
        self._created_in: ref[Connection] | None = None

    def ensure(self) -> None:
        """Create missing tables and check their version, the first time."""
        with self._lock:
            if not self._is_ready:
                self.guarded(lambda: self._tables.ensure(TransientSinkError))
                self._is_ready = True

    def ensure_in(self, connection: Connection) -> None:
        """Do the same as `ensure` in an open transaction of a sink.

        The tables are ready once another transaction has seen them, because the transaction that created them may call this again, and may
        still be rolled back.
        """
        if self._is_ready:
            return
        if not self._tables.ensure_in(connection, TransientSinkError):
            self._created_in = ref(connection)
        elif self._created_in is None or self._created_in() is not connection:
            self._is_ready = True

    def guarded(self, work: Callable[[], _T]) -> _T:
        """Call a function that uses the database; return its result."""
        try:
            return work()
        except Exception as error:
            found = translated(self._dialect, error, TransientSinkError, TransientSinkError)
            if found is error:
                raise
            raise found from error
