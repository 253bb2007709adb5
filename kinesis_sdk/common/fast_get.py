"""GetRecords with records that the SDK decodes itself. `kinesis_sdk.common.fastpath` explains how it works."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.base64coding import decode
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.fast_hooks import MARK, Equipment, decoding
from kinesis_sdk.common.lean_calls import Attempt, LeanKinesis, document_of
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.records import KinesisRecord, check_records
from kinesis_sdk.common.response_header import ResponseHeader

_LOGGER = FieldLogger(logging.getLogger(__name__))

_WORTH_IT = 4
"""Minimum number of records for which the fast path is faster; it reads the first one twice."""


# Makes a named tuple from a complete tuple at a third of the cost of the constructor.
_new = tuple.__new__


class GetRecordsPage(NamedTuple):
    """Response of one GetRecords call.

    Attributes:
        records: Records in order; arrival times are UTC.
        next_iterator: Iterator for the next call; None at the end of the shard.
        header: Facts of the response besides its records, as far as they can be read without knowing the shard.
        child_shards: ``ChildShards`` as Kinesis sent them, at the end of the shard.
        metadata: ``ResponseMetadata``: ``RequestId``, ``HTTPHeaders`` and so on; empty for clients without it.
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
        stream_arn: ARN of the stream for the request; None if it is not known.

    Raises:
        AwsError: If the call fails.
        ProtocolError: If the response cannot be read. No record is lost: the iterator remains valid.
    """
    request: dict[str, Any] = {"ShardIterator": iterator, "Limit": limit}
    if stream_arn:
        request["StreamARN"] = stream_arn
    with translate_errors("GetRecords", client), decoding("GetRecords"):
        if not isinstance(client, LeanKinesis):
            return _get_by_boto3(client, request)
        attempt = client.attempt("GetRecords", request)
        page = _page_of(attempt)
        if page is None:
            with attempt.by_boto3() as plain:
                page = _get_by_boto3(plain, request)
        return page


def _page_of(attempt: Attempt) -> GetRecordsPage | None:
    """Return the page of a response that did not pass through boto3; None if boto3 must make the call.

    Raises:
        ProtocolError: If a record is incomplete or malformed, or cannot be decoded.
    """
    document = None if attempt.body is None else document_of(attempt.body)
    if document is None or attempt.body is None:
        return None
    items = document.get("Records")
    if not isinstance(items, list):
        return None
    body = attempt.body
    if items:
        document["Records"] = []
        body = json.dumps(document).encode("ascii")
    response = attempt.parse(body)
    return None if response is None else _page(response)._replace(records=_decoded(items))


def _get_by_boto3(client: KinesisClient, request: dict[str, Any]) -> GetRecordsPage:
    state = _equipment.of(client)
    page: GetRecordsPage | None = None
    if state is not None and state.useful:
        page = _get_fast(client, request)
    if page is None:
        page = _page(client.get_records(**request))
        if state is not None and state.useful:
            state.useful = False
            _LOGGER.warning(
                "GetRecords: falling back to boto3 deserialization (slower): "
                "a client event hook is incompatible with the fast path"
            )
    return page


class _State:
    """State of the fast path of a client.

    Attributes:
        useful: Whether to use the fast path; False once it has failed.
    """

    __slots__ = ("useful",)

    def __init__(self) -> None:
        self.useful = True


class _ShardIterator(str):
    """``ShardIterator`` of a call of the SDK, with the records of its response.

    Attributes:
        items: ``Records`` of the response as parsed JSON; None if botocore handles them.
        problem: Reason why the response cannot be read; None if there is none.
    """

    __slots__ = ("items", "problem")

    items: list[Any] | None
    problem: str | None

    def __new__(cls, text: str) -> _ShardIterator:
        iterator = super().__new__(cls, text)
        iterator.items = iterator.problem = None
        return iterator


_expected: ContextVar[_ShardIterator | None] = ContextVar("kinesis_sdk_expected", default=None)
"""Call whose response comes next on this thread (or greenlet), because ``before-parse`` gets no context of the call."""


def _get_fast(client: KinesisClient, request: dict[str, Any]) -> GetRecordsPage | None:
    """Return the page; None if a hook of a user changed the records, and therefore must see all of them."""
    iterator = _ShardIterator(request["ShardIterator"])
    try:
        response = client.get_records(**{**request, "ShardIterator": iterator})
    except Exception as error:
        if iterator.problem is not None:
            raise ProtocolError(f"GetRecords: {iterator.problem}") from error
        if iterator.items is not None:
            # Kinesis responded, so a hook raised the error, perhaps because it saw only one of the records.
            _LOGGER.debug("a hook of the client failed on a GetRecords response", exc_info=error)
            return None
        raise
    finally:
        _expected.set(None)
    if iterator.problem is not None:
        raise ProtocolError(f"GetRecords: {iterator.problem}")
    if iterator.items is None:
        return _page(response)
    shown = _page(response)
    records = _decoded(iterator.items)
    return shown._replace(records=records) if shown.records == records[:1] else None


def _on_parameters(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    """Handle ``before-parameter-build``: mark a call of the SDK."""
    iterator = params.get("ShardIterator")
    if type(iterator) is _ShardIterator:
        context[MARK] = iterator


def _on_call(context: dict[str, Any], **_: Any) -> None:
    """Handle ``before-call``: remember the call whose response comes next.

    This includes calls of other code, which a hook may make during a call of the SDK.
    """
    mark = context.get(MARK)
    _expected.set(mark if type(mark) is _ShardIterator else None)


def _on_response(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Handle ``before-parse``: remove the records from the response to a call of the SDK."""
    iterator = _expected.get()
    if iterator is None or operation_model.name != "GetRecords":
        return
    # If botocore retried the call, this is not the first response.
    iterator.items = iterator.problem = None
    if response_dict["status_code"] != 200:
        return
    try:
        document = json.loads(response_dict["body"].decode("utf-8"))
        items = document.get("Records")
    except (ValueError, AttributeError, RecursionError) as error:
        iterator.problem = f"the response is not a JSON object ({error})"
    else:
        if not isinstance(items, list):
            iterator.problem = "the response has no list of Records"
        elif len(items) >= _WORTH_IT:
            iterator.items = items
            document["Records"] = items[:1]
            response_dict["body"] = json.dumps(document).encode("ascii")
    if iterator.problem is not None:
        response_dict["body"] = b"{}"


def _page(response: Mapping[str, Any]) -> GetRecordsPage:
    """Return the page of a response of boto3.

    Raises:
        ProtocolError: If it has no list of records, or a record is incomplete or malformed.
    """
    items = response.get("Records")
    if not isinstance(items, list):
        raise ProtocolError("GetRecords: the response has no list of Records")
    try:
        records = [_in_utc(KinesisRecord.from_api(item)) for item in items]
        check_records(records)
        following = response.get("NextShardIterator") or None
        header = ResponseHeader.from_api(response, ended=following is None)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise _incomplete(error) from error
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
    return record._replace(approximate_arrival_timestamp=_moment(arrival))


def _decoded(items: list[Any]) -> list[KinesisRecord]:
    """Return the records of a response in JSON.

    Raises:
        ProtocolError: If a record is incomplete or malformed, or cannot be decoded.
    """
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
                moment = _moment(stamp)
            get = item.get
            add(
                _new(
                    KinesisRecord,
                    (
                        decode(item["Data"]),
                        get("PartitionKey") or "",
                        item["SequenceNumber"],
                        moment,
                        get("EncryptionType"),
                    ),
                )
            )
        check_records(records)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise _incomplete(error) from error
    return records


def _incomplete(error: Exception) -> ProtocolError:
    return ProtocolError(f"GetRecords: a record cannot be read ({type(error).__name__}: {error})")


def _moment(value: Any) -> datetime | None:
    """Return an arrival time in UTC from epoch seconds, a datetime, or text, which some emulators send."""
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, timezone.utc)
    if value is None:
        return None
    if not isinstance(value, datetime):
        from botocore.utils import parse_timestamp

        value = parse_timestamp(value)
    moment: datetime = value.astimezone(timezone.utc)
    return moment


def _register(events: Any) -> None:
    # Of the handlers of one event, botocore calls those that are registered under the shortest name last.
    events.register_last("before-parse", _on_response, "kinesis-sdk-get-response")
    events.register("before-call.kinesis.GetRecords", _on_call, "kinesis-sdk-get-call")
    events.register("before-parameter-build.kinesis.GetRecords", _on_parameters, "kinesis-sdk-get-parameters")


_equipment = Equipment(_State, _register)
