"""Shards and their leases: creation, children, deletion."""

from kinesis_sdk.consumer.shards.children import ChildLeases
from kinesis_sdk.consumer.shards.cleanup import needs_listing, plan_cleanup
from kinesis_sdk.consumer.shards.sync import (
    bootstrap_filter,
    plan_bootstrap,
    plan_bootstrap_from_all,
    plan_children,
    plan_sync,
)

__all__ = [
    "ChildLeases",
    "bootstrap_filter",
    "needs_listing",
    "plan_bootstrap",
    "plan_bootstrap_from_all",
    "plan_children",
    "plan_cleanup",
    "plan_sync",
]
