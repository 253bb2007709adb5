"""Public interface of the producer: validation, batches of `put_many`, exit and fork handlers."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from kinesis_sdk.common.aggregate_writer import Aggregate
from kinesis_sdk.common.aws import AwsSession, KinesisClient, make_client
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.errors import (
    BufferFullError,
    ConfigError,
    InvalidRecordError,
    KinesisSdkError,
    PutManyError,
    SerializationError,
)
from kinesis_sdk.common.hashkeys import (
    explicit_hash_key_to_bytes,
    hash_partition_key,
    parse_explicit_hash_key,
)
from kinesis_sdk.common.headers import NO_HEADERS, encode_headers
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.metrics import Metrics
from kinesis_sdk.common.once.identity import DEFAULT_WINDOW
from kinesis_sdk.common.once.names import Names
from kinesis_sdk.common.once.runs import Runs
from kinesis_sdk.common.once.stamps import WRAPPING
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import Transport
from kinesis_sdk.producer.config import ProducerConfig
from kinesis_sdk.producer.engine import ALL_TAKEN, Engine
from kinesis_sdk.producer.failures.hooks import FailedRecord, FailureHook, FailureHooks
from kinesis_sdk.producer.interceptors import Interceptors, ProducerInterceptor, checked_interceptors
from kinesis_sdk.producer.io.metrics import ProducerMetrics
from kinesis_sdk.producer.io.sender import put_records
from kinesis_sdk.producer.records.future import BlindRecord, PendingRecord
from kinesis_sdk.producer.records.put import Put, PutOptions, put_with
from kinesis_sdk.producer.stats import ProducerStats
from kinesis_sdk.producer.stream.pipeline import MAX_PARTITION_KEY_LENGTH, StreamPipeline
from kinesis_sdk.producer.stream.send_queue import UNLIMITED
from kinesis_sdk.producer.stream.topology import Admission, why_headers_are_refused

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kinesis_sdk.metrics import CloudWatchMetrics
    from kinesis_sdk.producer.failures.spool import SpooledRecord

_LOGGER = FieldLogger(logging.getLogger(__name__))

_KEY_CACHE_SIZE = 65_536

NO_KEY_HASH = bytes(16)
"""Placeholder for the hash key of a record without a partition key; it is never sent."""

_BATCH_RECORDS = 256
_BATCH_BYTES = 1024 * 1024
_BATCH_SECONDS = 0.01
"""Bounds of a batch of `put_many`. Its records are not charged against the buffer yet, and other callers wait for the lock while they
are accepted."""

Payload: TypeAlias = Any
"""``data`` of callers: bytes, a bytearray or a memoryview; or a value for the serializer of the stream, if it has one."""

KeyedData: TypeAlias = (
    tuple[str | None, Payload]
    | tuple[str | None, Payload, str | int | None]
    | tuple[str | None, Payload, str | int | None, str | None]
    | Put
)
"""Record for `Producer.put_many`."""


class Producer:
    """Puts user records into Kinesis streams: aggregates, collects, rate-limits and retries them.

    One producer serves any number of streams and threads. Use it as a context manager, or call `close`.

        with Producer(region_name="eu-west-1") as producer:
            future = producer.put("orders", "customer-7", b"...")
            print(future.result().sequence_number)

    An accepted record ends in exactly one of two ways: its future returns a `PutResult`, or its future raises `RecordFailedError` with the
    underlying error and all attempts. Delivery is at least once: a retry can store a record twice, after a request that timed out or an
    aggregate that landed across a reshard. With ``idempotent=True``, this SDK's readers deliver it once. A retry may overtake newer
    records; use ``ordering="per_shard"`` if order matters.

    There are four ways to put: `put` (returns a future, waits for room), `try_put` (a future or None, never waits), `put_many` (many
    records at once), `send` (no future). ``put_timeout`` controls calls while the buffer is full: they wait without limit (None, the
    default), wait at most this number of seconds and raise `BufferFullError`, or raise it at once (0). `kinesis_sdk.AsyncProducer` is the
    same for asyncio.

    Callbacks of futures (``add_done_callback``) run on the producer's sending threads, several at a time; hooks run there or on
    the thread that schedules requests. Inside callbacks and hooks, the producer's methods do not wait: `put` raises `BufferFullError` if
    there is no room, and `flush`, `close` and ``result()`` of a record that is not final raise `ProducerError`. `flush` and
    `close` wait until callbacks have run.

    In an AWS Lambda function, create the producer once, outside of the handler, and call `flush` before the handler returns: afterwards
    the process is frozen, with all records that it holds. Records that were not flushed are not lost: the next invocation sends them, and
    frozen time does not count against ``record_ttl``.

    Args:
        config: Settings; defaults are the KPL's.
        client: A ready boto3 Kinesis client, with ``max_pool_connections`` of at least ``max_connections``
            and its own retries switched off (``total_max_attempts`` 1); None creates one.
        session: Creates the client, with its credentials and region: a ``boto3.Session``, or a `kinesis_sdk.testing.FakeAws`.
        region_name: Region for the client.
        endpoint_url: Endpoint for the client; None resolves it as botocore does, including ``AWS_ENDPOINT_URL``.
            botocore also resolves certificates and proxies: set ``AWS_CA_BUNDLE`` and ``HTTPS_PROXY``, or pass your own ``client`` with
            ``verify=…`` and ``Config(proxies=…)``.
        on_send_error: Called with a `FailedRecord` for each record of `send` that fails.
        on_record_failed: Called with a `FailedRecord` for every record that fails, whichever method put it, and for records left at
            `close`, while they still have their payloads; for example a `FileSpool`.
        metrics: Sink for the KPL's metrics, from `kinesis_sdk.metrics` or your own; the producer does not close it. None means CloudWatch
            in the client's region, unless ``metrics_level`` is ``none`` (the default).
        interceptors: Called around each record and each request, in the given order; see `ProducerInterceptor`.
        clock: Monotonic and wall clock; replaced in tests.
        rng: Source of jitter; pass a seeded instance for reproducible runs.

    Raises:
        AwsConfigError: If no client can be created: no region, unknown profile, bad endpoint URL.
        ConfigError: If ``client`` retries requests by itself although ``idempotent=True`` is set. If an interceptor is not a
            `ProducerInterceptor`.
    """

    def __init__(
        self,
        config: ProducerConfig | None = None,
        *,
        client: KinesisClient | None = None,
        session: AwsSession | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        on_send_error: FailureHook | None = None,
        on_record_failed: FailureHook | None = None,
        metrics: Metrics | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.config: ProducerConfig = config or ProducerConfig()
        self._clock: Clock = clock or SystemClock()
        self._now = self._clock.monotonic
        checked = checked_interceptors(interceptors)
        self._interceptors = Interceptors(checked) if checked else None
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
        if self.config.idempotent:
            _check_no_retries(client)
        self._names = Names(self.config.dedup_namespace, self.config.dedup_secret)
        self._own_metrics: CloudWatchMetrics | None = None
        if metrics is None and self.config.metrics_level != "none":
            metrics = self._own_metrics = self._make_metrics(session, region_name)
        if metrics is not None:
            # Register our exit handler again, after a handler that the sink may have: the last handler runs first, so requests that are
            # sent while the interpreter ends are still measured.
            atexit.unregister(_close_at_exit)
            atexit.register(_close_at_exit)
        self._metrics = ProducerMetrics.of(metrics)
        self._engine = Engine(
            cast("KinesisClient", Transport(client, speaks_cbor=self.config.wire_format == "cbor")),
            self.config,
            self._clock,
            rng or random.Random(),
            FailureHooks(on_send_error, on_record_failed),
            self._metrics,
            put_records if self._interceptors is None else self._interceptors.put_records,
        )
        self._accept = self._engine.accept
        self._put_timeout = self.config.put_timeout
        # Streams with a serializer, or all streams if there are interceptors, are in `_apart`: `put` of bytes then checks neither.
        self._pipelines: dict[str | StreamId, StreamPipeline] = {}
        self._apart: dict[str | StreamId, StreamPipeline] = {}
        self._hash_keys: dict[str, bytes] = {}
        _producers.add(self)

    def put(
        self,
        stream: str | StreamId,
        partition_key: str | None,
        data: Payload,
        explicit_hash_key: str | int | None = None,
        *,
        dedup_id: str | None = None,
        dedup_window: float = DEFAULT_WINDOW,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> PendingRecord:
        """Accept one record; return at once with the future of its `PutResult`.

        Waits only while the buffer is at ``max_buffered_bytes`` (see ``put_timeout``), and never in a callback of
        a record. If it raises an error, the record was not accepted.

        Args:
            stream: Stream name or ARN. Always use either the name or the ARN for a stream. The producer cannot know that both mean the
                same stream, so the name and the ARN have separate rate limits, and separate orders in ordered mode.
            partition_key: 1 to 256 characters; None for a record without a partition key, which only streams that place records
                themselves (record distribution AUTO) accept. The record waits until the producer knows how the stream places records; if
                it places them by partition key, the record fails with the code ``PartitionKeyRequired``.
            data: Payload, up to the stream's record size limit together with the key; may be empty. With a ``serializer``, the
                value that it encodes, on this thread.
            explicit_hash_key: Decimal text or int from 0 to 2^128-1 that determines the shard of the record instead of its partition key.
            dedup_id: Name of the record in the ``dedup_namespace`` of the producer, 1 to 256 characters. Of the records with the same name
                and the same partition key (or explicit hash key) that are put within ``dedup_window`` of each other, even by
                several processes, this SDK's readers deliver only the first. Each put of a name renews its window.
            dedup_window: Seconds, 1 to 300 (default 300). Without a ``dedup_id``, it has no effect.
            headers: Names with values, which readers get as ``record.headers``: at most 64, and 8,192 bytes in all, including 5 to 7 bytes
                for each header. A name has 1 to 128 ASCII letters, digits and characters of ``!#$%&'*+.^_`|~-``, and is not just a letter
                and a digit. A value is text or bytes; readers get bytes. A record with headers is sent in an aggregate, even if it is the
                only one. Streams that place records themselves (record distribution AUTO) do not support headers: the record fails with
                the code ``HeadersImpossible`` if the producer learns this after the call.

        Returns:
            A `concurrent.futures.Future`; ``result()`` gives the `PutResult` or raises `RecordFailedError`.

        Raises:
            InvalidRecordError: If Kinesis would reject the record; the message names the field. Also raised for a record without a
                partition key if the stream is known to place records by partition key, or with ``ordering="per_shard"``; for a
                ``dedup_id`` without a ``dedup_namespace``; and for headers if the stream is known to place records itself.
            SerializationError: If the serializer raised an error; an error of this package is raised unchanged, for example the
                `SchemaRegistryError` or `AwsError` of a schema registry.
            ConfigError: If ``stream`` is neither a name nor an ARN.
            BufferFullError: If no room becomes available within ``put_timeout``.
            ProducerClosedError: If the producer is closed, or belongs to the parent of this forked process.
        """
        if dedup_id is not None or headers:
            put = Put(
                stream, partition_key, data, explicit_hash_key, headers or NO_HEADERS, dedup_id, dedup_window
            )
            return self._accept_put(put, timeout=self._put_timeout)
        try:
            pipeline = self._pipelines[stream]
        except (KeyError, TypeError):  # TypeError: not hashable, so not a name either
            pipeline = self._pipeline(stream)
            if not self._is_plain(pipeline):
                put = Put(stream, partition_key, data, explicit_hash_key)
                return self._accept_put(put, timeout=self._put_timeout)
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise InvalidRecordError(
                    "data", f"expected bytes, bytearray or memoryview, not {type(data).__name__}"
                )
            data = bytes(data)
        hash_key = self._hash_keys.get(partition_key) if type(partition_key) is str else None
        if hash_key is None:
            if partition_key is None:
                partition_key = self._without_key(pipeline, explicit_hash_key)
                hash_key = NO_KEY_HASH
            else:
                hash_key = self._hash(partition_key)
        if len(data) > pipeline.plain_record_size:
            self._check_size(pipeline, partition_key or "", data)
        if explicit_hash_key is not None:
            explicit_hash_key = parse_explicit_hash_key(explicit_hash_key)
            hash_key = explicit_hash_key_to_bytes(explicit_hash_key)
        assert partition_key is not None  # its hash key is known
        return self._accept(pipeline, partition_key, explicit_hash_key, data, hash_key, self._put_timeout)

    def _accept_put(
        self,
        put: Put,
        kind: type[PendingRecord] = PendingRecord,
        *,
        timeout: float | None,
        first: int | None = None,
        again: bool = False,
    ) -> PendingRecord:
        """Accept a record that the fast path does not handle; wait for room for at most ``timeout`` seconds.

        ``first`` and ``again`` describe earlier attempts to put a named record; see `_put_named`.
        """
        put = self._intercepted(put)
        pipeline = self._pipeline(put.stream)
        data = put.data if pipeline.serializer is None else self._serialized(pipeline, put.data)
        if put.dedup_id is None and not put.headers:
            key, explicit, payload, hash_key = self._checked(
                pipeline, put.partition_key, data, put.explicit_hash_key
            )
            record = self._accept(pipeline, key, explicit, payload, hash_key, timeout, kind)
        else:
            record, payload, hash_key = self._detailed(pipeline, put, data, kind, first=first, again=again)
            self._engine.accept_detailed(pipeline, record, payload, hash_key, timeout)
        self._tell_accepted(put, record)
        return record

    def _is_plain(self, pipeline: StreamPipeline) -> bool:
        """Return whether records that are put into a stream without options need no `Put`."""
        return pipeline.serializer is None and self._interceptors is None

    def _intercepted(self, put: Put) -> Put:
        return put if self._interceptors is None else self._interceptors.put(put)

    def _tell_accepted(self, put: Put, record: PendingRecord) -> None:
        if self._interceptors is not None:
            self._interceptors.accepted(put, record)

    def _put_named(self, put: Put, *, first: int | None, again: bool) -> PendingRecord:
        """`put` for a named record whose caller knows about earlier attempts.

        ``first`` is a time at Kinesis before any attempt began, see `Identity.first`; None if unknown. Any other sender must then wait
        until `FIRST_HOLD_OFF` seconds after its own start. ``again`` is true if the record may have been put before.
        """
        return self._accept_put(put, timeout=self._put_timeout, first=first, again=again)

    def _time_at_kinesis(self, stream: str | StreamId) -> int | None:
        """Return a time in epoch milliseconds that Kinesis has reached; None before the first response for the stream."""
        return self._pipeline(stream).stamps.time_at_kinesis(self._now())

    def put_again(self, record: FailedRecord | SpooledRecord) -> PendingRecord:
        """Put a record that failed, of this producer or of another process, as the same record if that is possible.

        With ``idempotent=True``, a record that an attempt may have stored keeps its identity: it is sent after a hold-off of 4 s, and
        readers deliver it once. If its first attempt was more than 600 s ago, it gets a new identity and may be stored twice, which is
        counted (``begun_anew_records``). A record without an identity is put as `put` does.

        The data is sent unchanged: a ``serializer`` does not encode it again.

        Args:
            record: A record from `read_spool`, or one that ``on_record_failed`` was called with.

        Raises:
            InvalidRecordError: As for `put`, or if the record has an identity but this producer is not ``idempotent``, so the record could
                be stored twice.
            ConfigError: As `put`.
            BufferFullError: As `put`.
            ProducerClosedError: As `put`.
        """
        pipeline, again, payload, hash_key = self._again(record)
        self._engine.accept_detailed(pipeline, again, payload, hash_key, self._put_timeout)
        return again

    def try_put(
        self,
        stream: str | StreamId,
        partition_key: str | None,
        data: Payload,
        explicit_hash_key: str | int | None = None,
        **options: Unpack[PutOptions],
    ) -> PendingRecord | None:
        """Accept one record if there is room; never wait, regardless of ``put_timeout``. The arguments are those of `put`.

        Returns:
            The future, or None if there is no room: the record was not accepted.

        Raises:
            InvalidRecordError: As `put`.
            SerializationError: As `put`.
            ConfigError: As `put`.
            ProducerClosedError: As `put`.
        """
        try:
            pipeline = self._pipeline(stream)
            if options or not self._is_plain(pipeline):
                put = put_with(stream, partition_key, data, explicit_hash_key, options)
                return self._accept_put(put, timeout=0)
            key, explicit, payload, hash_key = self._checked(pipeline, partition_key, data, explicit_hash_key)
            return self._accept(pipeline, key, explicit, payload, hash_key, 0)
        except BufferFullError:
            return None

    def put_many(
        self, stream: str | StreamId, records: Iterable[KeyedData], *, dedup_window: float = DEFAULT_WINDOW
    ) -> Sequence[PendingRecord]:
        """Accept many records of one stream at a lower cost than `put`: the lock is taken once for up to 256 of them.

        Records are taken from the iterable in batches of at most 256 records and about 1 MiB. If the iterable needs more than about ten
        milliseconds for a record, use `put`, because `put_many` accepts a record only when its batch is complete.

        If a record is rejected, the records before it stay accepted, and the error names the rejected record and contains the futures of
        the accepted records.

        Args:
            stream: Stream name or ARN.
            records: Tuples ``(partition_key, data)``, with an ``explicit_hash_key`` and a ``dedup_id`` as optional third and fourth
                values, or a `Put` of this stream; the values are as for `put`.
            dedup_window: As for `put`; applies to tuples with a ``dedup_id``.

        Returns:
            The futures, in order.

        Raises:
            PutManyError: If a record was not accepted, or the iterable raised an error. Its cause is the error that `put` would have
                raised. Each record waits for room for at most ``put_timeout``.
            ConfigError: If ``stream`` is neither a name nor an ARN.
            ProducerClosedError: If the producer is closed before the first record.
        """
        pipeline = self._pipeline(stream)
        self._engine.check_open()
        accepted: list[PendingRecord] = []
        try:
            if not self._is_plain(pipeline):
                # Serializers and interceptors are code of users, which must not run under the lock.
                for item in records:
                    accepted.append(self._put_item(stream, item, dedup_window))  # noqa: PERF401 - it tells how far this came
                return accepted
            for batch in _batched(records, self._now):
                items = iter(batch)
                accept = functools.partial(self._engine.accept_many, pipeline, items, self._hash_of, accepted)
                while (rest := accept()) is not ALL_TAKEN:
                    # A record with an explicit hash key, one that has to wait for room, or one that is not valid.
                    accepted.append(self._put_item(stream, rest, dedup_window))
        except Exception as error:
            raise PutManyError(
                f"record {len(accepted):,} was not accepted, those before it were: {error}",
                index=len(accepted),
                accepted=tuple(accepted),
            ) from error
        return accepted

    def _put_item(self, stream: str | StreamId, item: KeyedData, dedup_window: float) -> PendingRecord:
        return self._accept_put(put_of(stream, item, dedup_window), timeout=self._put_timeout)

    def send(
        self,
        stream: str | StreamId,
        partition_key: str | None,
        data: Payload,
        explicit_hash_key: str | int | None = None,
        **options: Unpack[PutOptions],
    ) -> None:
        """Accept one record without returning a future. If it fails, ``on_send_error`` is called.

        Without ``on_send_error`` and ``on_record_failed``, the number of failures is logged as an error, at increasing intervals. The
        arguments are those of `put`.

        Raises:
            InvalidRecordError: As `put`.
            SerializationError: As `put`.
            ConfigError: As `put`.
            BufferFullError: As `put`.
            ProducerClosedError: As `put`.
        """
        pipeline = self._pipeline(stream)
        if options or not self._is_plain(pipeline):
            put = put_with(stream, partition_key, data, explicit_hash_key, options)
            self._accept_put(put, BlindRecord, timeout=self._put_timeout)
            return
        key, explicit, payload, hash_key = self._checked(pipeline, partition_key, data, explicit_hash_key)
        self._accept(pipeline, key, explicit, payload, hash_key, self._put_timeout, BlindRecord)

    def flush(self, timeout: float | None = None) -> int:
        """Send all buffered records without waiting for deadlines, and wait for the results and their callbacks.

        Args:
            timeout: Maximum seconds to wait; None waits until every record accepted before this call has its
                final result (at most ``record_ttl`` and a request's timeouts) and its callbacks have run.

        Returns:
            Number of these records without a final result, or with callbacks that have not run. 0 means that all are stored or have
            failed: their futures are final, the failure hooks have run, and so have all callbacks that were added before their record had
                its final result.

        Raises:
            ProducerClosedError: If the producer is closed.
            ProducerError: If called from a callback or hook, which runs on a thread that would have to deliver the results, or
                from a signal handler that interrupted the producer itself (`put`, for example). A handler that interrupted a wait
                (`flush`, `close`, ``result()``, `concurrent.futures.wait`) or code outside the producer may call it.
        """
        return self._engine.flush(timeout)

    def close(self, timeout: float | None = None) -> int:
        """Flush, then stop. Records without a result after ``timeout`` seconds fail with `ProducerClosedError`.

        Args:
            timeout: Maximum seconds to wait for results and callbacks; None waits for all of them without limit.
                Hooks and callbacks of the records that fail here run on this thread, and the timeout does not bound them.

        Returns:
            Number of records that failed because they were still pending, plus records with callbacks that had not run by then; 0 is a
            clean close: every record has its final result, and every hook and callback has run. Closing twice is harmless; while another
            thread closes, this waits for that thread for at most ``timeout`` seconds, and returns the number of records that are left.

        Raises:
            ProducerError: As for `flush`; the producer stays open.
        """
        left = self._engine.close(timeout)
        _producers.discard(self)
        if self._metrics is not None:
            self._metrics.retire()
        if self._own_metrics is not None:
            self._own_metrics.close()
        return left

    def stats(self) -> ProducerStats:
        """Return counts since the start, over all streams."""
        records, oldest = self._engine.outstanding
        return ProducerStats(
            **vars(self._engine.counters),
            buffered_bytes=self._engine.buffered_bytes,
            buffered_records=records,
            oldest_record_age=oldest,
        )

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Producer holds threads and connections and cannot be pickled (is it part of a Spark closure?); "
            "create it inside the task, for example with kinesis_sdk.spark.shared_producer(settings)"
        )

    def _make_metrics(self, session: AwsSession | None, region_name: str | None) -> CloudWatchMetrics:
        # Imported here, so that a producer without CloudWatch metrics does not pay for it.
        from kinesis_sdk.metrics import CloudWatchMetrics

        config = self.config
        return CloudWatchMetrics(
            session=session,
            region_name=region_name,
            level=config.metrics_level,
            granularity=config.metrics_granularity,
            namespace=config.metrics_namespace,
            upload_delay=config.metrics_upload_delay,
        )

    def _pipeline(self, stream: str | StreamId) -> StreamPipeline:
        """Return the pipeline of a stream, created on first use; raise `ConfigError` if it is neither a name nor an ARN."""
        try:
            return self._pipelines[stream]
        except (KeyError, TypeError):  # TypeError: not hashable, so not a name either
            pipeline = self._apart.get(stream) if isinstance(stream, (str, StreamId)) else None
            if pipeline is None:
                pipeline = self._engine.pipeline(StreamId.parse(stream))
                known = self._pipelines if self._is_plain(pipeline) else self._apart
                known[stream] = pipeline
            return pipeline

    def _serialized(self, pipeline: StreamPipeline, value: Any) -> bytes:
        """Return a value's payload from the stream's serializer.

        Errors of the serializer are raised as `SerializationError`, except for errors of this package.
        """
        assert pipeline.serializer is not None
        stream = pipeline.stream.name
        try:
            data = pipeline.serializer.serialize(stream, value)
        except KinesisSdkError:
            raise
        except Exception as error:
            # Without the message of the error, which may quote the value.
            raise SerializationError(stream, type(error).__name__) from error
        if type(data) is not bytes:
            raise SerializationError(stream, f"it returned {type(data).__name__} instead of bytes")
        return data

    def _checked(
        self,
        pipeline: StreamPipeline,
        partition_key: str | None,
        data: Payload,
        explicit_hash_key: str | int | None = None,
    ) -> tuple[str, str | None, bytes, bytes]:
        """Check a plain record whose value is already serialized; return partition key, explicit hash key, payload and effective hash key.

        `put` contains a copy of these lines, for speed.
        """
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise InvalidRecordError(
                    "data", f"expected bytes, bytearray or memoryview, not {type(data).__name__}"
                )
            data = bytes(data)
        hash_key = self._hash_keys.get(partition_key) if type(partition_key) is str else None
        if hash_key is None:
            if partition_key is None:
                partition_key = self._without_key(pipeline, explicit_hash_key)
                hash_key = NO_KEY_HASH
            else:
                hash_key = self._hash(partition_key)
        if len(data) > pipeline.plain_record_size:
            self._check_size(pipeline, partition_key or "", data)
        if explicit_hash_key is not None:
            explicit_hash_key = parse_explicit_hash_key(explicit_hash_key)
            hash_key = explicit_hash_key_to_bytes(explicit_hash_key)
        assert partition_key is not None  # its hash key is known
        return partition_key, explicit_hash_key, data, hash_key

    def _record(
        self,
        pipeline: StreamPipeline,
        partition_key: str | None,
        data: Payload,
        explicit_hash_key: str | int | None = None,
        kind: type[PendingRecord] = PendingRecord,
    ) -> tuple[PendingRecord, bytes, bytes]:
        """Check a plain record whose value is already serialized; return the record, payload and effective hash key for the engine."""
        key, explicit, payload, hash_key = self._checked(pipeline, partition_key, data, explicit_hash_key)
        record = kind()
        record.partition_key = key
        record.explicit_hash_key = explicit
        record._details = None
        record._listeners = None
        return record, payload, hash_key

    def _detailed(
        self,
        pipeline: StreamPipeline,
        put: Put,
        data: Payload,
        kind: type[PendingRecord] = PendingRecord,
        *,
        first: int | None = None,
        again: bool = False,
    ) -> tuple[PendingRecord, bytes, bytes]:
        """Do the same as `_record` for a record that may have a name and headers."""
        record, payload, hash_key = self._record(
            pipeline, put.partition_key, data, put.explicit_hash_key, kind
        )
        if put.dedup_id is not None:
            record.identity = self._names.identity(
                put.dedup_id, put.dedup_window, hash_key, first=first, again=again
            )
        if put.headers:
            record.header_fields = self._header_fields(pipeline, record, payload, hash_key, put.headers)
        return record, payload, hash_key

    def _header_fields(
        self,
        pipeline: StreamPipeline,
        record: PendingRecord,
        data: bytes,
        hash_key: bytes,
        headers: Mapping[str, str | bytes],
    ) -> bytes:
        """Return the encoded headers of a record; raise `InvalidRecordError` if they are invalid or not possible for the stream."""
        if not record.partition_key:
            raise InvalidRecordError("headers", "a record without a partition key cannot have headers")
        if pipeline.topology.headed() is Admission.REJECT:
            raise InvalidRecordError("headers", why_headers_are_refused(pipeline.stream))
        try:
            fields = encode_headers(headers)
        except ValueError as error:
            raise InvalidRecordError("headers", str(error)) from error
        if len(data) + len(fields) + WRAPPING > pipeline.plain_record_size:
            # Check the exact size of an aggregate of one: the largest form in which the record may have to be sent.
            alone = Aggregate(UNLIMITED, 1, runs=Runs() if self.config.idempotent else None)
            alone.try_append(record.partition_key, record.explicit_hash_key, data, hash_key, headers=fields)
            size, limit = alone.size + len(alone.partition_key), pipeline.max_record_size + pipeline.wrapping
            if size > limit:
                raise self._too_large(
                    pipeline, size, limit, "data, partition key and headers", " in an aggregate"
                )
        return fields

    def _again(
        self, failed: FailedRecord | SpooledRecord
    ) -> tuple[StreamPipeline, PendingRecord, bytes, bytes]:
        """Return the arguments for the engine from a failed record: pipeline, record with its identity, payload and hash key."""
        pipeline = self._pipeline(failed.stream)
        record, payload, hash_key = self._record(
            pipeline, failed.partition_key, failed.data, failed.explicit_hash_key
        )
        if failed.identity is not None:
            record.identity = pipeline.stamps.resumed(failed.identity, self._now())
        if failed.headers:
            record.header_fields = self._header_fields(pipeline, record, payload, hash_key, failed.headers)
        return pipeline, record, payload, hash_key

    def _hash(self, partition_key: Any) -> bytes:
        """Check and hash a partition key that is not in the cache."""
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

    def _without_key(self, pipeline: StreamPipeline, explicit_hash_key: str | int | None) -> str:
        """Return the placeholder for a missing partition key: the empty text, which is not a valid key.

        Raises `InvalidRecordError` if a record of that stream needs a key.
        """
        if explicit_hash_key is not None:
            raise InvalidRecordError(
                "explicit_hash_key", "a record without a partition key cannot have an explicit hash key"
            )
        if self.config.ordering == "per_shard":
            raise InvalidRecordError(
                "partition_key", "ordering='per_shard' needs a partition key for each record"
            )
        topology = pipeline.topology
        if topology.keyless(self._now()) is Admission.REJECT:
            raise InvalidRecordError("partition_key", topology.why_keys_are_needed(pipeline.stream))
        return ""

    def _hash_of(self, partition_key: str) -> bytes | None:
        """Return the hash key of a partition key; None for a key that Kinesis would reject."""
        try:
            return self._hash_keys.get(partition_key) or self._hash(partition_key)
        except InvalidRecordError:
            return None

    def _check_size(self, pipeline: StreamPipeline, partition_key: str, data: bytes) -> None:
        size, limit = len(data) + len(partition_key.encode()), pipeline.max_record_size
        if size > limit:
            wrapping = pipeline.wrapping
            less = f", without {wrapping} for its identity (idempotent=True)" if wrapping else ""
            raise self._too_large(pipeline, size, limit, "data and partition key", " together", less)

    def _too_large(
        self, pipeline: StreamPipeline, size: int, limit: int, what: str, how: str, less: str = ""
    ) -> InvalidRecordError:
        if size <= self.config.max_user_record_size:
            self._engine.rejected_for_size(pipeline)
        return InvalidRecordError(
            "data", f"{what} have {size:,} bytes{how}; the limit of {pipeline.stream} is {limit:,}{less}"
        )

    def _forget_after_fork(self) -> None:
        self._engine.forget_after_fork()


def put_of(stream: str | StreamId, item: KeyedData, dedup_window: float) -> Put:
    """Return an item of `put_many` as a `Put`; raise `InvalidRecordError` for a `Put` of another stream."""
    if isinstance(item, Put):
        if item.stream != stream and StreamId.parse(item.stream) != StreamId.parse(stream):
            raise InvalidRecordError("stream", f"a Put for {item.stream} among records for {stream}")
        return item
    partition_key, data, explicit_hash_key, dedup_id = (*item, None, None)[:4] if len(item) < 4 else item
    return Put(stream, partition_key, data, explicit_hash_key, NO_HEADERS, dedup_id, dedup_window)


def _check_no_retries(client: KinesisClient) -> None:
    """Raise `ConfigError` for a client that retries requests, because these retries would be neither held off nor marked."""
    config = getattr(getattr(client, "meta", None), "config", None)
    if config is None:
        return  # not a client of botocore
    attempts = (getattr(config, "retries", None) or {}).get("total_max_attempts")
    if attempts != 1:
        raise ConfigError(
            "client",
            f"retries of {attempts or 'the default number of'} attempts",
            "a client that sends each request once with idempotent=True: Config(retries={'total_max_attempts': 1})",
        )


def _batched(records: Iterable[Any], clock: Callable[[], float]) -> Iterator[Sequence[Any]]:
    """Cut the records of `put_many` into batches, each of which is accepted under one lock.

    A record that is not plain (see `Engine.accept_many`) is a batch of its own, yielded at once: its bytes may change later.
    """
    if type(records) in {list, tuple}:
        for start in range(0, len(records), _BATCH_RECORDS):  # type: ignore[arg-type]
            yield records[start : start + _BATCH_RECORDS]  # type: ignore[index]
        return
    batch: list[Any] = []
    size = 0
    began = 0.0
    try:
        for item in records:
            if type(item) is not tuple or len(item) != 2 or type(item[1]) is not bytes:
                yield batch
                batch, size = [], 0
                yield (item,)
                continue
            now = clock()
            if not batch:
                began = now
            batch.append(item)
            size += len(item[1])
            if len(batch) >= _BATCH_RECORDS or size >= _BATCH_BYTES or now - began > _BATCH_SECONDS:
                yield batch
                batch, size = [], 0
    except Exception:
        # Accept what the iterable yielded before it raised.
        yield batch
        raise
    yield batch


# Strong references: a producer that is no longer referenced may still hold records, which the exit handler sends.
_producers: set[Producer] = set()


def _close_at_exit() -> None:
    """Close the producers that are still open: send their records, run callbacks, and log the number of records that are left."""
    for producer in list(_producers):
        try:
            left = producer.close(producer.config.record_ttl + producer.config.request_timeout)
        except Exception:
            # The other producers still hold records.
            _LOGGER.exception("failed to close a producer while the interpreter ended")
            continue
        if left:
            _LOGGER.error(
                "%d records had no final result, or callbacks that had not run, when the interpreter ended",
                left,
            )


def _after_fork_in_child() -> None:
    for producer in list(_producers):
        producer._forget_after_fork()
    _producers.clear()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
