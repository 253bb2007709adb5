"""docs/lease-table.md: every attribute has a row, and each write changes exactly the attributes that the page says it does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table import attributes
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.progress import Progress
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.readme import DOCS

PAGE = (DOCS / "lease-table.md").read_text(encoding="utf-8")
KEY = "shardId-000000000003"
NOT_BY_THE_STORE = {"KCL 3.5", "operator"}


def rows() -> dict[str, set[str]]:
    """Each attribute of the page, and the writes that change it."""
    section = PAGE.split("## Attributes")[1].split("## Writes")[0]
    found = {}
    for names, _, _, writes in re.findall(r"^\| (`.+?) \| (\w+) \| (.+) \| (.+?) \|$", section, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            found[name] = set(writes.split(", "))
    return found


def changed_by(write: str) -> set[str]:
    return {name for name, writes in rows().items() if write in writes}


def full(**values: Any) -> Lease:
    """A row with every attribute that a write may remove or change."""
    row = Lease(
        lease_key=KEY,
        counter=7,
        owner="a",
        owner_switches=2,
        checkpoint=ExtendedSequenceNumber("100"),
        pending_checkpoint=ExtendedSequenceNumber("200", 3),
        pending_checkpoint_state=b"x",
        throughput_kbps=1.0,
        initial_timestamp_millis=5,
        handoff_owner="a",
        progress=Progress(lag_millis=1, last_arrival_millis=None, handler_millis=None, owner="a"),
    )
    return replace(row, **values)


def measured(row: Lease) -> Lease:
    """The row as its owner passes it, with new measurements."""
    progress = Progress(lag_millis=9, last_arrival_millis=None, handler_millis=None, owner="a")
    return replace(row, throughput_kbps=2.0, progress=progress)


Write = Callable[[DynamoDBLeaseStore, Lease], object]
REQUESTED = {"owner": "b", "checkpoint_owner": "a", "handoff_owner": "b"}
WRITES: dict[str, list[tuple[Lease, Write]]] = {
    "take": [
        (full(), lambda store, row: store.take(row, "b")),
        (full(**REQUESTED), lambda store, row: store.take(row, "b")),
    ],
    "renewal": [(full(), lambda store, row: store.renew(measured(row)))],
    "checkpoint": [
        (full(), lambda store, row: store.checkpoint(measured(row), ExtendedSequenceNumber("300", 1)))
    ],
    "prepare": [
        (
            full(pending_checkpoint=None, pending_checkpoint_state=None),
            lambda store, row: store.prepare(row, ExtendedSequenceNumber("300", 1), b"y"),
        )
    ],
    "first read": [(full(), lambda store, row: store.pin(row, 6))],
    "until": [(full(), lambda store, row: store.mark_processed(row, 6))],
    "handoff request": [(full(), lambda store, row: store.request_handoff(row, "b"))],
    "handoff": [(full(**REQUESTED), lambda store, row: store.complete_handoff(row))],
    "release": [
        (full(), lambda store, row: store.release(row)),
        (full(**REQUESTED), lambda store, row: store.release(row)),
    ],
    "children": [(full(), lambda store, row: store.set_child_shard_ids(row.lease_key, ["c", "d"]))],
    "hash range": [(full(), lambda store, row: store.set_hash_key_range(row.lease_key, HashKeyRange(0, 9)))],
    "standby": [(full(), lambda store, row: store.put_standby_heartbeat(row.lease_key, "<worker id>", 1))],
    "drain": [(full(), lambda store, row: store.set_drain(row.lease_key, "<worker id>", True))],
    "pin": [(full(), lambda store, row: store.set_pin(row.lease_key, "b"))],
    "request": [
        (
            full(),
            lambda store, row: store.set_handler_request(
                row.lease_key, HandlerRequest(HandlerVerb.RETRY, "r")
            ),
        )
    ],
}


def stored(aws: FakeAws) -> dict[str, Any]:
    response = aws.client("dynamodb").get_item(TableName="billing", Key={"leaseKey": {"S": KEY}})
    return dict(response.get("Item", {}))


def made() -> tuple[FakeAws, DynamoDBLeaseStore]:
    clock = VirtualClock()
    aws = FakeAws(clock=clock)
    store = DynamoDBLeaseStore(aws.client("dynamodb"), "billing", sleep=clock.advance)
    store.ensure_ready()
    return aws, store


@pytest.mark.parametrize("write", WRITES)
def test_a_write_changes_what_the_page_says(write: str) -> None:
    changed = set()
    for row, make in WRITES[write]:
        aws, store = made()
        store.create_if_absent(row)
        before = stored(aws)
        make(store, row)
        after = stored(aws)
        changed |= {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if write == "checkpoint":
        changed.add("pendingCheckpointSubSequenceNumber")
    assert changed == changed_by(write)


def test_a_creation_writes_what_the_page_says() -> None:
    aws, store = made()
    store.create_if_absent(
        Lease(
            lease_key=KEY,
            checkpoint=ExtendedSequenceNumber("AT_TIMESTAMP"),
            parent_shard_ids=("shardId-000000000001",),
            hash_key_range=HashKeyRange(0, 9),
            stream_name="1:s:1",
            shard_id=KEY,
            initial_timestamp_millis=5,
        )
    )
    assert set(stored(aws)) == changed_by("creation")


def test_every_attribute_and_every_write_has_a_row() -> None:
    known = {
        value
        for name, value in vars(attributes).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    } - {"AT_TIMESTAMP", "LATEST"}
    assert {name.removesuffix("<worker id>") for name in rows()} == known
    section = PAGE.split("## Writes")[1].split("\n## ")[0]
    listed = {
        name for row in re.findall(r"^\| ([a-z ,]+?) \|", section, re.MULTILINE) for name in row.split(", ")
    }
    named = set().union(*rows().values()) - {"KCL 3.5"}
    assert named == listed - {"write", "deletion"} == {*WRITES, "creation", "operator"}
    assert named | {"KCL 3.5"} == {*WRITES, "creation", *NOT_BY_THE_STORE}
