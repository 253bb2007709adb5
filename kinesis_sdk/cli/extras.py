"""Packages that are installed with an extra, and what to say if one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kinesis_sdk.cli.output import CommandError, ExitCode


def need(module: str, extra: str) -> Any:
    """Import a module that an extra installs.

    Args:
        module: Name of the module.
        extra: The extra of ``kinesis-sdk`` that installs it.

    Raises:
        CommandError: If the package is not installed; the message says what to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).split(".")[0]
        if missing != module.split(".", maxsplit=1)[0]:
            raise  # the package is there, and lacks something of its own
        raise CommandError(
            f"This command needs the package {missing}, which the extra {extra!r} installs: "
            f"pip install 'kinesis-sdk[{extra}]'.",
            ExitCode.USAGE,
        ) from error
