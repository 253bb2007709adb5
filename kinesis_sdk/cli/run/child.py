"""A worker process of `kinesis-sdk run`.

The supervisor holds the other end of standard input: the settings come first, and ``stop`` requests a clean stop. The end of the input
means that the supervisor has ended, so the worker stops as well. Reports go to the supervisor through a
pipe.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import IO, Any

from kinesis_sdk.cli.run.handlers import HandlerNotFoundError, load_parts
from kinesis_sdk.cli.run.logs import configure_logging
from kinesis_sdk.cli.run.metrics import ProcessMetrics
from kinesis_sdk.cli.run.policy_table import PolicyPlace, tiers_of
from kinesis_sdk.cli.run.retry_table import with_retries
from kinesis_sdk.cli.run.settings import RunSettings
from kinesis_sdk.cli.run.supervisor import ChildCode
from kinesis_sdk.common.errors import ConfigError, KinesisSdkError
from kinesis_sdk.common.log_fields import loggable
from kinesis_sdk.common.stop_flag import StopFlag
from kinesis_sdk.consumer import ConsumerConfig, DynamoDbStream, StreamSpec, Worker, WorkerParts
from kinesis_sdk.retries import RetryWorker

_LOGGER = logging.getLogger(__name__)

_TICK = 0.2
"""Seconds between two checks for requests."""
_REPORT_INTERVAL = 1.0
"""Seconds between two health reports."""


class Reports:
    """Reports to the supervisor through a pipe. Thread-safe."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._pipe = os.fdopen(descriptor, "wb", buffering=0)
        self._lock = threading.Lock()

    def send(self, event: str, **content: Any) -> None:
        """Send a report. If the supervisor has ended, the report is lost; the end of standard input then stops this process."""
        line = json.dumps({"event": event, **content}).encode() + b"\n"
        try:
            with self._lock:
                self._pipe.write(line)
        except OSError as error:
            _LOGGER.debug("the supervisor does not read reports: %s", error)


def _take_standard_input() -> IO[str]:
    """Return standard input for this module alone; the handler and its child processes see an empty input."""
    control = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return os.fdopen(control, encoding="utf-8")


def _follow(
    control: IO[str], stop: StopFlag, stop_timeout: float, metrics: ProcessMetrics | None, reports: Reports
) -> None:
    """Carry out the supervisor's requests; once the supervisor has ended, end this process in any case."""
    for line in control:
        request, _, number = line.strip().partition(" ")
        if request == "stop":
            stop.set()
        elif request == "metrics" and metrics is not None:
            try:
                text = metrics.text()
            except Exception as error:
                _LOGGER.error("the metrics cannot be read", exc_info=loggable(error))
            else:
                reports.send("metrics", number=int(number), text=text)
    _LOGGER.warning("the supervisor is gone, stopping")
    stop.set()
    time.sleep(stop_timeout)
    _LOGGER.error("did not stop within %g s after the supervisor was gone, ending at once", stop_timeout)
    os._exit(ChildCode.FAILED)


def _make_worker(settings: RunSettings, parts: WorkerParts, metrics: ProcessMetrics | None) -> Worker:
    streams: Sequence[str | StreamSpec] | None = None
    source: str | DynamoDbStream | None = None
    if settings.reads_tiers:
        assert parts.config is not None
        streams = tiers_of(parts.config.on_handler_error)
    elif settings.dynamodb_table is not None:
        source = DynamoDbStream(settings.dynamodb_table)
    elif len(settings.streams) > 1:
        streams = settings.streams
    else:
        source = settings.streams[0]
    return Worker(
        source,
        streams=streams,
        application_name=settings.worker_application,
        handler=parts.handler,
        config=parts.config,
        sink=parts.sink,
        interceptors=parts.interceptors,
        metrics=parts.metrics if metrics is None else metrics.sink,
        session=settings.connection.session,
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        worker_id=settings.worker_id,
        until=None if settings.until is None else datetime.fromisoformat(settings.until),
    )


def _load(settings: RunSettings, place: PolicyPlace) -> WorkerParts:
    config = settings.consumer_config(loads=True, place=place)
    parts = load_parts(settings.handler, config, is_factory=settings.is_factory)
    if settings.reports_metrics and parts.metrics is not None:
        raise ConfigError(
            "metrics",
            "a sink of the factory",
            "None with --metrics-port, because that option has a sink of its own",
        )
    if settings.sink is not None:
        if parts.sink is not None:
            raise ConfigError("sink", "a sink of the factory", "None with --sink")
        parts = replace(parts, sink=settings.sink)
    return parts if parts.config is not None else replace(parts, config=config)


def _run(
    settings: RunSettings, stop: StopFlag, reports: Reports, metrics: ProcessMetrics | None
) -> ChildCode:
    place = settings.place()
    try:
        try:
            parts = _load(settings, place)
        except (HandlerNotFoundError, ConfigError, ImportError) as error:  # ImportError: an extra is missing
            reports.send("failed", message=str(error))
            return ChildCode.USAGE
        try:
            return _work(settings, parts, place, stop, reports, metrics)
        finally:
            if parts.close is not None:
                parts.close()
    finally:
        place.close()


def _work(
    settings: RunSettings,
    parts: WorkerParts,
    place: PolicyPlace,
    stop: StopFlag,
    reports: Reports,
    metrics: ProcessMetrics | None,
) -> ChildCode:
    config = parts.config
    assert config is not None
    try:
        parts, retries = with_retries(parts, place, dynamodb_table=settings.dynamodb_table)
        worker = _make_worker(settings, parts, metrics)
        reports.send("loaded")
        if stop.is_set():
            return ChildCode.STOPPED
        # On a thread, because `start` may wait for the lease table.
        threading.Thread(target=_pass_on, args=(stop, worker), name="kinesis-stop", daemon=True).start()
        worker.start()
    except (ConfigError, ImportError) as error:
        reports.send("failed", message=str(error))
        return ChildCode.USAGE
    except KinesisSdkError as error:
        reports.send("failed", message=str(error))
        return ChildCode.CALL_FAILED
    reports.send("started")
    try:
        with retries or nullcontext():
            _follow_worker(worker, retries, reports, config, reports_health=settings.reports_health)
            worker.stop()
    except BaseException as error:
        _LOGGER.error("the worker failed", exc_info=loggable(error))
        reports.send("failed", message=f"{type(error).__name__}: {error}")
        return ChildCode.FAILED
    return ChildCode.STOPPED if stop.is_set() or settings.until is None else ChildCode.REACHED


def _pass_on(stop: StopFlag, worker: Worker) -> None:
    stop.wait()
    worker.request_stop()


def _follow_worker(
    worker: Worker,
    retries: RetryWorker | None,
    reports: Reports,
    config: ConsumerConfig,
    *,
    reports_health: bool,
) -> None:
    """Report the health of a worker until it has ended, or the worker of its retry table has failed."""
    failover_time = config.leases.failover_time
    reported = float("-inf")
    while not worker.wait(_TICK):
        if retries is not None and retries.error is not None:
            return  # leaving the retry worker's context raises the error
        if reports_health and time.monotonic() - reported >= _REPORT_INTERVAL:
            reported = time.monotonic()
            health = worker.health()
            reports.send(
                "health",
                health=health.to_dict(),
                live=health.live_problems(),
                ready=health.ready_problems(),
                failover_time=failover_time,
            )


def main() -> int:
    """Consume until the supervisor requests a stop or has ended, or until all records are processed."""
    # Ctrl-C reaches all processes of the terminal, and the supervisor decides what it means. The supervisor starts this
    # process with the signal blocked, so that the signal cannot end the process before this line.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    control = _take_standard_input()
    line = control.readline()
    if not line:
        return ChildCode.FAILED  # the supervisor ended before it sent the settings
    settings = RunSettings.from_json(line)
    configure_logging(settings.worker_id, settings.log_level, settings.log_format)
    stop = StopFlag()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    reports = Reports(settings.status_fd)
    metrics = ProcessMetrics() if settings.reports_metrics else None
    threading.Thread(
        target=_follow,
        args=(control, stop, settings.stop_timeout, metrics, reports),
        name="kinesis-supervisor",
        daemon=True,
    ).start()
    return _run(settings, stop, reports, metrics)


if __name__ == "__main__":
    sys.exit(main())
