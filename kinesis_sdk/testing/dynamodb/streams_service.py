"""The DynamoDB Streams service: ListStreams, DescribeStream, GetShardIterator, GetRecords. Values are in wire form."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from kinesis_sdk.common.clock import Clock
from kinesis_sdk.testing.dynamodb.change_streams import ChangeStream, ChangeStreams, StreamShard
from kinesis_sdk.testing.errors import AwsError, constraint, validation

_ITERATOR_SECONDS = 900.0
_PAGE_SHARDS = 100
_PAGE_RECORDS = 1000
_PAGE_BYTES = 1 << 20
_MIN_DIGITS, _MAX_DIGITS = 21, 40
_AT, _AFTER = "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"


def _limit(request: dict[str, Any], most: int) -> int:
    limit = request.get("Limit", most)
    if not isinstance(limit, int) or limit < 1:
        raise constraint("limit", limit, "have value greater than or equal to 1")
    if limit > most:
        raise validation(f"One or more parameter values were invalid: Limit cannot be greater than {most}")
    return limit


class FakeDynamoDBStreams:
    """The service of one account and region. Thread-safe.

    `operations` maps an operation's name to a function that takes a request and returns a response, both in wire form.
    """

    target_prefix = "DynamoDBStreams_20120810"

    def __init__(self, streams: ChangeStreams, clock: Clock) -> None:
        self._streams = streams
        self._clock = clock
        self.operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "ListStreams": self.list_streams,
            "DescribeStream": self.describe_stream,
            "GetShardIterator": self.get_shard_iterator,
            "GetRecords": self.get_records,
        }

    def _find(self, arn: object) -> ChangeStream:
        stream = self._streams.find(arn)
        if stream is None:
            raise AwsError(
                "ResourceNotFoundException", f"Requested resource not found: Stream: {arn} not found"
            )
        return stream

    def list_streams(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListStreams: 100 streams a page."""
        limit = _limit(request, 100)
        after = request.get("ExclusiveStartStreamArn") or ""
        found = [s for s in self._streams.list(request.get("TableName")) if s.arn > after]
        response: dict[str, Any] = {
            "Streams": [
                {"StreamArn": s.arn, "TableName": s.table_name, "StreamLabel": s.label} for s in found[:limit]
            ]
        }
        if len(found) > limit:
            response["LastEvaluatedStreamArn"] = found[limit - 1].arn
        return response

    def describe_stream(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeStream: 100 shards a page, ordered by id. With a filter, returns only the children of one shard."""
        limit = _limit(request, _PAGE_SHARDS)
        stream = self._find(request.get("StreamArn"))
        chosen = request.get("ShardFilter")
        if chosen is not None and (chosen.get("Type") != "CHILD_SHARDS" or not chosen.get("ShardId")):
            raise validation("ShardFilter needs the Type CHILD_SHARDS and a ShardId")
        with stream.lock:
            after = request.get("ExclusiveStartShardId") or ""
            shards = [
                stream.shards[shard_id]
                for shard_id in sorted(stream.shards)
                if shard_id > after
                and (chosen is None or stream.shards[shard_id].parent == chosen["ShardId"])
            ]
            description = {**stream.describe(), "Shards": [shard.describe() for shard in shards[:limit]]}
        if len(shards) > limit:
            description["LastEvaluatedShardId"] = shards[limit - 1].shard_id
        return {"StreamDescription": description}

    def get_shard_iterator(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetShardIterator. Raises TrimmedDataAccessException if the record of the sequence number was trimmed."""
        kind, sequence = request.get("ShardIteratorType"), request.get("SequenceNumber")
        stream = self._find(request.get("StreamArn"))
        with stream.lock:
            shard = stream.shards.get(request.get("ShardId") or "")
            if shard is None:
                raise AwsError(
                    "ResourceNotFoundException", "Requested resource not found: Shard does not exist"
                )
            if kind in {"TRIM_HORIZON", "LATEST"}:
                if sequence is not None:
                    raise validation(
                        "One or more parameter values were invalid: SequenceNumber should not be passed for this "
                        "iterator type"
                    )
                place = shard.trimmed if kind == "TRIM_HORIZON" else shard.end
            elif kind in {_AT, _AFTER}:
                place = self._place(stream, shard, sequence, after=kind == _AFTER)
            else:
                raise constraint("shardIteratorType", kind, "satisfy enum value set")
            return {"ShardIterator": self._token(stream, shard, place)}

    @staticmethod
    def _place(stream: ChangeStream, shard: StreamShard, sequence: object, *, after: bool) -> int:
        if not isinstance(sequence, str) or not sequence.isdecimal():
            raise validation("One or more parameter values were invalid: Invalid SequenceNumber")
        if not _MIN_DIGITS <= len(sequence) <= _MAX_DIGITS:
            raise constraint("sequenceNumber", sequence, "have between 21 and 40 digits")
        number = int(sequence)
        last = stream.last_sequence if shard.ending_sequence is None else shard.ending_sequence
        if not shard.first_sequence <= number <= last:
            raise validation("One or more parameter values were invalid: SequenceNumber is not of this shard")
        if number <= shard.trimmed_through:
            raise _trimmed()
        return shard.index_of(number, after=after)

    def get_records(self, request: dict[str, Any], *, empty: bool = False) -> dict[str, Any]:
        """GetRecords: up to 1,000 records or 1 MB.

        An iterator expires after 15 minutes. With `empty`, returns no records and an iterator for the same position, even if records
        follow. Raises TrimmedDataAccessException if the next record was trimmed.
        """
        limit = _limit(request, _PAGE_RECORDS)
        arn, shard_id, place, issued = self._read(request.get("ShardIterator"))
        if self._clock.time() - issued > _ITERATOR_SECONDS:
            raise AwsError(
                "ExpiredIteratorException", "The provided iterator exceeds the maximum age allowed."
            )
        stream = self._find(arn)
        with stream.lock:
            shard = stream.shards.get(shard_id)
            if shard is None:
                raise AwsError(
                    "ResourceNotFoundException", "Requested resource not found: Shard does not exist"
                )
            if place < shard.trimmed:
                raise _trimmed()
            records: list[dict[str, Any]] = []
            size = 0
            for record in () if empty else shard.records[place - shard.trimmed :][:limit]:
                size += record["dynamodb"]["SizeBytes"]
                if records and size > _PAGE_BYTES:
                    break
                records.append(record)
            following = place + len(records)
            response: dict[str, Any] = {"Records": records}
            if shard.ending_sequence is None or following < shard.end or empty:
                response["NextShardIterator"] = self._token(stream, shard, following)
            return response

    def position_of(self, iterator: object) -> tuple[str | None, str] | None:
        """Return the table and the shard of an iterator; None for other text."""
        try:
            arn, shard_id, _, _ = self._read(iterator)
        except AwsError:
            return None
        return table_of(arn), shard_id

    def _token(self, stream: ChangeStream, shard: StreamShard, place: int) -> str:
        content = json.dumps([shard.shard_id, place, self._clock.time()])
        return f"{stream.arn}|1|{base64.b64encode(content.encode()).decode()}"

    @staticmethod
    def _read(iterator: object) -> tuple[str, str, int, float]:
        try:
            arn, _, content = str(iterator).split("|")
            shard_id, place, issued = json.loads(base64.b64decode(content))
        except ValueError:
            raise validation("Invalid ShardIterator") from None
        return arn, str(shard_id), int(place), float(issued)


def table_of(arn: str) -> str | None:
    """Return the table in the ARN of a stream; None for other text."""
    _, _, rest = arn.partition(":table/")
    return rest.partition("/")[0] or None


def _trimmed() -> AwsError:
    return AwsError("TrimmedDataAccessException", "The data you are trying to access has been trimmed.")
