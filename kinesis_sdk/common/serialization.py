"""Serialization for producer and consumer: the protocols, and user records that decode themselves.

The codecs are in `kinesis_sdk.serialization`; any object with these methods works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from kinesis_sdk.common.errors import (
    AwsError,
    ConfigError,
    DeserializationError,
    KinesisSdkError,
    SchemaUnavailableError,
)
from kinesis_sdk.common.record_ids import located_record_type
from kinesis_sdk.common.records import UserRecord


@runtime_checkable
class Serializer(Protocol):
    """Encodes the values that a producer puts. Called from every thread that puts."""

    def serialize(self, stream: str, value: Any, /) -> bytes:
        """Return the payload of a value.

        Args:
            stream: Name of the stream.
            value: The application's ``data``.

        Raises:
            Exception: If the value cannot be encoded; `put` then raises `SerializationError` with this exception as its cause. Errors of
                this package reach the caller of `put` unchanged.
        """
        ...


@runtime_checkable
class BlockingSerializer(Serializer, Protocol):
    """A `Serializer` that may wait for the network, and can predict this, so that `AsyncProducer` calls it on another thread."""

    def would_block(self, stream: str, value: Any, /) -> bool:
        """Return whether ``serialize`` would wait for the network now."""
        ...


@runtime_checkable
class Deserializer(Protocol):
    """Decodes the payloads that a consumer reads. Called from every thread that runs a handler."""

    def deserialize(self, stream: str, data: bytes, /) -> Any:
        """Return the value of a payload.

        Args:
            stream: Name of the stream.
            data: Payload of a user record.

        Raises:
            Exception: If the payload cannot be decoded. This exception becomes the cause of the error that ``UserRecord.value`` raises:
                `SchemaUnavailableError` for a retryable error of this package or an error of AWS, otherwise `DeserializationError`.
        """
        ...


def check_deserializer(field: str, value: object) -> None:
    """Check that a setting is a `Deserializer` or None.

    Raises:
        ConfigError: If it is not.
    """
    if value is not None and (isinstance(value, type) or not isinstance(value, Deserializer)):
        raise ConfigError(field, value, "an object with deserialize(stream, data), or None")


def check_serializer(field: str, value: object) -> None:
    """Check that a setting is a `Serializer`, a mapping from stream names to serializers, or None.

    Raises:
        ConfigError: If it is not.
    """
    each = value.values() if isinstance(value, Mapping) else [value]
    if value is not None and not all(
        isinstance(serializer, Serializer) and not isinstance(serializer, type) for serializer in each
    ):
        raise ConfigError(
            field,
            value,
            "an object with serialize(stream, value), a mapping from stream names to such objects, or None",
        )


def decoding_record_type(
    deserializer: Deserializer, stream: str, shard_id: str | None = None
) -> type[UserRecord]:
    """Return a class of user records whose ``value`` is decoded on first access and then kept.

    The deserializer is bound to the class and not to each record, so records cost nothing extra. Pickling such a
    record drops the deserializer, which may hold connections.

    Args:
        deserializer: Decodes the payloads.
        stream: Name of the stream.
        shard_id: Shard of the records, for messages; None if unknown.
    """
    base: Any = UserRecord if shard_id is None else located_record_type(UserRecord, stream, shard_id)

    class DecodingUserRecord(base):  # type: ignore[misc]  # a class that is made at run time
        @property
        def value(self) -> Any:
            # Not functools.cached_property: before Python 3.12 it holds one lock for all records while it computes.
            kept = self.__dict__
            try:
                return kept["value"]
            except KeyError:
                value = kept["value"] = _decoded(deserializer, stream, shard_id, self)
                return value

        def __reduce__(self) -> Any:
            return (UserRecord, tuple(self)) if shard_id is None else super().__reduce__()

    DecodingUserRecord.__name__ = DecodingUserRecord.__qualname__ = UserRecord.__name__
    return DecodingUserRecord


def _decoded(deserializer: Deserializer, stream: str, shard_id: str | None, record: UserRecord) -> Any:
    try:
        return deserializer.deserialize(stream, record.data)
    except Exception as error:
        # A failed call to AWS says nothing about the record, even if a retry does not help because a permission is missing.
        is_unavailable = isinstance(error, AwsError) or (
            isinstance(error, KinesisSdkError) and error.retryable
        )
        kind = SchemaUnavailableError if is_unavailable else DeserializationError
        # The messages of this package do not contain payloads; messages of libraries may quote them.
        problem = str(error) if isinstance(error, KinesisSdkError) else type(error).__name__
        raise kind(
            problem,
            stream=stream,
            shard_id=shard_id,
            sequence_number=record.sequence_number,
            sub_sequence_number=record.sub_sequence_number,
        ) from error
