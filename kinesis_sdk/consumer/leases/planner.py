"""Which leases to take: the strategy that the configuration names.

The strategies themselves are in `strategies`; `plan_takes` runs the KCL 2.x's one as a function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random
from typing import TYPE_CHECKING

from kinesis_sdk.consumer.leases.strategies import (
    BalancedStrategy,
    Kcl2Strategy,
    LeaseStrategy,
    Plan,
    TableView,
    Take,
    TakeLimits,
    TakeReason,
)
from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.lease import Lease

if TYPE_CHECKING:
    # Only the name: the configuration itself imports from this package.
    from kinesis_sdk.consumer.config import ConsumerConfig

__all__ = [
    "LeaseStrategy",
    "Plan",
    "TableView",
    "Take",
    "TakeLimits",
    "TakeReason",
    "plan_takes",
    "strategy_for",
]


def strategy_for(config: ConsumerConfig) -> LeaseStrategy:
    """The strategy that ``lease_strategy`` names, set up as configured."""
    if config.lease_strategy == "kcl2":
        return Kcl2Strategy(prioritize_very_old=config.enable_priority_lease_assignment)
    return BalancedStrategy(
        by_throughput=config.balance_by == "throughput", separator=config.worker_group_separator
    )


def plan_takes(
    leases: Iterable[Lease],
    observed: LeaseObserver,
    me: str,
    now: float,
    limits: TakeLimits,
    rng: Random,
    *,
    held: Collection[str] = (),
    busy: Collection[str] = (),
) -> list[Take]:
    """Decide which leases to take now, by the KCL 2.x's algorithm without its priority for very old leases.

    Args:
        leases: Every lease of the table.
        observed: Ages, fed with the same scan.
        me: This worker's id.
        now: Monotonic time.
        limits: Bounds from the configuration.
        rng: Source of the random choice that keeps workers from racing for the same lease.
        held: Keys of leases that this worker holds: they count, they are not taken.
        busy: Keys whose previous shard consumer is still winding down here.

    Returns:
        Takes in order; each may still lose its conditional write.
    """
    view = TableView(leases=[*leases], observed=observed, me=me, now=now, limits=limits, held=held, busy=busy)
    return [*Kcl2Strategy(prioritize_very_old=False).plan(view, rng).takes]
