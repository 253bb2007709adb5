"""Cost of PutRecords and GetRecords with records: boto3, and the transport of this package, in JSON and in CBOR.

    python benchmarks/bench_transport.py [--rounds 9]

One client thread, over HTTP, against a sink in its own process that responds to PutRecords and GetRecords with
prepared bodies. CPU is that of the client, per call. "floor" for reads is json.loads and base64 of the same body, the
minimum for a client in Python. "ours, CBOR" always sends CBOR; `wire_format="cbor"` uses it for large records only. Candidates take turns, and the best round of each counts: on a shared machine, the
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
from unittest import mock

import cbor2

PUTS = [(500, 100), (500, 512), (500, 1 << 10), (500, 2 << 10), (100, 50 << 10)]
GETS = [(10_000, 100), (5_000, 512), (3_000, 1 << 10), (2_000, 2 << 10), (1_000, 5 << 10), (200, 50 << 10)]
JSON, CBOR = "application/x-amz-json-1.1", "application/x-amz-cbor-1.1"
STREAM = "bench"
ROUND = 0.15
"""Seconds of each candidate's turn in a round."""


# -- the sink -----------------------------------------------------------------------------------------------------


@functools.cache
def put_answer(count: int, kind: str) -> bytes:
    results = [
        {"SequenceNumber": str(49 * 10**54 + index), "ShardId": f"shardId-{index % 4:012d}"}
        for index in range(count)
    ]
    document = {"FailedRecordCount": 0, "Records": results}
    return cbor2.dumps(document) if kind == CBOR else json.dumps(document, separators=(",", ":")).encode()


@functools.cache
def page(count: int, size: int, kind: str) -> bytes:
    rng = random.Random(size)
    records = [
        {
            "SequenceNumber": str(49 * 10**54 + index),
            # Twenty records for each millisecond: records of many producers share their arrival time.
            "ApproximateArrivalTimestamp": 1785578400123 + index // 20,
            "Data": rng.randbytes(size),
            "PartitionKey": f"customer-{index % 1000:04d}",
        }
        for index in range(count)
    ]
    for record in records:
        millis, data = record["ApproximateArrivalTimestamp"], record["Data"]
        if kind == CBOR:
            record["ApproximateArrivalTimestamp"] = cbor2.CBORTag(1, millis)
        else:
            record["ApproximateArrivalTimestamp"] = millis / 1000
            record["Data"] = base64.b64encode(data).decode()
    document = {"Records": records, "NextShardIterator": "A" * 220, "MillisBehindLatest": 0}
    return cbor2.dumps(document) if kind == CBOR else json.dumps(document, separators=(",", ":")).encode()


def answer(target: str, kind: str, body: bytes) -> bytes:
    if target.endswith("PutRecords"):
        return put_answer(body.count(b"PartitionKey"), kind)
    if target.endswith("GetRecords"):
        request = cbor2.loads(body) if kind == CBOR else json.loads(body)
        _, count, size = request["ShardIterator"].split("-")
        return page(int(count), int(size), kind)
    if target.endswith("GetShardIterator"):
        return b'{"ShardIterator":"%s"}' % (b"A" * 220)
    return b"{}"


def serve() -> None:
    def converse(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        block = bytearray(16 << 20)
        while reader.readline():
            length, target, kind = 0, "", JSON
            while (line := reader.readline()) not in {b"\r\n", b""}:
                name, _, value = line.decode().partition(":")
                if name.lower() == "content-length":
                    length = int(value)
                elif name.lower() == "x-amz-target":
                    target = value.strip()
                elif name.lower() == "content-type":
                    kind = value.strip()
            body = memoryview(block)[:length]
            have = 0
            while have < length:
                have += reader.readinto1(body[have:])
            text = answer(target, kind, bytes(body))
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n"
                b"x-amzn-RequestId: 0\r\nContent-Length: %d\r\n\r\n" % (kind.encode(), len(text))
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

    print(f"{'PutRecords':<18}{'':<12}{'req/s':>9}{'MB/s':>8}{'CPU ms':>9}{'boto3/ours':>12}")
    for count, size in PUTS:
        plain = make_client(endpoint)
        fast: Any = Transport(make_client(endpoint))
        binary: Any = Transport(make_client(endpoint), speaks_cbor=True)
        entries = [PutEntry(os.urandom(size), f"customer-{i:04d}", str(i << 100)) for i in range(count)]
        items = [{"Data": d, "PartitionKey": k, "ExplicitHashKey": h} for d, k, h in entries]
        stream = StreamId(STREAM)
        costs = measure(
            {
                "boto3": lambda c=plain, i=items: c.put_records(StreamName=STREAM, Records=i),
                "ours": lambda c=fast, e=entries, s=stream: put_records(c, s, e),
                "ours, CBOR": lambda c=binary, e=entries, s=stream: put_records(c, s, e),
            },
            rounds,
        )
        for name, cost in costs.items():
            ratio = "" if name == "boto3" else f"{costs['boto3'].cpu / cost.cpu:>11.2f}x"
            print(
                f"{f'{count} x {size:,} B':<18}{name:<12}{1 / cost.wall:>9,.0f}"
                f"{count * size / cost.wall / 1e6:>8,.0f}{cost.cpu * 1000:>9.2f}{ratio}"
            )
        for client in (plain, fast, binary):
            client.close()


def bench_gets(endpoint: str, rounds: int) -> None:
    from kinesis_sdk.common.transport import Transport, get_records

    print(
        f"\n{'GetRecords':<18}{'':<12}{'rec/s':>9}{'MB/s':>8}{'CPU ms':>9}{'boto3/ours':>12}{'to floor':>10}"
    )
    for count, size in GETS:
        plain = make_client(endpoint)
        fast: Any = Transport(make_client(endpoint))
        binary: Any = Transport(make_client(endpoint), speaks_cbor=True)
        iterator = f"page-{count}-{size}"
        request = urllib.request.Request(
            endpoint,
            json.dumps({"ShardIterator": iterator}).encode(),
            {"X-Amz-Target": "Kinesis_20131202.GetRecords", "Content-Type": JSON},
        )
        with urllib.request.urlopen(request) as reply:
            body = reply.read()

        def floor(text: bytes = body) -> list[bytes]:
            return [base64.b64decode(record["Data"]) for record in json.loads(text)["Records"]]

        found = get_records(fast, iterator, count)
        assert [record.data for record in found.records] == floor()
        for _ in range(2):
            assert get_records(binary, iterator, count).records == found.records
        costs = measure(
            {
                "boto3": lambda c=plain, i=iterator: c.get_records(ShardIterator=i, Limit=10_000),
                "ours": lambda c=fast, i=iterator: get_records(c, i, 10_000),
                "ours, CBOR": lambda c=binary, i=iterator: get_records(c, i, 10_000),
                "floor": floor,
            },
            rounds,
        )
        for name, cost in costs.items():
            ratio = f"{costs['boto3'].cpu / cost.cpu:>11.2f}x" if name.startswith("ours") else f"{'':>12}"
            above = "" if name == "floor" else f"{cost.cpu / costs['floor'].cpu:>9.2f}x"
            print(
                f"{f'{count:,} x {size:,} B':<18}{name:<12}{count / cost.wall:>9,.0f}"
                f"{count * size / cost.wall / 1e6:>8,.0f}{cost.cpu * 1000:>9.2f}{ratio}{above}"
            )
        for client in (plain, fast, binary):
            client.close()


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
    with sink() as endpoint, mock.patch("kinesis_sdk.common.transport.cbor.LARGE", 0):
        bench_puts(endpoint, options.rounds)
        bench_gets(endpoint, options.rounds)


if __name__ == "__main__":
    main()
