"""Ways to decide which leases to take: `balanced` (default) and the KCL 2.x's own."""

from kinesis_sdk.consumer.leases.strategies.balanced import BalancedStrategy
from kinesis_sdk.consumer.leases.strategies.base import (
    Give,
    LeaseStrategy,
    Plan,
    TableView,
    Take,
    TakeLimits,
    TakeReason,
)
from kinesis_sdk.consumer.leases.strategies.groups import group_of, grouped_id
from kinesis_sdk.consumer.leases.strategies.kcl2 import Kcl2Strategy

__all__ = [
    # what a strategy is
    "Give",
    "LeaseStrategy",
    "Plan",
    "TableView",
    "Take",
    "TakeLimits",
    "TakeReason",
    # the two
    "BalancedStrategy",
    "Kcl2Strategy",
    # groups
    "group_of",
    "grouped_id",
]
