"""Fleets with the sink in memory: each record takes effect once, whatever crashes, freezes or gets lost."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import pytest

from kinesis_sdk.common.errors import TransientSinkError
from kinesis_sdk.consumer.sinks.memory import InMemorySink
from tests.consumer.sinks.books import Books, Unreliable
from tests.fuzz import seeds


class TranslatingSink(InMemorySink):
    """A sink whose connections are lost."""

    def translate(self, error):
        return TransientSinkError(str(error)) if isinstance(error, ConnectionError) else error


@lru_cache(maxsize=4)
def play(seed):
    return Books(seed, sink=Unreliable(TranslatingSink(), Random(seed))).play()


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(unit=3, fuzz=60))
def test_each_record_takes_effect_once(seed):
    books = play(seed)
    books.check(books.sink.effects)
    assert all(
        books.sink.rows[key].ended == books.fleet.store.get(key.lease_key).is_finished
        for key in books.sink.rows
        if books.fleet.store.get(key.lease_key) is not None
    )


def test_the_schedules_have_what_they_are_for():
    all_books = [play(seed) for seed in range(2)]
    assert sum(books.count - 2 for books in all_books) >= 4, "crashes"
    assert sum(books.frozen for books in all_books) >= 4, "freezes"
    assert sum(books.sink.lost_answers for books in all_books) >= 4
    assert sum(books.sink.failures for books in all_books) >= 4
