"""Protobuf messages for the tests of parsed values, described in Python, because protoc is not needed otherwise."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, text_format

_SCALARS = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "fixed64",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
FILE = (
    'name: "all.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/duration.proto"\n'
    'message_type { name: "All"\n'
    + "\n".join(
        f'field {{ name: "{kind}_" number: {number} type: TYPE_{kind.upper()} label: LABEL_OPTIONAL }}'
        for number, kind in enumerate(_SCALARS, 1)
    )
    + """
  field { name: "state" number: 20 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".shop.State" }
  field { name: "at" number: 21 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".google.protobuf.Timestamp" }
  field { name: "took" number: 22 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".google.protobuf.Duration" }
  field { name: "part" number: 23 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".shop.Part" }
  field { name: "parts" number: 24 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".shop.Part" }
  field { name: "sizes" number: 25 type: TYPE_INT32 label: LABEL_REPEATED }
  field { name: "named" number: 26 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".shop.All.NamedEntry" }
  field { name: "counts" number: 27 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".shop.All.CountsEntry" }
  field { name: "maybe" number: 28 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 proto3_optional: true }
  nested_type { name: "NamedEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".shop.Part" } }
  nested_type { name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_BOOL label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL } }
  oneof_decl { name: "_maybe" }
}
message_type { name: "Part" field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }
message_type { name: "Node"
  field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "next" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".shop.Node" } }
enum_type { name: "State" value { name: "NEW" number: 0 } value { name: "OLD" number: 1 } }
"""
)
OLD = """
name: "old.proto" package: "old"
message_type { name: "Old"
  field { name: "id" number: 1 type: TYPE_STRING label: LABEL_REQUIRED }
  field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL default_value: "unnamed" }
  field { name: "note" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL } }
"""


def descriptors(*texts: str) -> bytes:
    """Return a descriptor set of files."""
    files = [text_format.Parse(text, descriptor_pb2.FileDescriptorProto()) for text in texts]
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


SET = descriptors(FILE, OLD)
"""Descriptor set of both."""
