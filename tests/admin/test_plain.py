from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum

import pytest

from kinesis_sdk.admin.plain import plain
from kinesis_sdk.common.hashkeys import MAX_HASH_KEY, HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber


class Colour(Enum):
    RED = "red"


@dataclass
class Inner:
    name: str
    secret: bytes = field(default=b"payload", repr=False)


def test_values_become_what_json_knows() -> None:
    value = {
        "colour": Colour.RED,
        "inner": Inner("a"),
        "when": datetime(2026, 11, 22, 9, 0, tzinfo=timezone.utc),
        "range": HashKeyRange(0, MAX_HASH_KEY),
        "numbers": (1, 2.5, math.inf, math.nan),
        "names": {"b", "a"},
        "position": ExtendedSequenceNumber("17", 3),
        "nothing": None,
        "yes": True,
    }
    assert json.loads(json.dumps(plain(value))) == {
        "colour": "red",
        "inner": {"name": "a"},
        "when": "2026-11-22T09:00:00+00:00",
        "range": {"start": "0", "end": str(MAX_HASH_KEY)},
        "numbers": [1, 2.5, None, None],
        "names": ["a", "b"],
        "position": {"sequence_number": "17", "sub_sequence_number": 3},
        "nothing": None,
        "yes": True,
    }


def test_what_has_no_plain_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="bytes cannot be converted to plain data"):
        plain({"data": b"payload"})
