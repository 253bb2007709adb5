"""The daemon: a `Worker` whose handlers are child processes, and its end by signals.

```
SIGINT, SIGTERM, SIGHUP, or a failed child with onChildFailure = exit
   └─► Worker.stop(shutdown_grace): running calls end, then shutdownRequested and leaseLost to every child, leases released
          └─ not done in time, or a second signal ─► the worker is aborted
                 └─► children: input closed ─► SIGTERM ─► SIGKILL, all process groups gone
```
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from kinesis_sdk.common.aws import make_client
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.metrics import Metrics
from kinesis_sdk.common.stop_flag import SignalCopies
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import RecordHandler, Worker
from kinesis_sdk.multilang.children import Children
from kinesis_sdk.multilang.handler import ChildHandler
from kinesis_sdk.multilang.settings import DaemonSettings

if TYPE_CHECKING:
    import boto3

_LOGGER = FieldLogger(logging.getLogger(__name__))

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OTHER_CONNECTIONS = 10
_SIGNAL_CHECK_INTERVAL = 0.5
"""Maximum seconds until the main thread notices a signal that the system delivered to another thread."""


@dataclass(frozen=True)
class Outcome:
    """End of a daemon, other than by an AWS error.

    Attributes:
        clean: Whether every child was notified of the end and every lease was released.
        failure: Failure of a child that ended the daemon (``onChildFailure = exit``); None if no child failed, or with ``onChildFailure =
            restart``.
    """

    clean: bool
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Settings of a command line; they override the settings of the file.

    Attributes:
        region_name: Region of all clients.
        endpoint_url: Endpoint URL of all services.
        session: Session with credentials, for all services.
    """

    region_name: str | None = None
    endpoint_url: str | None = None
    session: boto3.Session | None = None


class MultiLangDaemon:
    """Runs the application of a properties file until it is stopped.

    ``handler`` is a factory of handlers that replace child processes; None starts ``settings.words`` for each shard.
    The health arguments are as for `Worker`.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        *,
        overrides: Overrides | None = None,
        handler: Callable[[], RecordHandler] | None = None,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
    ) -> None:
        self._settings = settings
        self._overrides = overrides or Overrides()
        self._failure: str | None = None
        self._stops = 0
        self._lock = threading.Lock()
        self._children = Children(
            settings.words,
            timeout=settings.call_timeout,
            empty_batches=settings.empty_batches,
            on_exception=settings.on_child_exception,
            on_failure=self._on_failure,
            exit_grace=settings.exit_grace,
        )
        self._resources = ExitStack()
        children = self._children
        self._worker = self._make_worker(
            handler or (lambda: ChildHandler(children)), health_host, health_port
        )

    @property
    def worker(self) -> Worker:
        """The worker, for its health."""
        return self._worker

    def run(self, on_started: Callable[[], None] | None = None) -> Outcome:
        """Consume until a signal or another event ends the daemon.

        ``on_started`` is called once the streams and the lease table have been checked, and the health endpoint is open.

        Raises:
            KinesisSdkError: If the worker cannot work, at the start or later.
        """
        with self._resources, self._signals():
            clean = False
            try:
                self._worker.start()
                if on_started is not None:
                    on_started()
                # The system may deliver a signal to any thread, but Python runs the handler in the main thread, and a signal to
                # another thread does not end a wait without a timeout: the daemon would ignore SIGTERM forever.
                while not self._worker.wait(_SIGNAL_CHECK_INTERVAL):
                    pass
                clean = self._worker.stop(timeout=0)
            finally:
                ended = self._children.close(soon=not clean)
            if not ended:
                _LOGGER.error("some child processes did not end", extra=self._fields())
            return Outcome(clean and ended, self._failure)

    def request_stop(self, reason: str) -> None:
        """Begin a clean stop; a second call stops immediately. Does not block; may be called from any thread."""
        # On a thread: the main thread, interrupted anywhere by a signal handler, may hold a lock that this needs.
        threading.Thread(
            target=self._stop, args=(reason,), name="kinesis-multilang-stop", daemon=True
        ).start()

    def _stop(self, reason: str) -> None:
        with self._lock:
            self._stops += 1
            stops = self._stops
        grace = self._settings.shutdown_grace if stops == 1 else 0.0
        if stops > 1:
            _LOGGER.warning("%s again, stopping at once", reason, extra=self._fields())
        else:
            _LOGGER.info("%s, stopping within %g s", reason, grace, extra=self._fields())
        self._children.begin_stop()
        try:
            if not self._worker.stop(timeout=grace):
                _LOGGER.warning("the stop was not clean, leases are left to expire", extra=self._fields())
        except Exception:
            _LOGGER.debug("the worker ended with an error", exc_info=True, extra=self._fields())

    def _on_failure(self, text: str) -> None:
        if self._settings.on_child_failure == "restart":
            return
        with self._lock:
            first, self._failure = self._failure is None, self._failure or text
        if first:
            self.request_stop(f"{text}, and onChildFailure is exit")

    def _fields(self) -> dict[str, str | None]:
        return log_fields(stream=self._settings.stream, worker=self._worker.worker_id)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        copies = SignalCopies()

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the interpreter's signature
            if copies.is_copy(number, time.monotonic()):
                return
            self.request_stop(f"received {signal.Signals(number).name}")

        # An ignored signal stays ignored: nohup ignores SIGHUP.
        numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, former in before.items():
                signal.signal(number, former if former is not None else signal.SIG_DFL)

    def _make_worker(
        self, handler: Callable[[], RecordHandler], health_host: str, health_port: int | None
    ) -> Worker:
        settings, overrides, client = self._settings, self._overrides, self._settings.client
        region = overrides.region_name or client.region_name or StreamId.parse(settings.stream).region
        session = overrides.session or client.session(region)
        dynamodb_session = session
        if overrides.session is None and client.dynamodb_credentials:
            dynamodb_session = client.session(region, service="dynamodb")
        timeout = settings.config.leases.call_timeout
        dynamodb = make_client(
            "dynamodb",
            session=dynamodb_session,
            region_name=region,
            endpoint_url=overrides.endpoint_url or client.dynamodb_endpoint,
            max_pool_connections=settings.config.max_threads + _OTHER_CONNECTIONS,
            connect_timeout=timeout,
            read_timeout=timeout,
        )
        return Worker(
            settings.stream,
            application_name=settings.application_name,
            handler=handler,
            config=settings.config,
            session=session,
            dynamodb_client=dynamodb,
            region_name=region,
            endpoint_url=overrides.endpoint_url or client.kinesis_endpoint,
            metrics=self._metrics(region),
            worker_id=settings.worker_id,
            health_port=health_port,
            health_host=health_host,
        )

    def _metrics(self, region: str | None) -> Metrics | None:
        metrics, overrides, client = self._settings.metrics, self._overrides, self._settings.client
        if metrics is None:
            return None
        from kinesis_sdk.metrics import CloudWatchMetrics

        session = overrides.session or client.session(region, service="cloudwatch")
        sink = CloudWatchMetrics(
            session=session,
            region_name=region,
            endpoint_url=overrides.endpoint_url or client.cloudwatch_endpoint,
            level=metrics.level,
            upload_delay=metrics.upload_delay,
        )
        return self._resources.enter_context(sink)
