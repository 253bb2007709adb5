"""Every hint how to install an optional package is the same sentence."""

from __future__ import annotations

import re
from pathlib import Path

import kinesis_sdk
from kinesis_sdk.common.extras import install_hint

PACKAGE = Path(kinesis_sdk.__file__).parent
PROJECT = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")


def test_the_hint_names_purpose_package_and_extra() -> None:
    assert install_hint("This command", "rich", "cli") == (
        "This command needs the package rich, which the extra 'cli' installs: pip install '.[cli]' in a clone of the project"
    )


def test_every_extra_that_a_hint_names_exists() -> None:
    named = {
        extra
        for path in PACKAGE.rglob("*.py")
        for extra in re.findall(
            r"install_hint\([^)]*\"(\w+)\"\s*\)", path.read_text(encoding="utf-8").replace("'", '"')
        )
    }
    assert {"cli", "fake", "spark", "sql", "prometheus", "opentelemetry"} <= named
    for extra in named:
        assert re.search(rf"^{extra} = \[", PROJECT, re.MULTILINE), extra
