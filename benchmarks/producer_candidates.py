"""One measurement of `bench_producer.py` in a process of its own.

    python benchmarks/producer_candidates.py NAME ENDPOINT COUNT

Prints a JSON object of numbers. Runs with this package's environment or with the peers', so that nothing is
imported before it is needed. Every candidate puts the same user records and waits until all of them are
acknowledged; CPU is that of the whole process, all its threads included.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from bisect import bisect_left
from collections.abc import Callable
from hashlib import md5
from typing import Any

STREAM = "bench"
SHARDS = 64
KEYS = 1_000
SIZE = 100
LARGE = 50 << 10
MAX_AGGREGATE = 51_200
REGION = "us-east-1"
TRIALS = 4

Numbers = dict[str, float]
Record = tuple[str, bytes]


def workload(count: int, size: int = SIZE) -> list[Record]:
    """Partition keys and payloads, the same in every process."""
    rng = random.Random(7)
    keys = [f"customer-{index:04d}" for index in range(KEYS)]
    return [(keys[rng.randrange(KEYS)], rng.randbytes(size)) for _ in range(count)]


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


def floor(_endpoint: str, count: int) -> Numbers:
    """Hash, encode and frame, written as tightly as this format allows; no futures, no network, no limits."""
    from kinesis_sdk.common.aggregate_reader import MAGIC, decode

    records = workload(count)
    ends = [(((index + 1) << 122) - 1).to_bytes(16, "big") for index in range(SHARDS)]
    prefixes: dict[tuple[int, int], bytes] = {}
    blobs: list[bytes] = []

    def finish(table: dict[str, int], parts: list[bytes]) -> None:
        head = []
        for key in table:
            raw = key.encode()
            head.append(b"\x0a" + varint(len(raw)) + raw)
        message = b"".join(head + parts)
        blobs.append(b"".join((MAGIC, message, md5(message, usedforsecurity=False).digest())))

    def trial() -> int:
        blobs.clear()
        tables: list[dict[str, int]] = [{} for _ in range(SHARDS)]
        columns: list[list[bytes]] = [[] for _ in range(SHARDS)]
        sizes = [0] * SHARDS
        for key, data in records:
            shard = bisect_left(ends, md5(key.encode(), usedforsecurity=False).digest())
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
            if sizes[shard] > MAX_AGGREGATE - 1_000:  # room for the table: sixteen keys a shard
                finish(table, parts)
                tables[shard], columns[shard], sizes[shard] = {}, [], 0
        for table, parts in zip(tables, columns, strict=True):
            finish(table, parts)
        return count

    numbers = best_of(trial)
    found = sorted((sub.partition_key or "", sub.data) for blob in blobs for sub in decode(blob) or ())
    assert found == sorted(records)
    return numbers


# -- kinesis_sdk --------------------------------------------------------------------------------------------------


def make_producer(endpoint: str, **settings: Any) -> Any:
    """A producer with default settings, and everything loaded that it loads once."""
    from kinesis_sdk.producer import Producer, ProducerConfig

    producer = Producer(ProducerConfig(**settings), region_name=REGION, endpoint_url=endpoint)
    for _ in range(3):
        producer.put(STREAM, "warm-up", b"x")
        assert producer.flush(20) == 0
    return producer


def run_ours(endpoint: str, count: int, *, read: bool = False) -> Numbers:
    """`put` each record, keep its future, wait for all."""
    records = workload(count)
    with make_producer(endpoint) as producer:

        def trial() -> int:
            put = producer.put
            futures = [put(STREAM, key, data) for key, data in records]
            assert producer.flush(60) == 0
            if read:
                assert all(future.result().shard_id for future in futures)
            else:
                assert all(future.done() for future in futures)
            return count

        numbers = best_of(trial)
        stats = producer.stats()
        assert stats.user_records_failed == stats.wrong_shard_entries == stats.user_record_retries == 0
    return numbers


def ours(endpoint: str, count: int) -> Numbers:
    """As `run_ours`."""
    return run_ours(endpoint, count)


def ours_read(endpoint: str, count: int) -> Numbers:
    """As `run_ours`, and every result is read."""
    return run_ours(endpoint, count, read=True)


def ours_called(endpoint: str, count: int) -> Numbers:
    """`put` and `add_done_callback` for each record, and `put` alone in turns with it.

    What a callback costs is their difference. Of numbers from two processes, that would be mostly noise.
    """
    records = workload(count)
    with make_producer(endpoint) as producer:
        put = producer.put

        def alone() -> int:
            futures = [put(STREAM, key, data) for key, data in records]
            assert producer.flush(60) == 0
            assert all(future.done() for future in futures)
            return count

        def called() -> int:
            seen: list[Any] = []
            note = seen.append
            for key, data in records:
                put(STREAM, key, data).add_done_callback(note)
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


def ours_unkept(endpoint: str, count: int) -> Numbers:
    """`put` each record and drop its future: the producer alone keeps it until it is acknowledged."""
    records = workload(count)
    with make_producer(endpoint) as producer:

        def trial() -> int:
            put = producer.put
            for key, data in records:
                put(STREAM, key, data)
            assert producer.flush(60) == 0
            return count

        return best_of(trial)


def ours_many(endpoint: str, count: int) -> Numbers:
    """`put_many`, if there is one: a thousand records a call."""
    from kinesis_sdk.producer import Producer

    if not hasattr(Producer, "put_many"):
        return {}
    records = workload(count)
    with make_producer(endpoint) as producer:

        def trial() -> int:
            for start in range(0, count, 1_000):
                producer.put_many(STREAM, records[start : start + 1_000])
            assert producer.flush(60) == 0
            return count

        return best_of(trial)


class Wrapped:
    """A boto3 client in an object of our own: the fast path leaves it alone."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def run_large(endpoint: str, count: int, *, plain: bool) -> Numbers:
    """50 KiB records through a producer."""
    from kinesis_sdk.common.aws import make_client
    from kinesis_sdk.producer import Producer, ProducerConfig

    client = make_client("kinesis", region_name=REGION, endpoint_url=endpoint, max_pool_connections=26)
    records = workload(count, LARGE)
    config = ProducerConfig(rate_limit=10_000)
    with Producer(config, client=Wrapped(client) if plain else client) as producer:

        def trial() -> int:
            futures = [producer.put(STREAM, key, data) for key, data in records]
            assert producer.flush(60) == 0
            assert all(future.done() for future in futures)
            return count

        return best_of(trial)


def large(endpoint: str, count: int) -> Numbers:
    """Large records on the fast path."""
    return run_large(endpoint, count, plain=False)


def large_plain(endpoint: str, count: int) -> Numbers:
    """Large records, requests built by boto3."""
    return run_large(endpoint, count, plain=True)


def latency(endpoint: str, count: int) -> Numbers:
    """Seconds from `put` to the acknowledgement, at 1,000 records a second."""
    records = workload(count)
    spans: list[float] = []
    with make_producer(endpoint, record_max_buffered_time=0.1) as producer:
        begin = time.perf_counter()
        for number, (key, data) in enumerate(records):
            ahead = begin + number / 1_000 - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            started = time.perf_counter()
            future = producer.put(STREAM, key, data)
            future.add_done_callback(lambda _, s=started: spans.append(time.perf_counter() - s))
        assert producer.flush(20) == 0
    spans.sort()
    return {"p50": spans[len(spans) // 2], "p99": spans[len(spans) * 99 // 100]}


# -- peers --------------------------------------------------------------------------------------------------------


def boto3_plain(endpoint: str, count: int) -> Numbers:
    """`put_records` with 500 unaggregated entries a call, one thread, default settings."""
    import boto3

    client = boto3.client("kinesis", endpoint_url=endpoint, region_name=REGION)
    records = workload(count)

    def trial() -> int:
        for start in range(0, count, 500):
            entries = [{"Data": data, "PartitionKey": key} for key, data in records[start : start + 500]]
            answer = client.put_records(StreamName=STREAM, Records=entries)
            assert answer["FailedRecordCount"] == 0
        return count

    return best_of(trial)


def aiokpl(endpoint: str, count: int) -> Numbers:
    """aiokpl: every outcome awaited."""
    from aiokpl.config import Config
    from aiokpl.producer import Producer

    records = workload(count)

    async def scenario() -> Numbers:
        async with Producer(Config(region=REGION, endpoint_url=endpoint)) as producer:

            async def put_all() -> None:
                outcomes = [
                    await producer.put_record(stream=STREAM, partition_key=key, data=data)
                    for key, data in records
                ]
                await producer.flush()
                for outcome in outcomes:
                    assert (await outcome.wait()).success

            return await best_of_async(put_all, count)

    return asyncio.run(scenario())


def run_async_kinesis(endpoint: str, count: int, processor: str) -> Numbers:
    from kinesis import Producer, processors

    # It takes text; the same number of bytes.
    records = [(key, data.hex()[:SIZE]) for key, data in workload(count)]
    keyed = processor == "StringProcessor"  # its KPL mode refuses partition keys

    async def scenario() -> Numbers:
        async with Producer(
            STREAM,
            endpoint_url=endpoint,
            region_name=REGION,
            processor=getattr(processors, processor)(),
            use_list_shards=True,
            # Its limits are those of one shard, whatever the stream has; at 1,000 records/s nothing can be seen.
            put_rate_limit_per_shard=1_000 * SHARDS,
            put_bandwidth_limit_per_shard=1_024 * SHARDS,
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


def async_kinesis(endpoint: str, count: int) -> Numbers:
    """async-kinesis as its manual shows it: one record per entry."""
    return run_async_kinesis(endpoint, count, "StringProcessor")


def async_kinesis_kpl(endpoint: str, count: int) -> Numbers:
    """async-kinesis in KPL mode, without the records' keys, which it does not take."""
    return run_async_kinesis(endpoint, count, "KPLStringProcessor")


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


def codec(_endpoint: str, _count: int) -> Numbers:
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


CANDIDATES: dict[str, Callable[[str, int], Numbers]] = {
    "floor": floor,
    "ours": ours,
    "ours_read": ours_read,
    "ours_called": ours_called,
    "ours_unkept": ours_unkept,
    "ours_many": ours_many,
    "large": large,
    "large_plain": large_plain,
    "latency": latency,
    "boto3_plain": boto3_plain,
    "aiokpl": aiokpl,
    "async_kinesis": async_kinesis,
    "async_kinesis_kpl": async_kinesis_kpl,
    "codec": codec,
}


def main() -> None:
    """Run one candidate and print its numbers."""
    os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION=REGION)
    os.environ.pop("AWS_PROFILE", None)
    name, endpoint, count = sys.argv[1:]
    print(json.dumps(CANDIDATES[name](endpoint, int(count))))


if __name__ == "__main__":
    main()
