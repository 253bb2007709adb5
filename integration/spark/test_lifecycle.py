"""Streams that change, pause, end or go away under a query."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from integration.spark.harness import IdempotentSink, drain, start, wait_for


def numbered(first: int, count: int) -> list[bytes]:
    return [f"k:{number}".encode() for number in range(first, first + count)]


@pytest.mark.core
@pytest.mark.localstack
def test_idle_then_data_again(spark: Any, stream: Any, folder: Path) -> None:
    orders = stream(2)
    sink = IdempotentSink(folder / "sink")
    query = start(spark, orders, sink, folder / "checkpoint")
    try:
        for round_ in range(3):
            orders.put(*numbered(10 * round_, 10), key=f"key-{round_}")
            wait_for(lambda n=10 * (round_ + 1): len(sink.rows()) == n, what=f"round {round_}")
            time.sleep(1.5)
    finally:
        query.stop()
    assert sink.payloads() == numbered(0, 30)


@pytest.mark.core
@pytest.mark.localstack
def test_a_parent_that_was_not_drained_and_children_born_while_down(
    spark: Any, stream: Any, folder: Path
) -> None:
    orders = stream(1)
    sink = IdempotentSink(folder / "sink")
    orders.put(*numbered(0, 5))
    drain(spark, orders, sink, folder / "checkpoint")
    orders.put(*numbered(5, 40))
    orders.split()
    orders.put(*numbered(45, 5))
    drain(spark, orders, sink, folder / "checkpoint")
    assert sink.payloads() == numbered(0, 50)


def test_an_aggregate_larger_than_a_batch(spark: Any, stream: Any, folder: Path) -> None:
    """A batch ends with a whole Kinesis record: one of 4,000 user records, although one record is asked for."""
    orders = stream(1)
    for number in range(3):
        orders.put_aggregate(numbered(4_000 * number, 4_000))
        time.sleep(0.5)
    sink = IdempotentSink(folder / "sink")
    drain(spark, orders, sink, folder / "checkpoint", maxRecordsPerShard="1")
    assert sink.payloads() == numbered(0, 12_000)
    sizes = [len(json.loads(path.read_text())) for path in sorted(sink.folder.glob("*.json"))]
    assert [size for size in sizes if size] == [4_000, 4_000, 4_000]
    assert [row[2] for row in sink.rows()] == [*range(4_000)] * 3


def test_admission_control_limits_batches_of_available_now(spark: Any, stream: Any, folder: Path) -> None:
    from kinesis_sdk.spark.source import HAS_ADMISSION_CONTROL

    if not HAS_ADMISSION_CONTROL:
        pytest.skip("this version of Spark has no admission control")
    orders = stream(2)
    for key in ("a", "b", "c", "d"):
        orders.put(*[f"{key}:{number}".encode() for number in range(25)], key=key)
    sink = IdempotentSink(folder / "sink")
    query = start(spark, orders, sink, folder / "checkpoint", trigger="now", maxRecordsPerShard="10")
    assert query.awaitTermination(900)
    sizes = [len(json.loads(path.read_text())) for path in sorted(sink.folder.glob("*.json"))]
    assert sum(sizes) == 100
    assert max(sizes) <= 20
    assert len([size for size in sizes if size]) >= 5


def failure_of(query: Any) -> str:
    wait_for(lambda: not query.isActive, what="the failure")
    error = query.exception()
    assert error is not None
    return str(error)


def test_a_stream_that_was_deleted_and_created_again(
    spark: Any, stream: Any, folder: Path, endpoint: Any
) -> None:
    orders = stream(1)
    orders.put(*numbered(0, 3))
    sink = IdempotentSink(folder / "sink")
    drain(spark, orders, sink, folder / "checkpoint")
    orders.delete()
    time.sleep(1.5)  # the creation time has whole seconds
    endpoint.create(orders.name, 1)
    orders.put(*numbered(100, 3))
    query = start(spark, orders, sink, folder / "checkpoint")
    assert "deleted and recreated" in failure_of(query)
    query = start(spark, orders, sink, folder / "checkpoint", failOnDataLoss="false")
    try:
        wait_for(lambda: len(sink.rows()) == 6, what="the new stream's records")
    finally:
        query.stop()
    assert sink.payloads() == numbered(0, 3) + numbered(100, 3)


def test_a_checkpoint_older_than_the_retention(spark: Any, stream: Any, folder: Path) -> None:
    orders = stream(1)
    orders.put(*numbered(0, 3))
    sink = IdempotentSink(folder / "sink")
    drain(spark, orders, sink, folder / "checkpoint")
    # As if it had been written two days ago.
    for path in (folder / "checkpoint" / "offsets").glob("[0-9]*"):
        lines = path.read_text().splitlines()
        offset = json.loads(lines[-1])
        offset["cut"] -= 48 * 3_600_000
        path.write_text("\n".join([*lines[:-1], json.dumps(offset, separators=(",", ":"), sort_keys=True)]))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    orders.put(*numbered(3, 3))
    assert "48.0 h ago" in failure_of(start(spark, orders, sink, folder / "checkpoint"))
    query = start(spark, orders, sink, folder / "checkpoint", failOnDataLoss="false")
    try:
        wait_for(lambda: len(sink.rows()) == 6, what="what is left")
    finally:
        query.stop()
    assert sink.payloads() == numbered(0, 6)


def test_a_checkpoint_of_another_stream(spark: Any, stream: Any, folder: Path) -> None:
    first, second = stream(1), stream(1)
    first.put(b"k:0")
    sink = IdempotentSink(folder / "sink")
    drain(spark, first, sink, folder / "checkpoint")
    second.put(b"k:1")
    assert "or use another checkpoint" in failure_of(start(spark, second, sink, folder / "checkpoint"))


def test_alternating_idle_and_active_shards(spark: Any, stream: Any, folder: Path) -> None:
    orders = stream(4)
    sink = IdempotentSink(folder / "sink")
    query = start(spark, orders, sink, folder / "checkpoint")
    expected = []
    try:
        for number in range(24):
            payload = f"key-{number % 7}:{number}".encode()
            expected.append(payload)
            orders.put(payload, key=f"key-{number % 7}")
            time.sleep(0.15)
        wait_for(lambda: len(sink.rows()) == len(expected), what="all records")
    finally:
        query.stop()
    assert sorted(sink.payloads()) == sorted(expected)
