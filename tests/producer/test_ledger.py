"""Accounts of what is held: they add up whatever is put, settled, flushed or interrupted in between."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from kinesis_sdk.producer.ledger import Ledger, callback_runs
from kinesis_sdk.producer.record import PendingRecord
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


def held(ledger: Ledger, count: int, cost: int, own_epochs: tuple[int, ...] = ()) -> Held:
    """Charge records, the first of which were put in other epochs."""
    records: list[PendingRecord] = [make_record() for _ in range(count)]
    for record, epoch in zip(records, own_epochs, strict=False):
        record.own_epoch = epoch
    for _ in records:
        ledger.charge(cost)
    return Held(records, cost * count, ledger.epoch, bool(own_epochs))


@pytest.mark.parametrize("seed", range(20))
def test_epochs_add_up(seed: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger(10**9, None)
    live: list[Held] = []
    for _ in range(300):
        action = rng.random()
        if action < 0.5:
            live.append(held(ledger, rng.randrange(1, 5), rng.randrange(700, 900)))
        elif action < 0.8:
            rng.shuffle(live)
            gone, live = live[:3], live[3:]
            if len(gone) == 3 and rng.random() < 0.5:  # retries: records of several epochs in one
                records = [record for item in gone for record in item.records]
                for record, epoch in zip(records, [e for item in gone for e in item.epochs], strict=True):
                    record.own_epoch = epoch
                live.append(Held(records, sum(item.cost for item in gone), ledger.epoch, True))
            else:
                for item in gone:
                    ledger.release(item)
        elif action < 0.95:
            epoch = ledger.epoch
            assert ledger.end_epoch() == epoch
            assert ledger.epoch == epoch + 1
        else:
            ledger.recount(live)
        epochs = [epoch for item in live for epoch in item.epochs]
        assert (ledger.count, ledger.bytes) == (len(epochs), sum(item.cost for item in live))
        for epoch in range(ledger.epoch + 1):
            assert ledger.left(epoch) == sum(other <= epoch for other in epochs)
        assert all(ledger.outstanding.values())
        assert set(ledger.outstanding) == set(epochs)


def test_an_epoch_whose_end_was_interrupted_ends_again() -> None:
    ledger = Ledger(10**9, None)
    first = held(ledger, 3, 701)
    assert ledger.end_epoch() == 0
    ledger.epoch = 0  # the last step did not happen
    second = held(ledger, 2, 702)
    assert ledger.left(0) == 5
    ledger.release(first)
    assert ledger.end_epoch() == 0
    assert ledger.left(0) == 2
    ledger.release(second)
    assert ledger.left(1) == ledger.count == ledger.bytes == 0
    assert not ledger.outstanding


def test_callbacks_count_for_the_flushes_that_wait_for_their_records() -> None:
    ledger = Ledger(10**6, None)
    first, second, third = (make_record() for _ in range(3))
    first.own_epoch = 0
    holding = Held([first, second, third], 0, 1, mixed=True)
    runs = {run.epoch: run for run in callback_runs([first, second, third], holding)}
    assert {epoch: run.left for epoch, run in runs.items()} == {0: 1, 1: 2}
    ledger.callbacks.update(dict.fromkeys(runs.values()))
    assert [ledger.left(epoch) for epoch in (-1, 0, 1)] == [0, 1, 3]
    assert ledger.open_callbacks == 3
    for record in (second, third):
        record.add_done_callback(lambda _: None)
    runs[1].run()
    assert [ledger.left(epoch) for epoch in (0, 1)] == [1, 1]
