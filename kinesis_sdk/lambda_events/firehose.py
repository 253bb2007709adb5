"""`firehose_transform`: a transformation function of Firehose from a function of one user record.

Firehose requires exactly one result for each of its records. The user records of an aggregate therefore share one result, which consists
of their joined outputs. Firehose opens aggregates of a Kinesis stream itself before it invokes the function
(AWS documentation); aggregates that a producer put into Firehose directly arrive here unopened.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, NamedTuple, overload

from kinesis_sdk.common.aggregate_reader import deaggregate
from kinesis_sdk.common.base64coding import encode
from kinesis_sdk.common.errors import ConfigError, InvalidEventError
from kinesis_sdk.common.records import KinesisRecord, without_payload
from kinesis_sdk.lambda_events.events import arrival_time, payload

_LOGGER = logging.getLogger("kinesis_sdk.lambda_events")

MAX_RESPONSE = 6 * 1024 * 1024
"""Maximum bytes of a synchronous response of Lambda (AWS documentation). A larger response fails all records of the event."""

_DROPPED = "Dropped"
_FAILED = "ProcessingFailed"


class FirehoseRecord(NamedTuple):
    """One user record of a transformation event.

    Attributes:
        data: Payload; ``repr`` shows its length only.
        record_id: Firehose's id; the user records of an aggregate share it.
        approximate_arrival_timestamp: Time at which Firehose received it (aware datetime), or None.
        partition_key: Partition key; empty if the source is not a Kinesis stream and the record was not in an aggregate.
        sequence_number: Sequence number in the Kinesis stream; empty if the source is not a Kinesis stream.
        sub_sequence_number: Index in the aggregate, from 0; 0 for a record that was not aggregated.
        shard_id: Shard of the Kinesis stream; empty if the source is not a Kinesis stream.
        aggregated: Whether it was in an aggregate that was opened here.
    """

    data: bytes
    record_id: str
    approximate_arrival_timestamp: datetime | None = None
    partition_key: str = ""
    sequence_number: str = ""
    sub_sequence_number: int = 0
    shard_id: str = ""
    aggregated: bool = False

    def __repr__(self) -> str:
        return without_payload(self)


class Transformed(NamedTuple):
    """Output with keys for dynamic partitioning.

    Attributes:
        data: Output.
        partition_keys: Values by name, for Firehose's ``partitionKeyFromLambda``. All user records of an aggregate must have the same
            values, because Firehose stores them as one record.
    """

    data: bytes | str
    partition_keys: Mapping[str, str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(data=<{len(self.data)}>, partition_keys={dict(self.partition_keys)!r})"


Output = bytes | str | Transformed | None
TransformFunction = Callable[[FirehoseRecord], Output]
LambdaHandler = Callable[[Mapping[str, Any], Any], dict[str, Any]]


@overload
def firehose_transform(function: TransformFunction, /) -> LambdaHandler: ...
@overload
def firehose_transform(
    *, retry_only: tuple[type[Exception], ...] = ()
) -> Callable[[TransformFunction], LambdaHandler]: ...
def firehose_transform(
    function: TransformFunction | None = None, /, *, retry_only: tuple[type[Exception], ...] = ()
) -> LambdaHandler | Callable[[TransformFunction], LambdaHandler]:
    """Make a transformation function of Firehose from a function of one user record.

    The function returns the output (bytes, or text that becomes UTF-8), a `Transformed`, or None to drop the record. If it raises,
    the whole Firehose record, with all user records of an aggregate, is reported as ``ProcessingFailed`` with its original data:
    Firehose writes it to the error output, so no record is lost. If the outputs exceed the 6 MiB that Lambda can return, the records
    that do not fit are reported in the same way.

    Args:
        function: The function of one record. The outputs of an aggregate are joined without a separator, so end each output with a newline
            if the destination needs one.
        retry_only: Exception classes that a record does not cause, for example for a database that is down: the invocation fails, and
            Firehose repeats it (three times, AWS documentation).

    Raises:
        ConfigError: If ``function`` is not callable.
    """

    def decorate(function: TransformFunction) -> LambdaHandler:
        if not callable(function):
            raise ConfigError("function", function, "a function of one record")

        @wraps(function)
        def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:  # noqa: ARG001 - Lambda passes it
            return _transform(event, function, retry_only)

        return handler

    return decorate if function is None else decorate(function)


def _transform(
    event: Mapping[str, Any], function: TransformFunction, retry_only: tuple[type[Exception], ...]
) -> dict[str, Any]:
    items = event.get("records") if isinstance(event, Mapping) else None
    if not isinstance(items, list):
        raise InvalidEventError(
            "records", "expected a list of records, as in a transformation event of Firehose"
        )
    results: list[dict[str, Any]] = []
    # Overhead: brackets, and for each record a result without data.
    size = 16 + sum(
        len(json.dumps(_result(item, _FAILED))) + 2 for item in items if isinstance(item, Mapping)
    )
    for index, item in enumerate(items):
        result = _transform_one(f"records[{index}]", item, function, retry_only)
        extra = len(json.dumps(result)) - len(json.dumps(_result(item, _FAILED)))
        if size + extra > MAX_RESPONSE:
            _LOGGER.error("the response is full; record %s is reported as failed", item["recordId"])
            result, extra = _result(item, _FAILED), 0
        size += extra
        results.append(result)
    return {"records": results}


def _result(item: Mapping[str, Any], status: str, data: str | None = None) -> dict[str, Any]:
    result = {"recordId": item.get("recordId"), "result": status}
    return result if data is None else {**result, "data": data}


def _transform_one(
    place: str, item: Any, function: TransformFunction, retry_only: tuple[type[Exception], ...]
) -> dict[str, Any]:
    records = _open(place, item)
    outputs: list[bytes] = []
    keys: list[dict[str, str]] = []
    has_keys = False
    try:
        for record in records:
            output = function(record)
            if output is None:
                continue
            if isinstance(output, Transformed):
                has_keys = True
                keys.append(dict(output.partition_keys))
                output = output.data
            else:
                keys.append({})
            if not isinstance(output, (bytes, str)):
                raise TypeError(f"the function returned {type(output).__name__}, not bytes, text or None")
            outputs.append(output.encode() if isinstance(output, str) else output)
        if any(each != keys[0] for each in keys):
            raise ValueError("the user records of one aggregate have different partition keys")
    except retry_only:
        raise
    except Exception:
        _LOGGER.exception("Firehose record %s failed; it goes to the error output", item["recordId"])
        return _result(item, _FAILED, item["data"])
    if not outputs:
        return _result(item, _DROPPED, item["data"])
    result = _result(item, "Ok", encode(b"".join(outputs)).decode())
    return {**result, "metadata": {"partitionKeys": keys[0]}} if has_keys else result


def _open(place: str, item: Any) -> list[FirehoseRecord]:
    """Return the user records of one record of an event."""
    if not isinstance(item, Mapping) or not isinstance(item.get("recordId"), str):
        raise InvalidEventError(f"{place}.recordId", "expected text")
    data, record_id = payload(f"{place}.data", item.get("data")), item["recordId"]
    arrival = item.get("approximateArrivalTimestamp")
    when = None if arrival is None else arrival_time(f"{place}.approximateArrivalTimestamp", arrival, 0.001)
    source = item.get("kinesisRecordMetadata") or {}
    if not isinstance(source, Mapping):
        raise InvalidEventError(f"{place}.kinesisRecordMetadata", "expected an object")
    number, shard_id = str(source.get("sequenceNumber") or ""), str(source.get("shardId") or "")
    key, sub = str(source.get("partitionKey") or ""), str(source.get("subsequenceNumber") or "")
    carrier = KinesisRecord(data, key, number, when)
    users = deaggregate([carrier])
    return [
        FirehoseRecord(
            user.data,
            record_id,
            when,
            user.partition_key,
            number,
            user.sub_sequence_number if user.aggregated or not sub.isdecimal() else int(sub),
            shard_id,
            user.aggregated,
        )
        for user in users
    ]
