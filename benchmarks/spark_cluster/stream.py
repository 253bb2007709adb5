"""A fake Kinesis whose stream already holds the flights of the last hours: ``python -m benchmarks.spark_cluster.stream FOLDER``.

With ``--orders`` it also has a stream ``orders`` of so many rows, and two streams for copies of it. It writes ``truth.json`` into the folder, prints the endpoint, and serves until its standard input is closed. Flights are
aggregated; arrival times spread evenly over the hours and over the shards. The stream has no limits per shard: the
benchmark measures Spark, not how long Kinesis makes a reader wait.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kinesis_sdk.common.aggregate_reader import MAGIC
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from kinesis_sdk.testing.flights import load_flights

STREAM = "flights"
ORDERS, COPIES = "orders", ("copy-1", "copy-2")
ORDER_SHARDS, PER_ORDER = 4, 50
WEEK = 7 * 86_400


class PastClock:
    """The clock of this machine, set back."""

    def __init__(self) -> None:
        self.behind = 0.0

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time() - self.behind


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


class Flights:
    """The packaged flights as they are put, repeated without end.

    Encoding 10 million user records one by one takes a minute; each of the 20,000 is encoded once instead.
    """

    def __init__(self) -> None:
        flights = [json.loads(flight.line) for flight in load_flights()]
        keys = sorted({flight["origin"] for flight in flights})
        index = {key: number for number, key in enumerate(keys)}
        self._table = b"".join(_field(1, key.encode()) for key in keys)
        self._records = []
        self._facts: list[tuple[int, str, int]] = []
        for flight in flights:
            moment = datetime.strptime(flight["date"], "%Y/%m/%d %H:%M").replace(tzinfo=timezone.utc)
            flight["date"] = moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")
            data = json.dumps(flight, separators=(",", ":")).encode()
            record = b"\x08" + _varint(index[flight["origin"]]) + _field(3, data)
            self._records.append(_field(3, record))
            week = int(moment.timestamp()) // WEEK * WEEK
            self._facts.append((week, flight["origin"], flight["delay"]))
        self._twice = self._records * 2

    def aggregate(self, first: int, count: int) -> bytes:
        """Return the flights from number ``first`` on as one aggregate; ``count`` is at most 20,000."""
        begin = first % len(self._records)
        body = self._table + b"".join(self._twice[begin : begin + count])
        return MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest()

    def statistics(self, rows: int) -> list[list[Any]]:
        """Return what the example's pipeline must find: week, origin, flights, sum of delays, late flights."""
        whole, rest = divmod(rows, len(self._facts))
        totals: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        for number, (week, origin, delay) in enumerate(self._facts):
            times = whole + (number < rest)
            total = totals[week, origin]
            total[0] += times
            total[1] += times * delay
            total[2] += times * (delay > 15)
        return [[week, origin, *total] for (week, origin), total in sorted(totals.items()) if total[0]]


def fill(aws: FakeAws, clock: PastClock, flights: Flights, options: argparse.Namespace) -> dict[str, int]:
    """Put all flights; returns the user records of each Kinesis record, by shard and sequence number."""
    client = aws.client("kinesis")
    per_record = options.rows_per_record
    numbers = range(0, options.rows, per_record)
    put: dict[str, int] = {}
    began = time.time() - options.hours * 3600
    step = 25

    def entries(batch: range) -> Iterator[dict[str, Any]]:
        for position, first in enumerate(batch):
            shard = (batch.start // per_record + position) % options.shards
            count = min(per_record, options.rows - first)
            yield {
                "Data": flights.aggregate(first, count),
                "PartitionKey": "a",
                "ExplicitHashKey": str((shard << 128) // options.shards + 1),
            }

    for at in range(0, len(numbers), step):
        batch = numbers[at : at + step]
        clock.behind = time.time() - (began + options.hours * 3600 * at / len(numbers))
        answer = client.put_records(StreamName=STREAM, Records=list(entries(batch)))
        assert not answer["FailedRecordCount"]
        for first, result in zip(batch, answer["Records"], strict=True):
            put[f"{result['ShardId']} {result['SequenceNumber']}"] = min(per_record, options.rows - first)
    clock.behind = 0.0
    return put


def fill_orders(aws: FakeAws, rows: int) -> None:
    """Put rows in aggregates over the shards of the stream that is copied."""
    from kinesis_sdk.common.aggregate_reader import Aggregate
    from kinesis_sdk.common.hashkeys import hash_key_to_decimal, hash_partition_key

    client = aws.client("kinesis")
    for name in (ORDERS, *COPIES):
        client.create_stream(StreamName=name, ShardCount=ORDER_SHARDS)
    keys = [f"customer-{number}" for number in range(100)]
    hashes = [hash_partition_key(key) for key in keys]
    for first in range(0, rows, PER_ORDER):
        number = first // PER_ORDER % len(keys)
        aggregate = Aggregate(51_200, 1 << 40)
        for row in range(first, min(first + PER_ORDER, rows)):
            assert aggregate.try_append(keys[number], None, b"order %d" % row, hashes[number])
        client.put_record(
            StreamName=ORDERS,
            Data=aggregate.encode(),
            PartitionKey="a",
            ExplicitHashKey=hash_key_to_decimal(hashes[number]),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--rows-per-record", type=int, required=True)
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--orders", type=int, default=0)
    options = parser.parse_args()
    clock = PastClock()
    clock.behind = options.hours * 3600 + 1
    aws = FakeAws(clock=clock, throttle=False)
    aws.client("kinesis").create_stream(StreamName=STREAM, ShardCount=options.shards)
    flights = Flights()
    put = fill(aws, clock, flights, options)
    if options.orders:
        fill_orders(aws, options.orders)
    truth = {"put": put, "statistics": flights.statistics(options.rows)}
    (options.folder / "truth.json").write_text(json.dumps(truth))
    del truth, put
    with FakeAwsServer(aws) as server:
        print(server.endpoint_url, flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
