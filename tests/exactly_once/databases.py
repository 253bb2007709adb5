"""Databases for effects, each behind its real sink."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.consumer.sinks.dynamodb import DynamoDBSink
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.testing import FakeAws
from kinesis_sdk.testing.accounting.stored_copies import CopyPosition
from tests.consumer.sinks.coroutines import AsyncMemory


class Effect(NamedTuple):
    """What a handler wrote for a record.

    Attributes:
        data: The payload.
        position: Where the record is in the stream.
    """

    data: bytes
    position: CopyPosition

    @classmethod
    def of(cls, shard_id: str, record: UserRecord) -> Effect:
        return cls(
            record.data, CopyPosition(shard_id, int(record.sequence_number), record.sub_sequence_number)
        )


class Database:
    """A store of effects; this one is in memory.

    Attributes:
        sink: Its sink.
        is_async: Whether the sink is one of coroutines.
    """

    is_async = False
    sink: Any

    def __init__(self) -> None:
        self.sink = InMemorySink()

    def write(self, transaction: Any, shard_id: str, record: UserRecord) -> None:
        """Write one effect. Nothing in the database is unique, so a second one is kept, too."""
        transaction.append(Effect.of(shard_id, record))

    def effects(self) -> list[Effect]:
        """Return all effects, in the order in which they were written."""
        return list(self.sink.effects)

    def close(self) -> None:
        """Close connections."""


class AsyncDatabase(Database):
    """A store in memory whose sink and handlers are coroutines."""

    is_async = True

    def __init__(self) -> None:
        self.sink = AsyncMemory()


class DynamoDatabase(Database):
    """Tables of the fake: positions in one, effects in another."""

    def __init__(self, aws: FakeAws, name: str, max_records: int) -> None:
        self._client = aws.client("dynamodb")
        self._table = f"{name}-effects"
        self._client.create_table(
            TableName=self._table,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
            BillingMode="PAY_PER_REQUEST",
        )
        self._ids = count()
        self.sink = DynamoDBSink(
            self._client, f"{name}-positions", max_records=max_records, sleep=aws.clock.advance
        )
        self.sink.ensure_ready()

    def write(self, transaction: Any, shard_id: str, record: UserRecord) -> None:
        effect = Effect.of(shard_id, record)
        transaction.put(
            record,
            TableName=self._table,
            Item={
                # The order of writes is that of commits: a shard's transactions, and those of its children, follow one another.
                "id": {"N": str(next(self._ids))},
                "data": {"B": effect.data},
                "shard": {"S": effect.position.shard_id},
                "number": {"S": str(effect.position.sequence_number)},
                "sub": {"N": str(effect.position.sub_sequence_number)},
            },
        )

    def _items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        request: dict[str, Any] = {"TableName": self._table, "ConsistentRead": True}
        while True:
            page = self._client.scan(**request)
            items += page["Items"]
            if "LastEvaluatedKey" not in page:
                return items
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def effects(self) -> list[Effect]:
        return [
            Effect(
                bytes(item["data"]["B"]),
                CopyPosition(item["shard"]["S"], int(item["number"]["S"]), int(item["sub"]["N"])),
            )
            for item in sorted(self._items(), key=lambda item: int(item["id"]["N"]))
        ]


class SqliteDatabase(Database):
    """A SQLite file."""

    def __init__(self, folder: str, name: str) -> None:
        import sqlalchemy

        from kinesis_sdk.consumer.sinks.sql import SqlSink

        self.engine = sqlalchemy.create_engine(
            f"sqlite:///{folder}/{name}.db",
            # Each process has connections of its own. One that finds the database locked does not wait: time stands still.
            poolclass=sqlalchemy.pool.NullPool,
            connect_args={"timeout": 0.0, "check_same_thread": False},
        )

        @sqlalchemy.event.listens_for(self.engine, "connect")
        def configure(connection: Any, _: Any) -> None:
            # The machine does not fail in these schedules, only processes do.
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA journal_mode=MEMORY")

        self._table = sqlalchemy.Table(
            "effects",
            sqlalchemy.MetaData(),
            sqlalchemy.Column("number", sqlalchemy.Integer, primary_key=True),
            sqlalchemy.Column("data", sqlalchemy.LargeBinary),
            sqlalchemy.Column("shard", sqlalchemy.Text),
            sqlalchemy.Column("sequence_number", sqlalchemy.Text),
            sqlalchemy.Column("sub", sqlalchemy.Integer),
        )
        self._table.metadata.create_all(self.engine)
        self.sink = SqlSink(self.engine)

    def write(self, transaction: Any, shard_id: str, record: UserRecord) -> None:
        data, position = Effect.of(shard_id, record)
        transaction.execute(
            self._table.insert(),
            {
                "data": data,
                "shard": position.shard_id,
                "sequence_number": str(position.sequence_number),
                "sub": position.sub_sequence_number,
            },
        )

    def effects(self) -> list[Effect]:
        with self.engine.connect() as connection:
            rows = connection.execute(self._table.select().order_by(self._table.c.number)).all()
        return [Effect(row.data, CopyPosition(row.shard, int(row.sequence_number), row.sub)) for row in rows]

    def close(self) -> None:
        self.engine.dispose()
