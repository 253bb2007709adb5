"""A Java worker that owned the shards in between: it delivers repetitions, and ours deliver what they deliver without it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter

from integration.java.evidence import deliveries, wait_for
from integration.java.load import Load
from integration.java.processes import METRICS
from integration.java.scenes import everything_arrived, make_leases
from kinesis_sdk.testing.accounting import stored_copies

VERSION = "3.5.1"
FAULTS = [
    # Stored, and the answer is lost.
    {"kind": "timeout_after_storing", "operation": "PutRecords", "probability": 0.15},
    # Refused with an error, and stored after the producer has sent it again, which it does after 4 s.
    {
        "kind": "late_store",
        "operation": "PutRecords",
        "probability": 0.1,
        "seconds": 6,
        "code": "InternalFailure",
    },
]


def inject(stage, stream):
    """Switch the faults on for a stream."""
    body = json.dumps([{**fault, "stream": stream} for fault in FAULTS]).encode()
    with urllib.request.urlopen(f"{stage.kinesis_url}/_fake/faults", body, timeout=10) as response:
        assert len(json.load(response)["ids"]) == len(FAULTS)


def forget_faults(stage):
    request = urllib.request.Request(f"{stage.kinesis_url}/_fake/faults", method="DELETE")
    urllib.request.urlopen(request, timeout=10).close()


def positions(workers):
    """Return the positions that workers delivered, in the form of `stored_copies`."""
    return [stored_copies.CopyPosition(one.shard, one.number, one.sub) for one in deliveries(workers)]


def test_a_java_worker_in_between_costs_its_own_second_deliveries(stage):
    stream = application = "idempotent"
    began = time.monotonic()

    def say(text):
        print(f"  {time.monotonic() - began:6.1f} s  {text}", flush=True)

    stage.kinesis.create_stream(StreamName=stream, ShardCount=2)
    metrics = METRICS[VERSION]
    make_leases(stage, stream, application, 2, worker_metrics=metrics)
    inject(stage, stream)
    try:
        with Load(stage, stream, rate=200, idempotent=True, record_ttl=120.0) as load:
            first = stage.start_ours("ours-1", stream, application, worker_metrics=metrics)
            wait_for(lambda: len(deliveries([first])) > 1_000, 60, first.process.tail)
            first.stop()
            say("ours stopped")
            java = stage.start_worker("java", stream, application, version=VERSION)
            wait_for(lambda: len({one.shard for one in deliveries([java])}) == 2, 180, java.process.tail)
            seen = len(deliveries([java]))
            say(f"Java has both shards and {seen:,} records")
            wait_for(lambda: len(deliveries([java])) > seen + 1_500, 60, java.process.tail)
            java.stop()
            say("Java stopped")
            second = stage.start_ours("ours-2", stream, application, worker_metrics=metrics)
            wait_for(lambda: len({one.shard for one in deliveries([second])}) == 2, 180, second.process.tail)
            say("ours has both shards again")
            wait_for(lambda: len(deliveries([second])) > 1_500, 60, second.process.tail)
    finally:
        forget_faults(stage)
    # What is stored late is there before the stream is read.
    time.sleep(max(fault.get("seconds", 0) for fault in FAULTS) + 1)
    workers = [first, java, second]
    everything_arrived(load.stored.keys, workers)
    second.stop()

    copies = stored_copies.read_copies(stage.kinesis, stream)
    assert all(copy.is_idempotent and copy.is_valid for copy in copies)
    name_of = {copy.position: copy.data.decode() for copy in copies}
    due = {name: places[0] for name, places in stored_copies.deliveries(copies, bytes.decode).items()}
    firsts = set(due.values())
    by_first, by_java, by_second = (positions([worker]) for worker in workers)
    starts = {event["shard"]: event["position"] for event in java.events("initialize")}
    last_of_java = {place.shard_id: place for place in sorted(by_java)}

    def is_javas(place):
        """Whether a position is after that at which Java began, and not after its last one."""
        number, sub = starts[place.shard_id]
        after = (int(number), int(sub)) < (place.sequence_number, place.sub_sequence_number)
        return after and place <= last_of_java[place.shard_id]

    # Java delivers everything that is stored in its part, repetitions too, and each position once.
    assert sorted(by_java) == sorted(place for place in name_of if is_javas(place))
    # Ours deliver the first valid copies of the rest, and nothing else.
    assert sorted(by_first + by_second) == sorted(place for place in firsts if not is_javas(place))
    # So nothing is lost, and what is delivered twice is delivered by Java for the second time.
    counts = Counter(name_of[place] for place in by_first + by_java + by_second)
    assert counts.keys() == due.keys() >= load.stored.keys()
    again = [place for place in by_java if place not in firsts]
    assert sum(counts.values()) - len(counts) == len(again)

    # The scene had what it is about: copies of one record on both sides of each change of the worker.
    owner = {name: "Java" if is_javas(place) else "ours" for name, place in due.items()}
    again_of_ours = sum(owner[name_of[place]] == "ours" for place in again)
    later = [place for place in name_of if place not in firsts and not is_javas(place)]
    dropped_behind_java = sum(owner[name_of[place]] == "Java" for place in later)
    say(
        f"{len(copies):,} copies of {len(due):,} records. Java delivered {len(by_java):,}, {len(again):,} of them second copies"
        f" ({again_of_ours:,} of records that ours had delivered). Ours delivered {len(by_first) + len(by_second):,} and dropped"
        f" {len(later):,} second copies ({dropped_behind_java:,} of records that Java had delivered)"
    )
    assert again_of_ours
    assert dropped_behind_java
