"""What reads a shard: one interface for polling and enhanced fan-out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol, runtime_checkable

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.metrics import BoundMetrics
from kinesis_sdk.common.records import KinesisRecord
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.common.shards import Shard

AT_SEQUENCE_NUMBER = "AT_SEQUENCE_NUMBER"
"""Kind of a position that is a record itself."""


@dataclass(frozen=True)
class Position:
    """Where reading starts, in the API's words.

    Attributes:
        kind: ``TRIM_HORIZON``, ``LATEST``, ``AT_TIMESTAMP``, ``AT_SEQUENCE_NUMBER`` or
            ``AFTER_SEQUENCE_NUMBER``.
        sequence_number: For the last two.
        timestamp_millis: For ``AT_TIMESTAMP``, epoch milliseconds.
    """

    kind: str
    sequence_number: str | None = None
    timestamp_millis: int | None = None

    @classmethod
    def trim_horizon(cls) -> Position:
        """The oldest record."""
        return cls(TRIM_HORIZON)

    @classmethod
    def latest(cls) -> Position:
        """After the newest record."""
        return cls(LATEST)

    @classmethod
    def at_timestamp(cls, millis: int) -> Position:
        """The first record that arrived at an instant or later."""
        return cls(AT_TIMESTAMP, timestamp_millis=millis)

    @classmethod
    def at_sequence_number(cls, sequence_number: str) -> Position:
        """A record itself."""
        return cls(AT_SEQUENCE_NUMBER, sequence_number)

    @classmethod
    def after_sequence_number(cls, sequence_number: str) -> Position:
        """The record after one."""
        return cls("AFTER_SEQUENCE_NUMBER", sequence_number)

    @property
    def request(self) -> dict[str, Any]:
        """Parameters of GetShardIterator."""
        parameters: dict[str, Any] = {"ShardIteratorType": self.kind}
        if self.sequence_number is not None:
            parameters["StartingSequenceNumber"] = self.sequence_number
        if self.timestamp_millis is not None:
            parameters["Timestamp"] = datetime.fromtimestamp(self.timestamp_millis / 1000, timezone.utc)
        return parameters

    def __str__(self) -> str:
        detail = self.sequence_number if self.sequence_number is not None else self.timestamp_millis
        return self.kind if detail is None else f"{self.kind} {detail}"


def _nothing() -> None:
    return None


def _free(count: int) -> None:
    del count


@dataclass(frozen=True, kw_only=True)
class FetchResult:
    """What one fetch brought.

    Attributes:
        records: Kinesis records in order; may be empty.
        header: What the response says besides its records; `NO_RESPONSE` if no call was made.
        started_at_millis: The instant that a LATEST start was resolved to, in epoch milliseconds of the
            service's clock; None for other starts, or if the service did not tell.
        on_done: Called once the records are not in memory any more; gives their bytes back.
        charge: Called with the bytes that its user records take beyond the Kinesis records at present.
    """

    records: list[KinesisRecord]
    header: ResponseHeader
    started_at_millis: int | None = None
    on_done: Callable[[], None] = field(default=_nothing, compare=False, repr=False)
    charge: Callable[[int], None] = field(default=_free, compare=False, repr=False)

    @property
    def waiting_since(self) -> float | None:
        """Monotonic time at which its oldest record arrived at the service; None if that is not known."""
        arrivals = self.header.arrivals
        return None if arrivals is None else arrivals.of(self.records[0])


def record_read(metrics: BoundMetrics, result: FetchResult, size: int) -> None:
    """Record an answer of the service, empty ones included.

    Args:
        metrics: Metrics of the shard.
        result: The answer.
        size: Bytes of its records' payload.
    """
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
        """The answer that `fetch` returns next, if it was read already. From any thread."""
        ...

    def fetch(self, now: float) -> FetchResult:
        """The next records.

        After an error the position is unchanged: the next call repeats.

        Raises:
            AwsError: Throttled and transient failures are retryable; `due` carries the backoff.
            ProtocolError: The answer breaks the service's contract; retryable.
        """
        ...

    def close(self) -> None:
        """Give up connections."""
        ...


@runtime_checkable
class KnowsStart(Protocol):
    """A fetcher that knows what a LATEST start means before anything is fetched."""

    @property
    def started_at_millis(self) -> int | None:
        """See `FetchResult.started_at_millis`."""
        ...


class SizedFetcher(Fetcher, KnowsStart, Protocol):
    """A fetcher whose `fetch` makes a call: it can say beforehand how much that may bring."""

    def expected_bytes(self, now: float) -> int:
        """Bytes in memory that the next `fetch` brings at most."""
        ...


def read_child_shards(items: object, parent: str) -> tuple[Shard, ...]:
    """The ``ChildShards`` of an answer.

    Raises:
        ProtocolError: A child without parents or range (KCL ``DataFetcher.isValidResult``).
    """
    return tuple(_read_child(item, parent) for item in (items if isinstance(items, list) else ()))


def _read_child(item: Mapping[str, Any], parent: str) -> Shard:
    try:
        parents = list(item["ParentShards"])
        ranges = item["HashKeyRange"]
        if not all(isinstance(shard_id, str) and shard_id for shard_id in (item["ShardId"], *parents)):
            raise TypeError("a shard id is not text")
        child = Shard(
            shard_id=item["ShardId"],
            hash_key_range=HashKeyRange(int(ranges["StartingHashKey"]), int(ranges["EndingHashKey"])),
            parent_shard_id=parents[0],
            adjacent_parent_shard_id=parents[1] if len(parents) > 1 else None,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"shard {parent}: a child shard is described incompletely ({type(error).__name__}: {error})"
        ) from error
    return child
