"""The streams of a worker, and the names of their shards in the lease table.

With one stream, the lease key is the shard id, as in the KCL's single-stream mode. With several streams, the key is
``account:name:creationEpoch:shardId``, and the row also has ``streamName`` (``account:name:creationEpoch``) and ``shardId``
(KCL ``DynamoDBMultiStreamLeaseSerializer``). A worker in one mode ignores leases of the other mode.

The creation epoch (seconds since 1970) distinguishes a stream from a former stream of the same name. In the KCL, the user supplies the
epoch. Unless the user gives it, this package reads it with DescribeStreamSummary, once per stream, so a recreated stream
gets new leases automatically.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.errors import (
    AwsConfigError,
    ConfigError,
    KinesisSdkError,
    PermanentAwsError,
    ProtocolError,
)
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.serialization import Deserializer, check_deserializer
from kinesis_sdk.common.shards import is_shard_id, is_table_shard_id
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int, check_seconds
from kinesis_sdk.consumer.config import MAX_DELIVERY_DELAY, ConsumerConfig
from kinesis_sdk.consumer.fetch.registration import check_consumer_arn
from kinesis_sdk.consumer.leases.table.lease import Lease

_LOGGER = FieldLogger(logging.getLogger(__name__))

_ACCOUNT = re.compile(r"arn:[^:]+:kinesis:[^:]+:([0-9]{12}):")


@dataclass(frozen=True)
class StreamSpec:
    """One of several streams, with its own settings: ``StreamSpec(arn, consumer_arn=...)``.

    Attributes:
        stream: Name or ARN of the stream. The ARN of a stream in another account needs that account's permission.
        creation_epoch: Creation time of the stream in seconds since 1970, which is a part of its lease keys. The default None
            reads it with DescribeStreamSummary. Set the epoch if Java workers of the application use another value.
        account_id: Twelve-digit account id, which is a part of the lease keys. The default None takes it from the ARN, or reads
            it with DescribeStreamSummary.
        initial_position: Position at which shards without a checkpoint start. The default None uses
            `ConsumerConfig.initial_position`.
        consumer_arn: ARN of a consumer that is registered with this stream, for enhanced fan-out. The default None
            registers a consumer, which Kinesis does not allow on a stream of another account.
        deserializer: Decodes the payloads of this stream. The default None uses `ConsumerConfig.deserializer`.
        delivery_delay: Seconds for which each record is held back after its arrival. The default None uses
            `ConsumerConfig.delivery_delay`.

    Raises:
        ConfigError: If a value is not valid; the message names the field.
    """

    stream: str | StreamId
    _: KW_ONLY
    creation_epoch: int | None = None
    account_id: str | None = None
    initial_position: Literal["LATEST", "TRIM_HORIZON"] | datetime | None = None
    consumer_arn: str | None = None
    deserializer: Deserializer | None = None
    delivery_delay: float | None = None

    def __post_init__(self) -> None:
        StreamId.parse(self.stream)
        if self.creation_epoch is not None:
            check_int("creation_epoch", self.creation_epoch, 1)
        if self.account_id is not None and not re.fullmatch("[0-9]{12}", self.account_id):
            raise ConfigError("account_id", self.account_id, "twelve digits")
        if self.initial_position is not None:
            ConsumerConfig(initial_position=self.initial_position)
        if self.consumer_arn is not None:
            check_consumer_arn("consumer_arn", self.consumer_arn)
        check_deserializer("deserializer", self.deserializer)
        if self.delivery_delay is not None:
            check_seconds("delivery_delay", self.delivery_delay, 0, MAX_DELIVERY_DELAY)


Streams = Sequence["str | StreamId | StreamSpec"] | Callable[[], Iterable["str | StreamId | StreamSpec"]]
"""Several streams: a sequence, or a function that lists the streams to consume. The function is called every
``stream_list_interval``."""


@dataclass(frozen=True)
class TrackedStream:
    """A consumed stream with its settings, and its name in the lease table.

    `key` is ``account:name:creationEpoch``; None in single-stream mode.
    """

    stream: StreamId
    config: ConsumerConfig
    key: str | None = None

    def lease_key(self, shard_id: str) -> str:
        """Return the lease key of a shard."""
        return shard_id if self.key is None else f"{self.key}:{shard_id}"

    def owns(self, lease: Lease) -> bool:
        """Return whether a lease belongs to this stream."""
        return lease.stream_name == self.key

    def by_shard(self, leases: Iterable[Lease]) -> list[Lease]:
        """Return this stream's leases with shard ids as keys, for plans."""
        if self.key is None:
            return [lease for lease in leases if self.owns(lease)]  # its lease keys are shard ids
        return [replace(lease, lease_key=lease.shard) for lease in leases if self.owns(lease)]

    def stored(self, lease: Lease) -> Lease:
        """Return a planned lease in its stored form."""
        if self.key is None:
            return lease
        return replace(
            lease,
            lease_key=self.lease_key(lease.lease_key),
            stream_name=self.key,
            shard_id=lease.lease_key,
        )

    def __str__(self) -> str:
        return str(self.stream) if self.key is None else self.key


class StreamListener(Protocol):
    """Receiver of changes of the consumed streams, from any thread; `ConsumerEngine` is one."""

    def on_streams_changed(self) -> None:
        """Release the leases of streams that are no longer listed."""

    def on_stream_unavailable(self, tracked: TrackedStream, error: KinesisSdkError, /) -> None:
        """Suspend one of several streams that can no longer be consumed."""


class StreamDirectory:
    """The streams that a worker currently consumes. Thread-safe; its lock is a leaf.

    Without exactly one of ``stream`` and ``streams``, or with several streams and ``config.retrieval.consumer_arn``, it raises
    `ConfigError`.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        kinesis: KinesisClient,
        *,
        stream: StreamId | None = None,
        streams: Streams | None = None,
        sleep: Callable[[float], None],
        worker_id: str | None = None,
    ) -> None:
        if (stream is None) == (streams is None):
            raise ConfigError("streams", streams, "either stream or streams, not both")
        if streams is not None and config.retrieval.consumer_arn is not None:
            raise ConfigError(
                "retrieval.consumer_arn",
                config.retrieval.consumer_arn,
                "None with several streams: each StreamSpec has its own",
            )
        self._worker_id = worker_id
        self._config = config
        self._kinesis = kinesis
        self._streams = streams
        self._sleep = sleep
        self._lock = threading.Lock()
        self._missing: set[StreamSpec] = set()
        self._known: dict[StreamSpec, TrackedStream] = {}
        self._current: dict[str | None, TrackedStream] = {}
        self._suspended: dict[str | None, str] = {}
        if stream is not None:
            self._current = {None: TrackedStream(stream, config)}

    @property
    def is_single(self) -> bool:
        """Whether the worker runs in single-stream mode."""
        return self._streams is None

    @property
    def single(self) -> StreamId | None:
        """The stream in single-stream mode; None with several streams."""
        only = self._current.get(None)
        return None if only is None else only.stream

    def current(self) -> list[TrackedStream]:
        """Return the streams that are consumed now."""
        with self._lock:
            return [tracked for key, tracked in self._current.items() if key not in self._suspended]

    def all(self) -> list[TrackedStream]:
        """Return all listed streams, including suspended ones."""
        with self._lock:
            return [*self._current.values()]

    def find(self, lease: Lease) -> TrackedStream | None:
        """Return the stream of a lease; None if it is suspended or not consumed."""
        with self._lock:
            key = lease.stream_name
            return None if key in self._suspended else self._current.get(key)

    def named_by(self, lease_key: str) -> TrackedStream | None:
        """Return the stream of a lease key, using only the form of the key; None if there is none."""
        key, _, shard_id = lease_key.rpartition(":")
        with self._lock:
            tracked = self._current.get(key or None)
        if tracked is None:
            return None
        has_form = is_table_shard_id if tracked.stream.is_of_table else is_shard_id
        return tracked if has_form(shard_id) else None

    def suspend(self, tracked: TrackedStream, reason: str) -> bool:
        """Suspend a stream until the next `refresh`; return False if it was already suspended."""
        with self._lock:
            is_new = tracked.key not in self._suspended
            self._suspended[tracked.key] = reason
            return is_new

    def refresh(self, *, first: bool = False) -> None:
        """List the streams again and retry suspended streams.

        The ``first`` call raises for a stream that does not exist or cannot be described. A later call suspends such a stream and
        logs it once: the list may be outdated, and one stream must not stop the others.

        Raises:
            ConfigError: If an entry is not a stream.
            AwsError: If a new stream could not be described.
            ProtocolError: If its description lacks the account or the creation time.
        """
        if self._streams is None:
            return
        listed = self._streams() if callable(self._streams) else self._streams
        current: dict[str | None, TrackedStream] = {}
        suspended: dict[str | None, str] = {}
        missing: set[StreamSpec] = set()
        for entry in listed:
            spec = entry if isinstance(entry, StreamSpec) else StreamSpec(stream=entry)
            tracked = self._known.get(spec)
            # A suspended stream may have been recreated, so its creation time is read again.
            if tracked is None or tracked.key in self._suspended:
                try:
                    tracked = self._known[spec] = self._resolve(spec)
                except PermanentAwsError as error:
                    if first or isinstance(error, AwsConfigError):
                        raise
                    missing.add(spec)
                    if spec not in self._missing:
                        _LOGGER.error(
                            "stream %s: suspended, cannot be described: %s",
                            spec.stream,
                            error,
                            extra=log_fields(stream=spec.stream, worker=self._worker_id),
                        )
                    if tracked is None:
                        continue
                    suspended[tracked.key] = str(error)
            current[tracked.key] = tracked
        self._missing = missing
        with self._lock:
            self._current = current
            self._suspended = suspended

    def _resolve(self, spec: StreamSpec) -> TrackedStream:
        stream = StreamId.parse(spec.stream)
        account, epoch = spec.account_id or _account(stream.arn), spec.creation_epoch
        if account is None or epoch is None:
            summary = call_with_retries(
                lambda: self._kinesis.describe_stream_summary(**stream.request),
                operation="DescribeStreamSummary",
                client=self._kinesis,
                sleep=self._sleep,
            )["StreamDescriptionSummary"]
            account = account or _account(summary.get("StreamARN"))
            created = summary.get("StreamCreationTimestamp")
            if epoch is None and created is not None:
                epoch = int(created.timestamp() if isinstance(created, datetime) else created)
        if account is None or not epoch:
            raise ProtocolError(
                f"DescribeStreamSummary: {stream}: the response has no account or creation time"
            )
        config = self._config
        if spec.initial_position is not None:
            config = replace(config, initial_position=spec.initial_position)
        if spec.consumer_arn is not None:
            config = replace(config, retrieval=replace(config.retrieval, consumer_arn=spec.consumer_arn))
        if spec.deserializer is not None:
            config = replace(config, deserializer=spec.deserializer)
        if spec.delivery_delay is not None:
            config = replace(config, delivery_delay=spec.delivery_delay)
        return TrackedStream(stream, config, f"{account}:{stream.name}:{epoch}")


def _account(arn: str | None) -> str | None:
    match = _ACCOUNT.match(arn or "")
    return match[1] if match else None
