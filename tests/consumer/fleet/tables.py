"""Fleets that read the stream of a table, and copy the table: real engines on the fake AWS, in virtual time.

A worker can be killed or frozen at any call that it makes. One that is killed makes no further call and delivers nothing; one
that is frozen continues in the middle of its call while the others have moved on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, RecordBatch
from kinesis_sdk.consumer.table_streams.client import TableStreamClient
from kinesis_sdk.consumer.table_streams.source import DynamoDbStream
from tests.consumer.fleet.engines import Fleet

TABLE = "orders"
KEYS = [{"AttributeName": "k", "KeyType": "HASH"}]
TYPES = [{"AttributeName": "k", "AttributeType": "S"}]


class Killed(BaseException):
    """A simulated process has ended; nothing that it does has an effect any more."""


class Calls:
    """Calls of one worker to one service, each of which may be its last.

    Args:
        target: The client or store.
        on_call: Called before and after each call; raises `Killed` to end the worker there.
    """

    def __init__(self, target: Any, on_call: Callable[[str, str], None]) -> None:
        self._target = target
        self._on_call = on_call
        self.meta = getattr(target, "meta", None)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if not callable(method):
            return method

        def call(*arguments: Any, **more: Any) -> Any:
            self._on_call(name, "before")
            result = method(*arguments, **more)
            self._on_call(name, "after")
            return result

        return call


class TableFleet:
    """Workers that copy a table by its stream.

    Args:
        seed: Of the writes and of the workers.
        partitions: Open shards at first.
        shard_seconds: Seconds for which a shard is written.
        retention: Seconds for which the stream keeps records.
        config: Settings of the workers.
        enabled: Whether the stream is enabled at once.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        partitions: int = 2,
        shard_seconds: float = 240.0,
        retention: float = 1440.0,
        config: ConsumerConfig | None = None,
    ) -> None:
        self.fleet = Fleet(seed=seed)
        self.random = Random(seed)
        self.config = config or ConsumerConfig(initial_position="TRIM_HORIZON")
        self.aws = self.fleet.aws
        streams = self.aws.table_streams
        streams.partitions, streams.shard_seconds, streams.retention = partitions, shard_seconds, retention
        self.dynamodb = self.aws.client("dynamodb")
        self.client = self.aws.client("dynamodbstreams")
        self.dynamodb.create_table(
            TableName=TABLE,
            KeySchema=KEYS,
            AttributeDefinitions=TYPES,
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        self.fleet.stream = DynamoDbStream(TABLE).resolve(self.client)
        # As `Worker` passes them for a table's name: streams of the table before the one that is read.
        self.former: list[StreamId] = []
        self.store = self.fleet.store
        self.versions = 0
        self.written: dict[str, list[int]] = {}
        # (worker and acquisition, key, version, sequence number) in order of delivery
        self.delivered: list[tuple[str, str, int, int]] = []
        self.copy: dict[str, tuple[int, dict[str, Any] | None]] = {}
        self.dead: set[str] = set()
        self.calls: dict[str, int] = {}
        # (worker, number of the call, "before" or "after"): what happens there
        self.plans: dict[tuple[str, int, str], Callable[[str], None]] = {}

    # Writing

    def write(self, number: int = 1, keys: int = 8) -> None:
        """Change random items: put, update or remove."""
        for _ in range(number):
            self.versions += 1
            key = f"k{self.random.randrange(keys)}"
            self.written.setdefault(key, []).append(self.versions)
            version = {"N": str(self.versions)}
            if self.random.random() < 0.2 and key in self.table():
                # The version of a removal is that of the image before it.
                self.dynamodb.put_item(TableName=TABLE, Item={"k": {"S": key}, "v": version})
                self.dynamodb.delete_item(TableName=TABLE, Key={"k": {"S": key}})
            elif self.random.random() < 0.5:
                self.dynamodb.put_item(TableName=TABLE, Item={"k": {"S": key}, "v": version})
            else:
                self.dynamodb.update_item(
                    TableName=TABLE,
                    Key={"k": {"S": key}},
                    UpdateExpression="SET v = :v",
                    ExpressionAttributeValues={":v": version},
                )

    def table(self) -> dict[str, int]:
        """The items of the table: version by key."""
        items = self.dynamodb.scan(TableName=TABLE)["Items"]
        return {item["k"]["S"]: int(item["v"]["N"]) for item in items}

    def roll(self, *, split: bool = False) -> None:
        self.aws.table_streams.roll(TABLE, split=split)

    # Reading

    def add(self, name: str, config: ConsumerConfig | None = None) -> None:
        """Start a worker; a name that was killed may start again."""
        self.dead.discard(name)
        on_call = self._on_call(name)
        fleet = self.fleet
        fleet.kinesis = TableStreamClient(Calls(self.client, on_call), self.former)  # type: ignore[assignment]
        fleet.store = Calls(self.store, on_call)
        try:
            fleet.add(name, self.handler(name), config or self.config)
        except Killed:
            self.kill(name)
            return
        finally:
            fleet.store = self.store
        tick = fleet._tick

        def guarded() -> None:
            try:
                tick(name, engine)
            except Killed:
                self.kill(name)

        engine = fleet.engines[name]
        fleet._members[name].alarm._action = guarded

    def kill(self, name: str) -> None:
        self.dead.add(name)
        if name in self.fleet._members:
            self.fleet.crash(name)

    def _on_call(self, name: str) -> Callable[[str, str], None]:
        generation = object()
        self._generations = getattr(self, "_generations", {})
        self._generations[name] = generation

        def on_call(operation: str, when: str) -> None:
            if name in self.dead or self._generations[name] is not generation:
                raise Killed(name)
            if when == "before":
                self.calls[name] = self.calls.get(name, 0) + 1
            plan = self.plans.pop((name, self.calls[name], when), None)
            if plan is not None:
                plan(operation)
            if name in self.dead or self._generations[name] is not generation:
                raise Killed(name)

        return on_call

    def kill_at(self, name: str, call: int, when: str) -> None:
        def plan(operation: str) -> None:
            del operation
            self.dead.add(name)

        self.plans[name, call, when] = plan

    def freeze_at(self, name: str, call: int, when: str, seconds: float) -> None:
        """Let others run for some time in the middle of a call of a worker."""

        def plan(operation: str) -> None:
            del operation
            self.fleet.timeline.run(self.fleet.clock.monotonic() + seconds)

        self.plans[name, call, when] = plan

    def handler(self, name: str) -> Callable[[RecordBatch], None]:
        acquisitions = self.fleet.acquisitions

        def handle(batch: RecordBatch) -> None:
            number = acquisitions.setdefault(batch.checkpointer, len(acquisitions))
            for change in batch.changes:
                if name in self.dead:
                    raise Killed(name)
                image = change.new_image or change.old_image
                assert image is not None
                key, sequence = change.keys["k"], int(change.sequence_number)
                if change.event_name != "REMOVE":
                    self.delivered.append((f"{name}#{number}", key, int(image["v"]), sequence))
                # What a copy has to do: a frozen worker may come back with an old change.
                if self.copy.get(key, (0, None))[0] < sequence:
                    self.copy[key] = (sequence, change.new_image)

        return handle

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        return self.fleet.run(seconds, until)

    # Checking

    @property
    def seen(self) -> set[int]:
        """Versions that were delivered."""
        return {version for _, _, version, _ in self.delivered}

    @property
    def put(self) -> set[int]:
        """Versions that were written."""
        return {version for versions in self.written.values() for version in versions}

    def all_delivered(self) -> bool:
        return self.put <= self.seen

    def copied(self) -> dict[str, int]:
        return {key: int(image["v"]) for key, (_, image) in self.copy.items() if image is not None}

    def check(self) -> None:
        """Check that nothing is lost, that keys are in order, and that the copy equals the table."""
        seen: dict[str, list[int]] = {}
        last: dict[tuple[str, str], int] = {}
        for worker, key, version, sequence in self.delivered:
            found = seen.setdefault(key, [])
            if version not in found:
                found.append(version)
            assert last.get((worker, key), 0) < sequence, f"{worker}: {key} goes back to version {version}"
            last[worker, key] = sequence
        assert seen == self.written
        assert self.copied() == self.table()

    def leases(self) -> dict[str, ExtendedSequenceNumber]:
        return {lease.lease_key: lease.checkpoint for lease in self.store.list()}
