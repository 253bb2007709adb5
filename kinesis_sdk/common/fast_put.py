"""PutRecords with the body written here. See `kinesis_sdk.common.fastpath` for how it works."""

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
from kinesis_sdk.common.records import without_payload
from kinesis_sdk.common.stream import StreamId

_LOGGER = logging.getLogger(__name__)

_PLACEHOLDER_KEY = "-" * 257
_PLACEHOLDER = {"Data": b"", "PartitionKey": _PLACEHOLDER_KEY, "ExplicitHashKey": "-"}
"""Stands for all records while botocore serialises a request.

If it ever reached the service, it would be refused there: the key is too long, the hash key is not a number.
"""

_PLACEHOLDER_ON_WIRE = {"Data": "", "PartitionKey": _PLACEHOLDER_KEY, "ExplicitHashKey": "-"}

_encode_text = json.JSONEncoder().encode


class PutEntry(NamedTuple):
    """One record to put.

    Attributes:
        data: Payload; ``repr`` shows its length only.
        partition_key: Partition key, 1 to 256 characters.
        explicit_hash_key: Decimal hash key instead of the partition key's, if any.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None

    def __repr__(self) -> str:
        return without_payload(self)


def put_records(client: KinesisClient, stream: StreamId, entries: Sequence[PutEntry]) -> Mapping[str, Any]:
    """Make one PutRecords call.

    Args:
        client: boto3 Kinesis client or one of its shape.
        stream: The stream.
        entries: The records.

    Returns:
        The answer as boto3 gives it; ``Records`` is a list.

    Raises:
        AwsError: The call failed.
        ProtocolError: The service accepted the call, and its answer can not be read.
    """
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
                    "requests of PutRecords are built by boto3 from now on, which costs more: "
                    "a hook of the client gets in the way"
                )
        if not isinstance(answer.get("Records"), list):
            raise ProtocolError("PutRecords: the answer has no Records")
        return answer


class _State:
    """What is known about a client.

    Attributes:
        useful: Whether the hooks are worth trying; not any more once they did not work out.
        completing: Whether the hook that completes requests was seen at work. The first call of a client is
            made with all its records: no request leaves incomplete because a hook does not run.
    """

    __slots__ = ("completing", "useful")

    def __init__(self) -> None:
        self.useful = True
        self.completing = False


class _Records(list[dict[str, Any]]):
    """The ``Records`` of a call of ours, and how far it got.

    Attributes:
        state: The client's.
        parts: The records, once the placeholder has taken their place.
        replaced: Whether the placeholder did.
        placed: Whether the records went into the body.
    """

    __slots__ = ("parts", "placed", "replaced", "state")

    def __init__(self, items: list[dict[str, Any]], state: _State) -> None:
        super().__init__(items)
        self.state = state
        self.parts: list[tuple[bytes, bytes]] = []
        self.replaced = False
        self.placed = False


class _NotPlacedError(Exception):
    """Stops a call whose body is not what it should be, before anything is sent."""


def _items(entries: Sequence[PutEntry]) -> list[dict[str, Any]]:
    return [
        {"Data": data, "PartitionKey": key}
        if explicit is None
        else {"Data": data, "PartitionKey": key, "ExplicitHashKey": explicit}
        for data, key, explicit in entries
    ]


def _put_fast(
    client: KinesisClient, stream: StreamId, entries: Sequence[PutEntry], state: _State
) -> Mapping[str, Any] | None:
    """The answer, or None if nothing was put, for a reason that the plain call does not have."""
    records = _Records(_items(entries), state)
    try:
        answer = client.put_records(Records=records, **stream.request)
    except Exception as error:
        if records.replaced and not records.placed:
            _LOGGER.debug("a PutRecords request could not be completed", exc_info=error)
            return None
        raise
    # Not replaced: boto3 sent the records itself. Not placed: the placeholder went out and stored nothing.
    return answer if records.placed or not records.replaced else None


def _parts(records: _Records) -> list[tuple[bytes, bytes]] | None:
    """Data of each record and the JSON that follows it; None for what boto3 is to judge.

    That is what it refuses, in its own words, and what only it understands, as text for data.
    """
    parts: list[tuple[bytes, bytes]] = []
    for record in records:
        data, key = record.get("Data"), record.get("PartitionKey")
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
    """``before-parameter-build``: take the records of a call of ours aside."""
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
    """``before-call``: complete the request of a call of ours."""
    records = context.get(MARK)
    if type(records) is not _Records:
        return
    if records.replaced:
        # Errors of the transport keep the request and its context, and live as long as what they befell.
        del context[MARK]
        _place(records, params)
    else:
        records.state.completing = True


def _place(records: _Records, params: dict[str, Any]) -> None:
    """Put the records into the body, where their placeholder is.

    Raises:
        _NotPlacedError: It is not there, or not alone.
    """
    try:
        envelope = json.loads(params["body"])
        found = envelope.pop("Records")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _NotPlacedError("the body is not the JSON that was expected") from error
    if found != [_PLACEHOLDER_ON_WIRE]:
        raise _NotPlacedError("the body holds other records than those that were given")
    # A buffer that grows is cheaper than a list of encoded parts to be joined: half the memory to touch.
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
    # Of the handlers of one event, botocore calls those of the shortest name last, and those of names with
    # wildcards first.
    events.register_first("before-call.*.*", _on_call, "kinesis-sdk-put-call")
    events.register_last("before-parameter-build", _on_parameters, "kinesis-sdk-put-parameters")


_equipment = Equipment(_State, _register)
