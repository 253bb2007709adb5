"""Metrics of whole fleets for Prometheus and KEDA, from the views of a `FleetPoller`.

Unknown values have no sample: a lag that was not measured is absent instead of 0, so averages and maximums are correct. Only the newest
view is kept, so the series of a removed shard end with the next scrape. An old view loses its shards,
because a lag that is no longer measured looks like a steady lag; `kinesis_fleet_up` is then 0.

The exporter runs one `FleetPoller` for each application. A scrape makes no call.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kinesis_sdk.admin.fleet.model import FleetView, LeaseState, LeaseView, Move, OwnerKind
from kinesis_sdk.common.clock import Clock, SystemClock

STALE = 60.0
"""Seconds without a successful scan of the lease table after which a view counts as old."""

OWNER_KINDS: Mapping[OwnerKind | None, str] = {
    OwnerKind.SDK: "sdk",
    OwnerKind.KCL3: "kcl3",
    OwnerKind.OTHER: "kcl1_or_2",
    None: "none",
}
"""Value of the label ``owner_kind``."""

_SHARD = ("application", "stream", "shard", "owner_kind")


@dataclass(frozen=True)
class FleetMetric:
    """A metric of the exporter.

    Attributes:
        is_counter: Whether it only grows; its samples then end in ``_total``.
        per_shard: Whether the metric has a series for each shard. With ``per_owner``, each series also has the label ``owner``.
        per_owner: Whether it has a series for each worker, if labels for workers are enabled.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ("application",)
    is_counter: bool = False
    per_shard: bool = False
    per_owner: bool = False

    @property
    def sample(self) -> str:
        """Name of the metric in queries."""
        return f"{self.name}_total" if self.is_counter else self.name


UP = FleetMetric("kinesis_fleet_up", "1 if the lease table was read in the last 60 s, else 0.")
TABLE_AGE = FleetMetric("kinesis_fleet_table_age_seconds", "Seconds since the lease table was read.")
SHARDS = FleetMetric(
    "kinesis_fleet_shards", "Shards by what happens to them.", ("application", "stream", "state")
)
UNOWNED = FleetMetric("kinesis_fleet_unowned_shards", "Shards that could be read and have no owner.")
MEASURED = FleetMetric("kinesis_fleet_measured_shards", "Unfinished shards whose lag is known.")
WORST_LAG = FleetMetric("kinesis_fleet_worst_lag_seconds", "Largest lag of a shard; absent if none is known.")
TOTAL_LAG = FleetMetric("kinesis_fleet_total_lag_seconds", "Sum of the known lags; absent if none is known.")
BEHIND = FleetMetric("kinesis_fleet_shards_behind", "Shards that are more than a minute behind.")
OWNERS = FleetMetric("kinesis_fleet_owners", "Workers that renew leases.", ("application", "owner_kind"))
SILENT = FleetMetric("kinesis_fleet_silent_owners", "Workers that own leases and do not renew them.")
ABANDONED = FleetMetric(
    "kinesis_fleet_abandoned", "1 if there are unfinished shards and no worker renews a lease, else 0."
)
MOVES = FleetMetric(
    "kinesis_fleet_moves",
    "Changes of owners since the start of the exporter.",
    ("application", "reason"),
    is_counter=True,
)
PROBLEMS = FleetMetric(
    "kinesis_fleet_problems", "Leases with a problem.", ("application", "code", "severity")
)
API_CALLS = FleetMetric(
    "kinesis_fleet_api_calls_per_minute",
    "API calls of the exporter in the last minute.",
    ("application", "operation"),
)
SHARD_LAG = FleetMetric(
    "kinesis_fleet_shard_lag_seconds",
    "Age of the oldest unprocessed record of a shard; absent if it is not known.",
    _SHARD,
    per_shard=True,
)
SHARD_OWNED = FleetMetric(
    "kinesis_fleet_shard_owned",
    "1 if a worker renews the lease of a shard, else 0; absent while it waits for its parents.",
    _SHARD,
    per_shard=True,
)
SHARD_RETENTION_LEFT = FleetMetric(
    "kinesis_fleet_shard_retention_left_seconds",
    "Seconds until the oldest unprocessed record of a shard is trimmed; absent if the lag is not known.",
    _SHARD,
    per_shard=True,
)
SHARD_CHECKPOINT_AGE = FleetMetric(
    "kinesis_fleet_shard_checkpoint_age_seconds",
    "Seconds since the checkpoint of a shard was seen to change; absent if it was not.",
    _SHARD,
    per_shard=True,
)
SHARD_HANDLER_STUCK = FleetMetric(
    "kinesis_fleet_shard_handler_stuck_seconds",
    "Seconds for which the handler of a shard has failed again and again, or has been in one call of more than a minute; absent otherwise.",
    _SHARD,
    per_shard=True,
)
OWNER_LEASES = FleetMetric(
    "kinesis_fleet_owner_leases",
    "Unfinished leases of a worker.",
    ("application", "owner", "owner_kind"),
    per_owner=True,
)
OWNER_WORST_LAG = FleetMetric(
    "kinesis_fleet_owner_worst_lag_seconds",
    "Largest lag of a worker's shards; absent if none is known.",
    ("application", "owner", "owner_kind"),
    per_owner=True,
)

CATALOGUE = (
    UP, TABLE_AGE, SHARDS, UNOWNED, MEASURED, WORST_LAG, TOTAL_LAG, BEHIND, OWNERS, SILENT, ABANDONED, MOVES, PROBLEMS,
    API_CALLS, SHARD_LAG, SHARD_OWNED, SHARD_RETENTION_LEFT, SHARD_CHECKPOINT_AGE, SHARD_HANDLER_STUCK, OWNER_LEASES, OWNER_WORST_LAG,
)  # fmt: skip
"""All metrics of the exporter."""

_UNOWNED_STATES = (LeaseState.SILENT, LeaseState.UNOWNED, LeaseState.MISSING, LeaseState.UNREADABLE)

_STUCK = ("handler", "handler-fails")
"""Codes of problems of a handler."""

Samples = Mapping["FleetMetric", Sequence[tuple[tuple[str, ...], float]]]
"""Samples by metric: the values of the labels, and the number."""


class FleetMetrics:
    """Keeps the newest view of each application, and counts moves. Thread-safe.

    Args:
        applications: Names of the applications. ``kinesis_fleet_up`` is 0 until the table was read.
        per_owner: Whether worker ids are labels. The number of worker ids is unbounded: each restart of a worker makes a new id.
        clock: Clock.
    """

    def __init__(
        self, applications: Sequence[str], *, per_owner: bool = False, clock: Clock | None = None
    ) -> None:
        self._per_owner = per_owner
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._names = tuple(dict.fromkeys(applications))
        self._views: dict[str, tuple[FleetView, float]] = {}
        self._moves: dict[str, Counter[str]] = {name: Counter() for name in self._names}
        self._newest_move: dict[str, Move] = {}

    @property
    def applications(self) -> tuple[str, ...]:
        """Names of the applications."""
        return self._names

    def update(self, view: FleetView) -> None:
        """Take a new view."""
        name = view.application
        with self._lock:
            self._views[name] = (view, self._clock.monotonic())
            counts = self._moves.setdefault(name, Counter())
            newest = self._newest_move.get(name)
            for move in view.moves:  # newest first
                if move == newest:
                    break
                counts[move.reason] += 1
            if view.moves:
                self._newest_move[name] = view.moves[0]

    def view(self, application: str) -> tuple[FleetView | None, bool]:
        """Return the newest view of an application, and whether it is fresh."""
        with self._lock:
            found = self._views.get(application)
        if found is None:
            return None, False
        view, taken = found
        return view, self._table_age(view, taken) <= STALE

    def _table_age(self, view: FleetView, taken: float) -> float:
        return view.table_age + self._clock.monotonic() - taken

    def samples(self) -> Samples:
        """Return all samples, by metric."""
        result: dict[FleetMetric, list[tuple[tuple[str, ...], float]]] = {}

        def add(metric: FleetMetric, value: float | None, *labels: str) -> None:
            if value is not None:
                result.setdefault(metric, []).append((labels, float(value)))

        with self._lock:
            views = dict(self._views)
            moves = {name: dict(counts) for name, counts in self._moves.items()}
        for name in self._names:
            found = views.get(name)
            fresh = found is not None and self._table_age(*found) <= STALE
            add(UP, fresh, name)
            for reason, count in moves[name].items():
                add(MOVES, count, name, reason)
            if found is None:
                continue
            view, taken = found
            add(TABLE_AGE, self._table_age(view, taken), name)
            for operation, calls in view.calls_per_minute.items():
                add(API_CALLS, calls, name, operation)
            if fresh:
                for metric, labels, value in samples_of(view, per_owner=self._per_owner):
                    add(metric, value, *labels)
        return result

    def labels(self, metric: FleetMetric) -> tuple[str, ...]:
        """Return the exported labels of a metric."""
        return (*metric.labels, "owner") if metric.per_shard and self._per_owner else metric.labels

    # For `prometheus_client`

    def describe(self) -> Iterator[Any]:
        """Yield nothing, so that names are not checked against other collectors."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """Yield all families, for `prometheus_client`."""
        from prometheus_client import core

        samples = self.samples()
        for metric in CATALOGUE:
            if metric.per_owner and not self._per_owner:
                continue
            kind = core.CounterMetricFamily if metric.is_counter else core.GaugeMetricFamily
            family = kind(metric.name, metric.text, labels=self.labels(metric))
            for labels, value in samples.get(metric, ()):
                family.add_metric(labels, value)
            yield family

    # For KEDA

    def summary(self, application: str) -> dict[str, Any] | None:
        """Return the values by which an application is scaled; None if its view is not fresh, or has no lag at all.

        An unknown number must not become 0: the workers would be scaled down while nothing is measured. The lag of an
        application without unfinished shards is 0.
        """
        view, fresh = self.view(application)
        if view is None or not fresh:
            return None
        totals = view.totals
        if totals.worst_lag_millis is None and totals.leases:
            return None
        return {
            "application": application,
            "worst_lag_seconds": (totals.worst_lag_millis or 0) / 1000,
            "total_lag_seconds": totals.total_lag_millis / 1000,
            "shards": totals.leases,
            "shards_measured": totals.measured,
            "shards_behind": totals.behind_a_minute,
            "unowned_shards": totals.unowned,
            "owners": totals.owners,
            "problems": len(view.problems),
        }


def samples_of(
    view: FleetView, *, per_owner: bool = False
) -> Iterator[tuple[FleetMetric, tuple[str, ...], float | None]]:
    """Yield the metric, the label values and the number of each value in a view; the number is None if unknown."""
    name, totals = view.application, view.totals
    only = (name,)
    states: Counter[tuple[str, str]] = Counter()
    for lease in view.leases:
        states[stream_of(lease, view), lease.state.value] += 1
    for stream in sorted({stream for stream, _ in states} | set(view.streams)):
        for state in LeaseState:
            yield SHARDS, (name, stream, state.value), states[stream, state.value]
    yield UNOWNED, only, totals.unowned
    yield MEASURED, only, totals.measured
    known = totals.worst_lag_millis
    yield WORST_LAG, only, None if known is None else known / 1000
    yield TOTAL_LAG, only, None if known is None else totals.total_lag_millis / 1000
    yield BEHIND, only, totals.behind_a_minute
    yield SILENT, only, totals.silent_owners
    yield ABANDONED, only, totals.leases > 0 and totals.owners == 0
    kinds = Counter(owner.kind for owner in view.owners if owner.silent_for is None)
    for kind, label in OWNER_KINDS.items():
        if kind is not None:
            yield OWNERS, (name, label), kinds[kind]
    problems: Counter[tuple[str, str]] = Counter()
    for problem in view.problems:
        problems[problem.code, problem.severity.value] += problem.count
    for (code, severity), count in problems.items():
        yield PROBLEMS, (name, code, severity), count
    stuck = {problem.lease_key for problem in view.problems if problem.code in _STUCK}
    for lease in view.leases:
        if lease.state is not LeaseState.FINISHED:
            yield from _shard_samples(lease, view, per_owner=per_owner, is_stuck=lease.lease_key in stuck)
    if per_owner:
        for owner in view.owners:
            labels = (name, owner.worker_id, OWNER_KINDS[owner.kind])
            yield OWNER_LEASES, labels, len(owner.lease_keys)
            worst = owner.worst_lag_millis
            yield OWNER_WORST_LAG, labels, None if worst is None else worst / 1000


def _shard_samples(
    lease: LeaseView, view: FleetView, *, per_owner: bool, is_stuck: bool
) -> Iterator[tuple[FleetMetric, tuple[str, ...], float | None]]:
    labels: tuple[str, ...] = (
        view.application,
        stream_of(lease, view),
        lease.shard_id,
        OWNER_KINDS[lease.kind],
    )
    if per_owner:
        labels = (*labels, lease.owner or "")
    if lease.owner is not None or lease.state is not LeaseState.WAITING:
        # A shard that waits for its parents does not need an owner yet.
        yield SHARD_OWNED, labels, lease.owner is not None and lease.state not in _UNOWNED_STATES
    yield SHARD_LAG, labels, None if lease.lag is None else lease.lag.millis / 1000
    yield SHARD_RETENTION_LEFT, labels, None if lease.lag is None else lease.retention_left
    yield SHARD_CHECKPOINT_AGE, labels, lease.checkpointed_ago
    if is_stuck:
        failing = None if lease.failing is None else lease.failing.seconds
        yield SHARD_HANDLER_STUCK, labels, lease.handler_seconds if failing is None else failing


def stream_of(lease: LeaseView, view: FleetView) -> str:
    """Return the name of a lease's stream; empty if it is not known yet."""
    if lease.stream:
        return lease.stream.split(":")[1] if lease.stream.count(":") == 2 else lease.stream
    return view.streams[0] if len(view.streams) == 1 else ""
