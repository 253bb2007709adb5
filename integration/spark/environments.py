"""A virtual environment per Spark version, made on first use and kept in an ignored folder of the repository.

``python -m integration.spark.environments 4.3.0`` makes one ahead of time and prints its interpreter.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"

NEWEST, OLDEST = "4.3.0", "4.0.5"
FORMER = "3.4.1"
"""A Spark that has no data sources in Python, for its own functions."""

MINIMUM_PYTHON = {NEWEST: (3, 11), OLDEST: (3, 10)}
MAXIMUM_PYTHON = {FORMER: (3, 11)}

PACKAGES = (
    "pyarrow>=18",
    "msgspec>=0.19",
    "pybase64>=1.4",
    "pandas>=2.2,<3",
    "fastavro>=1.9",
    "jsonschema>=4.20",  # schemas of JSON in a registry
    "pytest>=8.3",
    "pytest-timeout>=2.3",
    "hypothesis>=6.110",
    "opentelemetry-sdk>=1.25",  # traces
    "matplotlib>=3.8",
    "pyyaml>=6",  # declarative pipelines
)


class CannotRunSparkError(Exception):
    """This machine lacks something that Spark needs."""


def check_machine(version: str) -> None:
    """Raise CannotRunSparkError without Java 17 or newer, or with a Python that this version does not support."""
    java = shutil.which("java")
    if java is None:
        raise CannotRunSparkError("Spark needs Java 17 or newer, and there is no java on the PATH")
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    words = (shown.stderr + shown.stdout).split('"')
    major = words[1].split(".")[0] if len(words) > 1 else ""
    if not major.isdigit() or int(major) < 17:
        raise CannotRunSparkError(f"Spark needs Java 17 or newer; java says {shown.stderr.strip()[:100]!r}")
    needed = MINIMUM_PYTHON.get(version, (3, 10))
    if sys.version_info < needed:
        raise CannotRunSparkError(f"pyspark {version} needs Python {needed[0]}.{needed[1]} or newer")
    newest = MAXIMUM_PYTHON.get(version, sys.version_info[:2])
    if sys.version_info[:2] > newest:
        raise CannotRunSparkError(f"pyspark {version} needs Python {newest[0]}.{newest[1]} or older")


def prepare(version: str, *more: str) -> Path:
    """Return the interpreter of the environment for a Spark version; create it if it is missing.

    ``more`` are packages beside `PACKAGES`. Always name the same ones for a version, because it has one environment.

    Raises:
        CannotRunSparkError: See `check_machine`.
        subprocess.CalledProcessError: If the packages could not be installed; pip has printed why.
    """
    check_machine(version)
    packages = (*PACKAGES, *more)
    return _install(
        version,
        (*packages, (ROOT / "pyproject.toml").read_text()),
        f"pyspark[connect]=={version}", *packages, "--editable", f"{ROOT}[cli]",
    )  # fmt: skip


def prepare_bare(version: str) -> Path:
    """Return the interpreter of an environment that has this version of Spark and nothing else; raises as `prepare`."""
    check_machine(version)
    return _install(version, (), f"pyspark=={version}")


def _install(version: str, depends_on: Sequence[str], *requirements: str) -> Path:
    folder = CACHE / f"spark-{version}"
    python = folder / "bin" / "python"
    wanted = hashlib.sha256("\n".join((version, sys.version, *depends_on)).encode()).hexdigest()
    stamp = folder / ".installed"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"spark-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Several test runs may need it at once.
        if stamp.exists() and stamp.read_text() == wanted and python.exists():
            return python
        sys.stderr.write(f"Installing Spark {version} into {folder} (1 GB, a minute) ...\n")
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*install, *requirements], check=True)
        stamp.write_text(wanted)
    return python


def main() -> int:
    try:
        python = prepare(sys.argv[1] if len(sys.argv) > 1 else NEWEST)
    except CannotRunSparkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{python}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
