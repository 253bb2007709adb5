"""The code blocks of the README and of other pages, for tests that read, run or compare them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
GUIDES = (README, *(DOCS / f"{name}.md" for name in ("quickstart", "producer", "consumer", "spark-guide")))
"""Pages whose programs run against the fake AWS, in the order in which a user reads them."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the section in which it stands, its language, its text, its line, its title."""

    section: str
    language: str
    text: str
    line: int
    title: str = ""


def blocks(language: str | None = None, page: Path = README) -> list[Block]:
    """All blocks in the order of a page, or those of one language."""
    found = []
    section = ""
    fence: tuple[str, int] | None = None
    body: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            if fence is None:
                fence, body = (line.removeprefix("```").strip(), number), []
            else:
                kind, _, rest = fence[0].partition(" ")
                title = re.search(r'title="([^"]*)"', rest)
                found.append(
                    Block(section, kind, "\n".join(body) + "\n", fence[1], title[1] if title else "")
                )
                fence = None
        elif fence is not None:
            body.append(line)
        elif heading := re.match(r"## (.+)", line):
            section = heading[1]
    assert fence is None, "a block without an end"
    return [block for block in found if language is None or block.language == language]
