"""Accounts of what is held: they add up whatever is put, settled, flushed or interrupted in between."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from kinesis_sdk.producer.io.buffer_usage import BufferUsage, callback_runs
from kinesis_sdk.producer.records.future import PendingRecord
from tests.fuzz import seeds
from tests.producer.support import make_record


class Held(NamedTuple):
    """Records that are charged together."""

    records: list[PendingRecord]
    cost: int
    epoch: int
    mixed: bool

    @property
    def epochs(self) -> list[int]:
        return [self.epoch if record.own_epoch is None else record.own_epoch for record in self.records]


def held(usage: BufferUsage, count: int, cost: int, own_epochs: tuple[int, ...] = ()) -> Held:
    """Charge records, the first of which were put in other epochs."""
    records: list[PendingRecord] = [make_record() for _ in range(count)]
    for record, epoch in zip(records, own_epochs, strict=False):
        record.own_epoch = epoch
    for _ in records:
        usage.charge(cost)
    return Held(records, cost * count, usage.epoch, bool(own_epochs))


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=6, fuzz=100))
def test_epochs_add_up(seed: int) -> None:
    rng = random.Random(seed)
    usage = BufferUsage(10**9, None)
    live: list[Held] = []
    for _ in range(300):
        action = rng.random()
        if action < 0.5:
            live.append(held(usage, rng.randrange(1, 5), rng.randrange(700, 900)))
        elif action < 0.8:
            rng.shuffle(live)
            gone, live = live[:3], live[3:]
            if len(gone) == 3 and rng.random() < 0.5:  # retries: records of several epochs in one
                records = [record for item in gone for record in item.records]
                for record, epoch in zip(records, [e for item in gone for e in item.epochs], strict=True):
                    record.own_epoch = epoch
                live.append(Held(records, sum(item.cost for item in gone), usage.epoch, True))
            else:
                for item in gone:
                    usage.release(item)
        else:
            epoch = usage.epoch
            assert usage.end_epoch() == epoch
            assert usage.epoch == epoch + 1
        epochs = [epoch for item in live for epoch in item.epochs]
        assert (usage.count, usage.bytes) == (len(epochs), sum(item.cost for item in live))
        for epoch in range(usage.epoch + 1):
            assert usage.left(epoch) == sum(other <= epoch for other in epochs)
        assert all(usage.outstanding.values())
        assert set(usage.outstanding) == set(epochs)


def test_an_epoch_whose_end_was_interrupted_ends_again() -> None:
    usage = BufferUsage(10**9, None)
    first = held(usage, 3, 701)
    assert usage.end_epoch() == 0
    usage.epoch = 0  # the last step did not happen
    second = held(usage, 2, 702)
    assert usage.left(0) == 5
    usage.release(first)
    assert usage.end_epoch() == 0
    assert usage.left(0) == 2
    usage.release(second)
    assert usage.left(1) == usage.count == usage.bytes == 0
    assert not usage.outstanding


def test_callbacks_count_for_the_flushes_that_wait_for_their_records() -> None:
    usage = BufferUsage(10**6, None)
    first, second, third = (make_record() for _ in range(3))
    first.own_epoch = 0
    charged = Held([first, second, third], 0, 1, mixed=True)
    runs = {run.epoch: run for run in callback_runs([first, second, third], charged)}
    assert {epoch: run.left for epoch, run in runs.items()} == {0: 1, 1: 2}
    usage.callbacks.update(dict.fromkeys(runs.values()))
    assert [usage.left(epoch) for epoch in (-1, 0, 1)] == [0, 1, 3]
    assert usage.open_callbacks == 3
    for record in (second, third):
        record.add_done_callback(lambda _: None)
    runs[1].run()
    assert [usage.left(epoch) for epoch in (0, 1)] == [1, 1]
