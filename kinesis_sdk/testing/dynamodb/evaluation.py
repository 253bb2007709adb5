"""Parsed expressions applied to an item: operands, conditions, projections."""

from __future__ import annotations

from typing import Any

from kinesis_sdk.testing.dynamodb import attributes
from kinesis_sdk.testing.dynamodb.attributes import Item, Value
from kinesis_sdk.testing.dynamodb.expressions import Node, Path


def lookup(item: Item, path: Path) -> Value | None:
    """Return the value at a path, or None."""
    value = item.get(path[0])
    for part in path[1:]:
        if value is None:
            return None
        if isinstance(part, int):
            members = value.get("L", ())
            value = members[part] if part < len(members) else None
        else:
            value = value.get("M", {}).get(part)
    return value


def resolve(node: Node, item: Item) -> Value | None:
    """Return the value of an operand; None if its attribute is missing."""
    kind = node[0]
    if kind == "value":
        value: Value = node[1]
        return value
    found = lookup(item, node[1])
    if kind == "path":
        return found
    length = attributes.length_of(found)
    return None if length is None else {"N": str(length)}


def evaluate(node: Node, item: Item) -> bool:
    """Return whether an item meets a parsed condition. A missing item counts as an empty item."""
    kind = node[0]
    if kind == "and":
        return evaluate(node[1], item) and evaluate(node[2], item)
    if kind == "or":
        return evaluate(node[1], item) or evaluate(node[2], item)
    if kind == "not":
        return not evaluate(node[1], item)
    left = resolve(node[1], item)
    if kind == "attribute_exists":
        return left is not None
    if kind == "attribute_not_exists":
        return left is None
    if kind == "compare":
        return attributes.compare(left, node[2], resolve(node[3], item))
    if kind == "in":
        return any(attributes.compare(left, "=", resolve(choice, item)) for choice in node[2])
    if kind == "between":
        return attributes.compare(left, ">=", resolve(node[2], item)) and attributes.compare(
            left, "<=", resolve(node[3], item)
        )
    right = resolve(node[2], item)
    if kind == "attribute_type":
        return left is not None and right is not None and attributes.kind_of(left) == right["S"]
    if kind == "begins_with":
        return right is not None and attributes.begins_with(left, right)
    return attributes.contains(left, right)


def project(item: Item, paths: list[Path] | None) -> Item:
    """Return the parts of an item at `paths`, or the whole item if `paths` is None.

    Selected members of a list become adjacent, without gaps between them.
    """
    if paths is None:
        return item
    tree: dict[Any, Any] = {}
    for path in paths:
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
    return {
        name: found
        for name, below in tree.items()
        if name in item and (found := _prune(item[name], below)) is not None
    }


def _prune(value: Value, tree: dict[Any, Any]) -> Value | None:
    if not tree:
        return value
    if "M" in value:
        members = {
            name: found
            for name, below in tree.items()
            if name in value["M"] and (found := _prune(value["M"][name], below)) is not None
        }
        return {"M": members} if members else None
    if "L" in value:
        picked = [
            found
            for index in sorted(part for part in tree if isinstance(part, int))
            if index < len(value["L"]) and (found := _prune(value["L"][index], tree[index])) is not None
        ]
        return {"L": picked} if picked else None
    return None
