"""Prepares a release up to the upload: ``make release VERSION=0.1.0``.

It checks that the tree is committed, that version, changelog and public surface fit the release, and that nothing the previous release
offered is gone, unless the version number permits that. Then it builds sdist and wheel twice and compares them byte for byte, installs the
wheel on each declared Python that this machine has, runs the README's program there, and writes checksums and a list of all installed
packages (CycloneDX). It uploads nothing: the last line is the one command that a person must type.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from integration.building import ROOT, build
from integration.interpreters import PYTHONS, interpreter
from kinesis_sdk import __version__
from tests.readme import README, blocks
from tools.public_surface import FILE, breaks, surface

DIST = ROOT / "dist"
SBOM_TOOL = "cyclonedx-bom==7.5.0"


class NotReadyError(Exception):
    """Work that must be done before the release."""


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise NotReadyError(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def check(version: str) -> None:
    """Check that the tree is ready for this release.

    Raises NotReadyError with what to do.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", version):
        raise NotReadyError(f"VERSION={version!r}: write three numbers, such as 0.1.0, or 0.1.0rc1")
    if __version__ != version:
        raise NotReadyError(f"kinesis_sdk/_version.py says {__version__}, not {version}")
    if changed := _git("status", "--porcelain"):
        raise NotReadyError(f"commit these first:\n{changed}")
    headings = re.findall(
        r"^## \[(.+?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    if (dated := dict(headings).get(version)) is None or not re.fullmatch(r" - \d{4}-\d\d-\d\d", dated):
        raise NotReadyError(f"CHANGELOG.md has no heading '## [{version}] - YYYY-MM-DD'")
    if FILE.read_text(encoding="utf-8").splitlines() != surface():
        raise NotReadyError("the public surface has changed: run `make surface`, and commit it")
    tags = _git("tag", "--list", "v*", "--sort=-version:refname").splitlines()
    if f"v{version}" in tags and _git("rev-list", "-n", "1", f"v{version}") != _git("rev-parse", "HEAD"):
        raise NotReadyError(f"the tag v{version} is on another commit")
    earlier = [tag for tag in tags if tag != f"v{version}"]
    if earlier and not may_break(earlier[0].removeprefix("v"), version):
        path = FILE.relative_to(ROOT).as_posix()
        if found := breaks(_git("show", f"{earlier[0]}:{path}").splitlines(), surface()):
            raise NotReadyError(f"{version} must not break what {earlier[0]} offers:\n" + "\n".join(found))


def may_break(old: str, new: str) -> bool:
    """Return whether a version number announces changed names: its second part before 1.0, its first part from then on."""
    before, now = ([int(part) for part in re.findall(r"\d+", text)[:2]] for text in (old, new))
    return now > before if before[0] == 0 else now[0] > before[0]


def build_twice(folder: Path) -> list[Path]:
    """Build sdist and wheel into a folder, and again elsewhere; raise NotReadyError if the two builds differ."""
    os.environ["SOURCE_DATE_EPOCH"] = _git("log", "-1", "--format=%ct")
    built = [build("sdist", folder), build("wheel", folder)]
    with tempfile.TemporaryDirectory() as again:
        for first in built:
            second = build("wheel" if first.suffix == ".whl" else "sdist", Path(again))
            if first.read_bytes() != second.read_bytes():
                raise NotReadyError(f"{first.name} is not the same when it is built again")
    return built


def smoke(wheel: Path, python: str, folder: Path) -> str:
    """Install the wheel into a new environment of a Python, run the README's program there, and return its output."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    inside = str(folder / "bin" / "python")
    subprocess.run(
        [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True
    )
    program = next(block.text for block in blocks("python", README))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [inside, "-c", program], check=True, capture_output=True, text=True, cwd=folder, env=environment
    )
    return done.stdout.strip()


def list_packages(python: Path, target: Path, folder: Path) -> None:
    """Write the packages of an environment as CycloneDX, with a tool in its own environment."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, SBOM_TOOL], check=True)
    subprocess.run(
        [
            folder / "bin" / "cyclonedx-py",
            "environment",
            python,
            "--output-reproducible",
            "--output-file",
            target,
        ],
        check=True,
        capture_output=True,
    )


def publishing(version: str, built: Sequence[Path]) -> str:
    """Return the one command that publishes: a signed tag, and the upload, which is tried only if the tag could be pushed."""
    files = " ".join(path.relative_to(ROOT).as_posix() for path in built)
    return f"git tag --sign v{version} && git push origin v{version} && twine upload {files}"


def main() -> int:
    """Prepare a release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="for example 0.1.0")
    version = parser.parse_args().version
    try:
        check(version)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        built = build_twice(DIST)
        print("built twice, the same bytes:", *(path.name for path in built))
        with tempfile.TemporaryDirectory() as temporary:
            scratch = Path(temporary)
            tried = [found for name in PYTHONS if (found := interpreter(name))]
            for number, python in enumerate(tried):
                print(f"{python}: {smoke(built[1], python, scratch / f'python-{number}')}")
            sbom = DIST / f"kinesis_sdk-{version}.cdx.json"
            list_packages(scratch / "python-0" / "bin" / "python", sbom, scratch / "sbom")
    except NotReadyError as error:
        print(f"not ready: {error}", file=sys.stderr)
        return 1
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in [*built, sbom]
    )
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums + "What a person types now, after `make check` has passed on this commit:")
    print(f"  {publishing(version, built)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
