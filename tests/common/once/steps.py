"""Counts steps of the package's code: each line that runs, each entry of a list that is sorted, and what insertions move."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_ENTRIES_OF_A_STEP = {"sort": 1, "insert": 64}
"""List methods that take longer the more entries there are, and how many entries take as long as a line."""


def steps_of(work: Callable[[], object], *, below: str = "kinesis_sdk/common/once") -> int:
    """Return how many steps a function takes in files of a folder. Equal on each machine, unlike seconds."""
    count = 0
    is_counted: dict[object, bool] = {}

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
        return line

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        known = is_counted.get(code)
        if known is None:
            known = is_counted[code] = below in code.co_filename.replace("\\", "/")
        return line if known else None

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event == "c_call" and is_counted.get(frame.f_code) and isinstance(argument.__self__, list):
            each = _ENTRIES_OF_A_STEP.get(argument.__name__)
            count += len(argument.__self__) // each if each else 0

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return count
