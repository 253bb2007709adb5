"""Message classes for tests, of a file that is described in Python, because protoc is not needed otherwise."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

FILE = """
name: "shop.proto" package: "shop" syntax: "proto3"
options { java_package: "com.shop" java_multiple_files: true }
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "attrs_by_key" number: 2 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".shop.Order.AttrsByKeyEntry" }
  field { name: "lines" number: 3 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".shop.Order.Line" }
  field { name: "card" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "cash" number: 5 type: TYPE_INT64 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "priority" number: 6 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 1 proto3_optional: true }
  field { name: "state" number: 7 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".shop.Order.State" }
  field { name: "sizes" number: 8 type: TYPE_SINT32 label: LABEL_REPEATED options { packed: false } }
  nested_type {
    name: "AttrsByKeyEntry"
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
    options { map_entry: true }
  }
  nested_type { name: "Line" field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "article" } }
  enum_type { name: "State" value { name: "NEW" number: 0 } value { name: "OLD" number: 1 } }
  oneof_decl { name: "pay" }
  oneof_decl { name: "_priority" }
  reserved_range { start: 20 end: 21 }
  reserved_range { start: 30 end: 536870912 }
  reserved_name: "secret"
}
message_type {
  name: "Alpha"
  field { name: "order" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".shop.Order" }
}
"""

OLD_FILE = r"""
name: "old.proto" package: "old" dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "Old"
  field { name: "id" number: 1 type: TYPE_STRING label: LABEL_REQUIRED }
  field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL default_value: "a \"quoted\" \\ name" }
  field { name: "raw" number: 3 type: TYPE_BYTES label: LABEL_OPTIONAL default_value: "\\000\\001" }
  field { name: "kind" number: 4 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".old.Kind" default_value: "B" }
  field { name: "at" number: 5 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".google.protobuf.Timestamp" options { deprecated: true } }
  extension_range { start: 100 end: 200 }
}
enum_type { name: "Kind" value { name: "A" number: 1 } value { name: "B" number: 2 } value { name: "C" number: 2 } options { allow_alias: true } }
extension { name: "more" number: 100 type: TYPE_INT32 label: LABEL_OPTIONAL extendee: ".old.Old" }
service { name: "Shop" method { name: "Buy" input_type: ".old.Old" output_type: ".old.Old" server_streaming: true } }
"""


def file_of(text: str) -> Any:
    """Return the descriptor of a file in a pool of its own."""
    from google.protobuf import timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    proto = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    pool.AddSerializedFile(proto.SerializeToString())
    return pool.FindFileByName(proto.name)


def message_class(file: Any, name: str) -> Any:
    """Return the class of a message type, given by its name in the file."""
    kind = file.message_types_by_name[name.partition(".")[0]]
    for part in name.split(".")[1:]:
        kind = kind.nested_types_by_name[part]
    return message_factory.GetMessageClass(kind)


SHOP = file_of(FILE)
OLD = file_of(OLD_FILE)
Order = message_class(SHOP, "Order")
Line = message_class(SHOP, "Order.Line")
Alpha = message_class(SHOP, "Alpha")
Old = message_class(OLD, "Old")
