"""Command line: ``kinesis-sdk …``. No other part of the package imports it.

``kinesis-sdk fake`` needs only the standard library, unless it speaks TLS or HTTP/2; all other commands need the extra ``cli``.
"""

from __future__ import annotations

import sys

from kinesis_sdk.common.extras import install_hint


def main() -> None:
    """Run the ``kinesis-sdk`` command."""
    try:
        from kinesis_sdk.cli.main import cli
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        if sys.argv[1:2] == ["fake"]:
            from kinesis_sdk.testing.__main__ import main as serve

            sys.exit(serve(sys.argv[2:], prog="kinesis-sdk fake"))
        sys.stderr.write(
            f"Error: {install_hint('This command', error.name, 'cli')}. The command `kinesis-sdk fake` works without it.\n"
        )
        sys.exit(2)  # ExitCode.USAGE, whose module needs click
    cli()
