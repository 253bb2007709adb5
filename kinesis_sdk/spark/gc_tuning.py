"""Fewer garbage collections while a task runs.

Records in flight are many objects without cycles. By default Python's collector traverses the young objects after every 700
allocations, and from time to time all objects of a Spark worker. That is a fifth of the cost of writing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 20, 100)
"""Allocations until the young objects are collected, and rounds until the older ones are. The collector is never switched off,
because some objects do form cycles, such as an exception and its frames."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect less often for the duration of a with statement, in a process that runs one task at a time.

    Thresholds that the user's own code has set higher stay as they are.
    """
    before = gc.get_threshold()
    if 0 < before[0] < _THRESHOLDS[0]:
        gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
