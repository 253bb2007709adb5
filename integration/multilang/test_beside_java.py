"""The same children, unchanged, beside the real Java daemon and ours: what is said on the pipes, and what is checkpointed."""

from __future__ import annotations

import signal
import time

from integration.java.evidence import wait_for
from integration.multilang.scene import Tapped, checkpoints, logs, make_stream, put
from tests import HANG

OPEN = (1, 4, 5, 6)
CLOSED = (0, 2, 3)


NODE = {2, 4}
"""Shards whose children do not wait for the answer to a checkpoint."""


def programs(children):
    """Each kind of child on an open and on a closed shard; see `make_stream` for the shards."""
    return {
        0: children.sample,
        1: children.processor("Standing"),
        2: children.node,
        3: children.changed,
        4: children.node,
        5: children.sample,
        6: children.changed,
    }


def has_ended(conversation):
    """Whether a child was told about the end of its shard, has answered, and has exited."""
    return conversation.calls[-1] in {"leaseLost", "shardEnded"} and conversation.status is not None


def stop(*daemons):
    """Send SIGTERM; return once every child has ended.

    The Java daemon goes on for as long as its grace lasts, takes the released leases again and starts children for them,
    which get nothing but the end of their input. So it is killed.
    """
    before = [daemon.conversations() for daemon in daemons]
    for daemon in daemons:
        daemon.worker.process.signal(signal.SIGTERM)
    for daemon, known in zip(daemons, before, strict=True):

        def all_ended(daemon=daemon, known=known):
            now = daemon.conversations()
            return all(
                has_ended(conversation)
                for shard, parts in known.items()
                for conversation in now[shard][: len(parts)]
            )

        wait_for(all_ended, HANG, daemon.log)


def first(daemon):
    """Return the first conversation of each shard."""
    return {shard: parts[0] for shard, parts in sorted(daemon.conversations().items())}


def test_both_daemons_and_each_child_say_the_same(stage, children):
    stream = "both"
    count = make_stream(stage, stream)
    java = Tapped(stage, "java", stream, "by-java", programs(children), ours=False)
    ours = Tapped(stage, "ours", stream, "by-ours", programs(children), ours=True)
    inside = stage.start_daemon(
        "inside",
        stream,
        "inside",
        ours.folder,
        ours=True,
        arguments=("--in-process", "sample_kclpy_app:RecordProcessor"),
        cwd=children.folder,
    )
    began = time.monotonic()
    for daemon, application in ((ours, "by-ours"), (java, "by-java")):
        wait_for(lambda daemon=daemon: len(daemon.records()) >= count, HANG, logs(daemon))
        print(f"{daemon.worker.name}: all records after {time.monotonic() - began:.1f} s")
        # The children's last checkpoints, before the leases of shards that ended are removed.
        wait_for(
            lambda application=application: sum(
                place != "TRIM_HORIZON" for place, _ in checkpoints(stage, application).values()
            ) == 7,
            HANG,
            lambda application=application: str(checkpoints(stage, application)),
        )  # fmt: skip
    inside.process.signal(signal.SIGTERM)
    stop(java, ours)
    assert ours.worker.process.wait(HANG) == inside.process.wait(HANG) == 0, inside.process.tail()
    java.worker.kill()

    theirs, mine = first(java), first(ours)
    assert theirs.keys() == mine.keys() == {*OPEN, *CLOSED}
    for shard in mine:
        assert mine[shard].by_speaker == theirs[shard].by_speaker, f"shard {shard}"
        if shard not in NODE:
            assert mine[shard].comparable == theirs[shard].comparable, f"shard {shard}"
        last = ["shardEnded"] if shard in CLOSED else ["shutdownRequested", "leaseLost"]
        assert mine[shard].calls == ["initialize", "processRecords", *last]
        assert mine[shard].status == theirs[shard].status == 0
        lags = [
            message["millisBehindLatest"]
            for message in mine[shard].messages(">")
            if message["action"] == "processRecords"
        ]
        assert all(isinstance(lag, int) for lag in lags)
    assert all(len(parts) == 1 for parts in ours.conversations().values()), "no child is started twice"
    found = checkpoints(stage, "by-ours")
    assert found == checkpoints(stage, "by-java")
    assert [key for key, place in sorted(found.items()) if place == ("SHARD_END", "0")] == [
        f"shardId-{shard:012}" for shard in CLOSED
    ]
    assert found["shardId-000000000001"][1] == "1", "in the middle of an aggregate"
    # The sample application inside our process has processed and checkpointed everything, too.
    last = mine[1].records[-1]
    everything = {**found, "shardId-000000000001": (last["sequenceNumber"], "0")}
    assert checkpoints(stage, "inside") == everything

    # Each daemon continues with the lease table of the other one.
    more = put(stage, stream, "later")
    java = Tapped(stage, "java-2", stream, "by-ours", programs(children), ours=False)
    ours = Tapped(stage, "ours-2", stream, "by-java", programs(children), ours=True)
    # What follows the second record of the first aggregate of shard 1 comes again.
    known = [(record["sequenceNumber"], record["subSequenceNumber"]) for record in mine[1].records]
    again = len(known) - 1 - known.index((found["shardId-000000000001"][0], 1))
    assert again == 11
    for daemon in (ours, java):
        wait_for(lambda daemon=daemon: len(daemon.records()) >= more + again, HANG, logs(daemon))
    theirs, mine = first(java), first(ours)
    assert theirs.keys() == mine.keys() == set(OPEN)
    for shard in OPEN:
        assert mine[shard].comparable[0] == theirs[shard].comparable[0], "the checkpoint of the other one"
        assert mine[shard].records == theirs[shard].records
    start = mine[1].messages(">")[0]
    assert (start["sequenceNumber"], str(start["subSequenceNumber"])) == found["shardId-000000000001"]
    assert [record["subSequenceNumber"] for record in mine[1].records[:3]] == [2, 3, 0]

    # A daemon that is killed: its children see the end of their input. Their status is not 0 if they have written a part of
    # a line to a standard error that nobody reads.
    for daemon in (ours, java):
        daemon.worker.kill()
        wait_for(
            lambda daemon=daemon: all(one.status is not None for one in first(daemon).values()),
            HANG,
            logs(daemon),
        )
    assert all(one.calls[-1] == "processRecords" for one in first(ours).values())
