"""Journeys of records: a producer and workers on a temporary stream, with accounting for each record.

Unlike the scripts, they use the same clients as a user's program, and therefore the SDK's own transport. Their calls are not counted one
by one; instead, a step's `Step.units` are billed before it begins.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from botocore.exceptions import ReadTimeoutError

from kinesis_sdk.common.errors import AdminError
from kinesis_sdk.consumer import (
    ConsumerConfig,
    CoordinationConfig,
    LeaseConfig,
    LeaseTableConfig,
    RecordBatch,
    RetrievalConfig,
    Worker,
)
from kinesis_sdk.producer import Producer, ProducerConfig
from kinesis_sdk.verify.meter import LimitReachedError
from kinesis_sdk.verify.notes import Notes

KEYS = 20
ROUND = 200
"""Records of a round."""
CUT_EVERY = 3
"""One of this many responses is cut off."""
ROUNDS_OF_CUTS = 12

_FIRST = "shardId-000000000000"
_POLL = 0.2
_STOP = 60.0


class Account:
    """Lists of the records that were acknowledged, and of the records delivered to each worker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._put: set[str] = set()
        self._delivered: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self._early: set[str] = set()
        self.shards: set[str] = set()
        self.workers: set[str] = set()

    def acknowledged(self, record: str) -> None:
        """Note a record whose future has a result: ``key:number``, where the numbers of a key increase."""
        with self._lock:
            self._put.add(record)

    def delivered(self, worker: str, shard: str, records: list[str]) -> None:
        """Note a batch."""
        with self._lock:
            self.workers.add(worker)
            self.shards.add(shard)
            for record in records:
                self._delivered[record] += 1
                if self._delivered[record] > 1:
                    continue
                key, _, number = record.partition(":")
                if int(number) < self._last.get(key, -1):
                    self._early.add(record)
                self._last[key] = max(int(number), self._last.get(key, -1))

    def is_complete(self) -> bool:
        """Return whether every acknowledged record was delivered."""
        with self._lock:
            return self._put <= self._delivered.keys()

    def facts(self) -> dict[str, int]:
        """Return the account so far."""
        with self._lock:
            return {
                "acknowledged": len(self._put),
                "lost": len(self._put - self._delivered.keys()),
                "out of order": len(self._early),
                "delivered again": sum(count - 1 for count in self._delivered.values()),
            }


class CutResponses:
    """A Kinesis client that makes every call, but drops some responses of PutRecords, as if the connection had broken."""

    def __init__(self, client: Any, every: int) -> None:
        self._client = client
        self._every = every
        self._lock = threading.Lock()
        self._answered = 0
        self.cut: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_records(self, **request: Any) -> Any:
        """Put records; raise ReadTimeoutError instead of some of the responses."""
        answer = self._client.put_records(**request)
        with self._lock:
            self._answered += 1
            if self._answered % self._every:
                return answer
            self.cut += 1
        raise ReadTimeoutError(endpoint_url="cut by verify", error="the response was discarded")


def reshard(notes: Notes) -> None:
    """Put records before, between and after a split and a merge, and read them with two workers."""
    stream = notes.stream(2)
    account = Account()
    with _workers(notes, stream, account, ("a", "b")) as workers:
        notes.until(lambda: all(worker.health().leases for worker in workers), "each worker has a lease")
        _put(notes, stream, account, 0)
        _wait(notes, account)
        notes.kinesis.split_shard(StreamName=stream, ShardToSplit=_FIRST, NewStartingHashKey=str(1 << 126))
        notes.active(stream)
        _put(notes, stream, account, 1)
        _wait(notes, account)
        children = [f"shardId-{number:012d}" for number in (2, 3)]
        notes.kinesis.merge_shards(
            StreamName=stream, ShardToMerge=children[0], AdjacentShardToMerge=children[1]
        )
        notes.active(stream)
        _put(notes, stream, account, 2)
        _wait(notes, account)
    _note(notes, account)
    notes.fact("shards read", len(account.shards))
    notes.fact("workers that read", len(account.workers))


RESHARD_UNITS = {"shard_hour": 5, "put_unit": 9 * ROUND, "write_unit": 8_000, "read_unit": 16_000}
"""Units for three rounds of records and, for half an hour, heartbeats and checkpoints of each shard, and the scans of two workers."""

RESHARD = {
    "acknowledged": 3 * ROUND,
    "lost": 0,
    "out of order": 0,
    "shards read": 5,
    "workers that read": 2,
}


def fan_out(notes: Notes) -> None:
    """Put records, and read them by enhanced fan-out."""
    stream = notes.stream(1)
    account = Account()
    with _workers(notes, stream, account, ("a",), RetrievalConfig(retrieval_mode="fanout")):
        for turn in range(2):
            _put(notes, stream, account, turn)
            _wait(notes, account)
        arn = notes.active(stream)["StreamARN"]
        consumers = notes.kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]
    _note(notes, account)
    notes.fact("registered consumers", len(consumers))


FAN_OUT_UNITS: dict[str, float] = {
    "shard_hour": 1,
    "put_unit": 6 * ROUND,
    "fan_out_hour": 1,
    "fan_out_gb": 0.001,
    "write_unit": 3_000,
    "read_unit": 6_000,
}

FAN_OUT = {"acknowledged": 2 * ROUND, "lost": 0, "out of order": 0, "registered consumers": 1}


def idempotence(notes: Notes) -> None:
    """Put records with an idempotent producer that loses responses and sends records again, and read each record once."""
    stream = notes.stream(1)
    account = Account()
    client = CutResponses(notes.scratch.direct["kinesis"], CUT_EVERY)
    size = ROUND // ROUNDS_OF_CUTS
    with Producer(ProducerConfig(idempotent=True, ordering="per_shard"), client=client) as producer:
        for number in range(ROUNDS_OF_CUTS):
            _put_with(producer, stream, account, range(number * size, (number + 1) * size))
            notes.wait(0)
    with _workers(notes, stream, account, ("a",)):
        _wait(notes, account)
        # A copy that is still on its way would be delivered within the next reads.
        notes.wait(5.0)
    _note(notes, account)
    notes.fact("responses were cut off", client.cut > 0)
    notes.fact("Kinesis stored copies", _stored(notes, stream) > ROUNDS_OF_CUTS)


IDEMPOTENCE_UNITS = {"shard_hour": 1, "put_unit": 3 * ROUND, "write_unit": 3_000, "read_unit": 6_000}

IDEMPOTENCE: dict[str, int] = {
    "acknowledged": ROUND // ROUNDS_OF_CUTS * ROUNDS_OF_CUTS,
    "lost": 0,
    "out of order": 0,
    "delivered again": 0,
    "responses were cut off": True,
    "Kinesis stored copies": True,
}


@contextmanager
def _workers(
    notes: Notes,
    stream: str,
    account: Account,
    names: tuple[str, ...],
    retrieval: RetrievalConfig | None = None,
) -> Iterator[list[Worker]]:
    """Run workers of one application, whose lease table belongs to this run."""
    application = notes.name()
    notes.scratch.remember("table", application)
    config = ConsumerConfig(
        initial_position="TRIM_HORIZON",
        checkpoint_interval=1.0,
        retrieval=retrieval or RetrievalConfig(),
        leases=LeaseConfig(failover_time=10.0),
        lease_table=LeaseTableConfig(lease_table_tags=notes.scratch.tags),
        coordination=CoordinationConfig(shard_sync_interval=5.0, parent_shard_poll_interval=1.0),
    )
    with ExitStack() as stack:
        workers = []
        for name in names:
            worker = Worker(
                stream,
                application_name=application,
                handler=_handler(account, name),
                config=config,
                kinesis_client=notes.scratch.direct["kinesis"],
                dynamodb_client=notes.scratch.direct["dynamodb"],
                worker_id=name,
            )
            worker.start()
            notes.scratch.remember("table", application, exists=True)
            stack.callback(worker.stop, timeout=_STOP)
            workers.append(worker)
        yield workers


def _handler(account: Account, worker: str) -> Callable[[RecordBatch], None]:
    def handle(batch: RecordBatch) -> None:
        records = [bytes(record.data).decode("ascii") for record in batch.records]
        account.delivered(worker, batch.shard_id, records)

    return handle


def _put(notes: Notes, stream: str, account: Account, turn: int) -> None:
    config = ProducerConfig(idempotent=True, ordering="per_shard")
    with Producer(config, client=notes.scratch.direct["kinesis"]) as producer:
        _put_with(producer, stream, account, range(turn * ROUND, (turn + 1) * ROUND))


def _put_with(producer: Producer, stream: str, account: Account, numbers: range) -> None:
    futures = {}
    for number in numbers:
        key = f"key-{number % KEYS}"
        record = f"{key}:{number}"
        futures[record] = producer.put(stream, key, record.encode())
    producer.flush()
    for record, future in futures.items():
        future.result()
        account.acknowledged(record)


def _wait(notes: Notes, account: Account) -> None:
    """Wait until all records are delivered. A record that is still missing at the end is noted as lost."""
    try:
        notes.until(account.is_complete, "every record is delivered")
    except LimitReachedError:
        raise
    except AdminError:
        return


def _note(notes: Notes, account: Account) -> None:
    for name, value in account.facts().items():
        notes.fact(name, value)


def _stored(notes: Notes, stream: str) -> int:
    """Return the number of Kinesis records in the only shard of a stream."""
    iterator = notes.kinesis.get_shard_iterator(
        StreamName=stream, ShardId=_FIRST, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    count = 0
    while True:
        answer = notes.kinesis.get_records(ShardIterator=iterator)
        count += len(answer["Records"])
        if not answer.get("MillisBehindLatest"):
            return count
        iterator = answer["NextShardIterator"]
        notes.wait(_POLL)
