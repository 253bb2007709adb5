"""The bytes that docs/repetitions-limits.md publishes, against the writer of aggregates."""

from __future__ import annotations

import re

import pytest

from benchmarks.bench_idempotence import stored_bytes
from tests.readme import DOCS

PAGE = (DOCS / "repetitions-limits.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| (\d+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \(([\d.]+) %\) \|$",
    PAGE.split("## Bytes")[1].split("\n#")[0],
    re.MULTILINE,
)


def test_the_table_has_the_sizes_of_the_benchmark() -> None:
    assert [row[0] for row in ROWS] == ["1", "2", "10", "100", "430"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_an_aggregate_takes_the_bytes_of_the_table(row: tuple[str, ...]) -> None:
    without, identified = (stored_bytes(int(row[0]), tagged=tagged) for tagged in (False, True))
    share = f"{identified / without - 1:.2%}".rstrip("%")
    assert row[1:] == (f"{without:,}", f"{identified:,}", str(identified - without), share)
