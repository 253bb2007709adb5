"""The stores of a run: each counts its effects, and gives a worker a sink and a function that writes to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import boto3
import sqlalchemy
from botocore.config import Config

from kinesis_sdk.consumer import DynamoDBSink, RecordBatch, Sink, SqlSink

EFFECTS = sqlalchemy.Table(
    "effects",
    sqlalchemy.MetaData(),
    sqlalchemy.Column("record_id", sqlalchemy.Text),
    sqlalchemy.Column("number", sqlalchemy.Integer),
)
"""No column is unique, so a repeated effect is a second row."""

_TABLE = "counted-effects"
_BATCH = 100

OTHERS = "other records"
"""Key in `read_counters` for all records that were not requested."""


class Store(Protocol):
    """A database for effects, seen from the run and from its workers."""

    def prepare(self) -> None:
        """Empty it."""

    def effects(self) -> int:
        """Return the approximate number of effects; cheap."""

    def records(self) -> int:
        """Return the number of different records that took effect."""

    def effects_by_record(self, ids: Collection[str]) -> dict[str, int]:
        """Return the number of effects of each record id.

        `ids` are the records that should have effects. Effects of all other records may be summed under one name.
        """

    def disturb(self) -> None:
        """Cut off all of its clients, unless the run's proxies do that."""

    def close(self) -> None:
        """Close the connections."""

    def sink(self) -> Sink:
        """Return the sink of a worker."""

    def write(self, batch: RecordBatch) -> None:
        """Write the effects of a batch to its transaction."""

    def write_plainly(self, batch: RecordBatch) -> None:
        """Write the effects of a batch as a worker without a sink would."""


def _rows(batch: RecordBatch) -> list[dict[str, Any]]:
    return [{"record_id": record.id, "number": int(record.data)} for record in batch.records]


class SqlStore:
    """A SQL database; `url` is SQLAlchemy's. With `by_number`, records of one number count as one in `records`."""

    def __init__(self, url: str, *, by_number: bool = False) -> None:
        self._url = url
        self._column = "number" if by_number else "record_id"
        options: dict[str, Any] = (
            {"connect_args": {"timeout": 30}} if url.startswith("sqlite") else {"pool_pre_ping": True}
        )
        self._engine = sqlalchemy.create_engine(url, **options)

    def prepare(self) -> None:
        """Drop all tables and create the table of the effects.

        SQLite gets a write-ahead log even without a sink. Otherwise the run could deadlock: a worker is frozen within its
        commit, the run counts effects and waits for the worker's lock, and only the run could resume the worker.
        """
        if self._engine.dialect.name == "sqlite":
            with self._engine.connect() as connection:
                connection.execute(sqlalchemy.text("PRAGMA journal_mode=WAL"))
        tables = sqlalchemy.MetaData()
        tables.reflect(self._engine)
        tables.drop_all(self._engine)
        EFFECTS.metadata.create_all(self._engine)

    def effects(self) -> int:
        """Count the rows."""
        return self._number("SELECT count(*) FROM effects")

    def records(self) -> int:
        """Count different records."""
        return self._number(f"SELECT count(DISTINCT {self._column}) FROM effects")

    def effects_by_record(self, ids: Collection[str]) -> dict[str, int]:
        """Count the rows of each id."""
        query = sqlalchemy.text("SELECT record_id, count(*) FROM effects GROUP BY record_id")
        with self._engine.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def _number(self, query: str) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(sqlalchemy.text(query)).scalar_one())

    def disturb(self) -> None:
        """End all connections to PostgreSQL but this one, whatever they are doing."""
        if self._engine.dialect.name != "postgresql":
            return
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = current_user"
        with self._engine.connect() as connection:
            connection.execute(sqlalchemy.text(query))

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def sink(self) -> Sink:
        """Return a `SqlSink`."""
        return SqlSink(self._url)

    def write(self, batch: RecordBatch) -> None:
        """Insert a row for each record."""
        batch.transaction.execute(EFFECTS.insert(), _rows(batch))

    def write_plainly(self, batch: RecordBatch) -> None:
        """Insert a row for each record, in a transaction without the position."""
        with self._engine.begin() as connection:
            connection.execute(EFFECTS.insert(), _rows(batch))


class DynamoDBStore:
    """DynamoDB. An effect adds one to the item of its record.

    A worker's call must have one attempt: a second one could repeat the effect.
    """

    def __init__(self, endpoint_url: str, attempts: int = 1) -> None:
        # Without botocore's check of parameters, as the documentation advises.
        config = Config(
            retries={"total_max_attempts": attempts}, max_pool_connections=20, parameter_validation=False
        )
        self._client = boto3.client("dynamodb", endpoint_url=endpoint_url, config=config)

    def prepare(self) -> None:
        """Create an empty table."""
        for name in self._client.list_tables()["TableNames"]:
            if name in (_TABLE, "counted-positions"):
                self._client.delete_table(TableName=name)
                self._client.get_waiter("table_not_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
        self._client.create_table(
            TableName=_TABLE,
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        self._client.get_waiter("table_exists").wait(TableName=_TABLE, WaiterConfig={"Delay": 1})

    def effects(self) -> int:
        """Count the items. The fake, DynamoDB Local and LocalStack know their number at any time."""
        return int(self._client.describe_table(TableName=_TABLE)["Table"]["ItemCount"])

    def records(self) -> int:
        """Count the items: each record has one."""
        return self.effects()

    def effects_by_record(self, ids: Collection[str]) -> dict[str, int]:
        """Read the counters of these items, and sum the other ones."""
        return read_counters(self._client, ids)

    def disturb(self) -> None:
        """Do nothing: its clients connect through a proxy."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def sink(self) -> Sink:
        """Return a `DynamoDBSink`."""
        return DynamoDBSink(self._client, "counted-positions")

    def _action(self, record_id: str, number: int) -> dict[str, Any]:
        return {
            "TableName": _TABLE,
            "Key": {"id": {"S": record_id}},
            "UpdateExpression": "ADD effects :one SET #n = :number",
            "ExpressionAttributeNames": {"#n": "number"},
            "ExpressionAttributeValues": {":one": {"N": "1"}, ":number": {"N": str(number)}},
        }

    def write(self, batch: RecordBatch) -> None:
        """Add one to the item of each record."""
        for record in batch.records:
            batch.transaction.update(record, **self._action(record.id, int(record.data)))

    def write_plainly(self, batch: RecordBatch) -> None:
        """Add one to the item of each record, with one call for each."""
        for record in batch.records:
            self._client.update_item(**self._action(record.id, int(record.data)))


def read_counters(client: Any, ids: Collection[str]) -> dict[str, int]:
    """Return the effects of records by id, and those of all other records as one number.

    DynamoDB Local sorts the whole table for each page of a Scan and fails at a million items, so items are read by key.
    """
    found: dict[str, int] = {}
    wanted = sorted(ids)
    for start in range(0, len(wanted), _BATCH):
        left: Any = {_TABLE: {"Keys": [{"id": {"S": one}} for one in wanted[start : start + _BATCH]]}}
        while left:
            response = client.batch_get_item(RequestItems=left)
            for item in response["Responses"].get(_TABLE, ()):
                found[item["id"]["S"]] = int(item["effects"]["N"])
            left = response.get("UnprocessedKeys")
    others = client.describe_table(TableName=_TABLE)["Table"]["ItemCount"] - len(found)
    return {**found, OTHERS: others} if others else found


def open_store(address: str, *, attempts: int = 1, by_number: bool = False) -> Store:
    """Return the store of an address: a SQLAlchemy URL, or ``dynamodb+`` and an endpoint.

    `attempts` is the number of attempts of each call to DynamoDB. `by_number` is for SQL only, see `SqlStore`.
    """
    if address.startswith("dynamodb+"):
        return DynamoDBStore(address.removeprefix("dynamodb+"), attempts)
    return SqlStore(address, by_number=by_number)
