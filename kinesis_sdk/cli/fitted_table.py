"""A table that leaves out its least important columns on a narrow terminal, instead of squeezing all columns.

Names are cut in their middle, because names of workers differ at both ends: in the host and in the process.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_GAP = 2
"""Cells between two columns."""


def cut_middle(text: str, width: int) -> str:
    """Return a printable text of at most ``width`` terminal cells, with an ellipsis in its middle if it has more."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail = ""
    for character in reversed(text):
        if cell_len(character) + cell_len(tail) > (width - 1) // 2:
            break
        tail = character + tail
    return set_cell_size(text, width - 1 - cell_len(tail)) + "…" + tail


class FittedTable(Table):
    """A table without lines. ``dispensable`` are the headings of columns that may be left out, in this order."""

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
        fitted.columns = [
            replace(column, _index=place)
            if column.ratio is None
            else _cut_column(column, place, widths[id(column)] + room)
            for place, column in enumerate(kept)
        ]
        yield from Table.__rich_console__(fitted, console, options)


def _cut_column(column: Column, place: int, width: int) -> Column:
    """Return a column of names. Without a maximum width, rich would cut every column."""
    cells: list[RenderableType] = [
        Text(cut_middle(cell.plain, width), style=cell.style) if isinstance(cell, Text) else cell
        for cell in column.cells
    ]
    return replace(column, _index=place, max_width=width, _cells=cells)


def _width(column: Column, console: Console, options: ConsoleOptions) -> int:
    """Return the cells that a column needs: all of its text, or the minimum of a column that may be cut."""
    if column.ratio is not None:
        return column.min_width or 1
    parts = [column.header, *column.cells]
    return max(Measurement.get(console, options.update(width=1000), part).maximum for part in parts)
