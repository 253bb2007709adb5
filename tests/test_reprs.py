"""No `repr` shows a payload: records end up in logs, and in messages of exceptions."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from datetime import datetime, timezone
from typing import Any

import pytest

import kinesis_sdk
from kinesis_sdk import producer
from kinesis_sdk.common import page_server
from kinesis_sdk.common.aggregate_reader import SubRecord, SubRecordColumns, deaggregate
from kinesis_sdk.common.interceptors import OneRecord
from kinesis_sdk.common.once.identity import Identity, RecordIdentity, Stamp
from kinesis_sdk.common.once.table import Run
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.response_header import NO_RESPONSE
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import GetRecordsPage, PutEntry
from kinesis_sdk.common.transport.decoding import Content
from kinesis_sdk.consumer import Lease, PoisonRecord, RecordBatch, ShardContext
from kinesis_sdk.consumer.fetch.fetcher import FetchResult
from kinesis_sdk.consumer.fetch.http2.connection import Request
from kinesis_sdk.consumer.fetch.http2.protocol import Body
from kinesis_sdk.consumer.shard.lanes import SubBatch
from kinesis_sdk.consumer.shard.reader import UserBatch
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.failures.hooks import FailedRecord
from kinesis_sdk.producer.failures.spool import SpooledRecord
from kinesis_sdk.producer.records.put import Put
from kinesis_sdk.spark.shardio import Page
from tests.common.reference import filled

SECRET = b"secret payload"
AT = ExtendedSequenceNumber("7")
KINESIS = KinesisRecord(SECRET, "key", "7")
USER = UserRecord(SECRET, "key", "7", None, None, 0, None, False, {"name": SECRET})
AGGREGATE = KinesisRecord(filled([("key", None, SECRET), ("key", None, b"")]).encode(), "a", "7")

HOLDERS: list[Any] = [
    KINESIS,
    USER,
    deaggregate([KINESIS, AGGREGATE]),
    OneRecord([USER], StreamId("orders"), "s"),
    SubRecord("key", None, SECRET),
    SubRecordColumns(["key"], None, [SECRET], ["key"], keyed=True),
    PutEntry(SECRET, "key"),
    GetRecordsPage([KINESIS], None, NO_RESPONSE, None, {}),
    Content([KINESIS], {"Records": []}),
    FetchResult(records=[KINESIS], header=NO_RESPONSE),
    Request("host", "/", {"authorization": "secret"}, SECRET),
    Body(1, SECRET, 20),
    Page([KINESIS], caught_up=True, ended=False, behind=0),
    UserBatch([USER], NO_RESPONSE, print, print),
    SubBatch([USER], NO_RESPONSE),
    RecordBatch(
        records=deaggregate([AGGREGATE]),
        shard_id="s",
        stream=StreamId("orders"),
        checkpointer=None,  # type: ignore[arg-type]
    ),
    PoisonRecord(record=USER, error=ValueError(), attempts=1, shard_id="s", stream=StreamId("orders")),
    ShardContext(
        stream=StreamId("orders"), shard_id="s", worker_id="w", checkpoint=AT, pending_checkpoint_state=SECRET
    ),
    Lease(lease_key="s", checkpoint=AT, pending_checkpoint_state=SECRET),
    FailedRecord("orders", "key", None, SECRET, ValueError(), headers={"name": SECRET}),
    Put("orders", "key", SECRET, headers={"name": SECRET}),
    ProducerConfig(idempotent=True, dedup_namespace="orders", dedup_secret=SECRET + b", long enough"),
    SpooledRecord(
        "orders", "key", None, SECRET, "cause", datetime(2026, 1, 2, tzinfo=timezone.utc), None, {"n": SECRET}
    ),
]

WITHOUT_PAYLOAD = {
    Run,
    Identity,
    RecordIdentity,
    Stamp,
    page_server.Page,
}  # their bytes are a producer's random number, a digest, and metrics


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_a_repr_leaves_the_payload_out(holder: Any) -> None:
    assert "secret" not in repr(holder)
    assert "secret" not in str(holder)


def test_lengths_are_shown() -> None:
    assert "data=<14 bytes>, partition_key='key', sequence_number='7'" in repr(USER)
    assert "headers={'name': <14 bytes>}" in repr(USER)
    assert repr(deaggregate([KINESIS, AGGREGATE])) == "<UserRecords: 3 user records, 28 bytes>"


def test_every_class_that_holds_payloads_is_tried() -> None:
    found = set()
    for module in pkgutil.walk_packages(kinesis_sdk.__path__, "kinesis_sdk."):
        if not module.name.startswith(("kinesis_sdk.common", "kinesis_sdk.consumer", "kinesis_sdk.spark")):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ModuleNotFoundError:  # an extra that is not installed
            continue
        found |= {
            value
            for name, value in vars(loaded).items()
            if not name.startswith("_") and holds_payloads(value)
        }
    found |= {value for name in producer.__all__ if holds_payloads(value := getattr(producer, name))}
    assert found
    assert found <= {type(holder) for holder in HOLDERS} | WITHOUT_PAYLOAD


def holds_payloads(value: object) -> bool:
    if not isinstance(value, type) or not (dataclasses.is_dataclass(value) or hasattr(value, "_fields")):
        return False
    return any(
        word in str(kind)
        for kind in value.__annotations__.values()
        if "Callable" not in str(kind)
        for word in ("bytes", "UserRecord", "KinesisRecord")
    )
