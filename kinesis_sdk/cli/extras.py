"""Packages that commands need and that an extra installs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kinesis_sdk.cli.output import CommandError, ExitCode
from kinesis_sdk.common.extras import install_hint


def need(module: str, extra: str) -> Any:
    """Import a module that an extra of ``kinesis-sdk`` installs.

    Raises:
        CommandError: If the package is not installed; the message names the extra to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).split(".")[0]
        if missing != module.split(".", maxsplit=1)[0]:
            raise  # the package is installed, but lacks one of its dependencies
        raise CommandError(install_hint("This command", missing, extra), ExitCode.USAGE) from error
