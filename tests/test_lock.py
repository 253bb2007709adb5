"""CI installs a lock file and nothing else, so the lock file must name everything that `pyproject.toml` does."""

from __future__ import annotations

import re
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
LOCKED_EXTRAS = {
    "avro",
    "cli",
    "dev",
    "fast",
    "json-schema",
    "opentelemetry",
    "orjson",
    "prometheus",
    "sql",
    "tui",
    "ui",
}


def names(requirements: list[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line) for line in requirements)
    return {re.sub(r"[-_.]+", "-", match[0]).lower() for match in found if match}


def test_the_lock_file_of_ci_names_every_dependency() -> None:
    locked = names((ROOT / ".ci" / "requirements.txt").read_text().splitlines())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = list(project["dependencies"])
    for extra in LOCKED_EXTRAS:
        needed += project["optional-dependencies"][extra]
    assert names(needed) - locked <= {"kinesis-sdk"}, "run `make lock`"


def test_lock_files_have_hashes_and_name_no_registry() -> None:
    locks = [
        ROOT / ".ci" / "requirements.txt",
        *(ROOT / "integration" / "localstack").glob("requirements.txt"),
        *(ROOT / "integration" / "examples").glob("peers.txt"),
        *(ROOT / "integration").glob("lowest.txt"),
    ]
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text
        pinned = re.findall(r"^[A-Za-z0-9].*?(?=^[A-Za-z0-9]|\Z)", text, re.MULTILINE | re.DOTALL)
        assert len(pinned) > {"peers.txt": 20, "lowest.txt": 5}.get(lock.name, 50)
        assert all("==" in entry and "--hash=sha256:" in entry for entry in pinned)
    npm = sorted((ROOT / "integration" / "localstack" / "npm").glob("*/package-lock.json"))
    assert [lock.parent.name for lock in npm] == ["dynamodb", "kinesis"]
    for lock in [*npm, ROOT / "integration" / "multilang" / "npm" / "package-lock.json"]:
        text = lock.read_text()
        assert "://" not in text
        assert text.count('"integrity": "sha512-') == text.count('    "node_modules/')
