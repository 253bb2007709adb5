"""A Java worker with the KCL's own intervals joins ours, which takes minutes. `test_long_fleets` has crashes and deployments.

Not part of ``make integration``; ``make java`` runs them.
"""

from __future__ import annotations

import time

import pytest

from integration.java.evidence import TableWatch, disorder, duplicates, overlaps, wait_for
from integration.java.load import Load
from integration.java.processes import METRICS, PATIENT
from integration.java.scenes import everything_arrived, make_leases, only

SHARDS = 4


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
