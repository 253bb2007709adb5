"""Fixtures for libraries of children that are not ours; tests that need them are skipped where they cannot be installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from integration.localstack.install import CannotInstallError
from integration.multilang import install


def _or_skip(function):
    try:
        return function()
    except CannotInstallError as error:
        if os.environ.get("REQUIRE_KCL") == "1":
            raise
        pytest.skip(f"{function.__name__} cannot run here: {error}")


@pytest.fixture(scope="session")
def amazon_kclpy() -> Path:
    """Provide the folder of amazon_kclpy's source."""
    return _or_skip(install.amazon_kclpy)


@pytest.fixture(scope="session")
def aws_kcl() -> Path:
    """Provide the folder of the KCL for Node and its sample."""
    return _or_skip(install.aws_kcl)
