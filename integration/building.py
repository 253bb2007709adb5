"""The package as it is distributed, built from this tree."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
_SUFFIXES = {"sdist": ".tar.gz", "wheel": ".whl"}


def build(kind: Literal["sdist", "wheel"], folder: Path) -> Path:
    """Build the package into a folder.

    The environment of CI has the build backend. Elsewhere `build` fetches it into an environment of its own.
    """
    isolation = () if find_spec("hatchling") is None else ("--no-isolation",)
    subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", *isolation, "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob(f"kinesis_sdk-*{_SUFFIXES[kind]}")
    return built
