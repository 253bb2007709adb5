"""Handling of responses, failed calls and shard maps: the decisions about the Kinesis records of a stream.

Each entry of a response is stored, failed, sent again, or, if it landed in a shard that is not in the shard map, deferred until the next
map. In each case, `SendQueue.returned` is called exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import is_throttle, service_error
from kinesis_sdk.common.errors import (
    AwsConfigError,
    AwsError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    ThrottledError,
)
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.records.entry import Entry, Group
from kinesis_sdk.producer.records.record import Stored
from kinesis_sdk.producer.stream.collector import Batch
from kinesis_sdk.producer.stream.dispatch import NEVER, Returned
from kinesis_sdk.producer.stream.outcomes import Placement, check_placement, stored_nothing
from kinesis_sdk.producer.stream.pending import PendingRecords
from kinesis_sdk.producer.stream.retries import LAST_CHANCE, AttemptLog
from kinesis_sdk.producer.stream.send_queue import SendQueue
from kinesis_sdk.producer.stream.topology import DEFAULT_RECORD_LIMIT, MISSING_BACKOFF, StreamFacts, Topology

_new_tuple: Callable[..., Any] = tuple.__new__  # the constructor of a named tuple adds a Python call

_MAX_FAILED_LOADS = 3
"""After this many failed loads in a row (about a second), entries that wait for a placement check are sent again."""

_ABOUT_ONE_RECORD = frozenset({"ValidationException", "InvalidArgumentException"})
"""Codes with which Kinesis rejects a whole request because of one bad entry."""

_MAX_SINGLE_REJECTIONS = 100
"""After this many consecutive rejections of single records without a stored record in between, requests are no longer divided, because the
cause is not a single record."""


class Deferred(NamedTuple):
    """An accepted Kinesis record whose shard is missing from the shard map. Its placement is checked after the next load."""

    entry: Entry
    stored: Stored


class ResponseHandler:
    """Decides after each call whether the Kinesis records of a stream are stored, failed, deferred or sent again. Not thread-safe.

    ``deferred`` are accepted Kinesis records that wait for a shard map.
    """

    def __init__(
        self, pending: PendingRecords, queue: SendQueue, topology: Topology, config: ProducerConfig
    ) -> None:
        self._pending = pending
        self._queue = queue
        self._topology = topology
        self._config = config
        self._attempts = AttemptLog()
        self.deferred: list[Deferred] = []
        self._single_rejections = 0

    # ------------------------------------------------------------------ PutRecords

    def on_response(self, batch: Batch, response: Mapping[str, Any], now: float) -> None:
        """Handle the response of a PutRecords call, in the form that `sender.put_records` returns."""
        queue, pending, topology = self._queue, self._pending, self._topology
        counters, started = pending.counters, batch.started
        queue.end_request(batch)
        queue.pause.succeeded()
        counters.put_records_calls += 1
        pending.failures.request = None
        self._single_rejections = 0
        queue.stamps.observe(response.get("ResponseMetadata"), now)
        if topology.failures:
            topology.on_stream_seen(started)
        slowed = False
        count = size = 0
        results = response["Records"]
        for entry, result in zip(batch.entries, results, strict=True):
            code = result.get("ErrorCode")
            if code:
                if not slowed:
                    # Before any retry is queued, so that it already waits at the new rate.
                    self._slow_down(batch, results, now)
                    slowed = True
                self._on_entry_error(entry, started, now, code, str(result.get("ErrorMessage") or ""))
                continue
            shard_id, sequence_number = result.get("ShardId"), result.get("SequenceNumber")
            if not shard_id or not sequence_number:
                text = "the result of an entry has neither an error code nor a valid shard id and sequence number"
                error = ProtocolError(f"PutRecords: {text}")
                counters.failed_entries += 1
                self._retry(entry, started, now, "ProtocolError", text, error, stored_nothing(error))
                continue
            count += 1
            size += entry._size or entry.size
            if entry.shard_id is not None and shard_id != entry.shard_id:
                topology.invalidate(started, shard_id)
            stored = _new_tuple(Stored, (shard_id, sequence_number, started, now))
            if (entry.chosen or entry.aggregate).is_wrapped:
                self._check_placement(entry, stored, now, last_chance=False, landed_in=shard_id)
            else:
                self._settle(entry, stored, shard_id)
        counters.kinesis_records_stored += count
        counters.kinesis_bytes_stored += size
        queue.resume_lanes(now)

    def on_failure(self, batch: Batch, error: KinesisSdkError, now: float) -> None:
        """Handle a PutRecords call that failed as a whole."""
        queue, counters, failures = self._queue, self._pending.counters, self._pending.failures
        queue.end_request(batch)
        counters.put_records_calls += 1
        counters.failed_calls += 1
        failures.request = error
        waits = self._waits_for_stream(error)
        missing = isinstance(error, ResourceNotFoundError)
        if missing:
            self._topology.forget(now + MISSING_BACKOFF if waits else NEVER)
            queue.aggregator.forget_keys()
            failures.missing = waits
        nothing = stored_nothing(error)
        permanent = isinstance(error, PermanentAwsError) and not waits
        throttled = isinstance(error, ThrottledError) and self._config.fail_if_throttled
        code = error.code if isinstance(error, AwsError) else type(error).__name__
        if permanent and code in _ABOUT_ONE_RECORD and self._doubt_distribution(batch):
            permanent = False
        if permanent and code in _ABOUT_ONE_RECORD and self._divide(batch, now):
            pass
        elif permanent or throttled:
            for entry in batch.entries:
                self._fail(entry, batch.started, now, code, error, nothing)
        else:
            queue.pause.failed(batch.started, now)
            for entry in batch.entries:
                self._retry(entry, batch.started, now, code, str(error), error, nothing)
        if missing:
            queue.on_stream_changed()
        queue.resume_lanes(now)

    # ------------------------------------------------------------------ loads

    def on_facts(self, facts: StreamFacts, now: float) -> None:
        """Handle a successful load of the stream's facts.

        Raises:
            ProtocolError: If the shards do not tile the hash key space; the I/O loop then calls `on_facts_failed`.
        """
        topology, queue, failures = self._topology, self._queue, self._pending.failures
        queue.stamps.observe_date(facts.date, now)
        before = (topology.shard_map, topology.service_places)
        topology.finish_load(facts, now)
        missing, failures.missing = failures.missing, False
        failures.load = None
        queue.aggregator.max_count = topology.aggregation_count(self._config)
        queue.aggregator.max_size = topology.aggregation_size(self._config)
        if (topology.shard_map, topology.service_places) != before:
            queue.on_shard_map(now)
        if missing:
            queue.rebuild(now)  # requests that were ready, too: they were grouped without a map
        # A map that was requested before the record was sent cannot know the shard in which it landed.
        loaded_at = topology.shard_map.loaded_at if topology.shard_map else NEVER
        deferred, self.deferred = self.deferred, []
        for item in deferred:
            self._check_placement(item.entry, item.stored, now, last_chance=item.stored.started <= loaded_at)
        queue.release_parked(now)
        queue.resume_lanes(now, reloaded=True)

    def on_facts_failed(self, error: KinesisSdkError, now: float) -> None:
        """Handle a failed load: placement checks wait for at most `_MAX_FAILED_LOADS` loads; fatal errors fail all buffered records."""
        topology, queue, failures = self._topology, self._queue, self._pending.failures
        # After any other error, the stream may exist again: requests are sent, and their outcomes show whether it does.
        failures.missing = waits = self._waits_for_stream(error)
        topology.fail_load(now, awaited=waits)
        # With a shard map in use, no record waits for this load.
        failures.load = error if waits or topology.shard_map is None else None
        queue.on_aggregation_changed(now)
        deferred, self.deferred = self.deferred, []
        enough = topology.failures >= _MAX_FAILED_LOADS
        for item in deferred:
            expiring = item.entry.expires - now < 2 * LAST_CHANCE
            self._check_placement(item.entry, item.stored, now, last_chance=enough or expiring)
        if isinstance(error, (AwsConfigError, ResourceNotFoundError)) and not waits:
            code = error.code if isinstance(error, AwsError) else type(error).__name__
            self._fail_unsent(now, code, error)
        queue.release_parked(now)
        queue.resume_lanes(now, reloaded=True)

    def abandon(self, now: float, error: KinesisSdkError) -> None:
        """Fail every record without a final result, in flight or not. The caller must drop responses that arrive later."""
        self.deferred.clear()
        self._queue.withdraw_in_flight()
        self._fail_unsent(now, type(error).__name__, error)

    # ------------------------------------------------------------------ entries

    def _check_placement(
        self, entry: Entry, stored: Stored, now: float, *, last_chance: bool, landed_in: str | None = None
    ) -> None:
        """Settle an accepted entry, defer it, or send its records again.

        With ``last_chance``, the entry is sent again instead of being deferred. ``landed_in`` is its shard, if this is the response to its
        request.
        """
        topology = self._topology
        if not topology.described and entry.shard_id is None:
            # Until the summary has been read, it is not known whether its hash key or the stream itself placed it.
            placement = Placement.WRONG_SHARD if last_chance else Placement.UNKNOWN_SHARD
        else:
            placement = check_placement(
                entry, stored.shard_id, topology.shard_map, service_places=topology.service_places
            )
        if placement is Placement.STORED:
            self._settle(entry, stored, landed_in)
        elif placement is Placement.UNKNOWN_SHARD and not last_chance:
            self._queue.returned(entry, Returned.DEFERRED, landed_in)
            self.deferred.append(Deferred(entry, stored))
            topology.require_load()
        else:
            self._pending.counters.wrong_shard_entries += 1
            message = f"predicted {entry.shard_id}, landed in {stored.shard_id}, where a KCL may discard it"
            error = ProtocolError(f"PutRecords: {message}")
            started, ended = stored.started, stored.ended
            # Readers drop it if its hash keys do not belong there. In an unknown shard, they may belong there.
            nothing = placement is Placement.WRONG_SHARD
            self._retry(entry, started, ended, "Wrong Shard", message, error, nothing, now, landed_in)

    def _settle(self, entry: Entry, stored: Stored, landed_in: str | None) -> None:
        self._queue.returned(entry, Returned.STORED, landed_in)
        self._pending.stored(entry, stored)

    def _on_entry_error(self, entry: Entry, started: float, now: float, code: str, message: str) -> None:
        error = service_error(code, message, operation="PutRecords")
        counters = self._pending.counters
        counters.failed_entries += 1
        throttled = isinstance(error, ThrottledError)
        if throttled:
            counters.throttled_entries += 1
        # The error of an entry has no HTTP status; unknown codes count as transient.
        if isinstance(error, PermanentAwsError) or (throttled and self._config.fail_if_throttled):
            self._fail(entry, started, now, code, error, stored_nothing(error))
        else:
            self._retry(entry, started, now, code, message, error, stored_nothing(error))

    def _fail(
        self,
        entry: Entry,
        started: float,
        now: float,
        code: str,
        error: KinesisSdkError,
        nothing_stored: bool,
    ) -> None:
        if not nothing_stored:
            self._queue.stamps.keep(entry)
        self._queue.returned(entry, Returned.FAILED)
        self._pending.fail_entry(entry, started, now, code, error)

    def _retry(
        self,
        entry: Entry,
        started: float,
        ended: float,
        code: str,
        message: str,
        error: KinesisSdkError,
        nothing_stored: bool,
        now: float | None = None,
        landed_in: str | None = None,
    ) -> None:
        """Note the attempt for every user record of an entry; fail the expired records, and send the remaining ones again.

        ``ended`` is when the attempt ended. ``now`` is later than the end of the attempt for a deferred entry, whose placement is checked
        after the next load of the shard map.
        """
        if not nothing_stored:
            self._queue.stamps.keep(entry)
        moment = ended if now is None else now
        self._attempts.note(entry.records, started, ended, code, message, error)
        for record in entry.records:
            if moment >= self._queue.expiry(record):
                self._pending.fail_expired(record, moment, "the last attempt ended after it")
        again = entry.detach_records()
        if again:
            self._queue.retry(entry, again, moment, landed_in)
        else:
            self._queue.returned(entry, Returned.FAILED, landed_in)
        self._pending.drop_empty((entry,))

    def _divide(self, batch: Batch, now: float) -> bool:
        """Divide a rejected request; further rejections divide its parts, until the bad record is alone.

        Return False if the request cannot be divided, or if dividing does not help; then all its records fail.
        """
        entries = batch.entries
        if len(entries) == 1 and entries[0].size > DEFAULT_RECORD_LIMIT:
            # The stream's record limit may have been lowered.
            self._topology.doubt()
        if self._single_rejections >= _MAX_SINGLE_REJECTIONS:
            return False
        if len(entries) > 1:
            self._queue.halve(batch)
            return True
        entry = entries[0]
        detached = entry.detach_records()
        middle = len(detached) // 2
        if not middle:
            self._single_rejections += 1
            return False
        self._queue.split(entry, [detached[:middle], detached[middle:]], now)
        self._pending.drop_empty((entry,))
        return True

    def _doubt_distribution(self, batch: Batch) -> bool:
        """Return whether a rejected request is sent again after a load of the stream's summary.

        Kinesis rejects a request with records without a partition key if the stream does not place records itself. If the producer
        assumed that the stream does, the stream has changed. The load shows this; then records without a key fail, and the other records
        are sent. Each of these records is sent again for this reason only once.
        """
        first = next((entry for entry in batch.entries if not entry.aggregate.partition_key), None)
        if first is None or any(
            attempt.code in _ABOUT_ONE_RECORD for attempt in first.records[0].history or ()
        ):
            return False
        self._topology.doubt()
        return True

    def _slow_down(self, batch: Batch, results: list[Any], now: float) -> None:
        """Cut the rate of every shard that was throttled in a request."""
        throttled: dict[Group, list[Entry]] = {}
        for entry, result in zip(batch.entries, results, strict=True):
            if is_throttle(result.get("ErrorCode") or ""):
                throttled.setdefault(entry.group, []).append(entry)
        for group, entries in throttled.items():
            self._queue.rate_limit.cut(group, entries, now)

    def _fail_unsent(self, now: float, code: str, error: KinesisSdkError) -> None:
        for item in self._queue.take_unsent():
            self._pending.fail(item.record, now, now, code, error)
        self._pending.drop_empty()

    def _waits_for_stream(self, error: KinesisSdkError) -> bool:
        """Return whether the error reports a missing stream, and records wait for the stream."""
        return isinstance(error, ResourceNotFoundError) and self._config.missing_stream == "wait"
