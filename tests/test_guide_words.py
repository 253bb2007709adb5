"""The guides stay short enough to be read, and each can be entered at a heading."""

from __future__ import annotations

import re

from tests.readme import DOCS
from tools.guide_words import LIMIT, guides, words

GUIDES = guides()


def test_the_guides_have_at_most_fifty_thousand_words() -> None:
    assert len(GUIDES) > 40
    assert sum(GUIDES.values()) <= LIMIT, (
        "run `python -m tools.guide_words --pages`, and give each fact one home"
    )


def test_a_long_guide_has_headings() -> None:
    """A table of contents, and places to link to: one for each five hundred words."""
    for page, count in GUIDES.items():
        if count > 350:
            text = (DOCS / page).read_text(encoding="utf-8")
            assert text.count("\n## ") + text.count("\n### ") >= max(2, count / 500), page


WITHOUT_CODE = {"faq.md"}


def test_a_guide_begins_with_code() -> None:
    for page in sorted(set(GUIDES) - WITHOUT_CODE):
        before, fence, _ = (DOCS / page).read_text(encoding="utf-8").partition("```")
        assert fence, page
        assert words(before) <= 120, f"{page}: show first what a reader types"


def test_a_long_table_has_short_cells() -> None:
    """Sixteen rows with sentences of forty words are no table, but text."""
    for page in sorted(GUIDES):
        for table in re.findall(r"(?:^\|.*\n)+", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE):
            rows = table.splitlines()[2:]
            longest = max((len(cell.split()) for row in rows for cell in row.split("|")), default=0)
            assert len(rows) < 16 or longest < 40, page
