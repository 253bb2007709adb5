"""What can be checked of the README and the guides without running them; `integration/test_readme.py` runs their code."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from functools import cache
from pathlib import Path

import kinesis_sdk
import kinesis_sdk.consumer
import kinesis_sdk.metrics
import kinesis_sdk.spark
import kinesis_sdk.testing
import kinesis_sdk.tracing
from integration.spark.environments import NEWEST, OLDEST
from kinesis_sdk import StreamSpec
from tests.readme import DOCS, GUIDES, NOT_RUN, OWN_TESTS, README, ROOT, Block, blocks
from tools import sizes
from tools.docs_examples import with_files
from tools.docs_reference import CONFIGS

PAGES = [
    README,
    *sorted(DOCS.rglob("*.md")),
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "examples" / "README.md",
]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
TEXT_OF_GUIDES = "\n".join(page.read_text(encoding="utf-8") for page in GUIDES)


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_every_python_block_is_python() -> None:
    found = [(page, block) for page in PAGES for block in blocks("python", page)]
    assert len(found) >= 40
    for page, block in found:
        compile(block.text, f"{page.name}:{block.line}", "exec")


def test_the_code_that_comes_from_files_is_current() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text == with_files(text), f"{page.name}: run `make docs`"


def test_every_python_block_is_run() -> None:
    """By a test of its page, as the example that it comes from, or it is on the short list with a reason."""
    listed = {(name, block.first_line) for name, block in everything()}
    assert set(NOT_RUN) <= listed, "remove what the pages no longer have"
    assert len(NOT_RUN) <= 5, "the list is for what cannot run, and short"
    for name, test in OWN_TESTS.items():
        path, _, function = test.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {function}(" in source, test
        assert Path(name).stem in source, f"{path} does not mention {name}"
    # `integration/test_readme.py` takes all other pages from the same list, so a new page cannot be forgotten.
    tests = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (
            *(ROOT / "integration" / "examples").glob("test_*.py"),
            *(ROOT / "tests").glob("test_*.py"),
        )
    )
    for name, block in everything():
        assert block.language == "python", f"{name}:{block.line}: write ```python"
        if block.file is not None and block.file.endswith(".py"):
            assert Path(block.file).name in tests, f"{name}:{block.line}: no test runs {block.file}"


def everything() -> list[tuple[str, Block]]:
    """All blocks of Python, with the names of their pages."""
    kinds = ("python", "py", "python3", "pycon")
    return [
        (page.relative_to(ROOT).as_posix(), block)
        for page in PAGES
        for block in blocks(page=page)
        if block.language in kinds
    ]


NOT_INCLUDED = {
    "examples/docker/Dockerfile.dockerignore": "a list of folders that the image does not need",
    "examples/docker/orders.py": "puts orders for the Compose file; the page about producing has this code already",
}
"""Examples that pages only link to, and why."""


def test_every_example_is_included_by_a_page() -> None:
    included = {block.file for page in PAGES for block in blocks(page=page)}
    linked = {
        (page.parent / path).resolve().relative_to(ROOT).as_posix()
        for page in PAGES
        for path in re.findall(r"\]\(([^):#]*examples/[^)#]+)\)", page.read_text(encoding="utf-8"))
    }
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "examples").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md"
    }
    assert len(files) >= 30
    assert set(NOT_INCLUDED) == files - included
    assert set(NOT_INCLUDED) <= linked


def test_the_first_example_needs_one_database() -> None:
    """Leases, positions and results in one place is what a reader should meet first."""
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(.+?)\]", index, re.MULTILINE)[0] == "one_database.py"
    first = next(block for block in blocks("python", DOCS / "exactly-once.md"))
    assert first.file == "examples/one_database.py"


def test_every_page_begins_with_what_it_is_about() -> None:
    """Its first sentence is also its summary in llms.txt."""
    for page in sorted(set(DOCS.glob("*.md")) - {DOCS / "index.md"}):
        title, *rest = [line for line in page.read_text(encoding="utf-8").splitlines() if line]
        assert title.startswith("# "), page.name
        assert re.match(r"[A-Z`\[]", rest[0]), f"{page.name} begins with {rest[0]!r}"
        assert not re.match(r"The examples? |It |Contents", rest[0]), rest[0]


def test_every_extra_exists() -> None:
    extras = set(re.findall(r"'\.\[(\w+)\]'", TEXT))
    assert {"fast", "spark"} <= extras
    for extra in extras:
        assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE), extra


@cache
def anchors(page: Path) -> set[str]:
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", text):
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.name}: {path}"
            if anchor and target.suffix == ".md":
                assert anchor in anchors(target), f"{page.name}: {path}#{anchor}"
        for path in re.findall(r"python (benchmarks/\w+\.py)", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_every_call_in_the_text_has_the_arguments_that_the_code_has() -> None:
    """Inline code such as `StreamSpec(arn, consumer_arn=…)`: the class exists, the keywords are its parameters."""
    places = (kinesis_sdk, kinesis_sdk.metrics, kinesis_sdk.testing, kinesis_sdk.spark, kinesis_sdk.tracing)
    seen = 0
    calls = [
        call
        for code in re.findall(r"`([^`\n]+)`", TEXT_OF_GUIDES)
        for call in re.findall(r"([A-Z]\w+)\(([^()]*)\)", code)
    ]
    for name, arguments in calls:
        kind = next(getattr(place, name) for place in places if hasattr(place, name))
        parameters = inspect.signature(kind).parameters
        for keyword in re.findall(r"(\w+)=", arguments):
            assert keyword in parameters, f"{name}({keyword}=…)"
            seen += 1
    assert seen >= 16


def test_every_setting_that_is_named_with_a_value_exists() -> None:
    fields = {field.name for config in (*CONFIGS, StreamSpec) for field in dataclasses.fields(config)}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)=[^`]*`", TEXT_OF_GUIDES))
    assert {"on_handler_error", "metrics_level"} <= named <= fields


def test_every_policy_is_shown_and_every_option_has_a_row() -> None:
    page = DOCS / "permissions.md"
    shown = {block.title: block for block in blocks("json", page)}
    assert sorted(shown) == sorted(f"docs/iam/{path.name}" for path in (DOCS / "iam").iterdir())
    names = [statement["Sid"] for statement in json.loads(shown["docs/iam/options.json"].text)["Statement"]]
    options = page.read_text(encoding="utf-8").split("## Options")[1].split("```json")[0]
    assert re.findall(r"^\| `(\w+)` \|", options, re.MULTILINE) == names


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = re.findall(r": ([\w./-]+\.md)$", navigation, re.MULTILINE)
    assert len(listed) == len(set(listed))
    missing = {page.name for page in DOCS.glob("*.md")}.difference(listed)
    assert not missing, "add these pages to the navigation in mkdocs.yml"


def test_every_test_that_a_page_names_exists() -> None:
    named = re.findall(r"`((?:tests|integration)/[\w/]+\.py)::(\w+)`", TEXT)
    assert len(named) >= 12
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"


def test_the_programs_of_a_migration_name_the_same_steps() -> None:
    """Side by side: each numbered line of the old program has its counterpart. `integration/examples/test_migration.py` runs both."""
    found = [block for block in blocks(page=DOCS / "migration.md") if block.title.endswith(":program")]
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert [old.section for old, _ in pairs] == [
        "From amazon_kclpy",
        "From the KPL in Java",
        "From boto3",
        "From async-kinesis",
        "From aiokpl",
        "From a Spark connector for the JVM",
    ]
    for old, new in pairs:
        steps = re.findall(r"(?:#|//) (\d+)", old.text)
        assert steps == [str(number) for number in range(1, len(steps) + 1)], old.section
        named = [
            number for comment in re.findall(r"# (\d+(?:, \d+)*)", new.text) for number in comment.split(", ")
        ]
        assert sorted(named, key=int) == steps, old.section
        folder, _, program = (new.file or "").rpartition("/")
        assert program == "after.py"
        assert (old.file or "").lower().startswith(f"{folder}/before.")


def test_every_extra_of_users_is_in_the_table_of_sizes() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    declared = {*re.findall(r"^([\w-]+) = \[", section, re.MULTILINE)}
    of_this_project = {"dev", "docs", "examples"}
    inside_of_all = {"json-schema", "orjson"}
    assert sizes.listed()[0] == ""
    assert {*sizes.listed()[1:]} == declared - of_this_project - inside_of_all


def test_the_versions_are_those_that_are_declared_and_tested() -> None:
    page = (DOCS / "versions.md").read_text(encoding="utf-8")
    rows = {
        name: (supported, tested)
        for name, supported, tested in re.findall(r"^\| (.+?) \| (.+) \| (.+) \|$", page, re.MULTILINE)
    }
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (python,) = re.findall(r'requires-python = ">=([\d.]+)"', project)
    assert rows["Python"][0].startswith(f"{python} or newer")
    classified = re.findall(r"Programming Language :: Python :: (3\.\d+)", project)
    assert f" {classified[0]} to {classified[-1]} " in rows["Python"][1]
    newest, oldest = (
        dict(
            reversed(
                re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE)
            )
        )
        for lock in (".ci/requirements.txt", "integration/lowest.txt")
    )
    for name in ("boto3", "protobuf"):
        assert re.findall(r"\d+\.\d+\.\d+", rows[name][1]) == [newest[name], oldest[name]], name
        (least,) = set(re.findall(rf'"{name}>=([\d.]+)"', project))
        assert f"{oldest[name]}.".startswith(f"{least}."), "the oldest that is declared, run `make lock`"
    for name, package in (("boto3", "boto3"), ("protobuf", "protobuf"), ("Spark", "pyspark")):
        (least,) = set(re.findall(rf'"{package}>=([\d.]+)"', project))
        assert f"{least} or newer" in rows[name][0], name
    assert rows["Spark"][1] == f"{OLDEST} and {NEWEST}"
    compatibility = (DOCS / "compatibility.md").read_text(encoding="utf-8")
    for version in re.findall(r"\d+\.\d+\.\d+", rows["KCL beside it"][1] + rows["KPL"][1]):
        assert version in compatibility, version


def test_the_costs_in_sizing_are_those_of_the_benchmarks() -> None:
    """One measurement, one number: the benchmarks' page has it with its conditions."""
    sizing = (DOCS / "sizing.md").read_text(encoding="utf-8")
    measured = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+? \| (\d.*) \| `make (\S+)` \|$", sizing, re.MULTILINE)
    assert len(rows) == 4
    for cost, command in rows:
        assert command in measured, command
        for number, unit in re.findall(r"(\d+\.\d+) (µs|ms)", cost):
            assert re.search(rf"\| {number}0? \||\b{number}0? {unit}", measured), f"{number} {unit}"
