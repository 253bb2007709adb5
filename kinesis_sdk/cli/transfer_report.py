"""Progress and result of ``put`` and ``copy``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kinesis_sdk.admin.fleet.formatting import counted, duration
from kinesis_sdk.admin.transfer.run import TransferProgress, TransferResult
from kinesis_sdk.cli.output import ExitCode, console, note
from kinesis_sdk.cli.stream_picture import bytes_text
from kinesis_sdk.common.text import printable

_NOTE_INTERVAL = 10.0
"""Seconds between two lines of progress if standard error is not a terminal."""


class ProgressReport:
    """Shows progress on standard error: a bar on a terminal, a line from time to time elsewhere; nothing if ``quiet``."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._next_note = time.monotonic() + _NOTE_INTERVAL
        self._last: tuple[float, int] = (0.0, 0)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bar while the block runs."""
        if self._quiet or not sys.stderr.isatty():
            yield
            return
        try:
            from rich.progress import BarColumn, Progress, TextColumn
        except ModuleNotFoundError:
            yield
            return
        self._bar = Progress(BarColumn(30), TextColumn("{task.description}"), console=console(stderr=True))
        self._task = self._bar.add_task("", total=None)
        with self._bar:
            yield
        self._bar = None

    def __call__(self, progress: TransferProgress) -> None:
        """Show a state."""
        if self._bar is not None:
            total = None if progress.fraction is None else 1.0
            self._bar.update(
                self._task,
                description=progress_text(progress),
                completed=progress.fraction or 0.0,
                total=total,
            )
        elif not self._quiet and time.monotonic() >= self._next_note:
            self._next_note = time.monotonic() + _NOTE_INTERVAL
            note(progress_text(progress))


def progress_text(progress: TransferProgress) -> str:
    """Return a state as one line."""
    parts = [f"{progress.acknowledged:,} acknowledged", f"{progress.rate:,.0f}/s"]
    if progress.seconds > 0:
        parts.append(f"{bytes_text(progress.acknowledged_bytes / progress.seconds)}/s")
    bad = progress.failed + progress.rejected
    if bad:
        parts.append(f"{bad:,} failed")
    if progress.skipped:
        parts.append(f"{progress.skipped:,} skipped")
    if progress.fraction is not None:
        parts.append(f"{progress.fraction:.0%}")
    left = progress.seconds_left
    if left is not None:
        parts.append(f"ETA {duration(left)}")
    return "  ".join(parts)


def result_text(result: TransferResult) -> str:
    """Return the result as one line."""
    rate = result.acknowledged / result.seconds if result.seconds > 0 else 0.0
    parts = [
        f"{counted(result.acknowledged, 'record')} acknowledged in {result.seconds:.1f} s ({rate:,.0f}/s)"
    ]
    for count, what in (
        (result.skipped, "skipped: put by an earlier run"),
        (result.failed, "failed"),
        (result.spooled, "of these in the spool"),
        (result.not_spooled, "NOT in the spool"),
        (result.rejected, "rejected: invalid input"),
        (result.unknown, "without a result"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    return ", ".join(parts)


def tell(result: TransferResult, *, state: str | None) -> None:
    """Print on standard error what failed, where the run stopped, and how to continue."""
    for problem in result.problems:
        note(printable(problem, 500))
    more = result.failed + result.rejected - len(result.problems)
    if more > 0 and result.problems:
        note(f"… and {more:,} more")
    if result.spool_problem is not None:
        note(
            f"{result.not_spooled:,} of {result.failed:,} failed records are NOT in the spool, so they are only in the input: "
            f"{printable(result.spool_problem, 500)}"
        )
    if result.interrupted:
        where = ", ".join(f"{name} at {position}" for name, position in sorted(result.reached.items())[-5:])
        note(f"Stopped before the end{f'; read up to: {where}' if where else ''}.")
        if state is not None:
            note(f"Run the same command again to continue: {state} lists the acknowledged records.")


def exit_code(result: TransferResult) -> ExitCode:
    """Return the exit code of a result."""
    if result.interrupted and result.failed == 0:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if result.is_good else ExitCode.BAD_ANSWER
