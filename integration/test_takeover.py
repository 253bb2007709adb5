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
from tests import HANG

SHARDS = 6
ROUNDS = int(os.environ.get("KINESIS_SDK_TAKEOVERS", "1"))
"""Number of stops and kills: more of them show the distribution of the times."""

SCRIPT = textwrap.dedent(
    """
    import sys, threading
    from kinesis_sdk.consumer import ConsumerConfig, LeaseConfig, RecordHandler, Worker

    name, endpoint, failover_time = sys.argv[1:]
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

    leases = LeaseConfig(failover_time=float(failover_time), balance_by="count")
    config = ConsumerConfig(initial_position="TRIM_HORIZON", leases=leases)
    Worker(
        "orders", application_name="app", handler=Handler, config=config, endpoint_url=endpoint, worker_id=name
    ).run()
    tell("stopped")
    """
)


class WorkerOutput:
    """Output of all workers, with its times."""

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
        self.output = WorkerOutput()
        self.processes = {}
        self.listeners = []
        self.kinesis = boto3.client("kinesis", endpoint_url=endpoint)
        self.dynamodb = boto3.client("dynamodb", endpoint_url=endpoint)
        self.count = 0
        self.shards = self.kinesis.list_shards(StreamName="orders")["Shards"]

    def add(self, name, failover_time=10.0):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, name, self.endpoint, str(failover_time)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=dict(os.environ),
        )
        self.processes[name] = process
        listener = threading.Thread(target=self.output.listen, args=(process,), daemon=True)
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
        deadline = time.monotonic() + HANG
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
            listener.join(HANG)
        self.kinesis.close()
        self.dynamodb.close()


@pytest.fixture
def fleet():
    with start_server_process("--create-stream", f"orders:{SHARDS}") as server:
        fleet = Fleet(server.endpoint_url)
        try:
            yield fleet
        finally:
            fleet.close()


class Takeover:
    """A worker gets a signal while records keep coming into every shard of its: when do peers deliver them?

    The feed goes on before, during and after, so that the last write of the worker is as young as it can be, and
    that the time measured is that from the signal to a peer's delivery, for the last of the shards.
    """

    def __init__(self, fleet, victim, number):
        self.fleet, self.victim, self.number = fleet, victim, number
        self.lost = fleet.held_by(victim)
        self.done = threading.Event()
        self.feeder = threading.Thread(target=self._feed, daemon=True)

    def _feed(self):
        while not self.done.wait(0.05):
            self.fleet.put()

    def seconds(self, timeout):
        """Send the signal; seconds until the last of the shards is delivered by another worker."""
        self.feeder.start()
        try:
            assert self.fleet.output.wait(self._delivers(self.victim, time.monotonic()), HANG)
            began = time.monotonic()
            self.fleet.processes[self.victim].send_signal(self.number)
            others = self._delivers(None, began)
            assert self.fleet.output.wait(others, timeout), "some shards of the victim are stalled"
            return max(others.first.values()) - began
        finally:
            self.done.set()
            self.feeder.join()

    def _delivers(self, who, since):
        """Whether each of the shards was delivered since then, by a worker or by any but the victim."""

        def found(lines):
            for moment, name, what, *words in lines[found.read :]:
                wanted = name == who if who else name != self.victim
                if what == "record" and moment > since and wanted and words[0] in self.lost:
                    found.first.setdefault(words[0], moment)
            found.read = len(lines)
            return found.first.keys() == self.lost

        found.read, found.first = 0, {}
        return found


def test_sigterm_is_taken_over_without_waiting_for_expiry(fleet):
    """Running batches end, leases are released, peers take them when they next read the table: no lease expires."""
    for name in ("a", "b", "c"):
        fleet.add(name, failover_time=10 * HANG)
    fleet.settle(("a", "b", "c"), 2)
    for number in range(ROUNDS):
        seconds = Takeover(fleet, "c", signal.SIGTERM).seconds(HANG)
        print(f"SIGTERM: all shards of the victim progress with the others after {seconds:.2f} s")
        assert fleet.processes["c"].wait(HANG) == 0
        if number + 1 < ROUNDS:
            fleet.add("c", failover_time=10 * HANG)
            fleet.settle(("a", "b", "c"), 2)


def test_sigkill_is_taken_over_after_the_failover_time(fleet):
    for name in ("a", "b", "c"):
        fleet.add(name)
    fleet.settle(("a", "b", "c"), 2)
    for number in range(ROUNDS):
        seconds = Takeover(fleet, "c", signal.SIGKILL).seconds(HANG)
        print(f"SIGKILL: all shards of the victim progress after {seconds:.2f} s")
        fleet.processes["c"].wait(HANG)
        if number + 1 < ROUNDS:
            fleet.add("c")
            fleet.settle(("a", "b", "c"), 2)


def test_a_frozen_worker_moves_nothing_backwards_and_stops_itself(fleet):
    """SIGSTOP past the failover time, then SIGCONT."""
    for name in ("a", "d"):
        fleet.add(name)
    fleet.settle(("a", "d"), 3)
    frozen_shards = fleet.held_by("d")
    before = fleet.put()
    assert fleet.output.wait(fleet.delivered_by_others(before, None), HANG)
    frozen = fleet.processes["d"]
    frozen.send_signal(signal.SIGSTOP)
    data = fleet.put()
    assert fleet.output.wait(fleet.delivered_by_others(data, "d"), HANG)
    checkpoints = fleet.checkpoints()
    thawed = time.monotonic()
    frozen.send_signal(signal.SIGCONT)

    def all_lost(lines):
        lost = {w[2] for moment, *w in lines if w[0] == "d" and w[1] == "lost" and moment > thawed}
        return lost >= frozen_shards

    assert fleet.output.wait(all_lost, HANG), "it finds out by itself"
    print(f"SIGCONT: stops its shards itself after {time.monotonic() - thawed:.2f} s")
    for _ in range(10):
        now = fleet.checkpoints()
        assert all(now[key] >= position for key, position in checkpoints.items())
        checkpoints = now
        time.sleep(0.1)
    late = fleet.put()
    assert fleet.output.wait(fleet.delivered_by_others(late, None), HANG), (
        "and it goes on as a member of the fleet"
    )
