"""Pages above the fleet: texts, the tail of a shard, a question, and the confirmation of a change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from kinesis_sdk.admin.payload import decode_payload
from kinesis_sdk.admin.records import RecordPage
from kinesis_sdk.cli.tui.cells import fit, row
from kinesis_sdk.cli.tui.line_list import Line, LineList, fixed
from kinesis_sdk.common.errors import KinesisSdkError
from kinesis_sdk.common.position import Ended, Position
from kinesis_sdk.common.records import UserRecord

TAIL_INTERVAL = 2.0
"""Seconds between two reads of a tail: at most two of the shard's five reads per second, usually one in two seconds."""
TAIL_RECORDS = 1000
"""Records that a tail keeps."""
_PREVIEW = 400

Read = Callable[["Position | None"], RecordPage]
"""Reads a page of a shard, given a position, or None for the first page."""


class Page(ModalScreen[None]):
    """A text in a frame, closed with Escape.

    ``refresh`` returns the current lines for each new view; None if they do not change.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]

    def __init__(
        self, title: str, lines: Sequence[Text], refresh: Callable[[], Sequence[Text]] | None = None
    ) -> None:
        super().__init__()
        self._title = title
        self._texts = lines
        self._refresh_lines = refresh

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        with Vertical(classes="page"):
            yield LineList(id="page-lines", with_cursor=False, can_focus=True)
            yield Static(row(("↑↓ scroll   esc close", "dim")), classes="page-keys")

    def on_mount(self) -> None:
        """Show the lines."""
        self.query_one(Vertical).border_title = row(fit(self._title, 70).rstrip())
        self.show(self._texts)
        self.query_one(LineList).focus()

    def renew(self) -> None:
        """Show the current lines."""
        if self._refresh_lines is not None and self.is_mounted:
            self.show(self._refresh_lines())

    def show(self, lines: Sequence[Text]) -> None:
        """Replace the lines, wrapped to the width of the page."""
        width = max(20, self.query_one(LineList).size.width or 76)
        wrapped = [
            part
            for line in lines
            for part in (
                line.wrap(self.app.console, width, no_wrap=False) if line.cell_len > width else [line]
            )
        ]
        self.query_one(LineList).set_lines(
            [Line(str(number), fixed(text)) for number, text in enumerate(wrapped)]
        )

    def on_resize(self) -> None:
        """Wrap the lines to the new width."""
        self.show(self._texts if self._refresh_lines is None else self._refresh_lines())

    def action_close(self) -> None:
        """Close the page."""
        self.dismiss(None)


class Question(ModalScreen["str | None"]):
    """Ask for one value. ``example`` is shown while nothing is typed; ``value`` is the initial text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close")]

    def __init__(self, title: str, example: str, value: str = "") -> None:
        super().__init__()
        self._title = title
        self._example = example
        self._value = value

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(classes="page question"):
            yield Input(value=self._value, placeholder=self._example)
            yield Static(row(("enter accept   esc close", "dim")), classes="page-keys")

    def on_mount(self) -> None:
        """Show the question."""
        self.query_one(Vertical).border_title = row(fit(self._title, 70).rstrip())
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the value."""
        self.dismiss(event.value.strip() or None)

    def action_close(self) -> None:
        """Return nothing."""
        self.dismiss(None)


class Confirmation(ModalScreen[bool]):
    """Show the writes of a change and their consequences, and ask whether to make it. A ``refused`` change cannot be made."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "no"),
        Binding("y", "answer(True)", "yes"),
    ]

    def __init__(self, title: str, lines: Sequence[str], *, refused: bool) -> None:
        super().__init__()
        self._title = title
        self._texts = [row(fit(line, 2000).rstrip()) for line in lines]
        self._refused = refused

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        keys = (
            "esc close (the change was refused)"
            if self._refused
            else "y change the table   n, esc leave it as it is"
        )
        with Vertical(classes="page"):
            yield LineList(id="page-lines", with_cursor=False, can_focus=True)
            yield Static(row((keys, "bold")), classes="page-keys")

    def on_mount(self) -> None:
        """Show the lines."""
        self.query_one(Vertical).border_title = row(fit(self._title, 90).rstrip())
        self.query_one(LineList).focus()

    def on_resize(self) -> None:
        """Wrap the lines to the width."""
        lines = self.query_one(LineList)
        width = max(20, lines.size.width or 76)
        wrapped = [
            part
            for text in self._texts
            for part in (text.wrap(self.app.console, width, no_wrap=False) or [text])
        ]
        lines.set_lines([Line(str(at), fixed(text)) for at, text in enumerate(wrapped)])

    def action_answer(self, answer: bool) -> None:
        """Return the answer; a refused change is never made."""
        self.dismiss(answer and not self._refused)


class Tail(ModalScreen[None]):
    """The newest records of a shard, as they arrive.

    Args:
        read: Reads one page; called in a thread.
        interval: Seconds between two reads.
        start: Record to open: one page from this record on, and more when the user continues. None shows new records, as they
            arrive.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "close"),
        Binding("space", "pause", "pause"),
    ]

    def __init__(
        self, title: str, read: Read, interval: float = TAIL_INTERVAL, *, start: Position | None = None
    ) -> None:
        super().__init__()
        self._title = title
        self._read = read
        self._interval = interval
        self._position = start
        self._opens = start is not None
        self._lines: list[Line] = []
        self._count = 0
        self._paused = False
        self._reading = False
        self._note = "reading …"

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        with Vertical(classes="page"):
            yield LineList(id="page-lines", with_cursor=False, can_focus=True)
            yield Static(id="tail-note", classes="page-keys")

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one(Vertical).border_title = row(fit(self._title, 70).rstrip())
        self.query_one(LineList).focus()
        self.set_interval(self._interval, self.read_more)
        self.read_more()

    def read_more(self) -> None:
        """Read the next page, unless a read is in progress."""
        self._show_note()
        if self._paused or self._reading or isinstance(self._position, Ended):
            return
        self._reading = True
        self.run_worker(self._read_once, thread=True, exit_on_error=False)

    def _read_once(self) -> None:
        try:
            page = self._read(self._position)
        except (KinesisSdkError, OSError, ValueError) as error:
            self.app.call_from_thread(self._fail, str(error))
        else:
            self.app.call_from_thread(self._add, page)

    def _fail(self, reason: str) -> None:
        self._reading = False
        self._note = f"not read: {reason}"
        self._show_note()

    def _add(self, page: RecordPage) -> None:
        self._reading = False
        self._position = page.next_position
        lines = self.query_one(LineList)
        follows = lines.is_at_end and not self._opens
        if self._opens and page.records:
            # The requested record stays in view.
            self._opens, self._paused = False, True
        for record in page.records:
            self._count += 1
            self._lines.append(Line(f"{self._count}", partial(record_line, record)))
        self._lines = self._lines[-TAIL_RECORDS:]
        lines.set_lines(list(self._lines))
        if follows:
            lines.action_cursor(len(self._lines))
        end = (
            "the shard ended"
            if isinstance(page.next_position, Ended)
            else "at the tip"
            if page.at_tip
            else "reading on"
        )
        self._note = f"{self._count:,} records, {end}"
        self._show_note()

    def _show_note(self) -> None:
        keys = "space goes on" if self._paused else "space pause"
        self.query_one("#tail-note", Static).update(
            row(fit(f"{self._note}   {keys}   esc close", 200).rstrip())
        )

    def action_pause(self) -> None:
        """Stop reading, or continue."""
        self._paused = not self._paused
        self._show_note()

    def action_close(self) -> None:
        """Close the page."""
        self.dismiss(None)


def record_line(record: UserRecord, width: int) -> Text:
    """Return a record as one line: arrival, key, size, payload as text."""
    arrived = record.approximate_arrival_timestamp
    clock = "" if arrived is None else arrived.astimezone().strftime("%H:%M:%S.%f")[:-3]
    decoded = decode_payload(record.data, limit=_PREVIEW)
    text = " ".join(decoded.text.split()) if decoded.kind.value != "hex" else f"hex {decoded.text}"
    rest = max(0, width - 12 - 2 - 20 - 1 - 9 - 2)
    return row(
        (fit(clock, 12), "dim"),
        "  ",
        (fit(record.partition_key or "", 20), "cyan"),
        " ",
        (fit(f"{len(record.data):,}", 9, right=True), "dim"),
        "  ",
        fit(text, rest),
    )
