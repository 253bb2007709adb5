from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from kinesis_sdk.common.errors import ConfigError, KinesisSdkError
from kinesis_sdk.common.validation import check_choice, check_int, check_seconds, check_text

Check = Callable[..., None]


def short(value: object) -> str | None:
    return "huge" if isinstance(value, int) and value.bit_length() > 256 else None


@pytest.mark.parametrize(
    ("check", "value", "limits"),
    [
        (check_int, 1, (1, 10)),
        (check_int, 10, (1, 10)),
        (check_int, 2**63 - 1, (0,)),
        (check_int, -3, (-3,)),
        (check_seconds, 0, (0.0,)),
        (check_seconds, 0.5, (0.5, 0.5)),
        (check_seconds, 10**300, (0.0,)),
        (check_text, "a", ()),
        (check_text, "", (0,)),
        (check_text, "é" * 5, (1, 5)),
        (check_choice, "a", (("a", "b"),)),
    ],
    ids=short,
)
def test_accepted(check: Check, value: object, limits: tuple[Any, ...]) -> None:
    check("field", value, *limits)


@pytest.mark.parametrize(
    ("check", "value", "limits", "accepted"),
    [
        (check_int, 0, (1, 10), "an integer from 1 to 10"),
        (check_int, 11, (1, 10), "an integer from 1 to 10"),
        (check_int, 0, (1,), "an integer of at least 1"),
        (check_int, 10**5000, (1,), "an integer of at least 1, and below 2^63"),
        (check_int, 51_201, (64, 51_200), "an integer from 64 to 51,200"),
        (check_int, True, (0, 10), "an integer from 0 to 10"),
        (check_int, 5.0, (1, 10), "an integer from 1 to 10"),
        (check_int, "5", (1, 10), "an integer from 1 to 10"),
        (check_int, None, (1, 10), "an integer from 1 to 10"),
        (check_int, 10**5000, (1, 10), "an integer from 1 to 10"),
        (check_seconds, -0.1, (0.0, 5.0), "seconds from 0 to 5"),
        (check_seconds, 5.1, (0.0, 5.0), "seconds from 0 to 5"),
        (check_seconds, 0, (0.1,), "at least 0.1 seconds"),
        (check_seconds, math.nan, (0.0,), "at least 0 seconds"),
        (check_seconds, math.inf, (0.0,), "at least 0 seconds"),
        (check_seconds, -math.inf, (-1.0,), "at least -1 seconds"),
        (check_seconds, 10**400, (0.0,), "at least 0 seconds"),
        (check_seconds, 10**5000, (0.0,), "at least 0 seconds"),
        (check_seconds, True, (0.0,), "at least 0 seconds"),
        (check_seconds, "1", (0.0,), "at least 0 seconds"),
        (check_text, "", (), "text of at least 1 characters"),
        (check_text, "abc", (1, 2), "text of 1 to 2 characters"),
        (check_text, b"abc", (1,), "text of at least 1 characters"),
        (check_text, None, (), "text of at least 1 characters"),
        (check_choice, "c", (("a", "b"),), "one of a, b"),
        (check_choice, None, (("a", "b"),), "one of a, b"),
        (check_choice, [10**5000], (("a", "b"),), "one of a, b"),
        (check_choice, ["a"], (("a", "b"),), "one of a, b"),
    ],
    ids=short,
)
def test_bad_values_are_rejected_with_field_value_and_range(
    check: Check, value: object, limits: tuple[Any, ...], accepted: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check("record_max_buffered_time", value, *limits)
    error = caught.value
    assert isinstance(error, (KinesisSdkError, ValueError))
    assert error.field == "record_max_buffered_time"
    assert error.value is value
    assert error.accepted == accepted
    message = str(error)
    assert message.startswith("record_max_buffered_time=")
    assert message.endswith(f"is invalid: expected {accepted}")
    assert len(message) < 300


def test_long_values_are_cut_in_the_message_only() -> None:
    with pytest.raises(ConfigError) as caught:
        check_choice("mode", "x" * 100_000, ("a",))
    assert len(str(caught.value)) < 300
    assert caught.value.value == "x" * 100_000
