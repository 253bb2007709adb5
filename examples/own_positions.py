"""Exactly once into a database: results and positions change in one transaction.

The worker delivers at least once. Here a crash repeats nothing, because the position of each shard is stored in the
transaction that stores the results, and `starting_position` returns it to the next owner of the shard. The lease table still
decides which worker owns a shard; its checkpoints are only made at a shard's end.

Run it, without an AWS account:

    python -m kinesis_sdk.testing --create-stream orders:2       # first terminal
    export AWS_ENDPOINT_URL=http://127.0.0.1:4567 AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x AWS_DEFAULT_REGION=us-east-1
    python examples/own_positions.py                              # second terminal, several times
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from functools import partial

from kinesis_sdk import (
    ConsumerConfig,
    ExtendedSequenceNumber,
    Producer,
    RecordBatch,
    RecordHandler,
    ShardContext,
    StartingPosition,
    Worker,
)

TABLES = """
CREATE TABLE IF NOT EXISTS totals (key TEXT PRIMARY KEY, count INTEGER);
CREATE TABLE IF NOT EXISTS positions (shard TEXT PRIMARY KEY, sequence_number TEXT, sub_sequence_number INTEGER);
"""


class Totals(RecordHandler):
    """Counts the records of each partition key."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30, check_same_thread=False)
        self._shard_id = ""
        self._position: ExtendedSequenceNumber | None = None

    def starting_position(self, shard: ShardContext) -> StartingPosition | None:
        """Return the position of the last transaction; None (the lease's checkpoint) before the first."""
        self._shard_id = shard.shard_id
        self._position = self._stored()
        return self._position

    def process_records(self, batch: RecordBatch) -> None:
        """Add the batch to the totals, and store its last position, in one transaction."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if self._stored() != self._position:
                # Another worker took the shard over while this one was frozen. Its next heartbeat finds that out.
                raise RuntimeError(f"{self._shard_id}: another worker has processed these records")
            for record in batch.records:
                self._database.execute(
                    "INSERT INTO totals VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET count = count + 1",
                    (record.partition_key,),
                )
            last = batch.records[-1]
            position = ExtendedSequenceNumber(last.sequence_number, last.sub_sequence_number)
            self._database.execute(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)",
                (self._shard_id, position.sequence_number, position.sub_sequence_number),
            )
        self._position = position

    def _stored(self) -> ExtendedSequenceNumber | None:
        row = self._database.execute(
            "SELECT sequence_number, sub_sequence_number FROM positions WHERE shard = ?", (self._shard_id,)
        ).fetchone()
        return None if row is None else ExtendedSequenceNumber(*row)


def main(stream: str = "orders", path: str = "totals.db", seconds: float = 10.0) -> dict[str, int]:
    """Put some records, consume for some seconds, and return the totals."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(TABLES)
    with Producer() as producer:
        for number in range(100):
            producer.put(stream, f"customer-{number % 10}", b"order %d" % number)
    worker = Worker(
        stream,
        application_name="totals",
        handler=partial(Totals, path),
        config=ConsumerConfig(initial_position="TRIM_HORIZON"),
    )
    worker.start()
    time.sleep(seconds)
    worker.stop()
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT key, count FROM totals ORDER BY key"))


if __name__ == "__main__":
    print(main())
