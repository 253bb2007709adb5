"""One measurement of `bench_producer.py` in a process of its own.

    python benchmarks/producer_candidates.py NAME ENDPOINT COUNT [keys=1000 streams=1 shards=64 size=100 cbor=0 rate=0]

Prints a JSON object of numbers. Runs with this package's environment or with the peers', so that nothing is
imported before it is needed. Every candidate puts the same user records and waits until all of them are
acknowledged; CPU is that of the whole process, all its threads included.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from hashlib import md5
from typing import Any, NamedTuple

STREAM = "bench"
SIZE = 100
LARGE = 50 << 10
MAX_AGGREGATE = 51_200
TABLE_ENTRY = 18
"""Bytes of a partition key in the table of an aggregate, at most."""

REGION = "us-east-1"
TRIALS = 4
BURST = 64
"""Records that come together if there is a rate."""

Numbers = dict[str, float]
Record = tuple[str, bytes]


class Shape(NamedTuple):
    """What a cost may grow with: distinct partition keys, streams in turn, shards of each, bytes of a payload; 1 for CBOR; records
    a second, or 0 for as many as possible."""

    keys: int = 1_000
    streams: int = 1
    shards: int = 64
    size: int = SIZE
    cbor: int = 0
    rate: int = 0

    @property
    def names(self) -> list[str]:
        """The streams; the sink reads the number of shards from the name."""
        return [f"{STREAM}{number}-{self.shards}" for number in range(self.streams)]

    @property
    def wire_format(self) -> str:
        """Ours, for `ProducerConfig`."""
        return "cbor" if self.cbor else "json"


def workload(count: int, shape: Shape, seed: int = 7) -> list[Record]:
    """Partition keys and payloads, the same in every process."""
    rng = random.Random(seed)
    keys = [f"customer-{index:04d}" for index in range(shape.keys)]
    return [(keys[rng.randrange(shape.keys)], rng.randbytes(shape.size)) for _ in range(count)]


def workloads(count: int, shape: Shape) -> list[list[Record]]:
    """The workload of each trial: another one if there are more keys than records, else a cache would know them all after the first."""
    return [workload(count, shape, 7 + trial) for trial in range(TRIALS + 1 if shape.keys > count else 1)]


def in_turn(count: int, shape: Shape) -> Iterator[list[tuple[str, str, bytes]]]:
    """Endless workloads, with the stream of each record: one after the other."""
    names = shape.names
    return itertools.cycle(
        [
            [(names[at % shape.streams], *record) for at, record in enumerate(records)]
            for records in workloads(count, shape)
        ]
    )


def paced(records: list[tuple[str, str, bytes]], shape: Shape) -> Iterable[tuple[str, str, bytes]]:
    """The records, at the rate of the shape."""
    return _slowed(records, shape.rate) if shape.rate else records


def _slowed(records: list[tuple[str, str, bytes]], rate: int) -> Iterator[tuple[str, str, bytes]]:
    started = time.perf_counter()
    for number, record in enumerate(records):
        if not number % BURST:
            time.sleep(max(0.0, started + number / rate - time.perf_counter()))
        yield record


def best_of(trial: Callable[[], int], trials: int = TRIALS, *, warm: bool = False) -> Numbers:
    """CPU and wall seconds per record of the best trial, after one that does not count, unless all is ``warm``."""
    if not warm:
        trial()
    cpu = wall = float("inf")
    for _ in range(trials):
        before, started = time.process_time(), time.perf_counter()
        count = trial()
        cpu = min(cpu, (time.process_time() - before) / count)
        wall = min(wall, (time.perf_counter() - started) / count)
    return {"cpu": cpu, "wall": wall}


# -- the floor ----------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def floor(_endpoint: str, count: int, shape: Shape) -> Numbers:
    """Hash, encode and frame, written as tightly as this format allows; no futures, no network, no limits."""
    from kinesis_sdk.common.aggregate_reader import MAGIC, decode

    turns = in_turn(count, shape)
    width = 2**128 // shape.shards
    ends = [((index + 1) * width - 1).to_bytes(16, "big") for index in range(shape.shards)]
    first = {name: number * shape.shards for number, name in enumerate(shape.names)}
    bins = shape.streams * shape.shards
    room = MAX_AGGREGATE - 50 - shape.size
    prefixes: dict[tuple[int, int], bytes] = {}
    blobs: list[bytes] = []
    put: list[tuple[str, str, bytes]] = []

    def finish(table: dict[str, int], parts: list[bytes]) -> None:
        head = []
        for key in table:
            raw = key.encode()
            head.append(b"\x0a" + varint(len(raw)) + raw)
        message = b"".join(head + parts)
        blobs.append(b"".join((MAGIC, message, md5(message, usedforsecurity=False).digest())))

    def trial() -> int:
        blobs.clear()
        records = put[:] = next(turns)
        tables: list[dict[str, int]] = [{} for _ in range(bins)]
        columns: list[list[bytes]] = [[] for _ in range(bins)]
        sizes = [0] * bins
        for stream, key, data in records:
            shard = first[stream] + bisect_left(ends, md5(key.encode(), usedforsecurity=False).digest())
            table, parts = tables[shard], columns[shard]
            index = table.setdefault(key, len(table))
            slot = (index, len(data))
            prefix = prefixes.get(slot)
            if prefix is None:
                body = b"\x08" + varint(index) + b"\x1a" + varint(len(data))
                prefix = prefixes[slot] = b"\x1a" + varint(len(body) + len(data)) + body
            parts.append(prefix)
            parts.append(data)
            sizes[shard] += len(prefix) + len(data)
            if sizes[shard] > room - TABLE_ENTRY * len(table):
                finish(table, parts)
                tables[shard], columns[shard], sizes[shard] = {}, [], 0
        for table, parts in zip(tables, columns, strict=True):
            finish(table, parts)
        return count

    numbers = best_of(trial)
    assert all(len(blob) <= max(MAX_AGGREGATE, 2 * shape.size) for blob in blobs)
    found = sorted((sub.partition_key or "", sub.data) for blob in blobs for sub in decode(blob) or ())
    assert found == sorted((key, data) for _, key, data in put)
    return numbers


# -- kinesis_sdk --------------------------------------------------------------------------------------------------


def make_producer(endpoint: str, shape: Shape, **settings: Any) -> Any:
    """A producer with default settings, and everything loaded that it loads once."""
    from kinesis_sdk.producer import Producer, ProducerConfig

    if shape != Shape():
        settings["rate_limit"] = 10_000  # what is measured is the producer, and not what few shards take
    config = ProducerConfig(wire_format=shape.wire_format, **settings)
    producer = Producer(config, region_name=REGION, endpoint_url=endpoint)
    for _ in range(3):
        for stream in shape.names:
            producer.put(stream, "warm-up", b"x")
        assert producer.flush(60) == 0
    return producer


def run_ours(
    endpoint: str, count: int, shape: Shape, *, read: bool = False, buffered_time: float = 0.1
) -> Numbers:
    """`put` each record, keep its future, wait for all."""
    turns = in_turn(count, shape)
    with make_producer(endpoint, shape, record_max_buffered_time=buffered_time) as producer:

        def trial() -> int:
            put, records = producer.put, paced(next(turns), shape)
            futures = [put(stream, key, data) for stream, key, data in records]
            assert producer.flush(60) == 0
            if read:
                assert all(future.result().shard_id for future in futures)
            else:
                assert all(future.done() for future in futures)
            return count

        before = producer.stats().put_records_calls
        numbers = best_of(trial)
        stats = producer.stats()
        numbers["calls"] = (stats.put_records_calls - before) / count / (TRIALS + 1)
        assert stats.user_records_failed == stats.wrong_shard_entries == stats.user_record_retries == 0
    return numbers


def ours(endpoint: str, count: int, shape: Shape) -> Numbers:
    """As `run_ours`."""
    return run_ours(endpoint, count, shape)


def ours_long(endpoint: str, count: int, shape: Shape) -> Numbers:
    """As `run_ours`, and records wait for others as long as boto3's do with a hundred streams."""
    return run_ours(endpoint, count, shape, buffered_time=1.0)


def ours_read(endpoint: str, count: int, shape: Shape) -> Numbers:
    """As `run_ours`, and every result is read."""
    return run_ours(endpoint, count, shape, read=True)


def ours_called(endpoint: str, count: int, shape: Shape) -> Numbers:
    """`put` and `add_done_callback` for each record, and `put` alone in turns with it.

    What a callback costs is their difference. Of numbers from two processes, that would be mostly noise.
    """
    (stream,) = shape.names
    records = workload(count, shape)
    with make_producer(endpoint, shape) as producer:
        put = producer.put

        def alone() -> int:
            futures = [put(stream, key, data) for key, data in records]
            assert producer.flush(60) == 0
            assert all(future.done() for future in futures)
            return count

        def called() -> int:
            seen: list[Any] = []
            note = seen.append
            for key, data in records:
                put(stream, key, data).add_done_callback(note)
            assert producer.flush(60) == 0
            assert len(seen) == count
            return count

        alone()
        called()
        numbers: Numbers = {}
        for _ in range(TRIALS):
            for prefix, trial in (("alone_", alone), ("", called)):
                for key, value in best_of(trial, 1, warm=True).items():
                    numbers[prefix + key] = min(value, numbers.get(prefix + key, value))
    return numbers


def ours_unkept(endpoint: str, count: int, shape: Shape) -> Numbers:
    """`put` each record and drop its future: the producer alone keeps it until it is acknowledged."""
    (stream,) = shape.names
    records = workload(count, shape)
    with make_producer(endpoint, shape) as producer:

        def trial() -> int:
            put = producer.put
            for key, data in records:
                put(stream, key, data)
            assert producer.flush(60) == 0
            return count

        return best_of(trial)


def ours_many(endpoint: str, count: int, shape: Shape) -> Numbers:
    """`put_many`, if there is one: a thousand records a call."""
    from kinesis_sdk.producer import Producer

    if not hasattr(Producer, "put_many"):
        return {}
    (stream,) = shape.names
    turns = itertools.cycle(workloads(count, shape))
    with make_producer(endpoint, shape) as producer:

        def trial() -> int:
            records = next(turns)
            for start in range(0, count, 1_000):
                producer.put_many(stream, records[start : start + 1_000])
            assert producer.flush(60) == 0
            return count

        return best_of(trial)


def call(endpoint: str, count: int, shape: Shape) -> Numbers:
    """A record that has a request, and a flush, of its own: what a call costs."""
    (stream,) = shape.names
    with make_producer(endpoint, shape) as producer:

        def trial() -> int:
            for _ in range(count):
                producer.put(stream, "k", b"x" * SIZE)
                assert producer.flush(20) == 0
            return count

        return best_of(trial)


class Wrapped:
    """A boto3 client in an object of our own: the fast path leaves it alone."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def run_large(endpoint: str, count: int, shape: Shape, *, plain: bool = False) -> Numbers:
    """50 KiB records through a producer."""
    from kinesis_sdk.common.aws import make_client
    from kinesis_sdk.producer import Producer, ProducerConfig

    client = make_client("kinesis", region_name=REGION, endpoint_url=endpoint, max_pool_connections=26)
    shape = shape._replace(size=LARGE)
    (stream,) = shape.names
    records = workload(count, shape)
    config = ProducerConfig(rate_limit=10_000, wire_format=shape.wire_format)
    with Producer(config, client=Wrapped(client) if plain else client) as producer:

        def trial() -> int:
            futures = [producer.put(stream, key, data) for key, data in records]
            assert producer.flush(60) == 0
            assert all(future.done() for future in futures)
            return count

        return best_of(trial)


def large(endpoint: str, count: int, shape: Shape) -> Numbers:
    """Large records on the fast path."""
    return run_large(endpoint, count, shape)


def large_plain(endpoint: str, count: int, shape: Shape) -> Numbers:
    """Large records, requests built by boto3."""
    return run_large(endpoint, count, shape, plain=True)


def latency(endpoint: str, count: int, shape: Shape) -> Numbers:
    """Seconds from `put` to the acknowledgement, at 1,000 records a second."""
    (stream,) = shape.names
    records = workload(count, shape)
    spans: list[float] = []
    with make_producer(endpoint, shape, record_max_buffered_time=0.1) as producer:
        begin = time.perf_counter()
        for number, (key, data) in enumerate(records):
            ahead = begin + number / 1_000 - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            started = time.perf_counter()
            future = producer.put(stream, key, data)
            future.add_done_callback(lambda _, s=started: spans.append(time.perf_counter() - s))
        assert producer.flush(20) == 0
    spans.sort()
    return {"p50": spans[len(spans) // 2], "p99": spans[len(spans) * 99 // 100]}


# -- peers --------------------------------------------------------------------------------------------------------


def boto3_plain(endpoint: str, count: int, shape: Shape) -> Numbers:
    """`put_records` with 500 unaggregated entries a call, however long they have to wait."""
    return run_boto3(endpoint, count, shape)


def boto3_prompt(endpoint: str, count: int, shape: Shape) -> Numbers:
    """As `boto3_plain`, but no record waits longer than ours do: `record_max_buffered_time` and a fifth of it."""
    return run_boto3(endpoint, count, shape, longest=0.12)


def run_boto3(endpoint: str, count: int, shape: Shape, *, longest: float = float("inf")) -> Numbers:
    """`put_records` with at most 500 unaggregated entries, all that a stream has after some seconds; one thread, default settings."""
    import boto3

    client = boto3.client("kinesis", endpoint_url=endpoint, region_name=REGION)
    turns = in_turn(count, shape)
    most = min(500, (5 << 20) // shape.size)

    def trial() -> int:
        waiting: dict[str, list[dict[str, Any]]] = {stream: [] for stream in shape.names}
        due: dict[str, float] = {}  # of streams with records; the first one is due first
        waits, clock = longest < float("inf"), time.monotonic

        def send(stream: str) -> None:
            due.pop(stream, None)
            entries = waiting[stream]
            answer = client.put_records(StreamName=stream, Records=entries)
            assert answer["FailedRecordCount"] == 0
            entries.clear()

        for stream, key, data in paced(next(turns), shape):
            entries = waiting[stream]
            if waits:
                now = clock()
                if not entries:
                    due[stream] = now + longest
                while due and due[first := next(iter(due))] <= now:
                    send(first)
            entries.append({"Data": data, "PartitionKey": key})
            if len(entries) >= most:
                send(stream)
        for stream, entries in waiting.items():
            if entries:
                send(stream)
        return count

    return best_of(trial)


def aiokpl(endpoint: str, count: int, shape: Shape) -> Numbers:
    """aiokpl: every outcome awaited."""
    from aiokpl.config import Config
    from aiokpl.producer import Producer

    (stream,) = shape.names
    records = workload(count, shape)

    async def scenario() -> Numbers:
        async with Producer(Config(region=REGION, endpoint_url=endpoint)) as producer:

            async def put_all() -> None:
                outcomes = [
                    await producer.put_record(stream=stream, partition_key=key, data=data)
                    for key, data in records
                ]
                await producer.flush()
                for outcome in outcomes:
                    assert (await outcome.wait()).success

            return await best_of_async(put_all, count)

    return asyncio.run(scenario())


def run_async_kinesis(endpoint: str, count: int, shape: Shape, processor: str) -> Numbers:
    from kinesis import Producer, processors

    # It takes text; the same number of bytes.
    records = [(key, data.hex()[:SIZE]) for key, data in workload(count, shape)]
    (stream,) = shape.names
    keyed = processor == "StringProcessor"  # its KPL mode refuses partition keys

    async def scenario() -> Numbers:
        async with Producer(
            stream,
            endpoint_url=endpoint,
            region_name=REGION,
            processor=getattr(processors, processor)(),
            use_list_shards=True,
            # Its limits are those of one shard, whatever the stream has; at 1,000 records/s nothing can be seen.
            put_rate_limit_per_shard=1_000 * shape.shards,
            put_bandwidth_limit_per_shard=1_024 * shape.shards,
        ) as producer:

            async def put_all() -> None:
                for key, text in records:
                    if keyed:
                        await producer.put(text, partition_key=key)
                    else:
                        await producer.put(text)
                await producer.flush()

            return await best_of_async(put_all, count)

    return asyncio.run(scenario())


def async_kinesis(endpoint: str, count: int, shape: Shape) -> Numbers:
    """async-kinesis as its manual shows it: one record per entry."""
    return run_async_kinesis(endpoint, count, shape, "StringProcessor")


def async_kinesis_kpl(endpoint: str, count: int, shape: Shape) -> Numbers:
    """async-kinesis in KPL mode, without the records' keys, which it does not take."""
    return run_async_kinesis(endpoint, count, shape, "KPLStringProcessor")


async def best_of_async(trial: Callable[[], Any], count: int) -> Numbers:
    """`best_of` for a coroutine."""
    cpu = wall = float("inf")
    for number in range(3):
        before, started = time.process_time(), time.perf_counter()
        await trial()
        if number:  # the first one connects
            cpu = min(cpu, (time.process_time() - before) / count)
            wall = min(wall, (time.perf_counter() - started) / count)
    return {"cpu": cpu, "wall": wall}


# -- the codec ----------------------------------------------------------------------------------------------------


def codec(_endpoint: str, _count: int, _shape: Shape) -> Numbers:
    """Writing an aggregate: ours, the bare protobuf loop, aws_kinesis_agg; seconds per record."""
    import bench_codec

    work = bench_codec.make_workload("100-byte records", SIZE)
    bench_codec.check(work)
    candidates = {
        "ours": bench_codec.encode_ours,
        "protobuf": bench_codec.encode_protobuf,
        "agg": bench_codec.encode_agg,
    }
    return {name: spent / 1e6 for name, spent in bench_codec.measure(candidates, work, 25).items()}


CANDIDATES: dict[str, Callable[[str, int, Shape], Numbers]] = {
    "floor": floor,
    "ours": ours,
    "ours_long": ours_long,
    "ours_read": ours_read,
    "ours_called": ours_called,
    "ours_unkept": ours_unkept,
    "ours_many": ours_many,
    "call": call,
    "large": large,
    "large_plain": large_plain,
    "latency": latency,
    "boto3_plain": boto3_plain,
    "boto3_prompt": boto3_prompt,
    "aiokpl": aiokpl,
    "async_kinesis": async_kinesis,
    "async_kinesis_kpl": async_kinesis_kpl,
    "codec": codec,
}


def main() -> None:
    """Run one candidate and print its numbers."""
    os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION=REGION)
    os.environ.pop("AWS_PROFILE", None)
    name, endpoint, count, *shape = sys.argv[1:]
    given = {key: int(value) for key, _, value in (word.partition("=") for word in shape)}
    numbers = CANDIDATES[name](endpoint, int(count), Shape(**given))
    if name.startswith("ours"):
        from kinesis_sdk.producer import engine

        numbers["compiled"] = not engine.__file__.endswith(".py")
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
