"""Lower CPU overhead of the Python processes of Spark.

Records in flight are many objects without cycles. By default Python's collector traverses the young objects after every 700
allocations, and from time to time all objects of a Spark worker. This is a fifth of the CPU time of writing. In a process that starts to
plan
batches, it would traverse all modules that Spark has imported: 20 ms of CPU.

Workers, and the processes that create and plan a read or a write, serve many requests. Between two requests, Spark itself does more work
than a small request needs:

- After each request it traverses all objects. Most of them belong to modules and to the client, which live as
  long as the process: 95,000 objects, 40 ms of CPU. Once a process has made the objects that it keeps, all objects that exist then are
  excluded from collections.
- Before each request, Spark 4.0 and 4.1 make Python read the tables of contents of archives again, in case ``addPyFile`` has changed an
  archive: once for each package that was imported from it. Spark starts its processes with ``pyspark.zip`` and a jar of 6,000 files on the
  path: 100 ms of CPU. The path finders of these archives, which nothing changes while a process runs, are removed from Python's cache.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from zipimport import zipimporter

from kinesis_sdk.spark.logs import in_spark_process

_THRESHOLDS = (50_000, 20, 100)
"""Allocations until the young objects are collected, and rounds until the older objects are collected. The collector stays on,
because some objects do form cycles, such as an exception and its frames.
"""

_frozen_in: int | None = None
"""Process whose long-lived objects are excluded from collections."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect less often within a with statement, in a process that runs one task at a time.

    Higher thresholds, set by the user's own code, are kept.
    """
    before = gc.get_threshold()
    if 0 < before[0] < _THRESHOLDS[0]:
        gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def lasting_objects() -> Iterator[None]:
    """Do not collect garbage within a with statement that creates a Spark process's lasting objects, and never traverse them later.

    Nothing changes in other processes.
    """
    if not in_spark_process():
        yield
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def settle() -> None:
    """Make further requests to this process cheaper, if Spark uses it again.

    Call it in each request, once everything that later requests also use is imported and created.
    """
    global _frozen_in  # noqa: PLW0603 — a fact about the process
    if not is_reused():
        return
    for path in finders_of_fixed_archives(sys.path_importer_cache, os.environ.get("PYTHONPATH", "")):
        sys.path_importer_cache.pop(path, None)
    if _frozen_in == os.getpid():
        return
    _frozen_in = os.getpid()
    # Reference counting still releases the frozen objects. Only a cycle among them that becomes garbage later stays until the process ends.
    gc.collect()  # cycles that are already garbage must not stay
    gc.freeze()


def is_reused() -> bool:
    """Return whether this process runs one request of Spark after another, because Spark's daemon has forked it."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"


def finders_of_fixed_archives(finders: Mapping[str, object], python_path: str) -> list[str]:
    """Return the keys of the finders that search an archive with which this process was started.

    The importer makes a finder again when it needs one, from the table of contents that it has read once. Archives of ``addPyFile`` are
    not on ``PYTHONPATH``.

    Args:
        finders: Finders by path, as in ``sys.path_importer_cache``.
        python_path: Value of ``PYTHONPATH``.
    """
    archives = set(filter(None, python_path.split(os.pathsep)))
    return [
        path
        for path, finder in list(finders.items())
        if isinstance(finder, zipimporter) and finder.archive in archives
    ]
