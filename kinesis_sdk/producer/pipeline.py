"""Everything of one stream in the producer: a façade over four objects, without threads, clock or network.

| object | knows |
|---|---|
| `Topology` | the stream: shard map, record size limit, whether it places records itself |
| `PendingRecords` | which records have no final result yet, and the results on their way out |
| `SendQueue` | how records become requests, and when each may leave |
| `ResponseHandler` | what responses, failures and shard maps mean for them |

The I/O loop calls `poll` for requests to send and reports outcomes through `on_response` and `on_failure`, and loads through
`on_facts` and `on_facts_failed`. A user record is owned by exactly one component at a time: an open aggregate, a lane, the collector,
an isolated request, a request in flight, the entries that wait for a shard map, the backoff before a third or later retry, or the
settled list.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.serialization import Serializer
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.aggregator import Entry, OpenByKey
from kinesis_sdk.producer.collector import Batch
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.identities import WRAPPING, Identities, fresh_entropy
from kinesis_sdk.producer.pending import PendingRecords, Settled
from kinesis_sdk.producer.record import PendingRecord
from kinesis_sdk.producer.responses import ResponseHandler
from kinesis_sdk.producer.send_queue import SendQueue
from kinesis_sdk.producer.stats import Counters
from kinesis_sdk.producer.topology import DEFAULT_RECORD_LIMIT, StreamFacts, Topology

MAX_PARTITION_KEY_LENGTH = 256
"""Maximum characters of a partition key (API reference: 1 to 256 Unicode characters)."""


class StreamPipeline:
    """The producer's state of one stream. Not thread-safe: the engine calls it under its lock.

    Args:
        stream: The stream.
        config: Settings of the producer.
        rng: Source of jitter.
        wall_clock: Returns epoch seconds; replaced in tests.
        entropy: Returns that many random bytes, for the identities of records; replaced in tests.

    Attributes:
        stream: The stream.
        open_by_key: Open aggregate of a partition key, for the fast path of `put`: one dict for the pipeline's life.
        serializer: Encodes the values that callers put; None if they put bytes.
        topology: What is known about the stream.
        buffered_time: Seconds after `put` at which a record leaves its aggregate at the latest.
        record_ttl: Seconds after `put` at which a record fails if it is not stored.
        max_record_size: Maximum bytes (data and partition key) of a user record, as far as is known.
        wrapping: Bytes of the stream's limit that are not available to a user record, because an aggregate of one is around it.
        plain_record_size: Maximum bytes of data with which a user record is no larger than that, whatever its partition key.
    """

    def __init__(
        self,
        stream: StreamId,
        config: ProducerConfig,
        rng: random.Random,
        *,
        wall_clock: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = fresh_entropy,
    ) -> None:
        self.stream = stream
        self._config = config
        self.open_by_key: OpenByKey = {}
        self.serializer: Serializer | None = config.serializer_of(stream.name)
        self.topology: Topology = Topology(rng, config)
        self._pending = PendingRecords(stream)
        self._identities = Identities(
            stream, enabled=config.idempotent, wall_clock=wall_clock, entropy=entropy
        )
        self._queue = SendQueue(self._pending, self.topology, config, rng, self.open_by_key, self._identities)
        self._responses = ResponseHandler(self._pending, self._queue, self.topology, config)
        self.buffered_time: float = self._queue.buffered_time
        self.record_ttl: float = self._queue.record_ttl
        self.max_record_size: int = 0
        self.wrapping: int = 0
        self.plain_record_size: int = 0
        self._update_record_size()

    # ------------------------------------------------------------------ callers

    def add(self, record: PendingRecord, data: bytes, hash_key: bytes, epoch: int, now: float) -> bool:
        """Take a new record; see `SendQueue.add`."""
        return self._queue.add(record, data, hash_key, epoch, now)

    def undo(self, record: PendingRecord | None, now: float) -> None:
        """Forget a record whose `add` was interrupted, at whatever instruction, and repair the rest.

        Args:
            record: The record; it need not have been added. None if there is none to forget.
            now: Monotonic seconds.
        """
        self._queue.rebuild(now, without=record)

    def time_at_kinesis(self, now: float) -> int | None:
        """Return a time at Kinesis that has passed; see `Identities.time_at_kinesis`."""
        return self._identities.time_at_kinesis(now)

    # ------------------------------------------------------------------ I/O loop

    def flush(self, epoch: int, now: float) -> None:
        """Send everything that is buffered without waiting for deadlines; see `SendQueue.flush`."""
        self._queue.flush(epoch, now)

    def expedite(self) -> None:
        """Send closed aggregates without waiting for others to share their request."""
        self._queue.expedite()

    def poll(self, now: float, slots: int) -> list[Batch]:
        """Do what is due, and return at most ``slots`` requests to send now."""
        return self._queue.poll(now, slots)

    def next_event(self, now: float, slots: int) -> float:
        """Return the moment at which `poll` or a load has something to do (monotonic seconds); infinity if never."""
        return self._queue.next_event(now, slots)

    def forgive(self, gap: float, now: float) -> None:
        """Do not count a freeze of the process against the time-to-live of its records; see `SendQueue.forgive`."""
        self._queue.forgive(gap, now)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way that would make room."""
        return self._queue.is_idle

    # ------------------------------------------------------------------ outcomes

    def on_response(self, batch: Batch, response: Mapping[str, Any], now: float) -> None:
        """Handle the response of a PutRecords call, as `sender.put_records` returns it."""
        self._responses.on_response(batch, response, now)

    def on_failure(self, batch: Batch, error: KinesisSdkError, now: float) -> None:
        """Handle a PutRecords call that failed as a whole."""
        self._responses.on_failure(batch, error, now)

    def on_facts(self, facts: StreamFacts, now: float) -> None:
        """Handle a successful load of the stream's facts.

        Raises:
            ProtocolError: If the shards do not tile the hash key space; then call `on_facts_failed`.
        """
        self._responses.on_facts(facts, now)
        self._update_record_size()

    def on_facts_failed(self, error: KinesisSdkError, now: float) -> None:
        """Handle a failed load of the stream's facts."""
        self._responses.on_facts_failed(error, now)

    def abandon(self, now: float, error: KinesisSdkError) -> None:
        """Fail every record without a final result; see `ResponseHandler.abandon`."""
        self._responses.abandon(now, error)

    # ------------------------------------------------------------------ what is pending

    @property
    def entries(self) -> dict[Entry, None]:
        """Kinesis records whose user records have no final result yet."""
        return self._pending.entries

    @property
    def live(self) -> list[PendingRecord]:
        """Records without a final result."""
        return self._pending.live

    @property
    def pending(self) -> int:
        """Number of records without a final result."""
        # While some records of an entry back off, the others may be in other entries, and would be counted twice.
        return len(self._pending.live) if self._queue.is_backing_off else self._pending.count

    @property
    def has_work(self) -> bool:
        """Whether any record has no final result yet."""
        return bool(self._pending.entries)

    @property
    def settled(self) -> list[Settled]:
        """Final results since the last `take_settled`."""
        return self._pending.settled

    def take_settled(self) -> list[Settled]:
        """Return the final results since the last call. The I/O layer gives them to the futures without its lock."""
        return self._pending.take_settled()

    @property
    def counters(self) -> Counters:
        """Counts of the stream so far."""
        counters = self._pending.counters
        # Not counted one by one: every record that was put is still pending, or settled.
        counters.begun_anew_records = self._identities.begun_anew
        counters.user_records_put = self.pending + counters.user_records_stored + counters.user_records_failed
        return counters

    def _update_record_size(self) -> None:
        size = self._config.max_user_record_size
        limit = self.topology.max_record_size
        self.wrapping = WRAPPING if self._config.idempotent and not self.topology.service_places else 0
        if self.wrapping or limit is not None:
            size = min(size, (limit or max(size, DEFAULT_RECORD_LIMIT)) - self.wrapping)
        self.max_record_size = size
        self.plain_record_size = size - 4 * MAX_PARTITION_KEY_LENGTH  # a character has at most four bytes
