"""The options of a recording, which `top`, `ui` and `exporter` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kinesis_sdk.cli.options import Bytes, Duration
from kinesis_sdk.common.errors import ConfigError

if TYPE_CHECKING:
    from kinesis_sdk.admin.recording.recorder import Recording

_F = TypeVar("_F", bound=Callable[..., Any])


def recording_options(command: _F) -> _F:
    """Add ``--record``, ``--record-size`` and ``--record-for``; `open_recording` takes their values.

    The command receives ``record``, ``record_size`` and ``record_for``.
    """
    for option in (
        click.option(
            "--record-for",
            type=Duration(60.0, 366 * 86_400.0),
            help="Time for which --record keeps changes; 7d by default.",
        ),
        click.option(
            "--record-size",
            type=Bytes(1 << 20, 1 << 40),
            help="Size above which the oldest changes of --record make room; 256M by default.",
        ),
        click.option(
            "--record",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="Keep what is seen in this file (SQLite), so that views can go back in time. Several commands may share it.",
        ),
    ):
        command = option(command)
    return command


def open_recording(record: str | None, record_size: int | None, record_for: float | None) -> Recording | None:
    """Return the recording that the options name; None without ``--record``.

    Raises:
        ConfigError: If its bounds are given without a file, or if the file cannot be used.
    """
    if record is None:
        for name, value in (("record-size", record_size), ("record-for", record_for)):
            if value is not None:
                raise ConfigError(name, value, "--record FILE beside it")
        return None
    from kinesis_sdk.admin.recording.recorder import MAX_AGE, Recording

    return Recording(record, max_bytes=record_size, max_age=MAX_AGE if record_for is None else record_for)
