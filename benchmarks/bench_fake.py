"""Speed of the fake Kinesis: one boto3 thread over HTTP, against the fake and against a minimal prototype.

    python benchmarks/bench_fake.py [--seconds 1.5]

The prototype keeps JSON fragments in lists and checks nothing, so its numbers are the limit of boto3; the ratio is the
cost of the fake's correctness. Each server has its own process. CPU is that of the server, per request; memory is the
growth of the server's resident size for each stored record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SMALL = [{"Data": b"x" * 100, "PartitionKey": f"key-{index}"} for index in range(500)]
LARGE = [{"Data": bytes(range(256)) * 100, "PartitionKey": f"key-{index}"} for index in range(200)]
STREAM = "bench"


# -- the prototype ------------------------------------------------------------------------------------------------


def serve_prototype() -> None:
    shards: list[list[str]] = [[], []]
    shards_json = [
        {"ShardId": f"shardId-{index:012d}", "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
         "SequenceNumberRange": {"StartingSequenceNumber": "1"}}
        for index in range(2)
    ]  # fmt: skip
    counter = 49 * 10**54

    def answer(operation: str, body: bytes) -> str:
        nonlocal counter
        request = json.loads(body or b"{}")
        if operation == "PutRecords":
            results, now = [], time.time()
            for record in request["Records"]:
                digest = hashlib.md5(record["PartitionKey"].encode()).digest()
                index = digest[0] >> 7
                counter += 1
                shards[index].append(
                    f'{{"SequenceNumber":"{counter}","ApproximateArrivalTimestamp":{now:.3f},"Data":"{record["Data"]}",'
                    f'"PartitionKey":"{record["PartitionKey"]}"}}'
                )
                results.append(f'{{"SequenceNumber":"{counter}","ShardId":"shardId-{index:012d}"}}')
            return f'{{"FailedRecordCount":0,"Records":[{",".join(results)}]}}'
        if operation == "GetShardIterator":
            return json.dumps({"ShardIterator": f"{int(request['ShardId'][-12:])}:0"})
        if operation == "GetRecords":
            index, start = map(int, request["ShardIterator"].split(":"))
            stop = start + request.get("Limit", 10_000)
            page = shards[index][start:stop]
            return (
                f'{{"Records":[{",".join(page)}],"MillisBehindLatest":0,'
                f'"NextShardIterator":"{index}:{start + len(page)}"}}'
            )
        return json.dumps({"Shards": shards_json}) if operation == "ListShards" else "{}"

    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")
        while reader.readline():
            length, operation = 0, ""
            while (line := reader.readline()) not in {b"\r\n", b""}:
                name, _, value = line.decode().partition(":")
                if name.lower() == "content-length":
                    length = int(value)
                elif name.lower() == "x-amz-target":
                    operation = value.strip().split(".")[1]
            text = answer(operation, reader.read(length)).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


# -- measuring ----------------------------------------------------------------------------------------------------


@contextmanager
def prototype() -> Iterator[tuple[str, int]]:
    process = subprocess.Popen([sys.executable, __file__, "--prototype"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextmanager
def fake() -> Iterator[tuple[str, int]]:
    from kinesis_sdk.testing import start_server_process

    with start_server_process("--no-throttle") as server:
        yield server.endpoint_url, server.pid


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096


def measure_puts(client: Any, pid: int, records: list[dict[str, Any]], seconds: float) -> dict[str, float]:
    client.put_records(StreamName=STREAM, Records=records)
    cpu, memory, started, calls = cpu_seconds(pid), resident_bytes(pid), time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds:
        answer = client.put_records(StreamName=STREAM, Records=records)
        assert answer["FailedRecordCount"] == 0
        calls += 1
    return {
        "rate": calls * len(records) / elapsed,
        "cpu": (cpu_seconds(pid) - cpu) / calls * 1000,
        "memory": (resident_bytes(pid) - memory) / calls / len(records),
    }


def measure_gets(client: Any, pid: int, seconds: float) -> dict[str, float]:
    read = calls = 0
    cpu, started = cpu_seconds(pid), time.perf_counter()
    while time.perf_counter() - started < seconds:
        for index in range(2):
            iterator = client.get_shard_iterator(
                StreamName=STREAM, ShardId=f"shardId-{index:012d}", ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while time.perf_counter() - started < seconds:
                answer = client.get_records(ShardIterator=iterator)
                calls += 1
                if not answer["Records"]:
                    break
                read += len(answer["Records"])
                iterator = answer["NextShardIterator"]
    elapsed = time.perf_counter() - started
    return {"rate": read / elapsed, "cpu": (cpu_seconds(pid) - cpu) / calls * 1000}


def measure(endpoint: str, pid: int, seconds: float) -> dict[str, dict[str, float]]:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "kinesis",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )
    client.create_stream(StreamName=STREAM, ShardCount=2)
    results = {"put 500 x 100 B": measure_puts(client, pid, SMALL, seconds)}
    results["get 100 B"] = measure_gets(client, pid, seconds)
    results["put 200 x 25 KB"] = measure_puts(client, pid, LARGE, seconds)
    client.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="per measurement (default: %(default)s)")
    parser.add_argument("--prototype", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prototype:
        serve_prototype()
        return
    with prototype() as (endpoint, pid):
        base = measure(endpoint, pid, options.seconds)
    with fake() as (endpoint, pid):
        ours = measure(endpoint, pid, options.seconds)
    head = (
        "one boto3 thread",
        "prototype rec/s",
        "fake rec/s",
        "ratio",
        "CPU ms/req",
        "CPU ms/req",
        "RSS B/rec",
    )
    print("{:<18}{:>16}{:>12}{:>7}{:>12}{:>12}{:>11}".format(*head))
    for name, mine in ours.items():
        other = base[name]
        memory = f"{mine['memory']:.0f}" if "memory" in mine else ""
        print(
            f"{name:<18}{other['rate']:>16,.0f}{mine['rate']:>12,.0f}{other['rate'] / mine['rate']:>6.2f}x"
            f"{other['cpu']:>12.2f}{mine['cpu']:>12.2f}{memory:>11}"
        )


if __name__ == "__main__":
    main()
