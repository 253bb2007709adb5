"""Progress of the demo: bars on a terminal, plain lines in a file or pipe, nothing with ``--json``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Display of the demo's progress."""

    def event(self, text: str) -> None:
        """Show one event of the run."""
        ...

    def counts(self, *, total: int, put: int, stored: int, processed: int) -> None:
        """Show the progress in records."""
        ...


class _Silent:
    def event(self, text: str) -> None:
        pass

    def counts(self, *, total: int, put: int, stored: int, processed: int) -> None:
        pass


class _Lines:
    """One line for each event, and another line every two seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._written_at = self._start

    def event(self, text: str) -> None:
        self._write(text)

    def counts(self, *, total: int, put: int, stored: int, processed: int) -> None:
        if time.monotonic() - self._written_at >= 2 and processed < total:
            self._write(f"put {put:,} of {total:,}, acknowledged {stored:,}, processed {processed:,}")

    def _write(self, text: str) -> None:
        self._written_at = time.monotonic()
        sys.stdout.write(f"{self._written_at - self._start:6.1f} s  {text}\n")
        sys.stdout.flush()


@contextmanager
def make_progress(*, quiet: bool) -> Iterator[Progress]:
    """Return the progress display that fits standard output."""
    if quiet:
        yield _Silent()
    elif sys.stdout.isatty():
        with _bars() as bars:
            yield bars
    else:
        yield _Lines()


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    with RichProgress(
        TextColumn("{task.description:>12}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn()
    ) as display:

        class Bars:
            def __init__(self) -> None:
                self._tasks = {
                    name: display.add_task(name, total=None) for name in ("put", "acknowledged", "processed")
                }

            def event(self, text: str) -> None:
                display.console.print(text, highlight=False)

            def counts(self, *, total: int, put: int, stored: int, processed: int) -> None:
                for name, value in (("put", put), ("acknowledged", stored), ("processed", processed)):
                    display.update(self._tasks[name], total=total, completed=value)

        yield Bars()
