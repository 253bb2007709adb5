"""Registered stream consumer of enhanced fan-out: found or registered, awaited until ACTIVE, never deregistered."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.errors import (
    AwsError,
    ConfigError,
    ProtocolError,
    ResourceNotFoundError,
)
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.validation import check_consumer_name

_Kind = TypeVar("_Kind")

_CONSUMER_ARN = re.compile(r"(arn:aws[a-z0-9-]*:kinesis:[^/]+:stream/[^/]+)/consumer/[^/:]+:[0-9]+", re.ASCII)

_ACTIVE_PAUSE = 1.0
_NEVER = float("inf")

_LOGGER = FieldLogger(logging.getLogger(__name__))


def check_consumer_arn(field: str, arn: str) -> None:
    """Raise `ConfigError` for ``field`` unless the value is the ARN of a registered consumer."""
    if not isinstance(arn, str) or not _CONSUMER_ARN.fullmatch(arn):
        raise ConfigError(field, arn, "the ARN of a registered stream consumer")


class FanOutClient(KinesisClient, Protocol):
    """Further methods of boto3's Kinesis client that enhanced fan-out calls."""

    def describe_stream_consumer(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """DescribeStreamConsumer."""
        ...

    def register_stream_consumer(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """RegisterStreamConsumer."""
        ...

    def subscribe_to_shard(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """SubscribeToShard."""
        ...


class ConsumerRegistration:
    """The registered consumer of an application, found or created once per worker. Thread-safe.

    The lock is held during a call, so that a thousand shards do not make the same call at once. `step` never waits for it.

    Args:
        client: boto3 Kinesis client, or an object with its methods.
        stream: The stream.
        name: Name to register if ``arn`` is None: the application name, as in the KCL.
        arn: ARN of an existing consumer, which is never registered again.
        worker: Id of the worker, for the log.

    Raises:
        ConfigError: If Kinesis does not accept the name, or the ARN is not the ARN of a consumer.
    """

    def __init__(
        self,
        client: FanOutClient,
        stream: StreamId,
        *,
        name: str | None = None,
        arn: str | None = None,
        worker: str | None = None,
    ) -> None:
        if arn is not None:
            check_consumer_arn("consumer_arn", arn)
        else:
            check_consumer_name("retrieval.consumer_name", name)
        self._logger = FieldLogger(_LOGGER, stream=stream, worker=worker)
        self.stream: StreamId = stream
        self.worker: str | None = worker
        self._client = client
        self._stream = stream
        self._stream_arn = stream.arn
        self._name = name
        self._given_arn = arn
        self._lock = threading.Lock()
        self._arn: str | None = None
        self._due = -_NEVER

    @property
    def due(self) -> float:
        """Monotonic time before which `step` has nothing to do."""
        return self._due

    def step(self, now: float) -> str | None:
        """Return the ARN of the consumer once it is ACTIVE. Until then, check it once, set `due` and return None."""
        arn = self._arn
        if arn is not None or now < self._due:
            return arn
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._arn is None:
                self._check(now)
            return self._arn
        finally:
            self._lock.release()

    def doubt(self, arn: str) -> None:
        """Describe the consumer again before its next use, because a call reported that it does not exist."""
        with self._lock:
            if self._arn == arn:
                self._arn = None
                self._due = -_NEVER

    def _check(self, now: float) -> None:
        described = self._describe()
        if described is None:
            described = self._register()
        status = described.get("ConsumerStatus") if described is not None else "registered by another worker"
        if described is not None and status == "ACTIVE":
            self._arn = _member(described, "ConsumerARN", str, "DescribeStreamConsumer")
            self._logger.info("stream %s: reading as consumer %s", self._stream, self._arn)
        else:
            self._due = now + _ACTIVE_PAUSE

    def _describe(self) -> Mapping[str, Any] | None:
        if self._given_arn is not None:
            request = {"ConsumerARN": self._given_arn}
        else:
            request = {"StreamARN": self._known_stream_arn(), "ConsumerName": str(self._name)}
        try:
            with translate_errors("DescribeStreamConsumer", self._client):
                response = self._client.describe_stream_consumer(**request)
        except ResourceNotFoundError:
            if self._given_arn is not None:
                raise
            return None
        return _member(response, "ConsumerDescription", dict, "DescribeStreamConsumer")

    def _register(self) -> Mapping[str, Any] | None:
        try:
            with translate_errors("RegisterStreamConsumer", self._client):
                response = self._client.register_stream_consumer(
                    StreamARN=self._known_stream_arn(), ConsumerName=self._name
                )
        except AwsError as error:
            if error.code != "ResourceInUseException":
                raise
            return None  # another worker registered it first
        self._logger.info("stream %s: registered consumer %s", self._stream, self._name)
        return _member(response, "Consumer", dict, "RegisterStreamConsumer")

    def _known_stream_arn(self) -> str:
        if self._stream_arn is None:
            with translate_errors("DescribeStreamSummary", self._client):
                response = self._client.describe_stream_summary(**self._stream.request)
            summary = _member(response, "StreamDescriptionSummary", dict, "DescribeStreamSummary")
            self._stream_arn = _member(summary, "StreamARN", str, "DescribeStreamSummary")
        return self._stream_arn


def _member(response: object, name: str, kind: type[_Kind], operation: str) -> _Kind:
    """Return a member of a response; raise `ProtocolError` if it is missing, empty or of another type."""
    found = response.get(name) if isinstance(response, dict) else None
    if not found or not isinstance(found, kind):
        raise ProtocolError(f"{operation}: the response has no usable {name}")
    return found
