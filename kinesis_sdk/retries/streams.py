"""`StreamTiers`: failed records wait in Kinesis streams, one stream for each delay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.clock import Clock, SystemClock
from kinesis_sdk.common.dead_letters import History
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.record_ids import record_id
from kinesis_sdk.common.retry_tiers import MARGIN, tier_stream
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.consumer import StreamSpec

_NO_KEY = "-"
"""Partition key in a tier for a record without a partition key."""


class PutsRecords(Protocol):
    """The part of `Producer` that `StreamTiers` needs."""

    config: Any

    def put(
        self, stream: StreamId, partition_key: str, data: bytes, explicit_hash_key: Any = None, **more: Any
    ) -> Any:
        """Put a record; return its `PendingRecord`."""
        ...


class StreamTiers:
    """Tiers of `RetryTiers` in Kinesis streams.

    Each stream has one delay, so the records of a shard are in the order in which they are due.

    A record counts as set aside once Kinesis has acknowledged its copy. The copy has the record's payload, partition key and headers, and
    the headers of `kinesis_sdk.common.dead_letters`. A crash between the acknowledgement and the checkpoint leads to a second copy, so
    records are processed at least once. With ``ProducerConfig(idempotent=True, dedup_namespace=…)``, readers drop a second copy that is
    put within five minutes.

    The time that a record waits is measured by the clock of Kinesis, from the arrival of the copy. Due times in headers are only for
    people to read, and a record's tier is the stream that contains it, so forged headers change neither the wait nor the tier.

    Args:
        producer: Puts the copies. Its streams must not place records themselves (record distribution AUTO), because such streams do not
            support headers.
        stream: Name of the stream whose records fail. The tiers are ``<stream>.retry-<seconds>``.
        names: Names or ARNs of the tiers' streams, one for each delay, instead of the default names.
        clock: Wall clock for the times in headers; replaced in tests.

    Raises:
        ConfigError: If a name is not a stream.
    """

    def __init__(
        self,
        producer: PutsRecords,
        stream: str,
        *,
        names: Sequence[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._producer = producer
        self._base = StreamId.parse(stream).name
        self._names = None if names is None else tuple(names)
        self._streams: tuple[StreamId, ...] = ()
        self._delays: tuple[float, ...] = ()
        self._tiers: dict[str, int] = {}
        self._clock = clock or SystemClock()
        self._has_names = getattr(producer.config, "dedup_namespace", None) is not None

    def begin(self, delays: Sequence[float]) -> None:
        """See `TierStore.begin`."""
        if self._streams:
            raise ConfigError("to", self._base, "a StreamTiers of its own for each RetryTiers")
        names = self._names or tuple(tier_stream(self._base, delay) for delay in delays)
        if len(names) != len(delays):
            raise ConfigError("names", names, f"{len(delays)} streams, one for each delay")
        streams = tuple(StreamId.parse(name) for name in names)
        if len({stream.name for stream in streams} | {self._base}) != len(streams) + 1:
            raise ConfigError("names", names, "different streams, none of which is the original one")
        self._streams, self._delays = streams, tuple(delays)
        self._tiers = {stream.name: tier for tier, stream in enumerate(streams)}

    def streams(self) -> list[StreamSpec]:
        """Return the streams with their delays, for ``Worker(streams=…)``. They are read from the beginning."""
        return [
            StreamSpec(stream, initial_position="TRIM_HORIZON", delivery_delay=delay)
            for stream, delay in zip(self._streams, self._delays, strict=True)
        ]

    def tier_after(self, poison: PoisonRecord) -> int:
        """See `TierStore.tier_after`."""
        return self._tiers.get(poison.stream.name, -1) + 1

    def keep(self, poison: PoisonRecord, tier: int) -> None:
        """See `TierStore.keep`. Waits until Kinesis has acknowledged the copy."""
        record, now = poison.record, round(self._clock.time() * 1000)
        history = History.after(poison, now, round(self._delays[tier] * 1000))
        more: dict[str, Any] = {"headers": history.headers(record)}
        if self._has_names:
            # Each put of this record into this tier has the same id, so readers drop a copy that is put again after a crash.
            # The id is not the origin, which may be forged, and which a dead letter keeps when it is replayed and fails again.
            place = record_id(
                poison.stream.name, poison.shard_id, record.sequence_number, record.sub_sequence_number
            )
            more["dedup_id"] = f"{place}/{tier}"[-256:]
        stream = self._streams[tier]
        self._producer.put(
            stream,
            record.partition_key or _NO_KEY,
            record.data,
            record.explicit_hash_key,
            **more,
        ).result()

    def check(self, client: KinesisClient) -> None:
        """Check that the streams exist, support headers, and keep records for an hour longer than the delay.

        Args:
            client: boto3 client for Kinesis. Makes one DescribeStreamSummary call for each stream.

        Raises:
            ConfigError: If a stream is not suitable; the message contains the command that corrects it.
            AwsError: If a stream cannot be described.
        """
        for stream, delay in zip(self._streams, self._delays, strict=True):
            summary = call_with_retries(
                lambda stream=stream: client.describe_stream_summary(**stream.request),  # type: ignore[misc]
                operation="DescribeStreamSummary",
                client=client,
                sleep=time.sleep,
            )["StreamDescriptionSummary"]
            kept = summary["RetentionPeriodHours"]
            if kept * 3600 < delay + MARGIN:
                hours = -(-round(delay + MARGIN) // 3600)
                raise ConfigError(
                    "delays",
                    delay,
                    f"at most {kept * 3600 - MARGIN:g} seconds, because {stream.name} keeps records for {kept} h: "
                    f"kinesis-sdk stream retention {stream.name} {hours}",
                )
