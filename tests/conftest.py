"""For all unit tests."""

from __future__ import annotations

from hypothesis import settings

# A deadline for each example measures the machine's load, not the code. Without one, "too slow" allows ten examples 30 s
# of generation, where 0.2 s is the most that any strategy here takes on a machine with four times its load.
settings.register_profile("house", parent=settings.default, deadline=None)
settings.load_profile("house")
