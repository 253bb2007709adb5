"""What can be checked of the README without running it; `integration/test_readme.py` runs its code."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re

import click

import kinesis_sdk
import kinesis_sdk.consumer
import kinesis_sdk.metrics
import kinesis_sdk.spark
import kinesis_sdk.testing
from kinesis_sdk import ConsumerConfig, ProducerConfig, StreamSpec
from kinesis_sdk.cli.main import cli
from tests.readme import README, ROOT, blocks

TEXT = README.read_text(encoding="utf-8")


def test_every_python_block_is_python() -> None:
    assert len(blocks("python")) >= 7
    for block in blocks("python"):
        compile(block.text, f"README.md:{block.line}", "exec")


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


def test_every_link_and_path_leads_to_a_file() -> None:
    paths = re.findall(r"\]\((?!https?:|#)([^)#]+)", TEXT) + re.findall(r"python (benchmarks/\w+\.py)", TEXT)
    assert len(paths) >= 5
    for path in paths:
        assert (ROOT / path).exists(), path


def test_every_link_within_the_page_has_its_heading() -> None:
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= headings


def test_every_call_in_the_text_has_the_arguments_that_the_code_has() -> None:
    """Inline code such as `StreamSpec(arn, consumer_arn=…)`: the class exists, the keywords are its parameters."""
    places = (kinesis_sdk, kinesis_sdk.metrics, kinesis_sdk.testing, kinesis_sdk.spark)
    seen = 0
    calls = [
        call
        for code in re.findall(r"`([^`\n]+)`", TEXT)
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
    fields = {
        field.name
        for config in (ConsumerConfig, ProducerConfig, StreamSpec)
        for field in dataclasses.fields(config)
    }
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)=[^`]*`", TEXT))
    assert {"on_handler_error", "metrics_level"} <= named <= fields


def test_the_policy_is_json_with_a_row_for_each_statement() -> None:
    (policy,) = blocks("json")
    names = [statement["Sid"] for statement in json.loads(policy.text)["Statement"]]
    section = TEXT[TEXT.index("## Permissions") : TEXT.index("```json")]
    rows = [
        name
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(rows) == sorted(names)
