"""The built-in strategies by name."""

from __future__ import annotations

from typing import Literal

from kinesis_sdk.common.errors import ConfigError
from kinesis_sdk.common.validation import check_choice
from kinesis_sdk.consumer.leases.intervals import IntervalSettings
from kinesis_sdk.consumer.leases.strategies.balanced import BalancedStrategy
from kinesis_sdk.consumer.leases.strategies.base import LeaseStrategy
from kinesis_sdk.consumer.leases.strategies.groups import GROUP_SEPARATOR
from kinesis_sdk.consumer.leases.strategies.kcl2 import Kcl2Strategy

StrategyName = Literal["balanced", "kcl2"]
"""Names of the built-in strategies."""


def resolve_strategy(
    strategy: StrategyName | LeaseStrategy,
    *,
    by_throughput: bool = True,
    separator: str = GROUP_SEPARATOR,
    prioritize_very_old: bool = True,
) -> LeaseStrategy:
    """Return the built-in strategy of this name, or the object itself. The options are for the built-in strategies."""
    if strategy == "balanced":
        return BalancedStrategy(by_throughput=by_throughput, separator=separator)
    if strategy == "kcl2":
        return Kcl2Strategy(prioritize_very_old=prioritize_very_old)
    assert not isinstance(strategy, str)
    return strategy


def check_strategy(field: str, strategy: object, settings: IntervalSettings) -> None:
    """Check a strategy of the configuration and its intervals.

    Raises a `ConfigError` if it is neither a known name nor an object with ``plan`` and ``intervals``. Its intervals must be
    positive, and no lease may expire between two renewals.
    """
    if isinstance(strategy, str):
        check_choice(field, strategy, ("balanced", "kcl2"))
        return
    plan, intervals_of = getattr(strategy, "plan", None), getattr(strategy, "intervals", None)
    if isinstance(strategy, type) or not callable(plan) or not callable(intervals_of):
        raise ConfigError(
            field,
            strategy,
            '"balanced", "kcl2" or an object with the methods of LeaseStrategy (plan, intervals)',
        )
    intervals = intervals_of(settings, 0)
    if not 0 < intervals.renewal < settings.failover_time:
        raise ConfigError(
            f"{field}.intervals().renewal",
            intervals.renewal,
            f"seconds above 0 and below failover_time ({settings.failover_time:g})",
        )
    for name in ("scan", "rescan"):
        if not getattr(intervals, name) > 0:
            raise ConfigError(f"{field}.intervals().{name}", getattr(intervals, name), "seconds above 0")
