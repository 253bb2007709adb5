"""What recognition drops, found by a search of everything that is stored: the oracle of the property tests."""

from __future__ import annotations

from kinesis_sdk.common.aggregate_reader import open_aggregate
from kinesis_sdk.common.once.reader import EARLY_MILLIS, _earliest
from kinesis_sdk.common.once.table import FIRST, NAMED, Run, decode_table
from kinesis_sdk.common.records import KinesisRecord
from tests.common.once.streams import (
    STREAM,
    Position,
    Stream,
    in_order,
)


def _users(record: KinesisRecord) -> list[Run]:
    """Return the run of each user record, with one record and its own number."""
    columns = open_aggregate(record.data)
    assert columns is not None
    assert columns.tag is not None
    table = decode_table(columns.tag, STREAM, len(columns.payloads))
    assert table is not None
    return [run._replace(number=run.number + index) for run in table.runs for index in range(run.count)]


def _ancestors(stream: Stream, shard_id: str) -> set[str]:
    parents = stream.shards[shard_id].parents
    return {*parents, *(one for parent in parents for one in _ancestors(stream, parent))}


def dropped_by_search(stream: Stream) -> set[Position]:
    """Return what is dropped, by a search of everything that is stored before each record: the oracle."""
    copies: dict[tuple[bytes, int | None, int], list[tuple[str, int]]] = {}
    found = set()
    for shard_id in in_order(stream.shards.values()):
        path = {shard_id, *_ancestors(stream, shard_id)}
        for record in stream.logs[shard_id]:
            at = record.approximate_arrival_timestamp
            assert at is not None
            arrival = round(at.timestamp() * 1000)
            for sub, run in enumerate(_users(record)):
                key = (run.incarnation, None if run.flags & NAMED else run.date, run.number)
                earlier = copies.setdefault(key, [])
                is_late = arrival >= run.date + run.holdoff * 1000 - EARLY_MILLIS
                if is_late or run.flags not in {0, NAMED | FIRST}:
                    since = _earliest(run, arrival)
                    if any(shard in path and other >= since for shard, other in earlier):
                        found.add((shard_id, record.sequence_number, sub))
                earlier.append((shard_id, arrival))
    return found
