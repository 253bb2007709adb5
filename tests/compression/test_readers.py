"""Every reader opens compressed aggregates, and none passes over one whose codec is missing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import pytest

from kinesis_sdk.admin import Connection
from kinesis_sdk.admin.reading import read_stream
from kinesis_sdk.admin.records import read_page
from kinesis_sdk.common import codec as codecs
from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.errors import CodecUnavailableError
from kinesis_sdk.common.position import TrimHorizon
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.compression.zstd import ZstdCodec
from kinesis_sdk.lambda_events import FirehoseRecord, firehose_transform, kinesis_handler
from kinesis_sdk.multilang.protocol import ProcessRecords, decode_daemon_line, encode_records
from kinesis_sdk.testing import FakeAws, VirtualClock
from tests.common.reference import Item, filled
from tests.lambda_events.support import event

SHARD = "shardId-000000000000"
DATA = [b"%d" % number for number in range(300)]
ITEMS: list[Item] = [("k", None, data) for data in DATA]


def of_spark(sealed: bytes) -> list[bytes]:
    arrow = pytest.importorskip("kinesis_sdk.spark.arrow")
    carrier = KinesisRecord(sealed, "a", "1", datetime(2026, 1, 1, tzinfo=timezone.utc))
    batches = arrow.BatchBuilder("orders", deaggregate=True).build(SHARD, [carrier])
    return [row["data"] for batch in batches for row in batch.to_pylist()]


def of_lambda(sealed: bytes) -> list[bytes]:
    found: list[bytes] = []
    request = event(["replaced"])
    request["Records"][0]["kinesis"]["data"] = b64encode(sealed).decode()
    kinesis_handler(lambda record: found.append(record.data))(request, None)
    return found


def of_firehose(sealed: bytes) -> list[bytes]:
    found: list[bytes] = []
    record = {"recordId": "1", "approximateArrivalTimestamp": 0, "data": b64encode(sealed).decode()}
    request: dict[str, Any] = {"invocationId": "1", "region": "us-east-1", "records": [record]}
    request["deliveryStreamArn"] = "arn:aws:firehose:us-east-1:123456789012:deliverystream/d"

    def transform(record: FirehoseRecord) -> bytes:
        found.append(record.data)
        return record.data

    firehose_transform(transform)(request, None)
    return found


def of_commands(sealed: bytes) -> list[bytes]:
    client = FakeAws().client("kinesis")
    client.create_stream(StreamName="s", ShardCount=1)
    client.put_record(StreamName="s", PartitionKey="a", Data=sealed)
    page = read_page(Connection(clients={"kinesis": client}), "s", SHARD, TrimHorizon(), limit=1_000)
    return [record.data for record in page.records]


def of_tail(sealed: bytes) -> list[bytes]:
    clock = VirtualClock()
    client = FakeAws(clock=clock).client("kinesis")
    client.create_stream(StreamName="s", ShardCount=1)
    client.put_record(StreamName="s", PartitionKey="a", Data=sealed)
    found = read_stream(
        Connection(clients={"kinesis": client}),
        "s",
        start=TrimHorizon(),
        clock=clock,
        sleep=lambda _seconds: pytest.fail("neither records nor an error are waited for"),
    )
    return [shard_record.record.data for shard_record in islice(found, len(DATA))]


def of_children(sealed: bytes) -> list[bytes]:
    """Processors behind `kinesis-sdk multilang`."""
    line = b"".join(encode_records(deaggregate([KinesisRecord(sealed, "a", "1")]), 0))
    message = decode_daemon_line(line)
    assert isinstance(message, ProcessRecords)
    assert [record.sub_sequence_number for record in message.records] == list(range(len(DATA)))
    return [record.payload for record in message.records]


READERS = [of_tail, of_children, of_spark, of_lambda, of_firehose, of_commands]


@pytest.mark.parametrize("reader", READERS)
def test_a_compressed_aggregate_is_opened(reader: Callable[[bytes], list[bytes]]) -> None:
    assert reader(filled(ITEMS).seal_with(ZstdCodec()).encode()) == DATA


@pytest.mark.parametrize(
    ("reader", "place"),
    [
        (of_tail, f"stream s shard {SHARD} record"),
        (of_children, "the codec 'zstd'"),
        (of_spark, f"stream orders shard {SHARD} record 1: the codec 'zstd'"),
        (of_lambda, r"stream \S+ shard \S+ record \d+: the codec 'zstd'"),
        (of_firehose, "the codec 'zstd'"),
        (of_commands, rf"stream s shard {SHARD} record \d+: the codec 'zstd'"),
    ],
)
def test_without_its_codec_it_is_an_error(
    reader: Callable[[bytes], list[bytes]], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = filled(ITEMS).seal_with(ZstdCodec()).encode()
    monkeypatch.setattr(codecs, "_made", {})
    monkeypatch.setattr(codecs, "HOMES", {})
    with pytest.raises(CodecUnavailableError, match=place):
        reader(sealed)
