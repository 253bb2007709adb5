"""Fewer and cheaper garbage collections in a Python worker of Spark.

Records in flight are many objects without cycles. By default Python's collector traverses the young objects after every 700
allocations, and from time to time all objects of a Spark worker. That is a fifth of the cost of writing.

After each task, Spark itself traverses all objects. Most of them belong to modules and to the client, which live as
long as the process: 95,000 objects, 40 ms of CPU, half of a task that reads one shard near its tip. So all objects that
exist when the first task of a process has created its client are excluded from collections.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 20, 100)
"""Allocations until the young objects are collected, and rounds until the older ones are. The collector stays on,
because some objects do form cycles, such as an exception and its frames.
"""

_frozen_in: int | None = None
"""Process whose long-lived objects are excluded from collections."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect less often within a with statement, in a process that runs one task at a time.

    Higher thresholds, set by the user's own code, are kept.
    """
    before = gc.get_threshold()
    if 0 < before[0] < _THRESHOLDS[0]:
        gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def exclude_loaded_objects() -> None:
    """Exclude the objects that exist now from all later collections. Only the first call in a process does so.

    Reference counting still releases them. Only a cycle among them that becomes garbage later stays until the process ends.
    """
    global _frozen_in  # noqa: PLW0603 — a fact about the process
    if _frozen_in == os.getpid():
        return
    _frozen_in = os.getpid()
    gc.collect()  # cycles that are already garbage must not stay
    gc.freeze()
