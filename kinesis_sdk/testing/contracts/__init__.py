"""Contracts of lease stores and of sinks, as checks that you run against your own classes: `lease_stores` and `sinks`."""
