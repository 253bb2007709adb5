"""Dates and timestamps in text, read as by Spark's ``from_json`` and ``from_csv`` without a format.

`days_of` and `micros_of` are exact. `days_column` and `moments_column` read whole columns in the common forms, and return the same values
or None.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from kinesis_sdk.common.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_BLANKS = "".join(map(chr, (*range(0x21), 0x7F)))
"""Characters that Spark trims: the space and control characters."""

_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_MOMENT = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})"
    r"(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?)?)?)?",
    re.DOTALL,
)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:([0-9]{1,2})|([0-9]{2})([0-9]{2})([0-9]{2})?|([0-9]{1,2}):([0-9]{1,2})|([0-9]{1,2}):([0-9]{2}):([0-9]{2}))"
)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]*")
_ZONED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-7])(:?[0-9]{2})?)$"
"""Forms with an offset that Arrow reads as Spark does. Arrow also takes an offset after minutes."""

_MAX_OFFSET = 18 * 3600
_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 — local time
_YEAR_TWO = datetime(2, 1, 1)  # noqa: DTZ001
_LAST_RULES = datetime(2037, 1, 1)  # noqa: DTZ001
"""Arrow uses the clock changes that a time zone's file lists; the usual files list them until 2037."""

_CENTURIES = 146_097
"""Days of 400 years."""
_MAX_MICROS = 2**63
_MAX_TEXT = 200
"""Maximum number of characters: the longest names of time zones have about forty, and a fraction of a second has nine digits."""


def time_zone(name: str) -> tzinfo:
    """Return a time zone by its name, such as ``Europe/Berlin`` or ``UTC``.

    Raises:
        ConfigError: If there is no time zone with this name.
    """
    try:
        return _region(name)
    except ValueError as error:
        raise ConfigError("timeZone", name, "UTC, or a name of the time zone database") from error


@lru_cache(maxsize=256)
def _region(name: str) -> tzinfo:
    if not _REGION.fullmatch(name):
        raise ValueError("not the name of a time zone")
    try:
        return ZoneInfo(name)
    except (KeyError, OSError) as error:  # a name that is a folder is an OSError
        raise ValueError("no such time zone") from error


def days_of(text: str) -> int:
    """Return the days since 1970 of a date; raise ValueError if the text is not a date."""
    found = _DATE.fullmatch(text[:_MAX_TEXT].strip(_BLANKS))
    if found is None:
        raise ValueError("no date")
    sign, year, month, day = found.groups()
    return _days(int(sign + year), int(month or 1), int(day or 1))


def micros_of(text: str, zone: tzinfo | None) -> int:
    """Return the microseconds since 1970 of a timestamp; raise ValueError if the text is not a timestamp.

    ``zone`` holds for text without a time zone. None stands for timestamps without time zones, whose text must not contain a zone.
    """
    found = _MOMENT.fullmatch(text[:_MAX_TEXT].strip(_BLANKS))
    if found is None:
        raise ValueError("no timestamp")
    sign, year, month, day, hour, minute, second, fraction, named = found.groups()
    days = _days(int(sign + year), int(month or 1), int(day or 1))
    clock = int(hour or 0), int(minute or 0), int(second or 0)
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise ValueError("not a time of day")
    in_day = ((clock[0] * 60 + clock[1]) * 60 + clock[2]) * 1_000_000 + int(((fraction or "") + "000000")[:6])
    local = days * _DAY + in_day
    if named is not None:
        if zone is None:
            raise ValueError("a time zone, where none is expected")
        offset = _offset_of(named.strip(_BLANKS))
        micros = local - offset * 1_000_000 if isinstance(offset, int) else _at(local, offset)
    else:
        micros = local if zone is None else _at(local, zone)
    if not -_MAX_MICROS <= micros < _MAX_MICROS:
        raise ValueError("a year beyond the range of a timestamp")
    return micros


def _offset_of(text: str) -> int | tzinfo:
    """Return seconds east of Greenwich, or a time zone."""
    if text == "Z":
        return 0
    found = _OFFSET.fullmatch(text)
    if found is None:
        return _region(text)
    sign = found[1]
    hours, minutes, seconds = (
        (found[2], None, None)
        if found[2]
        else (found[3], found[4], found[5])
        if found[3]
        else (found[6], found[7], None)
        if found[6]
        else (found[8], found[9], found[10])
    )
    total = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    if int(minutes or 0) > 59 or int(seconds or 0) > 59 or total > _MAX_OFFSET:
        raise ValueError("not an offset of a time zone")
    return -total if sign == "-" else total


def _at(local: int, zone: tzinfo) -> int:
    """Return the time at which clocks of a zone show a local time; the earlier time if there are two."""
    if getattr(zone, "key", "") in {"UTC", "Etc/UTC"}:
        return local
    try:
        moment = _EPOCH + timedelta(microseconds=local)
        offset = zone.utcoffset(moment)
    except OverflowError as error:
        raise ValueError("a year for which the time zone is not known") from error
    assert offset is not None
    return local - offset // timedelta(microseconds=1)


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970 in the proleptic Gregorian calendar, for any year; raise ValueError if there is no such day."""
    cycles, in_cycle = divmod(year - 2000, 400)
    return (datetime(2000 + in_cycle, month, day) - _EPOCH).days + cycles * _CENTURIES  # noqa: DTZ001


def days_column(text: pa.Array) -> pa.Array | None:
    """Return the dates of a column of text; None unless all are written as ``2026-01-31``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(text, pa.date32())
    except pa.ArrowInvalid:
        return None


def moments_column(text: pa.Array, zone: str | None) -> pa.Array | None:
    """Return the timestamps of a column of text; None unless all have the same common form.

    ``zone`` is the name of the time zone for text without a zone; None for timestamps without time zones.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    local = pa.timestamp("us")
    instant = pa.timestamp("us", tz="UTC")
    try:
        found = pc.cast(text, local)
    except pa.ArrowInvalid:
        found = None
    if zone is None:
        return found
    try:
        if found is not None:
            if zone != "UTC":
                # Before ``early``, `micros_of` knows no offsets; after ``late``, Arrow knows none.
                early, late = (pa.scalar(one, local) for one in (_YEAR_TWO, _LAST_RULES))
                if pc.any(pc.or_(pc.less(found, early), pc.greater_equal(found, late))).as_py():
                    return None
            # Local times that a clock skips or shows twice are an error here, and left to `micros_of`.
            return pc.cast(pc.assume_timezone(found, zone), instant)
        if pc.all(pc.match_substring_regex(text, _ZONED), min_count=0).as_py():
            return pc.cast(text, instant)
    except pa.ArrowInvalid:
        pass
    return None
