"""Which operations that our clients never call exist at all. Some change more than a scratch stream, so only emulators are asked."""

from __future__ import annotations

import re
from typing import Any

from kinesis_sdk.verify.notes import Notes
from kinesis_sdk.verify.scripts.dynamodb import item

OPERATIONS = (
    "DescribeAccountSettings", "DisableEnhancedMonitoring", "EnableEnhancedMonitoring", "GetResourcePolicy",
    "ListTagsForResource", "PutResourcePolicy", "DeleteResourcePolicy", "StartStreamEncryption",
    "StopStreamEncryption", "TagResource", "UntagResource", "UpdateAccountSettings",
    "UpdateStreamWarmThroughput",
)  # fmt: skip


def kinesis_operations(notes: Notes) -> None:
    """Note which of the operations that our clients never call exist at all."""
    stream = notes.stream(1)
    arn = notes.active(stream)["StreamARN"]
    requests: dict[str, dict[str, Any]] = {
        "PutResourcePolicy": {"ResourceARN": arn, "Policy": "{}"},
        "StartStreamEncryption": {
            "StreamName": stream,
            "EncryptionType": "KMS",
            "KeyId": "alias/aws/kinesis",
        },
        "StopStreamEncryption": {"StreamName": stream, "EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"},
        "EnableEnhancedMonitoring": {"StreamName": stream, "ShardLevelMetrics": ["ALL"]},
        "DisableEnhancedMonitoring": {"StreamName": stream, "ShardLevelMetrics": ["ALL"]},
        "TagResource": {"ResourceARN": arn, "Tags": {"a": "b"}},
        "UntagResource": {"ResourceARN": arn, "TagKeys": ["a"]},
        "ListTagsForResource": {"ResourceARN": arn},
        "GetResourcePolicy": {"ResourceARN": arn},
        "DeleteResourcePolicy": {"ResourceARN": arn},
        "UpdateStreamWarmThroughput": {"StreamARN": arn, "WarmThroughputMiBps": 10},
    }
    for operation in OPERATIONS:
        method = getattr(notes.scratch.direct["kinesis"], re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower())
        notes.active(stream)  # Some leave it UPDATING for a while; that depends only on timing.
        notes.call(operation, method, **requests.get(operation, {}))


def dynamodb_operations(notes: Notes) -> None:
    """Note which of the operations that no lease store calls exist at all."""
    dynamodb = notes.scratch.direct["dynamodb"]
    name = notes.table()
    arn = notes.table_active(name)["TableArn"]
    notes.call(
        "TransactGetItems",
        dynamodb.transact_get_items,
        TransactItems=[{"Get": {"TableName": name, "Key": item()}}],
    )
    notes.call("DescribeTimeToLive", dynamodb.describe_time_to_live, TableName=name)
    notes.call(
        "UpdateTimeToLive",
        dynamodb.update_time_to_live,
        TableName=name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"},
    )
    notes.call("TagResource", dynamodb.tag_resource, ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    notes.call("ListTagsOfResource", dynamodb.list_tags_of_resource, ResourceArn=arn)
    notes.call("DescribeContinuousBackups", dynamodb.describe_continuous_backups, TableName=name)
    notes.call("ExecuteStatement", dynamodb.execute_statement, Statement=f'SELECT * FROM "{name}"')
    notes.call("DescribeEndpoints", dynamodb.describe_endpoints)
    notes.call("DescribeLimits", dynamodb.describe_limits)
