from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kinesis_sdk.common.stop_flag import StopFlag
from tests import HANG


def interrupted(call: Callable[[], object], handler: Callable[[], None], after: int) -> bool:
    """Call a function, and a signal handler after so many of its steps, as Python does in the main thread.

    Steps are lines and instructions. Some versions of Python do not trace the instructions.

    Returns:
        Whether the function had that many steps.
    """
    executed = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal executed
        frame.f_trace_opcodes = True
        if event in {"line", "opcode"}:
            executed += 1
            if executed == after:
                sys.settrace(None)
                handler()
        return trace

    def run() -> None:
        sys.settrace(trace)
        call()

    # On a thread of its own, which the test can give up: a lock that the handler waits for is never released.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG)
    assert not thread.is_alive(), f"the handler waits forever, after step {after}"
    return executed >= after


@pytest.mark.parametrize("method", ["wait", "set", "is_set"])
def test_a_signal_handler_may_set_it_at_any_step(method: str) -> None:
    after = 1
    while True:
        flag = StopFlag()
        call = (lambda flag=flag: flag.wait(0)) if method == "wait" else getattr(flag, method)
        if not interrupted(call, flag.set, after):
            break
        assert flag.is_set()
        assert flag.wait(0)
        after += 1
    assert after > 1


def test_it_ends_all_waits() -> None:
    flag = StopFlag()
    assert not flag.is_set()
    assert not flag.wait(0)
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(flag.wait(HANG))) for _ in range(3)]
    for thread in threads:
        thread.start()
    flag.set()
    flag.set()
    for thread in threads:
        thread.join(HANG)
    assert results == [True] * 3
    assert flag.wait()
    assert flag.is_set()
