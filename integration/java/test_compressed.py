"""Compressed aggregates in the hands of the real KCL, with the class of examples/java, through a split, a merge and a kill.

At the end, a Java worker and one of ours share the table. `test_positions` has checkpoints inside such aggregates.
"""

from __future__ import annotations

import time

import pytest

from integration.java.compression import UTIL, compressed
from integration.java.evidence import disorder, wait_for
from integration.java.install import MAVEN_VERSIONS
from integration.java.load import Load
from integration.java.processes import METRICS
from integration.java.scenes import everything_arrived, make_leases, split_and_merge
from tests import HANG


@pytest.mark.parametrize("version", MAVEN_VERSIONS)
def test_the_kcl_delivers_every_record_of_compressed_aggregates_in_place(stage, version):
    stream = application = f"compressed-{version.replace('.', '-')}"
    stage.kinesis.create_stream(StreamName=stream, ShardCount=2)
    make_leases(stage, stream, application, 2)
    java = stage.start_worker(
        "java-a", stream, application, version=version, aggregator_util=UTIL, middle=0.5
    )
    with Load(stage, stream, rate=1000, compression="zstd", idempotent=True) as load:
        wait_for(
            lambda: len(java.events("initialize")) == 2, HANG, lambda: f"it consumes: {java.process.tail()}"
        )
        time.sleep(2)
        split_and_merge(stage, stream)
        wait_for(lambda: len(java.events("shard_ended")) == 3, HANG, "the parent ended, and both halves")
        java.kill()
        second = stage.start_worker("java-b", stream, application, version=version, aggregator_util=UTIL)
        beside = stage.start_ours("ours-b", stream, application, worker_metrics=METRICS[version])
        wait_for(
            lambda: second.events("records") and beside.events("records"),
            HANG,
            lambda: f"both makes of workers have a shard: {second.process.tail()} {beside.process.tail()}",
        )
        time.sleep(2)
    found = everything_arrived(load.stored.keys, [java, second, beside], HANG)
    ours = stage.start_ours("ours-c", stream, f"{application}-ours")
    everything_arrived(load.stored.keys, [ours], HANG)
    ours.stop()
    beside.stop()
    second.kill()
    sealed, total = compressed(stage, stream)
    print(f"KCL {version}: {load.count} records in {total} Kinesis records, {sealed} of them compressed")
    assert sealed > total / 2
    assert {one.data for one in found} == load.stored.keys(), "records, and no compressed bytes"
    places = {(one.shard, one.number, one.sub): one.data for one in found}
    for name, result in load.stored.items():
        assert places[result.shard_id, int(result.sequence_number), result.sub_sequence_number] == name
    assert not disorder(found)
    assert any(result.sub_sequence_number for result in load.stored.values())
