"""Which streams a worker consumes, and how their shards are named in the lease table.

One stream: the lease key is the shard id, as the KCL's single-stream mode writes it. Several streams: the key is
``account:name:creationEpoch:shardId``, and the row carries ``streamName`` (``account:name:creationEpoch``) and
``shardId`` beside it (KCL ``DynamoDBMultiStreamLeaseSerializer``). The two forms do not see each other.

The creation epoch (seconds) tells a stream from a former one of the same name. The KCL believes whatever its user
says; here it is asked for (DescribeStreamSummary, once a stream) unless the user says it, so a recreated stream gets
new leases by itself.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from typing import Literal

from kinesis_sdk.common.aws import KinesisClient, call_with_retries
from kinesis_sdk.common.errors import AwsConfigError, ConfigError, PermanentAwsError, ProtocolError
from kinesis_sdk.common.shards import is_shard_id
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_int
from kinesis_sdk.consumer.config import ConsumerConfig
from kinesis_sdk.consumer.fetch.registration import check_consumer_arn
from kinesis_sdk.consumer.leases.table.lease import Lease

_LOGGER = logging.getLogger(__name__)

_ACCOUNT = re.compile(r"arn:[^:]+:kinesis:[^:]+:([0-9]{12}):")


@dataclass(frozen=True)
class StreamSpec:
    """One stream of several: ``StreamSpec(arn, consumer_arn=...)``.

    Attributes:
        stream: Name or ARN. An ARN of another account needs that account's permission.
        creation_epoch: Seconds since 1970 that name this incarnation in lease keys; None asks the service. Give the
            value that Java workers of the same application use, if there are any.
        account_id: Twelve digits in lease keys; None takes the ARN's, or asks the service.
        initial_position: As `ConsumerConfig.initial_position`; None takes that.
        consumer_arn: For enhanced fan-out: a consumer of this stream that is registered already. None registers one,
            which the service does not allow on another account's stream.

    Raises:
        ConfigError: A value that can not be.
    """

    stream: str | StreamId
    _: KW_ONLY
    creation_epoch: int | None = None
    account_id: str | None = None
    initial_position: Literal["LATEST", "TRIM_HORIZON"] | datetime | None = None
    consumer_arn: str | None = None

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


Streams = Sequence["str | StreamId | StreamSpec"] | Callable[[], Iterable["str | StreamId | StreamSpec"]]
"""Several streams: a list, or a function that lists those of now; it is called again and again."""


@dataclass(frozen=True)
class TrackedStream:
    """A stream with its name in the lease table.

    Attributes:
        stream: For requests.
        config: The worker's settings with this stream's initial position and registered consumer.
        key: ``account:name:epoch``; None in the single-stream form.
    """

    stream: StreamId
    config: ConsumerConfig
    key: str | None = None

    def lease_key(self, shard_id: str) -> str:
        """Key of a shard's lease."""
        return shard_id if self.key is None else f"{self.key}:{shard_id}"

    def owns(self, lease: Lease) -> bool:
        """Whether a lease is one of this stream's."""
        return lease.stream_name == self.key

    def by_shard(self, leases: Iterable[Lease]) -> list[Lease]:
        """This stream's leases with the shard id for a key, as plans read them."""
        if self.key is None:
            return [lease for lease in leases if self.owns(lease)]  # its lease keys are shard ids
        return [replace(lease, lease_key=lease.shard) for lease in leases if self.owns(lease)]

    def stored(self, lease: Lease) -> Lease:
        """A planned lease as the table holds it."""
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


class StreamDirectory:
    """The streams of now. Thread-safe; its lock is a leaf.

    Args:
        config: The worker's settings.
        kinesis: For DescribeStreamSummary.
        stream: The one stream.
        streams: Instead of it, several.
        sleep: Waits between repetitions of calls.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        kinesis: KinesisClient,
        *,
        stream: StreamId | None = None,
        streams: Streams | None = None,
        sleep: Callable[[float], None],
    ) -> None:
        if (stream is None) == (streams is None):
            raise ConfigError("streams", streams, "either one stream or several")
        if streams is not None and config.consumer_arn is not None:
            raise ConfigError(
                "consumer_arn", config.consumer_arn, "None with several streams: each StreamSpec has its own"
            )
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
        """Whether the table is in the single-stream form."""
        return self._streams is None

    def current(self) -> list[TrackedStream]:
        """All streams that are consumed now."""
        with self._lock:
            return [tracked for key, tracked in self._current.items() if key not in self._suspended]

    def all(self) -> list[TrackedStream]:
        """All streams that are listed, suspended ones included."""
        with self._lock:
            return [*self._current.values()]

    def find(self, lease: Lease) -> TrackedStream | None:
        """The stream of a lease; None if it is none of ours, or not now."""
        with self._lock:
            key = lease.stream_name
            return None if key in self._suspended else self._current.get(key)

    def named_by(self, lease_key: str) -> TrackedStream | None:
        """Return the stream of which a lease key names a shard by its form alone; None if there is none."""
        key, _, shard_id = lease_key.rpartition(":")
        with self._lock:
            return self._current.get(key or None) if is_shard_id(shard_id) else None

    def suspend(self, tracked: TrackedStream, reason: str) -> bool:
        """Leave a stream out until the next `refresh`; returns whether that is news."""
        with self._lock:
            news = tracked.key not in self._suspended
            self._suspended[tracked.key] = reason
            return news

    def refresh(self, *, first: bool = False) -> None:
        """Ask for the streams again; suspended ones get another chance.

        Args:
            first: Whether a stream that does not exist, or may not be described, is an error. Later it is left out and
                told once: a list may be behind the truth, and one stream must not end the others.

        Raises:
            ConfigError: What was given is no stream.
            AwsError: A new stream could not be described.
            ProtocolError: Its description lacks what its name in the table is made of.
        """
        if self._streams is None:
            return
        listed = self._streams() if callable(self._streams) else self._streams
        current: dict[str | None, TrackedStream] = {}
        suspended: dict[str | None, str] = {}
        missing: set[StreamSpec] = set()
        for one in listed:
            spec = one if isinstance(one, StreamSpec) else StreamSpec(stream=one)
            tracked = self._known.get(spec)
            # What was suspended may have been recreated: ask for its epoch again.
            if tracked is None or tracked.key in self._suspended:
                try:
                    tracked = self._known[spec] = self._resolve(spec)
                except PermanentAwsError as error:
                    if first or isinstance(error, AwsConfigError):
                        raise
                    missing.add(spec)
                    if spec not in self._missing:
                        _LOGGER.error(
                            "stream %s: can not be described and is left out: %s", spec.stream, error
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
            raise ProtocolError(f"DescribeStreamSummary: {stream} has no account or creation time")
        config = self._config
        if spec.initial_position is not None:
            config = replace(config, initial_position=spec.initial_position)
        if spec.consumer_arn is not None:
            config = replace(config, consumer_arn=spec.consumer_arn)
        return TrackedStream(stream, config, f"{account}:{stream.name}:{epoch}")


def _account(arn: str | None) -> str | None:
    match = _ACCOUNT.match(arn or "")
    return match[1] if match else None
