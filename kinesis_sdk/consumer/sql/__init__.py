"""SQL databases for sinks and leases: dialects, engines, table versions, and transient errors."""

from kinesis_sdk.consumer.sql.dialect import dialect_of
from kinesis_sdk.consumer.sql.driver import import_sqlalchemy
from kinesis_sdk.consumer.sql.engines import (
    counted_engine,
    is_same_database,
    is_shared,
    open_async_engine,
    open_engine,
    run_in,
)
from kinesis_sdk.consumer.sql.failures import translated
from kinesis_sdk.consumer.sql.tables import SharedTables, Tables

__all__ = [
    "SharedTables",
    "Tables",
    "counted_engine",
    "dialect_of",
    "import_sqlalchemy",
    "is_same_database",
    "is_shared",
    "open_async_engine",
    "open_engine",
    "run_in",
    "translated",
]
