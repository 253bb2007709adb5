"""Java workers as they act on the lease table, written after `kcl-tables.json` and the KCL's source.

They use the legacy parameters of the real KCL (``Expected``, ``AttributeUpdates``), and no code of this package's consumer.
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from tests.consumer.fleet.engines import STREAM, Fleet

RENEW = 3.308
FAILOVER = 10.0


class JavaWorker:
    """Renews, consumes and checkpoints what it holds. ``v3`` understands the handoff marker.

    A batch takes ``batch`` seconds: the worker ends that long after a stop was requested. It searches for leases assigned to it
    every ``discover`` seconds, the first time ``offset`` seconds from now.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        *,
        v3: bool,
        batch: float = 0.0,
        discover: float = 9.975,
        offset: float = 0.0,
    ):
        self.fleet = fleet
        self.name = name
        self.v3 = v3
        self.batch = batch
        self.discover = discover
        self.table = fleet.aws.client("dynamodb")
        self.counters: dict[str, int] = {}
        self.leaving: dict[str, float] = {}
        self.lost: list[str] = []
        self.position: dict[str, str] = {}
        self._renew_at = fleet.clock.monotonic()
        self._discover_at = self._renew_at + offset

    def __call__(self, now: float) -> float:
        for key, at in [*self.leaving.items()]:
            if at <= now:
                self.transfer(key)
        if now >= self._discover_at:
            self.find(now)
            self._discover_at = now + self.discover
        if now >= self._renew_at:
            for key in [*self.counters]:
                self.renew(key, now)
            self._renew_at = now + RENEW
        for key in [*self.counters]:
            if key not in self.leaving:
                self.consume(key)
        return min([self._renew_at, self._discover_at, now + 1.0, *self.leaving.values()])

    # The table

    def items(self) -> list[dict[str, Any]]:
        return [item for item in self.table.scan(TableName="app")["Items"] if "leaseCounter" in item]

    def item(self, key: str) -> dict[str, Any]:
        return self.table.get_item(TableName="app", Key={"leaseKey": {"S": key}}, ConsistentRead=True)["Item"]

    def update(self, key: str, expected: dict[str, Any], updates: dict[str, Any]) -> dict[str, Any]:
        return self.table.update_item(
            TableName="app",
            Key={"leaseKey": {"S": key}},
            Expected=expected,
            AttributeUpdates=updates,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )["Attributes"]

    def find(self, now: float) -> None:
        """LeaseDiscoverer (3.x), or the resumption of own leases."""
        for item in self.items():
            key = item["leaseKey"]["S"]
            own = item.get("leaseOwner", {}).get("S") == self.name
            if own and key not in self.counters and not (self.v3 and "checkpointOwner" in item):
                self.counters[key] = int(item["leaseCounter"]["N"])
                if not self.v3:
                    self.renew(key, now)  # a 3.x leaves that to its renewer, which comes within 3.3 s

    def take(self, key: str) -> None:
        """Take a lease as ``DynamoDBLeaseTaker`` of the KCL 2.x does."""
        item = self.item(key)
        seen = int(item["leaseCounter"]["N"])
        updates: dict[str, Any] = {
            "leaseOwner": put("S", self.name),
            "leaseCounter": put("N", str(seen + 1)),
        }
        if item.get("leaseOwner", {}).get("S") not in (None, self.name):
            updates["ownerSwitchesSinceCheckpoint"] = {"Action": "ADD", "Value": {"N": "1"}}
        self.update(key, {"leaseCounter": equals("N", str(seen))}, updates)
        self.counters[key] = seen + 1

    def renew(self, key: str, now: float) -> None:
        seen = self.counters[key]
        expected: dict[str, Any] = {"leaseCounter": equals("N", str(seen))}
        if self.v3 and key not in self.leaving:
            expected["checkpointOwner"] = {"Exists": False}
        updates = {"leaseCounter": put("N", str(seen + 1)), "throughputKBps": put("N", "8.86E-4")}
        try:
            self.update(key, expected, updates)
        except ClientError:
            item = self.item(key)
            marked = item.get("checkpointOwner", {}).get("S") == self.name
            if self.v3 and marked and int(item["leaseCounter"]["N"]) == seen and key not in self.leaving:
                self.leaving[key] = now + self.batch
                self.renew(key, now)
                return
            self.drop(key)
        else:
            self.counters[key] = seen + 1

    def drop(self, key: str) -> None:
        self.lost.append(key)
        self.counters.pop(key, None)
        self.leaving.pop(key, None)

    def transfer(self, key: str) -> None:
        """The end of a graceful shutdown: checkpoint, then hand off."""
        self.checkpoint(key)
        item = self.item(key)
        try:
            self.update(
                key,
                {
                    "leaseKey": equals("S", key),
                    "leaseOwner": equals("S", item["leaseOwner"]["S"]),
                    "checkpointOwner": equals("S", self.name),
                },
                {
                    "checkpointOwner": {"Action": "DELETE"},
                    "leaseCounter": {"Action": "ADD", "Value": {"N": "1"}},
                    "leaseOwner": put("S", item["leaseOwner"]["S"]),
                },
            )
        finally:
            self.counters.pop(key, None)
            self.leaving.pop(key, None)

    def checkpoint(self, key: str) -> None:
        if key not in self.position:
            return
        seen = self.counters[key]
        self.update(
            key,
            {"leaseCounter": equals("N", str(seen))},
            {
                "checkpoint": put("S", self.position[key]),
                "checkpointSubSequenceNumber": put("N", "0"),
                "ownerSwitchesSinceCheckpoint": put("N", "0"),
                "leaseCounter": put("N", str(seen + 1)),
                "pendingCheckpoint": {"Action": "DELETE"},
                "pendingCheckpointSubSequenceNumber": {"Action": "DELETE"},
                "pendingCheckpointState": {"Action": "DELETE"},
            },
        )
        self.counters[key] = seen + 1

    # The stream

    def consume(self, key: str) -> None:
        item = self.item(key)
        stored = item["checkpoint"]["S"]
        after = self.position.get(key, stored)
        if not stored.isdigit() and key not in self.position:
            start = {"ShardIteratorType": stored}
        else:
            if stored.isdigit() and ExtendedSequenceNumber(stored) > ExtendedSequenceNumber(after):
                after = stored
            start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": after}
        iterator = self.fleet.raw.get_shard_iterator(StreamName=STREAM, ShardId=key, **start)["ShardIterator"]
        for record in self.fleet.raw.get_records(ShardIterator=iterator)["Records"]:
            self.fleet.delivered.append((f"{self.name}#0", key, record["Data"], record["SequenceNumber"], 0))
            self.position[key] = record["SequenceNumber"]


class JavaLeader:
    """Writes of a KCL 3 leader; the test decides when."""

    def __init__(self, fleet: Fleet) -> None:
        self.table = fleet.aws.client("dynamodb")

    def start_handoff(self, key: str, old: str, new: str) -> None:
        self.table.update_item(
            TableName="app",
            Key={"leaseKey": {"S": key}},
            Expected={
                "checkpointOwner": {"Exists": False},
                "leaseKey": equals("S", key),
                "leaseOwner": equals("S", old),
            },
            AttributeUpdates={"checkpointOwner": put("S", old), "leaseOwner": put("S", new)},
        )

    def assign(self, key: str, new: str) -> None:
        item = self.table.get_item(TableName="app", Key={"leaseKey": {"S": key}})["Item"]
        expected: dict[str, Any] = {"leaseKey": equals("S", key)}
        updates: dict[str, Any] = {
            "checkpointOwner": {"Action": "DELETE"},
            "leaseCounter": {"Action": "ADD", "Value": {"N": "1"}},
            "leaseOwner": put("S", new),
        }
        for name in ("leaseOwner", "checkpointOwner"):
            value = item.get(name)
            expected[name] = {"Value": value, "Exists": True} if value else {"Exists": False}
        if "leaseOwner" in item:
            updates["ownerSwitchesSinceCheckpoint"] = {"Action": "ADD", "Value": {"N": "1"}}
        self.table.update_item(
            TableName="app", Key={"leaseKey": {"S": key}}, Expected=expected, AttributeUpdates=updates
        )


def equals(kind: str, value: str) -> dict[str, Any]:
    return {"Value": {kind: value}, "Exists": True}


def put(kind: str, value: str) -> dict[str, Any]:
    return {"Action": "PUT", "Value": {kind: value}}
