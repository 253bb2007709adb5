"""PostgreSQL: the locks of a process that is stopped inside a transaction, and how other workers get them.

The server cannot distinguish a stopped process (SIGSTOP, a paused machine, a cut network) from a slow process: it waits for the process,
and keeps the locks of its transaction.

```
worker A   begin: mark, limit ── INSERT ──╳ stopped             ┌► goes on: its session is gone, its transaction rolled back,
           server: waits for A, keeps A's locks ────────────────┤  its lease lost
worker B   takes the lease ── claim: write the row ── end the sessions with the shard's mark ── commit ── next batch
```

- *The mark* is a shared advisory lock on the shard. Each transaction of the shard holds the mark, and no transaction ever waits for it.
  Once a worker has written the shard's row, all other sessions with the mark belong to earlier owners, and can no longer commit.
- *Only sessions that wait for their process* for `_PATIENCE` seconds are ended. A session in which the server works (a long statement, a
  commit that waits for a replica) is not ended.
- *The limit* (``idle_in_transaction_session_timeout``) is for stopped processes whose shards no worker takes. The limit alone does not
suffice: in the middle of a result, or of ``executemany``, which is one pipeline, the server does not count a session as idle.

All settings apply to one transaction only, so they work with the user's own engine, and a pooler such as PgBouncer does not pass
them on.
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
"""Seconds for which a transaction of this package alone may be idle."""

_OWN_LOCK_SECONDS = 10.0
"""Seconds for which a statement waits for another process's transaction of this kind, which the server ends earlier."""

_PATIENCE = 1
"""Seconds for which the server must have waited for a process before its session is ended."""

_LOCK_TIMEOUT = 2.0
"""Seconds for which a claim waits for the row before it checks which session has locked it."""

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
    """Marks the transactions of shards, and ends transactions of stopped processes. Thread-safe.

    Args:
        idle_timeout: Seconds for which a transaction of a handler may be idle, if neither the server nor the user has set
            ``idle_in_transaction_session_timeout``; None sets no limit.
        lock_timeout: Seconds for which a statement of a handler may wait for a lock, with the same exceptions.
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
        """Return whether the server supports and permits marks and ending sessions; raise transient errors.

        Some servers that use PostgreSQL's protocol do not.
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
                "the database does not let this user end the transactions of stopped processes (%s): the locks of such a process "
                "stay until it ends",
                type(error.orig).__name__,
                extra=log_fields(),
            )
            return False
        return True

    def of_handler(self, key: ShardKey) -> list[Any]:
        """Return columns to select at the start of a handler's transaction; the columns mark and limit the transaction."""
        limits = [] if self._idle_timeout is None else [idle_limit(self._idle_timeout)]
        if self._lock_timeout is not None:
            limits.append(lock_limit(self._lock_timeout))
        return [self._mark(key), *limits]

    def begin_claim(self, connection: Connection, key: ShardKey) -> None:
        """Mark and limit the transaction of a claim."""
        connection.execute(self._sqlalchemy.select(self._mark(key), *own_limits(_LOCK_TIMEOUT)))

    def end_stopped(self, connection: Connection, key: ShardKey) -> bool:
        """End other sessions with a transaction of the shard that wait for their process; return whether there were any.

        The locks of these sessions are free soon after.
        """
        # Advisory locks belong to the whole database. Another schema may have a table of the same name, with rows of the same
        # shard, so only a session that has used this very table in its transaction belongs to an earlier owner.
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
        """Describe the session that has locked the row which ``conditions`` select."""
        sqlalchemy = self._sqlalchemy
        # The row's system column xmax names the transaction that changed or locked it.
        locker = connection.execute(
            sqlalchemy.select(sqlalchemy.cast(sqlalchemy.literal_column("xmax"), sqlalchemy.Text))
            .select_from(self._table)
            .where(*conditions)
        ).scalar_one_or_none()
        query = _EXPLAIN + " AND CAST(l.transactionid AS text) = :locker"
        found = connection.execute(sqlalchemy.text(query), {"locker": locker or ""}).first()
        if found is None:
            return "another transaction"
        # The server shows the state only of the same user's sessions.
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
        """Return the two halves of a shard's lock number, in the form that pg_locks shows."""
        name = repr((self._table.fullname, *key)).encode()
        number = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
        return {"high": number >> 32, "low": number & 0xFFFFFFFF}


def idle_limit(seconds: float) -> Any:
    """Return an expression that limits the idle time of the transaction, unless server, user or engine set a limit."""
    return _limit_unless_set(IDLE_TIMEOUT_SETTING, seconds)


def lock_limit(seconds: float) -> Any:
    """Return an expression that limits a statement's wait for a lock, unless server, user or engine set a limit."""
    return _limit_unless_set(_LOCK_TIMEOUT_SETTING, seconds)


def _limit_unless_set(name: str, seconds: float) -> Any:
    sqlalchemy = import_sqlalchemy()
    return sqlalchemy.case((sqlalchemy.func.current_setting(name, True) == "0", _set_local(name, seconds)))


def own_limits(lock_seconds: float = _OWN_LOCK_SECONDS) -> list[Any]:
    """Return expressions that limit a transaction in which only this package sends statements.

    The server ends the transaction if its process stops, and none of its statements waits longer than ``lock_seconds`` for a
    lock.
    """
    sqlalchemy = import_sqlalchemy()
    return [
        # A database that speaks PostgreSQL's protocol may lack the setting.
        sqlalchemy.case((sqlalchemy.func.current_setting(name, True).is_not(None), _set_local(name, seconds)))
        for name, seconds in (
            (IDLE_TIMEOUT_SETTING, _OWN_IDLE_SECONDS),
            (_LOCK_TIMEOUT_SETTING, lock_seconds),
        )
    ]


def _set_local(name: str, seconds: float) -> Any:
    """Return an expression that changes a setting until the end of the transaction."""
    return import_sqlalchemy().func.set_config(name, f"{max(1, round(seconds * 1000))}ms", True)
