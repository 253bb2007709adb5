"""GetRecords with records that the SDK decodes itself."""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.records import KinesisRecord, check_records
from kinesis_sdk.common.response_header import ResponseHeader
from kinesis_sdk.common.transport import cbor
from kinesis_sdk.common.transport.calls import Attempt, Transport
from kinesis_sdk.common.transport.decoding import (
    MALFORMED,
    Content,
    check_count,
    decode,
    incomplete,
    moment_of,
)

_SIMPLE = {"Records", "NextShardIterator", "MillisBehindLatest"}
"""Members of a response that is not the last of its shard; they need no conversion."""


class GetRecordsPage(NamedTuple):
    """Response of one GetRecords call.

    Attributes:
        records: Records in order; arrival times are UTC.
        next_iterator: Iterator for the next call; None at the end of the shard.
        header: Facts of the response besides its records, except facts that depend on the shard.
        child_shards: ``ChildShards`` of the response, at the end of the shard.
        metadata: ``ResponseMetadata`` with ``RequestId``, ``HTTPHeaders`` and more; empty for clients without it.
    """

    records: list[KinesisRecord]
    next_iterator: str | None
    header: ResponseHeader
    child_shards: list[dict[str, Any]] | None
    metadata: Mapping[str, Any]


def get_records(
    client: KinesisClient, iterator: str, limit: int, stream_arn: str | None = None
) -> GetRecordsPage:
    """Make one GetRecords call.

    Args:
        client: boto3 Kinesis client or one of its shape.
        iterator: Shard iterator.
        limit: Maximum number of records to return, 1 to 10,000.
        stream_arn: ARN of the stream for the request; None if unknown.

    Raises:
        AwsError: If the call fails.
        ProtocolError: If the response cannot be read. No record is lost: the iterator remains valid.
    """
    request: dict[str, Any] = {"ShardIterator": iterator, "Limit": limit}
    if stream_arn:
        request["StreamARN"] = stream_arn
    with translate_errors("GetRecords", client), decoding("GetRecords"):
        if not isinstance(client, Transport):
            return _page(client.get_records(**request))
        in_cbor = client.speaks_cbor and client.large_records.get(stream_arn, False)
        attempt = client.attempt("GetRecords", request, _body(request, in_cbor=in_cbor), in_cbor=in_cbor)
        page = _page_of(attempt)
        if page is None:
            return _page_by_boto3(attempt, request)
        if client.speaks_cbor and page.records:
            some = page.records[:: len(page.records) // 8 + 1]
            client.large_records[stream_arn] = cbor.is_cheaper([record.data for record in some])
        return page


class decoding:  # noqa: N801 - as `translate_errors`
    """Raise `ProtocolError` for a response that cannot be decoded, in any layer."""

    __slots__ = ("_operation",)

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, (UnicodeDecodeError, Base64Error)):
            raise ProtocolError(f"{self._operation}: cannot decode the response: {error}") from error


def _body(request: dict[str, Any], *, in_cbor: bool) -> bytes | None:
    """Return the request in JSON, as botocore writes it, or in CBOR; None if botocore would reject a parameter."""
    for name, value in request.items():
        good = type(value) is int and value > 0 if name == "Limit" else type(value) is str and value
        if not good:
            return None
    if in_cbor:
        return cbor.OPEN_MAP + cbor.members(request) + cbor.CLOSE
    return json.dumps(request).encode("ascii")


def _page_of(attempt: Attempt) -> GetRecordsPage | None:
    """Return the page of a response that bypassed boto3; None if boto3 must make the call or read the response.

    Raises:
        ProtocolError: If a record is incomplete or malformed, or cannot be decoded.
    """
    if attempt.body is None:
        return None
    content = cbor.decode(attempt.body) if attempt.is_cbor else decode(attempt.body)
    if content is None:
        return None
    rest = content.rest
    following, behind = rest.get("NextShardIterator"), rest.get("MillisBehindLatest")
    response: Mapping[str, Any] | None
    if (
        rest.keys() <= _SIMPLE
        and (following is None or type(following) is str)
        and (behind is None or type(behind) is int)
    ):
        rest["ResponseMetadata"] = attempt.metadata()
        response = rest if attempt.accepts(rest) else None
    else:
        response = attempt.parse(json.dumps(rest).encode("ascii"))
    return None if response is None else _page(response)._replace(records=content.records)


def _page_by_boto3(attempt: Attempt, request: dict[str, Any]) -> GetRecordsPage:
    """Return the page of a response from which boto3 reads all parts but the records."""
    content: Content | None = None

    def without_records(body: bytes) -> bytes:
        nonlocal content
        content = decode(body)  # for each attempt of boto3; the last attempt counts
        return body if content is None else json.dumps(content.rest).encode("ascii")

    attempt.shorten = without_records
    with attempt.by_boto3() as plain:
        page = _page(plain.get_records(**request))
    return page if content is None else page._replace(records=content.records)


def _page(response: Mapping[str, Any]) -> GetRecordsPage:
    """Return the page of a response of boto3.

    Raises:
        ProtocolError: If the response has no list of records, or a record is incomplete or malformed.
    """
    items = response.get("Records")
    if not isinstance(items, list):
        raise ProtocolError("GetRecords: the response has no list of Records")
    check_count(len(items))
    try:
        records = [_in_utc(KinesisRecord.from_api(item)) for item in items]
        check_records(records)
        following = response.get("NextShardIterator") or None
        header = ResponseHeader.from_api(response, ended=following is None)
    except MALFORMED as error:
        raise incomplete(error) from error
    return GetRecordsPage(
        records,
        following,
        header,
        response.get("ChildShards"),
        response.get("ResponseMetadata") or {},
    )


def _in_utc(record: KinesisRecord) -> KinesisRecord:
    """Return a record of boto3, or of a client of its shape, with its arrival time in UTC."""
    arrival = record.approximate_arrival_timestamp
    if type(arrival) is datetime and arrival.tzinfo is timezone.utc:
        return record
    return record._replace(approximate_arrival_timestamp=moment_of(arrival))
