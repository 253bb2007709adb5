"""Which package may import which: DESIGN.md draws it, the source is read, so that a lazy import counts too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import isclass, isfunction, signature, unwrap
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import kinesis_sdk
from tests.fuzz import share
from tests.readme import DESIGN as DESIGN_PAGES
from tests.trees import parse
from tools.pictures import PICTURES, read_picture

PACKAGE = Path(kinesis_sdk.__file__).parent
DESIGN = "\n".join(page.read_text(encoding="utf-8") for page in DESIGN_PAGES)

Arrows = Mapping[str, frozenset[str]]

EVERYWHERE = frozenset({"_lazy", "_version"})
"""What every package may import."""


def drawn(text: str, root: str = "kinesis_sdk/") -> Arrows:
    """Return the arrows of one of DESIGN.md's maps.

    Args:
        text: The document.
        root: First line of the map.

    Returns:
        The packages (or ``package.module``) that each package imports.
    """
    (block,) = re.findall(rf"^```\n{re.escape(root)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^  ([\w/]+?)(?:/|\.py)  .*? imports (.+)$", block, re.MULTILINE)
    return {
        room: frozenset() if targets == "nothing" else frozenset(targets.split(", "))
        for room, targets in lines
    }


DRAWN = drawn(DESIGN)
DRAWN_CONSUMER = drawn(DESIGN, "kinesis_sdk/consumer/")
DRAWN_PRODUCER = drawn(DESIGN, "kinesis_sdk/producer/")


APART = frozenset({"testing/contracts", "testing/demo"})
"""Packages within a package that are drawn by themselves: the fake AWS stays independent of the code that is tested with it."""


def room_of(path: Path, package: Path = PACKAGE) -> str:
    return _room(path.relative_to(package).parts)


def _room(parts: Sequence[str]) -> str:
    two = "/".join(parts[:2])
    return two if two in APART else parts[0].removesuffix(".py")


def imports_of(path: Path, package: Path = PACKAGE) -> Sequence[tuple[int, str]]:
    """Line and absolute name of everything of this package that a module imports, anywhere in it."""
    return _imports_in(path.read_text(encoding="utf-8"), path, package)


@cache
def _imports_in(source: str, path: Path, package: Path) -> Sequence[tuple[int, str]]:
    return tuple(_read_imports(source, path, package))


STRING = re.compile(r'"""(?:\\.|[^\\])*?"""', re.DOTALL)
"""A docstring, which may show imports."""
IMPORT = re.compile(r"^[ \t]*(?:from (\.*[\w.]*) import (\([^)]*\)|[^\n#]*)|import ([^\n#]*))", re.MULTILINE)
"""An import as ruff formats it; what follows ``from``, the names, and what follows ``import``."""


def _read_imports(source: str, path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Read what `_parsed_imports` finds, in a tenth of the time."""
    within = [package.name, *path.relative_to(package).parts[:-1]]
    code = STRING.sub(lambda text: "\n" * text[0].count("\n"), source)
    for match in IMPORT.finditer(code):
        module, names, modules = match.groups()
        if modules is None:
            level = len(module) - len(module.lstrip("."))
            base = within[: len(within) - level + 1] if level else []
            room = ".".join([*base, *([module[level:]] if module[level:] else [])])
            names = re.sub(r"#[^\n]*", "", names).strip("() \n")
            found = [f"{room}.{name.split()[0]}" for name in names.split(",") if name.strip()]
        else:
            found = [name.split()[0] for name in modules.split(",")]
        line = code.count("\n", 0, match.start()) + 1
        yield from ((line, name) for name in found if name.split(".")[0] == package.name)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement below a node. Expressions, most of a module's nodes, hold no imports."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(node, name, ())
        for child in below if isinstance(below, list) else ():
            yield child
            yield from _statements(child)


def _parsed_imports(source: str, path: Path, package: Path) -> Iterator[tuple[int, str]]:
    within = [package.name, *path.relative_to(package).parts[:-1]]
    for node in _statements(parse(source)):
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


@pytest.mark.fuzz
def test_imports_are_read_as_python_reads_them() -> None:
    for path in share(sorted(PACKAGE.rglob("*.py")), unit=15):
        source = path.read_text(encoding="utf-8")
        arguments = source, path, PACKAGE
        assert sorted(_read_imports(*arguments)) == sorted(_parsed_imports(*arguments)), path


def outward(package: Path = PACKAGE) -> Iterator[tuple[str, str, str]]:
    """Each import that leaves its package: who, where it stands, what (without the name of the whole)."""
    rooms = {room_of(path, package) for path in package.rglob("*.py")}
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        for line, name in imports_of(path, package):
            target = name.partition(".")[2]
            if target.split(".")[0] not in rooms:  # `from kinesis_sdk import Producer`: a name of the root
                target = "__init__"
            if _room(target.split(".")) not in {room, *EVERYWHERE}:
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


def test_the_picture_of_the_core_has_the_arrows_of_the_map() -> None:
    picture = read_picture((PICTURES / "packages.txt").read_text(encoding="utf-8"))
    core = {"common", "metrics", "producer", "consumer"}
    arrows = {(arrow.source, arrow.target) for arrow in picture.arrows if arrow.source in core}
    assert arrows == {(room, target) for room in core for target in DRAWN[room]}


# Inside the producer and the consumer


CONSUMER = PACKAGE / "consumer"
PRODUCER = PACKAGE / "producer"


def inner_room(parts: Sequence[str]) -> str:
    """Return the package of a module as it is drawn: ``leases/table``, ``shard``, ``worker``."""
    depth = 2 if parts[0] == "leases" and len(parts) > 1 else 1
    return "/".join(parts[:depth]).removesuffix(".py")


def within(package: Path, half: str) -> Iterator[tuple[str, str, str]]:
    """Yield each import between two packages of the producer or the consumer: importer, place, imported."""
    folder = package / half
    paths = sorted(folder.rglob("*.py"))
    rooms = {inner_room(path.relative_to(folder).parts) for path in paths}
    for path in paths:
        room = inner_room(path.relative_to(folder).parts)
        for line, name in imports_of(path, package):
            prefix, *parts = name.split(".")[1:]
            if prefix != half:
                continue
            target = inner_room(parts) if parts else "__init__"
            if target not in rooms:  # a name that the package itself exports
                target = "leases/__init__" if parts[:1] == ["leases"] else "__init__"
            if target != room:
                yield room, f"{path.relative_to(package)}:{line}", target


def inner_violations(package: Path, half: str, arrows: Arrows) -> list[str]:
    """Return the imports inside the producer or the consumer that are not drawn."""
    return [
        f"{where} imports {target}"
        for room, where, target in within(package, half)
        if target not in arrows.get(room, ())
    ]


def inner_unused(half: str, arrows: Arrows) -> list[str]:
    """Return the arrows inside the producer or the consumer that are drawn and that no import needs."""
    found = {(room, target) for room, _, target in within(PACKAGE, half)}
    return [
        f"{room} -> {target}"
        for room, targets in arrows.items()
        for target in sorted(targets)
        if (room, target) not in found
    ]


HALVES = [("producer", DRAWN_PRODUCER), ("consumer", DRAWN_CONSUMER)]


@pytest.mark.parametrize(("half", "arrows"), HALVES)
def test_the_map_inside_producer_and_consumer_is_as_drawn(half: str, arrows: Arrows) -> None:
    folder = PACKAGE / half
    assert {inner_room(path.relative_to(folder).parts) for path in folder.rglob("*.py")} == set(arrows)
    assert inner_violations(PACKAGE, half, arrows) == []
    assert inner_unused(half, arrows) == []


def test_the_packages_of_the_producer_form_floors() -> None:
    """Calls and references go down these floors, never up."""
    floors = ["io", "failures", "stream", "records"]
    for floor, name in enumerate(floors):
        assert not DRAWN_PRODUCER[name] & {"producer", "aio", "engine", *floors[:floor]}, name


def test_producer_and_readers_have_their_own_sides_of_once() -> None:
    """Of a package that both use, only the format, `once.table`, belongs to both."""
    writers = frozenset({"identity", "names", "runs", "stamps"})
    used: dict[str, set[str]] = {"producer": set(), "readers": set()}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = room_of(path)
        for _, name in imports_of(path):
            parts = name.split(".")
            if room != "common" and parts[1:3] == ["common", "once"]:
                used["producer" if room == "producer" else "readers"].add(parts[3])
    assert writers <= used["producer"] <= writers | {"table"}
    assert "RunReader" in used["readers"]
    assert not used["readers"] & writers


def test_leases_know_nothing_of_what_uses_them() -> None:
    """The strategies, the table and the packages beside them take settings as arguments."""
    for room, targets in DRAWN_CONSUMER.items():
        if room.startswith("leases/"):
            assert {target for target in targets if not target.startswith("leases/")} <= {"runtime", "sql"}, (
                room
            )
    table = {"leases/table"}
    assert DRAWN_CONSUMER["leases/table"] == {"sql"}
    assert DRAWN_CONSUMER["leases/java"] == table
    assert DRAWN_CONSUMER["leases/strategies"] == {*table, "leases/intervals"}
    assert DRAWN_CONSUMER["leases/ownership"] <= {*table, "leases/intervals", "runtime"}


def test_the_arrows_inside_the_consumer_form_no_circle() -> None:
    left = {room: set(targets) for room, targets in DRAWN_CONSUMER.items()}
    while left:
        free = {room for room, targets in left.items() if not targets & left.keys()}
        assert free, f"a circle among {sorted(left)}"
        left = {room: targets for room, targets in left.items() if room not in free}


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


HEIRS = {"PendingRecord": "BufferedRecord", "BlindRecord": "PendingRecord"}
"""Classes of the producer that may inherit from another one of ours; its other parts hold each other."""


def test_the_producer_is_made_by_composition() -> None:
    trees = [parse(path.read_text(encoding="utf-8")) for path in sorted(PRODUCER.rglob("*.py"))]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    ours = {node.name for node in classes}
    inherits = {
        node.name: base.id
        for node in classes
        for base in node.bases
        if isinstance(base, ast.Name) and base.id in ours
    }
    assert inherits == HEIRS


# Walls: the core and its neighbours

CORE = frozenset({"common", "metrics", "producer", "consumer"})
HELPED = frozenset({"__init__", *EVERYWHERE})
"""Beside core and neighbours: the names of the root."""


def doors(text: str) -> frozenset[str]:
    """Return the packages whose exported names DESIGN.md calls public."""
    (table,) = re.findall(r"^\| door \| to what \|\n\|---\|---\|\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    return frozenset(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE))


def public_modules(text: str) -> frozenset[str]:
    """Return the modules that DESIGN.md calls public."""
    (line,) = re.findall(r"^Public modules: (.+)\.$", text, re.MULTILINE)
    return frozenset(re.findall(r"`([\w.]+)`", line))


DOORS = doors(DESIGN)
PUBLIC = public_modules(DESIGN)


@cache
def crossings(package: Path = PACKAGE) -> Sequence[tuple[str, str, str]]:
    """Return each import of a neighbour from the core: the neighbour, module or package, and name ("" for all of a module)."""
    found = []
    for room, _, target in outward(package):
        if room in CORE | HELPED or target.split(".")[0] not in CORE:
            continue
        module, _, name = target.rpartition(".")
        is_module = (package / target.replace(".", "/")).with_suffix(".py").exists()
        found.append(
            (room, target, "") if is_module and name not in exported(module) else (room, module, name)
        )
    return found


def private_imports(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Return the private modules of the core that neighbours import, and which neighbours."""
    found: dict[str, set[str]] = {}
    for room, module, name in crossings(package):
        if module not in PUBLIC and name not in exported(module):
            found.setdefault(module, set()).add(room)
    return found


def exported(module: str) -> frozenset[str]:
    """Return the names that a door exports; nothing for what is no door."""
    if module not in DOORS:
        return frozenset()
    return frozenset(import_module(f"kinesis_sdk.{module}").__all__)


def test_the_core_imports_no_neighbour() -> None:
    for room in CORE:
        assert {target.split(".")[0] for target in DRAWN[room] - {"nothing"}} <= CORE, room


def test_neighbours_import_public_names_of_the_core_only() -> None:
    assert private_imports() == {}


FOR_USERS = {"common"}
"""Doors that no neighbour needs: users import from them."""


def test_every_door_and_public_module_is_used_by_a_neighbour() -> None:
    used = {module for _, module, _ in crossings()}
    assert used & (DOORS | PUBLIC) == (DOORS | PUBLIC) - FOR_USERS
    assert not DOORS & PUBLIC


def public_names() -> Iterator[tuple[str, str]]:
    """Yield each public name: what doors export, what neighbours use of public modules, and the functions and classes defined there."""
    for door in DOORS:
        yield from ((door, name) for name in exported(door))
    yield from ((module, name) for _, module, name in crossings() if name and module in PUBLIC)
    for module in PUBLIC:
        home = import_module(f"kinesis_sdk.{module}")
        for name, value in vars(home).items():
            is_ours = getattr(value, "__module__", None) == home.__name__
            if is_ours and not name.startswith("_") and (isfunction(value) or isclass(value)):
                yield module, name


def test_every_public_name_has_a_docstring() -> None:
    assert {f"{module}.{name}" for module, name in public_names() if not is_documented(module, name)} == set()


SAID_ONCE = {"field", "value"}
"""Parameters that mean the same in every function that checks a value: the name of the setting, for the error, and what a user gave."""


def is_documented(module: str, name: str) -> bool:
    """Return whether a name of a module has a docstring, which of a constant stands below it; a function's names every parameter."""
    home = import_module(f"kinesis_sdk.{module}")
    value = unwrap(getattr(home, name))
    if isinstance(value, ModuleType):
        return bool(value.__doc__)
    if isclass(value) and value.__doc__:
        return True
    if isfunction(value) and value.__doc__:
        named = [one for one in signature(value).parameters if one not in SAID_ONCE]
        return len(named) < 2 or all(re.search(rf"\b{one}\b", value.__doc__) for one in named)
    return any(name in documented_constants(path) for path in sources_of(module, name))


def sources_of(module: str, name: str) -> Iterator[Path]:
    """Yield the files in which a constant may be defined: the module, or the package's source of the name."""
    path = PACKAGE / module.replace(".", "/")
    if path.with_suffix(".py").exists():
        yield path.with_suffix(".py")
        return
    if source := imported_from(path / "__init__.py").get(name):
        yield from sources_of(source, name)


@cache
def imported_from(path: Path) -> Mapping[str, str]:
    """Return from which module of this package a file imports each name."""
    return {
        alias.name: str(found.module).removeprefix("kinesis_sdk.")
        for found in _statements(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(found, ast.ImportFrom)
        for alias in found.names
    }


@cache
def documented_constants(path: Path) -> frozenset[str]:
    """Return the constants of a module that have a docstring below them."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return frozenset(
        target.id
        for node, below in pairwise(body)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    )


SPELLED = re.compile(r"kinesis-sdk [a-z]|(?<![\w-])--[a-z]")


def spelled_commands(source: str) -> list[str]:
    """Return the strings of a module, docstrings left out, that have words of a command line."""
    if not SPELLED.search(source):
        return []  # most modules
    tree = parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (
        node.value if isinstance(node.value, str) else node.value.decode()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, (str, bytes))
        and id(node) not in docstrings
    )
    return [text for text in texts if SPELLED.search(text)]


def test_the_administration_spells_no_command_line() -> None:
    found = {
        str(path.relative_to(PACKAGE)): texts
        for path in sorted((PACKAGE / "admin").rglob("*.py"))
        if (texts := spelled_commands(path.read_text(encoding="utf-8")))
    }
    assert found == {}, "admin gives a Command; cli/spelling.py writes its words"


@pytest.mark.parametrize("text", ["see: kinesis-sdk leases pin", "--shard", "(--stream)", "use --swap"])
def test_a_spelled_command_is_noticed(text: str) -> None:
    assert spelled_commands(
        f'"""Docs: kinesis-sdk lag --json."""\nname = 1\nraise ValueError(f"{{name}}{text}")'
    )


def test_a_private_import_is_noticed(tmp_path: Path) -> None:
    package = tmp_path / "kinesis_sdk"
    for path, source in {
        "spark/a.py": "from kinesis_sdk.producer.io.sender import TaskPool",
        "spark/b.py": "from kinesis_sdk.producer import Producer\nfrom kinesis_sdk.common.errors import AwsError",
        "producer/io/sender.py": "",
    }.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(source)
    (package / "common").mkdir()
    (package / "common/errors.py").touch()
    assert private_imports(package) == {"producer.io.sender": {"spark"}}


# Test modules

IMPORT_OF_TESTS = re.compile(rb"\n *(?:from|import) .*\btest_")
RUNS_TESTS = "integration/conformance/test_lease_store.py"
"""Runs tests of another module, against DynamoDB Local."""


def test_no_module_imports_a_test_module() -> None:
    """A helper of two test modules has a module of its own. No syntax trees: there are 800 modules."""
    root = PACKAGE.parent
    paths = [
        path
        for folder in ("tests", "integration", "benchmarks", "tools")
        for path in (root / folder).rglob("*.py")
    ]
    found = {path.relative_to(root).as_posix() for path in paths if IMPORT_OF_TESTS.search(path.read_bytes())}
    assert found == {RUNS_TESTS}, "move what they import to a module whose name does not begin with test_"
