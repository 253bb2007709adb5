"""Offsets of a streaming query: its position in each shard, and the JSON text that Spark stores.

A batch ends after a whole Kinesis record, so an offset never needs a position inside an aggregate. Spark compares offsets as text.
The text of an offset is therefore canonical (keys sorted, no spaces).

| JSON of a shard | meaning |
| --- | --- |
| ``{"s":"4968…","t":1795154862950}`` | consumed up to this record, inclusive; its arrival in epoch milliseconds, 0 if it is unknown |
| the same with ``"c":1795154999000`` | … and found empty after it at that time |
| ``{"ts":1795154863000}`` | nothing consumed; starts with what arrived then or later |
| ``{"th":true}`` | nothing consumed; starts with the oldest record |
| ``{"end":true}``, perhaps with ``"t"`` | read to its end; ``t`` is a time at which it was still open |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kinesis_sdk.common.position import AfterSequence, AtTimestamp, Ended, TrimHorizon
from kinesis_sdk.spark.errors import OffsetError

VERSION = 1


ShardPosition = AfterSequence | AtTimestamp | TrimHorizon | Ended
"""Positions that an offset can hold: between Kinesis records, and resolved."""


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """Position of a query in a stream.

    Attributes:
        stream: Stream name or ARN.
        created: Creation time of the stream in epoch seconds; it tells a recreated stream from the old one.
        starting: Canonical text of the starting position (`kinesis_sdk.spark.positions`).
        started: Time that LATEST was resolved to, in epoch milliseconds. Every offset repeats it, because the checkpoint does
            not contain the initial offset of a query. If LATEST were resolved again after a crash in the first batch, the
            records that arrived in between would be skipped.
        shards: Positions by shard id; empty in the initial offset of a query.
    """

    stream: str
    created: int
    starting: str
    started: int
    shards: Mapping[str, ShardPosition] = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        """Whether this is the initial offset of a query, before its first batch was planned."""
        return not self.shards

    def with_shards(self, shards: Mapping[str, ShardPosition]) -> StreamOffset:
        """Return the offset of the same query at other positions."""
        return replace(self, shards=dict(shards))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, with its keys in order."""
        return {
            "created": self.created,
            "init": self.starting,
            "shards": {shard_id: position_to_json(self.shards[shard_id]) for shard_id in sorted(self.shards)},
            "stream": self.stream,
            "t0": self.started,
            "v": VERSION,
        }

    def to_json(self) -> str:
        """Return the canonical text."""
        return json.dumps(self.to_dict(), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_dict(cls, value: Any) -> StreamOffset:
        """Return the offset that `to_dict` wrote.

        Raises:
            OffsetError: If the value is not an offset, or one of a newer version.
        """
        if not isinstance(value, Mapping):
            raise OffsetError(f"an offset must be a JSON object, not {type(value).__name__}")
        version = value.get("v")
        if version != VERSION:
            raise OffsetError(
                f"the checkpoint contains an offset of version {version!r}; this package reads version {VERSION}. "
                "Is it the checkpoint of another source, or of a newer kinesis_sdk?"
            )
        shards = value.get("shards")
        if not isinstance(shards, Mapping):
            raise OffsetError("an offset must have shards")
        try:
            return cls(
                stream=_text(value["stream"]),
                created=_whole(value["created"]),
                starting=_text(value["init"]),
                started=_whole(value["t0"]),
                shards={_text(name): position_from_json(name, item) for name, item in sorted(shards.items())},
            )
        except (KeyError, TypeError) as error:
            raise OffsetError(f"an offset is incomplete ({type(error).__name__}: {error})") from error

    @classmethod
    def from_json(cls, text: str) -> StreamOffset:
        """Return the offset of a text.

        Raises:
            OffsetError: If the text is not an offset.
        """
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise OffsetError(f"offset is not valid JSON: {error}") from error


def position_to_json(position: ShardPosition) -> dict[str, Any]:
    """Return the JSON object of a shard's position, with its keys in order."""
    if isinstance(position, AfterSequence):
        item: dict[str, Any] = {"s": position.sequence_number, "t": position.arrival or 0}
        return item if position.drained is None else {"c": position.drained, **item}
    if isinstance(position, AtTimestamp):
        return {"ts": position.millis}
    if isinstance(position, TrimHorizon):
        return {"th": True}
    return {"end": True} if position.known is None else {"end": True, "t": position.known}


def position_from_json(shard_id: str, item: Any) -> ShardPosition:
    """Return the position that `position_to_json` wrote.

    Raises:
        OffsetError: If the object is not a position.
        TypeError: If one of its values has the wrong type.
    """
    if isinstance(item, Mapping):
        keys = set(item)
        if keys in ({"s", "t"}, {"s", "t", "c"}):
            number = _text(item["s"])
            if number.isascii() and number.isdigit():
                arrival = _whole(item["t"]) or None
                drained = _whole(item["c"]) if "c" in keys else None
                return AfterSequence(number, arrival=arrival, drained=drained)
        elif keys == {"ts"}:
            return AtTimestamp(_whole(item["ts"]))
        elif keys == {"th"} and item["th"] is True:
            return TrimHorizon()
        elif keys in ({"end"}, {"end", "t"}) and item["end"] is True:
            return Ended(_whole(item["t"]) if "t" in keys else None)
    raise OffsetError(f"shard {shard_id}: {item!r:.200} is not a position")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, not {type(value).__name__}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, not {type(value).__name__}")
    return value
