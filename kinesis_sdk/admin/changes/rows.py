"""Rows of the lease table as they are stored, and exact conditional writes to them. Pure.

Attributes are in DynamoDB's wire form for every database: see `kinesis_sdk.admin.lease_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kinesis_sdk.common.text import printable
from kinesis_sdk.consumer import Lease
from kinesis_sdk.consumer.leases import Item, attributes, is_lease_item, lease_from_item

_PENDING = (
    attributes.PENDING_CHECKPOINT,
    attributes.PENDING_CHECKPOINT_SUB,
    attributes.PENDING_CHECKPOINT_STATE,
)


@dataclass(frozen=True)
class Row:
    """A lease, and the item in wire form from which it was read. ``repr`` omits the item: it may hold the application's own bytes."""

    lease: Lease
    item: Item = field(repr=False)

    @classmethod
    def of(cls, item: Item) -> Row:
        """Decode an item; raises ValueError if it is not a lease."""
        return cls(lease_from_item(item), item)


@dataclass(frozen=True, kw_only=True)
class TableRead:
    """The whole table, as one consistent scan read it. ``unreadable`` has the reasons, ``others`` the items that are not leases, by key."""

    rows: Mapping[str, Row]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Item] = field(default_factory=dict)
    items: tuple[Item, ...] = field(default=(), repr=False)


def decode(items: Iterable[Item], unreadable: Mapping[str, str] | None = None) -> TableRead:
    """Return the rows of a table's items. ``unreadable`` has the reasons why other rows could not be read, by their key."""
    rows: dict[str, Row] = {}
    bad = dict(unreadable or {})
    others: dict[str, Item] = {}
    items = tuple(items)
    for item in items:
        key = str(item.get(attributes.LEASE_KEY, {}).get("S", ""))
        if not is_lease_item(item):
            others[key] = item
            continue
        try:
            rows[key] = Row.of(item)
        except ValueError as error:
            bad[printable(key)] = str(error)
    return TableRead(rows=rows, unreadable=bad, others=others, items=items)


class WriteKind(str, Enum):
    """The DynamoDB call that makes a write."""

    UPDATE = "UpdateItem"
    PUT = "PutItem"
    DELETE = "DeleteItem"


@dataclass(frozen=True, kw_only=True)
class RowWrite:
    """One conditional write of one row.

    Attributes:
        kind: The call. A `WriteKind.PUT` stores ``sets`` as the whole item; a `WriteKind.DELETE` has no ``sets``.
        equals: Condition: values that attributes must have.
        absent: Condition: attributes that must not exist.
    """

    lease_key: str
    kind: WriteKind = WriteKind.UPDATE
    sets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    removes: tuple[str, ...] = ()
    equals: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    def request(self, table_name: str) -> dict[str, Any]:
        """Return the arguments of the boto3 method that makes the write."""
        names: dict[str, str] = {}
        values: dict[str, Any] = {}

        def name_of(name: str) -> str:
            placeholder = f"#n{len(names)}"
            names[placeholder] = name
            return placeholder

        def value_of(value: Any) -> str:
            placeholder = f":v{len(values)}"
            values[placeholder] = value
            return placeholder

        result: dict[str, Any] = {"TableName": table_name}
        if self.kind is WriteKind.PUT:
            result["Item"] = dict(self.sets)
        else:
            result["Key"] = {attributes.LEASE_KEY: {"S": self.lease_key}}
        if self.kind is WriteKind.UPDATE:
            sets = ", ".join(f"{name_of(name)} = {value_of(value)}" for name, value in self.sets.items())
            removes = ", ".join(name_of(name) for name in self.removes)
            result["UpdateExpression"] = " ".join(
                f"{verb} {what}" for verb, what in (("SET", sets), ("REMOVE", removes)) if what
            )
        conditions = [f"{name_of(name)} = {value_of(value)}" for name, value in self.equals.items()]
        conditions += [f"attribute_not_exists({name_of(name)})" for name in self.absent]
        # A row to delete may have only its key; then the condition is that it exists.
        result["ConditionExpression"] = (
            " AND ".join(conditions) or f"attribute_exists({name_of(attributes.LEASE_KEY)})"
        )
        result["ExpressionAttributeNames"] = names
        if values:
            result["ExpressionAttributeValues"] = values
        return result

    def applied(self, item: Item | None) -> dict[str, Any]:
        """Return the item after the write."""
        result = {} if self.kind is WriteKind.PUT else dict(item or {})
        result.update(self.sets)
        for name in self.removes:
            result.pop(name, None)
        return result

    def differences(self, item: Item | None) -> list[str]:
        """Return the changes of the write, one text per attribute, and its condition; without the application's bytes."""
        before = item or {}
        after = self.applied(item)
        lines = [
            f"{name}: {_shown(name, before.get(name))} → {_shown(name, after.get(name))}"
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
        conditions = [f"{name} = {_shown(name, value)}" for name, value in self.equals.items()]
        conditions += [f"{name} does not exist" for name in self.absent]
        return [*lines, "on condition: " + " and ".join(conditions)]


def _shown(name: str, value: Any) -> str:
    """Return an attribute's value as text. Values of unknown attributes and of the application are hidden."""
    if value is None:
        return "–"
    if name == attributes.PENDING_CHECKPOINT_STATE and "B" in value:
        return f"{len(bytes(value['B']))} bytes"
    ((kind, content),) = value.items()
    if kind in ("S", "N"):
        return printable(str(content))
    if kind in ("SS", "NS"):
        return ", ".join(printable(str(part)) for part in sorted(content))
    return str(kind)


def shows(item: Item | None, write: RowWrite) -> bool:
    """Return whether a row shows the effect of a write whose response was lost. ``item`` is None if there is no row.

    A write that raises the counter also stores its own id, see `CHANGED_BY`, and no worker removes the id. Without the id, the row would
    not show the effect: an owner that reacted to a rewind at once, and passed its old checkpoint again, leaves the same row as an
    undisturbed owner.
    """
    if item is None:
        return False
    if attributes.CHANGED_BY in write.sets:
        return bool(item.get(attributes.CHANGED_BY) == write.sets[attributes.CHANGED_BY])
    return all(item.get(name) == value for name, value in write.sets.items()) and not any(
        name in item for name in write.removes
    )


def position_removals(item: Item) -> tuple[str, ...]:
    """Return the attributes of a row that a new position removes, see `recipes`.

    A mark that says that all records up to a time are processed is removed as well. The mark holds for its checkpoint: a rewind to
    exactly this position would leave the mark valid, and a worker with ``until`` would end without reading the records that are to be
    delivered again. A request to a handler is also removed, so a record that was left out is delivered again.
    """
    return tuple(
        name
        for name in (
            *_PENDING,
            attributes.INITIAL_TIMESTAMP,
            attributes.PROCESSED_UNTIL,
            attributes.HANDLER_REQUEST,
        )
        if name in item
    )
