"""Leases: who works on which shard, and how far."""

from kinesis_sdk.consumer.leases.planner import (
    LeaseStrategy,
    Plan,
    TableView,
    Take,
    TakeLimits,
    TakeReason,
    plan_takes,
    strategy_for,
)
from kinesis_sdk.consumer.leases.strategies import BalancedStrategy, Kcl2Strategy
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.lease import Lease, lease_from_item, lease_to_item
from kinesis_sdk.consumer.leases.table.memory import InMemoryLeaseStore
from kinesis_sdk.consumer.leases.table.store import Conflict, LeaseStore, TableScan

__all__ = [
    # rows
    "Lease",
    "lease_from_item",
    "lease_to_item",
    # stores
    "Conflict",
    "DynamoDBLeaseStore",
    "InMemoryLeaseStore",
    "LeaseStore",
    "TableScan",
    # decisions
    "BalancedStrategy",
    "Kcl2Strategy",
    "LeaseObserver",
    "LeaseStrategy",
    "Plan",
    "TableView",
    "Take",
    "TakeLimits",
    "TakeReason",
    "plan_takes",
    "strategy_for",
]
