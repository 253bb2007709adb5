"""Scenes beside the real KCL that take minutes: crashes on both sides, a rolling replacement and its way back.

Not part of ``make integration``; ``make java`` runs them.
"""

from __future__ import annotations

import signal
import time

import pytest

from integration.java.evidence import TableWatch, disorder, duplicates, overlaps, wait_for
from integration.java.load import Load
from integration.java.processes import METRICS, PATIENT
from integration.java.scenes import everything_arrived, make_leases, only

SHARDS = 4


def test_crashes_on_both_sides(stage):
    stream = application = "crashes"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    workers = [make_leases(stage, stream, application, SHARDS)]

    def told():
        return {worker.name: worker.process.tail(8) for worker in workers}

    with TableWatch(stage, application) as watch, Load(stage, stream, rate=400) as load:
        java_1 = stage.start_java("java-1", stream, application)
        workers.append(java_1)
        wait_for(only(watch, "java-1"), 60, told)
        ours_1 = stage.start_ours("ours-1", stream, application)
        workers.append(ours_1)
        wait_for(only(watch, "java-1", "ours-1"), 60, told)
        time.sleep(3)

        ours_1.kill()
        took = wait_for(only(watch, "java-1"), 150, told)
        print(f"ours crashes: the Java leader has all leases after {took:.1f} s")

        ours_2 = stage.start_ours("ours-2", stream, application)
        workers.append(ours_2)
        wait_for(only(watch, "java-1", "ours-2"), 90, told)
        time.sleep(3)
        java_1.kill()
        took = wait_for(only(watch, "ours-2"), 200, told)
        print(f"the Java leader crashes: our worker has all leases after {took:.1f} s")

        java_2 = stage.start_java("java-2", stream, application)
        workers.append(java_2)
        took = wait_for(only(watch, "java-2", "ours-2"), 240, told)
        print(f"another Java worker joins after the crash: its share after {took:.1f} s")
        time.sleep(3)
    found = everything_arrived(load.stored.keys, workers)
    extra = duplicates(found)
    print(f"{load.count} records, {len(extra)} delivered again")
    assert not watch.faults
    assert not overlaps(workers)
    assert not disorder(found)
    # A crash repeats at most what was delivered and not checkpointed: the batch under way, per shard of the victim.
    assert max(extra.values(), default=0) <= 3


@pytest.mark.parametrize("version", ["3.1.3", "3.5.1"])
def test_a_java_worker_with_its_own_intervals_keeps_what_it_is_given(stage, version):
    """KCL's default intervals: it finds out about a lease up to 9.975 s after the handoff, and first writes 3.308 s later.

    ``QUICK`` searches for leases every second, so no other scenario has a Java leader whose first lease expires before it writes.
    """
    stream = application = f"joins-{version.replace('.', '-')}"
    metrics = METRICS[version]
    stage.kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    workers = [make_leases(stage, stream, application, SHARDS, worker_metrics=metrics)]

    def told():
        return {worker.name: worker.process.tail(8) for worker in workers}

    def java_leases():
        return {key for key, holder in watch.holders().items() if holder == "java-1"}

    with TableWatch(stage, application) as watch, Load(stage, stream, rate=100) as load:
        ours = stage.start_ours("ours-1", stream, application, worker_metrics=metrics)
        workers.append(ours)
        wait_for(only(watch, "ours-1"), 60, told)
        java = stage.start_worker("java-1", stream, application, version=version, properties=PATIENT)
        workers.append(java)
        took = wait_for(java_leases, 240, told)
        (first, *_) = java_leases()
        print(f"the Java worker holds {first} after {took:.1f} s")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert first in java_leases(), told()
            time.sleep(0.2)
        assert [event["shard"] for event in java.events("initialize")].count(first) == 1
        wait_for(lambda: len(java_leases()) == SHARDS // 2, 240, told)
    found = everything_arrived(load.stored.keys, workers)
    assert "stopped renewing" not in ours.process.log.read_text()
    assert not java.events("lease_lost")
    assert not watch.faults
    assert not overlaps(workers)
    assert not disorder(found)
    assert not duplicates(found)


def test_two_are_replaced_one_by_one_and_back(stage):
    """A deployment: SIGTERM of the daemon, which stops nothing cleanly; with a split and a merge."""
    stream = application = "rolling"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    workers = [make_leases(stage, stream, application, SHARDS)]

    def told():
        return {worker.name: worker.process.tail(8) for worker in workers}

    def java(name):
        workers.append(stage.start_java(name, stream, application, grace_millis=0))
        return workers[-1]

    def ours(name):
        workers.append(stage.start_ours(name, stream, application))
        return workers[-1]

    def replace(leaving, coming):
        moment = time.monotonic()
        leaving.process.signal(signal.SIGTERM)
        wait_for(lambda: not leaving.process.is_running, 60, told)
        wait_for(only(watch, *(worker.name for worker in coming)), 300, told)
        return time.monotonic() - moment

    with TableWatch(stage, application) as watch, Load(stage, stream, rate=400) as load:
        java_1, java_2 = java("java-1"), java("java-2")
        wait_for(only(watch, "java-1", "java-2"), 120, told)
        ours_1 = ours("ours-1")
        print(f"java-1 leaves for ours-1: {replace(java_1, [java_2, ours_1]):.1f} s")
        stage.kinesis.split_shard(
            StreamName=stream, ShardToSplit="shardId-000000000001", NewStartingHashKey=str(3 << 125)
        )
        ours_2 = ours("ours-2")
        print(f"java-2 leaves for ours-2: {replace(java_2, [ours_1, ours_2]):.1f} s")
        assert len(watch.holders()) == SHARDS + 1, "the split shard's children have taken its place"
        java_3 = java("java-3")
        print(f"ours-1 leaves for java-3: {replace(ours_1, [ours_2, java_3]):.1f} s")
        java_4 = java("java-4")
        print(f"ours-2 leaves for java-4: {replace(ours_2, [java_3, java_4]):.1f} s")
        time.sleep(3)
    found = everything_arrived(load.stored.keys, workers)
    extra = duplicates(found)
    print(f"{load.count} records, {len(extra)} delivered again")
    assert not watch.faults
    assert not overlaps(workers)
    assert not disorder(found)
