"""PutRecords with a body that the SDK encodes itself. `kinesis_sdk.common.fastpath` explains how it works."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.base64coding import encode
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.fast_hooks import MARK, Equipment, decoding
from kinesis_sdk.common.lean_calls import unwrapped
from kinesis_sdk.common.log_fields import FieldLogger
from kinesis_sdk.common.records import without_payload
from kinesis_sdk.common.stream import StreamId

_LOGGER = FieldLogger(logging.getLogger(__name__))

_PLACEHOLDER_KEY = "-" * 257
_PLACEHOLDER = {"Data": b"", "PartitionKey": _PLACEHOLDER_KEY, "ExplicitHashKey": "-"}
"""Placeholder for all records while botocore serializes a request.

If it ever reached Kinesis, it would be rejected: the key is too long, and the hash key is not a number.
"""

_PLACEHOLDER_ON_WIRE = {"Data": "", "PartitionKey": _PLACEHOLDER_KEY, "ExplicitHashKey": "-"}

_encode_text = json.JSONEncoder().encode


class PutEntry(NamedTuple):
    """One record to put.

    Attributes:
        data: Payload; ``repr`` shows only its length.
        partition_key: Partition key, 1 to 256 characters; None for a stream that places records itself.
        explicit_hash_key: Decimal hash key that replaces the partition key's; None if there is none.
    """

    data: bytes
    partition_key: str | None
    explicit_hash_key: str | None = None

    def __repr__(self) -> str:
        return without_payload(self)


def put_records(client: KinesisClient, stream: StreamId, entries: Sequence[PutEntry]) -> Mapping[str, Any]:
    """Make one PutRecords call.

    Args:
        client: boto3 Kinesis client or one of its shape.
        stream: Stream to put into.
        entries: Records to put, 1 to 500.

    Returns:
        The response as boto3 returns it; ``Records`` is a list.

    Raises:
        AwsError: If the call fails.
        ProtocolError: If Kinesis accepted the call but its response cannot be read.
    """
    client = unwrapped(client)
    with translate_errors("PutRecords", client), decoding("PutRecords"):
        state = _equipment.of(client)
        answer: Mapping[str, Any] | None = None
        if state is not None and state.useful:
            answer = _put_fast(client, stream, entries, state)
        if answer is None:
            answer = client.put_records(Records=_items(entries), **stream.request)
            if state is not None and state.useful:
                state.useful = False
                _LOGGER.warning(
                    "PutRecords: falling back to boto3 serialization (slower): "
                    "a client event hook is incompatible with the fast path"
                )
        if not isinstance(answer.get("Records"), list):
            raise ProtocolError("PutRecords: the response has no list of Records")
        return answer


class _State:
    """State of the fast path of a client.

    Attributes:
        useful: Whether to use the fast path; False once it has failed.
        completing: Whether the hook that completes requests is known to run. The first call of a client is made with all
            its records, so no incomplete request is sent if the hook does not run.
    """

    __slots__ = ("completing", "useful")

    def __init__(self) -> None:
        self.useful = True
        self.completing = False


class _Records(list[dict[str, Any]]):
    """``Records`` of a call of the SDK, with its progress.

    Attributes:
        state: State of the client.
        parts: Data and encoded tail of each record, once the placeholder has replaced the records.
        replaced: Whether the placeholder has replaced the records.
        placed: Whether the records were written into the body.
    """

    __slots__ = ("parts", "placed", "replaced", "state")

    def __init__(self, items: list[dict[str, Any]], state: _State) -> None:
        super().__init__(items)
        self.state = state
        self.parts: list[tuple[bytes, bytes]] = []
        self.replaced = False
        self.placed = False


class _NotPlacedError(Exception):
    """Raised to stop a call before anything is sent, because its body is not as expected."""


def _items(entries: Sequence[PutEntry]) -> list[dict[str, Any]]:
    return [
        {"Data": data, "PartitionKey": key, "ExplicitHashKey": explicit}
        if explicit is not None
        else {"Data": data, "PartitionKey": key}
        if key is not None
        else {"Data": data}
        for data, key, explicit in entries
    ]


def _put_fast(
    client: KinesisClient, stream: StreamId, entries: Sequence[PutEntry], state: _State
) -> Mapping[str, Any] | None:
    """Return the response; None if nothing was sent for a reason that does not concern the plain boto3 call."""
    records = _Records(_items(entries), state)
    try:
        answer = client.put_records(Records=records, **stream.request)
    except Exception as error:
        if records.replaced and not records.placed:
            _LOGGER.debug("a PutRecords request could not be completed", exc_info=error)
            return None
        raise
    # Not replaced: boto3 sent the records itself. Not placed: the placeholder was sent, which stores nothing.
    return answer if records.placed or not records.replaced else None


def _parts(records: _Records) -> list[tuple[bytes, bytes]] | None:
    """Return the data of each record and the JSON that follows it.

    Returns:
        None for records that boto3 must handle: those that it rejects with its own message, and those that only it can
        convert, for example text as data.
    """
    parts: list[tuple[bytes, bytes]] = []
    for record in records:
        data, key = record.get("Data"), record.get("PartitionKey")
        if type(data) is bytes and len(record) == 1:
            parts.append((data, b'"}'))
            continue
        if type(data) is not bytes or type(key) is not str or not key:
            return None
        if len(record) == 2:
            tail = f'","PartitionKey":{_encode_text(key)}}}'
        else:
            explicit = record.get("ExplicitHashKey")
            if len(record) != 3 or type(explicit) is not str:
                return None
            tail = f'","PartitionKey":{_encode_text(key)},"ExplicitHashKey":{_encode_text(explicit)}}}'
        parts.append((data, tail.encode("ascii")))
    return parts or None


def _on_parameters(params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
    """Handle ``before-parameter-build``: replace the records of a call of the SDK by the placeholder."""
    records = params.get("Records") if model.name == "PutRecords" else None
    if type(records) is not _Records:
        return
    context[MARK] = records
    parts = _parts(records) if records.state.completing else None
    if parts is not None:
        params["Records"] = [dict(_PLACEHOLDER)]
        records.parts = parts
        records.replaced = True


def _on_call(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    """Handle ``before-call``: complete the request of a call of the SDK."""
    records = context.get(MARK)
    if type(records) is not _Records:
        return
    if records.replaced:
        # Transport errors keep the request and its context alive, as long as the records whose failure they describe.
        del context[MARK]
        _place(records, params)
    else:
        records.state.completing = True


def _place(records: _Records, params: dict[str, Any]) -> None:
    """Write the records into the body, where the placeholder is.

    Raises:
        _NotPlacedError: If the body does not consist of the placeholder alone.
    """
    try:
        envelope = json.loads(params["body"])
        found = envelope.pop("Records")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _NotPlacedError("the body is not the JSON that was expected") from error
    if found != [_PLACEHOLDER_ON_WIRE]:
        raise _NotPlacedError("the body has other records than the placeholder")
    # A growing buffer is cheaper than joining a list of encoded parts: it touches half the memory.
    buffer = BytesIO()
    write = buffer.write
    write(json.dumps(envelope)[:-1].encode("ascii"))
    write(b', "Records": [{"Data":"' if envelope else b'"Records": [{"Data":"')
    for number, (data, tail) in enumerate(records.parts):
        if number:
            write(b',{"Data":"')
        write(encode(data))
        write(tail)
    write(b"]}")
    params["body"] = buffer.getvalue()
    records.parts = []
    records.placed = True


def _register(events: Any) -> None:
    # Of the handlers of one event, botocore calls those that are registered under the shortest name last, and those
    # under a name with wildcards first.
    events.register_first("before-call.*.*", _on_call, "kinesis-sdk-put-call")
    events.register_last("before-parameter-build", _on_parameters, "kinesis-sdk-put-parameters")


_equipment = Equipment(_State, _register)
