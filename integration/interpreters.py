"""The Python versions that the package declares, and their interpreters on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from integration.building import ROOT
from tests import HANG

PYTHONS = re.findall(
    r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8")
)


def interpreter(version: str) -> str | None:
    """Return a Python of this version from the PATH or from pyenv."""
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"))
    for candidate in (shutil.which(f"python{version}"), *map(str, installed)):
        if candidate and _is(candidate, version):
            return candidate
    return None


def _is(candidate: str, version: str) -> bool:
    # A shim of pyenv is on the PATH even if its version is not chosen.
    done = subprocess.run([candidate, "--version"], check=False, capture_output=True, text=True, timeout=HANG)
    return done.stdout.startswith(f"Python {version}.")
