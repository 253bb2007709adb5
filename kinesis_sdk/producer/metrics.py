"""The KPL's metrics, measured a Kinesis record or a request at a time.

Names, units and meanings are the KPL's (metrics.md, retrier.cc), so its dashboards and alarms go on working. S is
its summary level; all others are detailed.

| name | unit | shard | what |
|---|---|---|---|
| UserRecordsReceived | Count | no | accepted by ``put`` |
| UserRecordsPending | Count | no | without a final result, sampled |
| UserRecordsPut (S) | Count | yes | 1 stored, 0 failed for good: the mean is the success rate |
| UserRecordsDataPut | Bytes | yes | payload of each stored user record |
| UserRecordExpired (S) | Count | yes | ran out of its time-to-live |
| RetriesPerRecord | Count | yes | attempts of a settled user record, less one |
| BufferingTime (S) | Milliseconds | yes | before each attempt of a settled user record |
| KinesisRecordsPut (S) | Count | yes | 1 stored, 0 refused, for each Kinesis record of an answer |
| KinesisRecordsDataPut | Bytes | yes | payload of each stored Kinesis record |
| AllErrors (S) | Count | yes | 1 for each refused Kinesis record or failed request, 0 for each stored one |
| ErrorsByCode (S) | Count | yes | the same by ErrorCode, without the zeros |
| UserRecordsPerKinesisRecord | Count | yes | of each Kinesis record sent |
| RequestTime | Milliseconds | no | of each PutRecords call |
| KinesisRecordsPerPutRecordsRequest | Count | no | |
| UserRecordsPerPutRecordsRequest | Count | no | |

The shard is where a stored user record landed, and where anything else was predicted for. ``Wrong Shard`` is an
error as metrics.md says ("shard map changes"), although the KPL's code leaves it out.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from kinesis_sdk.common.errors import AwsError, KinesisSdkError
from kinesis_sdk.common.metrics import Metrics, NoMetrics
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.collector import Batch
from kinesis_sdk.producer.record import PendingRecord, Stored

_LOGGER = logging.getLogger(__name__)

SAMPLE_INTERVAL = 0.2
"""Seconds between two samples of UserRecordsPending (KPL: kinesis_producer.cc)."""

_MAX_DIMENSIONS_KEPT = 10_000
_COUNT = "Count"
_BYTES = "Bytes"
_MILLISECONDS = "Milliseconds"


class StatisticsMetrics(Metrics, Protocol):
    """A sink that takes many observations in one call; those of `kinesis_sdk.metrics` do."""

    def add_statistics(
        self,
        name: str,
        count: int,
        total: float,
        low: float,
        high: float,
        unit: str,
        dimensions: Mapping[str, str],
    ) -> None:
        """Record ``count`` observations with this sum, minimum and maximum."""
        ...


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
        sink: Where the numbers go. If it has ``add_statistics``, a Kinesis record or a request costs one call
            for each metric; else every observation is one call of ``add``.

    Attributes:
        next_sample: Monotonic seconds at which the next `sample` is due.
    """

    def __init__(self, sink: Metrics) -> None:
        self.next_sample = float("-inf")
        self._add = sink.add
        if hasattr(sink, "add_statistics"):
            self._add_statistics = cast(StatisticsMetrics, sink).add_statistics
        else:
            self._add_statistics = self._add_each
        self._lock = threading.Lock()  # of `sample`: two must not report one difference
        self._last: dict[StreamId, Reading] = {}
        self._dimensions: dict[tuple[str, str | None], dict[str, str]] = {}
        self._errors = 0

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
                self._complain(error)

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
            self._complain(error)

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
                    self._stored(item, item.stored, self._of(stream.name, item.stored.shard_id))
                    continue
                for record in item.records:
                    failed.setdefault(predict(record.hash_key), _Failed()).add(record)
            for shard_id, failures in failed.items():
                self._failed(failures, self._of(stream.name, shard_id))
        except Exception as error:  # noqa: BLE001 - as in sample
            self._complain(error)

    def _sample(self, reading: Reading) -> None:
        dimensions = self._of(reading.stream.name)
        last = self._last.get(reading.stream)
        self._last[reading.stream] = reading
        self._add("UserRecordsPending", reading.pending, _COUNT, dimensions)
        # An interrupted `put` takes its record back: then there is less than before, and nothing to report.
        received = reading.received - (last.received if last else 0)
        if received > 0:
            self._add_statistics("UserRecordsReceived", received, received, 1, 1, _COUNT, dimensions)
        wrong = reading.wrong_shard - (last.wrong_shard if last else 0)
        if wrong > 0:
            self._add_errors("Wrong Shard", wrong, dimensions)
            self._add_statistics("AllErrors", wrong, wrong, 1, 1, _COUNT, dimensions)

    def _request(
        self,
        stream: StreamId,
        batch: Batch,
        response: Mapping[str, Any],
        failure: KinesisSdkError | None,
        ended: float,
    ) -> None:
        entries = batch.entries
        name = stream.name
        of_stream = self._of(name)
        counts = [len(entry.records) for entry in entries]
        self._add("RequestTime", (ended - batch.started) * 1000, _MILLISECONDS, of_stream)
        self._add("KinesisRecordsPerPutRecordsRequest", len(entries), _COUNT, of_stream)
        self._add("UserRecordsPerPutRecordsRequest", sum(counts), _COUNT, of_stream)
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
            dimensions = self._of(name, shard_id)
            self._add_all("UserRecordsPerKinesisRecord", sent.counts, _COUNT, dimensions)
            if usable:
                self._answered(sent, dimensions)
        if not usable:
            code = failure.code if isinstance(failure, AwsError) else type(failure).__name__
            if failure is None:
                code = "ProtocolError"  # an answer that does not fit what was sent
            self._add_errors(code, 1, of_stream)
            self._add("AllErrors", 1, _COUNT, of_stream)

    def _answered(self, sent: _Sent, dimensions: dict[str, str]) -> None:
        count = len(sent.counts)
        stored = len(sent.sizes)
        refused = count - stored
        self._add_outcomes("KinesisRecordsPut", count, stored, dimensions)
        self._add_outcomes("AllErrors", count, refused, dimensions)
        self._add_all("KinesisRecordsDataPut", sent.sizes, _BYTES, dimensions)
        for code, errors in sent.errors.items():
            self._add_errors(code, errors, dimensions)

    def _stored(self, item: SettledRecords, stored: Stored, dimensions: dict[str, str]) -> None:
        records = item.records
        started = stored.started
        waits = [(started - record.last_event) * 1000 for record in records]
        sizes = [len(data) for data in item.payloads]
        retries = [len(record.history) if record.history else 0 for record in records]
        if any(retries):
            waits.extend(attempt.delay * 1000 for record in records for attempt in record.history or ())
        count = len(records)
        self._add_outcomes("UserRecordsPut", count, count, dimensions)
        self._add_all("UserRecordsDataPut", sizes, _BYTES, dimensions)
        self._add_all("BufferingTime", waits, _MILLISECONDS, dimensions)
        self._add_all("RetriesPerRecord", retries, _COUNT, dimensions)

    def _failed(self, failures: _Failed, dimensions: dict[str, str]) -> None:
        self._add_outcomes("UserRecordsPut", len(failures.retries), 0, dimensions)
        expired = failures.expired
        self._add_statistics("UserRecordExpired", expired, expired, 1, 1, _COUNT, dimensions)
        self._add_all("BufferingTime", failures.waits, _MILLISECONDS, dimensions)
        self._add_all("RetriesPerRecord", failures.retries, _COUNT, dimensions)

    def _add_outcomes(self, name: str, count: int, ones: int, dimensions: dict[str, str]) -> None:
        """``ones`` observations of 1, and of 0 for the rest."""
        self._add_statistics(name, count, ones, int(ones == count), int(ones > 0), _COUNT, dimensions)

    def _add_all(self, name: str, values: list[Any], unit: str, dimensions: dict[str, str]) -> None:
        if values:
            self._add_statistics(name, len(values), sum(values), min(values), max(values), unit, dimensions)

    def _add_errors(self, code: str, count: int, dimensions: dict[str, str]) -> None:
        with_code = {"ErrorCode": code, **dimensions}
        self._add_statistics("ErrorsByCode", count, count, 1, 1, _COUNT, with_code)

    def _add_each(
        self,
        name: str,
        count: int,
        total: float,
        low: float,
        high: float,
        unit: str,
        dimensions: Mapping[str, str],
    ) -> None:
        """For a sink without ``add_statistics``: observations with that count, sum, minimum and maximum."""
        if count < 1:
            return
        self._add(name, low, unit, dimensions)
        if count > 1:
            self._add(name, high, unit, dimensions)
        if count > 2:
            if name in _OUTCOMES:  # between 0 and 1 is nothing
                values = [1.0] * int(total - low - high) + [0.0] * int(count - 2 - (total - low - high))
            else:
                values = [(total - low - high) / (count - 2)] * (count - 2)
            for value in values:
                self._add(name, value, unit, dimensions)

    def _of(self, stream: str, shard_id: str | None = None) -> dict[str, str]:
        """Dimensions, made once for each shard."""
        key = (stream, shard_id)
        dimensions = self._dimensions.get(key)
        if dimensions is None:
            dimensions = {"StreamName": stream}
            if shard_id is not None:
                dimensions["ShardId"] = shard_id
            if len(self._dimensions) >= _MAX_DIMENSIONS_KEPT:
                self._dimensions.clear()  # years of resharding
            self._dimensions[key] = dimensions
        return dimensions

    def _complain(self, error: Exception) -> None:
        """A sink must not raise. Say so, but less and less often: it may do it with every record."""
        self._errors += 1
        if self._errors & (self._errors - 1) == 0:
            _LOGGER.warning(
                "metrics are lost: the sink raised, %d times so far", self._errors, exc_info=error
            )


_OUTCOMES = frozenset({"UserRecordsPut", "KinesisRecordsPut", "AllErrors"})


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
