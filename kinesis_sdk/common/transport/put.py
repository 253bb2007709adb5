"""PutRecords with a body that the SDK encodes itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from kinesis_sdk.common.aws import KinesisClient, translate_errors
from kinesis_sdk.common.base64coding import encode
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.records import without_payload
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.common.transport import cbor
from kinesis_sdk.common.transport.calls import Attempt, Transport
from kinesis_sdk.common.transport.get import decoding

_encode_text = json.encoder.encode_basestring_ascii  # what `json.dumps` calls for text


class PutEntry(NamedTuple):
    """One record to put.

    Attributes:
        data: Payload; ``repr`` shows only its length.
        partition_key: Partition key, 1 to 256 characters; None for a stream that places records itself.
        explicit_hash_key: Decimal hash key that replaces the hash of the partition key; None if there is none.
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
    with translate_errors("PutRecords", client), decoding("PutRecords"):
        answer: Mapping[str, Any] | None = None
        if isinstance(client, Transport):
            body = _cbor(stream, entries) if client.speaks_cbor else None
            in_cbor = body is not None
            if body is None:
                body = _body(stream, entries)
            attempt = client.attempt("PutRecords", stream.request, body, in_cbor=in_cbor)
            answer = _answer(attempt)
            if answer is None:
                with attempt.by_boto3() as plain:
                    answer = plain.put_records(Records=_items(entries), **stream.request)
        else:
            answer = client.put_records(Records=_items(entries), **stream.request)
        if answer is None or not isinstance(answer.get("Records"), list):
            raise ProtocolError("PutRecords: the response has no list of Records")
        return answer


def _answer(attempt: Attempt) -> Mapping[str, Any] | None:
    """Return the response; None if boto3 must make the call or read the response."""
    answer = attempt.document()
    if answer is None:
        return None
    answer["ResponseMetadata"] = attempt.metadata()
    return answer if attempt.accepts(answer) else None


def _items(entries: Sequence[PutEntry]) -> list[dict[str, Any]]:
    return [
        {"Data": data, "PartitionKey": key, "ExplicitHashKey": explicit}
        if explicit is not None
        else {"Data": data, "PartitionKey": key}
        if key is not None
        else {"Data": data}
        for data, key, explicit in entries
    ]


def _body(stream: StreamId, entries: Sequence[PutEntry]) -> bytes | None:
    """Return the request in JSON; None if boto3 must handle it.

    boto3 rejects invalid records with its own message, and only it converts some values, for example text as data.
    """
    # A growing buffer is cheaper than joining a list of encoded parts: it touches half the memory.
    buffer = BytesIO()
    write = buffer.write
    write(json.dumps(stream.request)[:-1].encode("ascii"))
    separator = b', "Records": [{"Data":"'
    for data, key, explicit in entries:
        if type(data) is not bytes:
            return None
        if key is None and explicit is None:
            tail = '"}'
        elif type(key) is not str or not key:
            return None
        elif explicit is None:
            tail = f'","PartitionKey":{_encode_text(key)}}}'
        elif type(explicit) is str:
            tail = f'","PartitionKey":{_encode_text(key)},"ExplicitHashKey":{_encode_text(explicit)}}}'
        else:
            return None
        write(separator)
        write(encode(data))
        write(tail.encode("ascii"))
        separator = b',{"Data":"'
    write(b"]}")
    return buffer.getvalue() if entries else None


def _cbor(stream: StreamId, entries: Sequence[PutEntry]) -> bytes | None:
    """Return the request in CBOR; None if JSON costs less, or if only `_body` can write or reject it."""
    payloads = [entry[0] for entry in entries]
    if set(map(type, payloads)) != {bytes} or not cbor.is_cheaper(payloads):
        return None
    head, text = cbor.head, cbor.text
    parts: list[bytes] = []
    before = _RECORDS
    try:
        for data, key, explicit in entries:
            parts += (before + _DATA + head(cbor.BYTES, len(data)), data)
            before = cbor.CLOSE
            if key:
                before = _PARTITION_KEY + text(key) + before
            elif key is not None or explicit is not None:
                return None
            if explicit is not None:
                before = _EXPLICIT_HASH_KEY + text(explicit) + before
    except (AttributeError, TypeError, UnicodeEncodeError):  # not text, or with a lone surrogate
        return None
    parts += (before, cbor.CLOSE, cbor.members(stream.request), cbor.CLOSE)
    return b"".join(parts)


_RECORDS = cbor.OPEN_MAP + cbor.text("Records") + cbor.OPEN_LIST
_DATA = cbor.OPEN_MAP + cbor.text("Data")
_PARTITION_KEY, _EXPLICIT_HASH_KEY = cbor.text("PartitionKey"), cbor.text("ExplicitHashKey")
