"""For all unit tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A deadline for each example measures the machine's load, not the code; so does "too slow".
settings.register_profile(
    "house", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")
