"""What can be checked of the README and the guides without running them; `integration/test_readme.py` runs their code."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path

import click
import pytest

import kinesis_sdk
import kinesis_sdk.consumer
import kinesis_sdk.metrics
import kinesis_sdk.spark
import kinesis_sdk.testing
from kinesis_sdk import StreamSpec
from kinesis_sdk.cli.main import cli
from tests.readme import DOCS, GUIDES, README, ROOT, blocks
from tools.docs_reference import CONFIGS

PAGES = [README, *sorted(DOCS.glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
TEXT_OF_GUIDES = "\n".join(page.read_text(encoding="utf-8") for page in GUIDES)


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_every_python_block_is_python() -> None:
    found = [(page, block) for page in GUIDES for block in blocks("python", page)]
    assert len(found) >= 10
    for page, block in found:
        compile(block.text, f"{page.name}:{block.line}", "exec")


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_every_command_and_extra_exists() -> None:
    commands = set(re.findall(r"(?:^|`)kinesis-sdk ([a-z]+)", TEXT, re.MULTILINE))
    assert {"demo", "fake"} <= commands <= set(cli.list_commands(click.Context(cli)))
    extras = set(re.findall(r"'\.\[(\w+)\]'", TEXT))
    assert {"fast", "spark"} <= extras
    for extra in extras:
        assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE), extra


def anchors(page: Path) -> set[str]:
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", text):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path}#{anchor}"
    for path in re.findall(r"python (benchmarks/\w+\.py)", text):
        assert (ROOT / path).exists(), path


def test_every_call_in_the_text_has_the_arguments_that_the_code_has() -> None:
    """Inline code such as `StreamSpec(arn, consumer_arn=…)`: the class exists, the keywords are its parameters."""
    places = (kinesis_sdk, kinesis_sdk.metrics, kinesis_sdk.testing, kinesis_sdk.spark)
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


def test_the_policy_is_json_with_a_row_for_each_statement() -> None:
    page = DOCS / "permissions.md"
    (policy,) = blocks("json", page)
    names = [statement["Sid"] for statement in json.loads(policy.text)["Statement"]]
    before = page.read_text(encoding="utf-8").split("```json")[0]
    rows = [
        name
        for row in re.findall(r"^\| (`.*?) \|", before, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(rows) == sorted(names)


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
