"""Log lines in Spark's Python processes, without Spark."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_sdk.spark import logs
from kinesis_sdk.spark.logs import ProcessLog


class Loggers:
    """A root logger, a logger of the package below it, and the output of the package's handler."""

    def __init__(self) -> None:
        manager = logging.Manager(logging.RootLogger(logging.WARNING))  # type: ignore[arg-type] # as logging does it
        self.root: logging.Logger = manager.root
        self.package = manager.getLogger("kinesis_sdk")
        self.package.manager = manager
        self.module = manager.getLogger("kinesis_sdk.spark.planner")
        self.output = io.StringIO()
        self.process_log = ProcessLog(self.package, self.root, self.output)

    def lines(self) -> list[str]:
        return self.output.getvalue().splitlines()


@pytest.fixture
def loggers() -> Loggers:
    return Loggers()


def test_a_line_has_time_level_logger_stream_and_task(loggers: Loggers) -> None:
    loggers.process_log.configure("orders, stage 3, partition 1, attempt 2", None)
    loggers.module.warning("falls behind by %d s", 7)
    (line,) = loggers.lines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING kinesis_sdk\.spark\.planner "
        r"\[orders, stage 3, partition 1, attempt 2\] falls behind by 7 s",
        line,
    )


def test_info_needs_the_level(loggers: Loggers) -> None:
    loggers.process_log.configure("orders, planner", None)
    loggers.module.info("hidden")
    loggers.process_log.configure("orders, planner", "info")
    loggers.module.info("shown")
    assert [line.rpartition("] ")[2] for line in loggers.lines()] == ["shown"]


def test_the_level_of_a_query_does_not_stay_in_a_worker_that_is_used_again(loggers: Loggers) -> None:
    loggers.process_log.configure("orders, task", "info")
    loggers.process_log.configure("flights, task", None)
    loggers.module.info("hidden")
    loggers.module.warning("shown")
    assert [line.partition(" [")[2] for line in loggers.lines()] == ["flights, task] shown"]


def test_a_level_that_the_user_set_stays(loggers: Loggers) -> None:
    loggers.package.setLevel(logging.DEBUG)
    loggers.process_log.configure("orders, task", None)
    loggers.module.debug("shown")
    assert len(loggers.lines()) == 1


@pytest.mark.parametrize("owner", ["root", "package"])
def test_handlers_of_others_take_precedence_whenever_they_come(loggers: Loggers, owner: str) -> None:
    theirs = io.StringIO()
    handler = logging.StreamHandler(theirs)
    loggers.process_log.configure("orders, task", "info")
    getattr(loggers, owner).addHandler(handler)
    loggers.module.info("theirs")
    getattr(loggers, owner).removeHandler(handler)
    loggers.module.info("ours")
    assert theirs.getvalue() == "theirs\n"
    assert [line.rpartition("] ")[2] for line in loggers.lines()] == ["ours"]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Let this process look as if Spark had started it; yields its main module."""
    package = logging.getLogger("kinesis_sdk")
    before = package.level, list(package.handlers)
    main = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(logs, "_process_log", None)
    monkeypatch.delenv(logs.LEVEL_VARIABLE, raising=False)
    yield main
    package.setLevel(before[0])
    for handler in [one for one in package.handlers if one not in before[1]]:
        package.removeHandler(handler)


@pytest.mark.parametrize(
    ("name", "is_spark"),
    [
        ("pyspark.daemon", True),
        ("pyspark.worker", True),
        ("pyspark.sql.worker.create_data_source", True),
        ("pyspark.sql.streaming.python_streaming_source_runner", True),
        ("pytest", False),
        ("job", False),
        ("pyspark.pipelines.cli", False),
        (None, False),
    ],
)
def test_only_processes_of_spark_are_configured(process: Any, name: str | None, is_spark: bool) -> None:
    process.__spec__ = None if name is None else SimpleNamespace(name=name)
    assert logs.in_spark_process() is is_spark
    logs.configure("orders", "planner", level="info")
    assert any(isinstance(one, ProcessLog) for one in logging.getLogger("kinesis_sdk").handlers) is is_spark
    if not is_spark:
        assert logging.getLogger("kinesis_sdk").level == logging.NOTSET


@pytest.mark.usefixtures("process")
def test_the_option_counts_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    package = logging.getLogger("kinesis_sdk")
    monkeypatch.setenv(logs.LEVEL_VARIABLE, " Info ")
    logs.configure("orders", "planner")
    assert package.level == logging.INFO
    logs.configure("orders", "planner", level="error")
    assert package.level == logging.ERROR


@pytest.mark.usefixtures("process")
def test_an_unknown_level_in_the_environment_is_reported_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(logs.LEVEL_VARIABLE, "verbose")
    logs.configure("orders", "planner")
    assert (
        "KINESIS_SDK_LOG_LEVEL='verbose' is not a level: expected debug, info, warning, error" in caplog.text
    )
    assert logging.getLogger("kinesis_sdk").level == logging.NOTSET


@pytest.mark.usefixtures("process")
def test_one_handler_however_many_tasks() -> None:
    for _ in range(3):
        logs.configure("orders")
    found = [one for one in logging.getLogger("kinesis_sdk").handlers if isinstance(one, ProcessLog)]
    assert len(found) == 1


def test_a_task_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(partitionId=lambda: 4, attemptNumber=lambda: 1, stageId=lambda: 9)
    pyspark = SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: context))
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)
    assert logs.current_task() == "partition 4, attempt 2"
    assert logs._task() == "stage 9, partition 4, attempt 2"
    monkeypatch.setitem(
        sys.modules, "pyspark", SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: None))
    )
    assert logs.current_task() == ""
    assert logs._task() == "task"
