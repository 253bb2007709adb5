"""The producer as its users see it."""

from __future__ import annotations

import atexit
import logging
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from kinesis_sdk.common.aws import KinesisClient, make_client
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import InvalidRecordError
from kinesis_sdk.common.hashkeys import (
    explicit_hash_key_to_bytes,
    hash_partition_key,
    parse_explicit_hash_key,
)
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.engine import Engine
from kinesis_sdk.producer.pipeline import Counters, StreamPipeline
from kinesis_sdk.producer.record import PendingRecord

if TYPE_CHECKING:
    import boto3

_LOGGER = logging.getLogger(__name__)

MAX_PARTITION_KEY_LENGTH = 256
"""Characters of a partition key (API reference: 1 to 256 Unicode characters)."""

_KEY_CACHE_SIZE = 65_536


@dataclass(frozen=True)
class ProducerStats:
    """What a producer did so far, over all its streams; a snapshot.

    Attributes:
        user_records_put: Records that `put` accepted.
        user_records_stored: Of these, acknowledged.
        user_records_failed: Of these, failed for good.
        user_bytes_stored: Payload bytes acknowledged.
        kinesis_records_stored: PutRecords entries that the service stored.
        kinesis_bytes_stored: Their bytes, partition keys included.
        put_records_calls: PutRecords calls that ended.
        failed_calls: Of these, failed as a whole.
        throttled_entries: Entries that the service throttled.
        failed_entries: Entries that failed, throttled ones included.
        wrong_shard_entries: Aggregates that had to go again because they landed across a reshard.
        user_record_retries: Times that a user record was tried again.
        expired_user_records: Records that ran out of their time-to-live.
        buffered_bytes: What is held now.
    """

    user_records_put: int
    user_records_stored: int
    user_records_failed: int
    user_bytes_stored: int
    kinesis_records_stored: int
    kinesis_bytes_stored: int
    put_records_calls: int
    failed_calls: int
    throttled_entries: int
    failed_entries: int
    wrong_shard_entries: int
    user_record_retries: int
    expired_user_records: int
    buffered_bytes: int


class Producer:
    """Puts user records into Kinesis streams, aggregated, collected, rate-limited and retried.

    One producer serves any number of streams and threads. Use it as a context manager, or call `close`.

        with Producer(region_name="eu-west-1") as producer:
            future = producer.put("orders", "customer-7", b"...")
            print(future.result().sequence_number)

    A record that `put` accepted ends in exactly one of: its future has a `PutResult`, or its future raises
    `RecordFailedError` with the real cause and all attempts. Delivery is at least once: a retry after a
    request that timed out, or after an aggregate landed across a reshard, can store a record twice. Records
    are not ordered: retries overtake.

    Args:
        config: Settings; defaults are the KPL's.
        client: A ready boto3 Kinesis client, with ``max_pool_connections`` of at least ``max_connections``
            and its own retries switched off (``total_max_attempts`` 1); else one is made.
        session: Session whose credentials and region a client is made with.
        region_name: Region for the client.
        endpoint_url: Endpoint for the client; else botocore's resolution, ``AWS_ENDPOINT_URL`` included.
        clock: Time, for tests.
        rng: Jitter, for tests.

    Raises:
        AwsConfigError: No client can be made: no region, unknown profile, bad endpoint URL.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        client: KinesisClient | None = None,
        session: boto3.Session | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config or ProducerConfig()
        self._clock: Clock = clock or SystemClock()
        self._now = self._clock.monotonic
        if client is None:
            client = make_client(
                "kinesis",
                session=session,
                region_name=region_name,
                endpoint_url=endpoint_url,
                max_pool_connections=self.config.max_connections + 2,
                connect_timeout=self.config.connect_timeout,
                read_timeout=self.config.request_timeout,
            )
        assert client is not None
        self._engine = Engine(client, self.config, self._clock, rng or random.Random())
        self._pipelines: dict[str | StreamId, StreamPipeline] = {}
        self._hash_keys: dict[str, bytes] = {}
        _producers.add(self)

    def put(
        self,
        stream: str | StreamId,
        partition_key: str,
        data: bytes | bytearray | memoryview,
        explicit_hash_key: str | int | None = None,
    ) -> PendingRecord:
        """Accept one record; return at once with the future of its `PutResult`.

        Waits only while the buffer is at ``max_buffered_bytes`` (see ``put_timeout``); never in a callback of
        a record. If it raises, whatever it raises, the record was not accepted.

        Args:
            stream: Stream name or ARN.
            partition_key: 1 to 256 characters.
            data: Payload, up to the stream's record size limit together with the key; may be empty.
            explicit_hash_key: Decimal text or int from 0 to 2^128-1 that places the record in place of its
                partition key.

        Returns:
            A `concurrent.futures.Future`; ``result()`` gives the `PutResult` or raises `RecordFailedError`.

        Raises:
            InvalidRecordError: The service would refuse the record; names the field.
            ConfigError: ``stream`` is neither a name nor an ARN.
            BufferFullError: No room within ``put_timeout``.
            ProducerClosedError: The producer is closed, or belongs to the parent of this forked process.
        """
        try:
            pipeline = self._pipelines[stream]
        except (KeyError, TypeError):  # a TypeError for what is not hashable: no name either
            stream_id = StreamId.parse(stream)
            pipeline = self._pipelines[stream] = self._engine.pipeline(stream_id)
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise InvalidRecordError(
                    "data", f"expected bytes, bytearray or memoryview, not {type(data).__name__}"
                )
            data = bytes(data)
        hash_key = self._hash_keys.get(partition_key) if type(partition_key) is str else None
        if hash_key is None:
            hash_key = self._hash(partition_key)
        size = len(data) + len(partition_key)
        limit = pipeline.max_record_size
        # A character is at most four bytes: the exact size matters only near the limit.
        if size + 3 * len(partition_key) > limit:
            size = len(data) + len(partition_key.encode())
            if size > limit:
                raise InvalidRecordError(
                    "data",
                    f"data and partition key have {size:,} bytes together; the limit of {stream} is {limit:,}",
                )
        if explicit_hash_key is not None:
            explicit_hash_key = parse_explicit_hash_key(explicit_hash_key)
            hash_key = explicit_hash_key_to_bytes(explicit_hash_key)
        now = self._now()
        config = self.config
        record = PendingRecord(
            partition_key,
            explicit_hash_key,
            data,
            hash_key,
            now,
            now + pipeline.buffered_time,
            now + config.record_ttl,
        )
        self._engine.accept(pipeline, record, config.put_timeout)
        return record

    def flush(self, timeout: float | None = None) -> int:
        """Send what is buffered without waiting for deadlines, and wait for the results.

        Args:
            timeout: Most seconds to wait; None waits until every record accepted before this call has its
                final result (at most ``record_ttl`` and a request's timeouts).

        Returns:
            How many of these records have no final result yet; 0 is success.

        Raises:
            ProducerClosedError: The producer is closed.
            ProducerError: Called from a record's callback, which runs on a thread that would have to bring
                the results, or from a signal handler that interrupted the producer itself.
        """
        return self._engine.flush(timeout)

    def close(self, timeout: float | None = None) -> int:
        """Flush, then stop. Records without a result after ``timeout`` seconds fail with `ProducerClosedError`.

        Returns:
            How many failed so; 0 is success. Closing twice is harmless. When it returns, every record has
            its final result.

        Raises:
            ProducerError: As for `flush`. The producer stays open then.
        """
        left = self._engine.close(timeout)
        _producers.discard(self)
        return left

    def stats(self) -> ProducerStats:
        """Counts since the start, over all streams."""
        total = dict.fromkeys(Counters.__dataclass_fields__, 0)
        for pipeline in self._engine.pipelines:
            for name in total:
                total[name] += getattr(pipeline.counters, name)
        return ProducerStats(**total, buffered_bytes=self._engine.buffered_bytes)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Producer holds threads and connections and can not be pickled (is it caught in a Spark closure?); "
            "create it inside the task, for example with kinesis_sdk.spark.shared_producer(settings)"
        )

    def _hash(self, partition_key: Any) -> bytes:
        """Check a partition key that was not seen lately, and hash it."""
        if not isinstance(partition_key, str):
            raise InvalidRecordError("partition_key", f"expected str, not {type(partition_key).__name__}")
        if not 1 <= len(partition_key) <= MAX_PARTITION_KEY_LENGTH:
            raise InvalidRecordError(
                "partition_key", f"expected 1 to 256 characters, not {len(partition_key):,}"
            )
        try:
            hash_key = hash_partition_key(partition_key)
        except UnicodeEncodeError as error:
            raise InvalidRecordError("partition_key", "not encodable as UTF-8 (a lone surrogate)") from error
        if len(self._hash_keys) >= _KEY_CACHE_SIZE:
            self._hash_keys.clear()
        self._hash_keys[partition_key] = hash_key
        return hash_key

    def _forget_after_fork(self) -> None:
        self._engine.forget_after_fork()


# Strong references: a producer that its owner forgot may still hold records, until the exit handler sends them.
_producers: set[Producer] = set()


def _close_at_exit() -> None:
    """Send what producers hold that nobody closed; say what did not make it."""
    for producer in list(_producers):
        try:
            left = producer.close(producer.config.record_ttl + producer.config.request_timeout)
        except Exception:
            # The others still hold records.
            _LOGGER.exception("a producer could not be closed when the interpreter ended")
            continue
        if left:
            _LOGGER.error("%d records had no result when the interpreter ended", left)


def _after_fork_in_child() -> None:
    for producer in list(_producers):
        producer._forget_after_fork()
    _producers.clear()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
