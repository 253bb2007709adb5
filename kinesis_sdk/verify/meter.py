"""Counts the cost of a run, call by call and always rounded up, and stops the run at its limits."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import AdminError
from kinesis_sdk.verify.prices import PRICES

_PUT_UNIT = 25 * 1024
_WRITE_UNIT = 1024
_READ_UNIT = 4096
_HOUR = 3600.0
_DEFAULT_SHARDS = 4
"""Shards of a stream that is created without a number."""
_WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"})
_READS = frozenset({"GetItem", "Query", "Scan", "BatchGetItem"})


class LimitReachedError(AdminError):
    """A run would exceed its maximum cost or its maximum time. The next call was not made."""


@dataclass
class _Stream:
    """A billed stream: every shard that it ever had counts until the stream is deleted."""

    made: list[float] = field(default_factory=list)
    readers: list[float] = field(default_factory=list)
    retained: list[float] = field(default_factory=list)
    on_demand: list[float] = field(default_factory=list)
    open: int = 0
    consumers: int = 0
    deleted: float | None = None

    def bills(self) -> Iterator[tuple[str, list[float]]]:
        """Yield the units that are billed by the hour, with the times at which they began."""
        yield "shard_hour", self.made
        yield "fan_out_hour", self.readers
        yield "retention_hour", self.retained
        yield "on_demand_hour", self.on_demand


class Meter:
    """The bill of one run. Thread-safe.

    Streams and tables are billed for a whole hour when they are created; each call is counted before it is made.

    Args:
        max_usd: Amount that the run may cost; a call that would exceed it raises `LimitReachedError`.
        max_seconds: Time that the run may take.
        clock: Monotonic clock.
        factor: Factor of the prices in this region.
    """

    def __init__(self, *, max_usd: float, max_seconds: float, clock: Clock, factor: float = 1.0) -> None:
        self.max_usd = max_usd
        self.max_seconds = max_seconds
        self._clock = clock
        self._factor = factor
        self._lock = threading.RLock()
        self._began = clock.monotonic()
        self._calls: Counter[str] = Counter()
        self._units: Counter[str] = Counter()
        self._streams: dict[str, _Stream] = {}

    @property
    def calls(self) -> dict[str, int]:
        """Number of calls so far, by operation."""
        with self._lock:
            return dict(sorted(self._calls.items()))

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return self._clock.monotonic() - self._began

    def units(self) -> dict[str, float]:
        """Return the billed units so far, by the names of `PRICES`; units of zero are left out."""
        with self._lock:
            found = Counter(self._units)
            now = self._clock.monotonic()
            for stream in self._streams.values():
                end = now if stream.deleted is None else stream.deleted
                for name, begins in stream.bills():
                    found[name] += sum(max(1, math.ceil((end - begin) / _HOUR)) for begin in begins)
            return {name: found[name] for name in PRICES if found[name]}

    @property
    def usd(self) -> float:
        """US dollars so far."""
        return sum(amount * PRICES[name].usd for name, amount in self.units().items()) * self._factor

    def check(self, more: Mapping[str, float] | None = None) -> None:
        """Raise `LimitReachedError` if the run has taken too long, or would cost too much with these units."""
        if self.seconds > self.max_seconds:
            raise LimitReachedError(f"the run has reached its time limit of {self.max_seconds:.0f} s")
        usd = (
            self.usd + sum(amount * PRICES[name].usd for name, amount in (more or {}).items()) * self._factor
        )
        if usd > self.max_usd:
            raise LimitReachedError(
                f"the next call would bring the costs to {usd:.4f} of {self.max_usd:g} USD"
            )

    def reserve(self, **units: float) -> None:
        """Bill units of calls that are not counted here, by the names of `PRICES`, before they are made.

        Raises:
            LimitReachedError: If the units would cost too much; they are then not billed.
        """
        with self._lock:
            self.check(units)
            self._units.update(units)

    def begin(self, operation: str, request: Mapping[str, Any], stream: str | None) -> None:
        """Count a call that is about to be made. ``stream`` is the name of its stream, if it names one.

        Raises:
            LimitReachedError: If the call must not be made.
        """
        with self._lock:
            used = Counter(dict(_units_of(operation, request)))
            made = Counter(dict(self._hours_of(operation, request, stream)))
            self.check(used + made)
            self._calls[operation] += 1
            self._units.update(used)

    def end(self, operation: str, request: Mapping[str, Any], stream: str | None, response: object) -> None:
        """Bill the resources that a successful call created, and the bytes of its response."""
        with self._lock:
            if operation in _READS:
                self._units["read_unit"] += math.ceil((len(repr(response)) + 1) / _READ_UNIT)
            if stream is None:
                return
            hours = dict(self._hours_of(operation, request, stream))
            found = self._streams.setdefault(stream, _Stream())
            now = self._clock.monotonic()
            for name, begins in found.bills():
                begins.extend([now] * int(hours.get(name, 0)))
            found.open = _open_after(operation, request, found.open)
            if operation == "RegisterStreamConsumer":
                found.consumers += 1
            elif operation == "DeleteStream":
                found.deleted = now

    def _hours_of(
        self, operation: str, request: Mapping[str, Any], stream: str | None
    ) -> Iterator[tuple[str, int]]:
        """Yield the units whose billing by the hour begins."""
        known = self._streams.get(stream or "", _Stream())
        shards = 0
        if operation == "CreateStream":
            if (request.get("StreamModeDetails") or {}).get("StreamMode") == "ON_DEMAND":
                yield "on_demand_hour", 1
            else:
                shards = int(request.get("ShardCount") or _DEFAULT_SHARDS)
        elif operation == "SplitShard":
            shards = 2
        elif operation == "MergeShards":
            shards = 1
        elif operation == "UpdateShardCount":
            target = int(request["TargetShardCount"])
            # A doubling splits each shard once. Any other change makes shards that are merged again.
            shards = target if target == 2 * known.open else target + known.open
        elif operation == "RegisterStreamConsumer":
            yield "fan_out_hour", known.open
        elif operation == "IncreaseStreamRetentionPeriod":
            yield "retention_hour", known.open
        elif operation == "UpdateStreamMode":
            yield "on_demand_hour", 1
        if shards:
            yield "shard_hour", shards
            if known.consumers:
                yield "fan_out_hour", shards * known.consumers


def _open_after(operation: str, request: Mapping[str, Any], before: int) -> int:
    """Return the number of open shards after a successful call."""
    if operation == "CreateStream":
        return int(request.get("ShardCount") or _DEFAULT_SHARDS)
    if operation == "UpdateShardCount":
        return int(request["TargetShardCount"])
    return before + {"SplitShard": 1, "MergeShards": -1}.get(operation, 0)


def _units_of(operation: str, request: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the units that a call uses, whether it succeeds or not."""
    if operation in ("PutRecord", "PutRecords"):
        entries = request["Records"] if operation == "PutRecords" else [request]
        yield "put_unit", sum(math.ceil((len(one.get("Data", b"")) + 1) / _PUT_UNIT) for one in entries)
    elif operation in _WRITES:
        size = len(json.dumps(request, default=lambda value: value.hex() if isinstance(value, bytes) else ""))
        items = sum(map(len, request.get("RequestItems", {}).values())) + len(
            request.get("TransactItems", ())
        )
        yield "write_unit", 2 * (math.ceil(size / _WRITE_UNIT) + items)
    elif operation in ("GetShardIterator", "GetRecords") and "StreamArn" in request:
        yield "table_stream_read", 1
