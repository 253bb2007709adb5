from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_sdk.common.records import UserRecord, position_of
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.shard.watermark import RECORD_OVERHEAD, WatermarkTracker


def record(number, size=1):
    return UserRecord(b"x" * size, "k", str(number // 3 + 1), None, None, number % 3, None, True)


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_the_watermark_is_the_end_of_the_finished_beginning(seed, count):
    rng = Random(seed)
    ledger = WatermarkTracker()
    records, done, left = [], set(), []
    while len(records) < count or left:
        if len(records) < count and (not left or rng.random() < 0.5):
            made = [record(len(records) + n, rng.randint(0, 5)) for n in range(rng.randint(0, 3))]
            ticket = ledger.extend(made)
            assert ticket == len(records)
            left.extend(range(ticket, ticket + len(made)))
            records.extend(made)
        else:
            some = [left.pop(rng.randrange(len(left))) for _ in range(rng.randint(1, len(left)))]
            ledger.finish(some)
            done.update(some)
        prefix = 0
        while prefix in done:
            prefix += 1
        assert ledger.watermark == (position_of(records[prefix - 1]) if prefix else None)
        assert ledger.base == prefix
        assert len(ledger) == len(records) - prefix
        assert ledger.outstanding_bytes == sum(len(r.data) + RECORD_OVERHEAD for r in records[prefix:])
    assert ledger.watermark == position_of(records[-1])
    assert ledger.outstanding_bytes == 0


@pytest.mark.parametrize("tickets", [[5], [-1], [0, 0], [1, 0]])
def test_a_ticket_that_is_not_open_is_refused(tickets):
    ledger = WatermarkTracker()
    ledger.extend([record(number) for number in range(3)])
    if tickets == [1, 0]:
        ledger.finish([0])
    with pytest.raises(ValueError, match="is not open"):
        ledger.finish(tickets)


def test_positions_carry_the_sub_sequence_number():
    assert position_of(record(4)) == ExtendedSequenceNumber("2", 1)
