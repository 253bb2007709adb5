"""Python's garbage collector in a task of ours.

Records on their way are many objects and no cycles. The collector looks at the young ones again after every 700, and
at everything else that lives in a Spark worker now and then: a fifth of what writing costs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 20, 100)
"""Objects until the young are looked at, and rounds until older ones are. Never off: what does make cycles (an
exception with its frames) still goes."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect seldom for the length of a with statement, in a process that does nothing else.

    A Python worker runs one task at a time. What the user's own code has set stays if it is rarer.
    """
    before = gc.get_threshold()
    if 0 < before[0] < _THRESHOLDS[0]:
        gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
