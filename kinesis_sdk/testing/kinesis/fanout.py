"""SubscribeToShard: subscriptions, and the rules for opening one.

`FakeClient` (in process) and `FakeAwsServer` (over HTTP) read events from a subscription and pass them on. The events depend only on the
account's clock; only waiting for them takes real time.
"""

from __future__ import annotations

import json
from typing import Any

from kinesis_sdk.testing.clock import millis
from kinesis_sdk.testing.errors import AwsError, ResponseLostError, constraint
from kinesis_sdk.testing.kinesis.records import ITERATOR_TYPES, MAX_READ_RECORDS, RecordPlane, reject_dry_run
from kinesis_sdk.testing.kinesis.registry import StreamRegistry
from kinesis_sdk.testing.kinesis.shard import Shard
from kinesis_sdk.testing.kinesis.streams import Consumer, Stream
from kinesis_sdk.testing.kinesis.throttle import MIB, TokenBucket

SUBSCRIPTION_SECONDS = 300.0
"""Seconds after which the service ends a subscription (API reference of SubscribeToShard)."""
TAKE_OVER_SECONDS = 5.0
"""Seconds after a successful call during which a second call is rejected (same source)."""
HEARTBEAT_SECONDS = 5.0
"""Seconds between two events of an idle shard. Kinesis does not specify it."""
_RATE = 2 * MIB
_EVENT_BYTES = MIB


class Subscription:
    """Subscription of one consumer to one shard. Thread-safe: the stream's lock guards it.

    Attributes:
        started: Monotonic seconds of the call.
        is_over: Whether its last event was read.
    """

    def __init__(
        self, registry: StreamRegistry, stream: Stream, consumer: Consumer, shard: Shard, position: int
    ) -> None:
        self._registry = registry
        self._stream = stream
        self._consumer = consumer
        self._shard = shard
        self._position = position
        self._continuation = shard.number_before(position)
        self._bucket = TokenBucket(_RATE, registry.clock.monotonic())
        self._error: AwsError | None = None
        self.started: float = registry.clock.monotonic()
        self.is_over: bool = False
        # The first event comes at once, even if empty: it shows where the subscription starts.
        self._heartbeat_at = self.started

    @property
    def due(self) -> float:
        """Monotonic seconds at which an event is due even without new records."""
        return min(self._heartbeat_at, self.started + SUBSCRIPTION_SECONDS)

    def close(self, error: AwsError | None = None) -> None:
        """End the subscription without an error if its reader has ended it, otherwise with an error for the reader."""
        with self._stream.lock:
            if error is None:
                self.is_over = True
            else:
                self._error = error
            self._stream.changed.notify_all()

    def take(self, wait: float = 0.0) -> bytes | None:
        """Return the next event as the JSON text of a ``SubscribeToShardEvent``.

        Waits at most `wait` seconds of real time for an event. Returns None if no event is due or the subscription has ended, and
        raises ResponseLostError if a fault cuts the connection.
        """
        with self._stream.lock:
            payload = self._poll()
            if payload is None and wait > 0 and not self.is_over:
                self._stream.changed.wait(wait)
                payload = self._poll()
            return payload

    def beat(self) -> bytes | None:
        """Return the next event, empty if there are no records; None if the subscription has ended."""
        with self._stream.lock:
            self._heartbeat_at = min(self._heartbeat_at, self._registry.clock.monotonic())
            return self._poll(throttled=False)

    def _poll(self, *, throttled: bool = True) -> bytes | None:
        registry, stream = self._registry, self._stream
        if self.is_over:
            return None
        stream.settle()
        error = self._error
        if error is None and stream.deleted:
            error = registry.not_found(stream.name)
        if error is None and stream.consumers.get(self._consumer.name) is not self._consumer:
            error = AwsError("ResourceNotFoundException", f"Consumer {self._consumer.arn} not found.")
        if error is not None:
            self.is_over = True
            raise error
        now = registry.clock.monotonic()
        if now >= self.started + SUBSCRIPTION_SECONDS:
            self.is_over = True
            return None
        self._bucket.refill(now)
        if throttled and registry.throttle and self._bucket.level < 0:
            return None
        page = self._shard.read(self._position, MAX_READ_RECORDS, _EVENT_BYTES, stream.horizon)
        ends = self._shard.closed_at is not None and page.behind_arrival is None
        if not page.fragments and not ends and now < self._heartbeat_at:
            return None
        if registry.faults and registry.faults.breaks_stream(stream.name, self._shard.shard_id):
            self.is_over = True
            raise ResponseLostError("injected: the connection of the subscription breaks")
        self._heartbeat_at = now + HEARTBEAT_SECONDS
        self._position = page.position
        self._bucket.level -= page.size
        registry.count(records_read=len(page.fragments))
        if page.fragments:
            self._continuation = page.position - 1
        behind = 0
        if page.behind_arrival is not None:
            behind = max(0, millis(registry.clock.time()) - page.behind_arrival)
        tail = f'],"MillisBehindLatest":{behind}'
        if ends:
            # At the end of a shard there are children and no number to continue from.
            self.is_over = True
            tail += f',"ChildShards":{json.dumps([child.describe_as_child() for child in self._shard.children])}}}'
        else:
            tail += f',"ContinuationSequenceNumber":"{self._continuation}"}}'
        return b'{"Records":[%b%b' % (b",".join(page.fragments), tail.encode())


class FanOut:
    """Operation SubscribeToShard on a registry of streams."""

    def __init__(self, registry: StreamRegistry, records: RecordPlane) -> None:
        self._registry = registry
        self._records = records

    def subscribe(self, request: dict[str, Any], stream: Stream, consumer: Consumer) -> Subscription:
        """Open a subscription, which ends the consumer's previous subscription to the same shard.

        Rejected with ResourceInUseException if the consumer is not ACTIVE yet, or subscribed to the shard less than five
        seconds ago.
        """
        registry = self._registry
        shard_id = request.get("ShardId")
        if not isinstance(shard_id, str) or not shard_id:
            raise constraint("shardId", shard_id, "not be null")
        start = request.get("StartingPosition") or {}
        kind = start.get("Type")
        if kind not in ITERATOR_TYPES:
            raise constraint(
                "startingPosition.type", kind, f"satisfy enum value set: [{', '.join(ITERATOR_TYPES)}]"
            )
        position_request = {
            "StartingSequenceNumber": start.get("SequenceNumber"),
            "Timestamp": start.get("Timestamp"),
        }
        now = registry.clock.monotonic()
        with stream.lock:
            if not consumer.is_active(now):
                raise AwsError("ResourceInUseException", f"Consumer {consumer.arn} is not in ACTIVE state.")
            shard = stream.shard(shard_id, registry.account_id)
            position = self._records.position(position_request, stream, shard, kind, "SubscribeToShard")
            former = consumer.subscriptions.get(shard_id)
            if former is not None and now - former.started < TAKE_OVER_SECONDS:
                raise AwsError(
                    "ResourceInUseException",
                    f"Consumer {consumer.arn} subscribed to shard {shard_id} less than {TAKE_OVER_SECONDS:g} "
                    "seconds ago.",
                )
            reject_dry_run(request)
            subscription = Subscription(registry, stream, consumer, shard, position)
            consumer.subscriptions[shard_id] = subscription
            if former is not None:
                former.close(
                    AwsError(
                        "ResourceInUseException",
                        f"Another subscription of consumer {consumer.arn} to shard {shard_id} has taken over.",
                    )
                )
            return subscription
