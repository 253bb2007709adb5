"""Fixtures for third-party libraries of children. Tests are skipped where these cannot be installed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from integration.java.processes import open_stage
from integration.localstack.fixtures import or_skip
from integration.multilang import install
from integration.multilang.scene import Children


@pytest.fixture(scope="session")
def amazon_kclpy() -> Path:
    """Provide the folder of amazon_kclpy's source."""
    with or_skip("amazon_kclpy", "REQUIRE_KCL"):
        return install.amazon_kclpy()


@pytest.fixture(scope="session")
def aws_kcl() -> Path:
    """Provide the folder of the KCL for Node and its sample."""
    with or_skip("aws-kcl", "REQUIRE_KCL"):
        return install.aws_kcl()


@pytest.fixture
def stage(tmp_path):
    """Provide an account of its own; skips without Java 17 and Node."""
    with ExitStack() as stack:
        with or_skip("the real KCL", "REQUIRE_KCL"):
            made = stack.enter_context(open_stage(tmp_path, "--no-throttle", fake_dynamodb=True))
        yield made


@pytest.fixture
def children(amazon_kclpy, aws_kcl, tmp_path):
    """Provide the programs that daemons start."""
    return Children(amazon_kclpy, aws_kcl, tmp_path)
