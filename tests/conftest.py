"""For all unit tests."""

from __future__ import annotations

from hypothesis import settings

# A deadline for each example measures the machine's load, not the code.
settings.register_profile("house", parent=settings.default, deadline=None)
settings.load_profile("house")
