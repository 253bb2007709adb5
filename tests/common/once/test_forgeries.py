"""Randomly forged tables cost readers no more steps per byte read than the known attacks do."""

from __future__ import annotations

import pytest

from kinesis_sdk.common.once import memory as memory_module
from kinesis_sdk.common.once.memory import MAX_SEALED, Recollection, RunMemory
from tests.common.once.forgeries import EPOCH, forge
from tests.common.once.steps import steps_of
from tests.fuzz import seeds, share

STEPS_PER_BYTE = 7.0
"""A run takes 38 bytes, so that is fewer steps for each run than `test_forged_tables.py` allows."""


@pytest.mark.fuzz
@pytest.mark.parametrize("size", [10, 60])
@pytest.mark.parametrize("seed", seeds(unit=15, fuzz=3_000))
def test_no_forgery_costs_many_steps_for_its_bytes(seed: int, size: int) -> None:
    forgery = forge(seed, size)
    steps = steps_of(forgery.play)
    assert steps <= STEPS_PER_BYTE * forgery.read_bytes


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", [*share([70_015_921, 70_001_246], unit=1), *seeds(unit=0, fuzz=500)])
def test_many_forged_records_cost_what_a_full_memory_does(seed: int) -> None:
    """With these seeds, arrivals that are not known keep as many segments as there may be."""
    forgery = forge(seed, 300)
    steps = steps_of(forgery.play)
    assert steps <= STEPS_PER_BYTE * forgery.read_bytes


def search_steps(memory: RunMemory) -> int:
    return steps_of(lambda: memory.parts(b"key-%010d" % 0, (7, 7), 10**9, 0, 0))


def test_an_unknown_arrival_does_not_keep_all_that_follows_it() -> None:
    """Its segment is never too old, and segments are forgotten in order."""
    memory = RunMemory()
    memory.since, memory.first = EPOCH, 0
    for index in range(2 * MAX_SEALED):
        memory.begin(index, EPOCH + 11_000 * index if index else None, b"%016d" % index)
        memory.add_run(b"key-%010d" % index, 7, 1, 0)
    assert len(memory) <= MAX_SEALED + 1
    assert memory.since > EPOCH, "what was forgotten is looked up"
    assert memory.first > 0
    assert search_steps(memory) < 8 * MAX_SEALED


def test_segments_that_take_many_bytes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "_LARGE", 1000)
    memory = RunMemory()
    memory.since, memory.first = EPOCH, 0
    for index in range(2 * MAX_SEALED):
        for run in range(10):
            at = EPOCH + 11_000 * index if index else None
            memory.begin(10 * index + run, at, b"%016d" % run)
            memory.add_run(b"key-%010d" % index, 7 * run, 1, 0)
    assert (memory.since, memory.first) == (EPOCH, 0)


def test_a_look_up_over_a_day_of_few_records_brings_no_segment_for_each() -> None:
    found = Recollection()
    found.begin_shard()
    for index in range(2 * MAX_SEALED):
        found.begin(index, EPOCH + 61_000 * index, b"%016d" % index)
        found.add_run(b"key-%010d" % index, 7, 1, 0)
    memory = RunMemory()
    memory.restore(found.finish(), EPOCH, 0)
    assert 0 < len(memory) <= MAX_SEALED
    assert memory.first == MAX_SEALED, "the oldest are forgotten"
    assert memory.since == EPOCH + 61_000 * (MAX_SEALED - 1) + 1, "and looked up if they are asked for"
    assert memory.shortage(EPOCH) is None, "the bytes are enough"
    assert search_steps(memory) < 8 * MAX_SEALED
