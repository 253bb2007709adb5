"""The package, built from this tree as it is distributed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
_SUFFIXES = {"sdist": ".tar.gz", "wheel": ".whl"}


def build(kind: Literal["sdist", "wheel"], folder: Path) -> Path:
    """Build the package into a folder.

    CI's environment has the build backend. Elsewhere `build` fetches it into its own environment.
    """
    isolation = () if find_spec("hatchling") is None else ("--no-isolation",)
    subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", *isolation, "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob(f"kinesis_sdk-*{_SUFFIXES[kind]}")
    return built


def offline() -> dict[str, str]:
    """Return variables with which pip installs this package without a network.

    The first call fetches the package's build and run-time dependencies into ``.cache``.
    """
    wanted = hashlib.sha256(f"{sys.version}\n{(ROOT / 'pyproject.toml').read_text()}".encode()).hexdigest()[
        :12
    ]
    folder = ROOT / ".cache" / f"wheels-{wanted}"
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        try:
            subprocess.run([*command, "--dest", str(made), str(ROOT), "hatchling>=1.27"], check=True)
            # Otherwise pip would install this copy of the tree instead of later ones.
            for path in made.glob("kinesis_sdk-*"):
                path.unlink()
            made.rename(folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder.as_uri()}
