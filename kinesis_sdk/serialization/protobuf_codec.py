"""Protobuf messages of generated classes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.serialization.proto_names import message_names, message_names_of_text

if TYPE_CHECKING:
    from google.protobuf.message import Message


class ProtobufCodec:
    """Serializer and deserializer for messages of one generated class.

    Args:
        message_type: The class that protoc generated.
        definition: Text of its ``.proto`` file. A schema registry needs it for writing, because a generated class does not contain it.
        message_index: Whether payloads with the header of a Glue Schema Registry begin with the index of the message type, as AWS's serializers
            for Kafka write and expect it. The KPL for Java does not write it: use False for its records.

    Attributes:
        name: Full name of the message type.
        definition: As the argument.

    Raises:
        ConfigError: If ``message_type`` is not a message class, or ``definition`` is the text of another file.
    """

    data_format: ClassVar[str] = "PROTOBUF"

    def __init__(
        self, message_type: type[Message], *, definition: str | None = None, message_index: bool = True
    ) -> None:
        from google.protobuf.message import Message

        if not isinstance(message_type, type) or not issubclass(message_type, Message):
            raise ConfigError("message_type", message_type, "a message class that protoc generated")
        self.message_type = message_type
        self.message_index = message_index
        self.name: str = message_type.DESCRIPTOR.full_name
        self.definition: str | None = definition
        if definition is not None:
            self._check(definition)

    @cached_property
    def index(self) -> int:
        """Index of the message type among all types of its file, sorted by full name, as AWS's serializers count."""
        return message_names(self.message_type.DESCRIPTOR.file).index(self.name)

    def _check(self, definition: str) -> None:
        """Check that a schema has the message types of the class's file: a payload identifies its type by its index in this list."""
        expected = message_names(self.message_type.DESCRIPTOR.file)
        try:
            found = message_names_of_text(definition)
        except ValueError as error:
            raise ConfigError(
                "definition", definition[:40], f"the text of a .proto file ({error})"
            ) from error
        if found != expected:
            differing = sorted(set(found) ^ set(expected))
            raise ConfigError(
                "definition",
                definition[:40],
                f"the text of the file of {self.name}: {differing[0]} exists only in the class or only in the text",
            )

    def serialize(self, stream: str, value: Any, /) -> bytes:  # noqa: ARG002
        """Return the encoding of a message.

        Raises:
            TypeError: If the message is not an instance of the class.
            google.protobuf.message.EncodeError: If a required field is missing.
        """
        if not isinstance(value, self.message_type):
            raise TypeError(f"expected {self.name}, not {type(value).__name__}")
        return value.SerializeToString()

    def deserialize(self, stream: str, data: bytes, /) -> Any:  # noqa: ARG002
        """Return the message of an encoding.

        Raises:
            google.protobuf.message.DecodeError: If it is damaged.
        """
        return self.message_type.FromString(data)
