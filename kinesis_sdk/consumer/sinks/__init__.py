"""Sinks: effects and positions that change in one transaction."""

from kinesis_sdk.consumer.sinks.dynamodb import DynamoDBEffects, DynamoDBSink
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.consumer.sinks.objects import FolderStore, ObjectContent, ObjectSink, ObjectStore, S3Store
from kinesis_sdk.consumer.sinks.operations import set_position
from kinesis_sdk.consumer.sinks.sink import (
    AsyncSink,
    AsyncSinkTransaction,
    DeletesRows,
    Sink,
    SinkKey,
    SinkRow,
    SinkTransaction,
)
from kinesis_sdk.consumer.sinks.sql import AsyncSqlSink, SqlSink

__all__ = [
    "AsyncSink",
    "AsyncSinkTransaction",
    "AsyncSqlSink",
    "DeletesRows",
    "DynamoDBEffects",
    "DynamoDBSink",
    "FolderStore",
    "InMemorySink",
    "ObjectContent",
    "ObjectSink",
    "ObjectStore",
    "S3Store",
    "Sink",
    "SinkKey",
    "SinkRow",
    "SinkTransaction",
    "SqlSink",
    "set_position",
]
