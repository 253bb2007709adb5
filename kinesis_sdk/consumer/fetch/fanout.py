"""Enhanced fan-out: the service pushes a shard's records over a subscription of up to five minutes.

```
              ┌───────── ends after 5 min, breaks, is taken over ─────────┐
              ▼                                                           │
REGISTERING ─► SUBSCRIBING ──────────────► STREAMING ── ChildShards ──► ENDED
                │       ▲
   keeps failing▼       │ every 30 s, later every 5 min
              POLLING ──┘
```
`FanOutFetcher.step` subscribes; it is a task of the scheduler, as the prefetcher's. One daemon thread per subscription
waits for events, because botocore's event stream blocks: it speaks HTTP/1.1, a connection per subscription. What it reads
goes into the worker's byte budget. With the budget used up, or 2 MiB of the shard waiting for the handler, it reads
no further, the socket fills and the service stops sending: per shard, at most one event is in memory beyond both bounds.

API cost per worker: one DescribeStreamSummary (none with an ARN) and one DescribeStreamConsumer. Per shard: one
SubscribeToShard each five minutes. A subscription that breaks is renewed where it stopped, at the earliest five seconds
after its beginning, which is the service's rule.

Consumers are registered and never deregistered, as the KCL does: a fleet that stops for a deployment keeps its
registration, and no worker can know that it is the last one. A registered consumer costs by the hour; who retires an
application calls DeregisterStreamConsumer once.
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
from kinesis_sdk.common.backoff import backoff
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
from kinesis_sdk.common.metrics import NOT_MEASURED, BoundMetrics
from kinesis_sdk.common.position import AfterSequence, Position, subscription_request
from kinesis_sdk.common.response_header import NO_RESPONSE
from kinesis_sdk.common.service_clock import ServiceClock, response_date
from kinesis_sdk.common.shard_cursor import invalid_position
from kinesis_sdk.consumer.fetch.budget import ByteBudget, Expansion, Reservation
from kinesis_sdk.consumer.fetch.events import EventReader, joined, read_event, start_thread
from kinesis_sdk.consumer.fetch.fetcher import Fetcher, FetchResult, record_read
from kinesis_sdk.consumer.fetch.prefetch import size_of
from kinesis_sdk.consumer.fetch.registration import ConsumerRegistration, FanOutClient

TAKE_OVER_SECONDS = 5.0
"""Seconds after a successful SubscribeToShard before which the next one is refused (API reference)."""

FALL_BACK_SECONDS = 10.0
"""Seconds of subscribing in vain after which a shard is polled. Longer than the service's own five, so that a shard
that comes from another worker is not polled for a moment."""

_MOST_READY_BYTES = 2 * 1024 * 1024
"""Bytes of one shard that wait for its handler: a second of what the service pushes."""

_FIRST_RETURN, _MOST_RETURN = 40.0, 400.0
"""Longest seconds between attempts to leave polling: the first and the last. The average is three quarters of them."""

_FIRST_BACKOFF, _MOST_BACKOFF = 0.5, 10.0
_IN_USE_PAUSE = 1.0
_TAKEN_OVER_PAUSE = 15.0
"""Seconds before a subscription that somebody took over is taken back. Most likely the lease went with it, which this
worker learns at its next renewal; until then the new owner is to be left in peace."""

_SLACK = 0.1
"""Seconds added to the service's five: its clock started when it answered, ours when we read that."""

_NEVER = float("inf")

_LOGGER = logging.getLogger(__name__)


class FanOutFetcher:
    """A `Fetcher` of pushed records that falls back to polling while subscribing fails.

    `step` is a task of the scheduler and runs on the fetching threads; events arrive on a thread of their own;
    everything else belongs to the shard's own step. Records come out in order and none is lost.

    Its lock is taken before the polling fetcher's, which is a leaf.

    Args:
        client: boto3 Kinesis client or one of its shape. Its read timeout has to exceed the pause between two
            events of an idle shard (about five seconds), else each timeout costs a new subscription.
        registration: The worker's consumer.
        shard_id: The shard.
        start: Where to start. A LATEST start is to be resolved before, see ``PollingFetcher.resolve_start``.
        rng: Jitter of the backoff.
        budget: Shared by all shards of the worker.
        on_ready: Called from any thread when `fetch` has something.
        clock: Time at which events arrive.
        service_clock: The service's time as far as it is known; shared by all shards. None starts without knowledge.
        metrics: Metrics of the shard.
        open_polling: Makes a fetcher for (start position, now) to fall back to. None never falls back.
        started_at_millis: What a LATEST start was resolved to.
        start_reader: Runs a reader; a thread each by default.
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
        self._room = threading.Condition(self._lock)
        self._has_room = True
        # After everything that was queued: where a subscription continues.
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
        # Of subscribing: when the next attempt is due, since when it fails, how often in a row.
        self._attempt_at = -_NEVER
        self._failing_since: float | None = None
        self._failures = 0
        self._cause: KinesisSdkError | None = None
        self._missing = False
        self._taken_over = False
        self._returns = 0

    def bind(self, wake: Callable[[], None]) -> None:
        """Tell how to make `step` run again."""
        self._wake = wake

    @property
    def is_polling(self) -> bool:
        """Whether it has fallen back."""
        return self._polling is not None

    @property
    def position(self) -> Position:
        """Where reading goes on once what was read is handed out."""
        return self._position

    @property
    def started_at_millis(self) -> int | None:
        """See `FetchResult.started_at_millis`."""
        return self._started_at_millis

    # The shard's own step

    @property
    def due(self) -> float:
        """In the past if there is something to `fetch`, else never: ``on_ready`` is called."""
        with self._lock:
            if self._ready or self._error is not None:
                return -_NEVER
            return self._polling.due if self._polling is not None and not self._subscribing else _NEVER

    @property
    def waiting(self) -> FetchResult | None:
        """The oldest event that waits for the handler, or what polling read ahead."""
        with self._lock:
            if self._ready:
                return self._ready[0]
            polling = self._polling
        return polling.waiting if polling is not None else None

    def fetch(self, now: float) -> FetchResult:
        """All that has arrived, without waiting. See `Fetcher.fetch`."""
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
                self._attempt_at = now + _FIRST_BACKOFF  # for whoever asks again nevertheless
        self._wake()
        raise error

    def _poll(self, now: float) -> FetchResult:
        """What the polling fetcher has, if there is one. With the lock held."""
        if self._polling is None or self._subscribing:
            return FetchResult(records=[], header=NO_RESPONSE, started_at_millis=self._started_at_millis)
        result = self._polling.fetch(now)
        if result.records:
            self._position = AfterSequence(result.records[-1].sequence_number)
        self._ended = result.header.ended
        return result

    def close(self) -> None:
        """Drop what has arrived and subscribe no more.

        The reader's thread ends with the next event, an empty one at the latest: a read can not be interrupted. The
        lease's next owner takes the subscription over.
        """
        with self._lock:
            self._closed = True
            dropped, self._ready = self._ready, deque()
            self._reader = None
            polling = self._polling
            self._make_room()
        for result in dropped:
            result.on_done()
        if polling is not None:
            polling.close()
        self._wake()

    # The task of the scheduler

    def step(self, now: float) -> float | None:
        """Subscribe if it is time; returns when to look again, None when there is nothing more to do."""
        with self._lock:
            if self._closed or self._ended:
                return None
            if self._reader is not None:
                return _NEVER  # its end wakes us
            if self._taken_over:
                self._taken_over = False
                self._attempt_at = max(self._attempt_at, now + _TAKEN_OVER_PAUSE)
            if now < self._attempt_at:
                return self._attempt_at
            # What polling delivered meanwhile would come twice: it stands still during the attempt.
            self._subscribing = True
            position = self._position
        try:
            if self._is_in_vain(now):
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
                self._on_ready()  # it may read again
        return self._attempt_at

    def _subscribe(self, now: float, position: Position) -> EventReader | None:
        arn = self._registration.step(now)
        if arn is None:
            self._attempt_at = max(self._registration.due, now + 0.2)
            return None
        try:
            with translate_errors("SubscribeToShard", self._client):
                answer = self._client.subscribe_to_shard(
                    ConsumerARN=arn, ShardId=self._shard_id, StartingPosition=subscription_request(position)
                )
        except ResourceNotFoundError as error:
            if self._missing:
                raise  # the consumer was there a moment ago: it is the shard that is gone
            self._missing = True
            self._registration.doubt(arn)
            raise TransientAwsError(
                f"{error.message}; looking the consumer up again", operation=error.operation, code=error.code
            ) from error
        except PermanentAwsError as error:
            if error.code != "InvalidArgumentException":
                raise
            raise invalid_position(self._shard_id, position, error) from error
        date = response_date(answer.get("ResponseMetadata", {}))
        if date is not None:
            self._service_clock.observe(date, self._clock.monotonic())
        if "EventStream" not in answer:
            raise ProtocolError(f"SubscribeToShard: the answer for shard {self._shard_id} has no EventStream")
        return EventReader(answer["EventStream"], self, now)

    def _subscribed(self, now: float, reader: EventReader) -> None:
        self._missing = False
        self._attempt_at = now + TAKE_OVER_SECONDS + _SLACK
        with self._lock:
            polling, self._polling = self._polling, None
            if not self._closed:
                self._reader = reader
        if polling is not None:
            _LOGGER.info("shard %s: subscribed again, polling ends", self._shard_id)
            polling.close()
        # Even if it was closed meanwhile: the reader finds out and closes the connection.
        try:
            self._start_reader(reader, self._shard_id)
        except RuntimeError as error:  # the system gives no more threads
            reader.close()
            # As if the subscription had broken off at once: a reader without a thread would be waited for forever.
            self.stream_ended(reader, error)

    def _failed(self, now: float, error: KinesisSdkError) -> None:
        self._failures += 1
        if self._failing_since is None:
            self._failing_since = now
        in_use = isinstance(error, AwsError) and error.code == "ResourceInUseException"
        if self.is_polling:
            self._returns += 1
            self._attempt_at = now + backoff(self._returns + 1, _FIRST_RETURN, _MOST_RETURN, self._rng)
            _LOGGER.info("shard %s: still polled, subscribing fails: %s", self._shard_id, error)
            return
        pause = (
            # The subscription before still counts: of a worker that had the shard, or our own that broke.
            _IN_USE_PAUSE * (1 + self._rng.random() / 2)
            if in_use
            else backoff(self._failures, _FIRST_BACKOFF, _MOST_BACKOFF, self._rng)
        )
        self._attempt_at = now + pause
        # A position or shard that does not exist does not begin to exist for GetRecords.
        hopeless = isinstance(error, (InvalidPositionError, ResourceNotFoundError))
        late = now - self._failing_since >= FALL_BACK_SECONDS
        if self._open_polling is not None and not hopeless and (late or not error.retryable):
            self._fall_back(now, error)
            return
        if not error.retryable:
            self._attempt_at = _NEVER
        if not in_use:
            with self._lock:
                self._error = error
            self._on_ready()

    def _is_in_vain(self, now: float) -> bool:
        """Whether subscriptions succeed and break off before their first event, for too long."""
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
        _LOGGER.warning("shard %s: is polled from now on, subscribing fails: %s", self._shard_id, error)
        self._returns = 0
        self._cause = None
        self._attempt_at = now + backoff(1, _FIRST_RETURN, _MOST_RETURN, self._rng)
        polling = self._open_polling(self._position, now)
        with self._lock:
            closed = self._closed
            if not closed:
                self._polling = polling
        if closed:
            polling.close()

    # The reader's thread

    def accept(self, reader: EventReader, event: Mapping[str, Any]) -> bool:
        """See `EventSink`."""
        content = event.get("SubscribeToShardEvent")
        if content is None:
            return True  # of a kind that is newer than this code
        read_at = self._clock.monotonic()
        result, following = read_event(
            content, self._shard_id, self._started_at_millis, read_at, self._service_clock
        )
        size = size_of(result)
        reservation = self._reserve(reader, size + self._expansion.expected if size else 0)
        with self._lock:
            wanted = self._reader is reader
            if wanted:
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
                # An empty event says nothing that waiting ones do not: a handler that hangs must not collect them.
                if result.records or result.header.ended or not self._ready:
                    self._ready.append(result)
                if result.header.ended:
                    self._reader = None
        if not wanted:
            if reservation is not None:
                reservation.release()
            return False
        record_read(self._metrics, result, sum([len(record.data) for record in result.records]))
        self._on_ready()
        return not result.header.ended

    def _reserve(self, reader: EventReader, size: int) -> Reservation | None:
        """Wait for room. None if the event needs none, or if its subscription is not wanted any more."""
        if size == 0:
            return None
        while True:
            with self._room:
                self._room.wait_for(
                    lambda: self._ready_bytes < _MOST_READY_BYTES or self._reader is not reader
                )
                if self._reader is not reader:
                    return None
                self._has_room = False
            reservation = self._budget.reserve(self, size, self._told_of_room)
            if reservation is not None:
                return reservation
            with self._room:
                self._room.wait_for(lambda: self._has_room or self._reader is not reader)
                gone = self._reader is not reader
            if gone:
                self._budget.leave(self)
                return None

    def _told_of_room(self) -> None:
        with self._lock:
            self._make_room()

    def _make_room(self) -> None:
        self._has_room = True
        self._room.notify_all()

    def stream_ended(self, reader: EventReader, error: Exception | None) -> None:
        """See `EventSink`: the subscription is renewed where it stopped."""
        translated = None if error is None else translate_error(error, "SubscribeToShard", self._client)
        with self._lock:
            if self._reader is not reader:
                return
            self._reader = None
            self._taken_over = (
                isinstance(translated, AwsError) and translated.code == "ResourceInUseException"
            )
            if translated is not None and not reader.accepted:
                # Subscribing that brings nothing is as good as subscribing in vain.
                self._failures += 1
                self._failing_since = reader.started if self._failing_since is None else self._failing_since
                self._cause = translated
        if translated is None:
            _LOGGER.debug("shard %s: the subscription ends, renewing it", self._shard_id)
        else:
            _LOGGER.info("shard %s: the subscription breaks off, renewing it: %s", self._shard_id, translated)
        self._wake()
