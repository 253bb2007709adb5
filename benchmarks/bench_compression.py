"""What compressed aggregates save, and what they cost, compared with plain ones in the same run.

    python benchmarks/bench_compression.py [--rounds 5]

20,000 flights (the demo's data, JSON of some 100 bytes) go through a real producer to a client that stores what it gets and answers at
once. CPU is that of the process, all threads included: the producer's from `put` to `flush`, the reader's from Kinesis records to
user records that were looked at. Plain and compressed take turns, and the best turn of each counts; ratios say more than times on a
shared machine. Latency is from `put` to the result, of a producer that is paced at 2,000 records a second.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from importlib.resources import files
from typing import Any

from kinesis_sdk import Producer, ProducerConfig
from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.testing import FakeAws

STREAM = "flights"
SHARDS = 4
PACED, RATE = 4_000, 2_000
KINDS: tuple[None, str] = (None, "zstd")


def flights() -> list[tuple[str, bytes]]:
    """Return the flights with their partition keys."""
    packed = files("kinesis_sdk.testing").joinpath("data/flights-20k.ndjson.gz").read_bytes()
    lines = gzip.decompress(packed).splitlines()
    return [(json.loads(line)["origin"], line) for line in lines]


class Sink:
    """A client that keeps what is put, and asks the fake for everything else."""

    def __init__(self) -> None:
        self._client = FakeAws(throttle=False).client("kinesis")
        self._client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        self._shards = self._client.list_shards(StreamName=STREAM)["Shards"]
        self.meta = self._client.meta
        self.stored: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_records(self, **request: Any) -> dict[str, Any]:
        """Store records, and name the shard of each."""
        results = []
        for record in request["Records"]:
            self.stored.append(record["Data"])
            place = int(record["ExplicitHashKey"]) * SHARDS >> 128
            number = str(49 * 10**54 + len(self.stored))
            results.append({"ShardId": self._shards[place]["ShardId"], "SequenceNumber": number})
        return {"FailedRecordCount": 0, "Records": results}


def put(records: list[tuple[str, bytes]], compression: Any, size: int) -> tuple[float, Sink]:
    """Put records; return seconds of CPU, and what was stored."""
    sink = Sink()
    config = ProducerConfig(
        compression=compression, aggregation_max_size=size, record_max_buffered_time=2.0, rate_limit=10_000
    )
    with Producer(config, client=sink) as producer:
        producer.put(STREAM, "first", b"first")
        producer.flush()
        sink.stored.clear()
        began = time.process_time()
        for key, data in records:
            producer.put(STREAM, key, data)
        producer.flush()
        return time.process_time() - began, sink


def read(sink: Sink) -> tuple[float, int]:
    """Read what was stored; return seconds of CPU, and how many user records it holds."""
    carriers = [KinesisRecord(data, "a", str(number)) for number, data in enumerate(sink.stored, 1)]
    began = time.process_time()
    count = sum(1 for record in deaggregate(carriers) if record.data)
    return time.process_time() - began, count


def latencies(records: list[tuple[str, bytes]], compression: Any) -> list[float]:
    """Return the seconds from put to result of paced records, sorted."""
    found: list[float] = []
    with Producer(ProducerConfig(compression=compression), client=Sink()) as producer:
        began = time.perf_counter()
        for number, (key, data) in enumerate(records[:PACED]):
            time.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            at = time.perf_counter()
            producer.put(STREAM, key, data).add_done_callback(
                lambda _record, at=at: found.append(time.perf_counter() - at)
            )
        producer.flush()
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    records = flights()
    for size in (25_000, 51_200, 1_000_000):
        cpu = {kind: [float("inf")] * 2 for kind in KINDS}
        stored: dict[str | None, Sink] = {}
        for turn in range(rounds):
            for kind in KINDS if turn % 2 else KINDS[::-1]:
                putting, sink = put(records, kind, size)
                reading, count = read(sink)
                assert count == len(records)
                cpu[kind] = [min(cpu[kind][0], putting), min(cpu[kind][1], reading)]
                stored[kind] = sink
        plain, small = (stored[kind].stored for kind in KINDS)
        billed = [sum(map(len, blobs)) for blobs in (plain, small)]
        print(
            f"aggregation_max_size {size:>9,}: bytes {billed[0]:,} -> {billed[1]:,} ({billed[0] / billed[1]:.2f} x fewer), "
            f"Kinesis records {len(plain)} -> {len(small)}, largest {max(map(len, small)):,}; "
            f"CPU compressed/plain: producer {cpu['zstd'][0] / cpu[None][0]:.2f}, reader {cpu['zstd'][1] / cpu[None][1]:.2f}"
        )
    times = {kind: latencies(records, kind) for kind in KINDS}
    for name, place in (("p50", 0.5), ("p99", 0.99)):
        plain, small = (times[kind][int(place * PACED)] * 1000 for kind in KINDS)
        print(f"put to result, {name}: {plain:.1f} ms -> {small:.1f} ms")
    print(
        f"mean: {statistics.mean(times[None]) * 1000:.1f} ms -> {statistics.mean(times['zstd']) * 1000:.1f} ms"
    )


if __name__ == "__main__":
    main()
