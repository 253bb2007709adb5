"""What the real KPL acknowledges across reshards and a KCL never delivers, beside our producer with the same load.

KPL 1.0.9 checks the records of a misplaced aggregate one by one: it acknowledges those that belong to the shard that took the aggregate,
and sends only the other records again. A KCL drops such an aggregate whole. KPL 1.1.1 sends the whole aggregate again, as our producer does.
The KCL's own code is the judge. PutRecords takes 0.2 s here, so that aggregates are on their way when the KPL learns of new shards.
"""

from __future__ import annotations

import itertools
import random
import time

import pytest

from integration.endtoend.stream import StreamControl
from integration.java.books import read_stream
from integration.java.evidence import wait_for
from integration.java.kpl.conftest import _tls_account, tls_stage
from integration.java.kpl.install import JUDGE, KPL, OLD_KPL
from integration.java.kpl.judge import deaggregate
from integration.java.kpl.producer import Kpl, plan
from kinesis_sdk import Producer
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.testing import ServerProcess

__all__ = ["_tls_account", "tls_stage"]

COUNT = 20_000
RATE = 1_500
RESHARDS = 6
"""Splits and merges, in turn, evenly over the records."""


def reshard(stage, stream, number):
    """Split the widest shard, or merge two neighbours."""
    control = StreamControl(stage.kinesis, StreamId.parse(stream), random.Random(number))
    wait_for(lambda: not control.is_resharding, 60, "the stream is ACTIVE")
    (control.merge if number % 2 else control.split)()


def put_all(stage, stream, entries, put):
    """Put records at the same pace for all, with reshards on the way."""
    stage.kinesis.create_stream(StreamName=stream, ShardCount=4)
    turns = {COUNT * (number + 1) // (RESHARDS + 1): number for number in range(RESHARDS)}
    began = time.monotonic()
    for index, entry in enumerate(entries):
        if index in turns:
            reshard(stage, stream, turns[index])
        put(entry)
        if index % 100 == 0:
            time.sleep(max(0.0, began + index / RATE - time.monotonic()))


def judged(stage, stream, entries):
    """Return the acknowledged records that the KCL's code does not deliver, and the number of those that it delivers again."""
    acknowledged = {entry.data for entry in entries}
    found = [one.data for one in deaggregate(stage, stream)]
    lost = acknowledged - set(found)
    held = [record for shard in read_stream(stage, stream).values() for record in shard]
    assert lost <= {record.data.encode() for record in held if record.optional}, (
        "nothing is missing but what aggregates with records of two shards hold"
    )
    return lost, len(found) - len(set(found))


@pytest.mark.parametrize("seed", [2, 3])
def test_what_a_kcl_never_delivers_across_reshards(tls_stage, seed):
    stage = tls_stage
    fake = ServerProcess(stage.kinesis_url, 0, stage.ca_file)
    entries = list(itertools.islice(plan(seed, "r"), COUNT))
    lost, lines = {}, []
    fake.admin("faults", {"kind": "slow", "operation": "PutRecords", "probability": 1.0, "seconds": 0.2})
    try:
        for version in (OLD_KPL, KPL):
            stream = f"loss-{version}-{seed}"
            with Kpl(stage, stream, version) as kpl:
                put_all(stage, stream, entries, kpl.put)
            assert len(kpl.stored) == COUNT
            assert all(one.is_ok for one in kpl.stored.values())
            lost[version], twice = judged(stage, stream, entries)
            again = sum(one.attempts > 1 for one in kpl.stored.values())
            lines.append(
                f"KPL {version}: {len(lost[version])} never delivered, {twice} twice, {again} sent again"
            )
        stream, futures = f"loss-ours-{seed}", []
        with Producer(endpoint_url=stage.kinesis_url) as producer:
            put_all(
                stage,
                stream,
                entries,
                lambda one: futures.append(producer.put(stream, one.key, one.data, one.place)),
            )
    finally:
        fake.admin("faults", method="DELETE")
    again = sum(len(future.result().attempts) > 1 for future in futures)
    lost["ours"], twice = judged(stage, stream, entries)
    lines.append(f"ours:      {len(lost['ours'])} never delivered, {twice} twice, {again} sent again")
    print(
        f"\n{COUNT:,} acknowledged records, {RESHARDS} reshards, seed {seed}, judged by KCL {JUDGE}",
        *lines,
        sep="\n  ",
    )
    assert not lost["ours"]
    assert again, "aggregates of ours came to a wrong shard, too"
    assert not lost[KPL]
    assert lost[OLD_KPL], "it is known to lose them"
