"""Conditions of DynamoDB's legacy API: ``Expected``, ``KeyConditions``, ``QueryFilter``, ``ScanFilter``.

They are parsed into the same condition nodes as expressions. The Java KCL still sends ``Expected`` with every lease write.
"""

from __future__ import annotations

from typing import Any

from kinesis_sdk.testing.dynamodb.attributes import Value, normalise
from kinesis_sdk.testing.dynamodb.expressions import Node
from kinesis_sdk.testing.errors import validation

_COMPARATORS = {"EQ": "=", "NE": "<>", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_COUNTS = {"NULL": 0, "NOT_NULL": 0, "BETWEEN": 2, "IN": None}


def _comparison(name: str, operator: Any, values: list[Value]) -> Node:
    path: Node = ("path", (name,))
    if operator not in _COMPARATORS and operator not in {
        *_COUNTS,
        "CONTAINS",
        "NOT_CONTAINS",
        "BEGINS_WITH",
    }:
        raise validation(f"1 validation error detected: unknown ComparisonOperator {operator}")
    count = _COUNTS.get(operator, 1)
    if (count is not None and len(values) != count) or (count is None and not values):
        raise validation(
            f"One or more parameter values were invalid: Invalid number of argument(s) for the {operator} "
            "ComparisonOperator"
        )
    operands: list[Node] = [("value", value) for value in values]
    if operator in _COMPARATORS:
        return ("compare", path, _COMPARATORS[operator], operands[0])
    if operator == "NULL":
        return ("attribute_not_exists", path)
    if operator == "NOT_NULL":
        return ("attribute_exists", path)
    if operator == "BETWEEN":
        return ("between", path, operands[0], operands[1])
    if operator == "IN":
        return ("in", path, operands)
    if operator == "BEGINS_WITH":
        return ("begins_with", path, operands[0])
    if operator == "NOT_CONTAINS":
        return ("and", ("attribute_exists", path), ("not", ("contains", path, operands[0])))
    return ("contains", path, operands[0])


def _join(nodes: list[Node], operator: Any) -> Node | None:
    if operator not in {None, "AND", "OR"}:
        raise validation(f"ConditionalOperator must be AND or OR, not {operator}")
    joined: Node | None = None
    for node in nodes:
        joined = node if joined is None else ("or" if operator == "OR" else "and", joined, node)
    return joined


def expected(request: dict[str, Any]) -> Node | None:
    """Return the condition in ``Expected``, or None."""
    nodes: list[Node] = []
    for name, wanted in (request.get("Expected") or {}).items():
        exists = wanted.get("Exists")
        if "ComparisonOperator" in wanted:
            values = [normalise(value) for value in wanted.get("AttributeValueList") or []]
            nodes.append(_comparison(name, wanted["ComparisonOperator"], values))
        elif "Value" in wanted:
            if exists is False:
                raise validation(
                    f"One or more parameter values were invalid: Value cannot be used when Exists is false for "
                    f"Attribute: {name}"
                )
            nodes.append(_comparison(name, "EQ", [normalise(wanted["Value"])]))
        elif exists is False:
            nodes.append(("attribute_not_exists", ("path", (name,))))
        else:
            raise validation(
                f"One or more parameter values were invalid: Value must be provided when Exists is {exists} for "
                f"Attribute: {name}"
            )
    return _join(nodes, request.get("ConditionalOperator"))


def filters(request: dict[str, Any], member: str) -> Node | None:
    """Return the condition in ``KeyConditions``, ``QueryFilter`` or ``ScanFilter``, or None."""
    nodes = [
        _comparison(
            name,
            wanted.get("ComparisonOperator"),
            [normalise(value) for value in wanted.get("AttributeValueList") or []],
        )
        for name, wanted in (request.get(member) or {}).items()
    ]
    return _join(nodes, None if member == "KeyConditions" else request.get("ConditionalOperator"))
