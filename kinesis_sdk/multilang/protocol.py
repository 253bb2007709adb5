"""Messages of the MultiLang protocol, which the daemon and a child process exchange, one JSON object per line.

```
daemon ── initialize, processRecords, leaseLost, shardEnded, shutdownRequested, checkpoint (answer) ──► child
       ◄── status, checkpoint (request) ──────────────────────────────────────────────────────────────
```
The module handles both directions, because this package contains both sides: the daemon (`encode`, `encode_records`, `decode_child_line`),
and a
child written in Python (`encode`, `decode_daemon_line`). All functions are pure functions of text.

The daemon's messages have exactly the keys of the Java daemon: the children's libraries raise errors for unknown actions and unknown
nested objects. The child's lines are read leniently: unknown fields are ignored, and a line that is not a message becomes `Noise`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar, NamedTuple

from kinesis_sdk.common.base64coding import decode
from kinesis_sdk.common.base64coding import encode as encode_base64
from kinesis_sdk.common.errors import ProtocolError
from kinesis_sdk.common.records import UserRecord

INITIALIZE = "initialize"
PROCESS_RECORDS = "processRecords"
LEASE_LOST = "leaseLost"
SHARD_ENDED = "shardEnded"
SHUTDOWN_REQUESTED = "shutdownRequested"
CHECKPOINT = "checkpoint"
STATUS = "status"
RECORD = "record"

CALLS = (INITIALIZE, PROCESS_RECORDS, LEASE_LOST, SHARD_ENDED, SHUTDOWN_REQUESTED)
"""Actions of the daemon to which the child responds with a `Status`."""

THROTTLING = "ThrottlingException"
SHUTDOWN = "ShutdownException"
INVALID_STATE = "InvalidStateException"
DEPENDENCY = "KinesisClientLibDependencyException"
ILLEGAL_ARGUMENT = "IllegalArgumentException"

CHECKPOINT_ERRORS = (THROTTLING, SHUTDOWN, INVALID_STATE, DEPENDENCY, ILLEGAL_ARGUMENT)
"""Names of errors in responses to checkpoint requests. They are the names of Java classes, because children compare these names."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_PIECE = 128 * 1024
"""Number of characters after which `encode_records` yields a piece of a message."""
_SHOWN = 200
"""Maximum characters of a line that `Noise` keeps."""
_DECODER = json.JSONDecoder()


class MessageRecord(NamedTuple):
    """A user record in a `ProcessRecords` message.

    Attributes:
        data: Payload in base64, as in the message; see `payload`.
        sequence_number: Decimal sequence number of the Kinesis record.
        sub_sequence_number: Index in the aggregate from 0; 0 for a record that was not aggregated.
        approximate_arrival_timestamp: Arrival in milliseconds since 1970; None if unknown.
    """

    data: str
    partition_key: str
    sequence_number: str
    sub_sequence_number: int = 0
    approximate_arrival_timestamp: int | None = 0

    def __repr__(self) -> str:
        return (
            f"MessageRecord(data=<{len(self.data)} characters>, partition_key={self.partition_key!r}, "
            f"sequence_number={self.sequence_number!r}, sub_sequence_number={self.sub_sequence_number})"
        )

    @property
    def payload(self) -> bytes:
        """The payload.

        Raises:
            ValueError: If ``data`` is not base64.
        """
        return decode(self.data)


@dataclass(frozen=True)
class Initialize:
    """The first message: the shard, and the checkpoint in its lease.

    Attributes:
        sequence_number: A decimal sequence number, ``TRIM_HORIZON``, ``LATEST`` or ``AT_TIMESTAMP``; None if there is no checkpoint.
        sub_sequence_number: Index in the aggregate; 0 for a sentinel; None if there is no checkpoint.
    """

    action: ClassVar[str] = INITIALIZE
    shard_id: str
    sequence_number: str | None
    sub_sequence_number: int | None


@dataclass(frozen=True)
class ProcessRecords:
    """The next user records of the shard, in order and already deaggregated.

    ``millis_behind_latest`` is the distance from the last record to the tip of the shard; None if unknown.
    """

    action: ClassVar[str] = PROCESS_RECORDS
    records: tuple[MessageRecord, ...]
    millis_behind_latest: int | None


@dataclass(frozen=True)
class LeaseLost:
    """Another worker now processes the shard; checkpoints are no longer possible."""

    action: ClassVar[str] = LEASE_LOST


@dataclass(frozen=True)
class ShardEnded:
    """All records of the shard were delivered. The child must checkpoint before it responds."""

    action: ClassVar[str] = SHARD_ENDED


@dataclass(frozen=True)
class ShutdownRequested:
    """The worker stops or hands off the lease, so the child can checkpoint for the last time. `LeaseLost` follows."""

    action: ClassVar[str] = SHUTDOWN_REQUESTED


@dataclass(frozen=True)
class CheckpointAnswer:
    """Response to a `CheckpointRequest`, with the numbers of the request.

    ``error`` is usually one of `CHECKPOINT_ERRORS`; None on success.
    """

    action: ClassVar[str] = CHECKPOINT
    sequence_number: str | None
    sub_sequence_number: int | None
    error: str | None = None


@dataclass(frozen=True)
class Status:
    """The child's answer to a call. ``response_for`` is the action of the call; None if the message does not name it."""

    action: ClassVar[str] = STATUS
    response_for: str | None


@dataclass(frozen=True)
class CheckpointRequest:
    """The child asks for a checkpoint.

    Attributes:
        sequence_number: None checkpoints all records that were delivered to the child.
        sub_sequence_number: Index in the aggregate; None means 0.
        problem: Reason why the position is unreadable; None if it is readable. The response to an unreadable request is `ILLEGAL_ARGUMENT`.
    """

    action: ClassVar[str] = CHECKPOINT
    sequence_number: str | None = None
    sub_sequence_number: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Noise:
    """A line of a child that is not a message. Its first 200 characters are logged, and it has no other effect."""

    text: str


DaemonMessage = Initialize | ProcessRecords | LeaseLost | ShardEnded | ShutdownRequested | CheckpointAnswer
ChildMessage = Status | CheckpointRequest


# Encoding


def encode(message: DaemonMessage | ChildMessage) -> bytes:
    """Return the line of a message, with the line feed at its end.

    The line is ASCII: other characters are escaped, so it is the same in every locale.
    """
    if isinstance(message, ProcessRecords):
        return b"".join(_pieces(message.records, message.millis_behind_latest))
    return _line({"action": message.action, **_fields(message)})


def _fields(message: DaemonMessage | ChildMessage) -> dict[str, object]:
    if isinstance(message, Initialize):
        return {
            "shardId": message.shard_id,
            "sequenceNumber": message.sequence_number,
            "subSequenceNumber": message.sub_sequence_number,
        }
    if isinstance(message, CheckpointAnswer):
        return {**_position(message), "error": message.error}
    if isinstance(message, CheckpointRequest):
        return _position(message)
    if isinstance(message, Status):
        return {"responseFor": message.response_for}
    return {}


def _position(message: CheckpointAnswer | CheckpointRequest) -> dict[str, object]:
    return {"sequenceNumber": message.sequence_number, "subSequenceNumber": message.sub_sequence_number}


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def encode_records(records: Iterable[UserRecord], millis_behind_latest: int | None) -> Iterator[bytes]:
    """Yield the line of a ``processRecords`` message in pieces, so that memory never holds a large batch as one text.

    A piece is 128 KiB long, plus at most one record; the last piece ends with the line feed.
    """
    return _pieces(map(_message_record, records), millis_behind_latest)


def _message_record(record: UserRecord) -> MessageRecord:
    arrived = record.approximate_arrival_timestamp
    return MessageRecord(
        encode_base64(record.data).decode("ascii"),
        record.partition_key,
        record.sequence_number,
        record.sub_sequence_number,
        None if arrived is None else (arrived - _EPOCH) // _MILLISECOND,
    )


def _pieces(records: Iterable[MessageRecord], millis_behind_latest: int | None) -> Iterator[bytes]:
    parts = ['{"action":"processRecords","records":[']
    size, separator = 0, ""
    for data, key, number, sub, arrived in records:
        # An unknown arrival time is 0, because a child of amazon_kclpy fails at null.
        part = (
            f'{separator}{{"data":"{data}","partitionKey":{encode_basestring_ascii(key)},"sequenceNumber":"{number}",'
            f'"approximateArrivalTimestamp":{arrived or 0},"subSequenceNumber":{sub},"action":"record"}}'
        )
        parts.append(part)
        size += len(part)
        separator = ","
        if size >= _PIECE:
            yield "".join(parts).encode("ascii")
            parts, size = [], 0
    behind = "null" if millis_behind_latest is None else str(millis_behind_latest)
    parts.append(f'],"millisBehindLatest":{behind}}}\n')
    yield "".join(parts).encode("ascii")


# Decoding what a child wrote


def decode_child_line(line: bytes) -> ChildMessage | Noise | None:
    """Read a line of a child, with or without its line feed: a message, `Noise`, or None for a blank line.

    Numbers instead of text, text instead of numbers, unknown fields, and text after the object are accepted.
    """
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return None
    value = _object_of(text)
    if value is None:
        return Noise(text[:_SHOWN])
    action = value.get("action")
    if action == STATUS:
        response_for = value.get("responseFor")
        return Status(response_for if isinstance(response_for, str) else None)
    if action == CHECKPOINT:
        return _checkpoint_request(value)
    return Noise(text[:_SHOWN])


def _object_of(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        value, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):  # not JSON, a number of thousands of digits, or too deep
        return None
    return value if isinstance(value, dict) else None


def _checkpoint_request(value: Mapping[str, Any]) -> CheckpointRequest:
    number, sub = value.get("sequenceNumber"), value.get("subSequenceNumber")
    if isinstance(number, int) and not isinstance(number, bool):
        number = str(number)
    if not isinstance(number, str | None):
        return CheckpointRequest(problem="sequenceNumber is neither text nor a number")
    if isinstance(sub, float) and sub.is_integer():
        sub = int(sub)
    if isinstance(sub, str):
        try:
            sub = int(sub) if sub.strip() else None
        except ValueError:
            sub = False
    if isinstance(sub, bool) or not isinstance(sub, int | None):
        return CheckpointRequest(number, None, problem="subSequenceNumber is not a number")
    return CheckpointRequest(number, sub)


# Decoding what a daemon wrote


def decode_daemon_line(line: str | bytes) -> DaemonMessage:
    """Read a line of a daemon, with or without its line feed, as a child does. Unknown keys are ignored.

    Raises:
        ProtocolError: If the line is not a message, because it is not a JSON object, has an unknown action, or lacks a key or has a value
            of the wrong type. The error's message names the problem, and does not contain the line.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a message of the MultiLang protocol: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolError("not a message of the MultiLang protocol: not an object")
    action = value.get("action")
    if action == PROCESS_RECORDS:
        records = _get(value, PROCESS_RECORDS, "records", list)
        return ProcessRecords(
            tuple(_record(record) for record in records),
            _get(value, PROCESS_RECORDS, "millisBehindLatest", int, type(None)),
        )
    if action == INITIALIZE:
        return Initialize(
            _get(value, INITIALIZE, "shardId", str),
            _get(value, INITIALIZE, "sequenceNumber", str, type(None)),
            _get(value, INITIALIZE, "subSequenceNumber", int, type(None)),
        )
    if action == CHECKPOINT:
        return CheckpointAnswer(
            _get(value, CHECKPOINT, "sequenceNumber", str, type(None)),
            _get(value, CHECKPOINT, "subSequenceNumber", int, type(None)),
            _get(value, CHECKPOINT, "error", str, type(None)),
        )
    for kind in (LeaseLost, ShardEnded, ShutdownRequested):
        if action == kind.action:
            return kind()
    raise ProtocolError(f"unknown action {str(action)[:80]!r} in a message of the MultiLang protocol")


def _record(value: object) -> MessageRecord:
    if not isinstance(value, dict):
        raise ProtocolError("a record of a processRecords message is not an object")
    return MessageRecord(
        _get(value, RECORD, "data", str),
        _get(value, RECORD, "partitionKey", str),
        _get(value, RECORD, "sequenceNumber", str),
        _get(value, RECORD, "subSequenceNumber", int),
        _get(value, RECORD, "approximateArrivalTimestamp", int, type(None)),
    )


def _get(value: Mapping[str, Any], action: str, key: str, *kinds: type) -> Any:
    if key not in value:
        raise ProtocolError(f"a message of the MultiLang protocol lacks a key: {key} of {action}")
    found = value[key]
    if not isinstance(found, kinds) or isinstance(found, bool):
        raise ProtocolError(f"a message of the MultiLang protocol has a wrong {key}: {type(found).__name__}")
    return found
