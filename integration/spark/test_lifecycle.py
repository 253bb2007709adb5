"""Streams that change, pause, end or go away under a query."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from integration.spark.harness import IdempotentSink, drain, start, wait_for


def numbered(first: int, count: int) -> list[bytes]:
    return [f"k:{number}".encode() for number in range(first, first + count)]


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
