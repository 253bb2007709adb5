"""Metrics sink for CloudWatch: uploads statistic sets once a minute.

`upload.UploadPlan` decides what to send and when, and how to handle failures. `CloudWatchMetrics` has the thread that makes
the calls. Producers and workers only add up numbers, so a slow or unreachable CloudWatch delays no record.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from kinesis_sdk.common.aws import AwsSession, make_client, translate_errors
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import AwsError
from kinesis_sdk.common.log_throttle import CountingLogThrottle
from kinesis_sdk.common.metrics import Metric, Scope
from kinesis_sdk.common.validation import check_int, check_namespace, check_seconds
from kinesis_sdk.metrics.accumulator import MAX_SERIES, Accumulator, CustomDimension, Granularity, Level
from kinesis_sdk.metrics.upload import MAX_PENDING, Datum, UploadPlan

_LOGGER = logging.getLogger(__name__)
_NEVER = float("inf")
_LONGEST_SLEEP = 3_600.0


class CloudWatchClient(Protocol):
    """The part of boto3's CloudWatch client that the SDK uses."""

    def put_metric_data(self, *args: Any, **kwargs: Any) -> Any:
        """PutMetricData."""
        ...


class CloudWatchMetrics:
    """Metrics sink that uploads statistic sets to CloudWatch. Thread-safe; `add` never raises or waits for the network.

        with CloudWatchMetrics(region_name="eu-west-1", granularity="stream") as metrics:
            ...

    Close it after the producers and workers that use it: later observations are dropped (and logged once). If a sink is still open when
    the interpreter ends, it is closed. The upload thread starts with the first `add`.

    Costs: one PutMetricData call per minute for each 1,000 metrics, and CloudWatch's charge for each custom metric. With
    ``level="detailed"`` and ``granularity="shard"``, the KPL's metrics are 8 per shard, 13 per stream and 13 in total; with
    ``level="summary"`` and ``granularity="stream"``, 4 per stream and 4 in total. Each error code adds one metric per level.

    Args:
        client: boto3 CloudWatch client; created from the next three arguments if None.
        session: Session with credentials and region for the client; a new default session if None.
        region_name: Region for the client; the session's if None.
        endpoint_url: Endpoint for the client; resolved by botocore if None.
        namespace: CloudWatch namespace, 1 to 255 characters, not starting with ``AWS/`` or a colon. With None, as in the
            KPL and the KCL, a producer's metrics go to ``KinesisProducerLibrary``, and a worker's to the namespace with
            the name of its application. With a namespace, workers' metrics have the dimension ``ApplicationName``.
        level: ``none`` (nothing), ``summary`` or ``detailed``.
        granularity: ``global``, ``stream`` or ``shard``.
        upload_delay: Seconds between two uploads, 0.001 to 60.
        custom_dimensions: Dimensions that the user adds, at most 24.
        max_series: Maximum number of series within one period, at least 1.
        max_pending: Maximum number of statistic sets that are kept while CloudWatch does not accept them, at least 1.
        clock: Monotonic and wall clock; replaced in tests.
        rng: Source of jitter; pass a seeded instance for reproducible runs.

    Raises:
        ConfigError: If an argument is out of range.
        AwsConfigError: If no client can be created: no region, an unknown profile, or an invalid endpoint URL.
    """

    def __init__(
        self,
        client: CloudWatchClient | None = None,
        *,
        session: AwsSession | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        namespace: str | None = None,
        level: Level = "detailed",
        granularity: Granularity = "shard",
        upload_delay: float = 60.0,
        custom_dimensions: Iterable[CustomDimension] = (),
        max_series: int = MAX_SERIES,
        max_pending: int = MAX_PENDING,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if namespace is not None:
            check_namespace("namespace", namespace)
        check_seconds("upload_delay", upload_delay, 0.001, 60)
        check_int("max_pending", max_pending, 1)
        self._accumulator = Accumulator(level, granularity, custom_dimensions, max_series)
        self._on = level != "none"
        # Called by `add`; replaced by `close`.
        self._add: Callable[..., object] = self._accumulator.add
        if client is None and self._on:
            client = make_client(
                "cloudwatch",
                session=session,
                region_name=region_name,
                endpoint_url=endpoint_url,
                max_pool_connections=1,
            )
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._plan = UploadPlan(
            self._accumulator,
            upload_delay,
            max_pending,
            rng or random.Random(),
            self._clock.monotonic(),
            namespace,
        )
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._errors = CountingLogThrottle(_LOGGER)
        self._late = False
        _open.add(self)

    def add(
        self,
        metric: Metric,
        scope: Scope,
        total: float,
        count: int = 1,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Record one observation, or several at once; see `kinesis_sdk.common.metrics.Metrics`."""
        try:
            self._add(metric, scope, total, count, low, high)
            if self._thread is None and self._on:
                self._start()
        except Exception as error:  # noqa: BLE001 - measuring must not cost a record
            self._log_error(metric, error)

    def retire(self, scope: Scope) -> None:
        """Do nothing, because the scope's last samples are uploaded with their period, and no other samples follow."""

    def close(self, timeout: float = 10.0) -> int:
        """Upload the remaining statistic sets and stop. Closing again has no effect.

        Args:
            timeout: Maximum seconds to wait for the upload.

        Returns:
            Number of statistic sets that were not uploaded in time; they are lost, which is logged. 0 means success.
        """
        with self._wake:
            if self._closed:
                return 0
            self._closed = True
            self._on = False
            self._add = self._too_late
            self._wake.notify()
            thread = self._thread
        _open.discard(self)
        if thread is None:
            return 0
        thread.join(timeout)
        if thread.is_alive():
            _LOGGER.warning("CloudWatch metrics: no response within %g s of closing", timeout)
        return self._plan.pending

    def __enter__(self) -> CloudWatchMetrics:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("CloudWatchMetrics holds a thread and a connection and cannot be pickled")

    def _start(self) -> None:
        with self._wake:
            if self._thread is not None or not self._on:
                return
            thread = threading.Thread(target=self._run, name="kinesis-sdk-metrics", daemon=True)
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:  # the interpreter is exiting, or no more threads can be started
                self._thread = None
                raise

    def _run(self) -> None:
        try:
            finishing = False
            while True:
                with self._wake:
                    now = self._clock.monotonic()
                    if self._closed and not finishing:
                        finishing = True
                        self._plan.finish(self._clock.time())
                    batch = self._plan.poll(now, self._clock.time())
                    if batch is None:
                        wake = self._plan.next_event(now)
                        if wake == _NEVER:
                            break
                        self._wake.wait(min(wake - now, _LONGEST_SLEEP))
                        continue
                self._send(batch)
            self._report(final=True)
        except Exception:
            # A defect here ends the upload, not the program.
            _LOGGER.exception("CloudWatch upload failed unexpectedly; uploads are disabled")

    def _send(self, batch: list[Datum]) -> None:
        assert self._client is not None  # None only with level "none", which sends nothing
        try:
            with translate_errors("PutMetricData", self._client):
                self._client.put_metric_data(**self._plan.request(batch))
        except AwsError as error:
            self._plan.on_failure(batch, error.with_traceback(None), self._clock.monotonic())
        else:
            self._plan.on_success()
        self._report()

    def _report(self, *, final: bool = False) -> None:
        report = self._plan.take_report(self._clock.monotonic(), final=final)
        if report is not None:
            given = self._plan.namespace
            _LOGGER.warning(
                "CloudWatch metrics%s: %s", f" namespace {given}" if given is not None else "", report
            )

    def _too_late(self, metric: Metric, *_rest: object) -> None:
        if not self._late:
            self._late = True
            _LOGGER.warning(
                "CloudWatch metrics: %r was recorded after close; this and all later observations are dropped",
                metric.name,
            )

    def _log_error(self, metric: Metric, error: Exception) -> None:
        """Log an error of a caller's thread, throttled, because it may occur for every record."""
        self._errors.log("CloudWatch metrics: observation lost (%d so far): %r", metric.name, error=error)

    def _forget_after_fork(self) -> None:
        """Reset the sink in a forked child: it has no upload thread, and the parent uploads the statistics."""
        self._wake = threading.Condition()
        self._accumulator.reset_lock()
        self._plan = UploadPlan(
            self._accumulator,
            self._plan.upload_delay,
            self._plan.max_pending,
            random.Random(),
            self._clock.monotonic(),
            self._plan.namespace,
        )
        self._thread = None


_open: weakref.WeakSet[CloudWatchMetrics] = weakref.WeakSet()


def _close_at_exit() -> None:
    for metrics in list(_open):
        metrics.close()


def _after_fork_in_child() -> None:
    for metrics in list(_open):
        metrics._forget_after_fork()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
