"""Events of the stream of a DynamoDB table."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from kinesis_sdk import ConfigError, InvalidEventError
from kinesis_sdk.lambda_events import ChangeEvent, change_handler
from tests.lambda_events.support import TABLE_ARN, table_change, table_event

NONE: dict[str, Any] = {"batchItemFailures": []}


def test_a_change_has_the_types_of_a_worker() -> None:
    image = {"id": {"N": "1"}, "blob": {"B": "AAE="}, "tags": {"SS": ["a"]}}
    (found,) = ChangeEvent({"Records": [table_change(1, NewImage=image)]}).changes
    assert (found.event_name, found.keys, found.old_image) == ("MODIFY", {"id": Decimal(1)}, None)
    new = found.new_image
    assert new is not None
    assert (bytes(new["blob"]), new["tags"]) == (b"\x00\x01", {"a"})
    assert found.approximate_creation_time == datetime(2025, 11, 26, tzinfo=timezone.utc)
    assert found.sequence_number == "101"
    assert not found.is_expiry


def fail_at(number: int, seen: list[int]) -> Any:
    def function(found: Any) -> None:
        seen.append(int(found.keys["id"]))
        if seen[-1] == number:
            raise RuntimeError("no")

    return function


@pytest.mark.parametrize(("number", "seen"), [(2, [1, 2]), (9, [1, 2, 3])])
def test_the_response_names_the_change_that_failed(number: int, seen: list[int]) -> None:
    found: list[int] = []
    handler = change_handler(report_batch_item_failures=True)(fail_at(number, found))
    named = [{"itemIdentifier": str(100 + number)}] if number in seen else []
    assert handler(table_event(1, 2, 3), None) == {"batchItemFailures": named}
    assert found == seen


def test_the_first_change_and_a_mapping_without_reports_raise() -> None:
    for handler in (change_handler(fail_at(1, [])), change_handler(fail_at(2, []))):
        with pytest.raises(RuntimeError):
            handler(table_event(1, 2), None)


def test_a_dead_letter_gets_the_change() -> None:
    dead: list[tuple[str, str]] = []
    handler = change_handler(
        attempts=2, dead_letter=lambda found, error: dead.append((found.event_id, str(error)))
    )(fail_at(1, seen := []))
    assert handler(table_event(1, 2), None) == NONE
    assert (seen, dead) == ([1, 1, 2], [("id-1", "no")])


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        ({"Records": 7}, "Records"),
        ({"Records": [{"eventSource": "aws:kinesis"}]}, r"Records\[0\].eventSource"),
        ({"Records": [table_change(1) | {"dynamodb": {}}]}, r"Records\[0\].dynamodb"),
        ({"Records": [table_change(1, SequenceNumber="x")]}, "SequenceNumber"),
        ({"Records": [table_change(1, ApproximateCreationDateTime=1e300)]}, "ApproximateCreationDateTime"),
    ],
)
def test_a_damaged_event_is_named(broken: Any, place: str) -> None:
    with pytest.raises(InvalidEventError, match=place):
        ChangeEvent(broken)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match="attempts"):
        change_handler(attempts=2)
    with pytest.raises(ConfigError, match="function"):
        change_handler(7)  # type: ignore[call-overload]
    opened = ChangeEvent(table_event(1))
    assert (repr(opened), len(opened)) == (f"<ChangeEvent: 1 changes of {TABLE_ARN}>", 1)
    with pytest.raises(ValueError, match="999"):
        opened.failure_at(opened.changes[0]._replace(sequence_number="999"))
