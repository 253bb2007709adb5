"""Our producer's aggregates in the hands of the Java deaggregator, across a split and a merge under load."""

from __future__ import annotations

import time

from integration.java.evidence import disorder, duplicates, wait_for
from integration.java.load import Load
from integration.java.scenes import everything_arrived, make_leases, open_shards, split_and_merge
from kinesis_sdk.common.aggregate_writer import Aggregate
from tests import HANG


def put_misplaced_aggregate(stage, stream):
    """The KCL drops an aggregate if one of its records belongs to another shard."""
    shard, other = open_shards(stage, stream)[:2]
    home, elsewhere = (one["HashKeyRange"]["StartingHashKey"] for one in (shard, other))
    aggregate = Aggregate(max_size=10_000, max_count=3)
    for number, key in enumerate((home, elsewhere, home)):
        place = int(key).to_bytes(16, "big")
        assert aggregate.try_append(f"m{number}", key, f"misplaced {number}".encode(), place)
    stage.kinesis.put_record(
        StreamName=stream, Data=aggregate.encode(), PartitionKey="a", ExplicitHashKey=home
    )


def test_every_acknowledged_record_is_delivered_once_and_in_place(stage):
    stream = application = "aggregates"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=2)
    make_leases(stage, stream, application, 2)
    java = stage.start_java("java-a", stream, application)
    with Load(stage, stream, rate=1000) as load:
        wait_for(
            lambda: len(java.events("initialize")) == 2, HANG, lambda: f"it consumes: {java.process.tail()}"
        )
        time.sleep(2)
        put_misplaced_aggregate(stage, stream)
        split_and_merge(stage, stream)
        wait_for(lambda: len(java.events("shard_ended")) == 3, HANG, "the parent ended, and both halves")
        time.sleep(2)
    found = everything_arrived(load.stored.keys, [java], HANG)
    java.kill()
    aggregated = sum(result.sub_sequence_number > 0 for result in load.stored.values())
    again = [name for name, result in load.stored.items() if len(result.attempts) > 1]
    print(
        f"{load.count} records, {aggregated} behind another in an aggregate, {len(again)} sent again by our placement check"
    )
    assert aggregated > load.count / 2
    assert len({result.shard_id for result in load.stored.values()}) == 5, "before, between and after"
    assert again, "some aggregates landed on the wrong side"

    places = {(one.shard, one.number, one.sub): one.data for one in found}
    for name, result in load.stored.items():
        assert places[result.shard_id, int(result.sequence_number), result.sub_sequence_number] == name
    assert not disorder(found)
    assert not [one for one in found if one.data.startswith("misplaced")], (
        "the real KCL drops them: see the placement check"
    )
    extra = duplicates(found)
    assert extra.keys() <= set(again), "a record comes twice only if it was sent twice"
