"""DynamoDB attribute values in wire form: checks, normal forms, comparisons and sizes.

After `normalise`, two values are equal if and only if their JSON objects are equal: numbers have a canonical text, sets are sorted, and
binary values have canonical base64.
"""

from __future__ import annotations

import base64
import binascii
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from kinesis_sdk.testing.errors import validation

Value = dict[str, Any]
Item = dict[str, Value]

_CONTEXT = Context(prec=38, traps=[InvalidOperation, Inexact])
_LARGEST = Decimal("9.9999999999999999999999999999999999999E+125")
_SMALLEST = Decimal("1E-130")
_MAX_DEPTH = 32
_SET_MEMBER = {"SS": "S", "NS": "N", "BS": "B"}
TYPES = ("S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS")


def parse_number(text: Any) -> Decimal:
    """Parse a number in wire form; reject one with more than 38 digits or out of range."""
    if not isinstance(text, str):
        raise validation("The parameter cannot be converted to a numeric value: numbers travel as strings")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise validation(f"The parameter cannot be converted to a numeric value: {text}") from None
    if not number.is_finite():
        raise validation(f"The parameter cannot be converted to a numeric value: {text}")
    return _in_range(number)


def _in_range(number: Decimal) -> Decimal:
    try:
        number = number.normalize(_CONTEXT)
    except Inexact:
        raise validation("Attempting to store more than 38 significant digits in a Number") from None
    if number.copy_abs() > _LARGEST:
        raise validation(
            "Number overflow. Attempting to store a number with magnitude larger than supported range"
        )
    if number != 0 and number.copy_abs() < _SMALLEST:
        raise validation(
            "Number underflow. Attempting to store a number with magnitude smaller than supported range"
        )
    return number


def number_text(number: Decimal) -> str:
    """Return the canonical text of a number: no exponent, no trailing zeros, no negative zero."""
    return "0" if number == 0 else format(number, "f")


def add_numbers(left: str, right: str, sign: int = 1) -> str:
    """Return ``left + sign * right`` for normalised numbers; reject a result with more than 38 digits or out of range."""
    try:
        # Operators would use the thread's context, which rounds to 28 digits.
        add = _CONTEXT.add if sign > 0 else _CONTEXT.subtract
        total = add(Decimal(left), Decimal(right))
    except Inexact:
        raise validation("Attempting to store more than 38 significant digits in a Number") from None
    return number_text(_in_range(total))


def _binary(data: Any) -> str:
    try:
        return base64.b64encode(base64.b64decode(data, validate=True)).decode()
    except (binascii.Error, TypeError, ValueError):
        raise validation("Invalid attribute value: B is not base64") from None


def _scalar(kind: str, value: Any) -> str:
    if kind == "N":
        return number_text(parse_number(value))
    if kind == "B":
        return _binary(value)
    if not isinstance(value, str):
        raise validation("Invalid attribute value: S is not a string")
    return value


def _sort_key(kind: str) -> Any:
    return {"N": Decimal, "B": base64.b64decode, "S": str.encode}[kind]


def normalise(value: Any, depth: int = 0) -> Value:
    """Check an attribute value and return its canonical form."""
    if not isinstance(value, dict) or len(value) != 1:
        raise validation(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
            if not value
            else "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported "
            "datatypes"
        )
    if depth > _MAX_DEPTH:
        raise validation("Nesting Levels have exceeded supported limits")
    kind, content = next(iter(value.items()))
    if kind in {"S", "N", "B"}:
        return {kind: _scalar(kind, content)}
    if kind == "BOOL":
        if not isinstance(content, bool):
            raise validation("Invalid attribute value: BOOL is not a boolean")
        return {kind: content}
    if kind == "NULL":
        if content is not True:
            raise validation(
                "One or more parameter values were invalid: Null attribute value types must be true"
            )
        return {kind: True}
    if kind == "L" and isinstance(content, list):
        return {kind: [normalise(member, depth + 1) for member in content]}
    if kind == "M" and isinstance(content, dict):
        return {kind: {name: normalise(member, depth + 1) for name, member in content.items()}}
    member_kind = _SET_MEMBER.get(kind)
    if member_kind is None or not isinstance(content, list):
        raise validation(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
        )
    if not content:
        raise validation(f"One or more parameter values were invalid: An {kind} set may not be empty")
    members = [_scalar(member_kind, member) for member in content]
    if len(set(members)) != len(members):
        raise validation(
            f"One or more parameter values were invalid: Input collection {members} contains duplicates."
        )
    return {kind: sorted(members, key=_sort_key(member_kind))}


def normalise_item(item: Any, what: str = "Item") -> Item:
    """Return a checked copy of an item."""
    if not isinstance(item, dict):
        raise validation(f"{what} must be a map of attribute values")
    return {name: normalise(value) for name, value in item.items()}


def kind_of(value: Value) -> str:
    """Return the type of an attribute value, for example ``S``."""
    return next(iter(value))


def order_key(value: Value) -> Any:
    """Return a sort key for a string, number or binary among values of the same type."""
    kind, content = next(iter(value.items()))
    return _sort_key(kind)(content)


def compare(left: Value | None, operator: str, right: Value | None) -> bool:
    """Compare two normalised values as conditions do; None stands for a missing attribute.

    A comparison by order (``<`` and so on) between different types, or with a missing value, is False.
    """
    if operator in {"=", "<>"}:
        equal = left is not None and right is not None and left == right
        return equal if operator == "=" else not equal
    if (
        left is None
        or right is None
        or kind_of(left) != kind_of(right)
        or kind_of(left) not in {"S", "N", "B"}
    ):
        return False
    one, other = order_key(left), order_key(right)
    if operator == "<":
        return bool(one < other)
    if operator == "<=":
        return bool(one <= other)
    return bool(one > other) if operator == ">" else bool(one >= other)


def begins_with(value: Value | None, prefix: Value) -> bool:
    """Return whether a string or binary starts with another value of the same type."""
    if value is None or kind_of(value) != kind_of(prefix) or kind_of(value) not in {"S", "B"}:
        return False
    return bool(order_key(value).startswith(order_key(prefix)))


def contains(value: Value | None, member: Value | None) -> bool:
    """Return whether a string contains a substring, or a set or list contains a member."""
    if value is None or member is None:
        return False
    kind, content = next(iter(value.items()))
    member_kind, wanted = next(iter(member.items()))
    if kind == "L":
        return member in content
    if kind in _SET_MEMBER:
        return _SET_MEMBER[kind] == member_kind and wanted in content
    if kind == member_kind == "S":
        return wanted in content
    return kind == member_kind == "B" and order_key(member) in order_key(value)


def length_of(value: Value | None) -> int | None:
    """Return the result of ``size()``: characters, bytes or members; None for a value without a size."""
    if value is None:
        return None
    kind, content = next(iter(value.items()))
    if kind == "B":
        return len(base64.b64decode(content))
    return None if kind in {"N", "BOOL", "NULL"} else len(content)


def size_of(value: Value) -> int:
    """Return the bytes that a value adds to the size of its item."""
    kind, content = next(iter(value.items()))
    if kind == "S":
        return len(content) if content.isascii() else len(content.encode())
    if kind == "N":
        return len(content.strip("-0.").replace(".", "")) // 2 + 2
    if kind == "B":
        return len(base64.b64decode(content))
    if kind in {"BOOL", "NULL"}:
        return 1
    if kind == "L":
        return 3 + sum(1 + size_of(member) for member in content)
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + size_of(member) for name, member in content.items())
    return sum(size_of({_SET_MEMBER[kind]: member}) for member in content)


def item_size(item: Item) -> int:
    """Return the size of an item in bytes (names and values) to which the limit of 400 KB applies."""
    return sum(len(name.encode()) + size_of(value) for name, value in item.items())


def union(left: Value, right: Value) -> Value:
    """Return the sorted members of two sets of one type."""
    kind = kind_of(left)
    members = set(left[kind]) | set(right[kind])
    return {kind: sorted(members, key=_sort_key(_SET_MEMBER[kind]))}


def difference(left: Value, right: Value) -> Value | None:
    """Return the members of `left` that `right` lacks; None if no members remain, because sets cannot be empty."""
    kind = kind_of(left)
    members = set(left[kind]) - set(right[kind])
    return {kind: sorted(members, key=_sort_key(_SET_MEMBER[kind]))} if members else None


def is_set(value: Value) -> bool:
    """Return whether a value is a set."""
    return kind_of(value) in _SET_MEMBER
