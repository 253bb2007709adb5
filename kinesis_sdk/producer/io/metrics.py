"""Recorder of the KPL's metrics, called once per Kinesis record or request.

Names, units and meanings are the same as in the KPL (metrics.md, retrier.cc), so dashboards and alarms for the KPL remain valid; the
metrics are defined in `kinesis_sdk.common.catalogue`. A stored user record counts for the shard that accepted it, any other user record
for its predicted shard. ``Wrong Shard`` counts as an error, as metrics.md describes it ("shard map changes"), although the KPL's code does
not count it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from kinesis_sdk.common import catalogue
from kinesis_sdk.common.errors import AwsError, KinesisSdkError
from kinesis_sdk.common.metrics import (
    ERROR_CODE,
    SHARD_ID,
    Metric,
    Metrics,
    NoMetrics,
    Scope,
    SinkFailures,
    stream_dimensions,
)
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.io.shared import NEVER, SharedState
from kinesis_sdk.producer.records.record import BufferedRecord, Stored
from kinesis_sdk.producer.stream.collector import Batch

SAMPLE_INTERVAL = 0.2
"""Seconds between two samples of UserRecordsPending (KPL: kinesis_producer.cc)."""

_MAX_SCOPES_KEPT = 10_000


class SettledRecords(Protocol):
    """User records with their final result, as a pipeline reports them."""

    @property
    def records(self) -> list[BufferedRecord]:
        """All user records of a stored Kinesis record, or user records that failed permanently."""
        ...

    @property
    def stored(self) -> Stored | None:
        """Shard and sequence number of stored records; None if they failed."""
        ...

    @property
    def payloads(self) -> list[bytes]:
        """Payloads of the records."""
        ...


class Reading(NamedTuple):
    """Sample of the pipeline of one stream; see `Counters`. ``received``, ``wrong_shard`` and ``begun_anew`` count since the start."""

    stream: StreamId
    received: int
    wrong_shard: int
    pending: int
    begun_anew: int = 0


class ProducerMetrics:
    """Records the events of a producer as the KPL's metrics. Thread-safe; never raises.

    All methods are called without the engine's lock, so a slow sink does not block other threads. The sink gets one call per metric for each
    Kinesis record or request. ``next_sample`` is the time at which the next `sample` is due (monotonic seconds).
    """

    def __init__(self, sink: Metrics) -> None:
        self.next_sample: float = float("-inf")
        self._sink = sink
        self._add = sink.add
        # Held by `sample`, so that two threads do not report the same difference. Re-entrant, because a signal handler may
        # close the producer that it interrupted.
        self._lock = threading.RLock()
        self._last: dict[StreamId, Reading] = {}
        self._scopes: dict[tuple[StreamId, str | None, str | None], Scope] = {}
        self._failures = SinkFailures()
        self._ended = False

    @classmethod
    def of(cls, sink: Metrics | None) -> ProducerMetrics | None:
        """Return metrics for a sink; None without a sink, so that the cost for the caller is only a comparison."""
        return None if sink is None or isinstance(sink, NoMetrics) else cls(sink)

    def sample(self, now: float, readings: Iterable[Reading]) -> None:
        """Record the pending records of all streams, and the changes since the last sample. The next is due after `SAMPLE_INTERVAL`."""
        with self._lock:
            self.next_sample = now + SAMPLE_INTERVAL
            try:
                for reading in readings:
                    self._sample(reading)
            except Exception as error:  # noqa: BLE001 - a broken sink must not cost a record
                self._failures.report(error)

    def request(
        self,
        stream: StreamId,
        batch: Batch,
        response: Mapping[str, Any],
        failure: KinesisSdkError | None,
        ended: float,
    ) -> None:
        """Record a completed PutRecords call; ``failure`` is the error of a call that failed as a whole, ``ended`` its end."""
        try:
            self._request(stream, batch, response, failure, ended)
        except Exception as error:  # noqa: BLE001 - as in sample
            self._failures.report(error)

    def settled(
        self,
        stream: StreamId,
        items: Iterable[SettledRecords],
        predict: Callable[[bytes], str | None],
    ) -> None:
        """Record user records of one stream that have their final result.

        Call this before the futures complete, because that releases the payloads and their sizes. ``predict`` returns the shard of a hash
        key, or None if it is unknown; it is called only for failed records.
        """
        try:
            failed: dict[str | None, _Failed] = {}
            for item in items:
                if item.stored is not None:
                    self._stored(item, item.stored, self._of(stream, item.stored.shard_id))
                    continue
                for record in item.records:
                    failed.setdefault(predict(record.hash_key), _Failed()).add(record)
            for shard_id, failures in failed.items():
                self._failed(failures, self._of(stream, shard_id))
        except Exception as error:  # noqa: BLE001 - as in sample
            self._failures.report(error)

    def retire(self) -> None:
        """End the gauges of a closed producer, which has no pending records."""
        with self._lock:
            self._ended = True
            scopes, self._scopes = [*self._scopes.values()], {}
        try:
            for scope in scopes:
                scope.retired = True
                self._sink.retire(scope)
        except Exception as error:  # noqa: BLE001 - as in sample
            self._failures.report(error)

    def _sample(self, reading: Reading) -> None:
        stream = reading.stream
        scope = self._of(stream)
        last = self._last.get(stream)
        self._last[stream] = reading
        self._add(catalogue.USER_RECORDS_PENDING, scope, reading.pending)
        # An interrupted `put` is undone, so the count may be lower than before. Then there is nothing to report.
        received = reading.received - (last.received if last else 0)
        if received > 0:
            self._add(catalogue.USER_RECORDS_RECEIVED, scope, received, received)
        wrong = reading.wrong_shard - (last.wrong_shard if last else 0)
        if wrong > 0:
            self._add_errors("Wrong Shard", wrong, stream)
            self._add(catalogue.ALL_ERRORS, scope, wrong, wrong)
        anew = reading.begun_anew - (last.begun_anew if last else 0)
        if anew > 0:
            self._add(catalogue.BEGUN_ANEW, scope, anew, anew)

    def _request(
        self,
        stream: StreamId,
        batch: Batch,
        response: Mapping[str, Any],
        failure: KinesisSdkError | None,
        ended: float,
    ) -> None:
        entries = batch.entries
        of_stream = self._of(stream)
        counts = [len(entry.records) for entry in entries]
        self._add(catalogue.REQUEST_TIME, of_stream, (ended - batch.started) * 1000)
        self._add(catalogue.KINESIS_RECORDS_PER_REQUEST, of_stream, len(entries))
        self._add(catalogue.USER_RECORDS_PER_REQUEST, of_stream, sum(counts))
        by_shard: dict[str | None, _Sent] = {}
        results = None if failure is not None else response.get("Records")
        usable = isinstance(results, list) and len(results) == len(entries)
        for index, entry in enumerate(entries):
            sent = by_shard.get(entry.shard_id)
            if sent is None:
                sent = by_shard[entry.shard_id] = _Sent()
            sent.counts.append(counts[index])
            if usable:
                result = cast("list[Any]", results)[index]
                code = result.get("ErrorCode")
                if code:
                    sent.errors[str(code)] += 1
                elif result.get("ShardId") and result.get("SequenceNumber"):
                    sent.sizes.append(entry.form.size)
                else:
                    sent.errors["ProtocolError"] += 1
        for shard_id, sent in by_shard.items():
            self._add_all(catalogue.USER_RECORDS_PER_KINESIS_RECORD, sent.counts, self._of(stream, shard_id))
            if usable:
                self._record_results(sent, stream, shard_id)
        if not usable:
            code = failure.code if isinstance(failure, AwsError) else type(failure).__name__
            if failure is None:
                code = "ProtocolError"  # the response does not match the request
            self._add_errors(code, 1, stream)
            self._add(catalogue.ALL_ERRORS, of_stream, 1)

    def _record_results(self, sent: _Sent, stream: StreamId, shard_id: str | None) -> None:
        count = len(sent.counts)
        stored = len(sent.sizes)
        rejected = count - stored
        scope = self._of(stream, shard_id)
        self._add_outcomes(catalogue.KINESIS_RECORDS_PUT, count, stored, scope)
        self._add_outcomes(catalogue.ALL_ERRORS, count, rejected, scope)
        self._add_all(catalogue.KINESIS_RECORDS_DATA_PUT, sent.sizes, scope)
        for code, errors in sent.errors.items():
            self._add_errors(code, errors, stream, shard_id)

    def _stored(self, item: SettledRecords, stored: Stored, scope: Scope) -> None:
        records = item.records
        started = stored.started
        waits = [(started - record.last_event) * 1000 for record in records]
        sizes = [len(data) for data in item.payloads]
        retries = [len(record.history) if record.history else 0 for record in records]
        if any(retries):
            waits.extend(attempt.delay * 1000 for record in records for attempt in record.history or ())
        count = len(records)
        self._add_outcomes(catalogue.USER_RECORDS_PUT, count, count, scope)
        self._add_all(catalogue.USER_RECORDS_DATA_PUT, sizes, scope)
        self._add_all(catalogue.BUFFERING_TIME, waits, scope)
        self._add_all(catalogue.RETRIES_PER_RECORD, retries, scope)

    def _failed(self, failures: _Failed, scope: Scope) -> None:
        self._add_outcomes(catalogue.USER_RECORDS_PUT, len(failures.retries), 0, scope)
        if failures.expired:
            self._add(catalogue.USER_RECORD_EXPIRED, scope, failures.expired, failures.expired)
        self._add_all(catalogue.BUFFERING_TIME, failures.waits, scope)
        self._add_all(catalogue.RETRIES_PER_RECORD, failures.retries, scope)

    def _add_outcomes(self, metric: Metric, count: int, ones: int, scope: Scope) -> None:
        """Record a number of observations: ``ones`` of them have the value 1, the others 0."""
        self._add(metric, scope, ones, count, int(ones == count), int(ones > 0))

    def _add_all(self, metric: Metric, values: list[Any], scope: Scope) -> None:
        if values:
            self._add(metric, scope, sum(values), len(values), min(values), max(values))

    def _add_errors(self, code: str, count: int, stream: StreamId, shard_id: str | None = None) -> None:
        self._add(catalogue.ERRORS_BY_CODE, self._of(stream, shard_id, code), count, count)

    def _of(self, stream: StreamId, shard_id: str | None = None, code: str | None = None) -> Scope:
        """Return the scope of a stream, shard or error code, which is created once."""
        key = (stream, shard_id, code)
        scope = self._scopes.get(key)
        if scope is None:
            dimensions = stream_dimensions(stream)
            if shard_id is not None:
                dimensions[SHARD_ID] = shard_id
            if code is not None:
                dimensions[ERROR_CODE] = code
            scope = Scope(dimensions)
            scope.retired = self._ended
            if len(self._scopes) >= _MAX_SCOPES_KEPT:  # years of resharding
                self._forget_shards()
            scope = self._scopes.setdefault(key, scope)  # another thread may have created the same scope
        return scope

    def _forget_shards(self) -> None:
        """Drop the scopes of shards and error codes; the sink keeps their counts. Scopes of streams have gauges, so they are kept."""
        shards = [key for key in [*self._scopes] if key[1] is not None or key[2] is not None]
        for key in shards:
            scope = self._scopes.pop(key, None)
            if scope is not None:
                scope.retired = True
                self._sink.retire(scope)


class _Sent:
    """Counts of the Kinesis records of one request with the same predicted shard."""

    __slots__ = ("counts", "errors", "sizes")

    def __init__(self) -> None:
        self.counts: list[int] = []  # user records in each
        self.sizes: list[int] = []  # bytes of each that was stored
        self.errors: Counter[str] = Counter()


class _Failed:
    """Counts of failed user records with the same predicted shard."""

    __slots__ = ("expired", "retries", "waits")

    def __init__(self) -> None:
        self.expired = 0
        self.retries: list[int] = []
        self.waits: list[float] = []

    def add(self, record: BufferedRecord) -> None:
        history = record.history or []
        self.retries.append(max(0, len(history) - 1))
        self.waits.extend(attempt.delay * 1000 for attempt in history)
        self.expired += bool(history) and history[-1].code == "Expired"


class MetricsSampler:
    """Samples the number of pending records, as long as there are any. Thread-safe."""

    def __init__(self, shared: SharedState, metrics: ProducerMetrics) -> None:
        self._shared = shared
        self._metrics = metrics
        self._unsampled = False

    def observe(self) -> None:
        """Note that the I/O loop is awake: another sample is due if there are records. Call under the lock."""
        self._unsampled |= self._shared.usage.count > 0

    @property
    def next_sample(self) -> float:
        """Time at which the next sample is due; infinity if nothing has been pending since the last sample."""
        return self._metrics.next_sample if self._unsampled else NEVER

    def sample(self) -> None:
        """Report pending and accepted records. Call without the lock."""
        with self._shared.lock:
            now = self._shared.now()
            readings = [
                Reading(
                    pipeline.stream,
                    pipeline.counters.user_records_put,
                    pipeline.counters.wrong_shard_entries,
                    pipeline.pending_count,
                    pipeline.counters.begun_anew_records,
                )
                for pipeline in self._shared.pipelines.values()
            ]
            self._unsampled = False
        self._metrics.sample(now, readings)
