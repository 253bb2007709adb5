"""Interface of all readers of a shard: polling, prefetching and enhanced fan-out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.shards import Shard


def _nothing() -> None:
    return None


def _free(count: int) -> None:
    del count


@dataclass(frozen=True, kw_only=True)
class FetchResult:
    """Result of one fetch.

    Attributes:
        records: Kinesis records in order; may be empty.
        header: Members of the response other than the records; `NO_RESPONSE` if no call was made.
        started_at_millis: Time that a LATEST start was resolved to, in epoch milliseconds by the clock of Kinesis; None
            for other starts, or if Kinesis sent no date.
        pushed: Whether the result is a fan-out event. The creation time of an event is unknown, because events may wait in transit.
        on_done: Called once the records are no longer in memory; returns their bytes to the budget.
        charge: Called with the bytes that the user records currently take in addition to the Kinesis records.
    """

    records: list[KinesisRecord]
    header: ResponseHeader
    started_at_millis: int | None = None
    pushed: bool = False
    on_done: Callable[[], None] = field(default=_nothing, compare=False, repr=False)
    charge: Callable[[int], None] = field(default=_free, compare=False, repr=False)

    @property
    def waiting_since(self) -> float | None:
        """Monotonic time at which the oldest record arrived at Kinesis; None if unknown."""
        arrivals = self.header.arrivals
        return None if arrivals is None else arrivals.of(self.records[0])


def record_read(metrics: BoundMetrics, result: FetchResult, size: int) -> None:
    """Record the metrics of a response with ``size`` payload bytes, which may be empty."""
    behind = result.header.millis_behind_latest
    if behind is not None:
        metrics.add(catalogue.MILLIS_BEHIND_LATEST, behind)
    if result.records:
        metrics.add(catalogue.RECORDS_READ, len(result.records))
        metrics.add(catalogue.DATA_BYTES_READ, size)


class Fetcher(Protocol):
    """Reads one shard in order. Used by one thread at a time."""

    @property
    def due(self) -> float:
        """Monotonic time before which `fetch` should not be called."""
        ...

    @property
    def waiting(self) -> FetchResult | None:
        """Result that `fetch` returns next; None if it is not yet read. Thread-safe."""
        ...

    def fetch(self, now: float) -> FetchResult:
        """Return the next records. After an error, the position is unchanged and the next call retries.

        Raises:
            AwsError: If a call failed. Throttled and transient failures are retryable; `due` includes the backoff.
            ProtocolError: If a response is malformed; retryable.
        """
        ...

    def close(self) -> None:
        """Stop reading and release connections."""
        ...


@runtime_checkable
class KnowsStart(Protocol):
    """A fetcher that has the time of a LATEST start before the first `fetch`."""

    @property
    def started_at_millis(self) -> int | None:
        """See `FetchResult.started_at_millis`."""
        ...


class SizedFetcher(Fetcher, KnowsStart, Protocol):
    """A fetcher whose `fetch` makes a call, with a known bound on the size of the response."""

    def expected_bytes(self, now: float) -> int:
        """Return the maximum bytes in memory that the next `fetch` adds."""
        ...

    def listen(self, wake: Callable[[], None]) -> None:
        """Call ``wake``, from any thread, when `due` becomes earlier; until `close`."""
        ...


def read_child_shards(items: object, parent: str) -> tuple[Shard, ...]:
    """Return the ``ChildShards`` of a response; any value other than a list means that there are none.

    A child without parents or hash key range raises `ProtocolError` (KCL ``DataFetcher.isValidResult``).
    """
    return tuple(_read_child(item, parent) for item in (items if isinstance(items, list) else ()))


def _read_child(item: Mapping[str, Any], parent: str) -> Shard:
    try:
        parents = list(item["ParentShards"])
        ranges = item["HashKeyRange"]
        if not all(isinstance(shard_id, str) and shard_id for shard_id in (item["ShardId"], *parents)):
            raise TypeError("a shard id must be text")
        child = Shard(
            shard_id=item["ShardId"],
            hash_key_range=HashKeyRange(int(ranges["StartingHashKey"]), int(ranges["EndingHashKey"])),
            parent_shard_id=parents[0],
            adjacent_parent_shard_id=parents[1] if len(parents) > 1 else None,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"shard {parent}: the description of a child shard is incomplete ({type(error).__name__}: {error})"
        ) from error
    return child
