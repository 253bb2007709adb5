"""Leases: they bind shards to workers and carry the checkpoints."""

from kinesis_sdk.consumer.leases.intervals import Intervals, IntervalSettings
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
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest
from kinesis_sdk.consumer.leases.table.lease import Lease, lease_from_item, lease_to_item
from kinesis_sdk.consumer.leases.table.memory import InMemoryLeaseStore
from kinesis_sdk.consumer.leases.table.progress import Progress
from kinesis_sdk.consumer.leases.table.sql import SqlLeaseStore
from kinesis_sdk.consumer.leases.table.store import LeaseStore, TableScan
from kinesis_sdk.consumer.leases.table.transitions import Conflict

__all__ = [
    # rows
    "HandlerRequest",
    "Lease",
    "Progress",
    "lease_from_item",
    "lease_to_item",
    # stores
    "Conflict",
    "DynamoDBLeaseStore",
    "InMemoryLeaseStore",
    "LeaseStore",
    "SqlLeaseStore",
    "TableScan",
    # decisions
    "BalancedStrategy",
    "IntervalSettings",
    "Intervals",
    "Kcl2Strategy",
    "LeaseObserver",
    "LeaseStrategy",
    "Plan",
    "TableView",
    "Take",
    "TakeLimits",
    "TakeReason",
]
