"""How soon a handler gets a record after it was put, and what that costs: settings of producer and worker.

    python benchmarks/bench_latency.py [--rate 500] [--seconds 15] [--bursts 6] [--only fan-out]

A producer and a worker in one process put and read a stream of four shards, which a fake AWS in a process of its own serves
over TLS: first steadily, then in bursts of 4 s after quiet times of 6 s. Each row has processes of its own. Times are in ms
from `put` to the call of the handler. CPU is that of the process with producer and worker while records are put steadily, in
ms for each second. Reads are GetRecords calls for each shard and minute over the whole time, quiet times included.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kinesis_sdk import Producer, ProducerConfig, Worker
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, RecordBatch, RetrievalConfig

STREAM = "orders"
SHARDS = 4
BURST, QUIET = 4.0, 6.0
READ_OFTEN = {"idle_time_between_reads": 0.2}
PUSHED = {"retrieval_mode": "fanout"}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "polling, the defaults": ({}, {}),
    "polling, max_idle_time_between_reads=5": ({}, {"max_idle_time_between_reads": 5.0}),
    "polling, idle_time_between_reads=0.2": ({}, READ_OFTEN),
    "the same, record_max_buffered_time=0.01": ({"record_max_buffered_time": 0.01}, READ_OFTEN),
    "fan-out": ({}, PUSHED),
    "fan-out, record_max_buffered_time=0.01": ({"record_max_buffered_time": 0.01}, PUSHED),
    "fan-out, record_max_buffered_time=0": ({"record_max_buffered_time": 0.0}, PUSHED),
}
"""Settings of `ProducerConfig` and of `RetrievalConfig` by the name of a row."""


class Meter:
    """A handler that notes how late each record is."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def __call__(self, batch: RecordBatch) -> None:
        now = time.monotonic()
        self.delays += [now - float(record.data) for record in batch.records]

    def take(self, count: int) -> list[float]:
        """Wait for so many records; return their delays in order."""
        until(lambda: len(self.delays) >= count)
        found, self.delays = sorted(self.delays), []
        return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("the records did not arrive within 60 s")
        time.sleep(0.05)


def put_for(producer: Producer, seconds: float, rate: float) -> int:
    """Put records at a rate; return how many."""
    began, count = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        while count < passed * rate:
            producer.put(STREAM, str(count), f"{time.monotonic():.6f}".encode())
            count += 1
        time.sleep(0.002)
    return count


def consume(name: str, rate: float, seconds: float, bursts: int) -> None:
    """Measure one row and print its figures as JSON."""
    of_producer, of_retrieval = ROWS[name]
    meter = Meter()
    worker = Worker(
        STREAM,
        application_name="latency",
        handler=meter,
        lease_store=InMemoryLeaseStore(),
        config=ConsumerConfig(initial_position="LATEST", retrieval=RetrievalConfig(**of_retrieval)),
    )
    with Producer(ProducerConfig(**of_producer)) as producer:
        worker.start()
        until(lambda: len(worker.health().shards) == SHARDS)
        time.sleep(7)  # subscriptions stand, and quiet shards are read as rarely as they will be
        print("began", flush=True)
        began, cpu = time.monotonic(), time.process_time()
        count = put_for(producer, seconds, rate)
        used = (time.process_time() - cpu) / (time.monotonic() - began)
        steady = meter.take(count)
        count = 0
        for _ in range(bursts):
            time.sleep(QUIET)
            count += put_for(producer, BURST, rate)
        figures = {
            "steady": steady,
            "bursts": meter.take(count),
            "cpu": used,
            "minutes": (time.monotonic() - began) / 60,
        }
        print(json.dumps(figures), flush=True)
    worker.stop(timeout=20)


@contextmanager
def fake() -> Iterator[dict[str, str]]:
    """Run a fake AWS; return the environment of its clients."""
    command = ["-m", "kinesis_sdk.cli", "fake", "--port", "0", "--tls", "--json", "--no-throttle"]
    process = subprocess.Popen(
        [sys.executable, *command, "--create-stream", f"{STREAM}:{SHARDS}"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        started = json.loads(process.stdout.readline())
        yield {
            **os.environ,
            "AWS_ENDPOINT_URL": started["endpoint_url"],
            "AWS_CA_BUNDLE": started["ca_file"],
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def reads(environment: dict[str, str]) -> int:
    """Return the GetRecords calls that the fake has counted."""
    trust = ssl.create_default_context(cafile=environment["AWS_CA_BUNDLE"])
    with urllib.request.urlopen(environment["AWS_ENDPOINT_URL"] + "/_fake/stats", context=trust) as answer:
        return int(json.load(answer)["calls"].get("GetRecords", 0))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=500, help="records a second (default: %(default)g)")
    parser.add_argument(
        "--seconds", type=float, default=15, help="seconds of steady puts (default: %(default)g)"
    )
    parser.add_argument("--bursts", type=int, default=6, help="number of bursts (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name has this text")
    parser.add_argument("--candidate", choices=ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.candidate:
        consume(options.candidate, options.rate, options.seconds, options.bursts)
        return
    print(f"{'':<42}{'steady p50':>11}{'p99':>7}{'bursts p50':>12}{'p99':>7}{'max':>7}{'CPU':>6}{'reads':>7}")
    for name in ROWS:
        if options.only not in name:
            continue
        with fake() as environment:
            run = subprocess.Popen(
                [sys.executable, __file__, f"--candidate={name}"]
                + [f"--{what}={getattr(options, what)}" for what in ("rate", "seconds", "bursts")],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            assert run.stdout is not None
            if not run.stdout.readline():
                raise RuntimeError(f"{name}: the program failed")
            before = reads(environment)
            line = run.stdout.readline()
            after = reads(environment)
            run.communicate()
        found = json.loads(line)
        steady, bursts = found["steady"], found["bursts"]
        cells = [steady[len(steady) // 2], steady[int(len(steady) * 0.99)]]
        cells += [bursts[len(bursts) // 2], bursts[int(len(bursts) * 0.99)], bursts[-1]]
        widths = (11, 7, 12, 7, 7)
        times = "".join(f"{cell * 1000:>{width}.0f}" for cell, width in zip(cells, widths, strict=True))
        per_shard = (after - before) / SHARDS / found["minutes"]
        print(f"{name:<42}{times}{found['cpu'] * 1000:>6.0f}{per_shard:>7.0f}", flush=True)


if __name__ == "__main__":
    main()
