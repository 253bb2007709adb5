"""One stream's way from `put` to the final result: the producer's decisions, without threads, clock or network.

```
add ─► aggregator ─► limiter (per shard) ─► collector ─► poll: batches for the shell to send
          ▲                                                        │
          └── retry: after half the buffered time, before the expiry ◄── on_response / on_failure ──► settled
```
A user record is in exactly one place: an open aggregate, a limiter's queue, the collector, an isolated batch,
a batch that the shell sends, the list of verdicts that wait for a shard map, the rest before a further retry, or
`settled`. Until it is settled
it is also in the set of live records, from which everything that was not sent can be built anew: a caller's
thread can be interrupted at any instruction (`KeyboardInterrupt`), and what it was doing then is undone.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import service_error
from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    EndpointUnreachableError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    ThrottledError,
)
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.aggregator import Aggregator, Entry, Group
from kinesis_sdk.producer.collector import Batch, Collector
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.judge import Verdict, judge
from kinesis_sdk.producer.limiter import ShardLimiter
from kinesis_sdk.producer.record import PendingRecord, Stored
from kinesis_sdk.producer.retries import LAST_CHANCE, Retries
from kinesis_sdk.producer.settlement import Settled, Settlement
from kinesis_sdk.producer.topology import StreamFacts, Topology

_COLLECTION_EXTENSION = 0.05
_COLLECTION_EXTENSION_SHARE = 0.2
"""A closed aggregate waits for company in a request for min(50 ms, 20 % of the buffered time), as in the KPL."""

_SMALLEST_RECORD_LIMIT = 1024 * 1024
"""Bytes that every stream takes in a record, as long as we do not know better."""

_FIRST_PAUSE = 0.05
_MAX_PAUSE = 2.0
_HOPELESS_CONTACTS = 3
"""Loads in a row that found nobody at the endpoint, before anything ever worked, until records fail at once."""

_ABOUT_ONE_RECORD = frozenset({"ValidationException", "InvalidArgumentException"})
"""Codes with which the service refuses a whole request for one bad entry."""

_MOST_LIMITERS = 4_096
"""Without a map each hash key has a limiter: beyond so many, those with nothing to wait for are forgotten."""

_NEVER = float("inf")


class _Deferred(NamedTuple):
    entry: Entry
    stored: Stored


class StreamPipeline(Settlement):
    """The state of one stream. Not thread-safe: its owner calls it under one lock.

    Args:
        stream: Which stream.
        config: The producer's settings.
        rng: Jitter.
    """

    def __init__(self, stream: StreamId, config: ProducerConfig, rng: random.Random) -> None:
        super().__init__(stream)
        self.topology = Topology(rng)
        self._config = config
        self._rng = rng
        self._sent: set[Batch] = set()
        self._aggregator = self._new_aggregator()
        self._limiters: dict[Group, ShardLimiter] = {}
        self._collector = self._new_collector()
        self._isolated: deque[Batch] = deque()
        self._deferred: list[_Deferred] = []
        self._retries = Retries(config.record_max_buffered_time)
        self._extension = min(
            _COLLECTION_EXTENSION, _COLLECTION_EXTENSION_SHARE * config.record_max_buffered_time
        )
        ttl = config.record_ttl
        self.buffered_time = min(config.record_max_buffered_time, ttl - min(LAST_CHANCE, ttl / 2))
        """Seconds after `put` at which a record leaves its aggregate at the latest: early enough to be sent."""
        self.max_record_size = config.max_user_record_size
        """Most bytes (data and partition key) of a user record that this stream takes, as far as is known."""
        self.record_ttl = ttl
        self._flushed_epoch = -1
        self._paused_since = -_NEVER
        self._paused_until = -_NEVER
        self._failures = 0
        self._contacted = False

    # ------------------------------------------------------------------ from the caller

    def add(self, record: PendingRecord, now: float) -> bool:
        """Take a new record.

        Returns:
            Whether a Kinesis record got ready, so that `next_event` may be earlier than before.
        """
        self._live.add(record)
        self.counters.user_records_put += 1
        # From here on it is `_aggregate`, in place for its speed.
        topology = self.topology
        shard_map = topology.shard_map
        if shard_map is None or topology.service_places:
            return self._aggregate(record, now)
        hash_key = record.hash_key
        entry = self._aggregator.add(record, shard_map.predicted.get(hash_key) or shard_map.predict(hash_key))
        if entry is None:
            return False
        self._limit(entry, now)
        return True

    def undo(self, record: PendingRecord, now: float) -> None:
        """Forget a record whose `add` was interrupted, at whatever point, and repair the rest.

        Args:
            record: The record; it need not have been added.
            now: Monotonic seconds.
        """
        self._live.discard(record)
        counters = self.counters
        counters.user_records_put = (
            counters.user_records_stored + counters.user_records_failed + len(self._live)
        )
        records = self.take_buffered()
        for other in records:
            self._aggregate(other, now)
        if any(other.epoch <= self._flushed_epoch for other in records):
            self.flush(self._flushed_epoch, now)

    def forgive(self, gap: float, now: float) -> None:
        """The process stood still for ``gap`` seconds up to ``now``: they do not count against its records.

        Nothing could be sent meanwhile, and to fail a record for it would lose it although all is well. What is
        due goes at once; what is with the network comes back by itself, as a failure that is tried again.
        """
        for record in self._live:
            if record.arrived < now - gap / 2:  # not what came since, before anybody had looked at the clock
                record.expires += gap
        # Kinesis records know the earliest expiry inside.
        records = self.take_buffered()
        for record in records:
            self._aggregate(record, now)
        if any(record.epoch <= self._flushed_epoch for record in records):
            self.flush(self._flushed_epoch, now)

    @property
    def is_resting(self) -> bool:
        """Whether nothing is on its way that would make room: whatever there is waits in open aggregates."""
        return not (
            self._sent
            or self._isolated
            or self._retries
            or len(self._collector)
            or any(map(len, self._limiters.values()))
        )

    def flush(self, epoch: int, now: float) -> None:
        """Send everything that is buffered without waiting for deadlines.

        Args:
            epoch: Records of this epoch and before are waited for; their retries are quick too.
            now: Monotonic seconds.
        """
        self._flushed_epoch = max(self._flushed_epoch, epoch)
        for entry in self._aggregator.close_all():
            entry.urgent = True
            self._limit(entry, now)
        self.expedite()

    def expedite(self) -> None:
        """Send what is closed without waiting for company."""
        for limiter in self._limiters.values():
            limiter.expedite()
        self._collector.expedite()

    # ------------------------------------------------------------------ from the shell's loop

    def poll(self, now: float, slots: int) -> list[Batch]:
        """Do what is due; return at most ``slots`` requests to send now."""
        for record in self._retries.take_due(now):
            self._aggregate(record, now)
        for entry in self._aggregator.close_due(now):
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
        if now < self._paused_until:
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
        deadline = self._aggregator.next_deadline
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
        if slots > 0:
            if self._isolated:
                events.append(max(now, self._paused_until))
            elif len(self._collector):
                due = now if self._collector.is_due(now) else self._collector.next_deadline
                events.append(max(due, self._paused_until))
        return min(events)

    # ------------------------------------------------------------------ from the network

    def on_response(self, batch: Batch, response: Mapping[str, Any], now: float) -> None:
        """PutRecords answered."""
        results = response.get("Records")
        if not isinstance(results, list) or len(results) != len(batch.entries):
            got = len(results) if isinstance(results, list) else "no"
            error = ProtocolError(f"PutRecords: {len(batch.entries)} records sent, {got} results came back")
            self.on_failure(batch, error, now)
            return
        self._sent.discard(batch)
        self.counters.put_records_calls += 1
        self._contacted = True
        self._failures = 0
        for entry, result in zip(batch.entries, results, strict=True):
            code = result.get("ErrorCode")
            if code:
                self._on_entry_error(
                    entry, batch.started, now, str(code), str(result.get("ErrorMessage") or "")
                )
                continue
            shard_id, sequence_number = result.get("ShardId"), result.get("SequenceNumber")
            if not shard_id or not sequence_number:
                text = "an entry has neither an error code nor shard and sequence number"
                error = ProtocolError(f"PutRecords: {text}")
                self.counters.failed_entries += 1
                self._retry(entry, batch.started, now, "ProtocolError", text, error)
                continue
            self.counters.kinesis_records_stored += 1
            self.counters.kinesis_bytes_stored += entry.size
            if entry.shard_id is not None and shard_id != entry.shard_id:
                self.topology.invalidate(batch.started, shard_id)
            stored = Stored(shard_id, sequence_number, batch.started, now)
            self._judge(entry, stored, now, last_word=False)

    def on_failure(self, batch: Batch, error: KinesisSdkError, now: float) -> None:
        """A PutRecords call failed as a whole."""
        self._sent.discard(batch)
        self.counters.put_records_calls += 1
        self.counters.failed_calls += 1
        if isinstance(error, AwsError) and error.status is not None:
            self._contacted = True
        code = error.code if isinstance(error, AwsError) else type(error).__name__
        if isinstance(error, PermanentAwsError):
            if error.code in _ABOUT_ONE_RECORD and len(batch.entries) > 1:
                # The service refuses a request whole for one bad entry: halve it until the bad one is alone.
                middle = len(batch.entries) // 2
                self._isolated.extend((Batch(batch.entries[:middle]), Batch(batch.entries[middle:])))
                return
            if isinstance(error, ResourceNotFoundError):
                self.topology.forget()
            for entry in batch.entries:
                self._fail_all(entry.records, batch.started, now, code, error)
            return
        if isinstance(error, ThrottledError) and self._config.fail_if_throttled:
            for entry in batch.entries:
                self._fail_all(entry.records, batch.started, now, code, error)
            return
        if batch.started >= self._paused_since:
            # Requests that were on their way together fail together: they are one failure, not a series.
            pause = min(_MAX_PAUSE, _FIRST_PAUSE * 2**self._failures)
            self._failures = min(self._failures + 1, 30)
            self._paused_since = now
            self._paused_until = now + pause * self._rng.uniform(0.5, 1.0)
        for entry in batch.entries:
            self._retry(entry, batch.started, now, code, str(error), error)

    def on_facts(self, facts: StreamFacts, now: float) -> None:
        """A load of the stream's facts succeeded.

        Raises:
            ProtocolError: The shards do not tile the hash key space; the shell then calls `on_facts_failed`.
        """
        topology = self.topology
        before = (topology.shard_map, topology.service_places)
        topology.finish_load(facts, now)
        self._contacted = True
        self._aggregator.max_count = self._aggregation_count()
        self._aggregator.max_size = self._aggregation_size()
        if topology.max_record_size is not None:
            self.max_record_size = min(self._config.max_user_record_size, topology.max_record_size)
        if (topology.shard_map, topology.service_places) != before:
            self._regroup(now)
        # A map that was asked for before the record was sent can not know the shard that it landed in.
        loaded_at = topology.shard_map.loaded_at if topology.shard_map else _NEVER
        deferred, self._deferred = self._deferred, []
        for item in deferred:
            self._judge(item.entry, item.stored, now, last_word=item.stored.started <= loaded_at)

    def on_facts_failed(self, error: KinesisSdkError, now: float) -> None:
        """A load failed. Verdicts that waited for it become retries; hopeless errors fail what is buffered."""
        self.topology.fail_load(now)
        if self._aggregation_count() != self._aggregator.max_count:
            self._aggregator.max_count = self._aggregation_count()
            self._regroup(now)
        deferred, self._deferred = self._deferred, []
        for item in deferred:
            self._judge(item.entry, item.stored, now, last_word=True)
        nobody_there = (
            isinstance(error, EndpointUnreachableError)
            and not self._contacted
            and self.topology.failures >= _HOPELESS_CONTACTS
        )
        if isinstance(error, (AwsConfigError, ResourceNotFoundError)) or nobody_there:
            code = error.code if isinstance(error, AwsError) else type(error).__name__
            for record in self.take_buffered():
                self._fail(record, now, now, code, error)

    def take_buffered(self) -> list[PendingRecord]:
        """Remove and return every record that is not with the network or waiting for a verdict, oldest first."""
        elsewhere = {record for batch in self._sent for entry in batch.entries for record in entry.records}
        elsewhere.update(record for item in self._deferred for record in item.entry.records)
        records = [record for record in self._live if record not in elsewhere]
        records.sort(key=lambda record: record.arrived)
        self._aggregator = self._new_aggregator()
        self._collector = self._new_collector()
        for limiter in self._limiters.values():
            limiter.take_all()
        self._isolated.clear()
        self._retries.clear()
        return records

    def abandon(self, now: float, error: KinesisSdkError) -> None:
        """Every record without a final result fails, also what is with the network: nobody waits for answers.

        The shell drops answers that still come.
        """
        self._deferred.clear()
        self._sent.clear()
        for record in self.take_buffered():
            self._fail(record, now, now, type(error).__name__, error)

    # ------------------------------------------------------------------ inside

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
        return min(self._config.aggregation_max_size, (known or _SMALLEST_RECORD_LIMIT) - 1)

    def _new_aggregator(self) -> Aggregator:
        return Aggregator(self._aggregation_size(), self._aggregation_count())

    def _new_collector(self) -> Collector:
        return Collector(self._config.collection_max_count, self._config.collection_max_size)

    def _aggregate(self, record: PendingRecord, now: float) -> bool:
        topology = self.topology
        shard_map = topology.shard_map
        hash_key = record.hash_key
        if shard_map is None or topology.service_places:
            entry = self._aggregator.add(record, hash_key)
        else:
            group = shard_map.predicted.get(hash_key) or shard_map.predict(hash_key)
            entry = self._aggregator.add(record, group)
        if entry is None:
            return False
        self._limit(entry, now)
        return True

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

        records = self._aggregator.take_all()
        stale = [shard_id for shard_id in self._limiters if is_stale(shard_id)]
        entries = [entry for shard_id in stale for entry in self._limiters.pop(shard_id).take_all()]
        entries.extend(
            self._collector.take_where(
                lambda entry: (
                    is_stale(entry.shard_id) or (self.topology.service_places and len(entry.records) > 1)
                )
            )
        )
        records.extend(record for entry in entries for record in entry.records)
        records.sort(key=lambda record: record.arrived)
        for record in records:
            self._aggregate(record, now)
        if any(record.epoch <= self._flushed_epoch for record in records):
            self.flush(self._flushed_epoch, now)

    def _judge(self, entry: Entry, stored: Stored, now: float, *, last_word: bool) -> None:
        topology = self.topology
        if not topology.described and len(entry.records) > 1 and entry.shard_id is None:
            # Whether its hash key placed it is known when the service has said who places records.
            verdict = Verdict.WRONG_SHARD if last_word else Verdict.UNKNOWN_SHARD
        else:
            verdict = judge(
                entry, stored.shard_id, topology.shard_map, service_places=topology.service_places
            )
        if verdict is Verdict.STORED:
            self.counters.user_records_stored += len(entry.records)
            self.counters.user_bytes_stored += entry.aggregate.payload_size
            self._live.difference_update(entry.records)
            self.settled.append(Settled(entry.records, stored, None))
        elif verdict is Verdict.UNKNOWN_SHARD and not last_word:
            self._deferred.append(_Deferred(entry, stored))
            topology.require_load()
        else:
            self.counters.wrong_shard_entries += 1
            message = f"predicted {entry.shard_id}, landed in {stored.shard_id}, where a KCL may discard it"
            error = ProtocolError(f"PutRecords: {message}")
            self._retry(entry, stored.started, stored.ended, "Wrong Shard", message, error, now)

    def _on_entry_error(self, entry: Entry, started: float, now: float, code: str, message: str) -> None:
        error = service_error(code, message, operation="PutRecords")
        self.counters.failed_entries += 1
        if isinstance(error, ThrottledError):
            self.counters.throttled_entries += 1
            limiter = self._limiters.get(entry.shard_id or entry.aggregate.hash_key)
            if limiter is not None:
                limiter.on_throttled(started, now, self._rng)
            if self._config.fail_if_throttled:
                self._fail_all(entry.records, started, now, code, error)
                return
        # An entry's error has no HTTP status; codes that we do not know count as transient.
        if isinstance(error, PermanentAwsError):
            self._fail_all(entry.records, started, now, code, error)
        else:
            self._retry(entry, started, now, code, message, error)

    def _retry(
        self,
        entry: Entry,
        started: float,
        ended: float,
        code: str,
        message: str,
        error: KinesisSdkError,
        now: float | None = None,
    ) -> None:
        """Note the attempt of every user record inside; send them back into the aggregator, or fail them."""
        moment = ended if now is None else now
        self._retries.note(entry.records, started, ended, code, message, error)
        again: list[PendingRecord] = []
        for record in entry.records:
            if moment >= record.expires:
                self._fail_expired(record, moment, "the last attempt ended after it")
                continue
            self.counters.user_record_retries += 1
            again.append(record)
        if again:
            self._retry_all(entry, again, moment)

    def _retry_all(self, entry: Entry, records: list[PendingRecord], now: float) -> None:  # noqa: ARG002
        """Back into the aggregator, at once or after a rest; ``entry`` is what the records were in."""
        for record in records:
            record.deadline = now + self._retry_delay(record, now)
            if self._retries.rests(record):
                self._retries.rest(record)
            else:
                self._aggregate(record, now)

    def _retry_delay(self, record: PendingRecord, now: float) -> float:
        return self._retries.delay(record, now, hurry=record.epoch <= self._flushed_epoch)

    def _expire(self, entry: Entry, now: float, why: str) -> None:
        """A Kinesis record holds an expired user record: that one fails, the others are grouped anew."""
        for record in entry.records:
            if record.expires <= now:
                self._fail_expired(record, now, why)
            else:
                self._aggregate(record, now)
