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

from kinesis_sdk.spark.errors import OffsetError

VERSION = 1


@dataclass(frozen=True)
class After:
    """Consumed up to a record.

    Attributes:
        sequence_number: The record, inclusive.
        arrival: Its arrival, epoch milliseconds.
        drained: Epoch milliseconds at which the shard was last seen to hold nothing behind it, if ever.
    """

    sequence_number: str
    arrival: int
    drained: int | None = None

    @property
    def number(self) -> int:
        """The sequence number as a number: only these compare."""
        return int(self.sequence_number)

    @property
    def known(self) -> int:
        """Up to when nothing of the shard can be missing, epoch milliseconds."""
        return max(self.arrival, self.drained or 0)


@dataclass(frozen=True)
class AtTimestamp:
    """Nothing consumed; begins with what arrived at ``millis`` (epoch milliseconds) or later."""

    millis: int


@dataclass(frozen=True)
class Horizon:
    """Nothing consumed; begins with the oldest record."""


@dataclass(frozen=True)
class Ended:
    """Read to its end.

    Attributes:
        known: Epoch milliseconds at which the shard was open still, where that is known: its children are younger.
    """

    known: int | None = None


Position = After | AtTimestamp | Horizon | Ended


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
    shards: Mapping[str, Position] = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        """Whether this is where a query begins, before its first batch was planned."""
        return not self.shards

    def with_shards(self, shards: Mapping[str, Position]) -> StreamOffset:
        """The same query at other positions."""
        return replace(self, shards=dict(shards))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, keys in order."""
        return {
            "created": self.created,
            "init": self.starting,
            "shards": {
                shard_id: _position_to_json(self.shards[shard_id]) for shard_id in sorted(self.shards)
            },
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
                shards={
                    _text(name): _position_from_json(name, item) for name, item in sorted(shards.items())
                },
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


def _position_to_json(position: Position) -> dict[str, Any]:
    if isinstance(position, After):
        item: dict[str, Any] = {"s": position.sequence_number, "t": position.arrival}
        return item if position.drained is None else {"c": position.drained, **item}
    if isinstance(position, AtTimestamp):
        return {"ts": position.millis}
    if isinstance(position, Horizon):
        return {"th": True}
    return {"end": True} if position.known is None else {"end": True, "t": position.known}


def _position_from_json(shard_id: str, item: Any) -> Position:
    if isinstance(item, Mapping):
        keys = set(item)
        if keys in ({"s", "t"}, {"s", "t", "c"}):
            number = _text(item["s"])
            if number.isascii() and number.isdigit():
                return After(number, _whole(item["t"]), _whole(item["c"]) if "c" in keys else None)
        elif keys == {"ts"}:
            return AtTimestamp(_whole(item["ts"]))
        elif keys == {"th"} and item["th"] is True:
            return Horizon()
        elif keys in ({"end"}, {"end", "t"}) and item["end"] is True:
            return Ended(_whole(item["t"]) if "t" in keys else None)
    raise OffsetError(f"shard {shard_id}: not a position: {item!r:.200}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a whole number expected, not {type(value).__name__}")
    return value
