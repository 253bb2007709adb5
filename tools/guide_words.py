"""Counts the words of the guides, which have a limit: what is long is not read.

Guides are the pages of all chapters of ``mkdocs.yml`` but `REFERENCE`, which is looked up. A word is what stands between two spaces
outside of code blocks, in tables too. ``make docs`` prints the count, and tests/test_guide_words.py holds it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
LIMIT = 50_000
REFERENCE = ("Reference", "Understand")
"""Chapters that a reader looks things up in, and does not read from the beginning to the end."""

_CODE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)


class _Loader(yaml.SafeLoader):
    """Reads ``mkdocs.yml``, whose tag ``!ENV`` stands for a variable of the environment."""


_Loader.add_constructor("!ENV", lambda *_: None)


def words(markdown: str) -> int:
    """Return the number of words of a page, without its code blocks."""
    return len(_CODE.sub("", markdown).split())


def guides() -> dict[str, int]:
    """Return the words of each guide by its path below ``docs/``, in the order of the navigation."""
    navigation = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)["nav"]  # noqa: S506 - a safe loader
    chapters = {name: entries for chapter in navigation for name, entries in chapter.items()}
    assert set(REFERENCE) <= chapters.keys()
    pages = [page for name, entries in chapters.items() if name not in REFERENCE for page in _pages(entries)]
    return {
        page: words((ROOT / "docs" / page).read_text(encoding="utf-8"))
        for page in pages
        if (ROOT / "docs" / page).is_file()
    }


def _pages(entries: Any) -> list[str]:
    """Return the paths of a part of the navigation."""
    if isinstance(entries, str):
        return [entries]
    return [page for entry in entries for part in entry.values() for page in _pages(part)]


def main() -> int:
    """Print the count; the exit code is 1 if it is above the limit."""
    found = guides()
    total = sum(found.values())
    for page, count in sorted(found.items(), key=lambda item: -item[1]) if "--pages" in sys.argv else ():
        print(f"{count:6,} {page}")
    print(f"{total:,} of {LIMIT:,} words in {len(found)} guides")
    return int(total > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
