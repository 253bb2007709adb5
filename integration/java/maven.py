"""Installs jars from Maven Central through the machine's Maven, once for each lock file.

A lock file lists one artifact a line, ``group:artifact:version sha256``, run-time dependencies included. Maven fetches exactly
these, so its settings (mirrors, proxies) apply; the files are then compared with the hashes.

``python -m integration.java.maven pom.xml -Dname=value…`` prints the lines for the run-time dependencies of a pom.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from integration.localstack.install import CannotInstallError, build_once, cache_folder, run

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_MAVEN = ("mvn", "--batch-mode", "--quiet", "-Dstyle.color=never")
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>integration</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""


class Artifact(NamedTuple):
    """A jar of a lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Name of its jar."""
        return f"{self.artifact}-{self.version}.jar"


def read_lock(text: str) -> list[Artifact]:
    """Return the artifacts of a lock file; blank lines and lines that begin with ``#`` are skipped."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([^:\s]+):([^:\s]+):([^:\s]+) ([0-9a-f]{64})", line.strip())
        if match is None:
            raise ValueError(f"not group:artifact:version sha256: {line!r}")
        found.append(Artifact(*match.groups()))
    return found


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def folder(lock: Path) -> Path:
    """Return the folder for the jars of a lock file, whether or not it exists yet."""
    return cache_folder(f"jars-{lock.stem}", lock.read_text(encoding="utf-8"))


def _dependencies(goal: str, pom: Path, *settings: str) -> None:
    run(*_MAVEN, "--file", pom, f"{_PLUGIN}:{goal}", "-DincludeScope=runtime", *settings, cwd=pom.parent)


def require_maven() -> None:
    """Raise `CannotInstallError` if Maven is missing."""
    if shutil.which("mvn") is None:
        raise CannotInstallError("Fetching the jars needs Maven (mvn was not found)")


def install(lock: Path) -> Path:
    """Return the folder with exactly the jars of a lock file; fetch them if they are missing.

    Raises:
        CannotInstallError: If the machine lacks Maven, or the registry cannot be reached.
        RuntimeError: If the fetched files differ from the lock file, or Maven failed for another reason.
    """
    target = folder(lock)
    if not target.is_dir():
        require_maven()
    artifacts = read_lock(lock.read_text())

    def build(jars: Path) -> None:
        pom = jars.parent / "pom.xml"
        pom.write_text(
            _POM.format(dependencies="\n".join(_DEPENDENCY.format(**one._asdict()) for one in artifacts))
        )
        _dependencies("copy-dependencies", pom, f"-DoutputDirectory={jars}")
        _check(artifacts, jars)

    return build_once(f"jars-{lock.stem}", target, build)


def _check(artifacts: Sequence[Artifact], jars: Path) -> None:
    """Raise RuntimeError if a jar is missing, unexpected, or has other bytes than in the lock file."""
    there = {file.name for file in jars.iterdir()}
    if there != {one.file for one in artifacts}:
        difference = there ^ {one.file for one in artifacts}
        raise RuntimeError(f"Maven fetched other jars than the lock file names: {sorted(difference)}")
    for one in artifacts:
        found = _hash(jars / one.file)
        if found != one.sha256:
            raise RuntimeError(f"{one.file} has the hash {found}; the lock file says {one.sha256}")


def resolve(pom: Path, *settings: str) -> list[str]:
    """Return the lines of a lock file for the run-time dependencies of a pom, sorted."""
    with tempfile.TemporaryDirectory() as building:
        jars, listing = Path(building) / "jars", Path(building) / "list"
        _dependencies("copy-dependencies", pom, f"-DoutputDirectory={jars}", *settings)
        _dependencies("list", pom, f"-DoutputFile={listing}", *settings)
        names = re.findall(
            r"^ +([\w.-]+):([\w.-]+):jar:([\w.-]+):(?:compile|runtime)", listing.read_text(), re.MULTILINE
        )
        artifacts = [Artifact(*name, _hash(jars / f"{name[1]}-{name[2]}.jar")) for name in names]
        _check(artifacts, jars)
    return sorted(f"{one.group}:{one.artifact}:{one.version} {one.sha256}" for one in artifacts)


if __name__ == "__main__":
    print("\n".join(resolve(Path(sys.argv[1]).resolve(), *sys.argv[2:])))
