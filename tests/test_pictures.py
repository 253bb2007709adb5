"""The pictures of the documentation are those of their sources, and name code that exists."""

from __future__ import annotations

import ast
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import kinesis_sdk
from kinesis_sdk.common.position import AtSequence
from kinesis_sdk.common.position_text import ALL_POSITIONS, parse_position
from kinesis_sdk.consumer.leases.table import transitions
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


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_every_picture_is_on_a_page_with_its_description(source: Path) -> None:
    alt = read_picture(source.read_text(encoding="utf-8")).alt
    pages = [
        page.name
        for page in PAGES
        if re.search(
            rf"!\[{re.escape(alt)}\]\([\w/]*pictures/{source.stem}\.svg\)", page.read_text(encoding="utf-8")
        )
    ]
    assert pages, f"no page shows {source.stem}.svg with the text of its source"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_code_that_a_picture_names_exists(source: Path) -> None:
    picture = read_picture(source.read_text(encoding="utf-8"))
    named = [node.code for node in picture.nodes.values() if node.code]
    assert named
    for place in named:
        path, _, name = place.partition(":")
        module = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
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
