"""One stream's way from `put` to the final result: the producer's decisions, without threads, clock or network.

```
add ─► aggregator ─► limiter (per shard) ─► collector ─► poll: batches for the shell to send
          ▲                                                        │
          └── retry: deadline = min(now + buffered time / 2, expiry) ◄── on_response / on_failure ──► settled
```
A user record is in exactly one place: an open aggregate, a limiter's queue, the collector, an isolated batch,
a batch that the shell sends, the list of verdicts that wait for a shard map, or `settled`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import service_error
from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    EndpointUnreachableError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    RecordFailedError,
    ResourceNotFoundError,
    ThrottledError,
)
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.aggregator import Aggregator, Entry
from kinesis_sdk.producer.collector import Batch, Collector
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.judge import Verdict, judge
from kinesis_sdk.producer.limiter import ShardLimiter
from kinesis_sdk.producer.record import PendingRecord, Stored
from kinesis_sdk.producer.topology import StreamFacts, Topology

_COLLECTION_EXTENSION = 0.05
_COLLECTION_EXTENSION_SHARE = 0.2
"""A closed aggregate waits for company in a request for min(50 ms, 20 % of the buffered time), as in the KPL."""

_FLUSH_RETRY_DELAY = 0.1
_FIRST_PAUSE = 0.05
_MAX_PAUSE = 2.0
_HOPELESS_CONTACTS = 3
"""Loads in a row that found nobody at the endpoint, before anything ever worked, until records fail at once."""

_ABOUT_ONE_RECORD = frozenset({"ValidationException", "InvalidArgumentException"})
"""Codes with which the service refuses a whole request for one bad entry."""

_NEVER = float("inf")


class Settled(NamedTuple):
    """A final result: the user records of one Kinesis record that is stored, or one that failed."""

    records: list[PendingRecord]
    stored: Stored | None
    error: KinesisSdkError | None


class _Deferred(NamedTuple):
    entry: Entry
    stored: Stored


@dataclass
class Counters:
    """What one stream's pipeline did so far; all counts."""

    user_records_put: int = 0
    user_records_stored: int = 0
    user_records_failed: int = 0
    user_bytes_stored: int = 0
    kinesis_records_stored: int = 0
    kinesis_bytes_stored: int = 0
    put_records_calls: int = 0
    failed_calls: int = 0
    throttled_entries: int = 0
    failed_entries: int = 0
    wrong_shard_entries: int = 0
    user_record_retries: int = 0
    expired_user_records: int = 0


class StreamPipeline:
    """The state of one stream. Not thread-safe: its owner calls it under one lock.

    Args:
        stream: Which stream.
        config: The producer's settings.
        rng: Jitter.
    """

    def __init__(self, stream: StreamId, config: ProducerConfig, rng: random.Random) -> None:
        self.stream = stream
        self.topology = Topology(rng)
        self.counters = Counters()
        self.settled: list[Settled] = []
        self._config = config
        self._rng = rng
        self._aggregator = Aggregator(config.aggregation_max_size, self._aggregation_count())
        self._limiters: dict[str, ShardLimiter] = {}
        self._collector = Collector(config.collection_max_count, config.collection_max_size)
        self._isolated: deque[Batch] = deque()
        self._deferred: list[_Deferred] = []
        self._extension = min(
            _COLLECTION_EXTENSION, _COLLECTION_EXTENSION_SHARE * config.record_max_buffered_time
        )
        self._flushed_epoch = -1
        self._paused_until = -_NEVER
        self._failures = 0
        self._contacted = False

    # ------------------------------------------------------------------ from the caller

    @property
    def max_record_size(self) -> int:
        """Most bytes (data and partition key) of a user record that this stream takes, as far as is known."""
        known = self.topology.max_record_size
        ours = self._config.max_user_record_size
        return min(ours, known) if known is not None else ours

    def add(self, record: PendingRecord, now: float) -> bool:
        """Take a new record.

        Returns:
            Whether a Kinesis record got ready, so that `next_event` may be earlier than before.
        """
        self.counters.user_records_put += 1
        return self._aggregate(record, now)

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
        for limiter in self._limiters.values():
            limiter.expedite()
        self._collector.expedite()

    # ------------------------------------------------------------------ from the shell's loop

    def poll(self, now: float, slots: int) -> list[Batch]:
        """Do what is due; return at most ``slots`` requests to send now."""
        for entry in self._aggregator.close_due(now):
            self._limit(entry, now)
        for limiter in self._limiters.values():
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
                batches.append(self._isolated.popleft())
            elif self._collector.is_due(now):
                batches.append(self._collector.take())
            else:
                break
        return batches

    def next_event(self, now: float, slots: int) -> float:
        """Monotonic seconds at which `poll` or a load has something to do; infinity if never."""
        deadline = self._aggregator.next_deadline
        events = [deadline if deadline is not None else _NEVER, self._collector.next_expiry]
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

    @property
    def has_work(self) -> bool:
        """Whether some record has no final result yet."""
        counters = self.counters
        return counters.user_records_put > counters.user_records_stored + counters.user_records_failed

    def take_settled(self) -> list[Settled]:
        """Final results since the last call; the shell hands them to the futures without holding its lock."""
        settled, self.settled = self.settled, []
        return settled

    # ------------------------------------------------------------------ from the network

    def on_response(self, batch: Batch, response: Mapping[str, Any], now: float) -> None:
        """PutRecords answered."""
        results = response.get("Records")
        if not isinstance(results, list) or len(results) != len(batch.entries):
            got = len(results) if isinstance(results, list) else "no"
            error = ProtocolError(f"PutRecords: {len(batch.entries)} records sent, {got} results came back")
            self.on_failure(batch, error, now)
            return
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
            shard_id = str(result["ShardId"])
            self.counters.kinesis_records_stored += 1
            self.counters.kinesis_bytes_stored += entry.size
            if entry.shard_id is not None and shard_id != entry.shard_id:
                self.topology.invalidate(batch.started)
            stored = Stored(shard_id, str(result["SequenceNumber"]), batch.started, now)
            self._judge(entry, stored, now, last_word=False)

    def on_failure(self, batch: Batch, error: KinesisSdkError, now: float) -> None:
        """A PutRecords call failed as a whole."""
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
            for entry in batch.entries:
                self._fail_all(entry.records, batch.started, now, code, error)
            return
        if isinstance(error, ThrottledError) and self._config.fail_if_throttled:
            for entry in batch.entries:
                self._fail_all(entry.records, batch.started, now, code, error)
            return
        pause = min(_MAX_PAUSE, _FIRST_PAUSE * 2**self._failures)
        self._failures = min(self._failures + 1, 30)
        self._paused_until = now + pause * self._rng.uniform(0.5, 1.0)
        for entry in batch.entries:
            self._retry(entry, batch.started, now, code, str(error), error)

    def on_facts(self, facts: StreamFacts, now: float) -> None:
        """A load of the stream's facts succeeded.

        Raises:
            ProtocolError: The shards do not tile the hash key space; the shell then calls `on_facts_failed`.
        """
        before = self.topology.shard_map
        self.topology.finish_load(facts, now)
        self._contacted = True
        self._aggregator.max_count = self._aggregation_count()
        after = self.topology.shard_map
        if after is not before and after is not None:
            self._regroup(now)
        deferred, self._deferred = self._deferred, []
        for item in deferred:
            self._judge(item.entry, item.stored, now, last_word=True)

    def on_facts_failed(self, error: KinesisSdkError, now: float) -> None:
        """A load failed. Verdicts that waited for it become retries; hopeless errors fail what is buffered."""
        self.topology.fail_load(now)
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
        """Remove and return every record that is not with the network or waiting for a verdict."""
        records = self._aggregator.take_all()
        entries = [entry for limiter in self._limiters.values() for entry in limiter.take_all()]
        entries.extend(self._collector.take_where(lambda _entry: True))
        while self._isolated:
            entries.extend(self._isolated.popleft().entries)
        records.extend(record for entry in entries for record in entry.records)
        records.sort(key=lambda record: record.arrived)
        return records

    def abandon(self, now: float, error: KinesisSdkError) -> None:
        """The producer closes without waiting any longer: everything that is buffered here fails."""
        for record in self.take_buffered():
            self._fail(record, now, now, type(error).__name__, error)
        deferred, self._deferred = self._deferred, []
        for item in deferred:
            self._fail_all(item.entry.records, item.stored.started, now, "Wrong Shard", error)

    # ------------------------------------------------------------------ inside

    def _aggregation_count(self) -> int:
        config = self._config
        if not config.aggregation_enabled or self.topology.service_places:
            return 1
        return config.aggregation_max_count

    def _aggregate(self, record: PendingRecord, now: float) -> bool:
        shard_map = self.topology.shard_map
        if shard_map is None or self.topology.service_places:
            entry = self._aggregator.add(record, record.hash_key)
        else:
            entry = self._aggregator.add(record, shard_map.predict(record.hash_key))
        if entry is None:
            return False
        self._limit(entry, now)
        return True

    def _limit(self, entry: Entry, now: float) -> None:
        """A closed aggregate goes through its shard's limiter; without a predicted shard there is none."""
        if entry.shard_id is None:
            self._collect(entry, now)
            return
        limiter = self._limiters.get(entry.shard_id)
        if limiter is None:
            limiter = self._limiters[entry.shard_id] = ShardLimiter(self._config.rate_limit, now)
        limiter.add(entry)
        for released in limiter.release(now):
            self._collect(released, now)

    def _collect(self, entry: Entry, now: float) -> None:
        deadline = -_NEVER if entry.urgent else max(entry.deadline, now + self._extension)
        self._collector.add(entry, deadline)

    def _regroup(self, now: float) -> None:
        """Predict anew whatever was grouped for a shard that is not open any more, or for no shard."""
        shard_map = self.topology.shard_map
        assert shard_map is not None
        records = self._aggregator.take_all()
        stale = [shard_id for shard_id in self._limiters if not shard_map.is_open(shard_id)]
        entries = [entry for shard_id in stale for entry in self._limiters.pop(shard_id).take_all()]
        entries.extend(
            self._collector.take_where(
                lambda entry: entry.shard_id is not None and not shard_map.is_open(entry.shard_id)
            )
        )
        records.extend(record for entry in entries for record in entry.records)
        records.sort(key=lambda record: record.arrived)
        for record in records:
            self._aggregate(record, now)
        if any(record.epoch <= self._flushed_epoch for record in records):
            self.flush(self._flushed_epoch, now)

    def _judge(self, entry: Entry, stored: Stored, now: float, *, last_word: bool) -> None:
        verdict = judge(entry, stored.shard_id, self.topology.shard_map)
        if verdict is Verdict.STORED:
            self.counters.user_records_stored += len(entry.records)
            self.counters.user_bytes_stored += sum(len(record.data) for record in entry.records)
            self.settled.append(Settled(entry.records, stored, None))
        elif verdict is Verdict.UNKNOWN_SHARD and not last_word:
            self._deferred.append(_Deferred(entry, stored))
        else:
            self.counters.wrong_shard_entries += 1
            message = f"predicted {entry.shard_id}, landed in {stored.shard_id}, where a KCL would discard it"
            error = ProtocolError(f"PutRecords: {message}")
            self._retry(entry, stored.started, stored.ended, "Wrong Shard", message, error, now)

    def _on_entry_error(self, entry: Entry, started: float, now: float, code: str, message: str) -> None:
        error = service_error(code, message, operation="PutRecords")
        self.counters.failed_entries += 1
        if isinstance(error, ThrottledError):
            self.counters.throttled_entries += 1
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
        delay = self._config.record_max_buffered_time / 2
        for record in entry.records:
            record.add_failed_attempt(started, ended, code, message)
            record.last_error = error
            if moment >= record.expires:
                self._fail_expired(record, moment, "the last attempt ended after it")
                continue
            self.counters.user_record_retries += 1
            wait = min(delay, _FLUSH_RETRY_DELAY) if record.epoch <= self._flushed_epoch else delay
            record.deadline = min(moment + wait, record.expires)
            self._aggregate(record, moment)

    def _expire(self, entry: Entry, now: float, why: str) -> None:
        """A Kinesis record holds an expired user record: that one fails, the others are grouped anew."""
        for record in entry.records:
            if record.expires <= now:
                self._fail_expired(record, now, why)
            else:
                self._aggregate(record, now)

    def _fail_expired(self, record: PendingRecord, now: float, why: str) -> None:
        self.counters.expired_user_records += 1
        cause = record.last_error
        age = now - record.arrived
        text = f"not stored within its time-to-live ({age:.1f} s after put; {why})"
        record.add_failed_attempt(now, now, "Expired", text)
        self._settle_failure(record, text, cause)

    def _fail_all(
        self, records: Iterable[PendingRecord], started: float, now: float, code: str, error: KinesisSdkError
    ) -> None:
        for record in records:
            self._fail(record, started, now, code, error)

    def _fail(
        self, record: PendingRecord, started: float, now: float, code: str, error: KinesisSdkError
    ) -> None:
        record.add_failed_attempt(started, now, code, str(error))
        self._settle_failure(record, "not stored", error)

    def _settle_failure(self, record: PendingRecord, text: str, cause: KinesisSdkError | None) -> None:
        reason = f": {cause}" if cause is not None else ""
        failure = RecordFailedError(
            f"record for stream {self.stream}: {text}{reason}",
            stream=self.stream.name,
            partition_key=record.partition_key,
            attempts=tuple(record.history or ()),
        )
        failure.__cause__ = cause
        self.counters.user_records_failed += 1
        self.settled.append(Settled([record], None, failure))
