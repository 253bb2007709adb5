"""Headers of a record that was set aside: its origin, and the number and cause of its failures.

A dead letter, and a record in a retry tier, has the payload, the partition key and the headers of the original, and these headers:

| header | value |
|---|---|
| ``retry-origin`` | ``stream/shard/sequence number/sub-sequence number``, the original's ``record.id`` |
| ``retry-error`` | class of the last error; never its text, which may quote the payload |
| ``retry-attempt`` | rounds of attempts that have failed, from 1; a round is what the error policy tries in one place |
| ``retry-first-failed`` | epoch milliseconds of the first failure, by the clock of the worker that saw it |
| ``retry-due`` | epoch milliseconds of the next round, by the same kind of clock; absent in dead letters |
| ``retry-left-out`` | number of the original's own headers that did not fit beside these; absent if all did |

Every program that may put into a stream may forge these headers. So `History.of` bounds every value, and no retry depends on these
values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.common.shards import is_shard_id, is_table_shard_id

if TYPE_CHECKING:
    from kinesis_sdk.common.error_policy import PoisonRecord
    from kinesis_sdk.common.records import UserRecord

PREFIX = "retry-"
"""Prefix of these headers. A producer's own headers should not begin with this prefix."""

ORIGIN = "retry-origin"
"""Header with the place of the original record, which makes a record a set-aside record."""

ERROR, ATTEMPT = "retry-error", "retry-attempt"
FIRST_FAILED, DUE, LEFT_OUT = "retry-first-failed", "retry-due", "retry-left-out"

MAX_ATTEMPT = 10_000
"""Largest attempt that is written or read; a larger number counts as this one."""

_MAX_MILLIS = 253_402_300_799_999
"""The end of the year 9999; a later time counts as absent."""

_MAX_ERROR = 128
_NUMBER = re.compile(rb"[0-9]{1,15}")
_STREAM = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,129}", re.ASCII)
_CLASS = re.compile(rf"[A-Za-z_][A-Za-z0-9_.]{{0,{_MAX_ERROR - 1}}}", re.ASCII)


class Origin(NamedTuple):
    """Place of the original record.

    Attributes:
        stream: Name of the stream.
        shard_id: The shard.
        sequence_number: Sequence number of its Kinesis record.
        sub_sequence_number: Index in the aggregate from 0; 0 for a record that was not aggregated.
    """

    stream: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int

    def __str__(self) -> str:
        """Return the original's ``record.id``."""
        return f"{self.stream}/{self.shard_id}/{self.sequence_number}/{self.sub_sequence_number}"

    @classmethod
    def parse(cls, text: str) -> Origin | None:
        """Return the origin that a ``record.id`` names; None if the text is not a ``record.id``."""
        parts = text.split("/", 4)
        if len(parts) != 4:
            return None
        stream, shard, number, sub = parts
        if not (_STREAM.fullmatch(stream) and (is_shard_id(shard) or is_table_shard_id(shard))):
            return None
        if not (_DIGITS.fullmatch(number) and _DIGITS.fullmatch(sub) and len(sub) <= 10):
            return None
        return cls(stream, shard, number, int(sub))


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """History of a set-aside record, from its headers. The module's documentation explains each value.

    Attributes:
        origin: Place of the original record.
        error: Class of the last error; empty if unknown.
        attempt: Rounds of attempts that have failed, 1 to `MAX_ATTEMPT`.
        first_failed: Epoch milliseconds of the first failure; None if unknown.
        due: Epoch milliseconds of the next round; None for a dead letter.
    """

    origin: Origin
    error: str
    attempt: int
    first_failed: int | None = None
    due: int | None = None

    @classmethod
    def of(cls, headers: Mapping[str, bytes]) -> History | None:
        """Return the history of a set-aside record from its headers; None for another record, or if the origin is malformed.

        A malformed or absent attempt counts as 1, any other malformed value as absent.
        """
        raw = headers.get(ORIGIN)
        origin = None if raw is None or len(raw) > 400 else Origin.parse(raw.decode("ascii", "replace"))
        if origin is None:
            return None
        error = headers.get(ERROR, b"")[: _MAX_ERROR + 1].decode("ascii", "replace")
        attempt = _number(headers.get(ATTEMPT)) or 1
        return cls(
            origin=origin,
            error=error if _CLASS.fullmatch(error) else "",
            attempt=min(attempt, MAX_ATTEMPT),
            first_failed=_number(headers.get(FIRST_FAILED)),
            due=_number(headers.get(DUE)),
        )

    @classmethod
    def after(cls, poison: PoisonRecord, now_millis: int, delay_millis: int | None = None) -> History:
        """Return the history of a record after one more failed round.

        Args:
            poison: The record, in the form that a hook gets.
            now_millis: Epoch milliseconds.
            delay_millis: Milliseconds until its next round; None makes it a dead letter.
        """
        before = cls.of(poison.record.headers)
        record = poison.record
        place = Origin(
            poison.stream.name, poison.shard_id, record.sequence_number, record.sub_sequence_number
        )
        first = now_millis - round(poison.failing_seconds * 1000)
        return cls(
            origin=place if before is None else before.origin,
            error=type(poison.error).__name__[:_MAX_ERROR],
            attempt=1 if before is None else min(before.attempt + 1, MAX_ATTEMPT),
            first_failed=first if before is None or before.first_failed is None else before.first_failed,
            due=None if delay_millis is None else now_millis + delay_millis,
        )

    def headers(
        self, record: UserRecord, also: Mapping[str, str | bytes] | None = None
    ) -> dict[str, str | bytes]:
        """Return all headers for a copy of a record: the record's own headers, this history, and up to 2 KB of further headers."""
        told: dict[str, str | bytes] = {**(also or {}), ORIGIN: str(self.origin), ATTEMPT: str(self.attempt)}
        if self.error:
            told[ERROR] = self.error
        if self.first_failed is not None:
            told[FIRST_FAILED] = str(self.first_failed)
        if self.due is not None:
            told[DUE] = str(self.due)
        own = list(own_headers(record).items())
        for kept in range(len(own), -1, -1):
            found: dict[str, str | bytes] = {**dict(own[:kept]), **told}
            if kept < len(own):
                found[LEFT_OUT] = str(len(own) - kept)
            try:
                encode_headers(found)
            except ValueError:
                continue
            return found
        raise AssertionError("a letter without a payload fits")


def own_headers(record: UserRecord) -> dict[str, bytes]:
    """Return the headers from the producer of the original record, which do not begin with `PREFIX`."""
    return {name: value for name, value in record.headers.items() if not name.startswith(PREFIX)}


def _number(raw: bytes | None) -> int | None:
    """Return a positive number of a header; None if it is absent, malformed or too large."""
    if raw is None or _NUMBER.fullmatch(raw) is None:
        return None
    value = int(raw)
    return value if 0 < value <= _MAX_MILLIS else None
