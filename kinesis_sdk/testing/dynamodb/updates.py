"""Updates of items: parsed update expressions, and the legacy ``AttributeUpdates``.

Each kind of update builds a new item and leaves the old one unchanged, because readers may hold it.
"""

from __future__ import annotations

import copy
from typing import Any

from kinesis_sdk.testing.dynamodb import attributes
from kinesis_sdk.testing.dynamodb.attributes import Item, Value, kind_of, normalise
from kinesis_sdk.testing.dynamodb.evaluation import lookup, resolve
from kinesis_sdk.testing.dynamodb.expressions import Node, Path
from kinesis_sdk.testing.errors import validation

_BAD_PATH = "The document path provided in the update expression is invalid for update"


def _operand(node: Node, item: Item) -> Value:
    """Return the value on the right side of SET, computed from the item before the update."""
    kind = node[0]
    if kind == "if_not_exists":
        # DynamoDB demands that the other operand exists even if it is not needed.
        found, other = lookup(item, node[1][1]), _operand(node[2], item)
        return other if found is None else found
    if kind == "list_append":
        left, right = _operand(node[1], item), _operand(node[2], item)
        if "L" not in left or "L" not in right:
            raise validation(
                "Invalid UpdateExpression: Incorrect operand type for operator or function; operator or function: "
                "list_append, operand type: not L"
            )
        return {"L": [*left["L"], *right["L"]]}
    if kind == "plus":
        left, right = _operand(node[1], item), _operand(node[2], item)
        if "N" not in left or "N" not in right:
            raise validation("An operand in the update expression has an incorrect data type")
        return {"N": attributes.add_numbers(left["N"], right["N"], node[3])}
    found = resolve(node, item)
    if found is None:
        raise validation("The provided expression refers to an attribute that does not exist in the item")
    return found


def _add(current: Value | None, value: Value) -> Value:
    if "N" not in value and not attributes.is_set(value):
        raise validation(
            "Invalid UpdateExpression: Incorrect operand type for operator or function; operator: ADD, operand type: "
            f"{kind_of(value)}"
        )
    if current is None:
        return value
    if kind_of(current) != kind_of(value):
        raise validation("An operand in the update expression has an incorrect data type")
    if "N" in value:
        return {"N": attributes.add_numbers(current["N"], value["N"])}
    return attributes.union(current, value)


def _delete(current: Value | None, value: Value) -> Value | None:
    if not attributes.is_set(value):
        raise validation(
            "Invalid UpdateExpression: Incorrect operand type for operator or function; operator: DELETE, operand "
            f"type: {kind_of(value)}"
        )
    if current is None:
        return None
    if kind_of(current) != kind_of(value):
        raise validation("An operand in the update expression has an incorrect data type")
    return attributes.difference(current, value)


def _parent(item: Item, path: Path) -> Any:
    """Return the map or list that contains the last element of a path. The caller may change the item."""
    container: Any = item
    for at, part in enumerate(path[:-1]):
        try:
            value = container[part]
        except (KeyError, IndexError):
            raise validation(_BAD_PATH) from None
        inner = "L" if isinstance(path[at + 1], int) else "M"
        if inner not in value:
            raise validation(_BAD_PATH)
        container = value[inner]
    return container


def apply_actions(item: Item, actions: list[Node]) -> Item:
    """Return the item after an update expression. Every operand is evaluated with the item before the update."""
    updated = copy.deepcopy(item) if any(len(action[1]) > 1 for action in actions) else dict(item)
    removed: list[tuple[list[Any], int]] = []
    for action in actions:
        clause, path = action[0], action[1]
        value: Value | None = None
        if clause == "SET":
            value = _operand(action[2], item)
        elif clause != "REMOVE":
            change = _add if clause == "ADD" else _delete
            value = change(lookup(item, path), action[2][1])
            if value is None and lookup(item, path) is None:
                _parent(updated, path)
                continue
        container, last = _parent(updated, path), path[-1]
        if value is not None:
            if isinstance(last, int) and last >= len(container):
                container.append(value)
            else:
                container[last] = value
        elif isinstance(last, int):
            removed.append((container, last))
        else:
            container.pop(last, None)
    # From the end, so that the remaining indexes stay valid.
    for container, index in sorted(removed, key=lambda entry: -entry[1]):
        del container[index : index + 1]
    return updated


def apply_attribute_updates(item: Item, updates: dict[str, Any]) -> Item:
    """Return the item after ``AttributeUpdates``, with which the Java KCL writes leases."""
    updated = dict(item)
    for name, update in updates.items():
        action = update.get("Action", "PUT")
        value = normalise(update["Value"]) if "Value" in update else None
        if action not in {"PUT", "ADD", "DELETE"}:
            raise validation(f"AttributeUpdates: unknown Action {action} for attribute {name}")
        if value is None:
            if action != "DELETE":
                raise validation(
                    f"One or more parameter values were invalid: Only DELETE action is allowed when no attribute value "
                    f"is specified; attribute: {name}"
                )
            updated.pop(name, None)
        elif action == "PUT":
            updated[name] = value
        else:
            current = item.get(name)
            if action == "ADD" and "L" in value:
                changed: Value | None = {"L": [*(current or {}).get("L", []), *value["L"]]}
            else:
                changed = _add(current, value) if action == "ADD" else _delete(current, value)
            if changed is None:
                updated.pop(name, None)
            else:
                updated[name] = changed
    return updated
