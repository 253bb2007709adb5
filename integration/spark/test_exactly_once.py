"""Every record exactly once and in order in a sink that is idempotent by batch id, whatever is killed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from integration.spark.driver import Driver, running, state_of
from integration.spark.harness import (
    PERFECT,
    IdempotentSink,
    Load,
    account_for,
    drain,
    start,
    wait_for,
)

SECONDS = 10


@pytest.mark.core
@pytest.mark.localstack
def test_killed_and_restarted_through_split_merge_and_rescale(spark: Any, stream: Any, folder: Path) -> None:
    orders = stream(2)
    sink = IdempotentSink(folder / "sink", failing=0.2, seed=7)
    rng = Random(5)
    steps = [lambda: orders.split(0), lambda: orders.merge(1), lambda: orders.scale(3)]
    with Load(orders) as load:
        began = time.monotonic()
        # A change of shards after each run. Counted in batches, not in seconds: a slow machine takes longer
        # and sees as much.
        while steps or sink.failures < 2 or time.monotonic() - began < SECONDS:
            assert time.monotonic() - began < 6000, "too slow to say anything"
            seen = sink.calls
            query = start(spark, orders, sink, folder / "checkpoint")
            wait_for(lambda q=query, n=seen: sink.calls > n or not q.isActive, what="a batch")
            time.sleep(rng.uniform(0.0, 0.8))
            query.stop()
            if steps:
                steps.pop(0)()
    sink.failing = 0.0
    drain(spark, orders, sink, folder / "checkpoint")
    result = account_for(load.put, sink.payloads())
    assert {name: result[name] for name in PERFECT} == PERFECT, result
    assert sink.differences == []
    assert result["records"] > 1_000
    assert sink.replays >= 1, "batches came again"


def test_driver_processes_killed_through_split_merge_and_rescale(
    spark: Any, stream: Any, folder: Path
) -> None:
    """SIGKILL to the driver and all that it started, at any moment, again and again. ``SPARK_KILLS`` says how often."""
    orders = stream(2)
    kills = int(os.environ.get("SPARK_KILLS", "3"))
    steps = {0: lambda: orders.split(0), 1: lambda: orders.merge(1), 2: lambda: orders.scale(3)}
    sink, checkpoint = IdempotentSink(folder / "sink"), folder / "checkpoint"
    task = {"options": orders.reader_options(), "sink": str(sink.folder), "checkpoint": str(checkpoint)}
    rng = Random(11)
    replayed = 0
    with Load(orders, per_second=200, seed=3) as load:
        for kill in range(kills):
            seen = state_of(sink.folder)
            with running(folder / "driver.log", **task) as driver:

                def changed(seen: Any = seen, driver: Driver = driver) -> bool:
                    driver.check()
                    return state_of(sink.folder) != seen

                wait_for(changed, 300, "a batch of the driver")
                time.sleep(rng.uniform(0.0, 1.2))
            planned, written = offsets_of(checkpoint), set(state_of(sink.folder))
            replayed += bool(planned - commits_of(checkpoint))
            assert written <= planned, "a batch is planned before it is written"
            steps.get(kill, lambda: None)()
    drain(spark, orders, sink, checkpoint)
    result = account_for(load.put, sink.payloads())
    print(f"{kills} drivers killed, {replayed} of them within a batch: {result}")
    assert {name: result[name] for name in PERFECT} == PERFECT, result
    assert result["records"] > 1_000


def offsets_of(checkpoint: Path) -> set[int]:
    return {int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*")}


def commits_of(checkpoint: Path) -> set[int]:
    return {int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")}
