"""Incidents on a live fleet, and how each view reports them: see `integration.incidents.run`."""
