"""Opens the fetchers of a worker's shards: prefetched polling, or enhanced fan-out that falls back to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any, cast

from kinesis_sdk.common.aws import KinesisClient
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.position import Position
from kinesis_sdk.common.service_clock import ServiceClock
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import Transport
from kinesis_sdk.consumer.config import RetrievalConfig
from kinesis_sdk.consumer.fetch.budget import ByteBudget
from kinesis_sdk.consumer.fetch.events import start_thread
from kinesis_sdk.consumer.fetch.fanout import FanOutFetcher
from kinesis_sdk.consumer.fetch.fetcher import Fetcher
from kinesis_sdk.consumer.fetch.polling import PollingFetcher
from kinesis_sdk.consumer.fetch.prefetch import Prefetcher
from kinesis_sdk.consumer.fetch.read_rate import ReadRate, StreamTraffic, TipIdle, spread_of
from kinesis_sdk.consumer.fetch.registration import ConsumerRegistration, FanOutClient
from kinesis_sdk.consumer.runtime.scheduler import Scheduler
from kinesis_sdk.consumer.table_streams.client import MAX_RECORDS


class FetcherSource:
    """Opens fetchers and schedules their reads. Thread-safe; the lock is a leaf.

    Args:
        application_name: Name of the registered consumer, unless the settings name one.
        run: Called with each read, to run it: a thread pool's ``submit``, or in tests a function that calls it at once.
    """

    def __init__(
        self,
        *,
        kinesis: KinesisClient,
        retrieval: RetrievalConfig,
        application_name: str,
        budget: ByteBudget,
        scheduler: Scheduler,
        run: Callable[[Callable[[], None]], object],
        rng: Random,
        clock: Clock,
        worker_id: str | None = None,
    ) -> None:
        self._kinesis = kinesis
        self._polled = cast("KinesisClient", Transport(kinesis, speaks_cbor=retrieval.wire_format == "cbor"))
        self._pushed: Any = kinesis
        self._start_reader = start_thread
        if retrieval.retrieval_mode == "fanout" and retrieval.fanout_http == "2":
            # Imported here, because the package h2 comes with an extra.
            from kinesis_sdk.consumer.fetch.http2.client import Http2Client

            self._pushed = Http2Client(self._polled, clock)
            self._start_reader = self._pushed.start
        self._retrieval = retrieval
        self._application_name = application_name
        self._budget = budget
        self._scheduler = scheduler
        self._run = run
        self._rng = rng
        self._clock = clock
        self._worker_id = worker_id
        self._service_clock = ServiceClock()
        self._lock = threading.Lock()
        # Read rates outlive the fetchers: a new fetcher of a shard must not exceed the shard's read limits.
        self._read_rates: dict[str, ReadRate] = {}
        self._registrations: dict[str, ConsumerRegistration] = {}
        self._traffic: dict[str, StreamTraffic] = {}

    def open(
        self,
        stream: StreamId,
        shard_id: str,
        key: str,
        start: Position,
        now: float,
        on_ready: Callable[[], None],
        *,
        metrics: BoundMetrics,
        consumer_arn: str | None = None,
        polled: bool = False,
    ) -> Fetcher:
        """Start reading a shard.

        ``on_ready`` is called from any thread when a result can be fetched. Without ``consumer_arn``, the registered
        consumer is found by name. ``polled`` polls the shard even if the worker uses enhanced fan-out. Raises an `AwsError`
        if a LATEST start could not be resolved.
        """
        polling = self._poll(stream, shard_id, key, start, now, metrics)
        polling.resolve_start()
        if polled or self._retrieval.retrieval_mode == "polling":
            return self._prefetch(polling, on_ready)
        pushed = FanOutFetcher(
            self._pushed,
            self._registration(stream, consumer_arn),
            shard_id,
            polling.position,
            rng=self._rng,
            budget=self._budget,
            on_ready=on_ready,
            open_polling=lambda position, at: self._prefetch(
                self._poll(stream, shard_id, key, position, at, metrics), on_ready
            ),
            clock=self._clock,
            service_clock=self._service_clock,
            metrics=metrics,
            started_at_millis=polling.started_at_millis,
            start_reader=self._start_reader,
        )
        self._schedule(pushed)
        return pushed

    def open_look_up(
        self, stream: StreamId, shard_id: str, key: str, start: Position, now: float, max_records: int
    ) -> Fetcher:
        """Return a fetcher for a look-up in the shard or one of its ancestors; `Fetcher.fetch` makes the calls itself.

        The fetcher shares the read limits of the shard with this worker's other reads. ``max_records`` limits the
        Kinesis records of a call.
        """
        with self._lock:
            read_rate = self._read_rates.get(key) or ReadRate()
        return self._polling(
            stream, shard_id, start, now, NOT_MEASURED, read_rate, max_records, StreamTraffic()
        )

    def observe_service_time(self, service_time: float, at: float) -> None:
        """Record a time that Kinesis had reached, see `ServiceClock.observe`."""
        self._service_clock.observe(service_time, at)

    def forget(self, key: str) -> None:
        """Forget the read rate of a shard whose lease ended."""
        with self._lock:
            self._read_rates.pop(key, None)

    def _poll(
        self, stream: StreamId, shard_id: str, key: str, start: Position, now: float, metrics: BoundMetrics
    ) -> PollingFetcher:
        with self._lock:
            # DynamoDB Streams documents no byte limit, and its records grow when converted to JSON.
            rate = ReadRate(float("inf")) if stream.is_of_table else ReadRate()
            read_rate = self._read_rates.setdefault(key, rate)
            # DynamoDB Streams bills reads, so there a shard gives other shards no hints.
            traffic = (
                StreamTraffic()
                if stream.is_of_table
                else self._traffic.setdefault(str(stream), StreamTraffic())
            )
        max_records = self._retrieval.max_records
        if stream.is_of_table:
            max_records = min(max_records, MAX_RECORDS)
        return self._polling(stream, shard_id, start, now, metrics, read_rate, max_records, traffic)

    def _polling(
        self,
        stream: StreamId,
        shard_id: str,
        start: Position,
        now: float,
        metrics: BoundMetrics,
        read_rate: ReadRate,
        max_records: int,
        traffic: StreamTraffic,
    ) -> PollingFetcher:
        return PollingFetcher(
            self._polled,
            stream,
            shard_id,
            start,
            rng=self._rng,
            max_records=max_records,
            idle=TipIdle(
                *self._retrieval.idle_times(billed=stream.is_of_table), traffic, spread=spread_of(shard_id)
            ),
            read_rate=read_rate,
            now=now,
            clock=self._clock,
            service_clock=self._service_clock,
            metrics=metrics,
            worker=self._worker_id,
        )

    def _prefetch(self, polling: PollingFetcher, on_ready: Callable[[], None]) -> Prefetcher:
        prefetcher = Prefetcher(polling, budget=self._budget, on_ready=on_ready)
        self._schedule(prefetcher)
        return prefetcher

    def _schedule(self, reader: Any) -> None:
        task = self._scheduler.add(reader.step, self._run)
        reader.bind(lambda: self._scheduler.wake(task))
        self._scheduler.wake(task)

    def _registration(self, stream: StreamId, consumer_arn: str | None) -> ConsumerRegistration:
        with self._lock:
            known = self._registrations.get(str(stream))
            if known is None:
                known = self._registrations[str(stream)] = ConsumerRegistration(
                    cast(FanOutClient, self._kinesis),
                    stream,
                    name=self._retrieval.consumer_name or self._application_name,
                    arn=consumer_arn,
                    worker=self._worker_id,
                )
            return known
