"""SQL databases, for sinks and for leases: dialects, engines, versions of tables, and which errors pass."""
