"""Streams, children and daemons, from which each test composes its scenario."""

from __future__ import annotations

import json
import random
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from integration.endtoend.stream import StreamControl
from integration.java.processes import QUICK, Stage, WorkerProcess
from integration.multilang.conversations import Conversation, conversations
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.stream import StreamId

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROCESSORS = ROOT / "tests" / "kclpy" / "processors.py"
WIDTH = 1 << 128


class Children:
    """Programs that daemons start, none of them changed for a test.

    Args:
        amazon_kclpy: Result of `install.amazon_kclpy`.
        aws_kcl: Result of `install.aws_kcl`.
        folder: For the sample application with our import line.

    Attributes:
        sample: Amazon's sample application.
        changed: The same with our import line.
        node: The sample application of the KCL for Node.
        folder: Has the changed sample as the module ``sample_kclpy_app``.
    """

    def __init__(self, amazon_kclpy: Path, aws_kcl: Path, folder: Path) -> None:
        sample = amazon_kclpy / "samples" / "sample_kclpy_app.py"
        changed = folder / "sample_kclpy_app.py"
        changed.write_text(in_our_name(sample.read_text()))
        theirs = {"PYTHONPATH": str(amazon_kclpy)}
        self.sample = {"command": [sys.executable, str(sample)], "environment": theirs}
        self.changed = {"command": [sys.executable, str(changed)], "environment": {"PYTHONPATH": str(ROOT)}}
        self.node = {"command": ["node", str(aws_kcl / "sample.js")], "environment": {}}
        self._theirs = theirs
        self.folder = folder

    def processor(self, name: str) -> dict[str, Any]:
        """Return a processor of `tests.kclpy.processors` on amazon_kclpy."""
        command = [sys.executable, str(PROCESSORS), "amazon_kclpy", name]
        return {"command": command, "environment": {**self._theirs, "QUIET": "1"}}


class Tapped:
    """A daemon whose conversations with its children are logged.

    Args:
        stage: The account.
        name: Its worker id.
        stream: Stream name.
        application: Application name.
        children: Programs by the number of the shard.
        ours: Whether the daemon is ours.
        settings: Further properties.

    Attributes:
        worker: Its process.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        stream: str,
        application: str,
        children: Mapping[int, Mapping[str, Any]],
        *,
        ours: bool,
        **settings: Any,
    ) -> None:
        self.folder = stage.folder / f"{application}-{name}"
        self.folder.mkdir()
        options = self.folder / "tap.json"
        programs = {str(shard): child for shard, child in children.items()}
        options.write_text(json.dumps({"folder": str(self.folder), "children": programs}))
        script = self.folder / "tap.sh"
        script.write_text(
            f"#!/bin/sh\nexec {shlex.join([sys.executable, str(HERE / 'tap.py'), str(options)])}\n"
        )
        script.chmod(0o755)
        self.worker: WorkerProcess = stage.start_daemon(
            name, stream, application, script, ours=ours, properties={**QUICK, **settings}
        )

    def conversations(self) -> dict[int, list[Conversation]]:
        """Return its conversations so far, by the number of the shard."""
        found: dict[int, list[Conversation]] = {}
        for conversation in conversations(self.folder):
            found.setdefault(conversation.shard, []).append(conversation)
        return found

    def records(self) -> list[tuple[str, int]]:
        """Return the position of each record that a child has received so far."""
        return [
            (record["sequenceNumber"], record["subSequenceNumber"])
            for parts in self.conversations().values()
            for conversation in parts
            for record in conversation.records
        ]

    def log(self) -> str:
        """Return the end of its log."""
        return "\n".join(line[:300] for line in self.worker.process.tail(25).splitlines())


def aggregate(hash_key: int, records: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    """Return an entry of PutRecords with user records that all belong to one shard."""
    made = Aggregate(2**20, 2**20)
    for key, data in records:
        assert made.try_append(key, str(hash_key), data, hash_key)
    return {"Data": made.encode(), "PartitionKey": "a", "ExplicitHashKey": str(hash_key)}


def put(stage: Stage, stream: str, label: str) -> int:
    """Put plain records and aggregates into each open shard; return the number of user records."""
    entries, count = [], 0
    for shard in stage.kinesis.list_shards(StreamName=stream)["Shards"]:
        if "EndingSequenceNumber" in shard["SequenceNumberRange"]:
            continue
        place = int(shard["HashKeyRange"]["StartingHashKey"]) + 1
        plain = [(f"{label}-{number}", bytes([number, 255, 0]) * number) for number in range(3)]
        inside = [(f"ключ-{number}-ö€", f"{label} {number}".encode()) for number in range(4)]
        entries += [
            *(
                {"Data": data or b"-", "PartitionKey": key, "ExplicitHashKey": str(place)}
                for key, data in plain
            ),
            aggregate(place, inside),
            {"Data": b"last", "PartitionKey": "k", "ExplicitHashKey": str(place)},
        ]
        count += len(plain) + len(inside) + 1
    response = stage.kinesis.put_records(StreamName=stream, Records=entries)
    assert response["FailedRecordCount"] == 0
    return count


def make_stream(stage: Stage, stream: str) -> int:
    """Make a stream of seven shards: 0 was split into 4 and 5, 2 and 3 were merged into 6, 1 is unchanged.

    Returns the number of its user records; each shard has some.
    """
    stage.kinesis.create_stream(StreamName=stream, ShardCount=4)
    count = put(stage, stream, "before")
    stage.kinesis.split_shard(
        StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(WIDTH // 8)
    )
    stage.kinesis.merge_shards(
        StreamName=stream,
        ShardToMerge="shardId-000000000002",
        AdjacentShardToMerge="shardId-000000000003",
    )
    return count + put(stage, stream, "after")


def checkpoints(stage: Stage, application: str) -> dict[str, tuple[str, str]]:
    """Return the checkpoints of a lease table, by shard."""
    return {
        key: (row["checkpoint"]["S"], row["checkpointSubSequenceNumber"]["N"])
        for key, row in stage.rows(application).items()
        if "checkpoint" in row
    }


def logs(*daemons: Tapped) -> Callable[[], str]:
    """Return a function that returns the ends of the daemons' logs."""
    return lambda: "\n\n".join(f"{daemon.worker.name}: {daemon.log()}" for daemon in daemons)


def control(stage: Stage, stream: str) -> StreamControl:
    """Return what splits and merges the shards of a stream."""
    return StreamControl(stage.kinesis, StreamId.parse(stream), random.Random(1))


def in_our_name(source: str) -> str:
    """Change the import lines of a program, and nothing else."""
    changed = re.sub(
        r"^(\s*)(from|import) amazon_kclpy\b", r"\1\2 kinesis_sdk.kclpy", source, flags=re.MULTILINE
    )
    assert changed != source
    return changed


def has_work(daemon: Tapped) -> Callable[[], bool]:
    """Return a condition: a child of the daemon has got records."""
    return lambda: any(
        "processRecords" in conversation.calls
        for parts in daemon.conversations().values()
        for conversation in parts
    )


def lost(daemon: Tapped) -> list[Conversation]:
    """Return the conversations in which a child was told, or found out at a checkpoint, that the lease is gone."""
    return [
        conversation
        for parts in daemon.conversations().values()
        for conversation in parts
        if "leaseLost" in conversation.calls
        or any(message.get("error") == "ShutdownException" for message in conversation.messages(">"))
    ]
