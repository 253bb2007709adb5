"""Lag of a checkpoint, measured by probes of the stream: when a shard may be probed, and how.

A probe is one GetShardIterator at the checkpoint and one GetRecords with a limit of one record. The ``MillisBehindLatest`` of
the response is the lag, for workers of every kind. A probe takes one of the five reads per second that all polling consumers of
the shard share, so `LagSchedule` spaces probes: see its rules. Fan-out consumers are not affected.

**What is measured.** An iterator at the checkpoint returns the last processed record, and the response shows how far that record is behind
the tip. In two cases, the returned record itself has unprocessed data: a checkpoint within an aggregate, whose
remaining user records are unprocessed, and a position (TRIM_HORIZON, a timestamp, a trimmed checkpoint) at which the returned
record is the first unprocessed record. Then the lag is at least the age of that record by the clock of Kinesis.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kinesis_sdk.admin.parallel import for_each
from kinesis_sdk.common.aggregate_reader import decode
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import (
    AwsError,
    CodecUnavailableError,
    InvalidPositionError,
    KinesisSdkError,
    ResourceNotFoundError,
    ThrottledError,
)
from kinesis_sdk.common.position import AfterSequence, Position
from kinesis_sdk.common.service_clock import response_date
from kinesis_sdk.common.shard_cursor import ShardCursor
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.text import printable
from kinesis_sdk.common.transport import GetRecordsPage, Transport

CALLS_PER_PROBE = 2
PROBE_INTERVAL = 30.0
"""Seconds between two probes of a shard that looks stuck or is on the screen: 0.7 % of its reads."""
FOCUS_INTERVAL = 5.0
"""Seconds between two probes of the shard whose page is open: 4 % of its reads."""
REST_INTERVAL = 300.0
"""Seconds between two probes of any other shard."""
CALLS_PER_SECOND = 20.0
"""Maximum calls per second of all probes of one observer together."""
ONE_SHOT_PROBES_PER_SECOND = 200.0
"""Maximum probes per second when every shard is probed once."""
THREADS = 16
"""Threads for probing every shard once: against AWS, a call mostly waits."""

_THROTTLE_PAUSE, _MAX_THROTTLE_PAUSE = 60.0, 960.0
_FAILURE_PAUSE = 30.0


@dataclass(frozen=True, kw_only=True)
class LagCandidate:
    """A lease whose lag a probe can measure.

    Attributes:
        sub_sequence_number: The last processed user record of the checkpoint's Kinesis record; None for a sentinel.
        is_known: Whether its owner reports the lag, so that no probe is needed.
        is_stuck: Whether the checkpoint does not move although the lease is renewed.
    """

    lease_key: str
    stream: StreamId
    shard_id: str
    position: Position
    sub_sequence_number: int | None = None
    is_known: bool = False
    is_stuck: bool = False


@dataclass(frozen=True, kw_only=True)
class LagProbeResult:
    """Result of a probe.

    Attributes:
        millis: Milliseconds behind latest; None if unknown.
        trimmed: Whether the record of the checkpoint is no longer in the stream, and the next record is near the horizon.
        note: Reason for a missing lag; otherwise empty.
    """

    millis: int | None = None
    trimmed: bool = False
    note: str = ""
    throttled: bool = False


class LagSchedule:
    """Decides which shard is probed when. No clock, no calls. Not thread-safe.

    Rules: a shard is probed at most once in `PROBE_INTERVAL` (once in `FOCUS_INTERVAL` while its page is open), and never
    twice at the same time; all probes together make at most `CALLS_PER_SECOND`. The order is: shards that were never measured, shards that
    look stuck, shards on the screen; any other shard is probed once in `REST_INTERVAL`. A shard whose read limit is exhausted is not
    probed for a minute, then for two minutes, and so on up to 16. A shard whose owner reports its lag
    is not probed.
    """

    def __init__(self, calls_per_second: float = CALLS_PER_SECOND) -> None:
        self._spacing = CALLS_PER_PROBE / calls_per_second
        self._candidates: dict[str, LagCandidate] = {}
        self._asked: list[LagCandidate] = []
        self._measured: dict[str, float] = {}
        self._paused: dict[str, float] = {}
        self._throttles: dict[str, int] = {}
        self._running: set[str] = set()
        self._focused: frozenset[str] = frozenset()
        self._visible: frozenset[str] = frozenset()
        self._next_slot = float("-inf")

    def update(self, candidates: Iterable[LagCandidate]) -> None:
        """Set the leases that can be probed, and forget all other leases."""
        self._candidates = {candidate.lease_key: candidate for candidate in candidates}
        self._asked = [candidate for candidate in self._candidates.values() if not candidate.is_known]
        for memory in (self._measured, self._paused, self._throttles):
            for key in [key for key in memory if key not in self._candidates]:
                del memory[key]

    def watch(self, *, focused: Iterable[str] = (), visible: Iterable[str] = ()) -> None:
        """Set the leases whose page is open, and the leases on the screen."""
        self._focused, self._visible = frozenset(focused), frozenset(visible)

    def take(self, now: float) -> LagCandidate | None:
        """Return the lease to probe now, and count its probe as running; None if no probe is due."""
        if now < self._next_slot:
            return None
        best: tuple[int, float, str] | None = None
        for candidate in self._asked:
            due = self._due_at(candidate)
            if due is None or due > now:
                continue
            key = candidate.lease_key
            order = (self._class_of(candidate), self._measured.get(key, float("-inf")), key)
            if best is None or order < best:
                best = order
        if best is None:
            return None
        self._running.add(best[2])
        self._next_slot = now + self._spacing
        return self._candidates[best[2]]

    def due(self) -> float | None:
        """Return the time of the next probe; None if no lease needs a probe."""
        earliest: float | None = None
        for candidate in self._asked:
            due = self._due_at(candidate)
            if due is None:
                continue
            if due <= self._next_slot:
                return self._next_slot
            if earliest is None or due < earliest:
                earliest = due
        return earliest

    def finish(self, lease_key: str, result: LagProbeResult, now: float) -> None:
        """Process the end of a probe."""
        self._running.discard(lease_key)
        if lease_key not in self._candidates:
            return
        self._measured[lease_key] = now
        if result.throttled:
            count = self._throttles[lease_key] = self._throttles.get(lease_key, 0) + 1
            self._paused[lease_key] = now + min(
                _MAX_THROTTLE_PAUSE, _THROTTLE_PAUSE * 2.0 ** min(count - 1, 10)
            )
            return
        self._throttles.pop(lease_key, None)
        self._paused.pop(lease_key, None)
        if result.millis is None:
            self._paused[lease_key] = now + _FAILURE_PAUSE

    def _class_of(self, candidate: LagCandidate) -> int:
        key = candidate.lease_key
        if key in self._focused:
            return 0
        if key not in self._measured:
            return 1
        if candidate.is_stuck:
            return 2
        return 3 if key in self._visible else 4

    def _due_at(self, candidate: LagCandidate) -> float | None:
        key = candidate.lease_key
        if key in self._running:
            return None
        measured = self._measured.get(key)
        if measured is None:
            return float("-inf")
        if key in self._focused:
            interval = FOCUS_INTERVAL
        elif candidate.is_stuck or key in self._visible:
            interval = PROBE_INTERVAL
        else:
            interval = REST_INTERVAL
        return max(measured + interval, self._paused.get(key, measured))


class LagProbe:
    """Probes Kinesis for the lag at a checkpoint. Thread-safe.

    ``on_call`` is called with the name of each operation before it is called.
    """

    def __init__(
        self,
        client: Any,
        *,
        clock: Clock | None = None,
        on_call: Callable[[str], None] | None = None,
    ) -> None:
        self._client = Transport(client)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._on_call = on_call

    def measure(self, candidate: LagCandidate) -> LagProbeResult:
        """Make one probe; return the lag, or why it is unknown. A failed call is also a result, so that it does not stop other probes."""
        cursor = ShardCursor(
            self._client, candidate.stream, candidate.shard_id, candidate.position, clock=self._clock
        )
        try:
            self._count("GetShardIterator")
            cursor.open()
            self._count("GetRecords")
            page = cursor.fetch(1)
        except ThrottledError:
            return LagProbeResult(throttled=True, note="not measured: the reads of the shard are used up")
        except ResourceNotFoundError:
            return LagProbeResult(note="not measured: Kinesis no longer has the stream or the shard")
        except InvalidPositionError:
            return LagProbeResult(
                note="not measured: Kinesis rejects the checkpoint, it is not one of this shard"
            )
        except AwsError as error:
            return LagProbeResult(note=f"not measured: {error.code}: {printable(error.message)}")
        except KinesisSdkError as error:
            return LagProbeResult(note=f"not measured: {printable(str(error))}")
        return read_lag(candidate, page)

    def _count(self, operation: str) -> None:
        if self._on_call is not None:
            self._on_call(operation)


def read_lag(candidate: LagCandidate, page: GetRecordsPage) -> LagProbeResult:
    """Return the lag of a checkpoint from the response to a read of one record at the checkpoint."""
    behind = page.header.millis_behind_latest
    if not page.records:
        if behind is None:
            return LagProbeResult(note="not measured: the endpoint reports no lag")
        return LagProbeResult(millis=behind)
    record = page.records[0]
    position = candidate.position
    found = isinstance(position, AfterSequence) and position.sequence_number == record.sequence_number
    if found and _is_processed(record.data, candidate.sub_sequence_number):
        if behind is None:
            return LagProbeResult(note="not measured: the endpoint reports no lag")
        return LagProbeResult(millis=behind)
    age = _age(page.metadata, record.approximate_arrival_timestamp)
    if behind is None and age is None:
        return LagProbeResult(note="not measured: the endpoint reports no lag")
    # The record itself is unprocessed, so the lag is at least its age; `behind` counts from the end of the record.
    trimmed = isinstance(position, AfterSequence) and not found
    return LagProbeResult(millis=max(behind or 0, age or 0), trimmed=trimmed)


def _is_processed(data: bytes, sub_sequence_number: int | None) -> bool:
    """Return whether a checkpoint covers all user records of its Kinesis record."""
    if sub_sequence_number is None or sub_sequence_number < 0:
        return False
    try:
        users = decode(data)
    except CodecUnavailableError as error:
        return error.records is not None and sub_sequence_number + 1 >= error.records
    return users is None or sub_sequence_number + 1 >= len(users)


def _age(metadata: Mapping[str, Any], arrival: Any) -> int | None:
    """Return the milliseconds since a record arrived, by the clock of Kinesis, whose dates have whole seconds."""
    date = response_date(metadata)
    if date is None or arrival is None:
        return None
    return max(0, int((date - arrival.timestamp()) * 1000))


def measure_all(
    probe: LagProbe,
    candidates: Iterable[LagCandidate],
    on_result: Callable[[LagCandidate, LagProbeResult], None],
    *,
    threads: int = THREADS,
    probes_per_second: float = ONE_SHOT_PROBES_PER_SECOND,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Probe each lease once, in this order.

    ``on_result`` is called by one thread at a time. The rate allows bursts of up to a second's worth of probes.
    """
    clock = SystemClock() if clock is None else clock
    turn = threading.Lock()
    start = clock.monotonic()
    taken = 0

    def measure(candidate: LagCandidate) -> LagProbeResult:
        nonlocal taken
        with turn:
            taken += 1
            wait = (taken - probes_per_second) / probes_per_second - (clock.monotonic() - start)
        if wait > 0:
            sleep(wait)
        return probe.measure(candidate)

    for_each(candidates, measure, on_result, threads=threads, name="lag-probe")
