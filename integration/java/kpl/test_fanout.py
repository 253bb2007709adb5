"""Enhanced fan-out of the Java KCL from the fake: HTTP/2 over TLS, as its default client speaks it, subscriptions included."""

from __future__ import annotations

import time

from integration.java.books import audit
from integration.java.evidence import duplicates, wait_for
from integration.java.load import Load
from integration.java.processes import QUICK
from integration.java.scenes import everything_arrived, make_leases, open_shards
from tests import HANG


def test_a_kcl_with_fan_out_reads_through_a_split(tls_stage):
    stage, stream = tls_stage, "fan-out"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=2)
    maker = make_leases(stage, stream, stream, 2)
    java = stage.start_java("java", stream, stream, properties={**QUICK, "retrievalMode": "FANOUT"})
    with Load(stage, stream, rate=200) as load:
        wait_for(lambda: java.events("processed"), HANG, java.process.tail)
        parent = open_shards(stage, stream)[0]["ShardId"]
        stage.kinesis.split_shard(StreamName=stream, ShardToSplit=parent, NewStartingHashKey=str(1 << 126))
        wait_for(
            lambda: len({event["shard"] for event in java.events("processed")}) == 4, HANG, java.process.tail
        )
        time.sleep(1)
    found = everything_arrived(load.stored.keys, [java])
    books = audit(stage, stream, [maker, java], load.stored.keys())
    print(f"ours x KCL 3.1.3 with fan-out: {books}")
    assert not books.faults, books.faults
    assert {event["shard"] for event in java.events("shard_ended")} == {parent}
    again = {name for name, result in load.stored.items() if len(result.attempts) > 1}
    assert duplicates(found).keys() <= again
    (consumer,) = stage.kinesis.list_stream_consumers(
        StreamARN=stage.kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"][
            "StreamARN"
        ]
    )["Consumers"]
    assert consumer["ConsumerName"] == stream
