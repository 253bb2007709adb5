"""Tracebacks in the log never show a payload, wherever the error of the library that quotes it hangs."""

from __future__ import annotations

import sys
import traceback

import pytest

from kinesis_sdk.common.errors import DeserializationError
from kinesis_sdk.common.log_fields import loggable

SECRET = "card number 4711"


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def unreadable(secret: str = SECRET) -> DeserializationError:
    """Return an error as ``record.value`` raises it: its cause quotes the payload."""
    try:
        try:
            raise ValueError(f"not JSON: {secret}")
        except ValueError as cause:
            raise DeserializationError(
                "not JSON", stream="orders", shard_id=None, sequence_number="1", sub_sequence_number=0
            ) from cause
    except DeserializationError as error:
        return error


def test_the_cause_of_an_unreadable_record_is_left_out() -> None:
    error = unreadable()
    assert SECRET in shown(error)
    assert SECRET not in shown(loggable(error))


def test_an_error_without_payload_is_logged_as_it_is() -> None:
    error = KeyError("k")
    assert loggable(error) is error


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
class TestGroups:
    def group(self, *members: Exception) -> Exception:
        group = ExceptionGroup("unhandled errors in a TaskGroup", members)  # type: ignore[name-defined,unused-ignore]  # noqa: F821
        group.add_note("while processing a batch")
        return group  # type: ignore[no-any-return,unused-ignore]

    def test_a_group_is_logged_without_the_payloads_of_its_members(self) -> None:
        error = self.group(KeyError("other"), self.group(unreadable()))
        assert SECRET in shown(error)
        text = shown(loggable(error))
        assert SECRET not in text
        for kept in (
            "KeyError: 'other'",
            "DeserializationError",
            "in a TaskGroup",
            "while processing a batch",
        ):
            assert kept in text

    def test_a_group_as_a_cause(self) -> None:
        error = RuntimeError("handler failed")
        error.__cause__ = self.group(unreadable())
        text = shown(loggable(error))
        assert SECRET not in text
        assert "handler failed" in text
        assert "DeserializationError" in text

    def test_a_group_of_a_class_with_a_constructor_of_its_own(self) -> None:
        class Failures(ExceptionGroup):  # type: ignore[name-defined,misc,unused-ignore]  # noqa: F821
            def __new__(cls, count: int, members: list[Exception]) -> Failures:
                made = super().__new__(cls, f"{count} failures", members)
                made.count = count
                return made  # type: ignore[no-any-return,unused-ignore]

        text = shown(loggable(Failures(1, [unreadable()])))
        assert SECRET not in text
        assert "Failures: 1 failures" in text

    def test_a_group_without_payloads_is_logged_as_it_is(self) -> None:
        error = self.group(KeyError("k"))
        assert loggable(error) is error
