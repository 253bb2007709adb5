"""`RetryTable`: failed records wait as rows in a table of the user's SQL database.

```
handler fails ─► take: INSERT row (tier 0) + position      ─┐
later record of its key (in_order) ─► INSERT row + position ─┤  the transaction of the sink
                                                             ▼
RetryWorker: first due row ─► handler ─► returns: DELETE row + effects │ raises: row to the next tier │ last tier: dead letter, DELETE
```
Due times are written and compared only with the database's clock.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.dead_letters import History, Origin
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.errors import ConfigError, ConsumerError, TransientSinkError
from kinesis_sdk.common.headers import encode_headers, headers_in
from kinesis_sdk.common.record_ids import located_record_type, record_id
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.validation import check_text
from kinesis_sdk.consumer import RecordBatch
from kinesis_sdk.consumer.sql import (
    SharedTables,
    dialect_of,
    import_sqlalchemy,
    is_shared,
    open_engine,
    run_in,
    translated,
)

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

_Handler = TypeVar("_Handler", bound=Callable[[RecordBatch], object])

TABLE = "kinesis_sdk_retries"
"""Default name of the table."""

_VERSION = 1
_KEYS = 500
"""Maximum partition keys of one query."""
_NO_HANDLER = (
    "the handler was never wrapped by in_order() in this process, so the order of keys would be lost"
)


class Waiting(NamedTuple):
    """Rows of one tier.

    Attributes:
        tier: The tier, from 0.
        records: Number of records, including records that wait for another record of their key.
        late: Seconds since the oldest of them was due; 0 or less if none is due.
    """

    tier: int
    records: int
    late: float


@dataclass(frozen=True)
class Row:
    """A record that waits.

    Attributes:
        place: Number of the row in the order in which rows were stored.
        record: The record as passed to a handler, with its original id, and its history in the headers.
        stream: Name of its stream.
        shard_id: Its shard.
        tier: Its tier, from 0.
        attempts: Failed deliveries in this tier.
        has_failed: Whether the record was stored because it failed; otherwise it only waits for an earlier record with its key.
    """

    place: int
    record: UserRecord
    stream: str
    shard_id: str
    tier: int
    attempts: int
    has_failed: bool


class RetryTable:
    """Tiers of `RetryTiers` in a table of a SQL database (extra ``sql``): SQLite or PostgreSQL. Thread-safe.

    With ``Worker(sink=SqlSink(…))`` on the same database, the row of a record is stored in the transaction that moves the position
    past it, and deleted in the transaction of its effects: each record takes effect exactly once. With another sink or without a sink, a
    crash after the row is stored and before the checkpoint leads to another delivery, so the record is processed at least once.

    A `RetryWorker` delivers the rows that are due.

    Args:
        database: SQLAlchemy URL, for example ``sqlite:///totals.db``, or an engine, usually the engine of the sink.
        application_name: Name of the application, 1 to 255 characters; several applications may share the table.
        keep_order: Whether later records of a partition key wait for an earlier record in the table. Then the worker's handler has to be
            ``in_order(handler)``, and its sink a `SqlSink` on this database.
        table: Name of the table, which is created if it is missing.
        clock: Wall clock that replaces the database's clock in tests.

    Attributes:
        engine: The engine.
        tables: The table in the database, for `RetryWorker`.

    Raises:
        ConfigError: If an argument is not valid.
        ImportError: If SQLAlchemy, or the driver, is not installed.
    """

    def __init__(
        self,
        database: str | Engine,
        *,
        application_name: str,
        keep_order: bool = False,
        table: str = TABLE,
        clock: Clock | None = None,
    ) -> None:
        check_text("application_name", application_name, 1, 255)
        sa = import_sqlalchemy()
        self.engine: Engine = open_engine("database", database)
        self.keeps_order: bool = keep_order
        self._owns_engine = isinstance(database, str)
        self._application = application_name
        self._clock = clock
        self._is_wrapped = False
        self._delays: tuple[float, ...] = ()
        self._dialect = dialect_of(self.engine)
        metadata = sa.MetaData()
        number, text = sa.BigInteger, sa.Text
        self._rows = sa.Table(
            table,
            metadata,
            # SQLite assigns numbers only to a primary key of type INTEGER.
            sa.Column("place", number().with_variant(sa.Integer, "sqlite"), primary_key=True),
            sa.Column("application", sa.String(255), nullable=False),
            sa.Column("record_id", sa.String(400), nullable=False),
            sa.Column("stream", sa.String(128), nullable=False),
            sa.Column("shard_id", sa.String(128), nullable=False),
            # A text column does not accept every character that a key may contain.
            sa.Column("partition_key", sa.LargeBinary, nullable=False),
            sa.Column("explicit_hash_key", text),
            sa.Column("arrived", number),
            sa.Column("headers", sa.LargeBinary, nullable=False),
            sa.Column("data", sa.LargeBinary, nullable=False),
            sa.Column("tier", sa.Integer, nullable=False),
            sa.Column("attempts", sa.Integer, nullable=False),
            sa.Column("has_failed", sa.Boolean, nullable=False),
            sa.Column("due", number, nullable=False),
            sa.UniqueConstraint("application", "record_id"),
            sa.Index(f"{table}_due", "application", "due"),
            sa.Index(f"{table}_key", "application", "stream", "partition_key", "place"),
            sqlite_autoincrement=True,  # a number is never used again, so numbers show the order
        )
        self.tables: SharedTables = SharedTables(self.engine, table, _VERSION, metadata)

    # Storing

    def begin(self, delays: Sequence[float]) -> None:
        """See `TierStore.begin`."""
        if self._delays:
            raise ConfigError("to", self._application, "a RetryTable of its own for each RetryTiers")
        self._delays = tuple(delays)

    def tier_after(self, poison: PoisonRecord) -> int:  # noqa: ARG002 - a `RetryWorker` knows the tiers of rows
        """Return 0, because a record that a worker sets aside was read from the stream."""
        return 0

    def keep(self, poison: PoisonRecord, tier: int) -> Awaitable[None] | None:
        """See `TierStore.keep`."""
        if self.keeps_order and not self._is_wrapped:
            raise ConsumerError(_NO_HANDLER)
        now = self._now_millis()
        delay = round(self._delays[tier] * 1000)
        history = History.after(poison, now, delay)
        values = self._values(
            poison.record, poison.stream.name, poison.shard_id, history.headers(poison.record), tier=tier
        )
        if is_shared(poison.transaction, self.engine):
            return run_in(
                poison.transaction,
                lambda connection: self._insert_in(connection, [values], delay, failed=True),
            )
        if self.keeps_order:
            raise ConsumerError("keep_order needs a SqlSink on the database of the RetryTable")
        self.tables.ensure()
        self.tables.guarded(lambda: self._store(values, delay))
        return None

    def _store(self, values: dict[str, Any], delay: int) -> None:
        with self.engine.begin() as connection:
            self._insert(connection, [values], delay, failed=True)

    def _insert_in(
        self, connection: Connection, values: Sequence[dict[str, Any]], delay: int, *, failed: bool
    ) -> None:
        self.tables.ensure_in(connection)
        self._insert(connection, values, delay, failed=failed)

    def _insert(
        self, connection: Connection, values: Sequence[dict[str, Any]], delay: int, *, failed: bool
    ) -> None:
        sa = import_sqlalchemy()
        from sqlalchemy.dialects import postgresql, sqlite

        insert: Any = sqlite.insert if self._dialect.has_one_writer else postgresql.insert
        # If a record is delivered again because of a crash before its checkpoint, its row stays as it is.
        statement = (
            insert(self._rows)
            .values(has_failed=failed, due=self._now(sa) + delay)
            .on_conflict_do_nothing(index_elements=["application", "record_id"])
        )
        connection.execute(statement, list(values))

    def _values(
        self, record: UserRecord, stream: str, shard_id: str, headers: dict[str, Any], *, tier: int
    ) -> dict[str, Any]:
        arrived = record.approximate_arrival_timestamp
        return {
            "application": self._application,
            "record_id": record_id(stream, shard_id, record.sequence_number, record.sub_sequence_number),
            "stream": stream,
            "shard_id": shard_id,
            "partition_key": record.partition_key.encode(),
            "explicit_hash_key": record.explicit_hash_key,
            "arrived": None if arrived is None else round(arrived.timestamp() * 1000),
            "headers": encode_headers(headers),
            "data": record.data,
            "tier": tier,
            "attempts": 0,
        }

    def in_order(self, handler: _Handler) -> _Handler:
        """Return a handler that stores records whose partition keys have waiting records, and passes all other records on.

        For ``Worker(handler=table.in_order(handle), sink=SqlSink(…))``. Makes one query for each batch.

        Args:
            handler: A function of a batch; a coroutine function for an `AsyncSqlSink`.

        Raises:
            ConfigError: If the table does not keep the order, or the handler is not a function.
        """
        if not self.keeps_order:
            raise ConfigError("keep_order", False, "True for in_order()")
        if not callable(handler):
            raise ConfigError("handler", handler, "a function of a RecordBatch")
        self._is_wrapped = True

        def handle(batch: RecordBatch) -> None:
            found = self._behind_in(batch)
            if inspect.isawaitable(found):
                cast("Any", found).close()
                raise ConsumerError("the handler is a coroutine function, which needs an AsyncSqlSink")
            left = _without(batch, found)
            if left is not None:
                handler(left)

        async def handle_async(batch: RecordBatch) -> None:
            found = self._behind_in(batch)
            left = _without(batch, await found if inspect.isawaitable(found) else found)
            if left is not None:
                await cast("Awaitable[None]", handler(left))

        return cast("_Handler", handle_async if is_coroutine_function(handler) else handle)

    def _behind_in(self, batch: RecordBatch) -> Awaitable[Sequence[UserRecord]] | Sequence[UserRecord]:
        if not is_shared(batch.transaction, self.engine):
            raise ConsumerError("keep_order needs a SqlSink on the database of the RetryTable")
        return run_in(batch.transaction, lambda connection: self._put_behind(connection, batch))

    def _put_behind(self, connection: Connection, batch: RecordBatch) -> Sequence[UserRecord]:
        """Store the records whose keys have rows; return the other records."""
        self.tables.ensure_in(connection)
        records, stream = batch.records, batch.stream.name
        waiting = self._keys_with_rows(connection, stream, {record.partition_key for record in records})
        if not waiting:
            return records
        behind = [record for record in records if record.partition_key in waiting]
        rows = [
            self._values(record, stream, batch.shard_id, dict(record.headers), tier=0) for record in behind
        ]
        self._insert(connection, rows, 0, failed=False)
        return [record for record in records if record.partition_key not in waiting]

    def _keys_with_rows(self, connection: Connection, stream: str, keys: Iterable[str]) -> set[str]:
        """Return the keys that have rows, and lock the last row of each.

        The lock waits for a `RetryWorker` that is delivering the last row of a key. Without the lock, this batch would store a
        record behind that row, and the `RetryWorker` would delete the row. The next batch could then find no row with the key, and
        overtake the record. A `RetryWorker` delivers the first row of a key, so the key has rows as long as its last row exists.
        """
        sa, rows, found = import_sqlalchemy(), self._rows, set()
        encoded = sorted(key.encode() for key in keys)
        for begin in range(0, len(encoded), _KEYS):
            last = (
                sa.select(sa.func.max(rows.c.place))
                .where(
                    rows.c.application == self._application,
                    rows.c.stream == stream,
                    rows.c.partition_key.in_(encoded[begin : begin + _KEYS]),
                )
                .group_by(rows.c.partition_key)
            )
            places = connection.execute(last).scalars().all()
            if places:
                query = sa.select(rows.c.partition_key).where(rows.c.place.in_(places)).order_by(rows.c.place)
                locked = connection.execute(query.with_for_update()).scalars()
                found |= {bytes(key).decode() for key in locked}
        return found

    # Delivering, for `RetryWorker`

    def lock_writers(self, connection: Connection) -> None:
        """Become SQLite's only writer now, because reads before the first write of a transaction may be outdated."""
        if self._dialect.has_one_writer:
            connection.execute(self._rows.delete().where(self._rows.c.place < 0))

    def next_due(self, connection: Connection) -> Row | None:
        """Return the row that has been due for the longest time, and lock it; None if no row is due, or all due rows are locked."""
        sa, rows = import_sqlalchemy(), self._rows
        query = sa.select(rows).where(rows.c.application == self._application, rows.c.due <= self._now(sa))
        if self.keeps_order:
            earlier = rows.alias("earlier")
            query = query.where(
                ~sa.exists().where(
                    earlier.c.application == rows.c.application,
                    earlier.c.stream == rows.c.stream,
                    earlier.c.partition_key == rows.c.partition_key,
                    earlier.c.place < rows.c.place,
                )
            )
        query = query.order_by(rows.c.due, rows.c.place).limit(1).with_for_update(skip_locked=True, of=rows)
        found = connection.execute(query).one_or_none()
        return None if found is None else _row(found)

    def finish(self, connection: Connection, row: Row) -> None:
        """Delete a row."""
        connection.execute(self._rows.delete().where(self._rows.c.place == row.place))

    def move(self, connection: Connection, row: Row, poison: PoisonRecord, tier: int) -> float:
        """Move a row to a tier; return the delay in seconds."""
        delay = self._delays[tier]
        history = History.after(poison, self._now_millis(), round(delay * 1000))
        sa = import_sqlalchemy()
        connection.execute(
            self._rows.update()
            .where(self._rows.c.place == row.place)
            .values(
                headers=encode_headers(history.headers(poison.record)),
                tier=tier,
                attempts=0,
                has_failed=True,
                due=self._now(sa) + round(delay * 1000),
            )
        )
        return delay

    def try_again(self, connection: Connection, row: Row, after: float) -> None:
        """Deliver a row again in the same tier, in ``after`` seconds."""
        sa = import_sqlalchemy()
        connection.execute(
            self._rows.update()
            .where(self._rows.c.place == row.place)
            .values(attempts=row.attempts + 1, due=self._now(sa) + round(after * 1000))
        )

    def seconds_to_next(self, connection: Connection) -> float | None:
        """Return the seconds until the next row is due, negative if a row is due now; None if there is no row."""
        sa, rows = import_sqlalchemy(), self._rows
        query = sa.select(sa.func.min(rows.c.due) - self._now(sa)).where(
            rows.c.application == self._application
        )
        millis = connection.execute(query).scalar_one()
        return None if millis is None else float(millis) / 1000

    # For people

    def waiting(self) -> list[Waiting]:
        """Return the number of records in each tier, and the seconds by which they are late. One query.

        Raises:
            TransientSinkError: If the database cannot be used now.
        """
        self.tables.ensure()
        sa, rows = import_sqlalchemy(), self._rows
        query = (
            sa.select(rows.c.tier, sa.func.count(), self._now(sa) - sa.func.min(rows.c.due))
            .where(rows.c.application == self._application)
            .group_by(rows.c.tier)
            .order_by(rows.c.tier)
        )

        def read() -> list[Waiting]:
            with self.engine.connect() as connection:
                found = connection.execute(query).all()
            return [Waiting(int(tier), int(count), float(late) / 1000) for tier, count, late in found]

        return self.tables.guarded(read)

    def close(self) -> None:
        """Close the connections, unless the engine was passed in."""
        if self._owns_engine:
            self.engine.dispose()

    def transient(self, error: BaseException) -> TransientSinkError | None:
        """Return a transient failure of the database that made a handler raise an error; None if there is none."""
        found = translated(self._dialect, error, TransientSinkError)
        return found if isinstance(found, TransientSinkError) else None

    def _now(self, sa: Any) -> Any:
        """Return an SQL expression for the time in epoch milliseconds according to the clock of the database, which all workers share."""
        if self._clock is not None:
            return sa.literal(round(self._clock.time() * 1000), sa.BigInteger)
        if self._dialect.has_one_writer:
            return sa.cast((sa.func.julianday("now") - 2440587.5) * 86_400_000, sa.BigInteger)
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)

    def _now_millis(self) -> int:
        """Return this machine's time, for headers that people read."""
        clock = self._clock
        return round((datetime.now(timezone.utc).timestamp() if clock is None else clock.time()) * 1000)


def is_coroutine_function(handler: object) -> bool:
    """Return whether a function, or the call of an object, is a coroutine function."""
    called = getattr(handler, "__call__", None)  # noqa: B004 - of an object
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)


def _without(batch: RecordBatch, rest: Sequence[UserRecord]) -> RecordBatch | None:
    """Return a batch of the records that remain to be processed; None if there are none."""
    if not rest and batch.records:
        return None
    return batch if len(rest) == len(batch.records) else replace(batch, records=rest)


def _row(found: Any) -> Row:
    origin = Origin.parse(found.record_id)
    assert origin is not None, "only `RetryTable` writes rows"
    kind = located_record_type(UserRecord, found.stream, found.shard_id)
    arrived = found.arrived
    record = kind(
        bytes(found.data),
        bytes(found.partition_key).decode(),
        origin.sequence_number,
        None if arrived is None else datetime.fromtimestamp(arrived / 1000, timezone.utc),
        None,
        origin.sub_sequence_number,
        found.explicit_hash_key,
        False,
        headers_in(bytes(found.headers)),
    )
    return Row(
        int(found.place),
        record,
        found.stream,
        found.shard_id,
        int(found.tier),
        int(found.attempts),
        bool(found.has_failed),
    )
