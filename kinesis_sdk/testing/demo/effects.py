"""Effects of the demo: one row for each record that a worker processed, written in the transaction that stores its position."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.testing.accounting.verify import Delivery
from kinesis_sdk.testing.flights import read_number

if TYPE_CHECKING:
    import sqlalchemy


class Effects:
    """The table of effects. The table has no unique key, so duplicates remain visible. `engine` also holds the workers' positions."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        import sqlalchemy

        self._engine = engine
        column, text, number = sqlalchemy.Column, sqlalchemy.String, sqlalchemy.Integer
        self._table = sqlalchemy.Table(
            "effects",
            sqlalchemy.MetaData(),
            column("number", number, nullable=False),
            column("worker", text(100), nullable=False),
            column("acquisition", number, nullable=False),
            column("shard", text(100), nullable=False),
            column("sequence_number", text(129), nullable=False),
            column("sub_sequence_number", number, nullable=False),
            column("at", sqlalchemy.Float, nullable=False),
        )

    def create(self) -> None:
        """Create the table."""
        self._table.metadata.create_all(self._engine)

    def insert(
        self,
        transaction: Any,
        run: bytes,
        shard_id: str,
        records: Sequence[UserRecord],
        *,
        worker: str,
        acquisition: int,
    ) -> None:
        """Write an effect for each record of this run; records of other runs are skipped.

        `transaction` is the open transaction of the batch. `acquisition` numbers the worker's acquisitions of the lease.
        """
        now = time.time()
        rows = [
            {
                "number": number,
                "worker": worker,
                "acquisition": acquisition,
                "shard": shard_id,
                "sequence_number": record.sequence_number,
                "sub_sequence_number": record.sub_sequence_number,
                "at": now,
            }
            for record in records
            if (number := read_number(run, record.data)) is not None
        ]
        if rows:
            transaction.execute(self._table.insert(), rows)

    def read(self) -> list[Delivery]:
        """Return all committed effects."""
        with self._engine.connect() as connection:
            return [
                Delivery(
                    row.number,
                    row.worker,
                    row.shard,
                    (int(row.sequence_number), row.sub_sequence_number),
                    row.at,
                    row.acquisition,
                )
                for row in connection.execute(self._table.select())
            ]
