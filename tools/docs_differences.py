"""The page of differences between the fake, LocalStack and AWS, from the reports of `kinesis-sdk verify` in docs/verify."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from integration.conformance.differences import REASONS, Reason
from kinesis_sdk.verify import STEPS

REPORTS = Path(__file__).parents[1] / "docs" / "verify"
SERVICES = {"fake": "fake", "localstack": "LocalStack", "aws": "AWS"}
"""Files of reports, and the titles of their columns."""
NOT_RUN = "not yet run"
_LONGEST = 90
_RIGHT = {
    "fake": "the fake",
    "localstack": "LocalStack",
    "both": "both",
    "neither": "neither",
}


def report_of(service: str) -> dict[str, Any] | None:
    """Return the report of a service; None if there is none."""
    path = REPORTS / f"{service}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def page() -> str:
    """Return the page."""
    reports = {service: report_of(service) for service in SERVICES}
    facts = {
        service: {step["name"]: step["facts"] for step in (report or {"steps": ()})["steps"]}
        for service, report in reports.items()
    }
    return "\n".join(_lines(reports, facts)) + "\n"


def _lines(reports: Mapping[str, Any], facts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    yield "# Differences between the fake and AWS"
    yield ""
    yield (
        "Facts that [`kinesis-sdk verify`](../verify.md) found on each service, where they differ. The last column says which side the AWS "
        "documentation confirms, with the number of the [reason](#reasons)."
    )
    yield ""
    reasons: dict[Reason, int] = {}
    yield "| service | run | facts | report |"
    yield "|---|---|---|---|"
    for service, title in SERVICES.items():
        report = reports[service]
        if report is None:
            yield f"| {title} | {NOT_RUN} | | |"
            continue
        count = sum(len(step["facts"]) for step in report["steps"])
        versions = f"kinesis-sdk {report['versions']['kinesis-sdk']}"
        yield f"| {title} | {report['date']}, {versions} | {count} | [JSON](../verify/{service}.json) |"
    for step in STEPS:
        rows = list(_rows(step.name, facts, reasons))
        if rows:
            yield from (
                "",
                f"## {step.name}",
                "",
                f"| fact | {' | '.join(SERVICES.values())} | documented |",
                "|---" * (len(SERVICES) + 2) + "|",
            )
            yield from rows
    yield from ("", "## Reasons", "")
    for reason, number in reasons.items():
        yield f"{number}. {_text(reason.why)}"


def _rows(
    step: str, facts: Mapping[str, Mapping[str, Mapping[str, Any]]], reasons: dict[Reason, int]
) -> Iterator[str]:
    """Yield a row for each fact of a step on which two services differ; number the reasons."""
    run = {service: found[step] for service, found in facts.items() if step in found}
    for fact in dict.fromkeys(name for found in run.values() for name in found):
        values = {service: found.get(fact) for service, found in run.items()}
        if all(value == next(iter(values.values())) for value in values.values()):
            continue
        cells = [_cell(values[service]) if service in values else NOT_RUN for service in SERVICES]
        reason = REASONS.get(step, {}).get(fact)
        why = "not known yet"
        if reason is not None:
            why = f"{_RIGHT[reason.right]} ({reasons.setdefault(reason, len(reasons) + 1)})"
        yield f"| {_text(fact)} | {' | '.join(cells)} | {why} |"


def _cell(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{_text(text if len(text) <= _LONGEST else text[:_LONGEST] + '…')}`"


def _text(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
