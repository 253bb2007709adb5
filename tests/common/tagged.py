"""Aggregates whose first record has tags: tables of runs, and tags that nothing of ours writes."""

from __future__ import annotations

from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.once.identity import Identity
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.table import Run, encode_table

from . import reference
from .reference import message

STREAM, SHARD = "orders", "shardId-000000000003"


def value_of(counts: list[int]) -> str:
    return encode_table(
        STREAM,
        SHARD,
        [Run(count, 4, 1, bytes(8), 1_700_000_000_000, number) for number, count in enumerate(counts)],
    )


def identity(number: int) -> Identity:
    """Identity of a record that may be stored; the next number continues its run."""
    return Identity(b"producer", number, 1_700_000_000_000)


def runs_in(aggregate: Aggregate) -> Runs:
    assert aggregate.runs is not None
    return aggregate.runs


def forged(sealed: bytes, *tags: tuple[str, str], count: int = 1) -> bytes:
    """An aggregate with such tags on its first record."""
    found = message([("k", None, sealed)] * count)
    for key, value in tags:
        found.records[0].tags.add(key=key, value=value)
    return reference.seal(found.SerializeToString())
