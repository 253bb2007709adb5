"""SQL databases for sinks and leases: dialects, engines, table versions, and transient errors."""

from kinesis_sdk.consumer.sql.engines import counted_engine, open_engine

__all__ = ["counted_engine", "open_engine"]
