"""Lag of a Spark reader whose stream has rows with names, and what it reads again for them, in virtual time.

    python benchmarks/bench_spark_names.py [--seconds 600] [--rates 0.25 0.5 0.9]

One shard, read in ranges as by the Spark source with a trigger of one second: each range has a reader of its own, which begins without a memory. The
rules are those of the package; the shard is a list, from which 2 MB a second can be read, and nothing else takes time. Each Kinesis record stands for
100 kB. The writer's batches follow each other every second:

* **no names**: `idempotent=true` without a column `dedupId`.
* **named**: with names and `firstAttempts=never`, window 300 s.
* **first**: with names and `firstAttempts=auto`.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.hashkeys import FULL_RANGE, hash_partition_key
from kinesis_sdk.common.once.reader import LookUp, ReadShard, RunReader
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.table import FIRST, HOLD_OFF, NAMED, Run, encode_table
from kinesis_sdk.common.records import KinesisRecord

STREAM, SHARD = "orders", "shardId-000000000000"
EPOCH = 1_700_000_000_000
RECORD = 0.1
"""Megabytes of a Kinesis record."""
PAGE = 100
"""Kinesis records of a response."""
READ_RATE = 2.0
"""Megabytes a second."""
BATCH_MILLIS = 1000
LATENCY_MILLIS = 50
WINDOW_MILLIS = 300_000
FLAGS = {"no names": 0, "named": NAMED, "first": NAMED | FIRST}


class Result(NamedTuple):
    """What a reader did.

    Attributes:
        lag: Age of the oldest record that was not read at the end, in seconds.
        look_ups: Ranges for which the shard was read again.
        ranges: Number of ranges.
        read: Megabytes that were read.
        rows: Megabytes that became rows.
    """

    lag: float
    look_ups: int
    ranges: int
    read: float
    rows: float


def stored(flags: int, rate: float, seconds: int) -> list[KinesisRecord]:
    """Return what the writer has stored."""
    found = []
    for number in range(int(seconds * rate / RECORD)):
        sent = EPOCH + int(number * RECORD / rate * 1000)
        began = sent - sent % BATCH_MILLIS - BATCH_MILLIS  # the end of the writer's batch before
        date = {0: sent, NAMED: sent - WINDOW_MILLIS, NAMED | FIRST: began}[flags]
        holdoff = HOLD_OFF + (sent - date) // 1000 if flags & FIRST else HOLD_OFF
        aggregate = Aggregate(10**6, 10**6, runs=Runs())
        aggregate.try_append("k", None, b"row %d" % number, hash_partition_key("k"))
        assert aggregate.runs is not None
        aggregate.runs.tag = encode_table(STREAM, SHARD, [Run(1, holdoff, flags, b"a writer", date, number)])
        arrived = datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=sent + LATENCY_MILLIS)
        found.append(KinesisRecord(aggregate.encode(), "k", str(10**55 + number), arrived))
    return found


class Shard:
    """A shard with the megabytes that were read from it."""

    def __init__(self, records: Sequence[KinesisRecord]) -> None:
        self.records = records
        self.arrivals = [round(one.approximate_arrival_timestamp.timestamp() * 1000) for one in records]  # type: ignore[union-attr]
        self.read = 0.0

    def page(self, begin: int, end: int) -> Sequence[KinesisRecord]:
        """Return the next page of some records."""
        found = self.records[begin : min(begin + PAGE, end)]
        self.read += len(found) * RECORD
        return found

    def carry_out(self, look_up: LookUp, end: int) -> None:
        """Read what a look-up asks for; the shard holds records up to an index by now."""
        while isinstance(step := look_up.step, ReadShard):
            assert step.since_millis is not None
            at = bisect_left(self.arrivals, step.since_millis)
            while look_up.step is step:
                page = self.page(at, end)
                at += len(page)
                look_up.page(page, at_end=at >= end)


def run(records: Sequence[KinesisRecord], seconds: int) -> Result:
    """Read a shard for some seconds."""
    shard, time, cut, look_ups, ranges = Shard(records), 0.0, 0, 0, 0
    while time < seconds:
        before = shard.read
        tip = end = bisect_left(shard.arrivals, EPOCH + int(time * 1000))
        reader = RunReader(STREAM, SHARD, FULL_RANGE, parents=(), drops_equal=False)
        ranges += 1
        while cut < end:
            page = shard.page(cut, end)
            reader.begin(page)
            deaggregate(page, on_tagged=reader.add)
            look_up = reader.look_up()
            if look_up is not None:
                look_ups += 1
                shard.carry_out(look_up, tip)
            assert not reader.decide(EPOCH).dropped
            cut += len(page)
        time += max(1.0, (shard.read - before) / READ_RATE)
    oldest = shard.arrivals[cut] - EPOCH if cut < len(records) else time * 1000
    return Result(max(0.0, time - oldest / 1000), look_ups, ranges, shard.read, cut * RECORD)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.25, 0.5, 0.9])
    arguments = parser.parse_args()
    print(f"After {arguments.seconds} s:\n")
    print("| MB/s a shard | rows | lag | look-ups of ranges | MB read | MB of rows |")
    print("|---:|---|---:|---:|---:|---:|")
    for rate in arguments.rates:
        for name, flags in FLAGS.items():
            records = stored(flags, rate, 2 * arguments.seconds)
            one = run(records, arguments.seconds)
            print(
                f"| {rate:g} | {name} | {one.lag:.1f} s | {one.look_ups} of {one.ranges} | {one.read:,.0f} | {one.rows:,.0f} |"
            )


if __name__ == "__main__":
    main()
