"""Unit tests."""

HANG = 300.0
"""Seconds after which something is broken, on a machine of any speed: a test that passes never waits for this."""
