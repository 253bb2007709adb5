"""Ordered mode: the records of a partition key are stored in the order in which they were put.

PutRecords promises no order among its entries, and a retry overtakes whatever was sent meanwhile. So each shard
is a lane: at most one Kinesis record of it is with the network, in order of acceptance, and one that has to go
again goes before everything else of its lane.

When the stream is resharded, what is unsent is put into the lanes of the new map, in order of acceptance, and no
lane moves until the last Kinesis record that was sent on the old map has its placement: it may have to go again,
before records that were put later.

The promise is about first appearances: a retry after a request whose answer was lost stores a Kinesis record
twice, one right behind the other (1 2 1 2 3), never a later record before the first copy of an earlier one. It
ends where nobody can look: a request that was given up and reaches the service after its retry does.

The price: a shard takes one Kinesis record per round trip (51,200 bytes each, if there is enough to aggregate),
ListShards must be allowed, and a stream that places records itself can not be used.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.errors import KinesisSdkError, PermanentAwsError, ResourceNotFoundError
from kinesis_sdk.producer.aggregator import Aggregator, DetachedRecord, Entry
from kinesis_sdk.producer.collector import Batch
from kinesis_sdk.producer.limiter import ShardLimiter
from kinesis_sdk.producer.pipeline import BOUNDLESS, StreamPipeline
from kinesis_sdk.producer.placement import fits_within
from kinesis_sdk.producer.record import PendingRecord
from kinesis_sdk.producer.topology import StreamFacts

_NEVER = float("inf")


class ShardLane(ShardLimiter):
    """A shard's rate limit and its queue in order of acceptance, of which one at a time is on its way.

    Attributes:
        in_flight: The Kinesis record on its way: collected, with the network, or waiting for its placement.
        blocked: Whether the lane waits for a shard map, or for what was sent on the map before.
        not_before: Monotonic seconds; a retry waits.
    """

    __slots__ = ("blocked", "in_flight", "not_before")

    def __init__(self, rate_limit: int, now: float) -> None:
        super().__init__(rate_limit, now)
        self.in_flight: Entry | None = None
        self.blocked = False
        self.not_before = -_NEVER

    def add(self, entry: Entry) -> None:
        """Queue a Kinesis record at its place."""
        self._queued += 1
        self._next_expiry = min(self._next_expiry, entry.expires)
        heapq.heappush(self._queue, (entry.records[0].order, self._queued, entry))

    def release(self, now: float) -> Iterator[Entry]:
        """Yield the next Kinesis record if the lane is free."""
        if self._queue and not self._stands() and now >= self.not_before and self._wait(now) <= 0:
            entry = heapq.heappop(self._queue)[2]
            self._charge(entry, now)
            self.in_flight = entry
            yield entry

    def next_event(self, now: float) -> float | None:
        """Monotonic seconds at which `release` or `take_expired` has something to do; None if empty."""
        if not self._queue:
            return None
        if self._stands():
            return self._next_expiry
        return min(max(now + self._wait(now), self.not_before), self._next_expiry)

    def _stands(self) -> bool:
        return self.blocked or self.in_flight is not None


class OrderedPipeline(StreamPipeline):
    """A stream's pipeline in ordered mode; what it adds is described at the top of this module."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._accepted = 0
        # Sent on a map that is not in use any more; no placement yet.
        self._draining: set[Entry] = set()
        # Without a map there is no lane to be in: what records are in then is never sent.
        self._waiting: Entry | None = None
        self._rebuild_wanted = False

    # ------------------------------------------------------------------ from the caller

    def add(self, record: PendingRecord, data: bytes, hash_key: bytes, epoch: int, now: float) -> bool:
        """Take a new record; see `StreamPipeline.add`."""
        self._accepted += 1
        record.order = self._accepted
        return super().add(record, data, hash_key, epoch, now)

    # ------------------------------------------------------------------ from the shell

    def poll(self, now: float, slots: int) -> list[Batch]:
        """Do what is due; see `StreamPipeline.poll`."""
        waiting = self._waiting
        if waiting is not None and waiting.expires <= now:
            self._waiting = None
            self._expire(waiting, now, "it waited for the stream's shard map")
        return super().poll(now, slots)

    def next_event(self, now: float, slots: int) -> float:
        """When `poll` has something to do; see `StreamPipeline.next_event`."""
        waiting = self._waiting
        return min(super().next_event(now, slots), _NEVER if waiting is None else waiting.expires)

    def on_response(self, batch: Batch, response: Mapping[str, Any], now: float) -> None:
        """PutRecords answered."""
        super().on_response(batch, response, now)
        for entry, result in zip(batch.entries, response["Records"], strict=True):
            lane = self._lane(entry)
            if lane is not None and result.get("ShardId") not in (None, entry.shard_id):
                # The shard is closed: what follows would only land beside its place.
                lane.blocked = True
                self.topology.require_load()
        self._finish(batch.entries, now)

    def on_failure(self, batch: Batch, error: KinesisSdkError, now: float) -> None:
        """A PutRecords call failed as a whole."""
        super().on_failure(batch, error, now)
        if isinstance(error, ResourceNotFoundError):
            # The stream may come back with other ranges for the same shard ids. What is with the network still was sent
            # by the old ranges, and may have to go again before records that other lanes have by then.
            self._draining.update(self._on_their_way())
        isolated = {entry for other in self._isolated for entry in other.entries}
        self._finish([entry for entry in batch.entries if entry not in isolated], now)

    def on_facts(self, facts: StreamFacts, now: float) -> None:
        """A load of the stream's facts succeeded; see `StreamPipeline.on_facts`."""
        deferred = [item.entry for item in self._deferred]
        super().on_facts(facts, now)
        if self._why_impossible() is not None:
            self._settle_lanes(now)  # which fails what can not be stored in order
        self._finish(deferred, now, unblock=True)

    def on_facts_failed(self, error: KinesisSdkError, now: float) -> None:
        """A load failed; see `StreamPipeline.on_facts_failed`."""
        deferred = [item.entry for item in self._deferred]
        super().on_facts_failed(error, now)
        self._finish(deferred, now, unblock=True)

    def take_unsent(self, without: PendingRecord | None = None) -> list[DetachedRecord]:
        """Remove and return every record that is not with the network, in order of acceptance."""
        detached = super().take_unsent(without)
        detached.sort(key=lambda item: item.record.order)
        on_their_way = self._on_their_way()
        for lane in self._limiters.values():
            if isinstance(lane, ShardLane) and lane.in_flight not in on_their_way:
                lane.in_flight = None
        self._waiting = None
        return detached

    # ------------------------------------------------------------------ inside

    def _why_impossible(self) -> KinesisSdkError | None:
        if self.topology.service_places:
            return PermanentAwsError(
                f"ordering='per_shard' is impossible: stream {self.stream} places records itself "
                "(record distribution AUTO)"
            )
        if self.topology.shard_map is None and self.topology.described:
            return PermanentAwsError(
                f"ordering='per_shard' needs the permission kinesis:ListShards for stream {self.stream}"
            )
        return None

    def _new_aggregator(self) -> Aggregator:
        # No short ways past `add`, which numbers the records.
        return Aggregator(self._aggregation_size(), self._aggregation_count(), self.entries, routed=False)

    def _lane(self, entry: Entry) -> ShardLane | None:
        lane = self._limiters.get(entry.shard_id) if entry.shard_id is not None else None
        return lane if isinstance(lane, ShardLane) else None

    def _place(
        self,
        record: PendingRecord,
        data: bytes,
        hash_key: bytes,
        epoch: int,
        deadline: float,
        expires: float,
        now: float,
    ) -> bool:
        topology = self.topology
        if not topology.service_places and topology.shard_map is not None:
            return super()._place(record, data, hash_key, epoch, deadline, expires, now)
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = Entry(Aggregate(BOUNDLESS, BOUNDLESS), None, epoch)
            self.entries[waiting] = None
        if epoch != waiting.epoch:
            record.own_epoch = epoch
            waiting.mixed = True
        waiting.take(record, data, hash_key, deadline, expires)
        impossible = self._why_impossible()
        if impossible is not None:
            self._waiting = None
            self._fail_all(waiting, now, now, "OrderingImpossible", impossible)
        return True

    def _limit(self, entry: Entry, now: float) -> None:
        lane = self._lane(entry)
        if lane is None:
            assert entry.shard_id is not None
            lane = self._limiters[entry.shard_id] = ShardLane(self._config.rate_limit, now)
            lane.blocked = bool(self._draining)
        lane.add(entry)
        self._release(lane, now)

    def _release(self, lane: ShardLimiter, now: float) -> None:
        for entry in lane.release(now):
            self._collect(entry, now)

    def _retry_all(self, entry: Entry, detached: list[DetachedRecord], now: float) -> None:
        """The records go again, before everything else of their lane."""
        lane = self._lane(entry)
        shard_map = self.topology.shard_map
        if (
            lane is None
            or entry in self._draining
            or shard_map is None
            or not shard_map.is_open(lane_id(entry))
        ):
            self._draining.discard(entry)
            # Not now: other entries of the same answer have no placement yet.
            self._rebuild_wanted = True
            return
        lane.not_before = now + self._retry_delay(detached[0].record, now)
        self._give_back(lane, entry, detached)

    def _give_back(self, lane: ShardLane, entry: Entry, detached: list[DetachedRecord]) -> None:
        if lane.in_flight is entry:
            lane.in_flight = None
        if len(detached) == len(entry.records):
            entry.expires = min(self._expiry(item.record) for item in detached)
            lane.add(entry)
            return
        lane.add(self._part_of(entry, detached))

    def _send_parts(self, entry: Entry, parts: list[Entry]) -> None:
        lane = self._lane(entry)
        if lane is None or entry in self._draining:
            self._draining.discard(entry)
            self._rebuild_wanted = True
            return
        if lane.in_flight is entry:
            lane.in_flight = None
        for part in parts:  # one after the other: their places in the lane are their records'
            lane.add(part)

    def _expire(self, entry: Entry, now: float, why: str) -> None:
        lane = self._lane(entry)
        if lane is None:
            super()._expire(entry, now, why)  # nothing but waiting is possible for its records
            return
        for record in entry.records:
            if self._expiry(record) <= now:
                self._fail_expired(record, now, why)
        keep = entry.detach_records()
        if keep:
            self._give_back(lane, entry, keep)
        elif lane.in_flight is entry:
            lane.in_flight = None
        self._drop_empty((entry,))

    def _regroup(self, now: float) -> None:
        self._draining.update(entry for entry in self._on_their_way() if not self._belongs_to_lane(entry))
        self._settle_lanes(now)

    def _belongs_to_lane(self, entry: Entry) -> bool:
        """Return whether the map in use has the entry's shard, with all hash keys of the entry.

        A stream that was deleted and recreated may have other ranges for the same shard ids.
        """
        shard_map = self.topology.shard_map
        shard_id = lane_id(entry)
        if shard_map is None or not shard_map.is_open(shard_id):
            return False
        hash_key_range = shard_map.range_of(shard_id)
        return hash_key_range is not None and fits_within(entry, hash_key_range)

    def _settle_lanes(self, now: float) -> None:
        """Put everything unsent into the lanes of the map in use, in order of acceptance."""
        self._rebuild_wanted = False
        detached = self.take_unsent()
        shard_map = self.topology.shard_map
        for shard_id in list(self._limiters):
            if shard_map is None or not isinstance(shard_id, str) or not shard_map.is_open(shard_id):
                del self._limiters[shard_id]
        for lane in self._limiters.values():
            if isinstance(lane, ShardLane):
                lane.blocked = bool(self._draining)
        self._place_all(detached, now)
        self.drop_empty()

    def _finish(self, entries: list[Entry], now: float, *, unblock: bool = False) -> None:
        """These entries left the network; lanes go on unless they wait for a placement still."""
        deferred = {item.entry for item in self._deferred}
        drained = bool(self._draining)
        for entry in entries:
            if entry in deferred:
                continue
            self._draining.discard(entry)
            lane = self._lane(entry)
            if lane is not None and lane.in_flight is entry:
                lane.in_flight = None
        if self._rebuild_wanted:
            self._settle_lanes(now)
        unblock = unblock or (drained and not self._draining)
        for limiter in self._limiters.values():
            if isinstance(limiter, ShardLane) and unblock and not self._draining:
                limiter.blocked = False
            self._release(limiter, now)


def lane_id(entry: Entry) -> str:
    """Shard of an entry; in ordered mode every entry has one."""
    assert entry.shard_id is not None
    return entry.shard_id
