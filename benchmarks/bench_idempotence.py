"""Cost of `ProducerConfig(idempotent=True)`: bytes by size of aggregate, and CPU time of putting and of reading.

    python benchmarks/bench_idempotence.py [--pairs 9] [--records 400000] [--reading] [--memory]

CPU is the time of a whole process that puts records into one shard, without HTTP: the client answers at once. Processes with and
without identities take turns, and the table has the median of the ratios of neighbors, so that the speed of the machine does not matter.

Reading is `deaggregate` of batches of 100 Kinesis records, in one process, where aggregates without a tag, with one, and with one that was made
for another shard take turns. Those with a tag go through the rules of a reader that begins with each batch.
Without a tag, a record that travels alone is no aggregate, and nothing is parsed. ``--reading`` leaves out everything else.

``--memory`` prints only what a reader remembers of named records: bytes, as Python allocates them, after many windows of 300 s, and for how
many seconds of them nothing has to be looked up in the stream.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.hashkeys import FULL_RANGE, hash_partition_key
from kinesis_sdk.common.once.budget import MAX_BYTES
from kinesis_sdk.common.once.memory import RunMemory
from kinesis_sdk.common.once.reader import RunReader
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.table import Run, encode_table
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.testing import FakeAws

STREAM = "orders"
SHARD = "shardId-000000000000"
SIZE = 100
KEYS = [f"customer{number:02d}" for number in range(50)]


class Answering:
    """A client that stores nothing and answers at once."""

    def __init__(self) -> None:
        self._aws = FakeAws()
        self._client = self._aws.client("kinesis")
        self._client.create_stream(StreamName=STREAM, ShardCount=1)

    def list_shards(self, **request: Any) -> Any:
        return self._client.list_shards(**request)

    def describe_stream_summary(self, **request: Any) -> Any:
        return self._client.describe_stream_summary(**request)

    def put_records(self, **request: Any) -> Any:
        stored = {
            "ShardId": SHARD,
            "SequenceNumber": "49590338271490256608559692538361571095921575989136651234",
        }
        headers = {"date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())}
        return {
            "Records": [dict(stored) for _ in request["Records"]],
            "FailedRecordCount": 0,
            "ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": headers},
        }


def put(count: int, *, idempotent: bool) -> float:
    """Return the CPU seconds for putting a number of records."""
    config = ProducerConfig(idempotent=idempotent, rate_limit=10_000, max_buffered_bytes=1 << 30)
    client: Any = Answering()
    with Producer(config, client=client, rng=random.Random(1)) as producer:
        data = b"x" * SIZE
        producer.put(STREAM, KEYS[0], data).result()
        before = time.process_time()
        for number in range(count):
            producer.put(STREAM, KEYS[number % len(KEYS)], data)
        producer.flush()
        return time.process_time() - before


def in_a_process(count: int, *, idempotent: bool) -> float:
    """Return the result of `put` in a new process."""
    command = [sys.executable, __file__, "--one", "on" if idempotent else "off", "--records", str(count)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def stored_bytes(count: int, *, tagged: bool) -> int:
    """Return the bytes of a Kinesis record with a number of user records of one key, as Kinesis counts them."""
    aggregate = Aggregate(1 << 30, 1 << 30, runs=Runs() if tagged else None)
    for _ in range(count):
        aggregate.try_append(KEYS[0], None, b"x" * SIZE, hash_partition_key(KEYS[0]))
    return aggregate.size + len(aggregate.partition_key)


NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
BATCH = 100


def batch(count: int, made_for: str | None, *, tagged: bool) -> list[KinesisRecord]:
    """Return Kinesis records with a number of user records each."""
    date = int(NOW.timestamp() * 1000) - 50
    found: list[KinesisRecord] = []
    for index in range(BATCH):
        aggregate = Aggregate(1 << 30, 1 << 30, runs=Runs() if tagged else None)
        for number in range(count):
            key = KEYS[number % len(KEYS)]
            aggregate.try_append(key, None, os.urandom(SIZE), hash_partition_key(key))
        if aggregate.runs is not None:
            run = Run(count, 4, 0, b"producer", date - index % 50, 10**6 * index)
            aggregate.runs.tag = encode_table(STREAM, made_for, [run])
        data = aggregate.encode()
        found.append(KinesisRecord(data, aggregate.partition_key, str(10**20 + index), NOW))
    return found


def read(records: list[KinesisRecord], *, judged: bool) -> float:
    """Return the CPU seconds for taking a batch apart."""
    before = time.process_time()
    for _ in range(5):
        if judged:
            reader = RunReader(STREAM, SHARD, FULL_RANGE, parents=())
            reader.begin(records)
            deaggregate(records, on_tagged=reader.add)
            if not reader.is_idle or not reader.remembered:
                raise AssertionError("no aggregate of the benchmark is a repetition, and each has a tag")
        else:
            deaggregate(records)
    return (time.process_time() - before) / 5


def reading(rounds: int) -> None:
    """Print what a tag costs a reader."""
    print("user records in an aggregate | µs without a tag | with | µs more | made for another shard")
    for count in (1, 2, 10, 100, 430):
        plain = batch(count, None, tagged=False)
        own = batch(count, SHARD, tagged=True)
        other = batch(count, "shardId-000000000001", tagged=True)
        spent = [
            (read(plain, judged=False), read(own, judged=True), read(other, judged=True))
            for _ in range(rounds)
        ]
        # The least of many rounds, because whatever else the machine does only adds to it.
        without, tagged, elsewhere = (min(times) / BATCH * 1e6 for times in zip(*spent, strict=True))
        print(
            f"{count:>4} | {without:>6.1f} | {tagged / without:.2f}× | {tagged - without:>4.1f} | {elsewhere / without:.2f}×"
        )


def remember(each_second: int, in_an_aggregate: int) -> None:
    """Print what the memory of a shard takes that gets this many named records a second, with a window of 300 s."""
    rng = random.Random(1)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    memory = RunMemory()
    memory.since = 0
    aggregates = each_second // in_an_aggregate
    for index in range(aggregates * 700):
        arrival = index * 1000 // aggregates
        memory.reach(302_000, arrival)
        memory.begin(
            49590338271490256608559692538361571095921975989136651234 + (index << 76),
            arrival,
            rng.randbytes(16),
        )
        for sub in range(in_an_aggregate):
            memory.add_name(rng.randbytes(14), sub)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    reaches = 700 - memory.since / 1000
    print(
        f"{each_second:>6,} | {in_an_aggregate:>3} | {taken / 1024**2:>5.1f} MiB | {taken / len(memory):>4.0f} | {reaches:>4.0f} s"
    )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=9, help="processes of each kind")
    parser.add_argument("--records", type=int, default=400_000, help="records of each process")
    parser.add_argument("--one", choices=["on", "off"], help=argparse.SUPPRESS)
    parser.add_argument("--reading", action="store_true", help="only the cost of reading")
    parser.add_argument("--memory", action="store_true", help="only what a reader remembers")
    arguments = parser.parse_args()
    if arguments.memory:
        print(
            f"named records a second | in an aggregate | memory (at most {MAX_BYTES >> 20} MiB) | bytes each | reaches back"
        )
        for each_second, in_an_aggregate in ((93, 1), (1000, 1), (1000, 10), (2000, 10), (4500, 10)):
            remember(each_second, in_an_aggregate)
        return
    if arguments.one:
        print(put(arguments.records, idempotent=arguments.one == "on"))
        return
    reading(4 * arguments.pairs)
    if arguments.reading:
        return
    print(f"records of {SIZE} bytes, keys of {len(KEYS[0])} | bytes without | with | more")
    for count in (1, 2, 10, 100, 430):
        without, identified = (stored_bytes(count, tagged=tagged) for tagged in (False, True))
        print(
            f"{count:>4} | {without:>7,} | {identified:>7,} | {identified - without:>3} ({identified / without - 1:.2%})"
        )
    ratios: list[float] = []
    for pair in range(arguments.pairs):
        order = (False, True) if pair % 2 else (True, False)
        spent = {on: in_a_process(arguments.records, idempotent=on) for on in order}
        ratios.append(spent[True] / spent[False])
    print(
        f"CPU of putting {arguments.records:,} records, with / without: median {statistics.median(ratios):.3f} "
        f"(from {min(ratios):.3f} to {max(ratios):.3f})"
    )


if __name__ == "__main__":
    main()
