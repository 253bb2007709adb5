"""Shard sync: creating and deleting the leases of a stream's shards."""

from kinesis_sdk.consumer.shard_sync.audit import find_contradiction, find_cycles, find_misfits
from kinesis_sdk.consumer.shard_sync.children import ChildLeases
from kinesis_sdk.consumer.shard_sync.cleanup import needs_listing, plan_cleanup
from kinesis_sdk.consumer.shard_sync.plan import (
    bootstrap_filter,
    plan_bootstrap,
    plan_bootstrap_from_all,
    plan_children,
    plan_sync,
)

__all__ = [
    "ChildLeases",
    "bootstrap_filter",
    "find_contradiction",
    "find_cycles",
    "find_misfits",
    "needs_listing",
    "plan_bootstrap",
    "plan_bootstrap_from_all",
    "plan_children",
    "plan_cleanup",
    "plan_sync",
]
