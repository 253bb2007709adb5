"""A `FleetView` as rows of changes, and back. No clock and no calls.

Ages are stored as moments, so a row changes only if its subject changed. Values that change all the time, such as a lag, a
checkpoint or the numbers in the text of a problem, are rounded, and written at most once in their interval.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.model import (
    TREND_LENGTH,
    TREND_STEP,
    Action,
    ErrorCode,
    FleetView,
    HandlerFailure,
    LagReading,
    LagSource,
    LeaseState,
    LeaseView,
    Move,
    OwnerKind,
    OwnerView,
    Problem,
    Severity,
    Totals,
)
from kinesis_sdk.admin.plain import plain
from kinesis_sdk.admin.recording.ring import Change
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.sequence import ExtendedSequenceNumber

SCAN, FAILURE, SHARD, LEASE, OWNER, PROBLEM, MOVE, LAG, CHECKPOINT, RATE = range(10)
"""Kinds of rows: a scan of the table with the worst lag, a failed scan; facts of a shard, a lease, an owner and a problem; a
change of an owner; lag, checkpoint and KB/s of a lease.
"""
FLEET = ""
"""Key of rows about the whole application."""
INTERVALS: Mapping[int, float] = {SCAN: 10.0, LAG: 10.0, CHECKPOINT: 30.0, RATE: 60.0}
"""Minimum seconds between two rows of a key, by kind. Rows of other kinds are written with the first view that shows them."""
KEEP_ALIVE = 30.0
"""Maximum seconds between two rows of `SCAN`, and of `FAILURE` while scans fail."""
_RESTATE = 60.0
"""Minimum seconds between two rows of a problem or a failing handler that differ only in numbers."""
_TOLERANCE = 5.0
"""Seconds by which a moment computed from an age may differ and still count as the same."""
_LONG_CALL = 10.0
"""Seconds from which a running call of the handler is recorded."""
ERROR = 1.0
"""Number of a problem that is an error; a warning has 0."""
_UNKNOWN = -1.0
"""Represents an unknown lag or rate; a row without a number means that the key no longer exists."""


def rows_of(view: FleetView, *, recorder: str) -> list[Change]:
    """Return all rows of a view. ``recorder`` names the process that records."""
    at = view.at
    if view.error:
        # The rest of the view repeats earlier data.
        code = None if view.error_code is None else view.error_code.value
        return [Change(FAILURE, FLEET, at, 1.0, _json({"error": view.error, "code": code}))]
    worst = view.totals.worst_lag_millis
    head = {
        "by": recorder,
        "since": at - view.watched,
        "streams": view.streams,
        "retention": plain(view.retention),
        "failover": view.failover_time,
        "totals": plain(view.totals),
        "entities": plain(view.entities),
    }
    rows = [
        Change(SCAN, FLEET, at, _UNKNOWN if worst is None else float(worst), _json(head)),
        Change(FAILURE, FLEET, at),
    ]
    for lease in view.leases:
        key = lease.lease_key
        rows.append(Change(SHARD, key, at, None, _json(_shard(lease))))
        rows.append(Change(LEASE, key, at, None, _json(_lease(lease, at))))
        rows.append(Change(LAG, key, at, _UNKNOWN if lease.lag is None else float(rounded(lease.lag.millis))))
        rows.append(Change(CHECKPOINT, key, at, *_checkpoint(lease, at)))
        rate = lease.throughput_kbps
        rows.append(Change(RATE, key, at, _UNKNOWN if rate is None else _two_digits(rate)))
    rows += [Change(OWNER, owner.worker_id, at, None, _json(_owner(owner, at))) for owner in view.owners]
    for place, problem in enumerate(view.problems):
        severe = ERROR if problem.severity is Severity.ERROR else 0.0
        value = _json({"place": place, **plain(problem)})
        rows.append(Change(PROBLEM, f"{problem.code} {problem.lease_key} {problem.owner}", at, severe, value))
    return rows


def moves_of(view: FleetView, newer_than: float) -> list[Change]:
    """Return the rows of the moves after a given time, oldest first."""
    return [
        Change(MOVE, move.lease_key, move.at, 1.0, _json(plain(move)))
        for move in reversed(view.moves)
        if move.at > newer_than
    ]


def is_news(old: Change | None, new: Change) -> bool:
    """Return whether a row is to be written, given the newest row of its key."""
    if old is None:
        return new.number is not None or new.value is not None
    age = new.at - old.at
    if (old.number, old.value) == (new.number, new.value):
        return new.kind in (SCAN, FAILURE) and new.value is not None and age >= KEEP_ALIVE
    if 0 <= age < INTERVALS.get(new.kind, 0.0):
        return False
    if new.kind == LAG and old.number is not None and new.number is not None:
        # Below a second, healthy shards differ from scan to scan.
        return not (0 <= old.number < 1000 and 0 <= new.number < 1000)
    if new.kind in (LEASE, OWNER):
        return not _is_same(json.loads(old.value or "{}"), json.loads(new.value or "{}"), age)
    if new.kind == PROBLEM and old.value is not None and new.value is not None:
        return old.number != new.number or age >= _RESTATE
    return True


def _is_same(old: dict[str, Any], new: dict[str, Any], age: float) -> bool:
    """Return whether two values differ only in moments computed from ages, or in failures within the interval of a lag."""
    old_failing, new_failing = old.pop("failing", None), new.pop("failing", None)
    if (old_failing is None) != (new_failing is None):
        return False
    if old_failing != new_failing and age >= INTERVALS[LAG]:
        return False
    for moment in ("handler", "silent"):
        before, after = old.pop(moment, None), new.pop(moment, None)
        if (before is None) != (after is None):
            return False
        if before is not None and abs(before - after) > _TOLERANCE:
            return False
    return old == new


def rounded(millis: int) -> int:
    """Round a lag to two digits."""
    return int(_two_digits(float(millis)))


def _two_digits(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return 0.0
    return round(value, 1 - math.floor(math.log10(abs(value))))


def _json(value: object) -> str:
    return _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
"""This encoder treats enumerations of texts as texts, so that rows of a thousand leases need no conversion first."""


def _filled(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value not in (None, "", (), False)}


def _shard(lease: LeaseView) -> dict[str, object]:
    between = lease.hash_key_range
    return _filled(
        shard=lease.shard_id,
        stream=lease.stream,
        parents=lease.parents,
        children=lease.children,
        range=None if between is None else {"start": str(between.start), "end": str(between.end)},
    )


def _lease(lease: LeaseView, at: float) -> dict[str, object]:
    failing = lease.failing
    long = lease.handler_seconds is not None and lease.handler_seconds >= _LONG_CALL
    return _filled(
        state=lease.state,
        owner=lease.owner,
        next=lease.next_owner,
        kind=lease.kind,
        pinned=lease.pinned_to,
        note=lease.note,
        lag_note=lease.lag_note,
        source=None if lease.lag is None else lease.lag.source,
        trimmed=lease.checkpoint_trimmed,
        others=lease.other_attributes,
        initial=lease.initial_timestamp_millis,
        handler=round(at - (lease.handler_seconds or 0.0)) if long else None,
        failing=None
        if failing is None
        else {
            "attempts": failing.attempts,
            "since": round(at - failing.seconds),
            "next": round(at + failing.retry_in),
            "records": failing.records,
            "position": plain(failing.position),
            "error": failing.error,
        },
    )


def _checkpoint(lease: LeaseView, at: float) -> tuple[float, str | None]:
    """Return the value of a checkpoint, and the time at which it was stored, if known."""
    stored = _UNKNOWN if lease.checkpointed_ago is None else round(at - lease.checkpointed_ago, 1)
    point = lease.checkpoint
    return stored, None if point is None else f"{point.sequence_number}/{point.sub_sequence_number}"


def _owner(owner: OwnerView, at: float) -> dict[str, object]:
    return _filled(
        group=owner.group,
        kind=owner.kind,
        silent=None if owner.silent_for is None else round(at - owner.silent_for),
        standby=owner.is_standby,
        draining=owner.is_draining,
    )


# And back


def view_of(
    application: str,
    at: float,
    newest: Mapping[int, Sequence[Change]],
    moves: Iterable[Change] = (),
    lags: Iterable[Change] = (),
) -> FleetView | None:
    """Rebuild a view from rows; None if there is no row of `SCAN`.

    ``newest`` has the newest row of each key up to the moment, by kind. ``moves`` and ``lags`` are oldest first; ``lags`` has
    the newest row of each key before the time of a trend, and all rows within this time.
    """
    if not newest[SCAN]:
        return None
    scan = newest[SCAN][0]
    head = json.loads(scan.value or "{}")
    totals = Totals(**head["totals"])
    trends = _trends(at, lags)
    shards = {row.key: json.loads(row.value or "{}") for row in newest[SHARD]}
    numbers = {kind: {row.key: row for row in newest[kind]} for kind in (LAG, CHECKPOINT, RATE)}
    leases = tuple(
        _lease_view(row, shards.get(row.key, {}), numbers, trends.get(row.key, ()), head["retention"], at)
        for row in newest[LEASE]
    )
    ordered = tuple(sorted(leases, key=lambda lease: (lease.stream or "", lease.shard_id, lease.lease_key)))
    problems = sorted(
        (json.loads(row.value or "{}") for row in newest[PROBLEM]), key=lambda one: one["place"]
    )
    failure = json.loads(newest[FAILURE][0].value or "{}") if newest[FAILURE] else {}
    code = failure.get("code")
    return FleetView(
        application=application,
        streams=tuple(head["streams"]),
        at=at,
        watched=at - head["since"],
        table_age=at - scan.at,
        retention=head["retention"],
        failover_time=head["failover"],
        totals=totals,
        problems=tuple(_problem(one) for one in problems),
        owners=tuple(_owner_view(row, ordered, trends, at) for row in newest[OWNER]),
        leases=ordered,
        moves=tuple(Move(**json.loads(row.value or "{}")) for row in reversed(list(moves))),
        entities=head["entities"],
        error=failure.get("error", ""),
        error_code=None if code is None else ErrorCode(code),
    )


def _lease_view(
    row: Change,
    shard: Mapping[str, Any],
    numbers: Mapping[int, Mapping[str, Change]],
    trend: tuple[int | None, ...],
    retention: float | None,
    at: float,
) -> LeaseView:
    value = json.loads(row.value or "{}")
    lag, point, rate = (numbers[kind].get(row.key) for kind in (LAG, CHECKPOINT, RATE))
    millis = known(lag)
    stored = None if point is None else known(point)
    between = shard.get("range")
    failing = value.get("failing")
    return LeaseView(
        lease_key=row.key,
        shard_id=shard.get("shard", row.key),
        stream=shard.get("stream"),
        state=LeaseState(value["state"]),
        owner=value.get("owner"),
        next_owner=value.get("next"),
        kind=None if "kind" not in value else OwnerKind(value["kind"]),
        checkpoint=position_of(point),
        parents=tuple(shard.get("parents", ())),
        children=tuple(shard.get("children", ())),
        hash_key_range=None if between is None else HashKeyRange(int(between["start"]), int(between["end"])),
        throughput_kbps=known(rate),
        checkpointed_ago=None if stored is None else max(0.0, at - stored),
        handler_seconds=None if "handler" not in value else max(0.0, at - value["handler"]),
        failing=None if failing is None else _failure(failing, at),
        lag=None
        if millis is None or lag is None
        else LagReading(
            millis=int(millis),
            age=max(0.0, at - lag.at),
            source=LagSource(value.get("source", LagSource.PROBE)),
        ),
        lag_note=value.get("lag_note", ""),
        trend=trend,
        retention_left=None if millis is None or retention is None else retention - millis / 1000,
        pinned_to=value.get("pinned"),
        other_attributes=tuple(value.get("others", ())),
        note=value.get("note", ""),
        checkpoint_trimmed=value.get("trimmed", False),
        initial_timestamp_millis=value.get("initial"),
    )


def known(row: Change | None) -> float | None:
    """Return the number of a row; None if it is unknown."""
    return None if row is None or row.number is None or row.number == _UNKNOWN else row.number


def position_of(row: Change | None) -> ExtendedSequenceNumber | None:
    """Return the position of a row of `CHECKPOINT`."""
    if row is None or row.value is None:
        return None
    number, _, sub = row.value.rpartition("/")
    return ExtendedSequenceNumber(number, int(sub))


def _failure(value: Mapping[str, Any], at: float) -> HandlerFailure:
    position = value["position"]
    return HandlerFailure(
        attempts=value["attempts"],
        seconds=max(0.0, at - value["since"]),
        retry_in=max(0.0, value["next"] - at),
        records=value["records"],
        position=None
        if position is None
        else ExtendedSequenceNumber(position["sequence_number"], position["sub_sequence_number"]),
        error=value["error"],
    )


def _owner_view(
    row: Change, leases: Sequence[LeaseView], trends: Mapping[str, tuple[int | None, ...]], at: float
) -> OwnerView:
    value = json.loads(row.value or "{}")
    mine = [lease for lease in leases if lease.owner == row.key and lease.state is not LeaseState.FINISHED]
    lags = [lease.lag.millis for lease in mine if lease.lag is not None]
    rates = [lease.throughput_kbps for lease in mine if lease.throughput_kbps is not None]
    columns = zip(*(trends[lease.lease_key] for lease in mine if lease.lease_key in trends), strict=False)
    return OwnerView(
        worker_id=row.key,
        group=value.get("group"),
        kind=OwnerKind(value["kind"]),
        lease_keys=tuple(lease.lease_key for lease in mine),
        silent_for=None if "silent" not in value else max(0.0, at - value["silent"]),
        is_standby=value.get("standby", False),
        is_draining=value.get("draining", False),
        worst_lag_millis=max(lags, default=None),
        throughput_kbps=sum(rates) if rates else None,
        trend=tuple(max((one for one in column if one is not None), default=None) for column in columns),
    )


def _problem(value: Mapping[str, Any]) -> Problem:
    names = {field.name for field in fields(Problem)}
    found = Problem(**{name: one for name, one in value.items() if name in names})
    actions = tuple(Action(title=one["title"], command=_command(one["command"])) for one in value["actions"])
    command = None if value["command"] is None else _command(value["command"])
    return replace(found, severity=Severity(found.severity), command=command, actions=actions)


def _command(value: Mapping[str, Any]) -> Command:
    return Command.of(value["operation"], **value["parameters"])


def _trends(at: float, lags: Iterable[Change]) -> dict[str, tuple[int | None, ...]]:
    """Return the lag of each lease every `TREND_STEP` seconds up to a given time."""
    begin = at - TREND_LENGTH * TREND_STEP
    by_key: dict[str, dict[int, float | None]] = {}
    for row in lags:
        step = min(TREND_LENGTH - 1, max(0, int((row.at - begin) / TREND_STEP)))
        by_key.setdefault(row.key, {})[step] = known(row)
    found = {}
    for key, steps in by_key.items():
        value: float | None = None
        line: list[int | None] = []
        for step in range(TREND_LENGTH):
            value = steps.get(step, value)
            line.append(None if value is None else int(value))
        found[key] = tuple(line)
    return found
