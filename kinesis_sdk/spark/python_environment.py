"""The Python environment in which Spark runs this package.

Spark runs data sources in separate processes, on the driver as well as on the executors. Their interpreter is ``PYSPARK_PYTHON``, or the
``python3`` on the ``PATH`` if this is not set. If a program is started as ``/venv/bin/python job.py`` without activating the environment,
that ``python3`` is a Python without this package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.spark.tasks import DEFAULT_MAX_TASKS, MAX_TASKS

_VARIABLE = "PYSPARK_PYTHON"
MAX_TASKS_VARIABLE = "KINESIS_SDK_MAX_TASKS"
"""Environment variable of Spark's Python processes that contains the number of tasks that suits the cluster."""

_TASKS_PER_SLOT = 2
"""The number is two, so that one slow task does not delay a batch for long."""

_NEEDED = ("kinesis_sdk", "pyarrow")
_TIMEOUT = 60.0


def use_this_environment(spark: Any) -> None:
    """Make sure that the Python processes that Spark starts can import this package.

    The choice of the user is never changed. If there is none and the master is ``local``, where all processes run on this
    machine, the session gets the interpreter of this process. Sessions of Spark Connect are not changed, because their server chooses the
    interpreter.

    Raises:
        ConfigError: If the interpreter of the session cannot import this package, and only the user can change that.
    """
    context = _classic_context(spark)
    if context is None:
        return
    missing = missing_modules(context.pythonExec)
    if not missing:
        return
    if _VARIABLE not in os.environ and context.master.startswith("local"):
        context.pythonExec = sys.executable
        return
    raise ConfigError(
        _VARIABLE,
        os.environ.get(_VARIABLE),
        f"a Python with {' and '.join(missing)}: Spark runs the data source with {context.pythonExec!r}. "
        f"Set the environment variable before the session starts, for this program to {sys.executable}",
    )


def pass_on_parallelism(spark: Any) -> None:
    """Pass the number of tasks that suits the cluster to the planning processes of a session.

    Spark passes a data source in Python no information about the cluster, but it passes the environment of the session. On a
    ``local`` master the number is two tasks per slot. A cluster may have registered few of its executors when the
    session starts, so on a cluster two tasks per known slot count only if they exceed the default. For a session of Spark Connect, this
    does nothing.
    """
    context = _classic_context(spark)
    if context is None:
        return
    tasks = _TASKS_PER_SLOT * context.defaultParallelism
    if not context.master.startswith("local") or context.master.startswith("local-cluster"):
        tasks = max(DEFAULT_MAX_TASKS, tasks)
    context.environment[MAX_TASKS_VARIABLE] = str(min(tasks, MAX_TASKS))


def max_tasks_of_session() -> int:
    """Return the number of tasks that `pass_on_parallelism` passed to this process, or the default."""
    text = os.environ.get(MAX_TASKS_VARIABLE, "")
    return (
        int(text) if text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_TASKS else DEFAULT_MAX_TASKS
    )


def _classic_context(spark: Any) -> Any:
    """Return the SparkContext of a session, or None for a session of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    return spark.sparkContext


def missing_modules(python: str) -> list[str]:
    """Return which of the needed modules an interpreter cannot find. ``python`` is its command, looked up on the ``PATH``.

    The list is also empty if the interpreter does not run on this machine, because then only Spark can start it.
    """
    code = (
        "import importlib.util, sys; print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n) is None])"
    )
    # Spark adds the files of --py-files and addPyFile to the path of its processes; here they are on our own path.
    files = [path for path in sys.path if path.lower().endswith((".zip", ".egg", ".jar"))]
    paths = os.pathsep.join([*files, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        asked = subprocess.run(  # noqa: S603 - the interpreter that Spark would start
            [python, "-c", code, *_NEEDED],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return asked.stdout.split()
