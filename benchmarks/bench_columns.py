"""Spark's reader: CPU time of building Arrow batches of some columns, relative to all columns.

    python benchmarks/bench_columns.py

Needs pyarrow (the extra ``spark``). Pages of 40,000 rows of 100 bytes, aggregated and not; the best of several rounds that take turns.
Nothing is sent or received, and Spark is not started.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, timezone

from kinesis_sdk.common.aggregate_reader import Aggregate, open_aggregate
from kinesis_sdk.common.hashkeys import hash_partition_key
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.spark.arrow import BatchBuilder
from kinesis_sdk.spark.columns import COLUMN_NAMES

ROWS, PER_AGGREGATE, PAYLOAD, KEYS = 40_000, 400, 100, 50
ROUNDS = 9
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SEQUENCE = 49590338271490256608559692538361571095921575989136588898
CHOICES: dict[str, tuple[str, ...]] = {
    "all": COLUMN_NAMES,
    "data": ("data",),
    "data, partitionKey": ("data", "partitionKey"),
    "data, shardId": ("data", "shardId"),
    "shardId": ("shardId",),
}


def make_pages() -> dict[str, list[KinesisRecord]]:
    """Return a page of aggregates and a page of records that are not aggregated."""
    aggregate = Aggregate(1 << 30, 1 << 30)
    keys = [f"customer-{number}" for number in range(KEYS)]
    for number in range(PER_AGGREGATE):
        key = keys[number % KEYS]
        assert aggregate.try_append(key, None, bytes(PAYLOAD), hash_partition_key(key))
    blob = aggregate.encode()
    return {
        "aggregated": [
            KinesisRecord(blob, "a", str(SEQUENCE + n), NOON) for n in range(ROWS // PER_AGGREGATE)
        ],
        "not aggregated": [
            KinesisRecord(bytes(PAYLOAD), keys[n % KEYS], str(SEQUENCE + n), NOON) for n in range(ROWS)
        ],
    }


def main() -> int:
    pages = make_pages()
    best: dict[tuple[str, str], float] = {}
    for _ in range(ROUNDS):
        for kind, page in pages.items():
            for name, columns in CHOICES.items():
                builder = BatchBuilder("orders", deaggregate=True, columns=columns)
                began = time.process_time()
                rows = sum(batch.num_rows for batch in builder.build("shardId-000000000000", page))
                spent = time.process_time() - began
                assert rows == ROWS
                best[kind, name] = min(best.get((kind, name), spent), spent)
            began = time.process_time()
            for record in page:
                open_aggregate(record.data)
            spent = time.process_time() - began
            best[kind, "(deaggregation alone)"] = min(best.get((kind, "(deaggregation alone)"), spent), spent)
    sys.stdout.write(f"{'records':16}{'columns':24}{'ns a row':>9}{'of all':>8}\n")
    for (kind, name), spent in best.items():
        sys.stdout.write(f"{kind:16}{name:24}{spent / ROWS * 1e9:9.0f}{spent / best[kind, 'all']:8.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
