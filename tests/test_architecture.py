"""Who may import whom: read from the source, so that a lazy import counts too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kinesis_sdk

PACKAGE = Path(kinesis_sdk.__file__).parent

# Floor by floor; a room that is not named here must be added on purpose.
ALLOWED: dict[str, set[str]] = {
    "common": {"_version"},
    # The public face makes the sink that `metrics_level` asks for.
    "producer": {"common", "metrics", "_version"},
    "consumer": {"common", "_version"},
    # Sinks: what is measured only knows the interface in common.
    "metrics": {"common", "_version"},
    "testing": {"common", "consumer", "producer", "_version"},
    "spark": {"common", "consumer", "producer", "_version"},
    "cli": {"common", "consumer", "producer", "spark", "testing", "_version"},
    "_version": set(),
    # The front door re-exports what users need, but no command line.
    "__init__": {"common", "consumer", "metrics", "producer", "_version"},
    "__main__": {"cli", "_version"},
}


def room_of(path: Path, package: Path = PACKAGE) -> str:
    first = path.relative_to(package).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path, package: Path = PACKAGE) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything of this package that a module imports, anywhere in it."""
    within = [package.name, *path.relative_to(package).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = within[: len(within) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in found:
            if name.split(".")[0] == package.name:
                yield node.lineno, name


def violations(package: Path = PACKAGE) -> list[str]:
    rooms = {room_of(path, package) for path in package.rglob("*.py")}
    result = []
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        for line, name in imports_of(path, package):
            target = name.split(".")[1] if "." in name else "__init__"
            if target not in rooms:  # `from kinesis_sdk import Producer`: a name of the front door
                target = "__init__"
            if target != room and target not in ALLOWED.get(room, set()):
                result.append(f"{path.relative_to(package)}:{line} imports {name}")
    return result


def test_every_room_is_known() -> None:
    assert {room_of(path) for path in PACKAGE.rglob("*.py")} <= set(ALLOWED)


def test_nobody_imports_what_stands_above_or_beside() -> None:
    assert violations() == []


def test_spark_uses_no_more_of_the_consumer_than_fetching() -> None:
    # Spark has its own coordination: leases, shard sync and the worker are not for it.
    for path in (PACKAGE / "spark").rglob("*.py"):
        for line, name in imports_of(path):
            if name.startswith("kinesis_sdk.consumer"):
                assert name.startswith("kinesis_sdk.consumer.fetch"), f"{path}:{line} imports {name}"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("producer/a.py", "from kinesis_sdk.consumer import leases"),
        ("producer/a.py", "import kinesis_sdk.consumer.leases"),
        ("producer/a.py", "def late():\n    from kinesis_sdk import consumer"),
        ("producer/a.py", "from ..consumer import leases"),
        ("producer/deep/a.py", "from ...consumer import leases"),
        ("producer/a.py", "from .. import consumer"),
        ("consumer/a.py", "from kinesis_sdk.producer.x import y"),
        ("common/a.py", "from kinesis_sdk import producer"),
        ("common/a.py", "from kinesis_sdk import Producer"),
        ("common/a.py", "import kinesis_sdk"),
        ("common/a.py", "import kinesis_sdk.testing.clock"),
        ("consumer/a.py", "from kinesis_sdk.cli import main"),
        ("__init__.py", "from kinesis_sdk.cli import main"),
    ],
)
def test_this_test_sees_every_way_of_importing(path: str, source: str, tmp_path: Path) -> None:
    package = tmp_path / "kinesis_sdk"
    for room in ("common", "producer/deep", "consumer", "testing", "cli"):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "common" / "b.py").write_text("from kinesis_sdk.common import a\nfrom . import c\nimport os\n")
    (package / "producer" / "deep" / "b.py").write_text("from ...common import a\nfrom ..a import b\n")
    assert violations(package) == []
    (package / path).write_text(source)
    assert len(violations(package)) == 1
