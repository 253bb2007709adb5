"""Problems of a fleet that keep records from being processed, or soon will, worst first. Pure.

Each problem has a stable code (`RULES`), one sentence with numbers, a remedy, and a command if one helps. A cause that
affects many leases, such as a silent worker, is one problem.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kinesis_sdk.admin.applications import short_shard
from kinesis_sdk.admin.command import Command
from kinesis_sdk.admin.fleet.balance import balance_of
from kinesis_sdk.admin.fleet.failing import actions_of, failing_text
from kinesis_sdk.admin.fleet.formatting import counted, duration
from kinesis_sdk.admin.fleet.model import (
    Action,
    FleetView,
    LeaseState,
    LeaseView,
    OwnerKind,
    Problem,
    Severity,
)
from kinesis_sdk.admin.load import SHARD_BYTES_PER_SECOND, ShardLoad
from kinesis_sdk.common.hashkeys import HashKeyRange
from kinesis_sdk.common.retry_tiers import MARGIN
from kinesis_sdk.common.sequence import AT_TIMESTAMP, LATEST
from kinesis_sdk.common.text import printable


@dataclass(frozen=True)
class Rule:
    """Severity, title and reach of a problem, without its numbers.

    Attributes:
        severity: Highest severity; a problem that may be temporary can be reported as less severe.
        title: Two or three words for people.
        states: For a problem that names no lease: states of the leases that it concerns.
        needs_workers: Whether it is a problem only while the application is meant to run.
    """

    severity: Severity
    title: str
    states: frozenset[LeaseState] = frozenset()
    needs_workers: bool = False


_ALL = frozenset(LeaseState)
RULES: Mapping[str, Rule] = {
    "table-recreated": Rule(Severity.ERROR, "lease table recreated", _ALL),
    "stream-recreated": Rule(Severity.ERROR, "stream recreated", _ALL),
    "stream-missing": Rule(Severity.ERROR, "stream missing", _ALL),
    "trimmed": Rule(Severity.ERROR, "records lost"),
    "tier-forgets": Rule(Severity.ERROR, "tier forgets", _ALL),
    "near-horizon": Rule(Severity.ERROR, "near the horizon"),
    "shard-expired": Rule(Severity.ERROR, "shard expired"),
    "stopped": Rule(Severity.ERROR, "no worker", _ALL, needs_workers=True),
    "handler": Rule(Severity.ERROR, "handler"),
    "handler-fails": Rule(Severity.ERROR, "handler fails"),
    "silent-owner": Rule(Severity.ERROR, "silent owner", _ALL, needs_workers=True),
    "unowned": Rule(Severity.ERROR, "no owner", frozenset({LeaseState.UNOWNED}), needs_workers=True),
    "no-lease": Rule(Severity.ERROR, "no lease", frozenset({LeaseState.MISSING})),
    "hole": Rule(Severity.ERROR, "hash keys not covered"),
    "unreadable-row": Rule(Severity.ERROR, "unreadable row"),
    "misfit-row": Rule(Severity.ERROR, "wrong row"),
    "no-timestamp": Rule(Severity.ERROR, "no starting time"),
    "parent-cycle": Rule(Severity.ERROR, "cycle of parents"),
    "lag": Rule(Severity.ERROR, "lag"),
    "table-throttled": Rule(Severity.WARNING, "table throttled"),
    "clock-skew": Rule(Severity.WARNING, "clock"),
    "handoff-stuck": Rule(Severity.WARNING, "handoff does not end"),
    "parent-unfinished": Rule(Severity.WARNING, "waits for its parent"),
    "falling-behind": Rule(Severity.WARNING, "falls behind"),
    "no-checkpoint": Rule(Severity.WARNING, "no checkpoint"),
    "behind": Rule(Severity.WARNING, "behind"),
    "horizon-soon": Rule(Severity.WARNING, "horizon comes closer"),
    "hot-shard": Rule(Severity.WARNING, "hot shard"),
    "latest-unpinned": Rule(Severity.WARNING, "start not fixed", needs_workers=True),
    "foreign-row": Rule(Severity.WARNING, "foreign row"),
    "damaged-row": Rule(Severity.WARNING, "damaged row"),
    "unbalanced": Rule(Severity.WARNING, "unbalanced"),
}
"""The rules by the codes of their problems, worst first. `doctor`, `explain` and every view of a fleet show the problems that
these rules find."""

_ORDER = {code: place for place, code in enumerate(RULES)}
_SHOWN = 3
"""Maximum number of shards named in a sentence."""
_MAX_OF_ONE_CODE = 10
"""Maximum number of problems of one code; the rest becomes one line."""


@dataclass(frozen=True, kw_only=True)
class ProblemSettings:
    """Thresholds, in seconds unless described otherwise.

    Attributes:
        max_lag: Lag that is a problem; None for no limit.
        near_horizon: Remaining part of the retention below which a shard is near the horizon: 0.1 of 24 h is 2 h 24 min.
        horizon_soon: The same, for a warning.
        handler: Duration from which a handler's call is a problem.
        failing_calls: Consecutive failed calls of a handler from which they are a problem.
        behind: Lag above which a shard that does not catch up is always a problem.
        unowned: Time for which a lease may have no owner: a KCL fleet takes up to 20 s to assign a lease.
        no_lease: Time for which a shard may have no lease.
        handoff: Longest handoff.
        parent: Time for which a shard may wait for its parents.
        no_checkpoint: Time for which a renewed lease that is behind may have no new checkpoint.
        hole: Time for which a hole in the hash keys may exist; a reshard causes a short hole.
        skew: Difference between this machine's clock and the clock of AWS from which it is reported.
        max_skew: Difference from which it is an error: a KCL 3 leader treats such a worker as dead.
        hot: Part of a shard's write limit from which the shard is hot.
        unbalanced: Excess of a worker's leases over its fair share, as a fraction of the share.
    """

    max_lag: float | None = None
    near_horizon: float = 0.1
    horizon_soon: float = 0.25
    handler: float = 60.0
    failing_calls: int = 3
    behind: float = 60.0
    unowned: float = 30.0
    no_lease: float = 60.0
    handoff: float = 60.0
    parent: float = 300.0
    no_checkpoint: float = 120.0
    hole: float = 60.0
    skew: float = 5.0
    max_skew: float = 60.0
    hot: float = 0.9
    unbalanced: float = 0.5


@dataclass(frozen=True)
class Hole:
    """Hash keys that no unfinished lease covers.

    Attributes:
        stream: ``streamName`` of the rows; None in a single-stream table.
        age: Seconds since it was first seen.
    """

    stream: str | None
    hash_key_range: HashKeyRange
    age: float


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """Facts that the rules need besides the view.

    Attributes:
        retentions: Retention in seconds, by ``streamName``.
        tiers: Delay and retention in seconds of the streams in which records wait, by name, as far as workers or names show them.
        misfits: Evidence that a single row belongs to another stream than all other rows do, by lease key.
        recreated_streams: Streams whose creation time changed while they were watched.
        table_recreated_for: Seconds since most counters went back; None if they did not.
        foreign: Keys of unfinished rows that do not belong to a shard of the stream.
        expired_shards: Keys of unfinished rows whose shard the stream no longer has.
        throttled: Calls of the view that the lease table throttled in the last minute.
        skew: Minimum seconds by which this machine's clock is behind AWS, negative if it is ahead; None if unknown.
        is_single_scan: Whether the table was read only once, so that no durations are known.
    """

    retentions: Mapping[str | None, float] = field(default_factory=dict)
    tiers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    holes: tuple[Hole, ...] = ()
    contradictions: Mapping[str, str] = field(default_factory=dict)
    misfits: Mapping[str, str] = field(default_factory=dict)
    missing_streams: tuple[str, ...] = ()
    recreated_streams: tuple[str, ...] = ()
    table_recreated_for: float | None = None
    foreign: tuple[str, ...] = ()
    expired_shards: tuple[str, ...] = ()
    cycles: Mapping[str, str] = field(default_factory=dict)
    loads: Mapping[str, ShardLoad] = field(default_factory=dict)
    throttled: int = 0
    skew: float | None = None
    is_single_scan: bool = True


def concerns(problem: Problem, lease: LeaseView, workers: Container[str | None]) -> bool:
    """Return whether a problem that names no lease concerns a lease; ``workers`` own the lease and its unfinished ancestors."""
    return lease.state in RULES[problem.code].states and (problem.owner is None or problem.owner in workers)


def find_problems(view: FleetView, facts: TableFacts, settings: ProblemSettings) -> tuple[Problem, ...]:
    """Return the problems of a fleet, worst first."""
    found = [
        *_of_the_table(view, facts, settings),
        *_of_the_calls(view, facts, settings),
        *_of_owners(view),
        *_unowned(view, facts, settings),
        *_without_lease(view, facts, settings),
        *_of_leases(view, facts, settings),
        *_unbalanced(view, facts, settings),
    ]
    return tuple(
        problem for _, problem in _limited(sorted(found, key=lambda pair: (_ORDER[pair[1].code], -pair[0])))
    )


_Found = tuple[float, Problem]
"""A problem and its weight: among problems of one code, a larger weight is worse."""


def _problem(
    view: FleetView,
    code: str,
    text: str,
    remedy: str,
    *,
    lease: LeaseView | None = None,
    command: Command | None = None,
    severity: Severity | None = None,
    owner: str | None = None,
    count: int = 1,
    weight: float = 0.0,
    actions: tuple[Action, ...] = (),
) -> _Found:
    if command is None and lease is not None:
        command = _explain(view, lease)
    return weight, Problem(
        code=code,
        severity=severity or RULES[code].severity,
        title=RULES[code].title,
        text=text,
        remedy=remedy,
        command=command,
        actions=actions,
        lease_key=None if lease is None else lease.lease_key,
        shard_id=None if lease is None else lease.shard_id,
        owner=owner if lease is None or owner is not None else lease.owner,
        count=count,
    )


def _explain(view: FleetView, lease: LeaseView) -> Command:
    return Command.of("explain", application=view.application, shard=shard_argument(lease))


def _show(view: FleetView) -> Command:
    return Command.of("show", application=view.application)


def shard_argument(lease: LeaseView) -> str:
    """Return a shard as the user writes it: ``0003``, or the lease key in a table of several streams."""
    return lease.lease_key if lease.stream is not None else short_shard(lease.shard_id)


def names_of(leases: Iterable[LeaseView]) -> str:
    """Return up to three shards for a sentence."""
    listed = [short_shard(lease.shard_id) for lease in leases]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def _limited(found: Iterable[_Found]) -> Iterable[_Found]:
    """Keep the worst problems of each code, and count the rest in one line."""
    kept: list[_Found] = []
    more: dict[str, int] = {}
    number: dict[str, int] = {}
    for weight, problem in found:
        number[problem.code] = number.get(problem.code, 0) + 1
        if number[problem.code] <= _MAX_OF_ONE_CODE:
            kept.append((weight, problem))
        else:
            more[problem.code] = more.get(problem.code, 0) + problem.count
    for code, count in more.items():
        last = max(place for place, (_, problem) in enumerate(kept) if problem.code == code)
        line = Problem(
            code=code,
            severity=RULES[code].severity,
            title=RULES[code].title,
            text=f"{count:,} more like these",
            remedy="look for a common owner, or a common time of their start",
            count=count,
        )
        kept.insert(last + 1, (0.0, line))
    return kept


def _of_the_table(view: FleetView, facts: TableFacts, settings: ProblemSettings) -> Iterable[_Found]:
    if facts.table_recreated_for is not None:
        yield _problem(
            view,
            "table-recreated",
            f"the counters of most rows went back {duration(facts.table_recreated_for)} ago: the lease table was created again, "
            "or restored from a backup",
            "check where the shards start now; a new table starts at the initial position of its workers",
            command=_show(view),
        )
    for stream in facts.missing_streams:
        yield _problem(
            view,
            "stream-missing",
            f"the stream {printable(stream)} does not exist",
            "create the stream, or delete the application if it is no longer needed",
        )
    for stream, (delay, retention) in facts.tiers.items():
        if retention >= delay + MARGIN:
            continue
        yield _problem(
            view,
            "tier-forgets",
            f"records wait for {duration(delay)} in {printable(stream)}, which keeps them for {duration(retention)}: "
            + (
                "they expire before they are due"
                if retention <= delay
                else "they expire soon after they are due"
            ),
            f"lengthen the retention of the stream to {-(-round(delay + MARGIN) // 3600)} h or more",
            severity=None if retention <= delay else Severity.WARNING,
        )
    for stream in facts.recreated_streams:
        yield _problem(
            view,
            "stream-recreated",
            f"the stream {printable(stream)} was deleted and created again while it was watched: its leases are those of the "
            "deleted one",
            "stop the workers, export and delete the application's leases, and start again",
            command=Command.of("delete-app", application=view.application),
        )
    for stream, evidence in facts.contradictions.items():
        yield _problem(
            view,
            "stream-recreated",
            f"the leases belong to another stream than {printable(stream)}, probably a deleted one of the same name: {evidence}",
            "stop the workers, export and delete the application's leases, and start again",
            command=Command.of("delete-app", application=view.application),
        )
    for hole in facts.holes:
        if hole.age < settings.hole and not facts.is_single_scan:
            continue
        first = "" if hole.age >= settings.hole else " at the first look, which a reshard can explain"
        yield _problem(
            view,
            "hole",
            f"no unfinished lease covers the hash keys {hole.hash_key_range.start} to {hole.hash_key_range.end}{first}: records "
            "with these keys are not processed",
            "start a worker: it compares the leases with the shards and creates what is missing",
            severity=None if hole.age >= settings.hole else Severity.WARNING,
        )
    by_key = {lease.lease_key: lease for lease in view.leases}
    for key, evidence in facts.misfits.items():
        yield _problem(
            view,
            "misfit-row",
            f"{printable(evidence)}; the other rows fit the stream, so this row is wrong",
            "give it a position (rewind or skip), or delete it: workers make the row of an existing shard again",
            lease=by_key.get(key),
            command=Command.of("delete-row", application=view.application, row=key),
        )
    for keys, code, what, remedy in (
        (
            facts.expired_shards,
            "shard-expired",
            "not finished, but its shard has left the stream: all its records passed the retention",
            "if its last records were processed, nothing is lost; workers delete such rows",
        ),
        (
            facts.foreign,
            "foreign-row",
            "not the key of a shard of the stream; workers of this application leave it alone",
            "delete it if no other program uses it",
        ),
    ):
        for key in keys:
            yield _problem(
                view,
                code,
                f"the row {printable(key)} is {what}",
                remedy,
                lease=by_key.get(key),
                command=Command.of("delete-row", application=view.application, row=key)
                if code == "foreign-row"
                else None,
            )


def _of_the_calls(view: FleetView, facts: TableFacts, settings: ProblemSettings) -> Iterable[_Found]:
    if facts.throttled:
        yield _problem(
            view,
            "table-throttled",
            f"the lease table throttled {counted(facts.throttled, 'call')} of this program in the last minute: the renewals of the workers "
            "share that capacity",
            "switch the table to on-demand billing, or raise its capacity: a throttled renewal is a lost lease",
            command=Command.of("doctor", stream=view.streams[0], application=view.application)
            if view.streams
            else None,
            # A single read makes a handful of calls: a table that throttles one of these calls has no capacity left.
            severity=Severity.ERROR if facts.is_single_scan else None,
        )
    if facts.skew is not None and abs(facts.skew) >= settings.skew:
        yield _problem(
            view,
            "clock-skew",
            f"the clock of this machine is {duration(abs(facts.skew))} {'behind' if facts.skew > 0 else 'ahead of'} that of AWS",
            "synchronize it (chrony, systemd-timesyncd), first of all if workers run here: from 60 s on a KCL 3 leader treats a worker as dead, from "
            "300 s on AWS rejects every request, and a start by time begins at the wrong record",
            severity=Severity.ERROR if abs(facts.skew) >= settings.max_skew else None,
        )


def _of_owners(view: FleetView) -> Iterable[_Found]:
    silent = [owner for owner in view.owners if owner.silent_for is not None]
    leases = {lease.lease_key: lease for lease in view.leases} if silent else {}
    for owner in silent:
        assert owner.silent_for is not None
        count = len(owner.lease_keys)
        first = next((leases[key] for key in owner.lease_keys if key in leases), None)
        yield _problem(
            view,
            "silent-owner",
            f"{printable(owner.worker_id)}: {counted(count, 'lease')} not renewed for {duration(owner.silent_for)}",
            "a live worker takes them over; if none does, start one"
            if view.totals.owners
            else "start a worker",
            command=None if first is None else _explain(view, first),
            owner=owner.worker_id,
            count=count,
            weight=owner.silent_for * count,
        )


def _worst_lag(view: FleetView, settings: ProblemSettings) -> str:
    totals = view.totals
    if (
        totals.worst_shard is None
        or totals.worst_lag_millis is None
        or totals.worst_lag_millis <= 1000 * settings.behind
    ):
        return ""
    return f"; {short_shard(totals.worst_shard)} is {duration(totals.worst_lag_millis / 1000)} behind"


def _unowned(view: FleetView, facts: TableFacts, settings: ProblemSettings) -> Iterable[_Found]:
    open_ = [lease for lease in view.leases if lease.state is not LeaseState.FINISHED]
    unowned = [lease for lease in open_ if lease.state is LeaseState.UNOWNED]
    if open_ and not any(lease.owner for lease in open_):
        yield _problem(
            view,
            "stopped",
            f"no worker owns any of the {counted(len(open_), 'lease')}: the application does not run{_worst_lag(view, settings)}",
            "start a worker",
            count=len(open_),
        )
        return
    # After the first scan, no duration is known: a lease without an owner is then worth a warning.
    late = [
        lease
        for lease in unowned
        if (view.watched if lease.state_for is None else lease.state_for) >= settings.unowned
    ]
    if late or (unowned and facts.is_single_scan):
        shown = late or unowned
        longest = max(view.watched if lease.state_for is None else lease.state_for for lease in shown)
        since = f" for {'at least ' if not late else ''}{duration(longest)}" if late else " at this look"
        yield _problem(
            view,
            "unowned",
            f"no worker owns {counted(len(shown), 'lease')}{since}: {names_of(shown)}{_worst_lag(view, settings)}",
            "a live worker takes them within seconds (a KCL within 20); if none does, look for its errors or start one",
            lease=shown[0] if len(shown) == 1 else None,
            command=None if len(shown) == 1 else _show(view),
            severity=Severity.ERROR if late else Severity.WARNING,
            count=len(shown),
        )


def _without_lease(view: FleetView, facts: TableFacts, settings: ProblemSettings) -> Iterable[_Found]:
    missing = [lease for lease in view.leases if lease.state is LeaseState.MISSING]
    late = [
        lease
        for lease in missing
        if (view.watched if lease.state_for is None else lease.state_for) >= settings.no_lease
    ]
    shown = late or (missing if facts.is_single_scan else [])
    if shown:
        yield _problem(
            view,
            "no-lease",
            f"the stream has {len(shown):,} open {'shard' if len(shown) == 1 else 'shards'} without a lease: {names_of(shown)}",
            "start a worker: it compares the leases with the shards and creates what is missing",
            lease=shown[0] if len(shown) == 1 else None,
            severity=Severity.ERROR if late else Severity.WARNING,
            count=len(shown),
        )


def _of_leases(view: FleetView, facts: TableFacts, settings: ProblemSettings) -> Iterable[_Found]:
    by_key = {lease.lease_key: lease for lease in view.leases}
    for lease in view.leases:
        if lease.state is LeaseState.FINISHED:
            continue
        if lease.state is LeaseState.UNREADABLE:
            yield _problem(
                view,
                "unreadable-row",
                f"the row {printable(lease.lease_key)} cannot be read ({lease.note}), so its shard is not processed",
                "repair the row by hand, from an export or from the row of a neighbour",
                lease=lease,
                command=_show(view),
            )
            continue
        if lease.lease_key in facts.cycles:
            yield _problem(
                view,
                "parent-cycle",
                f"{short_shard(lease.shard_id)}: {facts.cycles[lease.lease_key]}",
                "repair parentShardId of one of the rows",
                lease=lease,
            )
        case = _Case(view, lease, facts, settings, by_key)
        for check in _CHECKS:
            found = check(case)
            if found is not None:
                yield found


class _Case(NamedTuple):
    """A lease to check, and all other known facts."""

    view: FleetView
    lease: LeaseView
    facts: TableFacts
    settings: ProblemSettings
    by_key: Mapping[str, LeaseView]


def _behind(lease: LeaseView) -> float | None:
    """Return the lag in seconds."""
    return None if lease.lag is None else lease.lag.millis / 1000


def _horizon(case: _Case) -> _Found | None:
    view, lease, facts, settings = case.view, case.lease, case.facts, case.settings
    behind, left = _behind(lease), lease.retention_left
    retention = facts.retentions.get(lease.stream)
    if behind is None or left is None or retention is None or behind == 0:
        return None
    name = short_shard(lease.shard_id)
    if left <= 0 or (lease.checkpoint_trimmed and left <= settings.near_horizon * retention):
        return _problem(
            view,
            "trimmed",
            f"{name}: the retention of {duration(retention)} has passed the checkpoint, and records are lost now: the oldest one "
            f"left is {duration(behind)} old",
            "lengthen the retention now, then find out why the shard is behind",
            lease=lease,
            weight=-left,
        )
    if left <= settings.horizon_soon * retention:
        near = left <= settings.near_horizon * retention
        return _problem(
            view,
            "near-horizon" if near else "horizon-soon",
            f"{name}: {duration(behind)} behind, retention {duration(retention)}: loses records in {duration(left)}",
            "lengthen the retention to win time, then find out why the shard is behind",
            lease=lease,
            weight=-left,
        )
    return None


def _handler(case: _Case) -> _Found | None:
    view, lease, settings = case.view, case.lease, case.settings
    seconds = lease.handler_seconds
    if seconds is None or seconds < settings.handler or lease.state is LeaseState.SILENT:
        return None
    renewed = "" if lease.renewed_ago is None else f"; lease renewed {duration(lease.renewed_ago)} ago"
    return _problem(
        view,
        "handler",
        f"{short_shard(lease.shard_id)}: process_records runs for {duration(seconds)}{renewed}",
        "look at the stack of the worker (py-spy dump); handler_timeout in its configuration ends such calls",
        lease=lease,
        weight=seconds,
    )


def _handler_fails(case: _Case) -> _Found | None:
    view, lease, failing = case.view, case.lease, case.lease.failing
    if failing is None or failing.attempts < case.settings.failing_calls or lease.state is LeaseState.SILENT:
        return None
    return _problem(
        view,
        "handler-fails",
        f"{short_shard(lease.shard_id)}: {failing_text(failing)}",
        "read the record and mend the handler; no later record is processed before the call succeeds"
        if failing.position is not None
        else "look at the worker's log and mend the handler; no record is processed before the call succeeds",
        lease=lease,
        weight=failing.seconds,
        actions=actions_of(view.application, view.streams, lease, shard_argument(lease)),
    )


def _starting_point(case: _Case) -> _Found | None:
    view, lease = case.view, case.lease
    checkpoint = lease.checkpoint
    if checkpoint is None or lease.initial_timestamp_millis is not None:
        return None
    name = short_shard(lease.shard_id)
    if checkpoint.sequence_number == AT_TIMESTAMP:
        # A Java worker that is configured with a timestamp uses that timestamp.
        known = lease.kind is OwnerKind.SDK or lease.kind is None
        return _problem(
            view,
            "no-timestamp",
            f"{name}: starts AT_TIMESTAMP, and the row has no time: "
            + (
                "no worker of this SDK can read it"
                if known
                else "a Java worker can only read it with a timestamp in its configuration"
            ),
            "set a position that every worker understands",
            lease=lease,
            command=Command.of(
                "rewind", application=view.application, shard=shard_argument(lease), to="TRIM_HORIZON"
            ),
            severity=Severity.ERROR if known else Severity.WARNING,
        )
    if checkpoint.sequence_number == LATEST and lease.state in (LeaseState.UNOWNED, LeaseState.SILENT):
        return _problem(
            view,
            "latest-unpinned",
            f"{name}: starts at LATEST, and no worker reads it: what arrives until one does is skipped",
            "start a worker, or set a position",
            lease=lease,
        )
    return None


def _handoff(case: _Case) -> _Found | None:
    view, lease, settings = case.view, case.lease, case.settings
    if lease.state is not LeaseState.HANDOFF:
        return None
    age = view.watched if lease.state_for is None else lease.state_for
    if age < settings.handoff:
        return None
    return _problem(
        view,
        "handoff-stuck",
        f"{short_shard(lease.shard_id)}: {printable(str(lease.owner))} should hand it off to {printable(str(lease.next_owner))} and "
        f"has not done so for {duration(age)}",
        "its handler may hang, or the old owner is a KCL 1 or 2, which does not hear the request",
        lease=lease,
        weight=age,
    )


def _parent(case: _Case) -> _Found | None:
    view, lease, facts, settings = case.view, case.lease, case.facts, case.settings
    if lease.state is not LeaseState.WAITING or lease.lease_key in facts.cycles:
        return None
    age = view.watched if lease.state_for is None else lease.state_for
    if age < settings.parent:
        return None
    prefix = "" if lease.stream is None else f"{lease.stream}:"
    parents = [
        parent
        for shard in lease.parents
        if (parent := case.by_key.get(prefix + shard)) is not None and parent.state is not LeaseState.FINISHED
    ]
    why = "; ".join(f"{short_shard(parent.shard_id)} is {state_text(parent)}" for parent in parents)
    return _problem(
        view,
        "parent-unfinished",
        f"{short_shard(lease.shard_id)}: waits for its parent for {duration(age)}: {why}",
        "records of a child wait until its parent is processed; look at the parent",
        lease=lease,
        command=_explain(view, parents[0] if parents else lease),
        weight=age,
    )


def state_text(lease: LeaseView) -> str:
    """Return the state of a lease with its lag, for a sentence."""
    behind = _behind(lease)
    return lease.state.value if behind is None else f"{lease.state.value}, {duration(behind)} behind"


def _progress(case: _Case) -> _Found | None:
    view, lease, settings = case.view, case.lease, case.settings
    behind = _behind(lease)
    if lease.state is not LeaseState.HELD or behind is None:
        return None
    if _handler(case) is not None or _handler_fails(case) is not None:
        return None  # another problem already reports this cause
    idle = view.watched if lease.checkpointed_ago is None else lease.checkpointed_ago
    name = short_shard(lease.shard_id)
    if lease.renewed_ago is not None and idle >= settings.no_checkpoint and behind >= settings.no_checkpoint:
        return _problem(
            view,
            "no-checkpoint",
            f"{name}: {duration(behind)} behind and no checkpoint for {duration(idle)}, although its owner renews the lease",
            "look at the worker's log: its handler hangs or fails, or it checkpoints rarely",
            lease=lease,
            weight=behind,
        )
    grown = lag_growth(lease)
    is_idle = not lease.throughput_kbps and (lease.checkpointed_ago is None or lease.checkpointed_ago >= 60)
    if grown is not None and grown >= 40 and behind >= settings.behind:
        # If no record is processed, the lag grows by a second each second.
        stuck = grown >= 57 and is_idle
        return _problem(
            view,
            "falling-behind",
            f"{name}: {duration(behind)} behind, {duration(grown)} more than a minute ago"
            + (": no record of it is processed" if stuck else ""),
            "look at the worker's log: its handler fails or hangs, or the shard cannot be read"
            if stuck
            else "the worker is too slow for the shard: a faster handler, more workers, or a split of the shard",
            lease=lease,
            weight=behind,
        )
    if behind < settings.behind or _horizon(case) is not None or _lag(case) is not None:
        return None
    catches_up = grown is not None and grown < 0
    return _problem(
        view,
        "behind",
        f"{name}: {duration(behind)} behind, "
        + (
            f"{duration(-grown)} less than a minute ago"
            if grown and catches_up
            else "the cause is not known yet"
        ),
        "it catches up by itself"
        if catches_up
        else "watch it for a minute: if it does not catch up, look at the worker's log",
        lease=lease,
        weight=behind,
    )


def lag_growth(lease: LeaseView) -> float | None:
    """Return the seconds by which the lag grew in the last minute; None if the lag was not known a minute ago."""
    known = [millis for millis in lease.trend if millis is not None]
    # Seven values, ten seconds apart: a lag that grew for most of the minute is not just a slow batch.
    return (known[-1] - known[-7]) / 1000 if len(known) >= 7 else None


def _lag(case: _Case) -> _Found | None:
    view, lease, settings = case.view, case.lease, case.settings
    behind = _behind(lease)
    if settings.max_lag is None or behind is None or behind <= settings.max_lag:
        return None
    return _problem(
        view,
        "lag",
        f"{short_shard(lease.shard_id)}: {duration(behind)} behind, the limit is {duration(settings.max_lag)}",
        "find out why the shard is behind",
        lease=lease,
        weight=behind,
    )


def _hot(case: _Case) -> _Found | None:
    view, lease, settings = case.view, case.lease, case.settings
    rate, behind, load = lease.throughput_kbps, _behind(lease), case.facts.loads.get(lease.lease_key)
    if load is not None:
        if load.utilization < settings.hot:
            return None
        rate = load.bytes_per_second / 1024
        text = f"{load.utilization:.0%} of what a shard accepts arrives: {rate:,.0f} KB/s, {load.records_per_second:,.0f} records/s"
    # A shard that catches up is read faster than it is written to, so its rate does not show the load.
    elif rate is None or rate < settings.hot * SHARD_BYTES_PER_SECOND / 1024 or (behind or 0.0) > 60:
        return None
    else:
        text = f"{rate:,.0f} KB/s processed, and a shard accepts {SHARD_BYTES_PER_SECOND / 1024:,.0f}"
    return _problem(
        view,
        "hot-shard",
        f"{short_shard(lease.shard_id)}: {text}",
        "split the shard, or spread the partition keys",
        lease=lease,
        command=Command.of("split", stream=_stream_name(view, lease), shard=short_shard(lease.shard_id)),
        weight=rate or 0.0,
    )


def _stream_name(view: FleetView, lease: LeaseView) -> str:
    if lease.stream is not None and lease.stream.count(":") == 2:
        return lease.stream.split(":")[1]
    return view.streams[0] if view.streams else "STREAM"


def _damaged(case: _Case) -> _Found | None:
    view, lease, facts = case.view, case.lease, case.facts
    if not lease.note or lease.lease_key in facts.cycles or lease.checkpoint is None:
        return None
    return _problem(
        view,
        "damaged-row",
        f"{short_shard(lease.shard_id)}: attributes of its row {lease.note}",
        "remove or repair these attributes",
        lease=lease,
        command=_show(view),
    )


_CHECKS: tuple[Callable[[_Case], _Found | None], ...] = (
    _horizon,
    _handler,
    _handler_fails,
    _starting_point,
    _handoff,
    _parent,
    _progress,
    _lag,
    _hot,
    _damaged,
)


def _unbalanced(view: FleetView, facts: TableFacts, settings: ProblemSettings) -> Iterable[_Found]:
    balance = balance_of(view)
    busiest = balance.busiest
    if busiest is None or balance.ideal < 1 or facts.is_single_scan:
        return
    over = busiest.leases - balance.ideal
    if over < 2 or over < settings.unbalanced * balance.ideal:
        return
    rate, total = busiest.throughput_kbps, balance.throughput_kbps
    # Our strategy balances by throughput where it is known, and then unequal numbers are right.
    if rate is not None and total and rate <= 1.5 * total / balance.workers:
        return
    yield _problem(
        view,
        "unbalanced",
        f"{printable(busiest.worker_id)} holds {counted(busiest.leases, 'lease')}, a fair share is {balance.ideal:.1f}",
        "leases move by themselves where workers balance; a fleet of several strategies does not",
        command=Command.of("balance", application=view.application),
        owner=busiest.worker_id,
        count=busiest.leases,
    )
