from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import Any

import pytest

from kinesis_sdk.common import errors
from kinesis_sdk.common.errors import (
    AwsError,
    ConditionFailedError,
    ConfigError,
    DeserializationError,
    InvalidRecordError,
    KinesisSdkError,
    PutManyError,
    RecordFailedError,
)
from kinesis_sdk.common.records import Attempt

CLASSES = [
    item
    for _name, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, KinesisSdkError) and item.__module__ == errors.__name__
]
ATTEMPTS = (
    Attempt(0.1, 0.2, "ThrottlingException", "slow down", False),
    Attempt(0.3, 0.0, "Expired", "", False),
)
CONTEXT: dict[str, Any] = {
    "operation": "PutRecords",
    "code": "Boom",
    "endpoint": "https://kinesis.example",
    "status": 400,
    "request_id": "r-1",
}


def sample(kind: type[KinesisSdkError]) -> KinesisSdkError:
    if issubclass(kind, ConditionFailedError):
        return kind("lost", item={"leaseKey": {"S": "a"}, "blob": {"B": b"\0"}}, **CONTEXT)
    if issubclass(kind, AwsError):
        return kind("no", **CONTEXT)
    if issubclass(kind, ConfigError):
        return kind("max_size", {"deep": [1]}, "1 to 5")
    if issubclass(kind, InvalidRecordError):
        return kind("data", "too long")
    if issubclass(kind, RecordFailedError):
        return kind("expired", stream="s", partition_key="k", attempts=ATTEMPTS)
    if issubclass(kind, PutManyError):
        return kind("record 3: data: too long", index=3)
    if issubclass(kind, DeserializationError):
        return kind("not JSON", stream="s", shard_id="shardId-0", sequence_number="49", sub_sequence_number=2)
    return kind("something happened", 7)


def test_the_drawn_tree_is_the_real_one() -> None:
    assert errors.__doc__
    drawing = errors.__doc__.split("```")[1]
    drawn: dict[str, tuple[str | None, list[str], bool]] = {}
    path: dict[int, str] = {}
    for line in drawing.splitlines():
        match = re.match(
            r"(?P<tree>[│├└─ ]*)(?P<name>[A-Z]\w+Error)\b(?: \((?P<base>\w+)\))?(?P<text>.*)", line
        )
        if not match:
            assert not line.strip(), line
            continue
        depth = len(match["tree"]) // 4
        assert len(match["tree"]) == depth * 4, line
        path[depth] = match["name"]
        bases = [match["base"]] if match["base"] else []
        drawn[match["name"]] = (path[depth - 1] if depth else None, bases, "(retryable" in match["text"])
    actual = {}
    for kind in CLASSES:
        ours = [base.__name__ for base in kind.__bases__ if issubclass(base, KinesisSdkError)]
        others = [base.__name__ for base in kind.__bases__ if not issubclass(base, KinesisSdkError)]
        root = kind is KinesisSdkError
        assert len(ours) == (0 if root else 1)
        actual[kind.__name__] = (None if root else ours[0], [] if root else others, kind.retryable)
    assert drawn == actual


@pytest.mark.parametrize("way", [*range(pickle.HIGHEST_PROTOCOL + 1), "copy", "deepcopy"])
def test_errors_are_pickled_and_copied_with_their_attributes(way: int | str) -> None:
    for kind in CLASSES:
        error = sample(kind)
        error.lease = "shardId-000000000000"  # type: ignore[attr-defined]  # what a caller hangs on it
        if way == "copy":
            again = copy.copy(error)
        elif way == "deepcopy":
            again = copy.deepcopy(error)
        else:
            again = pickle.loads(pickle.dumps(error, int(way)))
        assert type(again) is kind
        assert again is not error
        assert str(again) == str(error), kind
        assert again.args == error.args, kind
        assert again.__dict__ == error.__dict__, kind
        assert again.retryable is error.retryable, kind


def test_a_subclass_of_another_package_is_pickled_too() -> None:
    again = pickle.loads(pickle.dumps(OwnError(code=3)))
    assert (type(again), str(again), again.code) == (OwnError, "code 3", 3)


class OwnError(KinesisSdkError):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def test_messages_say_where_and_what() -> None:
    assert str(AwsError("no such stream", operation="PutRecords", code="NotFound", endpoint="http://h")) == (
        "PutRecords at http://h: NotFound: no such stream"
    )
    assert str(AwsError("NotFound: x", operation="PutRecords", code="NotFound")) == "PutRecords: NotFound: x"
    assert str(AwsError("plain")) == "plain"
    assert str(InvalidRecordError("data", "too long")) == "data: too long"


def test_every_error_is_caught_at_the_root_and_documented() -> None:
    for kind in CLASSES:
        assert isinstance(sample(kind), KinesisSdkError)
        assert kind.__doc__
        assert isinstance(kind.retryable, bool)
