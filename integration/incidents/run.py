"""``make incidents ARGS='--only poison'``: incidents on a live fleet, and what each view says of them, and when.

Each incident has a fleet of its own: the fake AWS, `kinesis-sdk run` with two worker processes, records that keep coming, and the views as
their users have them: `leases explain`, `leases show`, `lag` and `doctor` again and again, `top --json`, `ui`, `exporter` and a real
Prometheus with the rules of grafana/ all the time (where it is installed), and the `/ready` and the log of `kinesis-sdk run`.

A view is wrong if it does not say in time what the incident is; if it names a problem in an incident that is none for it; or if it
claims that there is no problem while it shows a lag above a minute. When an incident is over, every record that was put has to be processed.

columns of the table:
  4.2 s    seconds until the view said what it had to
  calm     it named no problem, as it had to
  (text)   what it said last where nothing was expected of it
  WRONG    what it said or did not say is listed below the incident

examples:
  python -m integration.incidents.run --list
  python -m integration.incidents.run --only poison,hang
  python -m integration.incidents.run --only poison --keep build/incidents

Exit code 0 if no view was wrong and no record was lost; 1 if not; 2 for wrong arguments; 130 after Ctrl-C, which ends all processes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from integration import prometheus
from integration.incidents.catalogue import INCIDENTS, Calm, Incident, Says
from integration.incidents.fleet import start_fleet
from integration.incidents.views import BEHIND, VIEWS, Answer, View, Watch

_WARM_UP = 12.0
"""Seconds for which the views watch the fleet before an incident: longer than the failover time, so that they know the live workers."""


@dataclass
class Outcome:
    """Outcome of an incident.

    Attributes:
        cells: For the table, by view.
        quotes: The first expected thing that a view said, by view.
        wrong: Everything that a view did wrong.
        seconds: Duration.
    """

    incident: Incident
    cells: dict[str, str] = field(default_factory=dict)
    quotes: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


def says(answer: Answer, patterns: Sequence[str]) -> bool:
    """Return whether an answer matches all patterns."""
    whole = f"{' '.join(sorted(answer.codes))} {answer.text}"
    return all(re.search(pattern, whole) for pattern in patterns)


def first_with(view: View, patterns: Sequence[str], begin: float) -> Answer | None:
    """Return the first answer since `begin` that matches all patterns."""
    return next((one for one in view.answers[:] if one.at >= begin and says(one, patterns)), None)


def quote(answer: Answer, pattern: str) -> str:
    """Return the surroundings of a pattern's first match, on one line."""
    whole = f"{' '.join(sorted(answer.codes))} | {answer.text}"
    found = re.search(pattern, whole)
    place = found.start() if found else 0
    return " ".join(whole[max(0, place - 60) : place + 140].split())


def judge_view(
    view: View, expected: Says | Calm | None, begin: float, outcome: Outcome, patience: float | None = None
) -> None:
    """Add the judgement of a view to an outcome.

    `begin` is when the incident began. `patience` is the number of seconds that every view has, on a machine of any speed;
    None for the incident's own.
    """
    answers = [one for one in view.answers if one.at >= begin]

    def wrong(text: str) -> None:
        outcome.cells[view.name] = "WRONG"
        outcome.wrong.append(f"{view.name}: {text}")

    codes = " ".join(sorted(answers[-1].codes)) if answers else ""
    if isinstance(expected, Says):
        found = first_with(view, expected.patterns, begin)
        limit = patience or expected.within
        if found is None:
            last = f"it said last: {codes} {answers[-1].text[:600]}" if answers else "it said nothing"
            wrong(f"{' and '.join(expected.patterns)} not said within {limit:g} s; {last}")
        else:
            outcome.cells[view.name] = f"{found.at - begin:.1f} s"
            outcome.quotes[view.name] = quote(found, expected.patterns[-1])
            if found.at - begin > limit:
                wrong(f"said only after {found.at - begin:.1f} s, not within {limit:g} s")
    elif isinstance(expected, Calm):
        outcome.cells[view.name] = "calm"
        if not answers:
            wrong("it said nothing")
        for answer in answers:
            if answer.codes - expected.allowed:
                wrong(f"names {', '.join(sorted(answer.codes - expected.allowed))}: {answer.text[:600]}")
                break
    else:
        outcome.cells[view.name] = f"({codes or ('calm' if answers and answers[-1].is_calm else '–')})"
    if view.failure is not None:
        wrong(view.failure)
    for answer in answers:
        if answer.is_calm and answer.lag is not None and answer.lag > BEHIND:
            wrong(f"claims that there is no problem, {answer.lag:.0f} s behind")
            break
    for pattern in outcome.incident.never:
        bad = next((one for one in answers if says(one, [pattern])), None)
        if bad is not None:
            wrong(f"says what it never may: {quote(bad, pattern)}")


def play(
    incident: Incident, folder: Path, tell: Callable[[str], None], patience: float | None = None
) -> Outcome:
    """Play an incident on a new fleet, and judge the views.

    Args:
        incident: The incident.
        folder: Empty folder for the fleet's files and logs.
        tell: Called with progress messages.
        patience: See `judge_view`.
    """
    began = time.monotonic()
    outcome = Outcome(incident)
    names = tuple(name for name in VIEWS if name != "alerts" or prometheus.why_none() is None)
    with start_fleet(folder) as fleet:
        with Watch(fleet, names) as watch:
            time.sleep(_WARM_UP)
            begin = time.monotonic()
            tell(f"{incident.name}: {incident.what} ...")
            incident.begin(fleet)
            _wait(watch, incident, begin, patience)
            watch.stop()
        incident.heal(fleet)
        for name, view in watch.views.items():
            judge_view(view, incident.expected.get(name), begin, outcome, patience)
        (folder / "answers.json").write_text(
            json.dumps(
                {name: [_plain(one, begin) for one in view.answers] for name, view in watch.views.items()},
                indent=1,
            )
        )
        if incident.leaves_workers:
            lost = fleet.settle()
            if lost:
                outcome.wrong.append(
                    f"{len(lost)} records were not processed in the end, such as {min(lost)}"
                )
    outcome.seconds = time.monotonic() - began
    return outcome


def _plain(answer: Answer, begin: float) -> dict[str, object]:
    return {**asdict(answer), "at": round(answer.at - begin, 1), "codes": sorted(answer.codes)}


def _wait(watch: Watch, incident: Incident, begin: float, patience: float | None) -> None:
    """Wait until every view has said what is expected or its time is over, and at least as long as the incident lasts."""
    expected = {
        name: one for name, one in incident.expected.items() if isinstance(one, Says) and name in watch.views
    }
    while True:
        gone = time.monotonic() - begin
        open_ = [
            name
            for name, one in expected.items()
            if gone <= (patience or one.within) and first_with(watch.views[name], one.patterns, begin) is None
        ]
        if not open_ and gone >= incident.lasts:
            return
        time.sleep(0.3)


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the table."""
    rows = [["incident", *VIEWS]]
    rows += [[one.incident.name, *(one.cells.get(name, "–") for name in VIEWS)] for one in outcomes]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def report(outcome: Outcome) -> str:
    """Return an incident with the report of each view."""
    verdict = "FAILED" if outcome.wrong else "passed"
    lines = [f"{outcome.incident.name}: {outcome.incident.what}: {verdict} in {outcome.seconds:.0f} s"]
    lines += [
        f"  {name:<8}  {outcome.cells[name]:<12} {outcome.quotes.get(name, '')}".rstrip()
        for name in VIEWS
        if name in outcome.cells
    ]
    lines += [f"  WRONG     {text}" for text in outcome.wrong]
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make incidents", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(incident.name for incident in INCIDENTS)
    parser.add_argument("--only", type=_chosen, default=INCIDENTS, metavar="NAMES", help=f"some of {names}")
    parser.add_argument("--list", action="store_true", help="print the incidents, and end")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep answers and logs in this folder")
    return parser.parse_args(arguments)


def _chosen(text: str) -> tuple[Incident, ...]:
    by_name = {incident.name: incident for incident in INCIDENTS}
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in by_name]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(by_name)}")
    return tuple(by_name[name] for name in names)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    options = _parse(arguments)
    if options.list:
        for incident in INCIDENTS:
            print(f"{incident.name:<10} {incident.what}")
        return 0
    if reason := prometheus.why_none():
        print(f"Without the column alerts: {reason}.")
    outcomes = []
    with ExitStack() as stack:
        if options.keep is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="incidents-")))
        else:
            root = options.keep
        for incident in options.only:
            folder = (root / incident.name).resolve()
            folder.mkdir(parents=True)
            outcomes.append(play(incident, folder, lambda text: print(text, file=sys.stderr, flush=True)))
            print(f"{report(outcomes[-1])}\n", flush=True)
    print(render(outcomes))
    bad = [one.incident.name for one in outcomes if one.wrong]
    print(f"FAILED: {', '.join(bad)}" if bad else "PASSED")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
