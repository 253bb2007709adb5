"""Cost of planning a batch of the Spark source: CPU and calls per look, size of an offset, and the start of AvailableNow.

    python benchmarks/bench_spark_plan.py [--shards 125 500 1000]

The planner and the client are those of the source, over HTTP, against the fake AWS in its own process. CPU is that of this process,
for one `plan` and `report` per trigger. The planner's monotonic clock is the machine's, moved on by one second per look: a trigger
of one second without its pauses. Only back-off, rates and limits per second depend on it. The wall clock stays real.

* **idle, back-off**: nothing new for 100 s, default ``idleProbeInterval`` of 5 s. The mean of ten looks, and the most expensive one.
* **idle, no back-off**: ``idleProbeInterval=0``.
* **one busy**: the same with back-off; one shard receives a record before each look.
* **all busy**: every shard receives a record before each look.
* **AvailableNow**: seconds until the first batch is planned, in real time, with the limits of Kinesis on. The shards are quiet, with
  ``--records`` unread records each.

The fake shares the machine's cores. CPU time depends less on that than the seconds of AvailableNow.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.connection import ConnectionSettings, shared_client
from kinesis_sdk.spark.offsets import QueryOffset
from kinesis_sdk.spark.options import SourceOptions
from kinesis_sdk.spark.planner import StreamPlanner
from kinesis_sdk.spark.positions import StartingPosition
from kinesis_sdk.testing import start_server_process

STREAM = "orders"
TARGET_CPU, TARGET_PEAK, TARGET_OFFSET, TARGET_START = 0.12, 0.2, 40_000, 15.0
QUIET = 100.0


class TriggerClock:
    """The machine's clock, with a monotonic time that can be moved on."""

    def __init__(self) -> None:
        self._moved = 0.0

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic() + self._moved

    def advance(self, seconds: float) -> None:
        self._moved += seconds


class Account:
    """A stream of the fake, with the clients of a driver and of producers."""

    def __init__(self, endpoint: str, shards: int) -> None:
        self.endpoint = endpoint
        self.settings = ConnectionSettings(
            region_name="us-east-1", endpoint_url=endpoint, access_key_id="x", secret_access_key="x"
        )
        self.producer: Any = self.settings.client()
        listed: list[dict[str, Any]] = []
        request: dict[str, Any] = {"StreamName": STREAM}
        while request:
            answer = self.producer.list_shards(**request)
            listed += answer["Shards"]
            request = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else {}
        self.keys = [shard["HashKeyRange"]["StartingHashKey"] for shard in listed]
        assert len(self.keys) == shards

    def put(self, keys: list[str], each: int = 1) -> None:
        entries = [
            {"Data": b"x" * 100, "PartitionKey": "k", "ExplicitHashKey": key}
            for _ in range(each)
            for key in keys
        ]
        for start in range(0, len(entries), 500):
            answer = self.producer.put_records(StreamName=STREAM, Records=entries[start : start + 500])
            assert not answer["FailedRecordCount"]

    def calls(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.endpoint}/_fake/stats") as answer:
            found: dict[str, int] = json.load(answer)["calls"]
        return found


@contextmanager
def account(shards: int, *, throttle: bool = False) -> Iterator[Account]:
    arguments = ["--create-stream", f"{STREAM}:{shards}"] + ([] if throttle else ["--no-throttle"])
    with start_server_process(*arguments) as server:
        yield Account(server.endpoint_url, shards)


class Cost(NamedTuple):
    """Cost of one look: mean and maximum CPU seconds, and calls of each kind."""

    cpu: float
    most: float
    reads: float
    iterators: float


class Query:
    """A driver with its offset. Nothing reads the batches."""

    def __init__(self, chosen: Account, start: str, **values: Any) -> None:
        options = SourceOptions(
            streams=(StreamId.parse(STREAM),),
            connection=chosen.settings,
            starting_position=StartingPosition.parse(start),
            **values,
        )
        self.account = chosen
        self.clock = TriggerClock()
        self.planner = StreamPlanner(
            shared_client(chosen.settings), options, clock=self.clock, sleep=time.sleep
        )
        self.offset: QueryOffset = self.planner.initial()

    def look(self) -> None:
        self.offset = self.planner.plan(self.offset)
        self.planner.report()

    def measure(self, looks: int, before: Callable[[], None]) -> Cost:
        costs = []
        reads = iterators = 0
        for _ in range(looks):
            before()
            self.clock.advance(1.0)
            calls = self.account.calls()
            began = time.process_time()
            self.look()
            costs.append(time.process_time() - began)
            after = self.account.calls()
            reads += after.get("GetRecords", 0) - calls.get("GetRecords", 0)
            iterators += after.get("GetShardIterator", 0) - calls.get("GetShardIterator", 0)
        return Cost(sum(costs) / looks, max(costs), reads / looks, iterators / looks)


def settled(chosen: Account, **values: Any) -> Query:
    """Return a query that has read a record of each shard, and then nothing for a while."""
    query = Query(chosen, "TRIM_HORIZON", **values)
    for _ in range(3):
        query.look()
        query.clock.advance(1.0)
    query.clock.advance(QUIET)
    query.look()
    return query


def nothing() -> None:
    """Put no records."""


def looks(shards: int, count: int) -> Iterator[tuple[str, Cost, int]]:
    """Yield the name of each case, its cost, and the bytes of the offset."""
    with account(shards) as chosen:
        chosen.put(chosen.keys)
        query = settled(chosen)
        yield "idle, back-off", query.measure(count, nothing), len(query.offset.to_json())
        yield (
            "one busy",
            query.measure(count, lambda: chosen.put(chosen.keys[:1])),
            len(query.offset.to_json()),
        )
        query = settled(chosen, idle_probe_interval=0.0)
        yield "idle, no back-off", query.measure(count, nothing), len(query.offset.to_json())
        query.measure(3, lambda: chosen.put(chosen.keys))
        yield "all busy", query.measure(count, lambda: chosen.put(chosen.keys)), len(query.offset.to_json())


def available(shards: int, records: int) -> tuple[float, float, Cost]:
    """Return the seconds until AvailableNow has planned its first batch, and what they cost."""
    with account(shards, throttle=True) as chosen:
        chosen.put(chosen.keys, records)
        query = Query(chosen, "TRIM_HORIZON")
        query.planner.stop_at_now()
        began = time.monotonic()
        cost = query.measure(1, nothing)
        return time.monotonic() - began, shards, cost


def verdict(value: float, target: float, unit: str) -> str:
    return f"{'met' if value <= target else 'MISSED'} (target: {target:g} {unit})"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shards", type=int, nargs="+", default=[125, 500, 1_000], help="(default: %(default)s)"
    )
    parser.add_argument("--looks", type=int, default=10, help="looks of each case (default: %(default)s)")
    parser.add_argument(
        "--records",
        type=int,
        default=200,
        help="unread records of each shard for AvailableNow (default: %(default)s)",
    )
    arguments = parser.parse_args()
    print(
        f"{'shards':>7}  {'case':<18}{'CPU s/look':>11}{'most':>8}{'GetRecords':>12}{'GetShardIterator':>18}{'offset B':>10}"
    )
    for shards in arguments.shards:
        for name, cost, size in looks(shards, arguments.looks):
            print(
                f"{shards:>7,}  {name:<18}{cost.cpu:>11.4f}{cost.most:>8.4f}{cost.reads:>12,.1f}{cost.iterators:>18,.1f}{size:>10,}",
                flush=True,
            )
            if shards == 1_000 and name == "idle, back-off":
                print(
                    f"{'':>9}CPU: {verdict(cost.cpu, TARGET_CPU, 's')}; most: {verdict(cost.most, TARGET_PEAK, 's')}"
                )
            if shards == 1_000 and name == "all busy":
                print(f"{'':>9}offset: {verdict(size, TARGET_OFFSET, 'B')}")
    shards = max(arguments.shards)
    seconds, _, cost = available(shards, arguments.records)
    print(
        f"{shards:>7,}  AvailableNow: first batch planned after {seconds:.1f} s, {cost.cpu:.2f} s of CPU, "
        f"{cost.reads:,.0f} GetRecords, {cost.iterators:,.0f} GetShardIterator: {verdict(seconds, TARGET_START, 's')}"
    )


if __name__ == "__main__":
    main()
