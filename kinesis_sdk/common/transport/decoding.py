"""Records of a GetRecords response, decoded from its JSON.

With msgspec (extra ``fast``), records of 100 bytes cost half as much CPU time. Results and rejected responses are the
same: the standard library decodes, or rejects, every response that msgspec rejects.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, NamedTuple

from kinesis_sdk.common.base64coding import decode as decode_base64
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.records import KinesisRecord, check_records

MAX_RECORDS = 10_000
"""Maximum number of records of a GetRecords response (API reference)."""

MALFORMED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, OSError)
"""Exceptions that malformed records cause; OSError comes from a time that the platform cannot represent."""

# Makes a named tuple from a complete tuple at a third of the cost of the constructor.
new: Callable[..., Any] = tuple.__new__


class Content(NamedTuple):
    """Content of a response: its records in order, with arrival times in UTC, and its other members."""

    records: list[KinesisRecord]
    rest: dict[str, Any]  # parsed JSON, with an empty list of ``Records``


def decode_by_standard_library(body: bytes) -> Content | None:
    """Decode a response; see `decode`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    items = document.get("Records") if isinstance(document, dict) else None
    if not isinstance(items, list):
        return None
    check_count(len(items))
    records: list[KinesisRecord] = []
    add = records.append
    stamp: Any = None
    moment: datetime | None = None
    try:
        for item in items:
            # Records of the same PutRecords call have the same arrival time.
            arrival = item.get("ApproximateArrivalTimestamp")
            if arrival != stamp:
                stamp = arrival
                moment = moment_of(stamp)
            get = item.get
            add(
                new(
                    KinesisRecord,
                    (
                        decode_base64(item["Data"]),
                        get("PartitionKey") or "",
                        item["SequenceNumber"],
                        moment,
                        get("EncryptionType"),
                    ),
                )
            )
        check_records(records)
    except MALFORMED as error:
        raise incomplete(error) from error
    document["Records"] = []
    return Content(records, document)


def decode(body: bytes) -> Content | None:
    """Decode the body of a response; None if it is not a JSON object with a list of ``Records``.

    Raises:
        ProtocolError: If a record is incomplete or malformed, or there are more than 10,000.
    """
    return fastest()(body)


@functools.cache
def fastest() -> Callable[[bytes], Content | None]:
    """Return the fastest decoder that is installed."""
    try:
        from kinesis_sdk.common.transport.typed_decoding import decode_by_msgspec
    except ImportError:
        return decode_by_standard_library
    return decode_by_msgspec


def check_count(count: int) -> None:
    """Raise `ProtocolError` for a response of more than 10,000 records."""
    if count > MAX_RECORDS:
        raise ProtocolError(f"GetRecords: {count:,} records, the maximum is {MAX_RECORDS:,}")


def incomplete(error: Exception) -> ProtocolError:
    """Return the error for a record that cannot be read."""
    return ProtocolError(f"GetRecords: a record cannot be read ({type(error).__name__}: {error})")


def moment_of(value: Any) -> datetime | None:
    """Return an arrival time in UTC from epoch seconds, a datetime, or the text that some emulators send."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc)
    if value is None:
        return None
    if not isinstance(value, datetime):
        from botocore.utils import parse_timestamp

        value = parse_timestamp(value)
    moment: datetime = value.astimezone(timezone.utc)
    return moment
