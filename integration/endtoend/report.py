"""Report of a run: a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from integration.endtoend.checker import Findings
from integration.endtoend.recorded_events import Event, Sample
from integration.endtoend.run import Run
from kinesis_sdk.testing.accounting.percentiles import percentiles

_MIB = 1 << 20


def summary(run: Run, findings: Findings) -> list[tuple[str, str]]:
    """Return rows of name and value."""
    delays = percentiles(findings.put_to_process)
    rows = [
        ("acknowledged", f"{findings.acknowledged:,}"),
        ("stored, never acknowledged", f"{findings.unacknowledged:,} (their producer was killed)"),
        ("processed", f"{findings.processed:,}"),
        ("lost", f"{len(findings.lost):,}"),
        ("duplicates", f"{sum(findings.duplicates.values()):,}"),
        *((f"  {cause}", f"{count:,}") for cause, count in sorted(findings.duplicates.items())),
        ("violations", f"{len(findings.violations):,}"),
        ("put to process", "   ".join(f"{name} {value:.2f} s" for name, value in delays.items())),
        ("taken over after a kill", _take_overs(findings.take_overs)),
        ("events", ", ".join(f"{n} {kind}" for kind, n in sorted(_kinds(run.events).items())) or "none"),
        ("checks at the lease table", f"{run.recorded.table_monitor.checks:,}"),
    ]
    for role in ("worker", "producer"):
        name = (
            next((name for name in run.samples[-1].rss if name.startswith(role)), None)
            if run.samples
            else None
        )
        longest = longest_lived(run.samples, role) or name
        if longest is not None:
            rows.append((f"memory and threads of {longest}", _usage(run.samples, longest)))
    return rows


def render(rows: Sequence[tuple[str, str]]) -> str:
    """Return the table as text."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def longest_lived(samples: Sequence[Sample], role: str) -> str | None:
    """Return the process of a role that has the most samples."""
    counts = Counter(name for sample in samples for name in sample.rss if name.startswith(role))
    return counts.most_common(1)[0][0] if counts else None


def _kinds(events: Sequence[Event]) -> Counter[str]:
    return Counter(event.kind for event in events if event.kind != "end")


def _take_overs(seconds: Sequence[float]) -> str:
    if not seconds:
        return "nothing was put into the victims' shards afterwards"
    some = percentiles(seconds)
    return f"p50 {some['p50']:.1f} s, max {some['max']:.1f} s ({len(seconds)} shards)"


def _usage(samples: Sequence[Sample], name: str) -> str:
    lived = [sample for sample in samples if name in sample.rss]
    picks = (lived[0], lived[len(lived) // 3], lived[2 * len(lived) // 3], lived[-1])
    memory = " → ".join(f"{sample.rss[name] / _MIB:.0f}" for sample in picks)
    threads = " → ".join(str(sample.threads[name]) for sample in picks)
    most = max(sample.rss[name] for sample in lived) / _MIB
    return f"{memory} MiB (max {most:.0f}), {threads} threads, over {lived[-1].at - lived[0].at:.0f} s"
