"""The event that the stream of a DynamoDB table passes to a Lambda function, and a handler from a function of one change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, overload

from kinesis_sdk.common.change_records import ChangeRecord, encode_item
from kinesis_sdk.common.errors import ConfigError, InvalidEventError
from kinesis_sdk.common.sequence import is_sequence_number
from kinesis_sdk.lambda_events.events import Delivery, arrival_time
from kinesis_sdk.lambda_events.handler import LambdaHandler, make_policy, process_event

SOURCE = "aws:dynamodb"

ChangeFunction = Callable[[ChangeRecord], None]


class ChangeEvent:
    """An event of the stream of a DynamoDB table, opened.

    This class is for functions that process a whole batch at once; `change_handler` is simpler.

    Args:
        event: The event as Lambda passes it.

    Attributes:
        stream_arn: ARN of the table's stream; empty if there are no changes.
        shard_id: Empty, because the event does not name the shard.
        changes: The changes, in the order of the shard.

    Raises:
        InvalidEventError: If ``event`` is not an event of DynamoDB Streams, or a change is damaged. The message names the position.
    """

    shard_id = ""

    def __init__(self, event: Mapping[str, Any]) -> None:
        items = event.get("Records") if isinstance(event, Mapping) else None
        if not isinstance(items, list):
            raise InvalidEventError(
                "Records", "expected a list of changes, as in an event of DynamoDB Streams"
            )
        self.changes: Sequence[ChangeRecord] = [
            _change(f"Records[{index}]", item) for index, item in enumerate(items)
        ]
        self.stream_arn: str = str(items[0].get("eventSourceARN", "")) if items else ""

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield each change, in order."""
        for change in self.changes:
            yield Delivery(f"{self.stream_arn}:{change.sequence_number}", change, (change,))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} changes of {self.stream_arn or 'no table'}>"

    def success(self) -> dict[str, Any]:
        """Return the response that reports every change as processed."""
        return {"batchItemFailures": []}

    def failure_at(self, record: Any) -> dict[str, Any]:
        """Return the response that makes Lambda deliver the rest of the event again, from ``record`` on.

        If the mapping lacks the response type ``ReportBatchItemFailures``, Lambda **treats the whole batch as processed**; in this case,
        raise an error instead.

        Args:
            record: The first change that was not processed.

        Raises:
            ValueError: If the change is not in this event.
        """
        number = record.sequence_number
        if all(change.sequence_number != number for change in self.changes):
            raise ValueError(f"the event has no change with the sequence number {number}")
        return {"batchItemFailures": [{"itemIdentifier": number}]}


@overload
def change_handler(function: ChangeFunction, /) -> LambdaHandler: ...
@overload
def change_handler(
    *,
    report_batch_item_failures: bool = False,
    dead_letter: Callable[[ChangeRecord, Exception], None] | None = None,
    attempts: int = 1,
    retry_only: tuple[type[Exception], ...] = (),
    time_reserve: float = 0.0,
) -> Callable[[ChangeFunction], LambdaHandler]: ...
def change_handler(
    function: ChangeFunction | None = None,
    /,
    *,
    report_batch_item_failures: bool = False,
    dead_letter: Callable[[ChangeRecord, Exception], None] | None = None,
    attempts: int = 1,
    retry_only: tuple[type[Exception], ...] = (),
    time_reserve: float = 0.0,
) -> LambdaHandler | Callable[[ChangeFunction], LambdaHandler]:
    """Make a Lambda handler for the stream of a DynamoDB table from a function of one change.

    The function is called with each change, in order. If the function raises, the handler acts as `kinesis_handler` does. The response
    names the failed change itself, because there are no aggregates.

    Args:
        function: The function of one change; its result is ignored.
        report_batch_item_failures: Whether the event source mapping has ``ReportBatchItemFailures`` among its
            ``FunctionResponseTypes``. **If it is True and the mapping lacks this type, Lambda treats failed changes as processed.**
        dead_letter: Called with a change whose function failed, and the error. When it returns, the change counts as processed.
        attempts: Calls of the function for a change before ``dead_letter``, without a pause; 1 to 100.
        retry_only: Exception classes that a change does not cause, and that never lead to a dead letter.
        time_reserve: Seconds before the function's timeout at which no further change is begun, 0 to 900; with 0, the handler continues
            until Lambda ends the process.

    Raises:
        ConfigError: If an argument has the wrong type or is out of range.
    """
    policy = make_policy(
        report_batch_item_failures=report_batch_item_failures,
        dead_letter=dead_letter,  # type: ignore[arg-type]  # it gets the changes that the event has
        attempts=attempts,
        retry_only=retry_only,
        time_reserve=time_reserve,
    )

    def decorate(function: ChangeFunction) -> LambdaHandler:
        if not callable(function):
            raise ConfigError("function", function, "a function of one change")

        @wraps(function)
        def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
            return process_event(ChangeEvent(event), context, function, policy)  # type: ignore[arg-type]  # of a change

        return handler

    return decorate if function is None else decorate(function)


def _change(place: str, item: Any) -> ChangeRecord:
    """Return a record of an event as the change that a worker delivers. Its blobs are base64 already."""
    source = item.get("eventSource") if isinstance(item, Mapping) else None
    if source != SOURCE:
        raise InvalidEventError(f"{place}.eventSource", f"expected {SOURCE!r}, not {source!r}")
    change = item.get("dynamodb")
    if not isinstance(change, Mapping) or not isinstance(change.get("Keys"), Mapping):
        raise InvalidEventError(f"{place}.dynamodb", "expected a change with its Keys")
    number, created = change.get("SequenceNumber"), change.get("ApproximateCreationDateTime")
    if not is_sequence_number(number):
        raise InvalidEventError(
            f"{place}.dynamodb.SequenceNumber", "expected decimal text of 1 to 129 digits"
        )
    return ChangeRecord(
        json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode(),
        encode_item(change["Keys"]),
        str(number),
        approximate_arrival_timestamp=None
        if created is None
        else arrival_time(f"{place}.dynamodb.ApproximateCreationDateTime", created, 1.0),
    )
