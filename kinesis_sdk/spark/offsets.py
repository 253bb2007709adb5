"""Offsets of a streaming query: one cut, the position in each shard of each stream, and the JSON text that Spark stores.

A batch contains, for every shard, the records before the shard's first record that arrived at or after the *cut*. In each shard, it ends
after a whole Kinesis record, so an offset never needs a position inside an aggregate. Spark compares offsets as text, so the text is
canonical: keys sorted, no spaces, and one way to write each position. `QueryOffset.from_json` reads it.

| JSON | meaning |
| --- | --- |
| ``"v":2`` | version of this format |
| ``"init":"LATEST"`` | the starting position, as canonical text (`kinesis_sdk.spark.positions`) |
| ``"t0":1795154863000`` | time that LATEST was resolved to, in epoch milliseconds |
| ``"cut":1795154862950`` | the cut of the batch that ends here, in epoch milliseconds; ``null`` before the first batch |
| ``"streams":{"orders":{…}}`` | the streams by name |
| ``"created":1767225600`` | creation time of the stream in epoch seconds |
| ``"shards":{…}`` | the positions by shard; ``{}`` before the first batch |

| key of a shard | shard id |
| --- | --- |
| ``123`` | ``shardId-000000000123`` |
| ``=123`` | ``123``: an id of digits only, or one that begins with ``=``, has ``=`` before it |
| anything else | the id itself |

| position | meaning |
| --- | --- |
| ``">LR4Bv…"`` | consumed up to this record; nothing followed when the shard was read |
| ``"=LR4Bv…"`` | the next record is this one, and everything before it is consumed |
| ``">#007"``, ``"=#007"`` | the same, with a number in decimal digits, because it has leading zeros |
| ``"@1795154863000"`` | nothing consumed; starts with what arrived at that time or later, in epoch milliseconds |
| ``"TRIM_HORIZON"`` | nothing consumed; starts with the oldest record |
| ``"SHARD_END"`` | consumed to the end of the shard |

The characters after ``>`` and ``=`` are digits in base 64, the most significant digit first. Their values from 0 to 63 are
``A`` to ``Z``, ``a`` to ``z``, ``0`` to ``9``, ``-``, ``_``. Leading digits that the previous number also has are omitted.
The previous number belongs to the closest preceding key of the same stream with a number in base 64, in the order of the keys as text; for
the first key it is 0. To decode a number manually, replace the last digits of the previous number with the digits that are given:
``>LR4Bv`` and then ``>7w`` stand for the numbers ``LR4Bv`` and ``LR47w``.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import MAX_MILLIS, AfterSequence, AtSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.common.sequence import SHARD_END, TRIM_HORIZON, is_sequence_number
from kinesis_sdk.common.stream import StreamId
from kinesis_sdk.spark.errors import OffsetError

VERSION = 2

ShardPosition = AfterSequence | AtSequence | AtTimestamp | TrimHorizon | Ended
"""Positions that an offset can hold: between Kinesis records, and resolved."""


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """Position of a query in one stream.

    Attributes:
        created: Creation time of the stream in epoch seconds; it distinguishes a recreated stream from the old one.
        shards: Positions by shard id; empty before the first batch.
    """

    created: int
    shards: Mapping[str, ShardPosition] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class QueryOffset:
    """Position of a query in all of its streams.

    Attributes:
        starting: Canonical text of the starting position (`kinesis_sdk.spark.positions`).
        started: Time to which LATEST was resolved, in epoch milliseconds. Every offset repeats it, because the
            checkpoint does not contain the initial offset of a query. If LATEST were resolved again after a crash in
            the first batch, the records that arrived in between would be skipped.
        cut: Epoch milliseconds. All records that arrived earlier are consumed, in all shards, except those that could
            not be read when the batch was planned. None only in the initial offset of a query.
        streams: Positions by stream name. The key is never an ARN, so that a query may change from the name to the ARN of a stream.
    """

    starting: str
    started: int
    cut: int | None = None
    streams: Mapping[str, StreamOffset]

    @property
    def is_initial(self) -> bool:
        """Whether this is the initial offset of a query, before its first batch was planned."""
        return self.cut is None

    def with_streams(self, streams: Mapping[str, StreamOffset], cut: int) -> QueryOffset:
        """Return the offset of the same query at other positions; the cut is in epoch milliseconds."""
        return replace(self, streams=dict(streams), cut=cut)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, with its keys in order.

        Raises:
            OffsetError: If an offset cannot contain one of the positions.
        """
        return {
            "cut": self.cut,
            "init": self.starting,
            "streams": {
                name: {"created": stream.created, "shards": _shards_to_json(stream.shards)}
                for name, stream in sorted(self.streams.items())
            },
            "t0": self.started,
            "v": VERSION,
        }

    def to_json(self) -> str:
        """Return the canonical text.

        Raises:
            OffsetError: If an offset cannot contain one of the positions.
        """
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_dict(cls, value: Any) -> QueryOffset:
        """Return the offset that `to_dict` wrote.

        Raises:
            OffsetError: If the value is not an offset of this version.
        """
        if not isinstance(value, Mapping):
            raise OffsetError(f"an offset must be a JSON object, not {type(value).__name__}")
        _check_version(value)
        _check_keys(value, _KEYS, "an offset")
        streams = value["streams"]
        if not isinstance(streams, Mapping) or not streams:
            raise OffsetError("streams must be a JSON object with at least one stream")
        offset = cls(
            starting=_text(value["init"], "init"),
            started=_whole(value["t0"], "t0"),
            cut=None if value["cut"] is None else _whole(value["cut"], "cut"),
            streams={_name(name): _stream_from_json(name, item) for name, item in sorted(streams.items())},
        )
        if offset.cut is None and any(stream.shards for stream in offset.streams.values()):
            raise OffsetError(
                "cut must be a time in epoch milliseconds in an offset with positions of shards"
            )
        return offset

    @classmethod
    def from_json(cls, text: str) -> QueryOffset:
        """Return the offset of a text.

        Raises:
            OffsetError: If the text is not an offset of this version.
        """
        try:
            value = json.loads(text)
        except (
            ValueError,
            RecursionError,
        ) as error:  # also for a number of thousands of digits, and deep nesting
            raise OffsetError(f"offset is not valid JSON: {error}") from error
        return cls.from_dict(value)


_KEYS = frozenset({"cut", "init", "streams", "t0", "v"})
_STREAM_KEYS = frozenset({"created", "shards"})


def _check_version(value: Mapping[Any, Any]) -> None:
    version = value.get("v")
    if version == 1 and type(version) is int:
        raise OffsetError(
            "the checkpoint contains an offset of version 1, which was never released, and this package reads version "
            f"{VERSION} only; start with a new checkpoint"
        )
    if version != VERSION or type(version) is not int:
        raise OffsetError(
            f"the checkpoint contains an offset of version {version!r:.80}; this package reads version {VERSION}. "
            "Is it the checkpoint of another source, or of a newer kinesis_sdk?"
        )


def _check_keys(value: Mapping[Any, Any], keys: frozenset[str], what: str) -> None:
    found = set(value)
    if found != keys:
        missing, others = sorted(keys - found), sorted(map(str, found - keys))
        raise OffsetError(
            f"{what} must have the keys {', '.join(sorted(keys))}; missing: {', '.join(missing) or 'none'}, "
            f"unknown: {', '.join(others)[:200] or 'none'}"
        )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise OffsetError(f"{name} must be text, not {type(value).__name__}")
    return value


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_MILLIS:
        raise OffsetError(f"{name} must be a whole number from 0 to {MAX_MILLIS}, not {value!r:.80}")
    return value


def _name(name: Any) -> str:
    try:
        if StreamId.parse(name).arn is None:
            return str(name)
    except ConfigError:
        pass  # the error below covers this, and an ARN, too
    raise OffsetError(f"the keys of streams must be stream names, not {name!r:.200}")


def _stream_from_json(name: str, item: Any) -> StreamOffset:
    if not isinstance(item, Mapping):
        raise OffsetError(f"stream {name} must be a JSON object, not {type(item).__name__}")
    _check_keys(item, _STREAM_KEYS, f"stream {name}")
    shards = item["shards"]
    if not isinstance(shards, Mapping):
        raise OffsetError(f"shards of stream {name} must be a JSON object, not {type(shards).__name__}")
    return StreamOffset(
        created=_whole(item["created"], f"created of stream {name}"), shards=_shards_from_json(name, shards)
    )


# -- shards: the functions that follow run for every shard at every trigger ---------------------------------------------------

_WIDTH = 72
"""Number of digits in base 64 of the greatest sequence number, which has 129 decimal digits. It is a multiple of four, so that the base64
encoding of the number's bytes is its notation in base 64.
"""
_BYTES = _WIDTH * 6 // 8
_ZEROS = b"A" * _WIDTH
_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_DIGITS = re.compile(rf"[A-Za-z0-9_-]{{0,{_WIDTH}}}").fullmatch
_MILLIS = re.compile(r"0|[1-9][0-9]{0,14}").fullmatch
_NUMBERED = re.compile(r"0|[1-9][0-9]*").fullmatch
_PREFIX = "shardId-"
_MAX_SHARD_ID = 128


def _shards_to_json(shards: Mapping[str, ShardPosition]) -> dict[str, str]:
    """Return the JSON object of the positions of a stream's shards, with its keys in order."""
    previous = 0
    result: dict[str, str] = {}
    keyed = {_key_of(shard_id): position for shard_id, position in shards.items()}
    for key in sorted(keyed):
        position = keyed[key]
        if isinstance(position, AfterSequence | AtSequence):
            text = position.sequence_number
            mark = "="
            if isinstance(position, AfterSequence):
                mark = ">"
                if position.sub_sequence_number is not None:
                    raise OffsetError(f"shard {_id_of(key)}: {position} is inside a Kinesis record")
            if not is_sequence_number(text):
                raise OffsetError(f"shard {_id_of(key)}: {text!r:.200} is not a sequence number")
            if text[0] == "0" and text != "0":
                result[key] = f"{mark}#{text}"
                continue
            number = int(text)
            # Digits up to the highest one that differs.
            count = ((number ^ previous).bit_length() + 5) // 6
            digits = b2a_base64(number.to_bytes(_BYTES, "big"), newline=False)[_WIDTH - count :]
            result[key] = mark + digits.translate(_TO_URL_SAFE).decode()
            previous = number
        elif isinstance(position, AtTimestamp):
            result[key] = f"@{_whole(position.millis, f'shard {_id_of(key)}: the time')}"
        elif isinstance(position, TrimHorizon):
            result[key] = TRIM_HORIZON
        elif isinstance(position, Ended):
            result[key] = SHARD_END
        else:
            raise OffsetError(f"shard {_id_of(key)}: an offset cannot hold {position!r:.200}")
    return result


def _shards_from_json(stream: str, items: Mapping[str, Any]) -> dict[str, ShardPosition]:
    """Return the positions that `_shards_to_json` wrote, in any order of keys.

    Raises:
        OffsetError: If a key does not name a shard, or a value is not a position in its canonical form.
    """
    previous = 0
    result: dict[str, ShardPosition] = {}
    for key in sorted(items):
        value = items[key]
        shard_id = _id_of(key)
        mark = value[:1] if isinstance(value, str) else None
        if mark in {">", "="}:
            kind = AfterSequence if mark == ">" else AtSequence
            digits = value[1:]
            if _DIGITS(digits):
                number = int.from_bytes(
                    a2b_base64((_ZEROS + digits.encode().translate(_FROM_URL_SAFE))[-_WIDTH:]), "big"
                )
                count = len(digits)
                number |= previous >> 6 * count << 6 * count
                text = str(number)
                # `_shards_to_json` writes neither more digits than needed nor fewer.
                if ((number ^ previous).bit_length() + 5) // 6 == count and is_sequence_number(text):
                    result[shard_id] = kind(text)
                    previous = number
                    continue
            elif digits[:2] == "#0" and len(digits) > 2 and is_sequence_number(digits[1:]):
                result[shard_id] = kind(digits[1:])
                continue
        elif value == SHARD_END:
            result[shard_id] = Ended()
            continue
        elif value == TRIM_HORIZON:
            result[shard_id] = TrimHorizon()
            continue
        elif mark == "@" and _MILLIS(value[1:]):
            result[shard_id] = AtTimestamp(_whole(int(value[1:]), f"shard {shard_id}: the time"))
            continue
        raise OffsetError(f"stream {stream}, shard {shard_id}: {value!r:.200} is not a position")
    return result


def _key_of(shard_id: str) -> str:
    """Return the key of a shard: the number of a usual id; otherwise the id, after ``=`` if it could be mistaken for another key."""
    number = shard_id[8:].lstrip("0") or "0"
    if shard_id == _PREFIX + number.zfill(12) and _NUMBERED(number):
        return number
    return f"={shard_id}" if shard_id[:1] == "=" or shard_id.isdigit() else shard_id


def _id_of(key: str) -> str:
    """Return the shard id of a key.

    Raises:
        OffsetError: If `_key_of` does not write such a key.
    """
    if not isinstance(key, str):
        raise OffsetError(f"the keys of shards must be text, not {type(key).__name__}")
    if key.isdigit() and _NUMBERED(key) and len(key) <= _MAX_SHARD_ID - len(_PREFIX):
        return _PREFIX + key.zfill(12)
    shard_id = key[1:] if key[:1] == "=" else key
    if not 1 <= len(shard_id) <= _MAX_SHARD_ID or _key_of(shard_id) != key:
        raise OffsetError(f"{key!r:.200} is not the key of a shard")
    return shard_id
