from __future__ import annotations

from tests.admin.changes.places import any_place, place  # noqa: F401 - fixtures
