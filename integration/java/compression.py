"""Compressed aggregates for the KCL: the class of examples/java that opens them, and how many a stream has."""

from __future__ import annotations

import time

from integration.java.processes import Stage

UTIL = "ZstdAggregatorUtil"


def compressed(stage: Stage, stream: str) -> tuple[int, int]:
    """Kinesis records of the stream that are compressed, and how many there are."""
    found = total = 0
    for shard in stage.kinesis.list_shards(StreamName=stream)["Shards"]:
        iterator = stage.kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            page = stage.kinesis.get_records(ShardIterator=iterator)
            total += len(page["Records"])
            found += sum(b"\n\x02z1\x12" in record["Data"] for record in page["Records"])
            if not page["Records"] and not page["MillisBehindLatest"]:
                break
            iterator = page.get("NextShardIterator")
            time.sleep(0.25)
    return found, total
