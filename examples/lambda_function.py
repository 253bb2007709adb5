"""An AWS Lambda function behind a stream: each order is written to a DynamoDB table once.

It shows a partial batch response (Lambda delivers again from the first record that failed, and not the whole batch), a dead letter for
an order that is no JSON, and an effect that happens once although Lambda delivers at least once: the id of the record is the key of
the item.

The mapping needs `FunctionResponseTypes: [ReportBatchItemFailures]` and `BisectBatchOnFunctionError: true`. The handler is
``lambda_function.handler``. To invoke it on your machine, with the fake AWS, which prints the variables to export::

    kinesis-sdk fake --create-stream orders:2
    python examples/lambda_function.py

That puts three orders into the stream, one of which is broken, and invokes the handler with them as Lambda does.
"""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import boto3
from botocore.exceptions import ClientError

from kinesis_sdk import UserRecord
from kinesis_sdk.lambda_events import kinesis_handler

TABLE = os.environ.get("TABLE", "payments")
dynamodb = boto3.client("dynamodb")


def dead_letter(record: UserRecord, error: Exception) -> None:
    """Keep an order that cannot be processed, with the reason, where an operator can find it."""
    dynamodb.put_item(
        TableName=TABLE,
        Item={"id": {"S": record.id}, "error": {"S": repr(error)}, "data": {"B": record.data}},
    )


@kinesis_handler(report_batch_item_failures=True, dead_letter=dead_letter, retry_only=(ClientError,))
def handler(record: UserRecord) -> None:
    """Write one order. An error of the class in `retry_only` is the table's, and the record comes again."""
    order = json.loads(record.data)
    item = {
        "id": {"S": record.id},
        "customer": {"S": record.partition_key},
        "total": {"N": str(order["total"])},
    }
    try:
        dynamodb.put_item(TableName=TABLE, Item=item, ConditionExpression="attribute_not_exists(id)")
    except dynamodb.exceptions.ConditionalCheckFailedException:
        print("was written before:", record.id)


def event_of(stream: str) -> dict[str, Any]:
    """Return the event that Lambda makes of the records in a stream, as they are stored: aggregates are closed."""
    kinesis = boto3.client("kinesis")
    described = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    records = []
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        iterator = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        for record in kinesis.get_records(ShardIterator=iterator)["Records"]:
            kinesis_part = {
                "partitionKey": record["PartitionKey"],
                "sequenceNumber": record["SequenceNumber"],
                "data": base64.b64encode(record["Data"]).decode(),
                "approximateArrivalTimestamp": record["ApproximateArrivalTimestamp"].timestamp(),
            }
            records.append(
                {
                    "eventSource": "aws:kinesis",
                    "eventSourceARN": described["StreamARN"],
                    "eventID": f"{shard['ShardId']}:{record['SequenceNumber']}",
                    "kinesis": kinesis_part,
                }
            )
    return {"Records": records}


def main() -> None:
    """Put three orders, and invoke the handler."""
    from kinesis_sdk import Producer

    dynamodb.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.get_waiter("table_exists").wait(TableName=TABLE)
    with Producer() as producer:
        producer.put("orders", "customer-7", b'{"total": 12}')
        producer.put("orders", "customer-8", b"not JSON")
        producer.put("orders", "customer-9", b'{"total": 30}')
    print("response:", handler(event_of("orders"), None))
    for item in dynamodb.scan(TableName=TABLE)["Items"]:
        print("item:", item["id"]["S"], item.get("total") or item["error"])


if __name__ == "__main__":
    main()
