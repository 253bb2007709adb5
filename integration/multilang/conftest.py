"""Fixtures for third-party libraries of children. Tests are skipped where these cannot be installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from integration.java.processes import open_stage
from integration.localstack.install import CannotInstallError
from integration.multilang import install
from integration.multilang.scene import Children


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


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """Provide an account of its own; skips without Java 17 and Node."""
    for name, value in (("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    opened = open_stage(tmp_path, "--no-throttle", fake_dynamodb=True)
    try:
        made = opened.__enter__()
    except CannotInstallError as error:
        if os.environ.get("REQUIRE_KCL") == "1":
            raise
        pytest.skip(f"the real KCL cannot run here: {error}")
    try:
        yield made
    finally:
        opened.__exit__(None, None, None)


@pytest.fixture
def children(amazon_kclpy, aws_kcl, tmp_path):
    """Provide the programs that daemons start."""
    return Children(amazon_kclpy, aws_kcl, tmp_path)
