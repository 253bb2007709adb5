"""A sink of your own: effects and positions in SQLite by the standard library's `sqlite3`, without SQLAlchemy.

A sink stores one row for each shard, and changes it in the transaction that stores the effects, on the condition that the row is as it was
read. That is all that exactly once needs: a worker that was frozen while another one took its shard finds another row, and its
transaction fails. `kinesis_sdk.testing.contracts.sinks` holds the tests that every sink has to pass.

Against the fake AWS, which prints the variables to export in the second terminal::

    kinesis-sdk fake --create-stream orders:2
    python examples/custom_sink.py       # as often as you like; each run adds 100 records

On AWS, set AWS_DEFAULT_REGION instead.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from kinesis_sdk import (
    ConsumerConfig,
    ExtendedSequenceNumber,
    Producer,
    RecordBatch,
    SinkError,
    TransientSinkError,
    Worker,
)
from kinesis_sdk.consumer.sinks import SinkKey, SinkRow

TABLES = """
CREATE TABLE IF NOT EXISTS positions (
    application TEXT, stream TEXT, lease_key TEXT, sequence_number TEXT, sub_sequence_number INTEGER, fence INTEGER, ended INTEGER,
    PRIMARY KEY (application, stream, lease_key)
);
CREATE TABLE IF NOT EXISTS totals (key TEXT PRIMARY KEY, count INTEGER);
"""


class SqliteTransaction:
    """A transaction of a `SqliteSink`.

    Attributes:
        handle: The connection, which the handler gets as ``batch.transaction``.
    """

    def __init__(self, connection: sqlite3.Connection, key: SinkKey, seen: SinkRow) -> None:
        self.handle = connection
        self._key = key
        self._seen = seen

    def commit(self, row: SinkRow) -> bool:
        """Change the row and commit, or do neither."""
        with errors(), closing(self.handle):
            if _stored(self.handle, self._key) != self._seen:
                return False  # closing rolls back
            _store(self.handle, self._key, row)
            self.handle.execute("COMMIT")
            return True

    def rollback(self) -> None:
        """Discard the effects."""
        self.handle.close()


class SqliteSink:
    """A `Sink` in a SQLite file. Each transaction has a connection of its own.

    Args:
        path: The file.
    """

    max_records: int | None = None
    serves_coroutines = False  # the statements of sqlite3 block, so coroutine functions are refused

    def __init__(self, path: str) -> None:
        self._path = path

    def ensure_ready(self) -> None:
        """Create the tables if they are missing."""
        with errors(), closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(TABLES)

    def read(self, key: SinkKey) -> SinkRow | None:
        """Return a row, or None."""
        with errors(), closing(self._connect()) as connection:
            return _stored(connection, key)

    def write(self, key: SinkKey, seen: SinkRow | None, row: SinkRow) -> bool:
        """Change or create a row, on the condition that it is as it was seen."""
        with errors(), closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if _stored(connection, key) != seen:
                return False
            _store(connection, key, row)
            connection.execute("COMMIT")
            return True

    def begin(self, key: SinkKey, seen: SinkRow) -> SqliteTransaction | None:
        """Begin a transaction; SQLite has one writer, so that nothing can change the row before the commit."""
        with errors():
            connection = self._connect()
            try:
                connection.execute("BEGIN IMMEDIATE")
                if _stored(connection, key) == seen:
                    return SqliteTransaction(connection, key, seen)
            except BaseException:
                connection.close()
                raise
            connection.close()
            return None

    def translate(self, error: BaseException) -> BaseException:
        """Tell the worker that an error of the database, which reached it through the handler, passes."""
        return TransientSinkError(str(error)) if _passes(error) else error

    def _connect(self) -> sqlite3.Connection:
        # A transaction begins in one thread of the worker and may end in another, never in two at a time.
        return sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)


def _stored(connection: sqlite3.Connection, key: SinkKey) -> SinkRow | None:
    found = connection.execute(
        "SELECT sequence_number, sub_sequence_number, fence, ended FROM positions"
        " WHERE application = ? AND stream = ? AND lease_key = ?",
        key,
    ).fetchone()
    if found is None:
        return None
    sequence_number, sub_sequence_number, fence, ended = found
    position = sequence_number and ExtendedSequenceNumber(sequence_number, sub_sequence_number)
    return SinkRow(position, fence, bool(ended))


def _store(connection: sqlite3.Connection, key: SinkKey, row: SinkRow) -> None:
    at = row.position
    values = (at and at.sequence_number, at and at.sub_sequence_number, row.fence, row.ended)
    connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?, ?)", (*key, *values))


def _passes(error: BaseException) -> bool:
    """Return whether another writer held the file for too long."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


@contextmanager
def errors() -> Iterator[None]:
    """Raise the errors of `Sink` for those of SQLite."""
    try:
        yield
    except sqlite3.Error as error:
        kind = TransientSinkError if _passes(error) else SinkError
        raise kind(f"SQLite: {error}") from error


def count(batch: RecordBatch) -> None:
    """Add the records of a batch to the totals."""
    batch.transaction.executemany(
        "INSERT INTO totals VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET count = count + 1",
        [(record.partition_key,) for record in batch.records],
    )


def main() -> None:
    """Put 100 records, consume what is in the stream, and print the totals."""
    with Producer() as producer:
        for number in range(100):
            producer.put("orders", f"customer-{number % 10}", b"order %d" % number)
    config = ConsumerConfig(initial_position="TRIM_HORIZON")
    sink = SqliteSink("totals.db")
    Worker("orders", application_name="totals", handler=count, config=config, sink=sink, until="now").run()
    with closing(sqlite3.connect("totals.db")) as database:
        print(dict(database.execute("SELECT key, count FROM totals ORDER BY key")))


if __name__ == "__main__":
    main()
