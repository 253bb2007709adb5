"""Interoperation with Java KCL workers: leader lock, worker metrics, and migration from KCL 2.x to 3.x."""

from kinesis_sdk.consumer.leases.java.leader_lock import CLAIM_TIME
from kinesis_sdk.consumer.leases.java.migration import MIGRATION_KEY, is_upgrading_from_2x

__all__ = ["CLAIM_TIME", "MIGRATION_KEY", "is_upgrading_from_2x"]
