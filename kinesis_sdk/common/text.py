"""Escaping of text that other programs wrote, for log lines, error messages and health reports."""

from __future__ import annotations

_LIMIT = 200


def printable(text: str, limit: int = _LIMIT) -> str:
    """Return text with its control characters escaped and its length bounded.

    A worker id or another attribute of a shared table may contain line breaks or terminal sequences, which would forge log
    lines.

    Args:
        text: Text that another program wrote.
        limit: Maximum number of characters to show.
    """
    shown = text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)
