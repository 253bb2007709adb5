"""Durations and amounts in words."""

from __future__ import annotations

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def duration(seconds: float) -> str:
    """Return a duration with its two largest units: ``0.4 s``, ``48 s``, ``12 min 46 s``, ``22 h 40 min``, ``3 d 4 h``."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for size, unit, smaller, smaller_unit in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            large, rest = divmod(whole, size)
            small = rest // smaller
            return f"{large:,} {unit} {small} {smaller_unit}" if small else f"{large:,} {unit}"
    return f"{whole} s"


def lag_text(millis: int | None) -> str:
    """Return a lag in milliseconds; a dash if unknown."""
    return "–" if millis is None else duration(millis / 1000)


_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: tuple[int | None, ...], width: int = 10) -> str:
    """Return the newest values as a line of blocks; a blank where a value is unknown.

    Full height is the largest shown value, but at least ten seconds of lag, so that noise stays flat.
    """
    shown = values[-width:]
    top = max((value for value in shown if value is not None), default=0)
    top = max(top, 10_000)
    return "".join(
        " " if value is None else _BLOCKS[min(len(_BLOCKS) - 1, value * len(_BLOCKS) // (top + 1))]
        for value in shown
    )


def counted(count: int, noun: str) -> str:
    """Return ``1 row`` or ``1,200 rows``, for nouns whose plural ends with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
