"""The English lint finds each kind of text that it is made for, and accepts plain sentences."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import check_english
from tools.check_english import (
    ALLOWED,
    ROOT,
    RULES,
    Allowed,
    Finding,
    check_commits,
    check_file,
    check_subject,
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


@pytest.mark.parametrize(
    ("sample", "instead"),
    [
        ("the handover", "handoff"),
        ("a newcomer", "new worker"),
        ("leader duties", "leader task"),
        ("it is buried", "dead-letter"),
        ("its fate", "delivery state"),
        ("a record that travelled alone", "not aggregated"),
        ("the verdict", "placement"),
        ("leases left lying", "unclaimed"),
    ],
)
def test_private_words_lead_to_their_terms(sample: str, instead: str, tmp_path: Path) -> None:
    (found,) = findings_in(tmp_path, f"# {sample}")
    assert (found.rule.number, instead in found.rule.instead) == (8, True)


def test_private_words_are_found_in_names_too(tmp_path: Path) -> None:
    source = "class LeaseHandover:\n    in_handover = ATTRIBUTES['handoverOwner']\n"
    assert [(finding.line, finding.text) for finding in findings_in(tmp_path, source)] == [
        (1, "LeaseHandover"),
        (2, "in_handover"),
        (2, "handoverOwner"),
    ]
    assert findings_in(tmp_path, "somebody = who.can_not['looks']\n") == [], "the other rules are about prose"


def test_the_consumer_must_not_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_english, "ROOT", tmp_path)
    source = "# The worker looks at the table. A look-up looks like this, and it looks it up.\n"
    for name, required in (("kinesis_sdk/consumer/a.py", [True]), ("kinesis_sdk/spark/a.py", [False])):
        assert [finding.rule.required for finding in findings_in(tmp_path, source, name)] == required


def test_lines_are_those_of_the_words(tmp_path: Path) -> None:
    source = (
        '"""A module.\n\nIt\ncan not.\n"""\n'
        "x = 1  # nobody\n"
        "# It is not\n# here any\n# more.\n"
        "f = f'''one\n{x} can\nnot'''\n"
        "class A:\n    b: int\n    '''Bytes that somebody\n    anybody sent.'''\n"
    )
    assert sorted((finding.line, finding.rule.number) for finding in findings_in(tmp_path, source)) == [
        (4, 1),
        (6, 2),
        (7, 5),
        (10, 1),
        (15, 2),
        (16, 2),
    ]


def test_markdown_is_read_by_paragraph_list_and_table(tmp_path: Path) -> None:
    source = (
        "# Title\n\nThe worker can\nnot renew. `can not` is code.\n- a worker can\n  not\n\n"
        "| a | nobody |\n```\ndiagram: the handover\n```\nIt can\n\nnot.\n"
    )
    found = findings_in(tmp_path, source, "page.md")
    assert [(finding.line, finding.rule.number) for finding in found] == [(3, 1), (5, 1), (8, 2), (10, 8)]


def test_an_allowed_finding_needs_path_rule_and_text(tmp_path: Path) -> None:
    (found,) = findings_in(tmp_path, "# somebody else's transaction")
    right = Allowed(found.path, 2, "somebody else", "a reason")
    assert is_allowed(found, [right])
    assert not any(
        is_allowed(found, [right._replace(**change)])
        for change in ({"path": "other.py"}, {"rule": 1}, {"text": "nobody"})
    )


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


@pytest.mark.parametrize("arguments", [["no-such-file.py"], ["--rules", "99"], ["--rules", "x"]])
def test_bad_arguments_are_rejected(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("subject", "accepted"),
    [
        ("consumer: retry lease release for one failover time", True),
        ("Keep the dead of bench-fleet in order: the table depended on the hash seed", False),
        ("Say in two or three or more words than ten what: this", False),
        ("x" * 72, True),
        ("x" * 73, False),
    ],
)
def test_subjects_of_commits(subject: str, accepted: bool) -> None:
    assert (check_subject(subject) is None) == accepted


def test_commits_of_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_english, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    for subject in ("first", "y" * 80, "third"):
        git("commit", "--allow-empty", "-m", subject)
    (line,) = check_commits("main~2..main")
    assert line.endswith("has 80 characters, at most 72 are accepted")
    assert list(check_commits("main~1..main")) == []
