"""Starting positions: what users write, its canonical text, and where a shard then begins.

| written | meaning |
| --- | --- |
| ``LATEST`` | what arrives after the query's first start |
| ``TRIM_HORIZON`` | the oldest record |
| ``AT_TIMESTAMP 2026-01-31T12:00:00Z``, ``AT_TIMESTAMP 1769860800000`` | what arrived then (epoch milliseconds) or later |
| ``{"default": "TRIM_HORIZON", "shardId-000000000001": "AFTER_SEQUENCE_NUMBER 4957…"}`` | per shard |

A shard that is born later always begins at its oldest record, whatever the starting position says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST, TRIM_HORIZON
from kinesis_sdk.spark.offsets import After, AtTimestamp, Horizon, Position

AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"
_ACCEPTED = (
    "LATEST, TRIM_HORIZON, 'AT_TIMESTAMP <ISO 8601 time or epoch milliseconds>', or a JSON object of shard ids "
    "(and 'default') with these or 'AFTER_SEQUENCE_NUMBER <number>'"
)


@dataclass(frozen=True)
class Spec:
    """One position as written.

    Attributes:
        kind: ``LATEST``, ``TRIM_HORIZON``, ``AT_TIMESTAMP`` or ``AFTER_SEQUENCE_NUMBER``.
        value: Epoch milliseconds or sequence number, as text; empty for the first two.
    """

    kind: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.value}" if self.value else self.kind

    @property
    def millis(self) -> int:
        """Epoch milliseconds of ``AT_TIMESTAMP``."""
        return int(self.value)

    def position(self, started: int) -> Position:
        """Where a shard begins that this was said of; ``started`` is what LATEST was resolved to."""
        if self.kind == TRIM_HORIZON:
            return Horizon()
        if self.kind == AFTER_SEQUENCE_NUMBER:
            # Arrival 0: not known, and nothing may be concluded from it.
            return After(self.value, 0)
        return AtTimestamp(self.millis if self.kind == AT_TIMESTAMP else started)


@dataclass(frozen=True)
class StartingPosition:
    """Where a query begins.

    Attributes:
        default: For every shard that is not named.
        shards: For the shards that are named.
    """

    default: Spec
    shards: Mapping[str, Spec] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, option: str = "startingPosition") -> StartingPosition:
        """Read what the user wrote, or the canonical text of it.

        Raises:
            ConfigError: It is none of the accepted forms.
        """
        stripped = text.strip()
        if not stripped.startswith("{"):
            spec = _parse_spec(stripped, option)
            if spec.kind == AFTER_SEQUENCE_NUMBER:
                raise ConfigError(option, text, "a sequence number for one shard only, in a JSON object")
            return cls(spec)
        try:
            items = json.loads(stripped)
        except json.JSONDecodeError as error:
            raise ConfigError(option, text, f"{_ACCEPTED}; this is not JSON ({error})") from error
        default = Spec(LATEST)
        shards: dict[str, Spec] = {}
        for name, value in items.items():
            spec = _parse_spec(value, f"{option}[{name}]")
            if name != "default":
                shards[name] = spec
            elif spec.kind == AFTER_SEQUENCE_NUMBER:
                raise ConfigError(f"{option}[default]", value, "no sequence number: those are one shard's")
            else:
                default = spec
        return cls(default, dict(sorted(shards.items())))

    def of(self, shard_id: str) -> Spec:
        """What was said of a shard."""
        return self.shards.get(shard_id, self.default)

    def __str__(self) -> str:
        if not self.shards:
            return str(self.default)
        items = {"default": str(self.default), **{name: str(spec) for name, spec in self.shards.items()}}
        return json.dumps(items, separators=(",", ":"), sort_keys=True)


def _parse_spec(value: Any, option: str) -> Spec:
    if not isinstance(value, str):
        raise ConfigError(option, value, _ACCEPTED)
    kind, _, rest = value.strip().partition(" ")
    kind, rest = kind.upper(), rest.strip()
    if kind in {LATEST, TRIM_HORIZON} and not rest:
        return Spec(kind)
    if kind == AT_TIMESTAMP and rest:
        return Spec(kind, str(parse_instant(rest, option)))
    if kind == AFTER_SEQUENCE_NUMBER and rest.isascii() and rest.isdigit() and len(rest) <= 129:
        return Spec(kind, rest)
    raise ConfigError(option, value, _ACCEPTED)


def parse_instant(text: str, option: str) -> int:
    """Epoch milliseconds from epoch milliseconds or ISO 8601; without a zone it is UTC.

    Raises:
        ConfigError: It is neither.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        # Python 3.10 does not know the letter Z.
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
    except ValueError as error:
        raise ConfigError(option, text, "an ISO 8601 time or epoch milliseconds") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)
