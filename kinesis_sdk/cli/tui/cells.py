"""Text for a terminal: columns of fixed width, without control sequences from worker ids or records."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kinesis_sdk.cli.fitted_table import cut_middle
from kinesis_sdk.common.text import printable

_ELLIPSIS = "…"


def fit_name(text: str, width: int) -> str:
    """Return the name of a worker as `fit` does, but cut in its middle, because host and process are at its ends."""
    return fit(cut_middle(printable(text), width), width)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return untrusted text of exactly `width` terminal cells: escaped, padded (on the left if ``right``), or cut with an ellipsis."""
    shown = printable(text, max(4 * width, 4))
    size = cell_len(shown)
    if size > width:
        # If a wide character does not fit before the ellipsis, a blank fills the remaining cell.
        return set_cell_size(set_cell_size(shown, max(0, width - 1)) + _ELLIPSIS, width)
    padding = " " * (width - size)
    return padding + shown if right else shown + padding


def row(*parts: tuple[str, str] | str) -> Text:
    """Return one line of styled parts. Brackets in the parts are text, not markup."""
    line = Text(no_wrap=True, end="")
    for part in parts:
        if isinstance(part, str):
            line.append(part)
        else:
            line.append(part[0], style=part[1])
    return line
