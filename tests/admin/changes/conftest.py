from __future__ import annotations

from tests.admin.changes.places import place  # noqa: F401 - a fixture
