"""One stream's records that are not with the network: from open aggregates to requests that are ready to go.

```
place ─► aggregator ─► limiter (per shard) ─► collector ─► take_batches
```
Until its first user record has left it or is settled, a Kinesis record is also in the set of live ones, from which
everything that was not sent can be built anew: a caller's thread can be interrupted at any instruction
(`KeyboardInterrupt`), and what it was doing then is undone.
"""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.aggregator import Aggregator, DetachedRecord, Entry, Group
from kinesis_sdk.producer.collector import Batch, Collector
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.limiter import ShardLimiter
from kinesis_sdk.producer.pending import PendingRecords
from kinesis_sdk.producer.record import DeliveryState, PendingRecord, Stored
from kinesis_sdk.producer.retries import LAST_CHANCE, Retries
from kinesis_sdk.producer.topology import Topology

_COLLECTION_EXTENSION = 0.05
_COLLECTION_EXTENSION_SHARE = 0.2
"""A closed aggregate waits for company in a request for min(50 ms, 20 % of the buffered time), as in the KPL."""

MAX_PARTITION_KEY_LENGTH = 256
"""Characters of a partition key (API reference: 1 to 256 Unicode characters)."""

SMALLEST_RECORD_LIMIT = 1024 * 1024
"""Bytes that every stream takes in a record, as long as we do not know better."""

_MOST_LIMITERS = 4_096
"""Without a map each hash key has a limiter: beyond so many, those with nothing to wait for are forgotten."""

_NEVER = float("inf")


class Deferred(NamedTuple):
    """A Kinesis record that landed somewhere, and nobody knows yet whether that is right."""

    entry: Entry
    stored: Stored


class SendQueue(PendingRecords):
    """What waits to be sent, and what is with the network. Not thread-safe.

    Args:
        stream: Which stream.
        config: The producer's settings.
        rng: Jitter.

    Attributes:
        topology: What is known about the stream.
        aggregator: The open aggregates.
        buffered_time: Seconds after `put` at which a record leaves its aggregate at the latest: early enough to be
            sent.
        record_ttl: Seconds after `put` at which a record fails if it is not stored.
        plain_record_size: Most bytes of data with which a user record is no larger than `max_record_size`, whatever
            its partition key.
    """

    def __init__(self, stream: StreamId, config: ProducerConfig, rng: random.Random) -> None:
        super().__init__(stream)
        self.topology = Topology(rng)
        self._config = config
        self._rng = rng
        self._sent: set[Batch] = set()
        self.aggregator = self._new_aggregator()
        self._limiters: dict[Group, ShardLimiter] = {}
        self._collector = self._new_collector()
        self._isolated: deque[Batch] = deque()
        self._deferred: list[Deferred] = []
        self._retries = Retries(config.record_max_buffered_time)
        self._extension = min(
            _COLLECTION_EXTENSION, _COLLECTION_EXTENSION_SHARE * config.record_max_buffered_time
        )
        ttl = config.record_ttl
        self.buffered_time = min(config.record_max_buffered_time, ttl - min(LAST_CHANCE, ttl / 2))
        self._max_record_size = self.plain_record_size = 0
        self.max_record_size = config.max_user_record_size
        self.record_ttl = ttl
        self._flushed_epoch = -1
        self._paused_until = -_NEVER

    @property
    def max_record_size(self) -> int:
        """Most bytes (data and partition key) of a user record that this stream takes, as far as is known."""
        return self._max_record_size

    @max_record_size.setter
    def max_record_size(self, size: int) -> None:
        self._max_record_size = size
        self.plain_record_size = size - 4 * MAX_PARTITION_KEY_LENGTH  # a character is at most four bytes

    # ------------------------------------------------------------------ from the caller

    def add(self, record: PendingRecord, data: bytes, hash_key: bytes, epoch: int, now: float) -> bool:
        """Take a new record.

        Args:
            record: The record; it is in no Kinesis record yet.
            data: Its payload.
            hash_key: Its effective hash key (16 bytes).
            epoch: Which flush waits for it.
            now: Monotonic seconds.

        Returns:
            Whether a Kinesis record got ready, so that `next_event` may be earlier than before.
        """
        arrived = record.arrived
        return self._place(
            record, data, hash_key, epoch, arrived + self.buffered_time, arrived + self.record_ttl, now
        )

    def undo(self, record: PendingRecord | None, now: float) -> None:
        """Forget a record whose `add` was interrupted, at whatever point, and repair the rest.

        Args:
            record: The record; it need not have been added. None if none is to be forgotten.
            now: Monotonic seconds.
        """
        self._rebuild(now, without=record)

    def forgive(self, gap: float, now: float) -> None:
        """The process stood still for ``gap`` seconds up to ``now``: they do not count against its records.

        Nothing could be sent meanwhile, and to fail a record for it would lose it although all is well. What is
        due goes at once; what is with the network comes back by itself, as a failure that is tried again.
        """
        for record in self.live:
            if record.arrived < now - gap / 2:  # not what came since, before anybody had looked at the clock
                record.grace += gap
        self._rebuild(now)  # Kinesis records know the earliest expiry inside

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way that would make room.

        What there is waits in open aggregates, for a retry, or for a stream that does not exist.
        """
        if self._sent:
            return False
        return self._missing or not (
            self._isolated or len(self._collector) or any(map(len, self._limiters.values()))
        )

    @property
    def pending(self) -> int:
        """How many records have no final result yet."""
        # Where some rest, others of the same Kinesis record may have gone on.
        return len(self.live) if self._retries else super().pending

    def flush(self, epoch: int, now: float) -> None:
        """Send everything that is buffered without waiting for deadlines.

        Args:
            epoch: Records of this epoch and before are waited for; their retries are quick too.
            now: Monotonic seconds.
        """
        self._flushed_epoch = max(self._flushed_epoch, epoch)
        for entry in self.aggregator.close_all():
            entry.urgent = True
            self._limit(entry, now)
        self.expedite()

    def expedite(self) -> None:
        """Send what is closed without waiting for company."""
        if self._missing:
            return  # nothing can be sent; to look at all of it each time would cost more than it is worth
        for limiter in self._limiters.values():
            limiter.expedite()
        self._collector.expedite()

    # ------------------------------------------------------------------ from the shell's loop

    def poll(self, now: float, slots: int) -> list[Batch]:
        """Do what is due; return at most ``slots`` requests to send now."""
        if self._missing and self._isolated:
            # They wait for the stream, too, and for nothing else their expiry would be looked at.
            self._rebuild(now)
        left: dict[Entry, None] = {}
        for record, entry in self._retries.take_due(now):
            self._place_again(DetachedRecord(record, record.data, record.epoch), now)
            left[entry] = None
        # Once each, not once a record: whether it is empty takes as long as it has records.
        self._drop_empty(left)
        for entry in self.aggregator.close_due(now):
            self._limit(entry, now)
        # A copy: an expired record's neighbours may be predicted for a shard that has no limiter yet.
        for limiter in list(self._limiters.values()):
            if limiter:
                for entry in limiter.take_expired(now):
                    self._expire(entry, now, "it waited for its shard's rate limit")
                for entry in limiter.release(now):
                    self._collect(entry, now)
        for entry in self._collector.take_expired(now):
            self._expire(entry, now, "it waited for a free connection")
        batches: list[Batch] = []
        if now < self._paused_until or self._missing:
            return batches
        while len(batches) < slots:
            if self._isolated:
                batch = self._isolated.popleft()
            elif self._collector.is_due(now):
                batch = self._collector.take()
            else:
                break
            self._sent.add(batch)
            batches.append(batch)
        return batches

    def next_event(self, now: float, slots: int) -> float:
        """Monotonic seconds at which `poll` or a load has something to do; infinity if never."""
        deadline = self.aggregator.next_deadline
        events = [
            deadline if deadline is not None else _NEVER,
            self._collector.next_expiry,
            self._retries.next_due,
        ]
        for limiter in self._limiters.values():
            event = limiter.next_event(now)
            if event is not None:
                events.append(event)
        load = self.topology.next_load
        if load is not None and self.has_work:
            events.append(load)
        if slots > 0 and not self._missing:
            if self._isolated:
                events.append(max(now, self._paused_until))
            elif len(self._collector):
                due = now if self._collector.is_due(now) else self._collector.next_deadline
                events.append(max(due, self._paused_until))
        return min(events)

    def take_unsent(self, without: PendingRecord | None = None) -> list[DetachedRecord]:
        """Remove and return every record that is not with the network or waiting for a placement, oldest first.

        They stay live: put them elsewhere or fail them, then call `drop_empty`.

        Args:
            without: A record to leave out, which was not accepted.
        """
        elsewhere = self._on_their_way()
        detached = [
            item for entry in self.entries if entry not in elsewhere for item in entry.detach_records()
        ]
        if without is not None:
            detached = [item for item in detached if item.record is not without]
        detached.sort(key=_age)
        self.aggregator = self._new_aggregator()
        self._collector = self._new_collector()
        for limiter in self._limiters.values():
            limiter.take_all()
        self._isolated.clear()
        self._retries.clear()
        return detached

    def drop_empty(self) -> None:
        """Forget Kinesis records whose user records are all elsewhere, or failed."""
        self._drop_empty(list(self.entries))

    # ------------------------------------------------------------------ inside

    def _on_their_way(self) -> set[Entry]:
        """What is with the network, or waits for its placement."""
        entries = {entry for batch in self._sent for entry in batch.entries}
        entries.update(item.entry for item in self._deferred)
        return entries

    def _rebuild(self, now: float, without: PendingRecord | None = None) -> None:
        """Group everything unsent anew."""
        self._place_all(self.take_unsent(without), now)
        if without is not None:
            without._delivery = DeliveryState(None)  # also if it was in a Kinesis record: it is in none
        self.drop_empty()

    def _place_all(self, detached: list[DetachedRecord], now: float) -> None:
        """Put records that were elsewhere into aggregates; a flush that they were part of goes on."""
        for item in detached:
            self._place_again(item, now)
        if any(item.epoch <= self._flushed_epoch for item in detached):
            self.flush(self._flushed_epoch, now)

    def _place_again(self, detached: DetachedRecord, now: float) -> None:
        """Put a record that was elsewhere into an aggregate."""
        record, data, epoch = detached
        due = record.arrived + self.buffered_time if record.due is None else record.due
        self._place(record, data, record.hash_key, epoch, due, self._expiry(record), now)

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
        """Put a record into the aggregate where it belongs; whether a Kinesis record got ready."""
        topology = self.topology
        shard_map = topology.shard_map
        group: Group
        if shard_map is None or topology.service_places:
            group = hash_key
        else:
            group = shard_map.predicted.get(hash_key) or shard_map.predict(hash_key)
        entry = self.aggregator.add(record, data, hash_key, group, deadline, expires, epoch)
        if entry is None:
            return False
        self._limit(entry, now)
        return True

    def _expiry(self, record: PendingRecord) -> float:
        """When a record fails if it is not stored."""
        return record.arrived + self.record_ttl + record.grace

    def _aggregation_count(self) -> int:
        config = self._config
        topology = self.topology
        if not config.aggregation_enabled or topology.service_places:
            return 1
        if topology.shard_map is None and topology.failures and not topology.described:
            # It takes a while until we know who places records. What was sent until now can wait for that,
            # more can not.
            return 1
        return config.aggregation_max_count

    def _aggregation_size(self) -> int:
        """An aggregate is a record, too: the stream's limit counts, with the one byte of its partition key."""
        known = self.topology.max_record_size
        return min(self._config.aggregation_max_size, (known or SMALLEST_RECORD_LIMIT) - 1)

    def _new_aggregator(self) -> Aggregator:
        return Aggregator(self._aggregation_size(), self._aggregation_count(), self.entries)

    def _new_collector(self) -> Collector:
        return Collector(self._config.collection_max_count, self._config.collection_max_size)

    def _limit(self, entry: Entry, now: float) -> None:
        """A closed aggregate goes through its shard's limiter.

        Without a predicted shard, its hash key has one: whatever shard that belongs to, it takes no more.
        """
        if self.topology.service_places:
            self._collect(entry, now)
            return
        group = entry.shard_id or entry.aggregate.hash_key
        limiter = self._limiters.get(group)
        if limiter is None:
            if len(self._limiters) >= _MOST_LIMITERS:
                self._limiters = {other: waits for other, waits in self._limiters.items() if waits}
            limiter = self._limiters[group] = ShardLimiter(self._config.rate_limit, now)
        limiter.add(entry)
        for released in limiter.release(now):
            self._collect(released, now)

    def _collect(self, entry: Entry, now: float) -> None:
        deadline = max(entry.deadline, now + self._extension)
        if entry.urgent or deadline >= entry.expires:
            deadline = -_NEVER  # waiting for company must not be what it dies of
        self._collector.add(entry, deadline)

    def _regroup(self, now: float) -> None:
        """Predict anew whatever was grouped for a shard that is not open any more, or for no shard."""
        shard_map = None if self.topology.service_places else self.topology.shard_map

        def is_stale(group: Group | None) -> bool:
            if group is None or (isinstance(group, bytes) and shard_map is None):
                return False
            return isinstance(group, bytes) or not (shard_map and shard_map.is_open(group))

        entries = list(self.aggregator.close_all())
        self.aggregator = self._new_aggregator()
        stale = [shard_id for shard_id in self._limiters if is_stale(shard_id)]
        entries.extend(entry for shard_id in stale for entry in self._limiters.pop(shard_id).take_all())
        entries.extend(
            self._collector.take_where(
                lambda entry: (
                    is_stale(entry.shard_id) or (self.topology.service_places and len(entry.records) > 1)
                )
            )
        )
        self._place_all(sorted((item for entry in entries for item in entry.detach_records()), key=_age), now)
        self._drop_empty(entries)

    def _expire(self, entry: Entry, now: float, why: str) -> None:
        """A Kinesis record holds an expired user record: that one fails, the others are grouped anew."""
        for item in entry.detach_records():
            if self._expiry(item.record) <= now:
                self._fail_expired(item.record, now, why)
            else:
                self._place_again(item, now)
        self._drop_empty((entry,))


def _age(item: DetachedRecord) -> float:
    return item.record.arrived
