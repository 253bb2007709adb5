from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_sdk.testing.dynamodb.evaluation import evaluate, project
from kinesis_sdk.testing.dynamodb.expressions import Parser, Placeholders
from kinesis_sdk.testing.errors import AwsError
from tests.fuzz import how_many

ITEM = {
    "a": {"N": "5"},
    "s": {"S": "hello"},
    "m": {"M": {"x": {"N": "1"}, "l": {"L": [{"S": "p"}, {"S": "q"}]}}},
    "words": {"SS": ["u", "v"]},
}
VALUES = {
    ":set": {"SS": ["u"]},
    ":set2": {"SS": ["v"]},
    ":one": {"N": "1"},
    ":five": {"N": "5.0"},
    ":he": {"S": "he"},
    ":N": {"S": "N"},
    ":u": {"S": "u"},
}
NAMES = {"#a": "a", "#m": "m"}


def holds(text: str, item: Any = ITEM) -> bool:
    given_ = Placeholders({"ExpressionAttributeNames": NAMES, "ExpressionAttributeValues": VALUES})
    return evaluate(Parser(text, given_, "ConditionExpression").condition(), item)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a BETWEEN :one AND :one OR s = :he", False),
        ("NOT a IN (:one)", True),
        ("attribute_not_exists(m.l[2])", True),
        ("m.l[1] > m.l[0]", True),
        ("contains(words, :u) and contains(s, :he)", True),
        # NOT binds closer than AND, AND closer than OR.
        ("NOT a = :one AND s = :he", False),
        ("NOT (a = :one AND s = :he)", True),
        ("a = :five OR a = :one AND a = :one", True),
        ("((a = :five) OR a = :one)", True),
        ("((a = :five) AND (s <> :he))", True),
        ("(a = :one OR (a = :five))", True),
        # Types that are known only from the item do not raise: values of different types are not ordered.
        ("s > :one", False),
        ("s < :one", False),
        ("NOT s > :one", True),
        ("a BETWEEN :he AND size(s)", False),
        ("begins_with(a, :he)", False),
        ("contains(a, :one)", False),
        ("size(s) = size(s)", True),
        ("words = :set", False),
        ("absent IN (:one, gone)", False),
    ],
)
def test_conditions(text: str, expected: bool) -> None:
    assert holds(text) is expected


def test_an_attribute_that_is_null_exists() -> None:
    item = {"a": {"NULL": True}}
    assert holds("attribute_exists(a)", item)
    assert not holds("attribute_not_exists(a)", item)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a =",
        "a",
        "a = :five AND",
        "a = :five)",
        "attribute_exists(:one)",
        "attribute_exists(a, a)",
        "begins_with(s)",
        "attribute_type(a, :he)",
        "a = #undefined",
        "a BETWEEN :one, :five",
        "a IN ()",
        "a = :five; b",
        "owner = :five",
        "m.Key = :five",
        # What DynamoDB Local refuses without looking at an item.
        "s > :set",
        "NOT :set <= a",
        "a BETWEEN :one AND :he",
        "a BETWEEN :set AND :set2",
        "begins_with(s, :one)",
        "begins_with(size(s), s)",
        "begins_with(:set, s)",
        "a = a",
        "m.x <> #m.x",
        "a IN (:one, a)",
        "a BETWEEN a AND :five",
        "contains(words, words)",
        "((a = :five))",
        "NOT ((a = :five) )",
        "a = :one OR ((a = :five AND s = :he))",
    ],
)
def test_what_does_not_parse(text: str) -> None:
    with pytest.raises(AwsError, match="ConditionExpression"):
        holds(text)


conditions = st.recursive(
    st.tuples(st.sampled_from("pqr"), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.integers(0, 3)),
    lambda inner: st.one_of(
        st.tuples(st.just("NOT"), inner), st.tuples(st.sampled_from(["AND", "OR"]), inner, inner)
    ),
    max_leaves=8,
)


def render(node: Any) -> str:
    if node[0] == "NOT":
        return f"NOT ({render(node[1])})"
    if node[0] in {"AND", "OR"}:
        return f"({render(node[1])}) {node[0]} ({render(node[2])})"
    return f"{node[0]} {node[1]} :v{node[2]}"


def truth(node: Any, item: dict[str, int]) -> bool:
    if node[0] == "NOT":
        return not truth(node[1], item)
    if node[0] in {"AND", "OR"}:
        both = (truth(node[1], item), truth(node[2], item))
        return all(both) if node[0] == "AND" else any(both)
    left, operator, right = item.get(node[0]), node[1], node[2]
    if left is None:
        return operator == "<>"
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[operator]


@settings(max_examples=how_many(unit=37, fuzz=150))
@given(conditions, st.dictionaries(st.sampled_from("pqr"), st.integers(0, 3)))
def test_evaluation_agrees_with_python(node: Any, item: dict[str, int]) -> None:
    placeholders = Placeholders(
        {"ExpressionAttributeValues": {f":v{number}": {"N": str(number)} for number in range(4)}}
    )
    parsed = Parser(render(node), placeholders, "ConditionExpression").condition()
    assert evaluate(parsed, {name: {"N": str(value)} for name, value in item.items()}) == truth(node, item)


def test_unused_placeholders_are_refused() -> None:
    for request in (
        {"ExpressionAttributeNames": {"#x": "a"}},
        {"ExpressionAttributeValues": {":x": {"N": "1"}}},
    ):
        with pytest.raises(AwsError, match=r"unused in expressions.*[#:]x"):
            Placeholders(request).finish(any_expression=True)
        with pytest.raises(AwsError, match="no expression"):
            Placeholders(request).finish(any_expression=False)


def test_projection_takes_parts() -> None:
    def part(text: str) -> Any:
        return project(ITEM, Parser(text, Placeholders({}), "ProjectionExpression").projection())

    assert part("a, absent") == {"a": {"N": "5"}}
    assert part("m.x, m.l[1]") == {"m": {"M": {"x": {"N": "1"}, "l": {"L": [{"S": "q"}]}}}}
    assert part("m.nothing") == {}
    with pytest.raises(AwsError, match="overlap"):
        part("m, m.x")
