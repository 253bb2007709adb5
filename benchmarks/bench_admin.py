"""Prints what a look at a large application costs: CPU time of a scan and a view, and the time of the commands.

The fleet is played by a fake account in this process, with calls of boto3's shape and without sockets, so the numbers are those of
this package and of the fake, and not of a network. Usage: ``make bench-admin``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

from click.testing import CliRunner

from kinesis_sdk.admin import Application, Connection, FleetObserver, FleetView
from kinesis_sdk.admin.fleet.reader import FleetReader
from kinesis_sdk.cli.main import cli
from kinesis_sdk.cli.options import ConnectionOptions
from kinesis_sdk.common.shards import Shard, list_shards
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer.leases.table.lease import Lease, lease_to_item
from kinesis_sdk.consumer.leases.table.progress import Progress
from kinesis_sdk.consumer.leases.table.store import TableScan
from kinesis_sdk.testing import FakeAws


def make_account(shards: int, workers: int) -> tuple[Connection, list[Shard], list[Lease]]:
    """Return an account with one application, whose leases are spread evenly."""
    aws = FakeAws()
    kinesis, dynamodb = aws.client("kinesis"), aws.client("dynamodb")
    kinesis.create_stream(StreamName="orders", ShardCount=shards)
    dynamodb.create_table(
        TableName="billing",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    listed = list_shards(kinesis, StreamId("orders"))
    leases = []
    for number, shard in enumerate(listed):
        worker = f"zone-{'abc'[number % 3]}|host{number % workers}"
        lease = replace(
            Lease.for_shard(shard, "TRIM_HORIZON"),
            owner=worker,
            handoff_owner=worker,
            counter=1,
            throughput_kbps=0.5,
        )
        leases.append(lease)
        dynamodb.put_item(TableName="billing", Item=lease_to_item(lease))
    return Connection(clients={"kinesis": kinesis, "dynamodb": dynamodb}), listed, leases


def cpu_of_observer(shards: list[Shard], leases: list[Lease], rounds: int) -> tuple[float, float, float]:
    """Return the median CPU milliseconds of a scan, of a view, and of a view as plain data."""
    observer = FleetObserver("billing")
    observer.observe_streams({None: StreamId("orders")})
    observing, viewing, exporting = [], [], []
    for number in range(rounds):
        now = 5.0 * number
        rows = [
            replace(lease, counter=number + 1, progress=Progress(number * 10, None, None, str(lease.owner)))
            for lease in leases
        ]
        began = time.process_time()
        observer.observe_table(TableScan(leases=rows), now, now)
        observing.append(time.process_time() - began)
        if number % 12 == 0:
            observer.observe_shards(None, shards, now)
        began = time.process_time()
        view: FleetView = observer.view(now, now)
        viewing.append(time.process_time() - began)
        began = time.process_time()
        view.to_dict()
        exporting.append(time.process_time() - began)
    return tuple(1000 * statistics.median(times) for times in (observing, viewing, exporting))  # type: ignore[return-value]


def timed(function: Any) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def run(*arguments: str) -> None:
    """Run a command in this process."""
    result = CliRunner().invoke(cli, list(arguments))
    if result.exit_code not in (0, 1):
        raise SystemExit(result.output)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    print("CPU time of the observer, median, in milliseconds")
    print(f"{'shards':>8} {'workers':>8} {'scan':>8} {'view':>8} {'to_dict':>8}")
    for shards, workers in ((4, 2), (100, 20), (1000, 200)):
        _, listed, leases = make_account(shards, workers)
        observing, viewing, exporting = cpu_of_observer(listed, leases, options.rounds)
        print(f"{shards:>8,} {workers:>8} {observing:>8.1f} {viewing:>8.1f} {exporting:>8.1f}")
    print()
    print("One look at 1,000 shards on the fake, in seconds (limits: lag 5 s, leases 1 s)")
    connection, _, _ = make_account(1000, 200)
    ConnectionOptions.connect = lambda _: connection  # type: ignore[assignment,misc,method-assign]
    look = FleetReader(Application(connection, "billing", stream="orders"))
    print(f"  read and decode the table          {timed(look.table):6.2f}")
    print(f"  ListShards and the stream          {timed(look.streams):6.2f}")
    print(f"  1,000 probes, at most 200 a second {timed(look.lag):6.2f}")
    print(f"  leases list                        {timed(lambda: run('leases', 'list', 'billing')):6.2f}")
    shown = timed(lambda: run("leases", "show", "billing", "--stream", "orders"))
    print(f"  leases show                        {shown:6.2f}")
    print(f"  balance                            {timed(lambda: run('balance', 'billing')):6.2f}")
    print(
        f"  lag                                {timed(lambda: run('lag', 'billing', '--stream', 'orders')):6.2f}"
    )


if __name__ == "__main__":
    main()
