"""Each line of the screen as text with styles. Pure: it turns parts of a view into lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo

from rich.text import Text

from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.fleet.formatting import duration, lag_text, sparkline
from kinesis_sdk.admin.fleet.model import (
    FleetView,
    HandlerFailure,
    LeaseState,
    LeaseView,
    Move,
    OwnerKind,
    OwnerView,
    Problem,
    Severity,
)
from kinesis_sdk.cli.tui.cells import fit, fit_name, row

KINDS = {OwnerKind.SDK: "ours", OwnerKind.KCL3: "KCL 3", OwnerKind.OTHER: "KCL 1/2"}

LAG_STEPS = (
    (10_000, "·", "green"),
    (60_000, "░", "green"),
    (600_000, "▒", "yellow"),
    (3_600_000, "▓", "dark_orange"),
    (float("inf"), "█", "red"),
)
"""Upper bound in milliseconds, sign and colour of a lag. Larger lags have fuller signs, which are readable without colours."""
NOT_MEASURED = ("-", "dim")
NOT_READ = ("x", "bold red")
"""Sign of a lease that is not read, because it has no owner, or a silent owner."""
_SILENT = (LeaseState.SILENT, LeaseState.UNOWNED, LeaseState.MISSING, LeaseState.UNREADABLE)

TREND = 10
"""Blocks of a sparkline, for the newest values; each covers ten seconds."""
_KIND, _COUNT, _WORST, _RATE = 7, 5, 12, 8


def lag_style(millis: int | None) -> str:
    """Return the colour of a lag."""
    if millis is None:
        return "dim"
    return next(style for bound, _, style in LAG_STEPS if millis < bound)


def square(lease: LeaseView) -> tuple[str, str]:
    """Return the sign and the style of a shard."""
    if lease.state in _SILENT:
        return NOT_READ
    if lease.lag is None:
        return NOT_MEASURED
    return next((sign, style) for bound, sign, style in LAG_STEPS if lease.lag.millis < bound)


def legend() -> Text:
    """Return the meaning of the signs."""
    bounds = ("below 10 s", "below 1 min", "below 10 min", "below 1 h", "above")
    parts: list[tuple[str, str] | str] = ["lag  "]
    for (_, sign, style), bound in zip(LAG_STEPS, bounds, strict=True):
        parts += [(sign, style), f" {bound}   "]
    parts += [NOT_MEASURED, " not measured   ", NOT_READ, " not read"]
    return row(*parts)


def title(
    view: FleetView, *, place: str, read_only: bool, zone: tzinfo | None, width: int, ago: float | None = None
) -> Text:
    """Return the first line: the application, and the freshness of the view.

    ``place`` is the region or endpoint, ``zone`` None for the local time zone, ``width`` in cells; a view of the past
    is ``ago`` seconds old (None: a view of now).
    """
    streams = ", ".join(view.streams) or "stream not known yet"
    calls = sum(view.calls_per_minute.values())
    clock = datetime.fromtimestamp(view.at, zone).strftime("%H:%M:%S")
    right = f"table {duration(view.table_age)} ago · {calls:,} calls/min · {clock}"
    if ago is not None:
        right = f"AS IT WAS at {clock}, {duration(ago)} ago · 0: now"
    left = f"{view.application} on {streams} · {place} · {'read-only' if read_only else 'changes allowed'}"
    return row(
        (fit(left, max(0, width - len(right) - 2)), "bold"),
        "  ",
        (right, "dim" if ago is None else "bold yellow"),
    )


def totals(view: FleetView, width: int) -> Text:
    """Return the second line: whether there are problems, and their extent."""
    if view.error:
        return row((fit(f"! {view.error}", width), "bold red"))
    sums = view.totals
    worst = "–"
    if sums.worst_lag_millis is not None:
        at = f" in {short_shard(sums.worst_shard)}" if sums.worst_shard else ""
        worst = f"{lag_text(sums.worst_lag_millis)}{at}"
    silent = f", {sums.silent_owners} silent" if sums.silent_owners else ""
    parts = (
        ("worst lag", worst, lag_style(sums.worst_lag_millis)),
        ("over 1 min", f"{sums.behind_a_minute:,}", "yellow" if sums.behind_a_minute else ""),
        ("known", f"{sums.measured:,}/{sums.leases:,}", ""),
        ("owners", f"{sums.owners:,}{silent}", "red" if silent else ""),
        ("no owner", f"{sums.unowned:,}", "red" if sums.unowned else ""),
        ("moves", f"{sums.moves:,}", ""),
    )
    line = row()
    for name, value, style in parts:
        piece = row(("  " if line.plain else "") + name + " ", (value, f"bold {style}".strip()))
        if line.cell_len + piece.cell_len > width:
            break
        line.append_text(piece)
    return line


def problem_place(one: Problem) -> str:
    """Return the shard or owner that a problem concerns."""
    return short_shard(one.shard_id) if one.shard_id else one.owner or ""


def problem_widths(problems: Sequence[Problem]) -> tuple[int, int]:
    """Return the cells, within bounds, that the titles and places of some problems need."""
    titles = max((len(one.title) for one in problems), default=0)
    places = max((len(problem_place(one)) for one in problems), default=0)
    return min(24, titles), min(24, places)


def problem(one: Problem, width: int, *, widths: tuple[int, int]) -> Text:
    """Return a problem: sign, title, place, and observation. The widths are from `problem_widths`."""
    error = one.severity is Severity.ERROR
    title_width, place_width = widths
    place = problem_place(one)
    rest = max(0, width - 2 - title_width - 2 - place_width - 2)
    return row(
        ("✕ " if error else "! ", "bold red" if error else "bold yellow"),
        (fit(one.title, title_width), "red" if error else "yellow"),
        "  ",
        fit(place, place_width),
        "  ",
        fit(one.text.removeprefix(f"{place}: "), rest).rstrip(),
    )


def owner_header(width: int) -> Text:
    """Return the names of the columns."""
    names = (
        fit("OWNER", _name_width(width)),
        fit("KIND", _KIND),
        fit("N", _COUNT, right=True) + " ",
        fit("LAG", TREND),
        fit("WORST", _WORST, right=True),
        fit("KB/s", _RATE, right=True) + " ",
        "SHARDS, BY LAG",
    )
    return row((" ".join(names), "dim"))


def owner(one: OwnerView | None, leases: tuple[LeaseView, ...], width: int, *, is_open: bool) -> Text:
    """Return a row of the list: one worker, or the leases without an owner, with a sign for each of its leases."""
    name = _name_width(width)
    sign = "▾ " if is_open else "▸ "
    squares = [square(lease) for lease in leases]
    room = max(0, width - (name + _KIND + _COUNT + TREND + _WORST + _RATE + 8))
    if len(squares) > room:
        # Signs that do not fit are counted; the most important signs are kept.
        squares = sorted(squares, key=lambda one: _WEIGHT[one[0]])[: max(0, room - 5)]
        squares.append((f" +{len(leases) - len(squares)}", "dim"))
    if one is None:
        lags = [lease.lag.millis for lease in leases if lease.lag is not None]
        worst = max(lags, default=None)
        head = (fit(sign + "no owner", name), "bold red")
        kind, trend, rate = ("", ""), "", "–"
    else:
        worst = one.worst_lag_millis
        silent = one.silent_for is not None
        head = (fit_name(sign + one.worker_id, name), "red" if silent else "")
        kind = (
            ("silent", "red")
            if silent
            else ("drains", "yellow")
            if one.is_draining
            else ("standby", "dim")
            if one.is_standby
            else (KINDS[one.kind], "")
        )
        trend = sparkline(one.trend, TREND)
        rate = "–" if one.throughput_kbps is None else f"{one.throughput_kbps:,.0f}"
    return row(
        head,
        " ",
        (fit(kind[0], _KIND), kind[1]),
        " ",
        fit(f"{len(leases):,}", _COUNT, right=True),
        "  ",
        (fit(trend, TREND), lag_style(worst)),
        " ",
        (fit(lag_text(worst), _WORST, right=True), lag_style(worst)),
        " ",
        fit(rate, _RATE, right=True),
        "  ",
        *squares,
    )


_WEIGHT = {NOT_READ[0]: 0, "█": 1, "▓": 2, "▒": 3, "░": 4, "·": 5, NOT_MEASURED[0]: 6}


def _name_width(width: int) -> int:
    """Return the cells of the owner's name. Extra width goes to names first, then to the shards."""
    return max(16, min(40, width // 4))


_BEFORE_LAG, _LAG, _LAG_TOLD = 34, 34, 16
"""Cells of a lease's row before its lag, and of the lag with and without the age of its measurement."""


def lease(one: LeaseView, width: int) -> Text:
    """Return the row of a lease below its owner: state and progress of the shard.

    A narrow terminal shows the age of the checkpoint, but not of the lag's measurement.
    """
    lag = one.lag
    measured = (
        f"{lag_text(lag.millis)}, measured {duration(lag.age)} ago" if lag else one.lag_note or "not measured"
    )
    left = ""
    if one.retention_left is not None and lag is not None and lag.millis >= 3_600_000:
        left = f"records lost in {duration(max(0.0, one.retention_left))}"
    state = one.state.value
    if one.handler_seconds is not None:
        state = f"in handler {duration(one.handler_seconds)}"
    if one.failing is not None:
        state = f"fails for {duration(one.failing.seconds)}"
    sign, style = square(one)
    checkpointed = "" if one.checkpointed_ago is None else f"checkpoint {duration(one.checkpointed_ago)} old"
    told = max(_LAG_TOLD, min(_LAG, width - _BEFORE_LAG - 1 - len(checkpointed)))
    if lag and len(f"lag {measured}") > told:
        measured = lag_text(lag.millis)
    return row(
        "    ",
        (sign, style),
        " ",
        fit(short_shard(one.shard_id), 6),
        " ",
        (fit(state, 20), "red" if one.state in _SILENT or one.failing is not None else ""),
        " ",
        (fit(f"lag {measured}", told), lag_style(lag.millis if lag else None)),
        " ",
        (checkpointed, "dim"),
        "  " if left else "",
        (left, "bold red"),
    )


def move(one: Move, width: int, *, zone: tzinfo | None) -> Text:
    """Return a move: time, shard, old and new owner, reason."""
    clock = datetime.fromtimestamp(one.at, zone).strftime("%H:%M:%S")
    idle = "" if one.idle is None else f", {duration(one.idle)} idle"
    tail = f"{one.reason}{idle}"
    name = max(8, (width - 8 - 2 - 6 - 1 - 3 - 2 - 24) // 2)
    return row(
        (clock, "dim"),
        "  ",
        fit(short_shard(one.shard_id), 6),
        " ",
        fit_name(one.before or "no owner", name),
        " → ",
        fit_name(one.after or "no owner", name),
        "  ",
        (fit(tail, 24), "red" if one.reason == "expired" else "dim"),
    )


def _failing(failing: HandlerFailure | None) -> Mapping[str, str]:
    if failing is None:
        return {}
    on = "a callback without records" if failing.position is None else f"record {failing.position}"
    if failing.records > 1:
        on = f"{failing.records:,} records from {failing.position} on"
    return {
        "handler fails": f"for {duration(failing.seconds)}, {failing.attempts:,} times, on {on}",
        "error": failing.error,
        "next call": "now" if failing.retry_in < 1 else f"in {duration(failing.retry_in)}",
    }


def detail(one: LeaseView, view: FleetView) -> list[Text]:
    """Return all known facts about a lease."""

    def ago(seconds: float | None) -> str:
        return f"not seen in {duration(view.watched)}" if seconds is None else f"{duration(seconds)} ago"

    checkpoint = one.checkpoint
    facts: Mapping[str, str] = {
        "state": one.state.value,
        "owner": one.owner or "none",
        "next owner": one.next_owner or "",
        "kind of owner": one.kind.value if one.kind else "",
        "pinned to": one.pinned_to or "",
        "checkpoint": ""
        if checkpoint is None
        else f"{checkpoint.sequence_number} / {checkpoint.sub_sequence_number}",
        "checkpoint stored": ago(one.checkpointed_ago),
        "lease renewed": ago(one.renewed_ago),
        "in handler": "" if one.handler_seconds is None else f"since {duration(one.handler_seconds)}",
        **_failing(one.failing),
        "lag": f"{lag_text(one.lag.millis)}, from {one.lag.source.value}, {duration(one.lag.age)} ago"
        if one.lag
        else one.lag_note or "not measured",
        "lag at checkpoint": ""
        if one.checkpoint_lag is None
        else f"{lag_text(one.checkpoint_lag.millis)}, {duration(one.checkpoint_lag.age)} ago",
        "records are kept for": ""
        if one.retention_left is None
        else f"{duration(max(0.0, one.retention_left))} more",
        "throughput": "" if one.throughput_kbps is None else f"{one.throughput_kbps:,.0f} KB/s",
        "lease counter": f"{one.counter:,}",
        "parents": ", ".join(one.parents),
        "children": ", ".join(one.children),
        "stream": one.stream or "",
        "other attributes": ", ".join(one.other_attributes),
        "note": one.note,
    }
    lines = [row((fit(name, 22), "dim"), fit(value, 200).rstrip()) for name, value in facts.items() if value]
    lines.append(row())
    lines.append(
        row(
            (fit("lag, 10 s a block", 22), "dim"),
            (sparkline(one.trend, 60), lag_style(None if one.lag is None else one.lag.millis)),
        )
    )
    for found in view.problems:
        if found.lease_key == one.lease_key:
            lines += [
                row(),
                row((f"✕ {printable_title(found)}", "bold red")),
                row(fit(found.text, 400).rstrip()),
                row(fit(f"→ {found.remedy}", 400).rstrip()),
            ]
    return lines


def printable_title(one: Problem) -> str:
    """Return the title of a problem, escaped."""
    return fit(one.title, 60).rstrip()
