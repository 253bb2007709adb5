"""The command line: ``kinesis-sdk …``. Nothing in the package imports it.

``kinesis-sdk fake`` needs the standard library only; everything else needs the ``cli`` extra.
"""

from __future__ import annotations

import sys


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
        sys.exit(
            f"kinesis-sdk: this command needs {error.name}: pip install 'kinesis-sdk[cli]' "
            "(kinesis-sdk fake works without it)"
        )
    cli()
