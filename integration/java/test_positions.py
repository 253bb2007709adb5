"""A position that one side stores is the position from which the other side goes on: inside aggregates, too."""

from __future__ import annotations

import pytest

from integration.java.compression import UTIL, compressed
from integration.java.evidence import deliveries, duplicates, wait_for
from integration.java.processes import METRICS
from kinesis_sdk import Producer, ProducerConfig
from kinesis_sdk.consumer import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases import Lease
from tests import HANG

AGGREGATES, EACH = 4, 10
# Per shard: where our worker stops for good, and where the Java worker does. Names are shard.aggregate.record.
MIDDLE, FIRST_AND_LAST, PLAIN = range(3)
OURS = {MIDDLE: "0.1.4", FIRST_AND_LAST: "1.1.0", PLAIN: "2.1.plain"}
JAVAS = {MIDDLE: "0.2.7", FIRST_AND_LAST: "1.2.9", PLAIN: "2.2.plain"}


def put_everything(stage, stream, compression):
    """Aggregates of ten user records each and a plain record behind each; returns the records of each shard in order."""
    shards = stage.kinesis.list_shards(StreamName=stream)["Shards"]
    placed = []
    config = ProducerConfig(record_max_buffered_time=5.0, compression=compression)
    with Producer(config, endpoint_url=stage.kinesis_url) as producer:
        for aggregate in range(AGGREGATES):
            for number, shard in enumerate(shards):
                key = shard["HashKeyRange"]["StartingHashKey"]
                names = [f"{number}.{aggregate}.{record}" for record in range(EACH)]
                # Keys that are long and alike: aggregates of less than 256 bytes are not compressed.
                futures = [producer.put(stream, name.rjust(60, "-"), name.encode(), key) for name in names]
                producer.flush()
                alone = f"{number}.{aggregate}.plain"
                futures.append(producer.put(stream, alone, alone.encode(), key))
                producer.flush()
                placed += [
                    (future.result(), name) for future, name in zip(futures, [*names, alone], strict=True)
                ]
    assert {result.sub_sequence_number for result, _ in placed} == set(range(EACH)), "they are aggregates"
    return {
        shard["ShardId"]: [
            (int(result.sequence_number), result.sub_sequence_number, name)
            for result, name in sorted(
                placed, key=lambda one: (int(one[0].sequence_number), one[0].sub_sequence_number)
            )
            if result.shard_id == shard["ShardId"]
        ]
        for shard in shards
    }


def after(records, name):
    """Return the records after the one with a name."""
    at = [record[2] for record in records].index(name)
    return records[at + 1 :]


def delivered(worker):
    found = {}
    for one in deliveries([worker]):
        found.setdefault(one.shard, []).append((one.number, one.sub, one.data))
    return found


def stored(stage, application, records):
    """Names of the records at which the table stands."""
    names = {(number, sub): name for shard in records.values() for number, sub, name in shard}
    return {
        names[int(row["checkpoint"]["S"]), int(row["checkpointSubSequenceNumber"]["N"])]
        for row in stage.rows(application).values()
    }


def add_what_java_need_not_know(stage, application):
    """A foreign attribute on each row, and a prepared checkpoint with the application's bytes on one."""
    store = DynamoDBLeaseStore(stage.dynamodb, application)
    first, *_ = leases = store.list()
    row = store.prepare(first, first.checkpoint, b"\x00state")
    assert isinstance(row, Lease)
    for lease in leases:
        stage.dynamodb.update_item(
            TableName=application,
            Key={"leaseKey": {"S": lease.lease_key}},
            UpdateExpression="SET note = :note",
            ExpressionAttributeValues={":note": {"S": "kept"}},
        )
    return first.lease_key


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_each_goes_on_exactly_after_the_other(stage, compression):
    stream = application = f"positions-{compression}".lower()
    stage.kinesis.create_stream(StreamName=stream, ShardCount=3)
    records = put_everything(stage, stream, compression)
    sealed, _ = compressed(stage, stream)
    assert sealed == (0 if compression is None else 3 * AGGREGATES)
    shards = list(records)

    first = stage.start_ours("ours-1", stream, application, stand_at=[*OURS.values()])
    wait_for(lambda: len(first.events("stood")) == 3, HANG, "our worker stands at its records")
    assert first.process.is_running
    first.stop()
    assert stored(stage, application, records) == {*OURS.values()}
    prepared = add_what_java_need_not_know(stage, application)

    if compression is None:
        java, version = stage.start_java("java-1", stream, application, stand_at=[*JAVAS.values()]), "3.1.3"
    else:
        version = "3.5.1"
        java = stage.start_worker(
            "java-1", stream, application, version=version, aggregator_util=UTIL, stand_at=[*JAVAS.values()]
        )
    wanted = {shard: after(records[shard], OURS[number]) for number, shard in enumerate(shards)}
    wait_for(
        lambda: sum(map(len, delivered(java).values())) >= sum(map(len, wanted.values())),
        HANG,
        lambda: f"the Java worker delivers what follows; {java.process.tail()}",
    )
    assert delivered(java) == wanted, "neither a record too many nor one too few, each at its place"
    assert {tuple(event["position"]) for event in java.events("initialize")} == {
        (str(number), sub)
        for shard in records.values()
        for number, sub, name in shard
        if name in OURS.values()
    }
    wait_for(lambda: len(java.events("stood")) == 3, HANG, "the Java worker stands at its records")
    print(f"Java worker: stopped in order after {java.stop():.1f} s")
    assert stored(stage, application, records) == {*JAVAS.values()}
    rows = stage.rows(application)
    assert not {name for name in rows[prepared] if name.startswith("pending")}, "its checkpoint removed them"
    assert all(row["note"] == {"S": "kept"} for row in rows.values())

    second = stage.start_ours("ours-2", stream, application, worker_metrics=METRICS[version])
    wanted = {shard: after(records[shard], JAVAS[number]) for number, shard in enumerate(shards)}
    took = wait_for(
        lambda: sum(map(len, delivered(second).values())) >= sum(map(len, wanted.values())),
        HANG,
        lambda: f"our worker delivers what follows: {delivered(second)}",
    )
    print(f"our worker under a new name: everything {took:.1f} s after its start")
    second.stop()
    assert delivered(second) == wanted
    assert all(row["note"] == {"S": "kept"} for row in stage.rows(application).values())
    assert not duplicates(deliveries([second]))
