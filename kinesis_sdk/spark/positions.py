"""Starting positions as users write them, and their canonical text.

| option value | meaning |
| --- | --- |
| ``LATEST`` | records that arrive after the first start of the query |
| ``TRIM_HORIZON`` | the oldest record |
| ``AT_TIMESTAMP 2026-01-31T12:00:00Z``, ``AT_TIMESTAMP 1769860800000`` | records that arrived then (epoch milliseconds) or later |
| ``{"default": "TRIM_HORIZON", "shardId-000000000001": "AFTER_SEQUENCE_NUMBER 4957…"}`` | one position per shard |

A shard that is created later always starts at its oldest record, whatever the starting position is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import (
    AFTER_SEQUENCE_NUMBER,
    AfterSequence,
    AtTimestamp,
    Latest,
    TrimHorizon,
)
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.spark.offsets import ShardPosition

_ACCEPTED = (
    "LATEST, TRIM_HORIZON, 'AT_TIMESTAMP <ISO 8601 time or epoch milliseconds>', or a JSON object of shard ids "
    "(and 'default') with these or 'AFTER_SEQUENCE_NUMBER <number>'"
)

Start = TrimHorizon | Latest | AtTimestamp | AfterSequence
"""Positions that users can write. Their text is canonical."""


@dataclass(frozen=True)
class StartingPosition:
    """Position from which a query starts.

    Attributes:
        default: Position in every shard without one of its own.
        shards: Positions by shard id.
    """

    default: Start
    shards: Mapping[str, Start] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, option: str = "startingPosition") -> StartingPosition:
        """Parse what the user wrote, or its canonical text.

        Args:
            text: The text.
            option: Name of the option, for the error.

        Raises:
            ConfigError: If the text has none of the accepted forms.
        """
        stripped = text.strip()
        if not stripped.startswith("{"):
            start = _parse_start(stripped, option)
            if isinstance(start, AfterSequence):
                raise ConfigError(option, text, "a sequence number for one shard only, in a JSON object")
            return cls(start)
        try:
            items = json.loads(stripped)
        except json.JSONDecodeError as error:
            raise ConfigError(option, text, f"{_ACCEPTED}; this is not JSON ({error})") from error
        default: Start = Latest()
        shards: dict[str, Start] = {}
        for name, value in items.items():
            start = _parse_start(value, f"{option}[{name}]")
            if name != "default":
                shards[name] = start
            elif isinstance(start, AfterSequence):
                raise ConfigError(
                    f"{option}[default]",
                    value,
                    "a position without a sequence number: it belongs to one shard",
                )
            else:
                default = start
        return cls(default, dict(sorted(shards.items())))

    def of(self, shard_id: str) -> Start:
        """Return the position that was written for a shard."""
        return self.shards.get(shard_id, self.default)

    def resolve(self, shard_id: str, started: int) -> ShardPosition:
        """Return the position at which a query starts in a shard.

        Args:
            shard_id: The shard.
            started: Time that LATEST was resolved to, in epoch milliseconds.
        """
        start = self.of(shard_id)
        return AtTimestamp(started) if isinstance(start, Latest) else start

    def __str__(self) -> str:
        if not self.shards:
            return str(self.default)
        items = {"default": str(self.default), **{name: str(start) for name, start in self.shards.items()}}
        return json.dumps(items, separators=(",", ":"), sort_keys=True)


def _parse_start(value: Any, option: str) -> Start:
    if not isinstance(value, str):
        raise ConfigError(option, value, _ACCEPTED)
    kind, _, rest = value.strip().partition(" ")
    kind, rest = kind.upper(), rest.strip()
    if kind == LATEST and not rest:
        return Latest()
    if kind == TRIM_HORIZON and not rest:
        return TrimHorizon()
    if kind == AT_TIMESTAMP and rest:
        return AtTimestamp(parse_instant(rest, option))
    if kind == AFTER_SEQUENCE_NUMBER and rest.isascii() and rest.isdigit() and len(rest) <= 129:
        return AfterSequence(rest)
    raise ConfigError(option, value, _ACCEPTED)


def parse_instant(text: str, option: str) -> int:
    """Return epoch milliseconds from epoch milliseconds or ISO 8601; a time without a zone is UTC.

    Args:
        text: The text.
        option: Name of the option, for the error.

    Raises:
        ConfigError: If the text is neither.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        # Python 3.10 does not accept the letter Z.
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
    except ValueError as error:
        raise ConfigError(option, text, "an ISO 8601 time or epoch milliseconds") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)
