"""The list of owners and leases, row by row. Pure: views in, rows out.

Rows keep their place. An owner's place depends on its group and id, not on its lag, because a list that is sorted again every second
cannot be read. Another order is computed when the user asks for it, and then stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kinesis_sdk.admin.fleet.model import FleetView, LeaseState, LeaseView, OwnerView, Problem

NOBODY = ""
"""Key of the row for leases without an owner. No worker has an empty id."""
ALL_SHOWN = 20
"""Maximum number of leases of an application whose owners are all open at first."""


class Order(str, Enum):
    """Order of the owners."""

    ID = "id"
    LAG = "lag"
    LEASES = "leases"


@dataclass(frozen=True)
class OwnerRow:
    """One worker, or the leases without an owner (``owner`` is None).

    ``leases`` are its unfinished leases that match the filter, by shard; ``is_open`` is whether they are listed below it.
    """

    owner: OwnerView | None
    leases: tuple[LeaseView, ...]
    is_open: bool

    @property
    def key(self) -> str:
        """Identity of the row."""
        return f"owner {self.owner.worker_id if self.owner else NOBODY}"


@dataclass(frozen=True)
class LeaseRow:
    """One lease below its owner."""

    lease: LeaseView

    @property
    def key(self) -> str:
        """Identity of the row."""
        return f"lease {self.lease.lease_key}"


Row = OwnerRow | LeaseRow


def worker_of(lease: LeaseView) -> str:
    """Return the worker under which a lease is listed; `NOBODY` if it has none."""
    return lease.owner or NOBODY


class Rows:
    """Rows according to the user's choices: open owners, order, filter."""

    def __init__(self) -> None:
        self._toggled: set[str] = set()
        self._order = Order.ID
        self._places: dict[str, int] = {}
        self.pattern: str = ""

    @property
    def order(self) -> Order:
        """The order that was chosen last."""
        return self._order

    def toggle(self, worker_id: str) -> None:
        """Open or close an owner."""
        self._toggled ^= {worker_id}

    def open(self, worker_id: str, view: FleetView) -> None:
        """List the leases of an owner."""
        if not self._is_open(worker_id, view):
            self.toggle(worker_id)

    def next_order(self, view: FleetView) -> Order:
        """Choose the next order, and compute it from a view."""
        orders = list(Order)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        owners = list(view.owners)
        if self._order is Order.LAG:
            owners.sort(key=lambda one: -(one.worst_lag_millis if one.worst_lag_millis is not None else -1))
        elif self._order is Order.LEASES:
            owners.sort(key=lambda one: -len(one.lease_keys))
        self._places = {owner.worker_id: place for place, owner in enumerate(owners)}
        return self._order

    def build(self, view: FleetView) -> list[Row]:
        """Return the rows of a view."""
        leases = by_worker(view.leases)
        owners: list[OwnerView | None] = []
        if NOBODY in leases:
            owners.append(None)
        if self._order is Order.ID:
            owners.extend(view.owners)
        else:
            ordered = sorted(view.owners, key=self._place_of)
            owners.extend(ordered)
        named = _problem_texts(view.problems)
        result: list[Row] = []
        for owner in owners:
            worker_id = owner.worker_id if owner else NOBODY
            own = leases.get(worker_id, ())
            shown = tuple(lease for lease in own if self._matches(worker_id, lease, named))
            if self.pattern and not shown and self.pattern.lower() not in worker_id.lower():
                continue
            is_open = self._is_open(worker_id, view)
            result.append(OwnerRow(owner, shown, is_open))
            if is_open:
                result.extend(map(LeaseRow, shown))
        return result

    def _place_of(self, owner: OwnerView) -> int:
        return self._places.get(owner.worker_id, len(self._places))

    def _is_open(self, worker_id: str, view: FleetView) -> bool:
        return (view.totals.leases <= ALL_SHOWN) ^ (worker_id in self._toggled)

    def _matches(self, worker_id: str, lease: LeaseView, named: Mapping[str, str]) -> bool:
        pattern = self.pattern.lower()
        texts = (worker_id, lease.lease_key, lease.state.value, named.get(lease.lease_key, ""))
        return not pattern or any(pattern in text.lower() for text in texts)


def by_worker(leases: Iterable[LeaseView]) -> dict[str, tuple[LeaseView, ...]]:
    """Return the unfinished leases, in order, by the worker under which they are listed."""
    result: dict[str, list[LeaseView]] = {}
    for lease in leases:
        if lease.state is not LeaseState.FINISHED:
            result.setdefault(worker_of(lease), []).append(lease)
    return {worker: tuple(own) for worker, own in result.items()}


def _problem_texts(problems: Iterable[Problem]) -> dict[str, str]:
    result: dict[str, str] = {}
    for problem in problems:
        if problem.lease_key is not None:
            result[problem.lease_key] = f"{result.get(problem.lease_key, '')} {problem.title} {problem.code}"
    return result
