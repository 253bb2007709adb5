"""What compressed aggregates save, and what they cost, compared with plain ones in the same run.

    python benchmarks/bench_compression.py [--rounds 30]

20,000 flights (the demo's data, JSON of some 100 bytes) go through a real producer to a client that stores what it gets and answers at
once. CPU is the process's, all threads included: the producer's from `put` to `flush`, the reader's from Kinesis records to
user records that were looked at. Plain and compressed take turns. The ratio of two neighbouring turns counts, and the median of these
ratios is printed: the load of a shared machine changes slowly.

Latency is from `put` to the result. In virtual time (``tests/producer/simulation.py``), sealing takes up to 3 ms, which is ten times what
100 KB need, and requests up to 20 ms. In real time, a producer is paced at 2,000 records a second.

The last table is about the library alone: levels, and a dictionary that was trained on other records of the same stream.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import statistics
import time
from importlib.resources import files
from typing import Any

import zstandard

from kinesis_sdk import Producer, ProducerConfig
from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.codec import AggregateCodec, codec_named
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.testing import FakeAws
from tests.producer.simulation import Simulation

STREAM = "flights"
SHARDS = 4
PACED, RATE = 2_000, 2_000
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
    return found


def simulated(
    records: list[tuple[str, bytes]], codec: AggregateCodec | None, rate: int, shards: int
) -> list[float]:
    """Return the seconds of virtual time from put to result of records at a rate per second."""
    config = ProducerConfig(rate_limit=150)
    simulation = Simulation(
        config, shards=shards, throttle=False, codec=codec, sealing_time=0.003, latency=0.01, balanced=False
    )
    found: list[float] = []

    def put(key: str, data: bytes) -> None:
        at = simulation.clock.monotonic()
        record = simulation.put(key, data)
        record.add_done_callback(lambda _record: found.append(simulation.clock.monotonic() - at))

    put("first", b"first")
    simulation.run(until=0.5)
    found.clear()
    for number in range(int(1.5 * rate)):
        simulation.at(0.5 + number / rate, functools.partial(put, *records[number % len(records)]))
    simulation.run()
    return found


def compare(name: str, plain: list[float], small: list[float]) -> None:
    """Print medians and p99 of latencies, plain and compressed."""
    parts = []
    for label, place in (("p50", 0.5), ("p99", 0.99)):
        a, b = (sorted(times)[int(place * len(times))] * 1000 for times in (plain, small))
        parts.append(f"{label} {a:.1f} ms -> {b:.1f} ms ({b / a:.2f})")
    print(f"put to result, {name}: {', '.join(parts)}")


def alternatives(lines: list[bytes]) -> None:
    """Print what levels and a dictionary save and cost, without a producer."""
    half = len(lines) // 2
    dictionary = zstandard.train_dictionary(16_384, lines[:half])
    for size in (1_000, 25_000, 150_000):
        raw = b"".join(lines[half:])
        bodies = [raw[at : at + size] for at in range(0, len(raw), size)]
        print(f"bodies of {size:,} bytes:", end="")
        for name, level, trained in (
            *((f"level {level}", level, None) for level in (-1, 1, 3, 6)),
            ("level 1 with a dictionary of 16 KB", 1, dictionary),
        ):
            compressor = zstandard.ZstdCompressor(level=level, dict_data=trained)
            best = float("inf")
            for _ in range(5):
                began = time.process_time()
                total = sum(len(compressor.compress(body)) for body in bodies)
                best = min(best, time.process_time() - began)
            print(f" {name}: {len(raw) / total:.2f} x, {best / len(raw) * 1e9:.2f} ms/MB;", end="")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    records = flights()
    for size in (25_000, 51_200, 1_000_000):
        ratios: dict[str, list[float]] = {"producer": [], "reader": []}
        stored: dict[str | None, Sink] = {}
        for turn in range(rounds):
            cpu: dict[str | None, tuple[float, float]] = {}
            for kind in KINDS if turn % 2 else KINDS[::-1]:
                putting, sink = put(records, kind, size)
                reading, count = read(sink)
                assert count == len(records)
                cpu[kind] = putting, reading
                stored[kind] = sink
            for place, who in enumerate(ratios):
                ratios[who].append(cpu["zstd"][place] / cpu[None][place])
        plain, small = (stored[kind].stored for kind in KINDS)
        billed = [sum(map(len, blobs)) for blobs in (plain, small)]
        print(
            f"aggregation_max_size {size:>9,}: bytes {billed[0]:,} -> {billed[1]:,} ({billed[0] / billed[1]:.2f} x fewer), "
            f"Kinesis records {len(plain)} -> {len(small)}, largest {max(map(len, small)):,}; CPU compressed/plain: "
            + ", ".join(f"{who} {statistics.median(found):.2f}" for who, found in ratios.items())
        )
    codec = codec_named("zstd")
    for rate, shards in ((200, 4), (2_000, 4), (20_000, 4), (40_000, 4), (40_000, 1)):
        on = "" if shards == SHARDS else f" (compressed on {shards})"
        compare(
            f"virtual time, {rate:,} records/s on {SHARDS} shards{on}",
            simulated(records, None, rate, SHARDS),
            simulated(records, codec, rate, shards),
        )
    times: dict[str | None, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(4):
        for kind in KINDS:
            times[kind] += latencies(records, kind)
    compare(f"real time, {RATE:,} records/s on {SHARDS} shards", times[None], times["zstd"])
    alternatives([data for _, data in records])


if __name__ == "__main__":
    main()
