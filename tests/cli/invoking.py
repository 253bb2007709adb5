"""Commands that are run in this process."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from kinesis_sdk.cli.main import cli


def invoke(*arguments: str, code: int | None = 0, **options: Any) -> Result:
    """Run a command, and check its exit code; None for any."""
    result = CliRunner().invoke(cli, arguments, **options)
    assert code is None or result.exit_code == code, (result.output, result.exception)
    return result
