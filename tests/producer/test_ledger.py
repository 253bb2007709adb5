"""Accounts of what is held: they add up whatever is put, settled, flushed or interrupted in between."""

from __future__ import annotations

import random

import pytest

from kinesis_sdk.producer.ledger import Ledger
from kinesis_sdk.producer.record import PendingRecord
from tests.producer.support import make_record


@pytest.mark.parametrize("seed", range(20))
def test_epochs_add_up(seed: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger(10**9, None)
    live: list[PendingRecord] = []
    for _ in range(300):
        action = rng.random()
        if action < 0.5:
            record = make_record("k" * rng.randrange(1, 5), bytes(rng.randrange(9)))
            ledger.charge(record)
            live.append(record)
        elif action < 0.8:
            rng.shuffle(live)
            gone, live = live[:3], live[3:]
            ledger.release(gone)
        elif action < 0.95:
            epoch = ledger.epoch
            assert ledger.end_epoch() == epoch
            assert ledger.epoch == epoch + 1
        else:
            ledger.recount(live)
        assert (ledger.count, ledger.bytes) == (len(live), sum(record.cost for record in live))
        for epoch in range(ledger.epoch + 1):
            assert ledger.left(epoch) == sum(record.epoch <= epoch for record in live)
        assert all(ledger.outstanding.values())
        assert set(ledger.outstanding) == {record.epoch for record in live}


def test_an_epoch_whose_end_was_interrupted_ends_again() -> None:
    ledger = Ledger(10**9, None)
    records = [make_record() for _ in range(5)]
    for record in records[:3]:
        ledger.charge(record)
    assert ledger.end_epoch() == 0
    ledger.epoch = 0  # the last step did not happen
    for record in records[3:]:
        ledger.charge(record)
    assert ledger.left(0) == 5
    ledger.release(records[:1])
    assert ledger.end_epoch() == 0
    assert ledger.left(0) == 4
    ledger.release(records[1:])
    assert ledger.left(1) == ledger.count == ledger.bytes == 0
    assert not ledger.outstanding
