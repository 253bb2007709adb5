"""Incidents on a live fleet, and what each view says of them: see `integration.incidents.run`."""
