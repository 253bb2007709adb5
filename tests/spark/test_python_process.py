from __future__ import annotations

import gc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from zipimport import zipimporter

import pytest

from kinesis_sdk.spark import python_process
from kinesis_sdk.spark.python_process import (
    finders_of_fixed_archives,
    is_reused,
    lasting_objects,
    rare_collections,
    settle,
)

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""Main module of the process that plans batches."""


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The main module: that of a process which Spark's daemon has forked."""
    main = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))
    with monkeypatch.context() as patch:  # pytest itself needs its own main module afterwards
        patch.setitem(python_process.sys.modules, "__main__", main)
        yield main


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the collector is asked to do, in a process that has had no request yet. It does nothing: its heap is that of all tests."""
    asked: list[str] = []
    names = ("collect", "freeze", "disable", "enable")
    collector = SimpleNamespace(
        isenabled=lambda: "disable" not in asked,
        **{name: lambda name=name: asked.append(name) for name in names},
    )
    monkeypatch.setattr(python_process, "gc", collector)
    monkeypatch.setattr(python_process, "_frozen_in", None)
    return asked


@pytest.mark.usefixtures("main")
def test_objects_that_exist_at_the_first_request_are_excluded_from_collections_without_the_garbage(
    asked: list[str],
) -> None:
    settle()
    assert asked == ["collect", "freeze"]
    settle()
    assert asked == ["collect", "freeze"], "a later task's own objects are collected as usual"


@pytest.mark.usefixtures("main")
def test_a_forked_process_excludes_its_own_objects(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    settle()
    monkeypatch.setattr("os.getpid", lambda: -1)
    for _ in range(2):
        settle()
    assert asked == ["collect", "freeze"] * 2


@pytest.mark.parametrize("name", [PLANNER, "job", None])
def test_nothing_changes_in_a_process_with_one_request_or_of_the_user(
    main: SimpleNamespace, asked: list[str], finders: dict[str, object], name: str | None
) -> None:
    main.__spec__ = None if name is None else SimpleNamespace(name=name)
    before = dict(finders)
    settle()
    assert not is_reused() and asked == [] and finders == before


@pytest.fixture
def finders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Python's path finders: of two archives and a folder, one archive on PYTHONPATH."""
    for name in ("spark.zip", "added.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("package/inner/module.py", "")
    paths = ["spark.zip", "spark.zip/package", "spark.zip/package/inner", "added.zip", "added.zip/package"]
    finders: dict[str, object] = {str(tmp_path / path): zipimporter(str(tmp_path / path)) for path in paths}
    finders[str(tmp_path)] = object()
    monkeypatch.setattr(python_process.sys, "path_importer_cache", finders)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'spark.zip'}::{tmp_path}")
    return finders


@pytest.mark.usefixtures("main", "asked")
def test_each_request_forgets_the_finders_of_archives_that_cannot_change(
    finders: dict[str, object], tmp_path: Path
) -> None:
    kept = {str(tmp_path / path) for path in ("added.zip", "added.zip/package", ".")}
    fixed = set(finders) - kept
    assert set(finders_of_fixed_archives(finders, "")) == set()
    for _ in range(2):
        settle()
        assert set(finders) == kept, "addPyFile may change the others"
        finders.update((path, zipimporter(path)) for path in fixed)  # an import in the request


@pytest.mark.parametrize(("name", "steps"), [(PLANNER, ["disable", "freeze", "enable"]), ("job", [])])
def test_what_a_process_of_spark_keeps_is_never_traversed(
    main: SimpleNamespace, asked: list[str], name: str, steps: list[str]
) -> None:
    main.__spec__.name = name
    with pytest.raises(OSError, match="no client"), lasting_objects():
        assert asked == steps[:1]
        raise OSError("no client")
    assert asked == steps
    with lasting_objects():
        pass
    assert "enable" not in asked[3:], "the fake collector is off now, as the user may want it"


def test_thresholds_are_restored_and_never_lowered() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        with rare_collections():
            assert gc.get_threshold()[0] > 700
        assert gc.get_threshold() == (700, 10, 10)
        gc.set_threshold(1_000_000, 10, 10)
        with rare_collections():
            assert gc.get_threshold() == (1_000_000, 10, 10)
    finally:
        gc.set_threshold(*before)
