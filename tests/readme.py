"""The code blocks of the README and of other pages, for tests that read, run or compare them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DESIGN = (
    ROOT / "DESIGN.md",
    *sorted((ROOT / "kinesis_sdk").glob("*/DESIGN.md")),
    ROOT / "integration" / "DESIGN.md",
)
"""The design: what all packages share, and a page beside each package."""
PAGES = [
    README,
    *sorted(DOCS.rglob("*.md")),
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *DESIGN,
    ROOT / "examples" / "README.md",
]
"""Pages whose commands and blocks are checked."""
GUIDES = (README, *(DOCS / f"{name}.md" for name in ("quickstart", "producer", "consumer", "spark-guide")))
"""Pages whose programs run against the fake AWS, in the order in which a user reads them."""


OWN_TESTS = {
    "README.md": "integration/test_readme.py::test_every_program_runs_in_the_order_of_the_pages",
    "docs/producer.md": "integration/test_readme.py::test_every_program_runs_in_the_order_of_the_pages",
    "docs/consumer.md": "integration/test_readme.py::test_every_program_runs_in_the_order_of_the_pages",
    "docs/quickstart.md": "integration/test_reader.py::test_a_fresh_reader_gets_to_two_workers",
    "docs/spark-guide.md": "integration/test_readme.py::test_the_spark_blocks_run",
    "docs/spark.md": "integration/test_readme.py::test_the_spark_blocks_run",
    "docs/spark-values.md": "integration/test_readme.py::test_the_spark_blocks_run",
    "docs/spark-binary-values.md": "integration/test_readme.py::test_the_spark_blocks_run",
    "docs/testing.md": "tests/test_pytest_plugin.py::test_an_example_of_the_page",
    **{
        f"docs/tutorial-{page}.md": "integration/test_tutorial.py::test_the_tutorial"
        for page in ("1-produce", "2-consume", "3-spark", "4-dashboard")
    },
    "docs/lambda.md": "tests/lambda_events/test_docs.py::test_the_page_has_these_blocks",
    "docs/serialization.md": "tests/serialization/test_docs.py::test_every_example_runs",
}
"""Tests that run every Python block of a page. The blocks of all other pages run in
`integration/test_readme.py::test_the_programs_of_a_page`, with the names and streams of `integration/page_program.py`."""

NOT_RUN = {
    ("docs/exactly-once.md", "from kinesis_sdk.spark import RECORD_ID"): (
        "needs Spark: integration/test_readme.py::test_the_spark_blocks_run runs it"
    ),
    ("docs/tracing.md", "from kinesis_sdk.tracing import BatchTracing"): (
        "needs Spark: integration/spark/test_tracing.py runs the same"
    ),
}
"""Blocks, by page and first line, that the test of their page leaves out, and why."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the section in which it stands, its language, its text, its line, its title."""

    section: str
    language: str
    text: str
    line: int
    title: str = ""

    @property
    def file(self) -> str | None:
        """Path of the file that the block's text comes from: `tools/docs_examples.py`."""
        return self.title.partition(":")[0] if "/" in self.title else None

    @property
    def first_line(self) -> str:
        """The first line, by which tests name a block."""
        return self.text.partition("\n")[0]


def programs(page: Path) -> list[Block]:
    """Return the Python blocks of a page that its test has to run: those that come from a file have a test of their own."""
    name = page.relative_to(ROOT).as_posix()
    return [
        block
        for block in blocks("python", page)
        if block.file is None and (name, block.first_line) not in NOT_RUN
    ]


def blocks(language: str | None = None, page: Path = README) -> list[Block]:
    """All blocks in the order of a page, or those of one language."""
    found = []
    section = ""
    fence: tuple[str, int, str] | None = None
    body: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        inside = line.lstrip()
        if inside.startswith("```"):
            if fence is None:
                # A block in a list or in a tab is indented.
                fence, body = (inside.removeprefix("```").strip(), number, line[: -len(inside)]), []
            else:
                kind, _, rest = fence[0].partition(" ")
                title = re.search(r'title="([^"]*)"', rest)
                found.append(
                    Block(section, kind, "\n".join(body) + "\n", fence[1], title[1] if title else "")
                )
                fence = None
        elif fence is not None:
            body.append(line.removeprefix(fence[2]))
        elif heading := re.match(r"## (.+)", line):
            section = heading[1]
    assert fence is None, "a block without an end"
    return [block for block in found if language is None or block.language == language]
