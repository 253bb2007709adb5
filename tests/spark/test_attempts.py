"""Which task is known to be a first attempt, and which one has to wait: each condition by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kinesis_sdk.spark.attempts import Attempt, FirstAttempts, StreamTask

RUN = "2d7bccd5-be65-4c90-9bd9-58243765032c"
OTHER = "d67d267c-a2bd-454a-b052-722c4524e135"
WAITS = Attempt(wait=15, again=True)
MAY_REPEAT = Attempt(again=True)


def task(batch: int, stage: int | None = None, **more: Any) -> StreamTask:
    """A task of the only stage of a batch; nothing else runs in the application."""
    fields = {"run": RUN, "attempt": 0, "speculates": False, **more}
    return StreamTask(batch=batch, stage=100 + batch if stage is None else stage, **fields)


def written(*tasks: tuple[StreamTask, int | None]) -> FirstAttempts:
    attempts = FirstAttempts()
    for one, millis in tasks:
        attempts.end(one, millis)
    return attempts


def test_from_its_second_batch_of_a_run_on_a_process_makes_first_attempts() -> None:
    attempts = FirstAttempts()
    assert attempts.begin(task(7)) == WAITS
    attempts.end(task(7), 1000)
    attempts.end(task(7), 1200)  # the process's last task of the batch
    assert attempts.begin(task(8)) == Attempt(1200, is_first=True)
    attempts.end(task(8), 2000)
    assert attempts.begin(task(8)) == Attempt(1200, is_first=True), (
        "another task of the batch, dated before the batch"
    )
    attempts.end(task(8), 2500)
    assert attempts.begin(task(9)) == Attempt(2500, is_first=True)


def test_a_process_may_have_had_no_task_of_some_batches() -> None:
    attempts = written((task(3), 1000))
    assert attempts.begin(task(6)) == Attempt(1000, is_first=True)
    assert attempts.begin(task(6, stage=107)) == MAY_REPEAT._replace(since=1000)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (task(8), Attempt(1000, is_first=True)),
        (task(8, attempt=1), WAITS._replace(since=1000)),
        (task(8, attempt=1, speculates=True), MAY_REPEAT._replace(since=1000)),
        (task(8, speculates=True), MAY_REPEAT._replace(since=1000)),
        (task(8, run=OTHER), WAITS),
        (task(8, run=OTHER, attempt=1), WAITS),
        (task(7), WAITS),
        (task(6), WAITS),
        (task(8, stage=107), MAY_REPEAT._replace(since=1000)),
        (task(8, stage=109), MAY_REPEAT._replace(since=1000)),
        (task(8, stage=107, attempt=1), WAITS._replace(since=1000)),
        (None, Attempt()),
    ],
    ids=[
        "first",
        "repeated",
        "run-twice",
        "could-run-twice",
        "another-run",
        "repeated-in-another-run",
        "the-same-batch",
        "a-lower-batch",
        "no-stage-of-its-own",
        "a-stage-before-it",
        "repeated-in-the-same-stage",
        "unknown",
    ],
)
def test_each_condition_is_needed(one: StreamTask | None, expected: Attempt) -> None:
    assert written((task(7), 1000)).begin(one) == expected


def test_nothing_repeats_a_first_attempt_of_batch_0() -> None:
    attempts = FirstAttempts()
    assert attempts.begin(task(0)) == MAY_REPEAT
    attempts.end(task(0), 500)
    assert attempts.begin(task(0, attempt=1)) == MAY_REPEAT
    assert attempts.begin(task(1)) == Attempt(500, is_first=True)


def test_without_the_time_at_kinesis_nothing_is_dated_and_nothing_waits() -> None:
    attempts = written((task(7), None))
    assert attempts.begin(task(8)) == MAY_REPEAT
    attempts.end(task(8), 2000)
    assert attempts.begin(task(9)) == Attempt(2000, is_first=True)


def test_a_task_that_ends_after_later_ones_changes_nothing() -> None:
    attempts = written((task(7), 1000), (task(8), 2000), (task(6), 9000))
    assert attempts.begin(task(9)) == Attempt(2000, is_first=True)
    assert attempts.begin(task(8)) == Attempt(1000, is_first=True)
    attempts.end(None, 9000)
    assert attempts.begin(task(9)) == Attempt(2000, is_first=True)


def test_the_runs_that_a_process_remembers_are_limited() -> None:
    attempts = written((task(7), 1000))
    for number in range(63):
        attempts.end(task(7, run=f"run {number}"), 1000)
    assert attempts.begin(task(8)) == Attempt(1000, is_first=True)
    attempts.end(task(8), 2000)
    for number in range(63, 200):
        attempts.end(task(7, run=f"run {number}"), 1000)
    assert attempts.begin(task(9)) == WAITS, "it counts as new"
    assert attempts.begin(task(8, run="run 199")) == Attempt(1000, is_first=True)
    assert len(attempts._runs) == 64


PROPERTIES = {"spark.jobGroup.id": RUN, "streaming.sql.batchId": "8"}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (PROPERTIES, StreamTask(RUN, 8, 5, 1, speculates=False)),
        ({**PROPERTIES, "spark.speculation": "false"}, StreamTask(RUN, 8, 5, 1, speculates=False)),
        ({**PROPERTIES, "spark.speculation": "TRUE"}, StreamTask(RUN, 8, 5, 1, speculates=True)),
        ({**PROPERTIES, "spark.speculation": "perhaps"}, StreamTask(RUN, 8, 5, 1, speculates=True)),
        ({"streaming.sql.batchId": "8"}, None),
        ({"spark.jobGroup.id": RUN}, None),
        ({}, None),
        *(
            ({**PROPERTIES, "streaming.sql.batchId": text}, None)
            for text in ("", "-1", "8.0", "eight", "٨", "9" * 19)
        ),
    ],
)
def test_a_task_is_known_by_its_properties(
    properties: Mapping[str, str], expected: StreamTask | None
) -> None:
    assert StreamTask.of(properties.get, stage=5, attempt=1) == expected
