"""A virtual environment with the libraries that examples/migration is compared with, made once for each set of pins.

A folder on ``PYTHONPATH`` would not work. async-kinesis imports aws_kinesis_agg if it is installed, as it is for our tests, and
aws_kinesis_agg puts the folder of its own environment, with another botocore, at the front of the path.

``python -m integration.examples.peers`` makes it ahead of time (45 MB) and prints its interpreter.
"""

from __future__ import annotations

import sys
import venv
from pathlib import Path

from integration.localstack.install import CannotInstallError, build_once, cache_folder, run

PINS = Path(__file__).with_name("peers.txt")
_LEAST = (3, 11)
_NAME = f"peers-py{sys.version_info[0]}{sys.version_info[1]}"


def folder() -> Path:
    """Return the folder of the environment, whether or not it exists yet."""
    return cache_folder(_NAME, PINS.read_text(encoding="utf-8"))


def why_not() -> str | None:
    """Return what this machine lacks; None if nothing is missing."""
    return None if sys.version_info >= _LEAST else "async-kinesis needs Python 3.11 or newer"


def peers() -> Path:
    """Return the interpreter of the environment.

    Raises:
        CannotInstallError: If this Python is too old for async-kinesis, or the registry cannot be reached.
        RuntimeError: If the installation failed for another reason.
    """
    missing = why_not()
    if missing:
        raise CannotInstallError(missing)
    return build_once(_NAME, folder(), _build) / "bin" / "python"


def _build(root: Path) -> None:
    venv.create(root, symlinks=True)
    (packages,) = root.glob("lib/python*/site-packages")
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--require-hashes", "--only-binary", ":all:", "--target", packages, "--requirement", PINS, cwd=root,
    )  # fmt: skip


if __name__ == "__main__":
    print(peers())
