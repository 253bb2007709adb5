"""The contracts of the lease store and of the sink, checked on tables of the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinesis_sdk.consumer.leases import DynamoDBLeaseStore
from kinesis_sdk.consumer.sinks import DynamoDBSink
from kinesis_sdk.testing.contracts.lease_stores import LEASE_STORE_CHECKS
from kinesis_sdk.testing.contracts.sinks import SINK_CHECKS, SinkUnderTest
from kinesis_sdk.verify.notes import Notes

KEPT = "kept"

LEASE_STORE = {check.__name__: KEPT for check in LEASE_STORE_CHECKS}
LEASE_STORE_UNITS = {"write_unit": 5_000, "read_unit": 1_000}
SINK = {check.__name__: KEPT for check in SINK_CHECKS}
SINK_UNITS = {"write_unit": 1_000, "read_unit": 500}


class _ConsistentScans:
    """A DynamoDB client with consistent scans, because the checks, unlike workers, read immediately after a write."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def scan(self, **request: Any) -> Any:
        """Scan a table."""
        return self._client.scan(**{**request, "ConsistentRead": True})


def lease_store(notes: Notes) -> None:
    """Note whether the lease store keeps each rule. All checks use the same table, which is emptied before each check."""
    name = notes.name()
    store = DynamoDBLeaseStore(_ConsistentScans(notes.dynamodb), name, sleep=notes.wait)
    store.ensure_ready()
    for check in LEASE_STORE_CHECKS:
        _empty(notes, name)
        _note(notes, check.__name__, lambda check=check: check(store))  # type: ignore[misc]


def sink(notes: Notes) -> None:
    """Note whether the sink keeps each rule, on a table for its positions and a table for effects."""
    positions, effects = notes.name(), notes.table()
    made = DynamoDBSink(notes.dynamodb, positions, sleep=notes.wait)
    made.ensure_ready()

    def write(handle: Any, effect: str) -> None:
        handle.put(None, TableName=effects, Item={"k": {"S": effect}})

    under_test = SinkUnderTest(made, write, lambda: [item["k"]["S"] for item in _items(notes, effects)])
    for check in SINK_CHECKS:
        _empty(notes, positions)
        _empty(notes, effects)
        _note(notes, check.__name__, lambda check=check: check(under_test))  # type: ignore[misc]


def _note(notes: Notes, name: str, check: Callable[[], None]) -> None:
    try:
        check()
    except AssertionError as error:
        notes.fact(name, f"broken: {str(error)[:300]}")
    else:
        notes.fact(name, KEPT)


def _items(notes: Notes, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    request: dict[str, Any] = {"TableName": table, "ConsistentRead": True}
    while True:
        answer = notes.dynamodb.scan(**request)
        found += answer["Items"]
        if not answer.get("LastEvaluatedKey"):
            return found
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def _empty(notes: Notes, table: str) -> None:
    items = _items(notes, table)
    if not items:
        return
    keys = [key["AttributeName"] for key in notes.table_active(table)["KeySchema"]]
    for item in items:
        notes.dynamodb.delete_item(TableName=table, Key={key: item[key] for key in keys})
