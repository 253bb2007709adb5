"""All state of one stream in the producer, without threads, clock or network.

| object | knows |
|---|---|
| `Topology` | the stream: shard map, record size limit, whether it places records itself |
| `PendingRecords` | which records have no final result yet, and the results on their way out |
| `SendQueue` | how records become requests, and when each may leave |
| `ResponseHandler` | what responses, failures and shard maps mean for them |

The engine gives records to the `queue`. The I/O loop takes requests from the pipeline and reports their outcomes to `responses`. A user
record is owned by exactly one component at a time: an open aggregate, a lane, the collector, an isolated request, a request in flight,
the entries that wait for a shard map, the backoff before a third or later retry, or the settled list.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from kinesis_sdk.common.codec import AggregateCodec
from kinesis_sdk.common.once.stamps import Stamps, fresh_entropy
from kinesis_sdk.common.serialization import Serializer
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.stats import Counters
from kinesis_sdk.producer.stream.aggregator import OpenAggregates
from kinesis_sdk.producer.stream.dispatch import NEVER
from kinesis_sdk.producer.stream.pending import PendingRecords
from kinesis_sdk.producer.stream.responses import ResponseHandler
from kinesis_sdk.producer.stream.send_queue import SendQueue
from kinesis_sdk.producer.stream.topology import DEFAULT_RECORD_LIMIT, StreamFacts, Topology

MAX_PARTITION_KEY_LENGTH = 256
"""Maximum characters of a partition key (API reference: 1 to 256 Unicode characters)."""


class StreamPipeline:
    """The producer's state of one stream. Not thread-safe: the engine calls it under its lock.

    Attributes:
        known: Open aggregates for the fast path of `put`: the same object and dict as long as the pipeline exists.
        buffered_time: Maximum seconds between the put and the request of a record, unless its shard's rate limit holds it.
        record_ttl: Seconds after `put` at which a record fails if it is not stored.
        max_record_size: Maximum bytes (data and partition key) of a user record, as far as is known.
        wrapping: Bytes of the stream's limit that a user record cannot use, because it is sent as an aggregate with one record.
        plain_record_size: Maximum bytes of data that fit into `max_record_size` with any partition key.
        place: Place among the streams that take turns; set by the agenda of the I/O loop, as is `next_poll`.
        next_poll: Monotonic seconds at which the I/O loop polls the pipeline; minus infinity for the next turn, infinity for never.
    """

    def __init__(
        self,
        stream: StreamId,
        config: ProducerConfig,
        rng: random.Random,
        *,
        wall_clock: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = fresh_entropy,
        codec: AggregateCodec | None = None,
    ) -> None:
        self.stream = stream
        self._config = config
        self.known: OpenAggregates = OpenAggregates()
        self.serializer: Serializer | None = config.serializer_of(stream.name)
        self.topology: Topology = Topology(rng, config)
        self.stamps: Stamps = Stamps(
            stream, enabled=config.idempotent, wall_clock=wall_clock, entropy=entropy
        )
        self.pending: PendingRecords = PendingRecords(stream, self.stamps)
        self.queue: SendQueue = SendQueue(
            self.pending, self.topology, config, rng, self.known, self.stamps, codec
        )
        self.responses: ResponseHandler = ResponseHandler(self.pending, self.queue, self.topology, config)
        self.buffered_time: float = self.queue.buffered_time
        self.record_ttl: float = self.queue.record_ttl
        self.max_record_size: int = 0
        self.wrapping: int = 0
        self.plain_record_size: int = 0
        self.place: int = 0
        self.next_poll: float = NEVER
        self._update_record_size()

    def on_facts(self, facts: StreamFacts, now: float) -> None:
        """Handle a successful load of the stream's facts; like `ResponseHandler.on_facts`, raise `ProtocolError`."""
        self.responses.on_facts(facts, now)
        self._update_record_size()

    @property
    def pending_count(self) -> int:
        """Number of records without a final result."""
        # While some records of an entry back off, its other records may be in other entries, and would be counted twice.
        return len(self.pending.live) if self.queue.is_backing_off else self.pending.count

    @property
    def counters(self) -> Counters:
        """Counts of the stream since the start."""
        counters = self.pending.counters
        # Not counted one by one: every accepted record is still pending, or settled.
        counters.begun_anew_records = self.stamps.begun_anew
        counters.user_records_put = (
            self.pending_count + counters.user_records_stored + counters.user_records_failed
        )
        return counters

    def _update_record_size(self) -> None:
        size = self._config.max_user_record_size
        limit = self.topology.max_record_size
        self.wrapping = self.stamps.wrapping(self.topology)
        if self.wrapping or limit is not None:
            size = min(size, (limit or max(size, DEFAULT_RECORD_LIMIT)) - self.wrapping)
        self.max_record_size = size
        self.plain_record_size = size - 4 * MAX_PARTITION_KEY_LENGTH  # a character has at most four bytes
