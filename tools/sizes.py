"""What an installation weighs: ``make sizes`` prints the sizes that docs/versions.md and docs/lambda.md give.

Each extra is installed into a new environment, from a wheel of this tree, without bytecode. A size is the sum of all files below ``site-packages`` but those of
pip. Packages are downloaded, so the sizes depend on the day.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from integration.building import build
from tests.readme import DOCS

PAGE = DOCS / "versions.md"
LARGE = "spark"
"""The extra that is left out unless it is asked for."""
_PIP = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")
_TOOLS = frozenset({"pip", "setuptools"})
"""Packages of a new environment, which are not counted."""


def listed() -> list[str]:
    """Return the extras in the table of the page, in its order; the installation without one is an empty text."""
    table = re.search(
        r"^\| you want to \| extra \|.*\n\|[-| ]+\n((?:\|.*\n)+)",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    if table is None:
        raise ValueError(f"{PAGE.name} has no table of extras")
    cells = [row.split("|")[2] for row in table[1].splitlines()]
    return [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell) or [""]]


def weigh(wheel: Path, extra: str, folder: Path) -> tuple[float, int]:
    """Install the wheel with an extra into a new environment; return megabytes and the number of packages."""
    venv.create(folder, with_pip=True)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    subprocess.run([folder / "bin" / "python", "-m", "pip", *_PIP, wanted], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed = {path.name.partition("-")[0] for path in packages.glob("*.dist-info")} - _TOOLS
    return megabytes(packages, _TOOLS), len(installed)


def megabytes(folder: Path, left_out: frozenset[str] = frozenset()) -> float:
    """Return the size of all files of a folder, without bytecode and without those of the packages that are left out."""
    return (
        sum(
            path.stat().st_size
            for path in folder.rglob("*")
            if path.is_file()
            and path.suffix != ".pyc"
            and re.split(r"[-.]", path.relative_to(folder).parts[0])[0] not in left_out
        )
        / 1e6
    )


def pack(wheel: Path, folder: Path) -> tuple[float, float]:
    """Pack what docs/lambda.md says; return megabytes of the folder, and of a ZIP file of it."""
    subprocess.run(
        [sys.executable, "-m", "pip", *_PIP, "--no-deps", "--target", folder, wheel, "protobuf"], check=True
    )
    packed = folder.with_suffix(".zip")
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder))
    return megabytes(folder), packed.stat().st_size / 1e6


def main() -> int:
    """Print a line for each extra, and one for Lambda."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(f"--{LARGE}", action="store_true", help=f"install {LARGE}, too: about 900 MB")
    wants_large = vars(parser.parse_args())[LARGE]
    with tempfile.TemporaryDirectory() as name:
        wheel = build("wheel", Path(name))
        for extra in listed():
            if extra != LARGE or wants_large:
                size, packages = weigh(wheel, extra, Path(name, extra or "none"))
                print(f"{extra or 'none':14} {size:6.1f} MB {packages:4} packages", flush=True)
        size, packed = pack(wheel, Path(name, "lambda"))
    print(f"{'Lambda':14} {size:6.1f} MB, as a ZIP file {packed:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
