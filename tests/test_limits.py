"""The table of limits in docs/sizing.md, against the constants that the code uses."""

from __future__ import annotations

import re

from kinesis_sdk.admin import streams
from kinesis_sdk.common.once import budget, memory, names, shell, stamps
from kinesis_sdk.consumer.config import RetrievalConfig
from kinesis_sdk.consumer.fetch import polling
from kinesis_sdk.consumer.sinks import dynamodb
from kinesis_sdk.producer import config
from kinesis_sdk.producer.failures import spool
from kinesis_sdk.producer.stream import pipeline
from tests.readme import DOCS

MIB, KIB = 1 << 20, 1 << 10

LIMITS = {
    "data and partition key of a Kinesis record": f"{config.MAX_RECORD_SIZE // MIB} MiB",
    "Kinesis records of a PutRecords request": f"{config.MAX_REQUEST_RECORDS}",
    "bytes of a PutRecords request": f"{config.MAX_REQUEST_SIZE // MIB} MiB",
    "characters of a partition key": f"{pipeline.MAX_PARTITION_KEY_LENGTH}",
    "records of a GetRecords response": f"{shell._MAX_RECORDS:,}",
    "bytes of a GetRecords response": f"{polling._MAX_RESPONSE_BYTES // MIB} MiB",
    "retention": f"{streams.MIN_RETENTION_HOURS} to {streams.MAX_RETENTION_HOURS:,} h",
    "effects of a `DynamoDBSink` transaction": f"{dynamodb.MAX_ACTIONS}",
    "bytes of a `DynamoDBSink` transaction": f"{dynamodb.MAX_BYTES // MIB} MiB",
    "bytes of an item": f"{dynamodb.MAX_ITEM_BYTES // KIB} KiB",
    "an idempotent producer resends a record of unknown outcome": (
        f"{config.HOLD_OFF} s after its first attempt at the earliest"
    ),
    "… with the same identity": f"up to {stamps.REPEAT_WINDOW:g} s after it",
    "readers look back for earlier copies": f"up to {budget.OLDEST_MILLIS // 1000} s",
    "`dedup_window`": f"up to {names.MAX_WINDOW:g} s",
    "a reader remembers runs of idempotent producers": f"for {memory.KEPT_MILLIS // 1000} s",
    "… and memory for these runs, for each shard (`max_repetition_bytes`)": f"{budget.MAX_BYTES // MIB} MiB by default",
    "a user record that is wrapped by an idempotent producer": (
        f"{stamps.WRAPPING} bytes smaller than the limit"
    ),
    "`FileSpool`": f"{spool.MAX_SPOOL_BYTES // (1 << 30)} GiB by default",
}


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    section = (DOCS / "sizing.md").read_text(encoding="utf-8").split("## Limits")[1]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (?:Kinesis|DynamoDB|SDK).*\|$", section, re.MULTILINE)
    assert dict(rows) == LIMITS
    assert RetrievalConfig().max_repetition_bytes == budget.MAX_BYTES
