"""Defects on purpose, one of each kind that the oracle has to find. `tests/mutants` has many more, for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch
from weakref import WeakSet

from kinesis_sdk.common.position import Latest
from kinesis_sdk.consumer.fetch.fanout import FanOutFetcher
from kinesis_sdk.consumer.shard.consumer import ShardConsumer
from kinesis_sdk.consumer.shard.state import ShardState
from kinesis_sdk.consumer.sinks.dynamodb import DynamoDBSink
from kinesis_sdk.consumer.sinks.memory import InMemorySink, InMemoryTransaction


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


def _begin_at_once(self: Any, now: float) -> float:
    """A child begins while its parents are still processed."""
    self.state = ShardState.INITIALIZING
    self._recovered(now)
    return now


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

MUTATIONS: dict[str, Mutation] = {
    "sinks without a fence": Mutation(_no_fence, _TWICE + _LOST, 95),
    "effects before the check": Mutation(_effects_before_the_check, _TWICE, 8),
    "subscriptions are renewed at the tip": Mutation(_renewed_at_the_tip, _LOST, 166),
    "children do not wait for their parents": Mutation(
        lambda: patch.object(ShardConsumer, "_wait_on_parents", _begin_at_once), _ORDER, 50
    ),
}
"""By what is wrong."""
