"""Command line: ``kinesis-sdk …``. No other part of the package imports it.

``kinesis-sdk fake`` needs only the standard library, unless it speaks TLS or HTTP/2; all other commands need the extra ``cli``.
"""

from __future__ import annotations

import sys

from kinesis_sdk._version import __version__
from kinesis_sdk.common.extras import install_hint

_HELP = """Usage: kinesis-sdk COMMAND [ARGS]...

  Tools of kinesis_sdk, the Kinesis producer and consumer for Python.

Commands without the extra 'cli':
  fake  Serve a fake AWS for tests and experiments: kinesis-sdk fake --help

Others: demo, run, lag, leases, top, ui, doctor, stream, put, tail and more. docs/cli.md has all of them.
"""


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
        if sys.argv[1:] == ["--version"]:
            sys.stdout.write(f"kinesis-sdk, version {__version__}\n")  # as click prints it
            sys.exit(0)
        if sys.argv[1:] in (["--help"], ["-h"]):
            sys.stdout.write(_HELP + install_hint("Every other command", error.name, "cli") + ".\n")
            sys.exit(0)
        sys.stderr.write(
            f"Error: {install_hint('This command', error.name, 'cli')}. The command `kinesis-sdk fake` works without it.\n"
        )
        sys.exit(2)  # ExitCode.USAGE, whose module needs click
    cli()
