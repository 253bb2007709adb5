"""Tables of a fleet's view for a terminal: only texts and columns. Untrusted text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.fleet.formatting import duration, lag_text, sparkline
from kinesis_sdk.admin.fleet.model import FleetView, LeaseState, LeaseView, Problem, Severity
from kinesis_sdk.cli.extras import need
from kinesis_sdk.cli.output import console
from kinesis_sdk.cli.spelling import spell
from kinesis_sdk.common.text import printable

if TYPE_CHECKING:
    from rich.table import Table

SMALL = 40
"""Number of leases up to which all are shown, in the order of their shards."""
SHOWN = 20
"""Number of leases of a larger application that are shown, worst first."""
_ID_LENGTH = 60


def new_table(*columns: str | tuple[str, str], dispensable: Sequence[str] = ()) -> Table:
    """Return a table without lines.

    A heading in ``columns`` may be paired with ``right`` for numbers, or with ``wide`` for the column that is cut if there is no room. A
    narrow terminal leaves out the ``dispensable`` columns, starting with the first.
    """
    need("rich.table", "cli")
    from kinesis_sdk.cli.fitted_table import FittedTable

    table = FittedTable(dispensable=dispensable)
    for place, column in enumerate(columns):
        heading, kind = (column, "") if isinstance(column, str) else column
        table.add_column(
            heading,
            justify="right" if kind == "right" else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if kind == "wide" else None,
            # The first column names the row. Without a minimum, it would be the first to vanish in a narrow terminal.
            min_width=12 if kind == "wide" else 4 if place == 0 else None,
        )
    return table


def text(value: str, style: str = "") -> Any:
    """Return a cell whose brackets are not read as markup."""
    return need("rich.text", "cli").Text(value, style=style)


def title(view: FleetView) -> str:
    """Return ``billing on orders``."""
    return title_of(view.application, view.streams)


def title_of(application: str, streams: Sequence[str]) -> str:
    """Return ``billing on orders``."""
    shown = ", ".join(streams[:3]) + (f" and {len(streams) - 3} more" if len(streams) > 3 else "")
    return f"{printable(application)} on {printable(shown)}" if shown else printable(application)


def summary(view: FleetView) -> str:
    """Return the totals in one line."""
    totals = view.totals
    parts = [f"{totals.leases:,} {'shard' if totals.leases == 1 else 'shards'}"]
    owners = totals.owners + totals.silent_owners
    parts.append(f"{owners} {'owner' if owners == 1 else 'owners'}")
    if totals.silent_owners:
        parts.append(f"{totals.silent_owners} silent")
    if totals.unowned:
        parts.append(f"{totals.unowned:,} without an owner")
    if totals.finished:
        parts.append(f"{totals.finished:,} finished")
    if totals.worst_lag_millis is not None and totals.worst_shard is not None:
        parts.append(f"worst {lag_text(totals.worst_lag_millis)} ({short_shard(totals.worst_shard)})")
        parts.append(f"total {lag_text(totals.total_lag_millis)}")
        parts.append(f"{totals.behind_a_minute:,} over 1 min")
    if totals.measured and totals.measured < totals.leases:
        parts.append(f"{totals.leases - totals.measured:,} not measured")
    return " · ".join(parts)


def chosen(view: FleetView, *, show_all: bool) -> tuple[list[LeaseView], str]:
    """Return the leases to show (all of a small application, the worst of a larger one), and a text about the hidden ones."""
    leases = [lease for lease in view.leases if show_all or lease.state is not LeaseState.FINISHED]
    if show_all or len(leases) <= SMALL:
        return leases, ""
    wrong = {problem.lease_key: place for place, problem in reversed(list(enumerate(view.problems)))}
    quiet = (LeaseState.HELD, LeaseState.WAITING, LeaseState.HANDOFF)
    ordered = sorted(
        leases,
        key=lambda lease: (
            wrong.get(lease.lease_key, len(view.problems)),
            lease.state in quiet,
            -(lease.lag.millis if lease.lag is not None else -1),
            lease.lease_key,
        ),
    )
    return ordered[:SHOWN], f"{len(leases) - SHOWN:,} more shards; --all shows them."


def shard_cell(lease: LeaseView) -> str:
    """Return the shard of a row, with its stream if there are several streams."""
    shard = short_shard(lease.shard_id)
    if lease.stream is None:
        return shard
    parts = lease.stream.split(":")
    return f"{printable(parts[1] if len(parts) == 3 else lease.stream, 30)}:{shard}"


_STYLES = {
    LeaseState.SILENT: "red",
    LeaseState.UNOWNED: "red",
    LeaseState.MISSING: "red",
    LeaseState.UNREADABLE: "red",
    LeaseState.HANDOFF: "yellow",
    LeaseState.WAITING: "dim",
    LeaseState.FINISHED: "dim",
}


def state_cell(lease: LeaseView) -> Any:
    """Return the state of a lease."""
    return text(lease.state.value, _STYLES.get(lease.state, ""))


def owner_cell(lease: LeaseView) -> str:
    """Return the owner of a lease, and the next owner during a handoff."""
    if lease.owner is None:
        return "–"
    arrow = f" → {printable(lease.next_owner, _ID_LENGTH)}" if lease.next_owner is not None else ""
    return printable(lease.owner, _ID_LENGTH) + arrow


def checkpoint_cell(lease: LeaseView) -> str:
    """Return the end of a sequence number, the part that differs: ``…3327641/17``."""
    checkpoint = lease.checkpoint
    if checkpoint is None:
        return "–"
    if checkpoint.is_sentinel:
        return checkpoint.sequence_number
    number = checkpoint.sequence_number
    return f"{'…' if len(number) > 8 else ''}{number[-8:]}/{checkpoint.sub_sequence_number}"


def ago(seconds: float | None) -> str:
    """Return an age; a dash if unknown."""
    return "–" if seconds is None else duration(seconds)


def lease_table(leases: Iterable[LeaseView]) -> Table:
    """Return the rows of the lease table, decoded."""
    table = new_table(
        "SHARD",
        "STATE",
        ("OWNER", "wide"),
        "KIND",
        ("COUNTER", "right"),
        "CHECKPOINT",
        ("RENEWED", "right"),
        dispensable=("KIND", "COUNTER", "CHECKPOINT", "RENEWED"),
    )
    for lease in leases:
        table.add_row(
            text(shard_cell(lease)),
            state_cell(lease),
            text(owner_cell(lease)),
            lease.kind.value if lease.kind is not None else "–",
            f"{lease.counter}",
            text(checkpoint_cell(lease)),
            ago(lease.renewed_ago),
        )
    return table


def lag_table(leases: Sequence[LeaseView], *, watched: bool) -> Table:
    """Return the lag by shard, with trends and ages if the application was ``watched`` for a while."""
    columns: list[str | tuple[str, str]] = ["SHARD", ("LAG", "right")]
    if watched:
        columns += ["10 MIN", ("CHECKPOINT AGE", "right")]
    else:
        columns.append(("AT CHECKPOINT", "right"))
    columns += [("LOST IN", "right"), "STATE", ("OWNER", "wide"), ("KB/S", "right")]
    table = new_table(
        *columns, dispensable=("KB/S", "10 MIN", "CHECKPOINT AGE", "AT CHECKPOINT", "LOST IN", "OWNER")
    )
    for lease in leases:
        cells = [text(shard_cell(lease)), lag_cell(None if lease.lag is None else lease.lag.millis)]
        if watched:
            cells += [sparkline(lease.trend), ago(lease.checkpointed_ago)]
        else:
            cells.append("–" if lease.checkpoint_lag is None else lag_text(lease.checkpoint_lag.millis))
        cells += [
            ago(lease.retention_left) if lease.lag is not None and lease.lag.millis else "–",
            state_cell(lease),
            text(owner_cell(lease)),
            "–" if lease.throughput_kbps is None else f"{lease.throughput_kbps:,.1f}",
        ]
        table.add_row(*cells)
    return table


def lag_cell(millis: int | None) -> Any:
    """Return a lag, red above a minute."""
    if millis is None:
        return text("–", "dim")
    return text(lag_text(millis), "red" if millis > 60_000 else "")


def notes_of(leases: Iterable[LeaseView]) -> list[str]:
    """Return the reasons why leases have no lag, each reason once."""
    by_note: dict[str, list[LeaseView]] = {}
    for lease in leases:
        if lease.lag is None and lease.lag_note and lease.state is not LeaseState.FINISHED:
            by_note.setdefault(lease.lag_note, []).append(lease)
    lines = []
    for note, those in by_note.items():
        shards = ", ".join(short_shard(lease.shard_id) for lease in those[:3])
        more = f" and {len(those) - 3:,} more" if len(those) > 3 else ""
        lines.append(f"No lag for {shards}{more}: {note}.")
    return lines


def problem_lines(problems: Sequence[Problem], options: Sequence[str] = ()) -> list[tuple[Any, str]]:
    """Return two lines for each problem: the problem, and its remedy.

    ``options`` are the options of the connection, for the commands that are shown.
    """
    lines = []
    for problem in problems:
        error = problem.severity is Severity.ERROR
        head = text("✕ " if error else "! ", "bold red" if error else "yellow")
        head.append(f"{problem.title}: ", style="bold")
        head.append(printable(problem.text, 600))
        command = "" if problem.command is None else f"  [{spell(problem.command, options)}]"
        more = "".join(
            f"\n    to {action.title}: [{spell(action.command, options)}]" for action in problem.actions
        )
        lines.append((head, f"  {problem.remedy}{command}{more}"))
    return lines


def print_problems(view: FleetView, options: Sequence[str] = ()) -> None:
    """Print the problems with their remedies."""
    screen = console()
    if not view.problems:
        screen.print(
            "No problem was found."
            if view.watched > view.table_age
            else "No problem was found at this one look."
        )
        return
    for head, remedy in problem_lines(view.problems, options):
        screen.print(head)
        screen.print(text(remedy, "dim"))
