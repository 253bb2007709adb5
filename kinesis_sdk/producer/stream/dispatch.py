"""Dispatch policies: they decide whether a Kinesis record may leave the queue of its shard now.

Each shard has a `Lane`, a queue of Kinesis records. The first record of a lane leaves when every `DispatchPolicy` of the stream allows it.
Entries leave only through `Lane.release` and return only through `SendQueue.returned`, and both methods notify all policies. The I/O loop
wakes up at the time that a policy returns, so the loop can neither sleep past that time nor spin.

| stream | policies |
|---|---|
| default | `RateLimit` |
| ``max_inflight_requests_per_shard`` | `InFlightLimit`, `RateLimit` |
| ``ordering="per_shard"`` | `OneInFlight`, `ReshardBarrier`, `RateLimit` |
| ``idempotent`` | `HoldOff`, then as above |
| with a codec | `kinesis_sdk.producer.stream.sealing.Sealing`, then as above |
| all, for whole requests | `CallPause` |
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import Protocol

from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.shards import ShardMap
from kinesis_sdk.producer.records.entry import Entry, Group

NEVER = float("inf")

_PAUSES = Backoff(0.05, 2.0)

_NOTHING: list[tuple[float, int, Entry]] = []
"""Queue of a lane in which nothing has waited: most lanes, and the garbage collector visits each list. Never written to."""


class Returned(Enum):
    """Reason why a Kinesis record returned. All reasons are final, except for the last two."""

    STORED = "stored"
    FAILED = "failed"
    RETRY = "sent again later"
    SPLIT = "divided, because Kinesis rejected it"
    EXPIRED = "expired before it was sent"
    WITHDRAWN = "grouped again before it was sent"
    DEFERRED = "accepted by a shard that the shard map does not know"
    HALVED = "rejected together with others; sent again in a smaller request"

    @property
    def is_final(self) -> bool:
        """Whether the entry is no longer in flight."""
        return self is not Returned.DEFERRED and self is not Returned.HALVED


class DispatchPolicy(Protocol):
    """Rule about when entries leave. Pure: the time is an argument. Not thread-safe."""

    def may_send(self, entry: Entry, now: float) -> float:
        """Return the earliest time at which the entry may leave: ``now``, a later time, or infinity if only an event can allow it."""
        ...

    def on_sent(self, entry: Entry, now: float) -> None:
        """Note that the entry left its lane."""
        ...

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:
        """Note that the entry returned.

        Each `on_sent` is followed by exactly one call with a final reason, after any number of calls with other reasons. An entry that
        returns as HALVED is still in flight: it is sent again in a smaller request, without another `on_sent`. ``landed_in`` is the shard
        that accepted the entry, if this is the response to its request. After an interrupt of `put`, an entry that was not
        announced to this policy may return as WITHDRAWN; the policy ignores this entry.
        """
        ...

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        """Note that another shard map, or no shard map, is in use.

        ``in_flight`` contains the entries that are in a request, or that an unknown shard accepted.
        """
        ...

    def forget(self, group: Group) -> None:
        """Note that the lane of a group was removed."""
        ...

    @property
    def outstanding(self) -> int:
        """Number of entries that the policy waits for; 0 when no entry is in flight."""
        ...


class Lane:
    """Kinesis records of one shard that wait until they may leave: by order of acceptance (``in_order``) or by deadline.

    ``policies`` are called in their order. ``busy`` contains the stream's lanes that are not empty; each lane updates it. The first entry
    does not leave before ``not_before`` (monotonic seconds), which is the backoff of a retry in ordered mode.
    """

    __slots__ = (
        "_added",
        "_busy",
        "_in_order",
        "_next_expiry",
        "_policies",
        "_queue",
        "not_before",
        "number",
    )

    def __init__(
        self,
        policies: Sequence[DispatchPolicy],
        *,
        in_order: bool = False,
        number: int = 0,
        busy: dict[Lane, None] | None = None,
    ) -> None:
        self._policies = policies
        self._in_order = in_order
        self.number: int = number
        self._busy: dict[Lane, None] = {} if busy is None else busy
        self._queue: list[tuple[float, int, Entry]] = _NOTHING
        self._added = 0
        # Never later than the earliest expiry in the queue; corrected when it is reached.
        self._next_expiry = NEVER
        self.not_before: float = -NEVER

    def add(self, entry: Entry) -> None:
        """Queue an entry at its position."""
        self._added += 1
        self._next_expiry = min(self._next_expiry, entry.expires)
        position = entry.records[0].order if self._in_order else entry.deadline
        # Before the push: an interrupt of `put` in between must not leave an entry in a lane that is missing from `_busy`.
        self._busy[self] = None
        if self._queue:
            heapq.heappush(self._queue, (position, self._added, entry))
        else:
            self._queue = [(position, self._added, entry)]

    def remove(self, entry: Entry) -> bool:
        """Remove an entry from any position; return whether the lane contained it."""
        kept = [item for item in self._queue if item[2] is not entry]
        if len(kept) == len(self._queue):
            return False
        heapq.heapify(kept)
        self._queue = kept
        if not kept:
            self._busy.pop(self, None)
        return True

    def passes(self, entry: Entry, now: float) -> bool:
        """Release an entry that need not wait, as `add` and `release` would; if it must wait, change nothing and return False."""
        if self._queue or self.not_before > now:
            return False
        policies = self._policies
        for policy in policies:
            if policy.may_send(entry, now) > now:
                return False
        # Before the policies: SIGINT may interrupt `put` between two of them. `SendQueue.rebuild` then withdraws only marked entries,
        # and a policy that has noted an entry which does not return would close the lane for good.
        entry.dispatched = True
        for policy in policies:
            policy.on_sent(entry, now)
        return True

    def release(self, now: float) -> Iterator[Entry]:
        """Remove and yield the entries that may leave now. The first entry that must wait stops the entries behind it."""
        while self._queue:
            entry = self._queue[0][2]
            if self.not_before > now:
                return
            for policy in self._policies:
                if policy.may_send(entry, now) > now:
                    return
            heapq.heappop(self._queue)
            if not self._queue:
                self._busy.pop(self, None)
            entry.dispatched = True  # before the policies, as in `passes`
            for policy in self._policies:
                policy.on_sent(entry, now)
            yield entry

    def next_event(self, now: float) -> float | None:
        """Return the time at which `release` or `take_expired` may return an entry (monotonic seconds).

        None if the lane is empty. Infinity if only an event allows the first entry to leave, and no entry expires.
        """
        if not self._queue:
            return None
        entry = self._queue[0][2]
        moment = max(now, self.not_before)
        for policy in self._policies:
            moment = max(moment, policy.may_send(entry, now))
            if moment == NEVER:
                break  # not only for speed: while `Sealing` waits, policies behind it would read, and keep, the unsealed size
        return min(moment, self._next_expiry)

    def expedite(self) -> None:
        """Let the queued entries skip the collection delay once they may leave: a flush waits for them."""
        for _, _, entry in self._queue:
            entry.urgent = True

    def take_expired(self, now: float) -> list[Entry]:
        """Remove and return the entries that hold an expired user record."""
        if now < self._next_expiry:
            return []
        expired: list[Entry] = []
        kept: list[tuple[float, int, Entry]] = []
        earliest = NEVER
        for item in self._queue:
            expires = item[2].expires
            if expires <= now:
                expired.append(item[2])
            else:
                kept.append(item)
                if expires < earliest:  # noqa: PLR1730 - `min` is a call for every entry
                    earliest = expires
        if expired:
            heapq.heapify(kept)
            self._queue = kept
            if not kept:
                self._busy.pop(self, None)
        self._next_expiry = earliest
        return expired

    def take_all(self) -> list[Entry]:
        """Remove and return all entries, in the order in which they would leave."""
        entries = [item[2] for item in sorted(self._queue, key=lambda item: item[:2])]
        self._queue = _NOTHING
        self._busy.pop(self, None)
        return entries

    def __len__(self) -> int:
        return len(self._queue)


class HoldOff:
    """Holds back entries that an earlier attempt may have stored, until their hold-off has passed (``idempotent``).

    Without ordered mode, these records wait in `Retries`, because at the front of a lane they would delay other records. This policy
    holds back records that are in a lane anyway.
    """

    __slots__ = ()

    def may_send(self, entry: Entry, now: float) -> float:
        """Return the time at which the hold-off ends."""
        runs = entry.aggregate.runs
        return now if runs is None else max(now, runs.held_until)

    def on_sent(self, entry: Entry, now: float) -> None:
        """Do nothing, because the entry itself contains the end of its hold-off."""

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:
        """Do nothing, because the entry itself contains the end of its hold-off."""

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        """Do nothing: shards do not matter."""

    def forget(self, group: Group) -> None:
        """Do nothing: shards do not matter."""

    @property
    def outstanding(self) -> int:
        """Always 0."""
        return 0


class InFlightLimit:
    """Limits the number of PutRecords requests in flight with entries of one shard (``max_inflight_requests_per_shard``).

    An entry leaves its lane only if another request for its shard may be sent. Several entries may leave for the same request, but
    requests are formed later. `admits` checks again then, and entries without a free request return to their lane. `SendQueue` therefore
    calls two methods that no other policy has: `admits` and `on_request`. Entries without a predicted shard are not limited.
    """

    __slots__ = ("_gathered", "_limit", "_max_count", "_number", "_requests", "_stages")

    def __init__(self, limit: int, max_count: int) -> None:
        self._limit = limit
        self._max_count = max_count
        self._number = 0
        # For each entry that is out: the number of its request, or 0 before the request is cut.
        self._stages: dict[Entry, int] = {}
        # For each shard: the entries that are out before their request is cut. Sets, because an interrupt may come between two changes.
        self._gathered: dict[str, set[Entry]] = {}
        # For each shard: the requests that are out, with the number of its entries that have not come back.
        self._requests: dict[str, Counter[int]] = {}

    def may_send(self, entry: Entry, now: float) -> float:
        """Return ``now`` if another request for the entry's shard may be sent and has room for the entry, otherwise infinity."""
        shard_id = entry.shard_id
        if shard_id is None:
            return now
        free = self._limit - len(self._requests.get(shard_id, ()))
        return now if len(self._gathered.get(shard_id, ())) < free * self._max_count else NEVER

    def on_sent(self, entry: Entry, now: float) -> None:  # noqa: ARG002
        """Note that the entry left its lane for a request."""
        if entry.shard_id is not None:
            self._stages[entry] = 0
            self._gathered.setdefault(entry.shard_id, set()).add(entry)

    def admits(self, entry: Entry) -> bool:
        """Return whether the entry may be part of a request that is sent now."""
        shard_id = entry.shard_id
        return shard_id is None or len(self._requests.get(shard_id, ())) < self._limit

    def on_request(self, entries: Iterable[Entry]) -> None:
        """Note that a request with these entries is sent."""
        self._number += 1
        for entry in entries:
            shard_id = entry.shard_id
            if shard_id is not None:
                if self._stages.get(entry) == 0:
                    self._leave_gathered(shard_id, entry)
                self._stages[entry] = self._number
                self._requests.setdefault(shard_id, Counter())[self._number] += 1

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:  # noqa: ARG002
        """Free the request if this was its last entry of the shard. A deferred entry also frees it, because the call has ended."""
        number, shard_id = self._stages.pop(entry, None), entry.shard_id
        if number is None or shard_id is None:
            return
        if number == 0:
            self._leave_gathered(shard_id, entry)
            return
        requests = self._requests[shard_id]
        requests[number] -= 1
        if not requests[number]:
            del requests[number]
            if not requests:
                del self._requests[shard_id]

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        """Do nothing, because a request counts until it has ended."""

    def forget(self, group: Group) -> None:
        """Do nothing, because a request counts until it has ended."""

    @property
    def outstanding(self) -> int:
        """Number of entries that count for a request."""
        return len(self._stages) + sum(map(len, self._gathered.values())) + len(self._requests)

    def _leave_gathered(self, shard_id: str, entry: Entry) -> None:
        gathered = self._gathered.get(shard_id)
        if gathered is not None:
            gathered.discard(entry)
            if not gathered:
                del self._gathered[shard_id]


class CallPause:
    """Pause after PutRecords calls that failed as a whole; it grows with each consecutive failure.

    It applies to whole requests, so `SendQueue` calls it when it forms a request and not when an entry leaves its lane.
    """

    __slots__ = ("_failures", "_rng", "_since", "until")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0
        self._since = -NEVER
        self.until: float = -NEVER

    def failed(self, started: float, now: float) -> None:
        """Note a call that failed as a whole.

        Requests that were in flight at the same time fail together. The start of each request (monotonic seconds) shows this, and they
        count as one failure.
        """
        if started >= self._since:
            self._failures += 1
            self._since = now
            self.until = now + _PAUSES.pause(self._failures, self._rng)

    def succeeded(self) -> None:
        """Note a call that got a response, so that the next pause is short again."""
        self._failures = 0

    def may_send(self, entry: Entry, now: float) -> float:  # noqa: ARG002
        """Return the time at which the pause ends."""
        return max(now, self.until)

    def on_sent(self, entry: Entry, now: float) -> None:
        """Do nothing, because only the outcome of a call matters."""

    def on_returned(self, entry: Entry, how: Returned, landed_in: str | None) -> None:
        """Do nothing, because only the outcome of a call matters."""

    def on_shard_map(self, shard_map: ShardMap | None, in_flight: Collection[Entry]) -> None:
        """Do nothing: shards do not matter."""

    def forget(self, group: Group) -> None:
        """Do nothing: shards do not matter."""

    @property
    def outstanding(self) -> int:
        """Always 0."""
        return 0
