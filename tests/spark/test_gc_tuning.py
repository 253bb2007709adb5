from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest

from kinesis_sdk.spark import gc_tuning
from kinesis_sdk.spark.gc_tuning import exclude_loaded_objects, rare_collections


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the collector is asked to do, in a process that has not run a task yet. It does nothing: its heap is that of all tests."""
    asked: list[str] = []
    collector = SimpleNamespace(
        collect=lambda: asked.append("collect"), freeze=lambda: asked.append("freeze")
    )
    monkeypatch.setattr(gc_tuning, "gc", collector)
    monkeypatch.setattr(gc_tuning, "_frozen_in", None)
    return asked


def test_objects_that_exist_at_the_first_task_are_excluded_from_collections_without_the_garbage(
    asked: list[str],
) -> None:
    exclude_loaded_objects()
    assert asked == ["collect", "freeze"]
    exclude_loaded_objects()
    assert asked == ["collect", "freeze"], "a later task's own objects are collected as usual"


def test_a_forked_process_excludes_its_own_objects(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    exclude_loaded_objects()
    monkeypatch.setattr("os.getpid", lambda: -1)
    for _ in range(2):
        exclude_loaded_objects()
    assert asked == ["collect", "freeze"] * 2


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
