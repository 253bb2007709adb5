"""Positions, times and durations as users write them: one grammar for commands, views, Spark options and files.

| text | grammar |
| --- | --- |
| position | ``TRIM_HORIZON``, ``LATEST``, ``SHARD_END``, a time, or ``at:`` or ``after:`` and a sequence number with an optional ``/index`` |
| time | ISO 8601 (UTC without an offset), ``@`` and epoch milliseconds, or ``-`` and a duration: a time ago |
| duration | numbers with units: ``500ms``, ``90s``, ``15m``, ``1h30m``, ``1d``, ``2w``; or ``0`` |

``at:`` begins at that record, ``after:`` at the next record; the index counts the user records of an aggregate from
0. The names of the API are accepted as well, but never written: ``AT_TIMESTAMP`` and a time or epoch milliseconds,
``AT_SEQUENCE_NUMBER`` and ``AFTER_SEQUENCE_NUMBER`` and a number. Case does not matter.

Some settings accept fewer kinds of positions, but none accepts other spellings.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timedelta, timezone

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.position import (
    MAX_MILLIS,
    AfterSequence,
    AtSequence,
    AtTimestamp,
    Ended,
    Latest,
    Position,
    TrimHorizon,
)

MAX_TEXT = 200
"""Maximum characters of a text. A sequence number has 129 at most."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)\s*")
_SEQUENCE = re.compile(
    r"(?:(at|after):|(at|after)_sequence_number\s+)(\d{1,129})(?:/(\d{1,18}))?",
)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[t ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s*(?:(z)|([+-])(\d\d):?(\d\d))?)?"
)
_TIMESTAMP = re.compile(r"at_timestamp\s+")
_WORDS: dict[str, Position] = {str(one).lower(): one for one in (TrimHorizon(), Latest(), Ended())}
_TIME = "a time (2026-11-21T09:00:00Z, @1732179600000 or -15m)"
_DURATION = "a duration with a unit, such as 500ms, 30s, 15m, 1h30m or 2d"
_FORMS: dict[type[Position], str] = {
    TrimHorizon: "TRIM_HORIZON",
    Latest: "LATEST",
    Ended: "SHARD_END",
    AtTimestamp: _TIME,
    AtSequence: "at:<sequence number>[/<index>]",
    AfterSequence: "after:<sequence number>[/<index>]",
}
ALL_POSITIONS = tuple(_FORMS)


def parse_position(
    text: str,
    *,
    field: str = "position",
    now: float | None,
    accepted: Collection[type[Position]] = ALL_POSITIONS,
) -> Position:
    """Return the position that a text means.

    Args:
        text: The text, of up to 200 characters.
        field: Name of the setting, for the error.
        now: Epoch seconds, for times such as ``-15m``; None rejects them, so that the text always means the same time.
        accepted: Types that the setting accepts: `AtSequence` for ``at:`` (with an index, the result is the `AfterSequence` of the
            previous user record), and `AfterSequence` for ``after:``.

    Raises:
        ConfigError: If the text is not a position, or is a position of a type that is not accepted. The message names the accepted forms.
    """
    plain = _plain(text)
    position: Position | None = _WORDS.get(plain)
    kind: type[Position] = AtTimestamp
    found = _SEQUENCE.fullmatch(plain)
    if position is not None:
        kind = type(position)
    elif found is not None:
        kind = AtSequence if (found[1] or found[2]) == "at" else AfterSequence
        position = _of_number(kind, found[3], found[4])
    elif (millis := _millis(plain, now)) is not None:
        position = AtTimestamp(millis)
    if position is None or kind not in accepted:
        forms = ", ".join(form for kind, form in _FORMS.items() if kind in accepted)
        raise ConfigError(field, text, forms + _hint(plain, now, accepted))
    return position


def parse_time(text: str, *, field: str, now: float | None) -> int:
    """Return the epoch milliseconds, from 0 to the end of the year 9999, that a text means.

    Args:
        text: The text, of up to 200 characters.
        field: Name of the setting, for the error.
        now: Epoch seconds, for times such as ``-15m``; None rejects them, so that the text always means the same time.

    Raises:
        ConfigError: If the text is not a time from 1970 to 9999.
    """
    plain = _plain(text)
    millis = _millis(plain, now)
    if millis is None:
        raise ConfigError(field, text, _TIME + _hint(plain, now, (AtTimestamp,)))
    return millis


def parse_duration(text: str, *, field: str, least: float = 0.0, most: float = float("inf")) -> float:
    """Return the seconds that a text means.

    Args:
        text: The text, of up to 200 characters.
        field: Name of the setting, for the error.
        least: Minimum accepted seconds.
        most: Maximum accepted seconds.

    Raises:
        ConfigError: If the text is not a duration, or out of range.
    """
    plain = _plain(text)
    seconds = _seconds(plain)
    if seconds is None:
        hint = f"; write {plain}s for seconds" if _is_number(plain) else ""
        raise ConfigError(field, text, _DURATION + hint)
    if not least <= seconds <= most:
        bounds = f"of {least:g}s or more" if most == float("inf") else f"from {least:g}s to {most:g}s"
        raise ConfigError(field, text, f"a duration {bounds}")
    return seconds


def format_position(position: Position) -> str:
    """Return the canonical text of a position; `parse_position` returns an equal position for it."""
    if isinstance(position, AtTimestamp):
        return f"@{position.millis}"
    if isinstance(position, AtSequence):
        return f"at:{position.sequence_number}"
    if isinstance(position, AfterSequence):
        sub = position.sub_sequence_number
        if sub is not None and sub < 0:
            return f"at:{position.sequence_number}/0"
        return f"after:{position.sequence_number}" + ("" if sub is None else f"/{sub}")
    return str(position)


def _plain(text: str) -> str:
    """Return a text in lower case, for the patterns; empty if it is too long or has characters that no pattern accepts."""
    return text.strip().lower() if len(text) <= MAX_TEXT and text.isascii() else ""


def _of_number(kind: type[Position], number: str, index: str | None) -> Position:
    if kind is AtSequence:
        return (
            AtSequence(number) if index is None else AfterSequence(number, sub_sequence_number=int(index) - 1)
        )
    return AfterSequence(number, sub_sequence_number=None if index is None else int(index))


def _seconds(text: str) -> float | None:
    if text == "0":
        return 0.0
    at, total = 0, 0.0
    while (found := _PART.match(text, at)) is not None:
        total += float(found[1]) * _UNITS[found[2]]
        at = found.end()
    return total if text and at == len(text) else None


def _millis(text: str, now: float | None) -> int | None:
    named = _TIMESTAMP.match(text)
    if named is not None:
        text = text[named.end() :]
        if text.isdigit():
            text = f"@{text}"
    if text.startswith("@"):
        digits = text[1:]
        millis = int(digits) if digits.isdigit() else None
    elif text.startswith("-"):
        seconds = _seconds(text[1:])
        millis = None if seconds is None or now is None else round((now - seconds) * 1000)
    else:
        millis = _iso_millis(text)
    return millis if millis is not None and 0 <= millis <= MAX_MILLIS else None


def _iso_millis(text: str) -> int | None:
    # Not `fromisoformat`: each release of Python accepts other forms.
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[index] or 0) for index in range(1, 7))
    micros = int((found[7] or "0").ljust(6, "0")[:6])
    offset = timedelta()
    if found[9] is not None:
        offset = timedelta(hours=int(found[10]), minutes=int(found[11])) * (-1 if found[9] == "-" else 1)
    try:
        moment = datetime(year, month, day, hour, minute, second, micros, timezone(offset))
    except ValueError:
        return None
    return round((moment - _EPOCH) / timedelta(milliseconds=1))


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _hint(text: str, now: float | None, accepted: Collection[type[Position]]) -> str:
    """Return the correct form of the probable meaning of a rejected text; empty if the meaning is unknown."""
    number, _, index = text.partition("/")
    # Epoch milliseconds are shorter than any sequence number.
    if number.isdigit() and (len(number) >= 20 or index.isdigit()):
        meanings = [
            f"{word}:{text} for {meaning}"
            for kind, word, meaning in (
                (AtSequence, "at", "this record"),
                (AfterSequence, "after", "the next one"),
            )
            if kind in accepted
        ]
        return f"; write {' or '.join(meanings)}" if meanings else ""
    if AtTimestamp not in accepted:
        return ""
    if text.isdigit() and len(text) >= 11:
        return f"; write @{text} for epoch milliseconds"
    if text.isdigit() and len(text) >= 9:
        return f"; write @{text}000 for epoch seconds"
    if text.startswith("-") and _seconds(text[1:]) is not None and now is None:
        return "; this setting takes no time relative to now"
    ago = f"{text}s" if _is_number(text) else text
    return f"; write -{ago} for {ago} ago" if _seconds(ago) is not None and now is not None else ""
