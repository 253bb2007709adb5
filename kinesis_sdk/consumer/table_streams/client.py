"""DynamoDB Streams in the form of the Kinesis API, for the calls of the consumer.

| Kinesis | DynamoDB Streams |
| --- | --- |
| ListShards, 1,000 shards for each page | DescribeStream, 100 |
| GetShardIterator ``AT_TIMESTAMP`` | ``TRIM_HORIZON``; older records are read and dropped |
| expired start: reading begins at the oldest record | TrimmedDataAccessException; here the same as in Kinesis, and logged |
| ``ChildShards`` in the last response of a shard | DescribeStream with the filter ``CHILD_SHARDS`` |
| ``MillisBehindLatest`` | age of the newest record of the response; see `_lag` |
| hash key ranges | none; all shards get 0 to 1, as in the lease rows of the Java adapter |

The client keeps no state: its iterators contain all data that the next call needs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import translate_errors
from kinesis_sdk.common.change_records import encode_change, encode_item
from kinesis_sdk.common.errors import AwsError, ExpiredIteratorError, InvalidPositionError, ProtocolError
from kinesis_sdk.common.log_fields import FieldLogger, log_fields
from kinesis_sdk.common.paging import PageLimit
from kinesis_sdk.common.sequence import AT_TIMESTAMP, TRIM_HORIZON
from kinesis_sdk.common.service_clock import response_date
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.truncated_responses import reject_truncated_responses

_LOGGER = FieldLogger(logging.getLogger(__name__))

MAX_RECORDS = 1000
"""Maximum records of one GetRecords response (API reference)."""

_MAX_SHARDS = 100
"""Maximum shards of one DescribeStream response (API reference)."""

_MAX_PAGES = 10_000

_HASH_KEYS = {"StartingHashKey": "0", "EndingHashKey": "1"}

_TIME_RESOLUTION = 2.0
"""Seconds by which the age of a new record can appear too high: its time and ``Date`` are rounded down to whole seconds."""

_EMPTY_AT_TIP = 3
"""Consecutive empty responses after which a shard counts as read to its tip. A single empty response proves nothing: "it might take
multiple calls to get to a portion of the shard that contains stream records" (API reference)."""


class _Iterator(NamedTuple):
    """Content of an iterator of this client.

    Attributes:
        not_before: Epoch seconds before which records are dropped, up to the first record that is not older; None drops no records.
        empty: Number of consecutive empty responses so far.
        iterator: Iterator of DynamoDB Streams.
    """

    shard_id: str
    not_before: int | None
    empty: int
    iterator: str

    def __str__(self) -> str:
        not_before = "" if self.not_before is None else self.not_before
        return f"{self.shard_id}/{not_before}/{self.empty}/{self.iterator}"

    @classmethod
    def read(cls, text: str) -> _Iterator:
        """Read the text form."""
        shard_id, not_before, empty, iterator = text.split("/", 3)
        return cls(shard_id, int(not_before) if not_before else None, int(empty), iterator)


class TableStreamClient:
    """The calls of `KinesisClient` that read a stream, for streams of tables. Thread-safe if the boto3 client is.

    Responses have Kinesis's members. Errors are errors of the SDK and name the operation of DynamoDB Streams. `former` are
    earlier streams of the table that can still be read; none if the stream was given by its ARN.
    """

    def __init__(self, client: Any, former: Sequence[StreamId] = ()) -> None:
        reject_truncated_responses(client)
        self.former: tuple[StreamId, ...] = tuple(former)
        self._client = client
        self.meta: Any = getattr(client, "meta", None)

    def list_shards(self, **request: Any) -> dict[str, Any]:
        """Return a page of shards. Takes ``StreamARN`` or ``NextToken``, and ``MaxResults``."""
        token = request.get("NextToken")
        arn, _, after = (token or request["StreamARN"]).partition("|")
        wanted = {"StreamArn": arn, "Limit": min(request.get("MaxResults", _MAX_SHARDS), _MAX_SHARDS)}
        if after:
            wanted["ExclusiveStartShardId"] = after
        description, metadata = self._describe(wanted)
        response: dict[str, Any] = {
            "Shards": [{**shard, "HashKeyRange": _HASH_KEYS} for shard in description["Shards"]],
            "ResponseMetadata": metadata,
        }
        last = description.get("LastEvaluatedShardId")
        if last:
            response["NextToken"] = f"{arn}|{last}"
        return response

    def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        """Return an iterator, or raise `InvalidPositionError` if DynamoDB Streams rejects the sequence number.

        Takes the parameters of Kinesis, with ``StreamARN``.
        """
        kind, shard_id = request["ShardIteratorType"], request["ShardId"]
        wanted = {"StreamArn": request["StreamARN"], "ShardId": shard_id, "ShardIteratorType": kind}
        sequence_number = request.get("StartingSequenceNumber")
        not_before = None
        if kind == AT_TIMESTAMP:
            # Record times are whole seconds, so a record from the same second as the timestamp may be younger.
            not_before = int(request["Timestamp"].timestamp())
            wanted["ShardIteratorType"] = TRIM_HORIZON
        elif sequence_number is not None:
            wanted["SequenceNumber"] = sequence_number
        try:
            response = self._open(wanted)
        except AwsError as error:
            if sequence_number is None:
                raise
            if error.code == "ValidationException":
                raise InvalidPositionError(
                    f"shard {shard_id} cannot be read from {sequence_number}: {error.message}",
                    operation=error.operation,
                    code=error.code,
                    endpoint=error.endpoint,
                    status=error.status,
                    request_id=error.request_id,
                ) from error
            if error.code != "TrimmedDataAccessException":
                raise
            _LOGGER.warning(
                "shard %s: position %s %s is older than 24 hours, resuming at the oldest record; records in between may "
                "have expired unread",
                shard_id,
                kind,
                sequence_number,
                extra=log_fields(stream=request["StreamARN"], shard=shard_id),
            )
            response = self._open(
                {"StreamArn": wanted["StreamArn"], "ShardId": shard_id, "ShardIteratorType": TRIM_HORIZON}
            )
        iterator = response.get("ShardIterator")
        if not iterator:
            raise ProtocolError(f"GetShardIterator: the response for shard {shard_id} has no iterator")
        # A LATEST iterator starts at the tip, so a single empty response shows that the tip was read.
        empty = _EMPTY_AT_TIP if kind == "LATEST" else 0
        return {
            "ShardIterator": str(_Iterator(shard_id, not_before, empty, iterator)),
            "ResponseMetadata": response.get("ResponseMetadata"),
        }

    def _open(self, wanted: dict[str, Any]) -> Mapping[str, Any]:
        with translate_errors("GetShardIterator", self._client):
            response: Mapping[str, Any] = self._client.get_shard_iterator(**wanted)
        return response

    def get_records(self, **request: Any) -> dict[str, Any]:
        """Return the next records. Takes ``ShardIterator``, ``Limit`` and ``StreamARN``.

        The response has ``ChildShards`` at the end of a shard: None while the children are not yet known, an empty list if the
        stream is disabled and the shard has none. An iterator that is 15 minutes old, or whose next record was trimmed, raises
        `ExpiredIteratorError`.
        """
        before = _Iterator.read(request["ShardIterator"])
        try:
            with translate_errors("GetRecords", self._client):
                response = self._client.get_records(
                    ShardIterator=before.iterator, Limit=min(request["Limit"], MAX_RECORDS)
                )
        except AwsError as error:
            if error.code != "TrimmedDataAccessException":
                raise
            # A new iterator at the same position shows whether records are missing.
            raise ExpiredIteratorError(error.message, operation="GetRecords", code=error.code) from error
        items = response.get("Records")
        if not isinstance(items, list):
            raise ProtocolError("GetRecords: the response has no list of Records")
        metadata = response.get("ResponseMetadata") or {}
        try:
            records = [_record(item) for item in items]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(
                f"GetRecords: a record cannot be read ({type(error).__name__}: {error})"
            ) from error
        lag, empty = _lag(records, before.empty, response_date(metadata))
        not_before = before.not_before
        if not_before is not None and records:
            first = next((index for index, one in enumerate(records) if _age(one) >= not_before), None)
            if first is not None:
                not_before = None
            records = records[first:] if first is not None else []
        result: dict[str, Any] = {"Records": records, "ResponseMetadata": metadata}
        if lag is not None:
            result["MillisBehindLatest"] = lag
        following = response.get("NextShardIterator")
        if following:
            result["NextShardIterator"] = str(_Iterator(before.shard_id, not_before, empty, following))
        else:
            result["ChildShards"] = self._children(request["StreamARN"], before.shard_id)
        return result

    def _children(self, arn: str, shard_id: str) -> list[dict[str, Any]] | None:
        """Return the children of a shard that has ended. Makes one DescribeStream call for each 100 shards that it describes."""
        from botocore.exceptions import ParamValidationError

        wanted: dict[str, Any] = {"StreamArn": arn, "Limit": _MAX_SHARDS}
        chosen = {"Type": "CHILD_SHARDS", "ShardId": shard_id}
        children: list[dict[str, Any]] = []
        limit = PageLimit("DescribeStream", _MAX_PAGES)
        while True:
            try:
                description, _metadata = self._describe({**wanted, "ShardFilter": chosen})
            except AwsError as error:
                if not isinstance(error.__cause__, ParamValidationError):
                    raise
                description, _metadata = self._describe(wanted)  # botocore from before the filter existed
            # An emulator may ignore the filter.
            children += [shard for shard in description["Shards"] if shard.get("ParentShardId") == shard_id]
            last = description.get("LastEvaluatedShardId")
            if not last or last == wanted.get("ExclusiveStartShardId"):
                break
            limit.check(last)
            wanted["ExclusiveStartShardId"] = last
        if not children and description.get("StreamStatus") not in {"DISABLING", "DISABLED"}:
            return None
        return [
            {"ShardId": child["ShardId"], "ParentShards": [shard_id], "HashKeyRange": _HASH_KEYS}
            for child in children
        ]

    def _describe(self, wanted: dict[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        with translate_errors("DescribeStream", self._client):
            response = self._client.describe_stream(**wanted)
        description = response.get("StreamDescription")
        if not isinstance(description, Mapping) or not isinstance(description.get("Shards"), list):
            raise ProtocolError("DescribeStream: the response has no list of Shards")
        return description, response.get("ResponseMetadata") or {}


def _record(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of DynamoDB Streams with the members of a Kinesis record."""
    change = item["dynamodb"]
    if not isinstance(change["Keys"], Mapping):
        raise TypeError("Keys is not an object")
    created = change.get("ApproximateCreationDateTime")
    if isinstance(created, datetime):
        created = created.astimezone(timezone.utc)
    return {
        "Data": encode_change(item),
        "PartitionKey": encode_item(change["Keys"]),
        "SequenceNumber": change["SequenceNumber"],
        "ApproximateArrivalTimestamp": created,
    }


def _age(record: Mapping[str, Any]) -> float:
    """Return the time of a record in epoch seconds; a record without a time is never dropped."""
    created = record["ApproximateArrivalTimestamp"]
    return created.timestamp() if isinstance(created, datetime) else float("inf")


def _lag(records: list[dict[str, Any]], empty: int, date: float | None) -> tuple[int | None, int]:
    """Return the lag of a response in milliseconds, and the new number of consecutive empty responses.

    DynamoDB Streams reports no lag. The age of the newest record is an upper bound: if no record was written after it, the lag
    is 0. An age within the resolution of the times counts as 0. Without records, the lag is unknown until `_EMPTY_AT_TIP`
    consecutive responses were empty; after a read at the tip, one empty response is enough. ``date`` is in epoch seconds.
    """
    if not records:
        empty = min(empty + 1, _EMPTY_AT_TIP)
        return (0 if empty == _EMPTY_AT_TIP else None), empty
    newest = max(map(_age, records))
    if date is None or newest == float("inf"):
        return None, 0
    age = date - newest
    if age < _TIME_RESOLUTION:
        return 0, _EMPTY_AT_TIP
    return int(age * 1000), 0
