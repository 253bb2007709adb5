"""`DeadLetter`: a record that was set aside, with its history, and its form as a line of JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from kinesis_sdk.common.base64coding import decode, encode
from kinesis_sdk.common.dead_letters import PREFIX, History, own_headers
from kinesis_sdk.common.error_policy import PoisonRecord
from kinesis_sdk.common.errors import DeadLetterError
from kinesis_sdk.common.headers import encode_headers
from kinesis_sdk.common.record_ids import located_record_type
from kinesis_sdk.common.records import UserRecord
from kinesis_sdk.common.validation import check_text

APPLICATION = f"{PREFIX}application"
"""Header with the name of the application whose handler failed."""

MAX_APPLICATION = 255
MAX_KEY = 256
MAX_LINE = 24 * 1024 * 1024
"""Maximum bytes of a letter as JSON: a record of 10 MiB with its headers has 15 MB."""

_MAX_HASH_KEY_DIGITS = 39
_MAX_MILLIS = 253_402_300_799_999


class State(str, Enum):
    """State of a dead letter."""

    OPEN = "open"
    """It was not replayed, or its replay failed."""
    REPLAYING = "replaying"
    """A replay has begun, and its end is not known: it is running, or it was killed."""
    REPLAYED = "replayed"
    """The handler returned, or the stream has stored the record again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that was set aside. ``repr`` does not show its payload.

    Attributes:
        history: Place of the original record, class of the last error, and attempts.
        application: Name of the application whose handler failed; empty if the hook has none.
        partition_key: Partition key.
        explicit_hash_key: Explicit hash key as decimal text; None if there was none, or if Kinesis did not return it.
        headers: The headers from the producer of the record.
        data: Payload; None if it was not read.
        size: Bytes of the payload.
        set_aside: Epoch milliseconds at which it was set aside, by the clock of the worker or of the store.
        state: State of the letter.
    """

    history: History
    application: str
    partition_key: str
    explicit_hash_key: str | None
    headers: Mapping[str, bytes]
    data: bytes | None
    size: int
    set_aside: int
    state: State = State.OPEN

    @classmethod
    def of(cls, poison: PoisonRecord, application: str, now_millis: int) -> DeadLetter:
        """Return the letter of a record that a dead-letter hook gets."""
        record = poison.record
        return cls(
            history=History.after(poison, now_millis),
            application=application,
            partition_key=record.partition_key,
            explicit_hash_key=record.explicit_hash_key,
            headers=own_headers(record),
            data=record.data,
            size=len(record.data),
            set_aside=now_millis,
        )

    @classmethod
    def of_copy(cls, record: UserRecord, set_aside: int) -> DeadLetter | None:
        """Return a record from a stream of dead letters as a letter; None if the record is not a letter."""
        history = History.of(record.headers)
        if history is None:
            return None
        return cls(
            history=history,
            application=_text_of(record.headers.get(APPLICATION, b"")),
            partition_key=record.partition_key,
            explicit_hash_key=record.explicit_hash_key,
            headers=own_headers(record),
            data=record.data,
            size=len(record.data),
            set_aside=set_aside,
        )

    @property
    def id(self) -> str:
        """Its identity: 16 hexadecimal digits, the same whenever this application sets this record aside."""
        return letter_id(self.application, str(self.history.origin))

    @property
    def payload(self) -> bytes:
        """The payload.

        Raises:
            DeadLetterError: If the payload was not read.
        """
        if self.data is None:
            raise DeadLetterError(f"the payload of dead letter {self.id} was not read")
        return self.data

    def without_payload(self) -> DeadLetter:
        """Return the letter without its payload."""
        return replace(self, data=None)

    def copy_headers(self) -> dict[str, str | bytes]:
        """Return the headers for a copy of the record in a stream: the record's own headers, its history, and the application.

        Raises:
            DeadLetterError: If its payload was not read.
        """
        application = {APPLICATION: self.application} if self.application else None
        return self.history.headers(self._bare(), application)

    def record(self) -> UserRecord:
        """Return the record for a handler, with its original ``id``, and with its history in the headers.

        Raises:
            DeadLetterError: If its payload was not read.
        """
        bare = self._bare()
        headers = {
            name: value if isinstance(value, bytes) else value.encode()
            for name, value in self.history.headers(bare).items()
        }
        return bare._replace(headers=headers)

    def _bare(self) -> UserRecord:
        """Return the record with its own headers only."""
        origin = self.history.origin
        kind = located_record_type(UserRecord, origin.stream, origin.shard_id)
        return kind(
            self.payload,
            self.partition_key,
            origin.sequence_number,
            None,
            None,
            origin.sub_sequence_number,
            self.explicit_hash_key,
            False,
            self.headers,
        )

    def failed_again(self, error: BaseException, now_millis: int) -> DeadLetter:
        """Return the letter after a replay in which its handler raised ``error``."""
        from kinesis_sdk.common.stream import StreamId

        origin = self.history.origin
        poison = PoisonRecord(
            record=self.record(),
            error=error,
            attempts=1,
            shard_id=origin.shard_id,
            stream=StreamId(origin.stream),
        )
        again = History.after(poison, now_millis)
        return replace(self, history=again, set_aside=now_millis, state=State.OPEN)

    def to_line(self) -> bytes:
        """Return the letter as a line of JSON, with its newline. The state is not part of it."""
        headers = {**self.headers, **_bytes_of(self.history)}
        item = {
            "application": self.application,
            "partition_key": self.partition_key,
            "explicit_hash_key": self.explicit_hash_key,
            "set_aside": self.set_aside,
            "headers": {name: encode(value).decode("ascii") for name, value in headers.items()},
            "data": encode(self.payload).decode("ascii"),
        }
        return json.dumps(item).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes | str) -> DeadLetter:
        """Return the letter of a line.

        Raises:
            ValueError: If the line is not a dead letter, or a value is out of range. The message shows no value.
        """
        if len(line) > MAX_LINE:
            raise ValueError(f"more than {MAX_LINE:,} bytes")
        try:
            item = json.loads(line)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        return cls.from_item(item)

    @classmethod
    def from_item(cls, item: Any) -> DeadLetter:
        """Return the letter of a line's JSON value. Raises as `from_line`."""
        if not isinstance(item, dict):
            raise ValueError("not an object")  # noqa: TRY004 - as for its other parts
        names = item.get("headers")
        if not isinstance(names, dict):
            raise ValueError("headers: not an object")  # noqa: TRY004
        headers = {name: _decoded("headers", value) for name, value in names.items()}
        history = History.of(headers)
        if history is None:
            raise ValueError("headers: no origin")
        own = {name: value for name, value in headers.items() if not name.startswith(PREFIX)}
        encode_headers(own)
        data = _decoded("data", item.get("data"))
        moment = item.get("set_aside")
        if type(moment) is not int or not 0 <= moment <= _MAX_MILLIS:
            raise ValueError("set_aside: not epoch milliseconds")
        return cls(
            history=history,
            application=_encodable(item, "application", MAX_APPLICATION),
            partition_key=_text(item, "partition_key", MAX_KEY),
            explicit_hash_key=_hash_key(item.get("explicit_hash_key")),
            headers=own,
            data=data,
            size=len(data),
            set_aside=moment,
        )

    def __repr__(self) -> str:
        return f"<DeadLetter {self.id} of {self.history.origin} ({self.history.error}), {self.size} bytes, {self.state.value}>"


def letter_id(application: str, origin: str) -> str:
    """Return the identity of a letter from the name of its application and the ``id`` of its original record."""
    return hashlib.sha256(f"{application}\n{origin}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_letter_id(value: object) -> bool:
    """Return whether a value has the form of a letter's identity."""
    return isinstance(value, str) and len(value) == 16 and not value.strip("0123456789abcdef")


def check_application(application: object) -> None:
    """Raise `ConfigError` unless ``application`` is a text of at most 255 characters."""
    check_text("application", application, 0, MAX_APPLICATION)


def _bytes_of(history: History) -> dict[str, bytes]:
    """Return the headers that describe a history, without the record's own headers."""
    alone = history.headers(UserRecord(b"", "", "0"))
    return {name: value if isinstance(value, bytes) else value.encode() for name, value in alone.items()}


def _decoded(field: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"{field}: not text")  # noqa: TRY004
    try:
        return decode(value)
    except ValueError:
        raise ValueError(f"{field}: not base64") from None


def _text(item: Mapping[str, Any], field: str, most: int) -> str:
    value = item.get(field)
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{field}: not a text of at most {most} characters")
    return value


def _encodable(item: Mapping[str, Any], field: str, most: int) -> str:
    """Return a text that may become a header. This does not apply to keys: Kinesis may return any key, and the letter must be kept."""
    value = _text(item, field, most)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{field}: a lone surrogate") from None
    return value


def _hash_key(value: object) -> str | None:
    if value is None:
        return None
    if not (
        isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_HASH_KEY_DIGITS
    ):
        raise ValueError("explicit_hash_key: not a number of at most 39 digits")
    return value


def _text_of(raw: bytes) -> str:
    text = raw[: 4 * MAX_APPLICATION].decode("utf-8", "replace")
    return text[:MAX_APPLICATION]
