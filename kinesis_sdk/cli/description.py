"""Lines that describe a change, for the command line and the terminal view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kinesis_sdk.admin.fleet.formatting import counted

if TYPE_CHECKING:
    from kinesis_sdk.admin.changes.description import ChangeDescription

SHOWN = 20
"""Maximum number of rows whose exact write is shown; ``--json --dry-run`` shows all."""


def lines_of(description: ChangeDescription, *, unchanged: int | None = SHOWN) -> Iterator[str]:
    """Yield the exact writes, and their meaning. Up to ``unchanged`` rows that need no write are listed; None only counts them."""
    for write in description.writes[:SHOWN]:
        if write.about:
            yield write.about + (f": {write.effect}" if write.effect else "")
            yield from (f"    {line}" for line in write.lines)
        else:
            yield str(write)
    if len(description.writes) > SHOWN:
        yield f"… and {len(description.writes) - SHOWN} more rows; --dry-run --json shows all of them"
    for text in dict.fromkeys(write.guarantee for write in description.writes if write.guarantee):
        yield f"What to expect: {text}."
    for text in description.effects:
        yield f"What to expect: {text}"
    if unchanged is not None:
        yield from (f"{name}: unchanged, {reason}" for name, reason in description.unchanged[:unchanged])
    elif description.unchanged:
        yield f"{counted(len(description.unchanged), 'row')} unchanged; -v lists them"
    yield from (f"Note: {text}" for text in description.warnings)
