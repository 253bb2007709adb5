"""The KPL's metrics, recorded once per Kinesis record or request.

Names, units and meanings are the KPL's (metrics.md, retrier.cc), so its dashboards and alarms remain valid; they are
defined in `kinesis_sdk.common.catalogue`. The shard is where a stored user record landed, and where anything else was
predicted for. ``Wrong Shard`` is an error as metrics.md says ("shard map changes"), although the KPL's code leaves it out.
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
from kinesis_sdk.producer.collector import Batch
from kinesis_sdk.producer.record import PendingRecord, Stored

SAMPLE_INTERVAL = 0.2
"""Seconds between two samples of UserRecordsPending (KPL: kinesis_producer.cc)."""

_MAX_SCOPES_KEPT = 10_000


class SettledRecords(Protocol):
    """What the pipeline says about user records that have their final result (`pipeline.Settled`)."""

    @property
    def records(self) -> list[PendingRecord]:
        """All user records of a stored Kinesis record, or some that failed for good."""
        ...

    @property
    def stored(self) -> Stored | None:
        """Where they are; None if they failed."""
        ...

    @property
    def payloads(self) -> list[bytes]:
        """Their payloads."""
        ...


class Reading(NamedTuple):
    """What a stream's pipeline looks like at a moment.

    Attributes:
        stream: Which stream.
        received: User records accepted so far.
        wrong_shard: Kinesis records so far that had to go again because they landed across a reshard.
        pending: User records without a final result.
    """

    stream: StreamId
    received: int
    wrong_shard: int
    pending: int


class ProducerMetrics:
    """Turns what happens in a producer into the KPL's metrics. Thread-safe; never raises.

    All methods are called without the engine's lock: a slow sink must not hold up other threads.

    Args:
        sink: Where the numbers go. A Kinesis record or a request costs one call for each metric.

    Attributes:
        next_sample: Monotonic seconds at which the next `sample` is due.
    """

    def __init__(self, sink: Metrics) -> None:
        self.next_sample = float("-inf")
        self._sink = sink
        self._add = sink.add
        # Of `sample`: two must not report one difference. Re-entrant: a signal handler may close what it interrupted.
        self._lock = threading.RLock()
        self._last: dict[StreamId, Reading] = {}
        self._scopes: dict[tuple[StreamId, str | None, str | None], Scope] = {}
        self._failures = SinkFailures()
        self._ended = False

    @classmethod
    def of(cls, sink: Metrics | None) -> ProducerMetrics | None:
        """Metrics for a sink, or None where nobody listens: then a call site costs one comparison."""
        return None if sink is None or isinstance(sink, NoMetrics) else cls(sink)

    def sample(self, now: float, readings: Iterable[Reading]) -> None:
        """Report what is pending, and what came since the last sample.

        Args:
            now: Monotonic seconds; the next one is due `SAMPLE_INTERVAL` later.
            readings: Of all streams.
        """
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
        """Report a PutRecords call that ended.

        Args:
            stream: Its stream.
            batch: What was sent, and when.
            response: The answer; not looked at if the call failed.
            failure: Why the call failed as a whole; None if it did not.
            ended: Monotonic seconds.
        """
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
        """Report user records of one stream that have their final result.

        Call it before their futures are resolved: they release their payload then, and its size with it.

        Args:
            stream: Their stream.
            items: What the pipeline says about them.
            predict: The shard of a hash key, or None if that is not known; asked for failed records only.
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
        """End the gauges: the producer was closed, and nothing is pending."""
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
        # An interrupted `put` takes its record back: then there is less than before, and nothing to report.
        received = reading.received - (last.received if last else 0)
        if received > 0:
            self._add(catalogue.USER_RECORDS_RECEIVED, scope, received, received)
        wrong = reading.wrong_shard - (last.wrong_shard if last else 0)
        if wrong > 0:
            self._add_errors("Wrong Shard", wrong, stream)
            self._add(catalogue.ALL_ERRORS, scope, wrong, wrong)

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
                    sent.sizes.append(entry.aggregate.size)
                else:
                    sent.errors["ProtocolError"] += 1
        for shard_id, sent in by_shard.items():
            self._add_all(catalogue.USER_RECORDS_PER_KINESIS_RECORD, sent.counts, self._of(stream, shard_id))
            if usable:
                self._answered(sent, stream, shard_id)
        if not usable:
            code = failure.code if isinstance(failure, AwsError) else type(failure).__name__
            if failure is None:
                code = "ProtocolError"  # an answer that does not fit what was sent
            self._add_errors(code, 1, stream)
            self._add(catalogue.ALL_ERRORS, of_stream, 1)

    def _answered(self, sent: _Sent, stream: StreamId, shard_id: str | None) -> None:
        count = len(sent.counts)
        stored = len(sent.sizes)
        refused = count - stored
        scope = self._of(stream, shard_id)
        self._add_outcomes(catalogue.KINESIS_RECORDS_PUT, count, stored, scope)
        self._add_outcomes(catalogue.ALL_ERRORS, count, refused, scope)
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
        """``ones`` observations of 1, and of 0 for the rest."""
        self._add(metric, scope, ones, count, int(ones == count), int(ones > 0))

    def _add_all(self, metric: Metric, values: list[Any], scope: Scope) -> None:
        if values:
            self._add(metric, scope, sum(values), len(values), min(values), max(values))

    def _add_errors(self, code: str, count: int, stream: StreamId, shard_id: str | None = None) -> None:
        self._add(catalogue.ERRORS_BY_CODE, self._of(stream, shard_id, code), count, count)

    def _of(self, stream: StreamId, shard_id: str | None = None, code: str | None = None) -> Scope:
        """The scope of a shard, made once."""
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
            scope = self._scopes.setdefault(key, scope)  # threads of two requests may meet here
        return scope

    def _forget_shards(self) -> None:
        """Forget the scopes of shards, whose counts the sink keeps; those of streams have gauges."""
        shards = [key for key in [*self._scopes] if key[1] is not None or key[2] is not None]
        for key in shards:
            scope = self._scopes.pop(key, None)
            if scope is not None:
                scope.retired = True
                self._sink.retire(scope)


class _Sent:
    """Kinesis records of one request with the same predicted shard."""

    __slots__ = ("counts", "errors", "sizes")

    def __init__(self) -> None:
        self.counts: list[int] = []  # user records in each
        self.sizes: list[int] = []  # bytes of each that was stored
        self.errors: Counter[str] = Counter()


class _Failed:
    """User records with the same predicted shard that failed for good."""

    __slots__ = ("expired", "retries", "waits")

    def __init__(self) -> None:
        self.expired = 0
        self.retries: list[int] = []
        self.waits: list[float] = []

    def add(self, record: PendingRecord) -> None:
        history = record.history or []
        self.retries.append(max(0, len(history) - 1))
        self.waits.extend(attempt.delay * 1000 for attempt in history)
        self.expired += bool(history) and history[-1].code == "Expired"
