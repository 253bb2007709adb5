"""Whatever a fleet does, every item of its table is one that a Java KCL reads: names, types, what is mandatory."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kinesis_sdk.consumer import ConsumerConfig, RecordHandler
from kinesis_sdk.consumer.leases.table.lease import lease_from_item
from tests.consumer.fleet.dynamodb import on_dynamodb

# `DynamoDBLeaseSerializer` and `DynamoDBMultiStreamLeaseSerializer` of the KCL.
MANDATORY = {
    "leaseKey": "S",
    "leaseCounter": "N",
    "ownerSwitchesSinceCheckpoint": "N",
    "checkpoint": "S",
    "checkpointSubSequenceNumber": "N",
    "startingHashKey": "S",
    "endingHashKey": "S",
}
OPTIONAL = {
    "leaseOwner": "S",
    "checkpointOwner": "S",
    "parentShardId": "SS",
    "childShardIds": "SS",
    "pendingCheckpoint": "S",
    "pendingCheckpointSubSequenceNumber": "N",
    "pendingCheckpointState": "B",
    "throughputKBps": "N",
}
# Java ignores and keeps them.
OURS = {"handoffOwner": "S", "initialTimestampMillis": "N", "progress": "S"}


class Inspector:
    """Looks at every answer of every write."""

    def __init__(self, client: Any, mandatory: dict[str, str]) -> None:
        self._client = client
        self._mandatory = mandatory
        self._types = {**mandatory, **OPTIONAL, **OURS}
        self.seen: set[str] = set()
        self.counters: dict[str, int] = {}
        # An assertion that fails during a call of a handler would be retried as an error of the handler.
        self.problems: list[str] = []
        self.meta = client.meta

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in ("put_item", "update_item"):
            return method

        def write(**request: Any) -> Any:
            answer = method(**request)
            key = request.get("Key") or {"leaseKey": request["Item"]["leaseKey"]}
            try:
                self.inspect(self._client.get_item(TableName=request["TableName"], Key=key)["Item"])
            except AssertionError as error:
                self.problems.append(str(error))
            return answer

        return write

    def inspect(self, item: dict[str, Any]) -> None:
        assert set(self._mandatory) <= set(item), item
        for name, value in item.items():
            ((kind, content),) = value.items()
            assert self._types.get(name) == kind, (name, value)
            assert content not in ("", [], b""), (name, value)
        assert item["checkpoint"]["S"].isdigit() or item["checkpointSubSequenceNumber"] == {"N": "0"}
        pending = {name for name in item if name.startswith("pendingCheckpoint")}
        assert not pending or {"pendingCheckpoint", "pendingCheckpointSubSequenceNumber"} <= pending
        lease = lease_from_item(item)
        assert lease.extra == {}
        assert lease.counter >= self.counters.get(lease.lease_key, 0)
        self.counters[lease.lease_key] = lease.counter
        self.seen |= set(item)


class TwoPhases(RecordHandler):
    """Prepares with and without state, and commits every other time."""

    count = 0

    def process_records(self, batch: Any) -> None:
        TwoPhases.count += 1
        state = b"state" if self.count % 3 else None
        prepared = batch.checkpointer.prepare_checkpoint(state=state)
        if self.count % 2:
            prepared.checkpoint()


@pytest.mark.parametrize("position", ["TRIM_HORIZON", "LATEST"])
def test_every_item_that_a_fleet_writes_is_a_kcls(position: str) -> None:
    fleet = on_dynamodb(2, config=ConsumerConfig(initial_position=position))
    inspector = fleet.store._client = Inspector(fleet.store._client, MANDATORY)
    rng = Random(5)
    fleet.add("a", TwoPhases)
    fleet.run(3)
    for step, name in enumerate(("b", "c")):
        fleet.add(name, TwoPhases)  # handoffs
        for _ in range(5):
            fleet.put(10)
            fleet.run(3)
        fleet.split() if step == 0 else fleet.merge(rng.randrange(2))
        fleet.put(10)
        fleet.run(20)
    fleet.crash("a")
    fleet.run(20)
    fleet.stop("b")
    fleet.run(5)
    assert fleet.raw is not None
    assert inspector.problems == []
    expected = {*MANDATORY, *OPTIONAL, "handoffOwner", "progress"} | (
        {"initialTimestampMillis"} if position == "LATEST" else set()
    )
    assert inspector.seen == expected, "all of them were seen"
