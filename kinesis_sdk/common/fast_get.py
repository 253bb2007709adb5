"""GetRecords with the records read here. See `kinesis_sdk.common.fastpath` for how it works."""

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
from kinesis_sdk.common.records import KinesisRecord, check_records
from kinesis_sdk.common.response_header import ResponseHeader

_LOGGER = logging.getLogger(__name__)

_WORTH_IT = 4
"""Records in an answer from which on it pays to take them out; the first is read twice then."""


# A named tuple from a finished tuple at a third of the price of its own constructor.
_new = tuple.__new__


class GetRecordsPage(NamedTuple):
    """One answer of GetRecords.

    Attributes:
        records: The records in order; arrival times are UTC.
        next_iterator: Iterator for what follows; None at the end of the shard.
        header: What the response says besides its records, as far as it can be read without knowing the shard.
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
        limit: Most records to return.
        stream_arn: ARN of the stream, where requests carry one.

    Raises:
        AwsError: The call failed.
        ProtocolError: The service answered, and the answer can not be read. Nothing is lost: the iterator
            stays good.
    """
    request: dict[str, Any] = {"ShardIterator": iterator, "Limit": limit}
    if stream_arn:
        request["StreamARN"] = stream_arn
    with translate_errors("GetRecords", client), decoding("GetRecords"):
        state = _equipment.of(client)
        page: GetRecordsPage | None = None
        if state is not None and state.useful:
            page = _get_fast(client, request)
        if page is None:
            page = _page(client.get_records(**request))
            if state is not None and state.useful:
                state.useful = False
                _LOGGER.warning(
                    "answers of GetRecords are read by boto3 from now on, which costs more: "
                    "a hook of the client wants all records"
                )
    return page


class _State:
    """What is known about a client.

    Attributes:
        useful: Whether the hooks are worth trying; not any more once they did not work out.
    """

    __slots__ = ("useful",)

    def __init__(self) -> None:
        self.useful = True


class _ShardIterator(str):
    """The ``ShardIterator`` of a call of ours, and what came back for it.

    Attributes:
        items: ``Records`` of the answer as JSON gave them; None while botocore has them.
        problem: Why the answer can not be read.
    """

    __slots__ = ("items", "problem")

    items: list[Any] | None
    problem: str | None

    def __new__(cls, text: str) -> _ShardIterator:
        iterator = super().__new__(cls, text)
        iterator.items = iterator.problem = None
        return iterator


_expected: ContextVar[_ShardIterator | None] = ContextVar("kinesis_sdk_expected", default=None)
"""The call whose answer comes next on this thread (or greenlet): ``before-parse`` gets no context of the call."""


def _get_fast(client: KinesisClient, request: dict[str, Any]) -> GetRecordsPage | None:
    """The page, or None if a hook did something to the records that is to be done to all of them."""
    iterator = _ShardIterator(request["ShardIterator"])
    try:
        answer = client.get_records(**{**request, "ShardIterator": iterator})
    except Exception as error:
        if iterator.problem is not None:
            raise ProtocolError(f"GetRecords: {iterator.problem}") from error
        if iterator.items is not None:
            # The service answered: it was a hook that could not live with a part of the records.
            _LOGGER.debug("a GetRecords answer did not pass the client's hooks", exc_info=error)
            return None
        raise
    finally:
        _expected.set(None)
    if iterator.problem is not None:
        raise ProtocolError(f"GetRecords: {iterator.problem}")
    if iterator.items is None:
        return _page(answer)
    shown = _page(answer)
    records = _decoded(iterator.items)
    return shown._replace(records=records) if shown.records == records[:1] else None


def _on_parameters(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    """``before-parameter-build``: mark a call of ours."""
    iterator = params.get("ShardIterator")
    if type(iterator) is _ShardIterator:
        context[MARK] = iterator


def _on_call(context: dict[str, Any], **_: Any) -> None:
    """``before-call``: note whose answer comes next.

    Also for calls of others, which may come in the middle of one of ours, from a hook.
    """
    mark = context.get(MARK)
    _expected.set(mark if type(mark) is _ShardIterator else None)


def _on_answer(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """``before-parse``: take the records out of an answer to a call of ours."""
    iterator = _expected.get()
    if iterator is None or operation_model.name != "GetRecords":
        return
    # botocore may have repeated the call, then this is not the first answer.
    iterator.items = iterator.problem = None
    if response_dict["status_code"] != 200:
        return
    try:
        document = json.loads(response_dict["body"].decode("utf-8"))
        items = document.get("Records")
    except (ValueError, AttributeError) as error:
        iterator.problem = f"the answer is not a JSON object ({error})"
    else:
        if not isinstance(items, list):
            iterator.problem = "the answer has no Records"
        elif len(items) >= _WORTH_IT:
            iterator.items = items
            document["Records"] = items[:1]
            response_dict["body"] = json.dumps(document).encode("ascii")
    if iterator.problem is not None:
        response_dict["body"] = b"{}"


def _page(answer: Mapping[str, Any]) -> GetRecordsPage:
    """A page from an answer of boto3.

    Raises:
        ProtocolError: It has no records, or one is incomplete or malformed.
    """
    items = answer.get("Records")
    if not isinstance(items, list):
        raise ProtocolError("GetRecords: the answer has no Records")
    try:
        records = [KinesisRecord.from_api(item) for item in items]
        records = [
            record._replace(approximate_arrival_timestamp=_moment(record.approximate_arrival_timestamp))
            for record in records
        ]
        check_records(records)
        following = answer.get("NextShardIterator") or None
        header = ResponseHeader.from_api(answer, ended=following is None)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise _incomplete(error) from error
    return GetRecordsPage(
        records,
        following,
        header,
        answer.get("ChildShards"),
        answer.get("ResponseMetadata") or {},
    )


def _decoded(items: list[Any]) -> list[KinesisRecord]:
    """Records from the JSON of an answer.

    Raises:
        ProtocolError: One is incomplete or malformed, or cannot be decoded.
    """
    records: list[KinesisRecord] = []
    add = records.append
    stamp: Any = None
    moment: datetime | None = None
    try:
        for item in items:
            # Records that came with one PutRecords share their time.
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
    """An arrival time in UTC, from epoch seconds, from a datetime, or from text as emulators send it."""
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
    # Of the handlers of one event, botocore calls those of the shortest name last.
    events.register_last("before-parse", _on_answer, "kinesis-sdk-get-answer")
    events.register("before-call.kinesis.GetRecords", _on_call, "kinesis-sdk-get-call")
    events.register("before-parameter-build.kinesis.GetRecords", _on_parameters, "kinesis-sdk-get-parameters")


_equipment = Equipment(_State, _register)
