"""The checked lease table that all simulated fleets share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import Lease
from tests.consumer.fleet.table import LeaseTable


def test_the_table_rejects_writes_that_break_an_invariant():
    table = LeaseTable([Lease(lease_key="s", checkpoint=ExtendedSequenceNumber("5"), counter=3)])
    (row,) = table.list()
    with pytest.raises(AssertionError):
        table._swap(row, lambda lease: replace(lease, counter=lease.counter + 2))
    table = LeaseTable([row])
    with pytest.raises(AssertionError):
        table.checkpoint(row, ExtendedSequenceNumber("4"))
    table = LeaseTable([row])
    seen = []
    table.on_write.append(lambda before, after: seen.append((before.owner, after.owner)))
    taken = table.take(row, "a")
    table.renew(taken)
    table.take(row, "b")  # loses: the counter has moved
    assert seen == [(None, "a"), ("a", "a")]
    assert (table.writes, table.transfers) == (2, 1)
