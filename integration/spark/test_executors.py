"""A small cluster on this machine, whose executors are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from integration.spark.driver import ROOT, running, state_of
from integration.spark.harness import PERFECT, IdempotentSink, Load, account_for, drain, wait_for


def test_executor_processes_killed_while_they_read(spark: Any, stream: Any, folder: Path) -> None:
    """A small cluster on this machine: two executor JVMs with their Python workers, killed in turn."""
    orders = stream(2)
    sink, checkpoint = IdempotentSink(folder / "sink"), folder / "checkpoint"
    task = {
        "options": orders.reader_options(recordsPerFetch="20", fetchInterval="100ms"),
        "sink": str(sink.folder),
        "checkpoint": str(checkpoint),
        "master": "local-cluster[2,1,512]",
        "conf": {
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.task.maxFailures": "20",
        },
    }
    killed = 0
    known: set[int] = set()
    with Load(orders, per_second=150, seed=4) as load, running(folder / "driver.log", **task) as driver:

        def await_batches() -> None:
            seen = state_of(sink.folder).keys()

            def came() -> bool:
                driver.check()
                return len(state_of(sink.folder).keys() - seen) >= 2

            wait_for(came, what="two batches of the cluster")

        while killed < 2:
            await_batches()
            executors = driver.family("CoarseGrainedExecutorBackend")
            assert executors, "the cluster has executors"
            known.update(executors)
            os.kill(executors[killed % len(executors)], signal.SIGKILL)
            killed += 1
        await_batches()
    drain(spark, orders, sink, checkpoint)
    result = account_for(load.put, sink.payloads())
    assert {name: result[name] for name in PERFECT} == PERFECT, result
    assert len(known) > 2, "new executors took the place of killed ones"
