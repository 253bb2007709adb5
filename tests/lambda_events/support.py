"""Events for tests, and Lambda's side of an event source mapping."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kinesis_sdk.testing import FakeAws
from tests.common.reference import filled

DATA = Path(__file__).parent / "data"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SHARD = "shardId-000000000000"
TABLE_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-26T00:00:00.000"

Event = dict[str, Any]
Record = dict[str, Any]


def document(name: str) -> Event:
    event: Event = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return event


def aggregate(payloads: Iterable[str]) -> bytes:
    return filled([(f"key-{text}", None, text.encode()) for text in payloads]).encode()


def record(number: int, payloads: Sequence[str]) -> Record:
    """A record of an event: an aggregate, or a plain record if there is one payload."""
    data = payloads[0].encode() if len(payloads) == 1 else aggregate(payloads)
    return {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": "a",
            "sequenceNumber": str(number),
            "data": b64encode(data).decode(),
            "approximateArrivalTimestamp": 1545084650.987,
        },
        "eventSource": "aws:kinesis",
        "eventID": f"{SHARD}:{number}",
        "eventSourceARN": ARN,
    }


def event(*batches: Sequence[str]) -> Event:
    """An event with the sequence numbers 100, 101, …, one Kinesis record for each sequence of payloads."""
    return {"Records": [record(100 + index, payloads) for index, payloads in enumerate(batches)]}


class EventSourceMapping:
    """What Lambda does with a shard, as its developer guide describes it.

    Args:
        handler: The function.
        batch_size: Maximum records of an event.
        report: Whether the mapping has the response type ReportBatchItemFailures.
        bisect: Whether it has BisectBatchOnFunctionError. Halving a batch does not consume a retry.
        max_retries: Retries of a batch before it is discarded.
    """

    def __init__(
        self,
        handler: Callable[[Mapping[str, Any], Any], dict[str, Any]],
        *,
        batch_size: int = 100,
        report: bool = True,
        bisect: bool = False,
        max_retries: int = 10**9,
    ) -> None:
        self.handler = handler
        self.batch_size = batch_size
        self.report = report
        self.bisect = bisect
        self.max_retries = max_retries
        self.discarded: list[Record] = []
        self.invocations = 0

    def run(self, records: Sequence[Record]) -> None:
        size = self.batch_size
        batches = deque((list(records[at : at + size]), 0) for at in range(0, len(records), size))
        while batches:
            batch, retries = batches.popleft()
            rest, failed = self._invoke(batch)
            if not rest:
                continue
            if len(rest) < len(batch):
                # Everything before it is checkpointed, so this is a new batch.
                batches.appendleft((rest, 0))
            elif failed and self.bisect and len(rest) > 1:
                middle = len(rest) // 2
                batches.extendleft([(rest[middle:], retries), (rest[:middle], retries)])
            elif retries < self.max_retries:
                batches.appendleft((rest, retries + 1))
            else:
                self.discarded += rest

    def _invoke(self, batch: list[Record]) -> tuple[list[Record], bool]:
        """Invoke the function; return what it did not process, and whether it raised an error."""
        self.invocations += 1
        try:
            response = self.handler({"Records": batch}, None)
        except Exception:  # noqa: BLE001 - Lambda takes any error as a failed batch
            return batch, True
        numbers = [int(item["itemIdentifier"]) for item in response["batchItemFailures"]]
        if not numbers or not self.report:
            return [], False
        return [item for item in batch if int(item["kinesis"]["sequenceNumber"]) >= min(numbers)], False


def firehose_event(*payloads: bytes) -> dict[str, Any]:
    """An event of a Firehose stream into which producers put records directly."""
    return {
        "invocationId": "1",
        "deliveryStreamArn": "arn:aws:firehose:us-east-1:123456789012:deliverystream/d",
        "region": "us-east-1",
        "records": [
            {
                "recordId": f"r{index}",
                "approximateArrivalTimestamp": 1510772160000,
                "data": b64encode(data).decode(),
            }
            for index, data in enumerate(payloads)
        ],
    }


def table_change(number: int, **images: Any) -> dict[str, Any]:
    """A record as Lambda's documentation shows it; bytes are base64, times are epoch seconds."""
    return {
        "eventID": f"id-{number}",
        "eventName": "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1764115200.0,
            "Keys": {"id": {"N": str(number)}},
            "SequenceNumber": str(100 + number),
            "SizeBytes": 26,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
            **images,
        },
        "eventSourceARN": TABLE_ARN,
    }


def table_event(*numbers: int) -> dict[str, Any]:
    return {"Records": [table_change(number) for number in numbers]}


def stored(*payloads: bytes) -> tuple[FakeAws, list[str]]:
    """A stream with one shard and these records, and their sequence numbers."""
    aws = FakeAws(streams={"orders": 1})
    client = aws.client("kinesis")
    return aws, [
        client.put_record(StreamName="orders", PartitionKey="k", Data=payload)["SequenceNumber"]
        for payload in payloads
    ]


def discarded_message(first: str, last: str, size: int, **more: Any) -> dict[str, Any]:
    """The message of Lambda's documentation about a batch of Kinesis."""
    place = {
        "shardId": SHARD,
        "startSequenceNumber": first,
        "endSequenceNumber": last,
        "approximateArrivalOfFirstRecord": "2026-11-26T00:38:06.021Z",
        "approximateArrivalOfLastRecord": "2026-11-26T00:38:06.021Z",
        "batchSize": size,
        "streamArn": ARN,
        **more,
    }
    return {
        "requestContext": {"condition": "RetryAttemptsExhausted", "approximateInvokeCount": 1},
        "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
        "version": "1.0",
        "timestamp": "2026-11-26T00:38:06.021Z",
        "KinesisBatchInfo": place,
    }
