"""Tests that run once for each place of the leases."""

from __future__ import annotations

import pytest

from tests.admin.changes.operators import SteeredFleet


@pytest.fixture(params=["dynamodb", "sqlite"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the fleets of a test keep their leases."""
    monkeypatch.setattr(SteeredFleet, "place", request.param)


@pytest.fixture(params=["dynamodb", pytest.param("sqlite", marks=pytest.mark.fuzz_only)])
def any_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `place`, for tests of what does not depend on the store; SQLite when fuzzing."""
    monkeypatch.setattr(SteeredFleet, "place", request.param)


both_places = pytest.mark.usefixtures("place")
