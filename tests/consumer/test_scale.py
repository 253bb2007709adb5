"""Many shards in one process, a thousand when fuzzing: few threads, bounded bytes. Real threads, a trivial client, no sockets."""

from __future__ import annotations

import threading

import pytest

from kinesis_sdk.consumer import ConsumerConfig, InMemoryLeaseStore, LeaseConfig, RetrievalConfig, Worker
from tests import HANG
from tests.fuzz import TIMES

SHARDS = 1000 if TIMES else 250
PAGES = 3
RECORDS = 10
SIZE = 4_000_000 // SHARDS


class Alive:
    """Count of the bytes of all payloads that exist."""

    def __init__(self):
        self.lock = threading.Lock()
        self.bytes = self.most = 0

    def change(self, count):
        with self.lock:
            self.bytes += count
            self.most = max(self.most, self.bytes)


class Payload(bytes):
    """Bytes that tell when they are gone."""

    def __del__(self):
        ALIVE.change(-len(self))


ALIVE = Alive()


class ManyShards:
    """As much of Kinesis as a reader needs; every shard has three pages and then nothing."""

    def __init__(self):
        self.lock = threading.Lock()
        self.reads = 0
        self.used = []
        self.worker = None

    def list_shards(self, **request):
        width = 2**128 // SHARDS
        return {
            "Shards": [
                {
                    "ShardId": f"shardId-{number:012d}",
                    "HashKeyRange": {
                        "StartingHashKey": str(number * width),
                        "EndingHashKey": str((number + 1) * width - 1 if number < SHARDS - 1 else 2**128 - 1),
                    },
                    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
                }
                for number in range(SHARDS)
            ]
        }

    def describe_stream_summary(self, **request):
        return {"StreamDescriptionSummary": {"StreamName": "orders", "StreamStatus": "ACTIVE"}}

    def get_shard_iterator(self, **request):
        return {"ShardIterator": f"{request['ShardId']} 0"}

    def get_records(self, **request):
        shard, page = request["ShardIterator"].split()
        page = int(page)
        with self.lock:
            self.reads += 1
            engine = self.worker._engine
            if engine is not None:
                self.used.append(engine._budget.used)
        records = [
            {
                "Data": Payload(b"x" * SIZE),
                "PartitionKey": shard,
                "SequenceNumber": str(page * RECORDS + number + 1),
                "ApproximateArrivalTimestamp": None,
            }
            for number in range(RECORDS if page < PAGES else 0)
        ]
        ALIVE.change(SIZE * len(records))
        return {
            "Records": records,
            "NextShardIterator": f"{shard} {page + 1}",
            "MillisBehindLatest": 0 if page >= PAGES - 1 else 1000,
        }


@pytest.mark.fuzz
def test_up_to_a_thousand_shards_in_one_process():
    client = ManyShards()
    seen: dict[str, list[int]] = {}
    done = threading.Event()
    lock = threading.Lock()
    left = [SHARDS * PAGES * RECORDS]
    total = left[0] * SIZE
    threads = []

    def handle(batch):
        numbers = [int(record.sequence_number) for record in batch.records]
        with lock:
            seen.setdefault(batch.shard_id, []).extend(numbers)
            left[0] -= len(numbers)
            threads.append(threading.active_count())
            if not left[0]:
                done.set()

    config = ConsumerConfig(
        initial_position="TRIM_HORIZON",
        max_threads=8,
        retrieval=RetrievalConfig(max_fetch_threads=8, max_prefetch_bytes=32 * 1024 * 1024),
        leases=LeaseConfig(failover_time=60.0, max_leases_to_steal_at_one_time=0),
    )
    before = threading.active_count()
    worker = client.worker = Worker(
        "orders",
        application_name="billing",
        handler=handle,
        config=config,
        kinesis_client=client,
        lease_store=InMemoryLeaseStore(),
    )
    with worker:
        assert done.wait(HANG), f"{left[0]} records missing"
    assert len(seen) == SHARDS
    assert all(numbers == list(range(1, PAGES * RECORDS + 1)) for numbers in seen.values())
    assert max(threads) - before <= 8 + 8 + 8 + 3 + 2
    assert max(client.used) <= 32 * 1024 * 1024
    assert 0 < ALIVE.most <= 32 * 1024 * 1024, "what is alive, not only what is accounted for"
    assert total > 3 * ALIVE.most, "or the bound was not put to the test"
