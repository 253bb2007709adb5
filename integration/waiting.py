"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests import HANG

T = TypeVar("T")


def eventually(condition: Callable[[], T], told: object = "", *, pause: float = 0.05) -> T:
    """Wait until a condition holds, and return what it returned.

    Args:
        condition: Asked again and again.
        told: What may explain a wait that does not end, or a function that returns it.
        pause: Seconds between two questions.

    Raises:
        AssertionError: If it never holds, on a machine of any speed.
    """
    deadline = time.monotonic() + HANG
    while not (found := condition()):
        assert time.monotonic() < deadline, told() if callable(told) else told
        time.sleep(pause)
    return found
