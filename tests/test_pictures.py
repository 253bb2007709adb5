"""The pictures of the documentation are those of their sources, and name code that exists."""

from __future__ import annotations

import ast
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import pytest

import kinesis_sdk
from kinesis_sdk.acknowledgement.gaps import GapMap
from kinesis_sdk.common.error_policy import Decision
from kinesis_sdk.common.interceptors import ConsumerInterceptor
from kinesis_sdk.common.position import AtSequence
from kinesis_sdk.common.position_text import ALL_POSITIONS, parse_position
from kinesis_sdk.common.retry_tiers import tier_stream
from kinesis_sdk.common.sequence import ExtendedSequenceNumber
from kinesis_sdk.consumer.leases.table import transitions
from kinesis_sdk.multilang.protocol import (
    CheckpointRequest,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
    Status,
)
from kinesis_sdk.producer.interceptors import ProducerInterceptor
from tests.trees import parse
from tools.pictures import PICTURES, draw, draw_curves, read_picture

PACKAGE = Path(kinesis_sdk.__file__).parent
SOURCES = sorted(PICTURES.glob("*.txt"))
PAGES = [*PICTURES.parent.glob("*.md"), PACKAGE.parent / "README.md"]


def text_of(name: str) -> str:
    return (PICTURES / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_picture_is_that_of_its_source(source: Path) -> None:
    drawn = source.with_suffix(".svg").read_text(encoding="utf-8")
    assert drawn == draw(read_picture(source.read_text(encoding="utf-8"))), "run: make docs"
    root = ET.fromstring(drawn)
    assert not re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?(?:https?:)?//", drawn), "it loads something"
    assert root.find("{http://www.w3.org/2000/svg}desc") is not None


def test_every_picture_is_on_a_page_with_its_description() -> None:
    shown = {
        (alt, name)
        for page in PAGES
        for alt, name in re.findall(
            r"!\[([^\]]*)\]\([\w/]*pictures/([\w-]+)\.svg\)", page.read_text(encoding="utf-8")
        )
    }
    for source in SOURCES:
        alt = read_picture(source.read_text(encoding="utf-8")).alt
        assert (alt, source.stem) in shown, f"no page shows {source.stem}.svg with the text of its source"


def test_the_code_that_a_picture_names_exists() -> None:
    for source in SOURCES:
        picture = read_picture(source.read_text(encoding="utf-8"))
        named = [node.code for node in picture.nodes.values() if node.code]
        assert named, source.stem
        for place in named:
            path, _, name = place.partition(":")
            module = parse((PACKAGE / path).read_text(encoding="utf-8"))
            names = {getattr(node, "name", "") for node in module.body}
            assert not name or name in names, place
        for node in picture.nodes.values():
            assert node.kind in {"code", "yours", "aws", "end"}, node


@pytest.mark.parametrize("source", sorted(PICTURES.glob("*.json")), ids=lambda source: source.stem)
def test_the_curves_are_those_that_were_measured(source: Path) -> None:
    measured = json.loads(source.read_text(encoding="utf-8"))
    drawn = source.with_suffix(".svg").read_text(encoding="utf-8")
    assert drawn == draw_curves(measured), "run: make docs"
    assert len(ET.fromstring(drawn).findall("{http://www.w3.org/2000/svg}circle")) == sum(
        len(point) - 1 for curve in measured["curves"] for point in curve["points"]
    )
    shown = f"![{measured['alt']}](pictures/{source.stem}.svg)"
    assert any(shown in page.read_text(encoding="utf-8") for page in PAGES)


def test_every_change_of_owner_is_an_arrow_in_the_life_of_a_lease() -> None:
    """The functions that return the row after a write, without those that keep the owner and are about positions."""
    picture = read_picture(text_of("lease"))
    module = ast.parse(Path(transitions.__file__).read_text(encoding="utf-8"))
    writes = {
        node.name: ast.unparse(node)
        for node in module.body
        if isinstance(node, ast.FunctionDef)
        and (ast.get_docstring(node) or "").startswith("Return the row after `LeaseStore.")
    }
    owners = {name for name, code in writes.items() if re.search(r"\b(owner|checkpoint_owner)=", code)}
    assert {"taken", "released", "handed_off", "handoff_requested"} <= owners
    assert {arrow.code for arrow in picture.arrows if arrow.code} == owners | {"checkpointed"}


def test_every_kind_of_position_is_in_the_picture_of_a_shard() -> None:
    titles = [node.title for node in read_picture(text_of("positions")).nodes.values() if node.kind == "code"]
    found = [parse_position(title.replace("…", "123"), now=1_700_000_000.0) for title in titles]
    # `at:` with an index is the position after the user record before.
    assert {type(position) for position in found} | {AtSequence} == set(ALL_POSITIONS)
    assert titles[2].startswith("at:")


def code_titles(name: str) -> list[str]:
    return [node.title for node in read_picture(text_of(name)).nodes.values() if node.kind == "code"]


def test_every_decision_of_a_policy_is_in_the_picture_of_a_failure() -> None:
    assert set(code_titles("failures")) == {decision.__name__ for decision in get_args(Decision)}


def test_the_tiers_in_the_picture_have_their_names() -> None:
    tiers = [node.title for node in read_picture(text_of("tiers")).nodes.values() if "retry-" in node.title]
    assert tiers == [tier_stream("orders", delay) for delay in (60, 600, 3600)]


def test_the_gaps_in_the_picture_are_those_that_are_stored() -> None:
    picture = read_picture(text_of("gaps"))
    records = [node.title for node in picture.nodes.values()]
    at = {str(number): ExtendedSequenceNumber(str(number)) for number in range(1, len(records) + 1)}
    gaps = GapMap(10)
    for position in at.values():
        gaps.receive(position)
    for title in records:
        if title.endswith(" ✓"):
            gaps.acknowledge(at[title.removesuffix(" ✓")])
    assert gaps.watermark == at["2"]
    assert (gaps.oldest, gaps.unacknowledged) == (at["3"], 2)
    notes = [text for _, _, text in picture.notes]
    assert notes[:2] == ["checkpoint: after 2", "in the row: up to 7, without 3 and 6"]


def test_every_method_of_an_interceptor_is_in_the_picture() -> None:
    methods = [
        name
        for interceptor in (ProducerInterceptor, ConsumerInterceptor)
        for name in vars(interceptor)
        if name.startswith("on_")
    ]
    assert sorted(code_titles("stages")) == sorted(methods)


def test_every_message_of_the_protocol_is_in_the_picture_of_a_daemon() -> None:
    told = " ".join(text for _, _, text in read_picture(text_of("children")).notes)
    heard, said = ({*re.findall(r"\w+", part)} for part in told.removeprefix("in: ").split("out: "))
    calls = (Initialize, ProcessRecords, ShutdownRequested, LeaseLost, ShardEnded)
    assert heard == {message.action for message in calls}
    assert said == {message.action for message in (Status, CheckpointRequest)}


def test_the_spans_in_the_picture_are_those_of_the_page() -> None:
    page = (PICTURES.parent / "tracing.md").read_text(encoding="utf-8")
    spans = re.findall(r"^\| `(\w+) STREAM` \|", page, re.MULTILINE)
    assert sorted(code_titles("trace")) == sorted(f"{span} orders" for span in spans)
