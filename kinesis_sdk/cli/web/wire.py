"""A `FleetView` in the form for pages: columns instead of objects, and later only changes.

A view of 1,000 leases is about a megabyte as JSON. Most of the megabyte is sequence numbers, ages and trends, which change with every
scan, and which the map does not show. So the page gets only the columns that it draws, with numbers rounded to the two digits that it
shows. The page requests a whole lease only while that lease is open. `changes` compares two such pictures;
`benchmarks/bench_ui.py` prints the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kinesis_sdk.admin import FleetView, LeaseView, Problem
from kinesis_sdk.admin.fleet.model import TREND_LENGTH
from kinesis_sdk.admin.plain import plain
from kinesis_sdk.cli.spelling import spell

LEASE_TRENDS_UP_TO = 64
"""Maximum number of leases whose trends are sent: the table of a small fleet draws trends, the map of a large fleet does not."""

Picture = dict[str, Any]
"""A fleet in the form for pages: plain data. ``leases`` and ``owners`` are columns of equal length."""


def picture(view: FleetView, *, options: Sequence[str] = ()) -> Picture:
    """Return the part of a view that the page shows. ``options`` are the options of the connection, for the commands on the page."""
    ids = [owner.worker_id for owner in view.owners]
    place = {name: number for number, name in enumerate(ids)}
    others = sorted({lease.owner for lease in view.leases if lease.owner} - place.keys())
    place.update({name: len(ids) + number for number, name in enumerate(others)})
    leases = view.leases
    columns: dict[str, list[Any]] = {
        "key": [lease.lease_key for lease in leases],
        "shard": [lease.shard_id for lease in leases],
        "stream": [lease.stream for lease in leases],
        "state": [lease.state.value for lease in leases],
        "owner": [place.get(lease.owner, -1) if lease.owner else -1 for lease in leases],
        "next": [lease.next_owner for lease in leases],
        "pinned": [lease.pinned_to for lease in leases],
        "lag": [_lag(lease) for lease in leases],
        "left": [_time_left(lease.retention_left) for lease in leases],
        "kbps": [_rounded(lease.throughput_kbps) for lease in leases],
        "age": [_age(lease.checkpointed_ago) for lease in leases],
        "handler": [_rounded(lease.handler_seconds) for lease in leases],
        "note": [lease.note or lease.lag_note for lease in leases],
    }
    result: Picture = {
        "head": {
            "application": view.application,
            "streams": list(view.streams),
            "at": round(view.at, 2),
            "watched": round(view.watched),
            "tableAge": round(view.table_age, 1),
            "retention": view.retention,
            "failoverTime": view.failover_time,
            "totals": plain(view.totals),
            "entities": dict(view.entities),
            "calls": dict(view.calls_per_minute),
            "error": view.error,
            "errorCode": None if view.error_code is None else view.error_code.value,
        },
        "problems": [_problem(problem, options) for problem in view.problems],
        "moves": [plain(move) for move in view.moves[:200]],
        "owners": {
            "id": ids + others,
            "group": [owner.group for owner in view.owners] + [None] * len(others),
            "kind": [owner.kind.value for owner in view.owners] + [""] * len(others),
            "silent": [_rounded(owner.silent_for) for owner in view.owners] + [None] * len(others),
            "standby": [owner.is_standby for owner in view.owners] + [False] * len(others),
            "draining": [owner.is_draining for owner in view.owners] + [False] * len(others),
            "lag": [_rounded_lag(owner.worst_lag_millis) for owner in view.owners] + [None] * len(others),
            "kbps": [_rounded(owner.throughput_kbps) for owner in view.owners] + [None] * len(others),
            "trend": [_trend(owner.trend) for owner in view.owners] + [[] for _ in others],
        },
        "leases": columns,
    }
    if len(leases) <= LEASE_TRENDS_UP_TO:
        columns["trend"] = [_trend(lease.trend) for lease in leases]
    return result


def changes(before: Picture, after: Picture) -> Picture:
    """Return the difference between two pictures.

    ``head`` is always whole. ``problems`` and ``moves`` are whole if they differ. ``leases`` and ``owners`` are whole
    if a row was added or removed; otherwise, each column that differs is a flat list of places and values. If all rows of a column
    ``trend`` moved on by one value, only the new values are sent, as ``push``.
    """
    result: Picture = {"head": after["head"]}
    for name in ("problems", "moves"):
        if before[name] != after[name]:
            result[name] = after[name]
    for name, key in (("owners", "id"), ("leases", "key")):
        old, new = before[name], after[name]
        if old[key] != new[key] or old.keys() != new.keys():
            result[name] = {"whole": new}
            continue
        cells: dict[str, list[Any]] = {}
        for column, values in new.items():
            if column == "trend" and (pushed := _pushed(old[column], values)) is not None:
                if pushed:
                    result.setdefault(name, {})["push"] = pushed
                continue
            changed = [
                part
                for number, (was, now) in enumerate(zip(old[column], values, strict=True))
                if was != now
                for part in (number, now)
            ]
            if changed:
                cells[column] = changed
        if cells:
            result.setdefault(name, {})["cells"] = cells
    return result


def _problem(problem: Problem, options: Sequence[str]) -> dict[str, Any]:
    return {
        "code": problem.code,
        "severity": problem.severity.value,
        "title": problem.title,
        "text": problem.text,
        "remedy": problem.remedy,
        "command": "" if problem.command is None else spell(problem.command, options),
        "actions": [[action.title, spell(action.command, options)] for action in problem.actions],
        "lease": problem.lease_key,
        "shard": problem.shard_id,
        "owner": problem.owner,
        "count": problem.count,
    }


def _lag(lease: LeaseView) -> int | None:
    return _rounded_lag(lease.lag.millis if lease.lag is not None else None)


def _rounded_lag(millis: int | None) -> int | None:
    """Round to two digits; below a second, where healthy shards differ from scan to scan, to 0 and 500."""
    if millis is None:
        return None
    if millis < 1000:
        return 500 if millis > 0 else 0
    return int(_rounded(millis) or 0)


def _rounded(value: float | None) -> float | None:
    """Round to two digits, so that a number is sent again only if its displayed digits change."""
    if value is None or not math.isfinite(value):
        return None
    if value == 0:
        return 0
    digits = 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return int(rounded) if digits <= 0 else rounded


def _time_left(seconds: float | None) -> int | None:
    """Round to minutes, and below an hour to ten seconds, so that healthy shards show the retention itself."""
    if seconds is None:
        return None
    step = 60 if seconds >= 3600 else 10
    return round(seconds / step) * step


def _age(seconds: float | None) -> float | None:
    """Round to two digits; below a minute, where healthy shards differ from scan to scan, to 0 and 10."""
    if seconds is None:
        return None
    if seconds < 60:
        return 10 if seconds >= 10 else 0
    return _rounded(seconds)


def _trend(values: Sequence[int | None]) -> list[int | None]:
    return [_rounded_lag(value) for value in values]


def _pushed(before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Return the newest value of each row if every row moved on by one value, an empty list if no row did, otherwise None."""
    if before == after:
        return []
    for old, new in zip(before, after, strict=True):
        grown = len(new) == len(old) + 1 and new[:-1] == old
        moved = len(new) == len(old) == TREND_LENGTH and new[:-1] == old[1:]
        if not (grown or moved):
            return None
    return [row[-1] for row in after]


def lease_detail(view: FleetView, lease_key: str) -> Mapping[str, Any] | None:
    """Return all facts about one lease in a view, as plain data; None if the view does not have the lease."""
    for lease in view.leases:
        if lease.lease_key == lease_key:
            result: dict[str, Any] = plain(lease)
            return result
    return None
