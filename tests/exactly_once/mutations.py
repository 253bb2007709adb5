"""Defects on purpose: what a sink, a reader or a producer without one of its rules would do. The oracle has to find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch
from weakref import WeakSet

from kinesis_sdk.common.once import memory, reader, stamps
from kinesis_sdk.common.position import Latest
from kinesis_sdk.common.records import position_of
from kinesis_sdk.consumer.fetch.fanout import FanOutFetcher
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.consumer.shard.state import ShardState
from kinesis_sdk.consumer.sinks.dynamodb import DynamoDBSink
from kinesis_sdk.consumer.sinks.handler import SinkHandler
from kinesis_sdk.consumer.sinks.memory import InMemorySink, InMemoryTransaction
from kinesis_sdk.consumer.sinks.shard_sink import finished
from kinesis_sdk.producer.failures.spool import FileSpool
from tests.exactly_once.workers import Application


@contextmanager
def _no_fence() -> Iterator[None]:
    """Rows are changed whatever they hold, so a worker that was frozen through a take-over commits."""

    def change(self: Any, key: Any, seen: Any, row: Any, effects: list[Any]) -> bool:
        del seen
        self.rows[key] = row
        self.effects += effects
        return True

    put = DynamoDBSink._put

    def without_condition(self: Any, key: Any, seen: Any, row: Any) -> dict[str, Any]:
        request = put(self, key, seen, row)
        return {name: request[name] for name in ("TableName", "Item")}

    with patch.object(InMemorySink, "change", change), patch.object(DynamoDBSink, "_put", without_condition):
        yield


@contextmanager
def _effects_before_the_check() -> Iterator[None]:
    """Effects are stored first, and the position under its condition after them."""

    def commit(self: Any, row: Any) -> bool:
        self._sink.effects += self.handle
        return bool(self._sink.change(self._key, self._seen, row, []))

    with patch.object(InMemoryTransaction, "commit", commit):
        yield


@contextmanager
def _position_before_the_effects() -> Iterator[None]:
    """The position is stored first, in a transaction of its own."""

    def process(self: Any, batch: Any) -> Any:
        if batch.records:
            finished(self._shard.commit(finished(self._shard.begin()), position_of(batch.records[-1])))
        transaction = finished(self._shard.begin())
        self._inner.process_records(replace(batch, transaction=transaction.handle))
        finished(self._shard.commit(transaction, None))
        return None

    with patch.object(SinkHandler, "process_records", process):
        yield


def _begin_at_once(self: Any, now: float) -> float:
    """A child begins while its parents are still processed."""
    self.state = ShardState.INITIALIZING
    self._recovered(now)
    return now


@contextmanager
def _no_hold_off() -> Iterator[None]:
    """Producers repeat at once what may be stored, and tell readers that they would have waited."""
    keep = stamps.Stamps.keep

    def keep_without(self: Any, entry: Any) -> None:
        keep(self, entry)
        if entry.aggregate.runs is not None:
            entry.aggregate.runs.held_until = float("-inf")

    at_once = property(lambda _self: float("-inf"))
    with (
        patch.object(stamps.Stamps, "keep", keep_without),
        patch.object(stamps.Identity, "held_until", at_once),
    ):
        yield


@contextmanager
def _spool_without_identities() -> Iterator[None]:
    """What a spool holds is put again as another record."""
    write = FileSpool.__call__

    def without(self: Any, record: Any) -> None:
        write(self, replace(record, identity=None))

    with patch.object(FileSpool, "__call__", without):
        yield


@contextmanager
def _ended_rows_are_deleted_early() -> Iterator[None]:
    """The rows of finished shards are deleted while their leases can still be set back."""
    rewind = Application.rewind

    def without_rows(self: Any, rng: Any) -> None:
        sink = getattr(self.database.sink, "inner", self.database.sink)
        if isinstance(sink, InMemorySink):
            for key in [key for key, row in sink.rows.items() if row.ended]:
                del sink.rows[key]
        rewind(self, rng)

    with patch.object(Application, "rewind", without_rows):
        yield


@contextmanager
def _renewed_at_the_tip() -> Iterator[None]:
    """A subscription that ended is renewed at the tip of the shard."""
    subscribe, began = FanOutFetcher._subscribe, WeakSet[FanOutFetcher]()

    def at_the_tip(self: FanOutFetcher, now: float, position: Any) -> Any:
        again = self in began
        began.add(self)
        return subscribe(self, now, Latest() if again else position)

    with patch.object(FanOutFetcher, "_subscribe", at_the_tip):
        yield


def _patched(owner: Any, name: str, value: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(owner, name, value)


class Mutation(NamedTuple):
    """A defect.

    Attributes:
        made: Makes it, for as long as it is entered.
        finding: How the oracle's message begins.
        first_seed: A seed whose schedule finds it.
    """

    made: Callable[[], AbstractContextManager[Any]]
    finding: tuple[str, ...]
    first_seed: int = 0


_TWICE, _LOST, _ORDER = ("TWICE",), ("LOST",), ("ORDER",)
_ANY = _TWICE + _LOST

MUTATIONS: dict[str, Mutation] = {
    "sinks without a fence": Mutation(_no_fence, _ANY, 95),
    "effects before the check": Mutation(_effects_before_the_check, _TWICE, 8),
    "position before the effects": Mutation(_position_before_the_effects, _ANY, 63),
    "rows of finished shards are deleted early": Mutation(_ended_rows_are_deleted_early, _TWICE, 52),
    "subscriptions are renewed at the tip": Mutation(_renewed_at_the_tip, _LOST, 166),
    "lost commits are made again": Mutation(
        _patched(SinkHandler, "_missing", lambda _self, records: records), _TWICE, 1
    ),
    "children do not wait for their parents": Mutation(
        _patched(ShardConsumer, "_wait_on_parents", _begin_at_once), _ORDER, 50
    ),
    "no look-ups": Mutation(_patched(reader.RunReader, "look_up", lambda *_: None), _TWICE, 10),
    "memory without positions": Mutation(_patched(memory.Segment, "_limit", lambda *_: 1 << 60), _LOST, 38),
    "late copies are not suspect": Mutation(_patched(reader, "EARLY_MILLIS", -(10**9)), _TWICE, 32),
    "misplaced copies are delivered": Mutation(
        _patched(reader.RunReader, "_drop_misplaced", lambda *_: True), _TWICE, 10
    ),
    "misplaced copies count in look-ups": Mutation(
        _patched(reader.LookUp, "_is_valid", lambda *_: True), _LOST, 57
    ),
    "no hold-off": Mutation(_no_hold_off, _TWICE, 63),
    "spools without identities": Mutation(_spool_without_identities, _TWICE, 60),
}
"""By what is wrong."""
