"""Random expressions, against the fake and against Amazon's DynamoDB Local: both say the same of each."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal
from random import Random
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from kinesis_sdk.testing import FakeAws, VirtualClock

ROUNDS = 150
KEY = {"k": {"S": "a"}}
ITEM: dict[str, Any] = {
    **KEY,
    "n": {"N": "5"},
    "n2": {"N": "-1.50"},
    "s": {"S": "hello"},
    "e": {"S": ""},
    "b": {"B": b"\x01\xff"},
    "t": {"BOOL": True},
    "z": {"NULL": True},
    "ss": {"SS": ["a", "b"]},
    "ns": {"NS": ["1", "2.5"]},
    "bs": {"BS": [b"x"]},
    "l": {"L": [{"N": "1"}, {"S": "hello"}, {"L": [{"S": "q"}]}]},
    "m": {"M": {"x": {"N": "1"}, "y": {"M": {"w": {"S": "v"}}}}},
}
VALUES: list[dict[str, Any]] = [
    {"N": "5"},
    {"N": "1"},
    {"N": "-1.5"},
    {"S": "hello"},
    {"S": "he"},
    {"S": ""},
    {"S": "x"},
    {"B": b"\x01"},
    {"BOOL": True},
    {"NULL": True},
    {"SS": ["b", "a"]},
    {"SS": ["a"]},
    {"NS": ["2.5", "1"]},
    {"BS": [b"x"]},
    {"L": [{"N": "1"}]},
    {"M": {"x": {"N": "1"}, "y": {"M": {"w": {"S": "v"}}}}},
    {"M": {}},
]
PATHS = [
    "n",
    "n2",
    "s",
    "e",
    "b",
    "t",
    "z",
    "ss",
    "ns",
    "bs",
    "l",
    "m",
    "gone",
    "l[0]",
    "l[1]",
    "l[2]",
    "l[2][0]",
    "l[9]",
    "m.x",
    "m.y",
    "m.y.w",
    "m.gone",
    "gone.x",
    "n.x",
    "s[0]",
    "k",
]
TYPES = ["N", "S", "SS", "BOOL", "L", "M", "NULL", "B", "NS", "BS", "X"]


class Grammar:
    """Makes one expression with its placeholders; sense is not asked for."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def path(self) -> str:
        def placeholder(match: re.Match[str]) -> str:
            self.names[f"#{match[0]}"] = match[0]
            return f"#{match[0]}"

        return re.sub(r"[a-z]\w*", placeholder, self.rng.choice(PATHS))

    def value(self, value: dict[str, Any] | None = None) -> str:
        name = f":v{len(self.values)}"
        self.values[name] = value or self.rng.choice(VALUES)
        return name

    def operand(self, *, size: bool = True) -> str:
        chance = self.rng.random()
        if chance < 0.5:
            return self.path()
        return f"size({self.path()})" if size and chance > 0.9 else self.value()

    def condition(self, depth: int = 0) -> str:
        text = self.term(depth)
        while depth < 3 and self.rng.random() < 0.3:
            text += f" {self.rng.choice(['AND', 'OR'])} {self.term(depth + 1)}"
        return text

    def term(self, depth: int) -> str:
        operand, rng = self.operand, self.rng
        kind = rng.choice(
            ["compare"] * 4 + ["between", "in", "exists", "not exists", "type", "begins", "contains"]
        )
        if depth < 3 and rng.random() < 0.1:
            return rng.choice(
                [lambda: f"NOT {self.term(depth + 1)}", lambda: f"({self.condition(depth + 1)})"]
            )()
        if kind == "compare":
            return f"{operand()} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {operand()}"
        if kind == "between":
            return f"{operand()} BETWEEN {operand()} AND {operand()}"
        if kind == "in":
            return f"{operand()} IN ({', '.join(operand() for _ in range(rng.randint(1, 3)))})"
        if kind == "exists":
            return f"attribute_exists({self.path()})"
        if kind == "not exists":
            return f"attribute_not_exists({self.path()})"
        if kind == "type":
            return f"attribute_type({self.path()}, {self.value({'S': rng.choice(TYPES)})})"
        return f"{'begins_with' if kind == 'begins' else 'contains'}({operand()}, {operand()})"

    def update(self) -> str:
        rng = self.rng
        clauses = rng.sample(["SET", "REMOVE", "ADD", "DELETE"], rng.choice([1, 1, 1, 2, 3]))
        return " ".join(
            f"{clause} {', '.join(self.action(clause) for _ in range(rng.choice([1, 1, 2])))}"
            for clause in clauses
        )

    def action(self, clause: str) -> str:
        if clause == "REMOVE":
            return self.path()
        if clause != "SET":
            return f"{self.path()} {self.value()}"
        text = f"{self.path()} = {self.assigned()}"
        return f"{text} {self.rng.choice('+-')} {self.assigned()}" if self.rng.random() < 0.3 else text

    def assigned(self) -> str:
        function = self.rng.choice(["", "", "if_not_exists", "list_append"])
        if not function:
            return self.operand(size=False)
        first = self.path() if function == "if_not_exists" else self.operand(size=False)
        return f"{function}({first}, {self.operand(size=False)})"


def plain(value: Any) -> Any:
    """Numbers by value (DynamoDB Local keeps a zero behind the point that the service drops), sets without order."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((kind, content),) = value.items()
        if kind == "N":
            return Decimal(content)
        if kind in ("SS", "BS"):
            return frozenset(content)
        if kind == "NS":
            return frozenset(map(Decimal, content))
    return {name: plain(one) for name, one in value.items()}


def outcome(client: Any, table: str, kind: str, text: str, made: Grammar) -> Any:
    """Return the response of a service: the new item, or the code of an error."""
    client.put_item(TableName=table, Item=ITEM)
    request: dict[str, Any] = {"TableName": table, "Key": KEY}
    if made.names:
        request["ExpressionAttributeNames"] = made.names
    if made.values:
        request["ExpressionAttributeValues"] = made.values
    try:
        if kind == "condition":
            client.delete_item(**request, ConditionExpression=text)
            return "holds"
        answer = client.update_item(**request, UpdateExpression=text, ReturnValues="ALL_NEW")
        return {name: plain(value) for name, value in answer["Attributes"].items()}
    except ClientError as error:
        return error.response["Error"]["Code"]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["condition", "update"])
def test_random_expressions(kind: str, seed: int, localstack: str) -> None:
    config = Config(retries={"total_max_attempts": 1})
    theirs = boto3.client("dynamodb", endpoint_url=localstack, config=config)
    ours = FakeAws(clock=VirtualClock()).client("dynamodb")
    table = f"expressions-{kind}-{seed}"
    for client in (theirs, ours):
        client.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    rng = Random(seed)
    seen: Counter[str] = Counter()
    try:
        for _ in range(ROUNDS):
            made = Grammar(rng)
            text = made.condition() if kind == "condition" else made.update()
            there = outcome(theirs, table, kind, text, made)
            assert outcome(ours, table, kind, text, made) == there, (text, made.values)
            seen[there if isinstance(there, str) else "changed"] += 1
    finally:
        theirs.delete_table(TableName=table)
        theirs.close()
    assert min(seen.values()) >= 10, f"each outcome is put to the test: {seen}"
