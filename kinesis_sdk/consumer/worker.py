"""The worker: a `ConsumerEngine` on `WorkerThreads`.

Threads: three loops (one renews leases, one scans the table, one starts due steps of shards); a pool of at most
``max_threads`` for these steps (handler, checkpoint), a pool of at most ``max_fetch_threads`` for reads, a pool of eight for
renewals, and one event loop if a handler has coroutines. All are daemon threads, and their number does not depend on the
number of shards.

Lock order, outermost first: checkpointer, held lease, store. No other locks are held together. The locks of engine,
scheduler, pools, loops, prefetcher, byte budget and set of held leases are leaves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import FrameType, TracebackType
from typing import Any, cast
from uuid import uuid4

from kinesis_sdk.common.aws import AwsSession, DynamoDBClient, KinesisClient, make_client
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, ConsumerError
from kinesis_sdk.common.interceptors import ConsumerInterceptor
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.metrics import Metrics
from kinesis_sdk.common.page_server import PageServer, json_page, pages_by_path, probe_page
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int, check_seconds, check_text
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.engine.engine import ConsumerEngine
from kinesis_sdk.consumer.handler import Handler, HandlerSource
from kinesis_sdk.consumer.health import WorkerHealth
from kinesis_sdk.consumer.leases.java.worker_metrics import JavaMembership
from kinesis_sdk.consumer.leases.strategies.groups import grouped_id
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.location import EXAMPLES, store_at
from kinesis_sdk.consumer.leases.table.sql import SqlLeaseStore
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.runtime.worker_threads import RENEWAL_THREADS, WorkerThreads
from kinesis_sdk.consumer.sinks.location import sink_at
from kinesis_sdk.consumer.sinks.sink import AnySink
from kinesis_sdk.consumer.sinks.sql import AsyncSqlSink, SqlSink
from kinesis_sdk.consumer.streams import Streams
from kinesis_sdk.consumer.table_streams.source import DynamoDbStream, check_settings
from kinesis_sdk.consumer.until import UntilOption, check_until

_LOGGER = FieldLogger(logging.getLogger(__name__))

_OTHER_CONNECTIONS = 8
_READ_TIMEOUT = 15.0
"""Seconds to wait for further data of a response: GetRecords returns up to 10 MiB, and a fan-out subscription sends an event every 5 s."""
_FAN_OUT_CONNECTIONS = 1_000
"""Maximum connections for subscriptions of enhanced fan-out. Each subscription holds one connection; connections are opened as needed."""


_SIGNAL_CHECK_INTERVAL = 0.5
"""Maximum seconds until the main thread detects a signal that the system delivered to another thread."""
_CLOSE_TIMEOUT = 5.0
"""Maximum seconds to wait until an asynchronous sink has closed its connections, which an aborted event loop never does."""
_STUCK_AFTER = 600.0
"""Seconds after which a call of a loop counts as stuck. While AWS does not respond, the retries in one pass of a loop may take
minutes, and a restart would not help."""


class _StoppedWhileStartingError(ConsumerError):
    """A stop was requested while `Worker.start` waited for the lease table."""


class Worker:
    """Consumes one or several streams, together with all other workers of the same application.

    ```python
    def handle(batch):
        for record in batch.records:
            ...

    Worker("orders", application_name="billing", handler=handle).run()
    ```

    With a function, plain or ``async def``, returning means processed, and the worker checkpoints. A `RecordHandler` class (or
    a factory) gets one instance per shard and checkpoints itself, unless ``ConsumerConfig.auto_checkpoint`` is true; its
    callbacks may be ``async def``.

    In a ``with`` or ``async with`` statement, the worker consumes in background threads until the end of the block. ``async
    with`` starts and stops it without blocking the event loop.

    Args:
        stream: Name or ARN of the stream, or a `DynamoDbStream`. Exactly one of ``stream`` and ``streams`` must be given.
        streams: Several streams: names, ARNs (also of other accounts) or `StreamSpec`, or a function that lists them and is
            called every ``stream_list_interval``. The lease table then has the KCL's multi-stream form. Workers in
            single-stream mode ignore such leases, and vice versa.
        application_name: Name of the application, 1 to 255 characters. Workers of the same application share the shards.
            This name is also the name of the lease table, unless ``LeaseTableConfig.table_name`` is set.
        handler: A function that takes a `RecordBatch`, a `RecordHandler` class, or a factory of handlers.
        config: Settings; None uses the defaults of `ConsumerConfig`.
        kinesis_client: boto3 Kinesis client; None creates one.
        dynamodb_client: boto3 DynamoDB client; None creates one.
        dynamodbstreams_client: boto3 client for DynamoDB Streams, used for a `DynamoDbStream` only; None creates one.
        session: Creates the clients: a ``boto3.Session``, or a `kinesis_sdk.testing.FakeAws`. None uses a new session.
        region_name: Region for created clients; None uses the region of the stream's ARN, otherwise the session's region.
        endpoint_url: Endpoint for created clients; None uses the endpoints of AWS.
        lease_store: Store of the leases, or its URL, as in ``LeaseTableConfig.lease_store``: ``"sqlite:///leases.db"``.
            None uses the DynamoDB table. With another store, the worker needs no DynamoDB and makes no call to it.
        metrics: Sink for metrics; None records nothing.
        clock: Monotonic and wall clock; replaced in tests.
        rng: Source of jitter and random choice; pass a seeded instance for reproducible runs.
        worker_id: Unique id in the lease table, 1 to 1,024 characters; None uses ``host:pid:random``. With a stable id, a
            restarted worker resumes its leases at once. Two live workers must never share an id. The
            ``LeaseConfig.worker_group`` is prepended unless the id already starts with it.
        until: The moment up to which records are processed before the worker ends by itself, with a clean stop: a datetime with a time
            zone, or ``"now"``, the moment of the start by the clock of Kinesis. This worker and other workers with ``until`` process and
            checkpoint the records that arrived before this moment, in every shard of the application. Each shard stops before its first
            record that arrived at that moment or later. None: the worker runs until it is stopped.
        sink: Store in which the effects of a batch and the position of its shard change together, for example `SqlSink` or its
            URL ``"sqlite:///totals.db"``: each record takes effect exactly once. The handler gets an open transaction as
            ``RecordBatch.transaction``. A shard starts at the sink's position; the checkpoint of the lease may lag behind it.
            Needs a ``concurrency`` of 1.
        interceptors: Called around each call of the handler, in order, see `ConsumerInterceptor`.
        stop_timeout: Maximum seconds for a clean stop: in `run` after a signal or `request_stop`, in `stop`, and at the end of a
            ``with`` or ``async with`` block. Then the worker stops immediately, and its leases expire. 0 or more; None waits
            indefinitely.
        health_port: Port on which to serve ``/live``, ``/ready`` and ``/status`` over HTTP while the worker runs, 0 to
            65,535. With 0, a free port is chosen; read it from the attribute of this name. None serves nothing.
        health_host: Address of the health endpoint. ``"0.0.0.0"`` lets Kubernetes reach it.

    Attributes:
        worker_id: Id of this worker in the lease table, including its group.

    Raises:
        ConfigError: If an argument is not valid; the message names it.
    """

    def __init__(
        self,
        stream: str | StreamId | DynamoDbStream | None = None,
        *,
        streams: Streams | None = None,
        application_name: str,
        handler: Handler,
        config: ConsumerConfig | None = None,
        kinesis_client: KinesisClient | None = None,
        dynamodb_client: DynamoDBClient | None = None,
        dynamodbstreams_client: Any = None,
        session: AwsSession | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        lease_store: LeaseStore | str | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        worker_id: str | None = None,
        until: UntilOption | None = None,
        sink: AnySink | str | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        stop_timeout: float | None = None,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
    ) -> None:
        if (stream is None) == (streams is None):
            raise ConfigError("stream", stream, "either stream or streams, not both")
        self._table_stream = stream if isinstance(stream, DynamoDbStream) else None
        self._stream: StreamId | None = None
        if stream is not None and not isinstance(stream, DynamoDbStream):
            self._stream = StreamId.parse(stream)
        if (
            streams is not None
            and not callable(streams)
            and any(isinstance(one, DynamoDbStream) for one in streams)
        ):
            raise ConfigError(
                "streams", streams, "Kinesis streams; run one worker for each stream of a DynamoDB table"
            )
        self._streams = streams
        if worker_id is not None:
            check_text("worker_id", worker_id, 1, 1024)
        check_text("health_host", health_host, 1)
        if health_port is not None:
            check_int("health_port", health_port, 0, 65535)
        self._health_address = None if health_port is None else (health_host, health_port)
        self._health_server: PageServer | None = None
        check_until(until)
        self._until = until
        self._application_name = application_name
        self._handlers = HandlerSource.of(handler, interceptors)
        self._config = config or ConsumerConfig()
        if stop_timeout is not None:
            check_seconds("stop_timeout", stop_timeout, 0)
        self._stop_timeout = stop_timeout
        self._sink = self._open_sink(sink)
        self._owns_sink = isinstance(sink, str)
        if self._table_stream is not None:
            check_settings(self._config)
        self._table_name = self._config.lease_table.table_name or application_name
        field = "lease_store"
        if lease_store is None and self._config.lease_table.lease_store is not None:
            field, lease_store = "lease_table.lease_store", self._config.lease_table.lease_store
        self._config.check_application_name(
            "application_name",
            application_name,
            has_lease_store=lease_store is not None,
            # Several streams may each have a consumer of their own.
            is_registered=streams is None,
        )
        self._kinesis = kinesis_client
        self._dynamodb = dynamodb_client
        self._dynamodbstreams = dynamodbstreams_client
        self._session = session
        named = self._table_stream or self._stream
        self._region_name = region_name or (None if named is None else named.region)
        self._endpoint_url = endpoint_url
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self.worker_id: str = grouped_id(
            worker_id or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}",
            self._config.leases.worker_group,
            self._config.leases.worker_group_separator,
        )
        self._engine: ConsumerEngine | None = None
        self._threads = WorkerThreads(
            self._clock,
            rng or Random(),
            max_threads=self._config.max_threads,
            max_fetch_threads=self._config.retrieval.max_fetch_threads,
            on_error=self._on_fatal_error,
            worker_id=self.worker_id,
        )
        # Not an `Event`: a signal handler sets it, and may have interrupted a thread that holds the event's lock.
        self._stop_requested = False
        self._own_store: SqlLeaseStore | None = None
        self._store = self._open_store(field, lease_store)

    def run(self) -> None:
        """Consume until stopped, or until all records from before ``until`` are processed. Blocks.

        In the main thread, SIGINT and SIGTERM stop the worker cleanly: running callbacks finish, handlers may checkpoint,
        leases are released. A second signal stops the worker immediately, and its leases expire.

        Raises:
            AwsError: If the worker cannot work (no such stream, access denied, endpoint not reachable), at the start or
                later.
            ConfigError: If the worker was already started.
            ConsumerError: If the operating system cannot start the threads of the worker.
            HandlerError: If the handler failed and ``on_handler_error`` is ``"stop"``.
        """
        with self._signals():
            self.start()
            try:
                self._wait_for_the_end()
            except BaseException:
                self._abort()
                raise
            finally:
                self._close()
        self._raise_error()

    def _wait_for_the_end(self) -> None:
        due: float | None = None
        # The system may deliver a signal to any thread, but Python runs the handler in the main thread. A wait without a timeout
        # would not end for that, and the worker would ignore SIGTERM forever.
        while not self._threads.wait(_SIGNAL_CHECK_INTERVAL):
            if self._stop_timeout is None or not self._stop_requested:
                continue
            now = self._clock.monotonic()
            due = now + self._stop_timeout if due is None else due
            if now >= due:
                _LOGGER.warning(
                    "worker %s: did not stop within %g s, stopping immediately",
                    self.worker_id,
                    self._stop_timeout,
                    extra=log_fields(stream=self._stream, worker=self.worker_id),
                )
                self._abort()
                return

    def _close(self) -> None:
        self._close_sink()
        self._threads.close()
        self._close_health_endpoint()
        self._close_store()

    def start(self) -> None:
        """Consume in background threads. Returns once the streams and the lease table are known to be usable.

        While the lease table does not respond, a requested stop ends the start, and the worker has ended when this method returns.

        Raises:
            AwsError: If the worker cannot work: no such stream, access denied, endpoint not reachable.
            ConfigError: If the worker was already started.
            ConsumerError: If the operating system cannot start the threads of the worker.
        """
        if self._engine is not None:
            raise ConfigError("worker", self.worker_id, "a worker that was not started before")
        self._open_health_endpoint()
        try:
            self._start()
        except _StoppedWhileStartingError:
            self._close_health_endpoint()
            self._threads.on_stopped()
        except BaseException:
            self._close_health_endpoint()
            raise

    def _start(self) -> None:
        kinesis = self._source_client()
        engine = ConsumerEngine(
            stream=self._stream,
            streams=self._streams,
            worker_id=self.worker_id,
            application_name=self._application_name,
            config=self._config,
            handlers=self._handlers,
            store=self._store if self._store is not None else self._dynamodb_store(),
            kinesis=kinesis,
            runtime=self._threads,
            metrics=self._metrics,
            membership=self._membership(),
            until=self._until,
            sink=self._sink,
        )
        engine.start()
        self._engine = engine
        consumed = self._stream or "several streams"
        _LOGGER.info(
            "worker %s: consuming %s as application %s%s",
            self.worker_id,
            consumed,
            self._application_name,
            ""
            if self._config.retrieval.recognize_repetitions
            else ", repetitions of idempotent producers included",
            extra=log_fields(stream=self._stream, worker=self.worker_id),
        )
        try:
            # The table loop takes leases, so it starts last. If the table loop started first and the steps loop could
            # not start, the worker would hold leases without consuming them.
            self._threads.start(
                {
                    "steps": engine.scheduler.dispatch,
                    "renewals": engine.renew,
                    "table": engine.tick_table,
                }
            )
        except RuntimeError as error:  # the operating system allows no more threads
            self._abort()
            self._threads.close()
            raise ConsumerError(f"cannot start the threads of the worker: {error}") from error
        # If a signal or another thread requested the stop while `start` ran, `request_stop` found no engine.
        if self._stop_requested:
            engine.request_stop()

    def _source_client(self) -> KinesisClient:
        """Return the client that reads the stream. For a table's stream, this also sets its ARN."""
        table_stream = self._table_stream
        if table_stream is None and self._kinesis is not None:
            return self._kinesis
        client = self._dynamodbstreams if table_stream is not None else None
        if client is None:
            client = make_client(
                "kinesis" if table_stream is None else "dynamodbstreams",
                session=self._session,
                region_name=self._region_name,
                endpoint_url=self._endpoint_url,
                max_pool_connections=self._config.retrieval.max_fetch_threads
                + _OTHER_CONNECTIONS
                + (_FAN_OUT_CONNECTIONS if self._config.retrieval.retrieval_mode == "fanout" else 0),
                read_timeout=_READ_TIMEOUT,
            )
        if table_stream is not None:
            *former, self._stream = table_stream.streams(client, self._threads.sleep)
            # The reader lacks the calls of producers and of several streams, which a worker on one table's stream does not make.
            return table_stream.reader(client, former)
        return cast("KinesisClient", client)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of a started worker: after a stop, or because ``until`` is reached.

        Args:
            timeout: Maximum seconds to wait; None waits indefinitely.

        Returns:
            Whether the worker has ended. Always call `stop` afterwards; it raises the error that ended the worker.
        """
        return self._threads.wait(timeout)

    def stop(self, timeout: float | None = None) -> bool:
        """Stop cleanly and wait for the end.

        Args:
            timeout: Maximum seconds to wait; then the worker is stopped immediately, and its leases expire. None uses the worker's
                ``stop_timeout``.

        Returns:
            Whether the stop was clean.

        Raises:
            ConsumerError: If called from a handler's callback, because it would wait for this callback. Use `request_stop` there.
            KinesisSdkError: If a fatal error has stopped the worker.
        """
        if self._threads.is_current:
            raise ConsumerError(
                "stop() cannot be called from a handler callback: it would wait for itself; call request_stop()"
            )
        self.request_stop()
        clean = self._engine is None or self._threads.wait(self._stop_timeout if timeout is None else timeout)
        if not clean:
            self._abort()
        self._close()
        self._raise_error()
        return clean and not self._threads.is_aborted

    def request_stop(self) -> None:
        """Begin a clean stop and return at once. May be called from any thread and from callbacks of handlers."""
        self._stop_requested = True
        if self._engine is not None:
            self._engine.request_stop()

    def health(self) -> WorkerHealth:
        """Return a snapshot of the worker. This is cheap, and may be called from any thread."""
        engine = self._engine
        now = self._clock.monotonic()
        return WorkerHealth(
            worker_id=self.worker_id,
            running=engine is not None and not self._threads.is_stopped,
            stopping=self._stop_requested or (engine is not None and engine.is_stopping),
            leases=tuple(sorted(engine.coordinator.held.keys())) if engine else (),
            shards=engine.shard_health() if engine else (),
            records_delivered=engine.records_delivered if engine else 0,
            error=engine.error if engine else None,
            lease_problems=engine.lease_problems() if engine else (),
            draining=engine is not None and engine.coordinator.is_draining,
            scan_overdue_seconds=engine.coordinator.scan_overdue(now) if engine else None,
            renewal_overdue_seconds=engine.coordinator.renewal_overdue(now) if engine else 0.0,
            failover_time=self._config.leases.failover_time,
            stuck_loops=self._threads.stuck_loops(_STUCK_AFTER),
            until=None if engine is None or engine.until is None else str(engine.until),
        )

    def __enter__(self) -> Worker:
        """Start consuming in background threads."""
        self.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop cleanly and wait for the end, for at most ``stop_timeout``."""
        self.stop()

    async def __aenter__(self) -> Worker:
        """Start consuming in background threads, without blocking the event loop."""
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop cleanly and wait for the end, for at most ``stop_timeout``, without blocking the event loop."""
        await asyncio.to_thread(self.stop)

    @property
    def health_port(self) -> int | None:
        """Port of the health endpoint; None while it is not open."""
        return None if self._health_server is None else self._health_server.port

    def _open_health_endpoint(self) -> None:
        if self._health_address is None:
            return
        host, port = self._health_address

        page = pages_by_path(
            {
                "/live": lambda: probe_page("live", self.health().live_problems()),
                "/ready": lambda: probe_page("ready", self.health().ready_problems()),
                "/status": lambda: json_page(200, self.health().to_dict()),
            }
        )
        self._health_server = PageServer(page, host, port, setting="health_port")
        _LOGGER.info(
            "worker %s: health endpoint at http://%s:%d",
            self.worker_id,
            host,
            self._health_server.port,
            extra=log_fields(stream=self._stream, worker=self.worker_id),
        )

    def _close_health_endpoint(self) -> None:
        if self._health_server is not None:
            self._health_server.close()

    def _open_store(self, field: str, given: LeaseStore | str | None) -> LeaseStore | None:
        """Return the given store, or the store of a URL; None for DynamoDB."""
        if given is None:
            return None
        if not isinstance(given, str):
            if not callable(getattr(given, "renew", None)):
                raise ConfigError(field, given, f"a LeaseStore, or a URL: {EXAMPLES}")
            return given
        store = store_at(
            field,
            given,
            self._table_name,
            timeout=self._config.leases.call_timeout,
            sleep=self._threads.sleep,
        )
        mode = self._config.coordination.worker_metrics
        if mode != "off":
            raise ConfigError(
                "coordination.worker_metrics",
                mode,
                f"'off' with {field}: Java workers keep their leases in DynamoDB only",
            )
        if isinstance(store, SqlLeaseStore):
            self._own_store = store
        return store

    def _open_sink(self, given: AnySink | str | None) -> AnySink | None:
        """Return the given sink, or the sink of a URL."""
        if given is None:
            return None
        sink = sink_at("sink", given)
        if self._config.concurrency > 1:
            raise ConfigError("concurrency", self._config.concurrency, "1 with a sink")
        if sink.max_records is not None:
            check_int("sink.max_records", sink.max_records, 1)
        if self._config.auto_checkpoint is False:
            raise ConfigError(
                "auto_checkpoint",
                False,
                "None or True with a sink, because the checkpoints of the lease follow the position of the sink",
            )
        return sink

    def _close_sink(self) -> None:
        """Close the connections of a sink created from a URL, before the event loop to which they may belong."""
        if not self._owns_sink:
            return
        if isinstance(self._sink, SqlSink):
            self._sink.close()
        elif isinstance(self._sink, AsyncSqlSink):
            done = threading.Event()
            self._threads.run_async(self._sink.close(), lambda _: done.set())
            done.wait(_CLOSE_TIMEOUT)

    def _close_store(self) -> None:
        """Close the connections of a store created from a URL."""
        if self._own_store is not None:
            self._own_store.close()

    def _dynamodb_client(self) -> DynamoDBClient:
        if self._dynamodb is None:
            timeout = self._config.leases.call_timeout
            self._dynamodb = make_client(
                "dynamodb",
                session=self._session,
                region_name=self._region_name,
                endpoint_url=self._endpoint_url,
                max_pool_connections=self._config.max_threads + RENEWAL_THREADS + 2,
                connect_timeout=timeout,
                read_timeout=timeout,
            )
        return self._dynamodb

    def _membership(self) -> JavaMembership | None:
        mode = self._config.coordination.worker_metrics
        if mode == "off":
            return None
        return JavaMembership(
            self._dynamodb_client(),
            mode=mode,
            application_name=self._application_name,
            table_name=self._table_name,
            worker_id=self.worker_id,
            clock=self._clock,
        )

    def _dynamodb_store(self) -> LeaseStore:
        config = self._config
        return DynamoDBLeaseStore(
            self._dynamodb_client(),
            self._table_name,
            billing_mode=config.lease_table.billing_mode,
            read_capacity=config.lease_table.initial_lease_table_read_capacity,
            write_capacity=config.lease_table.initial_lease_table_write_capacity,
            deletion_protection=config.lease_table.lease_table_deletion_protection_enabled,
            tags=config.lease_table.lease_table_tags,
            point_in_time_recovery=config.lease_table.lease_table_pitr_enabled,
            sleep=self._wait_for_store,
            monotonic=self._clock.monotonic,
            worker_id=self.worker_id,
        )

    def _wait_for_store(self, seconds: float) -> None:
        self._threads.sleep(seconds)
        if self._engine is None and self._stop_requested:
            raise _StoppedWhileStartingError(
                f"worker {self.worker_id} was stopped while it waited for its lease table"
            )

    def _on_fatal_error(self, error: BaseException) -> None:
        if self._engine is not None:
            self._engine.on_fatal_error(error)

    def _abort(self) -> None:
        self._threads.end_sleeps()
        if self._engine is not None:
            self._engine.abort()
        self._threads.cancel_coroutines()
        self._threads.on_stopped()

    def _raise_error(self) -> None:
        if self._engine is not None and self._engine.error is not None:
            raise self._engine.error

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the interpreter's signature
            if self._stop_requested:
                _LOGGER.warning(
                    "worker %s: received %s again, stopping immediately",
                    self.worker_id,
                    signal.strsignal(number),
                    extra=log_fields(stream=self._stream, worker=self.worker_id),
                )
                # Not in the signal handler itself: it interrupts the main thread, which may hold a lock that the stop needs. The
                # handler would wait forever for a lock that its own thread holds.
                threading.Thread(target=self._abort, name="kinesis-abort", daemon=True).start()
            else:
                self._stop_requested = True
                threading.Thread(target=self.request_stop, name="kinesis-stop", daemon=True).start()

        signals: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
        before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
        for number in signals:
            before[number] = signal.signal(number, handle)
        try:
            yield
        finally:
            for number, former in before.items():
                # None means that the handler was not installed from Python. It cannot be restored.
                signal.signal(number, former if former is not None else signal.SIG_DFL)


@dataclass(frozen=True, kw_only=True)
class WorkerParts:
    """The parts of a worker that only code can create.

    The function that ``kinesis-sdk run --factory`` calls once in each worker process returns these parts.

    Attributes:
        handler: As for `Worker`.
        config: Settings; usually those passed to the function, with a `BisectBatch`, a deserializer or a lease strategy added
            (`ConsumerConfig.with_fields`). None uses the passed settings.
        sink: As for `Worker`.
        metrics: As for `Worker`. Not allowed with ``--metrics-port``, which sets its own sink.
        interceptors: As for `Worker`.
        close: Called once when the worker has stopped, for example to close a producer of dead letters; None for nothing.
    """

    handler: Handler
    config: ConsumerConfig | None = None
    sink: AnySink | str | None = None
    metrics: Metrics | None = None
    interceptors: Sequence[ConsumerInterceptor] = ()
    close: Callable[[], object] | None = None
