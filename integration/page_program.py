"""Runs the Python blocks of a page in order, in one namespace, against the fake AWS of the environment.

``python -m integration.page_program docs/health.md``. Workers end once they have processed everything in the streams, as with
``until="now"``, and start at the oldest record unless the page says otherwise. Everything else is as on the page.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import inspect
import sys
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinesis_sdk import ConsumerConfig, Worker
from kinesis_sdk.lambda_events import KinesisEvent
from tests.readme import ROOT, programs

STREAMS = {"orders": 2, "raw": 1, "flights": 2, "copy": 1, "replay": 1, "clicks": 1, "bills": 1}
"""Streams that exist, with two records each, and their numbers of shards."""

TIERS = ("orders.retry-60", "orders.retry-600", "orders.retry-3600")
"""Streams that exist and are empty."""

TABLES = ("orders", "orders-copy")
"""DynamoDB tables with the key ``id``, a stream, and one item."""

FILES = {
    "app.properties": "applicationName = billing\nstreamName = orders\nregionName = us-east-1\n"
    "AwsCredentialsProvider = EnvironmentVariableCredentialsProvider\n",
    "kpl.properties": "Region = us-east-1\nRecordMaxBufferedTime = 100\nThreadPoolSize = 4\n",
}
"""Files in the working folder of the blocks."""


def handle(batch: Any) -> None:
    """Print records: the handler of blocks that define none."""
    for record in batch.records:
        print(record.partition_key, record.data)


def prepare(environment: dict[str, str], folder: Path) -> None:
    """Create what the pages presuppose. The test calls this before the program starts."""
    import boto3

    session = boto3.Session("x", "x", region_name=environment["AWS_DEFAULT_REGION"])
    kinesis, dynamodb = (
        session.client(service, endpoint_url=environment["AWS_ENDPOINT_URL"])
        for service in ("kinesis", "dynamodb")
    )
    for name, shards in STREAMS.items():
        kinesis.create_stream(StreamName=name, ShardCount=shards)
        for number in (1, 2):
            kinesis.put_record(
                StreamName=name, PartitionKey=f"customer-{number}", Data=b'{"amount": %d}' % number
            )
    for name in TIERS:
        kinesis.create_stream(StreamName=name, ShardCount=1)
    for name in TABLES:
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        dynamodb.put_item(TableName=name, Item={"id": {"S": "7"}})
    for name, text in FILES.items():
        (folder / name).write_text(text)


def end_workers() -> None:
    """Make every worker start at the oldest record and end once it has processed the existing ones."""
    original = Worker.__init__

    @functools.wraps(original)
    def ends(self: Worker, *arguments: Any, **settings: Any) -> None:
        config = settings.get("config") or ConsumerConfig()
        if config.initial_position == "LATEST":
            settings["config"] = replace(config, initial_position="TRIM_HORIZON")
        settings.setdefault("until", "now")
        original(self, *arguments, **settings)

    Worker.__init__ = ends  # type: ignore[method-assign]


def given() -> dict[str, Any]:
    """Return the names that blocks use without defining them."""
    stored = {
        "kinesis": {
            "partitionKey": "customer-1",
            "sequenceNumber": "49590338271490256608559692538361571095921575989136588898",
            "data": base64.b64encode(b'{"amount": 1}').decode(),
            "approximateArrivalTimestamp": 1_700_000_000.0,
        },
        "eventSource": "aws:kinesis",
        "eventSourceARN": "arn:aws:kinesis:us-east-1:123456789012:stream/orders",
        "eventID": "shardId-000000000000:49590338271490256608559692538361571095921575989136588898",
    }
    (record,) = KinesisEvent({"Records": [stored]}).user_records
    return {"__name__": "__main__", "handle": handle, "record": record}


def main(page: str) -> None:
    """Run the blocks of a page."""
    end_workers()
    names = given()
    for block in programs(ROOT / page):
        # Give tracebacks the line numbers of the page.
        text = "\n" * block.line + block.text
        code = compile(text, page, "exec", flags=PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.iscoroutine(result):
            asyncio.run(result)
        print(f"ran {page}:{block.line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
