"""Installs the real KCL in three versions, each once for its pins.

3.1.3 with the MultiLangDaemon and the Python side comes from PyPI, in ``kclpy-ext``; 2.7.2 and 3.5.1 come from Maven
Central by the lock files ``kcl-*.jars`` (see `maven`). `worker` compiles the small worker, ``Worker.java``, with each.

``python -m integration.java.install`` installs everything ahead of time (90 MB) and prints the folders.
"""

from __future__ import annotations

import sys
from pathlib import Path

from integration.java import maven
from integration.localstack.install import CACHE, build_once, cache_folder, require, run

KCL = "3.1.3"
"""Version that runs as a MultiLangDaemon."""
MAVEN_VERSIONS = ("2.7.2", "3.5.1")
VERSIONS = ("2.7.2", KCL, "3.5.1")
"""Versions that run as Java workers."""

_HERE = Path(__file__).parent
_SOURCE = _HERE / "Worker.java"
_CODEC = _HERE.parents[1] / "examples" / "java" / "ZstdAggregatorUtil.java"
REQUIREMENTS = """\
kclpy-ext==3.1.3.post4 --hash=sha256:6c8ced93674bd30103b9bdc319702e3637d2833641bbe58dda578f8a418858c2
"""


def folder() -> Path:
    """Return the folder for this set of pins, whether or not it exists yet."""
    return cache_folder("kcl", REQUIREMENTS)


def install() -> Path:
    """Return the installed folder, which holds the Python package with its ``jars``; install it if it is missing.

    Raises:
        CannotInstallError: If the machine lacks Java, or the registry cannot be reached.
        RuntimeError: If the installation failed for another reason.
    """
    require("java", 17, "The real KCL")
    return build_once("kcl", folder(), _build)


def _build(root: Path) -> None:
    pins = root.parent / "requirements.txt"
    pins.write_text(REQUIREMENTS)
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--require-hashes", "--target", root, "--requirement", pins, cwd=root,
    )  # fmt: skip


def lock(version: str) -> Path:
    """Return the lock file of a version that comes from Maven Central."""
    return _HERE / f"kcl-{version}.jars"


def class_path(version: str) -> Path:
    """Return the folder with the jars of a version; install them if they are missing. Raises as `maven.install`."""
    require("java", 17, "The real KCL")
    return install() / "amazon_kclpy" / "jars" if version == KCL else maven.install(lock(version))


def worker(version: str) -> Path:
    """Return the folder with the classes of ``Worker.java`` for a version; compile them if they are missing.

    Raises:
        CannotInstallError: See `class_path`; or if the machine has no Java compiler.
        RuntimeError: If it does not compile.
    """
    return compiled(_SOURCE, class_path(version), f"worker-{version}")


def codec(version: str) -> tuple[Path, Path]:
    """Return the folders with the classes of examples/java for a version, and with the jars that they need besides the KCL.

    Raises:
        CannotInstallError: See `class_path`; or if the machine has no Java compiler.
        RuntimeError: If it does not compile.
    """
    more = maven.install(_HERE / "zstd.jars")
    return compiled(_CODEC, class_path(version), f"codec-{version}", more), more


def compiled(source: Path, jars: Path, name: str, *more: Path) -> Path:
    """Return the folder with the classes of one source file; compile it if they are missing.

    Args:
        source: The file.
        jars: Folder with its dependencies, below the cache.
        name: Name of the folder, before the hash of source and jars.
        more: Further folders with jars.

    Raises:
        CannotInstallError: If the machine has no Java compiler.
        RuntimeError: If it does not compile.
    """
    folders = "".join(str(each.relative_to(CACHE)) for each in (jars, *more))
    target = cache_folder(name, source.read_text(encoding="utf-8"), folders)
    if not target.is_dir():
        require("javac", 17, f"Compiling {source.name}")
    path = ":".join(f"{each}/*" for each in (jars, *more))

    def build(classes: Path) -> None:
        run("javac", "-nowarn", "-proc:none", "-cp", path, "-d", classes, source, cwd=source.parent)

    return build_once(name, target, build)


if __name__ == "__main__":
    print(install())
    for each in VERSIONS:
        print(class_path(each), worker(each))
