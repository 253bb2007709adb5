"""Records of a GetRecords response, decoded by msgspec (extra ``fast``)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kinesis_sdk.common.base64coding import decode as decode_base64
from kinesis_sdk.common.records import KinesisRecord, check_records
from kinesis_sdk.common.transport.decoding import (
    MALFORMED,
    Content,
    check_count,
    decode_by_standard_library,
    moment_of,
    new,
)


class _Record(msgspec.Struct, gc=False):
    """One element of ``Records``, with the names of the API."""

    Data: str
    SequenceNumber: str
    PartitionKey: str | None = None
    ApproximateArrivalTimestamp: float | None = None
    EncryptionType: str | None = None

    def __repr__(self) -> str:
        return f"Record(Data=<{len(self.Data)} characters>, SequenceNumber={self.SequenceNumber!r})"


class _Response(msgspec.Struct, gc=False):
    """A response, with the names of the API."""

    Records: list[_Record]
    NextShardIterator: str | None = None
    MillisBehindLatest: int | None = None
    ChildShards: list[Any] | None = None


_parse = msgspec.json.Decoder(_Response).decode
_UNUSUAL = (msgspec.MsgspecError, RecursionError, *MALFORMED)


def decode_by_msgspec(body: bytes) -> Content | None:
    """Decode a response as `kinesis_sdk.common.transport.decoding.decode`; the standard library decodes responses that msgspec rejects."""
    try:
        response = _parse(body)
        items = response.Records
        check_count(len(items))
        records: list[KinesisRecord] = []
        add = records.append
        stamp: float | None = None
        moment: datetime | None = None
        for item in items:
            # Records of the same PutRecords call have the same arrival time.
            if item.ApproximateArrivalTimestamp != stamp:
                stamp = item.ApproximateArrivalTimestamp
                moment = moment_of(stamp)
            add(
                new(
                    KinesisRecord,
                    (
                        decode_base64(item.Data),
                        item.PartitionKey or "",
                        item.SequenceNumber,
                        moment,
                        item.EncryptionType,
                    ),
                )
            )
        check_records(records)
    except _UNUSUAL:
        return decode_by_standard_library(body)
    rest: dict[str, Any] = {
        "Records": [],
        "NextShardIterator": response.NextShardIterator,
        "MillisBehindLatest": response.MillisBehindLatest,
    }
    if response.ChildShards is not None:
        rest["ChildShards"] = response.ChildShards
    return Content(records, rest)
