"""All applications of an account, worst first: the table of ``kinesis-sdk lag --all-apps``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kinesis_sdk.admin.applications import Application, Applications
from kinesis_sdk.admin.fleet.formatting import counted, duration
from kinesis_sdk.admin.fleet.model import FleetView
from kinesis_sdk.admin.fleet.observe import FleetObserver
from kinesis_sdk.admin.fleet.overview import ApplicationSummary, read_fleets, summarize, worst_first
from kinesis_sdk.admin.fleet.problems import ProblemSettings
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.fleet_tables import lag_cell, new_table, text, title_of
from kinesis_sdk.cli.output import ExitCode, console, note, print_json
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from kinesis_sdk.admin import Connection


def show_overview(
    connection: Connection, *, failover_time: float, max_lag: float | None, as_json: bool
) -> None:
    """Read each application of an account or of a lease database, and print one line for each.

    With a lag above ``max_lag`` seconds (None: no limit), the command ends with `ExitCode.BAD_ANSWER`.
    """
    names = [info.name for info in Applications(connection).find()]
    place = connection.shown_lease_store or "this account and region"
    if not names and not as_json:
        note(f"No application was found in {place}.")
        return
    settings = ProblemSettings(max_lag=max_lag)
    summaries: list[ApplicationSummary] = []

    with _Progress(len(names)) as progress:

        def take(view: FleetView) -> None:
            summaries.append(summarize(view))
            progress.advance(len(summaries))

        read_fleets(
            [Application(connection, name) for name in names],
            take,
            observer=lambda name: FleetObserver(name, failover_time=failover_time, settings=settings),
        )
    ordered = worst_first(summaries)
    if as_json:
        print_json({"applications": ordered})
    else:
        _print(ordered)
    if max_lag is not None:
        sys.exit(_exit_code(ordered, max_lag))


class _Progress:
    """A bar on a terminal, because a large account takes a while."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _Progress:
        if sys.stderr.isatty():
            self._bar = need("rich.progress", "cli").Progress(console=console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("Looking at the applications", total=self._total)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done)


def _print(ordered: Sequence[ApplicationSummary]) -> None:
    table = new_table(
        ("APPLICATION", "wide"),
        ("WORST LAG", "right"),
        ("OVER 1 MIN", "right"),
        ("SHARDS", "right"),
        ("NO OWNER", "right"),
        ("OWNERS", "right"),
        "PROBLEM",
        dispensable=("OWNERS", "NO OWNER", "OVER 1 MIN", "SHARDS"),
    )
    for one in ordered:
        totals = one.totals
        table.add_row(
            text(title_of(one.application, one.streams)),
            lag_cell(totals.worst_lag_millis),
            f"{totals.behind_a_minute:,}",
            f"{totals.leases:,}",
            f"{totals.unowned:,}",
            f"{totals.owners + totals.silent_owners}",
            _problem_cell(one),
        )
    console().print(table)
    for one in ordered:
        if one.error:
            note(f"{printable(one.application)}: {one.error}")
    if any(one.errors or one.warnings for one in ordered):
        note("What is wrong and what to do: kinesis-sdk leases show APP")


def _problem_cell(one: ApplicationSummary) -> Any:
    if one.worst is None:
        return text("not read whole", "red") if one.error else text("–", "dim")
    others = one.errors + one.warnings - 1
    more = f" and {others:,} more" if others else ""
    return text(f"{one.worst.title}{more}", "red" if one.errors else "yellow")


def _exit_code(summaries: Sequence[ApplicationSummary], max_lag: float) -> ExitCode:
    late = sum((one.totals.worst_lag_millis or 0) > max_lag * 1000 for one in summaries)
    unknown = sum(bool(one.error) or one.totals.measured < one.totals.leases for one in summaries)
    if late:
        note(
            f"{late:,} of {counted(len(summaries), 'application')} are more than {duration(max_lag)} behind."
        )
    if unknown:
        note(
            f"The lag of {unknown:,} of {counted(len(summaries), 'application')} is not known, or known for some shards only."
        )
    return ExitCode.BAD_ANSWER if late or unknown else ExitCode.DONE
