"""The store of the leases that a connection names."""

from __future__ import annotations

import time
from collections.abc import Callable

from kinesis_sdk.admin.connection import Connection
from kinesis_sdk.admin.lease_tables.dynamodb import DynamoDBLeaseTables
from kinesis_sdk.admin.lease_tables.interface import LeaseTables
from kinesis_sdk.admin.lease_tables.sql import SqlLeaseTables


def lease_tables_of(connection: Connection, *, sleep: Callable[[float], None] = time.sleep) -> LeaseTables:
    """Return the store of the leases: DynamoDB, or the database of `Connection.lease_store`. Makes no call."""
    if connection.lease_store is None:
        return DynamoDBLeaseTables(connection, sleep=sleep)
    return SqlLeaseTables(connection, sleep=sleep)
