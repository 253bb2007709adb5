"""The leases of this worker: renewal, release, graceful handoff, and standby heartbeats."""
