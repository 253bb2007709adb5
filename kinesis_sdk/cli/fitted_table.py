"""A table that leaves out its least important columns where the terminal is narrow, instead of squeezing all of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

_GAP = 2
"""Cells between two columns."""


class FittedTable(Table):
    """A table without lines.

    Args:
        dispensable: Headings of columns that may be left out, the first one first.
    """

    def __init__(self, *, dispensable: Sequence[str] = ()) -> None:
        super().__init__(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
        self._dispensable = tuple(dispensable)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the columns that fit."""
        kept = list(self.columns)
        widths = {id(column): _width(column, console, options) for column in kept}

        def needed() -> int:
            return sum(widths[id(column)] + _GAP for column in kept) - _GAP

        for heading in self._dispensable:
            if needed() <= options.max_width:
                break
            kept = [column for column in kept if column.header != heading]
        room = max(0, options.max_width - needed())
        fitted = copy.copy(self)
        # Without a maximum for the column that may be cut, rich would cut a part of every column.
        fitted.columns = [
            replace(
                column,
                _index=place,
                max_width=None if column.ratio is None else widths[id(column)] + room,
            )
            for place, column in enumerate(kept)
        ]
        yield from Table.__rich_console__(fitted, console, options)


def _width(column: Column, console: Console, options: ConsoleOptions) -> int:
    """Return the cells that a column needs: all of its text, or the minimum of a column that may be cut."""
    if column.ratio is not None:
        return column.min_width or 1
    parts = [column.header, *column.cells]
    return max(Measurement.get(console, options.update(width=1000), part).maximum for part in parts)
