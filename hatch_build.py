"""Build hook of hatchling: compiles the hot modules of the producer with mypyc, if it is switched on (`make wheel-compiled`).

The sources stay as they are, and are in the wheel beside the compiled modules. Python imports the latter.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent

COMPILED = (
    "kinesis_sdk/common/aggregate_writer.py",
    "kinesis_sdk/producer/engine.py",
    "kinesis_sdk/producer/io/buffer_usage.py",
    "kinesis_sdk/producer/records/entry.py",
    "kinesis_sdk/producer/records/record.py",
    "kinesis_sdk/producer/stream/aggregator.py",
    "kinesis_sdk/producer/stream/collector.py",
    "kinesis_sdk/producer/stream/dispatch.py",
    "kinesis_sdk/producer/stream/limiter.py",
    "kinesis_sdk/producer/stream/outcomes.py",
    "kinesis_sdk/producer/stream/pending.py",
    "kinesis_sdk/producer/stream/responses.py",
    "kinesis_sdk/producer/stream/send_queue.py",
)
"""What every user record or every Kinesis record passes. `kinesis_sdk/producer/DESIGN.md` says why other modules are not compiled."""


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Adds the compiled modules to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile in a folder of its own, and list the results for the wheel."""
        if version == "editable":  # its modules are those of the source tree
            return
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        shutil.copytree(
            ROOT / "kinesis_sdk",
            folder / "kinesis_sdk",
            ignore=lambda _, names: {n for n in names if n == "__pycache__"},
        )
        built = folder / "built"
        command = [
            sys.executable,
            __file__,
            "-q",
            "build_ext",
            "--build-lib",
            str(built),
            "--build-temp",
            str(folder / "temp"),
        ]
        subprocess.run(command, check=True, cwd=folder)  # noqa: S603
        for path in built.rglob("*"):
            if path.is_file():
                build_data["force_include"][str(path)] = path.relative_to(built).as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the folder, once the wheel is written."""
        if version != "editable":
            self._folder.cleanup()


def compile_modules() -> None:
    """Compile in the working directory, which is a copy of the sources, by the arguments of setuptools."""
    from mypyc.build import mypycify
    from setuptools import setup

    # The same code in each environment, whatever libraries it has.
    options = ["--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent", "--config-file="]
    setup(
        name="kinesis-sdk",
        packages=[],
        ext_modules=mypycify(
            [*options, *COMPILED], target_dir="c", group_name="kinesis_sdk", debug_level="0"
        ),
    )


if __name__ == "__main__":
    compile_modules()
