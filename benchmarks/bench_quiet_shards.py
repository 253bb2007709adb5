"""CPU and threads of one worker that reads many quiet shards: polled, with the transport of this package and with boto3's calls,
or pushed by enhanced fan-out, over HTTP/1.1 and HTTP/2.

    python benchmarks/bench_quiet_shards.py [--shards 1000] [--seconds 20] [--fan-out]

A fake AWS in its own process, leases in DynamoDB, one poll a second and shard. Each candidate is a process of its own,
measured once it owns all shards and has polled each. "floor" is what the same number of calls costs on a bare
``http.client`` with a signature (see `bench_calls.py`). On a machine that is too slow, fewer calls are made than asked
for: compare the CPU of a call. With ``--fan-out``, the service sends an empty event to each shard every five seconds, over TLS.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any

import boto3
from bench_calls import KEY_ID, REGION, SECRET, THREADS, floor, measure
from bench_transport import sink

from kinesis_sdk import Worker
from kinesis_sdk.common import shard_cursor
from kinesis_sdk.common.aws import make_client
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, LeaseConfig, RecordBatch, RetrievalConfig
from kinesis_sdk.consumer.fetch import FanOutFetcher

STREAM = "quiet"
CANDIDATES = ("boto3", "ours")
PUSHED: dict[str, Any] = {"HTTP/1.1": "1.1", "HTTP/2": "2"}


class Plain:
    """A client whose calls are boto3's, because it is not one of boto3's classes."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def ignore(_: RecordBatch) -> None:
    """Handle nothing."""


def consume(who: str, endpoint: str, shards: int, seconds: float) -> None:
    """Run one candidate and print its figures as JSON."""
    session = boto3.Session(aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET, region_name=REGION)
    clients: list[Any] = [
        make_client(service, session=session, endpoint_url=endpoint, max_pool_connections=64)
        for service in ("kinesis", "dynamodb")
    ]
    if who == "boto3":
        clients = [Plain(client) for client in clients]
    polled: list[str] = []
    real = shard_cursor.get_records

    def counted(client: Any, iterator: str, limit: int, stream_arn: str | None = None) -> Any:
        polled.append(iterator)
        return real(client, iterator, limit, stream_arn)

    shard_cursor.get_records = counted
    events: list[Any] = []
    if who in PUSHED:
        polled = events
        accept = FanOutFetcher.accept

        def noted(self: FanOutFetcher, *event: Any) -> Any:
            events.append(None)
            return accept(self, *event)

        FanOutFetcher.accept = noted  # type: ignore[method-assign]
    pushed: Any = {"retrieval_mode": "fanout", "fanout_http": PUSHED[who]} if who in PUSHED else {}
    worker = Worker(
        STREAM,
        application_name="quiet",
        handler=ignore,
        config=ConsumerConfig(
            leases=LeaseConfig(
                failover_time=300 if pushed else 10
            ),  # on a busy machine, threads alone lose leases
            retrieval=RetrievalConfig(
                idle_time_between_reads=1.0,
                min_idle_time_between_reads=1.0,
                max_idle_time_between_reads=1.0,
                **pushed,
            ),
        ),
        kinesis_client=clients[0],
        **({"lease_store": InMemoryLeaseStore()} if pushed else {"dynamodb_client": clients[1]}),
    )
    worker.start()
    started = time.monotonic()
    while len(worker.health().shards) < shards and time.monotonic() - started < 180:
        time.sleep(0.5)
    owned = time.monotonic() - started
    time.sleep(10)
    before, cpu, at = len(polled), time.process_time(), time.monotonic()
    time.sleep(seconds)
    spent, passed, calls = time.process_time() - cpu, time.monotonic() - at, len(polled) - before
    figures = {
        "owned": owned,
        "shards": len(worker.health().shards),
        "cores": spent / passed,
        "polls": calls / passed,
        "threads": threading.active_count(),
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures), flush=True)
    worker.stop(timeout=20)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=1000, help="number of shards (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=20, help="seconds to measure each candidate (default: %(default)s)"
    )
    parser.add_argument(
        "--fan-out", action="store_true", help="read by enhanced fan-out; leases in memory (default: polling)"
    )
    parser.add_argument("--candidate", choices=(*CANDIDATES, *PUSHED), help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.candidate:
        consume(options.candidate, options.endpoint, options.shards, options.seconds)
        return
    what = "event" if options.fan_out else "poll"
    print(
        f"{'':<8}{'cores':>7}{what + 's/s':>9}{'µs a ' + what:>11}{'threads':>9}{'MiB':>6}{'all owned':>11}"
    )
    for who in PUSHED if options.fan_out else CANDIDATES:
        command = ["-m", "kinesis_sdk.cli", "fake", "--port", "0", "--json", "--no-throttle"]
        command += ["--tls"] if options.fan_out else []
        fake = subprocess.Popen(
            [sys.executable, *command, "--create-stream", f"{STREAM}:{options.shards}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert fake.stdout is not None
        try:
            started = json.loads(fake.stdout.readline())
            where = started["endpoint_url"]
            arguments = [f"--{name}={getattr(options, name)}" for name in ("shards", "seconds")]
            run = subprocess.run(
                [sys.executable, __file__, "--candidate", who, "--endpoint", where, *arguments],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env={**os.environ, **({"AWS_CA_BUNDLE": started["ca_file"]} if options.fan_out else {})},
            )
        finally:
            fake.terminate()
            fake.wait()
            fake.stdout.close()
        found = json.loads(run.stdout.splitlines()[-1])
        print(
            f"{who:<8}{found['cores']:>7.2f}{found['polls']:>9.0f}{found['cores'] / found['polls'] * 1e6:>11.0f}"
            f"{found['threads']:>9}{found['mib']:>6.0f}{found['owned']:>9.0f} s",
            flush=True,
        )
        if found["shards"] < options.shards:
            print(f"        only {found['shards']} of {options.shards} shards were owned in time")
    if options.fan_out:
        return
    with sink() as endpoint:
        cost = measure({"floor": floor(endpoint, "GetRecords")}, THREADS, 10)["floor"]
    print(f"{'floor':<8}{cost * options.shards:>7.2f}{options.shards:>9}{cost * 1e6:>11.0f}")


if __name__ == "__main__":
    main()
