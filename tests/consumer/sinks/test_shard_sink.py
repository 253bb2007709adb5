"""One acquisition of a shard, without a worker: what it believes of its row after claims, and after commits whose answer was lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kinesis_sdk.common.errors import LeaseLostError, TransientSinkError
from kinesis_sdk.common.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from kinesis_sdk.consumer.sinks.shard_sink import ShardSink, finished
from kinesis_sdk.consumer.sinks.sink import SinkRow
from kinesis_sdk.testing.contracts.sinks import KEY
from tests.consumer.leases.held_lease import at
from tests.consumer.sinks.coroutines import AsyncMemory


class Held:
    """A held lease, whose renewals succeed while it is not lost."""

    key = shard_id = KEY.lease_key
    gone = None

    def __init__(self, counter, *, is_lost=False):
        self.lease = Lease(
            lease_key=KEY.lease_key,
            owner="w1",
            counter=counter,
            checkpoint=ExtendedSequenceNumber(TRIM_HORIZON),
        )
        self.is_lost = is_lost
        self.renewals = 0

    def renew(self):
        if self.is_lost:
            raise LeaseLostError("another worker has it")
        self.renewals += 1
        self.lease = replace(self.lease, counter=self.lease.counter + 1)

    def mark_lost(self, reason):
        self.gone = reason


class Lossy(InMemorySink):
    """The answers of the next commits are lost, whether they take effect or not."""

    def __init__(self):
        super().__init__()
        self.lost = []
        self.error = TransientSinkError("no answer")

    def translate(self, error):
        return TransientSinkError(str(error)) if isinstance(error, ConnectionError) else error

    def change(self, key, seen, row, effects):
        if not effects or not self.lost:
            return super().change(key, seen, row, effects)
        if self.lost.pop(0):
            super().change(key, seen, row, effects)
        raise self.error


@pytest.fixture(params=[InMemorySink, AsyncMemory])
def sink(request):
    return request.param()


def rows_of(sink):
    return getattr(sink, "inner", sink).rows


def claim(sink, held):
    shard = ShardSink(sink, KEY, held)
    return asyncio.run(shard.claim())


def test_a_claim_takes_the_lease_counter_as_its_fence(sink):
    held = Held(5)
    assert claim(sink, held) == rows_of(sink)[KEY] == SinkRow(None, 5)
    held.lease = replace(held.lease, counter=8)
    assert claim(sink, held) == rows_of(sink)[KEY] == SinkRow(None, 8)
    assert held.renewals == 0


@pytest.mark.parametrize("fence", [5, 9])
def test_a_claim_that_meets_a_fence_not_below_its_own_asks_for_the_lease_first(sink, fence):
    """The row may be that of the next owner, who must not be fenced by one who has lost the lease without knowing it."""
    rows_of(sink)[KEY] = SinkRow(at(7), fence)
    with pytest.raises(LeaseLostError):
        claim(sink, Held(5, is_lost=True))
    assert rows_of(sink)[KEY] == SinkRow(at(7), fence)
    held = Held(5)
    assert claim(sink, held) == rows_of(sink)[KEY] == SinkRow(at(7), max(fence + 1, 6))
    assert held.renewals == 1


def test_a_claim_that_loses_a_race_reads_the_row_again():
    sink = InMemorySink()
    write = sink.write

    def race(key, seen, row):
        sink.write = write
        assert write(key, seen, SinkRow(at(3), 1))
        return write(key, seen, row)

    sink.write = race
    assert claim(sink, Held(5)) == SinkRow(at(3), 5)


def claimed(sink):
    shard = ShardSink(sink, KEY, Held(5))
    finished(shard.claim())
    return shard


def commit(shard, number):
    transaction = finished(shard.begin())
    transaction.handle.append(number)
    finished(shard.commit(transaction, at(number)))


@pytest.mark.parametrize("error", [TransientSinkError("no answer"), ConnectionError("of the store's own")])
@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_transaction_begins_with_what_became_of_a_commit_without_an_answer(takes_effect, error):
    """Its caller asks for the position, to leave out the records that were committed."""
    sink = Lossy()
    sink.error = error
    shard = claimed(sink)
    sink.lost = [takes_effect]
    with pytest.raises(TransientSinkError):
        commit(shard, 7)
    assert shard.row.position is None
    transaction = finished(shard.begin())
    assert shard.row.position == (at(7) if takes_effect else None)
    transaction.rollback()
    commit(shard, 8)
    assert sink.rows[KEY] == shard.row == SinkRow(at(8), 5)
    assert sink.effects == ([7, 8] if takes_effect else [8])
    assert shard._held.gone is None


def test_the_row_of_a_commit_that_failed_is_not_taken_for_its_own_after_a_later_one():
    """It cannot take effect any more. If the row looks like that, an operator has written it."""
    sink = Lossy()
    shard = claimed(sink)
    sink.lost = [False]
    with pytest.raises(TransientSinkError):
        commit(shard, 7)
    commit(shard, 8)
    sink.rows[KEY] = SinkRow(at(7), 5)
    with pytest.raises(LeaseLostError):
        commit(shard, 9)
    assert "not at 8/0" in shard._held.gone
    assert sink.effects == [8]


def test_a_commit_never_sets_back_what_it_does_not_change():
    sink = Lossy()
    shard = claimed(sink)
    commit(shard, 7)
    for ended in (True, False):
        transaction = finished(shard.begin())
        finished(shard.commit(transaction, ended=ended))
        assert sink.rows[KEY] == SinkRow(at(7), 5, ended=True)


def test_a_row_that_is_gone_or_anothers_ends_the_acquisition():
    for row in (None, SinkRow(at(7), 6), SinkRow(at(7), 5, ended=True)):
        sink = Lossy()
        shard = claimed(sink)
        commit(shard, 7)
        if row is None:
            del sink.rows[KEY]
        else:
            sink.rows[KEY] = row
        with pytest.raises(LeaseLostError):
            commit(shard, 8)
        assert shard._held.gone
        assert sink.effects == [7]
