"""Installs the real KPL from Maven Central, by the lock files ``kpl-*.jars``, and compiles the programs of this folder.

``python -m integration.java.kpl.install`` installs the newest version ahead of time (87 MB) and prints the folders.
"""

from __future__ import annotations

from pathlib import Path

from integration.java import install as kcl
from integration.java import maven
from integration.localstack.install import require

KPL = "1.1.1"
OLD_KPL = "1.0.9"
"""A version that still checks the records of an aggregate one by one."""
JUDGE = "3.5.1"
"""The version of the KCL whose code opens aggregates."""
_HERE = Path(__file__).parent
LOCK = _HERE / f"kpl-{KPL}.jars"


def program(source: Path, version: str = KPL) -> str:
    """Return the class path of a Java program with a version of the KPL; install and compile what is missing.

    Raises:
        CannotInstallError: If the machine lacks Java or Maven, or the registry cannot be reached.
        RuntimeError: If the installation failed for another reason.
    """
    require("java", 17, "The real KPL")
    jars = maven.install(_HERE / f"kpl-{version}.jars")
    return f"{kcl.compiled(source, jars, f'kpl-{source.stem.lower()}-{version}')}:{jars}/*"


def putter(version: str = KPL) -> str:
    """Return the class path of ``Put.java``; see `program`."""
    return program(_HERE / "Put.java", version)


def judge() -> str:
    """Return the class path of ``Deaggregate.java``; see `program`."""
    jars = kcl.class_path(JUDGE)
    return f"{kcl.compiled(_HERE / 'Deaggregate.java', jars, 'kcl-deaggregate')}:{jars}/*"


if __name__ == "__main__":
    print(putter(), judge(), sep="\n")
