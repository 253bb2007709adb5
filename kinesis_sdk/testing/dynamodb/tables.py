"""One DynamoDB table: schema, items in key order, secondary indexes.

As in DynamoDB, items are ordered by the hash of their partition key, then by sort key. The order of a scan therefore does not depend on
the order of insertion, and the start of a page is found by bisection.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.dynamodb.attributes import Item, Value, item_size, kind_of, normalise, order_key
from kinesis_sdk.testing.dynamodb.change_streams import ChangeStream
from kinesis_sdk.testing.errors import AwsError, validation

MAX_ITEM_BYTES = 400 * 1024
_KEY_TYPES = ("S", "N", "B")

# Place of an item: digest of the partition key, sort key, and the table key to distinguish index entries.
Place = tuple[bytes, Any, tuple[str, ...]]


def _text(value: Value) -> str:
    kind, content = next(iter(value.items()))
    return f"{kind}:{content}"


def digest_of(value: Value) -> bytes:
    """Return the position of a partition key in a table's order."""
    return hashlib.md5(_text(value).encode()).digest()


class KeySchema:
    """Partition key and optional sort key, with their types."""

    def __init__(self, schema: Any, types: dict[str, str]) -> None:
        if not isinstance(schema, list) or not 1 <= len(schema) <= 2:
            raise validation("KeySchema must have one or two elements")
        if [element.get("KeyType") for element in schema] != ["HASH", "RANGE"][: len(schema)]:
            raise validation("Invalid KeySchema: the first element must be HASH and the second RANGE")
        self.names: list[str] = [str(element.get("AttributeName")) for element in schema]
        missing = [name for name in self.names if name not in types]
        if missing:
            raise validation(
                "One or more parameter values were invalid: Some index key attributes are not defined in "
                f"AttributeDefinitions. Keys: {missing}, AttributeDefinitions: {sorted(types)}"
            )
        self.types: dict[str, str] = {name: types[name] for name in self.names}
        self.description: list[dict[str, Any]] = schema

    def holds(self, item: Item) -> bool:
        """Return whether an item has all key attributes, and so appears in an index."""
        return all(name in item for name in self.names)

    def place(self, item: Item, key: tuple[str, ...]) -> Place:
        """Return the position of an item in the order of this schema."""
        sort = order_key(item[self.names[1]]) if len(self.names) > 1 else 0
        return digest_of(item[self.names[0]]), sort, key


class Index:
    """Global secondary index: the positions of the items that have all its keys."""

    def __init__(self, description: dict[str, Any], types: dict[str, str], active_at: float) -> None:
        name = description.get("IndexName")
        if not isinstance(name, str) or not name:
            raise validation("An index needs an IndexName")
        self.name = name
        self.schema: KeySchema = KeySchema(description.get("KeySchema"), types)
        self.projection: dict[str, Any] = description.get("Projection") or {}
        if self.projection.get("ProjectionType") not in {"ALL", "KEYS_ONLY", "INCLUDE"}:
            raise validation(
                "One or more parameter values were invalid: Unknown ProjectionType: "
                f"{self.projection.get('ProjectionType')}"
            )
        self.active_at = active_at
        self.order: list[Place] = []

    def view(self, item: Item, table_schema: KeySchema) -> Item:
        """Return the attributes of an item that the index contains."""
        if self.projection["ProjectionType"] == "ALL":
            return item
        names = {*table_schema.names, *self.schema.names, *(self.projection.get("NonKeyAttributes") or ())}
        return {name: value for name, value in item.items() if name in names}


class Table:
    """A table. Its `lock` guards the whole state, so a conditional write is atomic.

    Args:
        delay: Seconds until the table is ACTIVE.

    Attributes:
        stream: The latest stream of the table, even if disabled; None if it never had one.
    """

    def __init__(self, request: dict[str, Any], arn: str, clock: Clock, *, delay: float) -> None:
        self.name: str = str(request["TableName"])
        self.arn = arn
        self.lock: threading.RLock = threading.RLock()
        self.clock = clock
        self.created_at: float = clock.time()
        self._active_at = clock.monotonic() + delay
        self.types: dict[str, str] = {}
        self.define(request.get("AttributeDefinitions"))
        self.schema: KeySchema = KeySchema(request.get("KeySchema"), self.types)
        self.billing_mode: str = request.get("BillingMode", "PROVISIONED")
        self.throughput: dict[str, int] = request.get("ProvisionedThroughput") or {}
        if self.billing_mode not in {"PROVISIONED", "PAY_PER_REQUEST"}:
            raise validation(f"Unknown BillingMode {self.billing_mode}")
        if self.billing_mode == "PROVISIONED" and not self.throughput:
            raise validation(
                "One or more parameter values were invalid: ReadCapacityUnits and WriteCapacityUnits must both be "
                "specified when BillingMode is PROVISIONED"
            )
        self.deletion_protection: bool = bool(request.get("DeletionProtectionEnabled"))
        self.recovery = False
        self.stream: ChangeStream | None = None
        self.tags: dict[str, str] = {tag["Key"]: tag["Value"] for tag in request.get("Tags") or []}
        self.indexes: dict[str, Index] = {}
        self._items: dict[tuple[str, ...], Item] = {}
        self._sizes: dict[tuple[str, ...], int] = {}
        self.order: list[Place] = []
        for description in request.get("GlobalSecondaryIndexes") or []:
            self.add_index(description, delay=0.0)
        used = {name for schema in self.schemas() for name in schema.names}
        if used != set(self.types):
            raise validation(
                "One or more parameter values were invalid: Number of attributes in KeySchema does not exactly match "
                f"number of attributes defined in AttributeDefinitions; unused: {sorted(set(self.types) - used)}"
            )

    # -- schema -------------------------------------------------------------------------------------------------

    def schemas(self) -> Iterator[KeySchema]:
        """Return the key schemas of the table and of its indexes."""
        yield self.schema
        for index in self.indexes.values():
            yield index.schema

    def define(self, definitions: Any) -> None:
        """Add ``AttributeDefinitions``."""
        types = dict(self.types)
        for definition in definitions or []:
            if definition.get("AttributeType") not in _KEY_TYPES:
                raise validation(f"Unknown AttributeType {definition.get('AttributeType')}")
            types[definition["AttributeName"]] = definition["AttributeType"]
        self.types = types

    def add_index(self, description: dict[str, Any], *, delay: float) -> None:
        """Add a global secondary index of the existing items, ACTIVE after `delay` seconds."""
        index = Index(description, self.types, self.clock.monotonic() + delay)
        if index.name in self.indexes:
            raise validation(f"Attempting to create an index which already exists: {index.name}")
        for key, item in self._items.items():
            if index.schema.holds(item):
                insort(index.order, index.schema.place(item, key))
        self.indexes[index.name] = index

    @property
    def status(self) -> str:
        """``CREATING``, ``UPDATING`` while an index is being built, or ``ACTIVE``."""
        now = self.clock.monotonic()
        if now < self._active_at:
            return "CREATING"
        return "UPDATING" if any(now < index.active_at for index in self.indexes.values()) else "ACTIVE"

    def describe(self) -> dict[str, Any]:
        """Return the table as DescribeTable shows it."""
        now = self.clock.monotonic()
        description: dict[str, Any] = {
            "TableName": self.name,
            "TableArn": self.arn,
            "TableId": hashlib.md5(f"{self.arn}{self.created_at}".encode()).hexdigest(),
            "TableStatus": self.status,
            "CreationDateTime": round(self.created_at, 3),
            "KeySchema": self.schema.description,
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": kind} for name, kind in sorted(self.types.items())
            ],
            "ProvisionedThroughput": {
                "NumberOfDecreasesToday": 0,
                "ReadCapacityUnits": self.throughput.get("ReadCapacityUnits", 0),
                "WriteCapacityUnits": self.throughput.get("WriteCapacityUnits", 0),
            },
            "TableSizeBytes": 0,
            "ItemCount": len(self._items),
            "DeletionProtectionEnabled": self.deletion_protection,
        }
        if self.billing_mode == "PAY_PER_REQUEST":
            description["BillingModeSummary"] = {"BillingMode": self.billing_mode}
        if self.stream is not None:
            description["LatestStreamArn"] = self.stream.arn
            description["LatestStreamLabel"] = self.stream.label
            if self.stream.status == "ENABLED":
                description["StreamSpecification"] = {
                    "StreamEnabled": True,
                    "StreamViewType": self.stream.view_type,
                }
        if self.indexes:
            description["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": index.name,
                    "IndexArn": f"{self.arn}/index/{index.name}",
                    "IndexStatus": "ACTIVE" if now >= index.active_at else "CREATING",
                    "KeySchema": index.schema.description,
                    "Projection": index.projection,
                    "ItemCount": len(index.order),
                    "IndexSizeBytes": 0,
                }
                for index in self.indexes.values()
            ]
        return description

    # -- keys ---------------------------------------------------------------------------------------------------

    def key_of(self, item: Item) -> tuple[str, ...]:
        """Return the key under which an item is stored."""
        return tuple(_text(item[name]) for name in self.schema.names)

    def check_key(self, key: Any) -> Item:
        """Return a checked copy of a request's ``Key``."""
        if not isinstance(key, dict) or set(key) != set(self.schema.names):
            raise validation("The provided key element does not match the schema")
        checked = {name: normalise(value) for name, value in key.items()}
        for name, kind in self.schema.types.items():
            if kind_of(checked[name]) != kind:
                raise validation("The provided key element does not match the schema")
        self._reject_empty(checked, self.schema)
        return checked

    @staticmethod
    def _reject_empty(item: Item, schema: KeySchema) -> None:
        for name in schema.names:
            if name in item and item[name] in ({"S": ""}, {"B": ""}):
                raise validation(
                    "One or more parameter values are not valid. The AttributeValue for a key attribute cannot "
                    f"contain an empty string value. Key: {name}"
                )

    def check_item(self, item: Item) -> None:
        """Check an item's keys, the types of its index keys, and its size."""
        for name in self.schema.names:
            if name not in item:
                raise validation(
                    f"One or more parameter values were invalid: Missing the key {name} in the item"
                )
        for schema in self.schemas():
            for name, kind in schema.types.items():
                if name in item and kind_of(item[name]) != kind:
                    raise validation(
                        f"One or more parameter values were invalid: Type mismatch for key {name} expected: {kind} "
                        f"actual: {kind_of(item[name])}"
                    )
            self._reject_empty(item, schema)
        if item_size(item) > MAX_ITEM_BYTES:
            raise validation("Item size has exceeded the maximum allowed size")

    # -- items --------------------------------------------------------------------------------------------------

    def get(self, key: tuple[str, ...]) -> Item | None:
        """Return the item stored under a key. Callers share it and must not change it."""
        return self._items.get(key)

    def size_of(self, key: tuple[str, ...]) -> int:
        """Return the size of the item stored under a key, as `item_size` counts it; zero if there is none."""
        size = self._sizes.get(key)
        if size is None and key in self._items:
            size = self._sizes[key] = item_size(self._items[key])
        return size or 0

    def put(self, item: Item) -> None:
        """Store a checked item, replacing an item with the same key."""
        key = self.key_of(item)
        self.remove(key)
        self._items[key] = item
        insort(self.order, self.schema.place(item, key))
        for index in self.indexes.values():
            if index.schema.holds(item):
                insort(index.order, index.schema.place(item, key))

    def remove(self, key: tuple[str, ...]) -> None:
        """Remove the item stored under a key, if there is one."""
        item = self._items.pop(key, None)
        self._sizes.pop(key, None)
        if item is None:
            return
        _drop(self.order, self.schema.place(item, key))
        for index in self.indexes.values():
            if index.schema.holds(item):
                _drop(index.order, index.schema.place(item, key))

    def require_index(self, name: str) -> Index:
        """Return the index with this name; raise an error if it is not ACTIVE."""
        index = self.indexes.get(name)
        if index is None:
            raise validation(f"The table does not have the specified index: {name}")
        if self.clock.monotonic() < index.active_at:
            raise validation(f"Cannot read from backfilling global secondary index: {name}")
        return index

    def require_active(self) -> None:
        """Raise ResourceNotFoundException until the table exists."""
        if self.status == "CREATING":
            raise AwsError("ResourceNotFoundException", "Requested resource not found")


def _drop(order: list[Place], place: Place) -> None:
    at = bisect_left(order, place)
    assert order[at] == place, "index and items disagree"
    del order[at]


def partition(order: list[Place], digest: bytes) -> list[Place]:
    """Return the positions with the same partition key, in sort-key order."""
    low = bisect_left(order, digest, key=lambda place: place[0])
    return order[low : bisect_right(order, digest, low, key=lambda place: place[0])]
