"""The producers and the consumers that this project meets, each with each: record for record, and behind each other."""

from __future__ import annotations

import contextlib
import time

from integration.java.books import audit
from integration.java.evidence import TableWatch, wait_for
from integration.java.load import Load
from integration.java.processes import METRICS
from integration.java.scenes import everything_arrived, make_leases, open_shards

QUARTER = 1 << 126
SUCCESSORS = {"ours": "2.7.2", "2.7.2": "ours", "3.1.3": "ours", "3.5.1": "ours"}
"""Who goes on behind the checkpoints of a consumer that was killed."""


def start(stage, kind, stream, application, metrics, name="first"):
    """Start a consumer that checkpoints each batch at a random record; one of ours tidies up its table each second."""
    if kind == "ours":
        settings = {"worker_metrics": metrics, "lease_cleanup_interval": 1.0}
        return stage.start_ours(f"{name}-ours", stream, application, middle=1.0, **settings)
    return stage.start_worker(f"{name}-java", stream, application, version=kind, middle=1.0)


def resting(items):
    """What of the KCL 3.5's items nobody writes once its only worker is dead."""
    return {key: item for key, item in items.items() if not key.endswith("-ours")}


def test_every_consumer_reads_what_our_producer_wrote_and_goes_on_behind_another(stage):
    stream = "matrix"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=2)
    applications = {kind: f"matrix-{kind.replace('.', '-')}" for kind in SUCCESSORS}
    members = {}
    for kind, application in applications.items():
        metrics = METRICS.get(kind, "off")
        members[kind] = [make_leases(stage, stream, application, 2, worker_metrics=metrics)]
    for kind, application in applications.items():
        members[kind].append(start(stage, kind, stream, application, METRICS.get(kind, "off")))

    def told():
        return {worker.name: worker.process.tail(6) for parts in members.values() for worker in parts[1:]}

    def ended(kind):
        """Whether an application has seen three shards to their end, and works on the two that follow."""
        shards = [
            {event["shard"] for worker in members[kind] for event in worker.events(name)}
            for name in ("shard_ended", "processed")
        ]
        return [len(one) for one in shards] == [3, 5]

    with contextlib.ExitStack() as stack:
        watches = {
            kind: stack.enter_context(TableWatch(stage, application))
            for kind, application in applications.items()
        }
        together = stack.enter_context(Load(stage, stream, rate=300))
        alone = stack.enter_context(Load(stage, stream, rate=40, prefix="plain-", aggregation_enabled=False))
        for kind, parts in members.items():
            took = wait_for(lambda parts=parts: parts[1].events("processed"), 120, told)
            print(f"{kind} works, {took:.1f} s later than the one before it")
        stage.kinesis.split_shard(
            StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(QUARTER)
        )
        time.sleep(3)
        halves = open_shards(stage, stream)[-2:]
        stage.kinesis.merge_shards(
            StreamName=stream, ShardToMerge=halves[0]["ShardId"], AdjacentShardToMerge=halves[1]["ShardId"]
        )
        for kind in members:
            wait_for(lambda kind=kind: ended(kind), 120, lambda kind=kind: (kind, told()))
        before = {}
        for kind, parts in members.items():
            parts[1].kill()
            before[kind] = resting(stage.foreign(applications[kind]))
            successor = SUCCESSORS[kind]
            metrics = METRICS.get(kind, "off")
            parts.append(start(stage, successor, stream, applications[kind], metrics, "second"))
        for kind, parts in members.items():
            wait_for(lambda parts=parts: len(parts[2].events("initialize")) >= 2, 120, told)
            print(f"{SUCCESSORS[kind]} goes on behind {kind}")
        time.sleep(2)
    acknowledged = together.stored.keys() | alone.stored.keys()

    for parts in members.values():
        everything_arrived(lambda: acknowledged, parts)
    assert sum(result.sub_sequence_number > 0 for result in together.stored.values()) > together.count / 2
    assert not any(result.sub_sequence_number for result in alone.stored.values())

    wait_for(
        lambda: len(stage.rows(applications["3.5.1"])) == 2,
        60,
        "our clean-up has deleted the finished leases",
    )
    after = resting(stage.foreign(applications["3.5.1"]))
    assert {"Leader", "Migration3.0", "first-java"} <= after.keys()
    assert after == before["3.5.1"], "and nothing else"
    inside = 0
    for kind, parts in members.items():
        books = audit(stage, stream, parts, acknowledged)
        print(f"ours x {kind}: {books}")
        assert not books.faults, books.faults
        assert not watches[kind].faults
        assert books.resumed >= 2, "both living shards went on behind what the killed worker had stored"
        inside += books.resumed_inside
    assert inside, "most of them inside an aggregate"
