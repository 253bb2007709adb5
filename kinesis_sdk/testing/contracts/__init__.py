"""Contracts of lease stores and of sinks, as checks that you run against your own: `lease_stores` and `sinks`."""
