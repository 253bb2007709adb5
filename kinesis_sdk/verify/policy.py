"""The permissions that a run needs, as an IAM policy."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.verify.scratch import PREFIX

STREAM_ACTIONS = (
    "AddTagsToStream", "CreateStream", "DecreaseStreamRetentionPeriod", "DeleteStream", "DescribeStream",
    "DescribeStreamSummary", "GetRecords", "GetShardIterator", "IncreaseStreamRetentionPeriod",
    "ListShards", "ListStreamConsumers", "ListTagsForStream", "MergeShards", "PutRecord", "PutRecords",
    "RegisterStreamConsumer", "RemoveTagsFromStream", "SplitShard", "UpdateMaxRecordSize",
    "UpdateShardCount", "UpdateStreamMode",
)  # fmt: skip
"""Actions on the streams of a run."""

CONSUMER_ACTIONS = ("DeregisterStreamConsumer", "DescribeStreamConsumer", "SubscribeToShard")
"""Actions on the registered consumers of these streams; AWS checks some of them on the stream."""

TABLE_ACTIONS = (
    "BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "CreateTable", "DeleteItem", "DeleteTable",
    "DescribeTable", "GetItem", "ListTagsOfResource", "PutItem", "Query", "Scan", "TagResource",
    "UpdateItem", "UpdateTable",
)  # fmt: skip
"""Actions on the tables of a run and their indexes."""

TABLE_STREAM_ACTIONS = ("DescribeStream", "GetRecords", "GetShardIterator")
"""Actions on the streams of these tables."""

GENERAL_ACTIONS = (
    "kinesis:DescribeLimits",
    "kinesis:ListStreams",
    "dynamodb:ListStreams",
    "dynamodb:ListTables",
)
"""Actions without a stream or table as resource."""


def policy(region: str, account: str = "123456789012") -> dict[str, Any]:
    """Return the policy of a run: it allows changes only to streams and tables whose names begin with the prefix.

    Args:
        region: Region of the run.
        account: Number of the account.
    """
    streams = f"arn:aws:kinesis:{region}:{account}:stream/{PREFIX}*"
    tables = f"arn:aws:dynamodb:{region}:{account}:table/{PREFIX}*"
    statements = (
        ("VerifyStreams", [f"kinesis:{name}" for name in STREAM_ACTIONS], [streams]),
        (
            "VerifyConsumers",
            [f"kinesis:{name}" for name in CONSUMER_ACTIONS],
            [streams, f"{streams}/consumer/*"],
        ),
        ("VerifyTables", [f"dynamodb:{name}" for name in TABLE_ACTIONS], [tables, f"{tables}/index/*"]),
        ("VerifyTableStreams", [f"dynamodb:{name}" for name in TABLE_STREAM_ACTIONS], [f"{tables}/stream/*"]),
        ("VerifyFind", list(GENERAL_ACTIONS), ["*"]),
    )
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": name,
                "Effect": "Allow",
                "Action": actions,
                "Resource": resources[0] if len(resources) == 1 else resources,
            }
            for name, actions, resources in statements
        ],
    }
