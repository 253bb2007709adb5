"""Log lines of this package in Spark's Python processes, where neither Spark nor the user configures logging.

Without this module, Python's handler of last resort prints warnings without time, level and logger, and never shows INFO messages. Spark
starts these processes itself, so the driver program cannot configure them. They write to standard error,
which Spark passes on to the standard error of the driver (planner and commits) or of the executor (tasks).

Logging of the driver program is never changed. In Spark's processes, other handlers take precedence: this handler writes no line as long
as the root logger or the logger ``kinesis_sdk`` has another handler. This includes the handler of Spark's
own worker logging (``spark.sql.pyspark.worker.logging.enabled``, Spark 4.1 and later).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any, TextIO

LEVEL_VARIABLE = "KINESIS_SDK_LOG_LEVEL"
"""Environment variable with the level for processes whose reader or writer does not set the option ``logLevel``."""

LEVELS = ("debug", "info", "warning", "error")

_PACKAGE = "kinesis_sdk"
_LOGGER = logging.getLogger(__name__)


class ProcessLog(logging.Handler):
    """Handler for the package's logger in one process of Spark; ``output`` defaults to standard error."""

    def __init__(self, package: logging.Logger, root: logging.Logger, output: TextIO | None = None) -> None:
        super().__init__()
        self._lines: logging.Handler = logging.StreamHandler(output or sys.__stderr__)
        self._package = package
        self._root = root
        self._context = ""
        self._level_set: int | None = None
        formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s [%(where)s] %(message)s")
        formatter.converter = time.gmtime
        formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
        formatter.default_msec_format = "%s.%03dZ"
        self._lines.setFormatter(formatter)

    def configure(self, where: str, level: str | None) -> None:
        """Set the name of the process's current role, and the level.

        ``where`` is the text in brackets in each line: the stream, and the task or the role of the process. ``level`` is one of `LEVELS`;
        None keeps the level of the logging module, whose default is WARNING.
        """
        self._context = where
        if self not in self._package.handlers:
            self._package.addHandler(self)
        if level is not None:
            self._level_set = getattr(logging, level.upper())
            self._package.setLevel(self._level_set)
        elif self._level_set is not None and self._package.level == self._level_set:
            # Workers are reused: the level of another query's task must not persist.
            self._level_set = None
            self._package.setLevel(logging.NOTSET)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as a line."""
        self._lines.handle(record)

    def flush(self) -> None:
        """Flush the output."""
        self._lines.flush()

    def filter(self, record: logging.LogRecord) -> bool:
        """Skip records that another handler shows; add the context to all others."""
        if self._root.handlers or any(handler is not self for handler in self._package.handlers):
            return False
        record.where = self._context
        return bool(super().filter(record))


_process_log: ProcessLog | None = None


def in_spark_process() -> bool:
    """Return whether Spark started this Python process, rather than the user."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = "" if spec is None else spec.name
    return name in {"pyspark.daemon", "pyspark.worker"} or name.startswith("pyspark.sql.")


def current_task() -> str:
    """Return the partition and the attempt of the current task, as text; empty outside of a task."""
    context = _task_context()
    if context is None:
        return ""
    return f"partition {context.partitionId()}, attempt {context.attemptNumber() + 1}"


def is_retry() -> bool:
    """Return whether this code runs in a retried task."""
    context = _task_context()
    return context is not None and context.attemptNumber() > 0


def _task_context() -> Any:
    pyspark = sys.modules.get("pyspark")
    return pyspark.TaskContext.get() if pyspark is not None else None


def configure(stream: str, role: str | None = None, *, level: str | None = None) -> None:
    """Configure logging of the package in a process of Spark; do nothing in any other process.

    ``role`` is the role of the process (``planner``, ``commit``); None if it runs a task. ``level`` is the option
    ``logLevel``; None uses the environment variable ``KINESIS_SDK_LOG_LEVEL``.
    """
    global _process_log  # noqa: PLW0603 — one handler per process
    if not in_spark_process():
        return
    wanted = level or os.environ.get(LEVEL_VARIABLE, "").strip().lower() or None
    unknown = wanted is not None and wanted not in LEVELS
    if _process_log is None:
        _process_log = ProcessLog(logging.getLogger(_PACKAGE), logging.getLogger())
    _process_log.configure(f"{stream}, {role or _task()}", None if unknown else wanted)
    if unknown:
        _LOGGER.warning(
            "%s=%r is not a level: expected %s; WARNING is used", LEVEL_VARIABLE, wanted, ", ".join(LEVELS)
        )


def _task() -> str:
    context = _task_context()
    return "task" if context is None else f"stage {context.stageId()}, {current_task()}"
