"""Commands that are run to their end, and the environment in which boto3 reaches no real account."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import HANG

CLI = (sys.executable, "-m", "kinesis_sdk.cli")
KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Environment variables that boto3 needs."""


def set_keys() -> None:
    """Set the variables that the environment lacks."""
    for name, value in KEYS.items():
        os.environ.setdefault(name, value)


def execute(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, and return its exit code and what it printed. The options are those of `subprocess.run`."""
    return subprocess.run(
        command, check=False, **{"capture_output": True, "text": True, "timeout": HANG, **options}
    )
