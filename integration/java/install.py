"""Installs the real KCL, once for each set of pins: the jars and the Python side of ``kclpy-ext`` from PyPI.

``python -m integration.java.install`` installs ahead of time (34 MB) and prints the folder.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from integration.localstack.install import CACHE, require, run

KCL = "3.1.3"
REQUIREMENTS = """\
kclpy-ext==3.1.3.post4 --hash=sha256:6c8ced93674bd30103b9bdc319702e3637d2833641bbe58dda578f8a418858c2
"""


def folder() -> Path:
    """Return the folder in which this set of pins is or will be installed."""
    return CACHE / f"kcl-{hashlib.sha256(REQUIREMENTS.encode()).hexdigest()[:12]}"


def install() -> Path:
    """Return the installed folder, which holds the Python package with its ``jars``; installs it if it is not there.

    Raises:
        CannotInstallError: The machine lacks Java or Node, or the registry cannot be reached.
        RuntimeError: The installation failed for another reason.
    """
    target = folder()
    require("java", 17, "The real KCL")
    require("node", 18, "The bridge to HTTP/2")
    if target.is_dir():
        return target
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as building:
        root = Path(building) / "root"
        root.mkdir()
        pins = Path(building) / "requirements.txt"
        pins.write_text(REQUIREMENTS)
        run(
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--require-hashes", "--target", root, "--requirement", pins, cwd=root,
        )  # fmt: skip
        try:
            root.rename(target)
        except OSError:
            # Another process was faster; its result is as good.
            if not target.is_dir():
                raise
    for former in CACHE.glob("kcl-*"):
        if former != target:
            shutil.rmtree(former)
    return target


if __name__ == "__main__":
    print(install())
