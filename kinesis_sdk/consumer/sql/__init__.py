"""SQL databases, for sinks and for leases: dialects, engines, versions of tables, and which errors pass."""

from kinesis_sdk.consumer.sql.engines import counted_engine, open_engine

__all__ = ["counted_engine", "open_engine"]
