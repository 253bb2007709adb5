"""A DynamoDB table of effects, each of which fails if it happens twice."""

from __future__ import annotations

from kinesis_sdk.common.records import UserRecord


def create_table(client, name, *keys):
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[
            {"AttributeName": key, "KeyType": kind}
            for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def write(transaction, effect, table="effects"):
    """An effect that fails if it happens twice."""
    shard, record_id, data = effect
    transaction.put(
        None,
        TableName=table,
        Item={"id": {"S": record_id}, "shard": {"S": shard}, "data": {"S": data.decode()}},
        ConditionExpression="attribute_not_exists(id)",
    )


def user_record(number):
    return UserRecord(b"", "k", str(number), None, None, 3)
