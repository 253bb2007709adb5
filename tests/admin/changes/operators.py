"""An operator beside a simulated fleet: steering in virtual time, on the fleet's own fake AWS."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from itertools import groupby
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kinesis_sdk.admin.applications import Application
from kinesis_sdk.admin.changes.desk import Desk
from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.common.errors import TransientAwsError
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer import ConsumerConfig, DynamoDBLeaseStore, RecordBatch, RecordHandler
from kinesis_sdk.consumer.leases import SqlLeaseStore
from tests.consumer.fleet.engines import HORIZON, STREAM, Fleet

event = pytest.importorskip("sqlalchemy").event

TABLE = "app"
SHARD = "shardId-000000000000"


SLOW = ConsumerConfig(initial_position="TRIM_HORIZON")
SLOW = replace(SLOW, retrieval=replace(SLOW.retrieval, max_records=10))
"""Settings of workers that read ten records at a time."""
CLEANING = replace(HORIZON, coordination=replace(HORIZON.coordination, lease_cleanup_interval=1.0))
"""Settings of workers that delete the leases of finished shards at once."""


SELDOM = 20
"""Seconds between the checkpoints of a worker that checkpoints seldom: time for six renewals, and twice what a lease lasts."""


class Air:
    """A DynamoDB client whose writes can be caught in the air.

    Attributes:
        catch: Called with the method, the request and a function that makes the call, in place of each write; None lets all
            pass.
        writes: Requests that were made, with the name of the method.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.meta = client.meta
        self.catch: Callable[[str, dict[str, Any], Callable[[], Any]], Any] | None = None
        self.writes: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in ("update_item", "put_item", "delete_item"):
            return method

        def call(**request: Any) -> Any:
            self.writes.append((name, request))
            if self.catch is not None:
                return self.catch(name, request, lambda: method(**request))
            return method(**request)

        return call


def kind_of(request: dict[str, Any]) -> str:
    """The kind of a worker's write, by the attributes that it names."""
    names = set(request.get("ExpressionAttributeNames", {}).values())
    expression = request.get("UpdateExpression", "")
    sets = {
        request["ExpressionAttributeNames"][part.split("=")[0].strip()]
        for part in expression.removeprefix("SET ").split(" REMOVE ")[0].split(",")
        if "=" in part
    }
    if "pendingCheckpoint" in sets:
        return "prepare"
    if "checkpoint" in sets:
        return "checkpoint"
    if "initialTimestampMillis" in sets:
        return "pin"
    if "leaseOwner" in names:
        return "ownership"
    return "renewal" if "leaseCounter" in sets else "other"


def no_response() -> TransientAwsError:
    return TransientAwsError("no response (the call may have taken effect)", operation="UpdateItem")


class SteeredFleet(Fleet):
    """A fleet with its leases in DynamoDB or SQLite, and an operator whose waits let the workers run.

    Attributes:
        place: ``dynamodb`` or ``sqlite``. With SQLite, there is neither ``dynamodb`` nor ``air``.
    """

    place = "dynamodb"

    def __init__(self, tmp_path: Any, **more: Any) -> None:
        super().__init__(**{"config": HORIZON, **more})
        if self.place == "sqlite":
            url = f"sqlite:///{tmp_path}/leases-{len(list(tmp_path.iterdir()))}.db"
            self.connection = Connection(clients={"kinesis": self.raw}, lease_store=url)
            database = self.connection.database
            # Without a wait for the disk, and a file of its own, with each of thousands of writes.
            event.listen(database, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
            event.listen(database, "connect", lambda raw, _: raw.execute("PRAGMA journal_mode=MEMORY"))
            self.store = SqlLeaseStore(database, TABLE, sleep=self.clock.advance)
        else:
            self.dynamodb = self.aws.client("dynamodb")
            self.connection = Connection(clients={"dynamodb": self.dynamodb, "kinesis": self.raw})
            self.air = Air(self.dynamodb)
            self.store = DynamoDBLeaseStore(
                self.air, TABLE, sleep=self.clock.advance, monotonic=self.clock.monotonic
            )
        self.audit = tmp_path / "audit.jsonl"
        self.said: list[str] = []
        self.moments: list[float] = []

    pace = 0.0
    """Seconds between two steps of a worker at least; in virtual time, work takes none by itself."""

    def _tick(self, name: str, engine: Any) -> None:
        super()._tick(name, engine)
        member = self._members.get(name)
        if member is not None and member.alarm._moment is not None:
            member.alarm.set(max(member.alarm._moment, self.clock.monotonic() + self.pace))

    def desk(self, client: Any = None, stream: str | None = STREAM, **more: Any) -> Desk:
        connection = self.connection
        if client is not None:
            connection = Connection(clients={"dynamodb": client, "kinesis": self.raw})
        return Desk(
            application=Application(connection, TABLE, stream=stream, sleep=self.run),
            audit_log=self.audit,
            clock=self.clock,
            sleep=self.run,
            report=self.said.append,
            threads=1,
            **more,
        )

    def write(self, expression: str, **values: dict[str, Any]) -> None:
        """Update the row of `SHARD` as another program would; ``values`` are those of ``:name``."""
        named = {f":{name}": value for name, value in values.items()}
        more = {"ExpressionAttributeValues": named} if named else {}
        self.dynamodb.update_item(
            TableName=TABLE, Key={"leaseKey": {"S": SHARD}}, UpdateExpression=expression, **more
        )

    def arrive(self, seconds: float, call: Callable[[], Any]) -> None:
        """Let a write that its worker has given up arrive after some seconds."""

        def late() -> None:
            with suppress(ClientError):
                call()

        self.timeline.at(self.clock.monotonic() + seconds, late)

    def check_repeated(self, first: int, worker: str = "") -> None:
        """Assert that the last acquisition, after a while, has each record from this one on once and in order."""
        self.load(5)
        who, numbers = self.runs()[-1]
        assert who.startswith(worker)
        assert numbers == [*range(first, self.put_count)]

    def note(self, name: str, batch: RecordBatch) -> None:
        super().note(name, batch)
        self.moments += [self.clock.monotonic()] * len(batch.records)

    def moment(self) -> datetime:
        """The present time, as Kinesis would stamp a record."""
        return datetime.fromtimestamp(self.clock.time(), timezone.utc)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def load(self, seconds: float, rate: int = 4) -> None:
        """Put records evenly while the fleet runs."""
        for _ in range(round(seconds)):
            self.put(rate)
            self.run(1.0)

    def runs(self, shard: str = SHARD) -> list[tuple[str, list[int]]]:
        """What was delivered of a shard: each acquisition with its records, in the order of their first delivery."""
        entries = [(who, int(data)) for who, where, data, _, _ in self.delivered if where == shard]
        order = list(dict.fromkeys(who for who, _ in entries))
        found = {who: [number for one, number in entries if one == who] for who in order}
        return list(found.items())

    def interleaving(self, shard: str = SHARD) -> list[str]:
        """Acquisitions in the order of their deliveries, without repetitions."""
        return [who for who, _ in groupby(who for who, where, *_ in self.delivered if where == shard)]

    def checkpoints(self) -> dict[str, ExtendedSequenceNumber]:
        return {lease.lease_key: lease.checkpoint for lease in self.store.list()}

    def checkpointer(self, name: str, mode: str) -> type[RecordHandler]:
        """A handler that checkpoints ``each batch``, ``seldom``, ``never`` (once the fleet has `rested`), or ``prepares``."""
        fleet = self

        class Handler(RecordHandler):
            def initialize(self, shard: Any) -> None:
                self.due: float | None = None

            def process_records(self, batch: RecordBatch) -> None:
                fleet.note(name, batch)
                now = fleet.clock.monotonic()
                if mode == "each batch":
                    batch.checkpoint()
                elif mode == "prepares":
                    batch.checkpointer.prepare_checkpoint(state=b"half").checkpoint()
                elif mode == "seldom" and (self.due is None or now >= self.due):
                    batch.checkpoint()
                    self.due = now + SELDOM
                elif mode == "never" and not fleet.rested:
                    batch.checkpoint()

            def shard_ended(self, checkpointer: Any) -> None:
                checkpointer.checkpoint()

        return Handler

    def behind(self, number: int = 750) -> Any:
        """Put so many records at once that an owner that reads ten at a time needs a while.

        Returns:
            A desk that knows that the owners are alive, so that a plan is made at once.
        """
        self.pace = 0.2
        desk = self.desk()
        for _ in range(9):
            desk.read()
            self.run(1.0)
        for _ in range(number // 250):
            self.put(250)
        return desk

    rested = False
    """Whether handlers that never checkpoint have stopped doing it."""


def loaded(
    tmp_path: Any, mode: str = "each batch", workers: Sequence[str] = ("a",), **more: Any
) -> tuple[SteeredFleet, datetime, int]:
    """Return a fleet under load, a moment in the middle, and the number of the first record that was put after it."""
    fleet = SteeredFleet(tmp_path, **more)
    for name in workers:
        fleet.add(name, fleet.checkpointer(name, mode))
    fleet.load(5)
    assert fleet.delivered, "the fleet reads before the moment"
    start, first = fleet.moment(), fleet.put_count
    fleet.load(7)
    return fleet, start, first
