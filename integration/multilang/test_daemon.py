"""`kinesis-sdk multilang` with real child processes that misbehave, against the fake account over HTTP.

Every record of every scene is accounted for, and no process is left.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections import defaultdict
from pathlib import Path

import pytest

from integration.commands import CLI
from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.multilang import command
from kinesis_sdk.multilang.process import ChildProcess
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from tests import HANG

"""Seconds after which something counts as hung."""
CHILD = Path(__file__).parent / "raw_child.py"
WIDTH = 2**128


class Scene:
    """A stream, an application, its daemons, and the journal of their children."""

    def __init__(self, folder: Path, shards: int) -> None:
        self.folder = folder
        self.aws = FakeAws()
        self.server = FakeAwsServer(self.aws)
        self.server.start()
        self.kinesis = self.aws.client("kinesis")
        self.kinesis.create_stream(StreamName="orders", ShardCount=shards)
        self.until(self.shards, "the stream")
        self.journal_file = folder / "journal"
        self.behaviours = folder / "behaviours.json"
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []
        self.expected: dict[str, list[str]] = defaultdict(list)

    def close(self) -> None:
        for daemon in self.daemons:
            with contextlib.suppress(ProcessLookupError):
                daemon.kill()
            daemon.wait()
        for entry in self.journal() if self.journal_file.exists() else ():
            for pid in (entry["pid"], entry.get("left")):
                if pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self.server.stop()

    def shards(self) -> list[dict]:
        found = self.kinesis.describe_stream(StreamName="orders")["StreamDescription"]
        return found["Shards"] if found["StreamStatus"] == "ACTIVE" else []

    def child_command(self) -> str:
        """Return the command of a child, in quotes where a path needs them."""
        return shlex.join([sys.executable, str(CHILD), str(self.journal_file), str(self.behaviours)])

    def start(
        self, *options: str, behaviours: dict[str, str] | None = None, **properties: object
    ) -> subprocess.Popen[bytes]:
        """Start a daemon."""
        number = len(self.daemons)
        self.behaviours.write_text(json.dumps(behaviours or {}))
        file = self.folder / f"app{number}.properties"
        settings = {
            "executableName": self.child_command(),
            "applicationName": "billing",
            "streamName": "orders",
            "workerId": f"daemon{number}",
            "initialPositionInStream": "TRIM_HORIZON",
            "failoverTimeMillis": 4000,
            "shardSyncIntervalMillis": 1000,
            "parentShardPollIntervalMillis": 200,
            "idleTimeBetweenReadsInMillis": 200,
            "childExitGraceMillis": 700,
            **properties,
        }
        text = "".join(f"{key} = {value}\n" for key, value in settings.items())
        file.write_bytes(text.encode("latin-1", errors="backslashreplace"))  # as Java properties are
        log = self.folder / f"daemon{number}.log"
        self.logs.append(log)
        command = [*CLI, "multilang", str(file)]
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                [*command, "--endpoint-url", self.server.endpoint_url, *options],
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=self.folder,
            )
        self.daemons.append(daemon)
        return daemon

    def log(self, number: int = 0) -> str:
        return self.logs[number].read_text(errors="replace")

    def until(self, condition, what: str):
        """Wait for a condition and return its value."""
        end = time.monotonic() + HANG
        while not (found := condition()):
            assert time.monotonic() < end, f"{what}: not within {HANG} s\n{self.log() if self.logs else ''}"[
                -6000:
            ]
            for daemon in getattr(self, "daemons", ()):
                assert daemon.poll() in (None, 0, 1, -9), self.log()[-6000:]
            time.sleep(0.05)
        return found

    def put(self, count: int, size: int = 0, only: str | None = None) -> None:
        """Put records into each open shard, one after the other, so that they keep their order."""
        for shard in self.shards():
            if "EndingSequenceNumber" in shard["SequenceNumberRange"] or only not in (None, shard["ShardId"]):
                continue
            names = []
            for _ in range(count):
                names.append(f"{shard['ShardId'][-3:]}-{len(self.expected[shard['ShardId']]):08d}")
                self.expected[shard["ShardId"]].append(names[-1])
            answer = self.kinesis.put_records(
                StreamName="orders",
                Records=[
                    {
                        "Data": name.encode().ljust(size, b"."),
                        "PartitionKey": "kö€",
                        "ExplicitHashKey": shard["HashKeyRange"]["StartingHashKey"],
                    }
                    for name in names
                ],
            )
            assert answer["FailedRecordCount"] == 0

    def put_aggregate(self, shard_id: str, count: int) -> None:
        """Put one aggregate into a shard."""
        shard = next(shard for shard in self.shards() if shard["ShardId"] == shard_id)
        key = shard["HashKeyRange"]["StartingHashKey"]
        aggregate = Aggregate(1000, 50_000)
        for _ in range(count):
            name = f"{shard_id[-3:]}-{len(self.expected[shard_id]):08d}"
            self.expected[shard_id].append(name)
            assert aggregate.try_append("k", key, name.encode(), hash_partition_key("k"))
        self.kinesis.put_record(
            StreamName="orders", Data=aggregate.encode(), PartitionKey="a", ExplicitHashKey=key
        )

    def journal(self) -> list[dict]:
        if not self.journal_file.exists():
            return []
        return [json.loads(line) for line in self.journal_file.read_text().splitlines()]

    def of(self, shard_id: str, event: str) -> list[dict]:
        return [entry for entry in self.journal() if (entry["shard"], entry["event"]) == (shard_id, event)]

    def processed(self) -> dict[str, list[str]]:
        """Records by shard, in the order in which they were processed."""
        found: dict[str, list[str]] = defaultdict(list)
        for entry in self.journal():
            if entry["event"] == "processed":
                found[entry["shard"]] += entry["names"]
        return found

    def await_records(self) -> None:
        """Wait until everything that was put is processed."""
        wanted = {shard_id: set(names) for shard_id, names in self.expected.items() if names}

        def missing() -> dict[str, set[str]]:
            found = self.processed()
            return {
                shard_id: names - set(found[shard_id])
                for shard_id, names in wanted.items()
                if not names <= set(found[shard_id])
            }

        try:
            self.until(lambda: not missing(), "all records")
        except AssertionError as error:
            lines = [f"{shard_id}: {sorted(names)}" for shard_id, names in missing().items()]
            raise AssertionError("\n".join([*lines, str(error)])) from None

    def leases(self) -> dict[str, object]:
        return {
            lease.lease_key: lease
            for lease in DynamoDBLeaseStore(self.aws.client("dynamodb"), "billing").list()
        }

    def pids(self) -> set[int]:
        return {
            pid for entry in self.journal() for pid in (entry["pid"], entry.get("left")) if pid is not None
        }

    def stop(self, number: int = 0, code: int = 0) -> None:
        """Stop a daemon by SIGTERM."""
        self.daemons[number].terminate()
        assert self.daemons[number].wait(HANG) == code, self.log(number)[-6000:]

    def assert_nothing_is_left(self) -> None:
        self.until(lambda: not any(map(is_running, self.pids())), "the end of all processes")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def zombies_of(pid: int) -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] == "Z" and int(fields[1]) == pid:
                found.append(stat.parent.name)
    return found


@pytest.fixture
def scene_of(tmp_path):
    scenes = []

    def make(shards: int) -> Scene:
        scenes.append(Scene(tmp_path, shards))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


RESTARTED = [
    "exits once",
    "hangs once",
    "freezes once",
    "closes stdout once",
    "closes stdin once",
    "answers wrongly once",
    "names no call once",
    "floods once",
    "leaves a process behind once",
]
HEALTHY = [
    "good",
    "answers twice",
    "prints rubbish",
    "prints between calls",
    "requests before it reads",
    "checkpoints later",
]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_each_child_fails_for_its_own_shard_only(scene_of):
    behaviours = {f"shardId-{number:012d}": behaviour for number, behaviour in enumerate(RESTARTED + HEALTHY)}
    scene = scene_of(len(behaviours))
    for shard_id, behaviour in behaviours.items():
        # A line of 1.3 MB does not fit into any pipe.
        large = behaviour == "requests before it reads"
        scene.put(2 if large else 8, 490_000 if large else 0, only=shard_id)
    daemon = scene.start(behaviours=behaviours, timeoutInSeconds=8)
    scene.await_records()
    scene.put(5)
    scene.await_records()
    # A child that is killed from outside, between two calls.
    victim = scene.of("shardId-000000000009", "initialize")[-1]["pid"]
    os.kill(victim, signal.SIGKILL)
    scene.put(5)
    scene.await_records()
    scene.until(lambda: not zombies_of(daemon.pid), "the end of all zombies")
    scene.stop()
    processed = scene.processed()
    for shard_id, behaviour in behaviours.items():
        starts = len({entry["pid"] for entry in scene.of(shard_id, "initialize")})
        killed = shard_id == "shardId-000000000009"
        assert starts == 1 + (behaviour in RESTARTED) + killed, behaviour
        # Nothing is processed before a failure, and everything processed is checkpointed: nothing comes twice.
        assert processed[shard_id] == scene.expected[shard_id], behaviour
        assert len(scene.of(shard_id, "shutdownRequested")) == 1, behaviour
        assert len(scene.of(shard_id, "leaseLost")) == 1, behaviour
    assert scene.of("shardId-000000000014", "answered later")
    log = scene.log()
    for text in (
        "it exited with code 7 during processRecords",
        "it does not respond within 8 s during processRecords",
        "it closed its standard output during processRecords",
        "it closed its standard input",
        "it answered initialize instead of processRecords",
        "it answered a call that it does not name instead of processRecords",
        "it sent more than 1000 messages without being called",
        "it was ended by SIGKILL during processRecords",
        "it answers processRecords, but no call is open",
        "(50,000,000 bytes)",
        "(300,000 bytes)",
    ):
        assert text in log, text
    assert all(lease.owner is None for lease in scene.leases().values())
    scene.assert_nothing_is_left()


def test_splits_merges_and_aggregates_with_restarts(scene_of):
    scene = scene_of(2)
    first = "shardId-000000000000"
    scene.start(
        behaviours={
            first: "checkpoints inside of an aggregate once",
            "shardId-000000000001": "forgets the last checkpoint once",
            "*": "good",
        }
    )
    scene.put_aggregate(first, 10)
    scene.put(5, only="shardId-000000000001")
    scene.await_records()
    # The second child of the first shard begins inside of the aggregate.
    assert scene.of(first, "initialize")[1]["at"][1] == 3
    scene.kinesis.split_shard(StreamName="orders", ShardToSplit=first, NewStartingHashKey=str(WIDTH // 4))
    scene.until(lambda: len(scene.shards()) == 4, "the split")
    scene.kinesis.merge_shards(
        StreamName="orders", ShardToMerge="shardId-000000000003", AdjacentShardToMerge="shardId-000000000001"
    )
    scene.until(lambda: len(scene.shards()) == 5, "the merge")
    scene.put(10)
    scene.put_aggregate("shardId-000000000004", 20)
    scene.await_records()
    assert scene.processed() == scene.expected
    # Its first child answered shardEnded without a checkpoint, so a second one got it, too, and the merge could begin.
    assert len(scene.of("shardId-000000000001", "shardEnded")) == 2
    assert "without a successful checkpoint of the end of the shard" in scene.log()
    assert scene.of("shardId-000000000004", "initialize")[0]["at"] == ["TRIM_HORIZON", 0]
    scene.stop()
    scene.assert_nothing_is_left()


def test_ctrl_c_reaches_the_daemon_only_and_children_are_told(scene_of):
    scene = scene_of(2)
    daemon = scene.start(behaviours={"*": "never checkpoints"})
    scene.put(5)
    scene.await_records()
    assert all(lease.checkpoint.is_sentinel for lease in scene.leases().values())
    os.killpg(daemon.pid, signal.SIGINT)  # as a terminal does it
    assert daemon.wait(HANG) == 0, scene.log()
    events = [entry["event"] for entry in scene.journal() if entry["shard"].endswith("0")]
    assert events[-4:] == ["shutdownRequested", "checkpoint", "leaseLost", "end of input"]
    # They checkpointed at the last moment, and the leases are free.
    assert not any(lease.checkpoint.is_sentinel for lease in scene.leases().values())
    assert all(lease.owner is None for lease in scene.leases().values())
    scene.assert_nothing_is_left()


def test_children_that_ignore_the_end_are_killed_in_time(scene_of):
    scene = scene_of(2)
    scene.start(behaviours={"*": "ignores everything"}, shutdownGraceMillis=1500)
    scene.put(5)
    scene.await_records()
    scene.stop(code=1)
    assert "stopping within 1.5 s" in scene.log()
    assert "The stop was not clean" in scene.log()
    scene.assert_nothing_is_left()


def test_another_daemon_takes_over_from_one_that_was_killed(scene_of):
    scene = scene_of(2)
    first = scene.start(behaviours={"*": "good"})
    scene.put(5)
    scene.await_records()
    first.kill()
    first.wait()
    # Its children read the end of their input.
    scene.assert_nothing_is_left()
    scene.start()
    scene.put(5)
    scene.await_records()
    assert scene.processed() == scene.expected
    assert all(lease.owner == "daemon1" for lease in scene.leases().values())
    scene.stop(1)


def test_a_lease_moves_to_a_new_daemon_after_its_child_was_told(scene_of):
    scene = scene_of(2)
    scene.start(behaviours={"*": "good"})
    scene.put(5)
    scene.await_records()
    scene.start()
    scene.until(
        lambda: {lease.owner for lease in scene.leases().values()} == {"daemon0", "daemon1"}, "the move"
    )
    moved = next(key for key, lease in scene.leases().items() if lease.owner == "daemon1")
    scene.until(lambda: len(scene.of(moved, "initialize")) == 2, "the second child")
    scene.put(5)
    scene.await_records()
    assert scene.processed() == scene.expected
    expected = [
        "initialize",
        "checkpoint",
        "shutdownRequested",
        "checkpoint",
        "leaseLost",
        "end of input",
        "initialize",
        "checkpoint",
    ]

    def happened() -> bool:
        # The last checkpoint is written to the journal after its records.
        events = [entry["event"] for entry in scene.journal() if entry["shard"] == moved]
        return [event for event in events if event != "processed"] == expected

    scene.until(happened, "all calls in their order")
    scene.stop(0)
    scene.stop(1)
    scene.assert_nothing_is_left()


def test_exit_as_the_java_daemon_does_and_a_child_that_does_not_start(scene_of):
    scene = scene_of(2)
    behaviours = {"shardId-000000000001": "exits once", "*": "good"}
    daemon = scene.start("--on-child-failure", "exit", "--json", behaviours=behaviours)
    scene.put(5)
    assert daemon.wait(HANG) == 1, scene.log()
    assert re.search(r"Stopped, because child \d+ failed: it exited with code 7", scene.log())
    events = [json.loads(line) for line in scene.log().splitlines() if line.startswith('{"event"')]
    assert [event["event"] for event in events] == ["started", "ended"]
    assert "it exited with code 7" in events[-1]["failure"]
    scene.assert_nothing_is_left()
    Path(f"{scene.journal_file}.?").unlink(missing_ok=True)
    scene.start(behaviours={"*": "dies before initialize once"})
    scene.await_records()
    assert "it exited with code 3 during initialize" in scene.log(1)
    assert scene.processed() == scene.expected
    scene.stop(1)


def test_the_events_of_a_clean_run(scene_of):
    scene = scene_of(1)
    daemon = scene.start("--json", "--health-port", "0")

    def events():
        return [json.loads(line) for line in scene.log().splitlines() if line.startswith('{"event"')]

    (started,) = scene.until(events, "the first event")
    assert started["event"] == "started"
    with urllib.request.urlopen(f"{started['health']}/live", timeout=HANG) as response:
        assert response.status == 200  # the port is open once the event is printed
    scene.put(1)
    scene.await_records()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(HANG) == 0, scene.log()
    assert events()[1:] == [{"event": "ended", "clean": True, "failure": None}]


def test_an_exception_that_a_library_only_prints_can_count_as_a_failure(scene_of):
    scene = scene_of(1)
    scene.start("--raw-stderr", behaviours={"*": "swallows an exception once"}, onChildException="restart")
    scene.put(5)
    scene.await_records()
    assert scene.processed() == scene.expected
    assert "\nCaught exception from action dispatch: boom\nTraceback …\n" in scene.log()
    assert "its code raised an exception: Caught exception from action dispatch: boom" in scene.log()
    scene.stop()


def test_a_script_without_an_interpreter_line_and_empty_batches(scene_of):
    scene = scene_of(1)
    script = scene.folder / "app.sh"
    command = scene.child_command()
    script.write_text(f"{command}\n")  # not exec: the shell stays, and the child is in its process group
    script.chmod(0o755)
    scene.start(executableName="./app.sh", callProcessRecordsEvenForEmptyRecordList="true")
    scene.until(lambda: len(scene.of("shardId-000000000000", "processed")) > 3, "empty batches")
    scene.put(3)
    scene.await_records()
    assert any(not entry["names"] for entry in scene.of("shardId-000000000000", "processed"))
    scene.stop()
    scene.assert_nothing_is_left()


def test_a_signal_that_another_thread_receives_stops_the_daemon(scene_of):
    """The system may hand SIGTERM to any thread; Python runs its handler in the main thread, which waits then."""
    scene = scene_of(1)
    (scene.folder / "striking.py").write_text(
        textwrap.dedent(
            """
            import signal, threading
            from kinesis_sdk.kclpy import kcl

            class Striking(kcl.RecordProcessorBase):
                def initialize(self, shard_id): pass
                def process_records(self, records, checkpointer):
                    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
                def shutdown(self, checkpointer, reason): pass
            """
        )
    )
    scene.kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    daemon = scene.start("--in-process", "striking:Striking")
    assert daemon.wait(HANG) == 0, scene.log()


def test_no_child_stays_behind_if_there_are_no_files_for_its_reader(monkeypatch):
    popen = command.start([sys.executable, "-c", "import time; time.sleep(600)"])

    def no_files():
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", no_files)
    try:
        with pytest.raises(OSError, match="Too many open files"):
            ChildProcess(popen, kill_after=1.0)
        assert popen.poll() == -signal.SIGKILL
        assert popen.stdin.closed
    finally:
        popen.kill()
        popen.wait()
