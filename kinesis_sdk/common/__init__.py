"""Ground floor: what producer, consumer and Spark share. Imports nothing above it."""

from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.metrics import Metrics, NoMetrics
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.common.shards import Shard, ShardGraph, ShardMap
from kinesis_sdk.common.stream import StreamId

__all__ = [
    # time and metrics
    "Clock",
    "Metrics",
    "NoMetrics",
    "SystemClock",
    # records and positions
    "AT_TIMESTAMP",
    "ExtendedSequenceNumber",
    "KinesisRecord",
    "LATEST",
    "SHARD_END",
    "TRIM_HORIZON",
    "UserRecord",
    # shards and streams
    "HashKeyRange",
    "Shard",
    "ShardGraph",
    "ShardMap",
    "StreamId",
]
