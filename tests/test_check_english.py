"""The English lint finds each kind of text that it is made for, and accepts plain sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_english import (
    ALLOWED,
    ROOT,
    RULES,
    Finding,
    check_file,
    files_of,
    is_allowed,
    main,
)

BAD = {
    1: "# The worker can not renew.",
    2: "# Somebody deleted the stream.",
    3: "# The lease goes to the worker, who renews it.",
    4: '"""Raise an error if the item is no lease."""',
    5: "# It does not hold\n# the lease any more.",
    6: 'def shards():\n    """Which shards are open."""',
    7: 'log("the iterator is made anew")',
    8: 'log(f"lease {key} is handed over to {worker}")',
    9: 'def wait(clock):\n    """Wait.\n\n    Args:\n        clock: Time.\n    """',
    10: "# Each look reads the table.",
    11: "# The answer has no records.",
    12: 'raise ValueError("the record was refused by Kinesis")',
    13: '"""Most seconds to wait."""',
    14: "# Reading goes on after the pause.",
    15: "# It is closed by hand.",
    16: "# A worker renews his leases.",
    17: "# Two hinges; this is one: and this the other.",
}
GOOD = """
\"\"\"Leases of one worker.

    An item that is no longer a lease is skipped, because there is no owner. There are no more than two of those.
\"\"\"

# The worker cannot renew: it no longer holds the lease. It handed the lease off to another worker.
def shards(clock, timeout):
    \"\"\"Return the open shards. See `can not`, which is code.

    Args:
        clock: Monotonic clock; replaced in tests.
        timeout: Maximum seconds to wait; None waits indefinitely.
    \"\"\"
    look_up = {"who": 1}
    log("lease %s: handed off to %s; scanning again in %.1f s", look_up)
"""


def findings_in(folder: Path, source: str, name: str = "module.py") -> list[Finding]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return list(check_file(path, RULES))


def test_there_is_a_sample_for_every_rule() -> None:
    assert BAD.keys() == {rule.number for rule in RULES}


@pytest.mark.parametrize("number", BAD)
def test_a_rule_finds_its_sample_and_no_other_rule_does(number: int, tmp_path: Path) -> None:
    found = findings_in(tmp_path, BAD[number])
    assert {finding.rule.number for finding in found} == {number}


def test_plain_sentences_have_no_findings(tmp_path: Path) -> None:
    assert findings_in(tmp_path, GOOD) == []


def test_every_allowed_finding_exists_and_has_a_reason() -> None:
    found = [
        finding
        for path in files_of([ROOT / entry.path for entry in ALLOWED])
        for finding in check_file(path, [rule for rule in RULES if rule.required])
    ]
    for entry in ALLOWED:
        assert entry.reason
        assert any(is_allowed(finding, [entry]) for finding in found), entry


def test_the_exit_code_counts_required_rules_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("# It can not.\n# The answer.\n")
    assert main([str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert f"{tmp_path.as_posix()}/bad.py:1: rule 1: It can not. The answer. -> cannot\n" in shown
    assert shown.endswith("English: 1 findings in 1 files.\n")
    assert main([str(tmp_path), "--rules", "11"]) == 0
    assert "bad.py:2: rule 11: " in capsys.readouterr().out
    assert main([str(tmp_path), "--reading", "--count"]) == 1
    assert f"2 {tmp_path.as_posix()}" in capsys.readouterr().out
