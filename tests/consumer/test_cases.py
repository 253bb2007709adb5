"""CASES.md names tests: they exist."""

from __future__ import annotations

import re
from pathlib import Path

from kinesis_sdk.testing.contracts.lease_stores import LEASE_STORE_CHECKS

CONTRACT = {check.__name__ for check in LEASE_STORE_CHECKS}
HERE = Path(__file__).parent
NAMED = re.compile(r"`((?:\.\./)?(?:\w+/)*test_\w+\.py)::(test_\w+)(?:\[(\w+)\])?`")


def test_every_test_that_the_cases_name_exists():
    rows = [
        line
        for line in (HERE / "CASES.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| defect")
    ]
    assert len(rows) >= 35
    for row in rows:
        named = NAMED.findall(row.split("|")[3])
        assert named, f"no test: {row}"
        assert len(named) == row.split("|")[3].count("`") // 2, f"a name that is no test: {row}"
        for path, name, check in named:
            source = (HERE / path).read_text()
            assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"{path} has no {name}"
            assert not check or check in CONTRACT, f"the contract of lease stores has no {check}"
