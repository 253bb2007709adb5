"""Strategies that decide which leases a worker takes: `BalancedStrategy` (default), `Kcl2Strategy`, or a user's own."""

from kinesis_sdk.consumer.leases.strategies.balanced import BalancedStrategy
from kinesis_sdk.consumer.leases.strategies.base import (
    LeaseStrategy,
    Plan,
    TableView,
    Take,
    TakeLimits,
    TakeReason,
)
from kinesis_sdk.consumer.leases.strategies.by_count import fair_shares
from kinesis_sdk.consumer.leases.strategies.factory import StrategyName, check_strategy, resolve_strategy
from kinesis_sdk.consumer.leases.strategies.groups import GROUP_SEPARATOR, Groups, group_of, grouped_id
from kinesis_sdk.consumer.leases.strategies.kcl2 import Kcl2Strategy

__all__ = [
    # the interface
    "LeaseStrategy",
    "Plan",
    "TableView",
    "Take",
    "TakeLimits",
    "TakeReason",
    # the built-in strategies
    "BalancedStrategy",
    "Kcl2Strategy",
    "StrategyName",
    "check_strategy",
    "resolve_strategy",
    "fair_shares",
    # groups
    "GROUP_SEPARATOR",
    "Groups",
    "group_of",
    "grouped_id",
]
