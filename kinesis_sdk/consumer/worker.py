"""The worker: an engine with threads around it.

Threads: one that renews leases, one that looks at the table, one that starts due steps of shards; a pool of at
most ``max_threads`` that runs those steps (handler, checkpoint), one of at most ``max_fetch_threads`` that reads,
up to eight for renewals, and one event loop if a handler has coroutines. All are daemons, and the number does not
depend on the number of shards.

Lock order, outermost first; nothing else is held together:
checkpointer → held lease → store. The locks of engine, scheduler, pool, loops,
prefetcher, byte budget and set of held leases are leaves.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType, TracebackType
from typing import TYPE_CHECKING
from uuid import uuid4

from kinesis_sdk.common.aws import DynamoDBClient, KinesisClient, make_client
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import ConfigError, ConsumerError
from kinesis_sdk.common.metrics import Metrics
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_text
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.engine.engine import ConsumerEngine, Loop
from kinesis_sdk.consumer.handler import Handler, HandlerSource
from kinesis_sdk.consumer.health import WorkerHealth
from kinesis_sdk.consumer.leases.java.worker_metrics import JavaMembership
from kinesis_sdk.consumer.leases.strategies.groups import grouped_id
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.store import LeaseStore
from kinesis_sdk.consumer.runtime.threads import DaemonPool, EventLoopThread, LoopThread
from kinesis_sdk.consumer.streams import Streams

if TYPE_CHECKING:
    import boto3

_LOGGER = logging.getLogger(__name__)

_RENEWAL_THREADS = 8
_OTHER_CONNECTIONS = 8
_READ_TIMEOUT = 15.0
"""Seconds for a GetRecords answer of up to 10 MiB; above the heartbeat of a fan-out subscription."""
_PUSHED_CONNECTIONS = 1_000
"""Each subscription of enhanced fan-out holds a connection; they are made only as they are needed."""


class Worker:
    """Consumes a stream together with every other worker of the same application.

    ```python
    def handle(batch):
        for record in batch.records:
            ...

    Worker("orders", application_name="billing", handler=handle).run()
    ```

    With a function, plain or ``async def``, returning means processed, and the worker checkpoints by itself. A
    `RecordHandler` class (or a factory) gets one instance per shard and checkpoints where it says so, unless
    ``ConsumerConfig.auto_checkpoint`` is true; its callbacks may be ``async def``, too.

    Args:
        stream: Name or ARN of the one stream.
        streams: Instead of it, several: names, ARNs (also of other accounts) or `StreamSpec`, or a function that lists
            them and is called every ``stream_list_interval``. The lease table then has the KCL's multi-stream
            form; the two forms do not see each other's leases.
        application_name: Workers with the same name share the stream's shards; also the lease table's name.
        handler: A function of a `RecordBatch`, a `RecordHandler` class, or a factory of handlers.
        config: Settings.
        kinesis_client: boto3 Kinesis client; made if not given.
        dynamodb_client: boto3 DynamoDB client; made if not given.
        session: boto3 session for clients that are made.
        region_name: Region for clients that are made; else the stream ARN's, else the session's.
        endpoint_url: Endpoint for both clients that are made.
        lease_store: Where leases live; the DynamoDB table if not given.
        metrics: Sink for numbers.
        clock: Time; only tests replace it.
        rng: Jitter and random choice; only tests replace it.
        worker_id: Unique id in the lease table. With a stable id a restarted worker resumes its leases at
            once; two live workers must never share one. The default is host:pid:random. The group of the
            configuration is put in front of it, unless it is there already.

    Raises:
        ConfigError: An argument that can not work.
    """

    def __init__(
        self,
        stream: str | StreamId | None = None,
        *,
        streams: Streams | None = None,
        application_name: str,
        handler: Handler,
        config: ConsumerConfig | None = None,
        kinesis_client: KinesisClient | None = None,
        dynamodb_client: DynamoDBClient | None = None,
        session: boto3.Session | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        lease_store: LeaseStore | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        worker_id: str | None = None,
    ) -> None:
        if (stream is None) == (streams is None):
            raise ConfigError("stream", stream, "one stream, or several as streams=..., and not both")
        self._stream = StreamId.parse(stream) if stream is not None else None
        self._streams = streams
        check_text("application_name", application_name, 1, 255)
        if worker_id is not None:
            check_text("worker_id", worker_id, 1, 1024)
        self._application_name = application_name
        self._handlers = HandlerSource.of(handler)
        self._config = config or ConsumerConfig()
        self._table_name = self._config.table_name or application_name
        if lease_store is None:
            # The table's name is the application's unless the configuration says otherwise (DynamoDB's rule).
            check_text(
                "application_name" if not self._config.table_name else "table_name", self._table_name, 3
            )
        self._kinesis = kinesis_client
        self._dynamodb = dynamodb_client
        self._session = session
        self._region_name = region_name or (self._stream.region if self._stream is not None else None)
        self._endpoint_url = endpoint_url
        self._store = lease_store
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._rng = rng or Random()
        self.worker_id: str = grouped_id(
            worker_id or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}",
            self._config.worker_group,
            self._config.worker_group_separator,
        )
        self._engine: ConsumerEngine | None = None
        self._loops: dict[Loop, LoopThread] = {}
        self._pools: list[DaemonPool] = []
        self._event_loop = EventLoopThread("kinesis-async", self._fail)
        self._stop_requested = threading.Event()
        self._aborted = threading.Event()
        self._done = threading.Event()

    def run(self) -> None:
        """Consume until stopped; blocks.

        In the main thread, SIGINT and SIGTERM stop the worker cleanly (running callbacks finish, handlers may
        checkpoint, leases are released); a second one stops it at once and leaves its leases to expire.

        Raises:
            AwsError: Work is impossible (no such stream, access denied, nobody at the endpoint), or became so.
            ConsumerError: The system gives no threads.
            HandlerError: The handler failed and ``on_handler_error`` is ``"stop"``.
        """
        with self._signals():
            self.start()
            try:
                self._done.wait()
            except BaseException:
                self._abort()
                raise
            finally:
                self._close()
        self._raise_error()

    def start(self) -> None:
        """Consume in background threads; returns once stream and lease table are known to be usable.

        Raises:
            AwsError: As `run`.
            ConfigError: It was started before.
            ConsumerError: The system gives no threads.
        """
        if self._engine is not None:
            raise ConfigError("worker", self.worker_id, "a worker that was not started before")
        kinesis = self._kinesis or make_client(
            "kinesis",
            session=self._session,
            region_name=self._region_name,
            endpoint_url=self._endpoint_url,
            max_pool_connections=self._config.max_fetch_threads
            + _OTHER_CONNECTIONS
            + (_PUSHED_CONNECTIONS if self._config.retrieval_mode == "fanout" else 0),
            read_timeout=_READ_TIMEOUT,
        )
        steps = DaemonPool(self._config.max_threads, "kinesis-shard", self._fail)
        fetches = DaemonPool(self._config.max_fetch_threads, "kinesis-fetch", self._fail)
        renewals = DaemonPool(_RENEWAL_THREADS, "kinesis-renewal", self._fail)
        engine = ConsumerEngine(
            stream=self._stream,
            streams=self._streams,
            worker_id=self.worker_id,
            application_name=self._application_name,
            config=self._config,
            handlers=self._handlers,
            store=self._store if self._store is not None else self._dynamodb_store(),
            kinesis=kinesis,
            clock=self._clock,
            rng=self._rng,
            sleep=self._pause,
            metrics=self._metrics,
            run_step=steps.submit,
            run_fetch=fetches.submit,
            run_async=self._event_loop.run,
            run_renewal=renewals.submit,
            wake=self._wake,
            on_stopped=self._done.set,
            membership=self._membership(),
            on_stuck_read=fetches.widen,
            on_stuck_step=steps.widen,
        )
        engine.start()
        self._engine = engine
        self._pools = [steps, fetches, renewals]
        # The one that takes leases comes last: without the other two they would be held and not consumed.
        self._loops = {
            "steps": LoopThread("kinesis-steps", engine.scheduler.dispatch, self._clock, self._fail),
            "renewals": LoopThread("kinesis-renewals", engine.renew, self._clock, self._fail),
            "table": LoopThread("kinesis-table", engine.tick_table, self._clock, self._fail),
        }
        consumed = self._stream or "several streams"
        _LOGGER.info("worker %s: consumes %s as %s", self.worker_id, consumed, self._application_name)
        try:
            for loop in self._loops.values():
                loop.start()
        except RuntimeError as error:  # the system gives no more threads
            self._abort()
            self._close()
            raise ConsumerError(f"the threads of the worker could not be started: {error}") from error
        if self._stop_requested.is_set():  # a signal that came during the start
            engine.request_stop()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop cleanly and wait.

        Args:
            timeout: Most seconds to wait; afterwards the worker stops at once. None waits for ever.

        Returns:
            Whether the stop was clean.

        Raises:
            ConsumerError: Called from a callback of the worker, for whose end it would wait: `request_stop` is for
                those.
            KinesisSdkError: The fatal error that had ended the worker before, if any.
        """
        if self._event_loop.is_current or any(pool.is_current for pool in self._pools):
            raise ConsumerError(
                "stop waits for the very callback that calls it; call request_stop, which returns at once"
            )
        self.request_stop()
        clean = self._engine is None or self._done.wait(timeout)
        if not clean:
            self._abort()
        self._close()
        self._raise_error()
        return clean and not self._aborted.is_set()

    def request_stop(self) -> None:
        """Begin a clean stop and return; for signal handlers and callbacks."""
        self._stop_requested.set()
        if self._engine is not None:
            self._engine.request_stop()

    def health(self) -> WorkerHealth:
        """A snapshot of what this worker does now. Cheap; safe from any thread."""
        engine = self._engine
        return WorkerHealth(
            worker_id=self.worker_id,
            running=engine is not None and not self._done.is_set(),
            stopping=self._stop_requested.is_set() or (engine is not None and engine.is_stopping),
            leases=tuple(sorted(engine.coordinator.held.keys())) if engine else (),
            shards=engine.shard_health() if engine else (),
            records_delivered=engine.records_delivered if engine else 0,
            error=engine.error if engine else None,
            lease_problems=engine.lease_problems() if engine else (),
        )

    def __enter__(self) -> Worker:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop cleanly."""
        self.stop()

    def _dynamodb_client(self) -> DynamoDBClient:
        if self._dynamodb is None:
            timeout = self._config.lease_call_timeout
            self._dynamodb = make_client(
                "dynamodb",
                session=self._session,
                region_name=self._region_name,
                endpoint_url=self._endpoint_url,
                max_pool_connections=self._config.max_threads + _RENEWAL_THREADS + 2,
                connect_timeout=timeout,
                read_timeout=timeout,
            )
        return self._dynamodb

    def _membership(self) -> JavaMembership | None:
        mode = self._config.worker_metrics
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
            billing_mode=config.billing_mode,
            read_capacity=config.initial_lease_table_read_capacity,
            write_capacity=config.initial_lease_table_write_capacity,
            deletion_protection=config.lease_table_deletion_protection_enabled,
            tags=config.lease_table_tags,
            point_in_time_recovery=config.lease_table_pitr_enabled,
            sleep=self._pause,
            monotonic=self._clock.monotonic,
        )

    def _pause(self, seconds: float) -> None:
        """Sleep inside a call; an immediate stop cuts it short."""
        self._aborted.wait(seconds)

    def _wake(self, loop: Loop) -> None:
        thread = self._loops.get(loop)
        if thread is not None:
            thread.wake()

    def _fail(self, error: BaseException) -> None:
        if self._engine is not None:
            self._engine.fail(error)

    def _abort(self) -> None:
        self._aborted.set()
        if self._engine is not None:
            self._engine.abort()
        self._event_loop.close()
        self._done.set()

    def _close(self) -> None:
        for pool in self._pools:
            pool.close()
        self._event_loop.close()
        for loop in self._loops.values():
            loop.stop(timeout=1.0 if self._aborted.is_set() else None)

    def _raise_error(self) -> None:
        if self._engine is not None and self._engine.error is not None:
            raise self._engine.error

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the interpreter's signature
            if self._stop_requested.is_set():
                _LOGGER.warning(
                    "worker %s: %s again, stopping at once", self.worker_id, signal.strsignal(number)
                )
                # Not in the handler itself: it may have interrupted a holder of the locks that this needs.
                threading.Thread(target=self._abort, name="kinesis-abort", daemon=True).start()
            else:
                self._stop_requested.set()
                threading.Thread(target=self.request_stop, name="kinesis-stop", daemon=True).start()

        watched: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
        before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
        for number in watched:
            before[number] = signal.signal(number, handle)
        try:
            yield
        finally:
            for number, former in before.items():
                # None stands for a handler that was not installed from Python; it can not be put back.
                signal.signal(number, former if former is not None else signal.SIG_DFL)
