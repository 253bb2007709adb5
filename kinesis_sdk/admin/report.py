"""Snapshot of an application as Markdown to paste into an incident: its problems, the affected shard, and the moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone

from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.formatting import counted, duration, lag_text
from kinesis_sdk.admin.fleet.model import FleetView, LeaseState, LeaseView, Problem, Severity
from kinesis_sdk.admin.recording.model import ShardHistory
from kinesis_sdk.common.text import printable

_BAR = "\\|"
_SHOWN = 10
"""Maximum number of problems, shards, owners and moves in a report."""


def incident_report(
    view: FleetView,
    *,
    place: str = "",
    lease_keys: Sequence[str] = (),
    history: ShardHistory | None = None,
    link: str = "",
    spell: Callable[[Command], str] = str,
) -> str:
    """Return a report in Markdown. The report contains worker ids, shard ids and the texts of errors, but no payload.

    Args:
        view: The application.
        place: Account, region or endpoint, for display.
        lease_keys: Leases to describe; if empty, the worst leases are listed.
        history: History of the first of these leases.
        link: Address of the page with the same moment.
        spell: Formats a command that helps, so that the reader can run it.
    """
    totals = view.totals
    lines = [f"## {_code(view.application)} at {_moment(view.at)}", ""]
    facts = [
        f"application {_code(view.application)} on {', '.join(map(_code, view.streams)) or 'a stream that is not known'}",
        printable(place),
        f"{counted(totals.leases, 'shard')}, {counted(totals.owners, 'worker')}"
        + (f", {totals.silent_owners} silent" if totals.silent_owners else "")
        + (f", {totals.unowned} without an owner" if totals.unowned else ""),
        _lag_line(view),
        f"the newest read failed: {_words(view.error)}" if view.error else "",
        f"<{link}>" if link else "",
    ]
    lines += [f"- {fact}" for fact in facts if fact]
    lines += ["", "### Problems", ""]
    lines += [_problem(one, spell) for one in view.problems[:_SHOWN]] or ["None was found."]
    lines += _more(len(view.problems), "problems")
    wanted = [lease for lease in view.leases if lease.lease_key in lease_keys]
    shards = wanted or sorted(
        (lease for lease in view.leases if lease.lag is not None and lease.state is not LeaseState.FINISHED),
        key=lambda lease: -(lease.lag.millis if lease.lag is not None else 0),
    )
    lines += ["", "### Shards in question" if wanted else "### Shards, worst first", ""]
    lines += ["| shard | behind | lost in | state | owner | checkpoint |", "|---|---|---|---|---|---|"]
    lines += [_shard(lease) for lease in shards[:_SHOWN]]
    lines += _more(len(shards), "shards")
    for lease in wanted[:1]:
        if lease.failing is not None:
            failing = lease.failing
            lines += [
                "",
                f"The handler has failed for {duration(failing.seconds)}, {counted(failing.attempts, 'call')} in a row: "
                f"{_code(failing.error)}"
                + (f" at {_position(failing.position)}" if failing.position else ""),
            ]
    if history is not None and history.owners and wanted:
        lines += [
            "",
            f"### Owners of {short_shard(wanted[0].shard_id)}",
            "",
            "| from | until | owner | state |",
            "|---|---|---|---|",
        ]
        lines += [
            _row(_moment(span.start), _moment(span.end), _owner(span.owner), span.state.value)
            for span in history.owners[-_SHOWN:]
        ]
    if view.moves:
        lines += ["", "### Moves, newest first", ""]
        lines += [
            f"- {_moment(move.at)} shard {short_shard(move.shard_id)}: {_owner(move.before)} → {_owner(move.after)}, {move.reason}"
            for move in view.moves[:_SHOWN]
        ]
        lines += _more(len(view.moves), "moves")
    return "\n".join(lines) + "\n"


def _lag_line(view: FleetView) -> str:
    totals = view.totals
    if totals.worst_lag_millis is None or totals.worst_shard is None:
        return "the lag is not known"
    return (
        f"worst lag {lag_text(totals.worst_lag_millis)} (shard {short_shard(totals.worst_shard)}), "
        f"{counted(totals.behind_a_minute, 'shard')} more than a minute behind"
    )


def _problem(one: Problem, spell: Callable[[Command], str]) -> str:
    sign = "✕" if one.severity is Severity.ERROR else "!"
    shard = f"shard {short_shard(one.shard_id)}: " if one.shard_id else ""
    command = "" if one.command is None else f" `{_plain(spell(one.command))}`"
    return f"- {sign} **{one.title}** {shard}{_words(one.text)} {_words(one.remedy)}{command}"


def _shard(lease: LeaseView) -> str:
    cells = (
        short_shard(lease.shard_id),
        "not known" if lease.lag is None else lag_text(lease.lag.millis),
        "–" if lease.retention_left is None else duration(max(0.0, lease.retention_left)),
        lease.state.value,
        _owner(lease.owner),
        "–" if lease.checkpoint is None else _position(lease.checkpoint),
    )
    return _row(*cells)


def _position(position: object) -> str:
    number, sub = getattr(position, "sequence_number", ""), getattr(position, "sub_sequence_number", 0)
    return _code(f"{number}/{sub}" if number.isdigit() else number)


def _owner(owner: str | None) -> str:
    return "no owner" if owner is None else _code(owner)


def _code(text: str) -> str:
    """Return untrusted text as Markdown code that its own characters cannot end."""
    return f"`{_plain(text)}`"


def _plain(text: str) -> str:
    return printable(text).replace("`", "'")


def _words(text: str) -> str:
    """Return a sentence that may quote untrusted text, without the marks that begin a link, an image or an element."""
    return _plain(text).replace("<", "\\<").replace("[", "\\[")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |"


def _more(count: int, what: str) -> list[str]:
    return [f"- and {count - _SHOWN:,} more {what}"] if count > _SHOWN else []


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
