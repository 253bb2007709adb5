"""The wheel with compiled modules: builds it, and runs the producer's tests on it.

    python -m tools.compiled wheel [FOLDER]     # dist/ by default
    python -m tools.compiled test [pytest arguments]

Needs a C compiler. `hatch_build.py` says what is compiled. The tests run in a folder of their own, in which the compiled modules lie beside
the sources: the unit tests of the producer and of what it shares with readers, then the producer's random schedules in full.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]

UNIT = ("tests/producer", "tests/common", "tests/exactly_once", "tests/compression")
SCHEDULES = ("tests/producer",)
"""Run with all cases of their random families, see `tests.fuzz`."""


def build(folder: Path) -> tuple[Path, Path]:
    """Build sdist and compiled wheel into an empty folder; return their paths."""
    isolation = () if find_spec("hatchling") is None or find_spec("mypyc") is None else ("--no-isolation",)
    subprocess.run(
        [sys.executable, "-m", "build", *isolation, "--outdir", str(folder), str(ROOT)],
        check=True,
        env={**os.environ, "HATCH_BUILD_HOOKS_ENABLE": "1"},
        stdout=subprocess.DEVNULL,
    )
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def tree(folder: Path) -> Path:
    """Return a copy of this tree with the compiled modules beside their sources."""
    sdist, wheel = build(folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (copy,) = (path for path in folder.iterdir() if path.is_dir())
    with zipfile.ZipFile(wheel) as archive:
        compiled = [name for name in archive.namelist() if name.endswith(tuple(EXTENSION_SUFFIXES))]
        archive.extractall(copy, compiled)  # noqa: S202
    names = [name.partition(".")[0].replace("/", ".") for name in compiled]
    code = f"import importlib\nfor name in {names}: print(importlib.import_module(name).__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=copy,
        env=environment(copy),
        capture_output=True,
        text=True,
    ).stdout.split()
    if shown != [str(copy / name) for name in compiled]:
        raise SystemExit(f"not the compiled modules: {shown}")
    return copy


def environment(copy: Path) -> dict[str, str]:
    """Return the environment in which Python imports a copy of the tree."""
    return {**os.environ, "PYTHONPATH": str(copy)}


def test(arguments: Sequence[str]) -> int:
    """Run the tests on the compiled modules; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        copy = tree(Path(folder))
        runs = [((*UNIT, *arguments), "0"), ((*SCHEDULES, *arguments), "1")]
        for chosen, fuzz in [(arguments, "0")] if arguments else runs:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", *chosen],
                check=False,
                cwd=copy,
                env={**environment(copy), "KINESIS_SDK_FUZZ": fuzz, "PYTHONHASHSEED": "0"},
            )
            if done.returncode:
                return done.returncode
    return 0


def main() -> int:
    """Carry out a command; return the exit code."""
    command, *arguments = sys.argv[1:] or [""]
    if command in ("-h", "--help") or (command == "wheel" and arguments and arguments[0].startswith("-")):
        print(__doc__)
        return 0 if {"-h", "--help"} & {command, *arguments} else 2
    if command == "test":
        return test(arguments)
    if command == "wheel" and len(arguments) <= 1:
        target = Path(*arguments) if arguments else ROOT / "dist"
        with tempfile.TemporaryDirectory() as folder:
            _, wheel = build(Path(folder))
            target.mkdir(parents=True, exist_ok=True)
            kept = target / wheel.name
            kept.write_bytes(wheel.read_bytes())
        print(kept)
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
