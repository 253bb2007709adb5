"""Where a streaming query stands in each shard, and the JSON text that Spark keeps of it.

A batch ends after a whole Kinesis record, so that no position inside an aggregate is needed. Spark compares offsets
as text: the text of an offset is canonical (keys sorted, no spaces).

| JSON of a shard | meaning |
| --- | --- |
| ``{"s":"4968…","t":1795154862950}`` | consumed up to this record, inclusive; its arrival in epoch milliseconds |
| the same with ``"c":1795154999000`` | … and found empty behind it at that time |
| ``{"ts":1795154863000}`` | nothing consumed; begins with what arrived then or later |
| ``{"th":true}`` | nothing consumed; begins with the oldest record |
| ``{"end":true}``, perhaps with ``"t"`` | read to its end; ``t`` is a time at which it was open still |
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
    """Where a query stands in a stream.

    Attributes:
        stream: Stream name or ARN.
        created: Creation time of the stream, epoch seconds: a stream that was deleted and made again differs.
        starting: The starting position in canonical text (`kinesis_sdk.spark.positions`).
        started: The instant that LATEST was resolved to, epoch milliseconds. Every offset repeats it, because the
            offset that a query began with is in no checkpoint: were it resolved again after a crash of the first
            batch, what arrived in between would be skipped.
        shards: Positions by shard id; none in the offset that a query begins with.
    """

    stream: str
    created: int
    starting: str
    started: int
    shards: Mapping[str, ShardPosition] = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        """Whether this is where a query begins, before its first batch was planned."""
        return not self.shards

    def with_shards(self, shards: Mapping[str, ShardPosition]) -> StreamOffset:
        """The same query at other positions."""
        return replace(self, shards=dict(shards))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, keys in order."""
        return {
            "created": self.created,
            "init": self.starting,
            "shards": {shard_id: position_to_json(self.shards[shard_id]) for shard_id in sorted(self.shards)},
            "stream": self.stream,
            "t0": self.started,
            "v": VERSION,
        }

    def to_json(self) -> str:
        """The canonical text."""
        return json.dumps(self.to_dict(), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_dict(cls, value: Any) -> StreamOffset:
        """Read an offset that `to_dict` made.

        Raises:
            OffsetError: It is none, or one of a newer version.
        """
        if not isinstance(value, Mapping):
            raise OffsetError(f"an offset is a JSON object, not {type(value).__name__}")
        version = value.get("v")
        if version != VERSION:
            raise OffsetError(
                f"the checkpoint holds an offset of version {version!r}; this package reads version {VERSION}. "
                "Is it the checkpoint of another source, or of a newer kinesis_sdk?"
            )
        shards = value.get("shards")
        if not isinstance(shards, Mapping):
            raise OffsetError("an offset without shards")
        try:
            return cls(
                stream=_text(value["stream"]),
                created=_whole(value["created"]),
                starting=_text(value["init"]),
                started=_whole(value["t0"]),
                shards={_text(name): position_from_json(name, item) for name, item in sorted(shards.items())},
            )
        except (KeyError, TypeError) as error:
            raise OffsetError(f"an incomplete offset ({type(error).__name__}: {error})") from error

    @classmethod
    def from_json(cls, text: str) -> StreamOffset:
        """Read an offset from its text.

        Raises:
            OffsetError: It is none.
        """
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise OffsetError(f"an offset that is no JSON: {error}") from error


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
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a whole number expected, not {type(value).__name__}")
    return value
