"""Starting positions as users write them, and their canonical text.

| option value | meaning |
| --- | --- |
| ``LATEST`` | records that arrive after the first start of the query |
| ``TRIM_HORIZON`` | the oldest record |
| ``2026-01-31T12:00:00Z``, ``@1769860800000``, ``-15m`` | records that arrived then or later |
| ``{"default": "TRIM_HORIZON", "shardId-000000000001": "after:4957…"}`` | positions by shard, if the query reads one stream |
| ``{"default": "LATEST", "orders": "TRIM_HORIZON", "flights": {"default": …, "shardId-…": …}}`` | positions by stream |

`kinesis_sdk.common.position_text` defines the grammar of the positions. A key that begins with ``shardId-`` is a shard id, unless its
value is an object; any other key is a stream name. Within the object of a stream, every key except ``default`` is a shard id. A missing
``default`` of a stream is the ``default`` of all streams; if that is missing, it is LATEST.

A shard that is created later always starts at its oldest record, regardless of the starting position.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import (
    AfterSequence,
    AtSequence,
    AtTimestamp,
    Ended,
    Latest,
    Position,
    TrimHorizon,
)
from kinesis_sdk.common.position_text import parse_position
from kinesis_sdk.common.stream import StreamId

if TYPE_CHECKING:
    from kinesis_sdk.spark.offsets import ShardPosition

_ACCEPTED = (
    "the text of a position, or a JSON object of shard ids or stream names (and 'default') with such texts"
)
_DEFAULT = "default"
_SHARD_PREFIX = "shardId-"

_KINDS: tuple[type[Position], ...] = (TrimHorizon, Latest, AtTimestamp, AtSequence, AfterSequence)
Start = TrimHorizon | Latest | AtTimestamp | AtSequence | AfterSequence
"""Positions that users can write, without an index in an aggregate. Offsets store their `str`, which must not change."""


@dataclass(frozen=True)
class StartingPosition:
    """Position from which a query starts.

    Attributes:
        default: Position in every shard that is not listed.
        shards: Positions by shard id, if the query reads one stream.
        streams: Positions by stream name, each without ``streams``. All other streams have ``default``.
    """

    default: Start
    shards: Mapping[str, Start] = field(default_factory=dict)
    streams: Mapping[str, StartingPosition] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        text: str,
        option: str = "startingPosition",
        *,
        now: float | None = None,
        streams: Collection[str] | None = None,
    ) -> StartingPosition:
        """Parse the user's text, or a canonical text.

        ``now`` (epoch seconds) is used for times such as ``-15m``; None for canonical text, which contains no such times. If ``streams``
        (None: unknown) names one stream, positions by shard become positions of that stream, so that they never apply to a
        stream that the query reads later.

        Raises:
            ConfigError: If the text has none of the accepted forms, or names a stream that is not in ``streams``.
        """
        stripped = text.strip()
        if not stripped.startswith("{"):
            return cls(_without_number(stripped, option, now))
        try:
            items = json.loads(stripped)
        except (ValueError, RecursionError) as error:
            raise ConfigError(option, text, f"{_ACCEPTED}; this is not JSON ({error})") from error
        default: Start = Latest()
        if _DEFAULT in items:
            default = _without_number(items.pop(_DEFAULT), f"{option}[{_DEFAULT}]", now)
        shards: dict[str, Start] = {}
        found: dict[str, StartingPosition] = {}
        for name, value in sorted(items.items()):
            if name.startswith(_SHARD_PREFIX) and not isinstance(value, Mapping):
                shards[name] = _parse_start(value, f"{option}[{name}]", now)
            else:
                found[name] = _parse_stream(name, value, default, option, now, streams)
        if shards and found:
            raise ConfigError(
                option,
                text,
                f"either stream names or shard ids as keys, not both: {next(iter(found))} is a stream name, "
                f"and {next(iter(shards))} a shard id. A shard's position belongs in the object of its stream: "
                f'{{"<stream name>": {{"{next(iter(shards))}": …}}}}',
            )
        if shards and streams is not None:
            if len(streams) > 1:
                raise ConfigError(
                    option,
                    text,
                    "stream names as keys, because the query reads several streams: "
                    f'{{"{min(streams)}": {{"{next(iter(shards))}": …}}}}',
                )
            (name,) = streams
            if name != _DEFAULT:
                return cls(default, {}, {name: cls(default, shards)})
        return cls(default, shards, found)

    def for_stream(self, name: str) -> StartingPosition:
        """Return the position in a stream, by its name (not its ARN); the result has no ``streams``."""
        return self.streams.get(name) or StartingPosition(self.default, self.shards)

    def of(self, shard_id: str) -> Start:
        """Return the user's position for a shard of the only stream. With several streams, see `for_stream`."""
        return self.shards.get(shard_id, self.default)

    def resolve(self, shard_id: str, started: int) -> ShardPosition:
        """Return the position at which a query starts in a shard of the only stream. With several streams, see `for_stream`.

        LATEST was resolved to ``started``, in epoch milliseconds.
        """
        start = self.of(shard_id)
        return AtTimestamp(started) if isinstance(start, Latest) else start

    def __str__(self) -> str:
        items = self._items()
        return (
            str(self.default) if len(items) == 1 else json.dumps(items, separators=(",", ":"), sort_keys=True)
        )

    def _items(self) -> dict[str, Any]:
        items: dict[str, Any] = {_DEFAULT: str(self.default)}
        items.update((name, str(start)) for name, start in self.shards.items())
        for name, position in self.streams.items():
            # The object also distinguishes a stream whose name begins like a shard id from a shard.
            plain = not position.shards and not name.startswith(_SHARD_PREFIX)
            items[name] = str(position.default) if plain else position._items()
        return items


def _parse_stream(
    name: str, value: Any, default: Start, option: str, now: float | None, streams: Collection[str] | None
) -> StartingPosition:
    field_name = f"{option}[{name}]"
    try:
        is_name = StreamId.parse(name).arn is None
    except ConfigError:
        is_name = False
    if not is_name:
        raise ConfigError(
            field_name, value, f"stream names or shard ids ({_SHARD_PREFIX}…) as keys, and {_DEFAULT}"
        )
    if streams is not None and name not in streams:
        raise ConfigError(
            field_name,
            value,
            f"names of streams that the query reads ({', '.join(sorted(streams))}), or shard ids ({_SHARD_PREFIX}…), as keys",
        )
    if not isinstance(value, Mapping):
        return StartingPosition(_without_number(value, field_name, now))
    shards = {
        shard_id: _parse_start(start, f"{field_name}[{shard_id}]", now)
        for shard_id, start in sorted(value.items())
        if shard_id != _DEFAULT
    }
    if _DEFAULT in value:
        default = _without_number(value[_DEFAULT], f"{field_name}[{_DEFAULT}]", now)
    return StartingPosition(default, shards)


def _without_number(value: Any, option: str, now: float | None) -> Start:
    start = _parse_start(value, option, now)
    if isinstance(start, AtSequence | AfterSequence):
        raise ConfigError(option, value, "a position without a sequence number, which belongs to one shard")
    return start


def _parse_start(value: Any, option: str, now: float | None) -> Start:
    if not isinstance(value, str):
        raise ConfigError(option, value, _ACCEPTED)
    position = parse_position(value, field=option, now=now, accepted=_KINDS)
    if isinstance(position, AfterSequence) and position.sub_sequence_number is not None:
        if position.sub_sequence_number < 0:
            return AtSequence(position.sequence_number)
        raise ConfigError(option, value, "a position without an index: a batch holds whole Kinesis records")
    assert not isinstance(position, Ended)
    return position
