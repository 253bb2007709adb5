"""Code shared by producer, consumer and Spark. Imports none of these.

Names are imported on first use, so that a program that needs one module (a Lambda function, for example) does not pay for all modules.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.common.aggregate_reader import deaggregate as deaggregate
    from kinesis_sdk.common.clock import Clock as Clock
    from kinesis_sdk.common.clock import SystemClock as SystemClock
    from kinesis_sdk.common.hashkeys import HashKeyRange as HashKeyRange
    from kinesis_sdk.common.metrics import Metrics as Metrics
    from kinesis_sdk.common.metrics import NoMetrics as NoMetrics
    from kinesis_sdk.common.position_text import format_position as format_position
    from kinesis_sdk.common.position_text import parse_duration as parse_duration
    from kinesis_sdk.common.position_text import parse_position as parse_position
    from kinesis_sdk.common.position_text import parse_time as parse_time
    from kinesis_sdk.common.records import KinesisRecord as KinesisRecord
    from kinesis_sdk.common.records import UserRecord as UserRecord
    from kinesis_sdk.common.sequence import AT_TIMESTAMP as AT_TIMESTAMP
    from kinesis_sdk.common.sequence import LATEST as LATEST
    from kinesis_sdk.common.sequence import SHARD_END as SHARD_END
    from kinesis_sdk.common.sequence import TRIM_HORIZON as TRIM_HORIZON
    from kinesis_sdk.common.sequence import ExtendedSequenceNumber as ExtendedSequenceNumber
    from kinesis_sdk.common.shards import Shard as Shard
    from kinesis_sdk.common.shards import ShardGraph as ShardGraph
    from kinesis_sdk.common.shards import ShardMap as ShardMap
    from kinesis_sdk.common.stream import StreamId as StreamId
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.common.aggregate_reader": ("deaggregate",),
            "kinesis_sdk.common.clock": ("Clock", "SystemClock"),
            "kinesis_sdk.common.metrics": ("Metrics", "NoMetrics"),
            "kinesis_sdk.common.position_text": (
                "parse_duration",
                "parse_position",
                "parse_time",
                "format_position",
            ),
            "kinesis_sdk.common.records": ("KinesisRecord", "UserRecord"),
            "kinesis_sdk.common.sequence": (
                "AT_TIMESTAMP",
                "ExtendedSequenceNumber",
                "LATEST",
                "SHARD_END",
                "TRIM_HORIZON",
            ),
            "kinesis_sdk.common.hashkeys": ("HashKeyRange",),
            "kinesis_sdk.common.shards": ("Shard", "ShardGraph", "ShardMap"),
            "kinesis_sdk.common.stream": ("StreamId",),
        },
    )
