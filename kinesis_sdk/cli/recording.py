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
    """Add ``--recording``, ``--recording-size`` and ``--recording-for``; `open_recording` takes their values.

    The command receives ``recording_file``, ``recording_size`` and ``recording_for``.
    """
    for option in (
        click.option(
            "--recording-for",
            type=Duration(60.0, 366 * 86_400.0),
            help="Time for which --recording keeps changes; 7d by default.",
        ),
        click.option(
            "--recording-size",
            type=Bytes(1 << 20, 1 << 40),
            help="Size above which --recording drops its oldest changes; 256M by default.",
        ),
        click.option(
            "--recording",
            "recording_file",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="Record every view in this file (SQLite), so that you can go back in time. Several commands may share it.",
        ),
    ):
        command = option(command)
    return command


def open_recording(
    recording_file: str | None, recording_size: int | None, recording_for: float | None
) -> Recording | None:
    """Return the recording that the options name; None without ``--recording``.

    Raises:
        ConfigError: If bounds are given without a file, or if the file cannot be used.
    """
    if recording_file is None:
        for name, value in (("recording-size", recording_size), ("recording-for", recording_for)):
            if value is not None:
                raise ConfigError(name, value, "--recording FILE as well")
        return None
    from kinesis_sdk.admin.recording.recorder import MAX_AGE, Recording

    return Recording(
        recording_file, max_bytes=recording_size, max_age=MAX_AGE if recording_for is None else recording_for
    )
