"""Values instead of bytes: JSON, Avro, Protobuf, and the AWS Glue Schema Registry.

    registry = GlueSchemaRegistry(region_name="eu-west-1", auto_registration=True)
    producer = Producer(ProducerConfig(serializer=registry.serializer(AvroCodec(SCHEMA))))
    config = ConsumerConfig(deserializer=registry.deserializer())

Each library is imported when its codec is created; if the library is missing, the error names it and its extra.
docs/serialization.md is the guide.
"""

from __future__ import annotations

from kinesis_sdk._lazy import lazy_names

TYPE_CHECKING = False  # type checkers read it as True
if TYPE_CHECKING:
    from kinesis_sdk.common.serialization import Deserializer as Deserializer
    from kinesis_sdk.common.serialization import Serializer as Serializer
    from kinesis_sdk.serialization.avro_codec import AvroCodec as AvroCodec
    from kinesis_sdk.serialization.glue_registry import GlueSchemaRegistry as GlueSchemaRegistry
    from kinesis_sdk.serialization.glue_registry import Schema as Schema
    from kinesis_sdk.serialization.json_codec import JsonCodec as JsonCodec
    from kinesis_sdk.serialization.protobuf_codec import ProtobufCodec as ProtobufCodec
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "kinesis_sdk.common.serialization": ("Serializer", "Deserializer"),
            "kinesis_sdk.serialization.json_codec": ("JsonCodec",),
            "kinesis_sdk.serialization.avro_codec": ("AvroCodec",),
            "kinesis_sdk.serialization.protobuf_codec": ("ProtobufCodec",),
            "kinesis_sdk.serialization.glue_registry": ("GlueSchemaRegistry", "Schema"),
        },
    )
