from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kinesis_sdk.spark import gc_tuning
from kinesis_sdk.spark.gc_tuning import exclude_loaded_objects, rare_collections


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has not run a task yet."""
    gc.unfreeze()
    monkeypatch.setattr(gc_tuning, "_frozen_in", None)
    yield
    gc.freeze()  # as tests/conftest.py left it: later collections would walk all tests and modules


def test_objects_that_exist_at_the_first_task_are_excluded_from_collections(fresh: None) -> None:
    exclude_loaded_objects()
    excluded = gc.get_freeze_count()
    assert excluded > 10_000, "modules and classes"
    later = [[] for _ in range(1_000)]  # type: ignore[var-annotated]
    exclude_loaded_objects()
    assert gc.get_freeze_count() <= excluded, "a later task's own objects are collected as usual"
    assert len(later) == 1_000


def test_a_forked_process_excludes_its_own_objects(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    exclude_loaded_objects()
    gc.unfreeze()
    monkeypatch.setattr("os.getpid", lambda: -1)
    exclude_loaded_objects()
    assert gc.get_freeze_count() > 10_000


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
