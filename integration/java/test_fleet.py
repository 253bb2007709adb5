"""One lease table, both kinds of workers: ours joins Java, Java leaves, Java joins ours, ours leaves; all under load."""

from __future__ import annotations

import time

from integration.java.evidence import (
    TableWatch,
    deliveries,
    disorder,
    duplicates,
    overlaps,
    tenures,
    wait_for,
)
from integration.java.load import Load
from tests import HANG

SHARDS = 4
CALM_SECONDS = 12.0  # six rounds of the Java leader
# Each shard gets the same load, so that a leader that balances by throughput has a balance to find.
PLACES = [str((1 << 128) // SHARDS * shard + 1) for shard in range(SHARDS)]


def leader(stage, application):
    table = f"{application}-CoordinatorState"
    item = stage.dynamodb.get_item(TableName=table, Key={"key": {"S": "Leader"}}, ConsistentRead=True).get(
        "Item"
    )
    return item and item["ownerName"]["S"]


def forget(stage, application, worker):
    """Take a stopped Java worker's metrics away.

    It leaves them behind, and for a minute its successor as the leader would hand leases of living workers to it.
    """
    stage.dynamodb.delete_item(TableName=f"{application}-WorkerMetricStats", Key={"wid": {"S": worker}})


def shared(watch, *names):
    """Whether workers hold the same number of leases each."""
    return lambda: watch.counts() == {name: SHARDS // len(names) for name in names}


def calm(watch, *names):
    """See that a fleet comes to rest with equal shares.

    The Java leader weighs leases by rates, which are averages over half a minute: until those of leases that just
    moved are right, it may move one to and fro.
    """
    since = time.monotonic()
    equal = shared(watch, *names)

    def at_rest():
        return equal() and not watch.moves_since(max(since, time.monotonic() - CALM_SECONDS))

    time.sleep(CALM_SECONDS)
    wait_for(at_rest, HANG, lambda: f"moves between {names}: {watch.moves_since(since)}")
    print(f"{' and '.join(names)} are at rest after {len(watch.moves_since(since))} more changes of owner")


def test_java_is_joined_and_replaced_and_joins_and_replaces(stage):
    stream = application = "fleet"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    maker = stage.start_ours("ours-0", stream, application)
    wait_for(lambda: len(stage.rows(application)) == SHARDS, HANG, "a worker of ours makes table and leases")
    maker.stop()
    members = [maker]

    def told():
        return {worker.name: worker.process.tail(8) for worker in members}

    with (
        TableWatch(stage, application) as watch,
        Load(stage, stream, rate=400, place=lambda number: PLACES[number % SHARDS]) as load,
    ):
        java_1 = stage.start_java("java-1", stream, application)
        members.append(java_1)
        took = wait_for(shared(watch, "java-1"), HANG, told)
        print(f"Java alone: all leases {took:.1f} s after its start")

        ours_1 = stage.start_ours("ours-1", stream, application)
        members.append(ours_1)
        took = wait_for(shared(watch, "java-1", "ours-1"), HANG, told)
        print(f"our worker joins: its share, given by the Java leader, after {took:.1f} s")
        assert leader(stage, application) == "java-1"
        calm(watch, "java-1", "ours-1")

        moment = time.monotonic()
        print(f"Java stops in order: {java_1.stop():.1f} s")
        forget(stage, application, "java-1")
        wait_for(shared(watch, "ours-1"), HANG, told)
        print(f"our worker has all leases {time.monotonic() - moment:.1f} s after the signal")

        java_2 = stage.start_java("java-2", stream, application)
        members.append(java_2)
        took = wait_for(shared(watch, "java-2", "ours-1"), HANG, told)
        print(f"Java joins ours: its share after {took:.1f} s")
        assert leader(stage, application) == "java-2"
        calm(watch, "java-2", "ours-1")

        moment = time.monotonic()
        print(f"ours stops in order: {ours_1.stop():.1f} s")
        wait_for(shared(watch, "java-2"), HANG, told)
        print(f"Java has all leases {time.monotonic() - moment:.1f} s after the signal")
        time.sleep(3)

    found = []

    def missing():
        found[:] = deliveries(members)
        return load.stored.keys() - {one.data for one in found}

    wait_for(lambda: not missing(), HANG, lambda: f"{len(missing())} records are missing")
    java_2.kill()
    extra = duplicates(found)
    moves = {shard: [tenure.worker for tenure in parts] for shard, parts in tenures(members).items()}
    print(f"{load.count} records, {len(extra)} delivered again; {moves}")
    assert not watch.faults
    assert not overlaps(members), "no shard is worked on by two at a time"
    assert not disorder(found)
    assert not extra, "all workers stopped cleanly, or handed off on request"
    assert all(len(workers) <= 8 for workers in moves.values()), "no endless moves"
