"""Workers that die, stop and freeze: real processes, the real defaults (failover time 10 s), one fake account."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import boto3
import pytest

from kinesis_sdk.testing import start_server_process

SHARDS = 6

SCRIPT = textwrap.dedent(
    """
    import sys, threading
    from kinesis_sdk.consumer import ConsumerConfig, RecordHandler, Worker

    name, endpoint = sys.argv[1:]
    write_lock = threading.Lock()

    def tell(*words):
        with write_lock:  # shards run on several threads
            sys.stdout.write(" ".join([name, *words]) + "\\n")
            sys.stdout.flush()

    class Handler(RecordHandler):
        def initialize(self, shard):
            self.shard = shard.shard_id
            tell("initialize", self.shard)

        def process_records(self, batch):
            for record in batch.records:
                tell("record", self.shard, record.data.decode())
            batch.checkpoint()

        def lease_lost(self):
            tell("lost", self.shard)

        def shutdown_requested(self, checkpointer):
            tell("shutdown", self.shard)
            checkpointer.checkpoint()

    config = ConsumerConfig(initial_position="TRIM_HORIZON", failover_time=10.0, balance_by="count")
    Worker(
        "orders", application_name="app", handler=Handler, config=config, endpoint_url=endpoint, worker_id=name
    ).run()
    tell("stopped")
    """
)


class Told:
    """What all workers print, with the time at which it came."""

    def __init__(self):
        self.condition = threading.Condition()
        self.lines = []

    def listen(self, process):
        with process.stdout:
            for line in process.stdout:
                with self.condition:
                    self.lines.append((time.monotonic(), *line.split()))
                    self.condition.notify_all()

    def wait(self, found, timeout):
        with self.condition:
            return self.condition.wait_for(lambda: found(self.lines), timeout)


class Fleet:
    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.told = Told()
        self.processes = {}
        self.listeners = []
        self.kinesis = boto3.client("kinesis", endpoint_url=endpoint)
        self.dynamodb = boto3.client("dynamodb", endpoint_url=endpoint)
        self.count = 0
        self.shards = self.kinesis.list_shards(StreamName="orders")["Shards"]

    def add(self, name):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, name, self.endpoint],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=dict(os.environ),
        )
        self.processes[name] = process
        listener = threading.Thread(target=self.told.listen, args=(process,), daemon=True)
        listener.start()
        self.listeners.append(listener)

    def put(self):
        """One record into every shard; returns their data."""
        self.count += 1
        for number, shard in enumerate(self.shards):
            self.kinesis.put_record(
                StreamName="orders",
                Data=f"{self.count}.{number}".encode(),
                PartitionKey="k",
                ExplicitHashKey=shard["HashKeyRange"]["StartingHashKey"],
            )
        return {f"{self.count}.{number}" for number in range(len(self.shards))}

    def items(self):
        try:
            found = self.dynamodb.scan(TableName="app")["Items"]
        except self.dynamodb.exceptions.ResourceNotFoundException:
            found = []  # no worker has come so far yet
        return {item["leaseKey"]["S"]: item for item in found}

    def held_by(self, name):
        return {key for key, item in self.items().items() if item.get("leaseOwner", {}).get("S") == name}

    def checkpoints(self):
        return {
            key: int(item["checkpoint"]["S"]) if item["checkpoint"]["S"].isdigit() else 0
            for key, item in self.items().items()
        }

    def settle(self, names, each):
        deadline = time.monotonic() + 25
        while time.monotonic() < deadline:
            items = self.items()
            if all(len(self.held_by(name)) == each for name in names) and not [
                item for item in items.values() if "checkpointOwner" in item
            ]:
                return
            time.sleep(0.2)
        raise AssertionError({name: self.held_by(name) for name in names})

    def delivered_by_others(self, data, name):
        return lambda lines: {w[3] for _, *w in lines if w[1] == "record" and w[0] != name} >= data

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        for listener in self.listeners:
            listener.join(10)
        self.kinesis.close()
        self.dynamodb.close()


@pytest.fixture
def fleet():
    with start_server_process("--create-stream", f"orders:{SHARDS}") as server:
        scene = Fleet(server.endpoint_url)
        try:
            yield scene
        finally:
            scene.close()


def test_kill_stop_and_freeze(fleet):
    """One fleet for all three, because starting and settling is most of the time."""
    names = ("a", "b", "c")
    for name in names:
        fleet.add(name)
    fleet.settle(names, 2)
    first = fleet.put()
    assert fleet.told.wait(fleet.delivered_by_others(first, None), 10)

    # SIGTERM: running batches end, leases are released or handed over, peers go on
    term = fleet.processes["c"]
    data = fleet.put()
    began = time.monotonic()
    term.send_signal(signal.SIGTERM)
    assert fleet.told.wait(fleet.delivered_by_others(data, None), 5)
    fleet.settle(("a", "b"), 3)
    after = fleet.put()
    assert fleet.told.wait(fleet.delivered_by_others(after, "c"), 5)
    stopped = time.monotonic() - began
    print(f"SIGTERM: all shards progress with the others after {stopped:.2f} s")
    assert stopped < 2.0 + 1.0, "the measurement itself looks at the table five times a second"
    assert term.wait(10) == 0

    # SIGKILL: leases expire
    victim = fleet.processes["b"]
    fleet.add("d")
    fleet.settle(("a", "b", "d"), 2)
    lost_shards = fleet.held_by("b")
    began = time.monotonic()
    victim.kill()
    data = fleet.put()
    assert fleet.told.wait(fleet.delivered_by_others(data, "b"), 20)
    killed = time.monotonic() - began
    print(f"SIGKILL: all {len(lost_shards)} shards of the victim progress after {killed:.2f} s")
    assert killed < 12.0

    # SIGSTOP past the failover time, then SIGCONT
    fleet.settle(("a", "d"), 3)
    frozen_shards = fleet.held_by("d")
    before = fleet.put()
    assert fleet.told.wait(fleet.delivered_by_others(before, None), 5)
    frozen = fleet.processes["d"]
    frozen.send_signal(signal.SIGSTOP)
    data = fleet.put()
    assert fleet.told.wait(fleet.delivered_by_others(data, "d"), 20)
    checkpoints = fleet.checkpoints()
    thawed = time.monotonic()
    frozen.send_signal(signal.SIGCONT)

    def all_lost(lines):
        lost = {w[2] for moment, *w in lines if w[0] == "d" and w[1] == "lost" and moment > thawed}
        return lost >= frozen_shards

    assert fleet.told.wait(all_lost, 5), "it finds out by itself"
    print(f"SIGCONT: stops its shards itself after {time.monotonic() - thawed:.2f} s")
    for _ in range(10):
        now = fleet.checkpoints()
        assert all(now[key] >= position for key, position in checkpoints.items())
        checkpoints = now
        time.sleep(0.1)
    late = fleet.put()
    assert fleet.told.wait(fleet.delivered_by_others(late, None), 10), (
        "and it goes on as a member of the fleet"
    )
