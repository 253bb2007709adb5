"""An independent writer of the format: messages.proto as published, serialised by protobuf itself."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kinesis_sdk.common.aggregate_reader import Aggregate
from kinesis_sdk.common.hashkeys import explicit_hash_key_to_bytes, hash_partition_key

MAGIC = bytes.fromhex("f3899ac2")

# One user record: partition key, explicit hash key as canonical decimal text or None, data.
Item = tuple[str, "str | None", bytes]

_MESSAGES = {
    "Tag": [("key", 1, "STRING", "REQUIRED"), ("value", 2, "STRING", "OPTIONAL")],
    "Record": [
        ("partition_key_index", 1, "UINT64", "REQUIRED"),
        ("explicit_hash_key_index", 2, "UINT64", "OPTIONAL"),
        ("data", 3, "BYTES", "REQUIRED"),
        ("tags", 4, "Tag", "REPEATED"),
    ],
    "AggregatedRecord": [
        ("partition_key_table", 1, "STRING", "REPEATED"),
        ("explicit_hash_key_table", 2, "STRING", "REPEATED"),
        ("records", 3, "Record", "REPEATED"),
    ],
}


def _build() -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="messages.proto", package="aws.kinesis.protobuf", syntax="proto2"
    )
    for message, fields in _MESSAGES.items():
        descriptor = file.message_type.add(name=message)
        for name, number, kind, label in fields:
            field = descriptor.field.add(name=name, number=number, label=getattr(kinds, f"LABEL_{label}"))
            if kind in _MESSAGES:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".aws.kinesis.protobuf.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("aws.kinesis.protobuf.AggregatedRecord")
    )


AggregatedRecord = _build()


def seal(body: bytes) -> bytes:
    """Magic and the right digest around any bytes."""
    return MAGIC + body + md5(body).digest()


def message(items: Iterable[Item]) -> Any:
    """The message under the KPL's rules: tables in the order of first use, without repetitions."""
    result = AggregatedRecord()
    keys: dict[str, int] = {}
    hashes: dict[str, int] = {}
    for key, explicit, data in items:
        record = result.records.add(partition_key_index=keys.setdefault(key, len(keys)), data=data)
        if explicit is not None:
            record.explicit_hash_key_index = hashes.setdefault(explicit, len(hashes))
    result.partition_key_table.extend(keys)
    result.explicit_hash_key_table.extend(hashes)
    return result


def encode(items: Iterable[Item]) -> bytes:
    """What the KPL sends for these user records, be they one or many."""
    listed = list(items)
    if len(listed) == 1:
        return listed[0][2]
    return seal(message(listed).SerializeToString())


def place(item: Item) -> bytes:
    """Effective hash key of a user record."""
    key, explicit, _data = item
    return hash_partition_key(key) if explicit is None else explicit_hash_key_to_bytes(explicit)


def append(aggregate: Aggregate, item: Item) -> bool:
    key, explicit, data = item
    return aggregate.try_append(key, explicit, data, place(item))


def filled(items: Iterable[Item]) -> Aggregate:
    """An aggregate without practical limits that holds all items."""
    aggregate = Aggregate(2**40, 2**40)
    for item in items:
        assert append(aggregate, item)
    return aggregate


def aggregate_of(*payloads: bytes, key: str = "k") -> bytes:
    """The bytes of an aggregate with these payloads, all under one partition key."""
    return filled((key, None, payload) for payload in payloads).encode()
