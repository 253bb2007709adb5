"""Enhanced fan-out: Kinesis pushes the records of a shard over a subscription of up to five minutes.

```
              ┌────────── ends after 5 min, breaks, is taken over ────────┐
              ▼                                                           │
REGISTERING ─► SUBSCRIBING ──────────────► STREAMING ── ChildShards ──► ENDED
                │       ▲
   keeps failing▼       │ after 30 s, growing to 5 min
              POLLING ──┘
```
`FanOutFetcher.step` subscribes. Like `Prefetcher.step`, it is a task of the scheduler. An `EventReader` reads the events. With
HTTP/1.1, each reader has a daemon thread and a connection of its own, because botocore's event stream blocks. With HTTP/2
(`kinesis_sdk.consumer.fetch.http2`), readers share threads and connections. Events are charged to the byte budget of the
worker. If the budget is exhausted, or 2 MiB of the shard wait for the handler, the reader stops, the socket or the window of
its stream fills, and Kinesis stops sending. Beyond these two bounds, at most one event per shard is in memory, and with
HTTP/2 one window (256 KiB).

API cost per worker: one DescribeStreamSummary (none with an ARN) and one DescribeStreamConsumer. Per shard: one SubscribeToShard
every five minutes. A broken subscription is renewed where it stopped, at least five seconds after it started, because Kinesis
rejects an earlier call.

Consumers are registered but never deregistered, as in the KCL: a fleet that stops for a deployment keeps its registration, and no
worker can know that it is the last worker. A registered consumer is billed by the hour. To retire an application, call
DeregisterStreamConsumer once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from kinesis_sdk.common.aws import translate_error, translate_errors
from kinesis_sdk.common.backoff import Backoff
from kinesis_sdk.common.clock import Clock
from kinesis_sdk.common.errors import (
    AwsError,
    InvalidPositionError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
    ResourceNotFoundError,
    TransientAwsError,
)
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.position import AfterSequence, Position, subscription_request
from kinesis_sdk.common.response_header import NO_RESPONSE
from kinesis_sdk.common.service_clock import ServiceClock, response_date
from kinesis_sdk.common.shard_cursor import invalid_position
from kinesis_sdk.consumer.fetch.budget import ByteBudget, Expansion
from kinesis_sdk.consumer.fetch.events import EventReader, Next, joined, read_event, start_thread
from kinesis_sdk.consumer.fetch.fetcher import Fetcher, FetchResult, record_read
from kinesis_sdk.consumer.fetch.prefetch import size_of
from kinesis_sdk.consumer.fetch.registration import ConsumerRegistration, FanOutClient

TAKE_OVER_SECONDS = 5.0
"""Seconds after a successful SubscribeToShard during which Kinesis rejects the next call (API reference)."""

FALL_BACK_SECONDS = 10.0
"""Seconds of unsuccessful attempts to subscribe after which a shard is polled. This is longer than the five seconds above, so that a shard
taken over from another worker is not briefly polled."""

_MAX_READY_BYTES = 2 * 1024 * 1024
"""Bytes of one shard that may wait for its handler: the amount that Kinesis pushes in one second."""

_RETURNS = Backoff(40.0, 400.0)
"""Maximum seconds between attempts to leave polling: the first and the last value. With jitter, the average is three quarters of
the maximum."""

_RETRIES = Backoff(0.5, 10.0)
_IN_USE_PAUSE = 1.0
_TAKEN_OVER_PAUSE = 15.0
"""Seconds before taking back a subscription that another worker took over. That worker most likely also took the lease, which this worker
detects at its next renewal. Until then, it should not interrupt the new owner."""

_SLACK = 0.1
"""Seconds added to `TAKE_OVER_SECONDS`, which Kinesis counts from its response and this worker from the call."""

_NEVER = float("inf")

_LOGGER = FieldLogger(logging.getLogger(__name__))


class FanOutFetcher:
    """A `Fetcher` of pushed records that falls back to polling while subscriptions fail.

    `step` is a task of the scheduler and runs on the fetching threads. `accept`, `retry` and `stream_ended` run on the reader's
    thread, and never wait. Any thread may call `close`; the shard's own step calls all other methods. Records are returned in order, and
    none is lost. The polling fetcher's lock, which is a leaf, may be taken while this lock is held.

    Args:
        client: boto3 Kinesis client, or an object with its methods. Its read timeout must exceed the pause between two events
            of an idle shard (about five seconds); otherwise each timeout costs a new subscription.
        registration: Registered consumer of the application.
        shard_id: The shard.
        start: Position to start from. LATEST must be resolved before, see `PollingFetcher.resolve_start`.
        rng: Source of jitter for the backoff.
        budget: Byte budget of the worker.
        on_ready: Called from any thread when `fetch` has a result or an error.
        clock: Clock that stamps the arrival of events.
        service_clock: Time at Kinesis, shared by all shards; None starts a new clock.
        metrics: Metrics of the shard.
        open_polling: Opens the fetcher for the fallback, given a position and the monotonic seconds; None never falls back.
        started_at_millis: Time that a LATEST start was resolved to, in epoch milliseconds.
        start_reader: Called with a reader and the shard id to run it; by default on a thread of its own.
    """

    def __init__(
        self,
        client: FanOutClient,
        registration: ConsumerRegistration,
        shard_id: str,
        start: Position,
        *,
        rng: Random,
        budget: ByteBudget,
        on_ready: Callable[[], None],
        clock: Clock,
        service_clock: ServiceClock | None = None,
        metrics: BoundMetrics = NOT_MEASURED,
        open_polling: Callable[[Position, float], Fetcher] | None = None,
        started_at_millis: int | None = None,
        start_reader: Callable[[EventReader, str], None] = start_thread,
    ) -> None:
        self._logger = FieldLogger(
            _LOGGER, stream=registration.stream, shard=shard_id, worker=registration.worker
        )
        self._client = client
        self._registration = registration
        self._shard_id = shard_id
        self._rng = rng
        self._budget = budget
        self._on_ready = on_ready
        self._clock = clock
        self._service_clock = service_clock or ServiceClock()
        self._metrics = metrics
        self._open_polling = open_polling
        self._started_at_millis = started_at_millis
        self._start_reader = start_reader
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        # Event for which there was no room and which its reader offers again, and whether to notify the reader of room.
        self._held: tuple[FetchResult, str | None] | None = None
        self._needs_room = False
        # Position after the last queued event, where a new subscription continues.
        self._position = start
        self._ready: deque[FetchResult] = deque()
        self._ready_bytes = 0
        self._expansion = Expansion()
        self._error: KinesisSdkError | None = None
        self._reader: EventReader | None = None
        self._polling: Fetcher | None = None
        self._subscribing = False
        self._ended = False
        self._closed = False
        # Attempts to subscribe: when the next one is due, and the current run of failures.
        self._attempt_at = -_NEVER
        self._failing_since: float | None = None
        self._failures = 0
        self._cause: KinesisSdkError | None = None
        self._missing = False
        self._taken_over = False
        self._returns = 0

    def bind(self, wake: Callable[[], None]) -> None:
        """Set the function that makes the scheduler run `step` again."""
        self._wake = wake

    @property
    def is_polling(self) -> bool:
        """Whether the shard is being polled."""
        return self._polling is not None

    @property
    def position(self) -> Position:
        """Position after the last record read, where reading continues."""
        return self._position

    @property
    def started_at_millis(self) -> int | None:
        """See `FetchResult.started_at_millis`."""
        return self._started_at_millis

    # Called by the shard's own step

    @property
    def due(self) -> float:
        """Minus infinity if `fetch` has a result or an error; otherwise infinity until ``on_ready``, or the time of the next poll."""
        with self._lock:
            if self._ready or self._error is not None:
                return -_NEVER
            return self._polling.due if self._polling is not None and not self._subscribing else _NEVER

    @property
    def waiting(self) -> FetchResult | None:
        """Oldest event that waits for the handler, or oldest polled result; None if there is none."""
        with self._lock:
            if self._ready:
                return self._ready[0]
            polling = self._polling
        return polling.waiting if polling is not None else None

    def fetch(self, now: float) -> FetchResult:
        """Return all events that have arrived, without waiting. See `Fetcher.fetch`."""
        with self._lock:
            if self._ready:
                results, self._ready = list(self._ready), deque()
                self._ready_bytes = 0
                self._make_room()
                return joined(results)
            error, self._error = self._error, None
            if error is None:
                return self._poll(now)
            if not error.retryable:
                self._attempt_at = now + _RETRIES.first  # in case the caller retries anyway
        self._wake()
        raise error

    def _poll(self, now: float) -> FetchResult:
        """Return the next result of the polling fetcher, or an empty result. Requires the lock."""
        if self._polling is None or self._subscribing:
            return FetchResult(records=[], header=NO_RESPONSE, started_at_millis=self._started_at_millis)
        result = self._polling.fetch(now)
        if result.records:
            self._position = AfterSequence(result.records[-1].sequence_number)
        self._ended = result.header.ended
        return result

    def close(self) -> None:
        """Drop all events that have arrived, and stop subscribing. The next owner of the lease takes over the subscription."""
        # The reader's thread cannot be interrupted in a read. The thread ends with the next event: after about five
        # seconds at the latest, Kinesis sends an empty event.
        with self._lock:
            self._closed = True
            dropped, self._ready = self._ready, deque()
            self._needs_room = True
            self._make_room()
            self._reader = None
            polling = self._polling
        for result in dropped:
            result.on_done()
        if polling is not None:
            polling.close()
        self._wake()

    # The task of the scheduler

    def step(self, now: float) -> float | None:
        """Subscribe if an attempt is due.

        Return the monotonic time of the next call: infinity until the function of `bind` is called, None after the last call.
        """
        with self._lock:
            if self._closed or self._ended:
                return None
            if self._reader is not None:
                return _NEVER  # the end of the subscription wakes this step
            if self._taken_over:
                self._taken_over = False
                self._attempt_at = max(self._attempt_at, now + _TAKEN_OVER_PAUSE)
            if now < self._attempt_at:
                return self._attempt_at
            # The attempt subscribes at `position`. If `fetch` polled meanwhile, on the thread of the shard's step, the records
            # it returned would be pushed a second time. So polling pauses while this flag is set.
            self._subscribing = True
            position = self._position
        try:
            if self._keeps_breaking(now):
                self._fall_back(now, self._cause)
                return self._attempt_at
            reader = self._subscribe(now, position)
        except KinesisSdkError as error:
            self._failed(now, error)
        else:
            if reader is not None:
                self._subscribed(now, reader)
        finally:
            with self._lock:
                self._subscribing = False
            if self.is_polling:
                self._on_ready()  # polling may continue
        return self._attempt_at

    def _subscribe(self, now: float, position: Position) -> EventReader | None:
        arn = self._registration.step(now)
        if arn is None:
            self._attempt_at = max(self._registration.due, now + 0.2)
            return None
        try:
            with translate_errors("SubscribeToShard", self._client):
                response = self._client.subscribe_to_shard(
                    ConsumerARN=arn, ShardId=self._shard_id, StartingPosition=subscription_request(position)
                )
        except ResourceNotFoundError as error:
            if self._missing:
                raise  # the consumer was found a moment ago, so the shard is missing
            self._missing = True
            self._registration.doubt(arn)
            raise TransientAwsError(
                f"{error.message}; describing the consumer again", operation=error.operation, code=error.code
            ) from error
        except PermanentAwsError as error:
            if error.code != "InvalidArgumentException":
                raise
            raise invalid_position(self._shard_id, position, error) from error
        date = response_date(response.get("ResponseMetadata", {}))
        if date is not None:
            self._service_clock.observe(date, self._clock.monotonic())
        if "EventStream" not in response:
            raise ProtocolError(
                f"SubscribeToShard: the response for shard {self._shard_id} has no EventStream"
            )
        return EventReader(response["EventStream"], self, now)

    def _subscribed(self, now: float, reader: EventReader) -> None:
        self._missing = False
        self._attempt_at = now + TAKE_OVER_SECONDS + _SLACK
        with self._lock:
            polling, self._polling = self._polling, None
            if not self._closed:
                self._reader = reader
        if polling is not None:
            self._logger.info("shard %s: enhanced fan-out restored, polling stopped", self._shard_id)
            polling.close()
        # `close` may have run while the call was in flight. Then `_reader` is not set, the reader's first `accept` returns STOP,
        # and the reader closes its connection. So start the thread even then; otherwise the connection would stay open.
        try:
            self._start_reader(reader, self._shard_id)
        except RuntimeError as error:  # the system has no more threads
            reader.close()
            # Treat it as a subscription that broke at once. Otherwise `step` would wait forever for the end of a reader that
            # never runs.
            self.stream_ended(reader, error)

    def _failed(self, now: float, error: KinesisSdkError) -> None:
        self._failures += 1
        if self._failing_since is None:
            self._failing_since = now
        in_use = isinstance(error, AwsError) and error.code == "ResourceInUseException"
        if self.is_polling:
            self._returns += 1
            self._attempt_at = now + _RETURNS.pause(self._returns + 1, self._rng)
            self._logger.info("shard %s: still polling, SubscribeToShard failed: %s", self._shard_id, error)
            return
        pause = (
            # Kinesis still counts the previous owner's subscription, or this worker's broken subscription.
            _IN_USE_PAUSE * (1 + self._rng.random() / 2)
            if in_use
            else _RETRIES.pause(self._failures, self._rng)
        )
        self._attempt_at = now + pause
        # A position or a shard that does not exist cannot be polled either.
        fatal = isinstance(error, (InvalidPositionError, ResourceNotFoundError))
        late = now - self._failing_since >= FALL_BACK_SECONDS
        if self._open_polling is not None and not fatal and (late or not error.retryable):
            self._fall_back(now, error)
            return
        if not error.retryable:
            self._attempt_at = _NEVER
        if not in_use:
            with self._lock:
                self._error = error
            self._on_ready()

    def _keeps_breaking(self, now: float) -> bool:
        """Return whether subscriptions have been breaking before their first event for too long."""
        since = self._failing_since
        return (
            self._cause is not None
            and since is not None
            and now - since >= FALL_BACK_SECONDS
            and self._open_polling is not None
            and not self.is_polling
        )

    def _fall_back(self, now: float, error: KinesisSdkError | None) -> None:
        assert self._open_polling is not None
        self._logger.warning(
            "shard %s: falling back to polling, SubscribeToShard failed: %s", self._shard_id, error
        )
        self._returns = 0
        self._cause = None
        self._attempt_at = now + _RETURNS.pause(1, self._rng)
        polling = self._open_polling(self._position, now)
        with self._lock:
            closed = self._closed
            if not closed:
                self._polling = polling
        if closed:
            polling.close()

    # The reader's thread

    def accept(self, reader: EventReader, event: Mapping[str, Any]) -> Next:
        """See `EventSink`."""
        content = event.get("SubscribeToShardEvent")
        if content is None:
            return Next.READ  # an event type that this version does not know
        read_at = self._clock.monotonic()
        self._held = read_event(
            content, self._shard_id, self._started_at_millis, read_at, self._service_clock
        )
        return self.retry(reader)

    def retry(self, reader: EventReader) -> Next:
        """See `EventSink`."""
        held, reservation = self._held, None
        assert held is not None
        result, following = held
        if size := size_of(result):
            with self._lock:
                is_current = self._reader is reader
                # Set before the request: the budget may call the waker on another thread as soon as this shard is in its queue.
                # Set afterwards, that call would be lost, and the reader would wait forever.
                self._needs_room = is_current
                is_full = self._ready_bytes >= _MAX_READY_BYTES
            if is_current and not is_full:
                reservation = self._budget.reserve(self, size + self._expansion.expected, self._on_room)
            if is_current and reservation is None:
                return Next.WAIT
        self._held = None
        with self._lock:
            self._needs_room = False
            # Since this event was read, `close` may have run, or a later subscription, which repeats the event, may
            # have replaced the reader's. Only the current reader may queue the event and move the position.
            is_current = self._reader is reader
            if is_current:
                reader.accepted += 1
                self._failing_since = None
                self._failures = 0
                self._ended = result.header.ended
                if following is not None:
                    self._position = AfterSequence(following)
                if reservation is not None:
                    self._ready_bytes += size
                    charge = self._expansion.charge(reservation, size)
                    result = replace(result, charge=charge, on_done=reservation.release)
                # Empty events must not pile up behind a handler that hangs. An empty event adds nothing to the events
                # that wait.
                if result.records or result.header.ended or not self._ready:
                    self._ready.append(result)
                if result.header.ended:
                    self._reader = None
        if not is_current:
            if reservation is not None:
                reservation.release()
            else:
                self._budget.leave(self)
            return Next.STOP
        record_read(self._metrics, result, sum([len(record.data) for record in result.records]))
        self._on_ready()
        return Next.STOP if result.header.ended else Next.READ

    def _on_room(self) -> None:
        with self._lock:
            self._make_room()

    def _make_room(self) -> None:
        if self._needs_room and self._reader is not None:
            self._needs_room = False
            self._reader.on_resume()

    def stream_ended(self, reader: EventReader, error: Exception | None) -> None:
        """Renew the subscription where it stopped. See `EventSink`."""
        translated = None if error is None else translate_error(error, "SubscribeToShard", self._client)
        with self._lock:
            if self._reader is not reader:
                return
            self._reader = None
            self._taken_over = (
                isinstance(translated, AwsError) and translated.code == "ResourceInUseException"
            )
            if translated is not None and not reader.accepted:
                # A subscription that breaks before its first event counts as a failed attempt.
                self._failures += 1
                self._failing_since = reader.started if self._failing_since is None else self._failing_since
                self._cause = translated
        if translated is None:
            self._logger.debug("shard %s: subscription ended, renewing it", self._shard_id)
        else:
            self._logger.info("shard %s: subscription broke, renewing it: %s", self._shard_id, translated)
        self._wake()
