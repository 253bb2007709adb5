"""What was recorded of each service: it is current, has a reason for each difference, and gives nothing away."""

from __future__ import annotations

import json
import re

import pytest

from integration.conformance.differences import REASONS, RECORDS, known_differences, recorded
from kinesis_sdk.verify import STEPS, Step, rehearse
from kinesis_sdk.verify.notes import shown
from tests.cli.conftest import check
from tools import docs_differences

SCRIPTS = [step for step in STEPS if step.expected is None]
RECORDED = sorted(RECORDS.glob("*.json"))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_the_record_of_the_fake_is_current(step: Step) -> None:
    """Write a new one with ``kinesis-sdk verify --fake --report docs/verify/fake.json``."""
    found = recorded("fake")[step.name]
    expected = rehearse(step).facts
    assert (found if step.expected is None else {name: found[name] for name in expected}) == expected


@pytest.mark.parametrize(
    "step", [step for step in SCRIPTS if step.name in recorded("localstack")], ids=lambda step: step.name
)
def test_every_difference_has_a_reason_and_every_reason_a_difference(step: Step) -> None:
    assert set(known_differences(step.name)) == set(REASONS.get(step.name, ()))


def test_there_is_no_reason_for_what_is_not_recorded() -> None:
    assert set(REASONS) <= set(recorded("localstack"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_record_has_the_schema_and_gives_nothing_away(path) -> None:
    text = path.read_text(encoding="utf-8")
    check("verify", json.loads(text))
    assert "arn:aws" not in text
    assert "kinesis-sdk-verify-" not in text
    assert "localhost" not in text
    assert "127.0.0.1" not in text
    assert re.findall(r"(?<![0-9-])[0-9]{12}(?![0-9])", text) == []


def test_names_accounts_arns_and_addresses_are_not_shown() -> None:
    value = {
        "kinesis-sdk-verify-0123abcd-001x": [
            "arn:aws:kinesis:us-east-1:123456789012:stream/kinesis-sdk-verify-0123abcd-001x is gone",
            "of 123456789012, shardId-000000000001",
            'no answer from "https://vpce-0a.kinesis.example:4566/": late',
        ],
        "numbers": (1, 1 << 60, 0.5, None, True),
        "bytes": b"a\xff",
        "set": {"b", "a"},
    }
    assert shown(value, "kinesis-sdk-verify-0123abcd-") == {
        "<name>001x": ["<arn> is gone", "of <account>, shardId-000000000001", 'no answer from "<url>": late'],
        "numbers": [1, str(1 << 60), 0.5, None, True],
        "bytes": "a\\xff",
        "set": ["a", "b"],
    }


def test_the_page_has_a_row_for_each_difference_and_says_what_did_not_run() -> None:
    page = docs_differences.page()
    rows = re.findall(r"^\| ([^|]+) \| .* \|$", page, re.MULTILINE)
    for step in SCRIPTS:
        if step.name in recorded("localstack"):
            assert set(known_differences(step.name)) <= {row.replace("\\", "") for row in rows}
    if docs_differences.report_of("aws") is None:
        assert "| AWS | not yet run | | |" in page
        assert "| not yet run | the fake (" in page
