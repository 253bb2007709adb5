"""Installs third-party libraries, once for each set of pins.

Libraries of children: amazon_kclpy (PyPI) and aws-kcl (npm). A deaggregator: aws-kinesis-agg (npm).

``python -m integration.multilang.install`` installs ahead of time (15 MB) and prints the folders.
"""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path

from integration.localstack.install import build_once, cache_folder, install_from_npm, require, run

AMAZON_KCLPY = """\
amazon_kclpy==3.2.0 --hash=sha256:62e81cc84714c920fe6aa5d61837b298fe7e01f6326dcb564b12ab8e6c4aca4e
"""
NPM = Path(__file__).with_name("npm")
DEAGGREGATOR = Path(__file__).with_name("deaggregator")


def amazon_kclpy_folder() -> Path:
    """Return the folder of amazon_kclpy, whether or not it is installed yet."""
    return cache_folder("amazon-kclpy", AMAZON_KCLPY)


def aws_kcl_folder() -> Path:
    """Return the folder of aws-kcl, whether or not it is installed yet."""
    return cache_folder("aws-kcl", (NPM / "package-lock.json").read_text())


def node_deaggregator_folder() -> Path:
    """Return the folder of aws-kinesis-agg, whether or not it is installed yet."""
    return cache_folder(
        "aws-kinesis-agg",
        *((DEAGGREGATOR / name).read_text() for name in ("package-lock.json", "deaggregate.js")),
    )


def _build_amazon_kclpy(root: Path) -> None:
    # Only unpacked: building its wheel would fetch the jars of Amazon's daemon, and its Python code needs no build.
    pins = root / "pins.txt"
    pins.write_text(AMAZON_KCLPY)
    run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--no-binary", "amazon_kclpy", "--require-hashes", "--dest", root, "--requirement", pins, cwd=root,
    )  # fmt: skip
    (archive,) = root.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            inside = Path(*Path(member.name).parts[1:])
            if member.isfile() and inside.parts and inside.parts[0] in {"amazon_kclpy", "samples", "test"}:
                path = root / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(files.extractfile(member).read())
    archive.unlink()


def amazon_kclpy() -> Path:
    """Return the folder of amazon_kclpy's source: ``amazon_kclpy``, ``samples``, ``test``.

    Raises:
        CannotInstallError: If the registry cannot be reached.
        RuntimeError: If the installation failed for another reason.
    """
    return build_once("amazon-kclpy", amazon_kclpy_folder(), _build_amazon_kclpy)


def _build_aws_kcl(root: Path) -> None:
    install_from_npm(NPM, root)
    # The sample application is the first program of the README.
    readme = (root / "node_modules" / "aws-kcl" / "README.md").read_text()
    program = re.search(r"^```javascript\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (root / "sample.js").write_text(program[1])


def aws_kcl() -> Path:
    """Return a folder with aws-kcl in ``node_modules``, and its sample application ``sample.js``.

    Raises:
        CannotInstallError: If the machine lacks Node, or the registry cannot be reached.
        RuntimeError: If the installation failed for another reason.
    """
    require("node", 18, "The KCL for Node")
    target = aws_kcl_folder()
    if not target.is_dir():
        require("npm", 8, "Installing the KCL for Node")
    return build_once("aws-kcl", target, _build_aws_kcl)


def node_deaggregator() -> Path:
    """Return ``deaggregate.js``, with aws-kinesis-agg in ``node_modules`` next to it. Raises as `aws_kcl`."""
    require("node", 18, "The deaggregator for Node")
    target = node_deaggregator_folder()
    if not target.is_dir():
        require("npm", 8, "Installing the deaggregator for Node")
    return (
        build_once("aws-kinesis-agg", target, lambda root: install_from_npm(DEAGGREGATOR, root))
        / "deaggregate.js"
    )


if __name__ == "__main__":
    print(amazon_kclpy(), aws_kcl(), node_deaggregator(), sep="\n")
