"""How a worker of `make soak` or `make effects` starts on a machine that is too busy to answer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from integration.endtoend.worker_process import start_worker
from kinesis_sdk.common.errors import PermanentAwsError, TransientAwsError
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.consumer import Worker


class Candidate:
    """A worker whose start fails with these errors, one for each that is made."""

    def __init__(self, errors: list[Exception]) -> None:
        self._errors = errors

    def start(self) -> None:
        if self._errors:
            raise self._errors.pop(0)


def made(errors: list[Exception], candidates: list[Candidate]) -> Any:
    def make() -> Worker:
        candidates.append(Candidate(errors))
        return cast("Worker", candidates[-1])

    return make


def timeout() -> TransientAwsError:
    return TransientAwsError("no answer", operation="DescribeTable", code="ReadTimeoutError")


def test_a_worker_that_got_no_answer_is_replaced() -> None:
    candidates: list[Candidate] = []
    assert start_worker(made([timeout(), timeout()], candidates), StopFlag()) is cast("Worker", candidates[2])
    assert len(candidates) == 3


def test_what_does_not_pass_ends_the_process() -> None:
    denied = PermanentAwsError("denied", operation="DescribeTable", code="AccessDeniedException")
    with pytest.raises(PermanentAwsError):
        start_worker(made([denied], []), StopFlag())


def test_no_worker_starts_after_the_stop() -> None:
    stop = StopFlag()
    stop.set()
    assert start_worker(made([], []), stop) is None
