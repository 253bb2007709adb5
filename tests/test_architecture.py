"""Which package may import which: DESIGN.md draws it, the source is read, so that a lazy import counts too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import kinesis_sdk

PACKAGE = Path(kinesis_sdk.__file__).parent
DESIGN = PACKAGE.parent / "DESIGN.md"

Arrows = Mapping[str, frozenset[str]]

EVERYWHERE = frozenset({"_lazy", "_version"})
"""What every package may import."""


def drawn(text: str) -> Arrows:
    """The arrows of DESIGN.md's map: package → packages (or ``package.module``) that it imports."""
    lines = re.findall(r"^  (\w+)(?:/|\.py)  .*? imports (.+)$", text, re.MULTILINE)
    return {
        room: frozenset() if targets == "nothing" else frozenset(targets.split(", "))
        for room, targets in lines
    }


DRAWN = drawn(DESIGN.read_text(encoding="utf-8"))


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


def outward(package: Path = PACKAGE) -> Iterator[tuple[str, str, str]]:
    """Each import that leaves its package: who, where it stands, what (without the name of the whole)."""
    rooms = {room_of(path, package) for path in package.rglob("*.py")}
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        for line, name in imports_of(path, package):
            target = name.partition(".")[2]
            if target.split(".")[0] not in rooms:  # `from kinesis_sdk import Producer`: a name of the root
                target = "__init__"
            if target.split(".")[0] not in {room, *EVERYWHERE}:
                yield room, f"{path.relative_to(package)}:{line}", target


def goes_to(target: str, arrow: str) -> bool:
    return target == arrow or target.startswith(f"{arrow}.")


def violations(package: Path = PACKAGE, arrows: Arrows = DRAWN) -> list[str]:
    """Imports that are not drawn."""
    return [
        f"{where} imports {target}"
        for room, where, target in outward(package)
        if not any(goes_to(target, arrow) for arrow in arrows.get(room, ()))
    ]


def unused(package: Path = PACKAGE, arrows: Arrows = DRAWN) -> list[str]:
    """Arrows that are drawn and that no import needs."""
    found = [(room, target) for room, _, target in outward(package)]
    return [
        f"{room} -> {arrow}"
        for room, targets in arrows.items()
        for arrow in sorted(targets)
        if not any(room == source and goes_to(target, arrow) for source, target in found)
    ]


def test_every_package_is_drawn() -> None:
    assert {room_of(path) for path in PACKAGE.rglob("*.py")} - EVERYWHERE == set(DRAWN)


def test_every_import_between_packages_is_drawn() -> None:
    assert violations() == []


def test_every_arrow_that_is_drawn_is_used() -> None:
    assert unused() == []


def test_an_arrow_without_an_import_is_noticed() -> None:
    assert unused(arrows={**DRAWN, "spark": DRAWN["spark"] | {"consumer.fetch"}}) == [
        "spark -> consumer.fetch"
    ]


def test_an_arrow_to_a_module_allows_that_module_only() -> None:
    narrow = {**DRAWN, "metrics": frozenset({"common.clock"})}
    assert any("imports common.errors" in line for line in violations(arrows=narrow))


WITHIN_CONSUMER = {
    "fetch": {"config", "error_policy"},
    "leases": {"runtime"},
    "shard_sync": {"config", "leases", "streams"},
}
"""What the packages below may import of the consumer; the rest of it runs them."""
WITHIN_TESTING = {
    "accounting": {"flights"},
    "aws": {"client", "clock", "cloudwatch", "credentials", "dynamodb", "errors", "faults", "kinesis"},
    "client": {"errors", "kinesis"},
    "clock": set(),
    "cloudwatch": {"errors"},
    "credentials": {"errors"},
    "dynamodb": {"errors"},
    "errors": set(),
    "faults": {"errors"},
    "flights": set(),
    "http": {"aws", "clock", "errors", "faults", "kinesis"},
    "kinesis": {"clock", "errors", "faults"},
}
"""Layers of the fake AWS: what each of its parts may import of the others, also for type checking only."""


def test_packages_of_the_consumer_do_not_import_what_runs_them() -> None:
    for room, allowed in WITHIN_CONSUMER.items():
        for path in sorted((PACKAGE / "consumer" / room).rglob("*.py")):
            for line, name in imports_of(path):
                if name.startswith("kinesis_sdk.consumer."):
                    target = name.split(".")[2]
                    assert target in {room, *allowed}, f"{path.name}:{line} imports {name}"


def test_parts_of_the_fake_aws_import_only_from_lower_layers() -> None:
    folder = PACKAGE / "testing"
    parts = {path.relative_to(folder).parts[0].removesuffix(".py") for path in folder.rglob("*.py")}
    assert parts - {"__init__", "__main__"} == set(WITHIN_TESTING)
    for part, allowed in WITHIN_TESTING.items():
        paths = sorted((folder / part).rglob("*.py")) or [folder / f"{part}.py"]
        for path in paths:
            for line, name in imports_of(path):
                if name.startswith("kinesis_sdk.testing."):
                    target = name.split(".")[2]
                    assert target in {part, *allowed}, f"{path.name}:{line} imports {name}"


WITHIN_LEASES = {
    "table": set(),
    "ownership": {"table", "intervals"},
    "strategies": {"table", "intervals"},
    "java": {"table"},
}
"""What each package of the leases may import of the others; the coordinator connects them."""


def test_packages_of_the_leases_do_not_import_each_other() -> None:
    for room, allowed in WITHIN_LEASES.items():
        for path in sorted((PACKAGE / "consumer" / "leases" / room).rglob("*.py")):
            for line, name in imports_of(path):
                if name.startswith("kinesis_sdk.consumer.leases."):
                    target = name.split(".")[3]
                    assert target in {room, *allowed}, f"{path.name}:{line} imports {name}"


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
        ("spark/a.py", "from kinesis_sdk.consumer.fetch import polling"),
        ("testing/a.py", "from kinesis_sdk.common.errors import AwsError"),
        ("__init__.py", "from kinesis_sdk.cli import main"),
    ],
)
def test_this_test_sees_every_way_of_importing(path: str, source: str, tmp_path: Path) -> None:
    package = tmp_path / "kinesis_sdk"
    for room in ("common", "producer/deep", "consumer", "spark", "testing", "cli"):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "common" / "b.py").write_text("from kinesis_sdk.common import a\nfrom . import c\nimport os\n")
    (package / "producer" / "deep" / "b.py").write_text("from ...common import a\nfrom ..a import b\n")
    assert violations(package) == []
    (package / path).write_text(source)
    assert len(violations(package)) == 1


HEIRS = {"BlindRecord": "PendingRecord"}
"""Classes of the producer that may inherit from another one of ours; its other parts hold each other."""


def test_the_producer_is_made_by_composition() -> None:
    trees = [
        ast.parse(path.read_text(encoding="utf-8")) for path in sorted((PACKAGE / "producer").glob("*.py"))
    ]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    ours = {node.name for node in classes}
    inherits = {
        node.name: base.id
        for node in classes
        for base in node.bases
        if isinstance(base, ast.Name) and base.id in ours
    }
    assert inherits == HEIRS
