"""One stream's way from `put` to the final result: the producer's decisions, without threads, clock or network.

```
add ─► aggregator ─► limiter (per shard) ─► collector ─► poll: batches for the shell to send
          ▲                                                        │
          └── retry: after half the buffered time, before the expiry ◄── on_response / on_failure ──► settled
```
A user record is in exactly one place: an open aggregate, a limiter's queue, the collector, an isolated batch,
a batch that the shell sends, the list of verdicts that wait for a shard map, the rest before a further retry, or
`settled`. What was not sent yet is in `unsent`; here is what answers and failures mean for it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.aws import is_throttle, service_error
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
from kinesis_sdk.producer.aggregator import DetachedRecord, Entry, Group
from kinesis_sdk.producer.collector import Batch
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.placement import Placement, check_placement
from kinesis_sdk.producer.record import PendingRecord, Stored
from kinesis_sdk.producer.retries import LAST_CHANCE
from kinesis_sdk.producer.send_queue import SMALLEST_RECORD_LIMIT, Deferred, SendQueue
from kinesis_sdk.producer.topology import MISSING_BACKOFF, StreamFacts

_FIRST_PAUSE = 0.05
_MAX_PAUSE = 2.0
_MAX_FAILED_CONTACTS = 3
"""Loads in a row that found nobody at the endpoint, before anything ever worked, until records fail at once."""

_MAX_FAILED_LOADS = 3
"""Loads in a row that may fail (about a second) until what waits for a placement is sent again instead."""

_ABOUT_ONE_RECORD = frozenset({"ValidationException", "InvalidArgumentException"})
"""Codes with which the service refuses a whole request for one bad entry."""

_MAX_SINGLE_REJECTIONS = 100
"""Single records that may be refused in a row, with nothing stored between, before it is not the records."""

BOUNDLESS = 2**62
"""Limit of an aggregate whose records fitted into another one."""

_NEVER = float("inf")


class StreamPipeline(SendQueue):
    """The state of one stream. Not thread-safe: its owner calls it under one lock.

    Args:
        stream: Which stream.
        config: The producer's settings.
        rng: Jitter.
    """

    def __init__(self, stream: StreamId, config: ProducerConfig, rng: random.Random) -> None:
        super().__init__(stream, config, rng)
        self._paused_since = -_NEVER
        self._failures = 0
        self._refused_alone = 0
        self._contacted = False

    # ------------------------------------------------------------------ from the network

    def on_response(self, batch: Batch, response: Mapping[str, Any], now: float) -> None:
        """Handle the response of a PutRecords call, as `sender.put_records` returns it."""
        self._sent.discard(batch)
        self._counters.put_records_calls += 1
        self._contacted = True
        self._request_failure = None
        self._failures = self._refused_alone = 0
        if self.topology.failures:
            self.topology.on_stream_seen(batch.started)
        slowed = False
        results = response["Records"]
        for entry, result in zip(batch.entries, results, strict=True):
            code = result.get("ErrorCode")
            if code:
                if not slowed:
                    # Before any retry is queued again, so that it already waits at the new rate.
                    self._slow_down(batch, results, now)
                    slowed = True
                self._on_entry_error(entry, batch.started, now, code, str(result.get("ErrorMessage") or ""))
                continue
            shard_id, sequence_number = result.get("ShardId"), result.get("SequenceNumber")
            if not shard_id or not sequence_number:
                text = "the result of an entry has neither an error code nor a valid shard id and sequence number"
                error = ProtocolError(f"PutRecords: {text}")
                self._counters.failed_entries += 1
                self._retry(entry, batch.started, now, "ProtocolError", text, error)
                continue
            self._counters.kinesis_records_stored += 1
            self._counters.kinesis_bytes_stored += entry.size
            if entry.shard_id is not None and shard_id != entry.shard_id:
                self.topology.invalidate(batch.started, shard_id)
            stored = Stored(shard_id, sequence_number, batch.started, now)
            self._check_placement(entry, stored, now, last_word=False)

    def on_failure(self, batch: Batch, error: KinesisSdkError, now: float) -> None:
        """A PutRecords call failed as a whole."""
        self._sent.discard(batch)
        self._counters.put_records_calls += 1
        self._counters.failed_calls += 1
        self._request_failure = error
        if isinstance(error, AwsError) and error.status is not None:
            self._contacted = True
        code = error.code if isinstance(error, AwsError) else type(error).__name__
        waits = self._waits_for(error)
        if isinstance(error, ResourceNotFoundError):
            self.topology.forget(now + MISSING_BACKOFF if waits else _NEVER)
            self.aggregator.forget_keys()
            self._missing = waits
        if isinstance(error, PermanentAwsError) and not waits:
            if error.code in _ABOUT_ONE_RECORD and self._divide(batch):
                return
            for entry in batch.entries:
                self._fail_all(entry, batch.started, now, code, error)
            return
        if isinstance(error, ThrottledError) and self._config.fail_if_throttled:
            for entry in batch.entries:
                self._fail_all(entry, batch.started, now, code, error)
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
        missing, self._missing = self._missing, False
        self._contacted = True
        self._load_failure = None
        self.aggregator.max_count = self._aggregation_count()
        self.aggregator.max_size = self._aggregation_size()
        if topology.max_record_size is not None:
            self.max_record_size = min(self._config.max_user_record_size, topology.max_record_size)
        if (topology.shard_map, topology.service_places) != before:
            self._regroup(now)
        if missing:
            self._rebuild(now)  # also what was ready to be sent: it was grouped without a map
        # A map that was asked for before the record was sent can not know the shard that it landed in.
        loaded_at = topology.shard_map.loaded_at if topology.shard_map else _NEVER
        deferred, self._deferred = self._deferred, []
        for item in deferred:
            self._check_placement(item.entry, item.stored, now, last_word=item.stored.started <= loaded_at)

    def on_facts_failed(self, error: KinesisSdkError, now: float) -> None:
        """A load failed. Verdicts wait for the next one, but not for ever; hopeless errors fail what is buffered."""
        # Another failure does not say that the stream is missing still: then requests may go, and find out.
        self._missing = waits = self._waits_for(error)
        self.topology.fail_load(now, awaited=waits)
        if isinstance(error, AwsError) and error.status is not None:
            self._contacted = True
        # With a shard map in use, no record waits for this load.
        self._load_failure = error if waits or self.topology.shard_map is None else None
        if self._aggregation_count() != self.aggregator.max_count:
            self.aggregator.max_count = self._aggregation_count()
            self._regroup(now)
        deferred, self._deferred = self._deferred, []
        tired = self.topology.failures >= _MAX_FAILED_LOADS
        for item in deferred:
            ends = item.entry.expires - now < 2 * LAST_CHANCE
            self._check_placement(item.entry, item.stored, now, last_word=tired or ends)
        nobody_there = (
            isinstance(error, EndpointUnreachableError)
            and not self._contacted
            and self.topology.failures >= _MAX_FAILED_CONTACTS
        )
        hopeless = isinstance(error, (AwsConfigError, ResourceNotFoundError)) and not waits
        if hopeless or nobody_there:
            code = error.code if isinstance(error, AwsError) else type(error).__name__
            for record, _, _ in self.take_unsent():
                self._fail(record, now, now, code, error)
            self.drop_empty()

    def abandon(self, now: float, error: KinesisSdkError) -> None:
        """Every record without a final result fails, also what is with the network: nobody waits for answers.

        The shell drops answers that still come.
        """
        self._deferred.clear()
        self._sent.clear()
        for item in self.take_unsent():
            self._fail(item.record, now, now, type(error).__name__, error)
        self.drop_empty()

    # ------------------------------------------------------------------ inside

    def _waits_for(self, error: KinesisSdkError) -> bool:
        """Return whether the error says that the stream is missing, and records wait until it exists."""
        return isinstance(error, ResourceNotFoundError) and self._config.missing_stream == "wait"

    def _check_placement(self, entry: Entry, stored: Stored, now: float, *, last_word: bool) -> None:
        topology = self.topology
        if not topology.described and len(entry.records) > 1 and entry.shard_id is None:
            # Whether its hash key placed it is known when the service has said who places records.
            placement = Placement.WRONG_SHARD if last_word else Placement.UNKNOWN_SHARD
        else:
            placement = check_placement(
                entry, stored.shard_id, topology.shard_map, service_places=topology.service_places
            )
        if placement is Placement.STORED:
            self._store(entry, stored)
        elif placement is Placement.UNKNOWN_SHARD and not last_word:
            self._deferred.append(Deferred(entry, stored))
            topology.require_load()
        else:
            self._counters.wrong_shard_entries += 1
            message = f"predicted {entry.shard_id}, landed in {stored.shard_id}, where a KCL may discard it"
            error = ProtocolError(f"PutRecords: {message}")
            self._retry(entry, stored.started, stored.ended, "Wrong Shard", message, error, now)

    def _slow_down(self, batch: Batch, results: list[Any], now: float) -> None:
        """Tell the limiters of all shards that were throttled in a request, each with its entries."""
        throttled: dict[Group, list[Entry]] = {}
        for entry, result in zip(batch.entries, results, strict=True):
            if is_throttle(result.get("ErrorCode") or ""):
                throttled.setdefault(entry.shard_id or entry.aggregate.hash_key, []).append(entry)
        for group, entries in throttled.items():
            limiter = self._limiters.get(group)
            if limiter is not None:
                limiter.on_throttled(entries, now, self._rng)

    def _on_entry_error(self, entry: Entry, started: float, now: float, code: str, message: str) -> None:
        error = service_error(code, message, operation="PutRecords")
        self._counters.failed_entries += 1
        if isinstance(error, ThrottledError):
            self._counters.throttled_entries += 1
            if self._config.fail_if_throttled:
                self._fail_all(entry, started, now, code, error)
                return
        # An entry's error has no HTTP status; codes that we do not know count as transient.
        if isinstance(error, PermanentAwsError):
            self._fail_all(entry, started, now, code, error)
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
        for record in entry.records:
            if moment >= self._expiry(record):
                self._fail_expired(record, moment, "the last attempt ended after it")
        again = entry.detach_records()
        if again:
            self._counters.user_record_retries += len(again)
            self._retry_all(entry, again, moment)
        self._drop_empty((entry,))

    def _retry_all(self, entry: Entry, detached: list[DetachedRecord], now: float) -> None:
        """Back into the aggregator, at once or after a rest; ``entry`` is what the records were in."""
        for item in detached:
            record = item.record
            record.due = due = now + self._retry_delay(record, now)
            if self._retries.rests(record):
                self._retries.rest(record, entry, due)
            else:
                self._place_again(item, now)

    def _divide(self, batch: Batch) -> bool:
        """The service refuses a request whole for one bad record: halve it until the bad one is alone.

        Returns:
            False if there is nothing to halve, or no sense in it: then all of it fails.
        """
        entries = batch.entries
        if len(entries) == 1 and entries[0].size > SMALLEST_RECORD_LIMIT:
            # The stream may take less than it said: somebody lowered its limit.
            self.topology.doubt()
        if self._refused_alone >= _MAX_SINGLE_REJECTIONS:
            return False
        if len(entries) > 1:
            middle = len(entries) // 2
            self._isolated.extendleft((Batch(entries[middle:]), Batch(entries[:middle])))
            return True
        entry = entries[0]
        detached = entry.detach_records()
        middle = len(detached) // 2
        if not middle:
            self._refused_alone += 1
            return False
        self._send_parts(
            entry, [self._part_of(entry, detached[:middle]), self._part_of(entry, detached[middle:])]
        )
        self._drop_empty((entry,))
        return True

    def _part_of(self, entry: Entry, detached: list[DetachedRecord]) -> Entry:
        """Some of an entry's user records, in their order, as a Kinesis record of their own."""
        part = Entry(Aggregate(BOUNDLESS, BOUNDLESS), entry.shard_id, entry.epoch)  # less than fitted before
        self.entries[part] = None
        part.mixed = entry.mixed
        part.urgent = entry.urgent
        for record, data, _ in detached:
            part.take(record, data, record.hash_key, entry.deadline, self._expiry(record))
        part.aggregate.seal()
        return part

    def _send_parts(self, entry: Entry, parts: list[Entry]) -> None:  # noqa: ARG002
        """Send ``parts`` in place of ``entry``, each in a request of its own."""
        self._isolated.extendleft(Batch([part]) for part in reversed(parts))

    def _retry_delay(self, record: PendingRecord, now: float) -> float:
        left = self._expiry(record) - now
        return self._retries.delay(record, left, hurry=record.epoch <= self._flushed_epoch)
