"""Names of the streams in which records wait for a retry, and the retention that such a stream needs."""

from __future__ import annotations

import re

MARGIN = 3600.0
"""Seconds for which a stream must keep a record after it is due."""

_TIER = re.compile(r".+\.retry-([0-9]{1,8}(?:\.[0-9]{1,3})?)", re.ASCII)


def tier_stream(stream: str, delay: float) -> str:
    """Return the name of the tier of ``stream`` in which records wait for ``delay`` seconds, such as ``orders.retry-60``."""
    shown = f"{delay:.3f}".rstrip("0").rstrip(".")
    return f"{stream}.retry-{shown}"


def delay_of(stream: str) -> float | None:
    """Return the delay in seconds from the name of ``stream``; None if it is not the name of a tier."""
    found = _TIER.fullmatch(stream)
    return None if found is None else float(found[1])
