"""CPU per user record from an HTTP body to the handler, compared with the minimum possible.

    python benchmarks/bench_consumer.py [--rounds 12]

One process, one thread, no sockets: the same GetRecords responses, as bytes, are passed to boto3 below its HTTP
layer. Three candidates read them:

* **floor**: ``json.loads``, ``base64``, and for aggregates the bare protobuf loop of `bench_codec`: MD5, parse, key
  and payload of each record. It has no other checks, no positions and no callbacks.
* **full path**: this package: a whole consumer engine (scheduler, read-ahead, decoding, deaggregation, delivery,
  checkpoints in memory), stepped inline, with a handler that reads each payload.
* **plain boto3**: the same engine with a client without the fast path, so that boto3 decodes the records.

The CPU time of the process in the best round counts. Candidates take turns.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import time
from collections.abc import Callable, Sequence
from hashlib import md5
from typing import Any

import boto3
from bench_codec import protobuf_class
from botocore.awsrequest import AWSResponse

from kinesis_sdk.common.aggregate_reader import MAGIC, Aggregate, deaggregate
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.records import KinesisRecord, UserRecord
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, LeaseConfig, RecordBatch
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import HandlerSource
from kinesis_sdk.consumer.runtime.runtime import InlineRuntime
from kinesis_sdk.testing import VirtualClock

PAGES = 4
SIZE = 100
KEYS = 16


def aggregated_items(rng: random.Random) -> tuple[list[dict[str, Any]], int]:
    """Return about 1 MB of aggregates of 400 user records."""
    items: list[dict[str, Any]] = []
    count = 0
    for number in range(24):
        aggregate = Aggregate(51_200, 400)
        while True:
            key = f"customer-{rng.randrange(KEYS):04d}"
            if not aggregate.try_append(key, None, rng.randbytes(SIZE), hash_partition_key(key)):
                break
        count += aggregate.count
        items.append(item(aggregate.encode(), "a", number))
    return items, count


def plain_items(rng: random.Random) -> tuple[list[dict[str, Any]], int]:
    """Return as many plain records as one response holds."""
    keys = [f"customer-{index:04d}" for index in range(KEYS)]
    return [item(rng.randbytes(SIZE), rng.choice(keys), n) for n in range(10_000)], 10_000


def item(data: bytes, key: str, number: int) -> dict[str, Any]:
    """Return a record as Kinesis sends it."""
    return {
        "SequenceNumber": str(49590338271490256608559692538361571095921575989136588802 + number),
        "ApproximateArrivalTimestamp": 1_700_000_000.123 + number // 500,
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": key,
    }


class Wire:
    """Responses in place of botocore's HTTP session: a hook would leave every call to boto3."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.bodies: list[bytes] = []
        for page in range(PAGES):
            moved = [
                {**one, "SequenceNumber": str(int(one["SequenceNumber"]) + page * 100_000)} for one in items
            ]
            self.bodies.append(json.dumps({
                "Records": moved, "NextShardIterator": str(page + 1),
                "MillisBehindLatest": 1000 if page < PAGES - 1 else 0}).encode())  # fmt: skip
        self.empty = json.dumps(
            {"Records": [], "NextShardIterator": str(PAGES), "MillisBehindLatest": 0}
        ).encode()
        self.client = boto3.client(
            "kinesis", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        self.client._endpoint.http_session = self

    def send(self, request: Any) -> AWSResponse:
        target = request.headers["X-Amz-Target"]
        operation = (target if isinstance(target, str) else target.decode()).split(".")[1]
        asked = json.loads(request.body)
        if operation == "GetRecords":
            page = int(asked["ShardIterator"])
            body = self.bodies[page] if page < PAGES else self.empty
        elif operation == "GetShardIterator":
            body = b'{"ShardIterator": "0"}'
        elif operation == "ListShards":
            body = json.dumps({"Shards": [{
                "ShardId": "shardId-000000000000",
                "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
                "SequenceNumberRange": {"StartingSequenceNumber": "1"}}]}).encode()  # fmt: skip
        else:
            body = b'{"StreamDescriptionSummary": {"StreamName": "orders", "StreamStatus": "ACTIVE"}}'
        response = AWSResponse(request.url, 200, {"x-amzn-RequestId": "1"}, None)
        response._content = body
        return response


class Unknown:
    """A client whose calls are boto3's."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def floor(wire: Wire, message_class: Any, *, aggregated: bool) -> int:
    """The minimum that a program has to do with these bytes."""
    result: list[tuple[str, bytes]] = []
    for body in wire.bodies:
        for one in json.loads(body)["Records"]:
            data = base64.b64decode(one["Data"])
            if not aggregated:
                result.append((one["PartitionKey"], data))
                continue
            message = data[4:-16]
            assert data[:4] == MAGIC
            assert md5(message).digest() == data[-16:]
            parsed = message_class.FromString(message)
            table = parsed.partition_key_table
            result.extend([(table[record.partition_key_index], record.data) for record in parsed.records])
    return len(result)


def engine_run(client: Any) -> tuple[int, float]:
    """Consume a shard from its beginning to its tip; return (records, CPU seconds of reading and delivering)."""
    clock = VirtualClock()
    got = [0]

    def handle(batch: RecordBatch) -> None:
        got[0] += look_at(batch.records)

    engine = ConsumerEngine(
        stream=StreamId("orders"),
        worker_id="me",
        config=ConsumerConfig(initial_position="TRIM_HORIZON", leases=LeaseConfig(failover_time=300.0)),
        handlers=HandlerSource.of(handle),
        store=InMemoryLeaseStore(),
        kinesis=client,
        runtime=InlineRuntime(clock, random.Random(1), clock.advance),
    )
    engine.start()
    started = time.process_time()
    for _ in range(200):
        engine.tick(clock.monotonic())
        clock.advance(0.7)
        if wire_done(engine):
            break
    return got[0], time.process_time() - started


def wire_done(engine: ConsumerEngine) -> bool:
    """Whether the shard was read to its tip."""
    return any(shard.read_lag_millis == 0 for shard in engine.shard_health())


def deaggregation(wire: Wire) -> Callable[[], int]:
    """The deaggregation alone, of Kinesis records that are already decoded."""
    records = [
        KinesisRecord(base64.b64decode(one["Data"]), one["PartitionKey"], one["SequenceNumber"])
        for body in wire.bodies
        for one in json.loads(body)["Records"]
    ]
    return lambda: look_at(deaggregate(records))


def look_at(records: Sequence[UserRecord]) -> int:
    """Read each record's payload, as a minimal handler; return the number of records."""
    count = 0
    for record in records:
        if record.data:
            count += 1
    return count


def timed(function: Callable[[], int]) -> tuple[int, float]:
    """Return (records, CPU seconds) of a function that counts records."""
    started = time.process_time()
    return function(), time.process_time() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    message_class = protobuf_class()
    print(f"{'workload':34}{'candidate':26}{'CPU µs/record':>14}{'x floor':>9}")
    for name, make, aggregated in (
        (f"aggregates of 400 x {SIZE} bytes", aggregated_items, True),
        (f"plain records of {SIZE} bytes", plain_items, False),
    ):
        items, count = make(random.Random(7))
        wire = Wire(items)
        ours = deaggregation(wire)
        candidates: dict[str, Callable[[], tuple[int, float]]] = {
            "floor": lambda wire=wire, agg=aggregated: timed(
                lambda: floor(wire, message_class, aggregated=agg)
            ),
            "deaggregation alone": lambda run=ours: timed(run),
            "full path": lambda wire=wire: engine_run(wire.client),
            "plain boto3": lambda wire=wire: engine_run(Unknown(wire.client)),
        }
        best = dict.fromkeys(candidates, float("inf"))
        for number in range(rounds):
            for who, run in candidates.items():
                if who == "plain boto3" and number >= 3:
                    continue  # slow, and not relevant
                records, seconds = run()
                assert records == count * PAGES, f"{who}: {records} of {count * PAGES}"
                best[who] = min(best[who], seconds / records)
        for who, spent in best.items():
            print(f"{name:34}{who:26}{spent * 1e6:14.3f}{spent / best['floor']:9.2f}")


if __name__ == "__main__":
    main()
