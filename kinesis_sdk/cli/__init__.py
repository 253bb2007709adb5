"""The command line: ``kinesis-sdk …``. Needs the ``cli`` extra; nothing in the package imports it."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``kinesis-sdk`` command."""
    try:
        from kinesis_sdk.cli.main import cli
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit(f"kinesis-sdk: the command line needs {error.name}: pip install 'kinesis-sdk[cli]'")
    cli()
