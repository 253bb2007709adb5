"""Leases bind shards to workers and carry the checkpoints. For tools that read or change a lease table."""

from kinesis_sdk.consumer.leases.intervals import (
    Intervals,
    IntervalSettings,
    default_intervals,
    scan_read_units,
)
from kinesis_sdk.consumer.leases.strategies import (
    GROUP_SEPARATOR,
    BalancedStrategy,
    Groups,
    Kcl2Strategy,
    LeaseStrategy,
    Plan,
    TableView,
    Take,
    TakeLimits,
    TakeReason,
    fair_shares,
)
from kinesis_sdk.consumer.leases.table import attributes
from kinesis_sdk.consumer.leases.table.dynamodb import DynamoDBLeaseStore
from kinesis_sdk.consumer.leases.table.expiry import LeaseObserver
from kinesis_sdk.consumer.leases.table.handler_request import HandlerRequest, HandlerVerb
from kinesis_sdk.consumer.leases.table.lease import (
    Item,
    Lease,
    ProcessedUntil,
    checkpoint_attributes,
    entity_type_of,
    is_lease_item,
    lease_from_item,
    lease_to_item,
)
from kinesis_sdk.consumer.leases.table.location import (
    MEMORY_URL,
    check_database,
    check_location,
    without_password,
)
from kinesis_sdk.consumer.leases.table.memory import InMemoryLeaseStore
from kinesis_sdk.consumer.leases.table.progress import Progress
from kinesis_sdk.consumer.leases.table.sql import SQL_TABLE, SqlLeaseStore
from kinesis_sdk.consumer.leases.table.store import LeaseStore, TableScan
from kinesis_sdk.consumer.leases.table.transitions import Conflict

__all__ = [
    # rows
    "HandlerRequest",
    "HandlerVerb",
    "Item",
    "Lease",
    "ProcessedUntil",
    "Progress",
    "attributes",
    "checkpoint_attributes",
    "entity_type_of",
    "is_lease_item",
    "lease_from_item",
    "lease_to_item",
    # stores
    "Conflict",
    "DynamoDBLeaseStore",
    "InMemoryLeaseStore",
    "LeaseStore",
    "SQL_TABLE",
    "SqlLeaseStore",
    "TableScan",
    # stores by their URLs
    "MEMORY_URL",
    "check_database",
    "check_location",
    "without_password",
    # decisions
    "BalancedStrategy",
    "GROUP_SEPARATOR",
    "Groups",
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
    "default_intervals",
    "fair_shares",
    "scan_read_units",
]
