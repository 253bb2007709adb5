"""Generator of the tables in ``docs/metrics.md``: ``python -m kinesis_sdk.metrics.reference docs/metrics.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from kinesis_sdk.common.catalogue import CONSUMER_METRICS, PRODUCER_METRICS
from kinesis_sdk.common.metrics import Metric
from kinesis_sdk.metrics.conventions import opentelemetry_name, prometheus_sample

_PARTS = {"producer": PRODUCER_METRICS, "consumer": CONSUMER_METRICS}


def table(metrics: Iterable[Metric]) -> str:
    """Return a Markdown table of metrics."""
    lines = [
        "| CloudWatch | unit | kind | level | dimensions | Prometheus | OpenTelemetry | description |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for metric in metrics:
        operation = [f"Operation={metric.operation}"] if metric.operation else []
        dimensions = [*operation, *metric.dimensions, *(f"[{name}]" for name in metric.optional)]
        lines.append(
            f"| `{metric.name}` | {metric.unit} | {metric.kind.value} | {metric.level} | {', '.join(dimensions)} "
            f"| `{prometheus_sample(metric, 'kinesis')}` | `{opentelemetry_name(metric, 'kinesis')}` "
            f"| {metric.description} |"
        )
    return "\n".join(lines)


def updated(document: str) -> str:
    """Return a document with new tables between ``<!-- producer -->`` and ``<!-- end of producer -->``, and likewise for the consumer."""
    for name, metrics in _PARTS.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, rest = document.split(begin, 1)
        _, after = rest.split(end, 1)
        document = f"{before}{begin}{table(metrics)}{end}{after}"
    return document


def main() -> None:
    """Update the document named on the command line."""
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
