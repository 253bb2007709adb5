"""A record as its caller puts it, before the producer accepts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

from kinesis_sdk.common.headers import NO_HEADERS
from kinesis_sdk.common.once.identity import DEFAULT_WINDOW
from kinesis_sdk.common.stream import StreamId


class Put(NamedTuple):
    """One record to put; ``_replace`` returns a changed copy.

    Attributes:
        stream: Stream name or ARN.
        partition_key: 1 to 256 characters; None for a record without a partition key.
        data: Payload, or the value that the serializer of the stream encodes; ``repr`` shows its type only.
        explicit_hash_key: Decimal text or int from 0 to 2^128-1 that places the record instead of its partition key.
        headers: Names with values, see `Producer.put`; ``repr`` shows the names only.
        dedup_id: Name of the record, see `Producer.put`.
        dedup_window: Seconds, 1 to 300 (default 300), in which readers recognize another record with that name.
    """

    stream: str | StreamId
    partition_key: str | None
    data: Any
    explicit_hash_key: str | int | None = None
    headers: Mapping[str, str | bytes] = NO_HEADERS
    dedup_id: str | None = None
    dedup_window: float = DEFAULT_WINDOW

    def __repr__(self) -> str:
        names = f", headers={list(self.headers)!r}" if self.headers else ""
        return f"Put(stream={str(self.stream)!r}, partition_key={self.partition_key!r}, data=<{type(self.data).__name__}>{names})"


class PutOptions(TypedDict, total=False):
    """Keyword arguments of every way to put, see `Producer.put`."""

    dedup_id: str | None
    dedup_window: float
    headers: Mapping[str, str | bytes] | None


def put_with(
    stream: str | StreamId,
    partition_key: str | None,
    data: Any,
    explicit_hash_key: str | int | None,
    options: PutOptions,
) -> Put:
    """Return a record with the keyword arguments of a call; an unknown one raises a TypeError."""
    put = Put(stream, partition_key, data, explicit_hash_key, **options)  # type: ignore[arg-type]  # headers, see below
    return put if put.headers is not None else put._replace(headers=NO_HEADERS)
