"""Report of a run: a table, and a picture over time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

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


_COLOURS = {
    "kill": "tab:red",
    "freeze": "tab:blue",
    "stop": "tab:green",
    "reshard": "tab:purple",
    "wire": "tab:orange",
}
_LASTING = ("freeze", "wire")


def plot(run: Run, title: str, path: Path) -> None:
    """Draw records, backlog, memory and threads over time, with the actions as lines. Needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    samples = run.samples
    start = samples[0].at
    times = [sample.at - start for sample in samples]
    figure, axes = plt.subplots(4, 1, figsize=(13, 11), sharex=True, layout="constrained")
    records, behind, memory, threads = axes
    gaps = [max(1e-6, b - a) for a, b in itertools.pairwise(times)]

    def rate(values: Sequence[int]) -> list[float]:
        return [(b - a) / gap for a, b, gap in zip(values, values[1:], gaps, strict=False)]

    records.plot(times[1:], rate([s.processed for s in samples]), label="processed", color="tab:cyan", lw=1.4)
    records.plot(times[1:], rate([s.acknowledged for s in samples]), label="acknowledged", color="k", lw=1.2)
    records.set_ylabel("records per second")
    behind.fill_between(
        times,
        [max(0, s.acknowledged - s.processed) for s in samples],
        step="mid",
        color="tab:gray",
        alpha=0.6,
    )
    behind.set_ylabel("acknowledged,\nnot processed yet")
    _usage_lines(memory, samples, start, {s.at: s.rss for s in samples}, 1 / _MIB)
    memory.set_ylabel("memory of each process, MiB")
    _usage_lines(threads, samples, start, {s.at: s.threads for s in samples}, 1.0)
    threads.set_ylabel("threads of each process")
    threads.set_xlabel("seconds")
    # A long soak has hundreds of actions, which must not hide the curves.
    faint = min(1.0, 40 / max(1, len(run.events)))
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.set_xlim(0, times[-1])
        axis.grid(alpha=0.25)
        for event in run.events:
            if event.kind in _COLOURS and event.at <= samples[-1].at:
                began, colour = event.at - start, _COLOURS[event.kind]
                if event.seconds:
                    axis.axvspan(
                        began, began + event.seconds, color=colour, alpha=max(0.06, 0.16 * faint), lw=0
                    )
                else:
                    axis.axvline(began, color=colour, lw=1.2, alpha=max(0.2, 0.7 * faint))
    handles = [*records.get_legend_handles_labels()[0]]
    handles += [
        plt.Line2D([], [], color=colour, label=kind, lw=6 if kind in _LASTING else 1.2, alpha=0.6)
        for kind, colour in _COLOURS.items()
        if any(event.kind == kind for event in run.events)
    ]
    records.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(handles), frameon=False
    )
    figure.suptitle(title)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _usage_lines(
    axis: object,
    samples: Sequence[Sample],
    start: float,
    values: Mapping[float, Mapping[str, int]],
    scale: float,
) -> None:
    """Draw a line for each process, and highlight the longest of each role."""
    stand_out = {
        longest_lived(samples, role): colour for role, colour in (("worker", "k"), ("producer", "tab:brown"))
    }
    for name in dict.fromkeys(name for sample in samples for name in sample.rss):
        points = [(at - start, found[name] * scale) for at, found in values.items() if name in found]
        strong = name in stand_out
        axis.plot(  # type: ignore[attr-defined]
            [at for at, _ in points],
            [value for _, value in points],
            color=stand_out.get(name, "tab:cyan" if name.startswith("worker") else "tab:olive"),
            lw=1.8 if strong else 0.8,
            label=f"{name} (thin: the others)" if strong else None,
        )
    axis.legend(loc="lower right", bbox_to_anchor=(1, 0.99), ncols=2, frameon=False, fontsize="small")  # type: ignore[attr-defined]
