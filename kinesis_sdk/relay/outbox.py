"""`Outbox`: records that a handler writes in the transaction of its effects, and that a publisher puts into streams.

```
handler ─► put: INSERT row ─┐
effects ────────────────────┤ the transaction of the sink, with the position
                            ▼
OutboxPublisher: rows in their order ─► producer, each with the id of its row ─► acknowledged: DELETE rows
```
If a publisher dies between an acknowledgement and the DELETE, the row is put again with the same id.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Awaitable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.errors import ConfigError, ConsumerError, InvalidRecordError
from kinesis_sdk.common.hashkeys import parse_explicit_hash_key
from kinesis_sdk.common.headers import encode_headers, headers_in
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.once import check_dedup_window
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int, check_seconds, check_text
from kinesis_sdk.consumer import RecordBatch
from kinesis_sdk.consumer.sql import (
    SharedTables,
    dialect_of,
    import_sqlalchemy,
    is_shared,
    open_engine,
    run_in,
)
from kinesis_sdk.producer import Producer, ProducerConfig, Put

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

_LOGGER = FieldLogger(logging.getLogger(__name__))

TABLE = "kinesis_sdk_outbox"
"""Default name of the table."""
MAX_ROWS = 500
"""Maximum rows that a publisher puts at a time."""

_VERSION = 1
_MAX_BYTES = 10 * 1024 * 1024
"""Maximum bytes of a record in Kinesis, and of the rows that a publisher reads with one query."""
_OVERHEAD = 256
"""Maximum bytes that a record's identity and the fields around it take."""
_PAUSES = Backoff(0.5, 30.0)


class _Row(NamedTuple):
    """A row of the table."""

    place: int
    dedup_id: str
    put: Put


class Outbox:
    """Table of records to put, in the SQL database of a sink (extra ``sql``). Thread-safe.

    ```python
    outbox = Outbox("sqlite:///totals.db", name="bills")

    def handle(batch):
        for record in batch.records:
            batch.transaction.execute(…)
            outbox.put(batch, [Put("bills", record.partition_key, b"…")])
    ```

    The rows are stored in the same transaction as the handler's effects and the position, so either all of them are stored or none. Unlike
    the function of a `Relay`, the handler therefore need not be deterministic. An `OutboxPublisher` puts the records, in the order of a
    shard's transactions, and gives each record an id by which readers that use this SDK recognize a second copy and leave it out.

    Args:
        database: SQLAlchemy URL of the sink's database, or an engine for it.
        name: Name of the outbox, 1 to 100 characters; several outboxes may share a table, and outboxes with the same ``dedup_namespace``
            need different names.
        table: Name of the table, which is created if it is missing.
        max_user_record_size: Maximum bytes of a record, 2,048 to 10,485,760: data, partition key (twice if there are headers), headers, and
            256 for its identity. ``max_user_record_size`` of the publisher's `ProducerConfig` must be at least as large. A value above
            the default (1 MiB) requires streams with a larger record size limit.

    Attributes:
        engine: The engine.
        tables: The table in the database, for the publisher.
        max_user_record_size: As given.

    Raises:
        ConfigError: If an argument is not valid.
        ImportError: If SQLAlchemy, or the driver, is not installed.
    """

    def __init__(
        self,
        database: str | Engine,
        *,
        name: str,
        table: str = TABLE,
        max_user_record_size: int = ProducerConfig.max_user_record_size,
    ) -> None:
        check_text("name", name, 1, 100)
        check_int("max_user_record_size", max_user_record_size, 2048, _MAX_BYTES)
        self.max_user_record_size: int = max_user_record_size
        sa = import_sqlalchemy()
        self.engine: Engine = open_engine("database", database)
        self._owns_engine = isinstance(database, str)
        self._name = name
        self._dialect = dialect_of(self.engine)
        metadata = sa.MetaData()
        number = sa.BigInteger
        self._rows = sa.Table(
            table,
            metadata,
            # SQLite assigns numbers only to a primary key of type INTEGER.
            sa.Column("place", number().with_variant(sa.Integer, "sqlite"), primary_key=True),
            sa.Column("outbox", sa.String(100), nullable=False),
            sa.Column("origin", sa.String(400), nullable=False),
            sa.Column("stream", sa.String(2048), nullable=False),
            # A text column does not accept every character that a key may contain.
            sa.Column("partition_key", sa.LargeBinary, nullable=False),
            sa.Column("explicit_hash_key", sa.String(39)),
            sa.Column("dedup_window", sa.Float),
            sa.Column("headers", sa.LargeBinary, nullable=False),
            sa.Column("data", sa.LargeBinary, nullable=False),
            sa.Index(f"{table}_order", "outbox", "place"),
            sqlite_autoincrement=True,  # a number is never used again, so numbers show the order
        )
        self.tables: SharedTables = SharedTables(self.engine, table, _VERSION, metadata)

    def put(self, batch: RecordBatch, puts: Put | Iterable[Put]) -> Awaitable[None] | None:
        """Store records in the transaction of a batch.

        Args:
            batch: The batch of the handler, whose sink is a `SqlSink` or `AsyncSqlSink` on this database.
            puts: Records to put, each with a partition key and without a ``dedup_id``. A value that is not bytes has to be serialized
                first.

        Returns:
            None with a `SqlSink`; an awaitable with an `AsyncSqlSink`.

        Raises:
            ConsumerError: If the batch has no transaction in this database.
            ValueError: If a record cannot be put.
            TypeError: If an item is not a `Put`, or its payload is not bytes.
        """
        if not is_shared(batch.transaction, self.engine):
            raise ConsumerError("an Outbox needs a SqlSink on its database")
        # Each position is committed once. After a rewind, the new row has another number, and therefore another id.
        origin = batch.records[-1].id if batch.records else f"{batch.stream.name}/{batch.shard_id}"
        # A `Put` is a tuple, so an iterable, too.
        values = [self._values(put, origin) for put in ((puts,) if isinstance(puts, Put) else puts)]

        def insert(connection: Connection) -> None:
            self.tables.ensure_in(connection)
            if values:
                connection.execute(self._rows.insert(), values)

        return run_in(batch.transaction, insert)

    def _values(self, put: Put, origin: str) -> dict[str, Any]:
        if not isinstance(put, Put):
            raise TypeError(f"an Outbox takes Put objects, not {type(put).__name__}")
        if put.dedup_id is not None:
            raise ValueError("an Outbox gives each record its dedup_id: pass a Put without one")
        if not isinstance(put.data, (bytes, bytearray, memoryview)):
            raise TypeError(f"an Outbox takes payloads as bytes, not {type(put.data).__name__}")
        key = put.partition_key
        if not isinstance(key, str) or not 1 <= len(key) <= 256:
            raise ValueError("partition_key: expected a text of 1 to 256 characters")
        hash_key = (
            None if put.explicit_hash_key is None else str(parse_explicit_hash_key(put.explicit_hash_key))
        )
        try:
            check_dedup_window(put.dedup_window)
        except InvalidRecordError as error:
            raise ValueError(
                str(error)
            ) from error  # about the input record, so `BisectBatch` may set it aside
        headers, data, encoded = encode_headers(put.headers or {}), bytes(put.data), key.encode()
        # An aggregate of a single record with headers contains the key twice.
        keys = len(encoded) * (2 if headers else 1)
        size, most = len(data) + len(headers) + keys, self.max_user_record_size - _OVERHEAD
        if size > most:
            raise ValueError(
                f"a record of {size:,} bytes is too large: expected at most {most:,}, which is max_user_record_size less {_OVERHEAD}"
            )
        return {
            "outbox": self._name,
            "origin": origin[:400],
            "stream": str(StreamId.parse(put.stream)),
            "partition_key": encoded,
            "explicit_hash_key": hash_key,
            "dedup_window": put.dedup_window,
            "headers": headers,
            "data": data,
        }

    def waiting(self) -> int:
        """Return the number of records that are not acknowledged yet. One query.

        Raises:
            TransientSinkError: If the database cannot be used now.
        """
        sa, rows = import_sqlalchemy(), self._rows
        self.tables.ensure()

        def count() -> int:
            with self.engine.connect() as connection:
                query = sa.select(sa.func.count()).select_from(rows).where(rows.c.outbox == self._name)
                return int(connection.execute(query).scalar_one())

        return self.tables.guarded(count)

    # For `OutboxPublisher`

    def next_rows(self, connection: Connection) -> list[_Row]:
        """Return the first rows, at most `MAX_ROWS` rows with 10 MiB in all; none if another publisher has locked them.

        With the lock of the outbox, publishers take turns, so two of them never put rows of a key at the same time. A lock of the first
        row would not be enough, because another transaction may still commit a row with a lower number. With SQLite, publishers take no
        lock, because it would block the workers.
        """
        sa, rows = import_sqlalchemy(), self._rows
        mine = rows.c.outbox == self._name
        turn = self._dialect.turn(repr((rows.fullname, self._name)))
        if turn is not None and not connection.execute(sa.select(turn)).scalar_one():
            return []
        # A driver fetches a result completely, so a query of the sizes alone chooses the rows.
        length = sa.func.length(rows.c.data) + sa.func.length(rows.c.headers)
        sizes = sa.select(rows.c.place, length).where(mine).order_by(rows.c.place).limit(MAX_ROWS)
        chosen: list[int] = []
        size = 0
        for place, its_size in connection.execute(sizes):
            size += its_size
            if chosen and size > _MAX_BYTES:
                break
            chosen.append(place)
        found: list[_Row] = []
        for row in connection.execute(sa.select(rows).where(rows.c.place.in_(chosen)).order_by(rows.c.place)):
            put = Put(
                row.stream,
                bytes(row.partition_key).decode(),
                bytes(row.data),
                row.explicit_hash_key,
                headers=headers_in(bytes(row.headers)),
                dedup_window=row.dedup_window,
            )
            place = int(row.place)
            found.append(_Row(place, f"{self._name}/{place}/{row.origin}"[:256], put))
        return found

    def finish(self, connection: Connection, places: list[int]) -> None:
        """Delete rows."""
        connection.execute(self._rows.delete().where(self._rows.c.place.in_(places)))

    @property
    def holds_locks(self) -> bool:
        """Whether the transaction keeps its locks while the rows are put."""
        return not self._dialect.has_one_writer

    def close(self) -> None:
        """Close the connections, unless the engine was passed in."""
        if self._owns_engine:
            self.engine.dispose()


class OutboxPublisher:
    """Puts the records of an `Outbox` into their streams, and deletes their rows once Kinesis has acknowledged them.

    Each process may run one. With PostgreSQL, they take turns. With SQLite, several publishers put the same rows, and readers leave out
    the copies. A row that cannot be put, for example because its stream is missing, is tried again and blocks all later rows; the log
    names it.

    Args:
        outbox: The outbox.
        producer: Producer of the records, with ``idempotent=True`` and a ``dedup_namespace``. It is not closed.
        poll_interval: Maximum seconds between two reads of the table, 0.01 to 3600.
        rng: Source of jitter.

    Raises:
        ConfigError: If an argument is not valid.
    """

    def __init__(
        self,
        outbox: Outbox,
        producer: Producer,
        *,
        poll_interval: float = 0.2,
        rng: random.Random | None = None,
    ) -> None:
        if not isinstance(producer, Producer) or producer.config.dedup_namespace is None:
            raise ConfigError(
                "producer",
                "a producer without a dedup_namespace" if isinstance(producer, Producer) else producer,
                "Producer(ProducerConfig(idempotent=True, dedup_namespace=…)): readers recognize records by their ids in this namespace",
            )
        if producer.config.max_user_record_size < outbox.max_user_record_size:
            raise ConfigError(
                "producer",
                f"a producer with max_user_record_size={producer.config.max_user_record_size:,}",
                f"at least the limit of the outbox, {outbox.max_user_record_size:,}: a larger record would block it",
            )
        check_seconds("poll_interval", poll_interval, 0.01, 3600)
        self._outbox = outbox
        self._producer = producer
        self._poll_interval = poll_interval
        self._rng = rng or random.Random()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def step(self) -> int:
        """Put the first rows, and delete the acknowledged rows; return their number.

        Raises:
            TransientSinkError: If the database cannot be used now.
            RecordFailedError: If a record was not stored; the rows before it are deleted.
            InvalidRecordError: If a record can never be put.
        """
        self._outbox.tables.ensure()
        done, error = self._outbox.tables.guarded(self._step)
        if error is not None:
            raise error
        return int(done)

    def _step(self) -> tuple[int, BaseException | None]:
        outbox = self._outbox
        if outbox.holds_locks:
            with outbox.engine.begin() as connection:
                done, error = self._put(outbox.next_rows(connection))
                outbox.finish(connection, done)
            return len(done), error
        with outbox.engine.connect() as connection:
            rows = outbox.next_rows(connection)
        done, error = self._put(rows)
        if done:
            with outbox.engine.begin() as connection:
                outbox.finish(connection, done)
        return len(done), error

    def _put(self, rows: list[_Row]) -> tuple[list[int], BaseException | None]:
        """Put rows. Return the numbers of the stored rows, and the error of the first row that was not stored."""
        under_way: list[tuple[int, Any]] = []
        error: BaseException | None = None
        for place, dedup_id, put in rows:
            try:
                future = self._producer.put(
                    put.stream,
                    put.partition_key,
                    put.data,
                    put.explicit_hash_key,
                    dedup_id=dedup_id,
                    dedup_window=put.dedup_window,
                    headers=put.headers,
                )
            except Exception as raised:  # noqa: BLE001 - raised by `step`, after what is under way
                error = raised
                _LOGGER.error("outbox row %d: the record cannot be put (%s)", place, type(raised).__name__)
                break
            under_way.append((place, future))
        done: list[int] = []
        failures = [(place, future.exception()) for place, future in under_way]
        for place, failure in failures:
            if failure is None:
                done.append(place)
        failed = next(((place, failure) for place, failure in failures if failure is not None), None)
        if failed is not None:
            place, error = failed
            _LOGGER.error("outbox row %d: the record was not stored (%s)", place, type(error).__name__)
        return done, error

    def run(self) -> None:
        """Put records until `stop`, on this thread. Errors are logged, and the rows are tried again with growing pauses."""
        failures = 0
        while not self._stop.is_set():
            try:
                wait = 0.0 if self.step() else self._poll_interval
                failures = 0
            except Exception:
                failures += 1
                wait = _PAUSES.pause(failures, self._rng)
                _LOGGER.exception("a step of the outbox failed, trying again in %.1f s", wait)
            if wait:
                self._stop.wait(wait)

    def start(self) -> None:
        """Put records on a separate thread, until `stop`.

        Raises:
            ConfigError: If the publisher was started already.
        """
        if self._thread is not None:
            raise ConfigError(
                "start", True, "one start", problem="an OutboxPublisher can be started only once"
            )
        self._thread = threading.Thread(target=self.run, name="kinesis-outbox", daemon=True)
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop after the current step. Callable from any thread and from a signal handler.

        Args:
            timeout: Maximum seconds to wait for the end of the thread that `start` created; None waits without limit.
        """
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def __enter__(self) -> OutboxPublisher:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()
