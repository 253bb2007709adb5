from __future__ import annotations

import copy
from typing import Any

import pytest

from kinesis_sdk.testing.dynamodb.expressions import Parser, Placeholders
from kinesis_sdk.testing.dynamodb.updates import apply_actions, apply_attribute_updates
from kinesis_sdk.testing.errors import AwsError

ITEM = {
    "n": {"N": "5"},
    "l": {"L": [{"N": "1"}, {"N": "2"}, {"N": "3"}]},
    "m": {"M": {"x": {"S": "y"}}},
    "ws": {"SS": ["a", "b"]},
}
VALUES = {":two": {"N": "2"}, ":l": {"L": [{"N": "9"}]}, ":s": {"SS": ["b", "c"]}, ":t": {"S": "t"}}


def updated(text: str) -> dict[str, Any]:
    before = copy.deepcopy(ITEM)
    values = {name: value for name, value in VALUES.items() if name in text}
    actions = Parser(text, Placeholders({"ExpressionAttributeValues": values}), "UpdateExpression").update()
    after = apply_actions(ITEM, actions)
    assert before == ITEM, "the old item was changed"
    return {name: after.get(name) for name in {*after, *ITEM} if after.get(name) != ITEM.get(name)}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("SET n = :two - n", {"n": {"N": "-3"}}),
        ("SET k = if_not_exists(k, :two), n = if_not_exists(n, :two)", {"k": {"N": "2"}}),
        ("SET k = if_not_exists(k, :two) + :two", {"k": {"N": "4"}}),
        ("SET k = n, n = :two", {"k": {"N": "5"}, "n": {"N": "2"}}),
        ("SET m.z = :t REMOVE m.x", {"m": {"M": {"z": {"S": "t"}}}}),
        ("REMOVE l[0], l[1], absent", {"l": {"L": [{"N": "3"}]}}),
    ],
)
def test_update_expressions(text: str, changes: dict[str, Any]) -> None:
    assert updated(text) == changes


@pytest.mark.parametrize(
    "text",
    [
        "SET k = absent",
        "SET n.y = :two",
        "ADD n :s",
        "DELETE n :two",
        "SET n :two",
        "UPSERT n = :two",
        "SET k = size(l)(n)",
        # What DynamoDB Local refuses, too.
        "SET k = if_not_exists(n, absent)",
        "SET k = if_not_exists(n, n)",
        "DELETE absent.x :s",
        "DELETE n.x :s",
        "ADD absent.x :two",
        "REMOVE",
    ],
)
def test_updates_that_make_no_sense(text: str) -> None:
    with pytest.raises(AwsError, match="ValidationException"):
        updated(text)


def test_attribute_updates_as_the_java_kcl_sends_them() -> None:
    lease = {"leaseCounter": {"N": "1"}, "checkpointOwner": {"S": "w1"}, "leaseOwner": {"S": "w1"}}
    after = apply_attribute_updates(
        lease,
        {
            "checkpointOwner": {"Action": "DELETE"},
            "leaseCounter": {"Value": {"N": "1"}, "Action": "ADD"},
            "ownerSwitchesSinceCheckpoint": {"Value": {"N": "1"}, "Action": "ADD"},
            "leaseOwner": {"Value": {"S": "w2"}, "Action": "PUT"},
        },
    )
    assert after == {
        "leaseCounter": {"N": "2"},
        "ownerSwitchesSinceCheckpoint": {"N": "1"},
        "leaseOwner": {"S": "w2"},
    }
    assert (
        apply_attribute_updates({"s": {"SS": ["a"]}}, {"s": {"Action": "DELETE", "Value": {"SS": ["a"]}}})
        == {}
    )
    with pytest.raises(AwsError, match="Only DELETE"):
        apply_attribute_updates({}, {"x": {"Action": "PUT"}})
