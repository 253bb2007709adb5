"""Settings of the producer: the KPL's names, meanings, defaults and ranges, in snake case and seconds."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.fielddocs import documented_fields
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.once.names import check_dedup_namespace, check_dedup_secret
from kinesis_sdk.common.once.table import HOLD_OFF
from kinesis_sdk.common.serialization import Serializer, check_serializer
from kinesis_sdk.common.validation import (
    check_choice,
    check_int,
    check_namespace,
    check_seconds,
    warn_of_millis,
)

_LOGGER = FieldLogger(logging.getLogger(__name__))

MAX_RECORD_SIZE = 10 * 1024 * 1024
"""Largest record size limit that a stream can have (bytes, data and partition key together)."""

MAX_REQUEST_SIZE = 10 * 1024 * 1024
"""Largest PutRecords request (bytes, data and partition keys together; API reference)."""

MAX_REQUEST_RECORDS = 500
"""Maximum entries of a PutRecords request (API reference)."""

SHARD_RECORDS_PER_SECOND = 1_000
SHARD_BYTES_PER_SECOND = 1024 * 1024


@documented_fields
@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Configuration of a `Producer`. Names and defaults are the KPL's in snake case; durations are seconds.

    Raises:
        ConfigError: If a field is out of its range.
    """

    aggregation_enabled: bool = True
    """Pack user records into aggregated records. Readers must deaggregate, as the KCL and this SDK do."""

    aggregation_max_count: int = 4_294_967_295
    """Maximum user records in one Kinesis record, 1 to 2^63-1. Amazon Data Firehose recommends at most 500."""

    aggregation_max_size: int = 51_200
    """Maximum bytes of one aggregated record, 64 to 10,485,760. A larger user record is not aggregated."""

    compression: Literal["zstd"] | None = None
    """Compress aggregates: ``zstd``, or None. Needs the extra ``zstd``, and readers that support it: this SDK with the same extra, or Java
    programs that add a class of sixty lines; see `docs/compression.md`. ``aggregation_max_size`` then bounds the compressed size, on
    average and not exactly, and an aggregate may hold up to 8 MiB before it is compressed. Compressed forms count for
    ``max_buffered_bytes`` until they are stored. No effect on streams that place records themselves, because their records are not
    aggregated."""

    collection_max_count: int = MAX_REQUEST_RECORDS
    """Maximum Kinesis records in one PutRecords request, 1 to 500."""

    collection_max_size: int = 5 * 1024 * 1024
    """Maximum bytes (data and partition keys) of one PutRecords request, 52,224 to 10,485,760."""

    record_max_buffered_time: float = 0.1
    """Seconds that a record waits for other records in its aggregate, 0 to 3,600. To share a request with other shards, it may wait up to
    a fifth shorter or longer (at most 50 ms). If few records of a stream share an aggregate, a record may leave up to 120 ms early. The
    stream then makes about eight calls a second at the default, and up to 17 % more Kinesis records."""

    record_ttl: float = 30.0
    """Seconds after `put` at which a record that is not stored yet fails with the cause of its last failure; 0.1 to 604,800."""

    rate_limit: int = 150
    """Per cent of a shard's limits (1,000 records/s, 1 MiB/s) that this producer may use; 1 to 10,000. Above 100, a single producer
    can fill a shard although Kinesis counts differently from the producer."""

    fail_if_throttled: bool = False
    """Whether a record fails at once if Kinesis throttles it, instead of being retried."""

    record_distribution_strategy_default: Literal["UNSET", "AUTO", "USER_PARTITION_KEY"] = "UNSET"
    """Assumption about how a stream places records, until its summary has been read, or if the permission for ``DescribeStreamSummary`` is
    missing. ``AUTO``: the stream places records itself, so nothing is aggregated. ``USER_PARTITION_KEY``: the stream places records by
    partition key, and records without a key are rejected. ``UNSET``: the stream places records by partition key, and records without a key
    wait for the summary."""

    describe_stream_summary_interval: float = 300.0
    """Seconds after which the summary is read again, 0.5 to 604,800, while there are records for the stream. This applies to streams that
    place records themselves, and to other streams when a record without a partition key is put. If a stream begins to place records
    itself, the producer notices this at once from the shards in which its records land."""

    missing_stream: Literal["fail", "wait"] = "fail"
    """Handling of records for a stream that does not exist. ``fail``: they fail at once. ``wait``: like the KPL, the producer keeps them
    until the stream exists; they fail with that cause when their ``record_ttl`` ends. Use ``wait`` for streams that are deleted and
    recreated, or created by a later deployment. While records wait, the producer checks at least every two seconds whether the stream
    exists, and sends nothing to it."""

    ordering: Literal["none", "per_shard"] = "none"
    """``per_shard`` stores the records of a partition key in the order in which they were put. It reduces throughput to one Kinesis record
    per shard and round trip (see `kinesis_sdk.producer.stream.ordered`)."""

    idempotent: bool = False
    """Whether each record gets an identity, so that this SDK's readers recognize a record that the producer had to send again, and deliver
    it once; see `docs/repetitions.md`. Every record is then sent in an aggregate, even if it is the only one. If the outcome of an attempt
    is unknown, the record is sent again 4 s after the first attempt at the earliest. Needs the permission ``ListShards``, and has no
    effect for streams that place records themselves."""

    dedup_namespace: str | None = None
    """Namespace of each ``dedup_id`` of `Producer.put`, 1 to 128 characters, such as the name of the service. Records in different
    namespaces are different records, even if their names are equal. All producers that may put the same record need the same namespace.
    With None, a record must not have a ``dedup_id``. Needs ``idempotent=True``."""

    dedup_secret: bytes | None = field(default=None, repr=False)
    """Key of the digest of each ``dedup_id``, 16 to 64 bytes. Without a secret, a program that may put records into the stream, and knows
    the namespace, key and ``dedup_id`` of a future record, can put another record with that name first; readers then leave out the real
    record. All producers of a namespace need the same secret; readers need none. If the secret changes, a record that is put with the old
    secret and again with the new secret counts as two: it may be delivered twice, and is never lost. Needs ``dedup_namespace``."""

    max_user_record_size: int = 1024 * 1024
    """Maximum bytes of one user record (data and partition key), 64 to 10,485,760. The stream's own limit, once
    it is known, applies as well."""

    max_connections: int = 24
    """Maximum PutRecords requests at a time, each on its own connection and thread; 1 to 256."""

    max_inflight_requests_per_shard: int | None = None
    """Maximum PutRecords requests with entries of one shard at a time, 1 to 256; None for no such limit. With a small number, a retry
    overtakes fewer records, and a slow shard leaves connections for other shards. Shards are counted as predicted: records sent before the
    first shard map, and streams that place records themselves, are not limited. With ``ordering="per_shard"`` it is always 1."""

    wire_format: Literal["json", "cbor"] = "json"
    """Encoding of PutRecords. With ``cbor``, which the AWS SDK for Java uses, requests with large Kinesis records (2 KiB and more on average,
    or 512 bytes without the extra ``fast``) take a quarter fewer bytes and two thirds of the CPU time; other requests are still sent as
    JSON. The stored records are the same. This encoding has not been tested on AWS yet, and not every endpoint supports it; see
    `docs/endpoints.md`."""

    request_timeout: float = 6.0
    """Seconds to wait for a response, 0.1 to 600. The records of a request that times out may have been stored."""

    connect_timeout: float = 6.0
    """Seconds to wait for a connection; 0.1 to 300."""

    max_buffered_bytes: int = 64 * 1024 * 1024
    """Maximum bytes that the producer holds: payload, keys and bookkeeping of every record that has no final result yet, and compressed
    forms; at least 65,536. `put` waits when this bound is reached. In addition, requests in flight hold their encoded form, which is up to
    about three times their payload."""

    max_buffered_records: int | None = None
    """Maximum number of records without a final result, in addition to the bound on their bytes; at least 1. None means that only bytes
    count: each record is charged about 800 bytes in addition to its own, so 64 MiB hold at most some 83,000 records."""

    put_timeout: float | None = None
    """Seconds that `put` waits for room before it raises `BufferFullError`; None waits without limit, 0 raises at once."""

    serializer: Serializer | Mapping[str, Serializer] | None = None
    """Serializer of the values that are put, which then need not be bytes; see `kinesis_sdk.serialization`. One serializer for all
    streams, or a mapping from stream names to serializers; records of a stream that is not in the mapping are put as bytes. None: all
    records are put as bytes."""

    metrics_level: Literal["none", "summary", "detailed"] = "none"
    """Level of detail of the metrics for CloudWatch, if the producer has no ``metrics`` of its own. The KPL's default is ``detailed``, for
    which CloudWatch charges 8 metrics per shard."""

    metrics_granularity: Literal["global", "stream", "shard"] = "shard"
    """Finest dimension of the metrics."""

    metrics_namespace: str = "KinesisProducerLibrary"
    """CloudWatch namespace, 1 to 255 characters, not starting with ``AWS/`` or a colon."""

    metrics_upload_delay: float = 60.0
    """Seconds between two uploads, 0.001 to 60."""

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> ProducerConfig:
        """Return the settings of a KPL ``.properties`` file; its metrics level defaults to the KPL's, ``detailed``.

        Settings for which the KPL has no key keep their defaults: ``max_inflight_requests_per_shard``, for example, or
        ``missing_stream``. To wait for streams that do not exist, as the KPL does, use
        ``dataclasses.replace(config, missing_stream="wait")``.

        Keys without effect are logged as warnings with the reason: unknown keys, keys without a meaning here, values that were
        reduced, and keys about region, endpoints, certificates and proxy, which are settings of the client.
        `kinesis_sdk.producer.properties.load_properties` returns all settings and reasons as data.

        Raises:
            ConfigError: If the KPL would reject a value; the message names the key.
            OSError: If the file cannot be read.
        """
        from kinesis_sdk.producer.properties import load_properties

        found = load_properties(path)
        for key, why in found.without_effect():
            _LOGGER.warning("%s: %s has no effect here: %s", path, key, why)
        metrics = found.metrics
        return cls(
            **found.config,
            metrics_level=metrics.level,
            metrics_granularity=metrics.granularity,
            metrics_namespace=metrics.namespace,
            metrics_upload_delay=metrics.upload_delay,
        )

    def serializer_of(self, stream: str) -> Serializer | None:
        """Return the serializer of a stream, by its name; None if its records are put as bytes."""
        if isinstance(self.serializer, Mapping):
            return self.serializer.get(stream)
        return self.serializer

    def __post_init__(self) -> None:
        big = 2**63 - 1
        check_int("aggregation_max_count", self.aggregation_max_count, 1, big)
        check_int("aggregation_max_size", self.aggregation_max_size, 64, MAX_RECORD_SIZE)
        check_int("collection_max_count", self.collection_max_count, 1, MAX_REQUEST_RECORDS)
        check_int("collection_max_size", self.collection_max_size, 52_224, MAX_REQUEST_SIZE)
        check_seconds("record_max_buffered_time", self.record_max_buffered_time, 0, 3_600)
        check_seconds("record_ttl", self.record_ttl, 0.1, 604_800)
        warn_of_millis("record_max_buffered_time", self.record_max_buffered_time, 60)
        warn_of_millis("record_ttl", self.record_ttl, 30_000)
        check_int("rate_limit", self.rate_limit, 1, 10_000)
        check_choice(
            "record_distribution_strategy_default",
            self.record_distribution_strategy_default,
            ("UNSET", "AUTO", "USER_PARTITION_KEY"),
        )
        check_seconds("describe_stream_summary_interval", self.describe_stream_summary_interval, 0.5, 604_800)
        if self.compression is not None:
            check_choice("compression", self.compression, ("zstd",))
        check_choice("missing_stream", self.missing_stream, ("fail", "wait"))
        check_choice("ordering", self.ordering, ("none", "per_shard"))
        check_int("max_user_record_size", self.max_user_record_size, 64, MAX_RECORD_SIZE)
        check_int("max_connections", self.max_connections, 1, 256)
        if self.max_inflight_requests_per_shard is not None:
            check_int("max_inflight_requests_per_shard", self.max_inflight_requests_per_shard, 1, 256)
        check_choice("wire_format", self.wire_format, ("json", "cbor"))
        check_seconds("request_timeout", self.request_timeout, 0.1, 600)
        check_seconds("connect_timeout", self.connect_timeout, 0.1, 300)
        check_int("max_buffered_bytes", self.max_buffered_bytes, 65_536)
        if self.max_buffered_records is not None:
            check_int("max_buffered_records", self.max_buffered_records, 1)
        if self.put_timeout is not None:
            check_seconds("put_timeout", self.put_timeout, 0)
        check_serializer("serializer", self.serializer)
        check_choice("metrics_level", self.metrics_level, ("none", "summary", "detailed"))
        check_choice("metrics_granularity", self.metrics_granularity, ("global", "stream", "shard"))
        check_namespace("metrics_namespace", self.metrics_namespace)
        check_seconds("metrics_upload_delay", self.metrics_upload_delay, 0.001, 60)
        for name in ("aggregation_enabled", "fail_if_throttled", "idempotent"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(name, getattr(self, name), "True or False")
        if self.dedup_namespace is not None:
            check_dedup_namespace("dedup_namespace", self.dedup_namespace)
            if not self.idempotent:
                raise ConfigError("dedup_namespace", self.dedup_namespace, "None without idempotent=True")
        if self.dedup_secret is not None:
            check_dedup_secret("dedup_secret", self.dedup_secret)
            if self.dedup_namespace is None:
                raise ConfigError("dedup_secret", "a secret", "None without a dedup_namespace")
        if self.idempotent and self.record_ttl < HOLD_OFF + self.request_timeout:
            raise ConfigError(
                "record_ttl",
                self.record_ttl,
                f"at least {HOLD_OFF + self.request_timeout:g} s with idempotent=True ({HOLD_OFF} s of hold-off and request_timeout): "
                "otherwise the records of a request that timed out expire before it may be repeated",
            )
