"""Seeded faults, which define the calls that fail, the kind of failure, and its frequency.

A fault is a filter and an effect. The same seed, faults and calls lead to the same failures.

| kind | effect |
| --- | --- |
| `throttle` | the whole call is rejected: ProvisionedThroughputExceededException (`code` changes it) |
| `partial` | single entries of PutRecords fail; PutRecord and the record of a chosen shard likewise. With `seconds`, the record is stored that much later anyway, and the code is InternalFailure |
| `error` | an HTTP 500 or 503 (`status`), InternalFailure or ServiceUnavailable (`code` changes it) |
| `slow` | the response takes `seconds` longer |
| `timeout_after_storing` | the call is carried out, the caller gets no response |
| `timeout_before_storing` | the call is not carried out, the caller gets no response |
| `late_store` | PutRecords or PutRecord is carried out `seconds` later; the caller gets no response now, or the error `code` with `status` |
| `expired_iterator` | GetRecords raises ExpiredIteratorException |
| `expired_credentials` | ExpiredTokenException |
| `conditional` | a conditional write fails although its condition holds |
| `empty_read` | GetRecords returns no records and an iterator for the same position; MillisBehindLatest is positive if records follow |
| `broken_stream` | the connection of a subscription breaks instead of an event |
| `early_arrival` | a stored record's approximate arrival time is `seconds` too early, so that times in its shard are not monotonic |
| `torn_listing` | ListShards or DescribeStream omits the last shard of its response, as if it were read in the middle of a reshard |
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from kinesis_sdk.testing.errors import AwsError

FaultKind = Literal[
    "throttle",
    "partial",
    "error",
    "slow",
    "timeout_after_storing",
    "timeout_before_storing",
    "late_store",
    "expired_iterator",
    "expired_credentials",
    "conditional",
    "empty_read",
    "broken_stream",
    "early_arrival",
    "torn_listing",
]

_ONLY = {
    "partial": ("PutRecords", "PutRecord"),
    "expired_iterator": ("GetRecords",),
    "empty_read": ("GetRecords",),
    "broken_stream": ("SubscribeToShard",),
    "early_arrival": ("PutRecords", "PutRecord"),
    "late_store": ("PutRecords", "PutRecord"),
    "torn_listing": ("ListShards", "DescribeStream"),
    "conditional": ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"),
}

# Kinds that affect a part of a call: one entry or one event.
_OF_PARTS = ("partial", "broken_stream", "early_arrival")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. See the module's table for the kinds.

    Raises:
        ValueError: If the filter does not fit the kind.
    """

    kind: FaultKind
    """Effect; see the module's table."""
    operation: str | None = None
    """Operation name as in the API, for example ``PutRecords``; None matches every operation."""
    probability: float = 1.0
    """Probability of a failure for each matching call; for `partial` and `early_arrival`, for each entry; for `broken_stream`, for each
    event."""
    stream: str | None = None
    """Stream or table name."""
    shard_id: str | None = None
    """Shard that the call reads, or to which it writes for `partial` and `early_arrival`."""
    count: int | None = None
    """Maximum number of failures; None is unlimited."""
    after: int = 0
    """Number of matching calls, entries or events that succeed first."""
    code: str | None = None
    """Error code; by default the code of the kind."""
    message: str | None = None
    """Error message; by default the message of the kind."""
    status: int = 500
    """HTTP status of `error`, and of `late_store` with a code."""
    seconds: float = 0.0
    """Seconds by which `slow` delays a call, by which `early_arrival` is too early, or after which `late_store` and `partial` store."""

    def __post_init__(self) -> None:
        kinds = get_args(FaultKind)
        if self.kind not in kinds:
            raise ValueError(f"unknown fault kind {self.kind!r}; the kinds are {', '.join(kinds)}")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must lie between 0 and 1, not {self.probability!r}")
        if self.after < 0 or (self.count is not None and self.count < 0) or self.seconds < 0:
            raise ValueError("after, count and seconds cannot be negative")
        only = _ONLY.get(self.kind)
        if only is not None and self.operation is not None and self.operation not in only:
            raise ValueError(
                f"a fault of kind {self.kind!r} concerns {', '.join(only)}, not {self.operation}"
            )
        if self.shard_id is not None and self.kind not in _OF_PARTS and self.operation in _ONLY["partial"]:
            raise ValueError(
                f"{self.operation} as a whole has no shard; use kind 'partial' to fail the records of one shard"
            )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Fault:
        """Create a fault from a JSON object of the form that the admin endpoint receives.

        Raises:
            ValueError: If fields are unknown, the kind is missing, or values contradict each other.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown or "kind" not in values:
            raise ValueError(f"a fault needs 'kind' and may have {', '.join(known)}; unknown: {unknown}")
        return cls(**values)

    def error(self) -> AwsError:
        """Return the error document of a kind that has one."""
        default = _ERRORS.get(self.kind, ("InternalFailure", "Injected fault.", 500))
        if self.kind == "partial" and self.seconds:
            # A throttled record is never stored; a record that got an internal failure may be stored.
            default = ("InternalFailure", "Injected fault.", 500)
        code, message, status = default
        if self.kind in {"error", "late_store"}:
            status = self.status
            code = "ServiceUnavailable" if status == 503 else "InternalFailure"
        return AwsError(self.code or code, self.message or message, status=status)


_ERRORS = {
    "throttle": ("ProvisionedThroughputExceededException", "Rate exceeded (injected fault).", 400),
    "partial": ("ProvisionedThroughputExceededException", "Rate exceeded for shard (injected fault).", 400),
    "expired_iterator": ("ExpiredIteratorException", "Iterator expired (injected fault).", 400),
    "expired_credentials": (
        "ExpiredTokenException",
        "The security token included in the request is expired",
        400,
    ),
    "conditional": ("ConditionalCheckFailedException", "The conditional request failed", 400),
}


class _Armed:
    __slots__ = ("fault", "fired", "random", "seen")

    def __init__(self, fault: Fault, seed: str) -> None:
        self.fault = fault
        self.random = random.Random(seed)
        self.seen = 0
        self.fired = 0

    def fires(self) -> bool:
        self.seen += 1
        fault = self.fault
        if self.seen <= fault.after or (fault.count is not None and self.fired >= fault.count):
            return False
        if fault.probability < 1 and self.random.random() >= fault.probability:
            return False
        self.fired += 1
        return True


class Faults:
    """The set of faults that are enabled. Thread-safe.

    Args:
        seed: Seed of the generators, one for each fault, so that adding a fault does not change the others.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._armed: dict[int, _Armed] = {}
        self._next = 1
        self._fired: Counter[str] = Counter()

    def add(self, fault: Fault) -> int:
        """Switch a fault on.

        Returns:
            The fault's number, for `remove`.
        """
        with self._lock:
            number = self._next
            self._next += 1
            self._armed = {**self._armed, number: _Armed(fault, f"{self._seed}:{number}")}
            return number

    def remove(self, number: int) -> bool:
        """Disable the fault with this number; return False if it is not enabled."""
        with self._lock:
            armed = dict(self._armed)
            found = armed.pop(number, None)
            self._armed = armed
            return found is not None

    def clear(self) -> None:
        """Switch all faults off."""
        with self._lock:
            self._armed = {}

    def active(self) -> list[dict[str, Any]]:
        """Return the enabled faults, each with its number and the number of times it fired."""
        with self._lock:
            return [
                {"id": number, "fired": armed.fired, "seen": armed.seen, **asdict(armed.fault)}
                for number, armed in self._armed.items()
            ]

    def fired(self) -> dict[str, int]:
        """Return the number of times that each kind has fired since the start, including disabled faults."""
        with self._lock:
            return dict(self._fired)

    def __bool__(self) -> bool:
        return bool(self._armed)

    def _fire(
        self, operation: str, stream: str | None, shard_id: str | None, *, part: str | None = None
    ) -> list[Fault]:
        hits: list[Fault] = []
        with self._lock:
            for armed in self._armed.values():
                fault = armed.fault
                if (
                    (fault.kind if fault.kind in _OF_PARTS else None) != part
                    or (fault.operation is not None and fault.operation != operation)
                    or (fault.operation is None and operation not in _ONLY.get(fault.kind, (operation,)))
                    or (fault.stream is not None and fault.stream != stream)
                    or (fault.shard_id is not None and fault.shard_id != shard_id)
                ):
                    continue
                if armed.fires():
                    self._fired[fault.kind] += 1
                    hits.append(fault)
                    if part is not None:
                        break
        return hits

    def for_call(self, operation: str, stream: str | None, shard_id: str | None) -> list[Fault]:
        """Return the faults that affect this call, in the order in which they were added."""
        return self._fire(operation, stream, shard_id) if self._armed else []

    def for_entry(self, operation: str, stream: str, shard_id: str) -> Fault | None:
        """Return the `partial` fault that affects this record of `shard_id`, or None."""
        if not self._armed:
            return None
        hits = self._fire(operation, stream, shard_id, part="partial")
        return hits[0] if hits else None

    def early_arrival(self, operation: str, stream: str, shard_id: str) -> float:
        """Return the seconds by which the arrival time of the next record of `shard_id` is too early."""
        if not self._armed:
            return 0.0
        hits = self._fire(operation, stream, shard_id, part="early_arrival")
        return hits[0].seconds if hits else 0.0

    def breaks_stream(self, stream: str, shard_id: str) -> bool:
        """Return whether a `broken_stream` fault affects the next event of a subscription to `shard_id`."""
        return bool(self._armed and self._fire("SubscribeToShard", stream, shard_id, part="broken_stream"))
