"""Send queue of one stream: turns new user records and retries into PutRecords requests.

```
add ─► open aggregates ─► lanes (one per shard, dispatch policies; sealing) ─► collector ─► poll: requests
            ▲                  ▲                                                     │
            └── retry ─────────┴── retry in ordered mode, parts ◄──── returned ◄─────┘
```
Two methods notify the dispatch policies: `Lane.release`, which sends a Kinesis record, and `SendQueue.returned`, which is called when the
record returns. Until its last user record has left or has a final result, the Kinesis record is also in `PendingRecords.entries`. The
queue can be rebuilt from `PendingRecords.entries`, which undoes a `put` that a signal handler interrupted (`KeyboardInterrupt`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence

from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.codec import AggregateCodec
from kinesis_sdk.common.errors import InvalidRecordError, KinesisSdkError
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.stamps import Stamps
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.records.entry import DetachedRecord, Entry, Group
from kinesis_sdk.producer.records.record import BufferedRecord, DeliveryState
from kinesis_sdk.producer.stream.aggregator import Aggregator, Bin, OpenAggregates
from kinesis_sdk.producer.stream.collector import Batch, Collector
from kinesis_sdk.producer.stream.dispatch import (
    NEVER,
    CallPause,
    DispatchPolicy,
    HoldOff,
    InFlightLimit,
    Lane,
    Returned,
)
from kinesis_sdk.producer.stream.limiter import RateLimit
from kinesis_sdk.producer.stream.ordered import OneInFlight, ReshardBarrier, ordering_error
from kinesis_sdk.producer.stream.pending import PendingRecords
from kinesis_sdk.producer.stream.retries import LAST_CHANCE, Retries
from kinesis_sdk.producer.stream.sealing import Sealing, SealTask
from kinesis_sdk.producer.stream.topology import Admission, Topology, why_headers_are_refused

_COLLECTION_DELAY = 0.05
_COLLECTION_DELAY_SHARE = 0.2
"""A request is sent at most min(50 ms, 20 % of the buffered time) after the buffered time of its oldest record, as in the KPL. It includes
all aggregates that would be sent within twice that time. So aggregates are as full as if each was sent after its own buffered time."""

_CALL_INTERVAL = 0.12
"""Seconds between two requests of a stream whose records rarely share an aggregate: there, calls are the limit. Aggregates that would leave
within this time go with a request: at the default buffered time, all of them."""

_MAX_LANES = 4_096
"""Without a shard map, each hash key has a lane. Beyond this number of lanes, empty lanes are forgotten."""

UNLIMITED = 2**62
"""Size limit for an aggregate whose records certainly fit."""


class SendQueue:
    """Records of a stream that wait to be sent, and requests in flight. Not thread-safe.

    Attributes:
        buffered_time: Seconds after `put` at which a record leaves at the latest, unless its shard's rate limit holds it.
        record_ttl: Seconds after `put` at which a record fails if it is not stored.
        lanes: Queues of closed aggregates by shard, or by hash key while no shard is predicted.
        policies: Policies that decide when the first entry of a lane leaves; they are called in this order.
        pause: Decides when a request leaves.
    """

    def __init__(
        self,
        pending: PendingRecords,
        topology: Topology,
        config: ProducerConfig,
        rng: random.Random,
        known: OpenAggregates,
        stamps: Stamps,
        codec: AggregateCodec | None = None,
    ) -> None:
        self._pending = pending
        self._topology = topology
        self._config = config
        self._known = known
        self.stamps: Stamps = stamps
        self._in_order = config.ordering == "per_shard"
        self._sealing = None if codec is None else Sealing(codec)
        self.aggregator: Aggregator = self._new_aggregator()
        self.lanes: dict[Group, Lane] = {}
        self._busy_lanes: dict[Lane, None] = {}
        self._lanes_made = 0
        self.pause: CallPause = CallPause(rng)
        self.rate_limit: RateLimit = RateLimit(config.rate_limit, rng)
        self._barrier = ReshardBarrier(topology.require_load)
        self._in_flight_limit: InFlightLimit | None = None
        # An entry leaves when all policies allow it, so their order matters only for `Sealing` (below).
        self.policies: tuple[DispatchPolicy, ...] = (self.rate_limit,)
        if self._in_order:
            self.policies = (OneInFlight(), self._barrier, self.rate_limit)
        elif config.max_inflight_requests_per_shard is not None:
            limit = InFlightLimit(config.max_inflight_requests_per_shard, config.collection_max_count)
            self._in_flight_limit = limit
            self.policies = (limit, self.rate_limit)
        if stamps.enabled:
            self.policies = (HoldOff(), *self.policies)
        if self._sealing is not None:
            self.policies = (self._sealing, *self.policies)  # first: the other policies may ask for the size
        self._collector = self._new_collector()
        self._isolated: deque[Batch] = deque()
        self._in_flight: set[Batch] = set()
        self._deferred: set[Entry] = set()
        # Records that cannot be grouped before a load. In ordered mode, and of an idempotent producer: all records before the first
        # shard map, because there is no lane for them, or their placement could not be checked. Else: records without a partition
        # key or with headers, while it is not known whether the stream places records itself.
        self._parked: Entry | None = None
        self._accepted = 0
        self._regroup_wanted = False
        self._flushed_epoch = -1
        self._collection_delay = min(
            _COLLECTION_DELAY, _COLLECTION_DELAY_SHARE * config.record_max_buffered_time
        )
        longest = config.record_max_buffered_time + self._collection_delay
        # A retry waits for half of this sum: half the buffered time plus the collection delay.
        self._retries = Retries(longest + self._collection_delay)
        ttl = config.record_ttl
        self.record_ttl = ttl
        self.buffered_time: float = min(longest, ttl - min(LAST_CHANCE, ttl / 2))

    # ------------------------------------------------------------------ callers

    def add(self, record: BufferedRecord, data: bytes, hash_key: bytes, epoch: int, now: float) -> bool:
        """Add a new record; return whether `next_event` may be earlier than before, and earlier than the record's deadline."""
        if self._in_order:
            self._accepted += 1
            record.order = self._accepted
        arrived = record.arrived
        if record._details is not None and self._is_held(record, now):
            # In a lane, other records would wait for it. So it gets a Kinesis record of its own, which is not sent.
            holder = Entry(Aggregate(UNLIMITED, UNLIMITED), None, epoch)
            self._pending.entries[holder] = None
            holder.take(record, data, hash_key, arrived + self.buffered_time, arrived + self.record_ttl)
            self._place_again(DetachedRecord(record, data, epoch), now)
            return True
        return self.place(
            record, data, hash_key, epoch, arrived + self.buffered_time, arrived + self.record_ttl, now
        )

    def begin(
        self, place: Bin, record: BufferedRecord, data: bytes, hash_key: bytes, epoch: int, now: float
    ) -> bool:
        """`add` for a record without an explicit hash key or details; its ``place``, from `OpenAggregates`, has no open aggregate."""
        arrived = record.arrived
        entry = self.aggregator.begin(
            place, record, data, hash_key, arrived + self.buffered_time, arrived + self.record_ttl, epoch
        )
        return entry is not None and self._enqueue(entry, now)

    def flush(self, epoch: int, now: float) -> None:
        """Send all buffered records without waiting for deadlines. Retries up to this flush epoch are also sent sooner."""
        self._flushed_epoch = max(self._flushed_epoch, epoch)
        for entry in self.aggregator.close_all():
            entry.urgent = True
            self._enqueue(entry, now)
        self.expedite()

    def expedite(self) -> None:
        """Send closed aggregates without the collection delay."""
        if self._pending.failures.missing:
            return  # nothing can be sent, so the walk through all lanes would be wasted
        for lane in self._busy_lanes:
            lane.expedite()
        self._collector.expedite()

    # ------------------------------------------------------------------ I/O loop

    def poll(self, now: float, slots: int) -> list[Batch]:
        """Do the work that is due, and return at most ``slots`` requests to send now."""
        parked = self._parked
        if parked is not None and parked.expires <= now:
            self._parked = None
            self._expire(
                parked,
                now,
                "it waited for the stream's shard map"
                if self._in_order or self.stamps.waits_for_map(self._topology)
                else "it waited until it was known whether the stream places records itself",
            )
        if self._pending.failures.missing and self._isolated:
            # They wait for the stream, too, and nothing else would check their expiry.
            self.rebuild(now)
        left: dict[Entry, None] = {}
        for record, entry in self._retries.take_due(now):
            if self.expiry(record) <= now:
                self._pending.fail_expired(record, now, _HELD)
            else:
                self._place_again(DetachedRecord(record, record.data, record.epoch), now)
            left[entry] = None
        # Once for each entry, not for each record: the check whether an entry is empty visits all its records.
        self._pending.drop_empty(left)
        for entry in self.aggregator.close_due(now, 2 * self._collection_delay, _CALL_INTERVAL):
            self._enqueue(entry, now)
        for lane in self._lanes_in_turn():
            for entry in lane.take_expired(now):
                self._expire(entry, now, "it waited for its shard's rate limit")
            self._release(lane, now)
        for entry in self._collector.take_expired(now):
            self._expire(entry, now, "it waited for a free connection")
        batches: list[Batch] = []
        if now < self.pause.until or self._pending.failures.missing:
            return batches
        while len(batches) < slots:
            batch = self._next_request(now)
            if batch is None:
                break
            self.stamps.stamp(batch.entries, now)
            self._in_flight.add(batch)
            if self._in_flight_limit is not None:
                # Only entries that passed a lane, because `returned` notifies the policies only of these.
                self._in_flight_limit.on_request(entry for entry in batch.entries if entry.dispatched)
            batches.append(batch)
        return batches

    def next_event(self, now: float, slots: int) -> float:
        """Return the time at which `poll` or a load is due (monotonic seconds); infinity if neither will be."""
        events = [
            self.aggregator.next_deadline,
            self._collector.next_expiry,
            self._retries.next_due,
        ]
        if self._parked is not None:
            events.append(self._parked.expires)
        if self._sealing is not None and self._sealing.has_waiting:
            events.append(now)
        for lane in self._busy_lanes:
            event = lane.next_event(now)
            if event is not None:
                events.append(event)
        load = self._topology.next_load
        if load is not None and self._pending.entries:
            events.append(load)
        if slots > 0 and not self._pending.failures.missing:
            if self._next_isolated() is not None:
                events.append(max(now, self.pause.until))
            elif len(self._collector):
                due = now if self._collector.is_due(now) else self._collector.next_deadline
                events.append(max(due, self.pause.until))
        return min(events)

    @property
    def has_requests(self) -> bool:
        """Whether requests wait to be sent, which `next_event` leaves out while no connection is free."""
        return not self._pending.failures.missing and bool(self._isolated or len(self._collector))

    @property
    def is_idle(self) -> bool:
        """Whether no record in flight would make room.

        The remaining records wait in open aggregates, for a retry, or for a stream that does not exist.
        """
        if self._in_flight:
            return False
        return self._pending.failures.missing or not (
            self._isolated or len(self._collector) or self._busy_lanes
        )

    @property
    def is_backing_off(self) -> bool:
        """Whether records wait for a retry in Kinesis records whose other records may have moved on."""
        return bool(self._retries)

    @property
    def next_retry(self) -> float:
        """Time at which the first record that waits for its third or a later retry is due; infinity if no record waits."""
        return self._retries.next_due

    # ------------------------------------------------------------------ sealing

    def take_unsealed(self) -> Sequence[Sequence[SealTask]]:
        """Return the aggregates to seal that earlier calls did not return, in groups. Seal each on any thread; pass it to `seals_ended`."""
        return () if self._sealing is None else self._sealing.take()

    def seals_ended(self, tasks: Sequence[SealTask], now: float) -> None:
        """Release sealed Kinesis records; divide those that are larger than the stream's record limit."""
        for task in tasks:
            self._seal_ended(task, now)

    def _seal_ended(self, task: SealTask, now: float) -> None:
        assert self._sealing is not None
        entry = task.entry
        fits = self._sealing.finish(task, self._topology.record_limit)
        self._pending.hold(entry)
        lane = self.lanes.get(entry.group)
        if lane is None:
            return  # its records are in other Kinesis records by now, or have failed
        if not fits and lane.remove(entry):
            records = entry.detach_records()
            middle = len(records) // 2
            for half in (records[:middle], records[middle:]):
                if half:
                    self._line_up(lane, self._part_of(entry, half))
            self._pending.drop_empty((entry,))
        self._release(lane, now)

    # ------------------------------------------------------------------ back from a request

    def returned(self, entry: Entry, how: Returned, landed_in: str | None = None) -> None:
        """Note that a Kinesis record returned: after a request, or from the collector if it was not sent.

        ``landed_in`` is the shard that accepted it, if this is the response to its request.
        """
        final = how is Returned.STORED or how.is_final
        if how is Returned.DEFERRED:
            self._deferred.add(entry)
        elif final and self._deferred:
            self._deferred.discard(entry)
        if not entry.dispatched:
            return  # it did not pass a lane, because the stream places records itself
        if landed_in is not None and entry.group not in self.lanes:
            landed_in = None  # the shard is known to be closed
        for policy in self.policies:
            policy.on_returned(entry, how, landed_in)
        if final:
            entry.dispatched = False

    # ------------------------------------------------------------------ responses

    def end_request(self, batch: Batch) -> None:
        """Note that a request is no longer in flight. The outcome of each entry is reported separately."""
        self._in_flight.discard(batch)

    def retry(
        self, entry: Entry, detached: list[DetachedRecord], now: float, landed_in: str | None = None
    ) -> None:
        """Send a returned Kinesis record's user records that have not failed again, at once or after a backoff."""
        self._pending.counters.user_record_retries += len(detached)
        stays = self._stays_in_lane(entry)
        self.returned(entry, Returned.RETRY, landed_in)
        if not self._in_order:
            for item in detached:
                record = item.record
                record.due = due = now + self._retry_delay(record, now)
                if self._retries.backs_off(record) and not self._is_held(record, now):
                    self._retries.hold(record, entry, due)
                else:
                    self._place_again(item, now)
        elif stays:
            lane = self.lanes[entry.group]
            lane.not_before = now + self._retry_delay(detached[0].record, now)
            self._put_back(lane, entry, detached)
        else:
            # Not now: other entries of the same response have not been handled yet.
            self._regroup_wanted = True

    def split(self, entry: Entry, parts: list[list[DetachedRecord]], now: float) -> None:
        """Replace a rejected Kinesis record by parts of it, and send each part in its own request."""
        entries = [self._part_of(entry, part) for part in parts]
        stays = self._stays_in_lane(entry)
        self.returned(entry, Returned.SPLIT)
        if not self._in_order:
            for part in entries:
                part.deadline = -NEVER  # this makes it `alone`
            if self._topology.service_places:
                self._isolated.extendleft(Batch([part]) for part in reversed(entries))
                return
            lane = self._lane_of(entry)
            for part in entries:
                self._line_up(lane, part)
            self._release(lane, now)
        elif stays:
            for part in entries:  # each has the position of its first record, so they leave in order
                self._line_up(self.lanes[entry.group], part)
        else:
            self._regroup_wanted = True

    def halve(self, batch: Batch) -> None:
        """Divide a rejected request into two, which are sent before all other requests."""
        entries = batch.entries
        for entry in entries:
            self.returned(entry, Returned.HALVED)
        keyed = [entry for entry in entries if entry.aggregate.partition_key]
        middle = len(keyed)
        if 0 < middle < len(entries):
            # Entries without a partition key may all be bad, and must not cost the keyed entries their attempts.
            entries = [*keyed, *(entry for entry in entries if not entry.aggregate.partition_key)]
        else:
            middle = len(entries) // 2
        self._isolated.extendleft((Batch(entries[middle:]), Batch(entries[:middle])))

    def resume_lanes(self, now: float, *, reloaded: bool = False) -> None:
        """Let lanes continue once all entries of a response, a failed call or a load (``reloaded``) have been reported."""
        if not self._in_order:
            return  # the next `poll` releases them
        if self._regroup_wanted or (reloaded and ordering_error(self._topology, self._pending.stream)):
            self._regroup_in_order(now)
        self._barrier.resume(reloaded=reloaded)
        for lane in self._lanes_in_turn():
            self._release(lane, now)

    def on_shard_map(self, now: float) -> None:
        """Predict the shards of unsent records again, because another map is in use."""
        self.on_stream_changed()
        if self._in_order:
            self._regroup_in_order(now)
            return
        shard_map = None if self._topology.service_places else self._topology.shard_map

        def is_stale(group: Group | None) -> bool:
            if group is None or (isinstance(group, bytes) and shard_map is None):
                return False
            return isinstance(group, bytes) or not (shard_map and shard_map.is_open(group))

        entries = list(self.aggregator.close_all())
        self.aggregator = self._new_aggregator()
        for group in [group for group in self.lanes if is_stale(group)]:
            entries.extend(self._drop_lane(group).take_all())
        collected = self._collector.take_where(
            lambda entry: (
                is_stale(entry.shard_id)
                or (self._topology.service_places and entry.form.is_wrapped)
                or entry.aggregate.tagged != self.aggregator.tagged
            )
        )
        for entry in collected:
            self.returned(entry, Returned.WITHDRAWN)
        entries.extend(collected)
        self._place_all(sorted((item for entry in entries for item in entry.detach_records()), key=_age), now)
        self._pending.drop_empty(entries)

    def release_parked(self, now: float) -> None:
        """Place parked records after a load: they are sent, fail, or wait for the next load."""
        parked = self._parked
        if parked is None or self._in_order:
            return
        self._parked = None
        self._place_all(parked.detach_records(), now)
        self._pending.drop_empty((parked,))

    def on_stream_changed(self) -> None:
        """Notify the policies that another shard map, or no shard map, is in use, before records are grouped by it.

        A stream that was deleted may be recreated with different ranges for the same shard ids. Entries in flight were sent according to
        the old ranges, and may have to be sent again before records that are in other lanes by then.
        """
        in_flight = self._out()
        for policy in self.policies:
            policy.on_shard_map(self._topology.shard_map, in_flight)

    def on_aggregation_changed(self, now: float) -> None:
        """Apply a changed count limit of aggregates, also to open aggregates."""
        topology, config = self._topology, self._config
        if topology.aggregation_count(config) != self.aggregator.max_count:
            self.aggregator.max_count = topology.aggregation_count(config)
            self.on_shard_map(now)

    # ------------------------------------------------------------------ group again

    def rebuild(self, now: float, without: BufferedRecord | None = None) -> None:
        """Group everything unsent again. Forget ``without``, whose `add` was interrupted; it need not have been added."""
        detached = self.take_unsent(without)
        # The lanes may have waited for halves of a request that was sent on an old map. These halves have just been taken. If
        # nothing else is in flight, no response or load comes that would open the lanes.
        self._barrier.resume(reloaded=False)
        self._place_all(detached, now)
        if without is not None:
            without._delivery = DeliveryState(None)  # it leaves its Kinesis record, if it was in one
        self._pending.drop_empty()

    def forgive(self, gap: float, now: float) -> None:
        """Do not count a freeze of the process (``gap`` seconds, up to ``now``) against the time-to-live of its records.

        No record could be sent during the freeze, so a record that failed because of it would be lost for no reason. Records that are due
        are sent at once. Requests in flight fail by themselves, and are retried.
        """
        for record in self._pending.live:
            if record.arrived < now - gap / 2:  # not records that came after it, before the clock was read
                record.grace += gap
        self.rebuild(now)  # each Kinesis record has to find its earliest expiry again

    def take_unsent(self, without: BufferedRecord | None = None) -> list[DetachedRecord]:
        """Remove and return every record that is not in flight, oldest first, or in order of acceptance in ordered mode.

        The records stay pending: move them elsewhere or let them fail, then call `PendingRecords.drop_empty`. ``without`` is left out,
        because it was not accepted.
        """
        self._pending.finish_interrupted(without)
        out = self._out()
        unsent = [entry for entry in self._pending.entries if entry not in out]
        for entry in unsent:
            if entry.dispatched:
                self.returned(entry, Returned.WITHDRAWN)
        detached = [item for entry in unsent for item in entry.detach_records()]
        if without is not None:
            detached = [item for item in detached if item.record is not without]
        detached.sort(key=_order if self._in_order else _age)
        self.aggregator = self._new_aggregator()
        self._collector = self._new_collector()
        for lane in list(self._busy_lanes):
            lane.take_all()
        self._isolated.clear()
        self._retries.clear()
        self._parked = None
        return detached

    def withdraw_in_flight(self) -> None:
        """Stop waiting for requests in flight. Responses that arrive later must be dropped."""
        for entry in self._out():
            self.stamps.keep(entry)
            self.returned(entry, Returned.WITHDRAWN)
        self._in_flight.clear()

    def expiry(self, record: BufferedRecord) -> float:
        """Return the time at which a record fails if it is not stored (monotonic seconds)."""
        return record.arrived + self.record_ttl + record.grace

    # ------------------------------------------------------------------ into aggregates

    def place(
        self,
        record: BufferedRecord,
        data: bytes,
        hash_key: bytes,
        epoch: int,
        deadline: float,
        expires: float,
        now: float,
    ) -> bool:
        """Add a record to the aggregate of its predicted shard; return what `add` returns."""
        topology = self._topology
        shard_map = topology.shard_map
        group: Group
        if (self.stamps.enabled and self.stamps.waits_for_map(topology)) or (
            not record.partition_key and topology.keyless(now) is not Admission.SEND
        ):
            self._park(record, data, hash_key, epoch, deadline, expires, now)
            return True
        details = record._details
        if details is not None and details.header_fields:
            admission = topology.headed()
            if admission is Admission.REJECT:
                self._refuse_headers(record, data, hash_key, epoch, expires, now)
                return True
            if admission is Admission.WAIT:
                self._park(record, data, hash_key, epoch, deadline, expires, now)
                return True
        if shard_map is None or topology.service_places:
            if self._in_order:
                self._park(record, data, hash_key, epoch, deadline, expires, now)
                return True
            group = hash_key
        else:
            group = shard_map.predicted.get(hash_key) or shard_map.predict(hash_key)
        entry = self.aggregator.add(record, data, hash_key, group, deadline, expires, epoch)
        return entry is not None and self._enqueue(entry, now)

    def _park(
        self,
        record: BufferedRecord,
        data: bytes,
        hash_key: bytes,
        epoch: int,
        deadline: float,
        expires: float,
        now: float,
    ) -> None:
        """Keep a record until a load shows how to group it; let it fail if that is impossible."""
        parked = self._parked
        if parked is None:
            parked = self._parked = Entry(Aggregate(UNLIMITED, UNLIMITED), None, epoch)
            self._pending.entries[parked] = None
        if epoch != parked.epoch:
            record.own_epoch = epoch
            parked.mixed = True
        parked.take(record, data, hash_key, deadline, expires)
        topology, stream = self._topology, self._pending.stream
        error: KinesisSdkError | None = None
        if self._in_order:
            code, error = "OrderingImpossible", ordering_error(topology, stream)
        elif self.stamps.waits_for_map(topology):
            code, error = "IdempotenceImpossible", self.stamps.refusal(topology)
        elif topology.keyless(now) is Admission.REJECT:
            code = "PartitionKeyRequired"
            error = InvalidRecordError("partition_key", topology.why_keys_are_needed(stream))
        elif topology.described:
            topology.doubt()
        if error is not None:
            self._parked = None
            self._pending.fail_entry(parked, now, now, code, error)

    def _refuse_headers(
        self, record: BufferedRecord, data: bytes, hash_key: bytes, epoch: int, expires: float, now: float
    ) -> None:
        holder = Entry(Aggregate(UNLIMITED, UNLIMITED), None, epoch)
        self._pending.entries[holder] = None
        holder.take(record, data, hash_key, now, expires)
        problem = InvalidRecordError("headers", why_headers_are_refused(self._pending.stream))
        self._pending.fail_entry(holder, now, now, "HeadersImpossible", problem)

    def _place_all(self, detached: list[DetachedRecord], now: float) -> None:
        """Put detached records into aggregates. A flush that waits for these records continues."""
        for item in detached:
            self._place_again(item, now)
        if any(item.epoch <= self._flushed_epoch for item in detached):
            self.flush(self._flushed_epoch, now)

    def _place_again(self, detached: DetachedRecord, now: float) -> None:
        """Add a detached record to an aggregate, or hold it back if an earlier attempt may have stored it."""
        record, data, epoch = detached
        if self._is_held(record, now):
            entry = record._delivery.entry
            assert isinstance(entry, Entry)
            until = max(record.due or now, record.held_until)
            self._retries.hold(record, entry, min(until, self.expiry(record)))
            return
        due = record.arrived + self.buffered_time if record.due is None else record.due
        self.place(record, data, record.hash_key, epoch, due, self.expiry(record), now)

    def _is_held(self, record: BufferedRecord, now: float) -> bool:
        """Return whether a record waits outside its lane. In ordered mode, the record waits at its position in the lane; see `HoldOff`."""
        return not self._in_order and record.held_until > now

    def _new_aggregator(self) -> Aggregator:
        topology, config = self._topology, self._config
        return Aggregator(
            topology.aggregation_size(config),
            topology.aggregation_count(config),
            self._pending.entries,
            tagged=self.stamps.tags(topology),
            estimate=None if self._sealing is None else self._sealing.estimate,
            shards=None if topology.service_places else topology.shard_map,
            # In ordered mode, the fast path of `put` stays closed: `add` numbers the records.
            known=None if self._in_order else self._known,
        )

    # ------------------------------------------------------------------ lanes

    def _enqueue(self, entry: Entry, now: float) -> bool:
        """Put a closed aggregate into the lane of its shard, unless the stream places records itself.

        Return whether there may be work before its deadline. A request that has room waits for the deadlines of its entries, which
        `next_event` named while they were open.
        """
        if self._topology.service_places:
            self._collect(entry, now)
            return self._collector.is_due(now)
        lane = self.lanes.get(entry.shard_id) if entry.shard_id else None
        if lane is None:
            lane = self._lane_of(entry)
        if self._sealing is None:
            if lane.passes(entry, now):
                # The way of nearly every Kinesis record: `_line_up` and `_release` would do the same.
                if entry.deadline == -NEVER:  # it is alone
                    self._isolated.appendleft(Batch([entry]))
                    return True
                self._collect(entry, now)
                return self._collector.is_due(now)
            lane.add(entry)
        else:
            self._line_up(lane, entry)
        self._release(lane, now)
        return True

    def _line_up(self, lane: Lane, entry: Entry) -> None:
        if self._sealing is not None:
            self._sealing.want(entry, self._topology.record_limit)
        lane.add(entry)

    def _lane_of(self, entry: Entry) -> Lane:
        """Return the lane of an entry's shard.

        Without a predicted shard, it is the lane of the hash key, which is limited to the rate of one shard, because all its
        records go to one shard.
        """
        group = entry.group
        lane = self.lanes.get(group)
        if lane is None:
            if len(self.lanes) >= _MAX_LANES and not self._in_order:
                for other in [other for other, queue in self.lanes.items() if not queue]:
                    self._drop_lane(other)
            self._lanes_made += 1
            lane = self.lanes[group] = Lane(
                self.policies, in_order=self._in_order, number=self._lanes_made, busy=self._busy_lanes
            )
        return lane

    def _lanes_in_turn(self) -> list[Lane]:
        """Return the lanes that are not empty, oldest first."""
        return sorted(self._busy_lanes, key=_number)

    def _release(self, lane: Lane, now: float) -> None:
        """Release the entries of a lane that all policies allow to leave."""
        alone: list[Entry] = []
        for entry in lane.release(now):
            if entry.alone:
                alone.append(entry)
            else:
                self._collect(entry, now)
        if alone:
            self._isolated.extendleft(Batch([entry]) for entry in reversed(alone))

    def _drop_lane(self, group: Group) -> Lane:
        for policy in self.policies:
            policy.forget(group)
        return self.lanes.pop(group)

    def _regroup_in_order(self, now: float) -> None:
        """Put all unsent records into the lanes of the map in use, in order of acceptance."""
        self._regroup_wanted = False
        detached = self.take_unsent()
        shard_map = self._topology.shard_map
        for group in list(self.lanes):
            if shard_map is None or not isinstance(group, str) or not shard_map.is_open(group):
                self._drop_lane(group)
        self._barrier.on_regrouped()
        self._place_all(detached, now)
        self._pending.drop_empty()

    def _stays_in_lane(self, entry: Entry) -> bool:
        """Return whether a returned entry belongs to a lane of the map in use (ordered mode)."""
        shard_map = self._topology.shard_map
        return (
            entry.shard_id is not None
            and entry.shard_id in self.lanes
            and not self._barrier.waits_for(entry)
            and shard_map is not None
            and shard_map.is_open(entry.shard_id)
        )

    # ------------------------------------------------------------------ requests

    def _collect(self, entry: Entry, now: float) -> None:
        deadline = entry.deadline
        if deadline < now - self._collection_delay:
            deadline = now + self._collection_delay  # its shard's rate limit held it, and may hold others
        if entry.urgent or deadline >= entry.expires:
            deadline = -NEVER  # the collection delay must not push a record past its expiry
        self._collector.add(entry, deadline)

    def _next_request(self, now: float) -> Batch | None:
        """Return a request that may be sent now; None if there is none."""
        index = self._next_isolated()
        if index is not None:
            batch = self._isolated[index]
            del self._isolated[index]
            return batch
        limit = self._in_flight_limit
        while self._collector.is_due(now):
            batch = self._collector.take()
            if limit is None:
                return batch
            admitted = [entry for entry in batch.entries if limit.admits(entry)]
            if len(admitted) == len(batch.entries):
                return batch
            # Another request of their shard left after the other entries had left their lanes.
            for entry in [entry for entry in batch.entries if not limit.admits(entry)]:
                self.returned(entry, Returned.WITHDRAWN)
                self._enqueue(entry, now)
                # The lane was empty when `poll` visited it, and may still remember the expiry of an entry that has left.
                # That moment may be over: without this correction, `next_event` would lie in the past.
                for expired in self._lane_of(entry).take_expired(now):
                    self._expire(expired, now, "it waited for another request of its shard")
            if admitted:
                return Batch(admitted)
        return None

    def _next_isolated(self) -> int | None:
        """Return the index of the first isolated request that may be sent; None if there is none."""
        limit = self._in_flight_limit
        if limit is None:
            return 0 if self._isolated else None
        for index, batch in enumerate(self._isolated):
            if all(map(limit.admits, batch.entries)):
                return index
        return None

    def _new_collector(self) -> Collector:
        return Collector(self._config.collection_max_count, self._config.collection_max_size)

    def _out(self) -> set[Entry]:
        """Return the entries in flight: in a request, or accepted by a shard that is not in the map."""
        return {entry for batch in self._in_flight for entry in batch.entries} | self._deferred

    # ------------------------------------------------------------------ back from lanes and network

    def _expire(self, entry: Entry, now: float, why: str) -> None:
        """Let the expired user records of a Kinesis record fail, and queue the other user records again."""
        lane = self.lanes.get(entry.group) if self._in_order and entry.shard_id is not None else None
        self.returned(entry, Returned.EXPIRED)
        for record in entry.records:
            if entry.owns(record) and self.expiry(record) <= now:
                self._pending.fail_expired(record, now, why)
        left = entry.detach_records()
        if lane is None:
            for item in left:
                self._place_again(item, now)
        elif left:
            self._put_back(lane, entry, left)
        self._pending.drop_empty((entry,))

    def _put_back(self, lane: Lane, entry: Entry, detached: list[DetachedRecord]) -> None:
        """Queue a Kinesis record again at its position in its lane, without its failed records (ordered mode)."""
        if len(detached) == len(entry.records):
            entry.expires = min(self.expiry(item.record) for item in detached)
            lane.add(entry)
        else:
            self._line_up(lane, self._part_of(entry, detached))

    def _part_of(self, entry: Entry, detached: Iterable[DetachedRecord]) -> Entry:
        """Return a new Kinesis record with some user records of another one, in their order."""
        runs = Runs() if self.aggregator.tagged else None
        aggregate = Aggregate(UNLIMITED, UNLIMITED, runs=runs)  # fewer than fitted before
        part = Entry(aggregate, entry.shard_id, entry.epoch)
        self._pending.entries[part] = None
        part.mixed = entry.mixed
        part.urgent = entry.urgent
        for record, data, _ in detached:
            part.take(record, data, record.hash_key, entry.deadline, self.expiry(record))
        part.aggregate.seal()
        return part

    def _retry_delay(self, record: BufferedRecord, now: float) -> float:
        left = self.expiry(record) - now
        return self._retries.delay(record, left, hurry=record.epoch <= self._flushed_epoch)


_HELD = "its last attempt may have been stored, and the hold-off had not passed"


def _number(lane: Lane) -> int:
    return lane.number


def _age(item: DetachedRecord) -> float:
    return item.record.arrived


def _order(item: DetachedRecord) -> int:
    return item.record.order
