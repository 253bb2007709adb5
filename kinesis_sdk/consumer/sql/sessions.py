"""PostgreSQL: the locks of a process that is stopped inside a transaction, and how other workers get them.

The server cannot tell a process that is stopped (SIGSTOP, a paused machine, a cut network) from one that is slow: it waits for the
process, and keeps the locks of its transaction.

```
worker A   begin: mark, limit ── INSERT ──╳ stopped             ┌► goes on: its session is gone, its transaction rolled back,
           server: waits for A, keeps A's locks ────────────────┤  its lease lost
worker B   takes the lease ── claim: write the row ── end the sessions with the shard's mark ── commit ── next batch
```

- *The mark* is a shared advisory lock on the shard, which each transaction of the shard holds and for which none ever waits. A worker
  that has written the shard's row can tell by it which sessions belong to earlier owners. None of them could commit.
- *Only sessions that wait for their process* for `_PATIENCE` seconds are ended. One in which the server works (a long statement,
  a commit that waits for a replica) is left alone.
- *The limit* (``idle_in_transaction_session_timeout``) is for stopped processes whose shards no worker takes. Alone it would not do: in
  the middle of ``executemany``, which is one pipeline, or of a result, a session is not idle in the server's eyes.

Everything is set for one transaction only, so it holds with the user's own engine, and a pooler such as PgBouncer does not hand it on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.consumer.sql.driver import import_sqlalchemy

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

_LOGGER = FieldLogger(logging.getLogger(__name__))

IDLE_TIMEOUT_SETTING = "idle_in_transaction_session_timeout"
"""Setting of PostgreSQL: the server ends a session whose transaction waits longer for its next statement."""
_LOCK_TIMEOUT_SETTING = "lock_timeout"

_OWN_IDLE_SECONDS = 5.0
"""Seconds for which a transaction may be idle in which only this package sends statements."""

_OWN_LOCK_SECONDS = 10.0
"""Seconds for which a statement waits for such a transaction of another process. The server has ended that by then."""

_PATIENCE = 1
"""Seconds for which the server must have waited for a process before its session is ended."""

_LOCK_TIMEOUT = 2.0
"""Seconds for which a claim waits for the row before it checks which session has it."""

LOCK_NOT_AVAILABLE = "55P03"
"""State of a statement that waited longer than the lock timeout."""

_MARKED = """
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND a.datid = l.database AND a.datname = current_database()
AND CAST(l.classid AS bigint) = :high AND CAST(l.objid AS bigint) = :low AND a.pid <> pg_backend_pid()
"""

_USES_TABLE = """
EXISTS (
SELECT 1 FROM pg_locks t WHERE t.pid = a.pid AND t.locktype = 'relation' AND t.database = l.database
AND t.relation = CAST(to_regclass(CAST(:table AS text)) AS oid)
)
"""

_END = f"""
SELECT a.pid, pg_terminate_backend(a.pid) {_MARKED}
AND pg_has_role(a.usesysid, 'USAGE') AND a.wait_event_type = 'Client'
AND a.state_change < clock_timestamp() - interval '{_PATIENCE} second'
AND {_USES_TABLE}
"""

_EXPLAIN = """
SELECT a.pid, a.usename, a.application_name, a.state, a.wait_event_type,
CAST(extract(epoch FROM clock_timestamp() - a.state_change) AS integer) AS seconds
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
"""


ShardKey = tuple[str, str, str]
"""Application, stream and lease key of a shard."""


class ShardSessions:
    """Marks the transactions of shards, and ends those of stopped processes. Thread-safe.

    Args:
        table: The table of positions.
        idle_timeout: Seconds for which a transaction of a handler may be idle, if neither the server nor the user has set
            ``idle_in_transaction_session_timeout``; None sets nothing.
        lock_timeout: Seconds for which a statement of a handler may wait for a lock, with the same exceptions.
        is_transient: Returns whether an error of the database usually passes.
    """

    def __init__(
        self,
        table: Any,
        idle_timeout: float | None,
        lock_timeout: float | None,
        is_transient: Callable[[BaseException], bool],
    ) -> None:
        self._is_transient = is_transient
        self._sqlalchemy = import_sqlalchemy()
        self._table = table
        self._idle_timeout = idle_timeout
        self._lock_timeout = lock_timeout

    def works_on(self, engine: Engine) -> bool:
        """Return whether a server can do all this. Others that speak PostgreSQL's protocol may lack it, or not permit it.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: If the database failed in a way that usually passes.
        """
        nobody = ("", "", "")
        try:
            with engine.connect() as connection:
                connection.execute(self._sqlalchemy.select(*self.of_handler(nobody)))
                self.end_stopped(connection, nobody)
        except self._sqlalchemy.exc.DBAPIError as error:
            if error.connection_invalidated or self._is_transient(error):
                raise
            _LOGGER.warning(
                "the database does not let this user end the transactions of stopped processes (%s): what such a process has "
                "locked stays locked until it ends",
                type(error.orig).__name__,
                extra=log_fields(),
            )
            return False
        return True

    def of_handler(self, key: ShardKey) -> list[Any]:
        """Return columns that, selected at the beginning of a handler's transaction, mark and limit it."""
        limits = [] if self._idle_timeout is None else [idle_limit(self._idle_timeout)]
        if self._lock_timeout is not None:
            limits.append(lock_limit(self._lock_timeout))
        return [self._mark(key), *limits]

    def begin_claim(self, connection: Connection, key: ShardKey) -> None:
        """Mark and limit the transaction of a claim."""
        connection.execute(self._sqlalchemy.select(self._mark(key), *own_limits(_LOCK_TIMEOUT)))

    def end_stopped(self, connection: Connection, key: ShardKey) -> bool:
        """End the other sessions with a transaction of a shard that wait for their process. Their locks are free soon after.

        Returns:
            Whether there were any.
        """
        # Advisory locks belong to the whole database. Another schema may have a table of the same name, with rows of the same shard:
        # only who has used this very table in the transaction is an earlier owner.
        quoted = connection.dialect.identifier_preparer
        schema = connection.schema_for_object(self._table)  # the engine may translate it
        table = quoted.format_table(self._table, use_schema=False)
        if schema is not None:
            table = f"{quoted.quote_schema(schema)}.{table}"
        parameters = {**self._halves(key), "table": table}
        ended = connection.execute(self._sqlalchemy.text(_END), parameters).all()
        for row in ended:
            _LOGGER.warning(
                "shard %s: ended database session %d, in which the server waited for an earlier owner of the shard",
                key[2],
                row[0],
                extra=log_fields(stream=key[1], shard=key[2].rpartition(":")[2]),
            )
        return bool(ended)

    def explain(self, connection: Connection, conditions: list[Any]) -> str:
        """Return which session has a row of the table locked, in words.

        Args:
            connection: A connection.
            conditions: Select the row.
        """
        sqlalchemy = self._sqlalchemy
        # A row that a transaction has changed or locked names it in its system column xmax.
        locker = connection.execute(
            sqlalchemy.select(sqlalchemy.cast(sqlalchemy.literal_column("xmax"), sqlalchemy.Text))
            .select_from(self._table)
            .where(*conditions)
        ).scalar_one_or_none()
        query = _EXPLAIN + " AND CAST(l.transactionid AS text) = :locker"
        found = connection.execute(sqlalchemy.text(query), {"locker": locker or ""}).first()
        if found is None:
            return "another transaction"
        # The server shows the state of sessions of the same user only.
        state = f", {found.state} for {found.seconds} s" if found.state else ""
        name = f", {found.application_name}" if found.application_name else ""
        return f"database session {found.pid} (user {found.usename}{name}{state})"

    def _mark(self, key: ShardKey) -> Any:
        halves = self._halves(key)
        number = (halves["high"] << 32) + halves["low"]
        signed = number - (1 << 64) if number >> 63 else number
        sqlalchemy = self._sqlalchemy
        return sqlalchemy.func.pg_try_advisory_xact_lock_shared(
            sqlalchemy.literal(signed, sqlalchemy.BigInteger)
        )

    def _halves(self, key: ShardKey) -> dict[str, int]:
        """Return the two halves of a number for a shard, as pg_locks shows them."""
        name = repr((self._table.fullname, *key)).encode()
        number = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
        return {"high": number >> 32, "low": number & 0xFFFFFFFF}


def idle_limit(seconds: float) -> Any:
    """Return an expression for PostgreSQL that limits for how long the transaction may wait for its next statement.

    It changes nothing if the server, the user or the engine sets a limit.
    """
    return _limit_unless_set(IDLE_TIMEOUT_SETTING, seconds)


def lock_limit(seconds: float) -> Any:
    """Return an expression for PostgreSQL that limits for how long a statement of the transaction may wait for a lock.

    It changes nothing if the server, the user or the engine sets a limit.
    """
    return _limit_unless_set(_LOCK_TIMEOUT_SETTING, seconds)


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
        for name, seconds in (
            (IDLE_TIMEOUT_SETTING, _OWN_IDLE_SECONDS),
            (_LOCK_TIMEOUT_SETTING, lock_seconds),
        )
    ]


def _set_local(name: str, seconds: float) -> Any:
    """Return an expression that changes a setting of PostgreSQL until the end of the transaction."""
    return import_sqlalchemy().func.set_config(name, f"{max(1, round(seconds * 1000))}ms", True)
