"""Cost of PutRecords and GetRecords with records: boto3, and the transport of this package.

    python benchmarks/bench_transport.py [--rounds 9]

One client thread, over HTTP, against a sink in its own process that responds to PutRecords and GetRecords with
prepared bodies. CPU is that of the client, per call. "floor" for reads is json.loads and base64 of the same body, the
minimum for a client in Python. Candidates take turns, and the best round of each counts: on a shared machine, the
minimum is the least disturbed value, and ratios say more than rates.
"""

from __future__ import annotations

import argparse
import base64
import functools
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

PUTS = [(500, 100), (100, 50 << 10)]
GETS = [(10_000, 100), (1_000, 1 << 10), (200, 50 << 10)]
STREAM = "bench"
ROUND = 0.15
"""Seconds of each candidate's turn in a round."""


# -- the sink -----------------------------------------------------------------------------------------------------


@functools.cache
def put_answer(count: int) -> bytes:
    results = [
        {"SequenceNumber": str(49 * 10**54 + index), "ShardId": f"shardId-{index % 4:012d}"}
        for index in range(count)
    ]
    return json.dumps({"FailedRecordCount": 0, "Records": results}, separators=(",", ":")).encode()


@functools.cache
def page(count: int, size: int) -> bytes:
    rng = random.Random(size)
    records = [
        {
            "SequenceNumber": str(49 * 10**54 + index),
            # Twenty records for each millisecond: records of many producers share their arrival time.
            "ApproximateArrivalTimestamp": 1785578400.123 + index // 20 / 1000,
            "Data": base64.b64encode(rng.randbytes(size)).decode(),
            "PartitionKey": f"customer-{index % 1000:04d}",
        }
        for index in range(count)
    ]
    document = {"Records": records, "NextShardIterator": "A" * 220, "MillisBehindLatest": 0}
    return json.dumps(document, separators=(",", ":")).encode()


def answer(target: str, body: memoryview) -> bytes:
    if target.endswith("PutRecords"):
        return put_answer(bytes(body).count(b'"PartitionKey"'))
    if target.endswith("GetRecords"):
        _, count, size = json.loads(bytes(body))["ShardIterator"].split("-")
        return page(int(count), int(size))
    if target.endswith("GetShardIterator"):
        return b'{"ShardIterator":"%s"}' % (b"A" * 220)
    return b"{}"


def serve() -> None:
    def converse(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        block = bytearray(16 << 20)
        while reader.readline():
            length, target = 0, ""
            while (line := reader.readline()) not in {b"\r\n", b""}:
                name, _, value = line.decode().partition(":")
                if name.lower() == "content-length":
                    length = int(value)
                elif name.lower() == "x-amz-target":
                    target = value.strip()
            body = memoryview(block)[:length]
            have = 0
            while have < length:
                have += reader.readinto1(body[have:])
            text = answer(target, body)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\n"
                b"x-amzn-RequestId: 0\r\nContent-Length: %d\r\n\r\n" % len(text)
            )
            connection.sendall(text)

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()


@contextmanager
def sink() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


# -- measuring ----------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Client CPU and wall time of one call, in seconds."""

    cpu: float
    wall: float


def measure(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, Cost]:
    best = {name: Cost(float("inf"), float("inf")) for name in candidates}
    for call in candidates.values():
        call()
        call()
    for _ in range(rounds):
        for name, call in candidates.items():
            calls, cpu, started = 0, time.process_time(), time.perf_counter()
            while (wall := time.perf_counter() - started) < ROUND or not calls:
                call()
                calls += 1
            spent = Cost((time.process_time() - cpu) / calls, wall / calls)
            best[name] = Cost(min(best[name].cpu, spent.cpu), min(best[name].wall, spent.wall))
    return best


def make_client(endpoint: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "kinesis",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )


def bench_puts(endpoint: str, rounds: int) -> None:
    from kinesis_sdk.common.stream import StreamId
    from kinesis_sdk.common.transport import PutEntry, Transport, put_records

    print(f"{'PutRecords':<18}{'':<8}{'req/s':>9}{'MB/s':>8}{'CPU ms':>9}{'boto3/ours':>12}")
    for count, size in PUTS:
        plain = make_client(endpoint)
        fast: Any = Transport(make_client(endpoint))
        entries = [PutEntry(os.urandom(size), f"customer-{i:04d}", str(i << 100)) for i in range(count)]
        items = [{"Data": d, "PartitionKey": k, "ExplicitHashKey": h} for d, k, h in entries]
        stream = StreamId(STREAM)
        costs = measure(
            {
                "boto3": lambda c=plain, i=items: c.put_records(StreamName=STREAM, Records=i),
                "ours": lambda c=fast, e=entries, s=stream: put_records(c, s, e),
            },
            rounds,
        )
        for name, cost in costs.items():
            ratio = "" if name == "boto3" else f"{costs['boto3'].cpu / cost.cpu:>11.2f}x"
            print(
                f"{f'{count} x {size:,} B':<18}{name:<8}{1 / cost.wall:>9,.0f}"
                f"{count * size / cost.wall / 1e6:>8,.0f}{cost.cpu * 1000:>9.2f}{ratio}"
            )
        plain.close()
        fast.close()


def bench_gets(endpoint: str, rounds: int) -> None:
    from kinesis_sdk.common.transport import Transport, get_records

    print(
        f"\n{'GetRecords':<18}{'':<8}{'rec/s':>9}{'MB/s':>8}{'CPU ms':>9}{'boto3/ours':>12}{'to floor':>10}"
    )
    for count, size in GETS:
        plain = make_client(endpoint)
        fast: Any = Transport(make_client(endpoint))
        iterator = f"page-{count}-{size}"
        request = urllib.request.Request(
            endpoint,
            json.dumps({"ShardIterator": iterator}).encode(),
            {"X-Amz-Target": "Kinesis_20131202.GetRecords"},
        )
        with urllib.request.urlopen(request) as reply:
            body = reply.read()

        def floor(text: bytes = body) -> list[bytes]:
            return [base64.b64decode(record["Data"]) for record in json.loads(text)["Records"]]

        found = get_records(fast, iterator, count)
        assert [record.data for record in found.records] == floor()
        costs = measure(
            {
                "boto3": lambda c=plain, i=iterator: c.get_records(ShardIterator=i, Limit=10_000),
                "ours": lambda c=fast, i=iterator: get_records(c, i, 10_000),
                "floor": floor,
            },
            rounds,
        )
        for name, cost in costs.items():
            ratio = f"{costs['boto3'].cpu / cost.cpu:>11.2f}x" if name == "ours" else f"{'':>12}"
            above = "" if name == "floor" else f"{cost.cpu / costs['floor'].cpu:>9.2f}x"
            print(
                f"{f'{count:,} x {size:,} B':<18}{name:<8}{count / cost.wall:>9,.0f}"
                f"{count * size / cost.wall / 1e6:>8,.0f}{cost.cpu * 1000:>9.2f}{ratio}{above}"
            )
        plain.close()
        fast.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=9, help="turns of each candidate (default: %(default)s)"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    with sink() as endpoint:
        bench_puts(endpoint, options.rounds)
        bench_gets(endpoint, options.rounds)


if __name__ == "__main__":
    main()
