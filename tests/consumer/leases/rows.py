"""Rows of a lease table that another program has written."""

from __future__ import annotations

from kinesis_sdk.consumer.leases.table.lease import Lease
from kinesis_sdk.consumer.leases.table.store import LeaseStore


def put_row(store: LeaseStore, lease: Lease) -> None:
    """Write a row as it is, whatever the table has for its key: no condition is checked, and no counter grows."""
    store.delete(lease.lease_key)
    store.create_if_absent(lease)
